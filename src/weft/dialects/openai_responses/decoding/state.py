"""State that the handlers of one response share, and how calls are announced and emitted.

- A call is announced once. Params that come earlier are held until then.
- A call that is repeated under its id is not emitted again. A different call under a taken id gets
  the id `<id>_2`.
- `extra.item` keeps the fields of an item that no part has a field for. The encoder restores the
  item from the params, the result and `extra`.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.assembler import Buffer
from weft.context import Context
from weft.dialects.envelope import Envelope
from weft.dialects.frames import Salvage, SurrogateJoiner
from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.decoding.declared_tools import DeclaredTools, declared_tools
from weft.dialects.openai_responses.decoding.item import (
    CallStage,
    DecodedItem,
    DecodedPart,
    ItemStage,
    PendingShellCall,
)
from weft.dialects.openai_responses.extra import item_extra, remaining_fields, start_extra
from weft.dialects.openai_responses.wire import ResponsesEvent, ResponsesItem
from weft.dialects.raw_json import copy_raw
from weft.findings import Findings
from weft.ids import Claims
from weft.partial_json import canonical, parse, whole_characters
from weft.parts import (
    FinishReason,
    Json,
    ParamsFormat,
    Part,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
)

DeltaPart = TextDelta | ReasoningDelta | ToolParamsDelta

_decode_text = msgspec.json.Decoder(str).decode


class DecoderState:
    """State of one response, shared by the handlers."""

    def __init__(self, context: Context, findings: Findings) -> None:
        self.context = context
        self.findings = findings
        self.out: list[Part] = []
        """The parts of the current frame."""
        self.salvage = Salvage(findings, wire.STREAMED_FIELDS)
        # Decides when a reasoning part may end. Nearly every server echoes the effective value in
        # `response.created`; the request counts until then.
        self.store = context.request.store if context.request else None
        self.listed_tools: list[Raw] | None = None
        """The tools in the response object."""
        self.finish_reason: FinishReason = "stop"
        """The finish reason of a completed response: `stop` unless there was a call or a
        refusal."""
        self.items_by_call_id: dict[str, DecodedItem] = {}
        """Items by their call id on the wire."""
        # A hosted search and its output both have a null call id, so they are paired in order.
        self.open_searches: deque[DecodedItem] = deque()
        """Hosted tool searches without a result."""
        # Lazy, because it takes a walk through all messages of the request.
        self.approvals: dict[str, str] | None = None
        """Call ids by approval request id; None until they are needed."""
        self.pending_shell: PendingShellCall | None = None
        self.call_signatures: dict[str, Envelope] = {}
        """Signatures of calls that are still to come, by call id."""
        self._call_ids = Claims()
        # Apart from each other: a text and a reasoning may share an id.
        self._part_ids: dict[type[DeltaPart], Claims] = {
            TextDelta: Claims(),
            ReasoningDelta: Claims(),
        }
        self._declared_tools: DeclaredTools | UnsetType | None = UNSET
        self._surrogates = SurrogateJoiner(findings)

    def take_metadata(self, response: wire.ResponseObject) -> None:
        """Takes over whether the response is stored, and its tools."""
        self.store = self.store if response.store is None else response.store
        self.listed_tools = response.tools

    @property
    def holding(self) -> bool:
        """Whether something is held until a later event, for whatever item."""
        if self.pending_shell is not None or self._surrogates.held:
            return True
        # A signature is held until its call has begun.
        return (
            bool(self.call_signatures)
            and not self.call_signatures.keys() <= self.items_by_call_id.keys()
        )

    # Text and reasoning

    def open_part(
        self, item: DecodedItem, kind: str, index: int, id: str, delta: type[DeltaPart]
    ) -> DecodedPart:
        """Starts a part. Its id is made unique, because items may share an id."""
        free_id = self._part_ids[delta].claim(id)
        if free_id != id:
            self.findings.note("id-reused", f"{id!r} is taken; renamed to {free_id!r}")
        item.parts[kind, index] = part = DecodedPart(free_id)
        return part

    def check_index(self, item: DecodedItem, what: str, index: int, next: int) -> None:
        """Reports a part index that is not the next one."""
        if index != next:
            detail = f"{what} {index} of item {item.id!r}; expected {next}"
            # capture: indexes-with-gaps
            self.findings.once("index-disordered", f"{item.id} {what}", detail)

    def emit_delta(
        self, kind: type[DeltaPart], id: str, delta: str | wire.CommandOutputDelta | None
    ) -> int:
        """Emits a delta and returns its length. A trailing high surrogate is held back."""
        text = delta if isinstance(delta, str) else ""
        # A host that escapes all but ASCII may cut between the two halves of a pair; half a pair
        # cannot be encoded as UTF-8. `isascii` reads a flag, so most deltas cost no scan.
        # capture: character-cut-in-two
        if self._surrogates.held or not text.isascii():
            text = self._surrogates.feed((kind, id), text)
        if text:
            self.out.append(kind(id, text))
        return len(text)

    def emit_full_texts(self, item: DecodedItem, kind: type[TextDelta | ReasoningDelta]) -> None:
        """Emits the texts of an item that arrives at once, each as one delta."""
        # In a stream the guard adds what the deltas lack, with a finding.
        # capture: body, done-without-added
        if item.stage is ItemStage.UNSEEN:
            complete = [part for part in item.parts.values() if part.full_text]
            self.out += [kind(part.id, part.full_text or "") for part in complete]

    def flush_surrogate(self, kind: type[DeltaPart], id: str) -> None:
        """Emits a replacement character for a high surrogate that was never completed."""
        rest = self._surrogates.flush((kind, id))
        if rest:
            self.out.append(kind(id, rest))

    # Calls

    def new_call(
        self,
        item: DecodedItem,
        id: str | None,
        name: str,
        wire_item: ResponsesItem,
        *,
        hosted: bool = False,
        format: ParamsFormat = "json",
        params: str = "",
        extra: Json = UNSET,
    ) -> ToolCall:
        """Returns the call of an item."""
        envelope = self.call_signatures.get(id or "")
        return ToolCall(
            id or item.id,
            name,
            params,
            kind=item.type or "",
            provider_executed=hosted,
            # A client must not execute what the server itself calls incomplete or failed. Of a
            # hosted call the result says that it failed.
            invalid="bad-arguments" if wire_item.failed and not hosted else None,
            format=format,
            item_id=item.id,
            namespace=wire_item.namespace,
            caller=self.salvage.item(wire_item.caller, wire.ResponsesCaller).caller_id,
            server_label=wire_item.server_label,
            signature=envelope.state.signature if envelope else None,
            origin=envelope.origin if envelope else None,
            extra=extra,
        )

    def announce(self, item: DecodedItem, call: ToolCall, wire_item: ResponsesItem) -> None:
        item.call = self._with_free_id(item, call)
        item.call_stage = CallStage.OPEN
        # From here on the client may know the id and the name, so nothing changes them any more.
        start = ToolParamsStart(
            item.call.id,
            call.name,
            kind=call.kind,
            item_id=item.id,
            provider_executed=call.provider_executed,
            format=call.format,
            signature=call.signature,
            origin=call.origin,
            extra=start_extra(wire_item, call),
        )
        self.out.append(start)
        # Deltas that came before `added`, or before an `added` with a name.
        # capture: deltas-before-their-item
        if item.early_params.length:
            self.emit_delta(ToolParamsDelta, item.call.id, item.early_params.text)
            item.early_params = Buffer()

    def _with_free_id(self, item: DecodedItem, call: ToolCall) -> ToolCall:
        """Returns the call with an id that is not taken."""
        id = self._call_ids.claim(call.id)
        item.wire_call_id = call.id
        # Later results and repeats mean the first item with this id.
        self.items_by_call_id.setdefault(call.id, item)
        if id == call.id:
            return call
        # capture: one-id-for-two-calls
        self.findings.note(
            "call-id-collision", f"two calls have the id {call.id!r}; one is renamed to {id!r}"
        )
        # Dropping the second call would lose what the model asked for.
        # capture: one-id-for-two-calls
        return msgspec.structs.replace(call, id=id)

    def complete_call(self, item: DecodedItem, call: ToolCall, wire_item: ResponsesItem) -> None:
        """Emits a call whose params are known, and announces it first if necessary."""
        if not item.announced:
            if self._repeats_call(item, call, wire_item):
                return
            streamed = item.early_params.length
            self.announce(item, call, wire_item)
            # An item that is only done, as all items of a body are, has its params in one piece.
            # They are one delta, because the guard joins the params of a call from its deltas.
            # capture: body, done-without-added
            if call.params and not streamed:
                self.out.append(ToolParamsDelta(item.call_id, call.params))
        # Some hosts send no deltas at all, only `arguments.done` and the item.
        # capture: arguments-only-at-the-end
        self.end_params(item, call.params)  # the guard emits what the deltas lack
        self.emit_call(item, call)

    def complete_named_call(
        self, item: DecodedItem, call: ToolCall, wire_item: ResponsesItem
    ) -> None:
        """Emits a call that was announced without params."""
        if item.call_stage is CallStage.OPEN:
            self.out.append(ToolParamsDelta(item.call_id, call.params))
        self.complete_call(item, call, wire_item)

    def complete_undone_call(self, item: DecodedItem) -> None:
        """Emits a call whose item is never done, if its params are complete."""
        call = item.call
        if call is None:  # a call without a name is never emitted; its params are all that is left
            # The guard makes an invalid call of params that were never announced. An item that only
            # repeats a call (its `wire_call_id` is set) leaves nothing behind.
            if item.wire_call_id is None:
                self.emit_delta(
                    ToolParamsDelta, item.id, item.early_params.text or item.streamed_text.text
                )
            return
        # Some hosts end a call with `arguments.done` and never send `output_item.done`. Without
        # either, the call was cut, however complete its JSON looks.
        # capture: items-never-done
        if item.call_stage is CallStage.OPEN and item.full_value is not None:
            call = msgspec.structs.replace(call, params=item.full_value)
        elif item.call_stage is not CallStage.PARAMS_ENDED:
            return
        self.findings.note("end-missing", f"item {item.id!r} was never done")
        self.complete_call(item, call, ResponsesItem())

    def _repeats_call(self, item: DecodedItem, call: ToolCall, wire_item: ResponsesItem) -> bool:
        """Whether another item announced this call. If so, that item's call is emitted."""
        # The item of an id may be repeated at another index, with its JSON written in another way.
        # Other arguments under the same id are another call.
        first = self.items_by_call_id.get(call.id, item)
        known = first.call
        if first is item or known is None or known.name != call.name:
            return False
        if first.call_stage is CallStage.CALLED and call.params not in ("", known.params):
            params = canonical(known.params)
            if params is None or params != canonical(call.params):
                return False
        # capture: one-call-under-two-items
        detail = f"call {call.id!r} is repeated by item {item.id!r}"
        self.findings.once("call-repeated", call.id, detail)
        self.complete_call(first, call, wire_item)
        item.call, item.call_stage = first.call, CallStage.CALLED
        return True

    def end_params(self, item: DecodedItem, whole: str | None = None) -> None:
        if item.call_stage is CallStage.OPEN:
            item.call_stage = CallStage.PARAMS_ENDED
            self.flush_surrogate(ToolParamsDelta, item.call_id)
            self.out.append(ToolParamsEnd(item.call_id, whole=whole or None))

    def emit_call(self, item: DecodedItem, call: ToolCall) -> None:
        """Emits the tool-call of an item, once. What was announced takes precedence."""
        # A repeated item completes the call of the first one, which may have been emitted.
        if item.call_stage is CallStage.CALLED:
            return
        announced = item.call or self._with_free_id(item, call)
        item.call_stage = CallStage.CALLED
        item.call = call_part = msgspec.structs.replace(
            call,
            id=announced.id,
            name=announced.name,
            kind=announced.kind,
            provider_executed=announced.provider_executed,
            item_id=item.id,
        )
        self.out.append(call_part)
        # A turn that ends in calls has the status `completed` on this wire, like any other.
        if not call_part.provider_executed and call_part.invalid is None:
            self.finish_reason = "tool-calls"

    def emit_result(
        self,
        item: DecodedItem,
        values: dict[str, Raw],
        extra: Json,
        *,
        is_error: bool = False,
        preliminary: bool = False,
    ) -> None:
        """Emits the result of a call that is part of the call's own item."""
        result = wire.raw_object(values)
        self.out.append(ToolResult(item.call_id, result, is_error, preliminary, extra=extra))

    def emit_result_item(
        self,
        item: DecodedItem,
        call_id: str,
        values: dict[str, Raw],
        raw: Raw | None = None,
        mapped: Iterable[str] = (),
        *,
        is_error: bool = False,
        preliminary: bool = False,
    ) -> None:
        """Emits the result of a call that is an item of its own. The call may be of an earlier
        response.
        """
        # The output of a program comes responses after its call.
        call_item = self.items_by_call_id.get(call_id)
        # The encoder needs both to write the result as an item of its own again.
        identity = wire.present_fields(type=item.type, id=item.id)
        self.out.append(
            ToolResult(
                call_item.call_id if call_item else call_id,
                wire.raw_object(values),
                is_error,
                preliminary,
                earlier=call_item is None,
                extra=item_extra(remaining_fields(raw, mapped) | identity),
            )
        )

    # Values

    def text_or_json(self, raw: Json, what: str) -> str:
        """Returns a string, or the JSON text of any other value that stands in its place."""
        if not isinstance(raw, Raw) or bytes(raw) == b"null":
            return ""
        # `msgspec` refuses a string with a lone surrogate; the second try replaces it.
        try:
            return whole_characters(_decode_text(raw))
        except (ValueError, RecursionError):
            pass
        try:
            value = parse(bytes(raw))
        except ValueError:
            return ""
        if isinstance(value, str):
            return value
        # Some hosts send the object that the text stands for.
        self.findings.once("field-coerced", what, f"{what} is not a string")
        return bytes(copy_raw(raw)).decode()

    def declared_tools(self) -> DeclaredTools | None:
        """Returns what is known about the tools of the model; None if nothing is."""
        if isinstance(self._declared_tools, UnsetType):
            self._declared_tools = declared_tools(
                self.salvage, self.listed_tools, self.context.request
            )
        return self._declared_tools


EventHandler = Callable[[DecoderState, DecodedItem, ResponsesEvent], None]
"""Handles an event about an item."""

ItemHandler = Callable[[DecoderState, DecodedItem, ResponsesItem, Raw], None]
"""Handles an item that was added or is done."""


def ignore_event(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    """Ignores an event that only reports progress, or whose value comes again when the item is
    done.
    """


def ignore_item(state: DecoderState, item: DecodedItem, wire_item: ResponsesItem, raw: Raw) -> None:
    """Ignores an item until it is done."""


def params_delta(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    if item.call is None:
        # capture: deltas-before-their-item
        item.early_params.add(event.delta if isinstance(event.delta, str) else "")
    else:
        state.emit_delta(ToolParamsDelta, item.call.id, event.delta)


def params_done(state: DecoderState, item: DecodedItem, event: ResponsesEvent) -> None:
    # Function and MCP calls have `arguments`, custom calls `input`.
    whole = event.input if event.arguments is None else event.arguments
    item.full_value = whole_characters(whole or "")


class ItemHandlers(NamedTuple):
    """How items of one type are handled."""

    done: ItemHandler
    added: ItemHandler = ignore_item
    announceable: bool = False
    """Whether an item may be announced before it has parts, because it is neither a call nor a
    result. One that is never done is complete as it was added."""


def ignored_events(prefix: str, names: Iterable[str]) -> dict[str, EventHandler]:
    """Returns rows for events that are ignored."""
    return dict.fromkeys((f"response.{prefix}.{name}" for name in names), ignore_event)
