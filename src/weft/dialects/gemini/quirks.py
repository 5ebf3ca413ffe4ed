"""What hosts and models of this wire take in a request. Defaults fit the newest models."""

from dataclasses import dataclass
from typing import Literal

from weft.context import Context, Quirks


@dataclass(frozen=True, slots=True)
class ContentQuirks(Quirks):
    """A request that came in this dialect is changed only where the host would refuse it."""

    thinking: Literal["level", "budget"] = "level"
    """How much to think is told as a level, or, on older models, in tokens."""

    most_thinking: int = 32_768
    """The tokens that the highest efforts become."""

    may_not_think: bool = False
    """A budget of 0 is taken. Newer models always think a little."""

    json_schema: bool = True
    """Takes JSON Schema. Else schemas are cut down to the subset that every host knows."""

    schema_with_tools: bool = True
    """An answer can have a schema although there are tools."""

    fetches: bool = True
    """Fetches images and files from any address."""

    result_media: bool = True
    """Takes images and files inside the result of a call. Else they follow it."""

    signed_calls: bool = True
    """Refuses calls of earlier turns without a signature: those of others get a mark that it
    takes instead, on the first call of each step."""


def quirks_of(context: Context) -> ContentQuirks:
    found = context.quirks
    return found if isinstance(found, ContentQuirks) else ContentQuirks()
