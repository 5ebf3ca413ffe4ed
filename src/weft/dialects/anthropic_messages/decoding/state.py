"""The state of one content block, from its start to its stop, for each type of block."""

from msgspec import Raw

from weft.assembler import Buffer
from weft.dialects.anthropic_messages import wire
from weft.parts import Part, ToolCall

EMPTY_INPUT = "{}"


class BlockState:
    """One content block, from its start to its stop."""

    __slots__ = ("has_deltas", "id", "open", "type")

    def __init__(self, type: str, id: str = "") -> None:
        self.type = type
        self.id = id
        """The id of its parts; empty until the first of them is emitted."""
        self.open = True
        self.has_deltas = False
        """Whether a delta part was emitted."""

    @property
    def held(self) -> bool:
        """Whether its frames carry something that was not emitted yet, or that an encoder would
        emit later.
        """
        return self.open


class TextBlockState(BlockState):
    __slots__ = ("citations",)

    def __init__(self) -> None:
        super().__init__("text")
        self.citations: list[Raw] = []

    @property
    def held(self) -> bool:
        # Its start frame can be forwarded with the first text: before that the block may turn out
        # to be empty, and the encoder would not write it.
        return self.open and not self.has_deltas


class ThinkingBlockState(BlockState):
    """A thinking or redacted_thinking block. Its signature is emitted at its stop."""

    __slots__ = ("redacted", "signature")

    def __init__(self, type: str, block: wire.ContentBlock) -> None:
        super().__init__(type)
        self.signature = block.signature or None
        self.redacted = block.data

    @property
    def held(self) -> bool:
        # A signature is read but emitted at the stop, so its frame waits for the stop.
        return self.open and not (self.has_deltas and self.signature is None)


class ToolUseState(BlockState):
    """A call. `initial_input` is what came before the deltas; None once they replaced it."""

    __slots__ = ("call", "initial_input", "streamed")

    def __init__(self, call: ToolCall, type: str, initial_input: str) -> None:
        super().__init__(type, call.id)
        self.call = call
        self.initial_input: str | None = initial_input
        self.streamed = Buffer()

    def note_delta(self, text: str, data: bytes) -> bool:
        """Takes a delta that was emitted without its frame being decoded."""
        self.streamed.add(text)
        return True

    @property
    def held(self) -> bool:
        # An input at the start, or a `{}`, may still be replaced by deltas.
        return self.open and bool(self.initial_input)

    @property
    def arguments(self) -> str:
        text = self.streamed.text if self.initial_input is None else self.initial_input
        return text or EMPTY_INPUT


class RepeatedToolUseState(ToolUseState):
    """A call with the id and the name of an earlier one. Its parts wait for its arguments, which
    decide whether it is the same call.
    """

    __slots__ = ("pending",)

    def __init__(self, call: ToolCall, type: str, initial_input: str) -> None:
        super().__init__(call, type, initial_input)
        self.pending: list[Part] = []

    @property
    def held(self) -> bool:
        return self.open


class OpaqueBlockState(BlockState):
    """A block that is passed on unparsed, at its stop."""

    __slots__ = ("raw",)

    def __init__(self, type: str, raw: Raw) -> None:
        super().__init__(type)
        self.raw = raw
