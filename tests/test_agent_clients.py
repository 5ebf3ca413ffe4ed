"""Real clients with an agent as their model: none runs a call of the agent, each runs its own.

The agent looks something up by its own tool, asks the client for the weather, and answers. What was
looked up is a line in a file, so that a second look would be seen.

The libraries are imported by the tests: every worker reads this file, and few run it.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.agent_upstream import Chunks, agent_upstream, call, calls, text
from tests.agent_workers import HeldScript
from tests.gateway_process import Gateway, gateway

SHOP = '''
import pathlib, weft
FOLDER = pathlib.Path(__file__).parent

@weft.tool(retry="pure")
def look(order: str) -> str:
    """Looks up an order."""
    with (FOLDER / "looks").open("a") as file:
        file.write(order + "\\n")
    return f"{order} goes to Prague"
'''
SETTINGS = """
[store]
url = "sqlite:///clients.db"
lease = {lease}
[workers]
lease = {lease}
[upstreams.m]
dialect = "openai-chat"
base_url = {upstream}
[agents.helper]
model = "m/m"
tools = ["clients_shop:look"]
"""
_orders = count(1)


def script(messages: list[dict[str, Any]]) -> Chunks:
    """Looks up the order that the user names, asks for the weather, and says what both said."""
    results = [one["content"] for one in messages if one["role"] == "tool"]
    if not results:
        asked = json.dumps(messages)
        order = asked[asked.index("order-") :].partition(".")[0]
        return calls(call(0, "a", "look", {"order": order}))
    if len(results) == 1 and "weather" in json.dumps(messages):
        return calls(call(0, "b", "weather", {"city": "Prague"}))
    return text(" and ".join(str(one) for one in results))


def new_order() -> str:
    return f"order-{next(_orders)}"


@dataclass
class Shop:
    served: Gateway
    folder: Path

    def looked(self, order: str) -> int:
        return (self.folder / "looks").read_text().split().count(order)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("clients")
    (folder / "clients_shop.py").write_text(SHOP)
    with agent_upstream(script) as upstream:
        settings = SETTINGS.format(upstream=json.dumps(upstream.url), lease=15.0)
        with gateway(settings, folder) as served:
            yield Shop(served, folder)


def question(order: str) -> str:
    return f"What is the weather for {order}. Ask."


def answer(order: str) -> str:
    return f"{order} goes to Prague and Sunny in Prague"


# OpenAI's Agents SDK


@pytest.mark.parametrize("kind", ["OpenAIResponsesModel", "OpenAIChatCompletionsModel"])
@pytest.mark.parametrize("streamed", [False, True])
def test_the_agents_sdk_runs_only_its_own_tool(kind: str, streamed: bool, shop: Shop) -> None:
    import agents
    from agents import Agent, RunConfig, Runner, function_tool

    order, ran = new_order(), []

    @function_tool
    def weather(city: str) -> str:
        """The weather in a city."""
        ran.append(city)
        return f"Sunny in {city}"

    async def talk() -> str:
        client = openai.AsyncOpenAI(base_url=f"{shop.served.url}/v1", api_key="-", max_retries=0)
        async with client:
            model = getattr(agents, kind)(model="helper", openai_client=client)
            agent = Agent(name="a", model=model, tools=[weather])
            quiet = RunConfig(tracing_disabled=True)
            if not streamed:
                return str(
                    (await Runner.run(agent, question(order), run_config=quiet)).final_output
                )
            result = Runner.run_streamed(agent, question(order), run_config=quiet)
            async for _ in result.stream_events():
                pass
            return str(result.final_output)

    assert asyncio.run(talk()) == answer(order)
    assert (ran, shop.looked(order)) == (["Prague"], 1)


# LangChain


def chat_model(url: str, responses: bool) -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(
        model="helper",
        base_url=f"{url}/v1",
        api_key="-",  # type: ignore[arg-type]
        max_retries=0,
        use_responses_api=responses,
    )


def messages_model(url: str) -> Any:
    from langchain_anthropic import ChatAnthropic

    given: dict[str, Any] = {"model": "helper", "base_url": url, "api_key": "-", "max_tokens": 4096}
    return ChatAnthropic(max_retries=0, **given)


LANGCHAIN: dict[str, Callable[[str], Any]] = {
    "chat": lambda url: chat_model(url, False),
    "responses": lambda url: chat_model(url, True),
    "anthropic": messages_model,
}


# Its types have the blocks of server-run calls only in the beta; it reads and returns them as sent.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
@pytest.mark.parametrize("kind", LANGCHAIN)
@pytest.mark.parametrize("streamed", [False, True])
def test_langchain_runs_only_its_own_tool(kind: str, streamed: bool, shop: Shop) -> None:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_core.tools import tool

    @tool
    def weather(city: str) -> str:
        """The weather in a city."""
        return f"Sunny in {city}"

    order = new_order()
    model = LANGCHAIN[kind](shop.served.url).bind_tools([weather])
    said: list[Any] = [HumanMessage(question(order))]
    wanted: list[list[str]] = []
    while not wanted or wanted[-1]:
        if streamed:
            message: Any = None
            for piece in model.stream(said):
                message = piece if message is None else message + piece
        else:
            message = model.invoke(said)
        assert isinstance(message, AIMessage)
        said.append(message)
        wanted.append([one["name"] for one in message.tool_calls])
        assert message.invalid_tool_calls == []
        said += [
            ToolMessage(weather.invoke(one["args"]), tool_call_id=one["id"])
            for one in message.tool_calls
        ]
    assert wanted == [["weather"], []]
    assert (message.text, shop.looked(order)) == (answer(order), 1)


# A kill


@pytest.mark.long
def test_the_openai_sdk_resumes_the_stream_of_an_agent_across_a_kill(tmp_path: Path) -> None:
    """The model has not answered when the gateway dies: the run goes on, and so does its stream."""
    held = HeldScript(script, turn=0)
    (tmp_path / "clients_shop.py").write_text(SHOP)
    with agent_upstream(held) as upstream:
        # Only that of the one that is killed need expire soon.
        brief, settings = (
            SETTINGS.format(upstream=json.dumps(upstream.url), lease=lease) for lease in (1.0, 15.0)
        )
        with gateway(brief, tmp_path) as first:
            client = openai.OpenAI(base_url=f"{first.url}/v1", api_key="-", max_retries=0)
            made = client.responses.create(model="helper", input="Find order-1.", background=True)
            asyncio.run(held.arrived(1))
            first.process.kill()
            first.process.wait()
        with gateway(settings, tmp_path) as second:
            client = openai.OpenAI(base_url=f"{second.url}/v1", api_key="-", max_retries=0)
            held.let_go()
            told: list[Any] = []
            for event in client.responses.retrieve(made.id, stream=True):
                told.append(event)
                if event.type == "response.output_item.done":
                    break
            last = told[-1].sequence_number
            told += client.responses.retrieve(made.id, stream=True, starting_after=last)
            numbers = [one.sequence_number for one in told]
            assert numbers == sorted(set(numbers))
            assert told[-1].type == "response.completed"
            assert told[-1].response.output_text == "order-1 goes to Prague"
            assert [one.type for one in told[-1].response.output] == ["mcp_call", "message"]
            runs = httpx.get(f"{second.url}/v1/runs").json()["data"]
            assert [one["status"] for one in runs] == ["finished"]
    assert (tmp_path / "looks").read_text() == "order-1\n"
