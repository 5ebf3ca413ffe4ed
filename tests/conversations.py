"""Conversations over every wire: what upstreams stream, what clients keep of it and ask next.

The clients read the JSON themselves and share no code with the decoders.
"""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

import weft
from weft.dialects import DIALECTS, DialectName
from weft.findings import Findings

Object = dict[str, Any]
Result = tuple[str, str, str]
"""The id, the name and the text of a result."""

CHAT: Final = "openai-chat"
RESPONSES: Final = "openai-responses"
MESSAGES: Final = "anthropic-messages"
GEMINI: Final = "gemini"
UI: Final = "ai-sdk"
ASKED: tuple[DialectName, ...] = (CHAT, RESPONSES, MESSAGES, GEMINI)
"""The dialects that have requests and bodies."""
WRITTEN = (*ASKED, UI)

# Upstreams: streams as each wire sends them


def sse(*events: Object) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def chat(*deltas: Object, reason: str = "stop", usage: Object | None = None) -> bytes:
    head: Object = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m-1"}
    chunks = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    end = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    counted = [{**head, "choices": [], "usage": usage}] if usage else []
    return sse(*chunks, end, *counted) + b"data: [DONE]\n\n"


def entry(index: int, arguments: str, id: str | None = None, name: str | None = None) -> Object:
    """The delta of one entry of `tool_calls`."""
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    known = {} if id is None else {"id": id, "type": "function"}
    return {"tool_calls": [{"index": index, **known, "function": function}]}


def message(
    *blocks: Object, reason: str = "end_turn", usage: Object | None = None, stops: int = 1
) -> bytes:
    """A stream of these blocks; what deltas bring is taken out of them."""
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": []}
    counted = {"input_tokens": 3, "output_tokens": 1}
    events: list[Object] = [{"type": "message_start", "message": {**start, "usage": counted}}]
    for index, block in enumerate(blocks):
        bare, deltas = streamed(block)
        events.append({"type": "content_block_start", "index": index, "content_block": bare})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": reason, "stop_sequence": None}
    told = usage or {"output_tokens": 9}
    events.append({"type": "message_delta", "delta": delta, "usage": told})
    return sse(*events, *[{"type": "message_stop"}] * stops)


def streamed(block: Object) -> tuple[Object, list[Object]]:
    match block:
        case {"type": "text", "text": text}:
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": text}]
        case {"type": "thinking", "thinking": text, "signature": signature}:
            said = [{"type": "thinking_delta", "thinking": text}] if text else []
            proof = {"type": "signature_delta", "signature": signature}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*said, proof]
        case {"type": "tool_use", "input": given}:
            delta = {"type": "input_json_delta", "partial_json": json.dumps(given)}
            return {**block, "input": {}}, [delta]
    return block, []


def responses(*items: Object, status: str = "completed", **terminal: Any) -> bytes:
    body = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m-1", "output": []}
    events: list[Object] = [
        {"type": "response.created", "response": {**body, "status": "in_progress"}}
    ]
    for index, item in enumerate(items):
        events += [
            {"type": f"response.output_item.{when}", "output_index": index, "item": item}
            for when in ("added", "done")
        ]
    whole = {**body, "status": status, "output": [*items], **terminal}
    events.append({"type": f"response.{status}", "response": whole})
    return sse(*({**event, "sequence_number": n} for n, event in enumerate(events)))


def contents(*frames: list[Object], reason: str | None = "STOP", **last: Any) -> bytes:
    """A frame for each list of parts; the last one has the reason, and what else is given."""
    head = {"responseId": "r", "modelVersion": "m-1"}
    said: list[Object] = [
        {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}], **head}
        for parts in frames
    ]
    if reason is not None:
        said[-1]["candidates"][0]["finishReason"] = reason
        said[-1].update(last)
    return sse(*said)


SAID: Object = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "a", "annotations": []}],
}
TEXT: Object = {"type": "text", "text": "a"}


def fc(number: int, arguments: str) -> Object:
    """An item whose two ids cannot be taken for each other."""
    ids = {"id": f"fc_{number}", "call_id": f"call_{number}"}
    return {
        "type": "function_call",
        **ids,
        "name": "look",
        "arguments": arguments,
        "status": "completed",
    }


def use(id: str, at: int) -> Object:
    return {"type": "tool_use", "id": id, "name": "look", "input": {"at": at}}


# Clients: what each keeps of an answer, and asks next


def events_of(raw: bytes) -> list[Object]:
    """The events of a stream. Fails on data that is no JSON: half a frame, or two in one."""
    lines = [line[6:] for line in raw.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def kept_by_chat(events: list[Object]) -> list[Object]:
    kept: Object = {"role": "assistant", "content": None}
    calls: dict[int, Object] = {}
    for delta in [choice["delta"] for event in events for choice in event["choices"]]:
        for key in ("content", "refusal", "reasoning_content"):
            if delta.get(key):
                kept[key] = (kept.get(key) or "") + delta[key]
        if "reasoning_details" in delta:
            kept.setdefault("reasoning_details", []).extend(delta["reasoning_details"])
        for one in delta.get("tool_calls", ()):
            if "id" in one:
                assert one["index"] == len(calls)
                calls[one["index"]] = {key: one[key] for key in one if key != "index"}
            else:
                calls[one["index"]]["function"]["arguments"] += one["function"]["arguments"]
    return [{**kept, "tool_calls": list(calls.values())} if calls else kept]


def kept_by_responses(events: list[Object]) -> list[Object]:
    """The items as they were done, which the terminal event repeats."""
    ended = [event for event in events if event["type"] == "response.output_item.done"]
    done = {event["output_index"]: event["item"] for event in ended}
    output = list(events[-1]["response"]["output"])
    assert [done[index] for index in range(len(ended))] == output
    return output


def kept_by_messages(events: list[Object]) -> list[Object]:
    """The blocks. Only the block that is open, the last one, may get deltas."""
    kept: list[Object] = []
    text = ""
    for event in events:
        if event["type"] == "content_block_start":
            assert event["index"] == len(kept)
            kept.append(dict(event["content_block"]))
            text = ""
        elif event["type"] == "content_block_delta":
            assert event["index"] == len(kept) - 1
            delta = event["delta"]
            key = delta["type"].removesuffix("_delta")
            if key == "input_json":
                text += delta["partial_json"]
            else:
                kept[-1][key] += delta[key]
        elif event["type"] == "content_block_stop" and kept[-1]["type"] == "tool_use":
            kept[-1]["input"] = json.loads(text)
    return kept


def kept_by_gemini(events: list[Object]) -> list[Object]:
    """All parts but the empty one that carries the reason of the end."""
    parts = [
        part
        for event in events
        for candidate in event["candidates"]
        for part in candidate["content"]["parts"]
    ]
    return [part for part in parts if part != {"text": ""}]


KEPT: dict[str, Callable[[list[Object]], list[Object]]] = {
    CHAT: kept_by_chat,
    RESPONSES: kept_by_responses,
    MESSAGES: kept_by_messages,
    GEMINI: kept_by_gemini,
}
IN_BODY: dict[str, Callable[[Object], list[Object]]] = {
    CHAT: lambda body: [body["choices"][0]["message"]],
    RESPONSES: lambda body: list(body["output"]),
    MESSAGES: lambda body: list(body["content"]),
    GEMINI: lambda body: list(body["candidates"][0]["content"]["parts"]),
}


def from_stream(raw: bytes, upstream: DialectName, client: DialectName) -> list[Object]:
    return KEPT[client](events_of(weft.convert(raw, upstream, client)))


def from_body(raw: bytes, upstream: DialectName, client: str) -> list[Object]:
    (answer,) = weft.decode_all(raw, upstream)
    write = DIALECTS[client].body
    assert write is not None
    return IN_BODY[client](json.loads(write(answer.response, weft.Context(), Findings())))


Turn = Callable[[bytes, str, str], list[Object]]
EITHER_WAY = pytest.mark.parametrize("turn", [from_stream, from_body])


def next_request(client: str, turn: list[Object], *results: Result) -> Object:
    """What the client asks next: all that was said, and the results."""
    match client:
        case "openai-chat":
            outputs: list[Object] = [
                {"role": "tool", "tool_call_id": id, "content": text} for id, _, text in results
            ]
            return {
                "model": "m-1",
                "messages": [{"role": "user", "content": "hi"}, *turn, *outputs],
            }
        case "openai-responses":
            outputs = [
                {"type": "function_call_output", "call_id": id, "output": text}
                for id, _, text in results
            ]
            return {"model": "m-1", "input": [{"role": "user", "content": "hi"}, *turn, *outputs]}
        case "anthropic-messages":
            outputs = [
                {"type": "tool_result", "tool_use_id": id, "content": text}
                for id, _, text in results
            ]
            said = [("user", "hi"), ("assistant", turn), ("user", outputs)]
            messages = [{"role": role, "content": content} for role, content in said]
            return {"model": "m-1", "max_tokens": 99, "messages": messages}
    outputs = [
        {"functionResponse": {"id": id, "name": name, "response": {"output": text}}}
        for id, name, text in results
    ]
    spoken = [("user", [{"text": "hi"}]), ("model", turn), ("user", outputs)]
    return {"contents": [{"role": role, "parts": parts} for role, parts in spoken]}


def translated(asked: Object, client: DialectName, upstream: DialectName, **context: Any) -> Object:
    raw = json.dumps(asked).encode()
    given = weft.Context(**context) if context else None
    body: Object = json.loads(weft.convert_request(raw, client, upstream, context=given).body)
    return body


CONVERSATION = {CHAT: "messages", RESPONSES: "input", MESSAGES: "messages", GEMINI: "contents"}


def answered(body: Object, dialect: str) -> list[Object]:
    """What a request says after the first message, which is the user's."""
    return list(body[CONVERSATION[dialect]][1:])


def assistant_turn(body: Object, dialect: str) -> list[Object]:
    """What the assistant said, as the wire writes it, without what answers it."""
    said = answered(body, dialect)
    match dialect:
        case "openai-chat":
            return [one for one in said if one["role"] == "assistant"]
        case "openai-responses":
            return [one for one in said if one.get("type") != "function_call_output"]
        case "anthropic-messages":
            return list(said[0]["content"])
    return list(said[0]["parts"])


def calls_in(turn: list[Object], dialect: str) -> list[tuple[str, str, Object]]:
    """The id, name and arguments of each call of a turn."""
    match dialect:
        case "openai-chat":
            (said,) = turn
            found = [(one["id"], one["function"]) for one in said.get("tool_calls", ())]
            return [(id, call["name"], json.loads(call["arguments"])) for id, call in found]
        case "openai-responses":
            items = [one for one in turn if one["type"] == "function_call"]
            return [(one["call_id"], one["name"], json.loads(one["arguments"])) for one in items]
        case "anthropic-messages":
            uses = [one for one in turn if one["type"] == "tool_use"]
            return [(one["id"], one["name"], one["input"]) for one in uses]
    calls = [one["functionCall"] for one in turn if "functionCall" in one]
    return [(one["id"], one["name"], one["args"]) for one in calls]


def results_in(body: Object, dialect: str) -> list[tuple[str, str]]:
    """The id and the text of each result of a request."""
    said = answered(body, dialect)
    match dialect:
        case "openai-chat":
            outputs = [one for one in said if one["role"] == "tool"]
            return [(one["tool_call_id"], one["content"]) for one in outputs]
        case "openai-responses":
            outputs = [one for one in said if one.get("type") == "function_call_output"]
            return [(one["call_id"], one["output"]) for one in outputs]
        case "anthropic-messages":
            blocks = [one for one in said[1]["content"] if one["type"] == "tool_result"]
            return [(one["tool_use_id"], one["content"]) for one in blocks]
    parts = [one["functionResponse"] for one in said[1]["parts"] if "functionResponse" in one]
    return [(one["id"], one["response"]["output"]) for one in parts]


def broken_rules(raw: bytes, dialect: DialectName) -> list[str]:
    """The rules that a stream of ours breaks. That nobody counted is no fault of the stream."""
    codes = [finding.code for finding in weft.check(raw, dialect=dialect)]
    return [code for code in codes if not code.endswith("/usage-missing")]
