"""Parses a Responses body into a request."""

from typing import get_args

from msgspec import Raw

from weft import large_json
from weft.context import Context
from weft.dialects.openai_responses.requests import schema
from weft.dialects.openai_responses.requests.options import WIRE_PATHS
from weft.dialects.openai_responses.requests.parse_items import ResponsesItemParser
from weft.dialects.openai_responses.requests.parse_tools import parse_tool_choice, parse_tools
from weft.dialects.openai_responses.wire import NAME
from weft.dialects.requests.codec import Parsed, SourcePaths
from weft.dialects.requests.fields import (
    check_body,
    declared_names,
    read_object,
    undeclared_fields,
)
from weft.dialects.requests.openai_family import CACHE_OF_RETENTION
from weft.dialects.requests.passthrough import with_source
from weft.dialects.requests.unknown_fields import collect, remaining, without_empty
from weft.errors import BadRequest
from weft.parts import Json
from weft.request import Effort, OutputFormat, ReasoningOptions, Request, Sampling

# An effort that this API adds later is kept for it in `extra`, instead of being refused here.
_EFFORTS: dict[str, Effort] = {effort: effort for effort in get_args(Effort)}


_NAMES = declared_names(schema.ResponseCreateParams)
_TEXT = OutputFormat()
_INSTEAD_OF_INPUT = frozenset(("previous_response_id", "conversation", "prompt"))


def parse(data: bytes, context: Context) -> Parsed:
    """Parses a body. Raises BadRequest for one that no Responses server could answer."""
    check_body(data)
    body = read_object(data, schema.ResponseCreateParams)
    paths = SourcePaths(WIRE_PATHS)
    items = ResponsesItemParser(context, paths)
    fields = large_json.members(data)
    if body.input is None and _INSTEAD_OF_INPUT.isdisjoint(fields):
        hint = " (Chat Completions calls it messages)" if "messages" in fields else ""
        names = ", ".join(sorted(_INSTEAD_OF_INPUT))
        raise BadRequest("input", f"missing{hint}; without it, one of {names} is needed")
    # A plain string is one user message.
    if isinstance(body.input, str):
        items.add_text(body.input)
    for number, raw in enumerate(body.input if isinstance(body.input, list) else ()):
        items.add(raw, f"input[{number}]")
    extra = _extra(fields, body)
    request = Request(
        body.model,
        dialect=NAME,
        messages=tuple(items.messages),
        instructions=body.instructions,
        tools=parse_tools(body, items.messages, paths),
        tool_choice=parse_tool_choice(body.tool_choice, extra),
        parallel_tool_calls=body.parallel_tool_calls,
        max_tool_calls=body.max_tool_calls,
        max_output_tokens=body.max_output_tokens,
        sampling=_sampling(body),
        output=_output(body.text.format, extra) if body.text else _TEXT,
        verbosity=body.text.verbosity if body.text else None,
        reasoning=_reasoning(fields, body.reasoning) if body.reasoning else None,
        stream=bool(body.stream),
        include=tuple(body.include or ()),
        store=body.store,
        background=bool(body.background),
        previous_response_id=body.previous_response_id,
        truncation=body.truncation,
        service_tier=body.service_tier,
        metadata=body.metadata,
        user=body.user,
        safety_identifier=body.safety_identifier,
        prompt_cache_key=body.prompt_cache_key,
        cache=CACHE_OF_RETENTION.get(body.prompt_cache_retention or ""),
        # Last: the tool choice and the output format add to `extra` what they cannot express.
        extra=collect(extra),
    )
    return Parsed(with_source(request, data, items.sources), paths)


def _extra(fields: dict[str, Raw], body: schema.ResponseCreateParams) -> dict[str, Raw]:
    extra: dict[str, Raw] = {}
    if not _NAMES.issuperset(fields):
        extra = without_empty({key: raw for key, raw in fields.items() if key not in _NAMES})
    # Checked here, so that anything but an object is a bad request and not an internal error later.
    if "stream_options" in extra:
        read_object(extra["stream_options"], schema.ResponsesStreamOptions, "stream_options")
    retention = body.prompt_cache_retention
    # A retention that nobody here knows is still the upstream's to judge.
    if retention is not None and retention not in CACHE_OF_RETENTION:
        extra["prompt_cache_retention"] = schema.to_raw(retention)
    # Unknown keys of `text` are kept under a dotted path, apart from its format and verbosity.
    if body.text is not None:
        extra |= remaining(fields["text"], schema.TextParam, under="text")
    return extra


def _sampling(body: schema.ResponseCreateParams) -> Sampling:
    # Log probabilities are asked for in either of two ways: a number of alternatives, or `include`.
    without_logprobs = not body.top_logprobs and schema.INCLUDE_LOGPROBS not in (body.include or ())
    return Sampling(
        temperature=body.temperature,
        top_p=body.top_p,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        logprobs=None if without_logprobs else body.top_logprobs or 0,
    )


def _output(raw: Json, extra: dict[str, Raw]) -> OutputFormat:
    """Returns the output format. A format of unknown type goes to `extra`."""
    if not isinstance(raw, Raw) or bytes(raw) == b"null":
        return OutputFormat()
    # `json_object` is not in the specification's request, only in its echo; the original API takes
    # it.
    type = read_object(raw, schema.ItemHeader, "text.format").type
    if type == "json_object":
        return OutputFormat("json")
    if type != "json_schema":
        extra |= {} if type == "text" else {"text.format": raw}
        return OutputFormat()
    format = read_object(raw, schema.TextFormatParam, "text.format")
    if format.name is None or not isinstance(format.schema, Raw):
        missing = "name" if format.name is None else "schema"
        raise BadRequest(
            f"text.format.{missing}", "missing; a json_schema format has a name and a schema"
        )
    return OutputFormat(
        "json-schema", format.name, format.description, format.schema, format.strict
    )


def _reasoning(fields: dict[str, Raw], param: schema.ReasoningParam) -> ReasoningOptions:
    """Returns the reasoning options. Fields and effort levels that only this dialect knows go to
    `extra`.
    """
    extra = without_empty(undeclared_fields(fields["reasoning"], schema.ReasoningParam))
    effort = _EFFORTS.get(param.effort or "")
    if param.effort and effort is None:
        extra["effort"] = schema.to_raw(param.effort)
    # `generate_summary` is the deprecated name.
    return ReasoningOptions(
        effort, summary=param.summary or param.generate_summary, extra=collect(extra)
    )
