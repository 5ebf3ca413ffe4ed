"""What is kept of responses: how they begin, what was told of them, how they ended.

One way in: the relay's blocks go through `Keeping` on their way to the client. The beginning is
stored before the client sees it, the ending before the client sees that; what lies between
follows within moments. So whatever a client was told has ended can be read, and equals it.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256

import msgspec
from msgspec import UNSET, Raw

from weft.assembler import Response
from weft.codec import fresh_context
from weft.context import Context
from weft.dialects import DIALECTS
from weft.errors import InternalError
from weft.findings import Findings
from weft.parts import Json
from weft.relay.asked import Asked, Kept
from weft.relay.history import given, prefix, shape
from weft.relay.log import Log, Pace
from weft.sse import FrameReader
from weft.store.base import Store, StoreError
from weft.store.records import Block, Ending, Entry, Item, Status

_LONGEST = 500
"""Characters of an id that an answer can be stored under."""

_SNAPSHOT = b'"response":'
_OUTPUTS = (b"_output", b"_approval_response")
"""What stands in input that brings the outputs of calls."""

ANSWERED: tuple[Status, ...] = ("completed", "incomplete")
"""How a turn ends that led to an answer."""

_json = msgspec.json.Encoder().encode


class _Event(msgspec.Struct):
    response: Json = UNSET


class _Snapshot(msgspec.Struct):
    status: Json = UNSET
    output: Json = UNSET
    required_action: Json = UNSET

    def word(self, otherwise: Status) -> Status:
        """Its status, if that is a word of ours."""
        with suppress(ValueError):
            return _word(self.status) if isinstance(self.status, Raw) else otherwise
        return otherwise

    @property
    def items(self) -> list[Raw]:
        with suppress(ValueError):
            return _raws(self.output) if isinstance(self.output, Raw) else []
        return []

    @property
    def waits(self) -> bool:
        """Whether the client is to bring the outputs of tools."""
        told = self.required_action
        return isinstance(told, Raw) and bytes(told) != b"null"


class _Named(msgspec.Struct):
    id: str | None = None


class _First(_Named, rename={"response_id": "responseId"}):
    """As much of an answer, or of its first event, as says its id: each wire in its place."""

    message: _Named | None = None
    response: _Named | None = None
    response_id: str | None = None


_first = msgspec.json.Decoder(_First).decode
_event = msgspec.json.Decoder(_Event).decode
_word: Callable[[bytes], Status] = msgspec.json.Decoder(Status).decode
_raws = msgspec.json.Decoder(list[Raw]).decode
_read = msgspec.json.Decoder(_Snapshot).decode


def _snapshot(body: bytes) -> _Snapshot:
    """A response object, as far as it is one."""
    try:
        return _read(body)
    except (ValueError, RecursionError):
        return _Snapshot()


class Keeper:
    """Everything that one process keeps."""

    def __init__(self, store: Store, *, required: bool = True) -> None:
        self.store = store
        self.required = required
        """Whether an answer that cannot be stored is an error to its client."""
        self.host = socket.gethostname()
        self.server = f"{self.host}:{os.getpid()}:{time.monotonic_ns()}"
        self.logs: dict[str, Log] = {}
        """Of what runs here."""
        self.pace = Pace()
        self.lost: set[str] = set()
        """Responses that began here, and whose end the store did not take."""

    def keeping(self, asked: Asked) -> "Keeping | None":
        return None if asked.kept is None else Keeping(self, asked, asked.kept)


class Keeping:
    """One response on its way into the store. `begin`, `append`, at last `finish`; or `whole`."""

    def __init__(self, keeper: Keeper, asked: Asked, kept: Kept) -> None:
        self._keeper = keeper
        self._asked = asked
        self._kept = kept
        self._log: Log | None = None
        self.required = keeper.required

    @property
    def log(self) -> Log:
        if self._log is None:
            raise InternalError("the response has not begun")
        return self._log

    @property
    def running(self) -> bool:
        """Whether it has begun, and not ended."""
        return self._log is not None and not self._log.ended

    @property
    def begun(self) -> bool:
        return self._log is not None

    async def begin(self, first: bytes) -> None:
        """Stores that there is such a response, and the first events of it: nobody sees them
        before."""
        body = told(first)
        id = self._name(first if body is None else body)
        log = Log(self._keeper.store, self._keeper.pace, id)
        entry = self._entry(id, "in_progress", body)
        await self._written(id, self._keeper.store.begin(entry, log.head(first)))
        self._log = self._keeper.logs[id] = log
        log.open()

    async def announce(self, id: str, status: Status, body: bytes | None) -> None:
        """Stores that there is a response under this id, whatever becomes of it."""
        await self._written(id, self._keeper.store.begin(self._entry(id, status, body)))
        self._log = self._keeper.logs[id] = Log(self._keeper.store, self._keeper.pace, id)

    async def _written(self, id: str, beginning: Coroutine[None, None, None]) -> None:
        """Waits for a beginning. If nobody waits any more it may be written all the same, and is
        then to be ended."""
        writing = asyncio.ensure_future(beginning)
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(lambda done: self._left(id, done))
            raise

    def _left(self, id: str, done: "asyncio.Future[None]") -> None:
        if not done.cancelled() and done.exception() is None:
            self._keeper.lost.add(id)

    def _name(self, told: bytes) -> str:
        return self._kept.key or name_of(told)

    def _entry(self, id: str, status: Status, body: bytes | None) -> Entry:
        asked, kept = self._asked, self._kept
        return Entry(
            id=id,
            owner=asked.caller,
            dialect=asked.dialect,
            model=asked.model,
            status=status,
            created=time.time(),
            previous=asked.previous,
            conversation=asked.conversation,
            background=asked.background,
            stream=asked.stream,
            visible=kept.visible,
            server=self._keeper.server,
            request=kept.request,
            input=kept.input,
            body=body,
        )

    async def append(self, block: bytes) -> None:
        """These events are told; the first of them when they are stored. Raises StoreError."""
        log = self.log
        if log.is_open:
            log.append(block)
        else:
            store = self._keeper.store
            store.append(log.id, log.head(block))
            await store.flushed(log.id)
            log.open()

    @property
    def took(self) -> Callable[[bytes], bool]:
        """Says whether a block needs no more than to be appended, and was."""
        return _not_yet if self._log is None else self._log.took

    async def finish(self, last: bytes, response: Response, context: Context) -> None:
        """Stores the last events, and with them the end. Raises StoreError."""
        if self._log is None:  # they are all there are
            await self.announce(self._name(last), "in_progress", None)
        log = self.log
        named = replace(context, response_id=log.id)
        body = told(last) or _body(self._asked.dialect, response, named)
        status = status_of(response)
        if body is not None and self._asked.dialect == "openai-responses":
            status = "cancelled" if status == "cancelled" else _snapshot(body).word(status)
            body = with_status(body, status)
        await self._finished(log.close(last), status, body, response)

    async def whole(self, body: bytes, response: Response) -> None:
        """Stores an answer that is told in one piece. Raises StoreError."""
        if self._log is None:
            await self.announce(self._name(body), "in_progress", None)
        rest = self.log.close(body, is_body=True)
        status = status_of(response)
        if self._asked.dialect == "openai-responses":
            status = _snapshot(body).word(status)
        await self._finished(rest, status, body, response)

    async def _resume(self, status: Status) -> None:
        """The answer that waited for the outputs of this turn is complete, now that they have led
        to one."""
        previous, came = self._asked.previous, self._kept.input
        if previous is not None and status in ANSWERED and any(one in came for one in _OUTPUTS):
            with suppress(StoreError):  # what they led to is stored, and that is what counts
                await resumed(self._keeper.store, previous)

    async def _finished(
        self, rest: Block | None, status: Status, body: bytes | None, response: Response
    ) -> None:
        log = self.log
        ending = Ending(
            status=status,
            ended=time.time(),
            body=body,
            record=_json(response),
            digest=log.digest,
            events=log.events,
            size=log.size,
            rest=rest,
            items=_turn(self._asked.conversation, self._kept.input, body),
        )
        await self._keeper.store.finish(log.id, ending)
        await self._resume(status)
        log.end()
        self._keeper.logs.pop(log.id, None)

    def give_up(self) -> None:
        """Nothing more is kept: the store does not take it. What it took is ended later."""
        log = self._log
        if log is not None and not log.ended:
            log.end(stored=False)
            self._keeper.logs.pop(log.id, None)
            self._keeper.lost.add(log.id)


def _not_yet(block: bytes) -> bool:
    return False


async def resumed(store: Store, id: str) -> None:
    """Nothing is required any more of the client of a response that waited for it."""
    entry = await store.entry(id)
    if entry is not None and entry.body is not None and waits(entry.body):
        await store.change(id, "completed", ("incomplete",))


def waits(body: bytes) -> bool:
    """Whether an answer said that it is incomplete until its client brings outputs."""
    return _snapshot(body).waits


def ending(entry: Entry, log: bytes, rest: Block, response: Response) -> Ending:
    """How a response ended that is no longer told, but stored as this log; `rest` is the last."""
    body = told(log)
    status = status_of(response)
    if body is not None and entry.dialect == "openai-responses":
        status = _snapshot(body).word(status)
    return Ending(
        status=status,
        ended=time.time(),
        body=body or entry.body,
        record=_json(response),
        digest=sha256(log).hexdigest(),
        events=log.count(b"\n\n"),
        size=len(log),
        rest=rest,
        items=_turn(entry.conversation, entry.input, body),
    )


def name_of(told: bytes) -> str:
    """The id that an answer, or its first events, tell; one of our own if there is none that can
    be used."""
    is_body = told.lstrip()[:1] == b"{"
    for data in [told] if is_body else [one.data for one in FrameReader().feed(told)]:
        with suppress(ValueError, RecursionError):
            found = _first(data)
            inner = [one.id for one in (found.response, found.message) if one is not None]
            id = next(filter(None, (*inner, found.id, found.response_id)), "")
            if 0 < len(id) <= _LONGEST:
                return id
    return fresh_context().ids.mint("resp")


def _turn(conversation: str | None, input: bytes, body: bytes | None) -> list[Item]:
    """What a turn adds to its conversation: what came in, and what went out. One that failed
    before it said anything adds nothing: it may have failed for what came in."""
    answer = _snapshot(body or b"{}")
    if conversation is None or (answer.word("completed") == "failed" and not answer.items):
        return []
    ids = fresh_context().ids
    came = [Item(ids.mint(prefix(shape(one))), bytes(one)) for one in given(Raw(input))]
    return came + items_of(body or b"{}")


def items_of(body: bytes) -> list[Item]:
    """The output of a response object, item by item; one without an id gets one."""
    ids = fresh_context().ids
    found = [(one, shape(one)) for one in _snapshot(body).items]
    return [Item(_short(of.id) or ids.mint(prefix(of)), bytes(one)) for one, of in found]


def _short(id: str | None) -> str:
    """An id, if it is one to store."""
    return id if id is not None and len(id) <= _LONGEST else ""


def told(block: bytes) -> bytes | None:
    """The response object that the last snapshot of a block of events tells, if there is one."""
    at = len(block)
    while (at := block.rfind(_SNAPSHOT, 0, at)) >= 0:
        start, end = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at)
        found = _response(block[start : end if end >= 0 else len(block)].removeprefix(b"data:"))
        if found is not None:
            return found
    return None


def _response(data: bytes) -> bytes | None:
    with suppress(ValueError, RecursionError):
        found = _event(data).response
        return bytes(found) if isinstance(found, Raw) else None
    return None


def with_status(body: bytes, status: Status) -> bytes:
    """A response object with another status: one that is complete requires nothing."""
    if _snapshot(body).status == Raw(_json(status)):
        return body
    nothing: dict[str, None] = (
        {"required_action": None} if status == "completed" and waits(body) else {}
    )
    try:
        fields = msgspec.json.decode(body, type=dict[str, Raw])
    except ValueError:
        return body
    if status == "cancelled":
        nothing["error"] = None  # it did not go wrong: somebody wanted it so
    return _json({**fields, "status": status, **nothing})


def _body(dialect: str, response: Response, context: Context) -> bytes | None:
    writer = DIALECTS[dialect].body
    if writer is None or response.error is not None:
        return None
    return writer(response, context, Findings())


_STATUS: dict[str, Status] = {"length": "incomplete", "content-filter": "incomplete"}


def status_of(response: Response) -> Status:
    """How a response ended, where its wire has no word for it."""
    if response.error is not None:
        return "cancelled" if response.error.kind == "cancelled" else "failed"
    return _STATUS.get(response.finish_reason or "", "completed")
