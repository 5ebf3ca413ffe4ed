"""Parts into a Chat Completions stream as OpenAI itself sends it, and a fold into a body.

- Every event is a chunk without a name. The first one has the role, and no content (null) unless
  the answer begins with text; the last one the finish reason and an empty delta; usage comes after
  it, only if it was asked for; then `[DONE]`.
- A message has one text, one refusal and one reasoning. Parts of a kind are joined by whoever
  reads; they are never mixed (see fields). Order is that of the chunks.
- Calls have the index of their announcement. Their deltas may interleave.
- Sources are all in one chunk before the finish: the official client takes no second list.
- An error is written instead of the finish reason: clients stop reading there.
- What this dialect wants back (`extra`) is written only where it came from this dialect.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw

from weft.assembler import Item, ReasoningItem, Response, TextItem, merged
from weft.context import Context
from weft.dialects.base import PassedOn
from weft.dialects.openai_chat import output_schema
from weft.dialects.openai_chat.encoding.writers import ChunkWriter, MessageWriter, Writer
from weft.dialects.openai_chat.errors import Failed, error_written
from weft.dialects.openai_chat.encoding.delta_field import Field
from weft.dialects.openai_chat.wire import NAME
from weft.dialects.openai_chat.output_schema import Carried
from weft.dialects.replay import response_to_parts
from weft.findings import Findings
from weft.parts import (
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
from weft.sse import DONE, Event

_json = msgspec.json.Encoder().encode


class Fold(Protocol):
    """What the encoder reads of the fold: whole texts, by their ids."""

    def text(self, id: str) -> str: ...

    def reasoning(self, id: str) -> str: ...


class ChatEncoder:
    """Writes one response. `fold` is the fold of the very parts it is fed."""

    def __init__(
        self, context: Context, fold: Fold, findings: Findings, writer: Writer | None = None
    ) -> None:
        asked = context.request is not None and context.request.include_usage
        self._context = context
        self._fold = fold
        self._carried = Carried(findings, (NAME, context.origin))
        self._writer: Writer = writer or ChunkWriter(asked=asked)
        self._content = Field(b"content")
        self._refusal = Field(b"refusal")
        self._reasoning = Field(b"reasoning_content")
        self._floor: Field | None = None
        """The field of the last part, if nothing of another kind was said since."""
        self._texts: dict[str, Field] = {}
        self._thoughts: dict[str, ReasoningStart] = {}
        self._held = ""
        """The last delta of reasoning that may have a proof: it goes out together with it."""
        self._heads: dict[str, bytes] = {}
        """How the deltas of each call begin, in order of announcement."""
        self._params_tail = b""
        self._sources: list[Source] = []
        self._words = output_schema.WORDS
        self._usage: Usage | None = None
        self._error: ErrorPart | None = None
        self._begins = False
        """Whether the chunk with the role is still to be output_schema."""

    def feed(self, parts: Sequence[Part]) -> list[Event]:
        """Returns the events that these parts make, each in one piece."""
        out: list[Event] = []
        for part in parts:
            _HANDLERS[part.__class__](self, part, out)
        return out

    def finish(self) -> list[Event]:
        """The finish part said it all."""
        return []

    def resume(self, before: PassedOn) -> None:
        """What was fed is all it has to know. What waited for something behind it was told."""
        self._begins = False
        self._held = ""
        self._sources = []

    def keepalive(self) -> Event | None:
        return None

    def _unsaid(self, part: Part, out: list[Event]) -> None:
        self._carried.nothing(part)

    # The response

    def _metadata(self, part: ResponseMetadata, out: list[Event]) -> None:
        context = self._context
        self._carried.ours = part.dialect == NAME
        self._carried.model = part.model
        self._usage = part.usage
        self._writer.begin(
            output_schema.response_id(context),
            context.now if part.created is None else part.created,
            context.model_name(part.model),
            (self._content, self._refusal, self._reasoning),
        )
        self._params_tail = b"}}]}" + self._writer.tail
        self._begins = True

    def _begin_message(self, content: str | None, out: list[Event]) -> None:
        """Writes the role, and what `content` is so far, if nothing was said before."""
        if self._begins:
            self._begins = False
            self._writer.role(content, out)

    def _on_error(self, part: ErrorPart, out: list[Event]) -> None:
        self._error = part

    def _on_finish(self, part: Finish, out: list[Event]) -> None:
        self._begin_message("", out)
        if self._sources:
            self._cite(out)
        told = merged(self._usage, part.usage)
        usage = self._carried.usage(told) if self._writer.asked else UNSET
        if self._error is not None:
            error = error_written(self._error, ours=self._carried.ours)
            self._writer.failed(error, usage, out)
        else:
            asked = bool(self._heads)
            word = self._carried.finish(part.reason, self._words, asked=asked)
            self._writer.finish(word, part.model, usage, out)
        self._carried.stop_sequence(part.stop_sequence)
        out.append(Event("", DONE))

    # Text and reasoning

    def _begin(self, field: Field, part: TextStart | ReasoningStart) -> None:
        if self._writer.joins(field, self._floor):
            self._carried.joined(part)
        self._floor = field
        field.start(part.id)

    def _text_start(self, part: TextStart, out: list[Event]) -> None:
        self._begin_message(None if part.refusal else "", out)
        self._texts[part.id] = field = self._refusal if part.refusal else self._content
        self._begin(field, part)

    def _text_delta(self, part: TextDelta, out: list[Event]) -> None:
        field = self._texts[part.id]
        if field.speaker == part.id:
            out.append(Event("", field.head + _json(part.delta) + field.tail))
        else:
            field.wait(part.id, part)

    def _text_end(self, part: TextEnd, out: list[Event]) -> None:
        field = self._texts.pop(part.id)
        if field.speaker != part.id:
            field.wait(part.id, part)
            return
        self._sign(part, out)
        for waited in field.end():
            if isinstance(waited, TextDelta):
                out.append(Event("", field.head + _json(waited.delta) + field.tail))
            elif isinstance(waited, TextEnd):
                self._sign(waited, out)

    def _sign(self, part: TextEnd, out: list[Event]) -> None:
        extra = self._carried.signed(part)
        if isinstance(extra, Raw):
            self._writer.signed(extra, out)

    def _reasoning_start(self, part: ReasoningStart, out: list[Event]) -> None:
        self._begin_message(None, out)
        self._thoughts[part.id] = part
        if self._writer.joins_thoughts:
            self._reasoning.start(part.id)
        else:
            self._begin(self._reasoning, part)

    def _reasoning_delta(self, part: ReasoningDelta, out: list[Event]) -> None:
        field = self._reasoning
        if field.speaker == part.id:
            self._think(part, out)
        else:
            field.wait(part.id, part)

    def _reasoning_end(self, part: ReasoningEnd, out: list[Event]) -> None:
        field = self._reasoning
        if field.speaker != part.id:
            field.wait(part.id, part)
            return
        self._conclude(part, out)
        for waited in field.end():
            if isinstance(waited, ReasoningDelta):
                self._think(waited, out)
            elif isinstance(waited, ReasoningEnd):
                self._conclude(waited, out)

    def _think(self, part: ReasoningDelta, out: list[Event]) -> None:
        delta = part.delta
        if self._carried.ours:
            delta, self._held = self._held, delta
        if delta:
            out.append(Event("", self._reasoning.head + _json(delta) + self._reasoning.tail))

    def _conclude(self, part: ReasoningEnd, out: list[Event]) -> None:
        held, self._held = self._held, ""
        text = self._fold.reasoning(part.id)
        start = self._thoughts[part.id]
        details = self._carried.proof(part, start, text)
        if details and self._floor is self._reasoning:
            self._floor = None  # readers know by the proof that it is over
        if self._writer.joins_thoughts and self._reasoning.said[0] != part.id:
            self._carried.bound(part, start, text)
        self._writer.thought(held, details, out)

    # Calls

    def _params_start(self, part: ToolParamsStart, out: list[Event]) -> None:
        if not part.provider_executed:
            self._announce(part, out)

    def _announce(self, part: ToolParamsStart | ToolCall, out: list[Event]) -> None:
        self._begin_message(None, out)
        self._carried.kind(part)
        self._floor = None
        early = isinstance(part, ToolParamsStart) and not self._carried.ours
        extra = self._carried.envelope(part) if early else UNSET
        call = output_schema.call(part, extra)
        self._heads[part.id] = self._writer.call(call, len(self._heads), part.format, out)

    def _params_delta(self, part: ToolParamsDelta, out: list[Event]) -> None:
        head = self._heads.get(part.id)
        if head is not None:  # else the provider executes it
            out.append(Event("", head + _json(part.delta) + self._params_tail))

    def _params_end(self, part: ToolParamsEnd, out: list[Event]) -> None:
        """The wire has no end marks."""

    def _tool_call(self, part: ToolCall, out: list[Event]) -> None:
        if part.id not in self._heads and not self._is_whole(part, out):
            return
        if part.invalid == "stream-failed":
            self._words = output_schema.CUT_WORDS
        self._writer.made(part, self._heads[part.id], self._carried.extra(part), out)

    def _is_whole(self, part: ToolCall, out: list[Event]) -> bool:
        """Writes a call that was not announced, if it can be output_schema."""
        if not self._carried.call(part):
            return False
        if part.invalid == "stream-failed":
            self._carried.lost(part.type, "it was never announced")
            return False
        self._announce(part, out)
        if part.params:
            out.append(Event("", self._heads[part.id] + _json(part.params) + self._params_tail))
        return True

    # Sources

    def _source(self, part: Source, out: list[Event]) -> None:
        if self._carried.citation(part):
            self._sources.append(part)

    def _cite(self, out: list[Event]) -> None:
        texts = self._content.said
        places = output_schema.places((id, len(self._fold.text(id))) for id in texts)
        self._writer.annotations(output_schema.annotations(self._sources, places), out)


_HANDLERS: dict[type[Part], Callable[[ChatEncoder, Any, list[Event]], None]] = {
    ResponseMetadata: ChatEncoder._metadata,
    TextStart: ChatEncoder._text_start,
    TextDelta: ChatEncoder._text_delta,
    TextEnd: ChatEncoder._text_end,
    ReasoningStart: ChatEncoder._reasoning_start,
    ReasoningDelta: ChatEncoder._reasoning_delta,
    ReasoningEnd: ChatEncoder._reasoning_end,
    ToolParamsStart: ChatEncoder._params_start,
    ToolParamsDelta: ChatEncoder._params_delta,
    ToolParamsEnd: ChatEncoder._params_end,
    ToolCall: ChatEncoder._tool_call,
    ToolResult: ChatEncoder._unsaid,
    ToolApprovalRequest: ChatEncoder._unsaid,
    Source: ChatEncoder._source,
    File: ChatEncoder._unsaid,
    Opaque: ChatEncoder._unsaid,
    ErrorPart: ChatEncoder._on_error,
    Finish: ChatEncoder._on_finish,
}


# A response that is not streamed


class _Texts:
    """The texts of a response, by their ids."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items

    def text(self, id: str) -> str:
        return self._texts[TextItem, id]

    def reasoning(self, id: str) -> str:
        return self._texts[ReasoningItem, id]

    @cached_property
    def _texts(self) -> dict[tuple[type[Item], str], str]:
        said = (one for one in self._items if isinstance(one, TextItem | ReasoningItem))
        return {(one.__class__, one.id): one.text for one in said}


_DELTAS = (TextDelta, ReasoningDelta, ToolParamsDelta)


def body(response: Response, context: Context, findings: Findings | None = None) -> bytes:
    """Returns the `chat.completion` of a fold; of a failed one, the error body.

    It says what the stream of the same parts says, but for the order of text, reasoning and
    calls. Whatever it cannot say leaves a finding.
    """
    if response.error is not None:
        ours = response.dialect == NAME
        return _json(Failed(error_written(response.error, ours=ours)))
    writer = MessageWriter()
    encoder = ChatEncoder(context, _Texts(response.items), findings or Findings(), writer)
    parts = response_to_parts(response, in_place=True)
    if response.finish_reason is None:
        parts.pop()
    encoder.feed([part for part in parts if part.__class__ not in _DELTAS])
    return writer.body(response)
