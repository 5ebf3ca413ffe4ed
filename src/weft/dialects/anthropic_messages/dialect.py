"""The row of this dialect in `DIALECTS`."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json
from weft.dialects.anthropic_messages import wire
from weft.dialects.anthropic_messages.decoder import MessagesDecoder
from weft.dialects.anthropic_messages.encoder import MessagesEncoder, body
from weft.dialects.anthropic_messages.errors import read_error, write_error
from weft.dialects.anthropic_messages.http import HTTP
from weft.dialects.anthropic_messages.quirks import MessagesQuirks
from weft.dialects.anthropic_messages.request import REQUEST
from weft.dialects.anthropic_messages.validator import MessagesValidator
from weft.dialects.base import Dialect
from weft.sse import Frame

_EVENT_TYPES = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    }
)
"""Event types that only this dialect has. Others have pings too."""


# Detection and cutting look at every frame of a capture, so they decode only these few fields.
class _PeekedError(msgspec.Struct):
    type: str | None = None
    code: Raw | UnsetType = UNSET


class _PeekedMessage(msgspec.Struct):
    id: str | None = None


class _PeekedEvent(msgspec.Struct):
    """The fields of an event that identify it."""

    type: str
    role: str | None = None
    error: _PeekedError | None = None
    message: _PeekedMessage | None = None
    sequence_number: Raw | UnsetType = UNSET


_decode_peeked = msgspec.json.Decoder(_PeekedEvent).decode


def _peek(frame: Frame) -> _PeekedEvent:
    try:
        return _decode_peeked(frame.data)
    except (ValueError, RecursionError):
        return _PeekedEvent("")


def _speaks(frame: Frame) -> bool:
    event = _peek(frame)
    if event.type == "error":
        # `invalid_request_error` is a type of the OpenAI dialects too: there the error has a
        # `code`, and a Responses error event has a number.
        error = event.error or _PeekedError()
        plain = error.code is UNSET and event.sequence_number is UNSET
        return plain and error.type in wire.ERROR_TYPES
    return event.type in _EVENT_TYPES or (event.type == "message" and event.role == "assistant")


def _begins(frame: Frame, before: Sequence[Frame]) -> bool:
    """Whether this is a `message_start` with another id, or a whole message after an end."""
    # capture: two-messages, message-start-twice
    if _peek(frame).type == "message":
        return any(map(_ends, before))
    # Compared with all starts so far: a repeated `message_start` is no new message.
    started = _started_id(frame)
    known = set(map(_started_id, before)) - {None} if started is not None else set()
    return bool(known) and started not in known


def _started_id(frame: Frame) -> str | None:
    event = _peek(frame)
    return event.message.id if event.type == "message_start" and event.message else None


def _ends(frame: Frame) -> bool:
    return _peek(frame).type in ("message_stop", "message")


def _with_model(frame: Frame, model: str) -> bytes:
    """Replaces the model in a `message_start` or a body: clients send thinking blocks back only if
    the message names the model that they requested.
    """
    # Called for each frame that is passed on: all but the first are returned without parsing them.
    if frame.event not in ("", "message_start"):
        return frame.data
    try:
        fields = wire.read_fields(frame.data)
        if "message" in fields:
            # Merged over the raw values, so that the other keys stay as the upstream wrote them.
            message = {**wire.read_fields(fields["message"]), "model": model}
            return msgspec.json.encode({**fields, "message": message})
    except (ValueError, RecursionError):
        return frame.data
    return large_json.write({**fields, "model": model}) if "model" in fields else frame.data


ANTHROPIC_MESSAGES = Dialect(
    wire.NAME,
    speaks=_speaks,
    decoder=MessagesDecoder,
    encoder=MessagesEncoder,
    body=body,
    begins=_begins,
    new_id=lambda ids: ids.mint("msg"),
    event_name=lambda frame: frame.event or _peek(frame).type,
    is_whole=lambda frame: _peek(frame).type == "message",
    resumable_by_id=True,
    with_model=_with_model,
    ends=_ends,
    read_error=read_error,
    write_error=write_error,
    http=HTTP,
    quirks=MessagesQuirks,
    validator=MessagesValidator,
    request=REQUEST,
)
