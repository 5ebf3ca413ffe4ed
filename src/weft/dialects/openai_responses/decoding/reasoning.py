"""Reasoning items: when each part is active, can conclude, or is concluded.

| event | `store` is true | otherwise |
|---|---|---|
| item added | part 0 becomes active | the same |
| part done | it is concluded | it can conclude |
| next part added | it becomes active | parts that can conclude are concluded; it becomes active |
| item done | the rest is concluded | the same, the last part with the encrypted content |

Encrypted content at `added` is provisional. An item that has some there is handled as in the last
column. Raw reasoning takes the place of part 0 if there was no summary.
"""

from msgspec import UNSET, Raw, UnsetType

from weft.dialects.envelope import unwrap, unwrap_reasoning_end
from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.decoding.item import (
    DecodedItem,
    DecodedPart,
    PartStage,
)
from weft.dialects.openai_responses.decoding.state import DecoderState, EventHandler, ItemHandlers
from weft.dialects.openai_responses.extra import unmapped_extra
from weft.dialects.openai_responses.wire import NAME, ResponsesEvent, ResponsesItem
from weft.parts import Json, ReasoningDelta, ReasoningEnd, ReasoningKind, ReasoningStart

SUMMARY, RAW = "summary", "raw"

_KINDS: dict[str, ReasoningKind] = {SUMMARY: "summary", RAW: "raw"}
_INDEXES = {SUMMARY: "summary_index", RAW: "content_index"}
_MAPPED_FIELDS = ("id", "type", "summary", "content", "encrypted_content")


def _open_reasoning(state: DecoderState, item: DecodedItem, kind: str, index: int) -> DecodedPart:
    """Returns the part of that kind and index, and starts it if necessary. Its id names the kind
    only if the item already has parts of the other one.
    """
    # Summary and raw reasoning count their parts apart, so each kind has its own indexes.
    part = item.parts.get((kind, index))
    if part is None:
        opened = sum(key[0] == kind for key in item.parts)
        state.check_index(item, _INDEXES[kind], index, opened)
        # An item may have both kinds, and empty summary parts in between: ids must differ all the
        # same.
        # capture: reasoning-part-without-a-word
        both_kinds = any(other in _KINDS and other != kind for other, _ in item.parts)
        id = f"{item.id}:{kind}{index}" if both_kinds else f"{item.id}:{index}"
        part = state.open_part(item, kind, index, id, ReasoningDelta)
        state.out.append(ReasoningStart(part.id, _KINDS[kind], item_id=item.id))
    return part


def added(state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw) -> None:
    item.has_encrypted_content = item.has_encrypted_content or bool(wire_item.encrypted_content)
    # A host that streams raw reasoning adds the item with `content: []` and without
    # `encrypted_content`. Any other item starts part 0 at once: one without a summary is normal,
    # and stays as an empty reasoning that can be sent back.
    # capture: raw-reasoning
    expects_raw = isinstance(wire_item.content, list) and isinstance(
        wire_item.encrypted_content, UnsetType
    )
    if not expects_raw and not item.parts:  # else wait for the first delta
        _open_reasoning(state, item, SUMMARY, 0)


def summary_part_added(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    index = event.summary_index or 0
    if (SUMMARY, index) not in item.parts:
        # A part that can conclude did so without the encrypted content: only the last part of an
        # item has it.
        for part in item.parts.values():
            if part.stage is PartStage.CAN_CONCLUDE:
                _conclude(state, part)
            elif part.stage is PartStage.ACTIVE:
                detail = f"item {item.id!r}: summary part {index} was added inside another one"
                state.findings.once("index-disordered", f"{item.id} summary", detail)
    _open_reasoning(state, item, SUMMARY, index)


def _summary_delta(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    part = _open_reasoning(state, item, SUMMARY, event.summary_index or 0)
    part.streamed_length += state.emit_delta(ReasoningDelta, part.id, event.delta)


def _summary_done(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    if event.text:
        part = _open_reasoning(state, item, SUMMARY, event.summary_index or 0)
        part.take_full_text(event.text)


def _summary_part_done(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    text = event.part.text if event.part else None
    part = item.parts.get((SUMMARY, event.summary_index or 0))
    # A part that was neither added nor streamed, and has a text, is read from its end.
    if part is None and text:
        part = _open_reasoning(state, item, SUMMARY, event.summary_index or 0)
    if part is None or part.stage is not PartStage.ACTIVE:  # it never started, so it has no end
        return
    part.take_full_text(text)
    # A stored response needs no encrypted content, so the end need not wait for it.
    # capture: reasoning-stored
    if state.store and not item.has_encrypted_content:
        _conclude(state, part)
    else:
        # The encrypted content is final only when the item is done.
        # capture: reasoning-not-stored
        part.stage = PartStage.CAN_CONCLUDE


def raw_delta(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    part = _open_reasoning(state, item, RAW, event.content_index or 0)
    part.streamed_length += state.emit_delta(ReasoningDelta, part.id, event.delta)


def _raw_done(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    if event.text:
        part = _open_reasoning(state, item, RAW, event.content_index or 0)
        part.take_full_text(event.text)


def raw_part_added(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    _open_reasoning(state, item, RAW, event.content_index or 0)


def raw_part_done(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    part = _open_reasoning(state, item, RAW, event.content_index or 0)
    part.take_full_text(event.part.text if event.part else None)


def done(state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw) -> None:
    for kind, raw_parts in ((SUMMARY, wire_item.summary), (RAW, wire_item.content)):
        for index, raw_part in enumerate(raw_parts or ()):
            text = state.salvage.item(raw_part, wire.ResponsesPart).text
            _open_reasoning(state, item, kind, index).take_full_text(text)
    encrypted = wire_item.encrypted_content or None
    envelope = unwrap(encrypted) if isinstance(encrypted, str) else None
    # Our own encoder wrote this item, for a call that has no field for its signature.
    if envelope is not None and envelope.state.call is not None:  # the signature of a call
        state.call_signatures[envelope.state.call] = envelope
        encrypted = None
        if not item.parts:
            return
    if not item.parts:
        _open_reasoning(state, item, SUMMARY, 0)
    # Stored, and encrypted content on request as well: all parts ended before it came. A further,
    # empty part carries it, or it would be lost.
    elif encrypted and not _open_parts(item):  # concluded before the encrypted content came
        _open_reasoning(state, item, SUMMARY, sum(kind == SUMMARY for kind, _ in item.parts))
    state.emit_full_texts(item, ReasoningDelta)
    end_reasoning(state, item, encrypted if isinstance(encrypted, str) else None, raw)


def end_reasoning(
    state: DecoderState,
    item: DecodedItem,
    encrypted: str | None = None,
    raw: Raw | None = None,
    *,
    whole: bool = True,
) -> None:
    """Ends the reasoning of an item. The last end carries the encrypted content."""
    ending = _open_parts(item)
    for part in ending:
        if part is ending[-1]:
            extra = unmapped_extra(raw, _MAPPED_FIELDS)
            _conclude(state, part, encrypted, extra, whole=whole)
        else:
            _conclude(state, part, whole=whole)


def _open_parts(item: DecodedItem) -> list[DecodedPart]:
    parts = [item.parts[key] for key in item.parts if key[0] in _KINDS]
    return [part for part in parts if part.stage is not PartStage.CONCLUDED]


def _conclude(
    state: DecoderState,
    part: DecodedPart,
    encrypted: str | None = None,
    extra: Json = UNSET,
    *,
    whole: bool = True,
) -> None:
    part.stage = PartStage.CONCLUDED
    if whole:
        state.flush_surrogate(ReasoningDelta, part.id)
    end = ReasoningEnd(
        part.id,
        encrypted=encrypted,
        # Only its origin can read it.
        origin=(state.context.origin or NAME) if encrypted else None,
        whole=part.full_text if whole else None,
        extra=extra,
    )
    state.out.append(unwrap_reasoning_end(end))


ITEMS = {"reasoning": ItemHandlers(done, added, announceable=True)}

EVENTS: dict[str, EventHandler] = {
    "response.reasoning_summary_part.added": summary_part_added,
    "response.reasoning_summary_part.done": _summary_part_done,
    "response.reasoning_summary_text.delta": _summary_delta,
    "response.reasoning_summary_text.done": _summary_done,
    # The specification writes `response.reasoning.*`; the original API and its client say
    # `response.reasoning_text.*`.
    "response.reasoning_text.delta": raw_delta,
    "response.reasoning_text.done": _raw_done,
    "response.reasoning.delta": raw_delta,
    "response.reasoning.done": _raw_done,
}
