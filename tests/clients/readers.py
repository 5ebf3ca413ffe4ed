"""The official clients, over real HTTP: what each has in the end of a stream, or how it fails."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.serving import anthropic_client, openai_client, serving
from weft.assembler import Response
from weft.captures import decode_all
from weft.dialects import DialectName

HELLO: Any = [{"role": "user", "content": "hi"}]


@dataclass(frozen=True)
class Seen:
    """What a reader has in the end: the text, and each call as (id, name, arguments)."""

    text: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    raised: str = ""
    """What ended the reading, in its own words: an exception, or the error of the response."""


def told(raw: bytes, dialect: DialectName) -> Seen:
    """What Weft makes of the first response of a stream: the yardstick."""
    response: Response = decode_all(raw, dialect)[0].response
    calls = [*response.tool_calls, *response.invalid_tool_calls]
    own = [call for call in calls if not call.provider_executed]
    failed = response.error.kind if response.error else ""
    return Seen(response.text, tuple(_call(one.id, one.name, one.params) for one in own), failed)


def _call(id: str | None, name: str | None, arguments: str | None) -> tuple[str, str, str]:
    """A call; arguments that are JSON in one spelling, so that they can be compared."""
    with suppress(ValueError):
        arguments = json.dumps(json.loads(arguments or ""), separators=(",", ":"))
    return id or "", name or "", arguments or ""


def openai_chat(url: str) -> Seen:
    with (
        openai_client(url) as client,
        client.chat.completions.stream(model="m-1", messages=HELLO) as stream,
    ):
        stream.until_done()
        message: Any = stream.get_final_completion().choices[0].message
    calls = [
        _call(call.id, call.function.name, call.function.arguments)
        for call in message.tool_calls or []
    ]
    return Seen(message.content or "", tuple(calls))


def openai_responses(url: str) -> Seen:
    with (
        openai_client(url) as client,
        client.responses.stream(model="m-1", input="hi") as stream,
    ):
        stream.until_done()
        final: Any = stream.get_final_response()
    calls = [
        _call(item.call_id, item.name, item.arguments)
        for item in final.output
        if item.type == "function_call"
    ]
    return Seen(final.output_text, tuple(calls))


def anthropic_messages(url: str) -> Seen:
    with (
        anthropic_client(url) as client,
        client.messages.stream(model="m-1", max_tokens=9, messages=HELLO) as stream,
    ):
        stream.until_done()
        content: Any = stream.get_final_message().content
    text = "".join(block.text for block in content if block.type == "text")
    calls = [
        _call(block.id, block.name, json.dumps(block.input))
        for block in content
        if block.type == "tool_use"
    ]
    return Seen(text, tuple(calls))


READERS: dict[tuple[str, DialectName], Callable[[str], Seen]] = {
    ("openai-python", "openai-chat"): openai_chat,
    ("openai-python", "openai-responses"): openai_responses,
    ("anthropic-sdk-python", "anthropic-messages"): anthropic_messages,
}


def seen(client: str, dialect: DialectName, raw: bytes) -> Seen:
    """What a client has after a stream of these bytes."""
    with serving(raw) as url:
        try:
            return READERS[client, dialect](url)
        except Exception as problem:  # whatever it raises is what its user gets
            return Seen(raised=f"{type(problem).__name__}: {problem}")
