"""The law of a call: which event may follow which, as one table.

The fold (`state.py`) refuses what is not in it, so neither the runtime nor a client can bring a
call into a state that does not exist; `decide` reads the states; the tests walk all of it.

1. A call is dispatched only from PROPOSED, after its intent is in the log.
2. Each call is closed once, and the model gets exactly one result for it.
3. INTENDED without a receipt is the only state in which it is unknown what has happened.
"""

from enum import Enum


class RunCallState(Enum):
    """Where a call is."""

    PROPOSED = "the model asked for it"
    ASKED = "a person is asked"
    AWAITED = "the client runs it"
    INTENDED = "it is being run, or was when somebody died"
    PARKED = "it is unknown whether it has happened"
    CLOSED = "it has its result"


class CallTransition(Enum):
    """What an event does to a call."""

    REFUSE = "call.refused"
    ASK = "approval.requested"
    APPROVE = "approval.decided: yes"
    DENY = "approval.decided: no"
    INTEND = "call.intended"
    FINISH = "call.finished"
    PARK = "call.parked"
    SETTLE = "call.resolved: done or abandon"
    RETRY = "call.resolved: retry"
    SUBMIT = "outputs.submitted"


PROPOSED, ASKED, AWAITED = RunCallState.PROPOSED, RunCallState.ASKED, RunCallState.AWAITED
INTENDED, PARKED, CLOSED = RunCallState.INTENDED, RunCallState.PARKED, RunCallState.CLOSED

CALL: dict[RunCallState, dict[CallTransition, RunCallState]] = {
    PROPOSED: {
        CallTransition.REFUSE: CLOSED,
        CallTransition.ASK: ASKED,
        CallTransition.INTEND: INTENDED,
    },
    ASKED: {
        CallTransition.APPROVE: PROPOSED,
        CallTransition.DENY: CLOSED,
        CallTransition.REFUSE: CLOSED,  # the run ends before anybody decides
    },
    AWAITED: {
        CallTransition.SUBMIT: CLOSED,
        CallTransition.REFUSE: CLOSED,
    },
    INTENDED: {
        CallTransition.INTEND: INTENDED,  # again, under the same key, if the tool allows it
        CallTransition.FINISH: CLOSED,
        CallTransition.PARK: PARKED,
        CallTransition.ASK: ASKED,  # it was not sent: the definition of the tool has changed
    },
    PARKED: {
        CallTransition.SETTLE: CLOSED,
        CallTransition.RETRY: PROPOSED,
    },
    CLOSED: {},
}
