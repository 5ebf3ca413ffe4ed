"""Calls and their results as items, from the first word to the last.

Clients take another `output_index` for another call. So the calls that a client is asked for are
written one at a time, also where an upstream tells them in turns:

- A call that begins while nobody speaks, speaks: it is announced and written as it comes.
- Whoever begins while one speaks waits, announcement and all, until that one is all said. Its
  params are all there when they are one whole JSON value; free text, and what is no JSON, at the
  end of the call. So nothing waits where calls come one after the other, although some wires tell
  only at the very end that they are over.
- What has come of a call that waited is written at once, in one delta; the rest as it comes.
- The end of a call that was all said before waits as well, until the one that speaks is.
- What comes of a call that seemed all said, perhaps a blank, is written at its end.

Items of other kinds keep their places: one that begins meanwhile is announced after the calls that
wait, and only what those say waits on. Calls that the provider executes do not wait.
"""

from collections import deque

import msgspec
from msgspec import Raw

from weft.assembler import Assembler
from weft.dialects.envelope import sealed_call
from weft.dialects.openai_responses import output_schema as schema
from weft.dialects.openai_responses.encoding.call_items import CallItem, OutputItem, Turn
from weft.dialects.openai_responses.encoding.call_kinds import (
    CLIENT,
    CUSTOM,
    FUNCTION,
    KINDS,
    OUTPUTS,
    Kind,
    executed,
)
from weft.dialects.openai_responses.encoding.items import Output
from weft.dialects.openai_responses.output_schema import Fields
from weft.parts import (
    Part,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
)

_json = msgspec.json.Encoder().encode


class Calls:
    """Writes the calls of one response, and what came of them."""

    def __init__(self, output: Output, fold: Assembler) -> None:
        self._output = output
        self._fold = fold
        self._calls: dict[str, CallItem | None] = {}
        """Calls that were announced; None for one that has no item here."""
        self._outputs: dict[str, OutputItem] = {}
        """Results that are items of their own, by their calls."""
        self._speaker: CallItem | None = None
        self._waiting: deque[CallItem] = deque()
        self._ending: list[CallItem] = []
        """Calls that rest, and whose end waits."""
        self._signed: set[str] = set()
        """Calls whose signature was written."""
        self.model: str | None = None
        """Who answered."""
        self.late: CallItem | None = None
        """An item whose `added` waits for the next part, which may tell more of it."""
        self.pending: list[schema.PendingCall] = []
        """What waits for the client: calls of every kind, and approvals."""
        self.cut = False
        """A call was announced and never ended: a response with it is not whole."""
        self._failed = False
        """An error ended the content."""

    def _kind(self, part: ToolParamsStart | ToolCall) -> Kind | None:
        """How a call is written; None for one that has no item here."""
        if part.provider_executed:
            kind = executed(part.kind, part.name)
            if kind in (FUNCTION, CUSTOM) and not self._output.ours:
                kind = None  # a client would execute it again
        elif part.format == "text":
            kind = CUSTOM
        else:
            kind = KINDS[part.kind] if part.kind in CLIENT else FUNCTION
        if kind is None:
            self._output.lost("tool-call", f"no item for {part.kind} that the provider executes")
        elif kind.adapted is not None:
            self._output.lost("tool-call", kind.adapted)
        elif part.provider_executed and kind in (FUNCTION, CUSTOM):
            self._output.lost("tool-call", "only who declared the tools knows who executed it")
        return kind

    def _announce(self, part: ToolParamsStart | ToolCall) -> CallItem | None:
        """Takes a place for the item of a call; what it says first is for `_show`."""
        kind = self._kind(part)
        self._calls[part.id] = item = None
        if kind is not None:
            envelope = None if part.provider_executed else sealed_call(part, self.model)
            if envelope is not None:
                self._signed.add(part.id)
                self._output.carry(envelope)
            seat = self._output.claim(part.item_id, kind.prefix)
            known = schema.beside_names(self._output.kept(part.extra).item)
            item = CallItem(seat, part, kind, known)
            self._calls[part.id] = item
            self._output.place(item)
        return item

    def params_start(self, part: ToolParamsStart) -> None:
        item = self._announce(part)
        if item is None:
            return
        if not part.provider_executed:
            if self._busy():
                item.turn = Turn.WAITS
                self._waiting.append(item)
                return
            self._give(item)
        if item.inner is not None:
            self.late = item
        else:
            self._show(item, "")

    def announce_late(self, item: CallItem, part: Part) -> None:
        """The first params of a call may tell what its item should be announced with."""
        self.late = None
        match part:
            case ToolParamsDelta(id=call, delta=delta) if call == item.call:
                self._show(item, delta)
            case _:
                self._show(item, "")

    def _show(self, item: CallItem, params: str) -> None:
        item.opened(params)
        self._output.show(item)
        item.tell(self._output.events, item.kind.progress.announced)

    def params_delta(self, part: ToolParamsDelta) -> None:
        item = self._calls[part.id]
        if item is None:
            return
        item.came += len(part.delta)
        if item.turn is Turn.SPEAKS:
            item.written = item.came
            item.say(self._output.events, part.delta)
            if item.heard(part.delta):
                self._move_on()

    def params_end(self, part: ToolParamsEnd) -> None:
        item = self._calls[part.id]
        if item is not None and not self._failed and not self._waits(item, part):
            self._end(item)

    def tool_call(self, part: ToolCall) -> None:
        if self._failed:  # the end of a call that was cut: the last snapshot has what came of it
            cut = self._calls.get(part.id)
            if cut is not None:
                cut.made(part, schema.beside_names(self._output.kept(part.extra).item))
            return
        item = self._calls[part.id] if part.id in self._calls else self._whole_call(part)
        if item is not None and not self._waits(item, part):
            self._hand_over(item, part)
            self._move_on()

    # Whose turn it is

    def _busy(self) -> bool:
        """Whether somebody speaks who is not all said."""
        return self._speaker is not None and not self._speaker.all_said(self._fold)

    def _give(self, item: CallItem) -> None:
        if self._speaker is not None:
            self._speaker.turn = Turn.RESTS
        item.turn = Turn.SPEAKS
        self._speaker = item

    def _waits(self, item: CallItem, part: ToolParamsEnd | ToolCall) -> bool:
        """Whether the end of a call must wait; then it is kept."""
        if item.turn is Turn.SPEAKS or (item.turn is Turn.RESTS and not self._busy()):
            return False
        if item.turn is Turn.RESTS and not item.held:
            self._ending.append(item)
        item.held.append(part)
        return True

    def _move_on(self) -> None:
        """Writes what waited for the speaker, if it is all said."""
        if not (self._ending or self._waiting) or self._busy():
            return
        ending, self._ending = self._ending, []
        for item in ending:
            self._replay(item)
        while self._waiting and not self._busy():
            item = self._waiting.popleft()
            self._give(item)
            self._show(item, self._fold.joined(item.call)[: item.came])
            self._catch_up(item)
            self._replay(item)

    def _catch_up(self, item: CallItem) -> None:
        """Writes what of its params was not written as it came."""
        if item.written < item.came:
            text = self._fold.joined(item.call)[item.written : item.came]
            item.written = item.came
            item.say(self._output.events, text)

    def fail(self) -> None:
        """What waited is written as far as it came; what is open stays so."""
        self._speaker = None
        self._move_on()
        while self._waiting:
            self._speaker = None
            self._move_on()
        for item in self._calls.values():
            if item is not None and item.turn is Turn.RESTS and not item.ended:
                self._catch_up(item)  # more came of it while another spoke
        self._failed = True

    def resume(self) -> None:
        """The client was told of every call as it came: nothing waits any more."""
        for item in self._calls.values():
            if item is None or item.done is not None:
                continue
            if item.turn is Turn.WAITS:
                item.turn = Turn.SPEAKS
                item.opened(self._fold.joined(item.call)[: item.came])
            self._catch_up(item)
            self._replay(item)
        self._waiting.clear()
        self._ending.clear()

    def _replay(self, item: CallItem) -> None:
        held, item.held = item.held, []
        for part in held:
            if isinstance(part, ToolCall):
                self._hand_over(item, part)
            else:
                self._end(item)

    def _end(self, item: CallItem) -> None:
        item.ended = True
        self._catch_up(item)
        item.said(self._output.events, self._fold.joined(item.call))

    def _hand_over(self, item: CallItem, part: ToolCall) -> None:
        if item is self._speaker:
            self._speaker = None
        item.made(part, schema.beside_names(self._output.kept(part.extra).item))
        item.tell(self._output.events, item.kind.progress.asked)
        self.cut = self.cut or part.invalid == "stream-failed"
        if part.signature is not None and part.id not in self._signed:
            self._output.lost(part.type, "it has no place for a proof")
        if _asks_the_client(part):
            self.pending.append(_pending(part, item.kind))
        if item.kind.answered is None:
            self._output.said(item)

    def _whole_call(self, part: ToolCall) -> CallItem | None:
        if not part.name or part.invalid == "stream-failed":
            self._output.lost(part.type, "it was never announced")
            return None
        item = self._announce(part)
        if item is not None:
            self._show(item, part.params)
            if part.params:
                item.say(self._output.events, part.params)
            item.said(self._output.events, part.params)
        return item

    def tool_result(self, part: ToolResult) -> None:
        item = self._calls.get(part.id)
        kept: Fields = {**(self._output.kept(part.extra).item or {})}
        output = schema.unpacked(Raw(_json(kept)), schema.Named)
        if output.type is None and item is not None and item.kind.output is not None:
            output = schema.Named(item.kind.output)
        if output.type is not None:
            self._own_item(part, kept, output)
        elif item is None or item.kind.answered is None:
            self._output.lost(part.type, "no item for the result of this call")
        elif part.preliminary:
            item.partial(self._output.events, part, schema.beside_names(kept))
        else:
            item.answer(
                self._output.events, part, schema.beside_names(kept), ours=self._output.ours
            )
            self._output.said(item)

    def _own_item(self, part: ToolResult, kept: Fields, output: schema.Named) -> None:
        """A result that is an item of its own, announced by the first that is told of it."""
        item = self._outputs.get(part.id)
        if item is None:
            type = output.type or ""
            seat = self._output.claim(output.id, OUTPUTS[type][0] if type in OUTPUTS else "out")
            item = OutputItem(seat, part.id, type, kept)
            self._outputs[part.id] = item
            self._output.add(item)
        if part.preliminary:
            item.partial(self._output.events, part.result)
        else:
            item.answer(self._output.events, part, kept)
            self._output.said(item)

    def approval(self, part: ToolApprovalRequest) -> None:
        """The item of its call is the request."""
        item = self._calls.get(part.id)
        if item is None or item.kind is not KINDS["mcp_approval_request"]:
            self._output.lost(part.type, "only remote tools are approved here")
        else:
            self.pending.append(schema.PendingCall(part.approval_id, item.kind.type))


def _asks_the_client(part: ToolCall) -> bool:
    return part.invalid is None and not part.provider_executed


def _pending(part: ToolCall, kind: Kind) -> schema.PendingCall:
    """What a call wants of the client; a call of a tool of the wire's own says it in its item."""
    if kind is CUSTOM:
        return schema.PendingCall(
            part.id, "custom", custom=schema.PendingCustom(part.name, part.params)
        )
    if kind is not FUNCTION:
        return schema.PendingCall(part.id, kind.type)
    function = schema.PendingFunction(part.name, part.params)
    return schema.PendingCall(part.id, "function", function=function)
