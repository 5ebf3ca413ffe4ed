"""Parses a Chat Completions body into a canonical request."""

from typing import get_args

from msgspec import UNSET, Raw

from weft import large_json
from weft.context import Context
from weft.dialects.openai_chat.requests import schema
from weft.dialects.openai_chat.requests.options import WIRE_PATHS
from weft.dialects.openai_chat.requests.parse_messages import ChatMessageParser
from weft.dialects.openai_chat.requests.parse_tools import parse_tool_choice, parse_tools
from weft.dialects.openai_chat.wire import NAME
from weft.dialects.requests.codec import Parsed, SourcePaths
from weft.dialects.requests.fields import check_body, declared_names, other_fields, read_object
from weft.dialects.requests.openai_family import CACHE_OF_RETENTION
from weft.dialects.requests.passthrough import with_source
from weft.dialects.requests.unknown_fields import collect, without_empty
from weft.errors import BadRequest
from weft.parts import Json
from weft.request import Effort, OutputFormat, ReasoningOptions, Request, Sampling

_NAMES = declared_names(schema.ChatRequestBody)
_EFFORTS: dict[str, Effort] = {effort: effort for effort in get_args(Effort)}


def parse(data: bytes, context: Context) -> Parsed:
    """Raises BadRequest for a body that no server of this dialect could answer."""
    # Before anything is decoded: later readers may assume UTF-8 and a bounded depth.
    check_body(data)
    body = read_object(data, schema.ChatRequestBody)
    places = _places(body)
    parser = ChatMessageParser(context, places)
    for number, raw in enumerate(body.messages):
        # One by one, from their bytes: those that are not changed go out as they came.
        parser.add(raw, f"messages[{number}]")
    if body.n is not None and body.n < 1:
        raise BadRequest("n", f"got {body.n}, expected at least 1")
    limit, effort = body.max_completion_tokens, body.reasoning_effort
    reasoning = ReasoningOptions(_EFFORTS[effort]) if effort in _EFFORTS else None
    if effort is not None and reasoning is None:  # one host's own
        reasoning = ReasoningOptions(extra=schema.to_raw({"reasoning_effort": effort}))
    fields = large_json.members(data)
    extra = _extra(fields, body)
    request = Request(
        body.model,
        dialect=NAME,
        messages=tuple(parser.messages),
        tools=parse_tools(body, places),
        tool_choice=parse_tool_choice(body, extra),
        parallel_tool_calls=body.parallel_tool_calls,
        # The deprecated key counts only where the other is missing.
        max_output_tokens=body.max_tokens if limit is None else limit,
        sampling=_sampling(body),
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        output=_output_format(body.response_format, extra),
        verbosity=body.verbosity,
        reasoning=reasoning,
        choices=body.n or 1,
        stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        store=body.store,
        service_tier=body.service_tier,
        metadata=body.metadata,
        user=body.user,
        safety_identifier=body.safety_identifier,
        prompt_cache_key=body.prompt_cache_key,
        cache=CACHE_OF_RETENTION.get(body.prompt_cache_retention or ""),
        # Last: parsing the tool choice and the output format may add to it.
        extra=collect(extra),
    )
    return Parsed(with_source(request, data, parser.sources), places)


def _places(body: schema.ChatRequestBody) -> SourcePaths:
    """Returns the paths of options in this body, which uses one of two keys for some."""
    paths = SourcePaths(WIRE_PATHS)
    # Losses are reported to the client by the key that it used.
    if body.max_completion_tokens is None and body.max_tokens is not None:
        paths["max_output_tokens"] = "max_tokens"
    if body.top_logprobs is None:
        paths["sampling.logprobs"] = "logprobs"
    return paths


def _extra(fields: dict[str, Raw], body: schema.ChatRequestBody) -> dict[str, Raw]:
    """Returns the keys, and the values of known keys, that a canonical request has no field for."""
    extra: dict[str, Raw] = {}
    if not _NAMES.issuperset(fields):
        extra = without_empty({key: raw for key, raw in fields.items() if key not in _NAMES})
    if extra.get("modalities") == Raw(b'["text"]'):  # the default
        del extra["modalities"]
    if body.stream_options is not None:
        unknown_options = other_fields(fields["stream_options"], schema.ChatStreamOptions)
        extra |= {"stream_options": unknown_options} if isinstance(unknown_options, Raw) else {}
    limit, deprecated_limit = body.max_completion_tokens, body.max_tokens
    if None not in (limit, deprecated_limit) and limit != deprecated_limit:
        extra["max_tokens"] = schema.to_raw(deprecated_limit)
    retention = body.prompt_cache_retention
    # A word of tomorrow is still passed on to hosts of this dialect.
    if retention is not None and retention not in CACHE_OF_RETENTION:
        extra["prompt_cache_retention"] = schema.to_raw(retention)
    return extra


def _sampling(body: schema.ChatRequestBody) -> Sampling:
    # API reference, `top_logprobs`.
    if body.top_logprobs is not None and not body.logprobs:
        raise BadRequest("top_logprobs", "requires `logprobs: true`")
    return Sampling(
        temperature=body.temperature,
        top_p=body.top_p,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        seed=body.seed,
        # 0: those of the chosen tokens only.
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        logit_bias=schema.to_raw(body.logit_bias) if body.logit_bias else UNSET,
    )


def _output_format(raw: Json, extra: dict[str, Raw]) -> OutputFormat:
    """Returns the format of the output. One of an unknown type is put into `extra` instead."""
    raw = schema.unless_null(raw)
    if not isinstance(raw, Raw):
        return OutputFormat()
    type = read_object(raw, schema.ChatTypeProbe, "response_format").type
    if type == "json_object":
        return OutputFormat("json")
    if type != "json_schema":
        extra |= {} if type == "text" else {"response_format": raw}
        return OutputFormat()
    output = read_object(raw, schema.ChatResponseFormat, "response_format").json_schema
    if output is None:
        raise BadRequest("response_format.json_schema", "missing; expected an object")
    return OutputFormat(
        "json-schema",
        output.name,
        output.description,
        schema.unless_null(output.schema),
        output.strict,
    )
