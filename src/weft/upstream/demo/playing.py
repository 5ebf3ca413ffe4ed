"""A script played: its acts cut to what was asked for, as parts, each with a wait before it."""

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
from weft.upstream.demo import words
from weft.upstream.demo.proofs import proof
from weft.upstream.demo.scripts import Act, Calls, Says, Script, Thinks

CREATED = 1770595200
"""When every answer was made: equal requests give equal bytes."""

_ARGUMENTS = 12
"""Characters of arguments in one piece, at most; long ones are a few hundred pieces."""

_FAILED = ErrorPart(
    "upstream", "error-midstream always fails after half of its answer", "server_error", 500, True
)


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds: before the first word, and between pieces."""

    first: float
    least: float
    most: float
    together: float = 0.0
    """How many pieces come together with the one before them, of 1."""

    words: int = 3
    """Words in a piece, at most."""


NORMAL = Pace(0.15, 0.010, 0.025, 0.2)
SLOW = Pace(20.0, 1.0, 1.0, words=1)
FAST = Pace(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Beat:
    """Parts that come together, after a wait."""

    wait: float
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Accent:
    """What the parts of one dialect look like beyond what all have in common."""

    dialect: str
    origin: str = ""
    """Whose the proofs are."""

    native: bool = True
    """Whether parts say that they are of their dialect: some encoders then want to be told what
    they would else find out themselves."""

    kind: ReasoningKind = "raw"
    encrypted: bool = False
    """Whether a proof hides in the reasoning, or is a signature beside it."""

    detailed: bool = False
    """Whether a proof stands in `reasoning_details`."""

    signed_calls: bool = False
    """Whether the first call after a reasoning has a proof too."""

    citing: bool = False
    """Whether a citation has a form of its own, and no place in the text."""


def accent(dialect: str, origin: str) -> Accent:
    """Returns the accent of a dialect whose proofs go back to `origin`."""
    return replace(_ACCENTS[dialect], origin=origin or dialect)


_ACCENTS = {
    one.dialect: one
    for one in (
        Accent("openai-chat", detailed=True),
        Accent("openai-responses", native=False, kind="summary", encrypted=True),
        Accent("anthropic-messages", citing=True),
        Accent("gemini", kind="summary", signed_calls=True),
    )
}


def beats(script: Script, request: Request, accent: Accent, pace: Pace, seed: bytes) -> list[Beat]:
    """Returns all that is said, in order; a wait without end is infinite."""
    chance = Random(seed)
    fitted = _fitted(script.acts, request)
    pieces = _Pieces(accent, pace, Ids(seed), chance)
    content = [piece for act in fitted.acts for piece in pieces.of(act)]
    usage = _usage(fitted.acts, request)
    start = ResponseMetadata(
        Ids(seed).mint("demo"),
        request.model,
        CREATED,
        accent.dialect if accent.native else None,
        usage=Usage(input_tokens=usage.input_tokens, cache_read_tokens=0),
    )
    end = Finish(fitted.reason, usage=usage, stop_sequence=fitted.sequence)
    half = content[: -(-len(content) // 2)]
    match script.ending:
        case "finish":
            content.append((end,))
        case "error":
            content = [*half, (_FAILED, Finish("error"))]
        case _:
            content = half
    timed = list(_timed([(start,), *content], pace, chance))
    return [*timed, Beat(inf, ())] if script.ending == "stall" else timed


def _timed(pieces: Sequence[tuple[Part, ...]], pace: Pace, chance: Random) -> Iterator[Beat]:
    for number, piece in enumerate(pieces):
        wait = pace.first if not number else chance.uniform(pace.least, pace.most)
        together = number > 1 and chance.random() < pace.together
        yield Beat(0.0 if together else wait, piece)


# What fits


@dataclass(frozen=True, slots=True)
class _Fitted:
    acts: tuple[Act, ...]
    reason: FinishReason
    sequence: str | None = None


def _fitted(acts: Sequence[Act], request: Request) -> _Fitted:
    """The acts up to the first stop sequence, or to the limit of tokens."""
    left = inf if request.max_output_tokens is None else request.max_output_tokens
    kept: list[Act] = []
    for act in acts:
        stopped = _stopped(act, request.stop)
        act, sequence = stopped or (act, None)
        needed = _cost(act)
        if needed > left:
            shorter = _shorter(act, left, first=not kept)
            return _Fitted((*kept, *([] if shorter is None else [shorter])), "length")
        kept.append(act)
        left -= needed
        if sequence is not None:
            return _Fitted(tuple(kept), "stop", sequence)
    calls = any(isinstance(act, Calls) for act in kept)
    return _Fitted(tuple(kept), "tool-calls" if calls else "stop")


def _stopped(act: Act, stop: Sequence[str]) -> tuple[Act, str] | None:
    """The act without what begins with a stop sequence, and that sequence."""
    if not isinstance(act, Says):
        return None
    places = [(act.text.find(one), one) for one in stop if one and one in act.text]
    if not places:
        return None
    place, sequence = min(places)
    return replace(act, text=act.text[:place]), sequence


def _shorter(act: Act, left: float, *, first: bool) -> Act | None:
    """As much of an act as the tokens are enough for; of the first act, one word at least."""
    count = max(int(left / words.TOKENS_A_WORD), int(first))
    if isinstance(act, Calls) or not count:
        return None
    return replace(act, text="".join(words.words(act.text)[:count]))


def _cost(act: Act) -> int:
    return words.tokens(f"{act.tool.name} {act.params}" if isinstance(act, Calls) else act.text)


def _usage(acts: Sequence[Act], request: Request) -> Usage:
    """Tokens, counted in words."""
    asked = count(request)
    said = sum(map(_cost, acts))
    if request.max_output_tokens is not None:
        said = min(said, request.max_output_tokens)
    thought = min(said, sum(_cost(act) for act in acts if isinstance(act, Thinks)))
    return Usage(asked, said, asked + said, thought, 0)


def count(request: Request) -> int:
    """Returns about how many tokens a request is."""
    texts = [request.instructions or ""]
    for message in request.messages:
        texts += [
            one.text if isinstance(one, TextContent) else _written(one) for one in message.content
        ]
    texts += [
        f"{tool.name} {tool.description} {_schema(tool.parameters)}" for tool in request.tools
    ]
    return sum(map(words.tokens, texts))


def _schema(schema: Json) -> str:
    return bytes(schema).decode("utf-8", "replace") if isinstance(schema, Raw) else ""


def _written(value: object) -> str:
    return msgspec.json.encode(value).decode("utf-8", "replace")


# Parts


class _Pieces:
    """The parts of acts, in pieces that come one after the other."""

    def __init__(self, accent: Accent, pace: Pace, ids: Ids, chance: Random) -> None:
        self._accent = accent
        self._pace = pace
        self._signature: str | None = None
        """The proof that waits for the first call."""
        self._ids = ids
        self._chance = chance

    def of(self, act: Act) -> Iterator[tuple[Part, ...]]:
        if isinstance(act, Thinks):
            return self._thought(act.text)
        return self._said(act) if isinstance(act, Says) else self._called(act)

    def _spoken(self, text: str) -> Iterator[str]:
        """A text in pieces of a few words."""
        spoken = words.words(text)
        at = 0
        while at < len(spoken):
            size = self._chance.randint(1, self._pace.words)
            yield "".join(spoken[at : at + size])
            at += size

    def _thought(self, text: str) -> Iterator[tuple[Part, ...]]:
        id = self._ids.local("reasoning")
        start: tuple[Part, ...] = (ReasoningStart(id, self._accent.kind),)
        for piece in self._spoken(text):
            yield (*start, ReasoningDelta(id, piece))
            start = ()
        yield (*start, self._concluded(id, text))

    def _concluded(self, id: str, text: str) -> ReasoningEnd:
        accent, mark = self._accent, proof(text)
        self._signature = mark if accent.signed_calls else None
        if accent.encrypted:
            return ReasoningEnd(id, encrypted=mark, origin=accent.origin)
        extra: Json = UNSET
        if accent.detailed:
            detail = {"type": "reasoning.text", "text": text, "signature": mark, "index": 0}
            extra = Raw(msgspec.json.encode({"reasoning_details": [detail]}))
        return ReasoningEnd(id, signature=mark, origin=accent.origin, extra=extra)

    def _said(self, act: Says) -> Iterator[tuple[Part, ...]]:
        id = self._ids.local("text")
        start: tuple[Part, ...] = (TextStart(id),)
        for piece in self._spoken(act.text):
            yield (*start, TextDelta(id, piece))
            start = ()
        sources = [self._source(id, act.text, *one) for one in act.cited if one[0] in act.text]
        citations = tuple(one.raw for one in sources if isinstance(one.raw, Raw))
        yield (*start, *sources, TextEnd(id, citations))

    def _source(self, text_id: str, text: str, cited: str, url: str, title: str) -> Source:
        id = self._ids.local("source")
        if self._accent.citing:
            citation = _Citation(cited, proof(url), title, url)
            return Source(id, "url", text_id, url, title=title, raw=_raw(citation))
        start = text.index(cited)
        return Source(id, "url", text_id, url, title=title, start=start, end=start + len(cited))

    def _called(self, act: Calls) -> Iterator[tuple[Part, ...]]:
        id, tool, text = self._ids.mint("call"), act.tool, act.params
        format: ParamsFormat = "text" if tool.kind == "custom" else "json"
        yield (ToolParamsStart(id, tool.name, tool.kind, format=format),)
        at, most = 0, max(_ARGUMENTS, len(text) // 200)
        while at < len(text):
            size = self._chance.randint(most // 3, most)
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


class _Citation(msgspec.Struct, tag="web_search_result_location", tag_field="type"):
    cited_text: str
    encrypted_index: str
    title: str
    url: str


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))
