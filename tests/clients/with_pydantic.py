"""pydantic-ai: agents with typed tools and outputs."""

from functools import cache
from typing import Any

from pydantic_ai import Agent, NativeOutput, PromptedOutput
from pydantic_ai.messages import ThinkingPart
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients import with_anthropic, with_openai
from tests.clients.case import Case, Forecast, Outcome


@cache
def _openai(base: str, key: str) -> OpenAIProvider:
    return OpenAIProvider(openai_client=with_openai.client(base, key))


@cache
def _anthropic(base: str, key: str) -> AnthropicProvider:
    return AnthropicProvider(anthropic_client=with_anthropic.client(base, key))


async def chat(case: Case) -> Outcome:
    model = OpenAIChatModel(case.model, provider=_openai(case.base, case.key))
    settings = {"openai_reasoning_effort": "low"} if case.thinks else {}
    return await _run(case, model, settings)


async def responses(case: Case) -> Outcome:
    profile = OpenAIModelProfile(
        openai_supports_encrypted_reasoning_content=True, openai_supports_reasoning=True
    )
    model = OpenAIResponsesModel(
        case.model, provider=_openai(case.base, case.key), profile=profile if case.thinks else None
    )
    settings: dict[str, Any] = {"openai_store": False}
    if case.thinks:
        settings |= {"openai_reasoning_effort": "low", "openai_reasoning_summary": "auto"}
    return await _run(case, model, settings)


async def messages(case: Case) -> Outcome:
    profile = ModelProfile(supports_json_schema_output=True)
    model = AnthropicModel(
        case.model,
        provider=_anthropic(case.base, case.key),
        profile=profile if case.shaped else None,
    )
    settings: dict[str, Any] = {"max_tokens": 4096}
    if case.thinks:
        settings["anthropic_thinking"] = {"type": "enabled", "budget_tokens": 2048}
    return await _run(case, model, settings)


async def _run(case: Case, model: Model, settings: dict[str, Any]) -> Outcome:
    def weather(city: str) -> str:
        """The weather in a city."""
        return case.weather(city)

    def clock(zone: str) -> str:
        """The time in a zone."""
        return case.clock(zone)

    shape: Any = NativeOutput(Forecast) if case.stream else Forecast
    if case.json_mode:
        shape = PromptedOutput(Forecast)
    agent: Agent[None, Any] = Agent(
        model,
        instructions="Be brief.",
        tools=[weather, clock] if case.tools else [],
        output_type=shape if case.shaped else str,
        retries=0,
    )
    history: list[Any] = []
    for prompt in case.prompts:
        said, response, usage, history = await _asked(case, agent, settings, prompt, history)
    thoughts = [part for part in response.parts if isinstance(part, ThinkingPart)]
    return Outcome(
        said.model_dump_json() if case.shaped else said,
        "".join(part.content for part in thoughts),
        said if case.shaped else None,
        (usage.input_tokens, usage.output_tokens),
    )


async def _asked(
    case: Case, agent: Any, settings: Any, prompt: str, history: list[Any]
) -> tuple[Any, Any, Any, list[Any]]:
    """The output, the last response, the usage and the messages of a run.

    `run_stream` ends at the first text, so runs with tools are followed with a handler of events.
    """
    given = {"model_settings": settings, "message_history": history}
    if case.stream and not case.tools:
        async with agent.run_stream(prompt, **given) as result:
            if not case.shaped:
                async for _ in result.stream_text(delta=True, debounce_by=None):
                    case.heard()
            said = await result.get_output()
            return said, result.response, result.usage, result.all_messages()

    async def follow(_: object, events: Any) -> None:
        async for _event in events:
            case.heard()

    handler = follow if case.stream else None
    result = await agent.run(prompt, event_stream_handler=handler, **given)
    return result.output, result.response, result.usage, result.all_messages()
