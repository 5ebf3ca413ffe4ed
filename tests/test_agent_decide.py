"""`decide` in a world of random models, tools, people and crashes.

The world performs what `decide` asks for, one step at a time, and dies wherever it is told to: its
processes are gone then, the log and the effects stay. Nothing here is the runtime's code: the world
is the naive reference that the runtime must behave like.
"""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tests.agent_runs import ASKED
from weft.agent.decide import (
    TURN,
    DispatchCall,
    ExpireApproval,
    FailRun,
    FinishRun,
    InterruptTurn,
    LookUpCall,
    ParkCall,
    RefuseCall,
    RequestApproval,
    SettleCall,
    StartTurn,
    WaitOutside,
    decide,
)
from weft.agent.definition import AgentDefinition, Limits
from weft.agent.events import (
    AnyRunEvent,
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallIntended,
    CallOutput,
    CallParked,
    CallRefused,
    CallResolved,
    LimitReached,
    MessageAdded,
    OutputsSubmitted,
    RunCancelled,
    RunCreated,
    RunFailed,
    RunFinished,
    RunWaiting,
    TurnFinished,
    TurnInterrupted,
    TurnStarted,
    decode_event,
    encode_event,
    text_result,
)
from weft.agent.gate import judge
from weft.agent.lifecycle import ASKED as ASKED_STATE
from weft.agent.lifecycle import AWAITED, CLOSED, PARKED
from weft.agent.state import RunState, fold
from weft.agent.tool_spec import ToolSpec
from weft.agent.tools import BadArguments
from weft.assembler import Response, TextItem
from weft.parts import ToolCall, Usage

TOOLS = (
    ToolSpec("once"),
    ToolSpec("looked", has_lookup=True),
    ToolSpec("idempotent", retry="idempotent", exclusive="x"),
    ToolSpec("pure", retry="pure", exclusive="x"),
    ToolSpec("asked", approval="always"),
    ToolSpec("client", kind="client"),
)
LIMITS = Limits(turns=4, calls=6, calls_per_turn=4, parallel=2, tokens=50)
AT_MOST_ONCE = frozenset({"once", "looked", "asked"})

CALLS = st.builds(
    ToolCall,
    id=st.sampled_from(["a", "b", "call"]),
    name=st.sampled_from(["", "nobody", *(tool.name for tool in TOOLS)]),
    params=st.sampled_from(["{}", '{"n":1}', "{bad", ""]),
)


@st.composite
def responses(draw: st.DrawFn) -> Response | None:
    """What a model answers; None is an upstream that fails."""
    if draw(st.integers(0, 7)) == 0:
        return None
    calls = draw(st.lists(CALLS, max_size=6, unique_by=lambda call: call.id))
    if draw(st.integers(0, 9)) == 0:
        calls = [ToolCall(f"n{n}", "", "") for n in range(231)]
    text = [TextItem("t", "Well.")] if draw(st.booleans()) else []
    usage = Usage(total_tokens=draw(st.sampled_from([None, 5])))
    reason = draw(st.sampled_from(["tool-calls", "tool-calls", "stop", "length"]))
    return Response("r", items=(*text, *calls), finish_reason=reason, usage=usage)  # type: ignore[arg-type]


def needs_approval(tool: ToolSpec, arguments: str) -> bool:
    if "bad" in arguments:
        raise BadArguments("not JSON")
    return tool.approval == "always"


@dataclass
class World:
    """One run, whoever works on it."""

    data: st.DataObject
    definition: AgentDefinition
    log: list[tuple[AnyRunEvent, float]] = field(default_factory=list)
    effects: Counter[str] = field(default_factory=Counter)
    dispatched: list[str] = field(default_factory=list)
    live: dict[str, int] = field(default_factory=dict)
    """What this process runs: calls, with how far each is (0: intended, 1: the effect happened)."""
    crashes: int = 0
    from_outside: int = 0
    now: float = 0.0

    def __post_init__(self) -> None:
        self.state = RunState("run")
        self.append(RunCreated(self.definition, (ASKED,)))

    def append(self, *events: AnyRunEvent) -> None:
        for event in events:
            self.now += 1.0
            again = decode_event(encode_event(event))
            assert again == event, "what is in the log is what happened"
            self.state.apply(event, self.now)
            self.log.append((event, self.now))

    def step(self) -> bool:
        """Does something; False if nothing is left to do without somebody outside."""
        if self.crashes < 12 and self.data.draw(st.integers(0, 9)) == 0:
            self.crashes += 1
            self.live.clear()
        actions = decide(self.state, self.now, self.live.keys())
        if actions:
            self.perform(actions[0])
            return True
        if not self.live:
            return False
        self.advance(self.data.draw(st.sampled_from(sorted(self.live))))
        return True

    def perform(self, action: object) -> None:
        state = self.state
        match action:
            case StartTurn(turn, attempt):
                self.append(TurnStarted(turn, attempt, f"resp_{turn}_{attempt}"))
                self.live[TURN] = 0
            case InterruptTurn(turn, attempt):
                self.append(TurnInterrupted(turn, attempt, "died"))
            case RefuseCall(call):
                self.append(CallRefused(call, "limit", state.calls[call].judged.text))
            case RequestApproval(call):
                digest = state.calls[call].judged.digest
                self.append(ApprovalRequested(f"ap_{call}", call, digest, self.now + 5.0))
            case ExpireApproval(call):
                self.append(ApprovalDecided(f"ap_{call}", call, False, "expiry"))
            case DispatchCall(call, attempt):
                self.append(CallIntended(call, attempt, f"run/{call}"))
                self.dispatched.append(call)
                self.live[call] = 0
            case LookUpCall(call):
                if self.effects[call]:
                    self.append(CallFinished(call, text_result("found")))
                else:  # the intent is in the log already: it holds for this attempt
                    self.live[call] = 0
            case ParkCall(call, why):
                self.append(CallParked(call, why))
            case SettleCall(call):
                self.append(CallResolved(call, "done", "weft", text_result("unknown"), True))
            case WaitOutside(waiting, _):
                self.append(waiting)
            case FinishRun(turn, reason):
                self.append(RunFinished(turn, reason))
            case FailRun(code, message, limit):
                if limit:
                    self.append(LimitReached(limit, message))
                self.append(RunFailed(code, message))
            case _:
                raise AssertionError(action)

    def advance(self, what: str) -> None:
        """The next thing that happens to a turn or a call that runs."""
        if what == TURN:
            del self.live[TURN]
            turn = self.state.turn
            assert turn is not None
            response = self.data.draw(responses())
            if response is None:
                self.append(TurnInterrupted(turn.number, turn.attempt, "upstream"))
                return
            calls = judge(self.state, response, needs_approval)
            self.append(
                TurnFinished(
                    turn.number,
                    turn.attempt,
                    response.finish_reason or "other",
                    has_text=bool(response.text),
                    calls=tuple(calls),
                    usage=response.usage,
                )
            )
        elif self.live[what] == 0:
            self.effects[what] += 1
            self.live[what] = 1
        else:
            del self.live[what]
            self.append(CallFinished(what, text_result("ok"), duration=0.5))

    def outside(self) -> None:
        """Somebody acts from outside, if the run waits for something that can come."""
        state = self.state
        waiting = [
            call for call in state.open_calls if call.state in (ASKED_STATE, AWAITED, PARKED)
        ]
        call = self.data.draw(st.sampled_from(waiting))
        self.from_outside += 1
        if call.state is ASKED_STATE:
            approved = self.data.draw(st.booleans())
            scope = self.data.draw(st.sampled_from(["call", "tool", "run"]))
            self.append(
                ApprovalDecided(f"ap_{call.id}", call.id, approved, "me", scope=scope)  # type: ignore[arg-type]
            )
        elif call.state is AWAITED:
            self.append(OutputsSubmitted((CallOutput(call.id, text_result("there")),)))
        else:
            # Who says "retry" has looked: the effect has not happened.
            action = "done" if self.effects[call.id] else "retry"
            self.append(CallResolved(call.id, action, "me"))  # type: ignore[arg-type]


def bound(limits: Limits, crashes: int, from_outside: int) -> int:
    """Events that a run can have at most."""
    turns = limits.turns * limits.attempts * 2
    # asked and decided, intended so often, parked, closed
    calls = limits.turns * limits.calls_per_turn * (4 + limits.call_attempts)
    return 4 + turns + calls + 8 * (crashes + from_outside)


@given(st.data())
def test_whatever_happens_no_effect_is_doubled_and_every_run_ends_or_waits(
    data: st.DataObject,
) -> None:
    options = {
        "on_interrupt": data.draw(st.sampled_from(["retry", "retry", "fail"])),
        "on_ambiguous": data.draw(st.sampled_from(["park", "park", "tell-model"])),
    }
    definition = AgentDefinition("a", "m", tools=TOOLS, limits=LIMITS, **options)  # type: ignore[arg-type]
    world = World(data, definition)
    patience = data.draw(st.integers(0, 8))
    while True:
        while world.step():
            limit = bound(LIMITS, world.crashes, world.from_outside)
            assert len(world.log) <= limit, "no run goes on for ever"
        if world.state.end is not None or world.from_outside >= patience:
            break
        if data.draw(st.integers(0, 9)) == 0:
            world.append(RunCancelled("me"))
        elif data.draw(st.integers(0, 9)) == 0:
            world.append(MessageAdded(ASKED))
            world.from_outside += 1
        elif world.state.open_calls:
            world.outside()
    check(world)


def check(world: World) -> None:
    state = world.state
    assert state == fold("run", world.log), "the state is the fold of the log, and nothing else"
    for id, count in world.effects.items():
        name = state.calls[id].judged.name
        assert name, "a nameless call was run"
        assert count == 1 or name not in AT_MOST_ONCE, f"{name} had its effect {count} times"
    closed = Counter(
        event.call
        for event, _ in world.log
        if isinstance(event, CallFinished | CallRefused)
        or (isinstance(event, CallResolved) and event.action != "retry")
        or (isinstance(event, ApprovalDecided) and not event.approved)
    )
    assert all(count == 1 for count in closed.values()), "a call was closed twice"
    if state.end is None:
        assert isinstance(state.waiting, RunWaiting), "a run ends, or waits for somebody"
        assert state.open_calls
    elif isinstance(state.end, RunFinished):
        assert all(call.state is CLOSED for call in state.calls.values())
    numbers = [event.turn for event, _ in world.log if isinstance(event, TurnStarted)]
    assert numbers == sorted(numbers)
    assert len({*numbers}) <= LIMITS.turns
