"""The shapes of the Responses wire as it is read: everything optional, unknown fields skipped."""

import msgspec
from msgspec import UNSET, Raw, UnsetType

GROWING = frozenset({"delta", "text", "refusal", "arguments", "input"})
"""Fields that come in pieces, so that a surrogate pair may be cut in two there."""


class Annotation(msgspec.Struct):
    type: str | None = None
    url: str | None = None
    title: str | None = None
    file_id: str | None = None
    filename: str | None = None
    start_index: int | None = None
    end_index: int | None = None


class Part(msgspec.Struct):
    """A content part or a summary part."""

    type: str | None = None
    text: str | None = None
    refusal: str | None = None
    annotations: list[Raw] | None = None


class Item(msgspec.Struct):
    type: str | None = None
    id: str | None = None
    status: str | None = None
    phase: str | None = None
    content: list[Part] | None = None
    summary: list[Part] | None = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None
    namespace: str | None = None


class Details(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    input_tokens_details: Details | None = None
    output_tokens_details: Details | None = None


class Error(msgspec.Struct):
    message: str | None = None
    code: str | int | None = None
    type: str | None = None


class Incomplete(msgspec.Struct):
    reason: str | None = None


class Response(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    created_at: int | None = None
    store: bool | None = None
    status: str | None = None
    incomplete_details: Incomplete | None = None
    error: Error | None = None
    usage: Usage | None = None
    output: list[Raw] | None = None


class Event(msgspec.Struct):
    """Any event; and, with `object`, a whole response or an error body."""

    type: str | None = None
    object: str | None = None
    sequence_number: int | None = None
    response: Response | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    annotation_index: int | None = None
    item_id: str | None = None
    item: Raw | UnsetType = UNSET
    part: Part | None = None
    delta: str | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    input: str | None = None
    annotation: Raw | UnsetType = UNSET
    error: Error | None = None
    message: str | None = None
    code: str | int | None = None


read = msgspec.json.Decoder(Event).decode
