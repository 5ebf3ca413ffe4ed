"""A fold back into parts: item after item, as if each had come without the others between."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.assembler import Item, ReasoningItem, Response, TextItem
from weft.parts import (
    File,
    Finish,
    Opaque,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
)


def response_to_parts(response: Response, *, in_place: bool = False) -> list[Part]:
    """Returns legal parts that fold to this response, but for its error.

    Parts that share an item come one after the other, and a source inside the text it is for:
    its own, else the one before it. Only a source before all texts stands where it stood. With
    `in_place` every item stands where the fold has it, sources too.
    """
    out: list[Part] = [
        ResponseMetadata(response.id, response.model, response.created, response.dialect)
    ]
    items: Sequence[Item] = response.items
    sources: SourcesByText = {}
    if not in_place:
        sources = _sources_by_text(items)
        cited = {id(source) for inside in sources.values() for source in inside}
        items = _group_by_item(one for one in items if id(one) not in cited)
    for item in items:
        out += _PARTS_OF[item.__class__](item, sources)
    out.append(
        Finish(
            response.finish_reason or "other",
            response.raw_finish_reason,
            response.usage,
            response.model,
            response.stop_sequence,
            response.extra,
        )
    )
    return out


def item_to_parts(item: Item) -> list[Part]:
    """Returns the parts of one item; sources stand where they came, and are no parts of a text."""
    return _PARTS_OF[item.__class__](item, {})


SourcesByText = dict[str, list[Source]]
"""Sources by the text that they stand in."""


def _sources_by_text(items: Sequence[Item]) -> SourcesByText:
    texts = {item.id for item in items if isinstance(item, TextItem)}
    placed: SourcesByText = {}
    last: str | None = None
    for item in items:
        if isinstance(item, TextItem) and not item.refusal:
            last = item.id
        elif isinstance(item, Source):
            place = item.text_id if item.text_id in texts else last
            if place is not None:
                placed.setdefault(place, []).append(item)
    return placed


def _group_by_item(items: Iterable[Item]) -> list[Item]:
    """The items, those with one item id and of one kind together, at the first one's place."""
    groups: dict[object, list[Item]] = {}
    for number, item in enumerate(items):
        shared = item.item_id if isinstance(item, TextItem | ReasoningItem) else None
        key: object = (item.__class__, shared) if shared else number
        groups.setdefault(key, []).append(item)
    return [item for group in groups.values() for item in group]


def _text_parts(item: TextItem, sources: SourcesByText) -> list[Part]:
    said: list[Part] = [TextDelta(item.id, item.text)] if item.text else []
    return [
        TextStart(item.id, item.item_id, item.phase, item.refusal, item.extra),
        *said,
        *sources.get(item.id, ()),
        TextEnd(item.id, item.annotations, item.signature, item.origin, extra=item.extra),
    ]


def _reasoning_parts(item: ReasoningItem, sources: SourcesByText) -> list[Part]:
    said: list[Part] = [ReasoningDelta(item.id, item.text)] if item.text else []
    end = ReasoningEnd(
        item.id, item.signature, item.encrypted, item.redacted, item.origin, extra=item.extra
    )
    return [ReasoningStart(item.id, item.kind, item.item_id, item.extra), *said, end]


def _call_parts(call: ToolCall, sources: SourcesByText) -> list[Part]:
    """A call that has a name was announced, or might have been."""
    if not call.name:
        return [call]
    said: list[Part] = [ToolParamsDelta(call.id, call.params)] if call.params else []
    start = ToolParamsStart(
        call.id,
        call.name,
        call.kind,
        call.item_id,
        call.provider_executed,
        call.format,
        call.signature,
        call.origin,
        call.extra,
    )
    return [start, *said, ToolParamsEnd(call.id), call]


def _itself(part: Part, sources: SourcesByText) -> list[Part]:
    return [part]


_PARTS_OF: dict[type, Callable[[Any, SourcesByText], list[Part]]] = {
    TextItem: _text_parts,
    ReasoningItem: _reasoning_parts,
    ToolCall: _call_parts,
    ToolResult: _itself,
    ToolApprovalRequest: _itself,
    Source: _itself,
    File: _itself,
    Opaque: _itself,
}
