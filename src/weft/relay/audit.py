"""The audit: whether what is stored is what was told.

Of every response that has ended:

1. the log is the one that was told: its SHA-256, its events and its bytes are those noted at the
   end;
2. the log tells nothing twice: whoever reads it as strictly as an official client does finds each
   call, item and answer once;
3. the record says what the log says. The record is the fold of what the upstream said, the log is
   in the client's dialect: they are compared as `Meaning`, field by field. What a dialect cannot
   carry (docs/carrying.md) is no difference: the record is told once more in the client's dialect,
   and a field may say what it says there;
4. the body is what the log ends with: its last snapshot, or all of it if it was told in one piece;
   where a wire has neither, what the record says as a body. That a response was cancelled, or that
   the outputs it waited for have come, is newer than its log;
5. what it goes on from, what goes on from it, and its conversation belong to the same owner, if
   they are still there;
6. the checksum is that of everything that was stored when it ended (`checksum.py`), so that no byte
   can change without being noticed.

A log that was pruned is counted, and not read: digest, events and size still tell what it was. One
response is in memory at a time, and of its log one block.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import sha256

import msgspec
from msgspec import Raw

from weft.assembler import ReasoningItem, Response, TextItem
from weft.codec import Decoder, Pipe
from weft.context import Context
from weft.dialects import DIALECTS
from weft.errors import InternalError, WeftError
from weft.findings import Code, Findings
from weft.guard import Guard
from weft.ids import Ids
from weft.partial_json import canonical
from weft.parts import Part, ToolCall, ToolResult, Usage
from weft.relay.checksum import is_unchanged
from weft.relay.history import input_items
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
    """Something of a stored response that is not as it was told."""

    id: str
    what: str
    """log, record, body, status, input, previous, answered or conversation."""

    detail: str

    def __str__(self) -> str:
        return f"{self.id}: {self.what}: {self.detail}"


class AuditSummary(msgspec.Struct, frozen=True):
    """What a walk over a store came to."""

    compared: int
    """Responses that were compared with their log."""

    pruned: int
    running: int
    differences: int


# What a response says


class Meaning(msgspec.Struct, frozen=True):
    """What a response says, without what any conversion may change: how text is cut into parts,
    where it stands between calls, ids of items and of calls that the upstream ran, how JSON is
    spelled, a sum of tokens, or a zero, beside what it sums up, and calls that an error cut before
    their arguments began: not every wire had announced them."""

    text: str
    refusal: str
    reasoning: str
    calls: tuple[tuple[str, ...], ...]
    ran: tuple[tuple[str, ...], ...]
    """Calls that the upstream ran itself."""

    results: tuple[tuple[str, ...], ...]
    proofs: tuple[str, ...]
    finish: str | None
    usage: tuple[tuple[str, int], ...]
    error: str | None


def meaning_of(response: Response) -> Meaning:
    names = _names(response)
    items, error = response.items, response.error
    calls = [one for one in items if isinstance(one, ToolCall) and not _is_nothing(one)]
    results = [one for one in items if isinstance(one, ToolResult)]
    return Meaning(
        text=response.text,
        refusal=response.refusal,
        reasoning=response.reasoning,
        calls=tuple(sorted(_call(one, names) for one in calls if not one.provider_executed)),
        ran=tuple(sorted(_call(one, names) for one in calls if one.provider_executed)),
        results=tuple(sorted(_result(one, names.get(one.id, one.id)) for one in results)),
        proofs=tuple(sorted(set(_proofs(response)))),
        finish=response.finish_reason,
        usage=_usage(response.usage or Usage()),
        error=None if error is None else error.kind,
    )


def _names(response: Response) -> dict[str, str]:
    """Calls by their ids; those that the upstream ran by how many of their tool ran before."""
    names: dict[str, str] = {}
    ran: dict[str, int] = {}
    for item in response.items:
        if isinstance(item, ToolCall):
            names[item.id] = item.id
            if item.provider_executed:
                ran[item.name] = ran.get(item.name, -1) + 1
                names[item.id] = f"#{ran[item.name]}"
    return names


def _is_nothing(call: ToolCall) -> bool:
    """Whether it was cut before it asked for anything."""
    return call.invalid == "stream-failed" and not call.params.strip()


def _call(call: ToolCall, names: dict[str, str]) -> tuple[str, ...]:
    how = "ran" if call.provider_executed else call.invalid or "asked"
    return (names[call.id], call.name, how, _spelled(call.params))


def _result(result: ToolResult, name: str) -> tuple[str, ...]:
    how = "preliminary" if result.preliminary else "final"
    return (name, how, str(result.is_error), _spelled(bytes(result.result).decode()))


def _proofs(response: Response) -> Iterable[str]:
    for item in response.items:
        if isinstance(item, TextItem | ReasoningItem | ToolCall) and item.signature is not None:
            yield item.signature
        if isinstance(item, ReasoningItem):
            yield from (one for one in (item.encrypted, item.redacted) if one is not None)


def _usage(usage: Usage) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int | None] = msgspec.structs.asdict(usage)
    if usage.total_tokens == (usage.input_tokens or 0) + (usage.output_tokens or 0):
        del counts["total_tokens"]
    return tuple((name, count) for name, count in counts.items() if count)


def _spelled(text: str) -> str:
    found = canonical(text)
    return text if found is None else found.decode()


def different_fields(said: Meaning, *others: Meaning) -> list[str]:
    """The fields of which none of the others says the same."""
    return [
        name
        for name in Meaning.__struct_fields__
        if all(getattr(said, name) != getattr(other, name) for other in others)
    ]


# What was told


class _Reader:
    """How one response reads in its client's dialect. Our own events have no limit of size."""

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
        """The record, once it was told in events."""
        for parts in replay_variants(record):
            yield self._read(parts)

    def _read(self, parts: Iterable[Part]) -> Response:
        """What a client reads that is told these parts: each event is gone when it is read."""
        pipe, guard = self.pipe(), Guard(self._context.ids, Findings())
        encoder = encoder_of(self.dialect, self._context, guard.fold, Findings())
        for part in parts:
            pipe.feed(frames_of(encoder.feed(guard.feed((part,)))))
        pipe.feed(frames_of(encoder.feed(guard.finish())))
        pipe.finish()
        return pipe.response

    def encoded_body(self, record: Response) -> Response:
        """The record, once it was told in one piece."""
        if self.dialect.body is None:
            raise InternalError(f"{self.dialect.name} has no bodies")
        return self.read_body(self.dialect.body(record, self._context, Findings()))


class _Log:
    """Reads a log block by block: what it holds, and what it says."""

    def __init__(self, reader: _Reader) -> None:
        self.body: bytes | None = None
        """The answer, if it was told in one piece."""
        self.snapshot: bytes | None = None
        """The last response object that was told."""
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
        self._misplaced |= event.number != self._reader.dialect.number(frame)
        if event.name == BODY:
            self.body = event.data
            self._hash.update(event.data)
        else:
            self._hash.update(write_events((event,)))
            self._pipe.feed((frame,))
            told = self._reader.dialect.snapshot(frame)
            self.snapshot = self.snapshot if told is None else bytes(told)
        self._events += 1

    def differences(self, entry: Entry) -> Iterator[str]:
        is_mixed = self.body is not None and self._events > 1
        if self._misplaced or is_mixed or not self._is_whole:
            yield "events or blocks are missing, or not in their places"
        if self._events != entry.events:
            yield f"it holds {self._events} events, {entry.events} were told"
        if self._size != entry.size:
            yield f"it holds {self._size} bytes, {entry.size} were stored"
        if self._hash.hexdigest() != entry.digest:
            yield "its digest is not that of what was told"

    def response(self) -> Response:
        """What the log says."""
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
"""Repairs of a reader that mean: something was told twice. Our own reader hides that, a strict one
acts on it."""


_CHANGED = "something of it was changed after it had ended"


class _EntryAudit:
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
        if not _is_list(entry.input):
            found.append(("input", "it is no list of items"))
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
            yield "record", "it cannot be told again"

    def _compared(self, record: Response) -> Iterator[tuple[str, str]]:
        log, reader = self._log, self._reader
        response = log.response()
        stored = meaning_of(record)
        found = list(_unlike(response, stored))
        for again in self._retold(record):
            if not found:
                break
            found = min(found, list(_unlike(response, stored, again)), key=len)
        yield from found
        snapshot = log.snapshot if log.body is None else log.body
        if snapshot is None:
            yield from _folded(self._entry, record, reader)
        else:
            yield from _snapshot(self._entry, record, snapshot)

    def _retold(self, record: Response) -> Iterator[Response]:
        """The record, told as it was told to the client. It is made only if it is needed."""
        if self._log.body is None:
            yield from self._reader.encoded_streams(record)
        else:
            yield self._reader.encoded_body(record)


def _unlike(said: Response, stored: Meaning, *again: Response) -> Iterator[tuple[str, str]]:
    """What the log tells twice, and the fields that say something else than what is stored. Neither
    is a difference if the record, told again, reads like that too."""
    known = {one.code for other in again for one in other.findings}
    for one in said.findings:
        if one.code in _DUPLICATES - known:
            yield "log", f"it tells something twice: {one.detail}"
    for name in different_fields(meaning_of(said), stored, *map(meaning_of, again)):
        if name == "usage" and said.error is not None:
            continue  # nothing is told after an error: the log may have an earlier count
        yield "record", f"its {name} is not what the log tells"


def audit_log(entry: Entry, blocks: Iterable[Block]) -> list[Difference]:
    """What is wrong with a response that has ended, and whose log is this."""
    examination = _EntryAudit(entry)
    for block in blocks:
        examination.feed(block)
    return examination.finish()


def _is_unchanged(entry: Entry) -> bool:
    """Whether nothing was changed; that the outputs it waited for have come is newer."""
    if is_unchanged(entry):
        return True
    if entry.status != "completed" or entry.body is None or not awaits_outputs(entry.body):
        return False
    return is_unchanged(msgspec.structs.replace(entry, status="incomplete"))


def _folded(entry: Entry, record: Response, reader: _Reader) -> Iterable[tuple[str, str]]:
    """A stream without snapshots: body and status are what the record says."""
    if entry.status != status_of(record):
        yield "status", f"it is {entry.status}; the record says {status_of(record)}"
    if entry.body is None:
        if record.error is None:
            yield "body", "there is none"
        return
    said, stored = meaning_of(reader.read_body(entry.body)), meaning_of(record)
    if different_fields(said, stored):
        for name in different_fields(said, stored, meaning_of(reader.encoded_body(record))):
            yield "body", f"its {name} is not what the record says"


def _snapshot(entry: Entry, record: Response, snapshot: bytes) -> Iterable[tuple[str, str]]:
    """A log that ends with the whole answer."""
    status = status_of(record)
    statuses = {status}
    word = _word(snapshot)
    if word is not None:
        status = status if status == "cancelled" else word
        statuses = {status, "completed"} if awaits_outputs(snapshot) else {status}
        snapshot = with_status(snapshot, status)
    if entry.body != snapshot:
        yield "body", "it is not what the log ends with"
    if entry.status not in statuses:
        yield "status", f"it is {entry.status}; the log says {' or '.join(sorted(statuses))}"


def _word(snapshot: bytes) -> Status | None:
    """The status that a response object says it has, if that is a word of ours."""
    with suppress(ValueError):
        return _status(snapshot).status
    return None


def _is_list(input: bytes) -> bool:
    try:
        input_items(Raw(input))
    except WeftError:
        return False
    return True


# The store


async def audit(store: Store, tell: Callable[[Difference], None]) -> AuditSummary:
    """Walks the store, one response at a time, and tells every difference. Raises StoreError."""
    whole = pruned = running = differences = 0
    last = ""
    while entries := await store.entries(last, 1):  # more of them may be large
        entry = entries[0]
        if entry.ended is None:
            running += 1
        else:
            found = await audit_entry(store, entry)
            differences += len(found)
            for one in found:
                tell(one)
            pruned += entry.pruned
            whole += not entry.pruned
        last = entry.id
    return AuditSummary(whole, pruned, running, differences)


async def audit_entry(store: Store, entry: Entry) -> list[Difference]:
    """The differences of a response that has ended, and is still there when they were found: others
    may change it meanwhile."""
    found = await _compared(store, entry)
    if not found:
        return []
    again = await store.entry(entry.id)
    return [] if again is None else found if again == entry else await _compared(store, again)


async def _compared(store: Store, entry: Entry) -> list[Difference]:
    if entry.dialect not in DIALECTS:
        return [Difference(entry.id, "dialect", f"there is no {entry.dialect!r}")]
    found = await (_without_log if entry.pruned else _with_log)(store, entry)
    return found + [Difference(entry.id, *one) for one in await _links(store, entry)]


async def _with_log(store: Store, entry: Entry) -> list[Difference]:
    examination, behind = _EntryAudit(entry), -1
    while blocks := await store.blocks(entry.id, behind=behind):
        behind = blocks[-1].number
        while blocks:
            examination.feed(blocks.pop(0))
    return examination.finish()


async def _without_log(store: Store, entry: Entry) -> list[Difference]:
    if await store.blocks(entry.id):
        return [Difference(entry.id, "log", "it was removed for its age, and is there")]
    return [] if _is_unchanged(entry) else [Difference(entry.id, "checksum", _CHANGED)]


async def _links(store: Store, entry: Entry) -> list[tuple[str, str]]:
    """What a response is tied to may be gone; what is there must belong to the same owner."""
    found: list[tuple[str, str]] = []
    for what, id in (("previous", entry.previous), ("answered", entry.answered)):
        other = None if id is None else await store.entry(id)
        if other is not None and (other.owner != entry.owner or other.id == entry.id):
            found.append((what, f"{id} is not another response of the same owner"))
    if (
        entry.conversation is not None
        and await store.conversation(entry.owner, entry.conversation) is None
        and (await store.items(entry.conversation, limit=1)).items
    ):
        found.append(("conversation", f"{entry.conversation} is another owner's"))
    return found
