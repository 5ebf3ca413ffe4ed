"""The row of this dialect in the table of dialects."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.base import Dialect, Mark
from weft.dialects.openai_responses.decoder import ResponsesDecoder
from weft.dialects.openai_responses.encoder import ResponsesEncoder, body
from weft.dialects.openai_responses.errors import read_error, write_error
from weft.dialects.openai_responses.http import HTTP
from weft.dialects.openai_responses.quirks import ResponsesQuirks
from weft.dialects.openai_responses.request import REQUEST
from weft.dialects.openai_responses.validation.rules import RULES
from weft.dialects.openai_responses.validator import ResponsesInvariants
from weft.dialects.openai_responses.wire import NAME, RAW_TEXT, SPEC_RAW_TEXT
from weft.parts import Json
from weft.sse import DONE, Frame


class _Response(msgspec.Struct):
    id: str | None = None


class _Glance(msgspec.Struct):
    """As much of an event as tells what it is."""

    type: str | None = None
    object: str | None = None
    response: _Response | None = None


_CREATED = "response.created"
_ANNOUNCED = frozenset((_CREATED, "response.queued", "response.in_progress"))

_glance = msgspec.json.Decoder(_Glance).decode


def _type(frame: Frame) -> _Glance:
    try:
        return _glance(frame.data)
    except (ValueError, RecursionError):
        return _Glance()


def _speaks(frame: Frame) -> bool:
    seen = _type(frame)
    return seen.object == "response" or (seen.type or "").startswith("response.")


def _begins(frame: Frame, before: Sequence[Frame]) -> bool:
    """A response is created; one that is only announced again is still the same."""
    if _type(frame).type != _CREATED:
        return False
    told = [seen for seen in map(_type, before) if (seen.type or "").startswith("response.")]
    announced = all(seen.type in _ANNOUNCED for seen in told)
    return bool(told) and not (announced and told[-1].response == _type(frame).response)


def _is_whole(frame: Frame) -> bool:
    seen = _type(frame)
    return seen.type is None and seen.object == "response"


def _event_name(frame: Frame) -> str:
    return frame.event or _type(frame).type or ""


def _ends(frame: Frame) -> bool:
    return frame.data == DONE


class _Item(msgspec.Struct):
    id: str | None = None


class _Placed(msgspec.Struct):
    """As much of an event as tells its number, and what it is about."""

    type: str = ""
    sequence_number: int | None = None
    output_index: int = -1
    content_index: int | None = None
    summary_index: int | None = None
    command_index: int | None = None
    item: _Item | None = None


_placed = msgspec.json.Decoder(_Placed).decode

_ONCE = frozenset(
    {"added", "completed", "created", "done", "failed", "generating", "in_progress"}
    | {"interpreting", "queued", "searching"}
)
"""The last words of events of which there is one for each item, or part of one."""

_OFTEN = frozenset({"response.output_text.annotation.added", "response.audio.done"})
"""Events that end so as well, and are parts of their own."""

_ENDS = frozenset({"response.completed", "response.failed", "response.done"})


def _read_place(frame: Frame) -> _Placed:
    try:
        return _placed(frame.data)
    except (ValueError, RecursionError):
        return _Placed()


def _number(frame: Frame) -> int | None:
    return _read_place(frame).sequence_number


def _mark(frame: Frame) -> Mark | None:
    """The event, its item and the part of that; and the id of an item that is announced."""
    if frame.event.endswith(".delta"):
        return None
    event = _read_place(frame)
    type = (event.type or frame.event).replace(SPEC_RAW_TEXT + ".", RAW_TEXT + ".")
    if type.rpartition(".")[2] not in _ONCE or type in _OFTEN or type in _ENDS:
        return None
    indexes = (event.content_index, event.summary_index, event.command_index)
    part = next((index for index in indexes if index is not None), -1)
    if type == "response.output_item.added" and event.item is not None and event.item.id:
        return (type, event.output_index, part, event.item.id)
    return (type, event.output_index, part)


class _Named(msgspec.Struct):
    """As much of an event, or of a body, as names its model."""

    response: Json = UNSET


_named = msgspec.json.Decoder(_Named).decode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def _snapshot(frame: Frame) -> bytes | None:
    if b'"response"' not in frame.data:
        return None
    try:
        found = _named(frame.data).response
    except (ValueError, RecursionError):
        return None
    return bytes(found) if isinstance(found, Raw) and bytes(found) != b"null" else None


def _with_model(frame: Frame, model: str) -> bytes:
    response = _snapshot(frame)
    if response is not None:
        renamed = Raw(_renamed(response, model))
        return msgspec.json.encode({**_fields(frame.data), "response": renamed})
    return frame.data if frame.event else _renamed(frame.data, model)


def _renamed(response: bytes, model: str) -> bytes:
    try:
        fields = _fields(response)
    except (ValueError, RecursionError):
        return response
    if "model" not in fields:
        return response
    return msgspec.json.encode({**fields, "model": model})


OPENAI_RESPONSES = Dialect(
    NAME,
    speaks=_speaks,
    aliases=("open-responses",),
    decoder=ResponsesDecoder,
    encoder=ResponsesEncoder,
    request=REQUEST,
    body=body,
    begins=_begins,
    stores=True,
    event_name=_event_name,
    is_whole=_is_whole,
    terminator=DONE,
    snapshot=_snapshot,
    with_model=_with_model,
    ends=_ends,
    number=_number,
    mark=_mark,
    read_error=read_error,
    write_error=write_error,
    http=HTTP,
    quirks=ResponsesQuirks,
    rules=RULES,
    invariants=ResponsesInvariants,
)
