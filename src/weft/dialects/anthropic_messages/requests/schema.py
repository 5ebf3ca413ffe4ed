"""The JSON shapes of a Messages request, read and written. Names follow the official SDK.

Messages, content blocks and tools stay raw in the body and are parsed one at a time, so that an
error can name its path. Keys that a canonical request has no field for stay raw too.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw

from weft import large_json
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.fields import read_object
from weft.dialects.requests.unknown_fields import remaining
from weft.parts import Json
from weft.request import Cache, Effort

NESTED = frozenset(
    {
        "cache_control",
        "format",
        "metadata",
        "output_config",
        "source",
        "system",
        "thinking",
        "tool_choice",
    }
)
"""Objects whose unknown keys are kept in `extra` under their path."""

# Vendor documentation, "Vision" and "PDF support".
IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
PDF, PLAIN_TEXT = "application/pdf", "text/plain"

SERVER_TOOLS = {
    "web_search": "web-search",
    "web_fetch": "web-fetch",
    "code_execution": "code-execution",
}
"""Versioned server tools by the prefix of their type, with their canonical kind."""

EFFORTS: dict[Effort, Effort] = {
    "minimal": "low",  # the API has nothing below
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
"""The effort in a body for each canonical one, except `none`."""

# OpenAI's `default` is the standard tier, without the priority capacity that `auto` may use.
SERVICE_TIERS = {"auto": "auto", "default": "standard_only"}
"""The service tiers in a body by their canonical name."""

Count = Annotated[int, Meta(ge=0)]
MessageRole = Literal["user", "assistant", "system"]


def non_null(raw: Json) -> Raw | None:
    """Returns the value if the key is present and not null."""
    return raw if isinstance(raw, Raw) and bytes(raw) != b"null" else None


class TypeField(msgspec.Struct):
    """The part of an object that says which shape it has."""

    type: str


# Options


class CacheControl(msgspec.Struct, omit_defaults=True):
    type: str
    ttl: str | None = None


class Metadata(msgspec.Struct, omit_defaults=True):
    user_id: str | None = None


class JsonOutputFormat(msgspec.Struct):
    type: str
    schema: Raw


class OutputConfig(msgspec.Struct, omit_defaults=True):
    effort: str | None = None
    format: Json = UNSET


class ThinkingConfigParam(msgspec.Struct, omit_defaults=True):
    type: str
    budget_tokens: Count | None = None
    display: str | None = None


class ToolChoiceParam(msgspec.Struct, omit_defaults=True):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class MessagesRequest(msgspec.Struct, omit_defaults=True):
    """A request body."""

    model: str
    max_tokens: Count  # required; 0 only fills the prompt cache
    messages: list[Raw]
    system: str | list[Raw] | None = None  # text, or text blocks
    tools: list[Raw] | None = None
    tool_choice: Json = UNSET
    mcp_servers: list[Raw] | None = None
    thinking: Json = UNSET
    output_config: Json = UNSET
    stop_sequences: list[str] | None = None
    # Models before Opus 4.7 only.
    temperature: float | None = None
    top_p: float | None = None
    top_k: Count | None = None
    metadata: Json = UNSET
    service_tier: str | None = None
    cache_control: Json = UNSET
    stream: bool | None = None


# Messages


class RoleField(msgspec.Struct):
    """The part of a message that says whose it is."""

    role: str


# The vendor's coding client sends system messages inside a conversation; newer models accept them.
class MessageParam(msgspec.Struct, omit_defaults=True):
    """A message. Only a system message may lack content: other keys may carry its meaning."""

    role: MessageRole
    content: str | list[Raw] | None = None


# Content blocks


class TextBlockParam(msgspec.Struct, tag="text", tag_field="type", omit_defaults=True):
    text: str
    cache_control: Json = UNSET


class Base64Source(msgspec.Struct, tag="base64", tag_field="type"):
    media_type: str
    data: str


class UrlSource(msgspec.Struct, tag="url", tag_field="type"):
    url: str


class FileSource(msgspec.Struct, tag="file", tag_field="type"):
    file_id: str


class PlainTextSource(msgspec.Struct, tag="text", tag_field="type"):
    data: str
    media_type: str = PLAIN_TEXT


class ContentBlockSource(msgspec.Struct, tag="content", tag_field="type"):
    content: Raw


ImageSource = Base64Source | UrlSource | FileSource
DocumentSource = Base64Source | UrlSource | FileSource | PlainTextSource | ContentBlockSource
IMAGE_SOURCES = frozenset({"base64", "url", "file"})
DOCUMENT_SOURCES = IMAGE_SOURCES | {"text", "content"}


class SourceField(msgspec.Struct):
    """The source of an image or a document, unparsed."""

    source: Raw


class ImageBlockParam(msgspec.Struct, tag="image", tag_field="type", omit_defaults=True):
    source: ImageSource
    cache_control: Json = UNSET


class DocumentBlockParam(msgspec.Struct, tag="document", tag_field="type", omit_defaults=True):
    source: DocumentSource
    title: str | None = None
    cache_control: Json = UNSET


class CitationsConfig(msgspec.Struct):
    enabled: bool | None = None


class SearchPassage(msgspec.Struct):
    text: str


class SearchResultBlockParam(msgspec.Struct):
    title: str
    source: str
    content: list[SearchPassage]
    citations: CitationsConfig | None = None


class ThinkingBlockParam(msgspec.Struct, tag="thinking", tag_field="type", omit_defaults=True):
    thinking: str
    signature: str | None = None  # None: of a host that signs nothing


class SignatureFields(msgspec.Struct):
    """The fields of a block that may hold an opaque signature."""

    signature: Json = UNSET
    data: Json = UNSET


class RedactedThinkingBlockParam(msgspec.Struct, tag="redacted_thinking", tag_field="type"):
    data: str


# Three types with the same fields; who runs the call is all that differs.
class ToolUseBlockParam(msgspec.Struct):
    """A tool_use, server_tool_use or mcp_tool_use block."""

    type: str
    id: str
    name: str
    input: Raw


class ToolResultBlockParam(msgspec.Struct, tag="tool_result", tag_field="type", omit_defaults=True):
    tool_use_id: str
    content: str | list[Raw] | None = None
    is_error: bool | None = None
    cache_control: Json = UNSET


# Blocks as nearly all are: without a cache control, or any other field.


class PlainText(msgspec.Struct, tag="text", tag_field="type", forbid_unknown_fields=True):
    text: str


class PlainToolUse(msgspec.Struct, tag="tool_use", tag_field="type", forbid_unknown_fields=True):
    id: str
    name: str
    input: Raw


class PlainToolResult(
    msgspec.Struct, tag="tool_result", tag_field="type", forbid_unknown_fields=True
):
    """A result that is a text, or nothing."""

    tool_use_id: str
    content: str | None = None
    is_error: bool | None = None


PlainBlock = PlainText | PlainToolUse | PlainToolResult

Encodable = Raw | msgspec.Struct
"""A message, block or tool, in its own bytes or to be encoded with the whole body."""


def to_raw(rendered: Sequence[Encodable]) -> list[Raw]:
    return [one if isinstance(one, Raw) else Raw(large_json.write(one)) for one in rendered]


# Tools


class ToolFields(msgspec.Struct):
    """The fields that every tool may have."""

    type: str | None = None
    name: str | None = None
    cache_control: Json = UNSET


class ClientToolParam(msgspec.Struct, omit_defaults=True):
    """A tool that the client runs."""

    name: str
    input_schema: Raw
    description: str | None = None
    strict: bool | None = None
    cache_control: Json = UNSET
    type: Literal["custom"] | None = None


class ServerToolParam(msgspec.Struct, omit_defaults=True):
    """A tool that the host runs."""

    type: str
    name: str | None = None
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None
    max_uses: Count | None = None
    user_location: Json = UNSET
    cache_control: Json = UNSET


class McpToolConfig(msgspec.Struct, omit_defaults=True):
    enabled: bool | None = None


# The beta of November 2025 splits a server into its address, in `mcp_servers`, and what of it is
# offered, in `tools`. The beta before had `tool_configuration` at the address.
class McpToolset(msgspec.Struct, omit_defaults=True):
    """An entry of `tools` that offers the tools of an MCP server."""

    type: str
    mcp_server_name: str
    default_config: McpToolConfig | None = None
    configs: dict[str, McpToolConfig] | None = None
    cache_control: Json = UNSET


class McpToolConfiguration(msgspec.Struct, omit_defaults=True):
    allowed_tools: list[str] | None = None


class McpServer(msgspec.Struct, omit_defaults=True):
    """An entry of `mcp_servers`."""

    type: str
    name: str
    url: str | None = None
    authorization_token: str | None = None
    tool_configuration: McpToolConfiguration | None = None


class McpDeclaration(msgspec.Struct, omit_defaults=True):
    """The two objects that declare an MCP server, as `Tool.raw` keeps them."""

    mcp_toolset: Json = UNSET
    mcp_server: Json = UNSET


# Cache control

C = TypeVar(
    "C",
    TextBlockParam,
    ImageBlockParam,
    DocumentBlockParam,
    ToolResultBlockParam,
    ClientToolParam,
    ServerToolParam,
)
# Vendor documentation, "Prompt caching": 5 minutes unless `ttl` says otherwise.
_TTLS: dict[str | None, Cache] = {None: "5m", "5m": "5m", "1h": "1h"}


def parse_cache_control(raw: Json, path: str) -> tuple[Cache | None, dict[str, Raw]]:
    """Returns the lifetime and the unknown keys; a control of an unknown type is kept whole."""
    present = non_null(raw)
    if present is None:
        return None, {}
    control = read_object(present, CacheControl, f"{path}.cache_control".lstrip("."))
    cache = _TTLS.get(control.ttl)
    if control.type != "ephemeral" or cache is None:
        return None, {"cache_control": present}
    return cache, remaining(present, CacheControl, under="cache_control")


def read_cacheable(data: Raw, shape: type[C], path: str) -> tuple[C, Cache | None, dict[str, Raw]]:
    """Returns an object, its lifetime in the cache, and its unknown keys."""
    value = read_object(data, shape, path)
    if value.cache_control is UNSET:
        return value, None, remaining(data, shape)
    cache, unknown = parse_cache_control(value.cache_control, path)
    return value, cache, remaining(data, shape) | unknown


def render_cache_control(cache: Cache | None, path: str, losses: Losses, *, ttl: bool) -> Json:
    """`ttl` says whether the host accepts a lifetime. The default of 5 minutes is left out."""
    if cache is None:
        return UNSET
    if cache == "1h" and not ttl:
        losses.warned(f"{path}.cache".lstrip("."), "cached for 5 minutes instead of 1 hour")
        cache = "5m"
    return Raw(msgspec.json.encode(CacheControl("ephemeral", None if cache == "5m" else cache)))
