"""What the official clients do besides asking a model: listing models, counting, WebSockets."""

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients import with_anthropic, with_openai
from tests.clients.case import ABOUT, PARAMETERS
from tests.clients.scripted import scripted
from tests.clients.vendor import GREETING, KEY, STEPS, WEATHER, tool_result
from tests.clients.world import UPSTREAMS, World, settings
from tests.gateway_process import gateway

ALICE, BOB = "alice-has-a-long-key", "bob-has-a-long-key-too"
KEYS = f'[server.keys]\nalice = "{ALICE}"\nbob = "{BOB}"\n'
LISTED = [f"{name}/text" for name in UPSTREAMS]


def test_the_openai_client_lists_the_models_of_every_upstream(clients: World) -> None:
    models = with_openai.client(clients.gateway.url, "client").models

    async def listed() -> list[str]:
        return [model.id async for model in models.list()]

    assert sorted(clients.run(listed())) == sorted(LISTED)


def test_the_anthropic_client_lists_the_models_of_every_upstream(clients: World) -> None:
    models = with_anthropic.client(clients.gateway.url, "client").models

    async def listed() -> list[str]:
        return [model.id async for model in models.list()]

    assert sorted(clients.run(listed())) == sorted(LISTED)


@pytest.mark.parametrize("model", LISTED)
def test_both_clients_find_a_model_by_its_name(model: str, clients: World) -> None:
    url = clients.gateway.url

    async def found() -> tuple[str, str]:
        one = await with_openai.client(url, "client").models.retrieve(model)
        other = await with_anthropic.client(url, "client").models.retrieve(model)
        return one.id, other.id

    assert clients.run(found()) == (model, model)


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_the_anthropic_client_counts_tokens_for_any_upstream(upstream: str, clients: World) -> None:
    messages = with_anthropic.client(clients.gateway.url, "client").messages
    tools: Any = [
        {"name": name, "description": ABOUT[name], "input_schema": schema}
        for name, schema in PARAMETERS.items()
    ]
    said: Any = [{"role": "user", "content": "How is the weather?"}]

    async def counted(**more: Any) -> int:
        answer = await messages.count_tokens(model=f"{upstream}/text", messages=said, **more)
        return answer.input_tokens

    few, many = clients.run(counted()), clients.run(counted(tools=tools))
    assert 0 < few < many


@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_the_openai_client_talks_over_one_websocket_with_any_upstream(
    upstream: str, clients: World
) -> None:
    """Two requests on one connection: the second one brings the result of the first one's call."""
    client = with_openai.client(clients.gateway.url, "client")
    tag = clients.tag()
    asked: Any = {"store": False, "model": f"{upstream}/tool", "tools": with_openai.RESPONSES_TOOLS}
    items: list[Any] = [{"role": "user", "content": f"How is the weather? [case {tag}]"}]

    async def create(connection: Any, **more: Any) -> Any:
        await connection.response.create(**(asked | more))
        async for event in connection:
            if event.type == "response.completed":
                return event.response
            assert event.type not in ("error", "response.failed"), event
        raise AssertionError("the connection ended without an answer")

    async def talked() -> tuple[str, str]:
        async with client.responses.connect() as connection:
            first = await create(connection, input=items)
            (call,) = [item for item in first.output if item.type == "function_call"]
            output = {"call_id": call.call_id, "output": WEATHER.result}
            items.extend([*_sent(first), {"type": "function_call_output", **output}])
            second = await create(connection, input=items)
            third = await create(connection, model=f"{upstream}/text", input="Hello.", tools=[])
        return second.output_text, third.output_text

    assert clients.run(talked()) == (f"It is so: {WEATHER.result}.", GREETING)
    first, second = clients.upstream.of(tag)
    assert [result.id for result in second.asked.results] == [call.id for call in first.handed]


def _sent(response: Any) -> list[Any]:
    return [item.model_dump(mode="json", exclude_none=True) for item in response.output]


@pytest.mark.parametrize("scenario", ["reasoning-tool", "reasoning-hidden", "reasoning-mixed"])
@pytest.mark.parametrize("upstream", UPSTREAMS)
def test_the_openai_client_goes_on_from_stored_responses_of_thinking_models(
    upstream: str, scenario: str, clients: World
) -> None:
    """It sends nothing back but outputs; the upstream sees every proof of every step."""
    responses = with_openai.client(clients.gateway.url, "client").responses
    tag = clients.tag()
    asked: Any = {
        "model": f"{upstream}/{scenario}",
        "tools": with_openai.RESPONSES_TOOLS,
        "reasoning": {"effort": "low", "summary": "auto"},
    }

    async def answered() -> str:
        given: Any = f"How is the weather? [case {tag}]"
        previous = None
        while True:
            response = await responses.create(input=given, previous_response_id=previous, **asked)
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return str(response.output_text)
            results = [tool_result(call.name, json.loads(call.arguments)) for call in calls]
            given = [
                {"type": "function_call_output", "call_id": call.call_id, "output": result}
                for call, result in zip(calls, results, strict=True)
            ]
            previous = response.id

    text = clients.run(answered())
    log = clients.upstream.of(tag)
    steps = len(STEPS[scenario])
    unproven = upstream == "chat" and scenario == "reasoning-hidden"
    assert [one.refusal for one in log] == [""] * (steps + 1)
    assert [one.asked.proofs for one in log] == [
        [] if unproven else ["returned"] * step for step in range(steps + 1)
    ]
    assert text == f"It is so: {'; '.join(one.text for one in log[-1].asked.results)}."


@pytest.mark.parametrize(("kept", "status"), [(True, 200), (False, 400)])
def test_whether_reasoning_is_kept_for_chat_clients_is_a_setting(
    kept: bool, status: int, tmp_path: Path
) -> None:
    """Another key does not find it, either."""
    more = f"[store]\nreasoning = {str(kept).lower()}\n" + KEYS
    environment = {**os.environ, "PLANTED_KEY": KEY}
    with (
        scripted() as upstream,
        gateway(settings(upstream.url) + more, tmp_path, environment=environment) as running,
        httpx.Client(base_url=running.url, timeout=30, trust_env=False) as http,
    ):

        def asked(messages: list[Any], key: str) -> httpx.Response:
            body = {"model": "chat/reasoning-tool", "tools": with_openai.CHAT_TOOLS}
            headers = {"authorization": f"Bearer {key}"}
            body["messages"] = messages
            return http.post("/v1/chat/completions", json=body, headers=headers)

        messages: list[Any] = [{"role": "user", "content": "How is the weather?"}]
        first = asked(messages, ALICE).json()["choices"][0]["message"]
        (call,) = first["tool_calls"]
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": WEATHER.result},
        ]
        assert first["reasoning_content"]
        assert asked(messages, ALICE).status_code == status
        assert asked(messages, BOB).status_code == 400
