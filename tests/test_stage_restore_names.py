"""Names and ids come back as the client knows them, in every part that shows one."""

from hypothesis import given
from msgspec import Raw

from tests.strategies import LEGAL, QUICK, SOUP
from weft import Context, Decoder, Ids
from weft.assembler import Assembler
from weft.dialects.requests.names import NameSanitizer
from weft.dialects.stages.restore_names import RestoreNames
from weft.findings import Findings
from weft.guard import Guard
from weft.lifecycle import violations
from weft.parts import (
    Finish,
    Part,
    ResponseMetadata,
    TextDelta,
    TextEnd,
    TextStart,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
)
from weft.request import Tool

NAMES = {"read_file_1a2b3c4d": "read.file", "crm__find": "crm.find"}
IDS = {"call_1": "call:1", "srv_1": "srv:1"}
CALL_PARTS = (
    ToolParamsStart,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolCall,
    ToolResult,
    ToolApprovalRequest,
)


def passed(*parts: Part, tools: tuple[Tool, ...] = ()) -> list[Part]:
    stage = RestoreNames(NAMES, IDS, tools)
    return stage.feed(list(parts)) + stage.finish()


def test_every_part_of_a_call_shows_the_original() -> None:
    spelled, original = "read_file_1a2b3c4d", "read.file"
    given = [
        ResponseMetadata("call_1"),
        ToolParamsStart("call_1", spelled),
        ToolParamsDelta("call_1", '{"a":"call_1"}'),
        ToolParamsEnd("call_1"),
        ToolCall("call_1", spelled, '{"a":"call_1"}', caller="srv_1"),
        ToolApprovalRequest("call_1", "call_1"),
        ToolResult("call_1", Raw(b'"call_1"')),
        Finish("tool-calls"),
    ]
    assert passed(*given) == [
        ResponseMetadata("call_1"),
        ToolParamsStart("call:1", original),
        ToolParamsDelta("call:1", '{"a":"call_1"}'),  # what the model says is not ours to change
        ToolParamsEnd("call:1"),
        ToolCall("call:1", original, '{"a":"call_1"}', caller="srv:1"),
        ToolApprovalRequest("call:1", "call_1"),
        ToolResult("call:1", Raw(b'"call_1"')),
        Finish("tool-calls"),
    ]


def test_what_is_not_in_the_mapping_stays() -> None:
    given: list[Part] = [
        TextStart("call_1"),
        TextDelta("call_1", "read_file_1a2b3c4d"),
        TextEnd("call_1"),
        ToolParamsStart("c", "look"),
        ToolParamsDelta("c", "{}"),
        ToolParamsEnd("c"),
        ToolCall("c", "look", "{}"),
        ToolCall("d", "", "{}", invalid="nameless"),
    ]
    assert passed(*given) == given


def test_a_tool_that_the_upstream_runs_keeps_its_name() -> None:
    start = ToolParamsStart("s", "crm__find", provider_executed=True)
    call = ToolCall("s", "crm__find", "{}", provider_executed=True)
    assert passed(start, call) == [start, call]


def test_a_call_says_the_namespace_that_its_name_stood_for() -> None:
    tools = (Tool("find", namespace="crm"), Tool("file", namespace="read"), Tool("look"))
    start, call = ToolParamsStart("c", "crm__find"), ToolCall("c", "crm__find", "{}")
    assert passed(start, call, tools=tools) == [
        ToolParamsStart("c", "find"),
        ToolCall("c", "find", "{}", namespace="crm"),
    ]
    told = ToolCall("c", "crm__find", "{}", namespace="told")
    assert passed(told, tools=tools) == [ToolCall("c", "find", "{}", namespace="told")]
    plain = RestoreNames({"crm__find": "find"}, tools=tools)
    assert plain.feed([call]) == [ToolCall("c", "find", "{}", namespace="crm")]
    assert passed(call) == [ToolCall("c", "crm.find", "{}")]  # nothing is declared


def test_what_a_spelling_changed_comes_back() -> None:
    spelling = NameSanitizer("a-zA-Z0-9_-", 64)
    original = "mcp.files/" + "read" * 30
    spelled = spelling.sanitize(original)
    decoder = Decoder("openai-chat", context=Context(ids=Ids(b"1")))
    chunk = (
        b'data: {"id":"1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c",'
        b'"function":{"name":"%s","arguments":"{\\"a\\":1}"}}]}}]}\n\n' % spelled.encode()
    )
    parts = decoder.feed(chunk) + decoder.feed(b"data: [DONE]\n\n") + decoder.finish()
    named = RestoreNames(spelling.changed).feed([*parts])
    shown = [part.name for part in named if isinstance(part, ToolParamsStart | ToolCall)]
    assert shown == [original, original]


@QUICK
@given(LEGAL)
def test_legal_parts_stay_legal(parts: list[Part]) -> None:
    stage = RestoreNames({"look": "see.it"}, {"a": "a:1", "b": "b:1"})
    out = stage.feed(parts) + stage.finish()
    assert violations(out, Assembler()) == []
    back = RestoreNames({"see.it": "look"}, {"a:1": "a", "b:1": "b"})
    assert back.feed(out) == parts


@QUICK
@given(SOUP)
def test_any_parts_come_out_legal_and_none_shows_the_spelling(parts: list[Part]) -> None:
    stage, guard = RestoreNames({"look": "see"}, {"a": "z"}), Guard(Ids(b"1"), Findings())
    out = guard.feed(stage.feed(parts)) + guard.finish()
    assert violations(out, Assembler()) == []
    calls = [
        part
        for part in out
        if isinstance(part, ToolParamsStart | ToolCall) and not part.provider_executed
    ]
    assert "look" not in [part.name for part in calls]
    assert "a" not in [part.id for part in out if isinstance(part, CALL_PARTS)]
