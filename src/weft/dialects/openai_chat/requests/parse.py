"""Reads a Chat Completions body into a request."""

from typing import get_args

import msgspec
from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.asking.leftovers import kept
from weft.dialects.asking.verbatim import verbatim
from weft.dialects.asking.wording import RETAINED, legible, telling
from weft.dialects.openai_chat.requests import schema
from weft.dialects.openai_chat.requests.parse_messages import Messages
from weft.dialects.openai_chat.requests.parse_tools import choice_of, tools_of
from weft.dialects.openai_chat.wire import NAME
from weft.dialects.requests import Parsed, Places, keys_of, read, unknown
from weft.errors import BadRequest
from weft.parts import Json
from weft.request import Effort, OutputFormat, ReasoningOptions, Request, Sampling

FIELDS = {
    "max_output_tokens": "max_completion_tokens",
    "choices": "n",
    "output": "response_format",
    "output.schema": "response_format.json_schema.schema",
    "output.name": "response_format.json_schema.name",
    "output.strict": "response_format.json_schema.strict",
    "reasoning.effort": "reasoning_effort",
    "include_usage": "stream_options.include_usage",
    "cache": "prompt_cache_retention",
    "sampling.temperature": "temperature",
    "sampling.top_p": "top_p",
    "sampling.presence_penalty": "presence_penalty",
    "sampling.frequency_penalty": "frequency_penalty",
    "sampling.seed": "seed",
    "sampling.logit_bias": "logit_bias",
    "sampling.logprobs": "top_logprobs",
    "tool_choice.allowed": "tool_choice.allowed_tools.tools",
    "reasoning": "reasoning_effort",
    "reasoning.reasoning_effort": "reasoning_effort",
}
"""Where the fields of a request are in a body, if under another name."""

_EFFORTS: dict[str, Effort] = {effort: effort for effort in get_args(Effort)}


def parse(data: bytes, context: Context) -> Parsed:
    """Raises BadRequest for a body that no server of this wire could answer."""
    legible(data)
    body = read(data, schema.Body)
    places = Places({**FIELDS, **_spelled(body)})
    messages = Messages(context, places)
    for number, raw in enumerate(body.messages):
        messages.add(raw, f"messages[{number}]")
    extra = _extra(data, body, _stream_options(data))
    request = Request(
        body.model,
        dialect=NAME,
        messages=tuple(messages.found),
        tools=tools_of(body, places),
        tool_choice=choice_of(body, extra),
        parallel_tool_calls=body.parallel_tool_calls,
        max_output_tokens=_first(body.max_completion_tokens, body.max_tokens),
        sampling=_sampling(body),
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        output=_output(body.response_format, extra),
        verbosity=body.verbosity,
        reasoning=_reasoning(body.reasoning_effort),
        choices=_choices(body.n),
        stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        store=body.store,
        service_tier=body.service_tier,
        metadata=body.metadata,
        user=body.user,
        safety_identifier=body.safety_identifier,
        prompt_cache_key=body.prompt_cache_key,
        cache=RETAINED.get(body.prompt_cache_retention or ""),
    )
    request = msgspec.structs.replace(request, extra=kept(extra))
    return Parsed(verbatim(request, data, messages.sources), places)


def _first(one: int | None, other: int | None) -> int | None:
    return other if one is None else one


def _spelled(body: schema.Body) -> dict[str, str]:
    found: dict[str, str] = {}
    if body.max_completion_tokens is None and body.max_tokens is not None:
        found["max_output_tokens"] = "max_tokens"
    if body.top_logprobs is None:
        found["sampling.logprobs"] = "logprobs"
    return found


def _stream_options(data: bytes) -> Json:
    """The stream options that nobody else has."""
    raw = keys_of(Raw(data)).get("stream_options")
    return UNSET if raw is None or raw == Raw(b"null") else unknown(raw, schema.StreamOptions)


def _extra(data: bytes, body: schema.Body, options: Json) -> dict[str, Raw]:
    found = keys_of(telling(unknown(data, schema.Body)))
    if found.get("modalities") == Raw(b'["text"]'):
        del found["modalities"]
    if isinstance(options, Raw):
        found["stream_options"] = options
    retention = body.prompt_cache_retention
    if retention is not None and retention not in RETAINED:
        found["prompt_cache_retention"] = schema.raw(retention)
    return found


def _sampling(body: schema.Body) -> Sampling:
    if body.top_logprobs is not None and not body.logprobs:
        raise BadRequest("top_logprobs", "is only told with `logprobs: true`")
    bias = body.logit_bias
    return Sampling(
        temperature=body.temperature,
        top_p=body.top_p,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        seed=body.seed,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        logit_bias=Raw(msgspec.json.encode(bias)) if bias else UNSET,
    )


def _choices(count: int | None) -> int:
    if count is not None and count < 1:
        raise BadRequest("n", f"got {count}, expected at least 1")
    return count or 1


def _output(raw: Json, extra: dict[str, Raw]) -> OutputFormat:
    """The shape of the answer; one of a type that nobody knows is left over."""
    raw = schema.given(raw)
    if not isinstance(raw, Raw):
        return OutputFormat()
    kind = read(raw, schema.Typed, "response_format").type
    if kind == "json_object":
        return OutputFormat("json")
    if kind != "json_schema":
        extra |= {} if kind == "text" else {"response_format": raw}
        return OutputFormat()
    format = read(raw, schema.ResponseFormat, "response_format")
    shape = format.json_schema
    if shape is None:
        raise BadRequest("response_format.json_schema", "missing; expected an object")
    return OutputFormat(
        "json-schema", shape.name, shape.description, schema.given(shape.schema), shape.strict
    )


def _reasoning(effort: str | None) -> ReasoningOptions | None:
    """A word that is not among the efforts is one host's own."""
    if effort is None:
        return None
    known = _EFFORTS.get(effort)
    if known is not None:
        return ReasoningOptions(known)
    return ReasoningOptions(extra=Raw(msgspec.json.encode({"reasoning_effort": effort})))
