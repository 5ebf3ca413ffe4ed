"""The shapes that the decoder reads: every field is optional, unknown fields are skipped.

Fields whose type depends on the item (`arguments` is a string or an object, and so is `error`) stay
raw here and are decoded where the item type is known.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json
from weft.assembler import Buffer
from weft.dialects.frames import Salvage
from weft.parts import Json, ToolCall
from weft.request import Request

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
