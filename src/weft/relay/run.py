"""One request on its way: targets are tried in order, and the answer is told block by block.

Nothing is told before there is content, so a target that fails until then is tried again, or the
next one is; afterwards never. The blocks are pulled: whoever reads them slowly has the upstream
read slowly. A run belongs to one task; `stop` may be called from anywhere on its loop.
"""

import asyncio
import math
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from weft.codec import Pipe
from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.base import Stage
from weft.dialects.faults import class_of, fault
from weft.errors import BadRequest, InternalError, WeftError
from weft.findings import Findings
from weft.parts import (
    ErrorPart,
    Finish,
    Part,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    TextEnd,
    TextStart,
)
from weft.relay.answer import Answer
from weft.relay.asked import Asked, Failed, Limits, Question, codec_of, question
from weft.relay.keeping import Keeping
from weft.relay.reasoning import CallState, keep, kept
from weft.relay.record import Attempt, Observer, Record
from weft.relay.routing import Target
from weft.relay.shown import Shown
from weft.relay.splice import Splice
from weft.relay.telling import Echo, Identified, Telling, Unanswered, as_asked
from weft.request import Request
from weft.scrub import Scrubber
from weft.sse import comment
from weft.store.base import Store, StoreError, Taken
from weft.upstream.base import Busy, Incoming, Unreachable
from weft.upstream.retry import wait

T = TypeVar("T")

ERROR_BODY = 64 * 1024
"""As much of an error body is read."""

LARGE = 1024 * 1024
"""Bodies over this size are translated in a thread: the loop has others to serve."""

_PROOF = re.compile(r"signature|encrypted_content|thinking block|reasoning item", re.IGNORECASE)
"""What upstreams say of a proof that they do not take back."""

_FINAL = frozenset(("bad-request", "cancelled"))
"""What would go wrong everywhere: no other target is tried."""

_ERRORS = (b'{"type":"error"', b'{"error"')
"""How a body begins that a dialect writes where it cannot tell the answer."""


class Stopped(Failed):
    """The run was stopped from outside."""


class Run:
    """One request. `open`, then `next` until it returns nothing, or `whole`; at last `close`."""

    def __init__(
        self,
        asked: Asked,
        targets: Sequence[Target],
        limits: Limits,
        scrub: Scrubber,
        observers: Sequence[Observer] = (),
        keeping: Keeping | None = None,
        thoughts: Store | None = None,
    ) -> None:
        forgets = not DIALECTS[asked.dialect].returns_reasoning
        self._thoughts = thoughts if forgets else None
        """Where the reasoning of calls is kept, if the client does not carry it."""
        self._states: Mapping[str, CallState] = {}
        self._asked = asked
        self._targets = targets
        self._limits = limits
        self._shown = Shown(scrub)
        self._observers = observers
        self._keeping = keeping
        self._events = 0
        """How many were stored when the store took no more."""
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._waiting = False
        """Whether the task waits for an upstream, and may be cancelled."""
        self._verdict: ErrorPart | None = None
        """Why it was stopped from outside."""
        self._question: Question | None = None
        self._request = Request(asked.model)
        """As much of what was asked as could be read."""
        self._answer: Answer | None = None
        self._telling: Telling | Echo | Identified | None = None
        self._splice: Splice | None = None
        self._held: list[bytes] = []
        """What was read before there was content to tell."""
        self._touched = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = self._loop.call_later(limits.duration, self._too_long)
        self.record = Record(asked.id, asked.dialect, asked.model, asked.caller, asked.stream)

    # From outside

    def stop(self, error: ErrorPart) -> None:
        """Ends the answer with this error, as soon as the client has what came before."""
        if self._verdict is None:
            self._verdict = error
            if self._waiting and self._task is not None:
                self._task.cancel()

    def keepalive(self) -> bytes:
        """What to send, at once, while there is nothing to say. Where that is an event it is stored
        like any other; none is made while one with a smaller number is on its way.
        """
        if self.record.first is None:
            return self._unanswered().keepalive()
        telling, keeping = self._telling, self._keeping
        if telling is None or not self._waiting or self._held:
            return comment("keepalive")
        told = telling.keepalive()
        is_event = told.endswith(b"\n\n") and not told.startswith(b":")
        if is_event and keeping is not None and not keeping.took(told):
            return comment("keepalive")
        return told or self._unanswered().keepalive()

    def _unanswered(self) -> Unanswered:
        asked = self._asked
        return Unanswered(asked.dialect, self._request, int(time.time()), asked.response_id)

    def _too_long(self) -> None:
        limit = self._limits.duration
        self.stop(ErrorPart("timeout", f"the answer took longer than {limit:g} seconds"))

    # Opening

    @property
    def background(self) -> bool:
        """Whether it goes on without a client."""
        return self._asked.background

    @property
    def keeping(self) -> Keeping | None:
        """How the answer is stored, if it is."""
        return self._keeping

    async def open(self) -> None:
        """Returns when there is something to tell; raises Failed if no target has an answer."""
        self._task = asyncio.current_task()
        try:
            await self._recall()
            failure = await self._stoppable(self._tried())
        except Stopped as stopped:
            failure = stopped.error
        if failure is not None:
            self._conclude(failure)
            raise Failed(failure)

    async def _recall(self) -> None:
        """Finds the reasoning of calls that the client did not bring."""
        if self._thoughts is not None and b"tool_calls" in self._asked.body:
            with suppress(BadRequest):  # it is told later
                request = codec_of(self._asked.dialect).parse(self._asked.body, Context()).request
                self._states = await kept(self._thoughts, self._asked.caller, request)

    async def _keep_thoughts(self, answer: Answer) -> None:
        """Before the client is told the end."""
        thoughts, self._thoughts = self._thoughts, None
        if thoughts is not None:
            keeping = self._keeping
            id = keeping.log.id if keeping is not None and keeping.begun else ""
            await keep(thoughts, self._asked.caller, answer.pipe.response, id)

    async def _stoppable(self, work: Awaitable[T]) -> T:
        """Waits for an upstream; raises Stopped if the run is stopped meanwhile, or was before."""
        stopped = self._verdict
        if stopped is not None:
            if asyncio.iscoroutine(work):
                work.close()
            raise Stopped(stopped)
        before, self._waiting = self._waiting, True
        try:
            return await work
        except asyncio.CancelledError:
            if self._verdict is None or self._task is None:
                raise
            self._task.uncancel()
            raise Stopped(self._verdict) from None
        finally:
            self._waiting = before

    async def _tried(self) -> ErrorPart | None:
        error: ErrorPart | None = None
        for target in self._targets:
            error = await self._try(target)
            if error is None or class_of(error) in _FINAL:
                break
        return error

    async def _try(self, target: Target) -> ErrorPart | None:
        """Asks one target as often as it is worth; returns how it failed, if it did."""
        policy = target.upstream.place.retry
        tries, thoughtless = 0, False
        while True:
            error = await self._attempt(target, thoughtless)
            self.record.attempts.append(Attempt(target.name, error))
            if error is None:
                return None
            if not thoughtless and error.status == 400 and _PROOF.search(error.message):
                thoughtless = True
                continue
            tries += 1
            pause = wait(policy, tries, error, chance=random.random(), now=time.time())
            if pause is None:
                return error
            await asyncio.sleep(pause)

    async def _attempt(self, target: Target, thoughtless: bool) -> ErrorPart | None:
        breaker, name = target.breaker, target.upstream.place.name
        try:
            asking = await self._asking(target, thoughtless)
        except Failed as failed:
            return failed.error
        self._request = asking.request
        now = self._loop.time()
        if not breaker.admits(now):
            message = f"{name} failed too often and is left alone for a while"
            return fault("overloaded", message, retry_after=math.ceil(breaker.pause(now)) or 1)
        try:
            await self._begin(asking)
        except Failed as failed:
            self._drop()
            breaker.ended(failed.error, self._loop.time())
            return self._shown(failed.error)
        except BaseException:
            self._drop()
            breaker.abandoned()
            raise
        breaker.succeeded()
        return None

    async def _asking(self, target: Target, thoughtless: bool) -> Question:
        states = self._states
        ask = partial(question, self._asked, target, self._limits, states, thoughtless=thoughtless)
        return await asyncio.to_thread(ask) if len(self._asked.body) > LARGE else ask()

    async def _begin(self, asking: Question) -> None:
        """Asks, and reads until there is content; raises Failed if it goes wrong before."""
        asked, place = self._asked, asking.place
        try:
            incoming = await asking.target.upstream.ask(asking.outgoing(asked))
        except Unreachable as problem:
            raise Failed(_unreached(problem)) from None
        if incoming.status // 100 != 2:
            raise Failed(await self._refusal(incoming, asking))
        pauses = codec_of(place.dialect).continued and not codec_of(asked.dialect).continued
        self._splice = Splice() if pauses else None
        answer = self._hear(incoming, asking, None)
        if asked.stream:
            self._telling = self._teller(incoming, asking, answer.pipe)
        while not answer.ended:
            await self._heard(answer)
            content = any(map(_is_content, answer.parts))
            error = next((one for one in answer.parts if isinstance(one, ErrorPart)), None)
            if error is not None and not content:
                raise Failed(error)
            if self._telling is not None:
                self._held.append(self._telling.tell(answer))
            if content:
                break
        self._question = asking
        self.record.losses = asking.translated.losses

    def _hear(self, incoming: Incoming, asking: Question, before: Pipe | None) -> Answer:
        """Makes what reads an answer; `before` is what it goes on with."""
        splice = self._splice

        def stages(findings: Findings) -> list[Stage]:
            own = asking.translated.stages(findings)
            return own if splice is None else [*own, splice]

        dialect = DIALECTS[asking.place.dialect]
        pipe = Pipe(dialect, asking.reading, stages, before, self._shown)
        answer = Answer(incoming, pipe, self._limits.response, keep=not self._asked.stream)
        self._answer = answer
        self._touched = self._loop.time()
        self._arm(asking.place.timeouts.between_events)
        return answer

    def _teller(
        self, incoming: Incoming, asking: Question, pipe: Pipe
    ) -> Telling | Echo | Identified:
        """The upstream's own bytes are told where they are events in the client's dialect."""
        kind = incoming.headers.get("content-type", "")
        is_echo = self._is_echo(asking) and kind.startswith("text/event-stream")
        told = (Echo if is_echo else Telling)(self._asked.dialect, asking.telling, pipe)
        kept = self._asked.kept
        if not self._asked.resumable or kept is None:
            return told
        return Identified(told, kept.key)

    def _is_echo(self, asking: Question) -> bool:
        return asking.place.dialect == self._asked.dialect and not asking.changed

    async def _refusal(self, incoming: Incoming, asking: Question) -> ErrorPart:
        """What an answer with a status that is no success means."""
        body, place, status = b"", asking.place, incoming.status
        try:
            while len(body) < ERROR_BODY and (data := await incoming.read()):
                body += data
        except Unreachable:
            pass  # what came must do
        finally:
            incoming.abort()
        if status // 100 == 3:
            return fault("bad-upstream-answer", f"{place.name} answered with a redirect")
        read_error = DIALECTS[place.dialect].read_error
        if read_error is None:
            raise InternalError(f"{place.dialect} has no errors")
        return read_error(status, body, incoming.headers.get("retry-after"))

    # Telling

    @property
    def upstream(self) -> str:
        """Who answers."""
        return self._question.place.name if self._question is not None else ""

    @property
    def warnings(self) -> list[str]:
        """The fields of the request that the upstream was told less of."""
        return [] if self._question is None else [one.path for one in self._question.warnings]

    async def next(self) -> bytes:
        """Returns the next block for the client; nothing at the end. Raises Failed if it cannot be
        stored, and must be."""
        block = await self._next()
        keeping = self._keeping
        if self._answer is not None and self._answer.ended:
            await self._keep_thoughts(self._answer)
        if keeping is not None and (block or keeping.running):  # an end may have no words
            await self._keep(keeping, block)
        return block

    async def _keep(self, keeping: Keeping, block: bytes) -> None:
        """Stores a block before it is told."""
        answer, asking = self._answer, self._question
        if answer is None or asking is None:
            raise InternalError("there is no answer")
        try:
            if not keeping.begun and not answer.ended:
                await keeping.begin(block)
            elif answer.ended:
                await keeping.finish(block, answer.pipe.response, asking.telling)
            else:
                await keeping.append(block)
        except (StoreError, Taken) as problem:
            self._unkept(keeping, problem)

    def _unkept(self, keeping: Keeping, problem: WeftError) -> None:
        self._events = keeping.log.shown if keeping.begun else 0
        keeping.give_up()
        self._keeping = None
        self.record.unstored = str(problem)
        if keeping.required and isinstance(problem, StoreError):
            error = fault("server", "the answer could not be stored")
            self._conclude(error)
            raise Failed(error) from None

    async def _next(self) -> bytes:
        if self._held:
            block = b"".join(self._held)
            self._held = []
            if block:
                return self._told(block)
        while (answer := self._answer) is not None and not answer.ended:
            block = await self._more(answer)
            if block:
                return self._told(block)
        self._conclude(None)
        return b""

    async def flow(self, write: Callable[[bytes], bool]) -> None:
        """Has blocks written in the turn of the loop that brings them, while that is all there is
        to do, and `write` says that there is room for more. `next` goes on from there.
        """
        answer, telling, splice = self._answer, self._telling, self._splice
        took = None if self._keeping is None else self._keeping.took
        if answer is None or telling is None or self._verdict is not None:
            return
        if splice is not None and splice.paused:  # nothing more of it is wanted
            return

        def taken(data: bytes) -> bool:
            answer.take(data)
            self._noted(answer)
            block = telling.tell(answer)
            last = answer.ended and (took is not None or self._thoughts is not None)
            if block and (last or (took is not None and not took(block))):
                self._held.append(block)
                return False
            room = write(self._told(block)) if block else True
            return room and not answer.ended and (splice is None or not splice.paused)

        with suppress(Stopped):  # `next` tells it
            await self._stoppable(answer.flow(taken))

    def _told(self, block: bytes) -> bytes:
        record = self.record
        if record.first is None:
            record.first = time.time()
        record.bytes_out += len(block)
        return block

    async def whole(self) -> tuple[int, bytes]:
        """Returns the status and the body of an answer that is not streamed."""
        while (answer := self._answer) is not None and not answer.ended:
            await self._more(answer)
        if answer is None or self._question is None:
            raise InternalError("there is no answer")
        await self._keep_thoughts(answer)
        self.record.status, body = self._body(answer, self._question)
        if self._keeping is not None and self.record.status == 200:
            try:
                await self._keeping.whole(body, answer.pipe.response)
            except (StoreError, Taken) as problem:
                self._unkept(self._keeping, problem)
        self._told(body)
        self._conclude(None)
        return self.record.status, body

    def _body(self, answer: Answer, asking: Question) -> tuple[int, bytes]:
        dialect = DIALECTS[self._asked.dialect]
        if dialect.body is None or dialect.write_error is None:
            raise InternalError(f"{dialect.name} has no bodies")
        response = answer.pipe.response
        failure = response.error
        if failure is not None:
            error = ErrorPart(failure.kind, failure.message, failure.code, failure.status)
            return dialect.write_error(self._shown(error))
        if self._is_echo(asking) and not response.findings and answer.is_body:
            told = as_asked(dialect.name, asking.telling, answer.whole, response.model)
            return 200, told
        body = dialect.body(response, asking.telling, Findings())
        return 502 if body.startswith(_ERRORS) else 200, body

    def ending(self, error: ErrorPart) -> bytes:
        """What ends a stream that began, and then had no answer, or one that we broke."""
        answer, telling = self._answer, self._telling
        if self.record.first is None or telling is None or answer is None:
            return self._unanswered().failed(error)
        if answer.ended:  # and the end could not be stored: it is not told
            return self._unanswered().failed_after(error, self._events)
        with suppress(Exception):  # what broke it may break this too
            answer.fail(error)
            return telling.tell(answer)
        return self._unanswered().failed(error)

    async def _more(self, answer: Answer) -> bytes:
        """Hears the next of an answer, or asks for its rest where it paused; returns what is told
        of it."""
        if self._splice is not None and self._splice.paused:
            return await self._go_on(answer, self._splice)
        await self._heard(answer)
        return self._telling.tell(answer) if self._telling is not None else b""

    async def _heard(self, answer: Answer) -> None:
        """Reads the next of an answer; it ends if the run was stopped."""
        if self._verdict is not None:
            answer.fail(self._verdict)
            return
        try:
            await self._stoppable(answer.read())
        except Stopped as stopped:
            answer.fail(stopped.error)
            return
        self._noted(answer)

    def _noted(self, answer: Answer) -> None:
        """Something came."""
        self._touched = self._loop.time()
        self.record.bytes_in += len(answer.data)
        if not answer.ended and answer.pipe.ending:
            self._arm(self._limits.grace)

    async def _go_on(self, answer: Answer, splice: Splice) -> bytes:
        """Asks for the rest of an answer that paused; returns the end if there is none."""
        asking = self._question
        if asking is None:
            raise InternalError("there is no answer")
        splice.go_on()
        answer.abort()
        try:
            error = await self._stoppable(self._continue(answer, asking))
        except Stopped as stopped:
            error = stopped.error
        if error is None:
            return b""
        answer.cut(self._shown(error))  # that it paused is told, and is no end
        return self._telling.tell(answer) if self._telling is not None else b""

    async def _continue(self, answer: Answer, asking: Question) -> ErrorPart | None:
        continued = codec_of(asking.place.dialect).continued
        writer = DIALECTS[asking.place.dialect].body
        if continued is None or writer is None:
            raise InternalError(f"{asking.place.dialect} does not pause")
        told = writer(answer.pipe.response, asking.reading, Findings())
        outgoing = asking.outgoing(self._asked, continued(asking.translated.body, told))
        try:
            incoming = await asking.target.upstream.ask(outgoing)
        except Unreachable as problem:
            return _unreached(problem)
        if incoming.status // 100 != 2:
            return await self._refusal(incoming, asking)
        self._hear(incoming, asking, answer.pipe)
        return None

    # Time

    def _arm(self, limit: float) -> None:
        """Silence longer than this ends the answer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(limit, self._silent, limit)

    def _silent(self, limit: float) -> None:
        left = self._touched + limit - self._loop.time()
        if left > 0.001 or not self._waiting:  # a client that reads slowly is no silence
            self._timer = self._loop.call_later(max(left, 0.05), self._silent, limit)
        else:
            name = self.upstream or "the upstream"
            message = f"{name} was silent for {limit:g} seconds"
            self.stop(ErrorPart("timeout", message, retryable=True))

    # The end

    def _conclude(self, error: ErrorPart | None) -> None:
        """Keeps what is known of the request, and tells whoever wants to know."""
        record, answer = self.record, self._answer
        if record.ended is not None:
            return
        record.ended = time.time()
        record.error = error
        if error is not None and record.first is None and record.status == 200:
            record.status = _status(self._asked.dialect, error)
        if answer is not None:
            record.response = answer.pipe.response
            told = [] if self._telling is None else self._telling.findings
            record.findings = (*record.response.findings, *told)
        for observer in self._observers:
            observer(record)

    async def fail(self, error: ErrorPart) -> None:
        """Stores that it failed, where nobody is told."""
        keeping = self._keeping
        if keeping is None or not keeping.running:
            return
        nothing, answer = self._unanswered(), self._answer
        if not keeping.log.events or answer is None:
            last, response = nothing.failed(error), nothing.response
        else:
            last = b"".join(self._held) + self.ending(error)
            response = answer.pipe.response
        await keeping.finish(last, response, Context())

    async def _left(self, error: ErrorPart) -> None:
        """Stores what had come when the client left."""
        keeping, asking = self._keeping, self._question
        if keeping is None or not keeping.running or asking is None or self._answer is None:
            return
        last = b"".join(self._held) + self.ending(error)
        with suppress(StoreError):
            await keeping.finish(last, self._answer.pipe.response, asking.telling)

    def _drop(self) -> None:
        """Forgets an attempt that failed."""
        if self._answer is not None:
            self._answer.abort()
        self._answer = self._telling = self._question = None
        self._held = []

    async def close(self) -> None:
        """Ends whatever goes on: the client is gone, or has all of it."""
        self._deadline.cancel()
        if self._timer is not None:
            self._timer.cancel()
        answer = self._answer
        if self.record.ended is None:
            self.record.status = 499
            error = ErrorPart("cancelled", "the client went away")
            if answer is not None:
                answer.abort()
            await self._left(error)
            self._conclude(error)
        elif answer is not None:
            await answer.drain(self._limits.grace)


_EMPTY = (ResponseMetadata, TextStart, TextEnd, ReasoningStart, ErrorPart, Finish)


def _is_content(part: Part) -> bool:
    """Whether a part tells anything: what only begins and ends does not."""
    if isinstance(part, ReasoningEnd):
        return bool(part.signature or part.encrypted or part.redacted)
    return not isinstance(part, _EMPTY)


def _status(dialect: str, error: ErrorPart) -> int:
    write = DIALECTS[dialect].write_error
    return 500 if write is None else write(error)[0]


def _unreached(problem: Unreachable) -> ErrorPart:
    if isinstance(problem, Busy):
        return fault("overloaded", str(problem), retry_after=1)
    status = 504 if problem.kind == "timeout" else 502
    return ErrorPart(problem.kind, str(problem), status=status, retryable=True)
