"""A stream that breaks and is resumed: no event is lost, and none comes twice."""

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


def events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    if response.status_code != 200:
        raise SystemExit(response.read().decode())
    for line in response.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


# In the background a response goes on without its client.
body = {
    "model": os.environ.get("MODEL", "demo/chat"),
    "input": "Say hello.",
    "background": True,
    "stream": True,
}
id, numbers, text = "", [], ""
with client.stream("POST", "/v1/responses", json=body) as response:
    for event in events(response):
        id = event.get("response", {}).get("id", id)
        numbers.append(event["sequence_number"])
        text += event["delta"] if event["type"] == "response.output_text.delta" else ""
        if len(numbers) == 10:
            break  # the connection is lost
print(f"lost the connection after event {numbers[-1]} of {id}")

path = f"/v1/responses/{id}?stream=true&starting_after={numbers[-1]}"
with client.stream("GET", path) as response:
    for event in events(response):
        numbers.append(event["sequence_number"])
        text += event["delta"] if event["type"] == "response.output_text.delta" else ""
print(text)
assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
assert text == client.get(f"/v1/responses/{id}").json()["output"][-1]["content"][0]["text"]
print(f"-- {len(numbers)} events, each once")
