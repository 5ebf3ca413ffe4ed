"""Templates of frames: what fits one has the parts that the full parser would find."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.strategies import THOROUGH
from tests.tables import each_row
from weft.codec import Pipe
from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.delta_templates import MAX_TEMPLATES, FrameTemplate
from weft.ids import Ids
from weft.parts import Finish, Part, ResponseMetadata, TextDelta, TextEnd, TextStart, ToolCall
from weft.sse import DONE, Frame

BEFORE, AFTER = b'{"id":"1","choices":[{"index":0,"delta":{"content":', b'},"finish_reason":null}]}'


def chunk(text: str) -> Frame:
    return Frame(BEFORE + json.dumps(text).encode() + AFTER)


def template_of(frame: Frame, text: str) -> FrameTemplate | None:
    return FrameTemplate.of(frame, b'"content"', TextDelta("text_0", text))


# What fits

FITTING: dict[str, tuple[bytes, str]] = {
    "another text": (b'"b"', "b"),
    "the same text": (b'"a"', "a"),
    "a longer one": (b'"' + b"b" * 5000 + b'"', "b" * 5000),
    "spaces": (b'"  "', "  "),
    "escapes": (rb'"\"\\\/\n\t\u0041\u001f"', '"\\/\n\tA\x1f'),
    "braces and quotes": (rb'"{\"content\":\"x\"}},"', '{"content":"x"}},'),
    "its own end": (json.dumps(AFTER.decode()).encode(), AFTER.decode()),
    "nothing": (b'""', ""),
    "letters beyond ASCII": ('"é"'.encode(), "é"),
    "letters beyond ASCII, escaped": (rb'"\u00e9"', "é"),
    "a whole pair": (rb'"\ud83d\ude00"', "😀"),
}


@pytest.mark.parametrize("case", FITTING)
def test_a_chunk_that_differs_only_in_its_text_gives_that_text(case: str) -> None:
    value, text = FITTING[case]
    made = template_of(chunk("a"), "a")
    assert made is not None
    assert made.match(Frame(BEFORE + value + AFTER, number=7, offset=99)) == text


@pytest.mark.parametrize("text", ["a", "é", "😀", "a\n", ' "', ""])
@pytest.mark.parametrize("gap", [b":", b": "])
def test_a_template_is_made_of_any_text_that_is_not_escaped(text: str, gap: bytes) -> None:
    before = BEFORE[:-1] + gap
    value = json.dumps(text, ensure_ascii=False).encode()
    made = template_of(Frame(before + value + AFTER), text)
    assert made is not None
    assert made.match(Frame(before + b'"b"' + AFTER)) == "b"


NOT_FITTING: dict[str, Frame] = {
    "another id": Frame(BEFORE.replace(b'"1"', b'"2"') + b'"b"' + AFTER),
    "a finish reason": Frame(BEFORE + b'"b"' + AFTER.replace(b"null", b'"stop"')),
    "an end as long": Frame(BEFORE + b'"b"' + AFTER.replace(b"null", b'"no"')),
    "more beside it": Frame(BEFORE + b'"b","refusal":"no"' + AFTER),
    "a second content": Frame(BEFORE + b'"b","content":"c"' + AFTER),
    "more choices": Frame(BEFORE + b'"b"},"finish_reason":null},{"delta":{"role":"x"' + AFTER),
    "another spacing": Frame(BEFORE + b'"b"' + AFTER.replace(b",", b", ")),
    "a high half": Frame(BEFORE + rb'"b\ud83d"' + AFTER),
    "a low half": Frame(BEFORE + rb'"\ude00b"' + AFTER),
    "bytes that are no UTF-8": Frame(BEFORE + b'"\xff"' + AFTER),
    "an escape cut in two": Frame(BEFORE + b'"b\\"' + AFTER),
    "a line feed in the string": Frame(BEFORE + b'"b\n"' + AFTER),
    "null": Frame(BEFORE + b"null" + AFTER),
    "a number": Frame(BEFORE + b"7" + AFTER),
    "a list": Frame(BEFORE + b'["b"]' + AFTER),
    "no value": Frame(BEFORE + AFTER),
    "spaces around it": Frame(BEFORE + b' "b" ' + AFTER),
    "its beginning alone": Frame(BEFORE),
    "its end alone": Frame(AFTER),
    "the terminator": Frame(DONE),
    "a name": Frame(BEFORE + b'"b"' + AFTER, "delta"),
    "a number of the event": Frame(BEFORE + b'"b"' + AFTER, "", "7"),
    "an empty number": Frame(BEFORE + b'"b"' + AFTER, "", ""),
    "no end of the event": Frame(BEFORE + b'"b"' + AFTER, cut=True),
    "one of several lines": Frame(BEFORE + b'"b"' + AFTER, split=True),
}


@pytest.mark.parametrize("case", NOT_FITTING)
def test_a_chunk_that_differs_elsewhere_is_parsed_in_full(case: str) -> None:
    made = template_of(chunk("a"), "a")
    assert made is not None
    assert made.match(NOT_FITTING[case]) is None


def test_a_chunk_shorter_than_the_template_does_not_match() -> None:
    made = template_of(Frame(b'{"a":"}","content":"a"}'), "a")
    assert made is not None
    assert made.match(Frame(b'{"a":"}","content":}')) is None
    one = template_of(Frame(b'"content":"a","content'), "a")
    assert one is not None
    assert one.match(Frame(b'"content":"","content')) == ""
    assert one.match(Frame(b'"content":"content')) is None


WITHOUT_TEMPLATE: dict[str, Frame] = {
    "a text written otherwise": Frame(BEFORE + rb'"\u0061"' + AFTER),
    "another text": chunk("b"),
    "more text": chunk("ab"),
    "no text": Frame(BEFORE + b"null" + AFTER),
    "a list": Frame(BEFORE + b'["a"]' + AFTER),
    "a space before the colon": Frame(BEFORE[:-1] + b' :"a"' + AFTER),
    "two spaces after it": Frame(BEFORE + b'  "a"' + AFTER),
    "no such key": Frame((BEFORE + b'"a"' + AFTER).replace(b"content", b"text")),
    "the key twice": Frame(BEFORE + b'"a","content":"a"' + AFTER),
    "the key in another object": Frame(BEFORE + b'"a","x":{"content":"b"}' + AFTER),
    "the word before": Frame(b'{"type":"content",' + BEFORE[1:] + b'"a"' + AFTER),
    "the word behind": Frame(BEFORE + b'"a","type":"content"' + AFTER),
    "a longer key": Frame(b'{"my\\"content":"a"}'),
    "nothing behind": Frame(BEFORE + b'"a"'),
    "a number of the event": replace(chunk("a"), id="7"),
    "no end of the event": replace(chunk("a"), cut=True),
    "one of several lines": replace(chunk("a"), split=True),
}


@pytest.mark.parametrize("case", WITHOUT_TEMPLATE)
def test_no_template_is_made_if_the_position_of_the_text_is_uncertain(case: str) -> None:
    assert template_of(WITHOUT_TEMPLATE[case], "a") is None


# Numbers and padding

NUMBER = b'"sequence_number"'
NUMBERED = {
    "before the text": b'{"sequence_number":%d,"delta":%b,"x":[]}',
    "behind it": b'{"delta": %b, "sequence_number": %d}',
    "behind padding": b'{"delta":%b,"obfuscation":"%b","sequence_number":%d}',
}


def numbered(case: str, number: int, text: bytes, padding: bytes = b"ab") -> Frame:
    fields = {"before the text": (number, text), "behind it": (text, number)}
    return Frame(NUMBERED[case] % fields.get(case, (text, padding, number)))


@pytest.mark.parametrize("case", NUMBERED)
def test_each_frame_has_the_next_number(case: str) -> None:
    made = FrameTemplate.of(numbered(case, 9, b'"a"'), b'"delta"', TextDelta("t", "a"))
    assert made is not None
    assert made.count(NUMBER, 9)
    assert made.fixed is None
    assert made.match(numbered(case, 9, b'"b"')) is None
    assert made.match(numbered(case, 11, b'"b"')) is None
    for number, padding in ((10, b""), (11, b"xyz09Z")):
        assert made.match(numbered(case, number, b'"b"', padding)) == "b"
    assert made.match(numbered(case, 11, b'"b"')) is None
    # A text that is empty is for the decoder, which counts the frame itself.
    assert made.match(numbered(case, 12, b'""')) == ""
    assert made.match(numbered(case, 12, b'"c"')) == "c"


@pytest.mark.parametrize(
    "frame",
    [
        b'{"delta":"a","sequence_number":9.5}',
        b'{"delta":"a","sequence_number":90}',
        b'{"delta":"a","sequence_number":"9"}',
        b'{"delta":"a"}',
        b'{"sequence_number":9,"delta":"a","sequence_number":9}',
        b'{"delta":"a","x":{"sequence_number":9},"sequence_number":9}',
    ],
)
def test_a_number_in_an_uncertain_place_is_not_counted(frame: bytes) -> None:
    made = FrameTemplate.of(Frame(frame), b'"delta"', TextDelta("t", "a"))
    assert made is not None
    assert not made.count(NUMBER, 9)


PADDED = b'{"id":"1","choices":[{"delta":{"content":"%b"}}],"obfuscation":"%b"}'


@pytest.mark.parametrize(
    ("padding", "text"),
    [(b"", "b"), (b"xY09", "b"), (b"\\n", None), (b'","x":"', None), (b"-", None)],
)
def test_padding_may_differ(padding: bytes, text: str | None) -> None:
    made = template_of(Frame(PADDED % (b"a", b"abc")), "a")
    assert made is not None
    assert made.match(Frame(PADDED % (b"b", padding))) == text


def test_a_field_of_that_name_inside_another_object_may_not_differ() -> None:
    frame = b'{"choices":[{"delta":{"content":"a","extra_content":{"obfuscation":"%b"}}}]}'
    made = template_of(Frame(frame % b"abc"), "a")
    assert made is not None
    assert made.match(Frame(frame % b"abc")) == "a"
    assert made.match(Frame(frame % b"abd")) is None


def test_a_decoder_may_want_to_read_a_frame_that_fits() -> None:
    made = template_of(chunk("a"), "a")
    assert made is not None
    seen: list[tuple[str, bytes]] = []

    def note(text: str, data: bytes) -> bool:
        seen.append((text, data))
        return text != "no"

    made.note = note
    texts = [made.match(chunk(text)) for text in ("b", "no", "", "c")]
    assert texts == ["b", None, "", "c"]
    assert seen == [(text, chunk(text).data) for text in ("b", "no", "c")]


# The decoder


@dataclass(frozen=True)
class Decoded:
    parts: list[Part]
    codes: list[str]


def decoded(frames: Sequence[Frame]) -> Decoded:
    pipe = Pipe(DIALECTS["openai-chat"], Context(ids=Ids(b"seed")))
    parts = [part for frame in frames for part in pipe.feed([frame])] + pipe.finish()
    return Decoded(parts, [finding.code for finding in pipe.findings.found])


def respaced(frames: Sequence[Frame]) -> list[Frame]:
    """Returns the same chunks with different bytes around the text of neighbours."""
    return [
        replace(frame, data=b"{ " + frame.data[1:]) if at % 2 and may_be_spaced(frame) else frame
        for at, frame in enumerate(frames)
    ]


def may_be_spaced(frame: Frame) -> bool:
    """Whether blanks change nothing: replays are found by bytes, and broken JSON is quoted."""
    try:
        json.loads(frame.data)
    except ValueError:
        return False
    return frame.data.startswith(b"{") and frame.id is None


def test_the_texts_of_equal_chunks_are_deltas_of_one_text() -> None:
    texts = ["a", "b", "é", "c", "\n", "d"]
    stop = Frame(BEFORE + b'""' + AFTER.replace(b"null", b'"stop"'))
    found = decoded([*map(chunk, texts), stop, Frame(DONE)])
    assert found == Decoded(
        [
            ResponseMetadata("1", dialect="openai-chat"),
            TextStart("text_0"),
            *(TextDelta("text_0", text) for text in texts),
            TextEnd("text_0"),
            Finish("stop", raw_reason="stop"),
        ],
        [],
    )


def test_the_first_delta_of_a_text_is_a_template_although_it_starts_the_text() -> None:
    pipe = Pipe(DIALECTS["openai-chat"], Context(ids=Ids(b"seed")))
    offered = []
    for text in ("", "a", "b"):
        parts = pipe.feed([chunk(text)])
        offered.append((parts[-1].type, pipe.template is not None))
    assert offered == [("response-metadata", False), ("text-delta", True), ("text-delta", True)]


def refusing(text: str) -> Frame:
    """Returns a chunk with a refusal, and with text in a choice that is not read."""
    other = b'{"index":1,"delta":{"content":"%b"}}' % text.encode()
    return Frame(b'{"id":"1","choices":[%b,{"index":0,"delta":{"refusal":"a"}}]}' % other)


ODD: dict[str, list[Frame]] = {
    "the text of another choice": [refusing("a"), refusing("a"), refusing("b"), refusing("c")],
    **{name: [chunk("a"), chunk("b"), odd, odd, chunk("c")] for name, odd in NOT_FITTING.items()},
    **{
        f"{name}, twice": [chunk("a"), odd, odd, chunk("b")]
        for name, odd in WITHOUT_TEMPLATE.items()
    },
    "a pair cut in two": [chunk("a"), chunk("b\ud83d"), chunk("\ude00c"), chunk("d")],
    "a high half that stays alone": [chunk("a"), chunk("b\ud83d"), chunk("c"), chunk("d")],
    "text after the end": [chunk("a"), chunk("b"), Frame(DONE), chunk("c"), chunk("d")],
    "text after a finish reason": [
        chunk("a"),
        Frame(BEFORE + b'"b"' + AFTER.replace(b"null", b'"stop"')),
        chunk("c"),
        chunk("d"),
    ],
    "text after an error": [
        chunk("a"),
        chunk("b"),
        Frame(b'{"error":{"message":"no"}}'),
        chunk("c"),
        chunk("d"),
    ],
    "more changes than templates": [
        one
        for number in range(2 * MAX_TEMPLATES)
        for one in (chunk("a"), Frame(b'{"id":"%d",' % number + (BEFORE + b'"b"' + AFTER)[10:]))
    ],
}


@each_row("case", ODD)
def test_odd_chunks_among_equal_ones_are_parsed_in_full(case: str) -> None:
    assert decoded(ODD[case]) == decoded(respaced(ODD[case]))


def with_call(text: str, arguments: str) -> Frame:
    """Returns a chunk with text and a delta of a call whose name has not come yet."""
    call = (
        b'"tool_calls":[{"index":0,"function":{"arguments":%b}}],' % json.dumps(arguments).encode()
    )
    return Frame(
        BEFORE.replace(b'"content"', call + b'"content"') + b'"%b"' % text.encode() + AFTER
    )


def misspelled(text: str) -> Frame:
    """Returns a chunk with its text under an escaped key, and another text in an unknown field."""
    raw = BEFORE.replace(b'"content"', rb'"\u0063ontent"') + b'"a"' + AFTER
    return Frame(raw.replace(b'"id"', b'"content":"%b","id"' % text.encode()))


def test_a_chunk_with_a_delta_of_a_buffered_call_makes_no_template() -> None:
    frames = [chunk("."), *(with_call(text, "1") for text in "abc"), Frame(DONE)]
    assert decoded(frames) == decoded(respaced(frames))
    assert [part.params for part in decoded(frames).parts if isinstance(part, ToolCall)] == ["111"]


def test_a_similar_key_is_not_mistaken_for_content() -> None:
    frames = [chunk("."), misspelled("a"), misspelled("b"), Frame(DONE)]
    assert decoded(frames) == decoded(respaced(frames))


def test_a_matching_chunk_after_the_end_yields_nothing() -> None:
    pipe = Pipe(DIALECTS["openai-chat"], Context(ids=Ids(b"seed")))
    for text in "ab":
        pipe.feed([chunk(text)])
    pipe.finish()
    assert pipe.feed([chunk("c")]) == []
    assert [finding.code for finding in pipe.findings.found] == ["after-finish"]


# Any stream

TEXTS = st.sampled_from(
    ["a", "b", "c ", "", "é", "😀", "\ud83d", "\ude00", '"', "\\", "\n", '"content"', '{"content":']
)
ASIDE: dict[str, list[object]] = {
    "role": ["assistant"],
    "refusal": [None, "", "no"],
    "reasoning_content": [None, "", "why", "\ud83d"],
    "reasoning_details": [
        [],
        [{"type": "reasoning.text", "text": "so"}],
        [{"type": "reasoning.encrypted", "data": "x"}],
        [{"type": "reasoning.text", "signature": "s"}],
    ],
    "tool_calls": [
        None,
        [],
        [{"index": 0, "id": "c", "function": {"name": "look", "arguments": "1"}}],
        [{"index": 0, "id": "c", "function": {"name": "look", "arguments": ""}}],
        [{"index": 0, "function": {"arguments": "1"}}],
        [{"index": 1, "id": "d", "function": {"arguments": "2"}}],
    ],
    "function_call": [None, {"name": "look", "arguments": "1"}, {"arguments": "1"}],
    "annotations": [
        [{"type": "other"}],
        [{"type": "url_citation", "url_citation": {"url": "u", "title": "t"}}],
    ],
    "extra_content": [None, {"google": {"thought_signature": "s"}}],
}
AROUND: dict[str, list[object]] = {
    "id": ["1", "2"],
    "model": ["m", "n", None],
    "object": ["chat.completion.chunk", "chat.completion"],
    "created": [7],
    "usage": [None, {"prompt_tokens": 1}, {"completion_tokens": 2}],
    "citations": [["u"], ["u", "v"]],
    "error": [None],
    "x": [{"content": "a"}, "content"],
}
BESIDE: dict[str, list[object]] = {
    "finish_reason": [None, None, "stop", "length"],
    "usage": [None, {"prompt_tokens": 3}],
    "message": [{"role": "assistant"}, {"content": "whole"}],
}


@st.composite
def some_of(draw: st.DrawFn, table: Mapping[str, list[object]]) -> dict[str, object]:
    names = draw(st.lists(st.sampled_from(sorted(table)), max_size=2, unique=True))
    return {name: draw(st.sampled_from(table[name])) for name in names}


@st.composite
def runs(draw: st.DrawFn, spaced: bool) -> list[Frame]:
    """Chunks that differ only in their text."""
    plain = draw(st.booleans())
    aside: dict[str, object] = {} if plain else draw(some_of(ASIDE))
    beside: dict[str, object] = {} if plain else draw(some_of(BESIDE))
    around: dict[str, object] = {"id": "1"} if plain else draw(some_of(AROUND))
    choice = {"index": draw(st.sampled_from([0, 0, 0, 1])), **beside}
    frames = []
    names = draw(st.permutations(["content", *aside]))
    for text in draw(st.lists(TEXTS, min_size=1, max_size=4)):
        said = {"content": text, **aside}
        choices = [{**choice, "delta": {name: said[name] for name in names}}]
        body = {**around, "choices": choices}
        raw = json.dumps(body, separators=(", ", ": ") if spaced else (",", ":"))
        frames.append(Frame(raw.encode()))
    return frames


LINES = st.sampled_from(
    [
        Frame(DONE),
        Frame(b'{"error":{"message":"no"}}'),
        Frame(b'{"choices":[],"usage":{"prompt_tokens":5}}'),
        Frame(b"nonsense"),
        Frame(b"{nonsense"),
        replace(chunk("a"), event="delta"),
        replace(chunk("a"), id="7"),
        replace(chunk("b"), split=True),
        chunk("a"),
    ]
)


@st.composite
def streams(draw: st.DrawFn) -> list[Frame]:
    spaced = draw(st.booleans())
    pieces = draw(st.lists(runs(spaced) | LINES.map(lambda one: [one]), max_size=6))
    frames = [frame for piece in pieces for frame in piece]
    if draw(st.booleans()) and frames:
        frames[-1] = replace(frames[-1], cut=True)
    return frames


@THOROUGH
@given(frames=streams())
def test_the_fast_path_and_the_full_parser_give_the_same(frames: list[Frame]) -> None:
    assert decoded(frames) == decoded(respaced(frames))
