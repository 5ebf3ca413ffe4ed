"""The spans of a run: the same ids in every process that works on it."""

from weft.agent.state import RunState
from weft.relay.trace_context import TraceContext, parse_traceparent


def run_span(state: RunState) -> TraceContext | None:
    """Returns the span of a run: a child of the request that started it. None if that was not
    traced."""
    # A fork begins with the events of another run, so it is in the same trace.
    started = parse_traceparent(state.traceparent)
    return None if started is None else started.derived(state.id)


def turn_span(state: RunState, turn: int, attempt: int) -> TraceContext | None:
    run = run_span(state)
    return None if run is None else run.derived(f"{state.id}/turn/{turn}/{attempt}")


def call_span(state: RunState, call: str, attempt: int) -> TraceContext | None:
    run = run_span(state)
    return None if run is None else run.derived(f"{state.id}/call/{call}/{attempt}")
