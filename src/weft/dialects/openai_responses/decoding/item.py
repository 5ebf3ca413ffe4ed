"""The state of one output item: its stage on the wire, its parts and its call."""

from enum import Enum
from typing import NamedTuple

from msgspec import UNSET, Raw

from weft.assembler import Buffer
from weft.dialects.openai_responses.wire import ResponsesItem
from weft.partial_json import whole_characters
from weft.parts import Json, ToolCall


class ItemStage(Enum):
    """How far an item has come on the wire."""

    UNSEEN = "unseen"
    ADDED = "added"
    DONE = "done"


# The stages of a call only advance; a call that came whole skips to the last.
class CallStage(Enum):
    """How far the call of an item has been emitted."""

    UNANNOUNCED = "unannounced"
    OPEN = "open"
    PARAMS_ENDED = "params-ended"
    CALLED = "called"


class PartStage(Enum):
    """How far a text or reasoning part has come (see `reasoning.py`)."""

    ACTIVE = "active"
    CAN_CONCLUDE = "can-conclude"
    CONCLUDED = "concluded"


class DecodedPart:
    """One content or summary part of an item."""

    __slots__ = (
        "annotations",
        "free_annotation",
        "full_text",
        "id",
        "logprobs",
        "stage",
        "streamed_length",
    )

    def __init__(self, id: str) -> None:
        self.id = id
        self.stage = PartStage.ACTIVE
        self.streamed_length = 0
        """How many characters were emitted as deltas."""
        self.full_text: str | None = None
        self.annotations: dict[int, Raw] = {}
        self.free_annotation = 0  # no index below it is free
        self.logprobs: Json = UNSET

    def take_full_text(self, text: str | None) -> None:
        """Takes the full text that came after the deltas, if the event has it."""
        if text is not None:
            self.full_text = whole_characters(text)

    @property
    def holding(self) -> bool:
        """Whether its full text differs in length from what was streamed."""
        # Lengths are compared, not texts: a passthrough asks after every frame, and the guard
        # compares the texts in the end.
        complete = self.full_text is not None and self.stage is not PartStage.CONCLUDED
        return complete and len(self.full_text or "") != self.streamed_length


class AddedItem(NamedTuple):
    """An item as it was when it was added."""

    wire_item: ResponsesItem
    raw: Raw


class CommandOutput(NamedTuple):
    """The output of one command so far."""

    stdout: Buffer
    stderr: Buffer


class DecodedItem:
    """One output item. Its parts are keyed by kind and index."""

    __slots__ = (
        "added", "call", "call_stage", "command_outputs", "content_count", "early_params",
        "emitted_length", "full_value", "has_encrypted_content", "id", "id_minted", "name",
        "needs_parts", "output_length", "params_prefix", "parts", "phase", "stage", "streamed_text",
        "type", "wire_call_id",
    )  # fmt: skip

    def __init__(self, id: str, *, id_minted: bool) -> None:
        self.id = id
        self.id_minted = id_minted
        """Whether the id is ours, because the wire has not given one yet."""
        self.type: str | None = None
        self.name = ""
        self.phase: str | None = None
        self.stage = ItemStage.UNSEEN
        self.added: AddedItem | None = None
        self.needs_parts = False
        """Whether it is a call or a result, which must not be announced before it has parts."""
        self.parts: dict[tuple[str, int], DecodedPart] = {}
        self.content_count = 0
        """How many content parts the message has so far."""
        self.call_stage = CallStage.UNANNOUNCED
        self.call: ToolCall | None = None
        """The call as it was announced or emitted."""
        self.wire_call_id: str | None = None
        """The call id on the wire; `call` may have another one."""
        self.early_params = Buffer()
        """Params that came before the call could be announced."""
        self.params_prefix = ""
        """The params up to the text that is streamed into them (code or a diff)."""
        self.streamed_text = Buffer()
        """The text that is streamed into the params."""
        self.full_value: str | None = None
        """The whole params, or the whole streamed text, once a `.done` event gave it."""
        self.has_encrypted_content = False
        """Whether it was added with encrypted content, which is final only when the item is
        done."""
        self.command_outputs: dict[int, CommandOutput] = {}
        """The output of each command so far."""
        self.output_length = 0
        """The length of that output."""
        self.emitted_length = 0
        """The length of that output when it was last emitted."""

    @property
    def announced(self) -> bool:
        """Whether its call was announced."""
        return self.call_stage is not CallStage.UNANNOUNCED

    @property
    def call_id(self) -> str:
        """The id of the call in the emitted parts."""
        return self.call.id if self.call else self.id

    @property
    def holding(self) -> bool:
        """Whether events of this item are not yet emitted as parts, and still may be."""
        # Params that wait for a name or a call id, or a call or result of which nothing was
        # emitted.
        if not self.announced:
            params = (
                self.early_params.length or self.streamed_text.length or self.full_value is not None
            )
            holding = bool(params) or (self.needs_parts and not self.emitted_length)
        # What the whole params add to the deltas is emitted when the item is done.
        elif self.call_stage is CallStage.OPEN:
            holding = self.full_value is not None
        else:
            holding = self.call_stage is CallStage.PARAMS_ENDED
        return (
            holding
            # Output of commands that has not grown enough to be emitted again.
            or self.output_length > self.emitted_length
            or any(part.holding for part in self.parts.values())
        )


class PendingShellCall(NamedTuple):
    """A shell call that waits for the next item, which decides who executes it."""

    item: DecodedItem
    call: ToolCall
    wire_item: ResponsesItem
