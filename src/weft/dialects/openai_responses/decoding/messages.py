"""Messages: texts, refusals and annotations.

- Each content part is a text of its own. It starts with its first event and ends with its item,
  because annotations may come until then.
- Annotations are identified by their index in the part, so a repeated one is ignored. Those with a
  target are emitted as sources at once; all of them are listed in the end of their text.
"""

from msgspec import UNSET, Raw

from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.decoding.item import (
    DecodedItem,
    DecodedPart,
    PartStage,
)
from weft.dialects.openai_responses.decoding.state import DecoderState, EventHandler, ItemHandlers
from weft.dialects.openai_responses.extra import remaining_fields
from weft.dialects.openai_responses.wire import NAME, ResponsesEvent, ResponsesItem
from weft.dialects.raw_json import copy_raw, same_json
from weft.parts import Opaque, Source, SourceKind, TextDelta, TextEnd, TextStart

TEXT, REFUSAL = "text", "refusal"

SOURCE_KINDS: dict[str, SourceKind] = {
    "url_citation": "url",
    "file_citation": "document",
    "container_file_citation": "document",
    "file_path": "document",
}
"""Annotations with a target. Others are only listed in the end of their text."""

_MAPPED_FIELDS = ("id", "type", "role", "content", "phase")


def open_text(state: DecoderState, item: DecodedItem, kind: str, index: int) -> DecodedPart:
    """Returns the text of that kind and index, and starts it if necessary."""
    part = item.parts.get((kind, index))
    if part is not None:
        return part
    state.check_index(item, "content_index", index, item.content_count)
    item.content_count = max(item.content_count, index) + 1
    # Nearly every message has one text, which has the id of its item.
    id = f"{item.id}:{index}" if index else item.id
    id = f"{item.id}:refusal{index}" if kind == REFUSAL else id
    part = state.open_part(item, kind, index, id, TextDelta)
    state.out.append(TextStart(part.id, item.id, phase=item.phase, refusal=kind == REFUSAL))
    # A refusal is `completed` like any other message. Dropping it, as some clients do, leaves an
    # empty answer. Calls for the client outweigh it.
    # capture: refusal
    if kind == REFUSAL and state.finish_reason == "stop":
        state.finish_reason = "content-filter"
    return part


def _text_for_event(
    state: DecoderState, item: DecodedItem, kind: str, event: ResponsesEvent
) -> DecodedPart:
    """Returns the text that an event is about. The official client fails on a text whose part was
    added neither with its item nor by an event.
    """
    index = event.content_index or 0
    part = item.parts.get((kind, index))
    if part is None:
        part = open_text(state, item, kind, index)
        content = item.added.wire_item.content if item.added else None
        # An item may be added with its content parts in it, which then need no
        # `content_part.added`.
        # capture: text-without-its-part
        if index >= len(content or ()):
            detail = f"{event.type} for part {index} of item {item.id!r}, which was not added"
            state.findings.once("start-missing", part.id, detail)
    return part


def text_delta(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    # The lookup of `_text_for_event` again, because most events of most streams come here.
    part = item.parts.get((TEXT, event.content_index or 0))
    part = part or _text_for_event(state, item, TEXT, event)
    part.streamed_length += state.emit_delta(TextDelta, part.id, event.delta)


def _refusal_delta(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    part = _text_for_event(state, item, REFUSAL, event)
    part.streamed_length += state.emit_delta(TextDelta, part.id, event.delta)


def _text_done(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    # Some hosts repeat the annotations in this event.
    wire_part = wire.ResponsesPart("output_text", event.text, annotations=event.annotations)
    _text_for_event(state, item, TEXT, event)
    _take_whole_part(state, item, wire_part, event.content_index or 0)


def _refusal_done(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    # An empty refusal is not one: it would turn a finished answer into a filtered one.
    if event.refusal:
        _text_for_event(state, item, REFUSAL, event).take_full_text(event.refusal)


def part_added(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    wire_part = event.part or wire.ResponsesPart()
    kind = _text_kind(wire_part)
    if kind is not None:
        open_text(state, item, kind, event.content_index or 0)
    else:
        _note_unknown_part(state, item, wire_part, event.content_index or 0)


def _note_unknown_part(
    state: DecoderState, item: DecodedItem, wire_part: wire.ResponsesPart, index: int
) -> None:
    """Reports a content part that is not text. It still counts as a part."""
    kind = wire_part.type or "unknown"
    # capture: unknown-item-event-and-part
    state.findings.once("event-unknown", f"part {kind}", f"content part {kind!r}: passed through")
    item.content_count = max(item.content_count, index + 1)


def part_done(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    _take_whole_part(state, item, event.part or wire.ResponsesPart(), event.content_index or 0)


def _take_whole_part(
    state: DecoderState, item: DecodedItem, wire_part: wire.ResponsesPart, index: int
) -> None:
    """Takes the full text and the annotations of a finished content part."""
    kind = _text_kind(wire_part)
    if kind is None:
        return
    part = open_text(state, item, kind, index)
    part.take_full_text(wire_part.refusal if kind == REFUSAL else wire_part.text)
    # Log probabilities of deltas are not collected: the finished part has all of them.
    part.logprobs = wire_part.logprobs if isinstance(wire_part.logprobs, Raw) else part.logprobs
    for annotation_index, annotation in enumerate(wire_part.annotations or ()):
        _annotate(state, part, annotation_index, annotation)


def _annotation(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    if isinstance(event.annotation, Raw):
        part = _text_for_event(state, item, TEXT, event)
        annotation_index = event.annotation_index
        taken = part.annotations.get(-1 if annotation_index is None else annotation_index)
        is_other = taken is not None and not same_json(taken, event.annotation)
        # capture: index-zero-for-every-annotation
        if is_other:
            detail = f"annotation {annotation_index} of {part.id!r} again, with other content"
            state.findings.once("index-disordered", f"{part.id} annotation", detail)
        # Without an index of its own each event is another annotation. It gets the first free one:
        # then the list of the finished part, which counts from 0, repeats as many as have come.
        # capture: annotation-without-an-index-after-a-gap
        if annotation_index is None or is_other:
            while part.free_annotation in part.annotations:
                part.free_annotation += 1
            annotation_index = part.free_annotation
        _annotate(state, part, annotation_index, event.annotation)


def _annotate(state: DecoderState, part: DecodedPart, annotation_index: int, raw: Raw) -> None:
    # An annotation comes up to four times: as an event, in `output_text.done`, in its part and in
    # its item.
    # capture: annotations-of-every-kind
    taken = part.annotations.get(annotation_index)
    if taken is not None:
        if not same_json(taken, raw):
            detail = f"annotation {annotation_index} of {part.id!r}: at its end with other content"
            state.findings.once("whole-contradicts", f"{part.id} annotation", detail)
        return
    # For one that comes after the end of its text there is no place left.
    if part.stage is PartStage.CONCLUDED:
        return
    if annotation_index != len(part.annotations):
        detail = f"annotation {annotation_index} of {part.id!r}; expected {len(part.annotations)}"
        # capture: annotation-without-an-index-after-a-gap
        state.findings.once("index-disordered", f"{part.id} annotation", detail)
    part.annotations[annotation_index] = raw = copy_raw(raw)
    annotation = state.salvage.item(raw, wire.ResponsesAnnotation)
    kind = SOURCE_KINDS.get(annotation.type or "")
    if kind is None:
        detail = f"annotation {annotation.type!r} is not a source: kept with its text"
        # capture: annotations-of-every-kind
        state.findings.once("event-unknown", f"annotation {annotation.type}", detail)
    else:
        state.out.append(
            Source(
                state.context.ids.local("source"),
                kind,
                part.id,
                url=annotation.url,
                file_id=annotation.file_id,
                # Some hosts cite a URL without title and range; `file_path` has only a file id.
                title=annotation.title or annotation.filename or annotation.file_id,
                start=annotation.start_index,
                end=annotation.end_index,
                raw=raw,
            )
        )


def message_done(
    state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw
) -> None:
    for index, raw_part in enumerate(wire_item.content or ()):
        wire_part = state.salvage.item(raw_part, wire.ResponsesPart)
        # capture: unknown-item-event-and-part
        if _text_kind(wire_part) is None:
            _note_unknown_part(state, item, wire_part, index)
            position = wire.raw_object(
                {"item_id": wire.to_raw(item.id), "content_index": wire.to_raw(index)}
            )
            extra = wire.raw_object({"content": position})
            state.out.append(Opaque(NAME, wire_part.type or "unknown", copy_raw(raw_part), extra))
        else:
            _take_whole_part(state, item, wire_part, index)
    # A message without text is real, for example after an image call. Clients get an empty text.
    if not item.parts and not wire_item.content:
        open_text(state, item, TEXT, 0)
    state.emit_full_texts(item, TextDelta)
    remaining = remaining_fields(raw, _MAPPED_FIELDS)
    # The start had the phase of `added`, if any; `done` has the last word.
    late_phase = wire_item.phase if wire_item.phase != item.phase else None
    item_extra = {"item": wire.raw_object(remaining)} if remaining else {}
    end_texts(state, item, item_extra | wire.present_fields(phase=late_phase))


def end_texts(
    state: DecoderState,
    item: DecodedItem,
    item_extra: dict[str, Raw] | None = None,
    *,
    whole: bool = True,
) -> None:
    """Ends the texts of an item. The last end carries the fields of the item."""
    parts = [item.parts[key] for key in item.parts if key[0] in (TEXT, REFUSAL)]
    ending = [part for part in parts if part.stage is not PartStage.CONCLUDED]
    # Only one end has the fields of the item, so that the encoder takes them once.
    for part in ending:
        part.stage = PartStage.CONCLUDED
        extra = dict(item_extra or {}) if part is ending[-1] else {}
        if isinstance(part.logprobs, Raw) and bytes(part.logprobs) not in (b"[]", b"null"):
            extra["logprobs"] = part.logprobs
        # After an error not even a replacement character may follow.
        if whole:
            state.flush_surrogate(TextDelta, part.id)
        state.out.append(
            TextEnd(
                part.id,
                tuple(part.annotations.values()),
                whole=part.full_text if whole else None,
                extra=wire.raw_object(extra) if extra else UNSET,
            )
        )


def _text_kind(wire_part: wire.ResponsesPart) -> str | None:
    """Returns whether a content part is text or a refusal; None if it is neither."""
    if wire_part.type == "refusal" or wire_part.refusal is not None:
        return REFUSAL
    # A part without a type is read by its keys. `text` is a type of the specification without
    # events of its own.
    return TEXT if wire_part.type in ("output_text", "text") or wire_part.text is not None else None


ITEMS = {"message": ItemHandlers(message_done, announceable=True)}

EVENTS: dict[str, EventHandler] = {
    "response.output_text.delta": text_delta,
    "response.output_text.done": _text_done,
    "response.output_text.annotation.added": _annotation,
    "response.refusal.delta": _refusal_delta,
    "response.refusal.done": _refusal_done,
}
