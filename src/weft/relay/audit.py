"""The audit: whether what is stored is what was told.

Of every response that has ended:

1. the log is the one that was told: its SHA-256, its events and its bytes are those noted at the
   end;
2. the log tells nothing twice: whoever reads it as strictly as an official client does finds each
   call, item and answer once;
3. the record says what the log says. The record is the fold of what the upstream said, the log is
   in the client's dialect: they are compared as `Meaning`, field by field. What a dialect cannot
   carry (docs/carrying.md) is no difference: the record is told once more in the client's dialect,
   and a field may say what it says there. Where an error ended the log, the record does not tell
   what it found open: it is told once for each item that may have been, and all fields must say
   what one of these tellings says, or what is stored;
4. the body is what the log ends with: its last snapshot, or all of it if it was told in one piece;
   where a wire has neither, what the record says as a body. That a response was cancelled, or that
   the outputs it waited for have come, is newer than its log;
5. what it goes on from, what goes on from it, and its conversation belong to the same owner, if
   they are still there.

A log that was pruned is counted, and not read: digest, events and size still tell what it was.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256

import msgspec
from msgspec import Raw

from weft.assembler import ReasoningItem, Response, TextItem
from weft.codec import Decoder, Pipe
from weft.context import Context
from weft.dialects import DIALECTS
from weft.errors import InternalError, WeftError
from weft.findings import Code, Finding, Findings
from weft.guard import Guard
from weft.ids import Ids
from weft.partial_json import canonical
from weft.parts import Part, ToolCall, ToolResult, Usage
from weft.relay.history import given
from weft.relay.log import as_sent, body_of, events_of
from weft.relay.persistence import status_of, waits, with_status
from weft.relay.recovery import frames_of, request_of
from weft.relay.rendering import encoder_of
from weft.relay.replay_variants import retold
from weft.sse import Event
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


class Audited(msgspec.Struct, frozen=True):
    """What a walk over a store came to."""

    whole: int
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


def meaning(response: Response) -> Meaning:
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


def unlike(said: Meaning, *others: Meaning) -> list[str]:
    """The fields of which none of the others says the same."""
    return [
        name
        for name in Meaning.__struct_fields__
        if all(getattr(said, name) != getattr(other, name) for other in others)
    ]


def _least_unlike(said: Meaning, stored: Meaning, again: Iterable[Meaning]) -> list[str]:
    """The fields that say neither what is stored nor what the likest of the others says."""
    least = unlike(said, stored)
    for other in again:
        if not least:
            break
        least = min(least, unlike(said, stored, other), key=len)
    return least


# What was told


class _Told:
    """How one response reads in its client's dialect."""

    def __init__(self, entry: Entry) -> None:
        self._dialect = DIALECTS[entry.dialect]
        created = int(entry.created)
        self._context = Context(
            request_of(entry), ids=Ids(b"audit"), now=created, response_id=entry.id
        )

    def read(self, events: Sequence[Event]) -> Response:
        pipe = Pipe(self._dialect, self._context)
        pipe.feed(frames_of(events))
        pipe.finish()
        return pipe.response

    def read_body(self, raw: bytes) -> Response:
        decoder = Decoder(self._dialect.name, context=self._context)
        decoder.feed(raw)
        decoder.finish()
        return decoder.response

    def streamed(self, record: Response, told: Response) -> Iterator[Response]:
        """The record, once it was told in events: in each way that it may have been, if that ends
        as what was told does."""
        for parts in retold(record, told):
            one = self.read(self._events(parts))
            if (one.error is None) == (told.error is None):
                yield one

    def _events(self, parts: Iterable[Part]) -> list[Event]:
        guard = Guard(self._context.ids, Findings())
        encoder = encoder_of(self._dialect, self._context, guard.fold, Findings())
        events: list[Event] = []
        for part in parts:
            events += encoder.feed(guard.feed((part,)))
        return events + encoder.feed(guard.finish())

    def whole(self, record: Response) -> Response:
        """The record, once it was told in one piece."""
        if self._dialect.body is None:
            raise InternalError(f"{self._dialect.name} has no bodies")
        return self.read_body(self._dialect.body(record, self._context, Findings()))


# One response


def examined(entry: Entry, blocks: list[Block]) -> list[Difference]:
    """What is wrong with a response that has ended, and whose log is this."""
    try:
        events = events_of(blocks)
    except ValueError:
        return [Difference(entry.id, "log", "it cannot be read")]
    found = [("log", why) for why in _log(entry, blocks, events)]
    try:
        record = _fold(entry.record or b"")
    except ValueError:
        record = None
        found.append(("record", "it cannot be read"))
    if record is not None:
        try:
            found += _record(entry, record, events)
        except (ValueError, RecursionError, WeftError):
            found.append(("log", "it cannot be read"))
    found += [("input", "it is no list of items") for _ in [0] if not _is_list(entry.input)]
    return [Difference(entry.id, what, why) for what, why in found]


def _log(entry: Entry, blocks: list[Block], events: Sequence[Event]) -> Iterable[str]:
    if [one.number for one in blocks] != list(range(len(blocks))):
        yield "blocks are missing"
    if len(events) != entry.events or sum(one.count for one in blocks) != entry.events:
        yield f"it holds {len(events)} events, {entry.events} were told"
    size = sum(len(one.data) for one in blocks)
    if size != entry.size:
        yield f"it holds {size} bytes, {entry.size} were stored"
    if sha256(as_sent(events)).hexdigest() != entry.digest:
        yield "its digest is not that of what was told"


_TWICE: frozenset[Code] = frozenset(
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


def _repeated(findings: Iterable[Finding]) -> Iterable[str]:
    return (f"it tells something twice: {one.detail}" for one in findings if one.code in _TWICE)


def _record(entry: Entry, record: Response, events: Sequence[Event]) -> Iterable[tuple[str, str]]:
    reader, body = _Told(entry), body_of(events)
    response = reader.read(events) if body is None else reader.read_body(body)
    for why in _repeated(response.findings):
        yield "log", why
    again = reader.streamed(record, response) if body is None else [reader.whole(record)]
    for name in _least_unlike(meaning(response), meaning(record), map(meaning, again)):
        if name == "usage" and response.error is not None:
            continue  # of which nothing is told after an error: the log may have an earlier count
        yield "record", f"its {name} is not what the log tells"
    snapshot = _last_snapshot(entry, events) if body is None else body
    if snapshot is None:
        yield from _folded(entry, record, reader)
    else:
        yield from _snapshot(entry, record, snapshot)


def _last_snapshot(entry: Entry, events: Sequence[Event]) -> bytes | None:
    snapshot_of = DIALECTS[entry.dialect].snapshot
    found = (snapshot_of(frame) for frame in reversed(frames_of(events)))
    return next((one for one in found if one is not None), None)


def _folded(entry: Entry, record: Response, reader: _Told) -> Iterable[tuple[str, str]]:
    """A stream without snapshots: body and status are what the record says."""
    if entry.status != status_of(record):
        yield "status", f"it is {entry.status}; the record says {status_of(record)}"
    if entry.body is None:
        if record.error is None:
            yield "body", "there is none"
        return
    said = meaning(reader.read_body(entry.body))
    for name in unlike(said, meaning(record), meaning(reader.whole(record))):
        yield "body", f"its {name} is not what the record says"


def _snapshot(entry: Entry, record: Response, snapshot: bytes) -> Iterable[tuple[str, str]]:
    """A log that ends with the whole answer."""
    status = status_of(record)
    statuses = {status}
    word = _word(snapshot)
    if word is not None:
        status = status if status == "cancelled" else word
        statuses = {status, "completed"} if waits(snapshot) else {status}
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
        given(Raw(input))
    except WeftError:
        return False
    return True


# The store


async def audit(store: Store, tell: Callable[[Difference], None]) -> Audited:
    """Walks the store, and tells every difference. Raises StoreError."""
    whole = pruned = running = differences = 0
    last = ""
    while entries := await store.entries(last):
        for entry in entries:
            if entry.ended is None:
                running += 1
                continue
            found = await _sure(store, entry)
            differences += len(found)
            for one in found:
                tell(one)
            pruned += entry.pruned
            whole += not entry.pruned
        last = entries[-1].id
    return Audited(whole, pruned, running, differences)


async def _sure(store: Store, entry: Entry) -> list[Difference]:
    """The differences of a response that is still there when they were found: others may change
    it meanwhile."""
    found = await _compared(store, entry)
    if not found:
        return []
    again = await store.entry(entry.id)
    return [] if again is None else found if again == entry else await _compared(store, again)


async def _compared(store: Store, entry: Entry) -> list[Difference]:
    found = [] if entry.pruned else examined(entry, await _blocks(store, entry.id))
    return found + [Difference(entry.id, *one) for one in await _links(store, entry)]


async def _blocks(store: Store, id: str) -> list[Block]:
    found: list[Block] = []
    while more := await store.blocks(id, behind=found[-1].number if found else -1):
        found += more
    return found


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
