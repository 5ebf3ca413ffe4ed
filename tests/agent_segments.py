"""Random runs for the tests of the merged stream, made with the real pure core: the fold refuses
what cannot happen, `decide` says what comes next, the gate judges the calls. Only the model, the
tools, the people and the crashes are drawn.
"""

from copy import copy
from dataclasses import dataclass, field

from hypothesis import strategies as st
from msgspec import Raw

from tests.agent_runs import ASKED
from tests.strategies import LEGAL, Draw
from weft.agent.decide import (
    Action,
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
    text_result,
)
from weft.agent.gate import judge
from weft.agent.merge import SegmentEntry, TurnParts
from weft.agent.state import Call, RunState
from weft.agent.tool_spec import ToolSpec
from weft.agent.tools import BadArguments
from weft.assembler import Assembler, Response
from weft.parts import (
    Finish,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    Usage,
)

LABEL = "helper"
LIMITS = Limits(turns=6, calls=8, calls_per_turn=3)
WORDS = st.sampled_from(["one ", "two ", "drei\n", "四", "five. "])
OBJECTS = st.sampled_from(["{}", '{"a":1}', '{ "b" : [1,"x"] }'])
RESULTS = st.sampled_from(["", "done", "more\nlines", '{"k":1}', "[1]"])


@dataclass
class SegmentCase:
    """What happened in one segment of a run."""

    calls: list[Call]
    """Those that were open where it began."""
    entries: list[SegmentEntry] = field(default_factory=list)


@st.composite
def tidy_streams(draw: st.DrawFn) -> list[Part]:
    """A turn as most models have it: reasoning, text, calls. Ids repeat from turn to turn."""
    parts: list[Part] = [ResponseMetadata("r", usage=Usage(3))]
    if draw(st.booleans()):
        parts += [ReasoningStart("0", "raw", item_id="rs"), ReasoningDelta("0", "hm")]
        parts.append(ReasoningEnd("0"))
    if draw(st.booleans()):
        words = draw(st.lists(WORDS, min_size=1, max_size=3))
        parts += [TextStart("0", item_id="msg"), *(TextDelta("0", one) for one in words)]
        parts.append(TextEnd("0"))
    calls = draw(st.lists(st.sampled_from(["look", "read", "gone"]), max_size=3))
    for number, name in enumerate(calls):
        id, arguments = f"call_{number}", draw(OBJECTS)
        parts += [ToolParamsStart(id, name), ToolParamsDelta(id, arguments), ToolParamsEnd(id)]
        parts.append(ToolCall(id, name, arguments))
    usage = Usage(3, draw(st.integers(0, 9)), None)
    parts.append(Finish("tool-calls" if calls else "stop", usage=usage))
    return parts


@st.composite
def played_runs(draw: st.DrawFn, turns: st.SearchStrategy[list[Part]]) -> list[SegmentCase]:
    """The segments of one run, whose turns stream what `turns` draws."""
    return RunPlay(draw, turns).play()


class RunPlay:
    """One run, played to its end, or until nobody answers."""

    def __init__(self, draw: Draw, turns: st.SearchStrategy[list[Part]]) -> None:
        self.draw = draw
        self.turns = turns
        tools = [
            ToolSpec(
                name,
                kind=draw(st.sampled_from(["python", "python", "client"])),
                approval=draw(st.sampled_from(["never", "never", "always"])),
                retry=draw(st.sampled_from(["once", "pure"])),
            )
            for name in ("look", "read")
        ]
        interrupt = draw(st.sampled_from(["retry", "retry", "fail"]))
        ambiguous = draw(st.sampled_from(["park", "park", "tell-model"]))
        self.definition = AgentDefinition(
            LABEL, "m", "", tuple(tools), LIMITS, interrupt, ambiguous
        )
        self.state = RunState("run")
        self.segments = [SegmentCase([])]
        self.number = 0

    def chance(self, one_in: int) -> bool:
        return bool(self.draw(st.integers(1, one_in)) == one_in)

    def append(self, *events: AnyRunEvent) -> None:
        for event in events:
            if self.state.waiting is not None:  # whatever follows a wait begins the next segment
                calls = [copy(call) for call in self.state.open_calls]
                self.segments.append(SegmentCase(calls))
            self.state.apply(event, 1.0)
            self.segments[-1].entries.append(event)

    def play(self) -> list[SegmentCase]:
        self.append(RunCreated(self.definition, (ASKED,)))
        for _ in range(40):
            if self.state.end is not None:
                break
            if self.chance(30):
                self.append(RunCancelled("me", self.draw(st.sampled_from(["", "enough"]))))
                break
            if self.chance(12):
                self.append(MessageAdded(Raw(b'{"role":"user","content":"and"}')))
            actions = decide(self.state, 1.0)
            if not actions and not self.answer():
                break
            if actions:
                self.perform(actions)
        return self.segments

    def perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case StartTurn(turn, attempt):
                    self.turn(turn, attempt)
                case InterruptTurn(turn, attempt):
                    self.append(TurnInterrupted(turn, attempt, "died"))
                case RefuseCall(id):
                    self.append(CallRefused(id, "limit", "no"))
                case RequestApproval(id):
                    digest = self.state.calls[id].judged.digest
                    self.append(ApprovalRequested(f"appr_{id}", id, digest, 9.0))
                case DispatchCall(id, attempt):
                    self.append(CallIntended(id, attempt, f"run/{id}"))
                    self.receipt(id)
                case ParkCall(id, why):
                    self.append(CallParked(id, why))
                case SettleCall(id):
                    self.append(CallResolved(id, "done", "weft", text_result("?"), is_error=True))
                case WaitOutside(waiting):
                    self.append(waiting)
                case FinishRun(turn, reason):
                    self.append(RunFinished(turn, reason))
                case FailRun(code, message, limit):
                    self.append(*([LimitReached(limit, message)] if limit else []))
                    self.append(RunFailed(code, message))
                case LookUpCall() | ExpireApproval():
                    raise AssertionError(f"{action} in a run without lookups and without time")
            if self.state.end is not None or self.state.waiting is not None:
                return

    def turn(self, turn: int, attempt: int) -> None:
        """The model streams, whole or until somebody dies."""
        self.number += 1
        response = f"resp_{self.number}"
        self.append(TurnStarted(turn, attempt, response))
        parts = self.draw(self.turns)
        shown = len(parts)
        if self.chance(5):
            shown = self.draw(st.integers(0, len(parts)))
        cut = self.draw(st.integers(0, shown))
        for piece in (parts[:cut], parts[cut:shown]):
            self.segments[-1].entries.append(TurnParts(response, tuple(piece)))
        if shown < len(parts):
            self.append(TurnInterrupted(turn, attempt, "the process died"))
            # What arrives late belongs to an attempt that is over.
            self.segments[-1].entries.append(TurnParts(response, tuple(parts[shown:])))
        else:
            self.append(*self.turn_receipt(turn, attempt, folded(parts)))

    def turn_receipt(self, turn: int, attempt: int, response: Response) -> tuple[AnyRunEvent, ...]:
        if response.error is not None or response.finish_reason is None:
            return (TurnInterrupted(turn, attempt, "the upstream failed"),)
        calls = tuple(judge(self.state, response, needs_approval))
        has_text = bool(response.text or response.refusal)
        reason = response.finish_reason
        finished = TurnFinished(turn, attempt, reason, has_text, calls, response.usage)
        refused = [one for one in calls if one.verdict == "refused"]
        return finished, *(CallRefused(one.id, one.refusal or "limit", "no") for one in refused)

    def receipt(self, id: str) -> None:
        """The call returns, or nobody knows."""
        match self.draw(st.integers(0, 5)):
            case 0:
                pass  # the process died: `decide` sees an intent without a receipt
            case 1:
                self.append(CallParked(id, "timeout"))
            case number:
                text = text_result(self.draw(RESULTS))
                self.append(CallFinished(id, text, is_error=number == 2))

    def answer(self) -> bool:
        """Somebody outside acts, or nobody does."""
        waiting = self.state.waiting
        if waiting is None or self.chance(10):
            return False
        self.append(self.act(waiting))
        return True

    def act(self, waiting: RunWaiting) -> AnyRunEvent:
        if waiting.outputs:
            some = waiting.outputs[: self.draw(st.integers(1, len(waiting.outputs)))]
            return OutputsSubmitted(tuple(CallOutput(id, text_result("out")) for id in some))
        if waiting.approvals:
            id = self.draw(st.sampled_from(waiting.approvals))
            approval = self.state.calls[id].approval
            assert approval is not None
            scope = self.draw(st.sampled_from(["call", "tool", "run"]))
            yes = self.draw(st.booleans())
            return ApprovalDecided(approval.approval, id, yes, "me", scope=scope)
        id = self.draw(st.sampled_from(waiting.parked))
        action = self.draw(st.sampled_from(["done", "retry", "abandon"]))
        return CallResolved(id, action, "me", text_result("it was done"))


def folded(parts: list[Part]) -> Response:
    fold = Assembler()
    for part in parts:
        fold.feed(part)
    return fold.response()


def needs_approval(spec: ToolSpec, arguments: str) -> bool:
    if not arguments.strip().startswith("{"):
        raise BadArguments("expected an object")
    return spec.approval == "always"


TIDY_RUNS = played_runs(tidy_streams())
ANY_RUNS = played_runs(st.one_of(tidy_streams(), LEGAL))
