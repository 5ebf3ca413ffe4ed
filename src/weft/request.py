"""The canonical request: messages, tools, tool choice, reasoning and output options.

Frozen values, as parts are. Each dialect's `request.py` parses its body into this and renders
its body from it; decoders and encoders read it through the context. None means "not given".
"""

from typing import Literal

import msgspec
from msgspec import UNSET, Raw

from weft.parts import Json, ParamsFormat, ReasoningKind

Role = Literal["system", "developer", "user", "assistant", "tool"]
ToolMode = Literal["auto", "none", "required"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Cache = Literal["5m", "1h"]


class Content(msgspec.Struct, frozen=True, tag=True, tag_field="type", omit_defaults=True):
    """The base of what a message holds."""


class TextContent(Content, frozen=True, tag="text"):
    """Text of a message; `refusal` marks text in which the model declined."""

    text: str
    refusal: bool = False
    cache: Cache | None = None
    extra: Json = UNSET


class ImageContent(Content, frozen=True, tag="image"):
    """An image: `data` (base64, with its media type), a `url`, or a `file_id` of the origin."""

    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    detail: str | None = None
    cache: Cache | None = None
    extra: Json = UNSET


class FileContent(Content, frozen=True, tag="file"):
    """A file: `data` (base64, with its media type), a `url`, or a `file_id` of the origin."""

    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    filename: str | None = None
    cache: Cache | None = None
    extra: Json = UNSET


class ReasoningContent(Content, frozen=True, tag="reasoning"):
    """Reasoning of an earlier turn. `signature`, `encrypted` and `redacted` are sent back only to
    `origin`, the upstream that made them.
    """

    text: str = ""
    kind: ReasoningKind = "raw"
    item_id: str | None = None
    signature: str | None = None
    encrypted: str | None = None
    redacted: str | None = None
    origin: str | None = None
    extra: Json = UNSET


class CallContent(Content, frozen=True, tag="call"):
    """A tool call of an earlier turn; `params` is text, as in the tool-call part, so that numbers
    and the order of keys come out as they came in. `signature` is sent back only to `origin`.
    """

    id: str
    name: str
    params: str
    kind: str = "function"
    format: ParamsFormat = "json"
    item_id: str | None = None
    provider_executed: bool = False
    namespace: str | None = None
    caller: str | None = None
    approval_request_id: str | None = None
    signature: str | None = None
    origin: str | None = None
    extra: Json = UNSET


class ResultContent(Content, frozen=True, tag="result"):
    """The result of a tool call. `content` is what the tool returned, in order."""

    id: str
    content: tuple[TextContent | ImageContent | FileContent, ...] = ()
    kind: str = "function"
    name: str | None = None
    is_error: bool = False
    cache: Cache | None = None
    extra: Json = UNSET


class OpaqueContent(Content, frozen=True, tag="opaque"):
    """A dialect's own item, sent back only to its origin."""

    origin: str
    kind: str
    raw: Raw


AnyContent = (
    TextContent
    | ImageContent
    | FileContent
    | ReasoningContent
    | CallContent
    | ResultContent
    | OpaqueContent
)
"""Any content of a message."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of the conversation, with its contents in order."""

    role: Role
    content: tuple[AnyContent, ...]
    name: str | None = None
    item_id: str | None = None
    phase: str | None = None
    extra: Json = UNSET


class Hosted(msgspec.Struct, frozen=True, omit_defaults=True):
    """Options of a hosted tool, which the upstream runs, as far as several dialects have them."""

    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    max_uses: int | None = None
    context_size: str | None = None
    location: Json = UNSET
    server_label: str | None = None
    server_url: str | None = None
    authorization: str | None = None
    allowed_tools: tuple[str, ...] = ()


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool the model may call.

    `kind` is function or custom (the client runs it), one that several wires have (web-search,
    code-execution, web-fetch, mcp: the upstream runs it, as `hosted` says), or the origin's own
    word. A tool that is not a function keeps its declaration as `raw`, for its `origin`.
    """

    name: str
    kind: str = "function"
    description: str | None = None
    parameters: Json = UNSET
    strict: bool | None = None
    namespace: str | None = None
    cache: Cache | None = None
    hosted: Hosted | None = None
    raw: Json = UNSET
    origin: str | None = None
    extra: Json = UNSET


class ToolChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """`mode` alone, one forced tool (`name`), or a restricted list (`allowed`)."""

    mode: ToolMode = "auto"
    name: str | None = None
    kind: str = "function"
    allowed: tuple[str, ...] = ()


class OutputFormat(msgspec.Struct, frozen=True, omit_defaults=True):
    """The format that the text of the response must have: any text, JSON, or a JSON schema."""

    kind: Literal["text", "json", "json-schema"] = "text"
    name: str | None = None
    description: str | None = None
    schema: Json = UNSET
    strict: bool | None = None


class ReasoningOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """`effort` none is "do not think"; `adaptive` lets the model decide how much.

    `summary`: auto, concise or detailed shows the reasoning; none hides it.
    """

    effort: Effort | None = None
    budget_tokens: int | None = None
    adaptive: bool = False
    summary: str | None = None
    extra: Json = UNSET


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """Sampling parameters. `logprobs` is the number of alternatives; 0 is the chosen token only."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    logprobs: int | None = None
    logit_bias: Json = UNSET


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn, asked in any dialect. `dialect` is the one it came in: whose every `extra` is."""

    model: str
    # the conversation
    messages: tuple[Message, ...] = ()
    instructions: str | None = None
    # tools
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = None
    # what is generated, and how
    max_output_tokens: int | None = None
    sampling: Sampling = Sampling()
    stop: tuple[str, ...] = ()
    output: OutputFormat = OutputFormat()
    verbosity: str | None = None
    reasoning: ReasoningOptions | None = None
    choices: int = 1
    # how the response is returned
    stream: bool = False
    include_usage: bool = False
    include: tuple[str, ...] = ()
    # what is stored, and continued
    store: bool | None = None
    background: bool = False
    previous_response_id: str | None = None
    truncation: str | None = None
    # billing, caching, and who asked
    service_tier: str | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    cache: Cache | None = None
    betas: tuple[str, ...] = ()
    # where it came from
    dialect: str | None = None
    extra: Json = UNSET
