"""Encode, then decode: the same parts, but for what the Responses wire does not carry."""

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import ANY_PART, examples
from weft import (
    Context,
    ErrorPart,
    Finish,
    Guard,
    Ids,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    Usage,
    decode_all,
    encode,
)
from weft.findings import Findings
from weft.lifecycle import FAMILY
from weft.parts import ItemPart

KEPT: dict[type[Part], tuple[str, ...]] = {
    ResponseMetadata: ("model",),
    TextStart: ("refusal",),
    TextDelta: ("delta",),
    TextEnd: (),
    ReasoningStart: (),
    ReasoningDelta: ("delta",),
    ReasoningEnd: ("encrypted",),
    ToolParamsStart: ("name", "format"),
    ToolParamsDelta: ("delta",),
    ToolParamsEnd: (),
    ToolCall: ("name", "params", "format"),
    ErrorPart: ("kind", "message", "code"),
    Finish: ("reason", "usage"),
}
"""The fields that the wire carries. Parts that are not here have no place on it."""


def plain(part: Part, id: str) -> Part:
    """The part under another id, with only the fields that are carried."""
    fields = {name: getattr(part, name) for name in KEPT[type(part)]}
    if isinstance(part, ReasoningStart):  # raw reasoning only where the request asks for it
        fields["kind"] = "summary"
    if isinstance(part, ToolCall) and part.invalid:
        fields["invalid"] = "bad-arguments"
    return type(part)(**({} if isinstance(part, ErrorPart | Finish) else {"id": id}), **fields)


def normal(parts: Sequence[Part]) -> list[Part]:
    """What the wire can say: item after item under plain ids, calls always with their params."""
    groups: dict[tuple[str, str], list[Part]] = {}
    for part in parts:
        if isinstance(part, ItemPart):
            key = (FAMILY[type(part)], part.id)
            group = groups.setdefault(key, [])
            if isinstance(part, ReasoningDelta) and len(group) == 1:
                groups[key] = groups.pop(key)  # it is on the wire from its first word on
            if isinstance(part, ToolCall) and not group and part.invalid != "stream-failed":
                deltas = [ToolParamsDelta(part.id, part.params)] if part.params else []
                start = ToolParamsStart(part.id, part.name, format=part.format)
                group += [start, *deltas, ToolParamsEnd(part.id)]
            group.append(part)
    carried = [(key, group) for key, group in groups.items() if announced(group)]
    carried.sort(key=lambda one: place(one[1]))
    head, *tail = [plain(part, "r") for part in parts if not isinstance(part, ItemPart)]
    finish = tail.pop()
    assert isinstance(finish, Finish)
    if finish.reason in ("stop", "tool-calls"):
        calls = [group[-1] for _, group in carried if isinstance(group[-1], ToolCall)]
        cut = any(call.invalid == "stream-failed" for call in calls)
        refused = any(isinstance(part, TextStart) and part.refusal for part in parts)
        reason = "other" if cut else "tool-calls" if calls else "content-filter"
        finish = msgspec.structs.replace(finish, reason=reason if calls or refused else "stop")
    items = [
        plain(part, key[1] if key[0] == "tool" else f"{key[0]} {number}")
        for number, (key, group) in enumerate(carried)
        for part in group
    ]
    return [head, *items, *tail, finish]


def place(group: list[Part]) -> tuple[bool, str]:
    """Everything in its order; but where reasoning that says nothing stands is not told."""
    last = group[-1]
    proof = last.encrypted if isinstance(last, ReasoningEnd) and not speaks(group) else None
    return speaks(group), proof or ""


def speaks(group: list[Part]) -> bool:
    return len(group) > 2 or not isinstance(group[0], ReasoningStart)


def announced(group: list[Part]) -> bool:
    """Whether the wire may speak of this item: a call that has no name never gets there."""
    last = group[-1]
    lone = len(group) == 1 and isinstance(last, ToolCall)
    return not (isinstance(last, ToolCall) and (not last.name or (lone and last.invalid)))


def told(part: Part) -> Part:
    """The part with what the wire wants to be told, and without what it cannot carry."""
    match part:
        case ResponseMetadata():
            return ResponseMetadata(part.id, model=part.model or "m")
        case ToolCall() | ToolParamsStart():
            fields = {"invalid": None} if isinstance(part, ToolCall) else {}
            return msgspec.structs.replace(part, provider_executed=False, **fields)
        case ReasoningStart():  # parts that share an item share one proof: another test's matter
            return msgspec.structs.replace(part, item_id=None)
        case ReasoningEnd():
            return msgspec.structs.replace(part, origin="openai-responses")
        case ErrorPart():
            return ErrorPart("upstream", part.message or "broken", code="c")
        case Finish(reason="other" | "pause" as reason):
            return Finish("length" if reason == "pause" else "stop", usage=full(part.usage))
        case Finish():
            return Finish(part.reason, usage=full(part.usage))
    return part


def full(usage: Usage | None) -> Usage | None:
    return None if usage is None else Usage(3, 4, usage.total_tokens or 7, 1, 2, 0)


STREAM = st.lists(ANY_PART.filter(lambda part: type(part) in KEPT).map(told), max_size=16)


def guarded(parts: list[Part]) -> list[Part]:
    """A legal stream. Metadata comes first, and a failure is one that the wire can name."""
    guard = Guard(Ids(b"guard"), Findings())
    legal = guard.feed([ResponseMetadata("r", model="m"), *parts]) + guard.finish()
    return [told(part) if isinstance(part, ErrorPart) else part for part in legal]


@examples(300)
@given(STREAM)
def test_what_is_encoded_decodes_to_the_same_parts(soup: list[Part]) -> None:
    parts = guarded(soup)
    raw = b"".join(encode(parts, "openai-responses", context=Context(ids=Ids(b"1"))))
    (back,) = decode_all(raw, "openai-responses")
    assert normal(back.parts) == normal(parts)


@examples(200)
@given(STREAM)
def test_the_normalisation_is_idempotent(soup: list[Part]) -> None:
    once = normal(guarded(soup))
    assert normal(once) == once
