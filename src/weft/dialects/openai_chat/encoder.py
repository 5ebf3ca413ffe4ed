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
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from weft.assembler import Assembler, Item, ReasoningItem, Response, TextItem, merged
from weft.context import Context
from weft.dialects.base import PassedOn
from weft.dialects.openai_chat import written
from weft.dialects.openai_chat.errors import Failed, error_written
from weft.dialects.openai_chat.fields import Field
from weft.dialects.openai_chat.wire import NAME
from weft.dialects.openai_chat.written import Carried
from weft.findings import Findings
from weft.parts import (
    ErrorPart,
    File,
    Finish,
    Opaque,
    ParamsFormat,
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

_EMPTY, _NULL = b'""', b"null"

_PARAMS: dict[ParamsFormat, bytes] = {
    "json": b'"function":{"arguments":',
    "text": b'"custom":{"input":',
}
"""How an entry of `tool_calls` goes on, up to the params."""


class _Chunks:
    """What the chunks of one response have in common."""

    __slots__ = ("_created", "_id", "_null", "asked", "head", "model", "tail")

    def __init__(self, id: str, created: int, model: str, *, asked: bool) -> None:
        self._id = id
        self._created = created
        self.model = model
        self.asked = asked
        """Whether the client asked for usage; it is null then on all chunks but the last."""
        self._null = b',"usage":null}' if asked else b"}"
        self.head = self._start() + b'[{"index":0,"delta":'
        self.tail = b',"logprobs":null,"finish_reason":null}]' + self._null

    def _start(self) -> bytes:
        known = (_json(self._id), self._created, _json(self.model))
        head = b'{"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,' % known
        return head + b'"choices":'

    def delta(self, delta: bytes) -> Event:
        return Event("", self.head + delta + self.tail)

    def finish(self, word: str) -> Event:
        end = b'[{"index":0,"delta":{},"logprobs":null,"finish_reason":%b}]' % _json(word)
        return Event("", self._start() + end + self._null)

    def usage(self, usage: written.Usage) -> Event:
        return Event("", b'%b[],"usage":%b}' % (self._start(), _json(usage)))


class ChatEncoder:
    """Writes one response. `fold` is the fold of the very parts it is fed."""

    def __init__(self, context: Context, fold: Assembler, findings: Findings) -> None:
        self._context = context
        self._fold = fold
        self._carried = Carried(findings, (NAME, context.origin))
        self._chunks = _Chunks("", 0, "", asked=False)
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
        self._words = written.WORDS
        self._usage: Usage | None = None
        self._error: ErrorPart | None = None
        self._begins = False
        """Whether the chunk with the role is still to be written."""

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
        self._chunks = chunks = _Chunks(
            written.response_id(context),
            context.now if part.created is None else part.created,
            context.model_name(part.model),
            asked=context.request is not None and context.request.include_usage,
        )
        for field in (self._content, self._refusal, self._reasoning):
            field.frame(chunks.head, chunks.tail)
        self._params_tail = b"}}]}" + chunks.tail
        self._begins = True

    def _begin_message(self, content: bytes, out: list[Event]) -> None:
        """Writes the role, and what `content` is so far, if nothing was said before."""
        if self._begins:
            self._begins = False
            delta = b'{"role":"assistant","content":%b,"refusal":null}' % content
            out.append(self._chunks.delta(delta))

    def _on_error(self, part: ErrorPart, out: list[Event]) -> None:
        self._error = part

    def _on_finish(self, part: Finish, out: list[Event]) -> None:
        self._begin_message(_EMPTY, out)
        if self._sources:
            self._cite(out)
        told = merged(self._usage, part.usage)
        usage = self._carried.usage(told) if self._chunks.asked else UNSET
        if self._error is not None:
            error = error_written(self._error, ours=self._carried.ours)
            out.append(Event("", _json(Failed(error, usage))))
        else:
            self._chunks.model = part.model or self._chunks.model
            asked = bool(self._heads)
            word = self._carried.finish(part.reason, self._words, asked=asked)
            out.append(self._chunks.finish(word))
            if usage is not UNSET:
                out.append(self._chunks.usage(usage))
        self._carried.stop_sequence(part.stop_sequence)
        out.append(Event("", DONE))

    # Text and reasoning

    def _begin(self, field: Field, part: TextStart | ReasoningStart) -> None:
        if self._floor is field:
            self._carried.joined(part)
        self._floor = field
        field.start(part.id)

    def _text_start(self, part: TextStart, out: list[Event]) -> None:
        self._begin_message(_NULL if part.refusal else _EMPTY, out)
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
            out.append(self._chunks.delta(b'{"extra_content":%b}' % bytes(extra)))

    def _reasoning_start(self, part: ReasoningStart, out: list[Event]) -> None:
        self._begin_message(_NULL, out)
        self._thoughts[part.id] = part
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
        """Details repeat the text. A reader takes it from them only in a delta that has no other
        reasoning, so they go out beside the last of it.
        """
        held, self._held = self._held, ""
        text = self._fold.reasoning(part.id)
        details = self._carried.proof(part, self._thoughts[part.id], text)
        if details and self._floor is self._reasoning:
            self._floor = None  # readers know by the proof that it is over
        if held or details:
            thought = written.Thought(held or UNSET, details or UNSET)
            out.append(self._chunks.delta(_json(thought)))

    # Calls

    def _params_start(self, part: ToolParamsStart, out: list[Event]) -> None:
        if not part.provider_executed:
            self._announce(part, out)

    def _announce(self, part: ToolParamsStart | ToolCall, out: list[Event]) -> None:
        self._begin_message(_NULL, out)
        self._carried.kind(part)
        index = len(self._heads)
        entry = b'{"tool_calls":[{"index":%d,%b' % (index, _PARAMS[part.format])
        self._heads[part.id] = self._chunks.head + entry
        self._floor = None
        early = isinstance(part, ToolParamsStart) and not self._carried.ours
        extra = self._carried.envelope(part) if early else UNSET
        call = _json(written.call(part, "", index=index, extra=extra))
        out.append(self._chunks.delta(b'{"tool_calls":[%b]}' % call))

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
            self._words = written.CUT_WORDS
        extra = self._carried.extra(part)
        if isinstance(extra, Raw):  # the official client wants a function in each entry of one
            entry = self._heads[part.id] + b'""}'
            data = b'%b,"extra_content":%b}]}%b' % (entry, bytes(extra), self._chunks.tail)
            out.append(Event("", data))

    def _is_whole(self, part: ToolCall, out: list[Event]) -> bool:
        """Writes a call that was not announced, if it can be written."""
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
        places = written.places((id, len(self._fold.text(id))) for id in texts)
        annotations = _json(written.annotations(self._sources, places))
        out.append(self._chunks.delta(b'{"annotations":%b}' % annotations))


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


def body(response: Response, context: Context, findings: Findings | None = None) -> bytes:
    """Returns the `chat.completion` of a fold; of a failed one, the error body.

    It says what the stream of the same parts says, but for the order of text, reasoning and
    calls. Whatever it cannot say leaves a finding.
    """
    ours = response.dialect == NAME
    if response.error is not None:
        return _json(Failed(error_written(response.error, ours=ours)))
    carried = Carried(findings or Findings(), (NAME, context.origin), ours=ours)
    carried.model = response.model
    carried.stop_sequence(response.stop_sequence)
    cut = any(call.invalid == "stream-failed" for call in response.invalid_tool_calls)
    words = written.CUT_WORDS if cut else written.WORDS
    reason = response.finish_reason
    message = _message(response, carried)
    asked = message.tool_calls is not UNSET
    word = None if reason is None else carried.finish(reason, words, asked=asked)
    completion = written.Completion(
        id=written.response_id(context),
        created=context.now if response.created is None else response.created,
        model=context.model_name(response.model),
        choices=[written.Choice(message, word)],
        usage=carried.usage(response.usage),
    )
    return _json(completion)


def _message(response: Response, carried: Carried) -> written.Message:
    items = response.items
    texts = [item for item in items if isinstance(item, TextItem)]
    thoughts = [item for item in items if isinstance(item, ReasoningItem)]
    calls = [item for item in items if isinstance(item, ToolCall) and carried.call(item)]
    sources = [item for item in items if isinstance(item, Source) and carried.citation(item)]
    places = written.places((item.id, len(item.text)) for item in texts if not item.refusal)
    proofs = [proof for item in thoughts for proof in carried.proof(item, item, item.text)]
    signed = [extra for extra in map(carried.signed, texts) if isinstance(extra, Raw)]
    _note_losses(response, carried)
    spoken = not items or (isinstance(items[0], TextItem) and not items[0].refusal)
    return written.Message(
        content=response.text or ("" if spoken else None),
        refusal=response.refusal or None,
        reasoning_content=response.reasoning or UNSET,
        reasoning_details=proofs or UNSET,
        tool_calls=[_whole_call(call, carried) for call in calls] or UNSET,
        annotations=written.annotations(sources, places) or UNSET,
        extra_content=signed[-1] if signed else UNSET,
    )


def _whole_call(call: ToolCall, carried: Carried) -> written.Call:
    carried.kind(call)
    return written.call(call, call.params, extra=carried.extra(call))


def _note_losses(response: Response, carried: Carried) -> None:
    """What has no place in a message: some items, and the bounds between those of a kind."""
    said: set[tuple[type[Item], bool]] = set()
    for item in response.items:
        if isinstance(item, TextItem | ReasoningItem):
            kind = (item.__class__, isinstance(item, TextItem) and item.refusal)
            if kind in said and not carried.apart(item):
                carried.joined(item)
            said.add(kind)
        elif item.__class__ in written.UNSAID:
            carried.nothing(item)
