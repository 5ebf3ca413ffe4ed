"""Writes calls and their results.

Clients take another `output_index` for another call, so client calls are written one at a time,
even if the upstream interleaves them:

- A call that starts while no other is open is announced and written as it arrives.
- A call that starts while another is open waits, with its announcement, until that one is complete.
  Params are complete when they are one JSON value; free text, and text that is not JSON, when the
  call ends. Calls that come one after the other never wait, although some dialects announce the end
  of all calls only at the very end.
- When its turn comes, what was received of a waiting call is written in one delta.
- The end of a call that was complete before also waits until the open call is complete.
- Params after their JSON value was complete (a blank, for example) are written at the end.

Other items keep their order: one that starts meanwhile is announced after the waiting calls. Calls
that the provider executes never wait.
"""

from collections import deque
from collections.abc import Sequence

from weft.dialects.delta_templates import EventTemplate
from weft.dialects.envelope import wrap_call_signature
from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.encoding.call_items import CallItem, CallPhase, CallResultItem
from weft.dialects.openai_responses.encoding.call_kinds import (
    CALL_KINDS,
    CLIENT_CALL_KINDS,
    CUSTOM,
    FUNCTION,
    RESULT_ITEMS,
    CallKind,
    provider_call_kind,
)
from weft.dialects.openai_responses.encoding.events import (
    DeltaPrefix,
    EventWriter,
    NumberedTemplate,
)
from weft.dialects.openai_responses.encoding.items import OutputWriter
from weft.dialects.openai_responses.extra import without_identity
from weft.dialects.openai_responses.wire import Fields
from weft.dialects.raw_json import decode_or_default
from weft.dialects.replay import JoinedTexts
from weft.parts import (
    Part,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
)
from weft.sse import Event


class _CallTemplate(NumberedTemplate):
    """A delta event of a call, which counts what it was sent."""

    __slots__ = ("_item",)

    def __init__(self, writer: EventWriter, prefix: DeltaPrefix, item: CallItem) -> None:
        super().__init__(writer, prefix)
        self._item = item

    @property
    def format(self) -> bytes | None:
        return None  # `fill` has to count

    def fill(self, pieces: Sequence[bytes], length: int) -> list[Event]:
        self._item.received += length
        self._item.written = self._item.received
        return super().fill(pieces, length)


class CallWriter:
    """Writes the calls of one response, and their results."""

    def __init__(self, items: OutputWriter, fold: JoinedTexts, model: str | None) -> None:
        """`model` is that of the response."""
        self._items = items
        self._fold = fold
        self._model = model
        # None, and not absent: the parts of a call without an item still come, and must find
        # nothing to write.
        self._calls: dict[str, CallItem | None] = {}
        """Announced calls; None for one that has no item here."""
        self._outputs: dict[str, CallResultItem] = {}
        """Results that are items of their own, by call id."""
        self._current: CallItem | None = None
        self._waiting: deque[CallItem] = deque()
        self._held_endings: list[CallItem] = []
        """Complete calls whose end is held until the current call is complete."""
        self._signed: set[str] = set()
        """Calls whose signature was written."""
        self.deferred: CallItem | None = None
        """An item whose `added` waits for the next part, which may contain more of its fields."""
        self.pending: list[wire.RequiredCall] = []
        """What the client must do: execute calls, and answer approval requests."""
        self.is_cut = False
        """Whether a call was cut off, which makes the response incomplete."""
        self._failed = False
        """Whether an error ended the content."""

    def _create_item(self, part: ToolParamsStart | ToolCall) -> CallItem | None:
        """Creates the item of a call; `_announce_item` writes it. Returns None if there is no item
        type for the call.
        """
        kind: CallKind | None
        loss: str | None = None
        if not part.provider_executed:
            # A client tool of another dialect, whatever its kind, is a function to a client of this
            # one.
            kind = CALL_KINDS[part.kind] if part.kind in CLIENT_CALL_KINDS else FUNCTION
            kind = CUSTOM if part.format == "text" else kind
        else:
            kind = provider_call_kind(part.kind, part.name)
            if kind is None or (kind in (FUNCTION, CUSTOM) and not self._items.is_native):
                # A client would execute a function call again.
                kind, loss = None, f"no item type for provider-executed {part.kind}"
            elif kind in (FUNCTION, CUSTOM):
                loss = "the item does not say that the provider executed it"
            else:
                loss = kind.loss
        if loss is not None:
            self._items.not_carried("tool-call", loss)
        self._calls[part.id] = item = None
        if kind is not None:
            # Before the call is registered: the signature belongs into the item in front of it.
            envelope = None if part.provider_executed else wrap_call_signature(part, self._model)
            if envelope is not None:
                self._signed.add(part.id)
                self._items.write_signature(envelope)
            slot = self._items.allocate(part.item_id, kind.id_prefix)
            item = CallItem(slot, part, kind, self._items.item_fields(part.extra))
            self._calls[part.id] = item
            self._items.register(item)
        return item

    def params_start(self, part: ToolParamsStart) -> None:
        item = self._create_item(part)
        if item is None:
            return
        if not part.provider_executed:
            # The upstream sends the deltas of several calls in turns.
            # capture: calls-in-turns
            if self._is_busy():
                item.phase = CallPhase.WAITING
                self._waiting.append(item)
                return
            self._set_current(item)
        # `added` should have the container of the code, or the path of the patch; they are in the
        # first delta.
        if item.extractor is not None:
            self.deferred = item
        else:
            self._announce_item(item, "")

    def announce_deferred(self, item: CallItem, part: Part) -> None:
        """Announces the deferred item, with the fields in the first params if they come next."""
        self.deferred = None
        match part:
            case ToolParamsDelta(id=call_id, delta=delta) if call_id == item.call_id:
                self._announce_item(item, delta)
            case _:
                self._announce_item(item, "")

    def _announce_item(self, item: CallItem, params: str) -> None:
        item.take_opening(params)
        self._items.announce(item)
        item.write_progress(self._items.events, item.kind.progress.added)

    def params_delta(self, part: ToolParamsDelta) -> None:
        item = self._calls[part.id]
        if item is None:
            return
        item.received += len(part.delta)
        if item.phase is CallPhase.WRITING:
            item.written = item.received
            item.write_delta(self._items.events, part.delta)
            if item.feed_params(part.delta):
                self._write_waiting()

    def delta_template(self, id: str) -> EventTemplate | None:
        """The event for the next delta of a call, if that has to be written at once and as it is,
        and no other call waits for its end."""
        item = self._calls[id]
        if item is None or item.phase is not CallPhase.WRITING or item.is_watched:
            return None
        if item.extractor is not None or item.delta_prefix is None or self._items.events.discards:
            return None
        return _CallTemplate(self._items.events, item.delta_prefix, item)

    def params_end(self, part: ToolParamsEnd) -> None:
        item = self._calls[part.id]
        if item is not None and not self._failed and not self._holds(item, part):
            self._end_params(item)

    def tool_call(self, part: ToolCall) -> None:
        item = self._calls.get(part.id)
        # A client that gets the `done` of a call may execute it.
        if self._failed:  # only the last snapshot shows what was received of a cut call
            if item is not None:
                item.take_call(part, self._items.item_fields(part.extra))
            return
        # A call in one part is written with the same events as a streamed one, one delta included:
        # clients join the arguments from deltas.
        if part.id not in self._calls:  # it came whole
            if not part.name or part.invalid == "stream-failed":
                reason = "the call has no name, or was cut off before it was announced"
                self._items.not_carried(part.type, reason)
                return
            item = self._create_item(part)
            if item is not None:
                self._announce_item(item, part.params)
                if part.params:
                    item.write_delta(self._items.events, part.params)
                item.write_done(self._items.events, part.params)
        if item is not None and not self._holds(item, part):
            self._finish_call(item, part)
            self._write_waiting()

    # One call at a time

    def _is_busy(self) -> bool:
        """Whether the current call is not complete."""
        return self._current is not None and not self._current.params_complete(self._fold)

    def _set_current(self, item: CallItem) -> None:
        if self._current is not None:
            self._current.phase = CallPhase.WRITTEN
        item.phase = CallPhase.WRITING
        self._current = item

    def _holds(self, item: CallItem, part: ToolParamsEnd | ToolCall) -> bool:
        """Holds a part of a call's end, if it may not be written yet; returns whether it did."""
        if item.phase is CallPhase.WRITING or (
            item.phase is CallPhase.WRITTEN and not self._is_busy()
        ):
            return False
        if item.phase is CallPhase.WRITTEN and not item.held_parts:
            self._held_endings.append(item)
        item.held_parts.append(part)
        return True

    def _write_waiting(self) -> None:
        """Writes what waited for the current call, if that is complete."""
        if not (self._held_endings or self._waiting) or self._is_busy():
            return
        endings, self._held_endings = self._held_endings, []
        for item in endings:
            self._write_held(item)
        # The next call may be incomplete itself; then the rest waits for that one.
        while self._waiting and not self._is_busy():
            item = self._waiting.popleft()
            self._set_current(item)
            self._announce_item(item, self._fold.joined(item.call_id)[: item.received])
            self._write_received(item)
            self._write_held(item)

    def _write_received(self, item: CallItem) -> None:
        """Writes the params that were received and not written."""
        if item.written < item.received:
            text = self._fold.joined(item.call_id)[item.written : item.received]
            item.written = item.received
            item.write_delta(self._items.events, text)

    def fail(self) -> None:
        """Writes what is waiting, as far as it was received. Open calls stay open."""
        # No end will come for the current call, so nothing may wait for it any longer.
        self._current = None
        self._write_waiting()
        while self._waiting:
            self._current = None
            self._write_waiting()
        for item in self._calls.values():
            if item is not None and item.phase is CallPhase.WRITTEN and not item.ended:
                self._write_received(item)  # received while another call was written
        self._failed = True

    def resume(self) -> None:
        """Continues after passthrough, where the client received every call as it came: nothing
        waits.
        """
        for item in self._calls.values():
            if item is None or item.done is not None:
                continue
            if item.phase is CallPhase.WAITING:
                item.phase = CallPhase.WRITING
                item.take_opening(self._fold.joined(item.call_id)[: item.received])
            self._write_received(item)
            self._write_held(item)
        self._waiting.clear()
        self._held_endings.clear()

    def _write_held(self, item: CallItem) -> None:
        held_parts, item.held_parts = item.held_parts, []
        for part in held_parts:
            if isinstance(part, ToolCall):
                self._finish_call(item, part)
            else:
                self._end_params(item)

    def _end_params(self, item: CallItem) -> None:
        item.ended = True
        self._write_received(item)
        item.write_done(self._items.events, self._fold.joined(item.call_id))

    def _finish_call(self, item: CallItem, part: ToolCall) -> None:
        if item is self._current:
            self._current = None
        item.take_call(part, self._items.item_fields(part.extra))
        item.write_progress(self._items.events, item.kind.progress.called)
        self.is_cut = self.is_cut or part.invalid == "stream-failed"
        if part.signature is not None and part.id not in self._signed:
            self._items.not_carried(part.type, "a call has no field for a signature")
        if part.invalid is None and not part.provider_executed:
            # As in the Assistants API. Built-in tools, which it does not have, have their params in
            # the item.
            pending = wire.RequiredCall(part.id, item.kind.type)
            if item.kind is FUNCTION:
                function = wire.PendingFunction(part.name, part.params)
                pending = wire.RequiredCall(part.id, "function", function=function)
            elif item.kind is CUSTOM:
                custom = wire.PendingCustom(part.name, part.params)
                pending = wire.RequiredCall(part.id, "custom", custom=custom)
            self.pending.append(pending)
        # Otherwise the item stays open until the result, which is a part of it.
        if item.kind.result_to_fields is None:
            self._items.part_done(item)

    def tool_result(self, part: ToolResult) -> None:
        call = self._calls.get(part.id)
        stored: Fields = {**(self._items.item_extra(part.extra).item or {})}
        # An item of this dialect keeps its type and id; a result of another dialect has neither.
        identity = decode_or_default(wire.to_raw(stored), wire.Identity)
        type = identity.type or (call.kind.result_item if call is not None else None)
        fields, events = without_identity(stored), self._items.events
        if type is not None:
            # A result item is announced with its first preliminary result.
            item = self._outputs.get(part.id)
            if item is None:
                prefix = RESULT_ITEMS[type][0] if type in RESULT_ITEMS else "out"
                slot = self._items.allocate(identity.id, prefix)
                self._outputs[part.id] = item = CallResultItem(slot, part.id, type, fields)
                self._items.add(item)
            if part.preliminary:
                item.write_partial(events, part.result)
            else:
                item.take_result(events, part, fields)
                self._items.part_done(item)
        # The results of client calls are in the next request, not in a response.
        elif call is None or call.kind.result_to_fields is None:
            self._items.not_carried(part.type, "no item for the result of this call")
        elif part.preliminary:
            call.write_partial(events, part, fields)
        else:
            call.take_result(events, part, fields, is_native=self._items.is_native)
            self._items.part_done(call)

    def approval(self, part: ToolApprovalRequest) -> None:
        """Adds an approval request to what the client must do. Its call is its item."""
        item = self._calls.get(part.id)
        if item is None or item.kind is not CALL_KINDS["mcp_approval_request"]:
            self._items.not_carried(part.type, "only MCP calls have approval requests")
        else:
            self.pending.append(wire.RequiredCall(part.approval_id, item.kind.type))
