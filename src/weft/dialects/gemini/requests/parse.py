"""Parses a generateContent request body into a canonical request.

The model and whether to stream are in the URL; the endpoint fills them in.
"""

import msgspec
from msgspec import Raw

from weft.context import Context
from weft.dialects.gemini.requests import schema
from weft.dialects.gemini.requests.options import WIRE_PATHS
from weft.dialects.gemini.requests.parse_messages import PartParser
from weft.dialects.gemini.requests.parse_tools import parse_tool_choice, parse_tools
from weft.dialects.gemini.requests.schema_subset import to_json_schema
from weft.dialects.gemini.wire import NAME
from weft.dialects.requests.codec import Parsed, SourcePaths
from weft.dialects.requests.fields import check_body
from weft.dialects.requests.passthrough import with_source
from weft.dialects.requests.unknown_fields import UNKNOWN_ROLE, collect
from weft.errors import BadRequest
from weft.request import (
    Effort,
    Message,
    OpaqueContent,
    OutputFormat,
    ReasoningOptions,
    Request,
    Role,
    Sampling,
)

# The API has `user` and `model`; results had the role `function` in its older versions.
_ROLES: dict[str, Role] = {"user": "user", "model": "assistant", "function": "tool", "tool": "tool"}
_EFFORTS: dict[str, Effort] = {
    "MINIMAL": "minimal",
    "LOW": "low",
    "MEDIUM": "medium",
    "HIGH": "high",
}
_CONFIG, _THINKING = "generationConfig", "generationConfig.thinkingConfig"
_MODALITIES = "generationConfig.responseModalities"
_json = msgspec.json.Encoder().encode


def parse(body: bytes, context: Context) -> Parsed:
    """Raises BadRequest for a body that no request of this API can have."""
    try:
        return _parse(body, context)
    except RecursionError:
        # From any depth of the parser: the body is at fault, and a client is told so with a 400.
        raise BadRequest("", "nested too deeply") from None


def _parse(body: bytes, context: Context) -> Parsed:
    check_body(body)
    source, extra = schema.parse_object(body, schema.GenerateContentRequest)
    paths = SourcePaths(WIRE_PATHS)
    messages, source_messages = _parse_messages(source, context, paths)
    config = source.generation_config or schema.GenerationConfig()
    request = Request(
        source.model or "",
        dialect=NAME,
        messages=tuple(messages),
        tools=parse_tools(source.tools or [], paths),
        tool_choice=parse_tool_choice(source.tool_config, extra),
        max_output_tokens=config.max_output_tokens,
        sampling=_parse_sampling(config),
        stop=tuple(config.stop_sequences or ()),
        output=_parse_output(config, extra, paths),
        reasoning=_parse_reasoning(config.thinking_config, extra),
        choices=config.candidate_count or 1,
        stream=bool(source.stream),
    )
    # The default, written out: kept as an unknown field, it would be refused for other dialects.
    if bytes(extra.get(_MODALITIES, b"")).upper() == b'["TEXT"]':
        del extra[_MODALITIES]
    request = msgspec.structs.replace(request, extra=collect(extra))
    # A passthrough looks fields up by their names in camelCase.
    body = schema.with_camel_case_keys(body)
    return Parsed(with_source(request, body, source_messages), paths)


def _parse_messages(
    source: schema.GenerateContentRequest, context: Context, paths: SourcePaths
) -> tuple[list[Message], list[Raw | None]]:
    """Returns the messages, and for each the bytes it may be sent in again, if there are any."""
    parser = PartParser(context, paths)
    messages: list[Message] = []
    sources: list[Raw | None] = []
    instruction = schema.non_null(source.system_instruction)
    if instruction is not None:
        path = "systemInstruction"
        content, _ = schema.parse_object(instruction, schema.RequestContent, path)
        paths["messages[0]"] = path
        messages.append(Message("system", parser.parse(content.parts, path, "messages[0]")))
        sources.append(None)
    for index, raw in enumerate(source.contents or ()):
        path, canonical = f"contents[{index}]", f"messages[{len(messages)}]"
        content, unknown = schema.parse_object(raw, schema.RequestContent, path)
        role = _ROLES.get(content.role or "user")
        paths[canonical] = path
        if role is None:
            # Passed on where it came from, for a role that is newer than Weft; refused elsewhere.
            paths[f"{canonical}.content[0]"] = f"{path}.role"
            messages.append(Message("user", (OpaqueContent(NAME, UNKNOWN_ROLE, raw),)))
            sources.append(raw)
            continue
        parts = parser.parse(content.parts, path, canonical)
        messages.append(Message(role, parts, extra=collect(unknown)))
        # Bytes with an envelope are never sent on: an upstream would take it for a signature.
        sources.append(None if parser.foreign_signature else raw)
    return messages, sources


def _parse_sampling(config: schema.GenerationConfig) -> Sampling:
    top_k = config.top_k
    if top_k is not None and not top_k.is_integer():
        # The SDK has a float here; what the API takes is an integer.
        raise BadRequest(f"{_CONFIG}.topK", "expected an integer")
    # `responseLogprobs` turns them on, `logprobs` says how many: alone it is refused by the API.
    logprobs = config.logprobs
    if config.response_logprobs and logprobs is None:
        logprobs = 0
    if logprobs is not None and config.response_logprobs is None:
        raise BadRequest(f"{_CONFIG}.logprobs", "only allowed with responseLogprobs")
    return Sampling(
        config.temperature,
        config.top_p,
        None if top_k is None else int(top_k),
        config.presence_penalty,
        config.frequency_penalty,
        config.seed,
        logprobs if config.response_logprobs else None,
    )


def _parse_output(
    config: schema.GenerationConfig, extra: dict[str, Raw], paths: SourcePaths
) -> OutputFormat:
    subset = schema.non_null(config.response_schema)
    full = schema.non_null(config.response_json_schema)
    mime_type = config.response_mime_type
    if mime_type not in (None, "text/plain", schema.JSON_TYPE):  # such as text/x.enum
        # An enumeration has no canonical format: all three fields stay together, as they came.
        extra[f"{_CONFIG}.responseMimeType"] = Raw(_json(mime_type))
        if subset is not None:
            extra[f"{_CONFIG}.responseSchema"] = subset
        if full is not None:
            extra[f"{_CONFIG}.responseJsonSchema"] = full
        return OutputFormat()
    if full is not None and subset is not None:
        # API reference, GenerationConfig: they exclude each other. The host decides which counts;
        # other dialects have no place for a second schema, and refuse it.
        extra[f"{_CONFIG}.responseSchema"] = subset
    elif subset is not None:
        paths["output.schema"] = f"{_CONFIG}.responseSchema"
        full = to_json_schema(subset)
    if mime_type != schema.JSON_TYPE:
        if full is not None:
            detail = f"a schema requires {schema.JSON_TYPE}"
            raise BadRequest(f"{_CONFIG}.responseMimeType", detail)
        return OutputFormat()
    return OutputFormat("json") if full is None else OutputFormat("json-schema", schema=full)


def _parse_reasoning(
    config: schema.ThinkingConfig | None, extra: dict[str, Raw]
) -> ReasoningOptions | None:
    if config is None:
        return None
    effort = None
    if config.thinking_level is not None:
        effort = _EFFORTS.get(config.thinking_level.upper())
        if effort is None:
            extra[f"{_THINKING}.thinkingLevel"] = Raw(_json(config.thinking_level))
    budget = config.thinking_budget
    if budget is not None and budget < -1:
        detail = "expected a number of tokens, 0 to disable thinking, or -1 for no limit"
        raise BadRequest(f"{_THINKING}.thinkingBudget", detail)
    summary = None
    if config.include_thoughts is not None:
        summary = "auto" if config.include_thoughts else "none"
    # -1 lets the model decide, 0 disables thinking.
    adaptive = budget == -1
    return ReasoningOptions(effort, None if adaptive else budget, adaptive, summary)
