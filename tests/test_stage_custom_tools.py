"""Free text out of `{"input": string}`, letter by letter, wherever the deltas are cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import staged
from tests.strategies import LEGAL, QUICK, SOUP, THOROUGH, cut_at, cuts, spelled
from weft import Context, Decoder, Encoder, Ids
from weft.assembler import Assembler, Response
from weft.dialects import DialectName
from weft.dialects.stages.custom_tools import CustomToolCalls
from weft.dialects.stages.restore_names import RestoreNames
from weft.findings import Findings
from weft.guard import Guard
from weft.lifecycle import violations
from weft.parts import (
    ErrorPart,
    Finish,
    Part,
    ResponseMetadata,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
)

START = ResponseMetadata("resp_1")
PATCH = ToolParamsStart("c", "patch")
FREE = ToolParamsStart("c", "patch", kind="custom", format="text")


def run(parts: list[Part], *tools: str) -> tuple[list[Part], Response]:
    findings = Findings()
    return staged.run(CustomToolCalls(tools or ["patch"], findings), findings, parts)


def called(pieces: list[str], *, told: bool = True, end: bool = True) -> list[Part]:
    """A call of the tool, as a decoder of an upstream without free text tells it."""
    deltas = [ToolParamsDelta("c", piece) for piece in pieces if piece]
    ends = [ToolParamsEnd("c")] if end else []
    call = ToolCall("c", "patch", "".join(pieces) if told else "")
    return [START, PATCH, *deltas, *ends, call, Finish("tool-calls")]


def outcome(parts: list[Part]) -> tuple[object, ...]:
    """All that does not depend on where the deltas were cut."""
    out, response = run(parts)
    return response.items, response.finish_reason, response.findings, out[1:2]


def codes(response: Response) -> list[str]:
    return [finding.code for finding in response.findings]


TEXTS = st.text(max_size=20) | st.text(st.sampled_from('ab"\\/\n\t\u2028é🧥{}:'), max_size=20)


@THOROUGH
@given(st.data(), TEXTS)
def test_free_text_comes_back_wherever_its_wrapping_is_cut(data: st.DataObject, text: str) -> None:
    wrapped = data.draw(spelled({"input": text}))
    parts = called(data.draw(cuts(wrapped)), told=data.draw(st.booleans()))
    out, response = run(parts)
    assert response.items == (ToolCall("c", "patch", text, kind="custom", format="text"),)
    assert (response.finish_reason, response.findings) == ("tool-calls", ())
    assert out[:2] == [START, FREE]


@QUICK
@given(st.data(), TEXTS)
def test_every_letter_goes_out_as_soon_as_it_is_sure(data: st.DataObject, text: str) -> None:
    stage = CustomToolCalls(["patch"], Findings())
    stage.feed([START, PATCH])
    head, tail = '{"input":"', json.dumps(text)[1:-1]
    assert stage.feed([ToolParamsDelta("c", head)]) == []
    said: list[Part] = []
    for letter in tail:
        said += stage.feed([ToolParamsDelta("c", letter)])
    assert "".join(part.delta for part in said if isinstance(part, ToolParamsDelta)) == text
    assert stage.feed([ToolParamsDelta("c", '"'), ToolParamsDelta("c", "}")]) == []


OTHER = st.dictionaries(
    st.text(max_size=4).filter(lambda key: key != "input"),
    st.recursive(
        st.none() | st.integers() | st.text(st.sampled_from('a"\\{}[],:'), max_size=5),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
        max_leaves=4,
    ),
    max_size=3,
)


@QUICK
@given(st.data(), TEXTS, OTHER)
def test_other_keys_are_left_out_and_noted(
    data: st.DataObject, text: str, other: dict[str, object]
) -> None:
    wrapped = data.draw(spelled({**other, "input": text}))
    expected = outcome(called([wrapped]))
    assert outcome(called(data.draw(cuts(wrapped)))) == expected
    items, reason, findings, _ = expected
    assert items == (ToolCall("c", "patch", text, kind="custom", format="text"),)
    assert reason == "tool-calls"
    assert [found.code for found in findings] == ["bridge-extra-keys"] * bool(other)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "other",
    ['","input":"x', '\\","input":"x', "input", {"input": "x"}, [{"input": "x"}, '"input":"']],
    ids=str,
)
def test_what_only_looks_like_the_key_is_not_read(other: object) -> None:
    raw = json.dumps({"a": other, "input": "b"})
    for pieces in ([raw], list(raw)):
        out, response = run(called(pieces))
        assert [part.delta for part in out if isinstance(part, ToolParamsDelta)] == ["b"]
        assert codes(response) == ["bridge-extra-keys"]
    stage = CustomToolCalls(["patch"], Findings())
    said = stage.feed([PATCH, ToolParamsDelta("c", raw.removesuffix('"}'))])
    assert said == [FREE, ToolParamsDelta("c", "b")]  # at once


def test_a_key_may_be_escaped() -> None:
    _, response = run(called(['{"\\u0069n', 'put"', ' : "a"}']))
    assert [call.params for call in response.tool_calls] == ["a"]
    assert codes(response) == []


ASIS: dict[str, tuple[str, list[str]]] = {
    "no object": ("[1]", ["bridge-no-input"]),
    "no such key": ('{"patch":"a"}', ["bridge-no-input"]),
    "not text": ('{"input":{"a":"b"}}', ["bridge-no-input"]),
    "null": ('{"input":null}', ["bridge-no-input"]),
    "empty": ("{}", ["bridge-no-input"]),
    "nothing": ("", ["bridge-no-input"]),
    "only deeper": ('{"a":{"input":"b"}}', ["bridge-no-input"]),
    "free text": ("*** Begin\n+ weft", ["bridge-no-input"]),
    "a string": ('"a"', ["bridge-no-input"]),
}


@pytest.mark.parametrize("case", ASIS)
def test_arguments_without_such_a_text_are_handed_over_as_they_are(case: str) -> None:
    raw, expected = ASIS[case]
    for pieces in ([raw], list(raw)):
        _, response = run(called(pieces))
        assert response.items == (ToolCall("c", "patch", raw, kind="custom", format="text"),)
        assert codes(response) == expected


def test_arguments_inside_a_string_are_read() -> None:
    wrapped = json.dumps(json.dumps({"input": "a"}))
    for pieces in ([wrapped], list(wrapped)):
        _, response = run(called(pieces))
        assert [call.params for call in response.tool_calls] == ["a"]
        assert codes(response) == ["arguments-double-encoded"]


BROKEN = {
    '{"inp': '{"inp',
    '{"input":': '{"input":',
    '{"a":1,': '{"a":1,',
    '{"input":"a\\nb': "a\nb",
    '{"input":"a\\u00': "a\\u00",
    '{"input":"\\ud83e': "\ufffd",
    '{"input":"a"': "a",
    '{"input":"a"]': "a",
    '{"input":"a\\x b"}': 'a\\x b"}',
    '{"input":"a\\u00zz"}': 'a\\u00zz"}',
    '{"input":"\\ud83e\\q': "\ufffd\\q",
    '{"\\q":1,"input":"a"}': '{"\\q":1,"input":"a"}',
    '{"a":1}{"b":2,"input":"a"}': '{"a":1}{"b":2,"input":"a"}',
}


@pytest.mark.parametrize("raw", BROKEN)
def test_a_call_whose_arguments_were_cut_is_never_dispatched(raw: str) -> None:
    for pieces in ([raw], list(raw)):
        for told in (True, False):
            _, response = run(called(pieces, told=told))
            assert response.items == (
                ToolCall(
                    "c",
                    "patch",
                    BROKEN[raw],
                    kind="custom",
                    format="text",
                    invalid="bad-arguments",
                ),
            )
            assert codes(response) == ["arguments-invalid"]


ANY = st.text(st.sampled_from('{}[]",:\\un1dinput a\n'), max_size=30)


@THOROUGH
@given(st.data(), ANY | ANY.map(lambda text: '{"input":"' + text))
def test_where_any_arguments_are_cut_changes_nothing(data: st.DataObject, raw: str) -> None:
    told, end = data.draw(st.booleans()), data.draw(st.booleans())
    whole = outcome(called([raw], told=told, end=end))
    assert outcome(called(data.draw(cuts(raw)), told=told, end=end)) == whole
    assert outcome(called(cut_at(raw, range(len(raw))), told=told, end=end)) == whole


# What decoders do beside


def test_a_call_that_comes_whole_has_no_params_parts() -> None:
    lone = ToolCall("c", "patch", '{"input":"a","b":1}', signature="s")
    out, response = run([START, lone, Finish("stop")])
    assert out == [
        START,
        ToolCall("c", "patch", "a", kind="custom", format="text", signature="s"),
        Finish("tool-calls"),
    ]
    assert codes(response) == ["bridge-extra-keys", "stop-with-calls"]
    _, response = run([START, ToolCall("c", "patch", '{"inp'), Finish("stop")])
    assert [call.invalid for call in response.invalid_tool_calls] == ["bad-arguments"]


def test_the_whole_at_the_end_counts() -> None:
    whole = '{"input":"ab"}'
    for pieces, expected in (([], []), (['{"input":"a'], ["whole-extends"])):
        deltas = [ToolParamsDelta("c", piece) for piece in pieces]
        call = ToolCall("c", "patch", whole)
        end = ToolParamsEnd("c", whole=whole)
        _, response = run([START, PATCH, *deltas, end, call, Finish("tool-calls")])
        assert [call.params for call in response.tool_calls] == ["ab"]
        assert codes(response) == expected


def test_arguments_that_go_on_after_their_end_are_read_on() -> None:
    parts = [START, PATCH, ToolParamsDelta("c", '{"input":"a'), ToolParamsEnd("c")]
    rest = [ToolParamsDelta("c", 'b"}'), ToolCall("c", "patch", ""), Finish("tool-calls")]
    _, response = run([*parts, *rest])
    assert [call.params for call in response.tool_calls] == ["ab"]


def test_streamed_text_wins_over_another_whole() -> None:
    parts = [START, PATCH, ToolParamsDelta("c", '{"input":"a"}'), ToolParamsEnd("c")]
    other = ToolCall("c", "patch", '{"input":"b"}')
    _, response = run([*parts, other, Finish("tool-calls")])
    assert [call.params for call in response.tool_calls] == ["a"]


def test_the_last_of_two_inputs_contradicts_the_one_that_went_out() -> None:
    _, response = run(called(['{"input":"a","input":"b"}']))
    assert [call.params for call in response.tool_calls] == ["a"]
    assert "whole-contradicts" in codes(response)


@pytest.mark.parametrize(
    ("raw", "text"), [('{"inp', '{"inp'), ('{"input":"a\\', "a\\"), ('{"input":"a"}', "a")]
)
def test_what_came_before_an_error_stays_and_is_never_dispatched(raw: str, text: str) -> None:
    for end in ([], [ToolParamsEnd("c")]):
        failed = [ErrorPart("upstream", "no"), Finish("error")]
        _, response = run([START, PATCH, ToolParamsDelta("c", raw), *end, *failed])
        (call,) = response.invalid_tool_calls
        assert (call.params, call.invalid, call.kind) == (text, "stream-failed", "custom")
        assert codes(response) == []


def test_a_call_that_is_never_handed_over_is_not_valid_if_it_was_cut() -> None:
    for end in (
        [Finish("stop")],
        [ToolParamsEnd("c"), Finish("stop")],
        [],
    ):
        _, response = run([START, PATCH, ToolParamsDelta("c", '{"input":"a'), *end])
        assert response.tool_calls == ()
        assert [call.params for call in response.invalid_tool_calls] == ["a"]


def test_other_tools_pass_untouched() -> None:
    parts: list[Part] = [
        START,
        ToolParamsStart("a", "look"),
        ToolParamsDelta("a", '{"input":"a"}'),
        ToolParamsEnd("a"),
        ToolCall("a", "look", '{"input":"a"}'),
        ToolParamsStart("b", "patch", provider_executed=True),
        ToolParamsDelta("b", '{"input":"a"}'),
        ToolParamsEnd("b"),
        ToolCall("b", "patch", '{"input":"a"}', provider_executed=True),
        ToolParamsStart("d", "patch", kind="custom", format="text"),
        ToolParamsDelta("d", '{"input":"a"}'),
        ToolParamsEnd("d"),
        ToolCall("d", "patch", '{"input":"a"}', kind="custom", format="text"),
        ToolCall("e", "look", "{}"),
        Finish("tool-calls"),
    ]
    out, response = run(parts)
    assert (out, response.findings) == (parts, ())


def test_a_call_that_is_announced_twice_is_one_call() -> None:
    parts = called(['{"input":"a"}'])
    _, response = run([*parts[:3], PATCH, *parts[3:]])
    assert [call.params for call in response.tool_calls] == ["a"]
    assert codes(response) == ["start-repeated"]


def test_calls_side_by_side_do_not_mix() -> None:
    parts: list[Part] = [START, PATCH, ToolParamsStart("d", "patch")]
    for one, other in zip('{"input":"ab"}', '{"input":"cd"}', strict=True):
        parts += [ToolParamsDelta("c", one), ToolParamsDelta("d", other)]
    for id in "cd":
        parts += [ToolParamsEnd(id), ToolCall(id, "patch", "")]
    _, response = run([*parts, Finish("tool-calls")])
    assert [(call.id, call.params) for call in response.tool_calls] == [("c", "ab"), ("d", "cd")]


@QUICK
@given(LEGAL)
def test_legal_parts_stay_legal(parts: list[Part]) -> None:
    out, _ = run(parts, "look")
    ours = [part for part in parts if isinstance(part, ToolCall)]
    assert [part.id for part in out if isinstance(part, ToolCall)] == [part.id for part in ours]


@QUICK
@given(SOUP)
def test_any_parts_come_out_legal(parts: list[Part]) -> None:
    run(parts)
    findings = Findings()
    stage, guard = CustomToolCalls(["look", "read"], findings), Guard(Ids(b"1"), findings)
    out = guard.feed(stage.feed(parts) + stage.finish()) + guard.finish()
    assert violations(out, Assembler()) == []


# There and back


@pytest.mark.parametrize("dialect", ["anthropic-messages", "gemini"])
@QUICK
@given(st.text(max_size=12))
def test_what_an_encoder_wraps_the_bridge_unwraps(dialect: DialectName, text: str) -> None:
    """Encoders of wires without free text wrap it; whoever reads them there gets it back."""
    guard = Guard(Ids(b"1"), Findings())
    free = ToolCall("c", "patch", text, kind="custom", format="text")
    deltas = [ToolParamsDelta("c", letter) for letter in text]
    native = [START, FREE, *deltas, ToolParamsEnd("c"), free, Finish("tool-calls")]
    encoder = Encoder(dialect, context=Context(ids=Ids(b"1")))
    raw = b"".join(encoder.feed(guard.feed(native)) + encoder.finish())
    decoder = Decoder(dialect, context=Context(ids=Ids(b"1")))
    parts = decoder.feed(raw) + decoder.finish()
    _, response = run([*parts])
    assert [(call.name, call.params, call.kind) for call in response.tool_calls] == [
        ("patch", text, "custom")
    ]
    assert response.findings == ()


def test_a_client_with_free_text_never_learns_that_the_upstream_has_none() -> None:
    """A chat upstream that was told another name and a function; a client of Responses."""
    text = '*** Begin\n+ "weft" \U0001f9e5\n'
    wrapped = json.dumps({"input": text})
    decoder = Decoder("openai-chat", context=Context(ids=Ids(b"1")))
    read: list[Part] = [part for piece in cut_at(wrapped, range(0, len(wrapped), 7)) if piece
            for part in decoder.feed(entry(piece))]  # fmt: skip
    read += decoder.feed(b"data: [DONE]\n\n") + decoder.finish()
    findings = Findings()
    stages = (RestoreNames({"patch_1a2b": "patch.it"}), CustomToolCalls(["patch.it"], findings))
    for stage in stages:
        read = stage.feed(read) + stage.finish()
    guard = Guard(Ids(b"1"), findings)
    encoder = Encoder("openai-responses", context=Context(ids=Ids(b"1")), fold=guard.fold)
    written = encoder.feed(guard.feed(read) + guard.finish()) + encoder.finish()
    events = [json.loads(one.partition(b"data: ")[2]) for one in written[:-1]]
    deltas = [one["delta"] for one in events if one["type"].endswith("input.delta")]
    assert len(deltas) > 2
    assert "".join(deltas) == text
    (item,) = events[-1]["response"]["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "patch.it", text)
    assert findings.found == []


def entry(arguments: str) -> bytes:
    """A chunk with a piece of the arguments."""
    function = {"name": "patch_1a2b", "arguments": arguments}
    call = {"index": 0, "id": "c", "type": "function", "function": function}
    choice = {"index": 0, "delta": {"tool_calls": [call]}}
    return b"data: %b\n\n" % json.dumps({"id": "1", "choices": [choice]}).encode()
