"""The JSON shapes of generateContent requests, read and written, and how bodies are parsed.

Parts have the shapes of responses (`wire.py`). Keys are camelCase; snake_case keys are accepted
too, but only in objects of the API: arguments, results and schemas stay as they are. Elements of
lists stay raw and are parsed one by one, so that each keeps the bytes it came in.
"""

import re
from functools import cache
from typing import Annotated, Literal, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta, Raw

from weft import large_json
from weft.dialects.gemini.wire import GeminiObject
from weft.dialects.requests.fields import read_object
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

RESPONSE_ONLY = frozenset(
    {
        "codeExecutionResult",
        "executableCode",
        "partialArgs",
        "toolCall",
        "toolResponse",
        "willContinue",
    }
)
"""Keys of shapes that canonical requests have no fields for. They are kept like unknown keys."""

SKIP_SIGNATURE = "skip_thought_signature_validator"
"""Vendor documentation: accepted in place of the signature of a call that another model made."""

GENERATED_ID = "call_unnamed"
"""The prefix of ids that were made up for calls without one."""
_GENERATED_ID = re.compile(rf"{GENERATED_ID}_\d+")

SEARCH, CODE, FETCH = "googleSearch", "codeExecution", "urlContext"
HOSTED_TOOLS = {SEARCH: "web-search", CODE: "code-execution", FETCH: "web-fetch"}
"""Hosted tools that other APIs have too, with their canonical kind."""

JSON_TYPE = "application/json"

Count = Annotated[int, Meta(ge=0)]
ThinkingLevel = Literal["MINIMAL", "LOW", "MEDIUM", "HIGH"]


class RequestContent(GeminiObject):
    """A message, or the system instruction."""

    role: str | None = None
    parts: list[Raw] | None = None


class MediaResolution(GeminiObject):
    level: str | None = None


class ThinkingConfig(GeminiObject):
    include_thoughts: bool | None = None
    # A budget for models before Gemini 3, a level since then; never both.
    thinking_budget: int | None = None
    thinking_level: str | None = None


class GenerationConfig(GeminiObject):
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    candidate_count: Annotated[int, Meta(ge=1)] | None = None
    max_output_tokens: Count | None = None
    stop_sequences: list[str] | None = None
    response_mime_type: str | None = None
    # `responseSchema` is a subset of OpenAPI 3.0, `responseJsonSchema` is JSON Schema. They exclude
    # each other, as `parameters` and `parametersJsonSchema` do.
    response_schema: Json = UNSET
    response_json_schema: Json = UNSET
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    response_logprobs: bool | None = None
    logprobs: Count | None = None
    thinking_config: ThinkingConfig | None = None


class FunctionCallingConfig(GeminiObject):
    mode: str | None = None
    allowed_function_names: list[str] | None = None


class ToolConfig(GeminiObject):
    function_calling_config: Json = UNSET
    """Raw, since it is kept whole if its mode is unknown."""


class ToolEntry(GeminiObject):
    """An entry of `tools`: functions, MCP servers, and hosted tools under a key of their own."""

    function_declarations: list[Raw] | None = None
    mcp_servers: list[Raw] | None = None


class FunctionDeclaration(GeminiObject):
    name: str
    description: str | None = None
    parameters: Json = UNSET
    parameters_json_schema: Json = UNSET


class SearchOptions(GeminiObject):
    exclude_domains: list[str] | None = None


class StreamableHttpTransport(GeminiObject):
    url: str
    headers: dict[str, str] | None = None


class McpServerEntry(GeminiObject):
    name: str
    streamable_http_transport: StreamableHttpTransport | None = None


class GenerateContentRequest(GeminiObject):
    """A request body. The model and whether to stream are in the URL; Weft adds them here."""

    contents: list[Raw] | None
    system_instruction: Json = UNSET
    tools: list[Raw] | None = None
    tool_config: ToolConfig | None = None
    generation_config: GenerationConfig | None = None
    model: str | None = None
    stream: bool | None = None


# Reading


class _Field(NamedTuple):
    key: str
    shape: type[msgspec.Struct] | None
    """The shape of a nested object that is parsed with the object around it."""
    is_list: bool


@cache
def _fields(shape: type[msgspec.Struct]) -> dict[str, _Field]:
    """The fields of a shape, by both spellings of their keys."""
    found: dict[str, _Field] = {}
    for field in msgspec.structs.fields(shape):
        types = get_args(field.type) or (field.type,)
        structs = (one for one in types if isinstance(one, type) and issubclass(one, GeminiObject))
        is_list = any(get_origin(one) is list for one in types)
        if field.encode_name not in RESPONSE_ONLY:
            # Keys in snake_case are accepted: the API takes both, as protobuf's JSON does.
            row = _Field(field.encode_name, next(structs, None), is_list)
            found[field.name] = found[field.encode_name] = row
    return found


def parse_object(data: bytes | Raw, shape: type[S], path: str = "") -> tuple[S, dict[str, Raw]]:
    """Parses an object with keys in either spelling; returns it and its unknown keys, those of
    nested objects under their path. Raises BadRequest.
    """
    unknown: dict[str, Raw] = {}
    return read_object(_normalize(data, shape, "", unknown), shape, path), unknown


def _normalize(
    data: bytes | Raw, shape: type[msgspec.Struct], prefix: str, unknown: dict[str, Raw]
) -> bytes | Raw:
    """Returns the object with camelCase keys; hosts of this API accept a single object in place of
    a list of them, so such an object is put into a list.
    """
    try:
        given = large_json.members(data)
    except (ValueError, RecursionError):
        return data  # the typed decoder says what is wrong with it
    fields = _fields(shape)
    found: dict[str, bytes | Raw] = {}
    changed = False
    for key, value in given.items():
        field = fields.get(key)
        if field is None:
            unknown[prefix + key] = value
            changed = changed or key in RESPONSE_ONLY
            continue
        new: bytes | Raw = value
        if field.shape is not None:
            new = _normalize(value, field.shape, f"{prefix}{field.key}.", unknown)
        elif field.is_list and bytes(memoryview(value)[:1]) == b"{":
            # A view: the value may be a file of megabytes, and one byte of it is enough.
            new = b"[%b]" % bytes(value)
        changed = changed or new is not value or key != field.key
        found[field.key] = new
    # The bytes as they came, so that nothing is written anew for a body without oddities.
    if not changed:
        return data
    return large_json.write({key: Raw(value) for key, value in found.items()})


def missing_field(path: str, key: str) -> BadRequest:
    return BadRequest(path, f"object missing required field `{key}`")


def non_null(raw: Json) -> Raw | None:
    """Returns the value if the key is present and not null."""
    return raw if isinstance(raw, Raw) and bytes(raw) != b"null" else None


def with_camel_case_keys(body: bytes) -> bytes:
    """Renames the top-level keys of a body that are in snake_case."""
    fields = _fields(GenerateContentRequest)
    given = large_json.members(body)
    renamed = {fields[key].key if key in fields else key: value for key, value in given.items()}
    return body if renamed.keys() == given.keys() else large_json.write(renamed)


def is_generated_id(id: str) -> bool:
    """Whether the client sent no id for this call."""
    return not id or _GENERATED_ID.fullmatch(id) is not None
