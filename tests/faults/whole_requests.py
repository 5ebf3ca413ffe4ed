"""A full valid request of each dialect, and every way to spoil one of its fields."""

import copy
from collections.abc import Iterator

from tests.faults.wires import CHAT, GEMINI, MESSAGES, RESPONSES, Object

Place = tuple[str | int, ...]

_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
_PNG = "iVBORw0KGgo="

_CHAT: Object = {
    "messages": [
        {"role": "system", "content": "Be brief.", "name": "boss"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Where?"},
                {
                    "type": "image_url",
                    "image_url": {"url": f"data:image/png;base64,{_PNG}", "detail": "low"},
                },
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "look", "arguments": '{"city":"Rome"}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        {"role": "assistant", "content": "Sunny.", "refusal": None},
        {"role": "user", "content": "And tomorrow?"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "look",
                "description": "looks",
                "parameters": _SCHEMA,
                "strict": True,
            },
        }
    ],
    "tool_choice": {"type": "function", "function": {"name": "look"}},
    "parallel_tool_calls": False,
    "response_format": {
        "type": "json_schema",
        "json_schema": {
            "name": "weather",
            "description": "of it",
            "schema": _SCHEMA,
            "strict": True,
        },
    },
    "temperature": 0.5,
    "top_p": 0.9,
    "max_completion_tokens": 100,
    "stop": ["END"],
    "seed": 7,
    "frequency_penalty": 0.1,
    "presence_penalty": 0.1,
    "logit_bias": {"50256": -100},
    "logprobs": True,
    "top_logprobs": 2,
    "n": 1,
    "user": "u1",
    "metadata": {"team": "a"},
    "store": False,
    "service_tier": "auto",
    "reasoning_effort": "low",
    "verbosity": "low",
    "modalities": ["text"],
    "prediction": {"type": "content", "content": "Sunny."},
    "stream": False,
    "stream_options": None,
}

_RESPONSES: Object = {
    "instructions": "Be brief.",
    "input": [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Where?"},
                {
                    "type": "input_image",
                    "image_url": f"data:image/png;base64,{_PNG}",
                    "detail": "low",
                },
            ],
        },
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "encrypted_content": "c2VjcmV0",
            "status": "completed",
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "look",
            "arguments": '{"city":"Rome"}',
            "status": "completed",
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Sunny.", "annotations": []}],
        },
        {"role": "user", "content": "And tomorrow?"},
    ],
    "tools": [
        {
            "type": "function",
            "name": "look",
            "description": "looks",
            "parameters": _SCHEMA,
            "strict": True,
        },
    ],
    "tool_choice": {"type": "function", "name": "look"},
    "parallel_tool_calls": False,
    "text": {
        "format": {"type": "json_schema", "name": "weather", "schema": _SCHEMA, "strict": True},
        "verbosity": "low",
    },
    "reasoning": {"effort": "low", "summary": "auto"},
    "temperature": 0.5,
    "top_p": 0.9,
    "max_output_tokens": 100,
    "max_tool_calls": 3,
    "metadata": {"team": "a"},
    "store": False,
    "truncation": "disabled",
    "include": ["reasoning.encrypted_content"],
    "user": "u1",
    "safety_identifier": "s1",
    "prompt_cache_key": "k1",
    "service_tier": "auto",
    "top_logprobs": 2,
    "background": False,
    "previous_response_id": None,
    "stream": False,
    "stream_options": {"include_obfuscation": False},
}

_MESSAGES: Object = {
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Where?"},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": _PNG},
                },
                {
                    "type": "document",
                    "title": "d",
                    "source": {"type": "text", "media_type": "text/plain", "data": "rain"},
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"city": "Rome"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "is_error": False,
                    "content": [{"type": "text", "text": "sunny"}],
                },
                {"type": "text", "text": "And tomorrow?"},
            ],
        },
    ],
    "tools": [{"name": "look", "description": "looks", "input_schema": _SCHEMA}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "max_tokens": 2000,
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "temperature": 1.0,
    "top_k": 5,
    "top_p": 0.95,
    "stop_sequences": ["END"],
    "metadata": {"user_id": "u1"},
    "service_tier": "auto",
    "container": None,
    "context_management": None,
    "mcp_servers": [],
    "output_config": {"effort": "low"},
    "stream": False,
}

_GEMINI: Object = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [
            {"text": "Where?"},
            {"inlineData": {"mimeType": "image/png", "data": _PNG}},
        ]},
        {"role": "model", "parts": [
            {"text": "hm", "thought": True},
            {"functionCall": {"id": "c1", "name": "look", "args": {"city": "Rome"}},
             "thoughtSignature": "c2ln"},
        ]},
        {"role": "user", "parts": [
            {"functionResponse": {"id": "c1", "name": "look", "response": {"result": "sunny"}}},
            {"text": "And tomorrow?"},
        ]},
    ],
    "tools": [{"functionDeclarations": [
        {"name": "look", "description": "looks", "parameters": {
            "type": "OBJECT", "properties": {"city": {"type": "STRING"}}, "required": ["city"]}},
    ]}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}},
    "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
    "generationConfig": {
        "temperature": 0.5, "topP": 0.9, "topK": 5, "maxOutputTokens": 100, "candidateCount": 1,
        "stopSequences": ["END"], "responseMimeType": "application/json",
        "responseSchema": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}},
        "seed": 7, "presencePenalty": 0.1, "frequencyPenalty": 0.1, "responseLogprobs": False,
        "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 100},
    },
}  # fmt: skip

WHOLE: dict[str, Object] = {
    CHAT: _CHAT,
    RESPONSES: _RESPONSES,
    MESSAGES: _MESSAGES,
    GEMINI: _GEMINI,
}
"""Without the model."""

_OWN: dict[str, frozenset[str]] = {
    CHAT: frozenset(
        ("logit_bias", "prediction", "logprobs", "top_logprobs", "parallel_tool_calls")
    ),
    RESPONSES: frozenset(("max_tool_calls", "top_logprobs", "parallel_tool_calls")),
}
"""What upstreams of other dialects cannot be told, and is refused."""


def whole(dialect: str, upstream: str) -> Object:
    """A full request that an upstream of this dialect answers."""
    own = frozenset() if upstream == dialect else _OWN.get(dialect, frozenset())
    return {name: value for name, value in WHOLE[dialect].items() if name not in own}


SPOILS: tuple[object, ...] = (
    None, True, -1, 2**63 - 1, 1.5, "", "x", [], {}, [None], [[]], {"": None},
)  # fmt: skip
"""What a field may be instead. Lone surrogates and large numbers are no JSON that can be made
from values; they are spelled in the bytes."""


def paths(value: object, here: Place = ()) -> Iterator[Place]:
    """The places of a value, outer ones first."""
    inner: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    for key, one in inner:
        yield (*here, key)
        yield from paths(one, (*here, key))


def spoiled(whole: Object, path: Place, value: object) -> Object:
    """A copy that has another value in one place."""
    made = copy.deepcopy(whole)
    place: object = made
    for key in path[:-1]:
        place = place[key]  # type: ignore[index]
    place[path[-1]] = value  # type: ignore[index]
    return made
