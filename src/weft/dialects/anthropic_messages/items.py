"""Content blocks as they are written: each one whole, one after the other.

An item is announced, and waits until all before it are closed. Then it leads: what came of it so
far is read from the fold and written at once, and the rest as it comes.
"""

from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.assembler import Assembler
from weft.context import Context
from weft.dialects.anthropic_messages import wire
from weft.dialects.anthropic_messages.wire import NAME, one_line, unpacked
from weft.dialects.envelope import sealed, sealed_call, unproven
from weft.dialects.requests import Spelling
from weft.findings import Findings
from weft.lifecycle import parses
from weft.partial_json import Scan, escape
from weft.parts import (
    Json,
    Opaque,
    Part,
    ReasoningEnd,
    ReasoningStart,
    Source,
    TextEnd,
    ToolCall,
    ToolParamsStart,
    ToolResult,
    Usage,
)
from weft.sse import Event

T = TypeVar("T", bound=msgspec.Struct)

USES = frozenset({"server_tool_use", "mcp_tool_use"})
"""Kinds of calls that the provider of this dialect executes."""

_json = msgspec.json.Encoder().encode
_EMPTY = Raw(b"{}")
_STOP = Event("message_stop", b'{"type":"message_stop"}')


class Writer:
    """The events of one message. Its content blocks are numbered densely from 0."""

    __slots__ = ("_count", "out")

    def __init__(self) -> None:
        self._count = 0
        self.out: list[Event] = []

    def begin(self, message: wire.Written) -> None:
        data = b'{"type":"message_start","message":%b}' % _json(message)
        self.out.append(Event("message_start", data))

    def start(self, block: wire.WrittenBlock | Raw) -> int:
        """Writes the start of a block, and returns its number."""
        index = self._count
        self._count = index + 1
        self._event("content_block_start", index, b',"content_block":' + one_line(_json(block)))
        return index

    def say(self, item: "Item", text: str) -> None:
        self.out.append(Event("content_block_delta", b"%b%b}}" % (item.head, _json(text))))

    def cite(self, index: int, citation: Raw) -> None:
        self._delta(index, b"citations_delta", b"citation", one_line(bytes(citation)))

    def sign(self, index: int, signature: str) -> None:
        self._delta(index, b"signature_delta", b"signature", _json(signature))

    def stop(self, index: int) -> None:
        self._event("content_block_stop", index, b"")

    def end(self, stop: wire.Stop, usage: wire.Tokens, edits: Json) -> None:
        body = b'{"type":"message_delta","delta":%b,"usage":%b' % (_json(stop), _json(usage))
        if isinstance(edits, Raw):
            body += b',"context_management":%b' % bytes(edits)
        self.out += Event("message_delta", one_line(body + b"}")), _STOP

    def fail(self, failure: wire.Failure) -> None:
        self.out.append(Event("error", _json(wire.Failed(failure))))

    def _delta(self, index: int, type: bytes, key: bytes, value: bytes) -> None:
        delta = b',"delta":{"type":"%b","%b":%b}' % (type, key, value)
        self._event("content_block_delta", index, delta)

    def _event(self, name: str, index: int, rest: bytes) -> None:
        data = b"".join((b'{"type":"', name.encode(), b'","index":%d' % index, rest, b"}"))
        self.out.append(Event(name, data))


class BodyWriter(Writer):
    """The same message in one piece: what a client makes of the events."""

    __slots__ = ("_blocks", "_failure", "_inputs", "_message")

    def __init__(self) -> None:
        super().__init__()
        self._message = wire.Written("", "", wire.Tokens(0, 0))
        self._blocks: list[wire.WrittenBlock | Raw] = []
        self._inputs: dict[int, str] = {}
        self._failure: wire.Failure | None = None

    @property
    def body(self) -> bytes:
        if self._failure is not None:
            return _json(wire.Failed(self._failure))
        for index, text in self._inputs.items():
            block = self._blocks[index]
            if isinstance(block, wire.Use) and parses(text):
                block.input = Raw(text.encode())
        self._message.content = [Raw(large_json.write(block)) for block in self._blocks]
        return large_json.write(self._message)

    def begin(self, message: wire.Written) -> None:
        self._message = message

    def start(self, block: wire.WrittenBlock | Raw) -> int:
        self._blocks.append(block)
        return len(self._blocks) - 1

    def say(self, item: "Item", text: str) -> None:
        block = self._blocks[item.index]
        if isinstance(block, wire.Text):
            block.text += text
        elif isinstance(block, wire.Thinking):
            block.thinking += text
        else:
            self._inputs[item.index] = self._inputs.get(item.index, "") + text

    def cite(self, index: int, citation: Raw) -> None:
        block = self._blocks[index]
        if isinstance(block, wire.Text):
            before = block.citations if isinstance(block.citations, list) else []
            block.citations = [*before, citation]

    def sign(self, index: int, signature: str) -> None:
        block = self._blocks[index]
        if isinstance(block, wire.Thinking):
            block.signature = signature

    def stop(self, index: int) -> None:
        """A block is whole when the message is."""

    def end(self, stop: wire.Stop, usage: wire.Tokens, edits: Json) -> None:
        message = self._message
        message.stop_reason, message.stop_sequence = stop.stop_reason, stop.stop_sequence
        message.stop_details, message.container = stop.stop_details, stop.container
        message.context_management = edits
        told = msgspec.structs.asdict(usage).items()
        known = {key: value for key, value in told if value is not UNSET}
        message.usage = msgspec.structs.replace(message.usage, **known)

    def fail(self, failure: wire.Failure) -> None:
        self._failure = failure


class Item:
    """One content block to be, from its announcement to its stop."""

    __slots__ = ("ended", "head", "id", "index", "seen")

    TYPE = KEY = b""
    """What its deltas are called, and the key of what they add."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.index = -1
        self.head = b""
        """All of a delta event up to its value; empty while the block is not on the wire."""
        self.seen = 0
        """How many characters came of it before it was on the wire."""
        self.ended = False

    def lead(self, writer: Writer, fold: Assembler) -> None:
        """Its turn has come: writes what came of it so far."""

    def close(self, writer: Writer) -> None:
        writer.stop(self.index)

    def begin(self, writer: Writer, block: wire.WrittenBlock) -> None:
        self.index = writer.start(block)
        self.head = b'{"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":' % (
            self.index,
            self.TYPE,
            self.KEY,
        )

    def say(self, writer: Writer, text: str) -> None:
        writer.say(self, text)


class SaidText(Item):
    """Its block begins with its first word: an empty one cannot be sent back."""

    __slots__ = ("citations",)

    TYPE, KEY = b"text_delta", b"text"

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.citations: list[Raw] = []
        """Those that wait for the block."""

    def lead(self, writer: Writer, fold: Assembler) -> None:
        if self.seen:
            self.say(writer, fold.text(self.id)[: self.seen])

    def say(self, writer: Writer, text: str) -> None:
        if not self.head:
            self._open(writer)
        super().say(writer, text)

    def cite(self, writer: Writer, citation: Raw) -> None:
        if self.head:
            writer.cite(self.index, citation)
        else:
            self.citations.append(citation)

    def close(self, writer: Writer) -> None:
        if self.citations and not self.head:
            self._open(writer)
        if self.head:
            super().close(writer)

    def _open(self, writer: Writer) -> None:
        self.begin(writer, wire.Text(""))
        for citation in self.citations:
            self.cite(writer, citation)


class SaidThought(Item):
    """Its block begins with its first word: without any, it may be a redacted one."""

    __slots__ = ("redacted", "signature", "start")

    TYPE, KEY = b"thinking_delta", b"thinking"

    def __init__(self, start: ReasoningStart) -> None:
        super().__init__(start.id)
        self.start = start
        self.signature: str | None = None
        self.redacted: str | None = None

    def lead(self, writer: Writer, fold: Assembler) -> None:
        if self.seen:
            self.say(writer, fold.reasoning(self.id)[: self.seen])

    def say(self, writer: Writer, text: str) -> None:
        if not self.head:
            self.begin(writer, wire.Thinking("", ""))
        super().say(writer, text)

    def close(self, writer: Writer) -> None:
        if self.signature is not None:
            if not self.head:
                self.begin(writer, wire.Thinking("", ""))
            writer.sign(self.index, self.signature)
        if self.head:
            writer.stop(self.index)
        if self.redacted is not None:
            writer.stop(writer.start(wire.RedactedThinking(self.redacted)))


class SaidUse(Item):
    """A call. One whose params are free text has them in an object, as its `input`."""

    __slots__ = ("block", "cut", "failure", "free")

    TYPE, KEY = b"input_json_delta", b"partial_json"

    def __init__(self, id: str, block: wire.Use, *, free: bool) -> None:
        super().__init__(id)
        self.block = block
        self.free = free
        self.failure: str | None = None
        """Why it cannot be handed over: then it waits for the finish, which tells what to do."""
        self.cut = False
        """Whether it is the beginning of a call that could be."""

    def lead(self, writer: Writer, fold: Assembler) -> None:
        if self.failure is not None:
            return
        self.begin(writer, self.block)
        if self.free:
            super().say(writer, '{"input":"')
        if self.seen:
            self.say(writer, fold.joined(self.id)[: self.seen])

    def say(self, writer: Writer, text: str) -> None:
        super().say(writer, escape(text) if self.free else text)

    def close(self, writer: Writer) -> None:
        if self.free:
            super().say(writer, '"}')
        writer.stop(self.index)


class Whole(Item):
    """A block that is all there: a result, or one that goes back as it was."""

    __slots__ = ("block",)

    def __init__(self, block: wire.WrittenBlock | Raw) -> None:
        super().__init__("")
        self.block = block
        self.ended = True

    def lead(self, writer: Writer, fold: Assembler) -> None:
        self.index = writer.start(self.block)


class Carrier:
    """What of a response this wire can carry; a finding for whatever it cannot."""

    def __init__(self, context: Context, findings: Findings, *, ours: bool) -> None:
        self.ours = ours
        """Whether the response came from this dialect, so that what it kept is understood."""
        self.source: str | None = None
        self.model: str | None = None
        """Who answered, in which dialect."""
        self._findings = findings
        self._origins = (NAME, context.origin or NAME)
        self._results: dict[str, str] = {}
        """The type of the result that each executed call will have."""
        self._ids = Spelling(wire.ID_LETTERS, wire.ID_LIMIT)
        self._signed: set[str] = set()

    def lost(self, what: str, which: str, why: str) -> None:
        self._findings.once("not-carried", f"{what} {which}", f"{what}: {why}")

    def extra(self, extra: Json, wanted: type[T]) -> T:
        """What a part of this dialect kept for the way back."""
        return unpacked(extra, wanted) if self.ours else wanted()

    def id(self, id: str) -> str:
        """The call id as this wire may spell it, always the same; one of its own as it came."""
        return id if self.ours else self._ids.spell(id)

    def proof(
        self,
        part: ReasoningEnd,
        start: ReasoningStart,
        *,
        said: bool,
    ) -> tuple[str | None, str | None]:
        """The signature and the redacted text. A proof from elsewhere is sealed, never forged."""
        own = part.origin in self._origins or (part.origin is None and self.ours)
        if own and part.encrypted is None:
            return part.signature, part.redacted
        proven = bool(part.signature or part.encrypted or part.redacted)
        envelope = sealed(part, self.model, start) if proven or said else None
        if envelope is None and proven:
            self.lost("reasoning-end", part.id, "nobody knows whose its proof is")
        elif envelope is None and said and self.source is not None:
            envelope = unproven(self.source, self.model)
        return envelope, None

    def citation(self, part: Source) -> Raw | None:
        """What a source is beside its text; None for one that has no place there."""
        type = unpacked(part.raw, wire.Variant).type
        if type in wire.CITATIONS and isinstance(part.raw, Raw):
            return part.raw
        if type != wire.HIT or not self._results:  # a hit stands in the result it came with
            self.lost(part.type, part.id, "it is no citation of this dialect")
        return None

    def use(self, part: ToolParamsStart | ToolCall) -> wire.Use | None:
        """The block of a call. Its input comes later."""
        if part.provider_executed:
            if part.kind not in USES:
                self.lost("tool-call", part.id, f"the provider of this dialect has no {part.kind}")
                return None
            self._results[part.id] = _result_type(part)
        extra = self.extra(part.extra, wire.CallExtra)
        label = part.server_label if isinstance(part, ToolCall) else None
        return wire.Use(
            part.kind if part.provider_executed else "tool_use",
            self.id(part.id),
            part.name,
            _EMPTY,
            (extra.server_name or label or "") if part.kind == "mcp_tool_use" else UNSET,
            extra.caller,
            extra.toolset_name or UNSET,
        )

    def result(self, part: ToolResult) -> wire.Result | None:
        """The block of a result; None for one of a call that has no block here."""
        extra = self.extra(part.extra, wire.ResultExtra)
        type = extra.type or self._results.get(part.id)
        if not type or part.preliminary or not part.provider_executed:
            self.lost(part.type, part.id, "its call has no block here, or it is not the last one")
            return None
        is_error = part.is_error if type == "mcp_tool_result" else UNSET
        return wire.Result(type, self.id(part.id), part.result, is_error, extra.caller)

    def opaque(self, part: Opaque) -> Raw | None:
        if part.origin != NAME:
            self.lost(part.type, part.kind, f"{part.kind} belongs to {part.origin}")
        elif not unpacked(part.raw, wire.Variant).type:
            self.lost(part.type, part.kind, "what has no type is no block")
        else:
            return part.raw
        return None

    def signed(self, part: ToolParamsStart | ToolCall) -> wire.RedactedThinking | None:
        """The block before a call that carries its signature, which has no field here: once."""
        if part.signature is None or part.id in self._signed:
            return None
        self._signed.add(part.id)
        envelope = sealed_call(part, self.model, self.id(part.id))
        if envelope is None or part.provider_executed:
            self.lost("tool-call", part.id, "its signature has no field here")
            return None
        return wire.RedactedThinking(envelope)

    def late(self, part: ToolCall) -> None:
        """A call that began before its signature was known."""
        if part.signature is not None and part.id not in self._signed:
            self.lost(part.type, part.id, "its signature came when the call had begun")

    def refusal(self) -> None:
        self.lost("text-start", "refusal", "a refusal is written as any text")

    def usage(self, told: Usage | None) -> None:
        if told is None or told.input_tokens is None or told.output_tokens is None:
            self.lost("usage", "", "this wire wants numbers: what nobody counted is 0")
        elif told.total_tokens not in (None, told.input_tokens + told.output_tokens):
            self.lost("usage", "", "a total that is not the sum has no field")
        if told and (told.reasoning_tokens or 0) > (told.output_tokens or 0):
            self.lost("usage", "thoughts", "thinking that is no part of the output has no field")

    def untold(self, told: Usage | None) -> None:
        """The usage of a response that failed: the zeros at its beginning stand."""
        if told is not None:
            self.lost("usage", "", "nothing is told after an error")
        self.usage(told)

    def text(self, part: TextEnd) -> None:
        if part.signature is not None:
            self.lost("text-end", part.id, f"its proof goes back to {part.origin} only")

    def nothing(self, part: Part) -> None:
        """A part that no block can hold."""
        self.lost(part.type, "", f"a {part.type} has no block")


def _result_type(call: ToolParamsStart | ToolCall) -> str:
    """The type of the block that answers a call."""
    if call.kind == "mcp_tool_use":
        return "mcp_tool_result"
    name = "tool_search_tool" if call.name.startswith("tool_search_tool") else call.name + "_tool"
    return f"{name}_result"


def flaw(call: ToolCall) -> str | None:
    """Why a call cannot be handed over here: what is there is no object of arguments."""
    if call.invalid is not None:
        return f"the call of {call.name!r} is not usable: {call.invalid}"
    if call.format == "json" and not call.params.lstrip().startswith("{"):
        return f"the arguments of {call.name!r} are not an object"
    return None


def is_cut(call: ToolCall) -> bool:
    """Whether what is there of a call could have become one, if more had come."""
    if not call.name or call.invalid is None or call.format == "text":
        return bool(call.name and call.invalid)
    scan = Scan()
    scan.feed(call.params)
    return scan.viable and call.params.lstrip()[:1] in ("", "{")
