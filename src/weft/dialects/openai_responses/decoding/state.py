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
from weft.dialects.openai_responses.decoding.item import Item, Pending, Said, Step
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

Delta = TextDelta | ReasoningDelta | ToolParamsDelta

CUT = frozenset({"incomplete", "failed"})
"""Statuses of an item that did not come to its end. Any other one is fine, also in_progress."""

_text = msgspec.json.Decoder(str).decode


class Reading:
    """The state of one response that every reader may use."""

    def __init__(self, context: Context, findings: Findings) -> None:
        self.context = context
        self.findings = findings
        self.salvage = Salvage(findings, wire.GROWING)
        self.store = context.request.store if context.request else None
        self.listed: list[Raw] | None = None
        """The tools that the response lists."""
        self.reason: FinishReason = "stop"
        """What a completed response means: stop, unless a call or a refusal came."""
        self.calls: dict[str, Item] = {}
        """Items by the id that the wire gives their call."""
        self.searches: deque[Item] = deque()
        """Hosted tool searches without an output."""
        self.approvals: dict[str, str] | None = None
        """Approvals, and the calls they are for; None until somebody asks."""
        self.pending: Pending | None = None
        self.proofs: dict[str, Sealed] = {}
        """What signs the calls to come, by their ids."""
        self._taken = Claims()
        self._said: dict[type[Delta], Claims] = {TextDelta: Claims(), ReasoningDelta: Claims()}
        self._declared: wire.Declared | UnsetType | None = UNSET
        self._halves: dict[tuple[type[Delta], str], str] = {}

    def began(self, response: wire.Response) -> None:
        """What the response tells from the first: whether it is stored, and its tools."""
        self.store = self.store if response.store is None else response.store
        self.listed = response.tools

    @property
    def holding(self) -> bool:
        """Whether something waits for what comes next, whatever its item."""
        if self.pending is not None or self._halves:
            return True
        return bool(self.proofs) and not self.proofs.keys() <= self.calls.keys()

    # Texts and thoughts

    def begin(self, item: Item, kind: str, index: int, id: str, delta: type[Delta]) -> Said:
        """A new part of what an item says. Items that share an id share no part."""
        free = self._said[delta].claim(id)
        if free != id:
            self.findings.note("id-reused", f"{id!r} is taken; this one is {free!r}")
        item.said[kind, index] = said = Said(free)
        return said

    def expect(self, item: Item, what: str, index: int, next: int) -> None:
        """Parts of an item are counted from 0, in the order in which they begin."""
        if index != next:
            detail = f"{what} {index} of item {item.id!r}: {next} was expected"
            self.findings.once("index-disordered", f"{item.id} {what}", detail)

    def more(
        self, kind: type[Delta], id: str, delta: str | wire.Streams | None, out: list[Part]
    ) -> int:
        """One more delta; half a character waits for the other half. Returns how much came out."""
        text = delta if isinstance(delta, str) else ""
        if self._halves or not text.isascii():
            text, held = join_halves(self._halves.pop((kind, id), ""), text)
            if held:
                self._halves[kind, id] = held
                self.findings.once("surrogate-lone", id, "a character was cut in two")
        if text:
            out.append(kind(id, text))
        return len(text)

    def flush(self, kind: type[Delta], id: str, out: list[Part]) -> None:
        """Half a character whose other half never came."""
        half = self._halves.pop((kind, id), "") if self._halves else ""
        if half:
            out.append(kind(id, whole_characters(half)))

    # Calls

    def call(
        self,
        item: Item,
        id: str | None,
        name: str,
        read: wire.Item,
        *,
        hosted: bool = False,
        format: ParamsFormat = "json",
    ) -> ToolCall:
        """The call of an item, without its params. Its kind is the item's own type."""
        inside = self.proofs.get(id or "")
        return ToolCall(
            id or item.id,
            name,
            "",
            kind=item.type or "",
            provider_executed=hosted,
            invalid="bad-arguments" if read.status in CUT and not hosted else None,
            format=format,
            item_id=item.id,
            namespace=read.namespace,
            caller=self.salvage.item(read.caller, wire.Caller).caller_id,
            server_label=read.server_label,
            signature=inside.proof.signature if inside else None,
            origin=inside.origin if inside else None,
        )

    def announce(self, item: Item, call: ToolCall, read: wire.Item, out: list[Part]) -> None:
        item.call = self._claimed(item, call)
        item.step = Step.OPEN
        start = ToolParamsStart(
            item.call.id,
            call.name,
            kind=call.kind,
            item_id=item.id,
            provider_executed=call.provider_executed,
            format=call.format,
            signature=call.signature,
            origin=call.origin,
            extra=read.heads(call),
        )
        out.append(start)
        if item.waiting.length:
            self.more(ToolParamsDelta, item.call.id, item.waiting.text, out)
            item.waiting = Buffer()

    def _claimed(self, item: Item, call: ToolCall) -> ToolCall:
        """The call under an id that is free."""
        id = self._taken.claim(call.id)
        item.key = call.id
        self.calls.setdefault(call.id, item)
        if id == call.id:
            return call
        self.findings.note("call-id-collision", f"two calls are {call.id!r}: one is {id!r}")
        return msgspec.structs.replace(call, id=id)

    def hand_over(self, item: Item, call: ToolCall, read: wire.Item, out: list[Part]) -> None:
        """Ends a call whose params are known, announced or not."""
        if item.step is Step.UNTOLD:
            if self._comes_again(item, call, read, out):
                return
            streamed = item.waiting.length
            self.announce(item, call, read, out)
            if call.params and not streamed:
                out.append(ToolParamsDelta(item.call_id, call.params))
        self.seal(item, out, call.params)
        self.make(item, call, out)

    def tell(self, item: Item, call: ToolCall, read: wire.Item, out: list[Part]) -> None:
        """Ends a call that told nothing but its name before."""
        if item.step is Step.OPEN:
            out.append(ToolParamsDelta(item.call_id, call.params))
        self.hand_over(item, call, read, out)

    def leave(self, item: Item, out: list[Part]) -> None:
        """The end of a call whose item is never done: it is made if its params were whole."""
        call = item.call
        if call is None:  # of a call that nobody named this is all there is
            if item.key is None:
                self.more(ToolParamsDelta, item.id, item.waiting.text or item.inner.text, out)
            return
        if item.step is Step.OPEN and item.whole is not None:
            call = msgspec.structs.replace(call, params=item.whole)
        elif item.step is not Step.SEALED:
            return
        self.findings.note("end-missing", f"item {item.id!r} was never done")
        self.hand_over(item, call, wire.Item(), out)

    def _comes_again(self, item: Item, call: ToolCall, read: wire.Item, out: list[Part]) -> bool:
        """Whether this is a call that another item announced: its end is the end of that one."""
        first = self.calls.get(call.id, item)
        if first is item or not _same(first, call):
            return False
        detail = f"call {call.id!r} comes again as item {item.id!r}"
        self.findings.once("call-repeated", call.id, detail)
        self.hand_over(first, call, read, out)
        item.call, item.step = first.call, Step.CALLED
        return True

    def seal(self, item: Item, out: list[Part], whole: str | None = None) -> None:
        if item.step is Step.OPEN:
            item.step = Step.SEALED
            self.flush(ToolParamsDelta, item.call_id, out)
            out.append(ToolParamsEnd(item.call_id, whole=whole or None))

    def make(self, item: Item, call: ToolCall, out: list[Part]) -> None:
        """Emits the one tool-call of an item. What was announced of it stays."""
        if item.step is Step.CALLED:
            return
        known = item.call or self._claimed(item, call)
        item.step = Step.CALLED
        item.call = made = msgspec.structs.replace(
            call,
            id=known.id,
            name=known.name,
            kind=known.kind,
            provider_executed=known.provider_executed,
            item_id=item.id,
        )
        out.append(made)
        if not made.provider_executed and made.invalid is None:
            self.reason = "tool-calls"

    def result(
        self, item: Item, values: dict[str, Raw], extra: Json, *, is_error: bool = False
    ) -> ToolResult:
        """The result of a call, told by the call's own item."""
        return ToolResult(item.call_id, wire.written(values), is_error, extra=extra)

    def output(
        self,
        id: str,
        values: dict[str, Raw],
        extra: Json = UNSET,
        *,
        is_error: bool = False,
        preliminary: bool = False,
    ) -> ToolResult:
        """A result that is an item of its own. Its call may be of an earlier response."""
        called = self.calls.get(id)
        return ToolResult(
            called.call_id if called else id,
            wire.written(values),
            is_error,
            preliminary,
            earlier=called is None,
            extra=extra,
        )

    # Values

    def text(self, raw: Json, what: str) -> str:
        """A text; of anything else that stands where it belongs, its JSON text."""
        if not isinstance(raw, Raw) or bytes(raw) == b"null":
            return ""
        try:
            return whole_characters(_text(raw))
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

    def declared(self) -> wire.Declared | None:
        """The tools that the model was given; None: nobody told."""
        if isinstance(self._declared, UnsetType):
            self._declared = wire.declared(self.salvage, self.listed, self.context.request)
        return self._declared


def _same(first: Item, call: ToolCall) -> bool:
    """Whether a call is the one that an item announced, or made, before."""
    known = first.call
    if known is None or known.name != call.name:
        return False
    if first.step is not Step.CALLED or call.params in ("", known.params):
        return True
    spelled = canonical(known.params)
    return spelled is not None and spelled == canonical(call.params)


Handler = Callable[[Reading, Item, wire.Event, list[Part]], None]
"""Reads an event that speaks of an item."""

Taker = Callable[[Reading, Item, wire.Item, Raw, list[Part]], None]
"""Reads an item, as it stands when it is added or done."""


def nothing(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    """An event that only tells of progress, or whose value comes again when the item is done."""


def nothing_yet(reading: Reading, item: Item, read: wire.Item, raw: Raw, out: list[Part]) -> None:
    """An item of which nothing can be told before it is done."""


def params_delta(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    if item.call is None:
        item.waiting.add(event.delta if isinstance(event.delta, str) else "")
    else:
        reading.more(ToolParamsDelta, item.call.id, event.delta, out)


def params_done(reading: Reading, item: Item, event: wire.Event, out: list[Part]) -> None:
    whole = event.input if event.arguments is None else event.arguments
    item.whole = whole_characters(whole or "")


class Row(NamedTuple):
    """How one type of item is read."""

    done: Taker
    added: Taker = nothing_yet
    inert: bool = False
    """Whether it asks for nothing and answers nothing: a client may be told that it begins before
    there is any part of it, and one that never ends is all that was announced."""


def silent(prefix: str, names: Iterable[str]) -> dict[str, Handler]:
    """Rows for events that say nothing of their own."""
    return dict.fromkeys((f"response.{prefix}.{name}" for name in names), nothing)
