"""The anthropic package: the assistant's content goes back as it came."""

from typing import Any

from anthropic import AsyncAnthropic

from tests.clients.case import ABOUT, PARAMETERS, Case, Forecast, Outcome

TOOLS: Any = [
    {"name": name, "description": ABOUT[name], "input_schema": schema}
    for name, schema in PARAMETERS.items()
]


_clients: dict[tuple[str, str], AsyncAnthropic] = {}


def client(base: str, key: str) -> AsyncAnthropic:
    """One for each place: clients keep their connections."""
    if (base, key) not in _clients:
        _clients[base, key] = AsyncAnthropic(base_url=base, api_key=key, max_retries=0, timeout=20)
    return _clients[base, key]


async def close() -> None:
    while _clients:
        _, kept = _clients.popitem()
        await kept.close()


async def messages(case: Case) -> Outcome:
    said: list[Any] = []
    asked: dict[str, Any] = {
        "model": case.model,
        "max_tokens": 4096,
        "system": "Be brief.",
        "messages": said,
    }
    if case.tools:
        asked["tools"] = TOOLS
    if case.thinks:
        asked["thinking"] = {"type": "enabled", "budget_tokens": 2048}
    if case.shaped:
        asked["output_format"] = Forecast
    for prompt in case.prompts:
        said.append({"role": "user", "content": prompt})
        message = await _turns(case, asked)
    usage = message.usage
    return Outcome(
        "".join(block.text for block in message.content if block.type == "text"),
        "".join(block.thinking for block in message.content if block.type == "thinking"),
        message.parsed_output if case.shaped else None,
        (usage.input_tokens + (usage.cache_read_input_tokens or 0), usage.output_tokens),
    )


async def _turns(case: Case, asked: dict[str, Any]) -> Any:
    """Answers calls until there are none."""
    while True:
        message = await _turn(case, asked)
        asked["messages"].append({"role": "assistant", "content": message.content})
        uses = [block for block in message.content if block.type == "tool_use"]
        if message.stop_reason != "tool_use":
            assert uses == []
            return message
        results = [
            {"type": "tool_result", "tool_use_id": use.id, "content": case.run(use.name, use.input)}
            for use in uses
        ]
        asked["messages"].append({"role": "user", "content": results})


async def _turn(case: Case, asked: dict[str, Any]) -> Any:
    made = client(case.base, case.key).messages
    if not case.stream:
        return await (made.parse if case.shaped else made.create)(**asked)
    async with made.stream(**asked) as stream:
        async for _ in stream.text_stream:
            case.heard()
        return await stream.get_final_message()
