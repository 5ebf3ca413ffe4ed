"""The context of a codec: the only source of the time, of ids, and of the request."""

from dataclasses import dataclass

import msgspec

from weft.ids import Ids
from weft.request import Request

UNKNOWN_MODEL = "unknown"
"""The name of a model where neither the request nor the stream has one."""


@dataclass(frozen=True, slots=True)
class Quirks:
    """Where an upstream differs from others of its dialect: nowhere. Each dialect that has quirks
    has a frozen dataclass based on this.
    """


class Context(msgspec.Struct, frozen=True):
    """What a decoder or encoder is given: one context per response and choice."""

    request: Request | None = None
    """The request, if it is known: declared tools, the number of choices, echoed options."""

    quirks: Quirks | None = None
    """How this upstream differs from others of its dialect; None: not at all."""

    # An empty seed gives equal ids for equal input, as tests and captures need; `fresh_context` in
    # `codec.py` seeds from the system.
    ids: Ids = msgspec.field(default_factory=Ids)
    now: int = 0
    """The current time in Unix seconds, for dialects that require one when the stream has none."""

    origin: str | None = None
    """The upstream whose signatures are in this stream; None: the dialect's name."""

    choice: int = 0
    """The choice to decode, if the response has several."""

    response_id: str | None = None
    """The response id an encoder uses; None: it creates one."""

    created: int | None = None
    """The creation time an encoder writes; None: that of the stream, else `now`."""

    def model_name(self, streamed: str | None) -> str:
        """The name that a client reads for the model: the one it requested, which it can send back;
        else the one in the stream."""
        requested = self.request.model if self.request is not None else None
        return requested or streamed or UNKNOWN_MODEL
