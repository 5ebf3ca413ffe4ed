"""Messages with the Anthropic SDK: a streamed answer, and a tool that the model calls."""

import os

from anthropic import Anthropic
from anthropic.types import MessageParam, ToolParam, ToolResultBlockParam

client = Anthropic(
    base_url=os.environ.get("WEFT_URL", "http://127.0.0.1:8787"),
    api_key=os.environ.get("WEFT_KEY", "client"),
)
model = os.environ.get("MODEL", "demo/tools")
weather: ToolParam = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
messages: list[MessageParam] = [{"role": "user", "content": "What is the weather in Paris?"}]

with client.messages.stream(
    model=model, max_tokens=1000, messages=messages, tools=[weather]
) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)
    answer = stream.get_final_message()

results: list[ToolResultBlockParam] = []
for block in answer.content:
    if block.type == "tool_use":
        print(f"-- call {block.id}: {block.name}({block.input})")
        results.append({"type": "tool_result", "tool_use_id": block.id, "content": "21 degrees"})

messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
final = client.messages.create(model=model, max_tokens=1000, messages=messages, tools=[weather])
print("".join(block.text for block in final.content if block.type == "text"))
print(f"-- {final.stop_reason}")
