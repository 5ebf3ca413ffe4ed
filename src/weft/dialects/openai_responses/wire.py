"""The shapes of the Responses wire: what the encoder writes and the decoder reads.

`Resource` is the response object with all its required keys; "present" means the key is there in
every snapshot, also when its value is null.
"""

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

NAME = "openai-responses"

Status = Literal["in_progress", "completed", "incomplete"]


class UrlCitation(msgspec.Struct, tag="url_citation", tag_field="type"):
    url: str
    title: str = ""
    start_index: int = 0
    end_index: int = 0


class OutputText(msgspec.Struct, tag="output_text", tag_field="type"):
    text: str
    annotations: list[UrlCitation] = []
    logprobs: list[Raw] = []


class Refusal(msgspec.Struct, tag="refusal", tag_field="type"):
    refusal: str


class ReasoningText(msgspec.Struct, tag="reasoning_text", tag_field="type"):
    text: str


class SummaryText(msgspec.Struct, tag="summary_text", tag_field="type"):
    text: str


Thought = SummaryText | ReasoningText


class Message(msgspec.Struct, tag="message", tag_field="type"):
    id: str
    status: Status
    content: list[OutputText | Refusal]
    role: str = "assistant"
    phase: str | UnsetType = UNSET


class Reasoning(msgspec.Struct, tag="reasoning", tag_field="type"):
    id: str
    status: Status
    summary: list[Thought]
    content: list[Thought] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET


class FunctionCall(msgspec.Struct, tag="function_call", tag_field="type"):
    id: str
    status: Status
    call_id: str
    name: str
    arguments: str


class CustomToolCall(msgspec.Struct, tag="custom_tool_call", tag_field="type"):
    id: str
    status: Status
    call_id: str
    name: str
    input: str


Item = Message | Reasoning | FunctionCall | CustomToolCall | dict[str, Raw | str] | Raw
"""What stands in `output`. Hosted calls have the keys of their params and results."""


class InputDetails(msgspec.Struct):
    cached_tokens: int
    cache_write_tokens: int | UnsetType = UNSET


class OutputDetails(msgspec.Struct):
    reasoning_tokens: int


class Usage(msgspec.Struct):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputDetails
    output_tokens_details: OutputDetails


class Incomplete(msgspec.Struct):
    reason: str


class Failure(msgspec.Struct):
    code: str
    message: str


class ErrorDetail(msgspec.Struct):
    type: str
    code: str
    message: str
    param: str | None = None


class FunctionTool(msgspec.Struct, tag="function", tag_field="type"):
    name: str
    description: str | None
    parameters: Raw
    strict: bool | None


class NamedTool(msgspec.Struct):
    type: str
    name: str


class AllowedTools(msgspec.Struct, tag="allowed_tools", tag_field="type"):
    tools: list[NamedTool]
    mode: str


class Format(msgspec.Struct):
    type: str
    name: str | UnsetType = UNSET
    description: str | UnsetType | None = UNSET
    schema: UnsetType | None = UNSET
    strict: bool | UnsetType | None = UNSET


class Text(msgspec.Struct):
    format: Format
    verbosity: str | UnsetType = UNSET


class ReasoningOptions(msgspec.Struct):
    effort: str | None = None
    summary: str | None = None


class PendingFunction(msgspec.Struct):
    name: str
    arguments: str


class PendingCustom(msgspec.Struct):
    name: str
    input: str


class PendingCall(msgspec.Struct):
    id: str
    type: str
    function: PendingFunction | UnsetType = UNSET
    custom: PendingCustom | UnsetType = UNSET


class ToolCalls(msgspec.Struct):
    tool_calls: list[PendingCall]


class RequiredAction(msgspec.Struct):
    submit_tool_outputs: ToolCalls
    type: str = "submit_tool_outputs"


class Resource(msgspec.Struct, kw_only=True):
    """The response object, as it stands in every snapshot."""

    id: str
    object: str = "response"
    created_at: int
    completed_at: int | None = None
    status: str = "in_progress"
    incomplete_details: Incomplete | None = None
    model: str
    previous_response_id: str | None = None
    instructions: str | None = None
    output: list[Item] = []
    error: Failure | None = None
    tools: list[FunctionTool | Raw] = []
    tool_choice: str | NamedTool | AllowedTools = "auto"
    truncation: str = "disabled"
    parallel_tool_calls: bool = True
    text: Text
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_logprobs: int = 0
    temperature: float = 1.0
    reasoning: ReasoningOptions
    usage: Usage | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    store: bool = False
    background: bool = False
    service_tier: str = "default"
    metadata: dict[str, str]
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    required_action: RequiredAction | UnsetType | None = UNSET
