"""The shapes of a request to the Messages wire: what is read, and below it what is written.

Blocks, tools and messages are read one by one, so that an error names its place. What has no
field in a canonical request stays raw.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from weft.dialects.asking.leftovers import left
from weft.dialects.requests import Losses, read
from weft.parts import Json
from weft.request import Cache

INNER = frozenset(
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
"""Objects whose unknown keys are kept under their path."""

IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
PDF, PLAIN = "application/pdf", "text/plain"

HOSTED = {
    "web_search": "web-search",
    "web_fetch": "web-fetch",
    "code_execution": "code-execution",
}
"""Tools of the host by the beginning of their type, and what they are called between wires."""

FIELDS = {
    "instructions": "system",
    "max_output_tokens": "max_tokens",
    "stop": "stop_sequences",
    "sampling.temperature": "temperature",
    "sampling.top_p": "top_p",
    "sampling.top_k": "top_k",
    "reasoning": "thinking",
    "reasoning.effort": "output_config.effort",
    "reasoning.summary": "thinking.display",
    "output": "output_config.format",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "tool_choice.mode": "tool_choice.type",
    "user": "metadata.user_id",
    "cache": "cache_control",
}
"""Where the fields of a canonical request stand in a body."""

Count = Annotated[int, Meta(ge=0)]


class Typed(msgspec.Struct):
    """As much of an object as tells which one it is."""

    type: str


class CacheControl(msgspec.Struct, omit_defaults=True):
    type: str
    ttl: str | None = None


class Metadata(msgspec.Struct, omit_defaults=True):
    user_id: str | None = None


class Format(msgspec.Struct):
    type: str
    schema: Raw


class OutputConfig(msgspec.Struct, omit_defaults=True):
    effort: str | None = None
    format: Json = UNSET


class Thinking(msgspec.Struct, omit_defaults=True):
    type: str
    budget_tokens: Count | None = None
    display: str | None = None


class Choice(msgspec.Struct, omit_defaults=True):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Body(msgspec.Struct):
    """A whole request, as it is read."""

    model: str
    max_tokens: Count
    messages: list[Raw]
    system: str | list[Raw] | None = None
    tools: list[Raw] | None = None
    tool_choice: Json = UNSET
    mcp_servers: list[Raw] | None = None
    thinking: Json = UNSET
    output_config: Json = UNSET
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Count | None = None
    metadata: Json = UNSET
    service_tier: str | None = None
    cache_control: Json = UNSET
    stream: bool | None = None


class Speaker(msgspec.Struct):
    """As much of a message as tells whose it is."""

    role: str


class Said(msgspec.Struct):
    """A message. Only one of the system may say nothing: what stands beside it counts then."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Raw] | None = None


# Blocks


class Text(msgspec.Struct, tag="text", tag_field="type", omit_defaults=True):
    text: str
    cache_control: Json = UNSET


class Inline(msgspec.Struct, tag="base64", tag_field="type"):
    media_type: str
    data: str


class Linked(msgspec.Struct, tag="url", tag_field="type"):
    url: str


class Stored(msgspec.Struct, tag="file", tag_field="type"):
    file_id: str


class Plain(msgspec.Struct, tag="text", tag_field="type"):
    data: str
    media_type: str = PLAIN


class Blocks(msgspec.Struct, tag="content", tag_field="type"):
    content: Raw


ImageSource = Inline | Linked | Stored
DocumentSource = Inline | Linked | Stored | Plain | Blocks


class Image(msgspec.Struct, tag="image", tag_field="type", omit_defaults=True):
    source: ImageSource
    cache_control: Json = UNSET


class Document(msgspec.Struct, tag="document", tag_field="type", omit_defaults=True):
    source: DocumentSource
    title: str | None = None
    cache_control: Json = UNSET


IMAGE_SOURCES = frozenset({"base64", "url", "file"})
DOCUMENT_SOURCES = IMAGE_SOURCES | {"text", "content"}


class Sourced(msgspec.Struct):
    """A block whose source is looked at for its type, and for keys that nobody knows."""

    source: Raw


class Citations(msgspec.Struct):
    enabled: bool | None = None


class Passage(msgspec.Struct):
    text: str


class SearchResult(msgspec.Struct):
    title: str
    source: str
    content: list[Passage]
    citations: Citations | None = None


class Thought(msgspec.Struct, tag="thinking", tag_field="type", omit_defaults=True):
    thinking: str
    signature: str | None = None


class Proven(msgspec.Struct):
    """As much of a block as may hold a proof."""

    signature: Json = UNSET
    data: Json = UNSET


class Redacted(msgspec.Struct, tag="redacted_thinking", tag_field="type"):
    data: str


class Use(msgspec.Struct):
    """A call of any of the three types."""

    type: str
    id: str
    name: str
    input: Raw


class Result(msgspec.Struct, tag="tool_result", tag_field="type", omit_defaults=True):
    tool_use_id: str
    content: str | list[Raw] | None = None
    is_error: bool | None = None
    cache_control: Json = UNSET


# Tools


class Custom(msgspec.Struct, omit_defaults=True):
    """A tool that the client runs."""

    name: str
    input_schema: Raw
    description: str | None = None
    strict: bool | None = None
    cache_control: Json = UNSET
    type: Literal["custom"] | None = None


class HostTool(msgspec.Struct, omit_defaults=True):
    """A tool that the host runs, or that it has its own word for."""

    type: str
    name: str | None = None
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None
    max_uses: Count | None = None
    user_location: Json = UNSET
    cache_control: Json = UNSET


class ToolConfig(msgspec.Struct, omit_defaults=True):
    enabled: bool | None = None


class Toolset(msgspec.Struct, omit_defaults=True):
    """The tools of a remote server."""

    type: str
    mcp_server_name: str
    default_config: ToolConfig | None = None
    configs: dict[str, ToolConfig] | None = None
    cache_control: Json = UNSET


class Allowed(msgspec.Struct, omit_defaults=True):
    allowed_tools: list[str] | None = None


class Server(msgspec.Struct, omit_defaults=True):
    """A remote server."""

    type: str
    name: str
    url: str | None = None
    authorization_token: str | None = None
    tool_configuration: Allowed | None = None


class Remote(msgspec.Struct, omit_defaults=True):
    """What the declaration of a remote server's tools is here: two objects in two places."""

    mcp_toolset: Json = UNSET
    mcp_server: Json = UNSET


# What is written


class Turn(msgspec.Struct, omit_defaults=True):
    role: str
    content: str | list[Raw] | None = None


class Written(msgspec.Struct, omit_defaults=True):
    """A whole request, as it is written."""

    model: str
    max_tokens: int
    messages: list[Raw]
    system: str | list[Raw] | UnsetType = UNSET
    tools: list[Raw] | UnsetType = UNSET
    tool_choice: Choice | UnsetType = UNSET
    mcp_servers: list[Raw] | UnsetType = UNSET
    thinking: Thinking | UnsetType = UNSET
    output_config: OutputConfig | UnsetType = UNSET
    stop_sequences: tuple[str, ...] | UnsetType = UNSET
    temperature: float | UnsetType = UNSET
    top_p: float | UnsetType = UNSET
    top_k: int | UnsetType = UNSET
    metadata: Metadata | UnsetType = UNSET
    service_tier: str | UnsetType = UNSET
    cache_control: Json = UNSET
    stream: bool | UnsetType = UNSET


# Cache marks

_TIMES: dict[str | None, Cache] = {None: "5m", "5m": "5m", "1h": "1h"}


def cached(raw: Json, path: str) -> tuple[Cache | None, dict[str, Raw]]:
    """A cache mark, and what else it says. One of a kind that nobody knows is left over whole."""
    if not isinstance(raw, Raw) or bytes(raw) == b"null":
        return None, {}
    found = read(raw, CacheControl, f"{path}.cache_control".lstrip("."))
    time = _TIMES.get(found.ttl)
    if found.type != "ephemeral" or time is None:
        return None, {"cache_control": raw}
    return time, left(raw, CacheControl, under="cache_control")


def marked(mark: Cache | None, path: str, losses: Losses, *, ttl: bool) -> Json:
    """A cache mark as it is written; the short time is not said, as it is the usual one."""
    if mark == "1h" and not ttl:
        losses.warned(f"{path}.cache".lstrip("."), "kept for five minutes, not for an hour")
        mark = "5m"
    if mark is None:
        return UNSET
    return Raw(msgspec.json.encode(CacheControl("ephemeral", None if mark == "5m" else mark)))
