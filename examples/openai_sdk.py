"""Responses and Chat Completions with the OpenAI SDK, streaming, from any upstream."""

import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("WEFT_URL", "http://127.0.0.1:8787") + "/v1",
    api_key=os.environ.get("WEFT_KEY", "client"),
)
model = os.environ.get("MODEL", "demo/chat")

with client.responses.stream(model=model, input="Say hello.") as stream:
    for event in stream:
        if event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
    response = stream.get_final_response()
print(f"\n-- {response.id}: {response.status}")

# The next turn: the gateway has the first one in its store.
second = client.responses.create(model=model, input="And again.", previous_response_id=response.id)
print(f"-- {second.id} continues {second.previous_response_id}")

chunks = client.chat.completions.create(
    model=model, messages=[{"role": "user", "content": "Say hello."}], stream=True
)
for chunk in chunks:
    print(chunk.choices[0].delta.content or "" if chunk.choices else "", end="", flush=True)
print()
