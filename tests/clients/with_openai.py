"""The openai package, as its documentation shows it: a loop over tool calls by hand."""

import json
from typing import Any

from openai import AsyncOpenAI

from tests.clients.case import ABOUT, PARAMETERS, Case, Forecast, Outcome

_clients: dict[tuple[str, str], AsyncOpenAI] = {}


def client(base: str, key: str) -> AsyncOpenAI:
    """One for each place: clients keep their connections."""
    if (base, key) not in _clients:
        _clients[base, key] = AsyncOpenAI(
            base_url=f"{base}/v1", api_key=key, max_retries=0, timeout=20
        )
    return _clients[base, key]


async def close() -> None:
    while _clients:
        _, kept = _clients.popitem()
        await kept.close()


# Chat Completions

CHAT_TOOLS: Any = [
    {
        "type": "function",
        "function": {"name": name, "description": ABOUT[name], "parameters": schema},
    }
    for name, schema in PARAMETERS.items()
]


async def chat(case: Case) -> Outcome:
    messages: list[Any] = [{"role": "system", "content": "Be brief."}]
    asked: dict[str, Any] = {"model": case.model, "messages": messages}
    if case.tools:
        asked["tools"] = CHAT_TOOLS
    if case.thinks:
        asked["reasoning_effort"] = "low"
    if case.shaped:
        asked["response_format"] = {"type": "json_object"} if case.json_mode else Forecast
    for prompt in case.prompts:
        messages.append({"role": "user", "content": prompt})
        completion = await _chat_turns(case, asked)
    message = completion.choices[0].message
    usage = completion.usage
    return Outcome(
        message.content or "",
        getattr(message, "reasoning_content", ""),
        _parsed(case, message.content, getattr(message, "parsed", None)),
        (usage.prompt_tokens, usage.completion_tokens),
    )


def _parsed(case: Case, text: str, parsed: Any) -> Any:
    """The object of an answer: in JSON mode the user parses it."""
    return Forecast.model_validate_json(text) if case.json_mode else parsed


async def _chat_turns(case: Case, asked: dict[str, Any]) -> Any:
    """Answers calls until there are none."""
    while True:
        completion = await _chat_turn(case, asked)
        message = completion.choices[0].message
        asked["messages"].append(message)
        if not message.tool_calls:
            return completion
        for call in message.tool_calls:
            result = case.run(call.function.name, json.loads(call.function.arguments))
            asked["messages"].append({"role": "tool", "tool_call_id": call.id, "content": result})


async def _chat_turn(case: Case, asked: dict[str, Any]) -> Any:
    completions = client(case.base, case.key).chat.completions
    if not case.stream:
        whole: Any = completions.parse if case.shaped and not case.json_mode else completions.create
        return await whole(**asked)
    counted: dict[str, Any] = {"stream_options": {"include_usage": True}}
    async with completions.stream(**asked, **counted) as stream:
        async for event in stream:
            if event.type == "content.delta":
                case.heard()
        return await stream.get_final_completion()


# Responses

RESPONSES_TOOLS: Any = [
    {
        "type": "function",
        "name": name,
        "description": ABOUT[name],
        "parameters": schema,
        "strict": True,
    }
    for name, schema in PARAMETERS.items()
]


async def responses(case: Case) -> Outcome:
    items: list[Any] = []
    asked: dict[str, Any] = {
        "model": case.model,
        "instructions": "Be brief.",
        "input": items,
        "store": False,
    }
    if case.tools:
        asked["tools"] = RESPONSES_TOOLS
    if case.thinks:
        asked["reasoning"] = {"effort": "low", "summary": "auto"}
        asked["include"] = ["reasoning.encrypted_content"]
    if case.json_mode:
        asked["text"] = {"format": {"type": "json_object"}}
    elif case.shaped:
        asked["text_format"] = Forecast
    for prompt in case.prompts:
        items.append({"role": "user", "content": prompt})
        response = await _responses_turns(case, asked)
    thoughts = [item for item in response.output if item.type == "reasoning"]
    return Outcome(
        response.output_text,
        "".join(part.text for item in thoughts for part in [*item.summary, *(item.content or ())]),
        _parsed(case, response.output_text, getattr(response, "output_parsed", None)),
        (response.usage.input_tokens, response.usage.output_tokens),
    )


async def _responses_turns(case: Case, asked: dict[str, Any]) -> Any:
    """Answers calls until there are none."""
    while True:
        response = await _responses_turn(case, asked)
        asked["input"] += response.output
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response
        for call in calls:
            result = case.run(call.name, json.loads(call.arguments))
            output = {"type": "function_call_output", "call_id": call.call_id, "output": result}
            asked["input"].append(output)


async def _responses_turn(case: Case, asked: dict[str, Any]) -> Any:
    made = client(case.base, case.key).responses
    if not case.stream:
        whole: Any = made.parse if "text_format" in asked else made.create
        return await whole(**asked)
    async with made.stream(**asked) as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                case.heard()
        return await stream.get_final_response()
