"""Works on one run, for as long as this process holds its lease.

The driver asks `decide` what to do and does it; nothing else decides anything. Turns and calls run
as tasks of their own, so a slow tool holds up nobody. What they bring is appended to the log under
one lock, each time against the last event that the driver has read:

- If somebody outside was faster (a message, a cancellation), the store refuses the append; the
  driver reads on, and appends again if it still makes sense.
- If another process holds the lease by now, the store refuses for good, and everything stops. What
  was started may go on for a moment: its intents are in the log without receipts, and the new
  holder treats them as such.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

import msgspec
from msgspec import Raw

from weft.agent.decide import (
    LEFT_BEHIND,
    TURN,
    Action,
    DispatchCall,
    ExpireApproval,
    FailRun,
    FinishRun,
    InterruptTurn,
    LookUpCall,
    ParkCall,
    RefuseCall,
    RequestApproval,
    SettleCall,
    StartTurn,
    WaitOutside,
    decide,
    due,
)
from weft.agent.events import (
    AnyRunEvent,
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallIntended,
    CallParked,
    CallRefused,
    CallResolved,
    Contents,
    LimitReached,
    RunFailed,
    RunFinished,
    TurnFinished,
    TurnInterrupted,
    TurnStarted,
    decode_event,
    encode_event,
    text_result,
)
from weft.agent.gate import judge
from weft.agent.state import Call, IllegalEvent, RunState, TurnState
from weft.agent.tool_spec import Ambiguous, Changed, Finished, NotDone, ToolSpec
from weft.agent.tools import AgentTool, Arguments, BadArguments, PythonTool, ToolContext
from weft.agent.turns import turn_request
from weft.assembler import Response
from weft.codec import fresh_context
from weft.relay.persistence import FinishResponse
from weft.request import FileContent, ImageContent, TextContent
from weft.store.base import EVENT_SIZE, Store, StoreError
from weft.store.queries import Beside, Queries
from weft.store.records import Ending, NewEvent, RunAppend

POLL = 0.5
"""Seconds between two looks for events that came through another process."""

RENEWALS_PER_LEASE = 3
GRACE = 10.0
"""Seconds that running calls have to end when the process stops."""

OUTCOME_UNKNOWN = "The outcome of this call is unknown: verify it before you go on."
GONE = "Not run: this tool is no longer available."
WEFT = "weft"
"""Who decided what nobody decided."""

log = logging.getLogger("weft.agent")


@dataclass(frozen=True, slots=True)
class TurnQuestion:
    """One question to a model."""

    run: str
    model: str
    owner: str
    response: str
    """The id under which the response is stored."""

    body: bytes
    """A request of the Responses API."""


class Models(Protocol):
    """Where the models are."""

    async def respond(self, question: TurnQuestion, finish: FinishResponse) -> None:
        """Asks the model, and stores its response from the first event on. Calls `finish` at its
        end, whether it is whole or failed: that also writes the receipt of the turn. Raises
        StoreError."""
        ...


@dataclass(frozen=True, slots=True)
class Workshop:
    """What all runs of a process share."""

    store: Store
    models: Models
    tools: Callable[[str], Mapping[str, AgentTool]]
    """The tools of an agent, as this process has them."""

    threads: Executor
    wake: Callable[[str, str], Queries[None]]
    """The statements that ask another process to look at a run now: its id, and the cause."""

    lease: float = 15.0


class LeaseLost(Exception):
    """Another process works on the run now."""


class _Output(msgspec.Struct):
    output: list[Raw] = []


_read_output = msgspec.json.Decoder(_Output).decode


class RunDriver:
    """One run that this process has claimed under `epoch`."""

    def __init__(
        self,
        shop: Workshop,
        id: str,
        epoch: int,
        claimed: float,
        notify: Callable[[str], None],
    ) -> None:
        """`claimed`: when the claim was sent, by our own clock. `notify` is called with the run's
        id when its log has grown."""
        self.state = RunState(id)
        self._renewed = claimed
        """When the last renewal was sent: the lease lasts at least as long from there."""
        self._notify = notify
        self._shop = shop
        self._epoch = epoch
        self._tools: Mapping[str, AgentTool] = {}
        self._appending = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """What runs here: the turn under TURN, and calls by their ids."""
        self._outputs: dict[str, list[Raw]] = {}
        """Output items of finished turns, by response."""
        self._woken = asyncio.Event()
        self._is_stale = True
        """Whether there may be events that the driver has not read."""
        self._lost: LeaseLost | None = None
        self._stopping = False
        self._has_let_go = False
        # The clock of the database: its time at one moment of our own clock.
        self._database_time = self._own_time = 0.0

    @property
    def now(self) -> float:
        return self._database_time + (time.monotonic() - self._own_time)

    def wake(self) -> bool:
        """Something was appended from outside. Returns False if the driver will not look at it: it
        has let go of the run, or lost it."""
        self._is_stale = True
        self._woken.set()
        return not self._has_let_go and self._lost is None

    def stop(self) -> None:
        """Lets running calls end, starts nothing, and returns the run."""
        self._stopping = True
        self._woken.set()

    async def drive(self) -> float | None:
        """Works until the run ends, waits for somebody, or is lost. Returns the seconds after which
        somebody must look at it again; None if nobody need."""
        row = await self._shop.store.run(self.state.id)
        if row is None:
            return None
        self._set_clock(row.until - self._shop.lease)
        keeping = asyncio.create_task(self._keep_lease())
        try:
            return await self._work()
        except LeaseLost:
            # Not None: whoever holds the lease may die, and then somebody must come back.
            return self._shop.lease
        finally:
            self._has_let_go = True
            keeping.cancel()
            await self._cancel_tasks()
            await asyncio.wait({keeping})

    async def _work(self) -> float | None:
        while True:
            self._woken.clear()
            if self._lost is not None:
                raise self._lost
            if self._is_stale:
                async with self._appending:
                    await self._read()
            if self.state.end is not None:
                await self._cancel_tasks()
            actions = [] if self._stopping else decide(self.state, self.now, self._tasks)
            for action in actions:
                await self._perform(action)
            if actions:
                continue
            if self._stopping and self._tasks:
                await asyncio.wait([*self._tasks.values()], timeout=GRACE)
                await self._cancel_tasks()
            if self._tasks:
                await self._woken.wait()
            elif await self._release():
                return 0.0 if self._stopping and self.state.end is None else self._due()

    def _due(self) -> float | None:
        when = None if self.state.end is not None else due(self.state)
        if self._stopping and self.state.end is None and self.state.waiting is None:
            return 0.0
        return None if when is None else max(0.0, when - self.now)

    async def _release(self) -> bool:
        """Gives the lease back, unless there are events that were not read."""
        async with self._appending:
            state, store, due = self.state, self._shop.store, self._due()
            # Who stops does not wait until others find the run by themselves. The epoch tells this
            # cause from the event itself, which may have a hint of its own.
            beside: Beside | None = self._hand_over if due == 0.0 else None
            status = status_after(state)
            if await store.release_run(state.id, self._epoch, state.seq, status, due, beside):
                return True
            before = state.seq
            await self._read()
            if self.state.seq == before:
                raise LeaseLost
            return False

    def _hand_over(self, seq: int) -> Queries[None]:
        return self._shop.wake(self.state.id, f"{seq}.{self._epoch}")

    # The log

    async def _read(self) -> None:
        """Takes in the events that the driver has not seen."""
        self._is_stale = False
        state = self.state
        while events := await self._shop.store.run_events(state.id, state.seq):
            for event in events:
                state.apply(decode_event(event.body), event.at)
        self._tools = self._shop.tools(state.definition.name)

    async def _append(self, *events: AnyRunEvent) -> bool:
        """Appends events, all or none. Returns False if they no longer make sense. Raises LeaseLost
        and StoreError."""
        async with self._appending:
            while self._is_legal(events):
                written = await self._shop.store.append_run(self._to_append(events))
                match written.outcome:
                    case "written":
                        self._apply(events, written.at)
                        return True
                    case "moved":
                        await self._read()
                        self._woken.set()
                    case _:
                        raise self._lose()
            return False

    def _to_append(self, events: tuple[AnyRunEvent, ...]) -> RunAppend:
        last = events[-1]
        ended = isinstance(last, RunFinished | RunFailed)
        return RunAppend(
            run=self.state.id,
            at=self.state.seq,
            events=[_new_event(event) for event in events],
            status=STATUS.get(last.kind, "running"),
            ended=ended,
            epoch=self._epoch,
        )

    def _is_legal(self, events: tuple[AnyRunEvent, ...]) -> bool:
        """Whether these events can follow. What `decide` asks for always can, unless something came
        from outside since."""
        trial = self.state.copy()
        try:
            for event in events:
                trial.apply(event, self.now)
        except IllegalEvent as error:
            log.info("run %s: %s", self.state.id, error)
            return False
        return True

    def _apply(self, events: tuple[AnyRunEvent, ...], at: float) -> None:
        for event in events:
            self.state.apply(event, at)
        self._set_clock(at)
        self._notify(self.state.id)

    def _set_clock(self, database_time: float) -> None:
        self._database_time, self._own_time = database_time, time.monotonic()

    @property
    def _holds_lease(self) -> bool:
        """Whether nobody else can have claimed the run yet, by our own clock."""
        return time.monotonic() - self._renewed < self._shop.lease

    def _lose(self) -> LeaseLost:
        self._lost = LeaseLost()
        self._woken.set()
        return self._lost

    async def _keep_lease(self) -> None:
        """Renews the lease, and looks for events of other processes."""
        store, lease, id = self._shop.store, self._shop.lease, self.state.id
        while True:
            await asyncio.sleep(min(POLL, lease / RENEWALS_PER_LEASE))
            try:
                if time.monotonic() - self._renewed >= lease / RENEWALS_PER_LEASE:
                    sent = time.monotonic()
                    if not await store.renew_run(id, self._epoch, lease):
                        self._lose()
                        return
                    self._renewed = sent
                row = await store.run(id)
            except StoreError as error:
                log.warning("run %s: cannot renew the lease: %s", id, error)
                if not self._holds_lease:
                    self._lose()
                    return
                continue
            if row is not None and row.seq > self.state.seq:
                self.wake()

    # Actions

    async def _perform(self, action: Action) -> None:
        state, calls = self.state, self.state.calls
        match action:
            case StartTurn(turn, attempt, is_last):
                response = fresh_context().ids.mint("resp")
                if await self._append(TurnStarted(turn, attempt, response)):
                    self._start(TURN, self._turn(response, is_last))
            case InterruptTurn(turn, attempt):
                await self._append(TurnInterrupted(turn, attempt, LEFT_BEHIND))
            case RefuseCall(id):
                judged = calls[id].judged
                reason, text = judged.refusal or "limit", judged.text or "Not run: the run ends."
                await self._append(CallRefused(id, reason, text))
            case RequestApproval(id):
                await self._append(self._approval(calls[id]))
            case ExpireApproval(id):
                approval = calls[id].approval
                if approval is not None:
                    name, why = approval.approval, "nobody decided in time"
                    await self._append(ApprovalDecided(name, id, False, WEFT, why))
            case DispatchCall(id, attempt):
                await self._dispatch(calls[id], attempt)
            case LookUpCall(id):
                self._start(id, self._look_up(calls[id]))
            case ParkCall(id, why):
                await self._append(CallParked(id, why))
            case SettleCall(id):
                unknown = text_result(OUTCOME_UNKNOWN)
                await self._append(CallResolved(id, "done", WEFT, unknown, is_error=True))
            case WaitOutside(waiting, _):
                await self._append(waiting)
            case FinishRun(turn, reason):
                await self._append(RunFinished(turn, reason))
            case FailRun(code, message, limit):
                reached = [LimitReached(limit, message)] if limit is not None else []
                await self._append(*reached, RunFailed(code, message))
        log.debug("run %s: %s", state.id, action)

    def _start(self, name: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._ended(name, done))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(name, None)
        self._woken.set()
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, LeaseLost):
            self._lost = error
        elif isinstance(error, StoreError):
            log.warning("run %s: %s", self.state.id, error)
        else:
            log.error("run %s: internal error", self.state.id, exc_info=error)

    async def _cancel_tasks(self) -> None:
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _approval(self, call: Call) -> ApprovalRequested:
        expires = self.now + self.state.definition.limits.approval
        return ApprovalRequested(
            fresh_context().ids.mint("appr"), call.id, call.judged.digest, expires
        )

    # Turns

    async def _turn(self, response: str, is_last: bool) -> None:
        state, turn = self.state, self.state.turn
        assert turn is not None
        for earlier in state.turns:
            if earlier.state is TurnState.FINISHED and earlier.response not in self._outputs:
                entry = await self._shop.store.entry(earlier.response)
                body = entry.body if entry is not None and entry.body is not None else b"{}"
                self._outputs[earlier.response] = _read_output(body).output
        body = turn_request(state, self._outputs, is_last=is_last)
        model = state.definition.model
        question = TurnQuestion(state.id, model, state.owner, response, body)
        await self._shop.models.respond(question, self._finish_turn)

    async def _finish_turn(self, id: str, ending: Ending, response: Response) -> bool:
        """Ends the response and writes the receipt of the turn, in one transaction."""
        store = self._shop.store
        async with self._appending:
            while self.state.end is None:
                events = self._receipt(response)
                written = await store.finish_and_append(id, ending, self._to_append(events))
                if written is None:
                    return False
                match written.outcome:
                    case "written":
                        self._apply(events, written.at)
                        return True
                    case "moved":
                        await self._read()
                        self._woken.set()
                    case _:
                        raise self._lose()
        # The run was cancelled meanwhile: the response has its end all the same.
        return await store.finish(id, ending)

    def _receipt(self, response: Response) -> tuple[AnyRunEvent, ...]:
        turn = self.state.turn
        assert turn is not None
        failure = response.error
        if failure is not None or response.finish_reason is None:
            why = "the response has no end" if failure is None else failure.message
            return (TurnInterrupted(turn.number, turn.attempt, why),)
        calls = judge(self.state, response, self._needs_approval)
        finished = TurnFinished(
            turn.number,
            turn.attempt,
            response.finish_reason,
            has_text=bool(response.text or response.refusal),
            calls=tuple(calls),
            usage=response.usage,
        )
        if len(encode_event(finished)) > EVENT_SIZE:
            why = f"the calls of the turn are larger than {EVENT_SIZE} bytes"
            return (TurnInterrupted(turn.number, turn.attempt, why),)
        refused = [call for call in calls if call.verdict == "refused"]
        reasons = [CallRefused(one.id, one.refusal or "limit", one.text) for one in refused]
        return (finished, *reasons)

    def _needs_approval(self, spec: ToolSpec, arguments: str) -> bool:
        tool = self._tools.get(spec.name)
        if tool is None:
            return spec.approval != "never"  # it is refused when it is dispatched
        decoded = tool.decode(arguments)
        if spec.approval == "predicate":
            return tool.needs_approval(decoded)
        return spec.approval == "always"

    # Calls

    async def _dispatch(self, call: Call, attempt: int) -> None:
        """Writes the intent, right before the call and never earlier, and starts it."""
        tool, spec = self._tools.get(call.judged.name), call.tool
        if tool is None or spec is None:
            await self._append(CallRefused(call.id, "unknown-tool", GONE))
            return
        try:
            arguments = tool.decode(call.judged.arguments)
        except BadArguments as error:  # the tool has changed since the gate
            await self._append(CallRefused(call.id, "bad-arguments", f"Not run: {error}"))
            return
        # Another definition than the one that the run was started with is a tool that nobody has
        # agreed to.
        if tool.spec.digest != spec.digest and not call.approved:
            await self._append(self._approval(call))
            return
        context = self._context(call, attempt)
        if await self._append(CallIntended(call.id, attempt, context.key, self._shop.store.server)):
            self._start(call.id, self._call(call, tool, arguments, context))

    def _context(self, call: Call, attempt: int) -> ToolContext:
        return ToolContext(self.state.id, call.id, attempt=attempt, executor=self._shop.threads)

    async def _call(
        self, call: Call, tool: AgentTool, arguments: Arguments, context: ToolContext
    ) -> None:
        # A process that was frozen since it wrote the intent is taken for dead by now: somebody may
        # have been told that the call has not happened.
        if not self._holds_lease:
            raise self._lose()
        begun = time.monotonic()
        if isinstance(tool, PythonTool) and tool.spec.retry == "transactional":
            await self._transact(call, tool, arguments, context)
            return
        outcome = await tool.call(arguments, context)
        match outcome:
            case Finished(content, is_error):
                result = cut(content, self.state.definition.limits.result)
                duration = time.monotonic() - begun
                await self._append(CallFinished(call.id, result, is_error, duration))
            case Ambiguous(why):
                # What may be repeated or looked up is left without a receipt: `decide` treats it as
                # that of a dead process.
                spec = call.tool
                if spec is None or (spec.retry == "once" and not spec.has_lookup):
                    await self._append(CallParked(call.id, why))
            case Changed():
                # It was not sent. It changed between our look at its definition and the call.
                text = text_result("Not run: the definition of this tool has changed.")
                await self._append(CallFinished(call.id, text, is_error=True))

    async def _look_up(self, call: Call) -> None:
        tool = self._tools.get(call.judged.name)
        context = self._context(call, call.attempts)
        if tool is None:
            await self._append(CallParked(call.id, LEFT_BEHIND))
            return
        found = await tool.lookup(context)
        match found:
            case Finished(content, is_error):
                result = cut(content, self.state.definition.limits.result)
                await self._append(CallFinished(call.id, result, is_error))
            case NotDone():
                arguments = tool.decode(call.judged.arguments)
                await self._call(call, tool, arguments, context)
            case _:
                why = f"{LEFT_BEHIND}; lookup: {found.why or 'unknown'}"
                await self._append(CallParked(call.id, why))

    async def _transact(
        self, call: Call, tool: PythonTool, arguments: Arguments, context: ToolContext
    ) -> None:
        """Effects and receipt in one transaction."""
        limit = self.state.definition.limits.result
        receipt: list[CallFinished] = []

        def effects() -> Queries[list[NewEvent]]:
            finished = yield from tool.queries(arguments, context)
            receipt[:] = [CallFinished(call.id, cut(finished.content, limit), finished.is_error)]
            return [_new_event(receipt[0])]

        async with self._appending:
            while self.state.end is None:
                append = RunAppend(
                    run=self.state.id, at=self.state.seq, status="running", epoch=self._epoch
                )
                try:
                    written = await self._shop.store.transact(append, effects)
                except Exception as error:
                    # The tool raised it, or the database refused a statement: what was written is
                    # undone, so this is the answer. Any other failure of the store is not the
                    # tool's.
                    if isinstance(error, StoreError) and error.kind != "broken":
                        raise
                    failure = text_result(f"{type(error).__name__}: {error}")
                    break
                match written.outcome:
                    case "written":
                        self._apply((receipt[0],), written.at)
                        return
                    case "moved":
                        await self._read()
                        self._woken.set()
                    case _:
                        raise self._lose()
            else:
                return
        await self._append(CallFinished(call.id, failure, is_error=True))


STATUS = {
    "run.waiting": "waiting",
    "run.finished": "finished",
    "run.failed": "failed",
    "run.cancelled": "cancelled",
}
"""The status of a run after its last event, if it is not running."""


def status_after(state: RunState) -> str:
    if state.end is not None:
        return STATUS[state.end.kind]
    return "running" if state.waiting is None else "waiting"


def _new_event(event: AnyRunEvent) -> NewEvent:
    return event.kind, encode_event(event)


def cut(contents: Contents, limit: int) -> Contents:
    """A result that the model may get: texts are cut, with a notice; what cannot be cut and is too
    large is replaced by one."""
    found: list[TextContent | ImageContent | FileContent] = []
    room = limit
    for one in contents:
        size = len(msgspec.json.encode(one))
        if size <= room:
            found.append(one)
        elif isinstance(one, TextContent):
            data = one.text.encode()
            kept = data[: max(0, room)].decode(errors="ignore")
            found.append(TextContent(f"{kept}\n[cut: {len(kept.encode())} of {len(data)} bytes]"))
        else:
            found.append(TextContent(f"[left out: a {one.media_type or 'file'} of {size} bytes]"))
        room -= size
    return tuple(found)
