"""The output items of one response: which item an event is about, and who handles it.

- An item is identified by its `output_index`, or else by its `item_id`. The first id is kept; later
  events may carry other ids.
- `ITEMS` has a row for each item type, and `ITEM_EVENTS` for each event about an item. Items
  without parts of their own and items of unknown type become opaque parts.
- An item that was never added starts with its first event, or with its `done`. An item that was
  never done is completed from the terminal snapshot.
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
from weft.dialects.openai_responses.decoding.item import AddedItem, DecodedItem, ItemStage
from weft.dialects.openai_responses.decoding.state import DecoderState, EventHandler, ItemHandlers
from weft.dialects.openai_responses.wire import NAME, ResponsesEvent, ResponsesItem
from weft.dialects.raw_json import copy_raw
from weft.parts import Opaque


class OutputItems:
    """Tracks the items of one response."""

    def __init__(self, state: DecoderState) -> None:
        self._state = state
        self._findings = state.findings
        # By index; items without one by their id. The two never mix: an index is an int.
        self._items: dict[int | str, DecodedItem] = {}
        self._by_id: dict[str, DecodedItem] = {}
        self._replaced: list[DecodedItem] = []
        """Items whose index was reused by another one."""
        # Apart from the rest, so that `holding`, which is asked after every frame, looks at a few
        # items only.
        self._open: set[DecodedItem] = set()
        """Items that are not done."""

    def __bool__(self) -> bool:
        return bool(self._items)

    def __iter__(self) -> Iterator[DecodedItem]:
        return chain(self._replaced, self._items.values())

    @property
    def holding(self) -> bool:
        """Whether some events are not yet emitted as parts, and still may be."""
        return self._state.holding or any(item.holding for item in self._open)

    # Finding the item

    def item_for_event(self, event: ResponsesEvent) -> DecodedItem:
        """Returns the item that an event is about, and starts it if necessary."""
        # Every delta of a stream comes here: one lookup, if nothing is odd.
        index = event.output_index
        item = None if index is None else self._items.get(index)
        if item is None:
            item = self._find_or_create(event, event.item_id)
        # Some hosts give an item another id in every event, so the index comes first, and the first
        # id stays.
        # capture: ids-rotate
        elif event.item_id != item.id:
            self._check_id(item, event.item_id)
        # The specification wants `output_item.added` before anything else of an item. Without it
        # the first delta has to do, and what kind of item it is follows from the event.
        # capture: deltas-without-added
        if item.stage is ItemStage.UNSEEN:
            item.stage = ItemStage.ADDED
            detail = f"{event.type} for item {item.id!r}, which was not added"
            self._findings.once("start-missing", item.id, detail)
        return item

    def _find_or_create(self, event: ResponsesEvent, id: str | None) -> DecodedItem:
        """Returns the item with that id, if the event has no index, or a new one."""
        index = event.output_index
        # Old gateways send no `output_index`. With an index, an equal id is no reason to merge two
        # items.
        # capture: no-indexes
        item = self._by_id.get(id or "") if index is None else None
        if item is None:
            item = DecodedItem(id or self._state.context.ids.mint("item"), id_minted=not id)
            if id and id in self._by_id:
                self._findings.once("item-id-contradicted", "", f"two items have the id {id!r}")
            if index is None:
                self._findings.once("index-missing", "", f"no output_index for {item.id!r}")
            # Indexes count all items from 0, of whatever type. Others still identify their item.
            # capture: indexes-with-gaps
            elif index != len(self._items):
                detail = f"item {item.id!r} is at output_index {index}, expected {len(self._items)}"
                self._findings.note("index-disordered", detail)
            self._open.add(item)
            self._by_id.setdefault(id or "", item)
            self._items[id or "" if index is None else index] = item
        return item

    def _check_id(self, item: DecodedItem, id: str | None) -> None:
        """Reports an item id that changed."""
        # An id of our own was never on the wire, so nothing contradicts it.
        # capture: ids-rotate
        if id is not None and id != item.id and not item.id_minted:
            self._findings.once(
                "item-id-contradicted", "", f"the id of item {item.id!r} changed to {id!r}"
            )

    def _resolve(
        self, event: ResponsesEvent, wire_item: ResponsesItem, *, is_added: bool = False
    ) -> DecodedItem:
        """Returns the item of an `added` or `done` event, after it decided about a pending shell
        call.
        """
        # A shell call waits for exactly one item: only its output, directly behind it, makes it
        # hosted.
        if self._state.pending_shell is not None:
            shell_calls.resolve_pending(self._state, wire_item)
        index = event.output_index
        item = None if index is None else self._items.get(index)
        # A host that writes `output_index: 0` everywhere. The old item stays in the list, so that
        # it is ended with the response.
        # capture: index-zero-for-every-item
        if item is not None and index is not None and _is_other_item(item, wire_item, is_added):
            self._findings.note("call-index-reused", f"another item began at index {index}")
            self._replaced.append(self._items.pop(index))
            item = None
        item = item or self._find_or_create(event, event.item_id or wire_item.id)
        # Events may come before `added` without any id. Its id is still ours to choose as long as
        # no part carries the one that was made up.
        if item.id_minted and wire_item.id and not item.parts and item.call is None:
            item.id, item.id_minted = wire_item.id, False
        # Some hosts send no item ids at all; ours stand in for them, in every part of the item.
        # capture: item-without-an-id
        if item.id_minted and not wire_item.id:
            self._findings.once(
                "item-id-missing", item.id, f"item {item.id!r} has no id on the wire"
            )
        self._check_id(item, event.item_id)
        self._check_id(item, wire_item.id)
        return item

    # Added and done

    def added(self, event: ResponsesEvent) -> None:
        wire_item = self._state.salvage.item(event.item, ResponsesItem)
        item = self._resolve(event, wire_item, is_added=True)
        if item.stage is ItemStage.DONE or (
            item.stage is ItemStage.ADDED and item.type is not None
        ):
            # The second `added`, here even with another id, opens nothing: its events go to the
            # first item.
            # capture: item-added-twice
            self._findings.once("start-repeated", item.id, f"item {item.id!r} was added before")
        handlers = _handlers_of(item, wire_item)
        if item.stage is not ItemStage.DONE:
            item.stage = ItemStage.ADDED
            if isinstance(event.item, Raw):
                # The first one is kept for an item that nothing else is ever said about.
                item.added = item.added or AddedItem(wire_item, event.item)
                if handlers is not None:
                    handlers.added(self._state, item, wire_item, event.item)

    def done(self, event: ResponsesEvent) -> None:
        raw = event.item if isinstance(event.item, Raw) else Raw(b"{}")
        if not self._is_object(raw):
            return
        wire_item = self._state.salvage.item(raw, ResponsesItem)
        item = self._resolve(event, wire_item)
        if item.stage is ItemStage.UNSEEN:
            # The item is complete at once: start, delta and end come together.
            # capture: done-without-added
            self._findings.once("start-missing", item.id, f"item {item.id!r} was never added")
        added = item.added.wire_item if item.added else wire_item
        # The official client rejects a call id that differs between `added` and `done`. The API
        # itself changes that of a client's tool search.
        # capture: call-id-only-at-the-end, tool-searches
        if added.call_id != wire_item.call_id and item.stage is not ItemStage.DONE:
            detail = f"item {item.id!r} was added with call_id {added.call_id!r}"
            detail += f", and is done with {wire_item.call_id!r}"
            self._findings.once(
                "call-id-changed" if added.call_id else "call-id-late", item.id, detail
            )
        self._finish_item(item, wire_item, raw)

    def _finish_item(self, item: DecodedItem, wire_item: ResponsesItem, raw: Raw) -> None:
        """Emits the parts of an item that is done, once."""
        handlers = _handlers_of(item, wire_item)
        if item.stage is ItemStage.DONE:
            # capture: item-added-twice
            self._findings.once("end-repeated", item.id, f"item {item.id!r} was done before")
            return
        # The type may be newer than this decoder, or an extension: it is kept as it came, so that a
        # client of this dialect gets it and can send it back.
        # capture: unknown-item-event-and-part
        if handlers is None:
            type = item.type or "unknown"
            self._findings.once(
                "event-unknown", f"item {type}", f"item type {type!r}: passed through"
            )
            self._state.out.append(Opaque(NAME, type, copy_raw(raw)))
        else:
            handlers.done(self._state, item, wire_item, raw)
        self._end_item_parts(item, whole=True)
        item.stage = ItemStage.DONE
        self._open.discard(item)

    # Items that arrive at once, or are never done

    def read_all(self, output: list[Raw]) -> None:
        """Decodes items that arrive all at once."""
        # Only `done` runs, with the item still UNSEEN: its handlers emit whole texts as one delta.
        for index, raw in enumerate(filter(self._is_object, output)):
            wire_item = self._state.salvage.item(raw, ResponsesItem)
            item = self._resolve(ResponsesEvent(output_index=index), wire_item)
            self._finish_item(item, wire_item, raw)

    def _is_object(self, raw: Raw) -> bool:
        is_object = bytes(memoryview(raw)[:1]) == b"{"
        if not is_object:
            self._findings.once("event-unknown", "item", "an item that is not an object: ignored")
        return is_object

    def complete_from_snapshot(self, output: list[Raw]) -> None:
        """Finishes items that were never done from the terminal snapshot. A stream without items
        has all of them there.
        """
        # Some hosts stream nothing but the snapshots.
        # capture: items-only-in-the-terminal-event
        if output and not self._items:
            self._findings.note("start-missing", "all items came with the terminal event")
            self.read_all(output)
        for index, raw in enumerate(output if self._open else ()):
            wire_item = self._state.salvage.item(raw, ResponsesItem)
            # By id first: some hosts build this output anew, in another order or with fewer items.
            item = self._by_id.get(wire_item.id) if wire_item.id else None
            item = item or self._items.get(index)
            # The host sent the deltas and no `output_item.done`. The snapshot has the final status
            # and arguments.
            # capture: items-never-done
            if (
                item is not None
                and item.stage is not ItemStage.DONE
                and item.type == wire_item.type
            ):
                self._findings.note("end-missing", f"item {item.id!r} was never done")
                self._finish_item(item, wire_item, raw)

    def end_calls(self) -> None:
        """Ends calls whose item will never be done."""
        shell_calls.resolve_pending(self._state, None)
        for item in self:
            if item.stage is not ItemStage.DONE:
                # capture: items-never-done
                self._state.complete_undone_call(item)

    def end_parts(self, *, whole: bool) -> None:
        """Ends texts and reasoning that were never done, with their full value if the response
        completed.
        """
        for item in self:
            before = len(self._state.out)
            no_parts = item in self._open and not item.parts and item.call is None
            # Clients wait for the end of an item without events: it is done as it was added, except
            # for the status `in_progress`. A call or a result was never announced.
            # capture: item-that-says-nothing, items-that-say-nothing
            if whole and no_parts and item.added is not None and not item.needs_parts:
                wire_item, raw = item.added
                fields = wire.object_fields(raw)
                fields.pop("status", None)
                self._finish_item(item, wire_item, wire.raw_object(fields))
            self._end_item_parts(item, whole=whole)
            if whole and (len(self._state.out) > before or no_parts):
                self._findings.note("end-missing", f"item {item.id!r} was never done")

    def _end_item_parts(self, item: DecodedItem, *, whole: bool) -> None:
        if item.parts:
            messages.end_texts(self._state, item, whole=whole)
            reasoning.end_reasoning(self._state, item, whole=whole)


def _handlers_of(item: DecodedItem, wire_item: ResponsesItem) -> ItemHandlers | None:
    """Returns the handlers of an item, or None for an unknown type. The type at `done` replaces an
    unknown one.
    """
    if item.type not in ITEMS:
        item.type = wire_item.type or item.type
    if not item.parts:
        item.phase = wire_item.phase or item.phase
    item.name = item.name or wire_item.name or ""
    # Text or reasoning that came before the item, or for an item without a usable type, decides it.
    if item.type not in ITEMS and item.parts:
        kind, _ = next(iter(item.parts))
        item.type = "message" if kind in (messages.TEXT, messages.REFUSAL) else "reasoning"
    handlers = ITEMS.get(item.type or "")
    item.needs_parts = handlers is not None and not handlers.announceable
    return handlers


def _is_other_item(item: DecodedItem, wire_item: ResponsesItem, is_added: bool) -> bool:
    """Whether this is another item than the one at its index: it has another type, or the old one
    is done and this one has another id or call id.
    """
    # A type that is missing or unknown contradicts nothing.
    if item.type not in ITEMS or wire_item.type not in ITEMS:
        return False
    if item.type != wire_item.type:
        return True
    # Until it is done, whatever comes at its index is the same item. Another call id proves nothing
    # for a tool search, which changes it.
    # capture: tool-searches
    if item.stage is not ItemStage.DONE or item.type == "tool_search_call":
        return False
    if is_added and wire_item.id is not None and wire_item.id != item.id:
        return True
    return (
        item.wire_call_id is not None
        and bool(wire_item.call_id)
        and wire_item.call_id != item.wire_call_id
    )


def _opaque_done(
    state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw
) -> None:
    """Passes an item through as an opaque part."""
    state.out.append(Opaque(NAME, item.type or "", copy_raw(raw)))


def _by_part_type(text: EventHandler, raw_reasoning: EventHandler) -> EventHandler:
    """Returns a handler of content parts, which are of a message or of a reasoning item."""

    def handle(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
        is_reasoning = event.part is not None and event.part.type == "reasoning_text"
        (raw_reasoning if is_reasoning else text)(state, item, event)

    return handle


# State for the provider, to be sent back unchanged. `compaction` is read when it is done: what it
# has at `added` is provisional and much shorter.
_OPAQUE_ITEMS = ("compaction", "mcp_list_tools", "additional_tools")
# Answers of the client, which the API lists among the output items.
_OPAQUE_RESULTS = (
    "function_call_output",
    "custom_tool_call_output",
    "computer_call_output",
    "apply_patch_call_output",
    "local_shell_call_output",
    "mcp_approval_response",
)

ITEMS: dict[str, ItemHandlers] = {
    **messages.ITEMS,
    **reasoning.ITEMS,
    **client_calls.ITEMS,
    **streamed_calls.ITEMS,
    **hosted_calls.ITEMS,
    **shell_calls.ITEMS,
    **mcp.ITEMS,
    **dict.fromkeys(_OPAQUE_ITEMS, ItemHandlers(_opaque_done, announceable=True)),
    **dict.fromkeys(_OPAQUE_RESULTS, ItemHandlers(_opaque_done)),
}
"""Handlers by item type."""

ITEM_EVENTS: dict[str, EventHandler] = {
    **messages.EVENTS,
    **client_calls.EVENTS,
    **reasoning.EVENTS,
    **streamed_calls.EVENTS,
    **hosted_calls.EVENTS,
    **shell_calls.EVENTS,
    **mcp.EVENTS,
    "response.content_part.added": _by_part_type(messages.part_added, reasoning.raw_part_added),
    "response.content_part.done": _by_part_type(messages.part_done, reasoning.raw_part_done),
}
"""Handlers of the events about an item."""
