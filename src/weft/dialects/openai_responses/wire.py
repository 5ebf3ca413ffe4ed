"""The shapes of responses and their events: first those that are read, then those that are written.

Of what is read every field is optional, and unknown fields are skipped. Fields whose type depends
on the item (`arguments` is a string or an object, and so is `error`) stay raw here and are decoded
where the item type is known.

`ResponseResource` is the response object that is written. The specification requires all its keys
in every snapshot, null where there is no value.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json
from weft.assembler import Buffer
from weft.dialects.base import Salvage
from weft.parts import Json, ToolCall
from weft.request import Request

ShapeT = TypeVar("ShapeT", bound=msgspec.Struct)

NAME: Final = "openai-responses"

RAW_TEXT, SPEC_RAW_TEXT = "response.reasoning_text", "response.reasoning"
"""The event prefix of raw reasoning: the one clients expect, and the one in the specification."""

STREAMED_FIELDS = frozenset(
    {"delta", "text", "refusal", "arguments", "input", "code", "diff", "stdout", "stderr"}
)
"""Fields that arrive in pieces, so that a surrogate pair may be split between two of them."""

NULL = Raw(b"null")


class ResponsesAnnotation(msgspec.Struct):
    type: str | None = None
    url: str | None = None
    title: str | None = None
    file_id: str | None = None
    filename: str | None = None
    start_index: int | None = None
    end_index: int | None = None


class ResponsesPart(msgspec.Struct):
    """A content part or a summary part."""

    type: str | None = None
    text: str | None = None
    refusal: str | None = None
    annotations: list[Raw] | None = None
    logprobs: Json = UNSET


class TypeOnly(msgspec.Struct):
    """The type of an object."""

    type: str | None = None


class ResponsesCaller(msgspec.Struct):
    type: str | None = None
    caller_id: str | None = None


class PatchOperation(msgspec.Struct):
    """The operation of a patch on one file."""

    type: str | None = None
    path: str | None = None
    diff: str | None = None


class ResponsesItem(msgspec.Struct):
    """An output item of any type."""

    type: str | None = None
    id: str | None = None
    status: str | None = None
    phase: str | None = None
    content: list[Raw] | UnsetType | None = UNSET
    summary: list[Raw] | None = None
    encrypted_content: str | UnsetType | None = UNSET
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    caller: Json = UNSET
    arguments: Json = UNSET
    input: str | None = None
    container_id: str | None = None
    code: str | None = None
    outputs: Json = UNSET
    operation: Json = UNSET
    action: Json = UNSET
    actions: Json = UNSET
    pending_safety_checks: Json = UNSET
    queries: Json = UNSET
    results: Json = UNSET
    result: Json = UNSET
    environment: Json = UNSET
    output: Json = UNSET
    error: Json = UNSET
    server_label: str | None = None
    approval_request_id: str | None = None
    execution: str | None = None
    tools: Json = UNSET
    fingerprint: str | None = None

    @property
    def failed(self) -> bool:
        """Whether the item failed. Any other status is a success, `in_progress` included."""
        return self.status in ("incomplete", "failed")

    def start_extra(self, call: ToolCall) -> Json:
        """Returns the `extra` of a tool-params-start: fields known at the start that it has no
        field for.
        """
        own_call_id = call.provider_executed and self.call_id != call.id
        return item_extra(
            present_fields(
                call_id=self.call_id if own_call_id else None,
                namespace=self.namespace,
                caller=self.caller,
                environment=self.environment,
                execution=self.execution,
                server_label=self.server_label,
                approval_request_id=self.approval_request_id,
            )
        )


class ResponsesTokenDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class ResponsesUsage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    input_tokens_details: ResponsesTokenDetails | None = None
    output_tokens_details: ResponsesTokenDetails | None = None


class ResponsesError(msgspec.Struct):
    message: str | None = None
    code: str | int | None = None
    type: str | None = None
    param: str | int | None = None


class IncompleteReason(msgspec.Struct):
    reason: str | None = None


class ResponsesTool(msgspec.Struct):
    """A tool in the response's list of tools."""

    type: str | None = None
    name: str | None = None
    environment: Json = UNSET


class ResponseObject(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    created_at: int | None = None
    store: bool | None = None
    status: str | None = None
    incomplete_details: IncompleteReason | None = None
    error: ResponsesError | str | None = None
    usage: Json = UNSET
    output: list[Raw] | None = None
    tools: list[Raw] | None = None
    service_tier: Json = UNSET
    conversation: Json = UNSET
    reasoning: Json = UNSET


class CommandOutput(NamedTuple):
    """The output of one command so far."""

    stdout: Buffer
    stderr: Buffer


class CommandOutputDelta(msgspec.Struct):
    """More output of one command."""

    stdout: str | None = None
    stderr: str | None = None


class ResponsesEvent(msgspec.Struct, gc=False):
    """Any event. With `object` it is a whole response, and with `error` alone an error body."""

    type: str | None = None
    object: str | None = None
    sequence_number: int | None = None
    response: ResponseObject | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    annotation_index: int | None = None
    command_index: int | None = None
    item_id: str | None = None
    item: Json = UNSET
    part: ResponsesPart | None = None
    delta: str | CommandOutputDelta | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    input: str | None = None
    diff: str | None = None
    annotation: Json = UNSET
    annotations: list[Raw] | None = None
    error: ResponsesError | str | None = None
    message: str | None = None
    code: str | int | None = None
    choices: Json = UNSET


# What is written

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


# Raw JSON


class ObjectOnly(msgspec.Struct):
    """Tells a response body from an event."""

    object: str | None = None


RESPONSE_OBJECT = "response"

decode_event = large_json.decoder(ResponsesEvent)
_decode_object = msgspec.json.Decoder(ObjectOnly).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def is_response_body(data: bytes) -> bool:
    try:
        return _decode_object(data).object == RESPONSE_OBJECT
    except (ValueError, RecursionError):
        return False


def one_line(raw: Raw) -> Raw:
    """Returns the value as a copy on one line; in a body it may span several."""
    text = bytes(raw)
    if b"\n" in text or b"\r" in text:
        text = msgspec.json.format(text, indent=-1)
    return Raw(text)


def object_fields(raw: Json) -> dict[str, Raw]:
    """Returns the fields of a raw object; none for anything else."""
    try:
        return _decode_fields(raw) if isinstance(raw, Raw) else {}
    except (ValueError, RecursionError):
        return {}


def to_raw(value: str | int) -> Raw:
    return Raw(msgspec.json.encode(value))


def present_fields(**values: str | Raw | UnsetType | None) -> dict[str, Raw]:
    """Returns the values that are set and not null."""
    return {
        key: to_raw(value) if isinstance(value, str) else value
        for key, value in values.items()
        if isinstance(value, str | Raw) and value != NULL
    }


def raw_object(values: dict[str, Raw]) -> Raw:
    """Encodes an object of raw values on one line."""
    return one_line(Raw(msgspec.json.encode(values)))


class DeclaredTools(NamedTuple):
    """What the decoder needs to know about the tools that the model was given."""

    names: frozenset[str]
    any_hosted: bool
    """Whether the provider executes some tool, and no tool can be loaded later."""
    shell_in_container: bool | None
    """Whether shell commands run in a container of the provider; None if there is no shell tool."""


_CLIENT_TOOLS = frozenset({"function", "custom"})
_LOADING_TOOLS = frozenset({"namespace", "tool_search"})
"""Tools that load further tools, whose names are not known beforehand."""


def declared_tools(
    salvage: Salvage, listed: list[Raw] | None, request: Request | None
) -> DeclaredTools | None:
    """Returns the tools that the response lists, or else those of the request; None if neither has
    any.
    """
    tools = [salvage.item(raw, ResponsesTool) for raw in listed or ()]
    if not tools and request is not None:
        tools = [
            ResponsesTool(tool.kind, tool.name, salvage.item(tool.raw, ResponsesTool).environment)
            for tool in request.tools
        ]
    if not tools:
        return None
    types = {tool.type for tool in tools}
    shells = [is_container(salvage, tool.environment) for tool in tools if tool.type == "shell"]
    return DeclaredTools(
        frozenset(tool.name for tool in tools if tool.name),
        bool(types - _CLIENT_TOOLS) and not types & _LOADING_TOOLS,
        any(shells) if shells else None,
    )


def is_container(salvage: Salvage, environment: Json) -> bool:
    """Whether this environment is a container of the provider."""
    return (salvage.item(environment, TypeOnly).type or "").startswith("container")


def remaining_fields(item: Raw | None, mapped: Iterable[str]) -> dict[str, Raw]:
    """Returns the fields of an item that its parts do not hold. Status `completed` is the default
    and left out.
    """
    remaining = object_fields(item or UNSET)
    for key in mapped:
        remaining.pop(key, None)
    if bytes(remaining.get("status", NULL)) == b'"completed"':
        del remaining["status"]
    return remaining


def unmapped_extra(item: Raw | None, mapped: Iterable[str]) -> Json:
    """Returns an `extra` with the fields of an item that its parts do not hold."""
    return item_extra(remaining_fields(item, mapped))


def item_extra(fields: dict[str, Raw]) -> Json:
    """Returns an `extra` that keeps these item fields for the encoder, if there are any."""
    return raw_object({"item": raw_object(fields)}) if fields else UNSET


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
