"""What happens in a run, as values. The log of these events is the run: everything else is folded
from it (`state.py`).

Each is one row of the log: `kind`, the time and the sequence number are columns, the rest is JSON.
Fields are only ever added, with a default: a run that an older version began is finished by a newer
one.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Raw

from weft.agent.definition import AgentDefinition, Budget
from weft.agent.tool_spec import ToolSpec
from weft.parts import FinishReason, Usage
from weft.request import FileContent, ImageContent, TextContent

Contents = tuple[TextContent | ImageContent | FileContent, ...]
"""What a tool returned."""

Verdict = Literal["dispatch", "ask", "client", "refused", "dropped"]
"""What is done with a call of the model: run it; ask a person first; leave it to the client; refuse
it, which is an event of its own; drop it without one, because its turn has too many."""

Refusal = Literal[
    "nameless",
    "stream-failed",
    "unknown-tool",
    "bad-arguments",
    "limit",
    "repeated",
    "denied",
    "expired",
    "cancelled",
]
Scope = Literal["call", "tool", "run"]


class LoggedEvent(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True):
    """The base of all events of a run."""

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)


class RunCreated(LoggedEvent, frozen=True, tag="run.created"):
    """`definition` is the snapshot that the run uses, whatever the settings say later."""

    definition: AgentDefinition
    input: tuple[Raw, ...]
    """Items of the Responses API, as a request there has them."""

    owner: str = ""
    parent: str | None = None
    """The call `run/call` of the agent that started it as a tool."""

    metadata: dict[str, str] = {}
    request: str = ""
    """The digest of the request that started it, to compare when its idempotency key is used
    again."""

    conversation: str | None = None
    """The conversation that it continues, and is added to at its end."""

    before: int = 0
    """How many items of the input come from there."""

    forked: str | None = None
    """`run/seq`: the run whose first events this one continues, and how many of them."""

    traceparent: str = ""
    """The span that started it (W3C Trace Context), if that was traced."""


class TurnStarted(LoggedEvent, frozen=True, tag="turn.started"):
    """The model is asked. Its response is stored under `response`."""

    turn: int
    attempt: int
    response: str


class JudgedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of the model, and what is to be done with it."""

    id: str
    """Unique in the run; `wire_id` where the model repeated an id of an earlier turn."""

    name: str
    arguments: str
    digest: str
    """Of the canonical arguments; an approval is bound to it."""

    verdict: Verdict
    wire_id: str | None = None
    refusal: Refusal | None = None
    text: str = ""
    """The result for the model, if the call is refused or dropped."""


class TurnFinished(LoggedEvent, frozen=True, tag="turn.finished"):
    """The receipt of a turn, committed together with its stored response."""

    turn: int
    attempt: int
    reason: FinishReason
    has_text: bool = False
    calls: tuple[JudgedCall, ...] = ()
    usage: Usage | None = None
    cost: float | None = None
    """US dollars, by the prices at that time, with those of targets that failed before. None: the
    price is not known."""


class TurnInterrupted(LoggedEvent, frozen=True, tag="turn.interrupted"):
    """The turn has no receipt, and gets none: its calls are never dispatched."""

    turn: int
    attempt: int
    why: str
    cost: float | None = None
    """US dollars, as far as they are known: what a process that died had used is not."""


class CallRefused(LoggedEvent, frozen=True, tag="call.refused"):
    call: str
    reason: Refusal
    text: str


class ApprovalRequested(LoggedEvent, frozen=True, tag="approval.requested"):
    approval: str
    call: str
    digest: str
    expires: float
    definition: ToolSpec | None = None
    """The definition of the tool, if it is not the one that the run was started with: this is what
    somebody has to agree to. The call was not executed."""


class ApprovalDecided(LoggedEvent, frozen=True, tag="approval.decided"):
    """`scope` tool or run: also for later calls of this tool, or of any tool, in this run."""

    approval: str
    call: str
    approved: bool
    by: str
    reason: str = ""
    scope: Scope = "call"


class CallIntended(LoggedEvent, frozen=True, tag="call.intended"):
    """Written before the effect. `key` is the same in every attempt."""

    call: str
    attempt: int
    key: str
    executor: str = ""
    child: str = ""
    """The run of the agent that is called; it was created in the same transaction."""

    drawn: Budget | None = None
    """What that run may use. As long as it is under way, nobody else may."""


class CallFinished(LoggedEvent, frozen=True, tag="call.finished"):
    """The receipt: written after the effect. That of an agent is written by the run of the agent,
    in the transaction that ends it."""

    call: str
    result: Contents = ()
    is_error: bool = False
    duration: float = 0.0
    used: Budget | None = None
    """What the run of the agent has used."""


class CallParked(LoggedEvent, frozen=True, tag="call.parked"):
    """It is not known whether the call has happened; somebody must say."""

    call: str
    why: str


class CallResolved(LoggedEvent, frozen=True, tag="call.resolved"):
    """done: it has happened, with this result. retry: it has not. abandon: give it up."""

    call: str
    action: Literal["done", "retry", "abandon"]
    by: str
    result: Contents = ()
    is_error: bool = False


class CallOutput(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a tool that the client runs."""

    call: str
    result: Contents = ()
    is_error: bool = False


class OutputsSubmitted(LoggedEvent, frozen=True, tag="outputs.submitted"):
    outputs: tuple[CallOutput, ...]


class MessageAdded(LoggedEvent, frozen=True, tag="message.added"):
    """A message of the user while the run is under way: an item of the Responses API."""

    message: Raw
    key: str = ""
    """The idempotency key: one message of a run has it."""


class LimitReached(LoggedEvent, frozen=True, tag="limit.reached"):
    limit: str
    detail: str


class RunWaiting(LoggedEvent, frozen=True, tag="run.waiting"):
    """Nobody works on the run until something comes from outside. Each field lists calls."""

    approvals: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    parked: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    """Calls of agents, whose runs are under way."""

    @property
    def needs_somebody(self) -> bool:
        """Whether a person or the client must act on this run, and not only on its children."""
        return bool(self.approvals or self.outputs or self.parked)


class RunFinished(LoggedEvent, frozen=True, tag="run.finished"):
    """The last turn is the result."""

    turn: int
    reason: FinishReason


class RunResumed(LoggedEvent, frozen=True, tag="run.resumed"):
    """Somebody works on the run again, after nobody did for `idle` seconds although there was
    something to do: the servers were down, or busy. That time is not the run's."""

    idle: float


class RunErrored(LoggedEvent, frozen=True, tag="run.errored"):
    """A bug has stopped the work on the run. It is taken up again, a few times."""

    error: str
    """The name of the exception."""


FailureCode = Literal[
    "loop", "no-progress", "limit", "model", "interrupted", "internal", "unavailable"
]


class RunFailed(LoggedEvent, frozen=True, tag="run.failed"):
    code: FailureCode
    message: str


class RunCancelled(LoggedEvent, frozen=True, tag="run.cancelled"):
    by: str
    reason: str = ""


RunEnd = RunFinished | RunFailed | RunCancelled
AnyRunEvent = (
    RunCreated
    | TurnStarted
    | TurnFinished
    | TurnInterrupted
    | CallRefused
    | ApprovalRequested
    | ApprovalDecided
    | CallIntended
    | CallFinished
    | CallParked
    | CallResolved
    | OutputsSubmitted
    | MessageAdded
    | LimitReached
    | RunWaiting
    | RunResumed
    | RunErrored
    | RunFinished
    | RunFailed
    | RunCancelled
)
"""Any event of a run."""

_DECODER: "msgspec.json.Decoder[AnyRunEvent]" = msgspec.json.Decoder(AnyRunEvent)
_ENCODER = msgspec.json.Encoder()


def encode_event(event: AnyRunEvent) -> bytes:
    return _ENCODER.encode(event)


def decode_event(body: bytes) -> AnyRunEvent:
    """Raises msgspec.ValidationError if no version of Weft up to this one wrote it."""
    return _DECODER.decode(body)


def text_result(text: str) -> Contents:
    return (TextContent(text),)


def joined_text(contents: Sequence[TextContent | ImageContent | FileContent]) -> str:
    """The text in a result, for people."""
    return "\n".join(one.text for one in contents if isinstance(one, TextContent))
