"""Writers of events and of bodies, and one writer for each content block.

Blocks are written one after the other. A block that is announced waits until all blocks before it
are closed. Then the text it has so far is read from the fold and written at once; later deltas are
written as they come.
"""

import msgspec
from msgspec import Raw

from weft import large_json
from weft.dialects.anthropic_messages import wire
from weft.dialects.anthropic_messages.mapping import merge_usage
from weft.dialects.delta_templates import EventTemplate
from weft.dialects.raw_json import to_one_line
from weft.dialects.replay import JoinedTexts
from weft.partial_json import escape, is_json
from weft.parts import Json, ReasoningStart
from weft.sse import Event

_json = msgspec.json.Encoder().encode
_MESSAGE_STOP = Event("message_stop", b'{"type":"message_stop"}')


class MessagesEventWriter:
    """Writes the events of one message. Its content blocks are numbered from 0 without gaps."""

    __slots__ = ("_count", "out")

    def __init__(self) -> None:
        self._count = 0
        self.out: list[Event] = []  # replaced by the encoder at each feed

    def message_start(self, message: wire.ResponseMessage) -> None:
        data = b'{"type":"message_start","message":%b}' % _json(message)
        self.out.append(Event("message_start", data))

    def block_start(self, block: wire.ContentBlock | Raw) -> int:
        """Returns the index of the block."""
        index = self._count
        self._count = index + 1
        self._block_event("content_block_start", index, b',"content_block":' + _line(block))
        return index

    def delta(self, block: "BlockWriter", text: str) -> None:
        # Once per token: only the text is encoded, the rest of the event is bytes that are ready.
        data = b"".join((block.delta_prefix, large_json.write_text(text), b"}}"))
        self.out.append(Event("content_block_delta", data))

    def delta_template(self, block: "BlockWriter") -> EventTemplate | None:
        """What `delta` writes."""
        return EventTemplate("content_block_delta", block.delta_prefix + b'"', b'"}}')

    def citation(self, block: "BlockWriter", citation: Raw) -> None:
        delta = b',"delta":{"type":"citations_delta","citation":%b}' % _line(citation)
        self._block_event("content_block_delta", block.index, delta)

    def signature(self, block: "BlockWriter", signature: str) -> None:
        delta = b',"delta":{"type":"signature_delta","signature":%b}' % _json(signature)
        self._block_event("content_block_delta", block.index, delta)

    def block_stop(self, index: int) -> None:
        self._block_event("content_block_stop", index, b"")

    def message_end(
        self, delta: wire.MessageDelta, usage: wire.MessagesUsage, context_management: Json
    ) -> None:
        """Writes `message_delta` and `message_stop`."""
        data = b'{"type":"message_delta","delta":%b,"usage":%b' % (_json(delta), _json(usage))
        if isinstance(context_management, Raw):
            data += b',"context_management":%b' % bytes(context_management)
        self.out += Event("message_delta", to_one_line(data + b"}")), _MESSAGE_STOP

    def error(self, error: wire.MessagesError) -> None:
        self.out.append(Event("error", _json(wire.ErrorEvent(error))))

    def _block_event(self, name: str, index: int, rest: bytes) -> None:
        # Assembled as bytes: raw blocks keep their spelling, and `type` comes first, as the API
        # writes it.
        data = b"".join((b'{"type":"', name.encode(), b'","index":%d' % index, rest, b"}"))
        self.out.append(Event(name, data))


class MessagesBodyWriter(MessagesEventWriter):
    """Collects what a client would accumulate from the events: the whole message."""

    __slots__ = ("_blocks", "_error", "_inputs", "_message")

    def __init__(self) -> None:
        super().__init__()
        self._message = wire.ResponseMessage()
        self._blocks: list[wire.ContentBlock | Raw] = []
        # Pieces, because free text comes with the JSON around it as deltas of their own.
        self._inputs: dict[int, tuple[wire.ContentBlock, list[str]]] = {}
        """The calls and the pieces of their arguments, by the index of their block."""
        self._error: wire.MessagesError | None = None

    @property
    def body(self) -> bytes:
        if self._error is not None:
            return _json(wire.ErrorEvent(self._error))
        for block, pieces in self._inputs.values():
            text = "".join(pieces)
            # A call that the limit cut has no complete input: it stays `{}`, as the official client
            # leaves it.
            if is_json(text):
                block.input = Raw(text.encode())
        self._message.content = [Raw(large_json.write(block)) for block in self._blocks]
        return large_json.write(self._message)

    def message_start(self, message: wire.ResponseMessage) -> None:
        self._message = message

    def block_start(self, block: wire.ContentBlock | Raw) -> int:
        self._blocks.append(block)
        return len(self._blocks) - 1

    def delta(self, block: "BlockWriter", text: str) -> None:
        written = block.block
        if isinstance(block, ToolUseBlockWriter):
            self._inputs.setdefault(block.index, (written, []))[1].append(text)
        elif written.text is not None:
            written.text += text
        else:
            written.thinking = (written.thinking or "") + text

    def delta_template(self, block: "BlockWriter") -> EventTemplate | None:
        return None

    def citation(self, block: "BlockWriter", citation: Raw) -> None:
        block.block.citations = [*(block.block.citations or ()), citation]

    def signature(self, block: "BlockWriter", signature: str) -> None:
        block.block.signature = signature

    def block_stop(self, index: int) -> None:
        """A body has no mark for the end of a block."""

    def message_end(
        self, delta: wire.MessageDelta, usage: wire.MessagesUsage, context_management: Json
    ) -> None:
        message = self._message
        message.stop_reason, message.stop_sequence = delta.stop_reason, delta.stop_sequence
        message.stop_details, message.container = delta.stop_details, delta.container
        message.context_management = context_management
        message.usage = merge_usage(message.usage, usage)

    def error(self, error: wire.MessagesError) -> None:
        self._error = error


class BlockWriter:
    """Writes one content block, from its announcement to its stop."""

    __slots__ = ("block", "delta_prefix", "ended", "id", "index", "waiting")

    DELTA_TYPE = DELTA_KEY = b""

    def __init__(self, id: str, block: wire.ContentBlock) -> None:
        self.id = id
        self.block = block
        """The block as it starts."""
        self.index = -1
        self.delta_prefix = b""
        """The JSON of a delta event up to its text; empty until the block was started."""
        self.waiting = 0
        """How many characters came before the block could be written."""
        self.ended = False

    def open(self, writer: MessagesEventWriter, fold: JoinedTexts) -> None:
        """Writes what came of it so far: all blocks before it are closed."""

    def delta(self, writer: MessagesEventWriter, text: str) -> None:
        """Writes a delta, and the start before the first one."""

    def close(self, writer: MessagesEventWriter) -> None:
        writer.block_stop(self.index)

    def _start(self, writer: MessagesEventWriter) -> None:
        self.index = writer.block_start(self.block)
        prefix = b'{"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":'
        # The index is known only here: blocks before it may not have been written at all.
        self.delta_prefix = prefix % (self.index, self.DELTA_TYPE, self.DELTA_KEY)


class TextBlockWriter(BlockWriter):
    """Starts its block with the first text or citation: empty blocks are rejected in requests."""

    __slots__ = ("citations",)

    DELTA_TYPE, DELTA_KEY = b"text_delta", b"text"

    def __init__(self, id: str) -> None:
        super().__init__(id, wire.ContentBlock("text", text=""))
        self.citations: list[Raw] = []
        """Those that came before the block was started."""

    def open(self, writer: MessagesEventWriter, fold: JoinedTexts) -> None:
        if self.waiting:
            # Cut, because the fold may be ahead: it has deltas that the encoder is still to be fed.
            self.delta(writer, fold.text(self.id)[: self.waiting])

    def delta(self, writer: MessagesEventWriter, text: str) -> None:
        """Writes the first delta. The encoder hands later ones to the writer itself."""
        self._start(writer)
        writer.delta(self, text)

    def citation(self, writer: MessagesEventWriter, citation: Raw) -> None:
        if self.delta_prefix:
            writer.citation(self, citation)
        else:
            self.citations.append(citation)

    def close(self, writer: MessagesEventWriter) -> None:
        # Citations alone are worth a block.
        if self.citations and not self.delta_prefix:
            self._start(writer)
        if self.delta_prefix:
            writer.block_stop(self.index)

    def _start(self, writer: MessagesEventWriter) -> None:
        # Citations follow the start of their block, and may come before its text.
        # capture: search-with-citations
        super()._start(writer)
        for citation in self.citations:
            writer.citation(self, citation)


class ThinkingBlockWriter(BlockWriter):
    """Starts its block with the first text: without any, it may be a redacted_thinking block."""

    __slots__ = ("redacted", "signature", "start")

    DELTA_TYPE, DELTA_KEY = b"thinking_delta", b"thinking"

    def __init__(self, start: ReasoningStart) -> None:
        super().__init__(start.id, wire.ContentBlock("thinking", thinking="", signature=""))
        self.start = start
        self.signature: str | None = None
        self.redacted: str | None = None

    def open(self, writer: MessagesEventWriter, fold: JoinedTexts) -> None:
        if self.waiting:
            self.delta(writer, fold.reasoning(self.id)[: self.waiting])

    def delta(self, writer: MessagesEventWriter, text: str) -> None:
        if not self.delta_prefix:
            self._start(writer)
        writer.delta(self, text)

    def close(self, writer: MessagesEventWriter) -> None:
        if self.signature is not None:
            if not self.delta_prefix:
                self._start(writer)
            # As the API does: once, after the last text.
            writer.signature(self, self.signature)
        if self.delta_prefix:
            writer.block_stop(self.index)
        if self.redacted is not None:
            # A block of its own: thinking blocks have no field for redacted data.
            redacted = wire.ContentBlock("redacted_thinking", data=self.redacted)
            writer.block_stop(writer.block_start(redacted))


class ToolUseBlockWriter(BlockWriter):
    """Writes a call. Free text is written as an object with the key `input`."""

    __slots__ = ("free_text", "truncated", "unusable")

    DELTA_TYPE, DELTA_KEY = b"input_json_delta", b"partial_json"

    def __init__(self, id: str, block: wire.ContentBlock, *, free_text: bool) -> None:
        super().__init__(id, block)
        self.free_text = free_text
        self.unusable: str | None = None
        """Why a client could not run the call. It then waits for the finish, which decides."""
        self.truncated = False
        """Whether its arguments are the beginning of a JSON object."""

    def open(self, writer: MessagesEventWriter, fold: JoinedTexts) -> None:
        # Held back: what is written cannot be taken back.
        if self.unusable is not None:
            return
        self._start(writer)
        if self.free_text:
            # Streamed with the JSON around it, so that the client has the text as it comes.
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

    __slots__ = ("whole",)

    def __init__(self, block: wire.ContentBlock | Raw) -> None:
        super().__init__("", wire.ContentBlock())
        self.whole = block
        self.ended = True

    def open(self, writer: MessagesEventWriter, fold: JoinedTexts) -> None:
        self.index = writer.block_start(self.whole)


def _line(value: wire.ContentBlock | Raw) -> bytes:
    """JSON on one line: raw values may come from an indented body."""
    return to_one_line(_json(value))
