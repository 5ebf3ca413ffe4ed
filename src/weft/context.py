"""Context: what a codec may know of the world. It is the only way time and chance come in."""

from dataclasses import dataclass, field

from weft.ids import Ids
from weft.request import Request

UNKNOWN_MODEL = "unknown"
"""The name of a model that nobody named."""


class Quirks:
    """The accent of one upstream, as data: a base for each dialect's own frozen dataclass."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Context:
    """Handed to every decoder and encoder. Made once per response (and choice)."""

    request: Request | None = None
    """What was asked, when it is known: declared tools, the number of choices, echoed options."""

    quirks: Quirks | None = None
    """The accent to read or write with; None is the dialect's default."""

    ids: Ids = field(default_factory=Ids)
    now: int = 0
    """Unix seconds; used where a wire wants a time and the stream told none."""

    origin: str | None = None
    """Who makes the signatures in this stream; the dialect's name when unknown."""

    choice: int = 0
    """Which of several answers to read."""

    response_id: str | None = None
    """The id an encoder must use; None: it mints one."""

    created: int | None = None
    """The time an encoder must tell; None: the stream's, else `now`."""

    def model_name(self, told: str | None) -> str:
        """The name that a client reads for the model: the one it asked for, which it can send back;
        else the one that the stream told."""
        asked = self.request.model if self.request is not None else None
        return asked or told or UNKNOWN_MODEL
