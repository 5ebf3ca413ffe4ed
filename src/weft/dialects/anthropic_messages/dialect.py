"""The row of this dialect in the table of dialects."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.dialects.anthropic_messages import wire
from weft.dialects.anthropic_messages.decoder import MessagesDecoder
from weft.dialects.anthropic_messages.encoder import MessagesEncoder, body
from weft.dialects.anthropic_messages.errors import read_error, write_error
from weft.dialects.anthropic_messages.http import HTTP
from weft.dialects.anthropic_messages.mapping import ERRORS
from weft.dialects.anthropic_messages.quirks import MessagesQuirks
from weft.dialects.anthropic_messages.request import REQUEST
from weft.dialects.anthropic_messages.validator import RULES, MessagesInvariants
from weft.dialects.base import Dialect
from weft.ids import Ids
from weft.sse import Frame

_OWN = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    }
)
"""Types that only this dialect has. A ping is nobody's."""


class _Error(msgspec.Struct):
    type: str | None = None
    code: Raw | UnsetType = UNSET


class _Message(msgspec.Struct):
    id: str | None = None


class _Glance(msgspec.Struct):
    """As much of an event as tells what it is."""

    type: str
    role: str | None = None
    error: _Error | None = None
    message: _Message | None = None
    sequence_number: Raw | UnsetType = UNSET


_glance = msgspec.json.Decoder(_Glance).decode


def _seen(frame: Frame) -> _Glance:
    try:
        return _glance(frame.data)
    except (ValueError, RecursionError):
        return _Glance("")


def _speaks(frame: Frame) -> bool:
    seen = _seen(frame)
    if seen.type == "error":
        return _is_our_error(seen)
    return seen.type in _OWN or (seen.type == "message" and seen.role == "assistant")


def _is_our_error(seen: _Glance) -> bool:
    """Others have errors of these types too, but numbered, or with a code."""
    error = seen.error or _Error()
    plain = error.code is UNSET and seen.sequence_number is UNSET
    return plain and error.type in ERRORS


def _begins(frame: Frame, before: Sequence[Frame]) -> bool:
    """A second message_start, the same one again being only a repetition; or a whole message."""
    if _seen(frame).type == "message":
        return any(map(_ends, before))
    started = _started(frame)
    known = set(map(_started, before)) - {None} if started is not None else set()
    return bool(known) and started not in known


def _started(frame: Frame) -> str | None:
    """The id of the message that this frame starts."""
    seen = _seen(frame)
    return seen.message.id if seen.type == "message_start" and seen.message else None


def _ends(frame: Frame) -> bool:
    return _seen(frame).type in ("message_stop", "message")


_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def _with_model(frame: Frame, model: str) -> bytes:
    """Clients do not bring back what another model thought than the one they ask for, so a message
    names it as they did."""
    if frame.event not in ("", "message_start"):
        return frame.data
    try:
        fields = _fields(frame.data)
        if "message" in fields:
            message = {**_fields(fields["message"]), "model": model}
            return msgspec.json.encode({**fields, "message": message})
    except (ValueError, RecursionError):
        return frame.data
    return msgspec.json.encode({**fields, "model": model}) if "model" in fields else frame.data


def _is_whole(frame: Frame) -> bool:
    return _seen(frame).type == "message"


def _event_name(frame: Frame) -> str:
    return frame.event or _seen(frame).type


def _new_id(ids: Ids) -> str:
    return ids.mint("msg")


ANTHROPIC_MESSAGES = Dialect(
    wire.NAME,
    speaks=_speaks,
    decoder=MessagesDecoder,
    encoder=MessagesEncoder,
    body=body,
    begins=_begins,
    new_id=_new_id,
    event_name=_event_name,
    is_whole=_is_whole,
    resumable_by_id=True,
    with_model=_with_model,
    ends=_ends,
    read_error=read_error,
    write_error=write_error,
    http=HTTP,
    quirks=MessagesQuirks,
    rules=RULES,
    invariants=MessagesInvariants,
    request=REQUEST,
)
