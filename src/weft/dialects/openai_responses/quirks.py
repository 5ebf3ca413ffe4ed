"""Options of the Responses dialect."""

from dataclasses import dataclass

from weft.context import Quirks


@dataclass(frozen=True, slots=True)
class ResponsesQuirks(Quirks):
    """Pure Open Responses by default."""

    tool_session: bool = False
    """A turn that waits for client tools says so: `response.required_action`, status
    `incomplete`, and typed, numbered pings. Also asked for in band, by `include`."""

    stateless_reasoning: bool = True
    """Whether the proofs of reasoning are asked for on behalf of clients that do not know them.
    Models that do not reason may refuse that."""
