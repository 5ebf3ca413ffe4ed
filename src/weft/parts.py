"""The canonical parts: what every dialect is decoded into and encoded from.

Frozen values without behaviour. `.type` is the hyphenated class name and comes first in JSON;
fields that hold their default are left out there. Nothing in a part is parsed JSON: params are
text, results and `extra` are raw bytes. `extra` holds what a dialect wants back. `whole`, the
full value that some wires repeat at an end, travels only from a decoder to the guard.
"""

import re
from typing import Literal

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
    """Tokens as the wire told them; None is "not told". Input includes cached tokens."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None


class Part(msgspec.Struct, frozen=True, tag=_hyphenated, tag_field="type", omit_defaults=True):
    """The base of all parts."""

    @property
    def type(self) -> str:
        return str(self.__struct_config__.tag)


class ItemPart(Part, frozen=True):
    """The base of the parts that belong to one item: a text, a reasoning, or a call."""

    id: str


class ResponseMetadata(Part, frozen=True):
    """What the whole response is: always the first part."""

    id: str
    model: str | None = None
    created: int | None = None
    dialect: str | None = None
    store: bool | None = None
    usage: Usage | None = None
    extra: Json = UNSET


class TextStart(ItemPart, frozen=True):
    """A text begins; or a refusal."""

    item_id: str | None = None
    phase: str | None = None
    refusal: bool = False
    extra: Json = UNSET


class TextDelta(ItemPart, frozen=True, gc=False):
    """More of a text; never empty."""

    delta: str
    extra: Json = UNSET


class TextEnd(ItemPart, frozen=True):
    """A text is whole. `annotations` are the wire's own, as they came."""

    annotations: tuple[Raw, ...] = ()
    signature: str | None = None
    origin: str | None = None
    whole: str | None = None
    extra: Json = UNSET


class ReasoningStart(ItemPart, frozen=True):
    """A reasoning begins: a summary for people, or the raw trace."""

    kind: ReasoningKind
    item_id: str | None = None
    extra: Json = UNSET


class ReasoningDelta(ItemPart, frozen=True, gc=False):
    """More of a reasoning; never empty."""

    delta: str
    extra: Json = UNSET


class ReasoningEnd(ItemPart, frozen=True):
    """A reasoning is whole, with the proof that goes back to its origin only."""

    signature: str | None = None
    encrypted: str | None = None
    redacted: str | None = None
    origin: str | None = None
    whole: str | None = None
    extra: Json = UNSET


class ToolParamsStart(ItemPart, frozen=True):
    """`id` is the call id; `kind` the wire's word for the tool. `signature` may come this early."""

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

    delta: str
    extra: Json = UNSET


class ToolParamsEnd(ItemPart, frozen=True):
    """A call's arguments are whole."""

    whole: str | None = None
    extra: Json = UNSET


class ToolCall(ItemPart, frozen=True):
    """The one part that hands a call over. `params` is the text its deltas join to; `signature`
    goes back to `origin` only.
    """

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
    """`earlier`: the call was made in an earlier response."""

    result: Raw
    is_error: bool = False
    preliminary: bool = False
    earlier: bool = False
    provider_executed: bool = True
    extra: Json = UNSET


class ToolApprovalRequest(ItemPart, frozen=True):
    """A call waits for somebody to allow it."""

    approval_id: str
    extra: Json = UNSET


class Source(Part, frozen=True):
    """`start` and `end` count code points of the text part `text_id`."""

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
    """`data` is base64 text; `reference` a URL or an id of the origin."""

    id: str
    media_type: str
    data: str | None = None
    reference: str | None = None
    reasoning: bool = False
    extra: Json = UNSET


class Opaque(Part, frozen=True):
    """A dialect's own item, to be replayed byte for byte where it came from."""

    origin: str
    kind: str
    raw: Raw
    extra: Json = UNSET


class ErrorPart(Part, frozen=True):
    """The response failed: what is open is closed, and nothing of it may be dispatched."""

    kind: ErrorKind
    message: str
    code: str | int | None = None
    status: int | None = None
    retryable: bool = False
    extra: Json = UNSET


class Finish(Part, frozen=True):
    """The end, always the last part. `raw_reason` is the wire's own word."""

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
"""The union of all parts, for decoding them from JSON."""
