"""A tool session: the response waits for tool outputs, and is continued with them.

Each call is announced once, and answered once: equal submissions count as one.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

import httpx

client = httpx.Client(
    base_url=os.environ.get("WEFT_URL", "http://127.0.0.1:8787"),
    headers={"authorization": f"Bearer {os.environ.get('WEFT_KEY', 'client')}"},
    timeout=60,
    trust_env=False,
)


def events(path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    with client.stream("POST", path, json=body) as response:
        if response.status_code != 200:
            raise SystemExit(response.read().decode())
        for line in response.iter_lines():
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))


request = {
    "model": os.environ.get("MODEL", "demo/tools"),
    "input": "What is the weather in Paris?",
    "include": ["required_action"],
    "stream": True,
    "tools": [
        {
            "type": "function",
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        }
    ],
}
response: dict[str, Any] = {}
calls: list[dict[str, Any]] = []
for event in events("/v1/responses", request):
    if event["type"] == "response.output_item.done" and event["item"]["type"] == "function_call":
        calls.append(event["item"])
        print(f"call {event['item']['call_id']}: {event['item']['name']}")
    response = event.get("response", response)
print(f"-- {response['id']}: {response['status']}")

outputs = [{"tool_call_id": call["call_id"], "output": "21 degrees"} for call in calls]
path = f"/v1/responses/{response['id']}/submit_tool_outputs"
for event in events(path, {"tool_outputs": outputs, "stream": True}):
    if event["type"] == "response.output_text.delta":
        print(event["delta"], end="", flush=True)
    response = event.get("response", response)
print(f"\n-- {response['id']}: {response['status']}")
