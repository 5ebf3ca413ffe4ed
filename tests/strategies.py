"""What the property tests draw: any parts whatever, legal streams of them, JSON, and cuts."""

import json
import os
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import or_
from types import UnionType
from typing import Any, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw, UnsetType

from weft.lifecycle import settled
from weft.parts import (
    AnyPart,
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

SHARE = 1 if os.environ.get("THOROUGH") else 5
"""`make test` tries a fifth of the examples, `make test-long` all of them."""


def examples(count: int) -> settings:
    """So many examples, in `make test-long`."""
    return settings(max_examples=max(5, count // SHARE), deadline=None)


FEW = examples(20)
QUICK = examples(60)
THOROUGH = examples(300)

T = TypeVar("T", str, bytes)

IDS = st.sampled_from(["a", "b", "a_2", "c"])
LEGAL_NAMES = st.sampled_from(["", "look", "read"])
NAMES = LEGAL_NAMES | st.just(" ")
TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
ARGUMENTS = st.sampled_from(
    [
        "",
        " ",
        "{}",
        "[]",
        "{",
        "}",
        '{"a":1}',
        '{"a":',
        "1}",
        "null",
        "nu",
        "ll",
        '"{\\"a\\":1}"',
        '"',
        "[1,2]",
        "7",
        '{"a":1,"b":[]}',
    ]
)
RAW = st.sampled_from([Raw(b"null"), Raw(b'{"k":1}'), Raw(b'"text"')])
EXTRA = st.one_of(st.just(UNSET), st.sampled_from([Raw(b'{"x":1}')]))
MAYBE = st.none() | st.sampled_from(["s1", "s2"])
KIND = st.sampled_from(["function", "custom", "web_search_call"])
FORMAT = st.sampled_from(["json", "json", "text"])
USAGE = st.none() | st.builds(
    Usage,
    input_tokens=st.none() | st.integers(0, 9),
    output_tokens=st.none() | st.integers(0, 9),
    total_tokens=st.none() | st.integers(0, 9),
)

ANY_PART: st.SearchStrategy[AnyPart] = st.one_of(
    st.builds(ResponseMetadata, id=IDS, model=MAYBE, usage=USAGE, extra=EXTRA),
    st.builds(TextStart, id=IDS, item_id=MAYBE, refusal=st.booleans(), extra=EXTRA),
    st.builds(TextDelta, id=IDS, delta=TEXT, extra=EXTRA),
    st.builds(
        TextEnd,
        id=IDS,
        annotations=st.lists(RAW, max_size=2).map(tuple),
        signature=MAYBE,
        whole=st.none() | TEXT,
        extra=EXTRA,
    ),
    st.builds(ReasoningStart, id=IDS, kind=st.sampled_from(["raw", "summary"]), item_id=MAYBE),
    st.builds(ReasoningDelta, id=IDS, delta=TEXT, extra=EXTRA),
    st.builds(ReasoningEnd, id=IDS, encrypted=MAYBE, origin=MAYBE, whole=st.none() | TEXT),
    st.builds(
        ToolParamsStart,
        id=IDS,
        name=NAMES,
        kind=KIND,
        provider_executed=st.booleans(),
        format=FORMAT,
    ),
    st.builds(ToolParamsDelta, id=IDS, delta=ARGUMENTS, extra=EXTRA),
    st.builds(ToolParamsEnd, id=IDS, whole=st.none() | ARGUMENTS, extra=EXTRA),
    st.builds(
        ToolCall,
        id=IDS,
        name=NAMES,
        params=ARGUMENTS,
        kind=KIND,
        provider_executed=st.booleans(),
        format=FORMAT,
        invalid=st.sampled_from([None, None, "nameless", "bad-arguments", "stream-failed"]),
        signature=MAYBE,
    ),
    st.builds(
        ToolResult,
        id=IDS,
        result=RAW,
        preliminary=st.booleans(),
        earlier=st.booleans(),
        is_error=st.booleans(),
    ),
    st.builds(ToolApprovalRequest, id=IDS, approval_id=IDS),
    st.builds(Source, id=IDS, kind=st.just("url"), url=st.just("https://a.example")),
    st.builds(File, id=IDS, media_type=st.just("image/png"), data=st.just("AA==")),
    st.builds(Opaque, origin=st.just("gemini"), kind=st.just("x"), raw=RAW),
    st.builds(ErrorPart, kind=st.sampled_from(["upstream", "truncated"]), message=TEXT),
    st.builds(
        Finish,
        reason=st.sampled_from(
            ["stop", "length", "tool-calls", "content-filter", "pause", "error", "other"]
        ),
        raw_reason=MAYBE,
        usage=USAGE,
    ),
)

SOUP: st.SearchStrategy[list[AnyPart]] = st.lists(ANY_PART, max_size=14)


# Cuts


@st.composite
def cuts(draw: st.DrawFn, text: T, most: int = 8) -> list[T]:
    """The text in pieces, some of them perhaps empty."""
    places = draw(st.lists(st.integers(0, len(text)), max_size=most))
    return cut_at(text, places)


def cut_at(text: T, places: Sequence[int]) -> list[T]:
    edges = [0, *sorted(places), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


# JSON

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(st.text(max_size=3), JSON, max_size=3)


@st.composite
def spelled(draw: st.DrawFn, value: object) -> str:
    """One of the many texts of a JSON value."""
    if isinstance(value, dict):  # another order of the keys
        value = {key: value[key] for key in draw(st.permutations(sorted(value)))}
    return json.dumps(
        value,
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 0, 2, "\t"])),
        separators=draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\r:")])),
    )


# Every value of a Struct, field by field

_SIMPLE: dict[object, st.SearchStrategy[Any]] = {
    str: st.text(max_size=4),
    int: st.integers(-(2**63), 2**63 - 1),
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    type(None): st.none(),
    UnsetType: st.just(UNSET),
    Raw: JSON.map(lambda value: Raw(msgspec.json.encode(value))),
}


def values(shape: Any) -> st.SearchStrategy[Any]:
    """Every value of a type that a part or a request may hold."""
    if shape in _SIMPLE:
        return _SIMPLE[shape]
    inner = get_args(shape)
    origin = get_origin(shape)
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, UnionType):
        return reduce(or_, map(values, inner))
    if origin is tuple:
        return st.lists(values(inner[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(*map(values, inner), max_size=2)
    return structs(shape)


def structs(shape: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Every value of a Struct; each field that may be left out sometimes is."""
    hints = get_type_hints(shape)
    fields = msgspec.structs.fields(shape)
    required = {field.name: values(hints[field.name]) for field in fields if field.required}
    optional = {field.name: values(hints[field.name]) for field in fields if not field.required}
    return st.fixed_dictionaries(required, optional=optional).map(lambda given: shape(**given))


# Legal streams

POOL = ("a", "a_2", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o")
"""Ids; texts, reasonings and calls may share them."""

FLOWING = st.sampled_from(['{"a":1}', '{"a":[1,"x"]}', "[1,2]", "7", "{ }", "{", '{"a":', "x", "-"])
HELD = st.sampled_from(["{}", "[]", " {} ", '"x"', '"[1]"', "null", "nu", '"{}"', '"', " ", "\n"])
"""Argument text that may yet change its meaning: it goes out in one delta, right before its end."""


class Draw(Protocol):
    """How a step draws: as a composite does, or as a rule of a state machine does."""

    def __call__(self, strategy: st.SearchStrategy[Any], /) -> Any: ...


class Legal:
    """Builds one legal stream, step by step. A step that is not possible now does nothing."""

    def __init__(self) -> None:
        self.parts: list[Part] = [ResponseMetadata("resp_1", model="m", usage=Usage(1))]
        self.used: dict[str, set[str]] = {"text": set(), "reasoning": set(), "tool": set()}
        self.texts: list[str] = []
        self.reasonings: list[str] = []
        self.open: dict[str, tuple[ToolParamsStart, str]] = {}
        """Announced calls whose arguments flow, and the text so far."""
        self.sealed: dict[str, tuple[ToolParamsStart, str]] = {}
        self.called: list[str] = []
        self.failed = False
        self.dispatchable = False

    def fresh(self, draw: Draw, family: str) -> str | None:
        free = [id for id in POOL if id not in self.used[family]]
        if self.failed or not free:
            return None
        id: str = draw(st.sampled_from(free))
        self.used[family].add(id)
        return id

    def begin_text(self, draw: Draw) -> None:
        if id := self.fresh(draw, "text"):
            self.texts.append(id)
            self.parts.append(TextStart(id, item_id=draw(MAYBE), extra=draw(EXTRA)))

    def begin_reasoning(self, draw: Draw) -> None:
        if id := self.fresh(draw, "reasoning"):
            self.reasonings.append(id)
            self.parts.append(ReasoningStart(id, draw(st.sampled_from(["raw", "summary"]))))

    def begin_call(self, draw: Draw) -> None:
        if id := self.fresh(draw, "tool"):
            start = ToolParamsStart(
                id,
                "look",
                kind=draw(KIND),
                provider_executed=draw(st.booleans()),
                format=draw(FORMAT),
                extra=draw(EXTRA),
            )
            self.open[id] = (start, "")
            self.parts.append(start)

    def go_on(self, draw: Draw) -> None:
        """A delta of whatever is open."""
        if self.failed or not (self.texts or self.reasonings or self.open):
            return
        word = draw(st.text(min_size=1, max_size=4))
        extra = draw(EXTRA)
        if self.texts and draw(st.booleans()):
            self.parts.append(TextDelta(draw(st.sampled_from(self.texts)), word, extra=extra))
        elif self.reasonings and draw(st.booleans()):
            id = draw(st.sampled_from(self.reasonings))
            self.parts.append(ReasoningDelta(id, word, extra=extra))
        elif self.open:
            id = draw(st.sampled_from(sorted(self.open)))
            start, text = self.open[id]
            piece = draw(FLOWING) if start.format == "json" and not text else word
            self.open[id] = (start, text + piece)
            self.parts.append(ToolParamsDelta(id, piece, extra=extra))

    def end_text(self, draw: Draw) -> None:
        if self.texts:
            id = self.texts.pop(draw(st.integers(0, len(self.texts) - 1)))
            self.parts.append(TextEnd(id, annotations=(Raw(b"{}"),), signature=draw(MAYBE)))

    def end_reasoning(self, draw: Draw) -> None:
        if self.reasonings:
            id = self.reasonings.pop(draw(st.integers(0, len(self.reasonings) - 1)))
            self.parts.append(ReasoningEnd(id, encrypted=draw(MAYBE), origin=draw(MAYBE)))

    def end_call(self, draw: Draw) -> None:
        """Ends arguments: what was held comes first; unsettled ones are handed over at once."""
        if not self.open:
            return
        id = draw(st.sampled_from(sorted(self.open)))
        start, text = self.open.pop(id)
        if not text and start.format == "json" and not self.failed and draw(st.booleans()):
            text = draw(HELD)
            self.parts.append(ToolParamsDelta(id, text, extra=draw(EXTRA)))
        self.parts.append(ToolParamsEnd(id, extra=draw(EXTRA)))
        self.sealed[id] = (start, text)
        if start.format == "json" and not settled(text):
            self.hand_over(draw, id)

    def call(self, draw: Draw) -> None:
        if self.sealed:
            self.hand_over(draw, draw(st.sampled_from(sorted(self.sealed))))

    def hand_over(self, draw: Draw, id: str) -> None:
        start, text = self.sealed.pop(id)
        invalid = draw(st.sampled_from(["bad-arguments", "stream-failed"]))
        if not self.failed and (start.format == "text" or settled(text)):
            invalid = draw(st.sampled_from([None, None, invalid]))
        self.made(
            ToolCall(
                id,
                start.name,
                text,
                kind=start.kind,
                provider_executed=start.provider_executed,
                format=start.format,
                invalid=invalid,
                signature=draw(MAYBE),
            )
        )

    def lone_call(self, draw: Draw) -> None:
        """A call that comes whole: valid, nameless, or cut by an error."""
        free = [id for id in POOL if id not in self.used["tool"]]
        if not free:
            return
        id = draw(st.sampled_from(free))
        self.used["tool"].add(id)
        text = draw(ARGUMENTS)
        if self.failed:
            self.made(ToolCall(id, draw(LEGAL_NAMES), text, invalid="stream-failed"))
        elif settled(text):
            self.made(ToolCall(id, "look", text, provider_executed=draw(st.booleans())))
        else:
            self.made(ToolCall(id, draw(LEGAL_NAMES), text, invalid="nameless"))

    def made(self, call: ToolCall) -> None:
        self.parts.append(call)
        self.called.append(call.id)
        self.dispatchable |= not (call.invalid or call.provider_executed)

    def result(self, draw: Draw) -> None:
        """Of a call that was made here, or in an earlier response."""
        if self.failed:
            return
        preliminary = draw(st.booleans())
        here = bool(self.called) and draw(st.booleans())
        id = draw(st.sampled_from(self.called)) if here else self.fresh(draw, "tool")
        if id is None:
            return
        if here and not preliminary:
            self.called = [other for other in self.called if other != id]
        if preliminary and not here:
            self.used["tool"].discard(id)  # the call itself may still be announced
        earlier = not here or draw(st.booleans())
        self.parts.append(ToolResult(id, draw(RAW), preliminary=preliminary, earlier=earlier))

    def approval(self, draw: Draw) -> None:
        if self.called and not self.failed:
            self.parts.append(ToolApprovalRequest(draw(st.sampled_from(self.called)), "approval_1"))

    def other(self, draw: Draw) -> None:
        """What belongs to no item."""
        if not self.failed:
            source = Source("s", "url", url="https://a.example")
            file = File("f", "image/png", data="AA==")
            opaque = Opaque("gemini", "x", draw(RAW))
            self.parts.append(draw(st.sampled_from([source, file, opaque])))

    def fail(self, draw: Draw) -> None:
        if not self.failed:
            self.failed = True
            self.parts.append(ErrorPart("upstream", draw(TEXT)))

    def finish(self, draw: Draw) -> None:
        """Ends what is open, in any order, and then the stream."""
        while self.texts or self.reasonings or self.open or self.sealed:
            ends = [self.end_text, self.end_reasoning, self.end_call, self.call]
            draw(st.sampled_from(ends))(draw)
        reasons = ["length", "tool-calls", "content-filter", "pause", "other"]
        if self.failed:
            reasons = ["error"]
        elif not self.dispatchable:
            reasons.append("stop")
        reason = draw(st.sampled_from(reasons))
        self.parts.append(Finish(reason, raw_reason=draw(MAYBE), usage=draw(USAGE)))

    def close(self) -> None:
        """Ends what is open and the stream, without any choice."""
        self.parts += [TextEnd(id) for id in self.texts]
        self.parts += [ReasoningEnd(id) for id in self.reasonings]
        for start, text in self.sealed.values():
            self.parts.append(_cut(start, text))
        for start, text in self.open.values():
            self.parts += [ToolParamsEnd(start.id), _cut(start, text)]
        self.parts.append(Finish("error" if self.failed else "other"))


def _cut(start: ToolParamsStart, text: str) -> ToolCall:
    return ToolCall(
        start.id,
        start.name,
        text,
        kind=start.kind,
        provider_executed=start.provider_executed,
        format=start.format,
        invalid="stream-failed",
    )


STEPS = (
    Legal.begin_text,
    Legal.begin_reasoning,
    Legal.begin_call,
    Legal.go_on,
    Legal.go_on,
    Legal.end_text,
    Legal.end_reasoning,
    Legal.end_call,
    Legal.call,
    Legal.lone_call,
    Legal.result,
    Legal.approval,
    Legal.other,
)


@st.composite
def legal_streams(draw: st.DrawFn) -> list[Part]:
    stream = Legal()
    for step in draw(st.lists(st.sampled_from(STEPS), max_size=20)):
        step(stream, draw)
    if draw(st.integers(0, 3)) == 0:
        stream.fail(draw)
        for step in draw(st.lists(st.sampled_from(STEPS), max_size=4)):
            step(stream, draw)
    stream.finish(draw)
    return stream.parts


LEGAL: st.SearchStrategy[list[Part]] = legal_streams()
"""Whole legal streams: everything interleaved, with clean and with error endings."""
