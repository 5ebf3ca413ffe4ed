"""The request of a turn."""

import json
from collections.abc import Sequence

from msgspec import Raw

from tests.agent_runs import ASKED, append, call_of, started
from weft.agent.definition import AgentDefinition
from weft.agent.events import (
    CallFinished,
    CallIntended,
    Contents,
    JudgedCall,
    MessageAdded,
    TurnFinished,
    TurnInterrupted,
    TurnStarted,
    text_result,
)
from weft.agent.gate import digest_of
from weft.agent.state import RunState
from weft.agent.tool_spec import ToolSpec
from weft.agent.turns import LAST_TURN, render_turn
from weft.codec import fresh_context
from weft.dialects import DIALECTS
from weft.request import CallContent, FileContent, ImageContent, ResultContent, TextContent

AGENT = AgentDefinition(
    "a",
    "m",
    instructions="Be kind.",
    tools=(ToolSpec("t", "Does it.", Raw(b'{"type":"object"}')),),
)
SAID = Raw(b'{"type":"message","role":"assistant","content":[]}')


def call_item(id: str, name: str = "t") -> Raw:
    fields = {"type": "function_call", "id": "fc", "call_id": id, "name": name, "arguments": "{}"}
    return Raw(json.dumps(fields).encode())


def items(state: RunState, *outputs: Sequence[Raw]) -> list[dict[str, object]]:
    by_response = {f"resp_{number}": some for number, some in enumerate(outputs, 1)}
    found: list[dict[str, object]] = json.loads(render_turn(state, by_response))["input"]
    return found


def close(state: RunState, id: str, result: Contents = (), is_error: bool = False) -> None:
    append(state, CallIntended(id, 1, f"run/{id}"), CallFinished(id, result, is_error))


def shape(item: dict[str, object]) -> object:
    return item.get("output", item.get("call_id", item.get("content")))


def test_the_first_request_has_the_agent_and_the_input() -> None:
    body = json.loads(render_turn(started(AGENT, finished=False), {}))
    tool = {"type": "function", "name": "t", "description": "Does it.", "strict": False}
    assert body == {
        "model": "m",
        "input": [json.loads(bytes(ASKED))],
        "stream": True,
        "instructions": "Be kind.",
        "tools": [tool | {"parameters": {"type": "object"}}],
        "include": ["reasoning.encrypted_content"],
    }


def test_an_agent_without_tools_declares_none() -> None:
    body = json.loads(render_turn(started(AgentDefinition("a", "m"), finished=False), {}))
    assert body.keys() == {"model", "input", "stream", "include"}


def test_results_stand_in_the_order_of_the_calls_whichever_ended_first() -> None:
    state = started(AGENT, [call_of("x", "t"), call_of("y", "t")])
    close(state, "y", text_result("Y"))
    close(state, "x", text_result("X"))
    found = items(state, [SAID, call_item("x"), call_item("y")])
    assert [shape(one) for one in found] == ["Go.", [], "x", "y", "X", "Y"]


def test_a_nameless_call_does_not_go_back_to_the_model() -> None:
    state = started(AGENT, [call_of("x", "t"), call_of("n", "", "dropped")])
    close(state, "x")
    found = items(state, [call_item("n", ""), call_item("x")])
    assert [shape(one) for one in found] == ["Go.", "x", ""]


def test_an_id_that_was_used_again_goes_back_as_the_runs_own() -> None:
    state = started(AGENT, [call_of("x", "t")])
    close(state, "x", text_result("1"))
    again = JudgedCall("x_2", "t", "{}", digest_of("{}"), "dispatch", wire_id="x")
    append(state, TurnStarted(2, 1, "resp_2"))
    append(state, TurnFinished(2, 1, "tool-calls", calls=(again,)))
    close(state, "x_2", text_result("2"))
    found = items(state, [call_item("x")], [call_item("x")])
    assert [shape(one) for one in found] == ["Go.", "x", "1", "x_2", "2"]


def test_messages_stand_where_they_came() -> None:
    state = started(AGENT, [call_of("x", "t")])
    first, second = (
        Raw(b'{"type":"message","role":"user","content":"%s"}' % word) for word in (b"1", b"2")
    )
    append(state, MessageAdded(first))
    close(state, "x", text_result("X"))
    append(state, TurnStarted(2, 1, "resp_2"), MessageAdded(second))
    append(state, TurnInterrupted(2, 1, "died"), TurnStarted(2, 2, "resp_3"))
    found = items(state, [call_item("x")])
    assert [shape(one) for one in found] == ["Go.", "x", "X", "1", "2"]


def test_the_last_turn_is_asked_to_do_without_tools() -> None:
    body = json.loads(render_turn(started(AGENT, finished=False), {}, is_last=True))
    assert body["tool_choice"] == "none"
    assert body["input"][-1]["content"] == LAST_TURN
    assert body["tools"]


def test_a_failed_call_says_so_in_words_too() -> None:
    state = started(AGENT, [call_of("x", "t"), call_of("y", "t")])
    close(state, "x", text_result("no such file"), is_error=True)
    close(state, "y", (), is_error=True)
    [x, y] = items(state, [call_item("x"), call_item("y")])[-2:]
    assert (x["output"], x["status"]) == ("Error: no such file", "incomplete")
    assert (y["output"], y["status"]) == ("Error: ", "incomplete")


def test_the_relay_reads_what_tools_return() -> None:
    """Judged by the parser of the dialect: images, files and texts arrive as such."""
    contents: Contents = (
        TextContent("here"),
        ImageContent("image/png", data="aGk="),
        ImageContent(url="https://example.com/i.png"),
        FileContent("application/pdf", data="aGk=", filename="a.pdf"),
        FileContent(url="https://example.com/a.pdf"),
    )
    state = started(AGENT, [call_of("x", "t")])
    close(state, "x", contents, is_error=True)
    codec = DIALECTS["openai-responses"].request
    assert codec is not None
    body = render_turn(state, {"resp_1": [call_item("x")]})
    parsed = codec.parse(body, fresh_context()).request
    found = [one for message in parsed.messages for one in message.content]
    assert [type(one) for one in found] == [TextContent, CallContent, ResultContent]
    [result] = [one for one in found if isinstance(one, ResultContent)]
    assert result.is_error
    assert [type(one) for one in result.content] == [type(one) for one in contents]
    assert result.content[1] == ImageContent("image/png", data="aGk=", detail="auto")
