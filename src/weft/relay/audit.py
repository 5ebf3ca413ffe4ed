"""The audit: whether what is stored is what was streamed.

For every response that has ended:

1. The log is the one that was sent: its SHA-256, its number of events and its size are those that
   were stored with the end.
2. The log says nothing twice: a reader that is as strict as an official client finds each call,
   item and response once.
3. The record agrees with the log. The record is the response as the upstream sent it, the log is in
   the client's dialect: they are compared field by field (`comparison.py`). What a dialect cannot
   carry (docs/carrying.md) is not a difference: the record is encoded again in the client's
   dialect, and a field may have the value that it has there.
4. The body is what the log ends with: its last response object, or all of it if the response was
   not streamed; if the dialect has neither, the record as a body. A cancellation, or the arrival of
   tool outputs, may be newer than the log.
5. The response it continues, the response that continues it, and its conversation belong to the
   same owner, if they still exist.
6. The checksum covers everything that was stored at the end (`checksum.py`), so that no byte can
   change unnoticed.

A log that was pruned is counted, not read: digest, events and size remain. One response is in
memory at a time, and one block of its log.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256

import msgspec
from msgspec import Raw

from weft.assembler import Response
from weft.codec import Decoder, Pipe
from weft.context import Context
from weft.dialects import DIALECTS
from weft.errors import WeftError
from weft.findings import Code, Findings
from weft.guard import Guard
from weft.ids import Ids
from weft.relay.checksum import is_unchanged
from weft.relay.comparison import Comparable, comparable, different_fields
from weft.relay.history import input_items
from weft.relay.incoming import api_of
from weft.relay.log import BODY, LogReader
from weft.relay.persistence import awaits_outputs, status_of, with_status
from weft.relay.recovery import frames_of, request_of
from weft.relay.rendering import encoder_of
from weft.relay.replay_variants import replay_variants
from weft.sse import Event, Frame, write_events
from weft.store.base import Store
from weft.store.records import Block, Entry, Status


class _Status(msgspec.Struct):
    status: Status | None = None


_fold = msgspec.json.Decoder(Response).decode
_status = msgspec.json.Decoder(_Status).decode


class Difference(msgspec.Struct, frozen=True):
    """A difference between a stored response and what was streamed."""

    id: str
    what: str
    """log, record, body, status, input, previous, answered or conversation."""

    detail: str

    def __str__(self) -> str:
        return f"{self.id}: {self.what}: {self.detail}"


class AuditSummary(msgspec.Struct, frozen=True):
    """The result of an audit of a store."""

    compared: int
    """Responses that were compared with their log."""

    pruned: int
    running: int
    differences: int


# Reading and encoding


class _Reader:
    """Reads and encodes one response in its client's dialect. Our own events have no size limit."""

    def __init__(self, entry: Entry) -> None:
        self.dialect = DIALECTS[entry.dialect]
        created = int(entry.created)
        self._context = Context(
            request_of(entry), ids=Ids(b"audit"), now=created, response_id=entry.id
        )

    def pipe(self) -> Pipe:
        return Pipe(self.dialect, self._context)

    def read_body(self, raw: bytes) -> Response:
        decoder = Decoder(self.dialect.name, context=self._context, limit=len(raw))
        decoder.feed(raw)
        decoder.finish()
        return decoder.response

    def encoded_streams(self, record: Response) -> Iterator[Response]:
        """The record, encoded as a stream and read again, in every possible order."""
        for parts in replay_variants(record):
            pipe, guard = self.pipe(), Guard(self._context.ids, Findings())
            encoder = encoder_of(self.dialect, self._context, guard.fold, Findings())
            for part in parts:  # one at a time: their events are not all in memory
                pipe.feed(frames_of(encoder.feed(guard.feed((part,)))))
            # The guard closes what a record of a cut response left open, as it did when it was
            # streamed.
            pipe.feed(frames_of(encoder.feed(guard.finish())))
            pipe.finish()
            yield pipe.response

    def encoded_body(self, record: Response) -> Response:
        """The record, encoded as a body and read again."""
        write_body = api_of(self.dialect.name).body
        return self.read_body(write_body(record, self._context, Findings()))


class _Log:
    """Reads a log block by block."""

    def __init__(self, reader: _Reader) -> None:
        self.body: bytes | None = None
        """The response, if it was not streamed."""
        self.snapshot: bytes | None = None
        """The last response object in the log."""
        self.readable = True
        self._reader = reader
        self._pipe = reader.pipe()
        self._hash = sha256()
        self._blocks = self._size = self._events = 0
        self._batch = 0
        """The number of the first event of a batch."""
        self._blocks_reader = LogReader(strict=True)
        self._misplaced = False
        self._is_whole = True
        """Whether the last batch is complete."""

    def feed(self, block: Block) -> None:
        try:
            events = self._blocks_reader.feed(block, ended=True)
        except ValueError:
            self.readable = False
            return
        # All blocks of a batch name its first event; only the last one counts them (`log.py`).
        self._misplaced |= (block.number, block.first) != (self._blocks, self._batch)
        for event in events:
            self._event(event)
        self._is_whole = block.count > 0
        if self._is_whole:
            self._misplaced |= self._events != self._batch + block.count
            self._batch = self._events
        self._blocks += 1
        self._size += len(block.data)

    def _event(self, event: Event) -> None:
        frame = Frame(event.data, event.name, number=self._events)
        # The number stands twice, in the row and in the bytes: a resume goes by the one, clients by
        # the other.
        self._misplaced |= event.number != self._reader.dialect.number(frame)
        # As `Log` hashed it: a body by itself, an event as it was framed.
        if event.name == BODY:
            self.body = event.data
            self._hash.update(event.data)
        else:
            self._hash.update(write_events((event,)))
            self._pipe.feed((frame,))
            snapshot = self._reader.dialect.snapshot(frame)
            self.snapshot = self.snapshot if snapshot is None else bytes(snapshot)
        self._events += 1

    def differences(self, entry: Entry) -> Iterator[str]:
        is_mixed = self.body is not None and self._events > 1
        if self._misplaced or is_mixed or not self._is_whole:
            yield "events or blocks are missing or out of order"
        if self._events != entry.events:
            yield f"it holds {self._events} events; {entry.events} were sent"
        if self._size != entry.size:
            yield f"it holds {self._size} bytes; {entry.size} were stored"
        if self._hash.hexdigest() != entry.digest:
            yield "its digest differs from that of the events that were sent"

    def response(self) -> Response:
        """The response that the log holds."""
        if self.body is not None:
            return self._reader.read_body(self.body)
        self._pipe.finish()
        return self._pipe.response


# One response

_DUPLICATES: frozenset[Code] = frozenset(
    (
        "arguments-repeated",
        "arguments-snapshot",
        "call-id-collision",
        "call-id-repeated",
        "call-name-repeated",
        "call-repeated",
        "end-repeated",
        "finish-repeated",
        "frame-replayed",
        "id-reused",
        "message-ignored",
        "metadata-repeated",
        "start-repeated",
        "whole-contradicts",
    )
)
"""Findings of a reader that mean that something was sent twice. Our own reader repairs that, a
strict one does not."""

_CHANGED = "the response was changed after its end"


class EntryAudit:
    """Compares a response that has ended with its log: `feed` the blocks, then `finish`."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._reader = _Reader(entry)
        self._log = _Log(self._reader)

    def feed(self, block: Block) -> None:
        try:
            self._log.feed(block)
        except (ValueError, RecursionError, WeftError):
            self._log.readable = False

    def finish(self) -> list[Difference]:
        entry = self._entry
        found = [("log", "it cannot be read")] if not self._log.readable else []
        if not found:
            found = [("log", why) for why in self._log.differences(entry)]
            found += self._record()
        try:
            input_items(Raw(entry.input))
        except WeftError:
            found.append(("input", "it is not a list of items"))
        # Last, and only if nothing else was found: it says that something is wrong, but not what.
        if not found and not _is_unchanged(entry):
            found.append(("checksum", _CHANGED))
        return [Difference(entry.id, what, why) for what, why in found]

    def _record(self) -> Iterator[tuple[str, str]]:
        try:
            record = _fold(self._entry.record or b"")
        except ValueError:
            yield "record", "it cannot be read"
            return
        try:
            yield from self._compared(record)
        except (ValueError, RecursionError, WeftError):
            yield "record", "it cannot be encoded"

    def _compared(self, record: Response) -> Iterator[tuple[str, str]]:
        log, reader = self._log, self._reader
        sent = log.response()
        stored = comparable(record)
        # Compared directly first: most records agree, and then nothing has to be encoded and read
        # again.
        found = list(_differences(sent, stored))
        if found and log.body is not None:
            again = reader.encoded_body(record)
            found = min(found, list(_differences(sent, stored, again)), key=len)
        elif found:
            for again in reader.encoded_streams(record):
                # The order that explains most is the one that was sent; what it leaves is reported.
                found = min(found, list(_differences(sent, stored, again)), key=len)
                if not found:
                    break
        yield from found
        snapshot = log.snapshot if log.body is None else log.body
        if snapshot is None:
            yield from _compare_body(self._entry, record, reader)
        else:
            yield from _compare_snapshot(self._entry, record, snapshot)


def _differences(sent: Response, stored: Comparable, *again: Response) -> Iterator[tuple[str, str]]:
    """What the log says twice, and the fields that differ from the record. Neither is a difference
    if the record, encoded again, reads like that too."""
    known = {one.code for other in again for one in other.findings}
    for one in sent.findings:
        if one.code in _DUPLICATES - known:
            yield "log", f"it says something twice: {one.detail}"
    for name in different_fields(comparable(sent), stored, *map(comparable, again)):
        if name == "usage" and sent.error is not None:
            continue  # nothing is sent after an error: the log may have an earlier count
        yield "record", f"{name} differs from the log"


def _is_unchanged(entry: Entry) -> bool:
    """Whether nothing was changed, except that awaited tool outputs may have arrived."""
    if is_unchanged(entry):
        return True
    # The checksum was made while it was incomplete; `submit_tool_outputs` completes it later.
    if entry.status != "completed" or entry.body is None or not awaits_outputs(entry.body):
        return False
    return is_unchanged(msgspec.structs.replace(entry, status="incomplete"))


def _compare_body(entry: Entry, record: Response, reader: _Reader) -> Iterator[tuple[str, str]]:
    """For a log without response objects: body and status must agree with the record."""
    if entry.status != status_of(record):
        yield "status", f"it is {entry.status}; the record says {status_of(record)}"
    if entry.body is None:
        # A dialect without response objects has no body for an error.
        if record.error is None:
            yield "body", "it is missing"
        return
    body, stored = comparable(reader.read_body(entry.body)), comparable(record)
    if different_fields(body, stored):
        for name in different_fields(body, stored, comparable(reader.encoded_body(record))):
            yield "body", f"{name} differs from the record"


def _compare_snapshot(entry: Entry, record: Response, snapshot: bytes) -> Iterator[tuple[str, str]]:
    """For a log that ends with the whole response: body and status must agree with that."""
    status = status_of(record)
    statuses, found = {status}, None
    with suppress(ValueError):
        found = _status(snapshot).status
    if found is not None:
        status = status if status == "cancelled" else found
        statuses = {status, "completed"} if awaits_outputs(snapshot) else {status}
        snapshot = with_status(snapshot, status)
    if entry.body != snapshot:
        yield "body", "it differs from the end of the log"
    if entry.status not in statuses:
        yield "status", f"it is {entry.status}; the log says {' or '.join(sorted(statuses))}"


# The store


async def audit(store: Store, report: Callable[[Difference], None]) -> AuditSummary:
    """Compares all responses, one at a time, and reports every difference. Raises StoreError."""
    compared = pruned = running = differences = 0
    last = ""
    while entries := await store.entries(last, 1):  # one at a time: they may be large
        entry = entries[0]
        if entry.ended is None:
            running += 1
        else:
            found = await audit_entry(store, entry)
            differences += len(found)
            for one in found:
                report(one)
            pruned += entry.pruned
            compared += not entry.pruned
        last = entry.id
    return AuditSummary(compared, pruned, running, differences)


async def audit_entry(store: Store, entry: Entry) -> list[Difference]:
    """The differences of a response that has ended. Others may change or delete it meanwhile: then
    it is compared again."""
    found = await _compared(store, entry)
    if not found:
        return []
    again = await store.entry(entry.id)
    return [] if again is None else found if again == entry else await _compared(store, again)


async def _compared(store: Store, entry: Entry) -> list[Difference]:
    if entry.dialect not in DIALECTS:
        return [Difference(entry.id, "dialect", f"{entry.dialect!r} is unknown")]
    found: list[Difference] = []
    if not entry.pruned:
        examination, after_block = EntryAudit(entry), -1
        while blocks := await store.blocks(entry.id, after_block=after_block):
            after_block = blocks[-1].number
            # Popped, so that a block is freed as soon as it is read.
            while blocks:
                examination.feed(blocks.pop(0))
        found = examination.finish()
    elif await store.blocks(entry.id):
        found = [Difference(entry.id, "log", "it is marked as removed, but exists")]
    elif not _is_unchanged(entry):
        found = [Difference(entry.id, "checksum", _CHANGED)]
    return found + [Difference(entry.id, *one) for one in await _links(store, entry)]


async def _links(store: Store, entry: Entry) -> list[tuple[str, str]]:
    """What the response is linked to may be deleted; otherwise it must have the same owner."""
    found: list[tuple[str, str]] = []
    for what, id in (("previous", entry.previous), ("answered", entry.answered)):
        other = None if id is None else await store.entry(id)
        if other is not None and (other.owner != entry.owner or other.id == entry.id):
            found.append((what, f"{id} is not another response of the same owner"))
    if (
        entry.conversation is not None
        and await store.conversation(entry.owner, entry.conversation) is None
        # A conversation that was deleted has no items; one with items and another owner is foreign.
        and (await store.items(entry.conversation, limit=1)).items
    ):
        found.append(("conversation", f"{entry.conversation} is another owner's"))
    return found
