"""The shapes of Chat Completions streams and bodies. Requests have theirs in `requests/schema.py`.

Shapes that are read have optional fields only, since compatible servers leave out what they like,
and skip unknown fields. What is written with them leaves out every field that is None or UNSET.
"""

from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json

NAME: Final = "openai-chat"

STREAMED_FIELDS = frozenset(
    # Servers that escape text outside the BMP may cut it by UTF-16 units, one half in each delta.
    {"content", "text", "summary", "thinking", "refusal", "reasoning", "reasoning_content"}
    | {"arguments", "input"}
)
"""Fields that come in pieces, so that a surrogate pair may be split between two of them."""

OFFICIAL_FINISH_REASONS = frozenset(
    {"stop", "length", "tool_calls", "content_filter", "function_call"}
)
"""Those of the API reference: strict clients know no other."""


# Read and written


class ChatFunction(msgspec.Struct, omit_defaults=True):
    name: str | None = None
    arguments: str | None = None


class ChatCustom(msgspec.Struct, omit_defaults=True):
    name: str | None = None
    input: str | None = None


class ChatToolCall(msgspec.Struct, omit_defaults=True):
    """A whole call, or a delta of one, which has an index."""

    index: int | None = None
    id: str | None = None
    type: str | None = None
    function: ChatFunction | None = None
    custom: ChatCustom | None = None
    # Vendors add keys of their own here; it goes back to them byte for byte.
    extra_content: Raw | UnsetType = UNSET


class ChatReasoningState(msgspec.Struct, omit_defaults=True):
    """One entry of `reasoning_details`, as far as a request needs it."""

    type: str | None = None
    text: str | None = None
    summary: str | None = None
    data: str | None = None
    signature: str | None = None


class ChatReasoningDetail(ChatReasoningState):
    """One entry of `reasoning_details`."""

    id: str | None = None
    format: str | None = None
    index: int | None = None


class ChatUrlCitation(msgspec.Struct, omit_defaults=True):
    url: str | None = None
    title: str | None = None
    start_index: int | None = None
    end_index: int | None = None


class ChatAnnotation(msgspec.Struct, omit_defaults=True):
    type: str | None = None
    url_citation: ChatUrlCitation | None = None


class ChatTokenDetails(msgspec.Struct, omit_defaults=True):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class ChatUsage(msgspec.Struct, omit_defaults=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: ChatTokenDetails | None = None
    completion_tokens_details: ChatTokenDetails | None = None
    # Two other names for the cached tokens, which OpenAI has in the details of the prompt.
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None


# Read


class ChatContentPart(msgspec.Struct, omit_defaults=True):
    type: str | None = None
    text: str | None = None
    refusal: str | None = None
    # The reasoning of hosts that send content as parts: text, or parts again.
    thinking: "str | list[ChatContentPart] | None" = None
    reference_ids: Raw | UnsetType = UNSET


class ChatDelta(msgspec.Struct):
    """What a chunk adds; a whole `message` has the same fields."""

    role: str | None = None
    content: str | list[ChatContentPart | str] | None = None
    # Not in the API reference: compatible hosts send reasoning under one of these three.
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[ChatReasoningDetail] | None = None
    refusal: str | None = None
    tool_calls: list[ChatToolCall] | None = None
    function_call: ChatFunction | None = None
    annotations: list[ChatAnnotation] | None = None
    extra_content: Raw | UnsetType = UNSET


class ChatChoice(msgspec.Struct):
    index: int | None = None
    delta: ChatDelta | None = None
    message: ChatDelta | None = None
    finish_reason: str | None = None
    usage: ChatUsage | None = None


class ChatSearchResult(msgspec.Struct):
    url: str | None = None
    title: str | None = None


class ChatChunk(msgspec.Struct):
    """A chunk, a whole completion, or an error object: one shape reads them all."""

    id: str | None = None
    object: str | None = None
    model: str | None = None
    created: int | None = None
    # None and `[]` differ: an object without the key may be a ping.
    choices: list[ChatChoice] | None = None
    usage: ChatUsage | None = None
    # Hosts that search the web list what they found beside the choices.
    citations: list[str] | None = None
    search_results: list[ChatSearchResult] | None = None
    # Raw: hosts send text, numbers and objects in each of them.
    error: Raw | UnsetType = UNSET
    type: Raw | UnsetType = UNSET
    code: Raw | UnsetType = UNSET
    message: Raw | UnsetType = UNSET
    success: bool | None = None


class ChatThoughtSignature(msgspec.Struct):
    thought_signature: str | None = None


# A body in place of a stream may have megabytes: `large_json` reads long strings in slices.
read = large_json.decoder(ChatChunk)
"""Decodes the data of a frame; raises ValueError for what is not a well-typed chunk."""

read_extra_content = msgspec.json.Decoder(dict[str, ChatThoughtSignature]).decode
"""Decodes `extra_content`: objects with a signature, each under the name of its vendor."""


# Written


class ChatReasoningDelta(msgspec.Struct):
    """A delta of reasoning with its details."""

    reasoning_content: str | UnsetType = UNSET
    reasoning_details: list[Raw] | UnsetType = UNSET


class ChatMessage(msgspec.Struct, kw_only=True):
    """The message of a body. Clients expect `content` and `refusal` even where they are null."""

    role: str = "assistant"
    content: str | None
    refusal: str | None
    reasoning_content: str | UnsetType = UNSET
    reasoning_details: list[Raw] | UnsetType = UNSET
    tool_calls: list[ChatToolCall] | UnsetType = UNSET
    annotations: list[ChatAnnotation] | UnsetType = UNSET
    extra_content: Raw | UnsetType = UNSET


class ChatCompletionChoice(msgspec.Struct):
    message: ChatMessage
    finish_reason: str | None
    index: int = 0
    # Required by typed clients, like the nulls of the message.
    logprobs: None = None


class ChatCompletion(msgspec.Struct, kw_only=True):
    """The body of a response that is not streamed."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[ChatCompletionChoice]
    usage: ChatUsage | UnsetType = UNSET


def extra_content(signature: str) -> Raw:
    """Returns a signature under the one key that clients are known to send back."""
    return Raw(msgspec.json.encode({"google": {"thought_signature": signature}}))
