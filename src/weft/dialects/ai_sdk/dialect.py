"""The row of this dialect in the table of dialects."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.dialects.ai_sdk import wire
from weft.dialects.ai_sdk.decoder import EVENTS, StreamDecoder
from weft.dialects.ai_sdk.encoder import UiEncoder
from weft.dialects.ai_sdk.validator import UiMessageValidator
from weft.dialects.base import Dialect
from weft.sse import DONE, Frame

_SHARED = frozenset({"error", "finish", "abort", "raw", "file", "source"})
"""Types that are too plain to tell anything."""

_OWN = frozenset(EVENTS) - _SHARED
_FIRST = ("start", "start-step")


class _Glance(msgspec.Struct, rename="camel"):
    """As much of an event as tells what it is."""

    type: str
    error_text: Raw | UnsetType = UNSET


_glance = msgspec.json.Decoder(_Glance).decode


def _seen(frame: Frame) -> _Glance:
    try:
        return _glance(frame.data)
    except (ValueError, RecursionError):
        return _Glance("")


def _speaks(frame: Frame) -> bool:
    seen = _seen(frame)
    return seen.type in _OWN or (seen.type == "error" and seen.error_text is not UNSET)


def _begins(frame: Frame, before: Sequence[Frame]) -> bool:
    """A message has several steps, and each is a response. A model's stream is always one."""
    type = _seen(frame).type
    stepped = type in _FIRST and any(_seen(one).type == "finish-step" for one in before)
    return stepped or type == "stream-start"


def _ends(frame: Frame) -> bool:
    return frame.data == DONE or _seen(frame).type == "finish"


AI_SDK = Dialect(
    wire.NAME,
    speaks=_speaks,
    decoder=StreamDecoder,
    encoder=UiEncoder,
    begins=_begins,
    ends=_ends,
    validator=UiMessageValidator,
)
