"""The JSON shapes of Messages responses: first those that are read, then those that are written.

Shapes that are read have only optional fields, because compatible servers leave fields out; unknown
fields are skipped. Content blocks are also kept raw, so that they can be sent back unchanged.
"""

from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json
from weft.dialects.base import is_present

T = TypeVar("T", bound=msgspec.Struct)

NAME: Final = "anthropic-messages"

ID_LETTERS, ID_LIMIT = "a-zA-Z0-9_-", 64
"""The characters and the length that call ids may have, in streams and in requests."""

Json = Raw | UnsetType

GROWING = frozenset({"text", "thinking", "partial_json"})
"""Fields that are streamed in pieces, so that a surrogate pair may be split between two."""

RESULTS = frozenset(
    {
        "advisor_tool_result",
        "bash_code_execution_tool_result",
        "code_execution_tool_result",
        "mcp_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "web_fetch_tool_result",
        "web_search_tool_result",
    }
)
"""Blocks with the result of a tool that the host executed."""

CITATIONS = frozenset(
    {
        "char_location",
        "page_location",
        "content_block_location",
        "search_result_location",
        "web_search_result_location",
    }
)

SEARCH_HIT = "web_search_result"
"""The type of the entries of a `web_search_tool_result`."""


# What is read


class ToolCaller(msgspec.Struct):
    """Who made a call: the model itself, or code that it runs."""

    type: str | None = None
    tool_id: str | None = None


class OptionalType(msgspec.Struct):
    """The part of an object that says which shape it has, if any."""

    type: str | None = None


class FallbackModel(msgspec.Struct):
    model: str | None = None


class ContentBlock(msgspec.Struct):
    """A content block of any type."""

    type: str | None = None
    text: str | None = None
    citations: list[Raw] | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Json = UNSET
    caller: Json = UNSET
    toolset_name: str | None = None
    server_name: str | None = None
    tool_use_id: str | None = None
    content: Json = UNSET
    is_error: bool | None = None
    to: FallbackModel | None = None


class EventDelta(msgspec.Struct):
    """The delta of a `content_block_delta`, or of a `message_delta`."""

    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    citation: Json = UNSET
    content: Json = UNSET
    encrypted_content: Json = UNSET
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Json = UNSET
    container: Json = UNSET


class TextCitation(msgspec.Struct):
    """A citation, or a search hit, of any type."""

    type: str | None = None
    url: str | None = None
    source: str | None = None
    title: str | None = None
    document_title: str | None = None
    file_id: str | None = None


class ThinkingTokens(msgspec.Struct):
    """`usage.output_tokens_details`, read and written."""

    thinking_tokens: int | None = None


class MessagesUsage(msgspec.Struct):
    """Counts are cumulative; a field that is absent keeps its earlier value."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: ThinkingTokens | None = None
    cache_creation: Json = UNSET
    server_tool_use: Json = UNSET
    service_tier: Json = UNSET
    iterations: Json = UNSET


class ReceivedMessage(msgspec.Struct):
    """The message of `message_start`, or a response that is not streamed."""

    id: str | None = None
    model: str | None = None
    content: list[Raw] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Json = UNSET
    container: Json = UNSET
    context_management: Json = UNSET
    usage: MessagesUsage | None = None


class ReceivedError(msgspec.Struct):
    type: str | None = None
    message: str | None = None
    details: Json = UNSET


class MessagesEvent(msgspec.Struct):
    """An event of any type, or an error body."""

    type: str | None = None
    index: int | None = None
    content_block: Json = UNSET
    delta: EventDelta | None = None
    message: ReceivedMessage | str | None = None
    usage: MessagesUsage | None = None
    context_management: Json = UNSET
    error: ReceivedError | str | None = None


_decode_event = large_json.decoder(MessagesEvent)


def read(data: bytes) -> MessagesEvent:
    """Decodes the data of a frame; raises ValueError if it is not a well-typed event.

    msgspec does not look into raw values, so invalid UTF-8 is rejected here.
    """
    if not data.isascii():
        data.decode()
    return _decode_event(data)


read_list = msgspec.json.Decoder(list[Raw]).decode
read_fields = msgspec.json.Decoder(dict[str, Raw]).decode
"""The keys of an object in their order, each value raw."""


# What the `extra` of a part keeps for encoders of this dialect


class CallExtra(msgspec.Struct, omit_defaults=True):
    caller: Json = UNSET
    toolset_name: str | None = None
    server_name: str | None = None


class ResultExtra(msgspec.Struct, omit_defaults=True):
    type: str = ""
    caller: Json = UNSET


class UsageExtra(msgspec.Struct, omit_defaults=True):
    cache_creation: Json = UNSET
    server_tool_use: Json = UNSET
    service_tier: Json = UNSET
    iterations: Json = UNSET


class MessagesFinishExtra(msgspec.Struct, omit_defaults=True):
    stop_details: Json = UNSET
    container: Json = UNSET
    context_management: Json = UNSET
    usage: UsageExtra | None = None


def copy_present(raw: Json) -> Json:
    """Copies a raw value out of its frame; UNSET if it is null or empty."""
    return copy_raw(raw) if isinstance(raw, Raw) and is_present(raw) else UNSET


def copy_raw(raw: Raw) -> Raw:
    """Copies a raw value out of its frame, on one line: a body may be indented."""
    return Raw(to_one_line(bytes(raw)))


def pack_extra(extra: msgspec.Struct) -> Json:
    """Encodes the `extra` of a part; UNSET if it is empty."""
    text = msgspec.json.encode(extra)
    return UNSET if text == b"{}" else Raw(text)


def unpack_extra(extra: Json, shape: type[T]) -> T:
    """Decodes the `extra` of a part; an empty one if it has another shape."""
    try:
        return msgspec.json.decode(extra, type=shape) if isinstance(extra, Raw) else shape()
    except (ValueError, RecursionError):
        return shape()


def to_one_line(text: bytes) -> bytes:
    """JSON without line breaks, as the data of an event must be."""
    return msgspec.json.format(text, indent=-1) if b"\n" in text or b"\r" in text else text


# What is written


class TextBlock(msgspec.Struct, tag="text", tag_field="type"):
    text: str
    citations: list[Raw] | UnsetType = UNSET


class ThinkingBlock(msgspec.Struct, tag="thinking", tag_field="type"):
    thinking: str
    signature: str


class RedactedThinkingBlock(msgspec.Struct, tag="redacted_thinking", tag_field="type"):
    data: str


class ToolUseBlock(msgspec.Struct):
    """A tool_use, server_tool_use or mcp_tool_use block."""

    type: str
    id: str
    name: str
    input: Raw
    server_name: str | UnsetType = UNSET
    caller: Json = UNSET
    toolset_name: str | UnsetType = UNSET


class ToolResultBlock(msgspec.Struct):
    """The result of a tool that the host executed."""

    type: str
    tool_use_id: str
    content: Raw
    is_error: bool | UnsetType = UNSET
    caller: Json = UNSET


WrittenBlock = TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock


class WrittenUsage(msgspec.Struct):
    input_tokens: int | UnsetType
    output_tokens: int
    cache_creation_input_tokens: int | UnsetType = UNSET
    cache_read_input_tokens: int | UnsetType = UNSET
    output_tokens_details: ThinkingTokens | UnsetType = UNSET
    cache_creation: Json = UNSET
    server_tool_use: Json = UNSET
    service_tier: Json = UNSET
    iterations: Json = UNSET


class StopDelta(msgspec.Struct):
    """The delta of a `message_delta`."""

    stop_reason: str
    stop_sequence: str | None = None
    stop_details: Json = UNSET
    container: Json = UNSET


class WrittenMessage(msgspec.Struct):
    """The empty message of `message_start`, or a response that is not streamed."""

    id: str
    model: str
    usage: WrittenUsage
    content: list[Raw] = []
    type: str = "message"
    role: str = "assistant"
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Json = UNSET
    container: Json = UNSET
    context_management: Json = UNSET


class WrittenError(msgspec.Struct):
    type: str
    message: str


class ErrorEvent(msgspec.Struct):
    error: WrittenError
    type: str = "error"
