"""What the readers of one response share: its items, and how a call is announced and handed over.

- A call is announced once. Params that came before wait until then.
- A call that comes again under its id is not made again; another one under that id is `<id>_2`.
- `extra` keeps, under `item`, whatever an item tells that no field of a part holds. So the item
  can be written again: params, result and `extra` together are its keys.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.assembler import Buffer
from weft.context import Context
from weft.dialects.base import Salvage
from weft.dialects.envelope import Sealed
from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.decoding.item import (
    CallStage,
    DecodedItem,
    DecodedPart,
    PendingShellCall,
)
from weft.findings import Findings
from weft.ids import Claims
from weft.partial_json import canonical, join_halves, parse, whole_characters
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

FAILED_STATUSES = frozenset({"incomplete", "failed"})
"""Statuses of an item that did not come to its end. Any other one is fine, also in_progress."""

_decode_text = msgspec.json.Decoder(str).decode


class DecoderState:
    """The state of one response that every reader may use."""

    def __init__(self, context: Context, findings: Findings) -> None:
        self.context = context
        self.findings = findings
        self.salvage = Salvage(findings, wire.STREAMED_FIELDS)
        self.store = context.request.store if context.request else None
        self.listed_tools: list[Raw] | None = None
        """The tools that the response lists."""
        self.finish_reason: FinishReason = "stop"
        """What a completed response means: stop, unless a call or a refusal came."""
        self.items_by_call_id: dict[str, DecodedItem] = {}
        """Items by the id that the wire gives their call."""
        self.open_searches: deque[DecodedItem] = deque()
        """Hosted tool searches without an output."""
        self.approvals: dict[str, str] | None = None
        """Approvals, and the calls they are for; None until somebody asks."""
        self.pending_shell: PendingShellCall | None = None
        self.call_signatures: dict[str, Sealed] = {}
        """What signs the calls to come, by their ids."""
        self._call_ids = Claims()
        self._part_ids: dict[type[DeltaPart], Claims] = {
            TextDelta: Claims(),
            ReasoningDelta: Claims(),
        }
        self._declared_tools: wire.DeclaredTools | UnsetType | None = UNSET
        self._surrogates: dict[tuple[type[DeltaPart], str], str] = {}

    def take_metadata(self, response: wire.ResponseObject) -> None:
        """What the response tells from the first: whether it is stored, and its tools."""
        self.store = self.store if response.store is None else response.store
        self.listed_tools = response.tools

    @property
    def holding(self) -> bool:
        """Whether something waits for what comes next, whatever its item."""
        if self.pending_shell is not None or self._surrogates:
            return True
        return (
            bool(self.call_signatures)
            and not self.call_signatures.keys() <= self.items_by_call_id.keys()
        )

    # Texts and thoughts

    def open_part(
        self, item: DecodedItem, kind: str, index: int, id: str, delta: type[DeltaPart]
    ) -> DecodedPart:
        """A new part of what an item says. Items that share an id share no part."""
        free_id = self._part_ids[delta].claim(id)
        if free_id != id:
            self.findings.note("id-reused", f"{id!r} is taken; this one is {free_id!r}")
        item.parts[kind, index] = part = DecodedPart(free_id)
        return part

    def check_index(self, item: DecodedItem, what: str, index: int, next: int) -> None:
        """Parts of an item are counted from 0, in the order in which they begin."""
        if index != next:
            detail = f"{what} {index} of item {item.id!r}: {next} was expected"
            self.findings.once("index-disordered", f"{item.id} {what}", detail)

    def emit_delta(
        self,
        kind: type[DeltaPart],
        id: str,
        delta: str | wire.CommandOutputDelta | None,
        out: list[Part],
    ) -> int:
        """One more delta; half a character waits for the other half. Returns how much came out."""
        text = delta if isinstance(delta, str) else ""
        if self._surrogates or not text.isascii():
            text, held = join_halves(self._surrogates.pop((kind, id), ""), text)
            if held:
                self._surrogates[kind, id] = held
                self.findings.once("surrogate-lone", id, "a character was cut in two")
        if text:
            out.append(kind(id, text))
        return len(text)

    def flush_surrogate(self, kind: type[DeltaPart], id: str, out: list[Part]) -> None:
        """Half a character whose other half never came."""
        surrogate = self._surrogates.pop((kind, id), "") if self._surrogates else ""
        if surrogate:
            out.append(kind(id, whole_characters(surrogate)))

    # Calls

    def new_call(
        self,
        item: DecodedItem,
        id: str | None,
        name: str,
        wire_item: wire.ResponsesItem,
        *,
        hosted: bool = False,
        format: ParamsFormat = "json",
    ) -> ToolCall:
        """The call of an item, without its params. Its kind is the item's own type."""
        sealed = self.call_signatures.get(id or "")
        return ToolCall(
            id or item.id,
            name,
            "",
            kind=item.type or "",
            provider_executed=hosted,
            invalid="bad-arguments" if wire_item.status in FAILED_STATUSES and not hosted else None,
            format=format,
            item_id=item.id,
            namespace=wire_item.namespace,
            caller=self.salvage.item(wire_item.caller, wire.ResponsesCaller).caller_id,
            server_label=wire_item.server_label,
            signature=sealed.proof.signature if sealed else None,
            origin=sealed.origin if sealed else None,
        )

    def announce(
        self, item: DecodedItem, call: ToolCall, wire_item: wire.ResponsesItem, out: list[Part]
    ) -> None:
        item.call = self._with_free_id(item, call)
        item.call_stage = CallStage.OPEN
        start = ToolParamsStart(
            item.call.id,
            call.name,
            kind=call.kind,
            item_id=item.id,
            provider_executed=call.provider_executed,
            format=call.format,
            signature=call.signature,
            origin=call.origin,
            extra=wire_item.start_extra(call),
        )
        out.append(start)
        if item.early_params.length:
            self.emit_delta(ToolParamsDelta, item.call.id, item.early_params.text, out)
            item.early_params = Buffer()

    def _with_free_id(self, item: DecodedItem, call: ToolCall) -> ToolCall:
        """The call under an id that is free."""
        id = self._call_ids.claim(call.id)
        item.wire_call_id = call.id
        self.items_by_call_id.setdefault(call.id, item)
        if id == call.id:
            return call
        self.findings.note("call-id-collision", f"two calls are {call.id!r}: one is {id!r}")
        return msgspec.structs.replace(call, id=id)

    def complete_call(
        self, item: DecodedItem, call: ToolCall, wire_item: wire.ResponsesItem, out: list[Part]
    ) -> None:
        """Ends a call whose params are known, announced or not."""
        if item.call_stage is CallStage.UNANNOUNCED:
            if self._repeats_call(item, call, wire_item, out):
                return
            streamed = item.early_params.length
            self.announce(item, call, wire_item, out)
            if call.params and not streamed:
                out.append(ToolParamsDelta(item.call_id, call.params))
        self.end_params(item, out, call.params)
        self.emit_call(item, call, out)

    def complete_named_call(
        self, item: DecodedItem, call: ToolCall, wire_item: wire.ResponsesItem, out: list[Part]
    ) -> None:
        """Ends a call that told nothing but its name before."""
        if item.call_stage is CallStage.OPEN:
            out.append(ToolParamsDelta(item.call_id, call.params))
        self.complete_call(item, call, wire_item, out)

    def complete_undone_call(self, item: DecodedItem, out: list[Part]) -> None:
        """The end of a call whose item is never done: it is made if its params were whole."""
        call = item.call
        if call is None:  # of a call that nobody named this is all there is
            if item.wire_call_id is None:
                self.emit_delta(
                    ToolParamsDelta, item.id, item.early_params.text or item.streamed_text.text, out
                )
            return
        if item.call_stage is CallStage.OPEN and item.full_value is not None:
            call = msgspec.structs.replace(call, params=item.full_value)
        elif item.call_stage is not CallStage.PARAMS_ENDED:
            return
        self.findings.note("end-missing", f"item {item.id!r} was never done")
        self.complete_call(item, call, wire.ResponsesItem(), out)

    def _repeats_call(
        self, item: DecodedItem, call: ToolCall, wire_item: wire.ResponsesItem, out: list[Part]
    ) -> bool:
        """Whether this is a call that another item announced: its end is the end of that one."""
        first = self.items_by_call_id.get(call.id, item)
        if first is item or not _is_same_call(first, call):
            return False
        detail = f"call {call.id!r} comes again as item {item.id!r}"
        self.findings.once("call-repeated", call.id, detail)
        self.complete_call(first, call, wire_item, out)
        item.call, item.call_stage = first.call, CallStage.CALLED
        return True

    def end_params(self, item: DecodedItem, out: list[Part], whole: str | None = None) -> None:
        if item.call_stage is CallStage.OPEN:
            item.call_stage = CallStage.PARAMS_ENDED
            self.flush_surrogate(ToolParamsDelta, item.call_id, out)
            out.append(ToolParamsEnd(item.call_id, whole=whole or None))

    def emit_call(self, item: DecodedItem, call: ToolCall, out: list[Part]) -> None:
        """Emits the one tool-call of an item. What was announced of it stays."""
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
        out.append(call_part)
        if not call_part.provider_executed and call_part.invalid is None:
            self.finish_reason = "tool-calls"

    def result(
        self, item: DecodedItem, values: dict[str, Raw], extra: Json, *, is_error: bool = False
    ) -> ToolResult:
        """The result of a call, told by the call's own item."""
        return ToolResult(item.call_id, wire.raw_object(values), is_error, extra=extra)

    def result_item(
        self,
        id: str,
        values: dict[str, Raw],
        extra: Json = UNSET,
        *,
        is_error: bool = False,
        preliminary: bool = False,
    ) -> ToolResult:
        """A result that is an item of its own. Its call may be of an earlier response."""
        call_item = self.items_by_call_id.get(id)
        return ToolResult(
            call_item.call_id if call_item else id,
            wire.raw_object(values),
            is_error,
            preliminary,
            earlier=call_item is None,
            extra=extra,
        )

    # Values

    def text_or_json(self, raw: Json, what: str) -> str:
        """A text; of anything else that stands where it belongs, its JSON text."""
        if not isinstance(raw, Raw) or bytes(raw) == b"null":
            return ""
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
        self.findings.once("field-coerced", what, f"{what}: no text")
        return bytes(wire.one_line(raw)).decode()

    def declared_tools(self) -> wire.DeclaredTools | None:
        """The tools that the model was given; None: nobody told."""
        if isinstance(self._declared_tools, UnsetType):
            self._declared_tools = wire.declared_tools(
                self.salvage, self.listed_tools, self.context.request
            )
        return self._declared_tools


def _is_same_call(first: DecodedItem, call: ToolCall) -> bool:
    """Whether a call is the one that an item announced, or made, before."""
    announced = first.call
    if announced is None or announced.name != call.name:
        return False
    if first.call_stage is not CallStage.CALLED or call.params in ("", announced.params):
        return True
    canonical_params = canonical(announced.params)
    return canonical_params is not None and canonical_params == canonical(call.params)


EventHandler = Callable[[DecoderState, DecodedItem, wire.ResponsesEvent, list[Part]], None]
"""Reads an event that speaks of an item."""

ItemHandler = Callable[[DecoderState, DecodedItem, wire.ResponsesItem, Raw, list[Part]], None]
"""Reads an item, as it stands when it is added or done."""


def ignore_event(
    state: DecoderState, item: DecodedItem, event: wire.ResponsesEvent, out: list[Part]
) -> None:
    """An event that only tells of progress, or whose value comes again when the item is done."""


def ignore_item(
    state: DecoderState, item: DecodedItem, wire_item: wire.ResponsesItem, raw: Raw, out: list[Part]
) -> None:
    """An item of which nothing can be told before it is done."""


def params_delta(
    state: DecoderState, item: DecodedItem, event: wire.ResponsesEvent, out: list[Part]
) -> None:
    if item.call is None:
        item.early_params.add(event.delta if isinstance(event.delta, str) else "")
    else:
        state.emit_delta(ToolParamsDelta, item.call.id, event.delta, out)


def params_done(
    state: DecoderState, item: DecodedItem, event: wire.ResponsesEvent, out: list[Part]
) -> None:
    whole = event.input if event.arguments is None else event.arguments
    item.full_value = whole_characters(whole or "")


class ItemHandlers(NamedTuple):
    """How one type of item is read."""

    done: ItemHandler
    added: ItemHandler = ignore_item
    announceable: bool = False
    """Whether it asks for nothing and answers nothing: a client may be told that it begins before
    there is any part of it, and one that never ends is all that was announced."""


def ignored_events(prefix: str, names: Iterable[str]) -> dict[str, EventHandler]:
    """Rows for events that say nothing of their own."""
    return dict.fromkeys((f"response.{prefix}.{name}" for name in names), ignore_event)
