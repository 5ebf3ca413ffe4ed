"""The shapes of the Messages wire: what is read, and below it what is written.

What is read is optional throughout: imitators leave out what they like. Unknown fields are
skipped. A content block is kept raw beside its reading, so that it can go back as it was.
"""

from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json
from weft.dialects.base import told

T = TypeVar("T", bound=msgspec.Struct)

NAME: Final = "anthropic-messages"

ID_LETTERS, ID_LIMIT = "a-zA-Z0-9_-", 64
"""How ids of calls are spelled here, in streams and in requests alike."""

Json = Raw | UnsetType

GROWING = frozenset({"text", "thinking", "partial_json"})
"""Fields that come in pieces, so that a surrogate pair may be cut in two there."""

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
"""Blocks that answer a call which the provider executed."""

CITATIONS = frozenset(
    {
        "char_location",
        "page_location",
        "content_block_location",
        "search_result_location",
        "web_search_result_location",
    }
)

HIT = "web_search_result"
"""One entry of a `web_search_tool_result`."""


class Caller(msgspec.Struct):
    """Who made a call: the model itself, or the code it runs."""

    type: str | None = None
    tool_id: str | None = None


class Variant(msgspec.Struct):
    """As much of an object as tells which one it is."""

    type: str | None = None


class Served(msgspec.Struct):
    model: str | None = None


class Block(msgspec.Struct):
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
    to: Served | None = None


class Delta(msgspec.Struct):
    """What a block grows by, or what `message_delta` changes."""

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


class Citation(msgspec.Struct):
    """A citation, or a search hit, of any type."""

    type: str | None = None
    url: str | None = None
    source: str | None = None
    title: str | None = None
    document_title: str | None = None
    file_id: str | None = None


class OutputDetails(msgspec.Struct):
    thinking_tokens: int | None = None


class Usage(msgspec.Struct):
    """Cumulative; a field that is absent keeps what an earlier event told."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: OutputDetails | None = None
    cache_creation: Json = UNSET
    server_tool_use: Json = UNSET
    service_tier: Json = UNSET
    iterations: Json = UNSET


class Message(msgspec.Struct):
    """The message of `message_start`, or a whole body."""

    id: str | None = None
    model: str | None = None
    content: list[Raw] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Json = UNSET
    container: Json = UNSET
    context_management: Json = UNSET
    usage: Usage | None = None


class Error(msgspec.Struct):
    type: str | None = None
    message: str | None = None
    details: Json = UNSET


class Event(msgspec.Struct):
    """Any event, or an error body."""

    type: str | None = None
    index: int | None = None
    content_block: Json = UNSET
    delta: Delta | None = None
    message: Message | str | None = None
    usage: Usage | None = None
    context_management: Json = UNSET
    error: Error | str | None = None


_read = large_json.decoder(Event)


def read(data: bytes) -> Event:
    """Decodes the data of a frame; raises ValueError for what is not a well-typed event.

    Raw values are not looked into, so bytes that are not UTF-8 are refused here.
    """
    if not data.isascii():
        data.decode()
    return _read(data)


read_list = msgspec.json.Decoder(list[Raw]).decode
read_fields = msgspec.json.Decoder(dict[str, Raw]).decode
"""The keys of an object in their order, each value as it was."""


# What a part keeps for the way back


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


class FinishExtra(msgspec.Struct, omit_defaults=True):
    stop_details: Json = UNSET
    container: Json = UNSET
    context_management: Json = UNSET
    usage: UsageExtra | None = None


def kept(raw: Raw | UnsetType) -> Raw | UnsetType:
    """A raw value to keep; null is nothing."""
    return flat(raw) if isinstance(raw, Raw) and told(raw) else UNSET


def flat(raw: Raw) -> Raw:
    """The value without the frame it stood in, and on one line: in a body it may span many."""
    return Raw(one_line(bytes(raw)))


def packed(extra: msgspec.Struct) -> Raw | UnsetType:
    """What a part keeps for the way back; nothing when there is nothing to keep."""
    text = msgspec.json.encode(extra)
    return UNSET if text == b"{}" else Raw(text)


def unpacked(extra: Raw | UnsetType, wanted: type[T]) -> T:
    """What a part kept; nothing when it is not ours."""
    try:
        return msgspec.json.decode(extra, type=wanted) if isinstance(extra, Raw) else wanted()
    except (ValueError, RecursionError):
        return wanted()


def one_line(text: bytes) -> bytes:
    """JSON on one line, as an event needs it; mostly it is."""
    return msgspec.json.format(text, indent=-1) if b"\n" in text or b"\r" in text else text


# What is written


class Text(msgspec.Struct, tag="text", tag_field="type"):
    text: str
    citations: list[Raw] | UnsetType = UNSET


class Thinking(msgspec.Struct, tag="thinking", tag_field="type"):
    thinking: str
    signature: str


class RedactedThinking(msgspec.Struct, tag="redacted_thinking", tag_field="type"):
    data: str


class Use(msgspec.Struct):
    """A call of any of the three types."""

    type: str
    id: str
    name: str
    input: Raw
    server_name: str | UnsetType = UNSET
    caller: Json = UNSET
    toolset_name: str | UnsetType = UNSET


class Result(msgspec.Struct):
    type: str
    tool_use_id: str
    content: Raw
    is_error: bool | UnsetType = UNSET
    caller: Json = UNSET


WrittenBlock = Text | Thinking | RedactedThinking | Use | Result


class Tokens(msgspec.Struct):
    input_tokens: int | UnsetType
    output_tokens: int
    cache_creation_input_tokens: int | UnsetType = UNSET
    cache_read_input_tokens: int | UnsetType = UNSET
    output_tokens_details: OutputDetails | UnsetType = UNSET
    cache_creation: Json = UNSET
    server_tool_use: Json = UNSET
    service_tier: Json = UNSET
    iterations: Json = UNSET


class Stop(msgspec.Struct):
    """How a message ended."""

    stop_reason: str
    stop_sequence: str | None = None
    stop_details: Json = UNSET
    container: Json = UNSET


class Written(msgspec.Struct):
    """A message: the empty one of `message_start`, or a whole body."""

    id: str
    model: str
    usage: Tokens
    content: list[Raw] = []
    type: str = "message"
    role: str = "assistant"
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Json = UNSET
    container: Json = UNSET
    context_management: Json = UNSET


class Failure(msgspec.Struct):
    type: str
    message: str


class Failed(msgspec.Struct):
    error: Failure
    type: str = "error"
