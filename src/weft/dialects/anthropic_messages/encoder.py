"""Encodes parts as a Messages stream, and a response as a body.

- One block is open at a time. Blocks that would interleave are written in the order in which they
  were announced (see `encoding/writers.py`).
- Blocks are numbered from 0 without gaps; every event has its `event:` line; there is no `[DONE]`.
- A signature of another origin is never written as if it were one of this API: it goes into an
  envelope. The signature of a call goes into a redacted_thinking block before it, if it is known
  by then.
- A call that a client could not run waits for the finish. If the answer was cut by its limit, the
  call is written as far as it came, because clients then retry. Otherwise the stream ends with an
  error, because a stop reason would make a broken turn look complete. Nothing follows an error.
- Unknown counts are 0 where the official client reads the field without a check.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from msgspec import UNSET, Raw

from weft.assembler import Response, merged
from weft.context import Context
from weft.dialects.anthropic_messages import wire
from weft.dialects.anthropic_messages.encoding.losses import (
    MessagesLossReporter,
    comes_with_result,
    is_truncated,
    why_unusable,
)
from weft.dialects.anthropic_messages.encoding.writers import (
    BlockWriter,
    MessagesBodyWriter,
    MessagesEventWriter,
    TextBlockWriter,
    ThinkingBlockWriter,
    ToolUseBlockWriter,
    WholeBlockWriter,
)
from weft.dialects.anthropic_messages.errors import type_of
from weft.dialects.anthropic_messages.mapping import (
    DEFAULT_REFUSAL,
    STOP_REASONS,
    render_usage,
)
from weft.dialects.anthropic_messages.wire import FINISH_REASONS, NAME
from weft.dialects.base import PassthroughHistory
from weft.dialects.delta_templates import EventTemplate
from weft.dialects.replay import JoinedTexts, ResponseTexts, response_to_parts
from weft.findings import Findings
from weft.parts import (
    Delta,
    ErrorPart,
    File,
    Finish,
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

# API reference, "Ping events": any number of them, anywhere between other events.
_PING = Event("ping", b'{"type":"ping"}')


class _EncoderState(Enum):
    WRITING = "writing"
    FAILED = "failed"


class MessagesEncoder:
    """Encodes one message. `fold` is the fold of the parts it is fed."""

    def __init__(
        self,
        context: Context,
        fold: JoinedTexts,
        findings: Findings,
        writer: MessagesEventWriter | None = None,
    ) -> None:
        """`writer` collects a body instead of events."""
        self._context = context
        self._fold = fold
        self._losses = MessagesLossReporter(context, findings)
        self._state = _EncoderState.WRITING
        self._writer = writer or MessagesEventWriter()
        # A queue, because the API has one block open at a time, while parallel calls of Chat
        # Completions interleave: later ones wait in the fold, which has their text already.
        self._queue: deque[BlockWriter] = deque()
        """The blocks that are announced and not closed; the first one is being written."""
        self._texts: dict[str, TextBlockWriter] = {}
        self._thinking: dict[str, ThinkingBlockWriter] = {}
        self._tool_uses: dict[str, ToolUseBlockWriter | None] = {}
        """The calls that were announced; None for one that no block can carry."""
        self._unanswered: dict[str, ToolCall] = {}
        """The calls that are written together with their results."""
        self._client_called = False
        """Whether a call for the client was written."""
        self._usage: Usage | None = None

    def feed(self, parts: Sequence[Part]) -> list[Event]:
        """Returns the events that these parts complete."""
        out: list[Event] = []
        self._writer.out = out
        for part in parts:
            if self._state is _EncoderState.WRITING:
                _HANDLERS[part.__class__](self, part)
            elif part.__class__ in _CONTENT:
                # Starts only: a lost item is one finding, not one for each delta.
                self._losses.not_carried(part.type, "", "it came after an error")
            elif isinstance(part, Finish):
                self._losses.usage_after_error(merged(self._usage, part.usage))
        return out

    def finish(self) -> list[Event]:
        """The finish part already wrote the end."""
        return []

    def resume(self, before: PassthroughHistory) -> None:
        """Nothing to adjust: blocks are numbered like those passed on, and call ids are kept."""

    def keepalive(self) -> Event | None:
        return _PING

    def delta_template(self, last: Delta) -> EventTemplate | None:
        block: BlockWriter | None
        if isinstance(last, ToolParamsDelta):
            block = self._tool_uses[last.id]
        elif isinstance(last, ReasoningDelta):
            block = self._thinking[last.id]
        else:
            block = self._texts[last.id]
        # With a prefix the block was started, so it is the first of the queue.
        if block is None or block.ended or not block.delta_prefix:
            return None
        if isinstance(block, ToolUseBlockWriter) and block.free_text:
            return None  # it is escaped once more
        return self._writer.delta_template(block)

    # The message

    def _metadata(self, part: ResponseMetadata) -> None:
        self._losses.same_dialect = part.dialect == NAME
        self._losses.source, self._losses.model = part.dialect, part.model
        self._usage = part.usage
        message = wire.ResponseMessage(
            id=self._context.response_id or self._context.ids.mint("msg"),
            # The name that the client requested: see `_with_model` of the dialect.
            model=self._context.model_name(part.model),
            content=[],
            # Coding clients read the size of their context from here.
            usage=render_usage(part.usage, first=True),
        )
        self._writer.message_start(message)

    def _on_finish(self, part: Finish) -> None:
        for call in self._unanswered.values():
            self._losses.not_carried(call.type, call.id, "its result is not in this response")
        if self._queue:
            self._resolve_unusable_calls(part)
        usage = merged(self._usage, part.usage)
        if self._state is _EncoderState.FAILED:
            self._losses.usage_after_error(usage)
            return
        extra = self._losses.extra(part.extra, wire.MessagesFinishExtra)
        stop_reason = self._stop_reason(part)
        details = extra.stop_details
        # The API sends an object with every refusal; other dialects have none.
        if details is UNSET and stop_reason == "refusal" and not self._losses.same_dialect:
            details = DEFAULT_REFUSAL
        stop = wire.MessageDelta(stop_reason, part.stop_sequence, details, extra.container)
        self._losses.usage(usage)
        rendered = render_usage(usage, extra.usage)
        self._writer.message_end(stop, rendered, extra.context_management)

    def _stop_reason(self, finish: Finish) -> str:
        """The response's own stop reason if it came from this dialect, else the nearest one."""
        reason, raw = finish.reason, finish.raw_reason or ""
        # A client that is told to run tools and finds no call would loop or fail.
        if reason == "tool-calls" and not self._client_called:
            self._losses.not_carried("finish", reason, "no call of this response was written")
            return "end_turn"
        if self._losses.same_dialect and FINISH_REASONS.get(raw) == reason:
            return raw  # such as pause_turn and compaction, which are both a pause
        if reason == "other":
            self._losses.not_carried("finish", reason, f"no stop reason for {raw or reason!r}")
            # Calls that were written must be run, whatever the upstream called the end.
            return "tool_use" if self._client_called else "end_turn"
        if reason == "stop" and finish.stop_sequence is not None:
            return "stop_sequence"
        return STOP_REASONS[reason]

    def _resolve_unusable_calls(self, finish: Finish) -> None:
        """Writes truncated calls if the limit cut the answer; else ends with an error."""
        unusable = [
            (block, block.unusable)
            for block in self._queue
            if isinstance(block, ToolUseBlockWriter) and block.unusable is not None
        ]
        for block, why in unusable:
            self._losses.not_carried("tool-call", block.id, why)
            if finish.reason != "length" or not block.truncated:
                self._fail("api_error", why)
                return
            # Clients retry with a higher limit when they see `max_tokens`, and never run the call.
            # capture: tokens-run-out-inside-a-call
            block.unusable = None
        # The queue stopped at the first unusable call; what came after it was waiting.
        if unusable:
            first = self._queue[0]
            if not first.delta_prefix:
                first.open(self._writer, self._fold)
            self._close_ended()

    def _on_error(self, part: ErrorPart) -> None:
        self._fail(type_of(part), part.message)

    def _fail(self, type: str, message: str) -> None:
        # The first block is being written: what came of it is with the client. No block is stopped
        # and no `message_delta` written, which would make the message look complete.
        for block in list(self._queue)[1:]:
            if block.waiting or isinstance(block, WholeBlockWriter):
                why = f"{block.id!r} was not written yet: lost"
                self._losses.not_carried("error", block.id, why)
        self._state = _EncoderState.FAILED
        self._writer.error(wire.MessagesError(type, message))

    # The order of blocks

    def _announce(self, block: BlockWriter) -> None:
        self._queue.append(block)
        if self._queue[0] is block:
            block.open(self._writer, self._fold)
            # A whole block, or a call that came complete, ended before it was announced.
            if block.ended:
                self._close_ended()

    def _delta(
        self, block: BlockWriter, part: TextDelta | ReasoningDelta | ToolParamsDelta
    ) -> None:
        if self._queue[0] is block:
            block.delta(self._writer, part.delta)
        else:
            # Only counted. Copying the text here would hold it twice.
            block.waiting += len(part.delta)

    def _end(self, block: BlockWriter) -> None:
        block.ended = True
        self._close_ended()

    def _close_ended(self) -> None:
        """Closes the first block if it has ended, opens the next one, and so on."""
        queue, writer = self._queue, self._writer
        while queue and queue[0].ended:
            block = queue[0]
            # The finish decides. Blocks after it wait, because indexes have no gaps.
            if isinstance(block, ToolUseBlockWriter) and block.unusable is not None:
                return
            queue.popleft()
            block.close(writer)
            if queue:
                queue[0].open(writer, self._fold)

    def _whole_block(self, block: wire.ContentBlock | Raw | None) -> None:
        if block is not None:
            self._announce(WholeBlockWriter(block))

    # Text and reasoning

    def _text_start(self, part: TextStart) -> None:
        if part.refusal:
            self._losses.not_carried("text-start", "refusal", "a refusal is written as text")
        self._texts[part.id] = block = TextBlockWriter(part.id)
        self._announce(block)

    def _text_delta(self, part: TextDelta) -> None:
        block = self._texts[part.id]
        # The hot path. With a prefix the block was started, so it is the first of the queue.
        if block.delta_prefix:
            self._writer.delta(block, part.delta)
        else:
            self._delta(block, part)

    def _text_end(self, part: TextEnd) -> None:
        if part.signature is not None:
            why = f"its signature is only for {part.origin!r}"
            self._losses.not_carried("text-end", part.id, why)
        self._end(self._texts[part.id])

    def _source(self, part: Source) -> None:
        citation = self._losses.citation(part)
        if citation is None:
            return
        block = self._texts.get(part.text_id or "")
        # A citation belongs to an open text block: there is no event to add one later.
        if block is not None and not block.ended:
            block.citation(self._writer, citation)
        else:
            self._losses.not_carried(part.type, part.id, "its text is missing or has ended")

    def _reasoning_start(self, part: ReasoningStart) -> None:
        self._thinking[part.id] = block = ThinkingBlockWriter(part)
        self._announce(block)

    def _reasoning_delta(self, part: ReasoningDelta) -> None:
        self._delta(self._thinking[part.id], part)

    def _reasoning_end(self, part: ReasoningEnd) -> None:
        block = self._thinking[part.id]
        has_text = bool(block.delta_prefix or block.waiting)  # started, or waiting to be
        block.signature, block.redacted = self._losses.signature(
            part, block.start, has_text=has_text
        )
        if not (has_text or block.signature or block.redacted):
            why = "it has neither text nor a signature"
            self._losses.not_carried("reasoning-start", part.id, why)
        self._end(block)

    # Calls

    def _params_start(self, part: ToolParamsStart) -> None:
        if comes_with_result(part):
            self._tool_uses[part.id] = None
            return
        block = self._tool_use(part)
        if block is not None:
            # Before the call, not inside it: one block is open at a time.
            self._whole_block(self._losses.call_signature(part))
            self._announce(block)

    def _tool_use(self, part: ToolParamsStart | ToolCall) -> ToolUseBlockWriter | None:
        block = self._losses.tool_use(part)
        writer = (
            None
            if block is None
            else ToolUseBlockWriter(part.id, block, free_text=part.format == "text")
        )
        self._tool_uses[part.id] = writer
        return writer

    def _params_delta(self, part: ToolParamsDelta) -> None:
        block = self._tool_uses[part.id]
        if block is not None:
            self._delta(block, part)

    def _params_end(self, part: ToolParamsEnd) -> None:
        """The block ends with the tool-call, which says whether a client can run it."""

    def _tool_call(self, part: ToolCall) -> None:
        if not part.name:
            # The API refuses a tool_use block without a name when the client sends it back.
            self._losses.not_carried(part.type, part.id, "it has no name")
            return
        if not comes_with_result(part):
            self._write_call(part, announced=part.id in self._tool_uses)
        elif (unusable := why_unusable(part)) is None:
            self._unanswered[part.id] = part
        else:
            self._losses.not_carried(part.type, part.id, unusable)

    def _write_call(self, part: ToolCall, *, announced: bool) -> None:
        block = self._tool_uses[part.id] if announced else self._tool_use(part)
        if block is None:
            return
        if not announced:
            self._whole_block(self._losses.call_signature(part))
        if part.signature is not None and part.id not in self._losses.signed_calls:
            why = "its signature came after the start of the call"
            self._losses.not_carried(part.type, part.id, why)
        block.unusable, block.truncated = why_unusable(part), is_truncated(part)
        if block.unusable is None and not part.provider_executed:
            self._client_called = True
        if announced:
            self._end(block)
        else:
            # Written when its turn comes: the fold has the params. Those of a call that was run are
            # in the start of its block: a coding agent drops a stream, and asks again, if a block
            # that it does not know has deltas.
            if part.provider_executed and part.format == "json" and block.unusable is None:
                block.block.input = Raw(part.params.encode())
            else:
                block.waiting = len(part.params)
            block.ended = True
            self._announce(block)

    def _tool_result(self, part: ToolResult) -> None:
        if part.id in self._unanswered and not part.preliminary:
            self._write_call(self._unanswered.pop(part.id), announced=False)
        self._whole_block(self._losses.tool_result(part))

    def _opaque(self, part: Opaque) -> None:
        self._whole_block(self._losses.opaque(part))

    def _unsupported(self, part: ToolApprovalRequest | File) -> None:
        self._losses.not_carried(part.type, "", f"there is no block for a {part.type}")


_CONTENT: frozenset[type[Part]] = frozenset(
    {TextStart, ReasoningStart, ToolParamsStart, ToolResult, Source, File, Opaque}
)
"""Parts that are reported as lost after an error."""

_HANDLERS: dict[type[Part], Callable[[MessagesEncoder, Any], None]] = {
    ResponseMetadata: MessagesEncoder._metadata,
    TextStart: MessagesEncoder._text_start,
    TextDelta: MessagesEncoder._text_delta,
    TextEnd: MessagesEncoder._text_end,
    ReasoningStart: MessagesEncoder._reasoning_start,
    ReasoningDelta: MessagesEncoder._reasoning_delta,
    ReasoningEnd: MessagesEncoder._reasoning_end,
    ToolParamsStart: MessagesEncoder._params_start,
    ToolParamsDelta: MessagesEncoder._params_delta,
    ToolParamsEnd: MessagesEncoder._params_end,
    ToolCall: MessagesEncoder._tool_call,
    ToolResult: MessagesEncoder._tool_result,
    ToolApprovalRequest: MessagesEncoder._unsupported,
    Source: MessagesEncoder._source,
    File: MessagesEncoder._unsupported,
    Opaque: MessagesEncoder._opaque,
    ErrorPart: MessagesEncoder._on_error,
    Finish: MessagesEncoder._on_finish,
}


def body(response: Response, context: Context, findings: Findings | None = None) -> bytes:
    """Returns the message, or the error body of a failed response.

    It equals what a client accumulates from the events of the same response.
    """
    writer = MessagesBodyWriter()
    if response.error is not None:
        writer.error(wire.MessagesError(type_of(response.error), response.error.message))
        return writer.body
    fold = ResponseTexts(response.items)
    parts = response_to_parts(response)
    MessagesEncoder(context, fold, findings or Findings(), writer).feed(parts)
    return writer.body
