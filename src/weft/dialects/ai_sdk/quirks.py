"""Options of the UI message stream."""

from dataclasses import dataclass
from typing import Literal

from weft.context import Quirks


@dataclass(frozen=True, slots=True)
class UiQuirks(Quirks):
    """Which front end reads what is written. Reading needs no options."""

    ui: Literal[5, 6, 7] = 6
    """Its major version: an unknown chunk ends the chat there, so only what it knows is written."""

    usage: bool = False
    """Tell usage and model at the end, as `messageMetadata`. A front end may validate that."""
