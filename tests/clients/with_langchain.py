"""LangChain: chat models with bound tools, and the loop around them."""

from functools import cache
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from tests.clients.case import Case, Forecast, Outcome


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    raise NotImplementedError


@tool
def clock(zone: str) -> str:
    """The time in a zone."""
    raise NotImplementedError


@cache
def _openai(base: str, key: str, model: str, responses: bool, thinks: bool) -> Any:
    given: dict[str, Any] = {}
    if thinks and responses:
        given["reasoning"] = {"effort": "low", "summary": "auto"}
        given["include"] = ["reasoning.encrypted_content"]
    elif thinks:
        given["reasoning_effort"] = "low"
    if responses:
        given |= {"store": False, "output_version": "responses/v1"}
    return ChatOpenAI(
        model=model,
        base_url=f"{base}/v1",
        api_key=key,  # type: ignore[arg-type]
        max_retries=0,
        timeout=20,
        stream_usage=True,
        use_responses_api=responses,
        **given,
    )


@cache
def _anthropic(base: str, key: str, model: str, thinks: bool) -> Any:
    given: dict[str, Any] = {"model": model, "base_url": base, "api_key": key, "max_tokens": 4096}
    if thinks:
        given["thinking"] = {"type": "enabled", "budget_tokens": 2048}
    return ChatAnthropic(max_retries=0, timeout=20, **given)


async def chat(case: Case) -> Outcome:
    return await _run(case, _openai(case.base, case.key, case.model, False, case.thinks))


async def responses(case: Case) -> Outcome:
    return await _run(case, _openai(case.base, case.key, case.model, True, case.thinks))


async def messages(case: Case) -> Outcome:
    return await _run(case, _anthropic(case.base, case.key, case.model, case.thinks))


async def _run(case: Case, model: Any) -> Outcome:
    said: list[Any] = [SystemMessage("Be brief.")]
    if case.shaped:
        given: dict[str, Any] = {"method": "json_mode"} if case.json_mode else {}
        said.append(HumanMessage(case.prompt))
        return await _shaped(case, model.with_structured_output(Forecast, **given), said)
    bound = model.bind_tools([weather, clock]) if case.tools else model
    for prompt in case.prompts:
        said.append(HumanMessage(prompt))
        message = await _turns(case, bound, said)
    usage: Any = message.usage_metadata or {}
    thoughts = [block for block in message.content_blocks if block["type"] == "reasoning"]
    return Outcome(
        message.text,
        "".join(block.get("reasoning", "") for block in thoughts),
        usage=(usage["input_tokens"], usage["output_tokens"]) if usage else None,
    )


async def _turns(case: Case, model: Any, said: list[Any]) -> AIMessage:
    """Answers calls until there are none."""
    while True:
        message = await _turn(case, model, said)
        assert message.invalid_tool_calls == []
        said.append(message)
        if not message.tool_calls:
            return message
        for call in message.tool_calls:
            result = case.run(call["name"], call["args"])
            said.append(ToolMessage(result, tool_call_id=call["id"]))


async def _turn(case: Case, model: Any, said: list[Any]) -> AIMessage:
    message: Any = None
    if not case.stream:
        message = await model.ainvoke(said)
    else:
        async for chunk in model.astream(said):
            message = chunk if message is None else message + chunk
            if chunk.text:
                case.heard()
    found: AIMessage = message
    return found


async def _shaped(case: Case, model: Any, said: list[Any]) -> Outcome:
    value: Any = None
    if case.stream:
        async for value in model.astream(said):  # noqa: B007
            case.heard()
    else:
        value = await model.ainvoke(said)
    return Outcome(value=value)
