"""The shapes of a request to generateContent, read and written, and how they are read.

Keys are camelCase on the wire; snake_case is read too, level by level, so that arguments,
results and schemas stay as they are. Every object inside another is read by itself.
"""

import re
from functools import cache
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from weft import large_json
from weft.dialects.requests import names_of, read
from weft.errors import BadRequest
from weft.parts import Json

S = TypeVar("S", bound=msgspec.Struct)

INNER = frozenset(
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
"""Objects whose unknown keys are kept under their path."""

SKIP = "skip_thought_signature_validator"
"""Stands for the signature of a call that another model made."""

UNNAMED = "call_unnamed"
"""How the ids of calls begin that came without one."""
_UNNAMED_ID = re.compile(rf"{UNNAMED}_\d+")

SEARCH, CODE, FETCH = "googleSearch", "codeExecution", "urlContext"
HOSTED = {SEARCH: "web-search", CODE: "code-execution", FETCH: "web-fetch"}
"""The host's tools that other wires have too."""

JSON_TYPE = "application/json"

FIELDS = {
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
"""Where the fields of a canonical request stand in a body."""

Count = Annotated[int, Meta(ge=0)]
Level = Literal["MINIMAL", "LOW", "MEDIUM", "HIGH"]


class Shape(msgspec.Struct, rename="camel", omit_defaults=True):
    """The base of all shapes."""


class Body(Shape):
    """A whole request. The model, and whether to stream, are told by the address."""

    contents: Raw
    system_instruction: Json = UNSET
    tools: Json = UNSET
    tool_config: Json = UNSET
    generation_config: Json = UNSET
    model: str | None = None
    stream: bool | None = None


class Content(Shape):
    parts: Json = UNSET
    role: str | None = None


class Part(Shape):
    """One payload, and what is said about it."""

    text: str | None = None
    function_call: Json = UNSET
    function_response: Json = UNSET
    inline_data: Json = UNSET
    file_data: Json = UNSET
    thought: bool | None = None
    thought_signature: str | None = None
    media_resolution: Json = UNSET


class FunctionCall(Shape):
    name: str
    id: str | None = None
    args: Json = UNSET


class FunctionResponse(Shape):
    name: str
    id: str | None = None
    response: Json = UNSET
    parts: Json = UNSET


class Blob(Shape):
    mime_type: str
    data: str
    display_name: str | None = None


class FileData(Shape):
    file_uri: str
    mime_type: str | None = None
    display_name: str | None = None


class Resolution(Shape):
    level: str | None = None


class GenerationConfig(Shape):
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


class ThinkingConfig(Shape):
    include_thoughts: bool | None = None
    thinking_budget: int | None = None
    thinking_level: str | None = None


class ToolConfig(Shape):
    function_calling_config: Json = UNSET


class CallingConfig(Shape):
    mode: str | None = None
    allowed_function_names: list[str] | None = None


# Tools


class ToolEntry(Shape):
    """An entry of `tools`: functions, and any of the host's tools under its own key."""

    function_declarations: Json = UNSET
    mcp_servers: Json = UNSET


class Declaration(Shape):
    name: str
    description: str | None = None
    parameters: Json = UNSET
    parameters_json_schema: Json = UNSET


class SearchOptions(Shape):
    exclude_domains: list[str] | None = None


class Transport(Shape):
    url: str
    headers: dict[str, str] | None = None


class Server(Shape):
    name: str
    streamable_http_transport: Json = UNSET


# What is written


class Said(Shape):
    role: str
    parts: list[Raw]


class Responded(Shape):
    name: str
    id: str | None
    response: Raw
    parts: list[Raw] | None = None


class Declared(Shape):
    function_declarations: list[Raw] | UnsetType = UNSET
    mcp_servers: list[Raw] | UnsetType = UNSET


class Instruction(Shape):
    parts: list[Raw]


class Config(Shape):
    """The generation config as it is written."""

    temperature: float | UnsetType = UNSET
    top_p: float | UnsetType = UNSET
    top_k: int | UnsetType = UNSET
    candidate_count: int | UnsetType = UNSET
    max_output_tokens: int | UnsetType = UNSET
    stop_sequences: tuple[str, ...] | UnsetType = UNSET
    response_mime_type: str | UnsetType = UNSET
    response_schema: Json = UNSET
    response_json_schema: Json = UNSET
    seed: int | UnsetType = UNSET
    presence_penalty: float | UnsetType = UNSET
    frequency_penalty: float | UnsetType = UNSET
    response_logprobs: bool | UnsetType = UNSET
    logprobs: int | UnsetType = UNSET
    thinking_config: ThinkingConfig | UnsetType = UNSET


class Chosen(Shape):
    function_calling_config: CallingConfig | UnsetType = UNSET


class Written(Shape):
    contents: list[Raw]
    system_instruction: Instruction | UnsetType = UNSET
    tools: list[Raw] | UnsetType = UNSET
    tool_config: Chosen | UnsetType = UNSET
    generation_config: Config | UnsetType = UNSET


# Reading


def take(data: bytes | Raw, shape: type[S], path: str = "") -> tuple[S, dict[str, Raw]]:
    """Reads an object, in either spelling of its keys; and what the shape does not know of it."""
    try:
        fields = large_json.members(data)
    except (ValueError, RecursionError):
        return read(data, shape, path), {}
    names = _spellings(shape)
    known = names_of(shape)
    spelled = {names.get(key, key): value for key, value in fields.items()}
    if spelled.keys() != fields.keys():
        data = large_json.write(spelled)
    found = read(data, shape, path)
    return found, {key: value for key, value in spelled.items() if key not in known}


@cache
def _spellings(shape: type[msgspec.Struct]) -> dict[str, str]:
    """The other spelling of each key, and that of the wire."""
    return {field.name: field.encode_name for field in msgspec.structs.fields(shape)}


def spelled(body: bytes) -> bytes:
    """A body with the names of the wire at its top."""
    names = _spellings(Body)
    fields = large_json.members(body)
    if names.keys().isdisjoint(fields.keys() - set(names.values())):
        return body
    return large_json.write({names.get(key, key): value for key, value in fields.items()})


def below(raw: Raw, shape: type[S], path: str, under: str) -> tuple[S, dict[str, Raw]]:
    """The same for an object inside another; its rest is below a path."""
    found, rest = take(raw, shape, path)
    return found, {f"{under}.{key}": value for key, value in rest.items()}


def inner(raw: Json, shape: type[S], path: str) -> tuple[S | None, dict[str, Raw]]:
    """The same for one that may be missing."""
    there = told(raw)
    return (None, {}) if there is None else below(there, shape, path, path)


def many(raw: Json, path: str) -> list[Raw]:
    """The elements of a list; hosts of this wire take one object for a list of one."""
    there = told(raw)
    if there is None:
        return []
    if bytes(there)[:1] == b"{":
        return [there]
    try:
        return large_json.elements(there)
    except ValueError:
        raise BadRequest(path, "expected an array") from None


def told(raw: Json) -> Raw | None:
    """A raw value that is there and is not null."""
    return raw if isinstance(raw, Raw) and bytes(raw) != b"null" else None


def is_unnamed(id: str) -> bool:
    """Whether the wire told no id."""
    return not id or _UNNAMED_ID.fullmatch(id) is not None
