"""The status of a run, as it is stored, listed and counted."""

from weft.agent.events import AnyRunEvent, RunWaiting
from weft.agent.state import RunState

STATUS = {
    "run.waiting": "waiting",
    "run.finished": "finished",
    "run.failed": "failed",
    "run.cancelled": "cancelled",
}
"""The status of a run after its last event, if it is not running."""


def status_of(last: AnyRunEvent) -> str:
    """The status of a run after this event. A run that waits only for the agents that it has called
    is running: theirs are the runs in which a person or a client has something to do."""
    if isinstance(last, RunWaiting) and not last.needs_somebody:
        return "running"
    return STATUS.get(last.kind, "running")


def status_after(state: RunState) -> str:
    last = state.end or state.waiting
    return "running" if last is None else status_of(last)
