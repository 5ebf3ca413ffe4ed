"""Messages: their texts and refusals, and the annotations of each.

- Every content part is a text of its own. It is opened by its first sign of life and ends with
  its item: until then annotations may come.
- Annotations are known by their index in their part, so that a repetition is none. Each one that
  points somewhere is a source at once, and all of them stand in the end of their text.
"""

from msgspec import UNSET, Raw

from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.decoding.item import Item, Said, Speech, Stage
from weft.dialects.openai_responses.decoding.state import Handler, Reading, Row
from weft.dialects.openai_responses.wire import NAME
from weft.partial_json import whole_characters
from weft.parts import Opaque, Part, Source, SourceKind, TextDelta, TextEnd, TextStart

TEXT, REFUSAL = "text", "refusal"

SOURCES: dict[str, SourceKind] = {
    "url_citation": "url",
    "file_citation": "document",
    "container_file_citation": "document",
    "file_path": "document",
}
"""Annotations that point somewhere. Others stay with their text, and are no source."""

_KNOWN = ("id", "type", "role", "content", "phase")


def say(reading: Reading, item: Item, kind: str, index: int, out: list[Part]) -> Said:
    """The text of that kind and index, opened if it was not."""
    said = item.said.get((kind, index))
    if said is not None:
        return said
    reading.expect(item, "content_index", index, item.parts)
    item.parts = max(item.parts, index) + 1
    id = f"{item.id}:{index}" if index else item.id
    id = f"{item.id}:refusal{index}" if kind == REFUSAL else id
    said = reading.begin(item, kind, index, id, TextDelta)
    out.append(TextStart(said.id, item.id, phase=item.phase, refusal=kind == REFUSAL))
    if kind == REFUSAL and reading.reason == "stop":
        reading.reason = "content-filter"
    return said


def _spoken_of(reading: Reading, item: Item, kind: str, event: wire.Event, out: list[Part]) -> Said:
    """The text that an event goes on with. Official clients have nowhere to put one whose part was
    added neither with its item nor by itself (text-without-its-part).
    """
    index = event.content_index or 0
    said = item.said.get((kind, index))
    if said is None:
        said = say(reading, item, kind, index, out)
        content = item.announced.read.content if item.announced else None
        if index >= len(content or ()):
            detail = f"{event.type} for part {index} of item {item.id!r}, which was not added"
            reading.findings.once("start-missing", said.id, detail)
    return said


def text_delta(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    said = item.said.get((TEXT, event.content_index or 0))
    said = said or _spoken_of(reading, item, TEXT, event, out)
    said.length += reading.more(TextDelta, said.id, event.delta, out)


def _refusal_delta(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    said = _spoken_of(reading, item, REFUSAL, event, out)
    said.length += reading.more(TextDelta, said.id, event.delta, out)


def _text_done(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    part = wire.Part("output_text", event.text, annotations=event.annotations)
    _spoken_of(reading, item, TEXT, event, out)
    _take_part(reading, item, part, event.content_index or 0, out)


def _refusal_done(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    if event.refusal:
        said = _spoken_of(reading, item, REFUSAL, event, out)
        said.whole = whole_characters(event.refusal)


def part_added(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    part = event.part or wire.Part()
    kind = _kind(part)
    if kind is not None:
        say(reading, item, kind, event.content_index or 0, out)
    else:
        _unknown(reading, item, part, event.content_index or 0)


def _unknown(reading: Reading, item: Item, part: wire.Part, index: int) -> None:
    """A content part that is no text takes a place all the same."""
    kind = part.type or "unknown"
    reading.findings.once("event-unknown", f"part {kind}", f"part {kind!r}: kept")
    item.parts = max(item.parts, index + 1)


def part_done(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    _take_part(reading, item, event.part or wire.Part(), event.content_index or 0, out)


def _take_part(reading: Reading, item: Item, part: wire.Part, index: int, out: list[Part]) -> None:
    """The whole of a content part: what it says, and its annotations."""
    kind = _kind(part)
    if kind is None:
        return
    said = say(reading, item, kind, index, out)
    text = part.refusal if kind == REFUSAL else part.text
    said.whole = said.whole if text is None else whole_characters(text)
    said.logprobs = part.logprobs if isinstance(part.logprobs, Raw) else said.logprobs
    for number, annotation in enumerate(part.annotations or ()):
        _annotate(reading, said, number, annotation, out)


def _annotation(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    if isinstance(event.annotation, Raw):
        said = _spoken_of(reading, item, TEXT, event, out)
        number = event.annotation_index
        if number is None:
            number = len(said.annotations)
        _annotate(reading, said, number, event.annotation, out)


def _annotate(reading: Reading, said: Said, number: int, raw: Raw, out: list[Part]) -> None:
    if number in said.annotations or said.speech is Speech.CONCLUDED:
        return
    if number != len(said.annotations):
        detail = f"annotation {number} of {said.id!r}: {len(said.annotations)} was expected"
        reading.findings.once("index-disordered", f"{said.id} annotation", detail)
    said.annotations[number] = raw = wire.one_line(raw)
    read = reading.salvage.item(raw, wire.Annotation)
    kind = SOURCES.get(read.type or "")
    if kind is None:
        detail = f"annotation {read.type!r} is no source: kept with its text"
        reading.findings.once("event-unknown", f"annotation {read.type}", detail)
    if kind is not None:
        out.append(
            Source(
                reading.context.ids.local("source"),
                kind,
                said.id,
                url=read.url,
                file_id=read.file_id,
                title=read.title or read.filename or read.file_id,
                start=read.start_index,
                end=read.end_index,
                raw=raw,
            )
        )


def message_done(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    for index, content in enumerate(read.content or ()):
        part = reading.salvage.item(content, wire.Part)
        if _kind(part) is None:
            _unknown(reading, item, part, index)
            place = wire.written({"item_id": wire.raw(item.id), "content_index": wire.raw(index)})
            extra = wire.written({"content": place})
            out.append(Opaque(NAME, part.type or "unknown", wire.one_line(content), extra))
        else:
            _take_part(reading, item, part, index, out)
    if not item.said and not read.content:
        say(reading, item, TEXT, 0, out)
    told_late = read.phase if read.phase != item.phase else None
    if item.stage is Stage.UNSEEN:  # it came at once
        _say_at_once(item, out)
    close_all(reading, item, out, _kept(raw, told_late))


def _say_at_once(item: Item, out: list[Part]) -> None:
    out += [TextDelta(said.id, said.whole) for said in item.said.values() if said.whole]


def _kept(raw: Raw, phase: str | None) -> dict[str, Raw]:
    """What the item tells beside its texts, and the phase if it came too late for their start."""
    kept = wire.leftover(raw, _KNOWN)
    return {**({"item": wire.written(kept)} if kept else {}), **wire.known(phase=phase)}


def close_all(
    reading: Reading,
    item: Item,
    out: list[Part],
    kept: dict[str, Raw] | None = None,
    *,
    whole: bool = True,
) -> None:
    """Ends what the item said. The last end keeps what belongs to the item."""
    texts = [item.said[key] for key in item.said if key[0] in (TEXT, REFUSAL)]
    ending = [said for said in texts if said.speech is not Speech.CONCLUDED]
    for said in ending:
        said.speech = Speech.CONCLUDED
        extra = dict(kept or {}) if said is ending[-1] else {}
        if isinstance(said.logprobs, Raw) and bytes(said.logprobs) not in (b"[]", b"null"):
            extra["logprobs"] = said.logprobs
        if whole:
            reading.flush(TextDelta, said.id, out)
        out.append(
            TextEnd(
                said.id,
                tuple(said.annotations.values()),
                whole=said.whole if whole else None,
                extra=wire.written(extra) if extra else UNSET,
            )
        )


def _kind(part: wire.Part) -> str | None:
    """What a content part is; None: nothing that can be said."""
    if part.type == "refusal" or part.refusal is not None:
        return REFUSAL
    return TEXT if part.type in ("output_text", "text") or part.text is not None else None


ITEMS = {"message": Row(message_done, inert=True)}

EVENTS: dict[str, Handler] = {
    "response.output_text.delta": text_delta,
    "response.output_text.done": _text_done,
    "response.output_text.annotation.added": _annotation,
    "response.refusal.delta": _refusal_delta,
    "response.refusal.done": _refusal_done,
}
