"""The shapes of both AI SDK streams, read and written.

Model parts and the chunks of a UI message stream share most of their fields, so one shape holds
any of them, and its `type` tells which fields count. No field is required of what is read. What is
written leaves out every field that is not set: front ends reject null, and keys they do not know.
"""

from typing import Final

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.frames import is_present
from weft.dialects.raw_json import blank_line_ends, decode_or_default
from weft.parts import Json

NAME: Final = "ai-sdk"

STREAMED_FIELDS = frozenset({"delta", "text", "inputTextDelta"})
"""Fields that come in pieces, so that a surrogate pair may be split between two of them."""

_json = msgspec.json.Encoder().encode


class SdkTokenCounts(msgspec.Struct, rename="camel"):
    """Token counts by kind: first the names that models use, then those of a dump."""

    total: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class SdkUsage(msgspec.Struct, rename="camel", omit_defaults=True):
    """Usage of any version: plain numbers, or numbers by kind."""

    input_tokens: int | SdkTokenCounts | None = None  # a number before version 3
    output_tokens: int | SdkTokenCounts | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_input_tokens: int | None = None
    # Only in dumps of streamText
    input_token_details: SdkTokenCounts | None = None
    output_token_details: SdkTokenCounts | None = None
    raw: Json = UNSET


class SdkFinishReason(msgspec.Struct):
    """The finish reason of a model since version 3 of its specification."""

    unified: str | None = None
    raw: str | None = None


class SdkResponseMetadata(msgspec.Struct, rename="camel"):
    """The fields of `response-metadata`, and of `response` in a dumped `finish-step`."""

    id: str | None = None
    timestamp: str | None = None
    model_id: str | None = None


class SdkMessageMetadata(msgspec.Struct, omit_defaults=True):
    """The `messageMetadata` that Weft itself writes."""

    model: str | None = None
    usage: SdkUsage | None = None


class SdkCallReference(msgspec.Struct, rename="camel"):
    """The call of a dumped approval request."""

    tool_call_id: str | None = None


class SdkEvent(msgspec.Struct, rename="camel", omit_defaults=True):
    """Any model part, or any chunk of a UI message stream. Keys are written in this order."""

    type: str | None = None
    id: str | None = None
    delta: str | None = None
    text: str | None = None
    kind: str | None = None  # of a `custom` part
    # The message
    message_id: str | None = None
    finish_reason: str | SdkFinishReason | None = None
    message_metadata: Json = UNSET
    # Calls
    approval_id: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    input_text_delta: str | None = None
    input: Json = UNSET
    output: Json = UNSET
    error_text: str | None = None
    provider_executed: bool | None = None
    dynamic: bool | None = None
    preliminary: bool | None = None
    # Sources and files
    source_id: str | None = None
    url: str | None = None
    media_type: str | None = None
    provider_metadata: Json = UNSET
    title: str | None = None
    filename: str | None = None
    reason: str | None = None
    # Only read: model parts and dumps
    result: Json = UNSET
    is_error: bool | None = None
    invalid: bool | None = None
    tool_call: SdkCallReference | None = None  # in place of toolCallId, in dumps
    source_type: str | None = None
    data: Json = UNSET
    file: Json = UNSET
    timestamp: str | None = None
    model_id: str | None = None
    warnings: Json = UNSET
    response: SdkResponseMetadata | None = None
    raw_finish_reason: str | None = None
    usage: SdkUsage | None = None
    total_usage: SdkUsage | None = None
    error: Json = UNSET


class SdkError(msgspec.Struct, rename="camel"):
    """An error that is an object: of the SDK, of a provider, or a serialised exception."""

    message: str | None = None
    name: str | None = None
    type: str | None = None
    code: str | int | None = None
    status_code: int | None = None
    is_retryable: bool | None = None
    error: Json = UNSET


class SdkFile(msgspec.Struct, rename="camel"):
    """A file that is an object."""

    data: str | None = None
    url: str | None = None
    base64: str | None = None
    base64_data: str | None = None
    media_type: str | None = None


class SdkProviderMetadata(msgspec.Struct, rename="camel", omit_defaults=True):
    """The fields of one provider's metadata that canonical parts have: reasoning state, which the
    provider wants back, and the id that it gave the item."""

    # The keys under which the SDK's providers keep it.
    signature: str | None = None
    thought_signature: str | None = None
    redacted_data: str | None = None
    reasoning_encrypted_content: str | None = None
    item_id: str | None = None


class SdkTextMetadata(SdkProviderMetadata, rename="camel", omit_defaults=True):
    """Written for a text: the same, with the provider's annotations of it."""

    annotations: tuple[Raw, ...] = ()


class SdkExtra(msgspec.Struct, rename="camel", omit_defaults=True):
    """The `extra` of a part: what came with it and has no canonical field."""

    provider_metadata: Json = UNSET
    message_metadata: Json = UNSET
    warnings: Json = UNSET
    usage: Json = UNSET
    dynamic: bool | None = None
    title: str | None = None
    media_type: str | None = None
    filename: str | None = None
    error_text: str | None = None


_read = msgspec.json.Decoder(SdkEvent).decode
_read_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_read_bytes = msgspec.json.Decoder(dict[str, int]).decode


def read(data: bytes) -> SdkEvent:
    """Decodes the data of a frame; raises ValueError for what is not a well-typed event.

    The decoder does not look into raw values, so bytes that are not UTF-8 are rejected here.
    """
    if not data.isascii():
        data.decode()
    return _read(data)


def delta_text(event: SdkEvent) -> str:
    """Returns the text of a delta, whatever its key."""
    # Model parts and texts, the arguments of a chunk, a dump.
    for text in (event.delta, event.input_text_delta, event.text):  # capture: dump-of-a-stream
        if text is not None:
            return text
    return ""


# Raw values


def provider_metadata_of(metadata: Json) -> tuple[str, SdkProviderMetadata] | None:
    """Returns the first provider with a field that canonical parts have, and its metadata."""
    try:
        providers = _read_fields(bytes(metadata)) if isinstance(metadata, Raw) else {}
    except (ValueError, RecursionError):
        return None
    for provider, raw in providers.items():  # capture: signature-beside-other-providers
        found = decode_or_default(raw, SdkProviderMetadata)
        if found != SdkProviderMetadata():
            return provider, found
    return None


def parse_byte_map(raw: Json) -> bytes | None:
    """Returns the bytes of a serialised typed array, `{"0":137,"1":80}`; None for anything else."""
    try:
        numbers = _read_bytes(bytes(raw)) if isinstance(raw, Raw) else {}
        return bytes(numbers.values()) or None
    except (ValueError, RecursionError):
        return None


def parse_string(raw: Json) -> str | None:
    """Returns the string that a raw value is; None for any other value."""
    try:
        return msgspec.json.decode(raw, type=str) if isinstance(raw, Raw) else None
    except ValueError:
        return None


def compact_json(raw: Json) -> str:
    """Returns JSON text without blanks; an empty string for null and for an absent value."""
    if not isinstance(raw, Raw) or bytes(raw) == b"null":
        return ""
    try:
        return msgspec.json.format(bytes(raw), indent=-1).decode()
    except (ValueError, RecursionError):
        return bytes(on_one_line(raw)).decode()


def copy_unless_null(raw: Json) -> Json:
    """Returns a copy, which does not keep the frame alive; UNSET for null."""
    return on_one_line(raw) if isinstance(raw, Raw) and is_present(raw) else UNSET


def on_one_line(raw: Raw) -> Raw:
    """Returns the value without line ends, which would end the data of an event. It need not be
    JSON: an event that cannot be read is carried as it came."""
    return Raw(blank_line_ends(bytes(raw)))
