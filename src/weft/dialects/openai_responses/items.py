"""Output items while they are written: what each kind holds, and where its parts stand."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.openai_responses import wire
from weft.parts import (
    ParamsFormat,
    ReasoningKind,
    ReasoningStart,
    TextStart,
    ToolCall,
    ToolParamsStart,
)

_json = msgspec.json.Encoder().encode


class Item:
    """One output item, from `added` to `done`."""

    __slots__ = ("group", "id", "index", "open")

    def __init__(self, index: int, id: str, group: str | None = None) -> None:
        self.index = index
        self.id = id
        self.group = group
        """The item_id that its parts share."""
        self.open = 0
        """How many of its parts are still being said."""

    def wire(self, status: wire.Status) -> wire.Item:
        """The item as it stands."""
        raise NotImplementedError

    def cut(self, last: bool) -> bool:
        """Whether this item is what a cut response was cut in."""
        return last or self.open > 0


ItemKind = TypeVar("ItemKind", bound=Item)


class MessageItem(Item):
    __slots__ = ("parts", "phase")

    def __init__(self, index: int, id: str, part: TextStart) -> None:
        super().__init__(index, id, part.item_id)
        self.phase = part.phase
        self.parts: list[wire.OutputText | wire.Refusal] = []

    def wire(self, status: wire.Status) -> wire.Item:
        return wire.Message(self.id, status, self.parts, phase=self.phase or UNSET)


class ReasoningItem(Item):
    __slots__ = ("content", "encrypted", "summary")

    def __init__(self, index: int, id: str, part: ReasoningStart) -> None:
        super().__init__(index, id, part.item_id)
        self.summary: list[wire.Thought] = []
        self.content: list[wire.Thought] = []
        self.encrypted: str | None = None

    def wire(self, status: wire.Status) -> wire.Item:
        content = self.content or UNSET
        encrypted = self.encrypted or UNSET
        return wire.Reasoning(self.id, status, self.summary, content, encrypted)


class CallItem(Item):
    """A call for the client."""

    __slots__ = ("arguments", "call", "head", "invalid", "name", "shape")

    def __init__(self, index: int, id: str, part: ToolParamsStart | ToolCall) -> None:
        super().__init__(index, id)
        self.call = part.id
        self.name = part.name
        self.shape = SHAPES[part.format]
        self.arguments = ""
        self.invalid = False
        self.open = 1
        place = b'"item_id":%b,"output_index":%d' % (_json(id), index)
        self.head = _delta_head(self.shape.event + ".delta", place)

    def wire(self, status: wire.Status) -> wire.Item:
        return self.shape.item(self.id, status, self.call, self.name, self.arguments)

    def cut(self, last: bool) -> bool:
        return self.invalid or self.open > 0


class HostedItem(Item):
    """A call that the provider executes: what is known of it grows until its result."""

    __slots__ = ("fields", "kind")

    def __init__(self, index: int, id: str, kind: str) -> None:
        super().__init__(index, id)
        self.kind = kind
        self.open = 1
        self.fields: dict[str, Raw] = {}

    def wire(self, status: wire.Status) -> wire.Item:
        return {"type": self.kind, "id": self.id, "status": status, **self.fields}

    def cut(self, last: bool) -> bool:
        return self.open > 0


class FixedItem(Item):
    """An item of this dialect, replayed as it was."""

    __slots__ = ("raw",)

    def __init__(self, index: int, id: str, raw: Raw) -> None:
        super().__init__(index, id)
        self.raw = raw

    def wire(self, status: wire.Status) -> wire.Item:
        return self.raw

    def cut(self, last: bool) -> bool:
        return False


class Shape(NamedTuple):
    """How the two kinds of client calls are written."""

    item: type[wire.FunctionCall] | type[wire.CustomToolCall]
    prefix: str
    event: str
    key: bytes


SHAPES: dict[ParamsFormat, Shape] = {
    "json": Shape(wire.FunctionCall, "fc", "response.function_call_arguments", b"arguments"),
    "text": Shape(wire.CustomToolCall, "ctc", "response.custom_tool_call_input", b"input"),
}


class SaidText:
    """A text part that is being said: its place in a message, and how its deltas begin."""

    __slots__ = ("annotations", "head", "index", "item", "place", "refusal")

    def __init__(self, item: MessageItem, refusal: bool) -> None:
        self.item = item
        self.index = len(item.parts)
        self.refusal = refusal
        self.annotations: list[wire.UrlCitation] = []
        self.place = b'"item_id":%b,"output_index":%d,"content_index":%d' % (
            _json(item.id),
            item.index,
            self.index,
        )
        if refusal:
            self.head = _delta_head("response.refusal.delta", self.place)
        else:
            self.head = _delta_head("response.output_text.delta", self.place + b',"logprobs":[]')

    def part(self, text: str) -> wire.OutputText | wire.Refusal:
        return wire.Refusal(text) if self.refusal else wire.OutputText(text, self.annotations)


class Thought(NamedTuple):
    """How the two kinds of reasoning are written."""

    part: type[wire.SummaryText] | type[wire.ReasoningText]
    parts: Callable[[ReasoningItem], list[wire.Thought]]
    index_key: bytes
    text: str
    wrapper: str


THOUGHTS: dict[ReasoningKind, Thought] = {
    "summary": Thought(
        wire.SummaryText,
        lambda item: item.summary,
        b"summary_index",
        "response.reasoning_summary_text",
        "response.reasoning_summary_part",
    ),
    "raw": Thought(
        wire.ReasoningText,
        lambda item: item.content,
        b"content_index",
        "response.reasoning",
        "response.content_part",
    ),
}


class SaidThought:
    """A reasoning part that is being said. Its wire part is announced by its first delta."""

    __slots__ = ("head", "index", "item", "kind", "place")

    def __init__(self, item: ReasoningItem, kind: ReasoningKind) -> None:
        self.item = item
        self.kind = THOUGHTS[kind]
        self.index: int | None = None
        self.place = b""
        self.head = b""

    def begin(self) -> None:
        parts = self.kind.parts(self.item)
        self.index = len(parts)
        parts.append(self.kind.part(""))
        self.place = b'"item_id":%b,"output_index":%d,"%b":%d' % (
            _json(self.item.id),
            self.item.index,
            self.kind.index_key,
            self.index,
        )
        self.head = _delta_head(self.kind.text + ".delta", self.place)


def _delta_head(type: str, place: bytes) -> bytes:
    """All of a delta event up to its delta."""
    name = type.encode()
    return b'event: %b\ndata: {"type":"%b",%b,"delta":' % (name, name, place)
