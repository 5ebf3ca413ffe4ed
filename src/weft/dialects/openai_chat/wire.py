"""The shapes of Chat Completions streams and bodies: what is read, and nothing else.

Everything is optional: imitators leave out what they like. Unknown fields are skipped.
"""

from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json

NAME: Final = "openai-chat"

GROWING = frozenset(
    {"content", "text", "summary", "thinking", "refusal", "reasoning", "reasoning_content"}
    | {"arguments", "input"}
)
"""Fields that come in pieces, so that a surrogate pair may be cut in two there."""


class Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class Custom(msgspec.Struct):
    name: str | None = None
    input: str | None = None


class Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: Function | None = None
    custom: Custom | None = None
    extra_content: Raw | UnsetType = UNSET


class Detail(msgspec.Struct, omit_defaults=True):
    """One entry of `reasoning_details`."""

    type: str | None = None
    text: str | None = None
    summary: str | None = None
    data: str | None = None
    signature: str | None = None
    id: str | None = None
    format: str | None = None
    index: int | None = None


class ContentPart(msgspec.Struct, omit_defaults=True):
    type: str | None = None
    text: str | None = None
    refusal: str | None = None
    thinking: "str | list[ContentPart] | None" = None
    reference_ids: Raw | UnsetType = UNSET


class UrlCitation(msgspec.Struct):
    url: str | None = None
    title: str | None = None
    start_index: int | None = None
    end_index: int | None = None


class Annotation(msgspec.Struct):
    type: str | None = None
    url_citation: UrlCitation | None = None


class Delta(msgspec.Struct):
    """What a chunk adds; a whole `message` has the same fields."""

    role: str | None = None
    content: str | list[ContentPart | str] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[Detail] | None = None
    refusal: str | None = None
    tool_calls: list[Call] | None = None
    function_call: Function | None = None
    annotations: list[Annotation] | None = None
    extra_content: Raw | UnsetType = UNSET


class TokenDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None


class Choice(msgspec.Struct):
    index: int | None = None
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    usage: Usage | None = None


class SearchResult(msgspec.Struct):
    url: str | None = None
    title: str | None = None


class Chunk(msgspec.Struct):
    """A chunk, a whole completion, or an error object: one shape reads them all."""

    id: str | None = None
    object: str | None = None
    model: str | None = None
    created: int | None = None
    choices: list[Choice] | None = None
    usage: Usage | None = None
    citations: list[str] | None = None
    search_results: list[SearchResult] | None = None
    error: Raw | UnsetType = UNSET
    type: Raw | UnsetType = UNSET
    code: Raw | UnsetType = UNSET
    message: Raw | UnsetType = UNSET
    success: bool | None = None


class Thought(msgspec.Struct):
    thought_signature: str | None = None


read = large_json.decoder(Chunk)
"""Decodes the data of a frame; raises ValueError for what is not a well-typed chunk."""

read_extra = msgspec.json.Decoder(dict[str, Thought]).decode
"""Decodes `extra_content`: whose key it is does not matter, only the signature."""


def extra_content(signature: str) -> Raw:
    """A signature under the one key that clients are known to send back."""
    return Raw(msgspec.json.encode({"google": {"thought_signature": signature}}))
