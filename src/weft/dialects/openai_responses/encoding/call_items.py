"""A call as an item, and a result that is an item of its own: what is known of each, and what is
written of it between `added` and `done`.
"""

from enum import Enum

import msgspec
from msgspec import Raw

from weft.assembler import Assembler
from weft.dialects.openai_responses import output_schema as schema
from weft.dialects.openai_responses.encoding.call_kinds import (
    CUSTOM,
    OUTPUTS,
    Kind,
    Says,
    result_keys,
)
from weft.dialects.openai_responses.encoding.items import (
    DeltaHead,
    Events,
    Item,
    Patience,
    Seat,
    Told,
    delta_head,
)
from weft.dialects.openai_responses.encoding.json_string import InnerString
from weft.dialects.openai_responses.output_schema import Fields, beside_names, fields
from weft.partial_json import Scan
from weft.parts import ToolCall, ToolParamsEnd, ToolParamsStart, ToolResult

_json = msgspec.json.Encoder().encode

_ENDINGS = ("", '"}', '"}}')
"""What closes the beginning of params, wherever the string that is streamed has just begun."""


class Turn(Enum):
    """Whether a call is being written."""

    WAITS = "waits"
    SPEAKS = "speaks"
    RESTS = "rests"
    """It was all said, and another one speaks now."""


class CallItem(Item):
    """A call. What is known of it grows until it is made, or until its result."""

    __slots__ = (
        "_scan", "call", "came", "ended", "fields", "head", "held", "inner", "invalid", "kind",
        "name", "partials", "public", "turn", "written",
    )  # fmt: skip

    def __init__(
        self, seat: Seat, part: ToolParamsStart | ToolCall, kind: Kind, known: Fields
    ) -> None:
        super().__init__(seat)
        self.call = part.id
        self.public = None if part.provider_executed and part.id == seat.id else part.id
        """Its call_id; a hosted call that goes by the id of its item has none."""
        self.name = part.name
        self.kind = kind
        self.fields = {**kind.zeros, **known}
        self.invalid = False
        self.inner = InnerString(*kind.says.path) if kind.says and kind.says.path else None
        self.head = self._head()
        """How the events of its params begin, if they are streamed."""
        self.partials = 0
        self.open = 1
        self.turn = Turn.SPEAKS
        self.came = 0
        """How many characters came of its params."""
        self.written = 0
        self.ended = False
        self.held: list[ToolParamsEnd | ToolCall] = []
        """What came of its end while it had to wait."""
        self._scan: Scan | None = None
        """Where its params stand, once somebody asked."""

    def _head(self) -> DeltaHead | None:
        says = self.kind.says
        return delta_head(says.event + ".delta", self.place) if says else None

    def resume(self, told: Told) -> None:
        self.head = self._head()

    @property
    def patience(self) -> Patience:
        return Patience.FINISH if self.invalid else Patience.NONE

    def all_said(self, fold: Assembler) -> bool:
        """Whether no more of its params will come, as far as they tell."""
        if self._scan is None and not self.ended:
            self._scan = Scan()
            if self.kind is not CUSTOM:
                self._scan.feed(fold.joined(self.call)[: self.came])
        return self.ended or (self._scan is not None and self._scan.finished)

    def heard(self, delta: str) -> bool:
        """Whether a delta makes them whole, if anybody waits for that."""
        if self._scan is None or self.kind is CUSTOM:
            return False
        self._scan.feed(delta)
        return self._scan.finished

    def wire(self, status: schema.Status) -> schema.Item:
        own = {"status": status, "call_id": self.public, "name": self.name}
        told = {key: value for key, value in own.items() if key in self.kind.keys}
        head = {"type": self.kind.type, "id": self.id, **told}
        return {**{key: Raw(_json(value)) for key, value in head.items()}, **self.fields}

    def cut(self, last: bool) -> bool:
        return self.invalid or self.open > 0

    @property
    def ends_with_error(self) -> bool:
        return False

    # What is written of it between `added` and `done`

    def opened(self, text: str) -> None:
        """Takes over what the beginning of its params tells: `added` should know it."""
        whole = text.rpartition("\\")[0] or text  # the last escape may be cut, or half of a pair
        told = next(
            filter(None, (fields(one + end) for one in (text, whole) for end in _ENDINGS)), None
        )
        if told is not None and self.inner is not None:
            self.fields |= self._placed(told, "")

    def tell(self, events: Events, word: str) -> None:
        """Writes what it does now, if there is a word for it."""
        if word:
            events.write(f"response.{self.kind.type}.{word}", self.at, self.place)

    def say(self, events: Events, text: str) -> None:
        """Writes more of the params, if they are streamed."""
        said = text if self.inner is None else self.inner.feed(text)
        if self.head and said:
            events.delta(self.head, said)

    def said(self, events: Events, params: str) -> None:
        """Writes that the params are whole."""
        says = self.kind.says
        text = self._said(params)
        if says is not None and text is not None:
            key = b',"%b":' % says.key.encode()
            events.write(says.event + ".done", self.at, self.place, key, _json(text))

    def _said(self, params: str) -> str | None:
        """What was streamed of the params; None if there is nothing of the kind in them."""
        if self.inner is None:
            return params
        inner = InnerString(*self.inner.path)
        text = inner.feed(params)
        return text if inner.found else None

    def made(self, part: ToolCall, kept: Fields) -> None:
        """Takes over the whole call, and what the decoder kept of it, but for a call id that the
        item was announced without: clients take it for another item then.
        """
        kept = {key: kept[key] for key in kept if key != "call_id" or key in self.fields}
        told = self.kind.asked(part.params)
        text = self._said(part.params) if self.inner is not None else None
        if text is not None and fields(part.params) is None:  # cut inside of it
            told = self._placed(self.fields, text)
        self.invalid = part.invalid is not None
        self.fields = _but_for(told, kept, self.kind.says) | _labels(part, self.kind) | kept

    def answer(self, events: Events, part: ToolResult, kept: Fields, *, ours: bool) -> None:
        """Takes over the result."""
        told = self.kind.answered or result_keys("output")
        asked = _but_for(self.fields, kept, self.kind.says)
        self.fields = asked | told(self.fields, part.result) | kept
        if part.is_error and not ours:
            self.fields["status"] = Raw(b'"failed"')
        progress = self.kind.progress
        self.tell(events, progress.failed if part.is_error else progress.answered)

    def partial(self, events: Events, part: ToolResult, kept: Fields) -> None:
        """Writes an image that is not finished yet; other results have no such events."""
        image = (fields(part.result) or {}).get("result")
        if self.kind.type != "image_generation_call" or image is None:
            return
        told = {"partial_image_index": Raw(b"%d" % self.partials), **kept}
        self.partials += 1
        body = _json({**told, "partial_image_b64": image})[1:-1]
        type = "response.image_generation_call.partial_image"
        events.write(type, self.at, self.place, b",", body)

    def _placed(self, told: Fields, text: str) -> Fields:
        """The keys, with this text where the streamed string stands."""
        *outer, last = self.kind.says.path if self.kind.says else ("",)
        value = Raw(_json(text))
        for key in reversed(outer):
            inside = fields(told.get(key, Raw(b"{}"))) or {}
            if text or last in inside:
                inside[last] = value
            last, value = key, Raw(_json(inside))
        return {**told, last: value}


class OutputItem(Item):
    """A result that is an item of its own. What commands print may be shown before it is whole."""

    __slots__ = ("call", "fields", "printed", "type")

    def __init__(self, seat: Seat, call: str, type: str, kept: Fields) -> None:
        super().__init__(seat)
        self.call = call
        self.type = type
        self.fields = {**OUTPUTS.get(type, ("", {}))[1], **beside_names(kept)}
        self.printed: list[_Printed] = []
        self.open = 1

    @property
    def patience(self) -> Patience:
        return Patience.NONE

    def wire(self, status: schema.Status) -> schema.Item:
        own = {"type": self.type, "id": self.id, "status": status, "call_id": self.call}
        return {**{key: Raw(_json(value)) for key, value in own.items()}, **self.fields}

    def cut(self, last: bool) -> bool:
        return self.open > 0

    @property
    def ends_with_error(self) -> bool:
        return False

    def partial(self, events: Events, result: Raw) -> None:
        """Writes what was printed since the last time."""
        said = schema.unpacked(result, _Output).output
        for index, now in enumerate(said):
            before = self.printed[index] if index < len(self.printed) else _Printed()
            delta = _Printed(_more(before.stdout, now.stdout), _more(before.stderr, now.stderr))
            if delta != _Printed():
                where = b',"command_index":%d,"delta":' % index
                name = "response.shell_call_output_content.delta"
                events.write(name, (self.index, index), self.place, where, _json(delta))
        self.printed = said

    def answer(self, events: Events, part: ToolResult, kept: Fields) -> None:
        """Takes over the result; of what was shown before, each command is closed."""
        whole = schema.unpacked(part.result, _Outputs).output
        for index, one in enumerate(whole[: len(self.printed)]):
            where = b',"command_index":%d,"output":' % index
            name = "response.shell_call_output_content.done"
            events.write(name, (self.index, index), self.place, where, _json([one]))
        self.fields = result_keys("output")({}, part.result) | beside_names(kept)


def _more(before: str, now: str) -> str:
    """What came after; nothing if it is not the same text any more."""
    return now[len(before) :] if now.startswith(before) else ""


def _but_for(told: Fields, kept: Fields, says: Says | None) -> Fields:
    """Some hosts tell the arguments as text, and a lone action is not a list of one: then what
    was kept says it all, but for what was streamed.
    """
    if "arguments" in kept:
        streamed = says.path[:1] if says else ()
        return {key: value for key, value in told.items() if key in streamed}
    return {key: value for key, value in told.items() if key != "actions" or "action" not in kept}


def _labels(part: ToolCall, kind: Kind) -> Fields:
    """What a call says besides its params."""
    told: dict[str, object] = {}
    if kind.type in ("function_call", "custom_tool_call"):
        told["namespace"] = part.namespace
    if part.caller is not None:
        told["caller"] = {"type": "program", "caller_id": part.caller}
    if kind.type in ("mcp_call", "mcp_approval_request"):
        told["server_label"] = part.server_label or ""
    if kind.type == "mcp_call":
        told["approval_request_id"] = part.approval_request_id
    return {key: Raw(_json(value)) for key, value in told.items() if value is not None}


class _Printed(msgspec.Struct, omit_defaults=True):
    stdout: str = ""
    stderr: str = ""


class _Output(msgspec.Struct):
    output: list[_Printed] = []


class _Outputs(msgspec.Struct):
    output: list[Raw] = []
