"""The shapes of the Responses wire: what the encoder writes and the decoder reads.

`Resource` is the response object with all its required keys; "present" means the key is there in
every snapshot, also when its value is null.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

NAME: Final = "openai-responses"

RAW_TEXT, SPEC_RAW_TEXT = "response.reasoning_text", "response.reasoning"
"""How raw reasoning is streamed: as clients know it, and as the specification calls it."""

Status = Literal["in_progress", "completed", "incomplete"]


class UrlCitation(msgspec.Struct, tag="url_citation", tag_field="type"):
    url: str
    title: str = ""
    start_index: int = 0
    end_index: int = 0


class FileCitation(msgspec.Struct, tag="file_citation", tag_field="type"):
    file_id: str
    filename: str = ""
    index: int = 0


Annotation = UrlCitation | FileCitation | Raw
"""What stands beside a text. One that came from this wire stays as it was."""


class OutputText(msgspec.Struct, tag="output_text", tag_field="type"):
    text: str
    annotations: list[Annotation] = []
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
    content: list[OutputText | Refusal | Raw]
    role: str = "assistant"
    phase: str | UnsetType = UNSET


class Reasoning(msgspec.Struct, tag="reasoning", tag_field="type"):
    id: str
    status: Status
    summary: list[Thought]
    content: list[Thought] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET


class Image(msgspec.Struct, tag="image_generation_call", tag_field="type"):
    id: str
    result: str
    output_format: str
    status: str = "completed"


Fields = dict[str, Raw | str]
"""Keys of an object that is known only by what it holds."""

Item = Message | Reasoning | Fields | Raw
"""What stands in `output`. Calls have the keys of their params and results."""


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
    code: str | None
    message: str
    param: str | None = None


class ErrorBody(msgspec.Struct):
    """What is answered in place of a response."""

    error: ErrorDetail


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


class Named(msgspec.Struct):
    """As much of an item as tells which one it is."""

    type: str | None = None
    id: str | None = None


class ContentPlace(msgspec.Struct):
    item_id: str | None = None


class ItemExtra(msgspec.Struct):
    """What the decoder keeps of an item: the keys that no field of a part holds."""

    item: dict[str, Raw] | None = None
    phase: str | None = None
    logprobs: list[Raw] | None = None
    content: ContentPlace | None = None
    """Of what is part of a message, and no item."""


class FinishedResponse(msgspec.Struct):
    service_tier: str | None = None


class FinishExtra(msgspec.Struct):
    """What the decoder keeps of a response that ended."""

    response: FinishedResponse | None = None


T = TypeVar("T", bound=msgspec.Struct)

_read_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def unpacked(raw: Raw | UnsetType, wanted: type[T]) -> T:
    """What a part kept, as this dialect keeps it; nothing when it is something else."""
    try:
        return msgspec.json.decode(raw, type=wanted) if isinstance(raw, Raw) else wanted()
    except (ValueError, RecursionError):
        return wanted()


def fields(text: str | bytes | Raw) -> Fields | None:
    """The keys of a JSON object; None for anything else."""
    try:
        return {**_read_fields(text)}
    except (ValueError, RecursionError):
        return None


def beside_names(keys: Mapping[str, Raw | str] | None) -> Fields:
    """All keys but those that say which item it is."""
    told = keys or {}
    return {key: told[key] for key in told if key not in ("type", "id")}


class Conversation(msgspec.Struct):
    """The conversation that a response is part of. Open Responses has none: it is told where the
    request named one."""

    id: str


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
    conversation: Conversation | UnsetType = UNSET
    required_action: RequiredAction | UnsetType | None = UNSET
