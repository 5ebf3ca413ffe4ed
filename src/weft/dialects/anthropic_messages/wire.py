"""The JSON shapes of Messages responses, read and written.

Shapes that are read have only optional fields, because compatible servers leave fields out; unknown
fields are skipped. Content blocks are also kept raw, so that they can be sent back unchanged. The
`extra` of a part holds the fields of such a shape that have no canonical field.
"""

from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json
from weft.dialects.frames import is_present
from weft.dialects.raw_json import copy_raw
from weft.parts import FinishReason, Json

NAME: Final = "anthropic-messages"

# The API refuses other characters in ids of tool_use blocks; the length is that of the strictest
# host.
ID_LETTERS, ID_LIMIT = "a-zA-Z0-9_-", 64
"""The characters and the length that call ids may have, in streams and in requests."""

GROWING = frozenset({"text", "thinking", "partial_json"})
"""Fields that are streamed in pieces, so that a surrogate pair may be split between two."""

# Any other type with the suffix is read alike; a test compares these with the types of the SDK.
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

FINISH_REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",  # capture: context-window-exceeded
    "tool_use": "tool-calls",
    # Not a stop: the server tool call at the end has no result yet, and the next request is refused
    # unless the client sends the turn back as it is.
    "pause_turn": "pause",
    # As after a pause, the client sends the turn back and the model continues.
    "compaction": "pause",  # capture: compaction
    "refusal": "content-filter",  # capture: refusal-with-details, refusal-without-a-block
}
"""Canonical finish reasons by stop reason. A stop reason that is not here is `other`."""

ERROR_TYPES: dict[str, tuple[int, bool]] = {
    "invalid_request_error": (400, False),
    "authentication_error": (401, False),
    "billing_error": (402, False),
    "permission_error": (403, False),
    "not_found_error": (404, False),
    # The official client retries 408, 409, 429 and all statuses from 500 on.
    "conflict_error": (409, True),
    "request_too_large": (413, False),
    "rate_limit_error": (429, True),
    "api_error": (500, True),
    "timeout_error": (504, True),
    "overloaded_error": (529, True),
}
"""Error types, each with its HTTP status and whether a retry may help."""


class OptionalType(msgspec.Struct):
    """The part of an object that says which shape it has, if any."""

    type: str | None = None


class ToolCaller(msgspec.Struct):
    """Who made a call: the model itself, or code that it runs."""

    type: str | None = None
    tool_id: str | None = None


class FallbackModel(msgspec.Struct):
    model: str | None = None


class ContentBlock(msgspec.Struct, omit_defaults=True):
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
    tool_use_id: str | None = None
    content: Json = UNSET
    is_error: bool | None = None  # of an mcp_tool_result only
    server_name: str | None = None
    caller: Json = UNSET  # absent, direct, or the code that made the call
    toolset_name: str | None = None
    to: FallbackModel | None = None  # only in a fallback block


class MessageDelta(msgspec.Struct):
    """The delta of a `message_delta`."""

    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Json = UNSET
    container: Json = UNSET


class EventDelta(MessageDelta):
    """The delta of a `content_block_delta` or of a `message_delta`, as it is read."""

    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    citation: Json = UNSET
    content: Json = UNSET
    encrypted_content: Json = UNSET


class TextCitation(msgspec.Struct):
    """A citation, or a search hit, of any type."""

    type: str | None = None
    url: str | None = None
    source: str | None = None
    title: str | None = None
    document_title: str | None = None
    file_id: str | None = None


class OutputTokensDetails(msgspec.Struct):
    thinking_tokens: int | None = None


class MessagesUsage(msgspec.Struct, omit_defaults=True):
    """Counts are cumulative; a field that is absent keeps its earlier value."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: OutputTokensDetails | None = None
    cache_creation: Json = UNSET
    server_tool_use: Json = UNSET
    service_tier: Json = UNSET
    iterations: Json = UNSET  # beta: tokens of compaction and advisors, counted apart


class ResponseMessage(msgspec.Struct):
    """The message of `message_start`, or a response that is not streamed."""

    id: str | None = None
    type: str | None = "message"
    role: str | None = "assistant"
    model: str | None = None
    content: list[Raw] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Json = UNSET
    container: Json = UNSET
    context_management: Json = UNSET
    usage: MessagesUsage | None = None


class MessagesError(msgspec.Struct):
    type: str | None = None
    message: str | None = None
    details: Json = UNSET


class ErrorEvent(msgspec.Struct, tag="error", tag_field="type"):
    """The `error` event, or the body of an HTTP error, as it is written."""

    error: MessagesError
    request_id: str | UnsetType | None = UNSET


class MessagesEvent(msgspec.Struct):
    """An event of any type, or an error body, as it is read."""

    type: str | None = None
    index: int | None = None
    content_block: Json = UNSET
    delta: EventDelta | None = None
    message: ResponseMessage | str | None = None  # text: that of an error
    usage: MessagesUsage | None = None
    context_management: Json = UNSET
    error: MessagesError | str | None = None


class MessagesFinishExtra(msgspec.Struct, omit_defaults=True):
    """The `extra` of a finish."""

    stop_details: Json = UNSET
    container: Json = UNSET
    context_management: Json = UNSET
    usage: MessagesUsage | None = None


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


def copy_present(raw: Json) -> Json:
    """Copies a raw value out of its frame; UNSET if it is null or empty."""
    return copy_raw(raw) if isinstance(raw, Raw) and is_present(raw) else UNSET
