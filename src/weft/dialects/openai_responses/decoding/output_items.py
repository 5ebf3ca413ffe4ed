"""The output items of one response: which item an event speaks of, and who reads it.

- An item is known by its `output_index`; the first id seen is its id for good, later ones may
  rotate. Without an index the `item_id` serves.
- Every type of item, and every event that speaks of one, has a row in a table. Items that have
  no parts of their own, and items that nobody knows, are opaque.
- What was never announced is opened by its first event, or by its `done`. What was never done is
  completed by the terminal snapshot, if that tells the same item.
"""

from collections.abc import Iterator
from itertools import chain

from msgspec import Raw

from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.decoding import (
    client_calls,
    hosted_calls,
    mcp,
    messages,
    reasoning,
    shell_calls,
    streamed_calls,
)
from weft.dialects.openai_responses.decoding.item import Announced, Item, Stage
from weft.dialects.openai_responses.decoding.state import Handler, Reading, Row
from weft.dialects.openai_responses.wire import NAME
from weft.parts import Opaque, Part


class Outputs:
    """Knows the items of one response."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._findings = reading.findings
        self._items: dict[int | str, Item] = {}
        self._by_id: dict[str, Item] = {}
        self._replaced: list[Item] = []
        """Items whose index another one took."""
        self._open: set[Item] = set()
        """Items that are not done."""

    def __bool__(self) -> bool:
        return bool(self._items)

    def __iter__(self) -> Iterator[Item]:
        return chain(self._replaced, self._items.values())

    @property
    def holding(self) -> bool:
        """Whether something that was said has not come out as parts, and would later."""
        return self._reading.holding or any(item.holding for item in self._open)

    # Which item

    def spoken_of(self, event: wire.Event) -> Item:
        """The item that an event speaks of, begun if it was not."""
        index = event.output_index
        item = None if index is None else self._items.get(index)
        if item is None:
            item = self._found(event, event.item_id)
        elif event.item_id != item.id:
            self._check_id(item, event.item_id)
        if item.stage is Stage.UNSEEN:
            item.stage = Stage.ADDED
            detail = f"{event.type} for item {item.id!r}, which was not added"
            self._findings.once("start-missing", item.id, detail)
        return item

    def _found(self, event: wire.Event, id: str | None) -> Item:
        """The item of an event without an index, or a new one."""
        index = event.output_index
        item = self._by_id.get(id or "") if index is None else None
        if item is None:
            item = Item(id or self._reading.context.ids.mint("item"), minted=not id)
            self._check_place(event, item)
            self._open.add(item)
            self._by_id.setdefault(id or "", item)
            self._items[id or "" if index is None else index] = item
        return item

    def _check_place(self, event: wire.Event, item: Item) -> None:
        """Items are counted from 0 in the order in which they begin, each with an id of its own."""
        index, next = event.output_index, len(self._items)
        if not item.minted and item.id in self._by_id:
            self._findings.once("item-id-contradicted", "", f"two items are {item.id!r}")
        if index is None:
            self._findings.once("index-missing", "", f"no output_index for {item.id!r}")
        elif index != next:
            detail = f"item {item.id!r} is at output_index {index}: {next} was expected"
            self._findings.note("index-disordered", detail)

    def _check_id(self, item: Item, id: str | None) -> None:
        """An item keeps its id; later ones may rotate (capture: ids-rotate)."""
        if id is not None and id != item.id and not item.minted:
            self._findings.once("item-id-contradicted", "", f"item {item.id!r} is now {id!r}")

    def _check_call_id(self, item: Item, read: wire.Item) -> None:
        """A call keeps its id from `added` to `done`; official clients refuse another (capture:
        tool-searches).
        """
        if item.announced is None or item.stage is Stage.DONE:
            return
        before, now = item.announced.read.call_id, read.call_id
        if before != now:
            detail = f"item {item.id!r} was added with call_id {before!r}, and is done with {now!r}"
            self._findings.once("call-id-changed" if before else "call-id-late", item.id, detail)

    def _told(
        self, event: wire.Event, read: wire.Item, out: list[Part], *, begins: bool = False
    ) -> Item:
        """The item that is told of; what it is may decide about the one before it."""
        if self._reading.pending is not None:
            shell_calls.settle(self._reading, read, out)
        index = event.output_index
        item = None if index is None else self._items.get(index)
        if item is not None and index is not None and _is_another(item, read, begins):
            self._findings.note("call-index-reused", f"another item began at index {index}")
            self._replaced.append(self._items.pop(index))
            item = None
        item = item or self._found(event, event.item_id or read.id)
        if item.minted and read.id and not item.said and item.call is None:
            item.id, item.minted = read.id, False
        if item.minted and not read.id:
            self._findings.once("item-id-missing", item.id, f"item {item.id!r} came without an id")
        self._check_id(item, event.item_id)
        self._check_id(item, read.id)
        return item

    # Added and done

    def added(self, event: wire.Event, out: list[Part]) -> None:
        read = self._reading.salvage.item(event.item, wire.Item)
        item = self._told(event, read, out, begins=True)
        if item.stage is Stage.DONE or (item.stage is Stage.ADDED and item.type is not None):
            self._findings.once("start-repeated", item.id, f"item {item.id!r} was added before")
        row = _row(item, read)
        if item.stage is not Stage.DONE:
            item.stage = Stage.ADDED
            if isinstance(event.item, Raw):
                item.announced = item.announced or Announced(read, event.item)
                if row is not None:
                    row.added(self._reading, item, read, event.item, out)

    def done(self, event: wire.Event, out: list[Part]) -> None:
        raw = event.item if isinstance(event.item, Raw) else Raw(b"{}")
        if not bytes(raw).startswith(b"{"):
            self._findings.once("event-unknown", "item", "an item that is no object: ignored")
            return
        read = self._reading.salvage.item(raw, wire.Item)
        item = self._told(event, read, out)
        if item.stage is Stage.UNSEEN:
            self._findings.once("start-missing", item.id, f"item {item.id!r} was never added")
        self._check_call_id(item, read)
        self._take(item, read, raw, out)

    def _take(self, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
        """Reads an item that is done; a second time it is not read."""
        row = _row(item, read)
        if item.stage is Stage.DONE:
            self._findings.once("end-repeated", item.id, f"item {item.id!r} was done before")
            return
        if row is None:
            type = item.type or "unknown"
            self._findings.once("event-unknown", f"item {type}", f"item {type!r}: kept as it is")
            out.append(Opaque(NAME, type, wire.one_line(raw)))
        else:
            row.done(self._reading, item, read, raw, out)
        self._close(item, out, whole=True)
        item.stage = Stage.DONE
        self._open.discard(item)

    # Items that come at once, or never come to their end

    def take_all(self, output: list[Raw], out: list[Part]) -> None:
        """Reads items that came at once."""
        for index, raw in enumerate(output):
            read = self._reading.salvage.item(raw, wire.Item)
            item = self._told(wire.Event(output_index=index), read, out)
            self._take(item, read, raw, out)

    def complete(self, output: list[Raw], out: list[Part]) -> None:
        """Items that were never done are done by the terminal snapshot; a stream without items
        has all of them there.
        """
        if output and not self._items:
            self._findings.note("start-missing", "items come only with the terminal event")
            self.take_all(output, out)
        for index, raw in enumerate(output if self._open else ()):
            read = self._reading.salvage.item(raw, wire.Item)
            item = self._by_id.get(read.id) if read.id else None
            item = item or self._items.get(index)
            if item is not None and item.stage is not Stage.DONE and item.type == read.type:
                self._findings.note("end-missing", f"item {item.id!r} was never done")
                self._take(item, read, raw, out)

    def leave(self, out: list[Part]) -> None:
        """Ends the calls that nothing more is told of."""
        shell_calls.settle(self._reading, None, out)
        for item in self:
            if item.stage is not Stage.DONE:
                self._reading.leave(item, out)

    def close(self, out: list[Part], *, whole: bool) -> None:
        """Ends texts and thoughts that were never ended, with all that is known of them."""
        for item in self:
            before = len(out)
            silent = item in self._open and not item.said and item.call is None
            if whole and silent:
                self._end_as_announced(item, out)
            self._close(item, out, whole=whole)
            if whole and (len(out) > before or silent):
                self._findings.note("end-missing", f"item {item.id!r} was never done")

    def _end_as_announced(self, item: Item, out: list[Part]) -> None:
        """Nothing came of an item, and clients wait for its end (capture: item-that-says-nothing).
        Of a call or a result nobody was told.
        """
        if item.announced is not None and not item.untellable:
            read, raw = item.announced
            told = wire.fields(raw)
            told.pop("status", None)
            self._take(item, read, wire.written(told), out)

    def _close(self, item: Item, out: list[Part], *, whole: bool) -> None:
        if item.said:
            messages.close_all(self._reading, item, out, whole=whole)
            reasoning.close_all(self._reading, item, out, whole=whole)


def _row(item: Item, read: wire.Item) -> Row | None:
    """How an item is read. What it says corrects a type that nobody knows."""
    if item.type not in ITEMS:
        item.type = read.type or item.type
    if not item.said:
        item.phase = read.phase or item.phase
    item.name = item.name or read.name or ""
    if item.type not in ITEMS and item.said:
        kind, _ = next(iter(item.said))
        item.type = "message" if kind in (messages.TEXT, messages.REFUSAL) else "reasoning"
    row = ITEMS.get(item.type or "")
    item.untellable = row is not None and not row.inert
    return row


def _is_another(item: Item, read: wire.Item, begins: bool) -> bool:
    """Whether this is not the item that stood at its index so far: it has another type; or the
    one before it is done, and this one begins under another id, or is another call.
    """
    if item.type not in ITEMS or read.type not in ITEMS:
        return False
    if item.type != read.type:
        return True
    if item.stage is not Stage.DONE or item.type == "tool_search_call":
        return False
    if begins and read.id is not None and read.id != item.id:
        return True
    return item.key is not None and bool(read.call_id) and read.call_id != item.key


def _opaque(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    """An item that has no parts of its own: it goes back as it came."""
    out.append(Opaque(NAME, item.type or "", wire.one_line(raw)))


def _part_added(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    _part(event, messages.part_added, reasoning.raw_added)(reading, item, event, out)


def _part_done(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    _part(event, messages.part_done, reasoning.raw_part_done)(reading, item, event, out)


def _part(event: wire.Event, text: Handler, thought: Handler) -> Handler:
    type = event.part.type if event.part else None
    return thought if type == "reasoning_text" else text


_REPLAYED = ("compaction", "mcp_list_tools", "additional_tools")
_REPLAYED_ANSWERS = (
    "function_call_output",
    "custom_tool_call_output",
    "computer_call_output",
    "apply_patch_call_output",
    "local_shell_call_output",
    "mcp_approval_response",
)

ITEMS: dict[str, Row] = {
    **messages.ITEMS,
    **reasoning.ITEMS,
    **client_calls.ITEMS,
    **streamed_calls.ITEMS,
    **hosted_calls.ITEMS,
    **shell_calls.ITEMS,
    **mcp.ITEMS,
    **dict.fromkeys(_REPLAYED, Row(_opaque, inert=True)),
    **dict.fromkeys(_REPLAYED_ANSWERS, Row(_opaque)),
}
"""Every type of item that is known, and how it is read."""

SPOKEN: dict[str, Handler] = {
    **messages.EVENTS,
    **client_calls.EVENTS,
    **reasoning.EVENTS,
    **streamed_calls.EVENTS,
    **hosted_calls.EVENTS,
    **shell_calls.EVENTS,
    **mcp.EVENTS,
    "response.content_part.added": _part_added,
    "response.content_part.done": _part_done,
}
"""Every event that speaks of an item, and how it is read."""
