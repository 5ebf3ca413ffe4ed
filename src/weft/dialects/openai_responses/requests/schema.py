"""The shapes of a Responses request, read and written.

Values that are passed through are `Raw`. A shape is written without the fields that hold their
default.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json
from weft.dialects.requests.fields import undeclared_fields
from weft.dialects.requests.openai_family import CacheBreakpoint
from weft.dialects.requests.unknown_fields import collect, without_empty
from weft.parts import Json

Role = Literal["user", "assistant", "system", "developer"]

SIBLING_DIALECT = "openai-chat"
"""The other dialect of the same API family."""

GATEWAY_INCLUDES = frozenset({"required_action", "reasoning.raw"})
"""Values of `include` that are meant for the gateway and never sent upstream."""

ERROR_PREFIX = "Error: "
"""Marks the output of a failed call, which this dialect has no field for."""

INCLUDE_LOGPROBS = "message.output_text.logprobs"
INCLUDE_ENCRYPTED = "reasoning.encrypted_content"

HOSTED_ITEMS = frozenset(
    {
        "code_interpreter_call",
        "file_search_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "web_search_call",
    }
)
"""Items that record what the upstream executed itself."""


class ResponsesShape(msgspec.Struct, omit_defaults=True):
    """A shape that is written without fields that hold their default."""


Encodable = Raw | ResponsesShape
"""An item or a tool, in its own bytes or to be encoded with the whole body."""


class ResponsesTaggedShape(ResponsesShape, tag_field="type"):
    """A shape with a `type`."""


class ItemHeader(ResponsesShape):
    """The fields that identify an item or a part."""

    type: str | None = None
    role: str | None = None
    id: str | None = None


# Content


class InputTextParam(ResponsesTaggedShape, tag="input_text"):
    text: str
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class AssistantText(ResponsesTaggedShape, tag="output_text"):
    text: str
    annotations: list[Raw] | UnsetType = UNSET
    logprobs: list[Raw] | UnsetType | None = UNSET


# Tells annotations apart as unknown fields, which are kept in `extra` and sent back.
class BareAssistantText(ResponsesTaggedShape, tag="output_text"):
    """An assistant text without annotations and logprobs."""

    text: str


class AssistantRefusal(ResponsesTaggedShape, tag="refusal"):
    refusal: str


class InputImageParam(ResponsesTaggedShape, tag="input_image"):
    image_url: str | None = None
    file_id: str | None = None
    detail: str | None = None
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class InputFileParam(ResponsesTaggedShape, tag="input_file"):
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class ReasoningPartParam(ResponsesShape):
    """A part of `summary` or `content` of a reasoning item."""

    type: str
    text: str


# Items


class MessageRole(ResponsesShape):
    """The role of a message, before it is known to be one we support."""

    role: str


class ResponsesPlainText(ResponsesShape):
    """A text of the user or the assistant, as nearly all are."""

    type: Literal["input_text", "output_text"]
    text: str
    # Raw: only an empty list says nothing.
    annotations: Json = UNSET
    logprobs: Json = UNSET


class InputMessageParam(ResponsesTaggedShape, tag="message"):
    role: Role
    content: str | list[Raw]
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class FunctionCallParam(ResponsesTaggedShape, tag="function_call"):
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    namespace: str | None = None
    status: str | None = None


class CustomToolCallParam(ResponsesTaggedShape, tag="custom_tool_call"):
    call_id: str
    name: str
    input: str
    id: str | None = None
    namespace: str | None = None
    status: str | None = None


class CustomToolCallOutputParam(ResponsesTaggedShape, tag="custom_tool_call_output"):
    output: str | list[Raw]
    call_id: str | None = None
    id: str | None = None
    status: str | None = None


class FunctionCallOutputParam(CustomToolCallOutputParam, tag="function_call_output"):
    name: str | None = None


class ReasoningItemParam(ResponsesTaggedShape, tag="reasoning"):
    summary: list[ReasoningPartParam]
    id: str | None = None
    # The schema of 2026-04-24 allows only null here: by it, raw reasoning cannot be sent back.
    content: list[ReasoningPartParam] | UnsetType | None = UNSET
    encrypted_content: str | None = None
    status: str | None = None


class CompactionParam(ResponsesTaggedShape, tag="compaction"):
    encrypted_content: str | None = None


# Tools


class FunctionToolParam(ResponsesTaggedShape, tag="function"):
    name: str
    description: str | None = None
    parameters: Raw | UnsetType = UNSET
    # The default of the API is true, so absent and false differ.
    strict: bool | UnsetType | None = UNSET


class CustomToolFormat(ResponsesShape):
    """The grammar that the input of a custom tool follows."""

    type: str
    definition: str | None = None
    syntax: str | None = None


class CustomToolParam(ResponsesTaggedShape, tag="custom"):
    name: str
    description: str | None = None
    format: CustomToolFormat | None = None


class NamespaceToolParam(ResponsesTaggedShape, tag="namespace"):
    name: str
    tools: list[Raw]
    description: str | None = None


class WebSearchFilters(ResponsesShape):
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None


class UserLocationParam(ResponsesShape):
    """The approximate location of the user."""

    type: str | None = None
    city: str | None = None
    country: str | None = None
    region: str | None = None
    timezone: str | None = None


class WebSearchToolParam(ResponsesShape):
    type: str
    filters: WebSearchFilters | None = None
    search_context_size: str | None = None
    user_location: Raw | UnsetType = UNSET


class CodeInterpreterToolParam(ResponsesTaggedShape, tag="code_interpreter"):
    container: Raw


class McpToolFilter(ResponsesShape):
    tool_names: list[str] | None = None


class McpToolParam(ResponsesTaggedShape, tag="mcp"):
    server_label: str
    server_url: str | None = None
    authorization: str | None = None
    allowed_tools: list[str] | McpToolFilter | None = None
    require_approval: Raw | UnsetType = UNSET


class ToolReference(ResponsesShape):
    """Refers to a tool by its name, type or server."""

    type: str
    name: str | None = None
    server_label: str | None = None


class ResponsesToolChoice(ResponsesShape):
    type: str
    name: str | None = None
    server_label: str | None = None
    tools: list[ToolReference] | None = None
    mode: str | None = None


class AdditionalToolsParam(ResponsesShape):
    """An input item that adds tools in the middle of a conversation."""

    tools: list[Raw]


NAMESPACE_DESCRIPTION = "namespace_description"
"""The key in `extra` of the first tool of a namespace that keeps the namespace's description."""


# Body


class TextFormatParam(ResponsesShape):
    type: str
    name: str | None = None
    description: str | None = None
    schema: Raw | UnsetType = UNSET
    strict: bool | None = None


class TextParam(ResponsesShape):
    format: Json = UNSET
    verbosity: str | None = None


class ReasoningParam(ResponsesShape):
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ResponsesStreamOptions(ResponsesShape):
    """Checks only that `stream_options` is an object."""


class ResponseCreateParams(ResponsesShape, kw_only=True):
    model: str
    input: str | list[Raw] | None = None
    instructions: str | None = None
    tools: list[Raw] | None = None
    tool_choice: Json = UNSET
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    top_logprobs: int | None = None
    text: TextParam | None = None
    reasoning: ReasoningParam | None = None
    include: list[str] | None = None
    stream: bool | None = None
    store: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    truncation: str | None = None
    service_tier: str | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None


def all_to_raw(rendered: Iterable[Encodable]) -> list[Raw]:
    return [one if isinstance(one, Raw) else to_raw(one) for one in rendered]


def to_raw(value: object) -> Raw:
    return Raw(large_json.write(value))


def extra_of(raw: bytes | Raw, shape: type[msgspec.Struct], *handled: str) -> Json:
    """Returns the fields of an object that its shape does not know, without empty ones."""
    return collect(without_empty(undeclared_fields(raw, shape, *handled)))
