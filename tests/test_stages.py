"""Stages: think tags and markup calls, wherever the deltas are cut."""

import json
from itertools import pairwise
from time import process_time

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.chat import chunk, stream
from weft import Context, Decoder, Ids, Response, TextDelta
from weft.dialects.openai_chat.quirks import ChatQuirks
from weft.dialects.stages.markup_calls import TAGS, TOKENS, MarkupCalls
from weft.findings import Findings
from weft.parts import Part, TextStart


def read(deltas: list[dict[str, object]], quirks: ChatQuirks | None = None) -> Response:
    decoder = Decoder("openai-chat", context=Context(ids=Ids(b"1"), quirks=quirks))
    decoder.feed(stream([chunk(delta) for delta in deltas]))
    decoder.finish()
    return decoder.response


def contents(*texts: str) -> list[dict[str, object]]:
    return [{"content": text} for text in texts if text]


def said(response: Response) -> tuple[str, str]:
    return response.reasoning, response.text


def pieces(text: str, cuts: list[int]) -> list[dict[str, object]]:
    marks = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return contents(*(text[a:b] for a, b in pairwise(marks)))


CUTS = st.lists(st.integers(0, 200), max_size=12)
INNER = st.text(st.sampled_from("ab<>/think \n"), max_size=12).filter(lambda t: "</think>" not in t)


@settings(deadline=None)
@given(INNER, st.text(st.sampled_from("ab<think>\n "), max_size=12), CUTS)
def test_where_the_tags_are_cut_changes_nothing(inner: str, answer: str, cuts: list[int]) -> None:
    text = f" \n<think>{inner}</think>\n{answer}"
    response = read(pieces(text, cuts))
    assert said(response) == (inner, answer.lstrip("\r\n"))
    assert [finding.code for finding in response.findings] == ["think-tags"]


@settings(deadline=None)
@given(st.text(st.sampled_from("ab<>/think \n"), max_size=16), CUTS)
def test_text_without_a_leading_tag_is_text(text: str, cuts: list[int]) -> None:
    if text.lstrip().startswith("<think>"):
        return
    assert said(read(pieces(text, cuts))) == ("", text)


def test_a_later_tag_is_plain_text() -> None:
    text = "a<think>b</think>"
    assert said(read(contents(text))) == ("", text)
    assert said(read(contents("<think>x</think>", text))) == ("x", text)


def test_what_is_never_closed_stays_reasoning() -> None:
    assert said(read(contents("<think>plan", " more</th"))) == ("plan more</th", "")


def test_a_stream_that_is_cut_inside_a_tag_loses_nothing() -> None:
    for text, expected in {
        "<thi": ("", "<thi"),
        "<think>a</th": ("a</th", ""),
        "<think>a</think>\n": ("a", ""),
    }.items():
        decoder = Decoder("openai-chat")
        decoder.feed(chunk({"content": text}))
        decoder.finish()
        assert said(decoder.response) == expected
        assert decoder.response.finish_reason == "error"


def test_tags_count_only_if_no_reasoning_came_by_field() -> None:
    deltas: list[dict[str, object]] = [{"reasoning_content": "r"}]
    deltas += contents("<think>a</think>b")
    assert said(read(deltas)) == ("r", "<think>a</think>b")


def test_an_orphan_closer_is_dropped_after_reasoning_by_field() -> None:
    deltas: list[dict[str, object]] = [{"reasoning_content": "r"}]
    deltas += contents("\n</th", "ink>\nb")
    response = read(deltas)
    assert said(response) == ("r", "b")
    assert "think-closer-dropped" in [finding.code for finding in response.findings]


def test_an_orphan_closer_is_not_guessed_at() -> None:
    assert said(read(contents("plan</think>answer"))) == ("", "plan</think>answer")


def test_reasoning_without_an_opening_tag_is_an_opt_in() -> None:
    quirks = ChatQuirks(implicit_think=True)
    assert said(read(contents("pl", "an</thi", "nk>\n\nanswer"), quirks)) == ("plan", "answer")
    assert said(read([{"reasoning_content": "r"}, *contents("a")], quirks)) == ("r", "a")


def test_a_refusal_is_never_searched_for_tags() -> None:
    response = read([{"refusal": "<think>no</think>"}, *contents("<think>a</think>b")])
    assert response.refusal == "<think>no</think>"
    assert said(response) == ("a", "b")


def test_a_tag_can_stand_beside_another_text() -> None:
    """A part that ends while its text is still held goes out as it is."""
    deltas: list[dict[str, object]] = [*contents("\n<t"), {"refusal": "no"}, *contents("x")]
    response = read(deltas)
    assert (response.text, response.refusal) == ("\n<tx", "no")


# Markup


CALL = {"name": "look", "arguments": {"at": 1}}
IN_TAGS = f"I see. <tool_call>\n{json.dumps(CALL)}\n</tool_call>"
IN_TOKENS = (
    "Ok <|tool_calls_section_begin|><|tool_call_begin|>functions.look:0"
    '<|tool_call_argument_begin|>{"at":1}<|tool_call_end|><|tool_call_begin|>functions.wait:1'
    "<|tool_call_argument_begin|><|tool_call_end|><|tool_calls_section_end|> done"
)


@settings(deadline=None)
@given(CUTS)
def test_where_markup_is_cut_changes_nothing(cuts: list[int]) -> None:
    response = read(pieces(IN_TAGS, cuts), ChatQuirks(text_markup_calls=TAGS))
    assert response.text == "I see. "
    assert [(call.name, call.params) for call in response.tool_calls] == [("look", '{"at": 1}')]
    assert response.finish_reason == "tool-calls"


@settings(deadline=None)
@given(CUTS)
def test_token_markup_keeps_its_ids(cuts: list[int]) -> None:
    response = read(pieces(IN_TOKENS, cuts), ChatQuirks(text_markup_calls=TOKENS))
    assert response.text == "Ok  done"
    assert [(call.id, call.name, call.params) for call in response.tool_calls] == [
        ("functions.look:0", "look", '{"at":1}'),
        ("functions.wait:1", "wait", "{}"),
    ]


def test_markup_stays_text_by_default() -> None:
    response = read(contents(IN_TAGS))
    assert response.text == IN_TAGS
    assert response.tool_calls == ()


def test_markup_that_is_no_call_stays_text() -> None:
    for markup, text in {
        TAGS: "<tool_call>not json</tool_call>",
        TOKENS: "<|tool_call_begin|>nothing<|tool_call_end|>",
    }.items():
        response = read(contents(text, "!"), ChatQuirks(text_markup_calls=markup))
        assert response.text == text + "!"


def test_markup_that_is_never_closed_stays_text_also_when_the_stream_is_cut() -> None:
    quirks = ChatQuirks(text_markup_calls=TAGS)
    assert read(contents("<tool_call>{"), quirks).text == "<tool_call>{"
    decoder = Decoder("openai-chat", context=Context(quirks=quirks))
    parts = decoder.feed(chunk({"content": "a<tool_"})) + decoder.finish()
    assert "".join(part.delta for part in parts if isinstance(part, TextDelta)) == "a<tool_"


def test_a_message_that_is_only_a_call_has_no_text_part() -> None:
    response = read(contents(IN_TAGS[7:]), ChatQuirks(text_markup_calls=TAGS))
    assert [item.__class__.__name__ for item in response.items] == ["ToolCall"]


def seconds_a_delta(count: int) -> float:
    """The least of three runs: a busy machine only adds."""
    deltas: list[Part] = [TextDelta("t", "wind ")] * count
    runs = []
    for _ in range(3):
        stage = MarkupCalls(TAGS, Ids(), Findings())
        stage.feed([TextStart("t"), TextDelta("t", "<tool_call>")])
        began = process_time()
        for delta in deltas:
            stage.feed([delta])
        runs.append((process_time() - began) / count)
    return min(runs)


def test_a_call_that_is_never_closed_costs_the_same_for_each_delta() -> None:
    assert seconds_a_delta(32_000) < 4 * seconds_a_delta(2_000)
