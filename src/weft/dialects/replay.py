"""A response back into parts: item after item, as if nothing had overlapped."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

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

SourcesByText = dict[str, list[Source]]


class JoinedTexts(Protocol):
    """Whole texts by the ids of their parts: what encoders read of an assembler."""

    def text(self, id: str) -> str: ...

    def reasoning(self, id: str) -> str: ...

    def joined(self, call: str) -> str: ...


class ResponseTexts:
    """The texts of a response, which was assembled before."""

    __slots__ = ("_calls", "_reasonings", "_texts")

    def __init__(self, items: Sequence[Item]) -> None:
        self._texts: dict[str, str] = {}
        self._reasonings: dict[str, str] = {}
        self._calls: dict[str, str] = {}
        for item in items:
            if isinstance(item, TextItem):
                self._texts[item.id] = item.text
            elif isinstance(item, ReasoningItem):
                self._reasonings[item.id] = item.text
            elif isinstance(item, ToolCall):
                self._calls[item.id] = item.params

    def text(self, id: str) -> str:
        return self._texts.get(id, "")

    def reasoning(self, id: str) -> str:
        return self._reasonings.get(id, "")

    def joined(self, call: str) -> str:
        return self._calls.get(call, "")


def response_to_parts(response: Response, *, in_place: bool = False) -> list[Part]:
    """Returns legal parts that fold to this response, except for its error.

    Parts of one item come one after the other, and a source inside the text that it cites: its own,
    or else the text before it. Only a source before all texts keeps its place. With `in_place`
    every item keeps its place in the fold, sources too.
    """
    items: Sequence[Item] = response.items
    sources: SourcesByText = {}
    # For wires that write citations inside their text.
    if not in_place:
        items, sources = _arrange(items)
    out: list[Part] = [
        ResponseMetadata(response.id, response.model, response.created, response.dialect)
    ]
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
    """Returns the parts of one item. A source is a part of its own, and not of a text."""
    return _PARTS_OF[item.__class__](item, {})


def _arrange(items: Sequence[Item]) -> tuple[list[Item], SourcesByText]:
    """Takes sources out, by the text that they cite, and brings the items of one id and kind
    together, at the place of the first.
    """
    if len(items) < 2:
        return list(items), {}
    texts = {item.id for item in items if isinstance(item, TextItem)}
    sources: SourcesByText = {}
    groups: dict[object, list[Item]] = {}
    last: str | None = None
    for number, item in enumerate(items):
        if isinstance(item, Source):
            cited = item.text_id if item.text_id in texts else last
            if cited is not None:
                sources.setdefault(cited, []).append(item)
                continue
        elif isinstance(item, TextItem) and not item.refusal:  # nobody cites anything in a refusal
            last = item.id
        # An item may be spread over several parts, with parts of others between them.
        shared = item.item_id if isinstance(item, TextItem | ReasoningItem) else None
        # A dict keeps the order of the first ones.
        groups.setdefault((item.__class__, shared) if shared else number, []).append(item)
    return [item for group in groups.values() for item in group], sources


def _text_parts(item: TextItem, sources: SourcesByText) -> list[Part]:
    deltas: list[Part] = [TextDelta(item.id, item.text)] if item.text else []
    return [
        TextStart(item.id, item.item_id, item.phase, item.refusal, item.extra),
        *deltas,
        *sources.get(item.id, ()),
        # An assembled item does not remember where its `extra` stood, so both ends have it.
        TextEnd(item.id, item.annotations, item.signature, item.origin, extra=item.extra),
    ]


def _reasoning_parts(item: ReasoningItem, sources: SourcesByText) -> list[Part]:
    deltas: list[Part] = [ReasoningDelta(item.id, item.text)] if item.text else []
    end = ReasoningEnd(
        item.id, item.signature, item.encrypted, item.redacted, item.origin, extra=item.extra
    )
    return [ReasoningStart(item.id, item.kind, item.item_id, item.extra), *deltas, end]


def _call_parts(call: ToolCall, sources: SourcesByText) -> list[Part]:
    """A call with a name was announced, or could have been."""
    # A call without a name is invalid, and never has parts before it.
    if not call.name:
        return [call]
    deltas: list[Part] = [ToolParamsDelta(call.id, call.params)] if call.params else []
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
    return [start, *deltas, ToolParamsEnd(call.id), call]


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
