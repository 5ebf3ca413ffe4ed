"""Writers of events and of bodies, and one writer for each content block.

Blocks are written one after the other. A block that is announced waits until all blocks before it
are closed. Then the text it has so far is read from the fold and written at once; later deltas are
written as they come.
"""

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.assembler import Assembler
from weft.dialects.anthropic_messages import wire
from weft.dialects.anthropic_messages.wire import Json, to_one_line
from weft.lifecycle import parses
from weft.partial_json import escape
from weft.parts import ReasoningStart
from weft.sse import Event

_json = msgspec.json.Encoder().encode
_MESSAGE_STOP = Event("message_stop", b'{"type":"message_stop"}')


class MessagesEventWriter:
    """Writes the events of one message. Its content blocks are numbered from 0 without gaps."""

    __slots__ = ("_count", "out")

    def __init__(self) -> None:
        self._count = 0
        self.out: list[Event] = []

    def message_start(self, message: wire.WrittenMessage) -> None:
        data = b'{"type":"message_start","message":%b}' % _json(message)
        self.out.append(Event("message_start", data))

    def block_start(self, block: wire.WrittenBlock | Raw) -> int:
        """Returns the index of the block."""
        index = self._count
        self._count = index + 1
        rest = b',"content_block":' + to_one_line(_json(block))
        self._block_event("content_block_start", index, rest)
        return index

    def delta(self, block: "BlockWriter", text: str) -> None:
        data = b"%b%b}}" % (block.delta_prefix, _json(text))
        self.out.append(Event("content_block_delta", data))

    def citation(self, index: int, citation: Raw) -> None:
        delta = b',"delta":{"type":"citations_delta","citation":%b}'
        citation_json = to_one_line(bytes(citation))
        self._block_event("content_block_delta", index, delta % citation_json)

    def signature(self, index: int, signature: str) -> None:
        delta = b',"delta":{"type":"signature_delta","signature":%b}'
        self._block_event("content_block_delta", index, delta % _json(signature))

    def block_stop(self, index: int) -> None:
        self._block_event("content_block_stop", index, b"")

    def message_end(
        self, stop: wire.StopDelta, usage: wire.WrittenUsage, context_management: Json
    ) -> None:
        """Writes `message_delta` and `message_stop`."""
        data = b'{"type":"message_delta","delta":%b,"usage":%b' % (_json(stop), _json(usage))
        if isinstance(context_management, Raw):
            data += b',"context_management":%b' % bytes(context_management)
        self.out += Event("message_delta", to_one_line(data + b"}")), _MESSAGE_STOP

    def error(self, error: wire.WrittenError) -> None:
        self.out.append(Event("error", _json(wire.ErrorEvent(error))))

    def _block_event(self, name: str, index: int, rest: bytes) -> None:
        data = b"".join((b'{"type":"', name.encode(), b'","index":%d' % index, rest, b"}"))
        self.out.append(Event(name, data))


class MessagesBodyWriter(MessagesEventWriter):
    """Collects what a client would accumulate from the events: the whole message."""

    __slots__ = ("_blocks", "_error", "_inputs", "_message")

    def __init__(self) -> None:
        super().__init__()
        self._message = wire.WrittenMessage("", "", wire.WrittenUsage(0, 0))
        self._blocks: list[wire.WrittenBlock | Raw] = []
        self._inputs: dict[int, str] = {}
        """The arguments of calls, by the index of their block."""
        self._error: wire.WrittenError | None = None

    @property
    def body(self) -> bytes:
        if self._error is not None:
            return _json(wire.ErrorEvent(self._error))
        for index, text in self._inputs.items():
            block = self._blocks[index]
            if isinstance(block, wire.ToolUseBlock) and parses(text):
                block.input = Raw(text.encode())
        self._message.content = [Raw(large_json.write(block)) for block in self._blocks]
        return large_json.write(self._message)

    def message_start(self, message: wire.WrittenMessage) -> None:
        self._message = message

    def block_start(self, block: wire.WrittenBlock | Raw) -> int:
        self._blocks.append(block)
        return len(self._blocks) - 1

    def delta(self, block: "BlockWriter", text: str) -> None:
        written = self._blocks[block.index]
        if isinstance(written, wire.TextBlock):
            written.text += text
        elif isinstance(written, wire.ThinkingBlock):
            written.thinking += text
        else:
            self._inputs[block.index] = self._inputs.get(block.index, "") + text

    def citation(self, index: int, citation: Raw) -> None:
        block = self._blocks[index]
        if isinstance(block, wire.TextBlock):
            earlier = block.citations if isinstance(block.citations, list) else []
            block.citations = [*earlier, citation]

    def signature(self, index: int, signature: str) -> None:
        block = self._blocks[index]
        if isinstance(block, wire.ThinkingBlock):
            block.signature = signature

    def block_stop(self, index: int) -> None:
        """A body has no mark for the end of a block."""

    def message_end(
        self, stop: wire.StopDelta, usage: wire.WrittenUsage, context_management: Json
    ) -> None:
        message = self._message
        message.stop_reason, message.stop_sequence = stop.stop_reason, stop.stop_sequence
        message.stop_details, message.container = stop.stop_details, stop.container
        message.context_management = context_management
        counts = msgspec.structs.asdict(usage)
        known = {key: value for key, value in counts.items() if value is not UNSET}
        message.usage = msgspec.structs.replace(message.usage, **known)

    def error(self, error: wire.WrittenError) -> None:
        self._error = error


class BlockWriter:
    """Writes one content block, from its announcement to its stop."""

    __slots__ = ("delta_prefix", "ended", "id", "index", "waiting")

    DELTA_TYPE = DELTA_KEY = b""

    def __init__(self, id: str) -> None:
        self.id = id
        self.index = -1
        self.delta_prefix = b""
        """The JSON of a delta event up to its text; empty until the block was started."""
        self.waiting = 0
        """How many characters came before the block could be written."""
        self.ended = False

    def open(self, writer: MessagesEventWriter, fold: Assembler) -> None:
        """Writes what came of it so far: all blocks before it are closed."""

    def delta(self, writer: MessagesEventWriter, text: str) -> None:
        writer.delta(self, text)

    def close(self, writer: MessagesEventWriter) -> None:
        writer.block_stop(self.index)

    def _start(self, writer: MessagesEventWriter, block: wire.WrittenBlock) -> None:
        self.index = writer.block_start(block)
        prefix = b'{"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":'
        self.delta_prefix = prefix % (self.index, self.DELTA_TYPE, self.DELTA_KEY)


class TextBlockWriter(BlockWriter):
    """Starts its block with the first text or citation: empty blocks are rejected in requests."""

    __slots__ = ("citations",)

    DELTA_TYPE, DELTA_KEY = b"text_delta", b"text"

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.citations: list[Raw] = []
        """Those that came before the block was started."""

    def open(self, writer: MessagesEventWriter, fold: Assembler) -> None:
        if self.waiting:
            self.delta(writer, fold.text(self.id)[: self.waiting])

    def delta(self, writer: MessagesEventWriter, text: str) -> None:
        if not self.delta_prefix:
            self._start_with_citations(writer)
        writer.delta(self, text)

    def citation(self, writer: MessagesEventWriter, citation: Raw) -> None:
        if self.delta_prefix:
            writer.citation(self.index, citation)
        else:
            self.citations.append(citation)

    def close(self, writer: MessagesEventWriter) -> None:
        if self.citations and not self.delta_prefix:
            self._start_with_citations(writer)
        if self.delta_prefix:
            writer.block_stop(self.index)

    def _start_with_citations(self, writer: MessagesEventWriter) -> None:
        self._start(writer, wire.TextBlock(""))
        for citation in self.citations:
            writer.citation(self.index, citation)


class ThinkingBlockWriter(BlockWriter):
    """Starts its block with the first text: without any, it may be a redacted_thinking block."""

    __slots__ = ("redacted", "signature", "start")

    DELTA_TYPE, DELTA_KEY = b"thinking_delta", b"thinking"

    def __init__(self, start: ReasoningStart) -> None:
        super().__init__(start.id)
        self.start = start
        self.signature: str | None = None
        self.redacted: str | None = None

    def open(self, writer: MessagesEventWriter, fold: Assembler) -> None:
        if self.waiting:
            self.delta(writer, fold.reasoning(self.id)[: self.waiting])

    def delta(self, writer: MessagesEventWriter, text: str) -> None:
        if not self.delta_prefix:
            self._start(writer, wire.ThinkingBlock("", ""))
        writer.delta(self, text)

    def close(self, writer: MessagesEventWriter) -> None:
        if self.signature is not None:
            if not self.delta_prefix:
                self._start(writer, wire.ThinkingBlock("", ""))
            writer.signature(self.index, self.signature)
        if self.delta_prefix:
            writer.block_stop(self.index)
        if self.redacted is not None:
            writer.block_stop(writer.block_start(wire.RedactedThinkingBlock(self.redacted)))


class ToolUseBlockWriter(BlockWriter):
    """Writes a call. Free text is written as an object with the key `input`."""

    __slots__ = ("block", "free_text", "truncated", "unusable")

    DELTA_TYPE, DELTA_KEY = b"input_json_delta", b"partial_json"

    def __init__(self, id: str, block: wire.ToolUseBlock, *, free_text: bool) -> None:
        super().__init__(id)
        self.block = block
        self.free_text = free_text
        self.unusable: str | None = None
        """Why a client could not run the call. It then waits for the finish, which decides."""
        self.truncated = False
        """Whether its arguments are the beginning of a JSON object."""

    def open(self, writer: MessagesEventWriter, fold: Assembler) -> None:
        if self.unusable is not None:
            return
        self._start(writer, self.block)
        if self.free_text:
            writer.delta(self, '{"input":"')
        if self.waiting:
            self.delta(writer, fold.joined(self.id)[: self.waiting])

    def delta(self, writer: MessagesEventWriter, text: str) -> None:
        writer.delta(self, escape(text) if self.free_text else text)

    def close(self, writer: MessagesEventWriter) -> None:
        if self.free_text:
            writer.delta(self, '"}')
        writer.block_stop(self.index)


class WholeBlockWriter(BlockWriter):
    """Writes a block without deltas: a tool result, or a block that is passed on unparsed."""

    __slots__ = ("block",)

    def __init__(self, block: wire.WrittenBlock | Raw) -> None:
        super().__init__("")
        self.block = block
        self.ended = True

    def open(self, writer: MessagesEventWriter, fold: Assembler) -> None:
        self.index = writer.block_start(self.block)
