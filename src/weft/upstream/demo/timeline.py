"""Turns a script into parts, cut to the limits of the request, each with a wait before it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random

import msgspec
from msgspec import UNSET, Raw

from weft.ids import Ids
from weft.parts import (
    ErrorPart,
    Finish,
    FinishReason,
    Json,
    ParamsFormat,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningKind,
    ReasoningStart,
    ResponseMetadata,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    Usage,
)
from weft.request import Request, TextContent
from weft.upstream.demo.scripts import CallStep, ReasoningStep, Script, Step, TextStep
from weft.upstream.demo.signatures import sign
from weft.upstream.demo.texts import TOKENS_PER_WORD, count_tokens, split_words

CREATED = 1770595200
"""When every response was created: equal requests give equal bytes."""

_ARGUMENTS_SIZE = 12
"""Characters of arguments in one delta, at most; long arguments are a few hundred deltas."""

_FAILED = ErrorPart(
    "upstream", "error-midstream always fails after half of its answer", "server_error", 500, True
)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds before the first part, and the range of seconds between deltas."""

    first: float
    least: float
    most: float
    burst: float = 0.0
    """The probability that a delta comes together with the one before it."""

    words: int = 3
    """Words in a delta, at most."""


NORMAL = Timing(0.15, 0.010, 0.025, 0.2)
SLOW = Timing(20.0, 1.0, 1.0, words=1)
FAST = Timing(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class TimedParts:
    """Parts that come together, after a wait."""

    wait: float
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class DialectStyle:
    """How the parts of one dialect differ from those of the others."""

    dialect: str
    origin: str = ""
    """The origin of the signatures."""

    native: bool = True
    """The metadata names the dialect. Its encoder then expects every `extra` that its decoder
    would have left."""

    reasoning_kind: ReasoningKind = "raw"
    encrypted: bool = False
    """The signature of reasoning is its encrypted content."""

    reasoning_details: bool = False
    """The signature of reasoning is in `reasoning_details` too."""

    signed_calls: bool = False
    """The first call after a reasoning is signed too."""

    citation_objects: bool = False
    """A source is an object of the dialect, without a position in the text."""


def style_of(dialect: str, origin: str) -> DialectStyle:
    """Returns the style of a dialect; signatures are of `origin`, or of the dialect. One that is
    not listed gets parts without any `extra` of its own, which every encoder can write.
    """
    style = _STYLES.get(dialect) or DialectStyle(dialect, native=False)
    return replace(style, origin=origin or dialect)


_STYLES = {
    style.dialect: style
    for style in (
        # As OpenRouter sends it: a text, and details with its signature.
        DialectStyle("openai-chat", reasoning_details=True),
        # A summary to read, and encrypted content to send back.
        DialectStyle("openai-responses", native=False, reasoning_kind="summary", encrypted=True),
        DialectStyle("anthropic-messages", citation_objects=True),
        # Of parallel calls, only the first is signed.
        DialectStyle("gemini", reasoning_kind="summary", signed_calls=True),
    )
}


def timeline(
    script: Script, request: Request, style: DialectStyle, timing: Timing, seed: bytes
) -> list[TimedParts]:
    """Returns the whole response in order. The last wait of one that stalls is infinite."""
    # Seeded by the request: the same one is cut into the same deltas.
    random = Random(seed)
    cut = _cut_to_limits(script.steps, request)
    renderer = _StepRenderer(style, timing, Ids(seed), random)
    content = [parts for step in cut.steps for parts in renderer.render(step)]
    read, written = count_request(request), sum(map(_cost, cut.steps))
    if request.max_output_tokens is not None:
        written = min(written, request.max_output_tokens)
    reasoning = sum(_cost(step) for step in cut.steps if isinstance(step, ReasoningStep))
    usage = Usage(read, written, read + written, min(written, reasoning), 0)
    start = ResponseMetadata(
        Ids(seed).mint("demo"),
        request.model,
        CREATED,
        style.dialect if style.native else None,
        # Anthropic tells the input tokens at the start of a message.
        usage=Usage(input_tokens=read, cache_read_tokens=0),
    )
    if script.ending == "finish":
        content.append((Finish(cut.reason, usage=usage, stop_sequence=cut.stop_sequence),))
    else:
        # Half, rounded up, so that there is content before the failure: before it, a gateway would
        # retry.
        content = content[: -(-len(content) // 2)]
    if script.ending == "error":
        content.append((_FAILED, Finish("error")))
    timed = []
    for number, parts in enumerate([(start,), *content]):
        wait = random.uniform(timing.least, timing.most) if number else timing.first
        burst = number > 1 and random.random() < timing.burst
        timed.append(TimedParts(0.0 if burst else wait, parts))
    return [*timed, TimedParts(inf, ())] if script.ending == "stall" else timed


# Limits


@dataclass(frozen=True, slots=True)
class _CutSteps:
    steps: tuple[Step, ...]
    reason: FinishReason
    stop_sequence: str | None = None


def _cut_to_limits(steps: Sequence[Step], request: Request) -> _CutSteps:
    """The steps up to the first stop sequence, or to the limit of tokens."""
    left = inf if request.max_output_tokens is None else request.max_output_tokens
    kept: list[Step] = []
    for step in steps:
        found: list[tuple[int, str]] = []
        if isinstance(step, TextStep):
            text, stops = step.text, [stop for stop in request.stop if stop]
            found = [(text.index(stop), stop) for stop in stops if stop in text]
            step = replace(step, text=text[: min(found)[0]]) if found else step
        if _cost(step) > left:
            # The first step has one word at least: a response is never empty.
            words = max(int(left / TOKENS_PER_WORD), int(not kept))
            if words and not isinstance(step, CallStep):
                kept.append(replace(step, text="".join(split_words(step.text)[:words])))
            return _CutSteps(tuple(kept), "length")
        kept.append(step)
        left -= _cost(step)
        if found:
            return _CutSteps(tuple(kept), "stop", min(found)[1])
    calls = any(isinstance(step, CallStep) for step in kept)
    return _CutSteps(tuple(kept), "tool-calls" if calls else "stop")


def _cost(step: Step) -> int:
    if isinstance(step, CallStep):
        return count_tokens(f"{step.tool.name} {step.arguments}")
    return count_tokens(step.text)


def count_request(request: Request) -> int:
    """Returns about how many tokens a request has."""
    texts = [request.instructions or ""]
    for message in request.messages:
        for content in message.content:
            if isinstance(content, TextContent):
                texts.append(content.text)
            else:
                texts.append(_json(content).decode("utf-8", "replace"))
    for tool in request.tools:
        schema = bytes(tool.parameters) if isinstance(tool.parameters, Raw) else b""
        texts.append(f"{tool.name} {tool.description} {schema.decode('utf-8', 'replace')}")
    return sum(map(count_tokens, texts))


_json = msgspec.json.Encoder().encode


# Parts


class _WebCitation(msgspec.Struct, tag="web_search_result_location", tag_field="type"):
    cited_text: str
    encrypted_index: str
    title: str
    url: str


class _StepRenderer:
    """Renders steps as parts, in deltas of random size."""

    def __init__(self, style: DialectStyle, timing: Timing, ids: Ids, random: Random) -> None:
        self._style = style
        self._timing = timing
        self._ids = ids
        self._random = random
        self._signature: str | None = None
        """The signature for the next call."""

    def render(self, step: Step) -> Iterator[tuple[Part, ...]]:
        if isinstance(step, ReasoningStep):
            return self._reasoning(step.text)
        return self._text(step) if isinstance(step, TextStep) else self._call(step)

    def _deltas(self, text: str) -> Iterator[str]:
        words = split_words(text)
        at = 0
        while at < len(words):
            size = self._random.randint(1, self._timing.words)
            yield "".join(words[at : at + size])
            at += size

    def _reasoning(self, text: str) -> Iterator[tuple[Part, ...]]:
        id, style, signature = self._ids.local("reasoning"), self._style, sign(text)
        start: tuple[Part, ...] = (ReasoningStart(id, style.reasoning_kind),)
        for delta in self._deltas(text):
            yield (*start, ReasoningDelta(id, delta))
            start = ()
        self._signature = signature if style.signed_calls else None
        extra: Json = UNSET
        if style.reasoning_details:
            detail = {"type": "reasoning.text", "text": text, "signature": signature, "index": 0}
            extra = Raw(_json({"reasoning_details": [detail]}))
        end = ReasoningEnd(id, signature=signature, origin=style.origin, extra=extra)
        if style.encrypted:
            end = ReasoningEnd(id, encrypted=signature, origin=style.origin)
        yield (*start, end)

    def _text(self, step: TextStep) -> Iterator[tuple[Part, ...]]:
        id, text = self._ids.local("text"), step.text
        start: tuple[Part, ...] = (TextStart(id),)
        for delta in self._deltas(text):
            yield (*start, TextDelta(id, delta))
            start = ()
        sources: list[Part] = []
        citations: list[Raw] = []
        for cited, url, title in step.citations:
            # Cut off by the limit of tokens.
            if cited not in text:
                continue
            source_id, at = self._ids.local("source"), text.index(cited)
            if self._style.citation_objects:
                citations.append(Raw(_json(_WebCitation(cited, sign(url), title, url))))
                sources.append(Source(source_id, "url", id, url, title=title, raw=citations[-1]))
            else:
                end = at + len(cited)
                sources.append(Source(source_id, "url", id, url, title=title, start=at, end=end))
        yield (*start, *sources, TextEnd(id, tuple(citations)))

    def _call(self, step: CallStep) -> Iterator[tuple[Part, ...]]:
        id, tool, text = self._ids.mint("call"), step.tool, step.arguments
        format: ParamsFormat = "text" if tool.kind == "custom" else "json"
        yield (ToolParamsStart(id, tool.name, tool.kind, format=format),)
        at, most = 0, max(_ARGUMENTS_SIZE, len(text) // 200)
        while at < len(text):
            size = self._random.randint(most // 3, most)
            yield (ToolParamsDelta(id, text[at : at + size]),)
            at += size
        signature, self._signature = self._signature, None
        call = ToolCall(
            id,
            tool.name,
            text,
            tool.kind,
            format=format,
            namespace=tool.namespace,
            signature=signature,
        )
        yield (ToolParamsEnd(id), call)
