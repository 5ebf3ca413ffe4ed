"""The row of this dialect in the table of dialects, and what it reads from single frames."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.dialects.base import Dialect, EventKey
from weft.dialects.openai_responses.decoder import ResponsesDecoder
from weft.dialects.openai_responses.encoder import ResponsesEncoder, body
from weft.dialects.openai_responses.errors import read_error, write_error
from weft.dialects.openai_responses.http import HTTP
from weft.dialects.openai_responses.quirks import ResponsesQuirks
from weft.dialects.openai_responses.request import REQUEST
from weft.dialects.openai_responses.validator import ResponsesValidator
from weft.dialects.openai_responses.wire import (
    NAME,
    NULL,
    RAW_TEXT,
    RESPONSE_OBJECT,
    SPEC_RAW_TEXT,
    Identity,
)
from weft.parts import Json
from weft.sse import DONE, Frame


class _FrameHeader(msgspec.Struct):
    """The fields that identify an event or a body."""

    type: str | None = None
    object: str | None = None
    response: Identity | None = None


# A server announces a response with up to three snapshots of the same id before its first item.
_CREATED = "response.created"
_ANNOUNCING_EVENTS = frozenset((_CREATED, "response.queued", "response.in_progress"))

_decode_header = large_json.skimmer(_FrameHeader)


def _header(frame: Frame) -> _FrameHeader:
    try:
        return _decode_header(frame.data)
    except (ValueError, RecursionError):
        return _FrameHeader()


def _is_responses_frame(frame: Frame) -> bool:
    header = _header(frame)
    return header.object == RESPONSE_OBJECT or (header.type or "").startswith("response.")


def _begins_response(frame: Frame, before: Sequence[Frame]) -> bool:
    """Whether this frame creates a new response. A repeated `response.created` with the same id,
    before any output, does not.
    """
    # A capture of a WebSocket session or of a tool loop has several responses in a row, each with
    # indexes and numbers from 0. A `response.created` that only repeats the announcement must not
    # cut an empty response off.
    # capture: two-responses
    if _header(frame).type != _CREATED:
        return False
    headers = [
        header for header in map(_header, before) if (header.type or "").startswith("response.")
    ]
    only_announced = all(header.type in _ANNOUNCING_EVENTS for header in headers)
    return bool(headers) and not (
        only_announced and headers[-1].response == _header(frame).response
    )


def _is_whole_response(frame: Frame) -> bool:
    header = _header(frame)
    return header.type is None and header.object == RESPONSE_OBJECT


def _event_name(frame: Frame) -> str:
    return frame.event or _header(frame).type or ""


def _is_terminator(frame: Frame) -> bool:
    return frame.data == DONE


class _EventPosition(msgspec.Struct):
    """The fields that say which event this is, and which item and part it is about."""

    type: str = ""
    sequence_number: int | None = None
    output_index: int = -1
    content_index: int | None = None
    summary_index: int | None = None
    command_index: int | None = None
    item: Identity | None = None


_decode_position = large_json.skimmer(_EventPosition)

_SINGLE_EVENT_SUFFIXES = frozenset(
    {"added", "completed", "created", "done", "failed", "generating", "in_progress"}
    | {"interpreting", "queued", "searching"}
)
"""Last words of the event types that occur once per item, or once per part of an item."""

_REPEATABLE_EVENTS = frozenset({"response.output_text.annotation.added", "response.audio.done"})
"""Events with such a last word that may occur more than once."""

_TERMINAL_EVENTS = frozenset({"response.completed", "response.failed", "response.done"})


def _position(frame: Frame) -> _EventPosition:
    try:
        return _decode_position(frame.data)
    except (ValueError, RecursionError):
        return _EventPosition()


def _sequence_number(frame: Frame) -> int | None:
    return _position(frame).sequence_number


def _event_key(frame: Frame) -> EventKey | None:
    """Returns the event type, the item and the part it is about, and the id of an item it adds."""
    # Deltas are most of a stream and always stand for a part, so they are not even decoded.
    if frame.event.endswith(".delta"):
        return None
    event = _position(frame)
    # Both names of raw reasoning are one event, or the encoder would write its own after the
    # upstream's.
    type = (event.type or frame.event).replace(SPEC_RAW_TEXT + ".", RAW_TEXT + ".")
    if (
        type.rpartition(".")[2] not in _SINGLE_EVENT_SUFFIXES
        or type in _REPEATABLE_EVENTS
        or type in _TERMINAL_EVENTS
    ):
        return None
    # An event has at most one of these: they count the content, the summary parts or the commands
    # of one item.
    indexes = (event.content_index, event.summary_index, event.command_index)
    part = next((index for index in indexes if index is not None), -1)
    # With the id the encoder can tell under which index the client knows an item that has no part
    # yet.
    if type == "response.output_item.added" and event.item is not None and event.item.id:
        return (type, event.output_index, part, event.item.id)
    return (type, event.output_index, part)


class _SnapshotField(msgspec.Struct):
    """The response object inside an event."""

    response: Json = UNSET


_decode_snapshot = large_json.skimmer(_SnapshotField)


def _snapshot(frame: Frame) -> bytes | None:
    # A search costs a fraction of decoding, and few events have a snapshot.
    if b'"response"' not in frame.data:
        return None
    try:
        response = _decode_snapshot(frame.data).response
    except (ValueError, RecursionError):
        return None
    if not isinstance(response, Raw) or response == NULL:
        return None
    return large_json.copied(response)


def _with_model(frame: Frame, model: str) -> bytes:
    response = _snapshot(frame)
    if response is not None:
        renamed = Raw(_with_model_name(response, model))
        return large_json.write({**large_json.members(frame.data), "response": renamed})
    # Without an event name it may be a whole response.
    return frame.data if frame.event else _with_model_name(frame.data, model)


def _with_model_name(response: bytes, model: str) -> bytes:
    try:
        fields = large_json.members(response)
    except (ValueError, RecursionError):
        return response
    if "model" not in fields:
        return response
    return large_json.write({**fields, "model": model})


OPENAI_RESPONSES = Dialect(
    NAME,
    speaks=_is_responses_frame,
    aliases=("open-responses",),
    decoder=ResponsesDecoder,
    encoder=ResponsesEncoder,
    request=REQUEST,
    body=body,
    begins=_begins_response,
    stores=True,
    event_name=_event_name,
    is_whole=_is_whole_response,
    terminator=DONE,
    snapshot=_snapshot,
    with_model=_with_model,
    ends=_is_terminator,
    number=_sequence_number,
    event_key=_event_key,
    read_error=read_error,
    write_error=write_error,
    http=HTTP,
    quirks=ResponsesQuirks,
    validator=ResponsesValidator,
)
