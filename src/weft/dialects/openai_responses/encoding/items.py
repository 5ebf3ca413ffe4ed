"""Output items while they are written, and the events about them.

`output_item.added` has every field that is known by then, and `output_item.done` all of them. Calls
are in `calls.py`; this module has messages, reasoning and items that are passed through.
"""

from enum import Enum
from typing import ClassVar, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.encoding.events import (
    DeltaPrefix,
    EventWriter,
    SentEvents,
    delta_prefix,
)
from weft.dialects.openai_responses.extra import ItemExtra, without_identity
from weft.dialects.openai_responses.wire import RAW_TEXT
from weft.dialects.raw_json import decode_or_default
from weft.findings import Findings
from weft.ids import Ids
from weft.large_json import SLICE
from weft.parts import Json, ReasoningKind, ReasoningStart, TextStart

_json = msgspec.json.Encoder().encode


# `done` cannot be taken back, so an item is closed only when its status is certain.
class ClosePolicy(Enum):
    """When an item is closed after its last part ended."""

    NONE = "none"
    NEXT = "until the next item"
    """More parts may follow; and the last item may be what a limit cut off."""
    FINISH = "until the finish"
    """The finish decides its status."""


class ItemSlot(msgspec.Struct, frozen=True):
    """The output index and the id of an item."""

    output_index: int
    id: str


class OutputItem:
    """One output item, from `added` to `done`."""

    __slots__ = ("done", "group", "id", "index", "open")

    closes_on_error: ClassVar[bool] = True
    """Whether the item is closed when the response fails. A call is not: a client that receives its
    `done` may execute it."""

    def __init__(self, slot: ItemSlot, group: str | None = None) -> None:
        self.index = slot.output_index
        self.id = slot.id
        self.done: wire.RenderedItem | None = None
        """The rendered item, once it is closed."""
        # A call has no group: all of its parts have its call id.
        self.group = group
        """The `item_id` that its parts share."""
        self.open = 0
        """How many of its parts have not ended."""

    @property
    def locator(self) -> bytes:
        """The JSON fields by which an event refers to the item."""
        return b'"item_id":%b,"output_index":%d' % (_json(self.id), self.index)

    @property
    def position(self) -> tuple[int, int]:
        """The position of an event about the item as a whole."""
        return (self.index, -1)

    def resume(self, sent: SentEvents) -> None:
        """Continues after passthrough: its index may have changed, and the client received these
        events.
        """

    @property
    def close_policy(self) -> ClosePolicy:
        return ClosePolicy.NEXT

    @property
    def has_no_long_string(self) -> bool:
        """Whether that is certain, without a look at what it is rendered to."""
        return False

    def render(self, status: wire.Status) -> wire.RenderedItem:
        """Renders the item in its current state."""
        raise NotImplementedError

    def is_cut(self, last: bool) -> bool:
        """Whether the item is incomplete if the response is."""
        return last


ItemT = TypeVar("ItemT", bound=OutputItem)


class OutputWriter:
    """Writes the items of a response in order, each added once and closed once."""

    def __init__(self, events: EventWriter, ids: Ids, findings: Findings) -> None:
        self.events = events
        self.is_native = False
        """Whether the response came from this dialect, so that `extra` is understood."""
        self._ids = ids
        self._findings = findings
        self._items: list[OutputItem] = []
        self._next_index = 0
        """The output index of the next item."""
        self._announced = 0
        """How many items were announced."""
        self._reserved: dict[str, int] = {}
        """Output indexes, by id, of items that the client received and that have no part yet."""
        # An id is written once, even if two items of an upstream share it: clients key items by id.
        self.ids: set[str] = set()
        self.closable: list[OutputItem] = []
        """Items without open parts, which wait to be closed."""
        self._groups: dict[tuple[type[OutputItem], str], OutputItem] = {}

    def allocate(self, wanted_id: str | None, prefix: str) -> ItemSlot:
        """Returns the id and the index of a new item: the wanted id if it is free, and the next
        index unless one is reserved for that id.
        """
        # The id of the upstream is kept where possible, because the client sends it back with the
        # item.
        id = wanted_id if wanted_id and wanted_id not in self.ids else self._ids.mint(prefix)
        self.ids.add(id)
        index = self._next_index
        if self._reserved:
            index = self._reserved.pop(id, index)
        if index >= self._next_index:
            self._next_index = index + 1
        return ItemSlot(index, id)

    def item_extra(self, extra: Json) -> ItemExtra:
        """Returns what the decoder of this dialect stored in `extra`."""
        return decode_or_default(extra, ItemExtra) if self.is_native else ItemExtra()

    def item_fields(self, extra: Json) -> wire.Fields:
        """Returns the fields of the item in `extra`, without `type` and `id`."""
        return without_identity(self.item_extra(extra).item)

    def not_carried(self, what: str, why: str) -> None:
        self._findings.once("not-carried", f"{what} {why}", f"{what}: {why}")

    def register(self, item: OutputItem) -> None:
        """Registers a new item, and closes earlier ones that have no open parts."""
        if self.closable:
            self.close_ready()
        self._items.append(item)
        if item.group is not None:
            self._groups[item.__class__, item.group] = item

    def announce(self, item: OutputItem) -> None:
        """Announces an item and all before it, because clients count them."""
        # Waiting calls are registered before they are announced; the next item announces them too.
        if item.index < self._announced or self.events.discards:
            return
        for earlier in self._items:
            if self._announced <= earlier.index <= item.index:
                self._write_item("added", earlier, earlier.render("in_progress"))
        self._announced = item.index + 1

    def add(self, item: OutputItem) -> None:
        self.register(item)
        self.announce(item)

    def write_signature(self, envelope: str) -> None:
        """Writes the signature of the next call as encrypted content of the reasoning item before
        it, or of one made for it.
        """
        # The reasoning may still be open for more parts. If it has content of its own to carry, or
        # is closed, an empty one is made. It is `raw`, so that it is added with `content: []`, for
        # which a decoder waits instead of starting a part.
        last = self._items[-1] if self._items else None
        if (
            isinstance(last, ReasoningOutputItem)
            and last in self.closable
            and last.encrypted_content is None
        ):
            last.encrypted_content = envelope
            return
        item = ReasoningOutputItem(self.allocate(None, "rs"), ReasoningStart("", "raw"))
        self.add(item)
        item.encrypted_content = envelope
        self.close(item, "completed")

    def part_done(self, item: OutputItem) -> None:
        """Ends one part of an item, and closes the item after the last if its policy allows."""
        item.open -= 1
        if item.open:
            return
        policy = item.close_policy
        if policy is ClosePolicy.NEXT:
            self.closable.append(item)
        elif policy is ClosePolicy.NONE:
            self.close(item, "completed")
        # Else an invalid call, which stays open: the finish decides whether a limit cut it or the
        # model wrote it so.

    def close(self, item: OutputItem, status: wire.Status) -> None:
        item.done = self._write_item("done", item, item.render(status))

    def abandon(self, item: OutputItem) -> None:
        """Closes an item without `done`; the last snapshot shows what was received."""
        item.done = item.render("incomplete")

    def close_ready(self, *excluded: OutputItem) -> None:
        """Closes all items without open parts, except these."""
        closable, self.closable = self.closable, []
        for item in closable:
            if item in excluded:
                self.closable.append(item)
            else:
                self.close(item, "completed")

    def close_before(self, group: str | None) -> None:
        """Closes items without open parts before a part of this group; the last item stays open."""
        last = self._items[-1]
        if self.closable == [last]:
            return  # as after the last text of nearly every answer
        more = [item for item in self.closable if group is not None and item.group == group]
        self.close_ready(last, *more)

    def open_item(self, group: str | None, kind: type[ItemT]) -> ItemT | None:
        """Returns the open item that parts of this group belong to."""
        # A closed item is never opened again; a late part of its group starts an item with a new
        # id.
        item = self._groups.get((kind, group or "")) if self._groups else None
        if not isinstance(item, kind) or item.done is not None:
            return None
        if item in self.closable:
            self.closable.remove(item)
        return item

    def open_items(self) -> list[tuple[OutputItem, bool]]:
        """Returns the open items, and of each whether it is the last item of all."""
        items = self._items
        return [(item, item is items[-1]) for item in items if item.done is None]

    def closed_items(self) -> list[wire.RenderedItem]:
        """Returns the closed items in the order of their indexes."""
        items = self._items
        if len(items) > 1:
            # After passthrough, indexes follow the upstream's order, which may differ from ours.
            items = sorted(items, key=lambda item: item.index)
        return [item.done for item in items if item.done is not None]

    def resume(self, announced: dict[str, int], sent: SentEvents) -> None:
        """Continues after passthrough. Each item gets the index under which the client received it;
        indexes of items without a part stay reserved.
        """
        self._reserved = dict(announced)
        unnamed: list[OutputItem] = []
        for item in self._items:
            index = self._reserved.pop(item.id, None)
            if index is None:
                unnamed.append(item)
            else:
                item.index = index
        # Items that `write_signature` made have ids of our own, which the client saw differently.
        for item, id in zip(unnamed, list(self._reserved), strict=False):
            item.index = self._reserved.pop(id)
        # All that the client counts is announced; new items follow behind it.
        known = (*announced.values(), *(item.index for item in self._items))
        self._next_index = self._announced = max(known, default=-1) + 1
        for item in self._items:
            item.resume(sent)
            # Its `done` was passed on, so it must not come again.
            if item.done is None and ("response.output_item.done", *item.position) in sent:
                self.close(item, "completed")
        self.closable = [item for item in self.closable if item.done is None]

    def _write_item(
        self, what: str, item: OutputItem, rendered: wire.RenderedItem
    ) -> wire.RenderedItem:
        """Returns the item as it is kept for the last snapshot."""
        type, position = f"response.output_item.{what}", (item.index, -1)
        index = b'"output_index":%d,"item":' % item.index
        return self.events.write_value(
            type, position, index, value=rendered, short=item.has_no_long_string
        )


class MessageOutputItem(OutputItem):
    __slots__ = ("extra_fields", "parts", "phase")

    def __init__(self, slot: ItemSlot, part: TextStart) -> None:
        super().__init__(slot, part.item_id)
        self.phase = part.phase
        self.parts: list[wire.ResponsesPart | Raw] = []
        self.extra_fields: wire.Fields = {}
        """Fields that the decoder stored."""

    @property
    def has_no_long_string(self) -> bool:
        for part in self.parts:
            if part.__class__ is not Raw or len(part) > SLICE:
                return False
        return not self.extra_fields

    def render(self, status: wire.Status) -> wire.RenderedItem:
        message = wire.ResponseOutputMessage(self.id, status, self.parts, phase=self.phase or UNSET)
        return _with_fields(message, self.extra_fields) if self.extra_fields else message


class ReasoningOutputItem(OutputItem):
    __slots__ = ("begins_raw", "encrypted_content", "extra_fields", "parts")

    def __init__(self, slot: ItemSlot, part: ReasoningStart, kind: ReasoningKind = "raw") -> None:
        super().__init__(slot, part.item_id)
        self.parts: list[ReasoningPartWriter] = []
        self.encrypted_content: str | None = None
        self.begins_raw = kind == "raw"
        self.extra_fields: wire.Fields = {}

    def parts_of(self, kind: ReasoningKind) -> list[wire.ResponsesPart]:
        """Renders the parts of that kind so far."""
        matching = [part for part in self.parts if part.part_type is REASONING_PART_TYPES[kind]]
        return [part.render() for part in matching if part.index is not None]

    def render(self, status: wire.Status) -> wire.RenderedItem:
        """Renders the item. One that begins with raw reasoning is added with an empty `content`."""
        content = self.parts_of("raw")
        # This is how a client knows at `added` that raw reasoning follows. Afterwards the key is
        # left out rather than null, which the schema of the specification rejects.
        has_content = content or (self.begins_raw and status == "in_progress")
        reasoning = wire.ResponseReasoningItem(
            self.id,
            status,
            self.parts_of("summary"),
            content if has_content else UNSET,
            self.encrypted_content or UNSET,
        )
        return _with_fields(reasoning, self.extra_fields) if self.extra_fields else reasoning

    def resume(self, sent: SentEvents) -> None:
        """Continues after passthrough, where the client received each part as the kind it is, also
        empty ones.
        """
        # We would have written raw reasoning as a summary and left empty parts out.
        for kind, part_type in REASONING_PART_TYPES.items():
            parts = [part for part in self.parts if part.start.kind == kind]
            for index, part in enumerate(parts):
                part.part_type = part_type
                known = (part_type.part_event + ".added", self.index, index) in sent
                part.set_index(index if known or part.index is not None else None)
        if self.done is not None:
            self.done = self.render("completed")


def _with_fields(
    item: wire.ResponseOutputMessage | wire.ResponseReasoningItem, fields: wire.Fields
) -> wire.RenderedItem:
    """Returns the item with the fields that the decoder stored."""
    # Later keys win, so a status that the upstream gave stays.
    return {**(wire.parse_object(_json(item)) or {}), **fields}


class FixedOutputItem(OutputItem):
    """An item that is closed as soon as it is announced."""

    __slots__ = ("raw",)

    def __init__(self, slot: ItemSlot, raw: Raw) -> None:
        super().__init__(slot)
        self.raw = raw

    def render(self, status: wire.Status) -> wire.RenderedItem:
        return self.raw


_NO_LOGPROBS = Raw(b"[]")
_TEXT_DELTA = "response.output_text.delta"
_TEXT_DELTA_HEAD = b'{"type":"response.output_text.delta",%b,"logprobs":[],"delta":'


class TextPartWriter:
    """A text part that is being written."""

    __slots__ = (
        "annotations", "delta_prefix", "index", "item", "locator", "logprobs", "position", "refusal"
    )  # fmt: skip

    def __init__(self, item: MessageOutputItem, refusal: bool) -> None:
        self.item = item
        self.index = len(item.parts)
        self.refusal = refusal
        self.annotations: list[Raw] = []
        self.logprobs = _NO_LOGPROBS
        self.update_locator()

    def update_locator(self) -> None:
        """Updates what depends on the item's index."""
        self.position = (self.item.index, self.index)
        self.locator = locator = self.item.locator + b',"content_index":%d' % self.index
        if self.refusal:
            self.delta_prefix = delta_prefix("response.refusal.delta", locator)
        else:
            # The official client requires `logprobs` in every text delta; the specification only
            # allows it.
            self.delta_prefix = DeltaPrefix(_TEXT_DELTA, _TEXT_DELTA_HEAD % locator)

    @property
    def is_plain(self) -> bool:
        """Whether the part has nothing but its text."""
        return not self.annotations and self.logprobs is _NO_LOGPROBS

    def render(self, text: str) -> wire.ResponsesPart:
        if self.refusal:
            return wire.ResponsesPart("refusal", refusal=text)
        # `annotations` is required in a text, and null is not allowed for `logprobs`.
        return wire.ResponsesPart(
            "output_text", text, annotations=self.annotations, logprobs=self.logprobs
        )


class ReasoningPartType(NamedTuple):
    """How a kind of reasoning is written."""

    type: str
    index_key: bytes
    text_event: str
    part_event: str


REASONING_PART_TYPES: dict[ReasoningKind, ReasoningPartType] = {
    # Both kinds have part events around their text events; the names follow no common pattern.
    "summary": ReasoningPartType(
        "summary_text",
        b"summary_index",
        "response.reasoning_summary_text",
        "response.reasoning_summary_part",
    ),
    "raw": ReasoningPartType("reasoning_text", b"content_index", RAW_TEXT, "response.content_part"),
}


class ReasoningPartWriter:
    """A reasoning part that is being written. It is added with its first delta."""

    __slots__ = ("delta_prefix", "index", "item", "locator", "part_type", "start", "text")

    def __init__(
        self, item: ReasoningOutputItem, start: ReasoningStart, kind: ReasoningKind
    ) -> None:
        self.item = item
        self.start = start
        self.part_type = REASONING_PART_TYPES[kind]
        self.text = ""
        """The full text, once it has ended."""
        # None until the first delta: an empty part is not written, and must not take an index.
        self.index: int | None = None
        self.locator = b""
        self.delta_prefix = DeltaPrefix("", b"")
        item.parts.append(self)

    def render(self) -> wire.ResponsesPart:
        return wire.ResponsesPart(self.part_type.type, self.text)

    @property
    def position(self) -> tuple[int, int]:
        return (self.item.index, -1 if self.index is None else self.index)

    def assign_index(self) -> None:
        same_type = [part for part in self.item.parts if part.part_type is self.part_type]
        self.set_index(sum(part.index is not None for part in same_type))

    def set_index(self, index: int | None) -> None:
        """Sets its index among the parts of its kind; None if it has none yet."""
        self.index = index
        if index is not None:
            self.locator = self.item.locator + b',"%b":%d' % (self.part_type.index_key, index)
            self.delta_prefix = delta_prefix(self.part_type.text_event + ".delta", self.locator)
