"""Reasoning: which part of it is active, can conclude, or is concluded.

| what comes | the response is stored | it is not, or nobody said |
|---|---|---|
| the item | part 0 is active | the same |
| a part is done | it is concluded | it can conclude |
| the next part | it is active | those that can conclude are; then it is active |
| the item is done | the rest is concluded | the same, the last one with the encrypted content |

Encrypted content that comes with the item is provisional; so an item that shows some waits for
its end, stored or not. Raw reasoning takes the place of part 0 where no summary was seen.
"""

from msgspec import Raw, UnsetType

from weft.dialects.envelope import opened, unsealed
from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.decoding.item import Item, Said, Speech, Stage
from weft.dialects.openai_responses.decoding.state import Handler, Reading, Row
from weft.dialects.openai_responses.wire import NAME
from weft.partial_json import whole_characters
from weft.parts import Part, ReasoningDelta, ReasoningEnd, ReasoningKind, ReasoningStart

SUMMARY, RAW = "summary", "raw"

_KINDS: dict[str, ReasoningKind] = {SUMMARY: "summary", RAW: "raw"}
_INDEXES = {SUMMARY: "summary_index", RAW: "content_index"}
_KNOWN = ("id", "type", "summary", "content", "encrypted_content")


def _say(reading: Reading, item: Item, kind: str, index: int, out: list[Part]) -> Said:
    """The part of that kind and index, opened if it was not."""
    said = item.said.get((kind, index))
    if said is None:
        said_before = sum(key[0] == kind for key in item.said)
        reading.expect(item, _INDEXES[kind], index, said_before)
        said = reading.begin(item, kind, index, _id(item, kind, index), ReasoningDelta)
        out.append(ReasoningStart(said.id, _KINDS[kind], item_id=item.id))
    return said


def _id(item: Item, kind: str, index: int) -> str:
    """`<item>:<n>` for the kind that came first, the kind's own name in it for the other."""
    other = RAW if kind == SUMMARY else SUMMARY
    if any(key[0] == other for key in item.said):
        return f"{item.id}:{kind}{index}"
    return f"{item.id}:{index}"


def added(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    item.proven = item.proven or bool(read.encrypted_content)
    room = isinstance(read.content, list) and isinstance(read.encrypted_content, UnsetType)
    if not room and not item.said:  # else raw text may come: its first word tells
        _say(reading, item, SUMMARY, 0, out)


def part_added(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    index = event.summary_index or 0
    if (SUMMARY, index) not in item.said:
        for said in item.said.values():
            if said.speech is Speech.CAN_CONCLUDE:
                _conclude(reading, said, out)
            elif said.speech is Speech.ACTIVE:
                detail = f"item {item.id!r}: summary part {index} began before the one before ended"
                reading.findings.once("index-disordered", f"{item.id} summary", detail)
    _say(reading, item, SUMMARY, index, out)


def _summary_delta(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    said = _say(reading, item, SUMMARY, event.summary_index or 0, out)
    said.length += reading.more(ReasoningDelta, said.id, event.delta, out)


def _summary_done(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    if event.text:
        said = _say(reading, item, SUMMARY, event.summary_index or 0, out)
        said.whole = whole_characters(event.text)


def _part_done(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    text = event.part.text if event.part else None
    said = item.said.get((SUMMARY, event.summary_index or 0))
    if said is None and text:
        said = _say(reading, item, SUMMARY, event.summary_index or 0, out)
    if said is None or said.speech is not Speech.ACTIVE:  # never begun, so there is no end
        return
    said.whole = said.whole if text is None else whole_characters(text)
    if reading.store and not item.proven:
        _conclude(reading, said, out)
    else:
        said.speech = Speech.CAN_CONCLUDE


def raw_delta(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    said = _say(reading, item, RAW, event.content_index or 0, out)
    said.length += reading.more(ReasoningDelta, said.id, event.delta, out)


def _raw_done(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    if event.text:
        _say(reading, item, RAW, event.content_index or 0, out).whole = whole_characters(event.text)


def raw_added(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    _say(reading, item, RAW, event.content_index or 0, out)


def raw_part_done(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    text = event.part.text if event.part else None
    said = _say(reading, item, RAW, event.content_index or 0, out)
    said.whole = said.whole if text is None else whole_characters(text)


def done(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    for kind, values in ((SUMMARY, read.summary), (RAW, read.content)):
        for index, value in enumerate(values or ()):
            text = reading.salvage.item(value, wire.Part).text
            said = _say(reading, item, kind, index, out)
            said.whole = said.whole if text is None else whole_characters(text)
    encrypted = read.encrypted_content or None
    inside = opened(encrypted) if isinstance(encrypted, str) else None
    if inside is not None and inside.proof.call is not None:  # it is about a call
        reading.proofs[inside.proof.call] = inside
        encrypted = None
        if not item.said:
            return
    if not item.said:
        _say(reading, item, SUMMARY, 0, out)
    elif encrypted and not _open(item):  # all was concluded before the proof came
        _say(reading, item, SUMMARY, sum(kind == SUMMARY for kind, _ in item.said), out)
    if item.stage is Stage.UNSEEN:  # it came at once
        wholes = [said for said in item.said.values() if said.whole]
        out += [ReasoningDelta(said.id, said.whole or "") for said in wholes]
    close_all(reading, item, out, encrypted if isinstance(encrypted, str) else None, raw)


def close_all(
    reading: Reading,
    item: Item,
    out: list[Part],
    encrypted: str | None = None,
    raw: Raw | None = None,
    *,
    whole: bool = True,
) -> None:
    """Ends what the item thought. The last end has the proof, which only now is final."""
    ending = _open(item)
    for said in ending[:-1]:
        _conclude(reading, said, out, whole=whole)
    for said in ending[-1:]:
        said.speech = Speech.CONCLUDED
        if whole:
            reading.flush(ReasoningDelta, said.id, out)
        end = ReasoningEnd(
            said.id,
            encrypted=encrypted,
            origin=(reading.context.origin or NAME) if encrypted else None,
            whole=said.whole if whole else None,
            extra=wire.packed(wire.leftover(raw, _KNOWN)),
        )
        out.append(unsealed(end))


def _open(item: Item) -> list[Said]:
    thoughts = [item.said[key] for key in item.said if key[0] in _KINDS]
    return [said for said in thoughts if said.speech is not Speech.CONCLUDED]


def _conclude(reading: Reading, said: Said, out: list[Part], *, whole: bool = True) -> None:
    said.speech = Speech.CONCLUDED
    if whole:
        reading.flush(ReasoningDelta, said.id, out)
    out.append(ReasoningEnd(said.id, whole=said.whole if whole else None))


ITEMS = {"reasoning": Row(done, added, inert=True)}

EVENTS: dict[str, Handler] = {
    "response.reasoning_summary_part.added": part_added,
    "response.reasoning_summary_part.done": _part_done,
    "response.reasoning_summary_text.delta": _summary_delta,
    "response.reasoning_summary_text.done": _summary_done,
    "response.reasoning_text.delta": raw_delta,
    "response.reasoning_text.done": _raw_done,
    "response.reasoning.delta": raw_delta,
    "response.reasoning.done": _raw_done,
}
