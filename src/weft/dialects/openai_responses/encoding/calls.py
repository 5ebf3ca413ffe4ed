"""Calls and their results as items, from the first word to the last."""

import msgspec
from msgspec import Raw

from weft.assembler import Assembler
from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.encoding.inner import InnerString
from weft.dialects.openai_responses.encoding.items import Events, Item, Output, Patience, delta_head
from weft.dialects.openai_responses.encoding.kinds import (
    CLIENT,
    CUSTOM,
    FUNCTION,
    KINDS,
    OUTPUTS,
    Kind,
    Says,
    executed,
    result_keys,
)
from weft.dialects.openai_responses.wire import Fields, beside_names, fields
from weft.parts import (
    Part,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
)

_json = msgspec.json.Encoder().encode

_ENDINGS = ("", '"}', '"}}')
"""What closes the beginning of params, wherever the string that is streamed has just begun."""


class CallItem(Item):
    """A call. What is known of it grows until it is made, or until its result."""

    __slots__ = ("call", "fields", "head", "inner", "invalid", "kind", "name", "partials", "public")

    def __init__(
        self, index: int, id: str, part: ToolParamsStart | ToolCall, kind: Kind, known: Fields
    ) -> None:
        super().__init__(index, id)
        self.call = part.id
        self.public = None if part.provider_executed and part.id == id else part.id
        """Its call_id; a hosted call that goes by the id of its item has none."""
        self.name = part.name
        self.kind = kind
        self.fields = {**kind.zeros, **known}
        self.invalid = False
        self.inner = InnerString(*kind.says.path) if kind.says and kind.says.path else None
        self.head = delta_head(kind.says.event + ".delta", self.place) if kind.says else b""
        """How the events of its params begin, if they are streamed."""
        self.partials = 0
        self.open = 1

    @property
    def patience(self) -> Patience:
        return Patience.FINISH if self.invalid else Patience.NONE

    def wire(self, status: wire.Status) -> wire.Item:
        own = {"status": status, "call_id": self.public, "name": self.name}
        told = {key: value for key, value in own.items() if key in self.kind.keys}
        head = {"type": self.kind.type, "id": self.id, **told}
        return {**{key: Raw(_json(value)) for key, value in head.items()}, **self.fields}

    def cut(self, last: bool) -> bool:
        return self.invalid or self.open > 0

    # What is written of it between `added` and `done`

    def opened(self, text: str) -> None:
        """Takes over what the beginning of its params tells: `added` should know it."""
        told = next(filter(None, (fields(text + ending) for ending in _ENDINGS)), None)
        if told is not None and self.inner is not None:
            self.fields |= self._placed(told, "")

    def tell(self, events: Events, word: str) -> None:
        """Writes what it does now, if there is a word for it."""
        if word:
            events.write(f"response.{self.kind.type}.{word}", self.place)

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
            events.write(says.event + ".done", self.place, key, _json(text))

    def _said(self, params: str) -> str | None:
        """What was streamed of the params; None if there is nothing of the kind in them."""
        if self.inner is None:
            return params
        inner = InnerString(*self.inner.path)
        text = inner.feed(params)
        return text if inner.found else None

    def made(self, part: ToolCall, kept: Fields) -> None:
        """Takes over the whole call, and what the decoder kept of it."""
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
        events.write("response.image_generation_call.partial_image", self.place, b",", body)

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

    def __init__(self, index: int, id: str, call: str, type: str, kept: Fields) -> None:
        super().__init__(index, id)
        self.call = call
        self.type = type
        self.fields = {**OUTPUTS.get(type, ("", {}))[1], **beside_names(kept)}
        self.printed: list[_Printed] = []
        self.open = 1

    @property
    def patience(self) -> Patience:
        return Patience.NONE

    def wire(self, status: wire.Status) -> wire.Item:
        own = {"type": self.type, "id": self.id, "status": status, "call_id": self.call}
        return {**{key: Raw(_json(value)) for key, value in own.items()}, **self.fields}

    def cut(self, last: bool) -> bool:
        return self.open > 0

    def partial(self, events: Events, result: Raw) -> None:
        """Writes what was printed since the last time."""
        said = wire.unpacked(result, _Output).output
        for index, now in enumerate(said):
            before = self.printed[index] if index < len(self.printed) else _Printed()
            delta = _Printed(_more(before.stdout, now.stdout), _more(before.stderr, now.stderr))
            if delta != _Printed():
                where = b',"command_index":%d,"delta":' % index
                name = "response.shell_call_output_content.delta"
                events.write(name, self.place, where, _json(delta))
        self.printed = said

    def answer(self, events: Events, part: ToolResult, kept: Fields) -> None:
        """Takes over the result; of what was shown before, each command is closed."""
        whole = wire.unpacked(part.result, _Outputs).output
        for index, one in enumerate(whole[: len(self.printed)]):
            where = b',"command_index":%d,"output":' % index
            name = "response.shell_call_output_content.done"
            events.write(name, self.place, where, _json([one]))
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


class Calls:
    """Writes the calls of one response, and what came of them."""

    def __init__(self, output: Output, fold: Assembler) -> None:
        self._output = output
        self._fold = fold
        self._calls: dict[str, CallItem | None] = {}
        """Calls that were announced; None for one that has no item here."""
        self._outputs: dict[str, OutputItem] = {}
        """Results that are items of their own, by their calls."""
        self.late: CallItem | None = None
        """An item whose `added` waits for the next part, which may tell more of it."""
        self.pending: list[wire.PendingCall] = []
        """Calls that wait for the client."""
        self.cut = False
        """A call was announced and never ended: a response with it is not whole."""

    def _kind(self, part: ToolParamsStart | ToolCall) -> Kind | None:
        """How a call is written; None for one that has no item here."""
        if part.provider_executed:
            kind = executed(part.kind, part.name)
            if kind in (FUNCTION, CUSTOM) and not self._output.ours:
                kind = None  # a client would execute it again
        elif part.format == "text":
            kind = CUSTOM
        else:
            kind = KINDS[part.kind] if part.kind in CLIENT else FUNCTION
        if kind is None:
            self._output.lost("tool-call", f"no item for {part.kind} that the provider executes")
        elif kind.adapted is not None:
            self._output.lost("tool-call", kind.adapted)
        elif part.provider_executed and kind in (FUNCTION, CUSTOM):
            self._output.lost("tool-call", "only who declared the tools knows who executed it")
        return kind

    def _announce(self, part: ToolParamsStart | ToolCall) -> CallItem | None:
        """Takes a place for the item of a call; what it says first is for `_show`."""
        kind = self._kind(part)
        self._calls[part.id] = item = None
        if kind is not None:
            id = self._output.claim(part.item_id, kind.prefix)
            known = wire.beside_names(self._output.kept(part.extra).item)
            item = CallItem(self._output.next, id, part, kind, known)
            self._calls[part.id] = item
            self._output.place(item)
        return item

    def params_start(self, part: ToolParamsStart) -> None:
        item = self._announce(part)
        if item is not None and item.inner is not None:
            self.late = item
        elif item is not None:
            self._show(item, "")

    def announce_late(self, item: CallItem, part: Part) -> None:
        """The first params of a call may tell what its item should be announced with."""
        self.late = None
        match part:
            case ToolParamsDelta(id=call, delta=delta) if call == item.call:
                self._show(item, delta)
            case _:
                self._show(item, "")

    def _show(self, item: CallItem, params: str) -> None:
        item.opened(params)
        self._output.show(item)
        item.tell(self._output.events, item.kind.progress.announced)

    def params_delta(self, part: ToolParamsDelta) -> None:
        item = self._calls[part.id]
        if item is not None:
            item.say(self._output.events, part.delta)

    def params_end(self, part: ToolParamsEnd) -> None:
        item = self._calls[part.id]
        if item is not None:
            item.said(self._output.events, self._fold.joined(part.id))

    def tool_call(self, part: ToolCall) -> None:
        item = self._calls[part.id] if part.id in self._calls else self._whole_call(part)
        if item is None:
            return
        item.made(part, wire.beside_names(self._output.kept(part.extra).item))
        item.tell(self._output.events, item.kind.progress.asked)
        self.cut = self.cut or part.invalid == "stream-failed"
        if part.signature is not None:
            self._output.lost(part.type, "it has no place for a proof")
        if _asks_the_client(part) and item.kind in (FUNCTION, CUSTOM):
            self.pending.append(_pending(part))
        if item.kind.answered is None:
            self._output.said(item)

    def _whole_call(self, part: ToolCall) -> CallItem | None:
        if not part.name or part.invalid == "stream-failed":
            self._output.lost(part.type, "it was never announced")
            return None
        item = self._announce(part)
        if item is not None:
            self._show(item, part.params)
            if part.params:
                item.say(self._output.events, part.params)
            item.said(self._output.events, part.params)
        return item

    def tool_result(self, part: ToolResult) -> None:
        item = self._calls.get(part.id)
        kept: Fields = {**(self._output.kept(part.extra).item or {})}
        output = wire.unpacked(Raw(_json(kept)), wire.Named)
        if output.type is None and item is not None and item.kind.output is not None:
            output = wire.Named(item.kind.output)
        if output.type is not None:
            self._own_item(part, kept, output)
        elif item is None or item.kind.answered is None:
            self._output.lost(part.type, "no item for the result of this call")
        elif part.preliminary:
            item.partial(self._output.events, part, wire.beside_names(kept))
        else:
            item.answer(self._output.events, part, wire.beside_names(kept), ours=self._output.ours)
            self._output.said(item)

    def _own_item(self, part: ToolResult, kept: Fields, output: wire.Named) -> None:
        """A result that is an item of its own, announced by the first that is told of it."""
        item = self._outputs.get(part.id)
        if item is None:
            type = output.type or ""
            id = self._output.claim(output.id, OUTPUTS[type][0] if type in OUTPUTS else "out")
            item = OutputItem(self._output.next, id, part.id, type, kept)
            self._outputs[part.id] = item
            self._output.add(item)
        if part.preliminary:
            item.partial(self._output.events, part.result)
        else:
            item.answer(self._output.events, part, kept)
            self._output.said(item)

    def approval(self, part: ToolApprovalRequest) -> None:
        """The item of its call is the request."""
        item = self._calls.get(part.id)
        if item is None or item.kind is not KINDS["mcp_approval_request"]:
            self._output.lost(part.type, "only remote tools are approved here")


def _asks_the_client(part: ToolCall) -> bool:
    return part.invalid is None and not part.provider_executed


def _pending(part: ToolCall) -> wire.PendingCall:
    if part.format == "text":
        return wire.PendingCall(
            part.id, "custom", custom=wire.PendingCustom(part.name, part.params)
        )
    function = wire.PendingFunction(part.name, part.params)
    return wire.PendingCall(part.id, "function", function=function)
