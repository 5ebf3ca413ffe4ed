"""What is stored of responses: how they begin, the events that were told, how they ended.

One way in: the relay's events go through a `ResponseWriter` on their way to the client. The
beginning is stored before the client sees it, the ending before the client sees that; what lies
between follows within moments. So whatever a client was told has ended can be read, and equals it.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.assembler import Response
from weft.codec import fresh_context
from weft.context import Context
from weft.dialects.base import Dialect
from weft.dialects.error_classes import new_error
from weft.errors import InternalError
from weft.findings import Findings
from weft.parts import Json
from weft.relay.checksum import with_record
from weft.relay.history import id_prefix, input_items, read_shape
from weft.relay.incoming import IncomingRequest, StorePolicy
from weft.relay.log import (
    BODY,
    LARGE,
    FlushScheduler,
    Log,
    StoredLog,
    send_ahead,
)
from weft.relay.offload import offload
from weft.relay.recovery import UNRECOVERABLE, Recovery, error_ending
from weft.sse import Event
from weft.store.base import Store, StoreError
from weft.store.records import Block, Ending, Entry, Item, Status

_ID_LENGTH = 500
"""Characters of an id that an answer can be stored under."""

MAX_UNWRITTEN = 32 * 1024 * 1024
"""Bytes that wait to be written, beyond which an answer is read no faster than it is stored."""

_OUTPUTS = (b"_output", b"_approval_response")
"""What stands in input that brings the outputs of calls."""

ANSWERED: tuple[Status, ...] = ("completed", "incomplete")
"""How a turn ends that led to an answer."""

TAKEN_OVER = new_error("server", "another server has taken over this response")
"""What a client is told whose server was held for dead, and is not."""

_json = msgspec.json.Encoder().encode


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
    def awaits_outputs(self) -> bool:
        """Whether the client is to bring the outputs of tools."""
        action = self.required_action
        return isinstance(action, Raw) and bytes(action) != b"null"


_word: Callable[[bytes], Status] = msgspec.json.Decoder(Status).decode
_raws = msgspec.json.Decoder(list[Raw]).decode
_read = msgspec.json.Decoder(_Snapshot).decode


def _snapshot(body: bytes) -> _Snapshot:
    """A response object, as far as it is one."""
    try:
        return _read(body)
    except (ValueError, RecursionError):
        return _Snapshot()


def last_snapshot(events: Iterable[Event]) -> bytes | None:
    """The response object that the last of these events tells that does."""
    found = None
    for event in events:
        found = found if event.snapshot is None else event.snapshot
    return None if found is None else bytes(found)


class Persistence:
    """Everything that one process stores."""

    def __init__(self, store: Store, *, required: bool = True) -> None:
        self.store = store
        self.required = required
        """Whether an answer that cannot be stored is an error to its client."""
        self.logs: dict[str, Log] = {}
        """Of what runs here."""
        self.scheduler = FlushScheduler()
        self.unfinished: set[str] = set()
        """Responses that began here, and whose end the store did not take."""

    def writer(self, incoming: IncomingRequest) -> "ResponseWriter | None":
        policy = incoming.store
        return None if policy is None else ResponseWriter(self, incoming, policy)


class ResponseWriter:
    """Writes one response to the store: `begin`, `append`, `finish`; or `begin`, `finish_body`."""

    def __init__(
        self, persistence: Persistence, incoming: IncomingRequest, policy: StorePolicy
    ) -> None:
        self._persistence = persistence
        self._incoming = incoming
        self._policy = policy
        self._log: Log | None = None
        self._begun: Entry | None = None
        """What was stored at the beginning."""
        self.required = persistence.required
        self.server = ""
        """The id of this server when it began: what another took over is no longer ours."""

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
    def has_begun(self) -> bool:
        return self._log is not None

    def accepts(self, response_id: str) -> bool:
        """Whether a response can be stored under this id, if nobody took it."""
        return self._policy.key is not None or 0 < len(response_id) <= _ID_LENGTH

    async def begin(self, response_id: str, first: Sequence[Event] = ()) -> None:
        """Stores that there is such a response, and its first events: nobody sees them before.
        Raises AlreadyExists, StoreError."""
        id = self._policy.key or response_id
        log = Log(self._persistence.store, self._persistence.scheduler, id)
        entry = await self._entry(id, "in_progress", last_snapshot(first))
        head = log.first_blocks(first) if first else ()
        await self._written(id, self._persistence.store.begin(entry, head))
        self._begun = entry
        self._log = self._persistence.logs[id] = log
        if first:
            log.open()

    async def announce(self, id: str, status: Status, body: bytes | None) -> None:
        """Stores that there is a response under this id, whatever becomes of it.
        Raises AlreadyExists, StoreError."""
        entry = await self._entry(id, status, body)
        await self._written(id, self._persistence.store.begin(entry))
        self._begun = entry
        log = Log(self._persistence.store, self._persistence.scheduler, id)
        self._log = self._persistence.logs[id] = log

    async def _written(self, id: str, beginning: Coroutine[None, None, None]) -> None:
        """Waits for a beginning. If nobody waits any more it may be written all the same, and is
        then to be ended."""
        writing = asyncio.ensure_future(beginning)
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(lambda done: self._abandoned(id, done))
            raise

    def _abandoned(self, id: str, done: "asyncio.Future[None]") -> None:
        if not done.cancelled() and done.exception() is None:
            self._persistence.unfinished.add(id)

    async def _entry(self, id: str, status: Status, body: bytes | None) -> Entry:
        incoming, policy = self._incoming, self._policy
        self.server = await self._persistence.store.ensure_lease()
        return Entry(
            id=id,
            owner=incoming.caller,
            dialect=incoming.body.dialect,
            model=incoming.model,
            status=status,
            created=time.time(),
            previous=incoming.previous,
            conversation=incoming.conversation,
            background=incoming.background,
            stream=incoming.stream,
            visible=policy.visible,
            server=self.server,
            request=policy.request,
            input=policy.input,
            body=body,
        )

    async def append(self, events: Sequence[Event]) -> None:
        """These events are told; the first of them when they are stored. Raises StoreError."""
        log, store = self.log, self._persistence.store
        if log.is_open:
            await store.wait_for_room()
            log.append(events)
        else:
            for block in log.first_blocks(events):
                store.append(log.id, block)
            await store.flush(log.id)
            log.open()

    def try_append(self, events: Sequence[Event]) -> bool:
        """Appends the events; returns False if something must be stored first, or cannot be."""
        crowded = self._persistence.store.waiting > MAX_UNWRITTEN
        return self._log is not None and not crowded and self._log.try_append(events)

    async def finish(
        self, last: Sequence[Event], record: "Callable[[], Response]", context: Context
    ) -> None:
        """Stores the last events, and with them the end; `record` is asked for the response beside
        the loop, if that is large. Raises StoreError."""
        dialect = self._incoming.dialect

        def outcome(response: Response) -> _Outcome:
            body = last_snapshot(last)
            if body is not None:
                return _outcome(response, body)
            return _Outcome(status_of(response), _body(dialect, response, context), _Snapshot())

        await self._finished(last, record, outcome)

    async def finish_body(self, body: bytes, record: "Callable[[], Response]") -> None:
        """Stores an answer that is told in one piece. Raises StoreError."""

        def outcome(response: Response) -> _Outcome:
            snapshot = _snapshot(body)
            return _Outcome(snapshot.word(status_of(response)), body, snapshot)

        await self._finished([Event(BODY, body)], record, outcome)

    async def _resume(self, status: Status) -> None:
        """The answer that waited for the outputs of this turn is complete, now that they have led
        to one."""
        previous, came = self._incoming.previous, self._policy.input
        if previous is not None and status in ANSWERED and any(one in came for one in _OUTPUTS):
            with suppress(StoreError):  # what they led to is stored, and that is what counts
                await complete_waiting(self._persistence.store, previous)

    async def _finished(
        self,
        last: Sequence[Event],
        record: "Callable[[], Response]",
        outcome: "Callable[[Response], _Outcome]",
    ) -> None:
        log, entry = self.log, self._begun
        if entry is None:
            raise InternalError("the response has not begun")

        def ended(rest: Block | None) -> Ending:
            extent = (log.digest, log.events, log.size)
            response = record()
            return _ending(entry, outcome(response), response, extent, rest)

        try:
            rest = await log.close(last)
            ending = await offload(ended, rest) if log.size > LARGE else ended(rest)
            await self._end(log.id, ending)
        except StoreError:
            self.give_up()
            raise
        await self._resume(ending.status)
        log.end()
        self._persistence.logs.pop(log.id, None)

    async def _end(self, id: str, ending: Ending) -> None:
        """Raises StoreError, also if another server ended the response, or is about to: the client
        must not be told an end that the store does not have. One that was deleted has none."""
        store = self._persistence.store
        if not await store.finish(id, ending) and await store.entry(id) is not None:
            raise StoreError("another server has taken over the response", "fenced")

    def give_up(self) -> None:
        """Nothing more is stored: the store does not take it. What it took is ended later."""
        log = self._log
        if log is not None and not log.ended:
            log.end(stored=False)
            self._persistence.logs.pop(log.id, None)
            self._persistence.unfinished.add(log.id)


async def complete_waiting(store: Store, id: str) -> None:
    """Nothing is required any more of the client of a response that waited for it."""
    entry = await store.entry(id)
    if entry is not None and entry.body is not None and awaits_outputs(entry.body):
        await store.change_status(id, "completed", ("incomplete",))


def awaits_outputs(body: bytes) -> bool:
    """Whether an answer said that it is incomplete until its client brings outputs."""
    return _snapshot(body).awaits_outputs


class _Outcome(msgspec.Struct):
    """How a response ended, and the answer object that shows it."""

    status: Status
    body: bytes | None
    snapshot: _Snapshot
    """The body, as far as it is a response object."""


def _outcome(response: Response, body: bytes) -> _Outcome:
    """The outcome of a response that shows itself, at last, as this object."""
    status, snapshot = status_of(response), _snapshot(body)
    status = "cancelled" if status == "cancelled" else snapshot.word(status)
    return _Outcome(status, _with_status(body, status, snapshot), snapshot)


def _ending(
    entry: Entry,
    outcome: _Outcome,
    response: Response,
    extent: tuple[str | None, int, int],
    rest: Block | None,
) -> Ending:
    """The ending of a response that was begun as this entry. `extent` is the digest of its log, and
    its number of events and of bytes; `rest` its last block."""
    digest, events, size = extent
    ending = Ending(
        status=outcome.status,
        ended=time.time(),
        body=outcome.body,
        digest=digest,
        events=events,
        size=size,
        rest=rest,
        items=_turn(entry.conversation, entry.input, outcome),
    )
    return with_record(entry, ending, large_json.pieces(response))


async def recover_ending(store: Store, entry: Entry) -> Ending:
    """How a response ends whose process is gone, from what is stored of it. That is worked on
    beside the loop, a block at a time. Raises StoreError."""
    recovery = Recovery(entry)
    async for events in StoredLog(store, entry.id).read():
        await offload(recovery.feed, events)
    last, response, digest = await offload(recovery.finish)
    return await _ending_behind(store, entry, last, response, digest)


async def unread_ending(store: Store, entry: Entry) -> Ending:
    """How a response ends whose log nobody could work through: nothing of it is read. Raises
    StoreError."""
    extent = await store.extent(entry.id)
    last, response = error_ending(entry, UNRECOVERABLE, extent.events - 1)
    return await _ending_behind(store, entry, last, response, None)


async def _ending_behind(
    store: Store, entry: Entry, last: Sequence[Event], response: Response, digest: str | None
) -> Ending:
    """The ending of a response whose log is stored, but for these last events. Raises
    StoreError."""
    extent, rest, size = await store.extent(entry.id), None, 0
    if last:
        rest, ahead = await send_ahead(store, entry.id, extent.blocks, extent.events, last)
        size = ahead + len(rest.data)
    told = (digest, extent.events + len(last), extent.size + size)

    def ending() -> Ending:
        body = last_snapshot(last)
        shown = _outcome(response, body or b"{}")
        outcome = shown if body is not None else _Outcome(shown.status, entry.body, shown.snapshot)
        return _ending(entry, outcome, response, told, rest)

    return await offload(ending)


def _turn(conversation: str | None, input: bytes, outcome: _Outcome) -> list[Item]:
    """What a turn adds to its conversation: what came in, and what went out. One that failed
    before it said anything adds nothing: it may have failed for what came in."""
    if conversation is None:
        return []
    output = outcome.snapshot.items
    if outcome.status == "failed" and not output:
        return []
    ids = fresh_context().ids
    came = [
        Item(ids.mint(id_prefix(read_shape(one))), bytes(one)) for one in input_items(Raw(input))
    ]
    return came + _items(output)


def items_of(body: bytes) -> list[Item]:
    """The output of a response object, item by item; one without an id gets one."""
    return _items(_snapshot(body).items)


def _items(output: Sequence[Raw]) -> list[Item]:
    ids = fresh_context().ids
    found = [(one, read_shape(one)) for one in output]
    return [Item(_short(of.id) or ids.mint(id_prefix(of)), bytes(one)) for one, of in found]


def _short(id: str | None) -> str:
    """An id, if it is one to store."""
    return id if id is not None and len(id) <= _ID_LENGTH else ""


def with_status(body: bytes, status: Status) -> bytes:
    """A response object with another status: one that is complete requires nothing."""
    return _with_status(body, status, _snapshot(body))


def _with_status(body: bytes, status: Status, snapshot: _Snapshot) -> bytes:
    if snapshot.status == Raw(_json(status)):
        return body
    nothing: dict[str, None] = (
        {"required_action": None} if status == "completed" and snapshot.awaits_outputs else {}
    )
    try:
        fields = msgspec.json.decode(body, type=dict[str, Raw])
    except ValueError:
        return body
    if status == "cancelled":
        nothing["error"] = None  # it did not go wrong: somebody wanted it so
    return _json({**fields, "status": status, **nothing})


def _body(dialect: Dialect, response: Response, context: Context) -> bytes | None:
    if dialect.body is None or response.error is not None:
        return None
    return dialect.body(response, context, Findings())


_STATUS: dict[str, Status] = {"length": "incomplete", "content-filter": "incomplete"}


def status_of(response: Response) -> Status:
    """How a response ended, where its wire has no word for it."""
    if response.error is not None:
        return "cancelled" if response.error.kind == "cancelled" else "failed"
    return _STATUS.get(response.finish_reason or "", "completed")
