"""The JSON shapes of a generateContent request, read and written, and the helpers that read them.

Keys are camelCase on the wire. snake_case keys are accepted too, but only in objects of the API:
arguments, results and schemas stay as they are. Nested objects stay raw and are parsed one by one,
so that an error can name its path and unknown keys are kept.
"""

import re
from functools import cache
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw

from weft import large_json
from weft.dialects.requests.fields import declared_names, read_object
from weft.errors import BadRequest
from weft.parts import Json

S = TypeVar("S", bound=msgspec.Struct)

NESTED = frozenset(
    {
        "fileData",
        "functionCall",
        "functionCallingConfig",
        "functionResponse",
        "generationConfig",
        "inlineData",
        "thinkingConfig",
        "toolConfig",
    }
)
"""Objects whose unknown keys are kept in `extra` under their path."""

SKIP_SIGNATURE = "skip_thought_signature_validator"
"""Vendor documentation: accepted in place of the signature of a call that another model made."""

GENERATED_ID = "call_unnamed"
"""The prefix of ids that were made up for calls without one."""
_GENERATED_ID = re.compile(rf"{GENERATED_ID}_\d+")

SEARCH, CODE, FETCH = "googleSearch", "codeExecution", "urlContext"
HOSTED_TOOLS = {SEARCH: "web-search", CODE: "code-execution", FETCH: "web-fetch"}
"""Hosted tools that other APIs have too, with their canonical kind."""

JSON_TYPE = "application/json"

FIELD_PATHS = {
    "max_output_tokens": "generationConfig.maxOutputTokens",
    "choices": "generationConfig.candidateCount",
    "stop": "generationConfig.stopSequences",
    "sampling.temperature": "generationConfig.temperature",
    "sampling.top_p": "generationConfig.topP",
    "sampling.top_k": "generationConfig.topK",
    "sampling.seed": "generationConfig.seed",
    "sampling.presence_penalty": "generationConfig.presencePenalty",
    "sampling.frequency_penalty": "generationConfig.frequencyPenalty",
    "sampling.logprobs": "generationConfig.logprobs",
    "output": "generationConfig.responseMimeType",
    "output.schema": "generationConfig.responseJsonSchema",
    "reasoning": "generationConfig.thinkingConfig",
    "reasoning.effort": "generationConfig.thinkingConfig.thinkingLevel",
    "reasoning.budget_tokens": "generationConfig.thinkingConfig.thinkingBudget",
    "reasoning.summary": "generationConfig.thinkingConfig.includeThoughts",
    "tool_choice": "toolConfig.functionCallingConfig",
}
"""The path in a body of each canonical field that is called something else there."""

Count = Annotated[int, Meta(ge=0)]
ThinkingLevel = Literal["MINIMAL", "LOW", "MEDIUM", "HIGH"]


class RequestObject(msgspec.Struct, rename="camel", omit_defaults=True):
    """The base of all shapes."""


class GenerateContentRequest(RequestObject):
    """A request body. The model and whether to stream are in the URL; Weft adds them here."""

    contents: Raw
    system_instruction: Json = UNSET
    tools: Json = UNSET
    tool_config: Json = UNSET
    generation_config: Json = UNSET
    model: str | None = None
    stream: bool | None = None


# Contents


class RequestContent(RequestObject):
    """A message, or the system instruction."""

    role: str | None = None
    parts: Json = UNSET


class RequestPart(RequestObject):
    """One payload, and fields about it."""

    text: str | None = None
    function_call: Json = UNSET
    function_response: Json = UNSET
    inline_data: Json = UNSET
    file_data: Json = UNSET
    thought: bool | None = None
    thought_signature: str | None = None
    media_resolution: Json = UNSET


class RequestFunctionCall(RequestObject):
    name: str
    id: str | None = None
    args: Json = UNSET


class RequestFunctionResponse(RequestObject):
    name: str
    id: str | None = None
    response: Json = UNSET
    parts: Json = UNSET


class RequestBlob(RequestObject):
    mime_type: str
    data: str
    display_name: str | None = None


class RequestFileData(RequestObject):
    file_uri: str
    mime_type: str | None = None
    display_name: str | None = None


class MediaResolution(RequestObject):
    level: str | None = None


# Options


class GenerationConfig(RequestObject):
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    candidate_count: Annotated[int, Meta(ge=1)] | None = None
    max_output_tokens: Count | None = None
    stop_sequences: list[str] | None = None
    response_mime_type: str | None = None
    response_schema: Json = UNSET
    response_json_schema: Json = UNSET
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    response_logprobs: bool | None = None
    logprobs: Count | None = None
    thinking_config: Json = UNSET


class ThinkingConfig(RequestObject):
    include_thoughts: bool | None = None
    thinking_budget: int | None = None
    thinking_level: str | None = None


class ToolConfig(RequestObject):
    function_calling_config: Json = UNSET


class FunctionCallingConfig(RequestObject):
    mode: str | None = None
    allowed_function_names: list[str] | None = None


# Tools


class ToolEntry(RequestObject):
    """An entry of `tools`: functions, MCP servers, and hosted tools under a key of their own."""

    function_declarations: Json = UNSET
    mcp_servers: Json = UNSET


class FunctionDeclaration(RequestObject):
    name: str
    description: str | None = None
    parameters: Json = UNSET
    parameters_json_schema: Json = UNSET


class SearchOptions(RequestObject):
    exclude_domains: list[str] | None = None


class StreamableHttpTransport(RequestObject):
    url: str
    headers: dict[str, str] | None = None


class McpServerEntry(RequestObject):
    name: str
    streamable_http_transport: Json = UNSET


# Reading


def non_null(raw: Json) -> Raw | None:
    """Returns the value if the key is present and not null."""
    return raw if isinstance(raw, Raw) and bytes(raw) != b"null" else None


def parse_object(data: bytes | Raw, shape: type[S], path: str = "") -> tuple[S, dict[str, Raw]]:
    """Parses an object with keys in either spelling; returns it and its unknown keys."""
    try:
        fields = large_json.members(data)
    except (ValueError, RecursionError):
        return read_object(data, shape, path), {}  # raises BadRequest
    names = _camel_case_names(shape)
    known = declared_names(shape)
    renamed = {names.get(key, key): value for key, value in fields.items()}
    if renamed.keys() != fields.keys():
        data = large_json.write(renamed)
    parsed = read_object(data, shape, path)
    return parsed, {key: value for key, value in renamed.items() if key not in known}


def parse_nested(raw: Raw, shape: type[S], path: str, prefix: str) -> tuple[S, dict[str, Raw]]:
    """Like parse_object; the unknown keys get a prefix."""
    parsed, unknown = parse_object(raw, shape, path)
    return parsed, {f"{prefix}.{key}": value for key, value in unknown.items()}


def parse_optional(raw: Json, shape: type[S], path: str) -> tuple[S | None, dict[str, Raw]]:
    """Like parse_nested, for an object that may be missing."""
    present = non_null(raw)
    return (None, {}) if present is None else parse_nested(present, shape, path, path)


def parse_list(raw: Json, path: str) -> list[Raw]:
    """The elements of a list; hosts of this API accept a single object in place of a list."""
    present = non_null(raw)
    if present is None:
        return []
    if bytes(present)[:1] == b"{":
        return [present]
    try:
        return large_json.elements(present)
    except ValueError:
        raise BadRequest(path, "expected an array") from None


@cache
def _camel_case_names(shape: type[msgspec.Struct]) -> dict[str, str]:
    """The wire's name of each snake_case key."""
    return {field.name: field.encode_name for field in msgspec.structs.fields(shape)}


def with_camel_case_keys(body: bytes) -> bytes:
    """Renames the top-level keys of a body that are in snake_case."""
    names = _camel_case_names(GenerateContentRequest)
    fields = large_json.members(body)
    if names.keys().isdisjoint(fields.keys() - set(names.values())):
        return body
    return large_json.write({names.get(key, key): value for key, value in fields.items()})


def is_generated_id(id: str) -> bool:
    """Whether the client sent no id for this call."""
    return not id or _GENERATED_ID.fullmatch(id) is not None
