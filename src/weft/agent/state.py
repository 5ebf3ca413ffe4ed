"""The state of a run: the fold of its log.

Pure: no clock, no database, no randomness. The events alone give the state, in any process and in
any later version of Weft; nothing has to be run again to get it.

`apply` checks each event against the state: it raises IllegalEvent, and changes nothing, for what
cannot follow. A client that decides twice, or submits an output that nobody waits for, meets the
same rule as the runtime.
"""

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from msgspec import Raw

from weft.agent.definition import AgentDefinition, Budget, add_dollars
from weft.agent.events import (
    AnyRunEvent,
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallIntended,
    CallParked,
    CallRefused,
    CallResolved,
    Contents,
    JudgedCall,
    LimitReached,
    LoggedEvent,
    MessageAdded,
    OutputsSubmitted,
    RunCancelled,
    RunCreated,
    RunEnd,
    RunErrored,
    RunFailed,
    RunFinished,
    RunResumed,
    RunWaiting,
    TurnFinished,
    TurnInterrupted,
    TurnStarted,
    text_result,
)
from weft.agent.lifecycle import (
    ASKED,
    AWAITED,
    CALL,
    CLOSED,
    INTENDED,
    PARKED,
    PROPOSED,
    CallTransition,
    RunCallState,
)
from weft.agent.tool_spec import ToolSpec
from weft.errors import ClientError
from weft.parts import FinishReason

ABANDONED = "This call was abandoned by an operator: its outcome is unknown."
DENIED = "A person has denied this call."
ZERO_BUDGET = Budget()


class IllegalEvent(ClientError):
    """An event that cannot follow in this state; the message says what would be legal."""


class TurnState(Enum):
    OPEN = "the model responds, or did when somebody died"
    FINISHED = "its receipt is in the log"
    INTERRUPTED = "it has no receipt, and gets none"


@dataclass(slots=True)
class RunTurn:
    """One request to the model: its last attempt."""

    number: int
    attempt: int
    response: str
    state: TurnState = TurnState.OPEN
    reason: FinishReason | None = None
    has_text: bool = False
    calls: list["Call"] = field(default_factory=list)
    """In the order of announcement; the next request lists their results in this order, so that it
    does not depend on which of them ended first."""
    why: str = ""
    """Why it was interrupted."""
    started_at: float = 0.0

    @property
    def answerable(self) -> list["Call"]:
        """The calls for which the model gets a result. No wire accepts a nameless one."""
        return [call for call in self.calls if call.judged.name]


@dataclass(slots=True)
class Call:
    """A call of the model."""

    judged: JudgedCall
    turn: int
    tool: ToolSpec | None
    state: RunCallState
    attempts: int = 0
    approval: ApprovalRequested | None = None
    decision: ApprovalDecided | None = None
    intended_at: float = 0.0
    child: str = ""
    """The run of the agent that is called."""

    drawn: Budget = ZERO_BUDGET
    """What that run may use."""

    why: str = ""
    """Why it is parked."""

    result: Contents = ()
    is_error: bool = False
    was_submitted: bool = False
    """Whether the client gave the result."""

    resolution: CallResolved | None = None
    """How it was settled the last time it was parked."""

    @property
    def id(self) -> str:
        return self.judged.id

    @property
    def approved(self) -> bool:
        return self.decision is not None and self.decision.approved

    @property
    def is_child(self) -> bool:
        """Whether the run of an agent is under way, which writes the receipt when it ends."""
        return self.state is INTENDED and bool(self.child)


@dataclass(slots=True)
class RunState:
    """Everything that is known of a run after the event `seq`."""

    id: str
    seq: int = 0
    definition: AgentDefinition = field(default_factory=lambda: AgentDefinition("", ""))
    input: tuple[Raw, ...] = ()
    owner: str = ""
    parent: str | None = None
    traceparent: str = ""
    created_at: float = 0.0
    conversation: str | None = None
    before: int = 0
    """How many items of the input come from the conversation."""

    turns: list[RunTurn] = field(default_factory=list)
    calls: dict[str, Call] = field(default_factory=dict)
    messages: list[tuple[int, Raw]] = field(default_factory=list)
    """Messages that came during the run, each with the number of turns that had begun before."""

    message_keys: set[str] = field(default_factory=set)
    read: int = 0
    """How many of these the last turn began with."""

    granted: set[str | None] = field(default_factory=set)
    """The tools that were approved for the whole run; None stands for all of them."""

    definitions: dict[str, ToolSpec] = field(default_factory=dict)
    """Definitions of tools that have changed and were approved for the whole run, by name."""

    waiting: RunWaiting | None = None
    end: RunEnd | None = None
    # Counted for the limits
    streak: int = 0
    """How often the last call was made in a row, with the same arguments."""
    idle_turns: int = 0
    """Finished turns in a row without text and without a call that gets a result."""
    tokens: int = 0
    cost: float = 0.0
    """US dollars, by the prices at the end of each turn."""
    unpriced: int = 0
    """Finished turns whose price was not known."""
    active: float = 0.0
    """Seconds between events in which the run did not wait, neither for somebody outside nor for a
    server."""
    by_children: Budget = ZERO_BUDGET
    """What the runs of agents have used that were called and have ended."""
    errors: int = 0
    """Internal errors of the processes that worked on the run."""
    last_call: tuple[str, str] | None = None
    """Its name, and the digest of its arguments."""
    _last_at: float = 0.0

    # What others ask

    @property
    def turn(self) -> RunTurn | None:
        """The last turn."""
        return self.turns[-1] if self.turns else None

    @property
    def open_calls(self) -> list[Call]:
        """The calls without a result: all of them belong to the last turn."""
        turn = self.turn
        return [] if turn is None else [call for call in turn.calls if call.state is not CLOSED]

    @property
    def is_settled(self) -> bool:
        """Whether nothing is under way: no turn, and no call that has no result."""
        turn = self.turn
        return not self.open_calls and (turn is None or turn.state is not TurnState.OPEN)

    @property
    def waits_for(self) -> RunWaiting:
        """The calls that need somebody outside."""
        ids = {
            phase: tuple(call.id for call in self.open_calls if call.state is phase)
            for phase in (ASKED, AWAITED, PARKED)
        }
        children = tuple(call.id for call in self.open_calls if call.is_child)
        return RunWaiting(ids[ASKED], ids[AWAITED], ids[PARKED], children)

    @property
    def has_unread(self) -> bool:
        """Whether there is a message that no turn has begun with."""
        return self.read < len(self.messages)

    def used(self, now: float) -> Budget:
        """What the run has used so far, with its children that have ended. A call counts when it is
        judged, unless it is refused."""
        calls = sum(
            call.judged.verdict not in ("refused", "dropped") for call in self.calls.values()
        )
        active = self._active_until(now)
        own = Budget(len(self.turns), calls, active, self.tokens, self.cost, self.unpriced)
        return own + self.by_children

    def share(self, now: float) -> Budget | None:
        """What the next agent that is called may use: an equal part, for each call of an agent that
        waits for its dispatch, of what this run has left. One turn is left to this run, to read the
        results. None: there is not enough for a run."""
        limits, used = self.definition.limits, self.used(now)
        for call in self.open_calls:
            if call.is_child:
                used += call.drawn
        waiting = sum(
            call.tool is not None and call.tool.kind == "agent" and call.attempts == 0
            for call in self.open_calls
        )
        parts = max(1, waiting)
        turns = (limits.turns - 1 - used.turns) // parts
        calls = max(0, limits.calls - used.calls) // parts
        active = (limits.active - used.active) / parts
        tokens = None
        if limits.tokens is not None:
            tokens = (limits.tokens - (used.tokens or 0)) // parts
        cost = None
        if limits.cost is not None:
            cost = (limits.cost - (used.cost or 0)) / parts
        if turns < 1 or active <= 0 or (tokens is not None and tokens < 1):
            return None
        if cost is not None and (cost <= 0 or used.unpriced):
            return None
        return Budget(turns, calls, active, tokens, cost)

    def _active_until(self, now: float) -> float:
        """The seconds of its own work so far."""
        if self.seq == 0 or self.waiting is not None or self.end is not None:
            return self.active
        return self.active + max(0.0, now - self._last_at)

    def is_granted(self, tool: str) -> bool:
        return None in self.granted or tool in self.granted

    def copy(self) -> "RunState":
        """A state of its own. Turns before the last one, and their calls, are over and shared."""
        new = copy(self)
        new.turns, new.calls = [*self.turns], {**self.calls}
        new.messages, new.granted = [*self.messages], {*self.granted}
        new.message_keys, new.definitions = {*self.message_keys}, {**self.definitions}
        if new.turns:
            last = new.turns[-1] = copy(new.turns[-1])
            last.calls = [copy(call) for call in last.calls]
            new.calls |= {call.id: call for call in last.calls}
        return new

    # The fold

    def apply(self, event: AnyRunEvent, at: float) -> None:
        """Takes in the next event. Raises IllegalEvent and changes nothing if it cannot follow."""
        if (self.seq == 0) != isinstance(event, RunCreated):
            raise IllegalEvent(f"{event.kind} as event {self.seq + 1} of a run")
        if self.end is not None:
            raise IllegalEvent(f"{event.kind}: the run has ended ({self.end.kind})")
        idle = event.idle if isinstance(event, RunResumed) else 0.0
        active = self._active_until(at - idle)
        _FOLD[event.__class__](self, event, at)
        self.active = active
        self._last_at = max(at, self._last_at)  # a clock that was set back makes no run younger
        self.waiting = event if isinstance(event, RunWaiting) else None
        self.seq += 1

    def _created(self, event: RunCreated, at: float) -> None:
        self.definition, self.input = event.definition, event.input
        self.owner, self.parent = event.owner, event.parent
        self.traceparent, self.created_at = event.traceparent, at
        self.conversation, self.before = event.conversation, event.before

    # Turns

    def _turn_started(self, event: TurnStarted, at: float) -> None:
        last = self.turn
        again = last is not None and last.state is TurnState.INTERRUPTED
        expected = (
            (last.number, last.attempt + 1)
            if last is not None and again
            else (len(self.turns) + 1, 1)
        )
        if self.open_calls or (last is not None and last.state is TurnState.OPEN):
            raise IllegalEvent(f"turn.started {event.turn}: the turn before it is not over")
        if (event.turn, event.attempt) != expected:
            raise IllegalEvent(
                f"turn.started {event.turn}, attempt {event.attempt}: "
                f"expected turn {expected[0]}, attempt {expected[1]}"
            )
        turn = RunTurn(event.turn, event.attempt, event.response, started_at=at)
        self.turns[event.turn - 1 :] = [turn]
        self.read = len(self.messages)

    def _turn_finished(self, event: TurnFinished, at: float) -> None:
        turn = self._open_turn(event)
        ids = [judged.id for judged in event.calls]
        if len({*ids}) < len(ids) or not self.calls.keys().isdisjoint(ids):
            raise IllegalEvent(f"turn.finished {event.turn}: a call id is used twice in the run")
        turn.state, turn.reason, turn.has_text = TurnState.FINISHED, event.reason, event.has_text
        for judged in event.calls:
            tool = self.definitions.get(judged.name) or self.definition.tool(judged.name)
            call = Call(judged, turn.number, tool, _FIRST[judged.verdict])
            if call.state is CLOSED:
                call.result, call.is_error = text_result(judged.text), True
            turn.calls.append(call)
            self.calls[call.id] = call
            if judged.name:
                same = (judged.name, judged.digest)
                self.streak = self.streak + 1 if same == self.last_call else 1
                self.last_call = same
        self.idle_turns = 0 if turn.has_text or turn.answerable else self.idle_turns + 1
        if event.usage is not None:
            usage = event.usage
            both = (usage.input_tokens or 0) + (usage.output_tokens or 0)
            self.tokens += both if usage.total_tokens is None else usage.total_tokens
        self.unpriced += event.cost is None
        self.cost = add_dollars(self.cost, event.cost or 0)

    def _turn_interrupted(self, event: TurnInterrupted, at: float) -> None:
        turn = self._open_turn(event)
        turn.state, turn.why = TurnState.INTERRUPTED, event.why
        self.cost = add_dollars(self.cost, event.cost or 0)

    def _open_turn(self, event: TurnFinished | TurnInterrupted) -> RunTurn:
        turn = self.turn
        if (
            turn is None
            or turn.state is not TurnState.OPEN
            or (turn.number, turn.attempt) != (event.turn, event.attempt)
        ):
            raise IllegalEvent(
                f"{event.kind} {event.turn}, attempt {event.attempt}: this attempt is not open"
            )
        return turn

    # Calls

    def _step(self, id: str, step: CallTransition) -> Call:
        """Moves a call on, or raises."""
        call = self.calls.get(id)
        if call is None:
            raise IllegalEvent(f"{step.value}: there is no call {id!r} in this run")
        after = CALL[call.state].get(step)
        if after is None:
            legal = ", ".join(one.value for one in CALL[call.state]) or "nothing"
            raise IllegalEvent(
                f"{step.value} for call {id!r}: the call is {call.state.name.lower()}; "
                f"expected {legal}"
            )
        call.state = after
        return call

    def _refused(self, event: CallRefused, at: float) -> None:
        call = self._step(event.call, CallTransition.REFUSE)
        call.result, call.is_error = text_result(event.text), True

    def _asked(self, event: ApprovalRequested, at: float) -> None:
        self._step(event.call, CallTransition.ASK).approval = event

    def _decided(self, event: ApprovalDecided, at: float) -> None:
        call = self.calls.get(event.call)
        pending = None if call is None else call.approval
        # An approval is for these arguments of this call: not for whatever is asked next.
        if pending is None or pending.approval != event.approval:
            raise IllegalEvent(
                f"approval.decided for call {event.call!r}: "
                f"approval {event.approval!r} was not requested for it"
            )
        call = self._step(
            event.call, CallTransition.APPROVE if event.approved else CallTransition.DENY
        )
        call.decision = event
        if not event.approved:
            reason = f" Reason: {event.reason}" if event.reason else ""
            call.result, call.is_error = text_result(DENIED + reason), True
            return
        if pending.definition is not None:
            call.tool = pending.definition
            if event.scope != "call":
                self.definitions[call.judged.name] = pending.definition
        if event.scope != "call":
            self.granted.add(call.judged.name if event.scope == "tool" else None)

    def _intended(self, event: CallIntended, at: float) -> None:
        call = self.calls.get(event.call)
        if call is not None and event.attempt != call.attempts + 1:
            raise IllegalEvent(
                f"call.intended for call {event.call!r}, attempt {event.attempt}: "
                f"expected attempt {call.attempts + 1}"
            )
        call = self._step(event.call, CallTransition.INTEND)
        call.attempts, call.intended_at = event.attempt, at
        call.child, call.drawn = event.child, event.drawn or ZERO_BUDGET

    def _finished(self, event: CallFinished, at: float) -> None:
        call = self._step(event.call, CallTransition.FINISH)
        call.result, call.is_error = event.result, event.is_error
        if event.used is not None:
            self.by_children += event.used

    def _parked(self, event: CallParked, at: float) -> None:
        self._step(event.call, CallTransition.PARK).why = event.why

    def _resolved(self, event: CallResolved, at: float) -> None:
        step = CallTransition.RETRY if event.action == "retry" else CallTransition.SETTLE
        call = self._step(event.call, step)
        call.resolution = event
        if event.action == "retry":
            return
        call.result, call.is_error = event.result, event.is_error
        if event.action == "abandon":
            call.result, call.is_error = text_result(ABANDONED), True

    def _outputs(self, event: OutputsSubmitted, at: float) -> None:
        ids = [output.call for output in event.outputs]
        if not ids or len({*ids}) < len(ids):
            raise IllegalEvent("outputs.submitted: expected one output for each of some calls")
        for id in ids:  # all of them or none
            if id not in self.calls or self.calls[id].state is not AWAITED:
                known = [call.id for call in self.open_calls if call.state is AWAITED]
                raise IllegalEvent(
                    f"outputs.submitted for call {id!r}: it is not waiting for an output; "
                    f"expected {', '.join(map(repr, known)) or 'none'}"
                )
        for output in event.outputs:
            call = self._step(output.call, CallTransition.SUBMIT)
            call.was_submitted = True
            call.result, call.is_error = output.result, output.is_error

    # The run

    def _message(self, event: MessageAdded, at: float) -> None:
        self.messages.append((len(self.turns), event.message))
        if event.key:
            self.message_keys.add(event.key)

    def _limit(self, event: LimitReached, at: float) -> None:
        """For the reader of the log; what follows from it is an event of its own."""

    def _resumed(self, event: RunResumed, at: float) -> None:
        """Changes what counts as active (`apply`), and nothing else."""

    def _errored(self, event: RunErrored, at: float) -> None:
        self.errors += 1

    def _waits(self, event: RunWaiting, at: float) -> None:
        # Somebody may have decided or submitted something since the driver looked.
        if event != self.waits_for:
            raise IllegalEvent(f"run.waiting: the run waits for {self.waits_for}, not for {event}")

    def _ended(self, event: RunEnd, at: float) -> None:
        turn = self.turn
        if isinstance(event, RunFinished) and (
            turn is None
            or turn.state is not TurnState.FINISHED
            or turn.number != event.turn
            or self.open_calls
        ):
            raise IllegalEvent(f"run.finished after turn {event.turn}: the turn is not over")
        # It may come between the decision to finish and its append: then there is another turn.
        if isinstance(event, RunFinished) and self.has_unread:
            raise IllegalEvent(f"run.finished after turn {event.turn}: a message was not read")
        self.end = event


_FIRST: dict[str, RunCallState] = {
    "dispatch": PROPOSED,
    "ask": PROPOSED,
    "refused": PROPOSED,  # its own event follows in the same transaction
    "client": AWAITED,
    "dropped": CLOSED,
}
"""The first state of a call, by its verdict."""

# The handlers take one kind of event each; the table's key says which.
_FOLD: dict[type[LoggedEvent], Callable[[RunState, Any, float], None]] = {
    RunCreated: RunState._created,
    TurnStarted: RunState._turn_started,
    TurnFinished: RunState._turn_finished,
    TurnInterrupted: RunState._turn_interrupted,
    CallRefused: RunState._refused,
    ApprovalRequested: RunState._asked,
    ApprovalDecided: RunState._decided,
    CallIntended: RunState._intended,
    CallFinished: RunState._finished,
    CallParked: RunState._parked,
    CallResolved: RunState._resolved,
    OutputsSubmitted: RunState._outputs,
    MessageAdded: RunState._message,
    LimitReached: RunState._limit,
    RunWaiting: RunState._waits,
    RunResumed: RunState._resumed,
    RunErrored: RunState._errored,
    RunFinished: RunState._ended,
    RunFailed: RunState._ended,
    RunCancelled: RunState._ended,
}


def fold(id: str, events: Iterable[tuple[AnyRunEvent, float]]) -> RunState:
    """The state after these events, each with its time."""
    state = RunState(id)
    for event, at in events:
        state.apply(event, at)
    return state
