"""How responses are stored: their beginning, their events, and their ending.

The events of a response pass a `ResponseWriter` on their way to the client. The beginning is stored
before the client sees it, and the ending before the client sees that; the events between follow
within about a second. So a response that has ended for its client can be read, and equals what was
sent.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.assembler import Response
from weft.codec import fresh_context
from weft.context import Context
from weft.dialects.error_classes import new_error
from weft.errors import InternalError
from weft.findings import Findings
from weft.parts import ErrorPart, Json
from weft.relay.checksum import with_record
from weft.relay.history import id_prefix, input_items, read_shape
from weft.relay.incoming import IncomingRequest, StorePolicy
from weft.relay.log import (
    BATCH,
    BLOCK,
    BODY,
    LARGE,
    FlushScheduler,
    Log,
    StoredLog,
    blocks_of,
    send_ahead,
)
from weft.relay.offload import offload
from weft.relay.recording import Recordings, UpstreamPolicy, UpstreamRecorder
from weft.relay.recovery import INTERRUPTED, UNRECOVERABLE, Recovery, error_ending
from weft.scrub import Scrubber
from weft.sse import Event
from weft.store.base import Store, StoreError
from weft.store.records import Block, Ending, Entry, Item, NewJob, Status

_ID_LENGTH = 500
"""Characters of an id under which a response can be stored, at most."""

_OUTPUTS = (b"_output", b"_approval_response")
"""What the input of a turn holds if it has outputs of calls."""

ANSWERED: tuple[Status, ...] = ("completed", "incomplete")
"""The statuses of a turn that led to a response."""

TAKEN_OVER = new_error("server", "another server has taken over this response")
"""The error for the client of a server that was considered dead, and is not."""

_json = msgspec.json.Encoder().encode


class _Snapshot(msgspec.Struct):
    status: Json = UNSET
    output: Json = UNSET
    required_action: Json = UNSET

    def status_or(self, default: Status) -> Status:
        """Its status, if that is a known one."""
        try:
            return _known_status(self.status) if isinstance(self.status, Raw) else default
        except ValueError:
            return default

    @property
    def items(self) -> list[Raw]:
        with suppress(ValueError):
            return large_json.elements(self.output) if isinstance(self.output, Raw) else []
        return []

    @property
    def awaits_outputs(self) -> bool:
        """Whether the response is incomplete until its client submits tool outputs."""
        action = self.required_action
        return isinstance(action, Raw) and bytes(action) != b"null"


_known_status: Callable[[bytes], Status] = msgspec.json.Decoder(Status).decode
_read = large_json.skimmer(_Snapshot)


def _snapshot(body: bytes) -> _Snapshot:
    """The fields of a response object that can be read."""
    try:
        return _read(body)
    except (ValueError, RecursionError):
        return _Snapshot()


def last_snapshot(events: Iterable[Event]) -> bytes | None:
    """The last response object in these events, if any has one."""
    found = None
    for event in events:
        found = found if event.snapshot is None else event.snapshot
    return found


FinishResponse: TypeAlias = Callable[[str, Ending, Response], Awaitable[bool]]
"""Ends a response in the store, as `Store.finish` does."""


class Persistence:
    """What one process stores."""

    def __init__(
        self,
        store: Store,
        *,
        required: bool = True,
        upstream: UpstreamPolicy = "none",
        scrub: Scrubber | None = None,
    ) -> None:
        """`upstream`: of which responses it is stored what their upstreams sent; `scrub` removes
        secrets from it."""
        self.store = store
        self.recordings = Recordings(store, upstream, scrub or Scrubber())
        self.required = required
        """Whether it is an error for the client if its response cannot be stored."""
        self.logs: dict[str, Log] = {}
        """The logs of the responses that run here."""
        self.scheduler = FlushScheduler()
        self.unfinished: set[str] = set()
        """Responses that began here and whose end could not be stored."""

    def writer(self, incoming: IncomingRequest) -> "ResponseWriter | None":
        policy = incoming.store
        return None if policy is None else ResponseWriter(self, incoming, policy)


class ResponseWriter:
    """Writes one response to the store: `begin`, `append`, `finish`; or, if it is not streamed,
    `add_body`."""

    def __init__(
        self,
        persistence: Persistence,
        incoming: IncomingRequest,
        policy: StorePolicy,
        finish: FinishResponse | None = None,
    ) -> None:
        """`finish` ends the response in the store, if something else has to be committed with its
        end."""
        self._finish = finish
        self._persistence = persistence
        self._incoming = incoming
        self._policy = policy
        self._begun: _Begun | None = None
        self.required = persistence.required
        self.recordings = persistence.recordings
        self.server = ""
        """The id of this server when the response began: it changes if the lease is lost."""

    @property
    def log(self) -> Log:
        return self._require_begun().log

    def _require_begun(self) -> "_Begun":
        if self._begun is None:
            raise InternalError("the response has not begun")
        return self._begun

    @property
    def running(self) -> bool:
        """Whether it has begun and not ended."""
        return self._begun is not None and not self._begun.log.ended

    @property
    def has_begun(self) -> bool:
        return self._begun is not None

    def accepts(self, response_id: str) -> bool:
        """Whether a response can be stored under this id, unless it exists already."""
        return self._policy.key is not None or 0 < len(response_id) <= _ID_LENGTH

    async def begin(self, response_id: str, first: Sequence[Event] = ()) -> None:
        """Stores a new response with its first events, before they are sent. Raises AlreadyExists,
        StoreError."""
        id = self._policy.key or response_id
        log = await self._begin(id, "in_progress", last_snapshot(first), first)
        if first:
            log.open()

    async def announce(
        self, id: str, status: Status, body: bytes | None, job: NewJob | None = None
    ) -> None:
        """Stores a new response under this id before it has events, with what another server needs
        to run it if this one dies. Raises AlreadyExists, StoreError."""
        await self._begin(id, status, body, (), job)

    def resume(self, entry: Entry) -> None:
        """Goes on with a response that this server has claimed, and that has no events."""
        self.server = entry.server
        log = Log(self._persistence.store, self._persistence.scheduler, entry.id)
        self._begun = _Begun(entry, log)
        self._persistence.logs[entry.id] = log

    async def _begin(
        self,
        id: str,
        status: Status,
        body: bytes | None,
        first: Sequence[Event],
        job: NewJob | None = None,
    ) -> Log:
        incoming, policy, persistence = self._incoming, self._policy, self._persistence
        # A process that was suspended may have lost its lease: a response that begins under the old
        # id would be taken over at once.
        self.server = await persistence.store.ensure_lease()
        entry = new_entry(incoming, policy, id, status, body, self.server)
        log = Log(persistence.store, persistence.scheduler, id)
        blocks = log.first_blocks(first) if first else ()
        # The database cannot take back what it has begun to write: then somebody must end it.
        abandoned = partial(_add_if_written, persistence.unfinished, id)
        try:
            await persistence.store.begin(entry, blocks, job, abandoned)
        except StoreError as problem:
            if problem.kind == "unknown":
                persistence.unfinished.add(id)
            raise
        self._begun = _Begun(entry, log)
        persistence.logs[id] = log
        return log

    async def append(self, events: Sequence[Event]) -> None:
        """Stores events; returns at once, except for the first ones. Raises StoreError."""
        log, store = self.log, self._persistence.store
        if log.is_open:
            # Backpressure of the store: the upstream is read no faster than the disk writes.
            await store.wait_for_room(log.id)
            log.append(events)
        else:
            # The response was announced before (background, tool outputs), without events.
            for block in log.first_blocks(events):
                store.append(log.id, block)
            await store.flush(log.id)
            log.open()

    def try_append(self, events: Sequence[Event]) -> bool:
        """As Log.try_append; False also before the response has begun."""
        return self._begun is not None and self._begun.log.try_append(events)

    async def finish(
        self,
        last: Sequence[Event],
        record: "Callable[[], Response]",
        context: Context,
        cost: int | None = None,
    ) -> None:
        """Stores the last events together with the end. `record` returns the response; it is called
        outside the event loop if the response is large. `cost` is as in Entry. Raises
        StoreError."""
        write_body = self._incoming.dialect.body

        def outcome(response: Response) -> _Outcome:
            # The response object that the client was sent is stored as it is, not rendered a second
            # time.
            body = last_snapshot(last)
            if body is not None:
                return _outcome(response, body)
            if write_body is not None and response.error is None:
                body = write_body(response, context, Findings())
            return _Outcome(status_of(response), body, _Snapshot())

        await self._finished(last, record, outcome, cost)

    async def add_body(
        self,
        response_id: str,
        body: bytes,
        record: "Callable[[], Response]",
        cost: int | None = None,
        recorder: UpstreamRecorder | None = None,
    ) -> None:
        """Stores a response that is not streamed. Raises AlreadyExists, StoreError."""

        def outcome(response: Response) -> _Outcome:
            snapshot = _snapshot(body)
            return _Outcome(snapshot.status_or(status_of(response)), body, snapshot)

        if self._begun is None and self._finish is None and len(body) <= BATCH:
            # At once: nobody knows its id before it has ended.
            store, id = self._persistence.store, self._policy.key or response_id
            self.server = await store.ensure_lease()
            entry = new_entry(self._incoming, self._policy, id, "in_progress", None, self.server)
            (block,) = blocks_of(0, 0, [Event(BODY, body)])
            extent, response = (sha256(body).hexdigest(), 1, len(block.data)), record()
            ending = _ending(entry, outcome(response), response, extent, block, cost)
            if len(ending.record or b"") <= LARGE:
                await store.add(entry, ending)
                log = Log(store, self._persistence.scheduler, id)
                self._begun = _Begun(entry, log)
                if recorder is not None:
                    self.recordings.begin(id, recorder)
                await self._after_end(log, ending)
                return
        if self._begun is None:
            await self.begin(response_id)
        if recorder is not None:
            self.recordings.begin(self.log.id, recorder)
        await self._finished([Event(BODY, body)], record, outcome, cost)

    async def _finished(
        self,
        last: Sequence[Event],
        record: "Callable[[], Response]",
        outcome: "Callable[[Response], _Outcome]",
        cost: int | None,
    ) -> None:
        entry, log = self._require_begun()
        store = self._persistence.store

        def ended(rest: Block | None) -> tuple[Ending, Response]:
            response = record()
            return _ending(entry, outcome(response), response, log.extent, rest, cost), response

        try:
            # Large fields first, ending last, in one transaction with the rest of the log: readers
            # see a response either running or whole.
            rest = await log.close(last)
            large = log.size > LARGE
            ending, response = await offload(ended, rest) if large else ended(rest)
            if self._finish is None:
                is_ours = await store.finish(log.id, ending)
            else:
                is_ours = await self._finish(log.id, ending, response)
            if not is_ours and await store.entry(log.id) is not None:
                # It was not deleted: the client must not get an end that the store does not have.
                raise StoreError("another server has taken over the response", "fenced")
        except StoreError:
            self.give_up()
            raise
        await self._after_end(log, ending)

    async def _after_end(self, log: Log, ending: Ending) -> None:
        """The end is stored."""
        previous, input = self._incoming.previous, self._policy.input
        if (
            previous is not None
            and ending.status in ANSWERED
            # A search of bytes is enough: complete_waiting looks closely, and does nothing in vain.
            and any(mark in input for mark in _OUTPUTS)
        ):
            with suppress(StoreError):  # this response is stored, and that is what counts
                await complete_waiting(self._persistence.store, previous)
        # After all writes: when followers learn of the end, it can be read from the store, too.
        log.end()
        self._persistence.logs.pop(log.id, None)
        self.recordings.end(log.id, has_findings=bool(ending.findings))

    def give_up(self) -> None:
        """Storing has failed: what is stored of the response is ended later."""
        if self.running:
            self._persistence.unfinished.add(self.log.id)
            self.let_go()

    def let_go(self) -> None:
        """Somebody else ends the response. Followers see what was stored, and wait for its end."""
        if self.running:
            log = self.log
            log.end(stored=False)
            self._persistence.logs.pop(log.id, None)
            self.recordings.drop(log.id)


def new_entry(
    incoming: IncomingRequest,
    policy: StorePolicy,
    id: str,
    status: Status,
    body: bytes | None,
    server: str,
) -> Entry:
    """The entry of a response that begins now."""
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
        server=server,
        request=policy.request,
        input=policy.input,
        body=body,
    )


class _Begun(NamedTuple):
    """A response that has begun."""

    entry: Entry
    log: Log


def _add_if_written(unfinished: set[str], id: str, done: "asyncio.Future[None]") -> None:
    """Adds a response that is stored, or of which that is not known."""
    problem = None if done.cancelled() else done.exception()
    is_unknown = isinstance(problem, StoreError) and problem.kind == "unknown"
    if not done.cancelled() and (problem is None or is_unknown):
        unfinished.add(id)


async def complete_waiting(store: Store, id: str) -> None:
    """Marks a response as completed that waited for tool outputs of its client."""
    entry = await store.entry(id)
    if entry is not None and entry.body is not None and awaits_outputs(entry.body):
        await store.change_status(id, "completed", ("incomplete",))


def awaits_outputs(body: bytes) -> bool:
    """Whether a response object is incomplete until its client submits tool outputs."""
    return _snapshot(body).awaits_outputs


class _Outcome(msgspec.Struct):
    """The final status of a response, and its response object."""

    status: Status
    body: bytes | None
    snapshot: _Snapshot
    """What can be read of the body."""


def _outcome(response: Response, body: bytes) -> _Outcome:
    """The outcome of a response whose last response object is this one."""
    status, snapshot = status_of(response), _snapshot(body)
    status = "cancelled" if status == "cancelled" else snapshot.status_or(status)
    return _Outcome(status, _with_status(body, status, snapshot), snapshot)


def _ending(
    entry: Entry,
    outcome: _Outcome,
    response: Response,
    extent: tuple[str | None, int, int],
    rest: Block | None,
    cost: int | None = None,
) -> Ending:
    """The ending of a response that began as this entry. `extent` is the digest of its log, the
    number of its events, and its size; `rest` its last block."""
    digest, events, size = extent
    items: list[Item] = []
    if entry.conversation is not None:
        items = _turn_items(entry.input, outcome)
    ending = Ending(
        status=outcome.status,
        ended=time.time(),
        body=outcome.body,
        digest=digest,
        events=events,
        size=size,
        rest=rest,
        items=items,
        findings=len(response.findings),
        cost=cost,
    )
    # Nothing in a short response is long: it need not be searched for long strings.
    record = large_json.pieces(response) if size > BLOCK else [_json(response)]
    return with_record(entry, ending, record)


async def recover_ending(store: Store, entry: Entry, error: ErrorPart = INTERRUPTED) -> Ending:
    """The ending of a response that no process runs, from its log, which is read block by block
    outside the event loop. Raises StoreError."""
    recovery = Recovery(entry)
    async for events in StoredLog(store, entry.id).read():
        await offload(recovery.feed, events)
    last, response, digest = await offload(recovery.finish, error)
    return await _ending_behind(store, entry, last, response, digest)


async def unread_ending(store: Store, entry: Entry) -> Ending:
    """The ending of a response whose log could not be read: it is not read again. Raises
    StoreError."""
    extent = await store.extent(entry.id)
    last, response = error_ending(entry, UNRECOVERABLE, extent.events - 1)
    return await _ending_behind(store, entry, last, response, None)


async def _ending_behind(
    store: Store, entry: Entry, last: Sequence[Event], response: Response, digest: str | None
) -> Ending:
    """The ending of a response whose log is stored except for these last events. Raises
    StoreError."""
    # Read from the database, not counted while reading: a corrupt block has a place, too, and the
    # ending follows it.
    extent, rest, size = await store.extent(entry.id), None, 0
    if last:
        data_size = sum([len(event.data) for event in last])
        rest, ahead = await send_ahead(
            store, entry.id, extent.blocks, extent.events, last, data_size
        )
        size = ahead + len(rest.data)
    whole = (digest, extent.events + len(last), extent.size + size)

    def ending() -> Ending:
        body = last_snapshot(last)
        outcome = _outcome(response, body or b"{}")
        if body is None:
            # A dialect without response objects: what was stored at the beginning stays.
            outcome = _Outcome(outcome.status, entry.body, outcome.snapshot)
        return _ending(entry, outcome, response, whole, rest)

    return await offload(ending)


def _turn_items(given: bytes, outcome: _Outcome) -> list[Item]:
    """What a turn with this input adds to its conversation. An output item without an id gets
    one."""
    output = outcome.snapshot.items
    # A turn that failed without output adds nothing: it may have failed because of its input.
    if not output and outcome.status == "failed":
        return []
    ids = fresh_context().ids
    # New ids: a client may send the same item in several turns, and an id is unique in a
    # conversation.
    items = [
        Item(ids.mint(id_prefix(read_shape(one))), large_json.copied(one))
        for one in input_items(Raw(given))
    ]
    for one in output:
        shape = read_shape(one)
        id = shape.id if shape.id and len(shape.id) <= _ID_LENGTH else ids.mint(id_prefix(shape))
        items.append(Item(id, large_json.copied(one)))
    return items


def with_status(body: bytes, status: Status) -> bytes:
    """A response object with another status; if that is completed, without a required action."""
    return _with_status(body, status, _snapshot(body))


def _with_status(body: bytes, status: Status, snapshot: _Snapshot) -> bytes:
    # The bytes stay as they were sent, if nothing has to change.
    if snapshot.status == Raw(_json(status)):
        return body
    try:
        fields = large_json.members(body)
    except ValueError:
        return body
    removed: dict[str, None] = {}
    if status == "completed" and snapshot.awaits_outputs:
        removed["required_action"] = None
    if status == "cancelled":
        removed["error"] = None  # a cancellation is not an error of the response
    return large_json.write({**fields, "status": status, **removed})


_STATUS: dict[str, Status] = {"length": "incomplete", "content-filter": "incomplete"}


def status_of(response: Response) -> Status:
    """The status of a response whose dialect has no statuses."""
    if response.error is not None:
        return "cancelled" if response.error.kind == "cancelled" else "failed"
    return _STATUS.get(response.finish_reason or "", "completed")
