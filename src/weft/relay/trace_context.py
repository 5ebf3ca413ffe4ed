"""Which trace a request belongs to (W3C Trace Context, level 1), as values.

A span id is known before its span is written: it is sent to the upstream with the request, and the
span is written when the request is over. Those of attempts follow from the request's; those of a
run of an agent from its id, so that any process can write them.
"""

import re
from dataclasses import dataclass
from hashlib import sha256

TRACEPARENT = "traceparent"
_MAX_SPAN = (1 << 64) - 1
_TRACEPARENT = re.compile(
    # A later version may have more fields (3.2.4); `ff` is none (3.2.2.1).
    r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
)
_SAMPLED = 1


@dataclass(frozen=True, slots=True)
class TraceContext:
    """One span: its trace, its own id, and that of its parent."""

    trace_id: int
    span_id: int
    parent_id: int = 0
    """0: it has no parent."""

    sampled: bool = True
    """Whether its spans are written."""

    is_turn: bool = False
    """Whether its span belongs to the turn of a run, and is written with the run."""

    @property
    def traceparent(self) -> str:
        """The header for whatever happens inside of this span."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.sampled):02x}"

    def child(self, number: int) -> "TraceContext":
        """Returns the span of an attempt, counted from 1."""
        # The id of the request is random, so its neighbours are as unlikely to be taken.
        span_id = (self.span_id + number) & _MAX_SPAN or 1
        return TraceContext(self.trace_id, span_id, self.span_id, self.sampled)

    def derived(self, name: str) -> "TraceContext":
        """Returns the span of this name inside of this one."""
        return TraceContext(self.trace_id, span_id_of(name), self.span_id, self.sampled)


def parse_traceparent(header: str) -> TraceContext | None:
    """Returns the span that a header names; None if it is not valid."""
    found = _TRACEPARENT.fullmatch(header)
    if found is None or (header.startswith("00") and len(header) != 55):
        return None
    trace_id, span_id, flags = (int(one, 16) for one in found.groups())
    if trace_id == 0 or span_id == 0:
        return None
    return TraceContext(trace_id, span_id, sampled=bool(flags & _SAMPLED))


def span_id_of(name: str) -> int:
    """Returns the id of a span that has this name in all processes."""
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big") or 1
