"""The shapes of a Chat Completions request: what is read of a body, and what is written.

What is carried as it came is `Raw`. A shape that is written leaves out what was not asked.
"""

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json
from weft.dialects.asking.leftovers import kept
from weft.dialects.asking.wording import Breakpoint, Grammar, telling
from weft.dialects.requests import keys_of, unknown
from weft.parts import Json

SIBLING = "openai-responses"
"""The wire of the same family."""


class Shape(msgspec.Struct, omit_defaults=True):
    """The base: what holds its default is left out."""


class Tagged(Shape, tag_field="type"):
    """The base of what says its own type."""


class Typed(Shape):
    """As much of an object as tells what it is."""

    type: str | None = None


# Content


class Text(Tagged, tag="text"):
    text: str
    prompt_cache_breakpoint: Breakpoint | None = None


class Refusal(Tagged, tag="refusal"):
    refusal: str


class ImageUrl(Shape):
    url: str
    detail: str | None = None


class Image(Tagged, tag="image_url"):
    image_url: ImageUrl
    prompt_cache_breakpoint: Breakpoint | None = None


class Sound(Shape):
    data: str
    format: str


class Audio(Tagged, tag="input_audio"):
    input_audio: Sound
    prompt_cache_breakpoint: Breakpoint | None = None


class FileOf(Shape):
    file_data: str | None = None
    file_id: str | None = None
    filename: str | None = None


class File(Tagged, tag="file"):
    file: FileOf
    prompt_cache_breakpoint: Breakpoint | None = None


# Messages


class Named(Shape):
    name: str


class Function(Shape):
    name: str
    arguments: str


class Custom(Shape):
    name: str
    input: str


class FunctionCall(Tagged, tag="function"):
    id: str
    function: Function


class CustomCall(Tagged, tag="custom"):
    id: str
    custom: Custom


class Speaker(Shape):
    """As much of a message as tells whose it is."""

    role: str


class Spoken(Shape):
    """A message of the system, the developer or the user."""

    role: str
    content: str | list[Raw]
    name: str | None = None


class Assistant(Shape):
    role: str
    content: str | list[Raw] | UnsetType | None = UNSET
    name: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[Raw] | None = None
    tool_calls: list[Raw] | None = None
    function_call: Function | None = None


class ToolMessage(Shape):
    role: str
    content: str | list[Raw]
    tool_call_id: str
    name: str | None = None


class FunctionMessage(Shape):
    """The result of a function, before there were tools."""

    role: str
    content: str | None
    name: str


class Detail(Shape):
    """One entry of `reasoning_details`."""

    type: str | None = None
    text: str | None = None
    summary: str | None = None
    data: str | None = None
    signature: str | None = None


# Tools


class Declared(Shape):
    name: str
    description: str | None = None
    parameters: Raw | UnsetType = UNSET
    strict: bool | None = None


class FunctionTool(Tagged, tag="function"):
    function: Declared


class Format(Shape):
    """What a free-form input looks like."""

    type: str
    grammar: Grammar | None = None


class CustomDeclared(Shape):
    name: str
    description: str | None = None
    format: Format | None = None


class CustomTool(Tagged, tag="custom"):
    custom: CustomDeclared


class Allowed(Shape):
    mode: str
    tools: list[Raw]


class Choice(Shape):
    type: str
    function: Named | None = None
    custom: Named | None = None
    allowed_tools: Allowed | None = None


class Approximate(Shape):
    city: str | None = None
    country: str | None = None
    region: str | None = None
    timezone: str | None = None


class Location(Shape):
    type: str
    approximate: Approximate


class Nearby(Shape):
    """A location as all other wires say it."""

    type: str = ""
    city: str | None = None
    country: str | None = None
    region: str | None = None
    timezone: str | None = None


class WebSearch(Shape):
    search_context_size: str | None = None
    user_location: Location | None = None


# The body


class JsonSchema(Shape):
    name: str
    description: str | None = None
    schema: Raw | UnsetType = UNSET
    strict: bool | None = None


class ResponseFormat(Shape):
    type: str
    json_schema: JsonSchema | None = None


class StreamOptions(Shape):
    include_usage: bool | None = None


class Body(Shape, kw_only=True):
    model: str
    messages: list[Raw]
    tools: list[Raw] | None = None
    tool_choice: Json = UNSET
    functions: list[Declared] | None = None
    function_call: str | Named | None = None
    parallel_tool_calls: bool | None = None
    web_search_options: WebSearch | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: dict[str, Raw] | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    response_format: Json = UNSET
    verbosity: str | None = None
    reasoning_effort: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    service_tier: str | None = None


# What is beside the shapes


def beside(raw: Raw, outer: type[Shape], key: str, inner: type[Shape]) -> Json:
    """What an object says that no shape knows, and what the object in it says."""
    found = keys_of(telling(unknown(raw, outer)))
    inside = telling(unknown(keys_of(raw)[key], inner))
    return kept({**found, key: inside} if isinstance(inside, Raw) else found)


def given(raw: Json) -> Json:
    """A null is nothing."""
    return UNSET if raw == Raw(b"null") else raw


def raw(value: object) -> Raw:
    return Raw(large_json.write(value))
