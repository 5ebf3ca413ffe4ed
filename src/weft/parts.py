"""The canonical parts: what every dialect is decoded into and encoded from.

Frozen values without behaviour. `Part` is their base class, `AnyPart` the union of them. `.type`
is the hyphenated class name and comes first in JSON. It is a class attribute with a literal type:
comparing it narrows the union for a type checker, and no part carries it. Fields that hold their
default are left out of the JSON. Nothing in a part is parsed JSON: params are text, results and
`extra` are raw bytes. `extra` holds what only the original dialect can use. `whole`, the complete
value that some wires repeat at an end, travels only from a decoder to the guard.
"""

import re
from typing import ClassVar, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")

FinishReason = Literal["stop", "length", "tool-calls", "content-filter", "pause", "error", "other"]
ErrorKind = Literal[
    "upstream", "truncated", "malformed", "empty", "timeout", "cancelled", "too-large", "internal"
]
Invalid = Literal["nameless", "bad-arguments", "stream-failed"]
ReasoningKind = Literal["summary", "raw"]
ParamsFormat = Literal["json", "text"]
SourceKind = Literal["url", "document"]
Json = Raw | UnsetType


def _hyphenated(name: str) -> str:
    return _WORD.sub("-", name.removesuffix("Part")).lower()


class Usage(msgspec.Struct, frozen=True):
    """Token counts as the stream reported them, else None. Input includes cached tokens."""

    input_tokens: int | None = None  # Anthropic counts cached ones apart
    output_tokens: int | None = None  # with reasoning, which Gemini counts apart
    # As reported, which need not be the sum.
    # capture: usage-total-is-not-the-sum
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None


class Part(msgspec.Struct, frozen=True, tag=_hyphenated, tag_field="type", omit_defaults=True):
    """The base class of all parts. What returns parts returns `AnyPart`, which can be narrowed."""

    type: ClassVar[str]


class ItemPart(Part, frozen=True):
    """The base of the parts that belong to one item: a text, a reasoning, or a call."""

    id: str


class ResponseMetadata(Part, frozen=True):
    """The id and the model of the response: always the first part."""

    type: ClassVar[Literal["response-metadata"]] = "response-metadata"
    id: str
    model: str | None = None
    created: int | None = None
    dialect: str | None = None
    store: bool | None = None
    usage: Usage | None = None  # Anthropic reports the input before any content
    extra: Json = UNSET


# Text and reasoning


class TextStart(ItemPart, frozen=True):
    """A text begins, or a refusal."""

    type: ClassVar[Literal["text-start"]] = "text-start"
    item_id: str | None = None
    phase: str | None = None
    refusal: bool = False
    extra: Json = UNSET


# gc=False: a delta holds strings and raw bytes, so it can be in no cycle, and the collector need
# not look at the most frequent objects there are (msgspec, "Disabling Garbage Collection").
class TextDelta(ItemPart, frozen=True, gc=False):
    """More of a text; never empty."""

    type: ClassVar[Literal["text-delta"]] = "text-delta"
    delta: str
    extra: Json = UNSET


class TextEnd(ItemPart, frozen=True):
    """A text ends. `annotations` are the raw annotations of the original dialect."""

    type: ClassVar[Literal["text-end"]] = "text-end"
    annotations: tuple[Raw, ...] = ()
    signature: str | None = None
    origin: str | None = None
    whole: str | None = None
    extra: Json = UNSET


class ReasoningStart(ItemPart, frozen=True):
    """A block of reasoning begins: a summary for people, or the raw reasoning."""

    type: ClassVar[Literal["reasoning-start"]] = "reasoning-start"
    kind: ReasoningKind
    item_id: str | None = None
    extra: Json = UNSET


class ReasoningDelta(ItemPart, frozen=True, gc=False):
    """More of a block of reasoning; never empty."""

    type: ClassVar[Literal["reasoning-delta"]] = "reasoning-delta"
    delta: str
    extra: Json = UNSET


class ReasoningEnd(ItemPart, frozen=True):
    """A block of reasoning ends. `signature`, `encrypted` and `redacted` must be sent back to
    `origin`, the upstream that made them, and to no other.
    """

    type: ClassVar[Literal["reasoning-end"]] = "reasoning-end"
    signature: str | None = None
    encrypted: str | None = None
    redacted: str | None = None
    origin: str | None = None
    whole: str | None = None
    extra: Json = UNSET


# Calls and results


class ToolParamsStart(ItemPart, frozen=True):
    """A tool call is announced. `id` is the call id, `kind` the dialect's word for the tool."""

    type: ClassVar[Literal["tool-params-start"]] = "tool-params-start"
    name: str
    kind: str = "function"
    item_id: str | None = None
    provider_executed: bool = False
    format: ParamsFormat = "json"
    signature: str | None = None
    origin: str | None = None
    extra: Json = UNSET


class ToolParamsDelta(ItemPart, frozen=True, gc=False):
    """More of a call's arguments; never empty."""

    type: ClassVar[Literal["tool-params-delta"]] = "tool-params-delta"
    delta: str
    extra: Json = UNSET


class ToolParamsEnd(ItemPart, frozen=True):
    """A call's arguments end."""

    type: ClassVar[Literal["tool-params-end"]] = "tool-params-end"
    whole: str | None = None
    extra: Json = UNSET


class ToolCall(ItemPart, frozen=True):
    """A complete tool call, once per call. `params` is the joined text of its deltas; an
    `invalid` call must not be executed. `signature` must be sent back only to `origin`.
    """

    type: ClassVar[Literal["tool-call"]] = "tool-call"
    name: str
    params: str
    kind: str = "function"
    provider_executed: bool = False
    dynamic: bool = False
    invalid: Invalid | None = None
    format: ParamsFormat = "json"
    item_id: str | None = None
    namespace: str | None = None
    caller: str | None = None
    approval_request_id: str | None = None
    server_label: str | None = None
    signature: str | None = None
    origin: str | None = None
    extra: Json = UNSET


class ToolResult(ItemPart, frozen=True):
    """The result of a call. `earlier`: the call was made in an earlier response."""

    type: ClassVar[Literal["tool-result"]] = "tool-result"
    result: Raw
    is_error: bool = False
    preliminary: bool = False
    earlier: bool = False
    provider_executed: bool = True
    extra: Json = UNSET


class ToolApprovalRequest(ItemPart, frozen=True):
    """The provider asks for approval before it executes a call."""

    type: ClassVar[Literal["tool-approval-request"]] = "tool-approval-request"
    approval_id: str
    extra: Json = UNSET


# Parts that come whole


class Source(Part, frozen=True):
    """A citation. `start` and `end` count code points in the text with the id `text_id`."""

    type: ClassVar[Literal["source"]] = "source"
    id: str
    kind: SourceKind
    text_id: str | None = None
    url: str | None = None
    file_id: str | None = None
    title: str | None = None
    start: int | None = None
    end: int | None = None
    raw: Json = UNSET
    extra: Json = UNSET


class File(Part, frozen=True):
    """A generated file. `data` is base64 text; `reference` is a URL or an id of the origin."""

    type: ClassVar[Literal["file"]] = "file"
    id: str
    media_type: str
    data: str | None = None
    reference: str | None = None
    reasoning: bool = False
    extra: Json = UNSET


class Opaque(Part, frozen=True):
    """An item that only its original dialect understands, replayed there byte for byte."""

    type: ClassVar[Literal["opaque"]] = "opaque"
    origin: str
    kind: str
    raw: Raw
    extra: Json = UNSET


# The end


class ErrorPart(Part, frozen=True):
    """The response failed: open items end, and none of its calls may be executed."""

    type: ClassVar[Literal["error"]] = "error"
    kind: ErrorKind
    message: str
    code: str | int | None = None
    status: int | None = None
    retryable: bool = False
    extra: Json = UNSET


class Finish(Part, frozen=True):
    """The end of the response: always the last part. `raw_reason` is the upstream's own value."""

    type: ClassVar[Literal["finish"]] = "finish"
    reason: FinishReason
    raw_reason: str | None = None
    usage: Usage | None = None
    model: str | None = None
    stop_sequence: str | None = None
    extra: Json = UNSET


AnyPart = (
    ResponseMetadata
    | TextStart
    | TextDelta
    | TextEnd
    | ReasoningStart
    | ReasoningDelta
    | ReasoningEnd
    | ToolParamsStart
    | ToolParamsDelta
    | ToolParamsEnd
    | ToolCall
    | ToolResult
    | ToolApprovalRequest
    | Source
    | File
    | Opaque
    | ErrorPart
    | Finish
)
"""Any part. `part.type == "text-delta"` narrows it to `TextDelta`."""

Delta = TextDelta | ReasoningDelta | ToolParamsDelta
"""A piece of a text, of a reasoning, or of the arguments of a call."""
