"""Calls wrapped into one of `parallel`: each is a call of its own, wherever the deltas are cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.strategies import cuts, examples
from weft.codec import Decoder
from weft.context import Context
from weft.dialects import DialectName
from weft.dialects.requests.multi_tool_use import WRAPPERS
from weft.dialects.stages.parallel_calls import ParallelCalls
from weft.findings import Findings
from weft.ids import Ids
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
from weft.request import Request, Tool

TOOLS = ("look", "read")
USES = (
    '{"tool_uses":[{"recipient_name":"functions.look","parameters":{"at": 1.50}},'
    '{"recipient_name":"read"}]}'
)
UNFOLDED = [("c_0", "look", '{"at": 1.50}'), ("c_1", "read", "{}")]


def announced(params: str, name: str = "parallel") -> list[Part]:
    deltas: list[Part] = [ToolParamsDelta("c", params)] if params else []
    return [ToolParamsStart("c", name), *deltas, ToolParamsEnd("c"), ToolCall("c", name, params)]


def read(*parts: Part, tools: tuple[str, ...] = TOOLS) -> tuple[list[Part], list[str]]:
    findings = Findings()
    stage = ParallelCalls(tools, findings)
    out = [one for part in parts for one in stage.feed([part])] + stage.finish()
    return out, [finding.code for finding in findings.found]


def made(parts: list[Part]) -> list[tuple[str, str, str]]:
    return [(part.id, part.name, part.params) for part in parts if isinstance(part, ToolCall)]


@examples(60)
@given(st.sampled_from(sorted(WRAPPERS)), cuts(USES))
def test_a_wrapper_becomes_the_calls_that_it_wraps(name: str, pieces: list[str]) -> None:
    deltas = [ToolParamsDelta("c", piece) for piece in pieces if piece]
    start, end = ToolParamsStart("c", name), ToolParamsEnd("c")
    out, codes = read(start, *deltas, end, ToolCall("c", name, "", signature="s"))
    assert made(out) == UNFOLDED
    assert [part.signature for part in out if isinstance(part, ToolCall)] == ["s", None]
    assert codes == ["parallel-wrapper"]


def test_a_wrapper_that_comes_whole_is_unfolded_too() -> None:
    out, _ = read(ToolCall("c", "parallel", USES))
    assert made(out) == UNFOLDED


@pytest.mark.parametrize(
    "params",
    [
        "",
        "{",
        "[]",
        '{"tool_uses":[]}',
        '{"tool_uses":[{"recipient_name":"functions.erase","parameters":{}}]}',
        '{"tool_uses":[{"recipient_name":"functions.look","parameters":[1]}]}',
    ],
)
def test_a_wrapper_that_wraps_nothing_stays_as_it_is_and_is_noted(params: str) -> None:
    parts = announced(params)
    assert read(*parts) == (parts, ["parallel-wrapper"])


@pytest.mark.parametrize("tools", [(), ("look", "read", *WRAPPERS)], ids=["none", "its-own"])
def test_what_the_request_declared_itself_is_no_wrapper(tools: tuple[str, ...]) -> None:
    parts = announced(USES)
    assert read(*parts, tools=tools) == (parts, [])


def test_other_calls_pass_as_they_are() -> None:
    parts = announced("{}", "look")
    assert read(*parts) == (parts, [])


@pytest.mark.parametrize("last", [ErrorPart("upstream", "no"), Finish("stop")])
def test_a_wrapper_that_is_cut_is_handed_over_as_far_as_it_came(last: Part) -> None:
    parts = announced(USES[:20])[:2]
    assert read(*parts, last) == ([*parts, last], [])
    assert read(*parts) == (parts, [])


@pytest.mark.parametrize(
    "dialect", ["openai-chat", "openai-responses", "anthropic-messages", "gemini"]
)
def test_every_dialect_is_read_so(dialect: DialectName) -> None:
    stream = [ResponseMetadata("r", model="m"), *announced(USES), Finish("tool-calls")]
    raw = b"".join(weft.encode(stream, dialect, context=Context(ids=Ids(b"1"))))
    request = Request("m", tools=tuple(Tool(name) for name in TOOLS))
    decoder = Decoder(dialect, context=Context(request=request, ids=Ids(b"2")))
    decoder.feed(raw)
    decoder.finish()
    calls = [(call.name, json.loads(call.params)) for call in decoder.response.tool_calls]
    assert calls == [("look", {"at": 1.5}), ("read", {})]
    assert decoder.response.finish_reason == "tool-calls"


def test_a_call_that_was_not_announced_and_wraps_nothing_is_kept() -> None:
    call = ToolCall("c", "parallel", '{"tool_uses":[]}')
    assert read(call) == ([call], ["parallel-wrapper"])
