"""The shapes of the Responses wire as it is read: everything optional, unknown fields skipped.

What several items spell differently (`arguments` is text or an object, `error` too) stays raw
here, and is read by whoever knows the item.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json
from weft.assembler import Buffer
from weft.dialects.base import Salvage
from weft.parts import Json, ToolCall
from weft.request import Request

GROWING = frozenset(
    {"delta", "text", "refusal", "arguments", "input", "code", "diff", "stdout", "stderr"}
)
"""Fields that come in pieces, so that a surrogate pair may be cut in two there."""

NULL = Raw(b"null")


class Annotation(msgspec.Struct):
    type: str | None = None
    url: str | None = None
    title: str | None = None
    file_id: str | None = None
    filename: str | None = None
    start_index: int | None = None
    end_index: int | None = None


class Part(msgspec.Struct):
    """A content part or a summary part."""

    type: str | None = None
    text: str | None = None
    refusal: str | None = None
    annotations: list[Raw] | None = None
    logprobs: Json = UNSET


class Typed(msgspec.Struct):
    """As much of an object as tells its kind."""

    type: str | None = None


class Caller(msgspec.Struct):
    type: str | None = None
    caller_id: str | None = None


class Operation(msgspec.Struct):
    """What a patch does to one file."""

    type: str | None = None
    path: str | None = None
    diff: str | None = None


class Item(msgspec.Struct):
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

    def heads(self, call: ToolCall) -> Json:
        """What it tells of its call when that is announced: whatever its start has no field for."""
        own = call.provider_executed and self.call_id != call.id
        return packed(
            known(
                call_id=self.call_id if own else None,
                namespace=self.namespace,
                caller=self.caller,
                environment=self.environment,
                execution=self.execution,
                server_label=self.server_label,
                approval_request_id=self.approval_request_id,
            )
        )


class Details(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    input_tokens_details: Details | None = None
    output_tokens_details: Details | None = None


class Error(msgspec.Struct):
    message: str | None = None
    code: str | int | None = None
    type: str | None = None
    param: str | int | None = None


class Incomplete(msgspec.Struct):
    reason: str | None = None


class Tool(msgspec.Struct):
    """A tool as the response lists it."""

    type: str | None = None
    name: str | None = None
    environment: Json = UNSET


class Response(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    created_at: int | None = None
    store: bool | None = None
    status: str | None = None
    incomplete_details: Incomplete | None = None
    error: Error | str | None = None
    usage: Json = UNSET
    output: list[Raw] | None = None
    tools: list[Raw] | None = None
    service_tier: Json = UNSET
    conversation: Json = UNSET
    reasoning: Json = UNSET


class Printed(NamedTuple):
    """What one command printed so far."""

    stdout: Buffer
    stderr: Buffer


class Streams(msgspec.Struct):
    """More of what a command printed."""

    stdout: str | None = None
    stderr: str | None = None


class Event(msgspec.Struct, gc=False):
    """Any event; and, with `object`, a whole response or an error body."""

    type: str | None = None
    object: str | None = None
    sequence_number: int | None = None
    response: Response | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    annotation_index: int | None = None
    command_index: int | None = None
    item_id: str | None = None
    item: Json = UNSET
    part: Part | None = None
    delta: str | Streams | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    input: str | None = None
    diff: str | None = None
    annotation: Json = UNSET
    annotations: list[Raw] | None = None
    error: Error | str | None = None
    message: str | None = None
    code: str | int | None = None
    choices: Json = UNSET


class Glance(msgspec.Struct):
    """As much of a frame as tells whether it is a whole response."""

    object: str | None = None


BODY = "response"

read = large_json.decoder(Event)
_glance = msgspec.json.Decoder(Glance).decode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def is_body(data: bytes) -> bool:
    try:
        return _glance(data).object == BODY
    except (ValueError, RecursionError):
        return False


def one_line(raw: Raw) -> Raw:
    """The value without the frame it stood in, and on one line: in a body it may span many."""
    text = bytes(raw)
    if b"\n" in text or b"\r" in text:
        text = msgspec.json.format(text, indent=-1)
    return Raw(text)


def fields(raw: Json) -> dict[str, Raw]:
    """The keys of a raw object; none if it is no object."""
    try:
        return _fields(raw) if isinstance(raw, Raw) else {}
    except (ValueError, RecursionError):
        return {}


def raw(value: str | int) -> Raw:
    return Raw(msgspec.json.encode(value))


def known(**values: str | Raw | UnsetType | None) -> dict[str, Raw]:
    """The values that are there, and not null."""
    return {
        key: raw(value) if isinstance(value, str) else value
        for key, value in values.items()
        if isinstance(value, str | Raw) and value != NULL
    }


def written(values: dict[str, Raw]) -> Raw:
    """An object of raw values, on one line."""
    return one_line(Raw(msgspec.json.encode(values)))


class Declared(NamedTuple):
    """The tools that the model was given, as far as a decoder asks."""

    names: frozenset[str]
    hosted: bool
    """Some tool is executed by the provider, and none can be loaded later."""
    contained: bool | None
    """Whether commands run in a container of the provider; None: no such tool is listed."""


_CLIENT = frozenset({"function", "custom"})
_LOADING = frozenset({"namespace", "tool_search"})
"""Tools that bring others with them, whose names nobody told beforehand."""


def declared(
    salvage: Salvage, listed: list[Raw] | None, request: Request | None
) -> Declared | None:
    """The tools that the response lists, else those of the request; None: neither is known."""
    tools = [salvage.item(raw, Tool) for raw in listed or ()]
    if not tools and request is not None:
        tools = [
            Tool(one.kind, one.name, salvage.item(one.raw, Tool).environment)
            for one in request.tools
        ]
    if not tools:
        return None
    types = {one.type for one in tools}
    shells = [contained(salvage, one.environment) for one in tools if one.type == "shell"]
    return Declared(
        frozenset(one.name for one in tools if one.name),
        bool(types - _CLIENT) and not types & _LOADING,
        any(shells) if shells else None,
    )


def contained(salvage: Salvage, environment: Json) -> bool:
    """Whether this is an environment of the provider."""
    return (salvage.item(environment, Typed).type or "").startswith("container")


def leftover(item: Raw | None, held: Iterable[str]) -> dict[str, Raw]:
    """What an item tells beside the keys that its parts hold. That it is completed goes without
    saying.
    """
    told = fields(item or UNSET)
    for key in held:
        told.pop(key, None)
    if bytes(told.get("status", NULL)) == b'"completed"':
        del told["status"]
    return told


def packed(told: dict[str, Raw]) -> Json:
    """What a part keeps of its item for the way back; nothing when there is nothing to keep."""
    return written({"item": written(told)}) if told else UNSET
