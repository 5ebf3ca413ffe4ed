"""The row of this dialect in the table of dialects."""

from collections.abc import Sequence

import msgspec

from weft.dialects.base import Dialect
from weft.dialects.openai_responses.checking.promises import RULES
from weft.dialects.openai_responses.decoder import ResponsesDecoder
from weft.dialects.openai_responses.encoder import ResponsesEncoder, body
from weft.dialects.openai_responses.errors import read_error, write_error
from weft.dialects.openai_responses.http import HTTP
from weft.dialects.openai_responses.invariants import ResponsesInvariants
from weft.dialects.openai_responses.quirks import ResponsesQuirks
from weft.dialects.openai_responses.request import REQUEST
from weft.dialects.openai_responses.wire import NAME
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


def _ends(frame: Frame) -> bool:
    return frame.data == DONE


OPENAI_RESPONSES = Dialect(
    NAME,
    speaks=_speaks,
    aliases=("open-responses",),
    decoder=ResponsesDecoder,
    encoder=ResponsesEncoder,
    request=REQUEST,
    body=body,
    begins=_begins,
    ends=_ends,
    read_error=read_error,
    write_error=write_error,
    http=HTTP,
    quirks=ResponsesQuirks,
    rules=RULES,
    invariants=ResponsesInvariants,
)
