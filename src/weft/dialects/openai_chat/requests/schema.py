"""The shapes of a Chat Completions request body, as it is parsed and as it is rendered.

Responses are read leniently (`wire.py`), requests strictly: a field that is required here and
missing is the client's fault, and named in the error. What passes through unread is `Raw`. A
rendered shape leaves out fields that hold their default.
"""

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json
from weft.dialects.requests.fields import fields_of, undeclared_fields
from weft.dialects.requests.openai_family import CacheBreakpoint
from weft.dialects.requests.tools import Grammar
from weft.dialects.requests.unknown_fields import collect, without_empty
from weft.parts import Json

SIBLING = "openai-responses"
"""The other dialect of the same family, with which some options are shared."""


# Nothing is sent that was not set: strict hosts reject unknown keys, even with null.
class ChatParam(msgspec.Struct, omit_defaults=True):
    """The base of all shapes."""


class ChatTaggedParam(ChatParam, tag_field="type"):
    """The base of shapes with a `type`."""


class ChatTypeProbe(ChatParam):
    """Reads the `type` of any object."""

    type: str | None = None


# Content parts


class ChatTextPart(ChatTaggedParam, tag="text"):
    text: str
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class ChatPlainText(ChatParam):
    """A text part without anything else, as nearly all are."""

    type: Literal["text"]
    text: str


class ChatRefusalPart(ChatTaggedParam, tag="refusal"):
    refusal: str


class ChatImageUrl(ChatParam):
    url: str
    detail: str | None = None


class ChatImagePart(ChatTaggedParam, tag="image_url"):
    image_url: ChatImageUrl
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class ChatInputAudio(ChatParam):
    data: str
    format: str


class ChatAudioPart(ChatTaggedParam, tag="input_audio"):
    input_audio: ChatInputAudio
    prompt_cache_breakpoint: CacheBreakpoint | None = None


class ChatFileData(ChatParam):
    # One of the two: the content, or the id of a file that was uploaded.
    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class ChatFilePart(ChatTaggedParam, tag="file"):
    file: ChatFileData
    prompt_cache_breakpoint: CacheBreakpoint | None = None


# Messages


class ChatToolName(ChatParam):
    name: str


class ChatFunctionParam(ChatParam):
    name: str
    arguments: str


class ChatCustomParam(ChatParam):
    name: str
    input: str


class ChatFunctionCallParam(ChatTaggedParam, tag="function"):
    id: str
    function: ChatFunctionParam


class ChatCustomCallParam(ChatTaggedParam, tag="custom"):
    id: str
    custom: ChatCustomParam


class ChatRoleProbe(ChatParam):
    """Reads the `role` of any message."""

    role: str


class ChatInputMessage(ChatParam):
    """A message of the system, the developer or the user."""

    role: str
    content: str | list[Raw]
    name: str | None = None


class ChatAssistantMessage(ChatParam):
    role: str
    # None is sent as null, the usual value beside calls; UNSET is left out.
    content: str | list[Raw] | UnsetType | None = UNSET
    name: str | None = None
    refusal: str | None = None
    # Not in the API reference: hosts that want their reasoning back take one of these three.
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[Raw] | None = None
    tool_calls: list[Raw] | None = None
    function_call: ChatFunctionParam | None = None


class ChatToolMessage(ChatParam):
    role: str
    content: str | list[Raw]
    tool_call_id: str
    name: str | None = None


class ChatFunctionMessage(ChatParam):
    """The result of a deprecated `function_call`."""

    role: str
    # The API requires the key, and allows null.
    content: str | None
    name: str


# Tools


class ChatFunctionDefinition(ChatParam):
    name: str
    description: str | None = None
    parameters: Raw | UnsetType = UNSET
    strict: bool | None = None


class ChatFunctionTool(ChatTaggedParam, tag="function"):
    function: ChatFunctionDefinition


class ChatExactDefinition(ChatFunctionDefinition, forbid_unknown_fields=True):
    """A function without any other field."""


class ChatExactTool(ChatParam):
    """A function tool whose function has no other field."""

    type: Literal["function"]
    function: ChatExactDefinition


class ChatCustomFormat(ChatParam):
    """The format of a custom tool's input."""

    type: str
    grammar: Grammar | None = None


class ChatCustomDefinition(ChatParam):
    name: str
    description: str | None = None
    format: ChatCustomFormat | None = None


class ChatCustomTool(ChatTaggedParam, tag="custom"):
    custom: ChatCustomDefinition


class ChatAllowedTools(ChatParam):
    mode: str
    tools: list[Raw]


class ChatToolChoice(ChatParam):
    type: str
    function: ChatToolName | None = None
    custom: ChatToolName | None = None
    allowed_tools: ChatAllowedTools | None = None


class ChatApproximateLocation(ChatParam):
    city: str | None = None
    country: str | None = None
    region: str | None = None
    timezone: str | None = None


class ChatUserLocation(ChatParam):
    type: str
    # The place is one level deeper than in other dialects.
    approximate: ChatApproximateLocation


class ChatWebSearchOptions(ChatParam):
    search_context_size: str | None = None
    user_location: ChatUserLocation | None = None


# The body


class ChatJsonSchema(ChatParam):
    name: str
    description: str | None = None
    schema: Raw | UnsetType = UNSET
    strict: bool | None = None


class ChatResponseFormat(ChatParam):
    type: str
    json_schema: ChatJsonSchema | None = None


class ChatStreamOptions(ChatParam):
    include_usage: bool | None = None


class ChatRequestBody(ChatParam, kw_only=True):
    model: str
    messages: list[Raw]
    tools: list[Raw] | None = None
    # Read by hand: a string, or an object that may be of a kind nobody here knows.
    tool_choice: Json = UNSET
    # Deprecated by `tools` and `tool_choice`.
    functions: list[ChatFunctionDefinition] | None = None
    function_call: str | ChatToolName | None = None
    parallel_tool_calls: bool | None = None
    web_search_options: ChatWebSearchOptions | None = None
    max_completion_tokens: int | None = None
    # Deprecated by `max_completion_tokens`.
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    # Raw, so that numbers keep their spelling.
    logit_bias: dict[str, Raw] | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    response_format: Json = UNSET
    verbosity: str | None = None
    reasoning_effort: str | None = None
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    # Deprecated by the two keys after it.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    service_tier: str | None = None


def unknown_fields(raw: bytes | Raw, shape: type[ChatParam], *handled: str) -> dict[str, Raw]:
    """Returns the fields of an object that its shape does not have; those that are empty say
    nothing."""
    return without_empty(undeclared_fields(raw, shape, *handled))


def nested_unknown_fields(
    raw: Raw, shape: type[ChatParam], key: str, inner: type[ChatParam]
) -> Json:
    """Returns the unknown fields of an object, and under `key` those of the object in it."""
    inside = unknown_fields(fields_of(raw)[key], inner)
    return collect(unknown_fields(raw, shape), {key: to_raw(inside)} if inside else {})


def unless_null(raw: Json) -> Json:
    return UNSET if raw == Raw(b"null") else raw


def to_raw(value: object) -> Raw:
    return Raw(large_json.write(value))
