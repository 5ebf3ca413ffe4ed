"""Where the items of one response stand: on the wire, in what they say, and in their call."""

from enum import Enum
from typing import NamedTuple

from msgspec import UNSET, Raw

from weft.assembler import Buffer
from weft.dialects.openai_responses import wire
from weft.parts import Json, ToolCall


class Stage(Enum):
    """Where an item stands on the wire."""

    UNSEEN = "unseen"
    ADDED = "added"
    DONE = "done"


class Step(Enum):
    """Where the call of an item stands."""

    UNTOLD = "untold"
    OPEN = "open"
    SEALED = "sealed"
    CALLED = "called"


class Speech(Enum):
    """Where a text or a thought stands."""

    ACTIVE = "active"
    CAN_CONCLUDE = "can-conclude"
    CONCLUDED = "concluded"


class Said:
    """One content or summary part of an item, from its start to its end."""

    __slots__ = ("annotations", "id", "length", "logprobs", "speech", "whole")

    def __init__(self, id: str) -> None:
        self.id = id
        self.speech = Speech.ACTIVE
        self.length = 0
        """How many characters were streamed."""
        self.whole: str | None = None
        self.annotations: dict[int, Raw] = {}
        self.logprobs: Json = UNSET

    @property
    def holding(self) -> bool:
        """Whether its whole value says something else than what was streamed."""
        told = self.whole is not None and self.speech is not Speech.CONCLUDED
        return told and len(self.whole or "") != self.length


class Announced(NamedTuple):
    """An item as it was when it was added."""

    read: wire.Item
    raw: Raw


class Item:
    """One output item. What it says is keyed by the kind of part and its index."""

    __slots__ = (
        "announced",
        "call",
        "head",
        "id",
        "inner",
        "key",
        "minted",
        "name",
        "outputs",
        "parts",
        "phase",
        "printed",
        "proven",
        "said",
        "shown",
        "stage",
        "step",
        "type",
        "untellable",
        "waiting",
        "whole",
    )

    def __init__(self, id: str, *, minted: bool) -> None:
        self.id = id
        self.minted = minted
        """The wire told no id yet."""
        self.type: str | None = None
        self.name = ""
        self.phase: str | None = None
        self.stage = Stage.UNSEEN
        self.announced: Announced | None = None
        self.untellable = False
        """It is a call, or what came of one: nobody may be told of it before it has parts."""
        self.said: dict[tuple[str, int], Said] = {}
        self.parts = 0
        """How many content parts a message has so far."""
        self.step = Step.UNTOLD
        self.call: ToolCall | None = None
        """The call as it was announced, or made."""
        self.key: str | None = None
        """The id that the wire gave that call."""
        self.waiting = Buffer()
        """Params that came before anything told what call they are for."""
        self.head = ""
        """The params before the text that is streamed into them: code, or a diff."""
        self.inner = Buffer()
        """That text."""
        self.whole: str | None = None
        """All params, or all of that text, once an event declared it done."""
        self.proven = False
        """A reasoning with a proof; the proof is final when the item is done."""
        self.outputs: dict[int, wire.Printed] = {}
        """What commands printed so far."""
        self.printed = 0
        """How much that is."""
        self.shown = 0
        """How much of that was shown."""

    @property
    def call_id(self) -> str:
        """The id that the parts of its call have."""
        return self.call.id if self.call else self.id

    @property
    def holding(self) -> bool:
        """Whether something was said of it that has not come out as parts, and would later."""
        if self.step is Step.UNTOLD:
            params = self.waiting.length or self.inner.length or self.whole is not None
            held = bool(params) or (self.untellable and not self.shown)
        elif self.step is Step.OPEN:
            held = self.whole is not None
        else:
            held = self.step is Step.SEALED
        return held or self.printed > self.shown or any(s.holding for s in self.said.values())


class Pending(NamedTuple):
    """A call that waits for the next item to tell who executes it."""

    item: Item
    call: ToolCall
    read: wire.Item
