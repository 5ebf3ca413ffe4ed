"""The shapes that the encoder writes.

`ResponseResource` is the response object. The specification requires all its keys in every
snapshot, null where there is no value.
"""

from collections.abc import Mapping
from typing import Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

Status = Literal["in_progress", "completed", "incomplete"]


class AnnotationUrlCitation(msgspec.Struct, tag="url_citation", tag_field="type"):
    url: str
    title: str = ""
    start_index: int = 0
    end_index: int = 0


class AnnotationFileCitation(msgspec.Struct, tag="file_citation", tag_field="type"):
    file_id: str
    filename: str = ""
    index: int = 0


Annotation = AnnotationUrlCitation | AnnotationFileCitation | Raw
"""An annotation of a text. One that came from this dialect is kept as raw JSON."""


class ResponseOutputText(msgspec.Struct, tag="output_text", tag_field="type"):
    text: str
    annotations: list[Annotation] = []
    logprobs: list[Raw] = []


class ResponseOutputRefusal(msgspec.Struct, tag="refusal", tag_field="type"):
    refusal: str


class ReasoningTextContent(msgspec.Struct, tag="reasoning_text", tag_field="type"):
    text: str


class SummaryTextContent(msgspec.Struct, tag="summary_text", tag_field="type"):
    text: str


ReasoningContentPart = SummaryTextContent | ReasoningTextContent


class ResponseOutputMessage(msgspec.Struct, tag="message", tag_field="type"):
    id: str
    status: Status
    content: list[ResponseOutputText | ResponseOutputRefusal | Raw]
    role: str = "assistant"
    phase: str | UnsetType = UNSET


class ResponseReasoningItem(msgspec.Struct, tag="reasoning", tag_field="type"):
    id: str
    status: Status
    summary: list[ReasoningContentPart]
    content: list[ReasoningContentPart] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET


class ImageGenerationCall(msgspec.Struct, tag="image_generation_call", tag_field="type"):
    id: str
    result: str
    output_format: str
    status: str = "completed"


Fields = dict[str, Raw | str]
"""The fields of an object whose keys depend on the type of call."""

RenderedItem = ResponseOutputMessage | ResponseReasoningItem | Fields | Raw
"""An item of `output`. A call has the fields of its params and its result."""


class InputTokensDetails(msgspec.Struct):
    cached_tokens: int
    cache_write_tokens: int | UnsetType = UNSET


class OutputTokensDetails(msgspec.Struct):
    reasoning_tokens: int


class ResponseUsage(msgspec.Struct):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens_details: OutputTokensDetails


class IncompleteDetails(msgspec.Struct):
    reason: str


class ResponseError(msgspec.Struct):
    code: str
    message: str


class ErrorDetail(msgspec.Struct):
    type: str
    code: str | None
    message: str
    param: str | None = None


class ErrorBody(msgspec.Struct):
    """The body of an error response."""

    error: ErrorDetail


class EchoedFunctionTool(msgspec.Struct, tag="function", tag_field="type"):
    name: str
    description: str | None
    parameters: Raw
    strict: bool | None


class EchoedToolName(msgspec.Struct):
    type: str
    name: str


class EchoedAllowedTools(msgspec.Struct, tag="allowed_tools", tag_field="type"):
    tools: list[EchoedToolName]
    mode: str


class EchoedTextFormat(msgspec.Struct):
    type: str
    name: str | UnsetType = UNSET
    description: str | UnsetType | None = UNSET
    schema: UnsetType | None = UNSET
    strict: bool | UnsetType | None = UNSET


class EchoedText(msgspec.Struct):
    format: EchoedTextFormat
    verbosity: str | UnsetType = UNSET


class EchoedReasoning(msgspec.Struct):
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


class SubmitToolOutputs(msgspec.Struct):
    tool_calls: list[PendingCall]


class RequiredAction(msgspec.Struct):
    submit_tool_outputs: SubmitToolOutputs
    type: str = "submit_tool_outputs"


class ItemIdentity(msgspec.Struct):
    """The fields that identify an item."""

    type: str | None = None
    id: str | None = None


class ContentPosition(msgspec.Struct):
    item_id: str | None = None


class ItemExtra(msgspec.Struct):
    """What the decoder stored in `extra`: fields of the item that no part has a field for."""

    item: dict[str, Raw] | None = None
    phase: str | None = None
    logprobs: list[Raw] | None = None
    content: ContentPosition | None = None
    """Set for a content part that is not text: which message it belongs to."""


class FinishedResponse(msgspec.Struct):
    service_tier: str | None = None


class ResponsesFinishExtra(msgspec.Struct):
    """What the decoder stored in the `extra` of a finish."""

    response: FinishedResponse | None = None


ShapeT = TypeVar("ShapeT", bound=msgspec.Struct)

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def decode_extra(raw: Raw | UnsetType, shape: type[ShapeT]) -> ShapeT:
    """Decodes the `extra` of a part; an empty shape if it does not fit."""
    try:
        return msgspec.json.decode(raw, type=shape) if isinstance(raw, Raw) else shape()
    except (ValueError, RecursionError):
        return shape()


def parse_object(text: str | bytes | Raw) -> Fields | None:
    """Returns the fields of a JSON object; None for anything else."""
    try:
        return {**_decode_fields(text)}
    except (ValueError, RecursionError):
        return None


def without_identity(fields: Mapping[str, Raw | str] | None) -> Fields:
    """Returns all fields except `type` and `id`."""
    present = fields or {}
    return {key: present[key] for key in present if key not in ("type", "id")}


class ResponseConversation(msgspec.Struct):
    """The conversation of a response. Open Responses has none; it is written if the request named
    one.
    """

    id: str


class ResponseResource(msgspec.Struct, kw_only=True):
    """The response object of every snapshot."""

    id: str
    object: str = "response"
    created_at: int
    completed_at: int | None = None
    status: str = "in_progress"
    incomplete_details: IncompleteDetails | None = None
    model: str
    previous_response_id: str | None = None
    instructions: str | None = None
    output: list[RenderedItem] = []
    error: ResponseError | None = None
    tools: list[EchoedFunctionTool | Raw] = []
    tool_choice: str | EchoedToolName | EchoedAllowedTools = "auto"
    truncation: str = "disabled"
    parallel_tool_calls: bool = True
    text: EchoedText
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_logprobs: int = 0
    temperature: float = 1.0
    reasoning: EchoedReasoning
    usage: ResponseUsage | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    store: bool = False
    background: bool = False
    service_tier: str = "default"
    metadata: dict[str, str]
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    conversation: ResponseConversation | UnsetType = UNSET
    required_action: RequiredAction | UnsetType | None = UNSET
