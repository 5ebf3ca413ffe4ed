"""Histories that hold calls wrapped into one call of `parallel`, as models write them."""

import json
from typing import Any

import pytest

from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.requests.codec import Loss, Losses, RequestCodec
from weft.dialects.requests.multi_tool_use import unwrap_calls
from weft.request import CallContent

Object = dict[str, Any]

CODECS: dict[str, RequestCodec] = {
    name: dialect.request for name, dialect in DIALECTS.items() if dialect.request is not None
}
PARIS, ROME = '{"city": "Paris", "n": 1.50}', '{"city":"Rome"}'
ARGUMENTS = (
    f'{{"tool_uses":[{{"recipient_name":"functions.look","parameters":{PARIS}}},'
    f'{{"recipient_name":"read","parameters":{ROME}}}]}}'
)
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("look", "read")
]


def body(name: str, ids: tuple[str, ...], **more: object) -> Object:
    """A request of a chat client whose history has a wrapper, and results under these ids."""
    wrapper = {"name": name, "arguments": ARGUMENTS}
    call = {"id": "c", "type": "function", "function": wrapper}
    return {
        "model": "m",
        "messages": [
            {"role": "user", "content": "Where?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            *({"role": "tool", "tool_call_id": id, "content": f"of {id}"} for id in ids),
        ],
        "tools": TOOLS,
        **more,
    }


def sent(target: str, asked: Object) -> tuple[Object, list[Loss]]:
    parsed = CODECS["openai-chat"].parse(json.dumps(asked).encode(), Context())
    losses = Losses()
    rendered = CODECS[target].render(parsed.request, Context(), losses)
    found = [
        Loss(parsed.source_paths.source(one.path), one.outcome, one.detail) for one in losses.found
    ]
    return json.loads(rendered.body), [one for one in found if "tool_calls" in one.path]


def calls(target: str, written: Object) -> list[tuple[str, str, object]]:
    """The calls of a body: id, name and arguments of each."""
    heard = CODECS[target].parse(json.dumps(written).encode(), Context()).request
    return [
        (content.id, content.name, json.loads(content.params))
        for message in heard.messages
        for content in message.content
        if isinstance(content, CallContent)
    ]


NOTED = [
    Loss("messages[1].tool_calls[0]", "adapted", "the calls that it wraps are sent one by one")
]


@pytest.mark.parametrize("target", CODECS)
@pytest.mark.parametrize("name", ["parallel", "multi_tool_use.parallel"])
@pytest.mark.parametrize("first", [0, 1])
def test_a_wrapper_whose_calls_have_results_is_unfolded(target: str, name: str, first: int) -> None:
    ids = (f"c_{first}", f"c_{first + 1}")
    written, losses = sent(target, body(name, ids))
    assert calls(target, written) == [
        (ids[0], "look", {"city": "Paris", "n": 1.5}),
        (ids[1], "read", {"city": "Rome"}),
    ]
    assert [one for one in losses if "signature" not in one.path] == NOTED
    for id in ids:
        assert f"of {id}" in json.dumps(written)


@pytest.mark.parametrize("target", CODECS)
def test_a_wrapper_that_has_a_result_itself_stays_one_call(target: str) -> None:
    written, losses = sent(target, body("parallel", ("c",)))
    assert [name for _, name, _ in calls(target, written)] == ["parallel"]
    assert NOTED[0] not in losses


def test_a_tool_that_the_client_itself_calls_parallel_is_no_wrapper() -> None:
    own = {"type": "function", "function": {"name": "parallel"}}
    asked = body("parallel", ("c_0", "c_1"), tools=[own])
    assert sent("openai-chat", asked) == (asked, [])


def test_calls_that_were_unfolded_before_need_nothing() -> None:
    asked = body("parallel", ("c_0", "c_1"))
    asked["messages"][1]["tool_calls"] = [
        {"id": f"c_{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate((("look", PARIS), ("read", ROME)))
    ]
    assert sent("openai-chat", asked) == (asked, [])


@pytest.mark.parametrize(
    "params", ["", "{", "[]", "{}", '{"tool_uses":[]}', '{"tool_uses":[{"parameters":{}}]}']
)
def test_what_wraps_nothing_is_left_alone(params: str) -> None:
    assert unwrap_calls(CallContent("c", "parallel", params), {"c_0", "c_1"}) == []


def test_only_the_first_call_has_the_signature_of_the_wrapper() -> None:
    wrapper = CallContent("c", "parallel", ARGUMENTS, signature="s", origin="o", item_id="i")
    first, second = unwrap_calls(wrapper, {"c_0", "c_1"})
    assert first == CallContent("c_0", "look", PARIS, signature="s", origin="o")
    assert second == CallContent("c_1", "read", ROME, origin="o")
