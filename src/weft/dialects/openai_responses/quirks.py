"""Quirks of the Responses dialect."""

from dataclasses import dataclass

from weft.context import Quirks


@dataclass(frozen=True, slots=True)
class ResponsesQuirks(Quirks):
    """The defaults are plain Open Responses."""

    # The compliance suite of the specification fails a stream with an event type that it does not
    # know, `ping` included. So the session form is opt-in.
    tool_session: bool = False
    """Whether a turn that waits for client tools is announced with `response.required_action` and
    status `incomplete`, and keepalives are typed, numbered `ping` events. A request can ask for the
    same in `include`."""

    stateless_reasoning: bool = True
    """Whether encrypted reasoning is requested for clients of other dialects, so that they can send
    it back. Models that do not reason may reject the request."""
