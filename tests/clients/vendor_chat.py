"""A vendor of Chat Completions that wants its reasoning back with the calls it led to."""

import json
from typing import Any

from openai.types.chat import completion_create_params as params

from tests.clients.vendor import (
    LAST_THOUGHT,
    Asked,
    Handed,
    Memory,
    Object,
    Refusal,
    Returned,
    Said,
    arguments_match,
    line,
    only,
    pieces,
    result_matches,
    strict_schema,
)

DIALECT = "openai-chat"
IDS = ("call_",)
OVERLOADED = 503

KNOWN = {*params.CompletionCreateParamsBase.__annotations__, "stream"}
# `annotations`, `parsed`, `index` and `parsed_arguments` come back from the official client, whose
# users append its messages as they are.
MESSAGE = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {
        "role", "content", "name", "refusal", "audio", "tool_calls", "function_call",
        "reasoning_content", "reasoning_details", "annotations", "parsed",
    },
    "tool": {"role", "content", "tool_call_id"},
}  # fmt: skip
USAGE: Object = {
    "prompt_tokens": 21,
    "completion_tokens": 9,
    "total_tokens": 30,
    "prompt_tokens_details": {"cached_tokens": 5, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 3,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}


def read(body: Object, headers: dict[str, str], memory: Memory) -> Asked:
    only(KNOWN, body, "")
    asked = Asked()
    for number, tool in enumerate(body.get("tools") or []):
        asked.tools.append(_tool(tool, f"tools[{number}]"))
    asked.shape = _shape(body.get("response_format"))
    _messages(body["messages"], memory, asked)
    return asked


def _tool(tool: Object, where: str) -> str:
    if tool.get("type") != "function":
        raise Refusal(f"Invalid value: '{tool.get('type')}'.", f"{where}.type")
    only({"type", "function"}, tool, f"{where}.")
    function = tool["function"]
    only({"name", "description", "parameters", "strict"}, function, f"{where}.function.")
    if function.get("strict"):
        strict_schema(function["parameters"], f"{where}.function.parameters")
    return str(function["name"])


def _shape(wanted: Object | None) -> str:
    match wanted:
        case None | {"type": "text"}:
            return ""
        case {"type": "json_object"}:
            return "object"
        case {"type": "json_schema", "json_schema": {"name": str(), "schema": schema, **rest}}:
            if rest.get("strict"):
                strict_schema(schema, "response_format.json_schema.schema")
            return "schema"
    raise Refusal("Invalid response_format.", "response_format")


def _messages(messages: list[Object], memory: Memory, asked: Asked) -> None:
    """Every call is answered once, right after it, before anything else is said."""
    open_calls: dict[str, Handed] = {}
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        role = message.get("role")
        if role not in MESSAGE:
            raise Refusal(f"Invalid value: '{role}'.", f"{where}.role")
        only(MESSAGE[role], message, f"{where}.")
        if role == "tool":
            handed = open_calls.pop(message["tool_call_id"], None)
            if handed is None:
                raise Refusal(
                    "Invalid parameter: messages with role 'tool' must be a response to a "
                    "preceding message with 'tool_calls'.",
                    f"{where}.role",
                )
            text = _text(message["content"], where)
            result_matches(handed, text)
            asked.results.append(Returned(handed.id, text))
            continue
        _all_answered(open_calls, where)
        if message.get("content") is None and not message.get("tool_calls"):
            raise Refusal("Invalid value for 'content': expected a string, got null.", where)
        if role == "assistant":
            open_calls = _assistant(message, where, memory, asked)
    _all_answered(open_calls, "messages")


def _all_answered(open_calls: dict[str, Handed], where: str) -> None:
    if open_calls:
        raise Refusal(
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            f"to each 'tool_call_id'. These are without one: {', '.join(open_calls)}",
            where,
        )


def _assistant(message: Object, where: str, memory: Memory, asked: Asked) -> dict[str, Handed]:
    found: dict[str, Handed] = {}
    for call in message.get("tool_calls") or ():
        only({"id", "type", "function", "index"}, call, f"{where}.tool_calls.")
        handed = memory.call(call["id"])
        if handed.id in found:
            raise Refusal(f"Duplicate value for 'tool_call_id' of '{handed.id}'", where)
        function = call["function"]
        only({"name", "arguments", "parsed_arguments"}, function, f"{where}.tool_calls.function.")
        arguments_match(handed, function["name"], json.loads(function["arguments"]))
        found[handed.id] = handed
    if not found:
        asked.said.append(_text(message["content"], where))
        back = message.get("reasoning_content") == LAST_THOUGHT
        asked.proofs.append("returned" if back else "missing")
    else:
        asked.steps += 1
        first = next(iter(found.values()))
        thought = first.thought
        if first.hidden and _proofs(message) != _proofs({"reasoning_details": _details(first)}):
            raise Refusal(
                "The reasoning_details of a call must be passed back as they were.",
                f"{where}.reasoning_details",
            )
        if thought and message.get("reasoning_content") != thought:
            raise Refusal(
                "Missing `reasoning_content` field in the assistant message: the reasoning of a "
                "call must be passed back.",
                f"{where}.reasoning_content",
            )
        if thought:
            asked.proofs.append("returned")
    return found


def _details(handed: Handed) -> list[Object]:
    """The reasoning of a call as a router of many models tells it."""
    text = {"type": "reasoning.text", "text": handed.thought, "signature": handed.proof}
    encrypted = {"type": "reasoning.encrypted", "data": handed.hidden, "id": handed.reasoning_id}
    return [
        {**text, "format": "anthropic-claude-v1", "index": 0},
        {**encrypted, "format": "anthropic-claude-v1", "index": 1},
    ]


def _proofs(message: Object) -> list[tuple[str | None, ...]]:
    keys = ("type", "text", "signature", "data")
    details = message.get("reasoning_details") or ()
    return [tuple(detail.get(key) for key in keys) for detail in details]


def _text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    for part in content:
        if part.get("type") != "text":
            raise Refusal("Only text is allowed in a tool message.", f"{where}.content")
    return "".join(part["text"] for part in content)


# Answers


def _message(said: Said) -> Object:
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.plan.name, "arguments": call.plan.json},
        }
        for call in said.calls
    ]
    message: Object = {"role": "assistant", "content": said.text or None, "refusal": None}
    if said.thought:
        message["reasoning_content"] = said.thought
    if said.hidden:
        message["reasoning_details"] = _details(said.calls[0])
    if calls:
        message["tool_calls"] = calls
    return message | {"annotations": []}


def _head(said: Said, model: str, memory: Memory, object: str) -> Object:
    return {
        "id": memory.mint("chatcmpl-"),
        "object": object,
        "created": 1_763_000_000,
        "model": f"{model}-2026",
    }


def _reason(said: Said) -> str:
    return "tool_calls" if said.calls else "stop"


def whole(said: Said, model: str, memory: Memory, body: Object) -> Object:
    choice = {"index": 0, "message": _message(said), "logprobs": None}
    return {
        **_head(said, model, memory, "chat.completion"),
        "choices": [{**choice, "finish_reason": _reason(said)}],
        "usage": USAGE,
        "service_tier": "default",
        "system_fingerprint": "fp_44709d6fcb",
    }


def stream(said: Said, model: str, memory: Memory, body: Object) -> list[str]:
    counted = bool((body.get("stream_options") or {}).get("include_usage"))
    head = _head(said, model, memory, "chat.completion.chunk")
    head |= {"service_tier": "default", "system_fingerprint": "fp_44709d6fcb"}

    def chunk(delta: Object, reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        usage = {"usage": None} if counted else {}
        return f"data: {line({**head, 'choices': [choice], **usage})}\n\n"

    first: Object = {"role": "assistant", "content": None if said.calls else "", "refusal": None}
    frames = [chunk(first)]
    frames += [chunk({"content": None, **one}) for one in _thoughts(said)]
    frames += [chunk({"content": one}) for one in pieces(said.text)]
    frames += [chunk({"tool_calls": [entry]}) for entry in _entries(said)]
    frames.append(chunk({}, _reason(said)))
    if counted:
        frames.append(f"data: {line({**head, 'choices': [], 'usage': USAGE})}\n\n")
    return [*frames, "data: [DONE]\n\n"]


def _thoughts(said: Said) -> list[Object]:
    """The pieces of the reasoning; details say the text once more, and their proofs behind it."""
    told: list[Object] = [{"reasoning_content": one} for one in pieces(said.thought)]
    if not said.hidden:
        return told
    text, encrypted = _details(said.calls[0])
    signature = {key: value for key, value in text.items() if key != "text"}
    bare = {key: value for key, value in text.items() if key != "signature"}
    told = [
        {**one, "reasoning_details": [{**bare, "text": one["reasoning_content"]}]} for one in told
    ]
    return [*told, {"reasoning_details": [signature]}, {"reasoning_details": [encrypted]}]


def _entries(said: Said) -> list[Object]:
    """The pieces of the calls; those of parallel ones take turns."""
    opened: list[Object] = [
        {
            "index": index,
            "id": call.id,
            "type": "function",
            "function": {"name": call.plan.name, "arguments": ""},
        }
        for index, call in enumerate(said.calls)
    ]
    texts = [pieces(call.plan.json, 4) for call in said.calls]
    longest = max((len(one) for one in texts), default=0)
    return opened + [
        {"index": index, "function": {"arguments": one[place]}}
        for place in range(longest)
        for index, one in enumerate(texts)
        if place < len(one)
    ]


KINDS = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
    503: ("server_error", "overloaded"),
}


def error(status: int, message: str, param: str | None = None) -> Object:
    kind, code = KINDS[status]
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def broken(message: str, frames: list[str]) -> list[str]:
    """The end of a stream that fails after these frames."""
    return [f"data: {line(error(OVERLOADED, message))}\n\n"]


def authorised(headers: dict[str, str], key: str) -> bool:
    return headers.get("authorization") == f"Bearer {key}"
