"""The Gemini decoder: no end marks, signatures on the very part, calls with and without ids."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.captures import lines, unminted
from tests.recordings import FIXTURES
from tests.strategies import OBJECTS, QUICK, cuts, examples
from tests.tables import each_row
from weft import (
    Context,
    Decoded,
    Decoder,
    ErrorPart,
    File,
    Finish,
    Ids,
    Opaque,
    ReasoningItem,
    Request,
    Response,
    ResponseMetadata,
    Source,
    TextItem,
    ToolCall,
    ToolParamsDelta,
    ToolParamsStart,
    ToolResult,
    Usage,
    decode_all,
    detect,
)
from weft.assembler import Assembler
from weft.dialects.envelope import Envelope, ReasoningState, to_base64, wrap
from weft.dialects.gemini.decoding.partial_args import PartialArgsWriter, parse_json_path
from weft.dialects.gemini.decoding.snake_case import to_camel_case
from weft.dialects.gemini.mapping import parse_time, render_time
from weft.dialects.gemini.wire import PartialArg
from weft.lifecycle import violations

CAPTURES = sorted((Path(__file__).parent / "captures" / "gemini").glob("*.sse"))
SINGLE = [path for path in CAPTURES if path.stem != "two-candidates"]
RECORDED = sorted((FIXTURES / "google").glob("google-*"))

Json = dict[str, Any]
SIGNED = {"thoughtSignature": "c2ln+/=="}
SIGNATURE = SIGNED["thoughtSignature"]


def stem(path: Path) -> str:
    return path.stem


def text(said: str, **more: object) -> Json:
    return {"text": said, **more}


def call(signature: Json | None = None, /, **fields: object) -> Json:
    return {"functionCall": fields, **(signature or {})}


def frame(*parts: Json, **candidate: object) -> Json:
    """One frame of one candidate; keys of the candidate by name."""
    content = {"content": {"role": "model", "parts": list(parts)}} if parts else {}
    return {
        "candidates": [{**content, "index": 0, **candidate}],
        "modelVersion": "m-1",
        "responseId": "r1",
    }


def sse(*frames: Json) -> bytes:
    return "".join(f"data: {json.dumps(one)}\r\n\r\n" for one in frames).encode()


END = frame(text(""), finishReason="STOP")


def decoded(*frames: Json, end: Json | None = END) -> Decoded:
    raw = sse(*frames, *([end] if end else []))
    (one,) = decode_all(raw, "gemini", context=Context(ids=Ids(b"1")))
    assert violations(one.parts, Assembler()) == []
    return one


def read(*frames: Json, end: Json | None = END) -> Response:
    return decoded(*frames, end=end).response


def say(*parts: Json) -> Response:
    """The same parts in one frame each, and all in one: they mean the same."""
    one_each, in_one = read(*[frame(part) for part in parts]), read(frame(*parts))
    assert one_each.items == in_one.items
    return in_one


def codes(response: Response) -> list[str]:
    return [finding.code for finding in response.findings]


def types(one: Decoded) -> list[str]:
    return [part.type for part in one.parts]


# Captures and fixtures


@each_row("capture", CAPTURES, ids=stem)
def test_the_golden_file_is_what_weft_prints(capture: Path) -> None:
    parts = [lines(one.parts) for one in decode_all(capture.read_bytes(), "gemini")]
    assert b"".join(parts) == capture.with_suffix(".parts.jsonl").read_bytes()


@each_row("capture", CAPTURES, ids=stem)
def test_every_capture_decodes_to_legal_parts_and_is_recognised(capture: Path) -> None:
    raw = capture.read_bytes()
    assert detect(raw) == "gemini"
    for one in decode_all(raw, "gemini"):
        assert violations(one.parts, Assembler()) == []


def fed(pieces: list[bytes]) -> tuple[bytes, list[str]]:
    decoder = Decoder("gemini", context=Context(ids=Ids(b"1")))
    parts = [part for piece in pieces for part in decoder.feed(piece)]
    parts += decoder.finish()
    assert decoder.finish() == []
    return unminted(lines(parts)), [finding.code for finding in decoder.findings]


@each_row("capture", SINGLE, ids=stem)
def test_byte_by_byte_the_parts_are_the_same(capture: Path) -> None:
    raw = capture.read_bytes()
    parts, found = fed([raw])
    assert fed([raw[at : at + 1] for at in range(len(raw))]) == (parts, found)
    assert parts == unminted(capture.with_suffix(".parts.jsonl").read_bytes())


@pytest.mark.parametrize("capture", SINGLE, ids=stem)
@examples(12)
@given(data=st.data())
def test_where_the_network_cuts_the_bytes_changes_nothing(
    capture: Path, data: st.DataObject
) -> None:
    raw = capture.read_bytes()
    assert fed(data.draw(cuts(raw))) == fed([raw])


@pytest.mark.parametrize("capture", SINGLE, ids=stem)
def test_a_truncated_stream_never_looks_complete(capture: Path) -> None:
    """Cut before its last frame, a stream fails; what it said is a beginning of what it says."""
    raw = capture.read_bytes()
    (whole,) = [one.response for one in decode_all(raw, "gemini")]
    for end in range(0, raw.rstrip().rfind(b"data: "), 7):
        (one,) = decode_all(raw[:end], "gemini")
        assert violations(one.parts, Assembler()) == []
        assert whole.text.startswith(one.response.text)
        if capture.stem != "finish-reason-on-every-frame":
            assert one.response.finish_reason == "error"
            assert one.response.tool_calls == () or all(
                tool.provider_executed for tool in one.response.tool_calls
            )


@pytest.mark.parametrize("fixture", RECORDED, ids=stem)
def test_a_recorded_stream_decodes_to_legal_parts_without_findings(fixture: Path) -> None:
    raw = fixture.read_bytes()
    assert detect(raw) == "gemini"
    (one,) = decode_all(raw, "gemini")
    assert violations(one.parts, Assembler()) == []
    assert one.response.findings == ()
    assert one.response.finish_reason in ("stop", "tool-calls")


@pytest.mark.parametrize("fixture", [one for one in RECORDED if one.suffix == ".json"], ids=stem)
def test_a_recorded_stream_and_its_body_agree(fixture: Path) -> None:
    """Two runs of one prompt: texts and signatures differ, what kind of answer it is does not."""
    stream = fixture.with_suffix(".chunks.txt")
    (one,), (other,) = (decode_all(path.read_bytes(), "gemini") for path in (stream, fixture))
    assert [type(item) for item in one.response.items] == [
        type(item) for item in other.response.items
    ]
    assert _calls(one.response) == _calls(other.response)
    assert one.response.finish_reason == other.response.finish_reason
    assert _told(one.response.usage) == _told(other.response.usage)


def _calls(response: Response) -> list[tuple[str, object, bool]]:
    calls = response.tool_calls
    return [(one.name, json.loads(one.params), one.signature is not None) for one in calls]


def _told(usage: Usage | None) -> list[bool]:
    assert usage is not None
    return [count is not None for count in (usage.input_tokens, usage.output_tokens)]


# Text, reasoning, signatures


def test_text_continues_from_frame_to_frame() -> None:
    response = say(text("Hel"), text("lo"))
    assert [item.text for item in response.items if isinstance(item, TextItem)] == ["Hello"]
    assert response.findings == ()


def test_an_empty_text_has_no_parts() -> None:
    assert read(frame(text(""))).items == ()


def test_thoughts_are_a_reasoning_summary_that_ends_where_text_begins() -> None:
    thought, said = say(text("Hm", thought=True), text("A")).items
    assert isinstance(thought, ReasoningItem)
    assert (thought.text, thought.kind, thought.signature) == ("Hm", "summary", None)
    assert isinstance(said, TextItem)


def test_a_signature_ends_the_text_it_came_with() -> None:
    first, second = say(text("A", **SIGNED), text("B")).items
    assert isinstance(first, TextItem)
    assert (first.text, first.signature, first.origin) == ("A", SIGNATURE, "gemini")
    assert isinstance(second, TextItem)
    assert (second.text, second.signature) == ("B", None)


def test_a_signature_ends_the_reasoning_it_came_with() -> None:
    (thought,) = say(text("Hm", thought=True), text("", thought=True, **SIGNED)).items
    assert isinstance(thought, ReasoningItem)
    assert (thought.text, thought.signature, thought.origin) == ("Hm", SIGNATURE, "gemini")


@pytest.mark.parametrize("part", [text("", **SIGNED), SIGNED], ids=["empty text", "no text"])
def test_a_signature_alone_signs_the_open_text(part: Json) -> None:
    (item,) = say(text("A"), part).items
    assert isinstance(item, TextItem)
    assert (item.text, item.signature) == ("A", SIGNATURE)


def test_a_signature_alone_without_an_open_text_is_an_empty_text() -> None:
    thought, item = say(text("Hm", thought=True), text("", **SIGNED)).items
    assert isinstance(thought, ReasoningItem)
    assert thought.signature is None
    assert isinstance(item, TextItem)
    assert (item.text, item.signature, item.origin) == ("", SIGNATURE, "gemini")


def test_the_origin_is_that_of_the_context() -> None:
    raw = sse(frame(text("A", **SIGNED)), END)
    (one,) = decode_all(raw, "gemini", context=Context(origin="host-7"))
    (item,) = one.response.items
    assert isinstance(item, TextItem)
    assert item.origin == "host-7"


def test_a_lone_surrogate_is_replaced_at_the_end_and_before_an_error() -> None:
    half = {"text": "A\ud83d"}
    at_the_end = read(frame(half))
    assert (at_the_end.text, codes(at_the_end)) == ("A�", ["surrogate-lone"])
    failed = read(frame(half), {"error": {"code": 500}})
    assert failed.text == "A�"


# Calls


def test_a_call_comes_whole_with_its_id_and_signature() -> None:
    (made,) = say(call(SIGNED, id="c1", name="look", args={"at": 1})).items
    assert made == ToolCall("c1", "look", '{"at": 1}', signature=SIGNATURE, origin="gemini")


def test_the_signature_of_a_call_is_known_from_its_start() -> None:
    raw = sse(frame(call(SIGNED, name="look", args={})), END)
    (one,) = decode_all(raw, "gemini", context=Context(ids=Ids(b"1"), origin="host"))
    signed = [part for part in one.parts if isinstance(part, ToolParamsStart | ToolCall)]
    assert [(part.signature, part.origin) for part in signed] == [(SIGNATURE, "host")] * 2


def test_a_wrapped_signature_of_another_origin_is_unwrapped() -> None:
    envelope = to_base64(wrap(Envelope("elsewhere", "m", ReasoningState("s", call="c1"))))
    (made,) = say(call({"thoughtSignature": envelope}, id="c1", name="look")).items
    assert made == ToolCall("c1", "look", "{}", signature="s", origin="elsewhere")


def test_stop_with_a_call_is_tool_calls_and_leaves_no_finding() -> None:
    response = say(call(name="look", args={}))
    assert (response.finish_reason, response.raw_finish_reason) == ("tool-calls", "STOP")
    assert response.findings == ()


def test_a_limit_with_a_call_stays_a_limit() -> None:
    cut = frame(finishReason="MAX_TOKENS")
    assert read(frame(call(name="look")), end=cut).finish_reason == "length"


@pytest.mark.parametrize("args", [{}, {"args": {}}, {"args": None}])
def test_a_call_without_arguments_has_an_empty_object(args: Json) -> None:
    (made,) = say(call(name="look", **args)).tool_calls
    assert made.params == "{}"


def test_equal_calls_without_ids_are_separate_calls() -> None:
    same = call(name="roll", args={"sides": 6})
    calls = say(same, same, same).tool_calls
    assert len({made.id for made in calls}) == 3
    assert {made.params for made in calls} == {'{"sides": 6}'}


def test_a_call_with_the_same_id_name_and_arguments_is_a_repetition() -> None:
    one = call(id="c", name="look", args={"x": 1, "y": 2})
    response = say(one, call(id="c", name="look", args={"y": 2, "x": 1}))
    assert [made.id for made in response.tool_calls] == ["c"]
    assert codes(response) == ["call-repeated"]
    code = {"executableCode": {"id": "e", "language": "PYTHON", "code": "1"}}
    assert len(say(code, code).tool_calls) == 1


def test_generated_call_ids_derive_from_the_response_id() -> None:
    """Read anywhere else, the same bytes give the same ids."""
    raw = sse(frame(call(name="look")), frame(call(name="look")), END)
    first, second = (
        decode_all(raw, "gemini", context=Context(ids=Ids(seed)))[0] for seed in (b"1", b"2")
    )
    assert first.parts == second.parts
    (third,) = decode_all(raw.replace(b'"r1"', b'"r2"'), "gemini")
    assert third.response.tool_calls[0].id not in {one.id for one in first.response.tool_calls}


def test_another_call_with_a_used_id_is_renamed() -> None:
    response = say(call(id="c", name="a"), call(id="c", name="b"))
    assert [(made.id, made.name) for made in response.tool_calls] == [("c", "a"), ("c_2", "b")]
    assert codes(response) == ["call-id-collision"]


def test_a_call_without_a_name_is_never_valid() -> None:
    response = say(call(args={"at": 1}))
    (made,) = response.invalid_tool_calls
    assert (made.invalid, made.params) == ("nameless", '{"at": 1}')
    assert response.finish_reason == "stop"
    assert codes(response) == ["call-nameless"]


def test_text_in_the_same_part_as_a_call_is_read() -> None:
    said, made = say({**text("So: "), **call(SIGNED, name="look")}).items
    assert isinstance(said, TextItem)
    assert (said.text, said.signature) == ("So: ", None)
    assert isinstance(made, ToolCall)
    assert made.signature == SIGNATURE


def test_indentation_of_a_body_is_not_part_of_arguments() -> None:
    raw = json.dumps(frame(call(name="look", args={"at": [1, 2]}), finishReason="STOP"), indent=2)
    (one,) = decode_all(raw.encode(), "gemini")
    assert [made.params for made in one.response.tool_calls] == ['{"at":[1,2]}']


def test_a_function_response_is_the_result_of_its_call() -> None:
    answer = {"functionResponse": {"name": "look", "response": {"output": 1}}}
    earlier = {"functionResponse": {"id": "c0", "name": "see", "response": {"error": "x"}}}
    response = say(call(id="c1", name="look"), answer, earlier)
    results = [item for item in response.items if isinstance(item, ToolResult)]
    assert results == [
        ToolResult("c1", Raw(b'{"output": 1}'), provider_executed=False),
        ToolResult("c0", Raw(b'{"error": "x"}'), earlier=True, provider_executed=False),
    ]
    assert response.findings == ()


def test_a_result_belongs_to_the_last_call_of_its_id() -> None:
    answer = {"functionResponse": {"id": "c", "name": "look", "response": {}}}
    response = say(call(id="c", name="look"), call(id="c", name="look", args={"x": 1}), answer)
    (result,) = [item for item in response.items if isinstance(item, ToolResult)]
    assert (result.id, result.earlier) == ("c_2", False)


# Arguments that come value by value

GO_ON = {"willContinue": True}


def value(path: str, **told: object) -> Json:
    return {"jsonPath": path, **told}


def streamed(*values: Json, name: str = "cook") -> Response:
    frames = [frame(call(partialArgs=[one], **GO_ON)) for one in values]
    return read(frame(call(SIGNED, name=name, **GO_ON)), *frames, frame(call()))


def test_streamed_arguments_become_json_as_they_come() -> None:
    one = decoded(
        frame(call(SIGNED, name="cook", **GO_ON)),
        frame(call(partialArgs=[value("$.a", stringValue="x", **GO_ON)], **GO_ON)),
        frame(call(partialArgs=[value("$.a", stringValue="y")], **GO_ON)),
        frame(call()),
    )
    deltas = [part.delta for part in one.parts if isinstance(part, ToolParamsDelta)]
    assert deltas == ['{"a":"x', 'y"', "}"]
    (made,) = one.response.tool_calls
    assert (made.params, made.signature) == ('{"a":"xy"}', SIGNATURE)
    assert one.response.findings == ()


@pytest.mark.parametrize(
    "last",
    [
        [],
        [frame(call())],
        [frame(call(partialArgs=[]))],
        [frame(call(name="next"))],
    ],
    ids=["the finish", "an end mark", "a part that does not go on", "the next call"],
)
def test_a_streamed_call_ends_with(last: list[Json]) -> None:
    started = frame(call(name="cook", **GO_ON))
    going = frame(call(partialArgs=[value("$.a[0]", numberValue=1)], **GO_ON))
    response = read(started, going, *last)
    assert response.tool_calls[0].params == '{"a":[1]}'
    assert response.findings == ()


def test_a_call_that_was_only_opened_has_no_arguments() -> None:
    assert streamed().tool_calls[0].params == "{}"


def test_the_first_frame_of_a_streamed_call_may_have_values() -> None:
    opener = call(name="cook", partialArgs=[value("$.a", boolValue=True)])
    (made,) = read(frame(opener)).tool_calls
    assert made.params == '{"a":true}'


def test_a_name_with_the_id_of_the_open_call_continues_it() -> None:
    more = call(id="c", name="cook", partialArgs=[value("$.a", numberValue=1)])
    (made,) = read(frame(call(id="c", name="cook", **GO_ON)), frame(more)).tool_calls
    assert (made.id, made.params) == ("c", '{"a":1}')


def test_whole_arguments_after_the_start_complete_a_call() -> None:
    response = read(frame(call(name="cook", **GO_ON)), frame(call(args={"a": 1})))
    assert [made.params for made in response.tool_calls] == ['{"a": 1}']
    assert codes(response) == ["whole-extends"]


def test_whole_arguments_that_repeat_the_streamed_ones_add_nothing() -> None:
    going = frame(call(partialArgs=[value("$.a", numberValue=1)], **GO_ON))
    response = read(frame(call(name="cook", **GO_ON)), going, frame(call(args={"a": 1})))
    assert [made.params for made in response.tool_calls] == ['{"a":1}']
    assert response.findings == ()


@pytest.mark.parametrize(
    "values",
    [
        [value("$.a.x", numberValue=1), value("$.b", numberValue=2), value("$.a.y", numberValue=3)],
        [value("$.a[1]", numberValue=1)],
        [value("$.a", numberValue=1), value("$.a", numberValue=2)],
        [value("$.a[0]", numberValue=1), value("$.a.b", numberValue=2)],
        [value("$", stringValue="x")],
        [value("a.b", stringValue="x")],
        [value("$.a[x", stringValue="x"), value("$.b", stringValue="x")],
        [value("$.a", structValue={})],
    ],
    ids=["back", "gap", "twice", "array and object", "root", "no root", "no path", "no value"],
)
def test_values_that_cannot_be_appended_make_the_call_invalid(values: list[Json]) -> None:
    response = streamed(*values)
    (made,) = response.invalid_tool_calls
    assert made.invalid == "bad-arguments"
    assert codes(response) == ["arguments-invalid"]
    assert response.finish_reason == "stop"


def test_a_call_that_the_limit_cut_is_invalid_even_if_it_parses() -> None:
    cut = frame(finishReason="MAX_TOKENS")
    response = read(frame(call(name="cook", **GO_ON)), end=cut)
    (made,) = response.invalid_tool_calls
    assert (made.invalid, response.finish_reason) == ("bad-arguments", "length")


def test_a_call_that_the_end_of_the_input_cut_failed_with_the_stream() -> None:
    response = read(frame(call(name="cook", **GO_ON)), end=None)
    (made,) = response.invalid_tool_calls
    assert made.invalid == "stream-failed"
    assert response.error is not None
    assert response.error.kind == "truncated"


def test_the_end_of_a_call_that_is_not_open_is_a_finding() -> None:
    assert codes(say(text("A"), call())) == ["end-without-start"]


def test_a_path_may_quote_its_keys() -> None:
    assert parse_json_path("""$.a['b.c'][0]["d\\"e"]""") == ("a", "b.c", 0, 'd"e')


def values_of(tree: object, path: str = "$") -> Iterator[PartialArg]:
    """The values of a tree in order, each with its path; strings in two pieces."""
    if isinstance(tree, dict):
        for key, inner in tree.items():
            quoted = key.replace("\\", "\\\\").replace("'", "\\'")
            yield from values_of(inner, f"{path}['{quoted}']")
    elif isinstance(tree, list):
        for index, inner in enumerate(tree):
            yield from values_of(inner, f"{path}[{index}]")
    elif isinstance(tree, str):
        yield PartialArg(path, string_value=tree[:2], will_continue=True)
        yield PartialArg(path, string_value=tree[2:])
    elif isinstance(tree, bool):
        yield PartialArg(path, bool_value=tree)
    elif tree is None:
        yield PartialArg(path, null_value=Raw(b"null"))
    else:
        yield PartialArg(path, number_value=Raw(json.dumps(tree).encode()))


def without_hollows(tree: object) -> object:
    """The tree without empty containers, which no value tells of."""
    if isinstance(tree, dict):
        kept = {key: without_hollows(one) for key, one in tree.items()}
        return {key: one for key, one in kept.items() if one not in ({}, [])}
    if isinstance(tree, list):
        return [one for one in map(without_hollows, tree) if one not in ({}, [])]
    return tree


@QUICK
@given(OBJECTS.map(without_hollows))
def test_values_in_order_add_up_to_their_object(tree: object) -> None:
    arguments = PartialArgsWriter()
    pieces = [arguments.feed(one) for one in values_of(tree)]
    assert json.loads("".join([*pieces, arguments.finish()])) == tree
    assert arguments.problem is None


# Calls that are executed at the other end


def code(source: str, **more: object) -> Json:
    return {"executableCode": {"language": "PYTHON", "code": source, **more}}


def outcome(word: str, output: str, **more: object) -> Json:
    return {"codeExecutionResult": {"outcome": word, "output": output, **more}}


def test_code_and_its_result_are_a_call_that_was_executed() -> None:
    made, result = say({**code("1"), **SIGNED}, {**outcome("OUTCOME_OK", "1"), **SIGNED}).items
    assert isinstance(made, ToolCall)
    assert (made.name, made.kind, made.provider_executed) == (
        "code_execution",
        "executable_code",
        True,
    )
    assert (json.loads(made.params), made.signature) == (
        {"language": "PYTHON", "code": "1"},
        SIGNATURE,
    )
    assert isinstance(result, ToolResult)
    assert (result.id, result.is_error) == (made.id, False)
    assert json.loads(bytes(result.result)) == {"outcome": "OUTCOME_OK", "output": "1"}
    assert json.loads(bytes(result.extra or b"")) == SIGNED


def test_executed_code_does_not_make_the_finish_reason_tool_calls() -> None:
    response = say(code("1"), outcome("OUTCOME_OK", "1"), text("1"))
    assert (response.finish_reason, response.findings) == ("stop", ())


def test_a_result_belongs_to_its_id_or_to_the_last_code_without_one() -> None:
    response = say(
        code("1", id="a"),
        code("2"),
        code("3"),
        outcome("OUTCOME_OK", "3"),
        outcome("OUTCOME_DEADLINE_EXCEEDED", "2"),
        outcome("OUTCOME_FAILED", "1", id="a"),
    )
    made = [item.id for item in response.items if isinstance(item, ToolCall)]
    results = [item for item in response.items if isinstance(item, ToolResult)]
    assert [one.id for one in results] == [made[2], made[1], "a"]
    assert [one.is_error for one in results] == [False, True, True]


def test_a_code_result_without_code_is_a_finding() -> None:
    response = say(outcome("OUTCOME_OK", "1"))
    (result,) = response.items
    assert isinstance(result, ToolResult)
    assert result.earlier
    assert codes(response) == ["result-without-call"]


def test_a_tool_of_the_server_is_named_after_its_type() -> None:
    made, result = say(
        {"toolCall": {"id": "t1", "toolType": "WEB_SEARCH", "args": {"q": 1}}},
        {"toolResponse": {"id": "t1", "toolType": "WEB_SEARCH", "response": {"n": 2}}},
    ).items
    assert made == ToolCall(
        "t1", "server:WEB_SEARCH", '{"q": 1}', kind="server_tool", provider_executed=True
    )
    assert result == ToolResult("t1", Raw(b'{"n": 2}'))


def test_a_tool_of_the_server_may_have_no_id_and_no_response() -> None:
    made, result = say({"toolCall": {"toolType": "X"}}, {"toolResponse": {"toolType": "X"}}).items
    assert isinstance(made, ToolCall)
    assert result == ToolResult(made.id, Raw(b"null"))


# Files


def test_inline_data_and_references_are_files() -> None:
    response = say(
        {"inlineData": {"mimeType": "image/png", "data": "AA=="}, "thought": True},
        {"inlineData": {"data": "AA=="}, **SIGNED},
        {"fileData": {"mimeType": "text/plain", "fileUri": "https://f.example/1"}},
    )
    thought, signed, reference = response.items
    assert thought == File("file_0", "image/png", data="AA==", reasoning=True)
    assert isinstance(signed, File)
    assert signed.media_type == "application/octet-stream"
    assert json.loads(bytes(signed.extra or b"")) == SIGNED
    assert reference == File("file_2", "text/plain", reference="https://f.example/1")


# Sources


def sources(*frames: Json, end: Json | None = END) -> list[Source]:
    response = read(*frames, end=end)
    return [item for item in response.items if isinstance(item, Source)]


def web(url: str, title: str | None = None) -> Json:
    return {"web": {"uri": url, **({"title": title} if title else {})}}


def support(segment: Json, *chunks: int) -> Json:
    return {"segment": segment, "groundingChunkIndices": list(chunks)}


def grounded(*parts: Json, chunks: list[Json], supports: list[Json] | None = None) -> Json:
    metadata = {"groundingChunks": chunks, "groundingSupports": supports or []}
    return frame(*parts, groundingMetadata=metadata)


def test_a_grounding_chunk_is_a_source_once_and_before_the_text_ends() -> None:
    chunk = [web("https://a.example", "A")]
    one = decoded(
        grounded(text("Hi"), chunks=chunk),
        grounded(text("!"), chunks=chunk),
        grounded(text(""), chunks=chunk),
    )
    assert types(one)[1:] == [
        "text-start", "text-delta", "text-delta", "source", "text-end", "finish",
    ]  # fmt: skip
    (source,) = [item for item in one.response.items if isinstance(item, Source)]
    assert (source.kind, source.url, source.title) == ("url", "https://a.example", "A")


def test_later_metadata_replaces_earlier() -> None:
    early, late = web("https://a.example"), web("https://b.example")
    found = sources(grounded(text("Hi"), chunks=[early]), grounded(text("!"), chunks=[late]))
    assert [source.url for source in found] == ["https://b.example"]


def test_every_kind_of_chunk_is_a_source() -> None:
    chunks = [
        {"maps": {"uri": "https://m.example", "placeId": "p"}},
        {"image": {"sourceUri": "https://i.example", "imageUri": "https://i.example/1.png"}},
        {"retrievedContext": {"uri": "gs://x", "title": "X", "documentName": "d1"}},
        {"retrievedContext": {"title": "Y"}},
        {"web": {"title": "only a title"}},
    ]
    found = sources(grounded(text("Hi"), chunks=chunks))
    assert [(one.kind, one.url, one.file_id, one.title) for one in found] == [
        ("url", "https://m.example", None, None),
        ("url", "https://i.example", None, None),
        ("document", "gs://x", "d1", "X"),
        ("document", None, None, "Y"),
        ("document", None, None, "only a title"),
    ]


def test_byte_offsets_become_code_points() -> None:
    segment = {"startIndex": 3, "endIndex": 6, "text": "bü"}
    found = sources(
        grounded(
            text("ä "), text("büx"), chunks=[web("https://a.example")],
            supports=[support(segment, 0, 7)],
        )
    )  # fmt: skip
    assert [(one.text_id, one.start, one.end) for one in found] == [("text_0", 2, 4)]


def test_one_chunk_with_two_segments_is_two_sources() -> None:
    places = [{"endIndex": 1}, {"startIndex": 1, "endIndex": 2}, {"endIndex": 1}]
    supports = [support(place, 0) for place in places]
    found = sources(grounded(text("ab"), chunks=[web("https://a.example")], supports=supports))
    assert [(one.start, one.end) for one in found] == [(0, 1), (1, 2)]


def test_the_cited_text_decides_which_text_a_segment_is_in() -> None:
    """Segments count within a part, and a stream does not tell where those begin."""
    supports = [
        support({"partIndex": 1, "startIndex": 0, "endIndex": 3, "text": "two"}, 0),
        support({"partIndex": 3, "startIndex": 0, "endIndex": 5, "text": "three"}, 0),
        support({"startIndex": 0, "endIndex": 3, "text": "one"}, 0),
        support({"startIndex": 9, "endIndex": 99, "text": "nowhere"}, 0),
        support({"startIndex": 1, "endIndex": 99}, 1),
        support({}, 1),
    ]
    chunks = [web("https://a.example"), web("https://b.example")]
    found = sources(
        frame(text("one "), text("two"), call(name="look"), text("three")),
        grounded(text(""), chunks=chunks, supports=supports),
    )
    assert [(one.url, one.text_id, one.start, one.end) for one in found] == [
        ("https://a.example", "text_0", 4, 7),
        ("https://a.example", "text_1", 0, 5),
        ("https://a.example", "text_0", 0, 3),
        ("https://a.example", None, None, None),
        ("https://b.example", None, None, None),
    ]


def test_grounding_without_text_has_no_range() -> None:
    only = grounded(
        chunks=[web("https://a.example")], supports=[support({"endIndex": 3, "text": "abc"}, 0)]
    )
    (source,) = sources(only)
    assert (source.text_id, source.start) == (None, None)


def test_a_thousand_ranges_are_located_and_the_rest_has_none() -> None:
    supports = [support({"startIndex": at, "endIndex": at + 1}, 0) for at in range(1002)]
    response = read(grounded(text("x" * 1002), chunks=[web("https://a")], supports=supports))
    found = [item for item in response.items if isinstance(item, Source)]
    assert len(found) == 1001
    assert found[-1].start is None
    assert codes(response) == ["field-dropped"]


@pytest.mark.parametrize("key", ["citationSources", "citations"])
def test_citations_are_sources(key: str) -> None:
    cited = [{"startIndex": 1, "endIndex": 3, "uri": "https://a.example"}, {"license": "mit"}]
    one, other = sources(frame(text("üabc"), citationMetadata={key: cited}))
    assert (one.kind, one.url, one.start, one.end) == ("url", "https://a.example", 0, 1)
    assert (other.kind, other.url, other.start) == ("document", None, None)
    assert json.loads(bytes(other.raw or b"")) == {"license": "mit"}


def test_metadata_that_is_no_source_is_in_the_finish() -> None:
    metadata = {"webSearchQueries": ["q"], "searchEntryPoint": {"renderedContent": "<p>"}}
    told = {"urlMetadata": [{"retrievedUrl": "https://a.example"}]}
    one = decoded(frame(text("A"), groundingMetadata=metadata, urlContextMetadata=told))
    finish = one.parts[-1]
    assert isinstance(finish, Finish)
    assert json.loads(bytes(finish.extra or b"")) == {**metadata, "urlContextMetadata": told}


# The response


def test_metadata_comes_from_the_first_frame() -> None:
    first = {**frame(text("A")), "createTime": "2026-05-04T20:01:02.264968Z"}
    one = decoded(first)
    assert one.parts[0] == ResponseMetadata("r1", "m-1", 1777924862, "gemini")
    assert one.response.model == "m-1"


def test_a_response_without_an_id_gets_one() -> None:
    anonymous = {"candidates": [{"content": {"parts": [text("A")]}, "finishReason": "STOP"}]}
    response = read(anonymous, end=None)
    assert response.id.startswith("resp_")
    assert codes(response) == ["metadata-id-minted"]


def test_another_response_id_is_another_response_of_a_capture() -> None:
    nameless = {key: one for key, one in END.items() if key != "responseId"}
    other = {**frame(text("B"), finishReason="STOP"), "responseId": "r2"}
    raw = sse({"usageMetadata": {}}, frame(text("A")), nameless, other)
    one, two = (decoded.response for decoded in decode_all(raw, "gemini"))
    assert (one.id, one.text, one.finish_reason) == ("r1", "A", "stop")
    assert (two.id, two.text, two.finish_reason) == ("r2", "B", "stop")


def test_another_response_id_in_one_response_is_noticed() -> None:
    decoder = Decoder("gemini")
    decoder.feed(sse(frame(text("A")), {**END, "responseId": "r2"}))
    decoder.finish()
    assert (decoder.response.id, codes(decoder.response)) == ("r1", ["metadata-repeated"])


@pytest.mark.parametrize("time", ["", "yesterday", "2026-13-04T20:01:02Z"])
def test_an_invalid_time_is_ignored(time: str) -> None:
    assert parse_time(time) is None


@QUICK
@given(st.integers(0, 253402300799))
def test_a_time_is_written_as_it_is_read(seconds: int) -> None:
    assert parse_time(render_time(seconds)) == seconds


def test_the_last_value_of_each_count_is_used() -> None:
    early = {"promptTokenCount": 9, "candidatesTokenCount": 1, "trafficType": "ON_DEMAND"}
    late = {"candidatesTokenCount": 5, "thoughtsTokenCount": 30, "toolUsePromptTokenCount": 4}
    last = {"cachedContentTokenCount": 8, "totalTokenCount": 48}
    frames = [{**frame(text("a")), "usageMetadata": one} for one in (early, late, last)]
    assert read(*frames).usage == Usage(13, 35, 48, 30, 8)


def test_usage_without_counts_is_none() -> None:
    assert read({**frame(text("a")), "usageMetadata": {"trafficType": "ON_DEMAND"}}).usage is None


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"promptTokenCount": 3, "thoughtsTokenCount": 4}, Usage(3, 4, 7, 4)),
        ({"promptTokenCount": 3}, Usage(3)),
        ({"candidatesTokenCount": 3}, Usage(None, 3)),
    ],
)
def test_missing_counts_stay_unknown(told: Json, expected: Usage) -> None:
    assert read({**frame(text("a")), "usageMetadata": told}).usage == expected


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content-filter"),
        ("RECITATION", "content-filter"),
        ("LANGUAGE", "content-filter"),
        ("BLOCKLIST", "content-filter"),
        ("PROHIBITED_CONTENT", "content-filter"),
        ("SPII", "content-filter"),
        ("IMAGE_SAFETY", "content-filter"),
        ("IMAGE_PROHIBITED_CONTENT", "content-filter"),
        ("IMAGE_RECITATION", "content-filter"),
        ("CONTINUATION", "pause"),
        ("NO_IMAGE", "other"),
        ("IMAGE_OTHER", "other"),
        ("OTHER", "other"),
        ("FINISH_REASON_UNSPECIFIED", "other"),
        ("SOMETHING_NEW", "other"),
    ],
)
def test_a_finish_reason_means(word: str, reason: str) -> None:
    for written in (word, word.lower()):
        response = read(frame(text("a")), end=frame(finishReason=written))
        assert (response.finish_reason, response.raw_finish_reason) == (reason, word)
        assert response.findings == ()


@pytest.mark.parametrize(
    ("word", "again"),
    [
        ("MALFORMED_FUNCTION_CALL", True),
        ("MALFORMED_RESPONSE", True),
        ("UNEXPECTED_TOOL_CALL", False),
        ("TOO_MANY_TOOL_CALLS", False),
        ("MISSING_THOUGHT_SIGNATURE", False),
    ],
)
def test_a_finish_reason_of_a_failed_turn_is_an_error(word: str, again: bool) -> None:
    end, lower = (frame(finishReason=x, finishMessage="why") for x in (word, word.lower()))
    response = read(frame(call(name="look")), end=end)
    assert response == read(frame(call(name="look")), end=lower)
    assert (response.finish_reason, response.raw_finish_reason) == ("error", word)
    assert response.error is not None
    assert (response.error.kind, response.error.message) == ("upstream", "why")
    assert (response.error.code, response.error.retryable) == (word, again)
    assert response.tool_calls == ()
    silent = read(frame(text("a")), end=frame(finishReason=word))
    assert silent.error is not None
    assert word in silent.error.message


@pytest.mark.parametrize(
    ("words", "raw", "noticed"),
    [
        (["STOP", "MAX_TOKENS"], "MAX_TOKENS", []),
        (["FINISH_REASON_UNSPECIFIED", "STOP"], "STOP", []),
        (["SAFETY", "STOP"], "SAFETY", []),
        (["SAFETY", "MAX_TOKENS"], "SAFETY", ["finish-repeated"]),
        (["STOP", "FINISH_REASON_UNSPECIFIED"], "STOP", []),
        (["SAFETY", "FINISH_REASON_UNSPECIFIED"], "SAFETY", []),
        (["stop", "MAX_TOKENS"], "MAX_TOKENS", []),
        (["finish_reason_unspecified", "stop"], "STOP", []),
        (["SAFETY", "stop"], "SAFETY", []),
        (["SAFETY", "safety"], "SAFETY", []),
    ],
)
def test_a_specific_reason_wins_over_a_plain_stop(
    words: list[str], raw: str, noticed: list[str]
) -> None:
    response = read(*[frame(finishReason=word) for word in words], end=None)
    assert (response.raw_finish_reason, codes(response)) == (raw, noticed)


def test_a_continuation_keeps_its_token() -> None:
    one = decoded(frame(text("A")), end=frame(finishReason="CONTINUATION", continuationToken="t"))
    finish = one.parts[-1]
    assert isinstance(finish, Finish)
    assert json.loads(bytes(finish.extra or b"")) == {"continuationToken": "t"}


@pytest.mark.parametrize("word", ["SAFETY", "OTHER", "MODEL_ARMOR"])
def test_a_blocked_prompt_is_content_filter_without_content(word: str) -> None:
    blocked = {
        "promptFeedback": {"blockReason": word, "blockReasonMessage": "no"},
        "responseId": "r1",
    }
    one = decoded(blocked, end=None)
    assert types(one) == ["response-metadata", "finish"]
    assert (one.response.finish_reason, one.response.raw_finish_reason) == ("content-filter", word)
    assert one.response.findings == ()


def test_the_message_of_a_blocked_prompt_stays_with_its_reason() -> None:
    first = {"blockReason": "SAFETY", "blockReasonMessage": "no"}
    for second in (
        {"blockReason": "SAFETY"},
        {"blockReason": "SAFETY", "blockReasonMessage": ""},
        {"blockReason": "OTHER", "blockReasonMessage": "never"},
    ):
        frames = [{"promptFeedback": one, "responseId": "r1"} for one in (first, second)]
        finish = decoded(*frames, end=None).parts[-1]
        assert isinstance(finish, Finish)
        assert finish.raw_reason == "SAFETY"
        assert json.loads(bytes(finish.extra or b"")) == {"blockReasonMessage": "no"}


def test_the_message_of_a_finish_reason_that_is_ignored_is_ignored() -> None:
    frames = [
        frame(finishReason="SAFETY", finishMessage="unsafe"),
        frame(finishReason="MAX_TOKENS", finishMessage="too long"),
        frame(finishReason="STOP", finishMessage="done"),
    ]
    finish = decoded(*frames, end=None).parts[-1]
    assert isinstance(finish, Finish)
    assert finish.raw_reason == "SAFETY"
    assert json.loads(bytes(finish.extra or b"")) == {"finishMessage": "unsafe"}
    later = decoded(frame(finishReason="SAFETY"), frame(finishMessage="unsafe"), end=None).parts[-1]
    assert isinstance(later, Finish)
    assert json.loads(bytes(later.extra or b"")) == {"finishMessage": "unsafe"}


def test_prompt_feedback_without_a_block_reason_is_ignored() -> None:
    harmless = {**frame(text("A")), "promptFeedback": {"safetyRatings": []}}
    assert read(harmless).finish_reason == "stop"


def test_an_end_without_a_finish_reason_is_truncated() -> None:
    response = read(frame(text("A")), end=None)
    assert response.error is not None
    assert (response.error.kind, response.finish_reason) == ("truncated", "error")
    assert response.error.retryable


@pytest.mark.parametrize("raw", [b"", b"\n\n", sse({"responseId": "r1"})])
def test_an_end_without_anything_is_empty(raw: bytes) -> None:
    (one,) = decode_all(raw, "gemini")
    assert one.response.error is not None
    assert one.response.error.kind == "empty"


# Errors


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            {"code": 503, "message": "busy", "status": "UNAVAILABLE"},
            ErrorPart("upstream", "busy", "UNAVAILABLE", 503, True),
        ),
        (
            {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"},
            ErrorPart("upstream", "slow", "RESOURCE_EXHAUSTED", 429, True),
        ),
        (
            {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"},
            ErrorPart("upstream", "bad", "INVALID_ARGUMENT", 400),
        ),
        ({"status": "CANCELLED"}, ErrorPart("upstream", "CANCELLED", "CANCELLED", 499)),
        ({"code": 14, "message": "m"}, ErrorPart("upstream", "m", 14)),
        ({"code": "500", "message": "m"}, ErrorPart("upstream", "m", 500, 500, True)),
        ("plain", ErrorPart("upstream", "plain")),
        ([1], ErrorPart("upstream", "[1]")),
    ],
)  # fmt: skip
def test_an_error_object_has_a_status_and_says_whether_to_retry(
    error: object, expected: ErrorPart
) -> None:
    for raw in (sse(frame(text("A")), {"error": error}), json.dumps({"error": error}).encode()):
        (one,) = decode_all(raw, "gemini")
        (told,) = [part for part in one.parts if isinstance(part, ErrorPart)]
        assert told == expected
        assert one.response.finish_reason == "error"


def test_the_details_of_an_error_are_kept() -> None:
    details = [{"retryDelay": "12s"}]
    one = decoded({"error": {"code": 429, "message": "m", "details": details}}, end=None)
    told = one.parts[1]
    assert isinstance(told, ErrorPart)
    assert json.loads(bytes(told.extra or b"")) == {"details": details}


def test_after_an_error_only_usage_and_the_reason_are_read() -> None:
    late = {**frame(text("B"), finishReason="OTHER"), "usageMetadata": {"promptTokenCount": 3}}
    response = read(
        frame(text("A")), {"error": {"code": 500}}, late, {"error": {"code": 1}}, end=None
    )
    assert (response.text, response.raw_finish_reason, response.usage) == ("A", "OTHER", Usage(3))


# Frames


def raw_frame(data: bytes) -> Response:
    (one,) = decode_all(sse(frame(text("A"))) + data + sse(END), "gemini")
    return one.response


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (b"data: {broken\n\n", "malformed", "event 1 is not JSON"),
        (b'data: [{"candidates":[]},oops]\n\n', "malformed", "event 1 is not JSON"),
        (b"data: quota exceeded\n\n", "upstream", "quota exceeded"),
    ],
)
def test_a_frame_that_cannot_be_read_is_an_error(data: bytes, kind: str, message: str) -> None:
    response = raw_frame(data)
    assert response.error is not None
    assert response.error.kind == kind
    assert message in response.error.message


@pytest.mark.parametrize(
    "data",
    [
        b"data: [DONE]\n\n",
        b"event: ping\ndata: pong\n\n",
        b'data: {"ping":1}\n\n',
        b'data: {"error":{}}\n\n',
    ],
)
def test_unknown_events_are_findings(data: bytes) -> None:
    response = raw_frame(data)
    assert (response.text, response.finish_reason) == ("A", "stop")
    assert codes(response) == ["event-unknown"]


def test_a_part_of_an_unknown_kind_is_opaque() -> None:
    response = say(text("A"), {"hologram": {"depth": 3}})
    assert response.items[1] == Opaque("gemini", "part", Raw(b'{"hologram": {"depth": 3}}'))
    assert codes(response) == ["event-unknown"]


def test_an_unknown_part_of_a_malformed_frame_is_only_a_finding() -> None:
    response = read(frame(text("A\ud83d"), {"hologram": 1}))
    assert [type(item) for item in response.items] == [TextItem]
    assert codes(response) == ["surrogate-lone", "event-unknown"]


def test_fields_of_the_wrong_type_are_converted() -> None:
    odd = {**frame(text("A"), index="0"), "usageMetadata": {"promptTokenCount": "3"}}
    response = read(odd)
    assert (response.text, response.usage) == ("A", Usage(3))
    assert set(codes(response)) == {"field-coerced"}


def test_names_in_snake_case_are_read_but_arguments_are_left_alone() -> None:
    args = {"finish_reason": 1, "usage_metadata": {"prompt_token_count": 2}}
    inner = {"function_call": {"name": "look", "args": args}}
    odd = {
        "candidates": [{"content": {"parts": [inner]}, "finish_reason": "STOP"}],
        "response_id": "r1",
    }
    response = read(odd, end=None)
    assert json.loads(response.tool_calls[0].params) == args
    assert (response.id, response.finish_reason) == ("r1", "tool-calls")
    assert codes(response) == ["field-coerced"]


def test_an_argument_named_like_a_snake_case_key_is_not_renamed() -> None:
    plain = {"candidates": frame(call(name="look", args={"response_id": 1}))["candidates"]}
    response = read(plain)
    assert json.loads(response.tool_calls[0].params) == {"response_id": 1}
    assert "field-coerced" not in codes(response)


@pytest.mark.parametrize("data", [b'{"response_id":', b"[" * 100_000, b'{"responseId":1}'])
def test_data_without_snake_case_keys_is_left_alone(data: bytes) -> None:
    assert to_camel_case(data) is None


@pytest.mark.parametrize("indent", [None, 2])
def test_a_stream_as_one_array_is_that_stream(indent: int | None) -> None:
    frames = [frame(text("A")), frame(call(id="c", name="look")), END]
    raw = json.dumps(frames, indent=indent).encode()
    (one,) = decode_all(raw, "gemini")
    (other,) = decode_all(sse(*frames), "gemini")
    assert one.parts == other.parts
    assert one.response.findings == ()


def test_a_body_decodes_like_a_stream() -> None:
    parts = [text("Hm", thought=True), text("A"), call(id="c", name="look", args={"a": 1})]
    raw = json.dumps(frame(*parts, finishReason="STOP"), indent=1).encode()
    (one,) = decode_all(raw, "gemini")
    assert (one.response.reasoning, one.response.text) == ("Hm", "A")
    assert one.response.finish_reason == "tool-calls"
    assert one.response.findings == ()


def test_a_replayed_event_is_dropped() -> None:
    event = b"id: 1\n" + sse(frame(text("A")))
    (one,) = decode_all(event + event + sse(END), "gemini")
    assert (one.response.text, codes(one.response)) == ("A", ["frame-replayed"])


def test_repaired_framing_is_a_finding() -> None:
    joined = sse(frame(text("A")), frame(text("B"))).replace(b"\r\n\r\n", b"\n")
    (split,) = decode_all(joined + b"\n" + sse(END), "gemini")
    assert (split.response.text, codes(split.response)) == ("AB", ["frame-lines-split"])
    (cut,) = decode_all(sse(END).rstrip(), "gemini")
    assert (cut.response.finish_reason, codes(cut.response)) == ("stop", ["frame-unterminated"])


def test_candidates_are_separated_by_index() -> None:
    raw = sse(
        frame(text("A"), index=0),
        frame(text("B"), index=1, finishReason="MAX_TOKENS"),
        frame(text("a"), finishReason="STOP"),
    )
    one, other = decode_all(raw, "gemini")
    assert (one.response.text, one.response.choice) == ("Aa", 0)
    assert (other.response.text, other.response.finish_reason) == ("B", "length")
    assert codes(one.response) == ["choice-other"]


def test_other_candidates_are_never_mixed_in() -> None:
    raw = sse(
        frame(text("B"), call(name="look", args={}), index=1),
        frame(text("A")),
        frame(text("b"), index=1, finishReason="STOP"),
        frame(text("a"), finishReason="STOP"),
    )
    context = Context(request=Request("m", choices=1))
    (one,) = decode_all(raw, "gemini", context=context)
    assert (one.response.text, one.response.tool_calls) == ("Aa", ())
    assert codes(one.response) == ["choice-other"]


def test_nothing_is_read_after_the_end() -> None:
    decoder = Decoder("gemini")
    decoder.feed(sse(frame(text("A")), END))
    parts = decoder.finish()
    assert decoder.feed(sse(frame(text("B")))) == []
    assert parts[-1].type == "finish"
    assert [finding.code for finding in decoder.findings] == ["after-finish"]


@pytest.mark.parametrize(
    ("raw", "dialect"),
    [
        (sse({"promptFeedback": {"blockReason": "OTHER"}}), "gemini"),
        (sse({"usageMetadata": {"promptTokenCount": 1}}), "gemini"),
        (b'[{"error":{"code":400,"status":"INVALID_ARGUMENT"}}]', "gemini"),
        (b'data: {"choices":[]}\n\n', "openai-chat"),
        (b'data: {"type":"response.created"}\n\n', "openai-responses"),
    ],
)
def test_a_frame_of_this_dialect_is_recognised(raw: bytes, dialect: str) -> None:
    assert detect(raw) == dialect
