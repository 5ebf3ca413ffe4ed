"""Options of the Responses dialect."""

from dataclasses import dataclass

from weft.context import Quirks


@dataclass(frozen=True, slots=True)
class ResponsesQuirks(Quirks):
    """Pure Open Responses by default."""

    tool_session: bool = False
    """A turn that waits for client tools says so: `response.required_action`, status
    `incomplete`, and typed, numbered pings. Also asked for in band, by `include`."""
