"""The row of this dialect in the table of dialects."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from weft.dialects.ai_sdk import wire
from weft.dialects.ai_sdk.decoder import EVENTS, SdkDecoder
from weft.dialects.ai_sdk.encoder import UiEncoder
from weft.dialects.ai_sdk.validator import UiMessageValidator
from weft.dialects.base import Dialect
from weft.parts import Json
from weft.sse import DONE, Frame

# A stream of these types alone is not recognised, except by `errorText`, which is unique.
_OWN_TYPES = frozenset(EVENTS) - {"error", "finish", "abort", "raw", "file", "source"}
"""Types that show the dialect. Streams of other dialects have the rest as well."""


class _TypeProbe(msgspec.Struct, rename="camel"):
    type: str
    error_text: Json = UNSET


_decode = msgspec.json.Decoder(_TypeProbe).decode


def _probe(frame: Frame) -> _TypeProbe:
    """Returns the type of an event; an empty one for what is not an event."""
    try:
        return _decode(frame.data)
    except (ValueError, RecursionError):
        return _TypeProbe("")


def _speaks(frame: Frame) -> bool:
    event = _probe(frame)
    return event.type in _OWN_TYPES or (event.type == "error" and event.error_text is not UNSET)


def _begins(frame: Frame, before: Sequence[Frame]) -> bool:
    """Whether a response begins: each step of a UI message is one, and so is a model's stream."""
    type = _probe(frame).type
    # A message is one stream of several model calls, and each call is a response.
    if type in ("start", "start-step"):
        return any(_probe(one).type == "finish-step" for one in before)
    return type == "stream-start"


AI_SDK = Dialect(
    wire.NAME,
    speaks=_speaks,
    decoder=SdkDecoder,
    encoder=UiEncoder,
    begins=_begins,
    ends=lambda frame: frame.data == DONE or _probe(frame).type == "finish",
    validator=UiMessageValidator,
)
