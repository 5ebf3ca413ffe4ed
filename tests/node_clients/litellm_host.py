"""Runs one case a line with LiteLLM: JSON in, JSON out. It runs in an environment of its own."""

import asyncio
import json
import sys
from typing import Any

import litellm  # type: ignore[import-not-found]

litellm.suppress_debug_info = True
litellm.telemetry = False

KEYS = {"weather": "city", "clock": "zone"}
ABOUT = {"weather": "The weather in a city.", "clock": "The time in a zone."}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": ABOUT[name],
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string"}},
                "required": [key],
                "additionalProperties": False,
            },
        },
    }
    for name, key in KEYS.items()
]
PLACES = {"litellm-chat": ("openai", "/v1"), "litellm-anthropic": ("anthropic", "")}

THINKING: dict[str, dict[str, Any]] = {
    "openai": {"reasoning_effort": "low", "allowed_openai_params": ["reasoning_effort"]},
    "anthropic": {
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "max_tokens": 4096,
        "allowed_openai_params": ["thinking"],
    },
}


def run_tool(one: dict[str, Any], name: str, given: dict[str, Any]) -> str:
    one["ran"].append([name, given])
    return f"{given['city']}: 21 °C" if name == "weather" else f"{given['zone']}: 12:00"


async def asked(one: dict[str, Any], messages: list[Any]) -> Any:
    provider, below = PLACES[one["client"]]
    given: dict[str, Any] = {"tools": TOOLS} if one["tools"] else {}
    if one["thinks"]:
        given |= THINKING[provider]
    answer = await litellm.acompletion(
        model=f"{provider}/{one['model']}",
        api_base=one["base"] + below,
        api_key=one["key"],
        messages=messages,
        stream=one["stream"],
        max_retries=0,
        **given,
    )
    if not one["stream"]:
        return answer
    chunks = [chunk async for chunk in answer]
    return litellm.stream_chunk_builder(chunks, messages=messages)


async def run(one: dict[str, Any]) -> dict[str, Any]:
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": one["prompt"]},
    ]
    while True:
        message = (await asked(one, messages)).choices[0].message
        # A field of its own, which it adds to what was streamed, and which vendors do not take.
        messages.append(message.model_dump(exclude_none=True, exclude={"provider_specific_fields"}))
        if not message.tool_calls:
            return {
                "text": message.content,
                "thought": getattr(message, "reasoning_content", "") or "",
            }
        for call in message.tool_calls:
            result = run_tool(one, call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def main() -> None:
    out, sys.stdout = sys.stdout, sys.stderr  # answers are the only lines on stdout
    for line in sys.stdin:
        one = {**json.loads(line), "ran": []}
        outcome: dict[str, Any]
        try:
            outcome = {"outcome": asyncio.run(run(one))}
        except Exception as problem:  # whatever it raises is what its user gets
            status = getattr(problem, "status_code", None)
            outcome = {"error": {"message": str(problem), "status": status, "data": ""}}
        out.write(json.dumps({**outcome, "ran": one["ran"]}) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
