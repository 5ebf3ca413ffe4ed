"""What the official clients do besides asking a model: listing models, counting, WebSockets."""

from typing import Any

import pytest

from tests.clients import with_anthropic, with_openai
from tests.clients.case import ABOUT, PARAMETERS
from tests.clients.vendor import GREETING, WEATHER
from tests.clients.world import UPSTREAMS, World

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
