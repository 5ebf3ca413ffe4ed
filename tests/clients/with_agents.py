"""openai-agents: the runner makes the loop, over either API of OpenAI."""

from typing import Any

from agents import (
    Agent,
    Model,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from openai.types.shared import Reasoning

from tests.clients.case import ABOUT, Case, Forecast, Outcome
from tests.clients.with_openai import client

QUIET = RunConfig(tracing_disabled=True)


async def chat(case: Case) -> Outcome:
    model = OpenAIChatCompletionsModel(
        case.model,
        client(case.base, case.key),
        should_replay_reasoning_content=lambda _: True,  # what its users set for such hosts
    )
    settings = ModelSettings(include_usage=True)
    if case.thinks:
        settings = settings.resolve(ModelSettings(reasoning=Reasoning(effort="low")))
    return await _run(case, model, settings)


async def responses(case: Case) -> Outcome:
    settings = ModelSettings(store=False)
    if case.thinks:
        reasoning = Reasoning(effort="low", summary="auto")
        include: Any = ["reasoning.encrypted_content"]
        settings = ModelSettings(store=False, reasoning=reasoning, response_include=include)
    return await _run(case, OpenAIResponsesModel(case.model, client(case.base, case.key)), settings)


async def _run(case: Case, model: Model, settings: ModelSettings) -> Outcome:
    def weather(city: str) -> str:
        return case.weather(city)

    def clock(zone: str) -> str:
        return case.clock(zone)

    tools = [
        function_tool(one, description_override=ABOUT[one.__name__]) for one in (weather, clock)
    ]
    agent = Agent(
        name="Helper",
        instructions="Be brief.",
        model=model,
        model_settings=settings,
        tools=list(tools) if case.tools else [],
        output_type=Forecast if case.shaped else None,
    )
    given: Any = []
    for prompt in case.prompts:
        result = await _asked(case, agent, [*given, {"role": "user", "content": prompt}])
        given = result.to_input_list()
    usage = result.context_wrapper.usage
    raw = [item.raw_item for item in result.new_items if item.type == "reasoning_item"]
    said = result.final_output
    return Outcome(
        said.model_dump_json() if case.shaped else said,
        "".join(part.text for part in [*raw[-1].summary, *(raw[-1].content or ())]) if raw else "",
        said if case.shaped else None,
        (usage.input_tokens, usage.output_tokens),
    )


async def _asked(case: Case, agent: Agent[None], given: Any) -> Any:
    result: Any
    if case.stream:
        result = Runner.run_streamed(agent, given, run_config=QUIET)
        try:
            async for event in result.stream_events():
                if (
                    getattr(getattr(event, "data", None), "type", "")
                    == "response.output_text.delta"
                ):
                    case.heard()
        finally:
            result.cancel()
    else:
        result = await Runner.run(agent, given, run_config=QUIET)
    return result
