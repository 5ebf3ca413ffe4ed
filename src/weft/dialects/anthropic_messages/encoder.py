"""Parts into a Messages stream, and a fold into a body.

- One block is open at a time. What would interleave waits, and is written when its turn comes,
  in order of announcement (see items).
- Blocks are numbered densely from 0; every event has its `event:` line; there is no `[DONE]`.
- Proofs of reasoning are written only where they came from here. Nothing is ever forged.
- What signs a call stands sealed in a redacted block before it, if it is known by then.
- A call that cannot be handed over waits for the finish. Where the tokens ran out it is written as
  far as it came, for clients try again then; else the stream ends with an error: a stop would make
  a broken turn look whole. Nothing follows an error.
- What was not told but is required is zero: the official client reads those fields unasked.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from msgspec import UNSET, Raw

from weft.assembler import Assembler, Response, merged
from weft.context import Context
from weft.dialects.anthropic_messages import wire
from weft.dialects.anthropic_messages.encoding.items import (
    BodyWriter,
    Carrier,
    Item,
    SaidText,
    SaidThought,
    SaidUse,
    Whole,
    Writer,
    flaw,
    is_cut,
)
from weft.dialects.anthropic_messages.errors import type_of
from weft.dialects.anthropic_messages.mapping import (
    REASONS,
    REFUSAL,
    WORDS,
    tokens,
)
from weft.dialects.anthropic_messages.wire import NAME
from weft.dialects.base import PassedOn
from weft.dialects.replay import response_to_parts
from weft.findings import Findings
from weft.parts import (
    ErrorPart,
    File,
    Finish,
    FinishReason,
    Opaque,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
    Usage,
)
from weft.sse import Event

_PING = Event("ping", b'{"type":"ping"}')


class _State(Enum):
    WRITING = "writing"
    FAILED = "failed"


class MessagesEncoder:
    """Writes one message. `fold` is the fold of the very parts it is fed."""

    def __init__(
        self, context: Context, fold: Assembler, findings: Findings, writer: Writer | None = None
    ) -> None:
        """`writer` makes something else than events of it."""
        self._context = context
        self._fold = fold
        self._carrier = Carrier(context, findings, ours=False)
        self._state = _State.WRITING
        self._writer = writer or Writer()
        self._queue: deque[Item] = deque()
        """What is announced and not closed; the first one leads."""
        self._texts: dict[str, SaidText] = {}
        self._thoughts: dict[str, SaidThought] = {}
        self._uses: dict[str, SaidUse | None] = {}
        """Calls that were announced; None for one that has no block here."""
        self._asked = False
        """Whether a call for the client was written."""
        self._usage: Usage | None = None

    def feed(self, parts: Sequence[Part]) -> list[Event]:
        """Returns the events that these parts make, each in one piece."""
        out: list[Event] = []
        self._writer.out = out
        for part in parts:
            if self._state is _State.WRITING:
                _HANDLERS[part.__class__](self, part, out)
            elif part.__class__ in _CONTENT:
                self._carrier.lost(part.type, "", "it came after an error")
            elif isinstance(part, Finish):
                self._carrier.untold(merged(self._usage, part.usage))
        return out

    def finish(self) -> list[Event]:
        """The finish part said it all."""
        return []

    def resume(self, before: PassedOn) -> None:
        """What was fed is all it has to know: blocks are numbered as those before were, and calls
        of this dialect keep their ids.
        """

    def keepalive(self) -> Event | None:
        return _PING

    # The message

    def _metadata(self, part: ResponseMetadata, out: list[Event]) -> None:
        self._carrier.ours = part.dialect == NAME
        self._carrier.source, self._carrier.model = part.dialect, part.model
        self._usage = part.usage
        self._writer.begin(_message(self._context, part.model, part.usage))

    def _on_finish(self, part: Finish, out: list[Event]) -> None:
        self._settle(part)
        told = merged(self._usage, part.usage)
        if self._state is _State.FAILED:
            self._carrier.untold(told)
            return
        extra = self._carrier.extra(part.extra, wire.FinishExtra)
        word = _word(part.reason, part.raw_reason, part.stop_sequence, self._carrier, self._asked)
        details = REFUSAL if word == "refusal" and not self._carrier.ours else UNSET
        if extra.stop_details is not UNSET:
            details = extra.stop_details
        stop = wire.Stop(word, part.stop_sequence, details, extra.container)
        self._carrier.usage(told)
        usage = tokens(told, extra.usage or wire.UsageExtra())
        self._writer.end(stop, usage, extra.context_management)

    def _settle(self, finish: Finish) -> None:
        """Decides on calls that cannot be handed over."""
        flawed = [
            one for one in self._queue if isinstance(one, SaidUse) and one.failure is not None
        ]
        for item in flawed:
            self._carrier.lost("tool-call", item.id, item.failure or "")
            if finish.reason != "length" or not item.cut:
                self._fail("api_error", item.failure or "")
                return
            item.failure = None
        if flawed:
            first = self._queue[0]
            if not first.head:
                first.lead(self._writer, self._fold)
            self._move_on()

    def _on_error(self, part: ErrorPart, out: list[Event]) -> None:
        self._fail(type_of(part), part.message)

    def _fail(self, type: str, message: str) -> None:
        for item in list(self._queue)[1:]:
            if item.seen or isinstance(item, Whole):
                self._carrier.lost("error", item.id, f"{item.id!r} waited for its turn: cut off")
        self._state = _State.FAILED
        self._writer.fail(wire.Failure(type, message))

    # Whose turn it is

    def _announce(self, item: Item) -> None:
        self._queue.append(item)
        if self._queue[0] is item:
            item.lead(self._writer, self._fold)
            self._move_on()

    def _say(self, item: Item, part: TextDelta | ReasoningDelta | ToolParamsDelta) -> None:
        if self._queue[0] is item:
            item.say(self._writer, part.delta)
        else:
            item.seen += len(part.delta)

    def _end(self, item: Item) -> None:
        item.ended = True
        self._move_on()

    def _move_on(self) -> None:
        """Closes what is all said, and lets the next one lead."""
        queue, writer = self._queue, self._writer
        while queue and queue[0].ended:
            item = queue[0]
            if isinstance(item, SaidUse) and item.failure is not None:
                return
            queue.popleft()
            item.close(writer)
            if queue:
                queue[0].lead(writer, self._fold)

    # Text and reasoning

    def _text_start(self, part: TextStart, out: list[Event]) -> None:
        if part.refusal:
            self._carrier.refusal()
        self._texts[part.id] = item = SaidText(part.id)
        self._announce(item)

    def _text_delta(self, part: TextDelta, out: list[Event]) -> None:
        item = self._texts[part.id]
        if item.head:
            self._writer.say(item, part.delta)
        else:
            self._say(item, part)

    def _text_end(self, part: TextEnd, out: list[Event]) -> None:
        self._carrier.text(part)
        self._end(self._texts[part.id])

    def _source(self, part: Source, out: list[Event]) -> None:
        citation = self._carrier.citation(part)
        item = self._texts.get(part.text_id or "")
        if citation is not None and item is not None and not item.ended:
            item.cite(self._writer, citation)
        elif citation is not None:
            self._carrier.lost(part.type, part.id, "its text is not there, or ended before")

    def _reasoning_start(self, part: ReasoningStart, out: list[Event]) -> None:
        self._thoughts[part.id] = item = SaidThought(part)
        self._announce(item)

    def _reasoning_delta(self, part: ReasoningDelta, out: list[Event]) -> None:
        self._say(self._thoughts[part.id], part)

    def _reasoning_end(self, part: ReasoningEnd, out: list[Event]) -> None:
        item = self._thoughts[part.id]
        said = bool(item.head or item.seen)
        item.signature, item.redacted = self._carrier.proof(part, item.start, said=said)
        if not (said or item.signature or item.redacted):
            self._carrier.lost("reasoning-start", part.id, "it says nothing that can be written")
        self._end(item)

    # Calls

    def _params_start(self, part: ToolParamsStart, out: list[Event]) -> None:
        item = self._use(part)
        if item is not None:
            self._whole(self._carrier.signed(part))
            self._announce(item)

    def _use(self, part: ToolParamsStart | ToolCall) -> SaidUse | None:
        block = self._carrier.use(part)
        item = None if block is None else SaidUse(part.id, block, free=part.format == "text")
        self._uses[part.id] = item
        return item

    def _params_delta(self, part: ToolParamsDelta, out: list[Event]) -> None:
        item = self._uses[part.id]
        if item is not None:
            self._say(item, part)

    def _nothing(self, part: Part, out: list[Event]) -> None:
        """The tool-call tells whether it can be handed over."""

    def _tool_call(self, part: ToolCall, out: list[Event]) -> None:
        if not part.name:
            self._carrier.lost(part.type, part.id, "it has no name")
            return
        whole = part.id not in self._uses
        item = self._use(part) if whole else self._uses[part.id]
        if item is None:
            return
        if whole:
            self._whole(self._carrier.signed(part))
        self._carrier.late(part)
        item.failure, item.cut = flaw(part), is_cut(part)
        if item.failure is None and not part.provider_executed:
            self._asked = True
        if whole:
            item.seen = len(part.params)
            item.ended = True
            self._announce(item)
        else:
            self._end(item)

    def _tool_result(self, part: ToolResult, out: list[Event]) -> None:
        self._whole(self._carrier.result(part))

    def _opaque(self, part: Opaque, out: list[Event]) -> None:
        self._whole(self._carrier.opaque(part))

    def _whole(self, block: wire.WrittenBlock | Raw | None) -> None:
        if block is not None:
            self._announce(Whole(block))

    def _unsaid(self, part: ToolApprovalRequest | File, out: list[Event]) -> None:
        self._carrier.nothing(part)


def _message(context: Context, model: str | None, usage: Usage | None) -> wire.Written:
    return wire.Written(
        context.response_id or context.ids.mint("msg"),
        context.model_name(model),
        tokens(usage, wire.UsageExtra(), first=True),
    )


def _word(
    reason: FinishReason, raw: str | None, sequence: str | None, carrier: Carrier, asked: bool
) -> str:
    """The stop reason: the response's own word if that is ours; else the one for its reason."""
    if reason == "tool-calls" and not asked:
        carrier.lost("finish", reason, "no call was made that this wire can carry")
        return "end_turn"
    if carrier.ours and REASONS.get(raw or "") == reason:
        return raw or ""
    if reason == "other":
        carrier.lost("finish", reason, f"no word for {raw or reason}")
        return "tool_use" if asked else "end_turn"
    if reason == "stop" and sequence is not None:
        return "stop_sequence"
    return WORDS[reason]


_CONTENT: frozenset[type[Part]] = frozenset(
    {TextStart, ReasoningStart, ToolParamsStart, ToolResult, Source, File, Opaque}
)
"""Parts that bring something new."""

_HANDLERS: dict[type[Part], Callable[[MessagesEncoder, Any, list[Event]], None]] = {
    ResponseMetadata: MessagesEncoder._metadata,
    TextStart: MessagesEncoder._text_start,
    TextDelta: MessagesEncoder._text_delta,
    TextEnd: MessagesEncoder._text_end,
    ReasoningStart: MessagesEncoder._reasoning_start,
    ReasoningDelta: MessagesEncoder._reasoning_delta,
    ReasoningEnd: MessagesEncoder._reasoning_end,
    ToolParamsStart: MessagesEncoder._params_start,
    ToolParamsDelta: MessagesEncoder._params_delta,
    ToolParamsEnd: MessagesEncoder._nothing,
    ToolCall: MessagesEncoder._tool_call,
    ToolResult: MessagesEncoder._tool_result,
    ToolApprovalRequest: MessagesEncoder._unsaid,
    Source: MessagesEncoder._source,
    File: MessagesEncoder._unsaid,
    Opaque: MessagesEncoder._opaque,
    ErrorPart: MessagesEncoder._on_error,
    Finish: MessagesEncoder._on_finish,
}


# A body


def body(response: Response, context: Context, findings: Findings | None = None) -> bytes:
    """Returns the message of a fold; of a failed one, the error body.

    It is what the events of the same parts add up to. Whatever it cannot say leaves a finding.
    """
    writer = BodyWriter()
    error = response.error
    if error is not None:
        writer.fail(wire.Failure(type_of(error), error.message))
        return writer.body
    fold = Assembler()
    parts = response_to_parts(response)
    for part in parts:
        fold.feed(part)
    MessagesEncoder(context, fold, findings or Findings(), writer).feed(parts)
    return writer.body
