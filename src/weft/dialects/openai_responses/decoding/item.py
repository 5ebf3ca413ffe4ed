"""Where the items of one response stand: on the wire, in what they say, and in their call."""

from enum import Enum
from typing import NamedTuple

from msgspec import UNSET, Raw

from weft.assembler import Buffer
from weft.dialects.openai_responses import wire
from weft.parts import Json, ToolCall


class ItemStage(Enum):
    """Where an item stands on the wire."""

    UNSEEN = "unseen"
    ADDED = "added"
    DONE = "done"


class CallStage(Enum):
    """Where the call of an item stands."""

    UNANNOUNCED = "unannounced"
    OPEN = "open"
    PARAMS_ENDED = "params-ended"
    CALLED = "called"


class PartStage(Enum):
    """Where a text or a thought stands."""

    ACTIVE = "active"
    CAN_CONCLUDE = "can-conclude"
    CONCLUDED = "concluded"


class DecodedPart:
    """One content or summary part of an item, from its start to its end."""

    __slots__ = ("annotations", "full_text", "id", "logprobs", "stage", "streamed_length")

    def __init__(self, id: str) -> None:
        self.id = id
        self.stage = PartStage.ACTIVE
        self.streamed_length = 0
        """How many characters were streamed."""
        self.full_text: str | None = None
        self.annotations: dict[int, Raw] = {}
        self.logprobs: Json = UNSET

    @property
    def holding(self) -> bool:
        """Whether its whole value says something else than what was streamed."""
        complete = self.full_text is not None and self.stage is not PartStage.CONCLUDED
        return complete and len(self.full_text or "") != self.streamed_length


class AddedItem(NamedTuple):
    """An item as it was when it was added."""

    wire_item: wire.ResponsesItem
    raw: Raw


class DecodedItem:
    """One output item. What it says is keyed by the kind of part and its index."""

    __slots__ = (
        "added",
        "call",
        "call_stage",
        "command_outputs",
        "content_count",
        "early_params",
        "emitted_length",
        "full_value",
        "has_encrypted_content",
        "id",
        "id_minted",
        "name",
        "needs_parts",
        "output_length",
        "params_prefix",
        "parts",
        "phase",
        "stage",
        "streamed_text",
        "type",
        "wire_call_id",
    )

    def __init__(self, id: str, *, id_minted: bool) -> None:
        self.id = id
        self.id_minted = id_minted
        """The wire told no id yet."""
        self.type: str | None = None
        self.name = ""
        self.phase: str | None = None
        self.stage = ItemStage.UNSEEN
        self.added: AddedItem | None = None
        self.needs_parts = False
        """It is a call, or what came of one: nobody may be told of it before it has parts."""
        self.parts: dict[tuple[str, int], DecodedPart] = {}
        self.content_count = 0
        """How many content parts a message has so far."""
        self.call_stage = CallStage.UNANNOUNCED
        self.call: ToolCall | None = None
        """The call as it was announced, or made."""
        self.wire_call_id: str | None = None
        """The id that the wire gave that call."""
        self.early_params = Buffer()
        """Params that came before anything told what call they are for."""
        self.params_prefix = ""
        """The params before the text that is streamed into them: code, or a diff."""
        self.streamed_text = Buffer()
        """That text."""
        self.full_value: str | None = None
        """All params, or all of that text, once an event declared it done."""
        self.has_encrypted_content = False
        """A reasoning with a proof; the proof is final when the item is done."""
        self.command_outputs: dict[int, wire.CommandOutput] = {}
        """What commands printed so far."""
        self.output_length = 0
        """How much that is."""
        self.emitted_length = 0
        """How much of that was shown."""

    @property
    def call_id(self) -> str:
        """The id that the parts of its call have."""
        return self.call.id if self.call else self.id

    @property
    def holding(self) -> bool:
        """Whether something was said of it that has not come out as parts, and would later."""
        if self.call_stage is CallStage.UNANNOUNCED:
            params = (
                self.early_params.length or self.streamed_text.length or self.full_value is not None
            )
            holding = bool(params) or (self.needs_parts and not self.emitted_length)
        elif self.call_stage is CallStage.OPEN:
            holding = self.full_value is not None
        else:
            holding = self.call_stage is CallStage.PARAMS_ENDED
        return (
            holding
            or self.output_length > self.emitted_length
            or any(part.holding for part in self.parts.values())
        )


class PendingShellCall(NamedTuple):
    """A call that waits for the next item to tell who executes it."""

    item: DecodedItem
    call: ToolCall
    wire_item: wire.ResponsesItem
