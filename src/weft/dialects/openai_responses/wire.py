"""The shapes of events, items and parts, read and written.

Every field of what is read is optional, and unknown fields are skipped. Fields whose type depends
on the item (`arguments` is a string or an object, and so is `error`) stay raw here and are decoded
where the item type is known. The response object that is written is in `encoding/snapshot.py`.
"""

from typing import Final, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json
from weft.dialects.raw_json import copy_raw
from weft.parts import Json

NAME: Final = "openai-responses"

RAW_TEXT, SPEC_RAW_TEXT = "response.reasoning_text", "response.reasoning"
"""The event prefix of raw reasoning: the one clients expect, and the one in the specification."""

# In any other field half a pair is replaced at once: nothing follows that could complete it.
STREAMED_FIELDS = frozenset(
    {"delta", "text", "refusal", "arguments", "input", "code", "diff", "stdout", "stderr"}
)
"""Fields that arrive in pieces, so that a surrogate pair may be split between two of them."""

RESPONSE_OBJECT = "response"
"""The `object` of a response, which tells a body from an event."""

NULL = Raw(b"null")


class ResponsesAnnotation(msgspec.Struct, omit_defaults=True):
    type: str | None = None
    url: str | None = None
    title: str | None = None
    file_id: str | None = None
    filename: str | None = None
    start_index: int | None = None
    end_index: int | None = None
    index: Json = UNSET


class ResponsesPart(msgspec.Struct, omit_defaults=True):
    """A content part or a summary part."""

    type: str | None = None
    text: str | None = None
    refusal: str | None = None
    annotations: list[Raw] | None = None
    logprobs: Json = UNSET


class Identity(msgspec.Struct):
    """The fields that identify an object."""

    type: str | None = None
    id: str | None = None


class ObjectOnly(msgspec.Struct):
    object: str | None = None


class ResponsesCaller(msgspec.Struct):
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
    # Absent and null differ: an item without this key, but with `content`, announces raw reasoning.
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


class ResponsesTokenDetails(msgspec.Struct, omit_defaults=True):
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
    # A number on some hosts.
    code: str | int | None = None
    type: str | None = None
    param: str | int | None = None


class IncompleteDetails(msgspec.Struct):
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
    incomplete_details: IncompleteDetails | None = None
    # A bare string is in no specification, but there are gateways that send it.
    error: ResponsesError | str | None = None
    usage: Json = UNSET
    output: list[Raw] | None = None
    tools: list[Raw] | None = None
    service_tier: Json = UNSET
    conversation: Json = UNSET
    reasoning: Json = UNSET


class CommandOutputDelta(msgspec.Struct, omit_defaults=True):
    """More output of one command."""

    stdout: str | None = None
    stderr: str | None = None


# One shape for all events, because `type` may come last. Without cycles in it, the garbage
# collector need not track it.
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
    # An object only for the output of commands. Null is read as an empty delta.
    delta: str | CommandOutputDelta | None = None
    text: str | None = None
    refusal: str | None = None
    # Whole values, in the `.done` events
    arguments: str | None = None
    input: str | None = None
    diff: str | None = None
    # Annotations
    annotation: Json = UNSET
    annotations: list[Raw] | None = None
    # Errors, flat or nested, and the sign of a Chat Completions chunk
    error: ResponsesError | str | None = None
    message: str | None = None
    code: str | int | None = None
    choices: Json = UNSET


# What is written

# The statuses of core items; `failed` is not among them.
Status = Literal["in_progress", "completed", "incomplete"]


class ResponseOutputMessage(msgspec.Struct, tag="message", tag_field="type"):
    id: str
    status: Status
    content: list[ResponsesPart | Raw]
    role: str = "assistant"
    phase: str | UnsetType = UNSET


class ResponseReasoningItem(msgspec.Struct, tag="reasoning", tag_field="type"):
    id: str
    status: Status
    summary: list[ResponsesPart]
    content: list[ResponsesPart] | UnsetType = UNSET
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


class ResponseError(msgspec.Struct):
    code: str | int
    message: str


class PendingFunction(msgspec.Struct):
    name: str
    arguments: str


class PendingCustom(msgspec.Struct):
    name: str
    input: str


class RequiredCall(msgspec.Struct):
    id: str
    type: str
    function: PendingFunction | UnsetType = UNSET
    custom: PendingCustom | UnsetType = UNSET


class SubmitToolOutputs(msgspec.Struct):
    tool_calls: list[RequiredCall]


class RequiredAction(msgspec.Struct):
    submit_tool_outputs: SubmitToolOutputs
    type: str = "submit_tool_outputs"


# Raw JSON

decode_event = large_json.decoder(ResponsesEvent)
_encode = msgspec.json.Encoder().encode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def object_fields(raw: Json) -> dict[str, Raw]:
    """Returns the fields of a raw object; none for anything else."""
    try:
        return _decode_fields(raw) if isinstance(raw, Raw) else {}
    except (ValueError, RecursionError):
        return {}


def to_raw(value: object) -> Raw:
    return Raw(_encode(value))


def present_fields(**values: str | Raw | UnsetType | None) -> dict[str, Raw]:
    """Returns the values that are set and not null."""
    return {
        key: to_raw(value) if isinstance(value, str) else value
        for key, value in values.items()
        if isinstance(value, str | Raw) and value != NULL
    }


def present_or(value: Json, default: Raw) -> Raw:
    """Returns the value; the default if it is absent or null."""
    return value if isinstance(value, Raw) and value != NULL else default


def raw_object(values: dict[str, Raw]) -> Raw:
    """Encodes an object of raw values on one line."""
    return copy_raw(to_raw(values))


def parse_object(text: str | bytes | Raw) -> Fields | None:
    """Returns the fields of a JSON object; None for anything else."""
    try:
        return {**_decode_fields(text)}
    except (ValueError, RecursionError):
        return None
