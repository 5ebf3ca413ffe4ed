"""`reasoning_details`: every signature is kept, each with the reasoning it signs."""

import json
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests import chat
from tests.strategies import examples
from tests.tables import each_row
from weft import (
    Context,
    Decoded,
    Encoder,
    Part,
    ReasoningItem,
    Response,
    convert,
    decode_all,
    encode,
)
from weft.assembler import Assembler
from weft.dialects import DialectName
from weft.dialects.openai_chat.encoder import body
from weft.findings import Findings
from weft.lifecycle import violations
from weft.parts import (
    Finish,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    TextDelta,
    TextEnd,
    TextStart,
)

NAME: Final = "openai-chat"
Detail = dict[str, object]


def detail(type: str, **fields: object) -> Detail:
    return {"type": f"reasoning.{type}", **fields}


def encrypted(data: str, index: int | None = 0, id: str | None = None) -> Detail:
    sent = {"data": data, "id": id, "index": index}
    return detail("encrypted", **{key: value for key, value in sent.items() if value is not None})


def text(words: str, index: int = 0, **fields: object) -> Detail:
    return detail("text", text=words, **fields, index=index)


def summary(words: str, index: int = 0, **fields: object) -> Detail:
    return detail("summary", summary=words, **fields, index=index)


class Thought(NamedTuple):
    """A reasoning, as it was decoded."""

    kind: str
    text: str
    signature: str | None
    encrypted: str | None
    details: list[Detail]


def thoughts(one: Decoded) -> list[Thought]:
    found = [item for item in one.response.items if isinstance(item, ReasoningItem)]
    return [
        Thought(item.kind, item.text, item.signature, item.encrypted, details(item))
        for item in found
    ]


def details(item: ReasoningItem) -> list[Detail]:
    if not isinstance(item.extra, Raw):
        return []
    sent: dict[str, list[Detail]] = json.loads(bytes(item.extra))
    return sent["reasoning_details"]


def streamed(*deltas: chat.Delta) -> bytes:
    return chat.stream([chat.chunk(delta) for delta in (*deltas, {"content": "hi"})])


def whole(message: chat.Delta) -> bytes:
    choice = {"index": 0, "message": {"content": "hi", **message}, "finish_reason": "stop"}
    completion = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps({**completion, "choices": [choice]}).encode()


def read(raw: bytes) -> Decoded:
    """Returns the one response, whose parts are legal."""
    (one,) = decode_all(raw, NAME)
    assert violations(one.parts, Assembler()) == []
    assert (one.response.text, one.response.findings) == ("hi", ())
    return one


LISTS: dict[str, tuple[list[Detail], list[Thought]]] = {
    "two of two indexes": (
        [encrypted("a", 0), encrypted("b", 1)],
        [
            Thought("raw", "", None, "a", [encrypted("a", 0)]),
            Thought("raw", "", None, "b", [encrypted("b", 1)]),
        ],
    ),
    "two of one index, with ids": (
        [encrypted("a", 0, "x"), encrypted("b", 0, "y")],
        [
            Thought("raw", "", None, "a", [encrypted("a", 0, "x")]),
            Thought("raw", "", None, "b", [encrypted("b", 0, "y")]),
        ],
    ),
    "equal ones with other ids": (
        [encrypted("a", 0, "x"), encrypted("a", 0, "y")],
        [
            Thought("raw", "", None, "a", [encrypted("a", 0, "x")]),
            Thought("raw", "", None, "a", [encrypted("a", 0, "y")]),
        ],
    ),
    "neither index nor id": (
        [encrypted("a", None), encrypted("b", None), encrypted("c", None)],
        [Thought("raw", "", None, data, [encrypted(data, None)]) for data in "abc"],
    ),
    "the same one again": (
        [encrypted("a"), encrypted("a")],
        [Thought("raw", "", None, "a", [encrypted("a")])],
    ),
    "text before each": (
        [text("s"), encrypted("a"), text("t", 1), encrypted("b", 1)],
        [
            Thought("raw", "s", None, "a", [text("s"), encrypted("a")]),
            Thought("raw", "t", None, "b", [text("t", 1), encrypted("b", 1)]),
        ],
    ),
    "text after each": (
        [encrypted("a"), text("s"), encrypted("b", 1), summary("t", 1)],
        [
            Thought("raw", "s", None, "a", [encrypted("a"), text("s")]),
            Thought("summary", "t", None, "b", [encrypted("b", 1), summary("t", 1)]),
        ],
    ),
    "summaries by their ids": (
        [encrypted("a", 0, "x"), summary("s", 1, id="x"), summary("t", 0, id="y")],
        [
            Thought("summary", "s", None, "a", [encrypted("a", 0, "x"), summary("s", 1, id="x")]),
            Thought("summary", "t", None, None, [summary("t", 0, id="y")]),
        ],
    ),
    "all of one index": (
        [summary("s"), encrypted("a"), summary("t"), encrypted("b")],
        [
            Thought("summary", "s", None, "a", [summary("s"), encrypted("a")]),
            Thought("summary", "t", None, "b", [summary("t"), encrypted("b")]),
        ],
    ),
    "each detail has a number": (
        [summary("s", 0), encrypted("a", 1), summary("t", 2), encrypted("b", 3)],
        [
            Thought("summary", "s", None, "a", [summary("s", 0), encrypted("a", 1)]),
            Thought("summary", "t", None, "b", [summary("t", 2), encrypted("b", 3)]),
        ],
    ),
    "two signatures, and one hidden": (
        [text("s", signature="1"), text("t", 1, signature="2"), encrypted("a", 2)],
        [
            Thought("raw", "s", "1", None, [text("s", signature="1")]),
            Thought("raw", "t", "2", None, [text("t", 1, signature="2")]),
            Thought("raw", "", None, "a", [encrypted("a", 2)]),
        ],
    ),
    "a signature beside": (
        [
            text("s"),
            encrypted("a"),
            detail("text", signature="1", index=0),
            detail("text", index=7),
        ],
        [
            Thought(
                "raw",
                "s",
                "1",
                "a",
                [
                    text("s", signature="1"),
                    encrypted("a"),
                    detail("text", index=7),
                ],
            )
        ],
    ),
}
"""Details of one message, and the reasonings that they become."""


def spelled(found: list[Thought]) -> list[Thought]:
    """Returns the same with the keys of details in one order."""
    return [
        one._replace(details=[dict(sorted(sent.items())) for sent in one.details]) for one in found
    ]


WAYS: dict[str, Callable[[list[Detail]], bytes]] = {
    "a body": lambda sent: whole({"reasoning_details": sent}),
    "one chunk": lambda sent: streamed({"reasoning_details": sent}),
    "a chunk with its text": lambda sent: streamed(
        {"reasoning": "".join(texts_of(sent)), "reasoning_details": sent}
    ),
}


def texts_of(sent: list[Detail]) -> list[str]:
    return [str(one.get("text") or one.get("summary") or "") for one in sent]


@each_row("way", WAYS)
@each_row("case", LISTS)
def test_each_signature_has_a_reasoning_of_its_own(case: str, way: str) -> None:
    sent, wanted = LISTS[case]
    assert spelled(thoughts(read(WAYS[way](sent)))) == spelled(wanted)


def home(one: Decoded, form: str) -> tuple[bytes, list[str]]:
    """Returns the response encoded in its own dialect, and what is not carried."""
    if form == "body":
        findings = Findings()
        raw = body(one.response, Context(), findings)
        return raw, [finding.detail for finding in findings.found]
    encoder = Encoder(NAME, context=Context(), fold=one.fold)
    raw = b"".join(encoder.feed(one.parts) + encoder.finish())
    return raw, [finding.detail for finding in encoder.findings]


@each_row("form", ["body", "stream"])
@each_row("way", WAYS)
@each_row("case", LISTS)
def test_reasoning_details_go_back_to_their_host_unchanged(case: str, way: str, form: str) -> None:
    one = read(WAYS[way](LISTS[case][0]))
    raw, lost = home(one, form)
    assert (thoughts(read(raw)), lost) == (thoughts(one), [])


STREAMS: dict[str, tuple[list[chat.Delta], list[Thought]]] = {
    "one after the other": (
        [{"reasoning_details": [encrypted("a")]}, {"reasoning_details": [encrypted("b", 1)]}],
        [
            Thought("raw", "", None, "a", [encrypted("a")]),
            Thought("raw", "", None, "b", [encrypted("b", 1)]),
        ],
    ),
    "after text": (
        [
            {"reasoning": "s"},
            {"reasoning_details": [encrypted("a")]},
            {"reasoning_details": [encrypted("b", 1)]},
        ],
        [
            Thought("raw", "s", None, "a", [encrypted("a")]),
            Thought("raw", "", None, "b", [encrypted("b", 1)]),
        ],
    ),
    "text that is in no detail": (
        [
            {"reasoning": "s"},
            {"reasoning_details": [encrypted("a")]},
            {"reasoning": "t"},
            {"reasoning": "u", "reasoning_details": [encrypted("b", 1), encrypted("c", 2)]},
        ],
        [
            Thought("raw", "s", None, "a", [encrypted("a")]),
            Thought("raw", "tu", None, "b", [encrypted("b", 1)]),
            Thought("raw", "", None, "c", [encrypted("c", 2)]),
        ],
    ),
    "text beside the next signature_data": (
        [
            {"reasoning": "s", "reasoning_details": [encrypted("a")]},
            {"reasoning": "t", "reasoning_details": [encrypted("b", 1)]},
        ],
        [
            Thought("raw", "s", None, "a", [encrypted("a")]),
            Thought("raw", "t", None, "b", [encrypted("b", 1)]),
        ],
    ),
    "text of the index of the signature_data": (
        [
            {"reasoning": "s", "reasoning_details": [encrypted("a")]},
            {"reasoning_details": [text("t")]},
        ],
        [Thought("raw", "st", None, "a", [encrypted("a"), text("t")])],
    ),
    "text after a signature": (
        [
            {"reasoning": "s", "reasoning_details": [text("s", signature="1")]},
            {"reasoning": "t"},
        ],
        [
            Thought("raw", "s", "1", None, [text("s", signature="1")]),
            Thought("raw", "t", None, None, []),
        ],
    ),
    "an index that tells nothing": (
        [
            {"reasoning_details": [summary("s")]},
            {"reasoning_details": [encrypted("a", 0, "x")]},
            {"reasoning_details": [summary("t")]},
            {"reasoning_details": [summary("u")]},
            {"reasoning_details": [encrypted("b", 0, "y")]},
        ],
        [
            Thought("summary", "s", None, "a", [summary("s"), encrypted("a", 0, "x")]),
            Thought("summary", "tu", None, "b", [summary("tu"), encrypted("b", 0, "y")]),
        ],
    ),
    "more under the same id": (
        [
            {"reasoning_details": [summary("s"), encrypted("a", 0, "x")]},
            {"reasoning_details": [summary("t", id="x")]},
        ],
        [Thought("summary", "st", None, "a", [summary("st", id="x"), encrypted("a", 0, "x")])],
    ),
    "the signature_data in every chunk": (
        [
            {"reasoning": "s", "reasoning_details": [encrypted("a")]},
            {"reasoning": "t", "reasoning_details": [encrypted("a")]},
        ],
        [Thought("raw", "st", None, "a", [encrypted("a")])],
    ),
    "details that say nothing": (
        [{"reasoning_details": [detail("text", index=0)]}, {"reasoning": "s"}],
        [Thought("raw", "s", None, None, [])],
    ),
}
"""Chunks, and the reasonings that they become."""


@pytest.mark.parametrize("case", STREAMS)
def test_a_signature_ends_the_reasoning_before_it(case: str) -> None:
    deltas, wanted = STREAMS[case]
    assert spelled(thoughts(read(streamed(*deltas)))) == spelled(wanted)


@pytest.mark.parametrize("case", STREAMS)
def test_a_stream_that_is_encoded_again_has_the_same_parts(case: str) -> None:
    one = read(streamed(*STREAMS[case][0]))
    raw, lost = home(one, "stream")
    sent = [one[1:] for one in thoughts(one)]  # deltas do not tell summaries from the rest
    assert ([one[1:] for one in thoughts(read(raw))], lost) == (sent, [])


JOINED = ["reasoning-start: joined to the one before it"]


@pytest.mark.parametrize(
    ("case", "lost"), [("one after the other", []), ("text that is in no detail", JOINED)]
)
def test_a_body_joins_reasonings_whose_details_lack_the_text(case: str, lost: list[str]) -> None:
    assert home(read(streamed(*STREAMS[case][0])), "body")[1] == lost


def test_a_body_joins_reasonings_without_details() -> None:
    first = ReasoningItem("a", "s", encrypted="1", origin=NAME)
    second = ReasoningItem("b", "t", encrypted="2", origin=NAME, extra=Raw(b'{"x":1}'))
    findings = Findings()
    response = Response("r", items=(first, second), dialect=NAME, finish_reason="stop")
    body(response, Context(), findings)
    assert [finding.detail for finding in findings.found] == JOINED


def test_encrypted_details_leave_an_open_text_open() -> None:
    sent = [encrypted("a"), encrypted("b", 1)]
    raw = chat.stream(
        [chat.chunk({"content": "h"}), chat.chunk({"content": "i", "reasoning_details": sent})]
    )
    extras = [Raw(msgspec.json.encode({"reasoning_details": [one]})) for one in sent]
    parts: list[Part] = [
        ResponseMetadata("chatcmpl-1", model="m-1", created=1790000000, dialect=NAME),
        TextStart("text_0"),
        TextDelta("text_0", "h"),
        ReasoningStart("reasoning_0", "raw"),
        ReasoningEnd("reasoning_0", encrypted="a", origin=NAME, extra=extras[0]),
        ReasoningStart("reasoning_1", "raw"),
        ReasoningEnd("reasoning_1", encrypted="b", origin=NAME, extra=extras[1]),
        TextDelta("text_0", "i"),
        TextEnd("text_0"),
        Finish("stop", raw_reason="stop", model="m-1"),
    ]
    assert read(raw).parts == parts


# Across


DIALECTS = ("openai-responses", "anthropic-messages", "gemini")


@each_row("way", WAYS)
@each_row("target", DIALECTS)
@each_row("case", LISTS)
def test_every_signature_survives_conversion(case: str, target: DialectName, way: str) -> None:
    raw = WAYS[way](LISTS[case][0])
    (target_response,) = decode_all(convert(raw, NAME, target), target)
    wanted = [(one.text, one.signature, one.encrypted) for one in thoughts(read(raw))]
    found = [(one.text, one.signature, one.encrypted) for one in thoughts(target_response)]
    assert [one for one in found if any(one[1:])] == [one for one in wanted if any(one[1:])]


# What other dialects proved


PROVEN = st.lists(
    st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.text("ab", min_size=1)),
    max_size=4,
)


def foreign(signed: list[tuple[str, str]]) -> list[Part]:
    parts: list[Part] = [ResponseMetadata("r", model="m", dialect="elsewhere")]
    for number, (words, signature_data) in enumerate(signed):
        id = f"reasoning_{number}"
        parts.append(ReasoningStart(id, "raw"))
        if words:
            parts.append(ReasoningDelta(id, words))
        parts.append(ReasoningEnd(id, encrypted=signature_data, origin="elsewhere"))
    return [*parts, TextStart("t"), TextDelta("t", "hi"), TextEnd("t"), Finish("stop")]


@examples(60)
@given(PROVEN)
def test_a_stream_keeps_signatures_of_other_dialects_beside_their_reasoning(
    signed: list[tuple[str, str]],
) -> None:
    raw = b"".join(encode(foreign(signed), NAME))
    (one,) = decode_all(raw, NAME)
    assert [(sent.text, sent.encrypted) for sent in thoughts(one)] == signed


@examples(60)
@given(PROVEN)
def test_a_body_keeps_all_signatures_and_repeats_no_text(signed: list[tuple[str, str]]) -> None:
    fold = Assembler()
    for part in foreign(signed):
        fold.feed(part)
    (one,) = decode_all(body(fold.response(), Context()), NAME)
    assert one.response.reasoning == "".join(words for words, _ in signed)
    assert [sent.encrypted for sent in thoughts(one)] == [
        signature_data for _, signature_data in signed
    ]
