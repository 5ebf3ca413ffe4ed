"""Parses a Messages request body into a canonical request.

A `system` string becomes the instructions. `system` blocks become one system message each, so that
each keeps its cache control. Blocks that only this API has are kept unparsed.
"""

from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.anthropic_messages.requests import schema
from weft.dialects.anthropic_messages.requests.options import WIRE_PATHS
from weft.dialects.anthropic_messages.requests.parse_messages import (
    parse_blocks,
    parse_system_block,
)
from weft.dialects.anthropic_messages.requests.parse_tools import parse_tool_choice, parse_tools
from weft.dialects.anthropic_messages.wire import NAME
from weft.dialects.requests.codec import Parsed, SourcePaths
from weft.dialects.requests.fields import check_body, exact_reader, is_json_object, read_object
from weft.dialects.requests.passthrough import with_source
from weft.dialects.requests.unknown_fields import UNKNOWN_ROLE, collect, remaining
from weft.errors import BadRequest
from weft.parts import Json
from weft.request import (
    Effort,
    Message,
    OpaqueContent,
    OutputFormat,
    ReasoningOptions,
    Request,
    Sampling,
    TextContent,
)

S = TypeVar("S", bound=msgspec.Struct)

_read_message = exact_reader(schema.MessageParam)
_ROLES = frozenset({"user", "assistant", "system"})
_EFFORTS: dict[str | None, Effort] = {effort: effort for effort in schema.EFFORTS.values()}
_TIERS = {wire: canonical for canonical, wire in schema.SERVICE_TIERS.items()}
_SUMMARIES = {"summarized": "auto", "omitted": "none", None: None}
_json = msgspec.json.Encoder().encode


def parse(body: bytes, context: Context) -> Parsed:
    """Raises BadRequest for a body that no request of this API can have."""
    # Unknown fields never fail a request: the API adds them behind beta headers, and a request that
    # stays in this dialect is sent in its own bytes anyway.
    check_body(body)
    source = read_object(body, schema.MessagesRequest)
    source_paths = SourcePaths(WIRE_PATHS)
    extra = remaining(body, schema.MessagesRequest)
    messages, source_messages = _parse_messages(source, context.origin or NAME, source_paths)
    tool_choice, parallel = parse_tool_choice(source.tool_choice, extra)
    cache, unknown = schema.parse_cache_control(source.cache_control, "")
    output_config = _parse_nested(source.output_config, schema.OutputConfig, "output_config", extra)
    metadata = _parse_nested(source.metadata, schema.Metadata, "metadata", extra)
    request = Request(
        source.model,
        dialect=NAME,
        instructions=source.system if isinstance(source.system, str) else None,
        messages=messages,
        tools=parse_tools(source, source_paths),
        tool_choice=tool_choice,
        parallel_tool_calls=parallel,
        max_output_tokens=source.max_tokens,
        sampling=Sampling(source.temperature, source.top_p, source.top_k),
        stop=tuple(source.stop_sequences or ()),
        output=_parse_output_format(output_config, extra),
        reasoning=_parse_reasoning(source.thinking, output_config, extra, source_paths),
        stream=bool(source.stream),
        service_tier=_TIERS.get(source.service_tier or "", source.service_tier),
        user=metadata.user_id if metadata else None,
        cache=cache,
        # Last: parsing the output format and the thinking adds to it.
        extra=collect(extra, unknown),
    )
    pairs = zip(messages, source_messages, strict=True)
    first = next((message for message, raw in pairs if raw is not None), None)
    # The bytes are kept beside the canonical request, so that keys, order and number formats reach
    # the upstream unchanged: its prompt cache and its signatures depend on them.
    if first is None or first.role != "system":  # one at the head is rendered into `system`
        request = with_source(request, body, source_messages)
    return Parsed(request, source_paths)


def _parse_nested(raw: Json, shape: type[S], path: str, extra: dict[str, Raw]) -> S | None:
    """Parses an optional object of the body; its unknown keys go to `extra`."""
    present = schema.non_null(raw)
    if present is None:
        return None
    parsed = read_object(present, shape, path)
    extra |= remaining(present, shape, under=path)
    return parsed


def _parse_messages(
    body: schema.MessagesRequest, origin: str, source_paths: SourcePaths
) -> tuple[tuple[Message, ...], list[Raw | None]]:
    """Returns the messages, and for each the bytes it may be sent in again, if there are any."""
    messages: list[Message] = []
    sources: list[Raw | None] = []
    # Blocks of `system` come first, so all indexes of canonical messages are shifted by them.
    for index, raw in enumerate(body.system if isinstance(body.system, list) else ()):
        path = f"system[{index}]"
        source_paths[f"messages[{index}]"] = path
        source_paths[f"messages[{index}].content[0]"] = path
        messages.append(Message("system", (parse_system_block(raw, path),)))
        sources.append(None)
    for index, raw in enumerate(body.messages):
        path, canonical = f"messages[{index}]", f"messages[{len(messages)}]"
        source_paths[canonical] = path
        message = _read_message(raw)
        extra: Json = UNSET
        if message is None:
            # A role that is newer than this table goes through to the same dialect, and nowhere
            # else.
            if read_object(raw, schema.RoleField, path).role not in _ROLES:
                source_paths[f"{canonical}.content[0]"] = f"{path}.role"
                messages.append(Message("user", (OpaqueContent(NAME, UNKNOWN_ROLE, raw),)))
                sources.append(raw)
                continue
            message = read_object(raw, schema.MessageParam, path)
            extra = collect(remaining(raw, schema.MessageParam))
        if isinstance(message.content, str) and message.content:
            source_paths[f"{canonical}.content[0]"] = f"{path}.content"
            messages.append(Message(message.role, (TextContent(message.content),), extra=extra))
            sources.append(raw)
            continue
        if message.content is None and message.role != "system":
            raise BadRequest(f"{path}.content", "is required")
        parsed = parse_blocks(message.content or [], path, message.role, origin)
        for number, block_path in enumerate(parsed.paths):
            source_paths[f"{canonical}.content[{number}]"] = block_path
        messages.append(Message(message.role, tuple(parsed.contents), extra=extra))
        # The envelope of a foreign signature is Weft's own and never leaves it.
        sources.append(None if parsed.holds_foreign_signature else raw)
    return tuple(messages), sources


def _parse_output_format(config: schema.OutputConfig | None, extra: dict[str, Raw]) -> OutputFormat:
    path = "output_config.format"
    raw = schema.non_null(config.format if config else UNSET)
    if raw is None:
        return OutputFormat()
    # Kept as unknown: other dialects refuse the request, because the output would have another
    # form.
    if read_object(raw, schema.TypeField, path).type != "json_schema":
        extra[path] = raw
        return OutputFormat()
    output_format = read_object(raw, schema.JsonOutputFormat, path)
    extra |= remaining(raw, schema.JsonOutputFormat, under=path)
    if not is_json_object(output_format.schema):
        raise BadRequest(f"{path}.schema", "expected an object")
    return OutputFormat("json-schema", schema=output_format.schema)


def _parse_reasoning(
    raw: Json, config: schema.OutputConfig | None, extra: dict[str, Raw], source_paths: SourcePaths
) -> ReasoningOptions | None:
    requested = config.effort if config else None
    effort = _EFFORTS.get(requested)
    # An effort that is newer than this table is for this API alone.
    if requested is not None and effort is None:
        extra["output_config.effort"] = Raw(_json(requested))
    present = schema.non_null(raw)
    if present is None:
        return None if effort is None else ReasoningOptions(effort)
    thinking = read_object(present, schema.ThinkingConfigParam, "thinking")
    summary = _SUMMARIES.get(thinking.display)
    unknown: dict[str, Raw] = {}
    if thinking.display not in _SUMMARIES:
        unknown["display"] = Raw(_json(thinking.display))
    match thinking.type:
        # The form for models before adaptive thinking.
        case "enabled":
            if thinking.budget_tokens is None:
                raise BadRequest("thinking.budget_tokens", "is required with type enabled")
            rest = collect(remaining(present, schema.ThinkingConfigParam), unknown)
            return ReasoningOptions(effort, thinking.budget_tokens, False, summary, rest)
        # The model itself decides how much it thinks, guided by the effort.
        case "adaptive":
            rest = collect(remaining(present, schema.TypeField, "display"), unknown)
            return ReasoningOptions(effort, None, True, summary, rest)
        case "disabled":
            source_paths["reasoning.effort"] = "thinking.type"
            rest_fields = remaining(present, schema.TypeField)
            if effort is not None:  # it then applies to the answer, and is kept for this API only
                rest_fields["effort"] = Raw(_json(effort))
            return ReasoningOptions("none", extra=collect(rest_fields))
        case _:  # a type that only this API has
            extra["thinking"] = present
            return None if effort is None else ReasoningOptions(effort)
