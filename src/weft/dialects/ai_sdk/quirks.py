"""Options of the UI message stream."""

from dataclasses import dataclass
from typing import Literal

from weft.context import Quirks


@dataclass(frozen=True, slots=True)
class UiQuirks(Quirks):
    """The front end that reads what is written. Decoding has no options."""

    ui: Literal[5, 6, 7] = 6
    """Its major version. A front end ends the chat at a chunk that it does not know, so only those
    of its version are written."""

    usage: bool = False
    """Whether `finish` has usage and model, as `messageMetadata`. A front end may validate it."""
