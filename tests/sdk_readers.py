"""What official clients make of the bytes of a stream: their own readers, without a network.

The openai and anthropic SDKs are asked as their users ask them; only the transport is ours. The
reader of Gemini is ours, and strict: each part counts as it comes, each call as one more call.
"""

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2
import openai
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCallFunction

from weft.sse import FrameReader

_EVENTS = {"content-type": "text/event-stream"}
HELLO: Any = [{"role": "user", "content": "hi"}]

Call = tuple[str, str, str]
"""Its id, its name, and its arguments: JSON in one spelling."""


@dataclass(frozen=True)
class Read:
    """What a client has in the end."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    finish: str | None = None
    raised: str = ""
    """What ended the reading, in its own words, or the error that the response holds."""


def spelled(arguments: str) -> str:
    """Arguments that are JSON in one spelling, so that they can be compared."""
    try:
        return json.dumps(
            json.loads(arguments.strip() or "{}"), separators=(",", ":"), sort_keys=True
        )
    except (ValueError, RecursionError):
        return arguments


PIECEMEAL = "(value by value)"
"""Arguments that were not read."""


class Official:
    """One client of each SDK; each answer is the bytes that `read` was given."""

    def __init__(self) -> None:
        self._raw = b""
        self._http = httpx2.Client(transport=httpx2.MockTransport(self._answer))
        own: Any = {"api_key": "none", "max_retries": 0}
        self._openai = openai.OpenAI(
            base_url="http://localhost/v1",
            http_client=self._http,
            **own,
        )
        self._anthropic = anthropic.Anthropic(
            base_url="http://localhost",
            http_client=self._http,
            **own,
        )
        self._readers: dict[str, Callable[[], Read]] = {
            "openai-chat": self._chat,
            "openai-responses": self._responses,
            "anthropic-messages": self._messages,
            "gemini": self._gemini,
        }

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers=_EVENTS, content=self._raw, request=request)

    def close(self) -> None:
        self._http.close()

    def read(self, dialect: str, raw: bytes) -> Read:
        """What a user of the client has after a stream of these bytes."""
        self._raw = raw
        try:
            with warnings.catch_warnings(action="ignore"):  # of values it did not expect
                return self._readers[dialect]()
        except Exception as problem:  # whatever it raises is what its user gets
            return Read(raised=f"{type(problem).__name__}: {problem}")

    def _chat(self) -> Read:
        state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
        chunks = self._openai.chat.completions.create(model="m", messages=HELLO, stream=True)
        custom: set[int] = set()
        for chunk in chunks:
            state.handle_chunk(_readable(chunk, custom))
        choice: Any = state.current_completion_snapshot.choices[0]
        message = choice.message
        calls = [
            (call.id, call.function.name, _chat_arguments(call.function.arguments, at in custom))
            for at, call in enumerate(message.tool_calls or [])
        ]
        return Read(message.content or "", tuple(calls), choice.finish_reason)

    def _responses(self) -> Read:
        with self._openai.responses.stream(model="m", input="hi") as stream:
            final: Any = None
            for event in stream:
                if event.type in ("response.completed", "response.incomplete", "response.failed"):
                    final = event.response
                if event.type == "error":
                    return Read(raised=f"error: {event.message}")
        if final is None:
            return Read(raised="RuntimeError: no terminal event")
        calls = [_item_call(item) for item in final.output if item.type in _CALLS]
        why = final.incomplete_details.reason if final.incomplete_details else final.status
        failed = f"failed: {final.error.message}" if final.error else ""
        return Read(final.output_text, tuple(calls), why, failed)

    def _messages(self) -> Read:
        with self._anthropic.messages.stream(model="m", max_tokens=9, messages=HELLO) as stream:
            stream.until_done()
            message: Any = stream.get_final_message()
        text = "".join(block.text for block in message.content if block.type == "text")
        calls = [
            (block.id, block.name, spelled(json.dumps(block.input)))
            for block in message.content
            if block.type == "tool_use"
        ]
        return Read(text, tuple(calls), message.stop_reason)

    def _gemini(self) -> Read:
        reader = FrameReader()
        text, finish = "", None
        calls: list[Call] = []
        open_call: list[dict[str, Any]] = []
        for frame in reader.feed(self._raw) + reader.finish():
            value = json.loads(frame.data)
            if "error" in value:
                raise ValueError(str(value["error"]["message"]))
            for candidate in value.get("candidates") or []:
                assert candidate.get("index", 0) == 0, "one candidate was asked for"
                finish = candidate.get("finishReason") or finish
                for part in (candidate.get("content") or {}).get("parts") or []:
                    if "text" in part and not part.get("thought"):
                        text += part["text"]
                    if "functionCall" in part:
                        _gemini_call(part["functionCall"], calls, open_call)
        assert not open_call, "a call was left open"
        return Read(text, tuple(calls), finish)


def _readable(chunk: Any, custom: set[int]) -> Any:
    """The chunk as the SDK's accumulator can add it up: it knows functions alone, so a call of a
    custom tool is told as one of those; and it raises for annotations in a second chunk, whoever
    wrote them."""
    for choice in chunk.choices:
        (choice.delta.model_extra or {}).pop("annotations", None)
        for call in choice.delta.tool_calls or []:
            if call.type == "custom":
                custom.add(call.index)
            told = (call.model_extra or {}).pop("custom", None)
            if call.index in custom and told:
                call.function = ChoiceDeltaToolCallFunction(
                    name=told.get("name"), arguments=told.get("input")
                )
    return chunk


def _chat_arguments(text: str, is_custom: bool) -> str:
    return text if is_custom else spelled(text)


_CALLS = ("function_call", "custom_tool_call")


def _item_call(item: Any) -> Call:
    if item.type == "custom_tool_call":
        return (item.call_id, item.name, item.input)
    return (item.call_id, item.name, spelled(item.arguments))


def _gemini_call(call: dict[str, Any], calls: list[Call], begun: list[dict[str, Any]]) -> None:
    """Whole, or value by value; then its arguments are not looked at."""
    first, spoken = begun[0] if begun else call, bool(begun) or "partialArgs" in call
    if call.get("willContinue"):
        begun[:] = [first]
        return
    begun.clear()
    arguments = PIECEMEAL if spoken else spelled(json.dumps(call.get("args") or {}))
    calls.append((first.get("id") or "", first["name"], arguments))
