"""The shapes of a Responses request: what is read of a body, and what is written.

What is carried as it came is `Raw`. A shape that is written leaves out what was not asked.
"""

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json
from weft.dialects.asking.wording import Breakpoint
from weft.parts import Json

Role = Literal["user", "assistant", "system", "developer"]

SIBLING = "openai-chat"
"""The wire of the same family."""

HOSTED_ITEMS = frozenset(
    {
        "code_interpreter_call",
        "file_search_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "web_search_call",
    }
)
"""Items that tell what the upstream did itself."""


class Shape(msgspec.Struct, omit_defaults=True):
    """The base: what holds its default is left out."""


class Tagged(Shape, tag_field="type"):
    """The base of what says its own type."""


class Typed(Shape):
    """As much of an object as tells what it is."""

    type: str | None = None
    role: str | None = None
    id: str | None = None


# Content


class InputText(Tagged, tag="input_text"):
    text: str
    prompt_cache_breakpoint: Breakpoint | None = None


class OutputText(Tagged, tag="output_text"):
    text: str
    annotations: list[Raw] | UnsetType = UNSET
    logprobs: list[Raw] | UnsetType | None = UNSET


class PlainText(Tagged, tag="output_text"):
    """A text of the assistant that cites nothing."""

    text: str


class Refusal(Tagged, tag="refusal"):
    refusal: str


class InputImage(Tagged, tag="input_image"):
    image_url: str | None = None
    file_id: str | None = None
    detail: str | None = None
    prompt_cache_breakpoint: Breakpoint | None = None


class InputFile(Tagged, tag="input_file"):
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None
    prompt_cache_breakpoint: Breakpoint | None = None


class Thought(Shape):
    """A part of a summary, or of the reasoning itself."""

    type: str
    text: str


# Items


class Speaker(Shape):
    """As much of a message as tells whose it is."""

    role: str


class Message(Tagged, tag="message"):
    role: Role
    content: str | list[Raw]
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class FunctionCall(Tagged, tag="function_call"):
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    namespace: str | None = None
    status: str | None = None


class CustomToolCall(Tagged, tag="custom_tool_call"):
    call_id: str
    name: str
    input: str
    id: str | None = None
    namespace: str | None = None
    status: str | None = None


class FunctionCallOutput(Tagged, tag="function_call_output"):
    output: str | list[Raw]
    call_id: str | None = None
    id: str | None = None
    name: str | None = None
    status: str | None = None


class CustomToolCallOutput(Tagged, tag="custom_tool_call_output"):
    output: str | list[Raw]
    call_id: str | None = None
    id: str | None = None
    status: str | None = None


class Reasoning(Tagged, tag="reasoning"):
    summary: list[Thought]
    id: str | None = None
    content: list[Thought] | UnsetType | None = UNSET
    encrypted_content: str | None = None
    status: str | None = None


class Compaction(Tagged, tag="compaction"):
    encrypted_content: str | None = None


# Tools


class Function(Tagged, tag="function"):
    name: str
    parameters: Raw | UnsetType = UNSET
    strict: bool | UnsetType | None = UNSET
    description: str | None = None


class Format(Shape):
    """What a free-form input looks like."""

    type: str
    definition: str | None = None
    syntax: str | None = None


class Custom(Tagged, tag="custom"):
    name: str
    description: str | None = None
    format: Format | None = None


class Namespace(Tagged, tag="namespace"):
    name: str
    tools: list[Raw]
    description: str | None = None


class Filters(Shape):
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None


class Location(Shape):
    """Where the user is, roughly."""

    type: str | None = None
    city: str | None = None
    country: str | None = None
    region: str | None = None
    timezone: str | None = None


class WebSearch(Shape):
    type: str
    filters: Filters | None = None
    search_context_size: str | None = None
    user_location: Raw | UnsetType = UNSET


class CodeInterpreter(Tagged, tag="code_interpreter"):
    container: Raw


class ToolNames(Shape):
    tool_names: list[str] | None = None


class Mcp(Tagged, tag="mcp"):
    server_label: str
    server_url: str | None = None
    authorization: str | None = None
    allowed_tools: list[str] | ToolNames | None = None
    require_approval: Raw | UnsetType = UNSET


class Named(Shape):
    """A tool by its name, its type or its server."""

    type: str
    name: str | None = None
    server_label: str | None = None


class Choice(Shape):
    type: str
    name: str | None = None
    server_label: str | None = None
    mode: str | None = None
    tools: list[Named] | None = None


class Declaring(Shape):
    """An item that declares tools in the middle of a conversation."""

    tools: list[Raw]


DESCRIPTION = "namespace_description"
"""Where the description of a namespace is kept: beside the first tool in it."""


# The body


class TextFormat(Shape):
    type: str
    name: str | None = None
    schema: Raw | UnsetType = UNSET
    description: str | None = None
    strict: bool | None = None


class TextOptions(Shape):
    format: Json = UNSET
    verbosity: str | None = None


class Thinking(Shape):
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class StreamOptions(Shape):
    """Its keys are of no interest here; that it is an object is."""


class Body(Shape, kw_only=True):
    model: str
    input: str | list[Raw] | None = None
    instructions: str | None = None
    tools: list[Raw] | None = None
    tool_choice: Json = UNSET
    parallel_tool_calls: bool | None = None
    max_tool_calls: int | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    top_logprobs: int | None = None
    text: TextOptions | None = None
    reasoning: Thinking | None = None
    include: list[str] | None = None
    stream: bool | None = None
    store: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    truncation: str | None = None
    service_tier: str | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None


def raw(value: object) -> Raw:
    return Raw(large_json.write(value))
