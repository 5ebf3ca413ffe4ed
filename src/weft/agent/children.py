"""Agents as tools: a call of one is a run of its own.

1. The run is created in the transaction that writes the intent of the call, and its end is written
   in the transaction that writes the receipt, into the log of the caller. So there is no moment at
   which a crash leaves one without the other: no second run is started for a call, and no result is
   lost.
2. While it is under way, its caller waits for it as for anybody outside: without a lease and
   without a task.
3. What it may use is drawn from what its caller has left (`RunState.share`). Each run has at
   least two turns less than its parent, so the depth is bounded, even if agents call each
   other in a circle.
4. Whatever ends a run ends the runs that it has started, and theirs, in the same transaction.
"""

from collections.abc import Callable
from hashlib import sha256

import msgspec
from msgspec import Raw

from weft.agent.definition import AgentDefinition, Budget
from weft.agent.events import (
    CallFinished,
    RunCancelled,
    RunCreated,
    RunEnd,
    RunFinished,
    encode_event,
    text_result,
)
from weft.agent.run_trace import run_span
from weft.agent.state import Call, RunState
from weft.agent.tool_spec import (
    TOOL_NAME,
    AnyOutcome,
    Finished,
    NotDone,
    ToolSpec,
    Unknown,
    definition_digest,
)
from weft.agent.tools import AgentTool, Arguments, BadArguments, ToolContext
from weft.errors import ArgumentValueError, InternalError
from weft.store.base import ID_LENGTH
from weft.store.queries import Beside, Queries
from weft.store.records import NewRun
from weft.store.runs import open_children, tell_run

AGENT = "agent"
"""The executor of these calls in the log."""

NO_BUDGET = "Not run: the limits of this run leave too little for another agent."
PARENT_ENDED = "the run that called it has ended"
WEFT = "weft"
"""Who decided what nobody decided."""

SCHEMA = Raw(
    msgspec.json.encode(
        {
            "type": "object",
            "properties": {
                "input": {
                    "type": "string",
                    "description": "The task, with everything that is needed for it.",
                }
            },
            "required": ["input"],
            "additionalProperties": False,
        }
    )
)

_json = msgspec.json.Encoder().encode


class ChildArguments(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of a call of an agent."""

    input: str


_decoder = msgspec.json.Decoder(ChildArguments)


class ChildTool:
    """An agent as a tool of another. The driver starts its run; nothing here is executed."""

    def __init__(self, definition: AgentDefinition) -> None:
        """Raises ArgumentValueError if the agent's name cannot be that of a tool."""
        name, about = definition.name, definition.description
        if not TOOL_NAME.fullmatch(name):
            raise ArgumentValueError(
                f"agent {name!r} cannot be a tool: the name of a tool has 1 to 64 of a-z, A-Z, "
                "0-9, _ and -"
            )
        self.definition = definition
        self.spec: ToolSpec = ToolSpec(
            name=name,
            description=about,
            parameters=SCHEMA,
            digest=definition_digest(name, about, SCHEMA, "transactional"),
            retry="transactional",
            kind="agent",
        )

    def __repr__(self) -> str:
        return f"<agent {self.spec.name} as a tool>"

    def decode(self, arguments: str) -> ChildArguments:
        """Returns the arguments. Raises BadArguments."""
        try:
            return _decoder.decode(arguments)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise BadArguments(str(error)) from error

    def needs_approval(self, arguments: Arguments) -> bool:
        return self.spec.approval != "never"

    def pinned(self, spec: ToolSpec) -> AgentTool:
        return self

    async def call(self, arguments: Arguments, context: ToolContext) -> AnyOutcome:
        raise InternalError(f"agent {self.spec.name} is a run of its own: it is not called")

    async def lookup(self, context: ToolContext) -> Finished | NotDone | Unknown:
        return Unknown("the run of an agent writes its receipt itself")


def new_child(
    parent: RunState, call: Call, tool: ChildTool, budget: Budget, id: str, beside: Beside
) -> NewRun:
    """The run for a call of an agent. Raises BadArguments."""
    arguments = tool.decode(call.judged.arguments)
    limits = tool.definition.limits.within(budget, parent.definition.limits.result)
    definition = msgspec.structs.replace(tool.definition, limits=limits)
    item = {"type": "message", "role": "user", "content": arguments.input}
    key = f"{parent.id}/{call.id}"
    # No client can make such a digest: its own run under this key is never taken for the child.
    request = f"call {key}"
    # Its span is inside of that of the run that calls it.
    span = run_span(parent)
    traceparent = "" if span is None else span.traceparent
    created = RunCreated(
        definition,
        (Raw(_json(item)),),
        parent.owner,
        key,
        {},
        request,
        traceparent=traceparent,
    )
    return NewRun(
        id=id,
        owner=parent.owner,
        agent=definition.name,
        status="running",
        events=[(created.kind, encode_event(created))],
        due=0.0,
        parent=parent.id,
        key=key if len(key) <= ID_LENGTH else f"{parent.id}/{sha256(call.id.encode()).hexdigest()}",
        beside=beside,
    )


def parent_of(state: RunState) -> str | None:
    """The id of the run that called this one."""
    return None if state.parent is None else state.parent.partition("/")[0]


def receipt(state: RunState, end: RunEnd, answer: str, now: float) -> CallFinished:
    """What the caller gets of a run that ends so; `answer` is the text of its last turn."""
    _, _, call = (state.parent or "").partition("/")
    name = state.definition.name
    match end:
        case RunFinished():
            text = answer
        case RunCancelled(reason=reason):
            text = f"The run of agent {name} was cancelled{reason and f': {reason}'}"
        case _:
            text = f"The run of agent {name} failed: {end.message}"
    is_error = not isinstance(end, RunFinished)
    return CallFinished(call, text_result(text), is_error, used=state.used(now))


def beside_end(
    state: RunState,
    finished: CallFinished | None,
    hint: Callable[[str], Beside],
    others: list[str],
    also: Beside | None = None,
) -> Beside:
    """What is written beside the end of a run: the receipt for its caller, the end of its children,
    and what comes with it. `others` receives the runs that were written to."""

    def beside(seq: int) -> Queries[None]:
        others.clear()  # a transaction may be tried again
        if also is not None:
            yield from also(seq)
        parent = parent_of(state)
        if parent is not None and finished is not None:
            event = (finished.kind, encode_event(finished))
            written = yield from tell_run(parent, event, "running")
            if written:
                others.append(parent)
                yield from hint(parent)(written)
        if any(call.is_child for call in state.open_calls):
            yield from _cancel_children(state.id, others)

    return beside


def _cancel_children(run: str, others: list[str]) -> Queries[None]:
    cancelled = RunCancelled(WEFT, PARENT_ENDED)
    for child in (yield from open_children(run)):
        event = (cancelled.kind, encode_event(cancelled))
        if (yield from tell_run(child, event, "cancelled", ended=True)):
            others.append(child)
            yield from _cancel_children(child, others)
