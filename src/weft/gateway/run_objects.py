"""Runs, their events and agents as JSON objects. Everything but a list is folded from the log."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec import Raw
from msgspec.structs import asdict

from weft.agent.children import parent_of
from weft.agent.definition import AgentDefinition, add_dollars
from weft.agent.events import (
    CallIntended,
    RunCancelled,
    RunCreated,
    RunFailed,
    RunFinished,
    TurnFinished,
    decode_event,
)
from weft.agent.lifecycle import ASKED, AWAITED, PARKED, RunCallState
from weft.agent.merge import CallProgress
from weft.agent.state import Call, RunState
from weft.agent.status import status_after
from weft.agent.tool_spec import ToolSpec
from weft.parts import Part, Usage
from weft.relay.offload import SMALL, offload
from weft.store.base import Store
from weft.store.records import RunEvent, RunRow

JsonObject = dict[str, object]


_read_fields = msgspec.json.Decoder(dict[str, Raw]).decode


@dataclass(slots=True)
class RunView:
    """What a client sees of a run: its state, and what the state leaves out."""

    row: RunRow
    state: RunState
    created: RunCreated | None = None
    usages: list[Usage] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    """The keys of the effects, by call."""
    children: "dict[str, RunView]" = field(default_factory=dict)
    """The runs that it waits for, by the calls that started them."""
    unavailable: str | None = None
    """Why this server cannot work on it."""

    def apply(self, events: Iterable[RunEvent]) -> None:
        """Takes in the next events."""
        for event in events:
            value = decode_event(event.body)
            self.state.apply(value, event.at)
            match value:
                case RunCreated():
                    self.created = value
                case TurnFinished(usage=Usage() as usage):
                    self.usages.append(usage)
                case CallIntended(call=call, key=key):
                    self.keys[call] = key

    @property
    def answer(self) -> str | None:
        """The id of the response that is the result; None if there is none."""
        turn = self.state.turn
        if turn is None or not isinstance(self.state.end, RunFinished):
            return None
        return turn.response

    @property
    def cost(self) -> float | None:
        """US dollars so far, with the runs that it has started; None if a price is not known."""
        used = self.state.used(0.0)
        found = [None if used.unpriced else used.cost]
        found += [child.cost for child in self.children.values()]
        known = [one for one in found if one is not None]
        return add_dollars(*known) if len(known) == len(found) else None

    def object(self, output: str | None) -> JsonObject:
        """`output`: the text of the answer."""
        state, created = self.state, self.created
        return {
            "id": self.row.id,
            "object": "run",
            "agent": self.row.agent,
            "status": status_after(state),
            "created_at": int(self.row.created),
            "ended_at": None if self.row.ended is None else int(self.row.ended),
            "output": output,
            "error": _error(state),
            "waiting": self._waiting(),
            "usage": _summed(self.usages),
            "cost": self.cost,
            "turns": len(state.turns),
            "responses": [turn.response for turn in state.turns],
            "events": state.seq,
            "limits": asdict(state.definition.limits),
            "metadata": created.metadata if created is not None else {},
            "parent": parent_of(state),
            "parent_call": None if state.parent is None else state.parent.partition("/")[2],
            "forked_from": created.forked if created is not None else None,
            "unavailable": self.unavailable if state.end is None else None,
            "conversation": state.conversation,
        }

    def _waiting(self) -> JsonObject | None:
        """The calls that somebody outside must act on, in this run or in one that it waits for.
        There may be some while others still run."""
        if self.state.end is not None:
            return None
        found = self._waiting_calls()
        return dict(found) if any(found.values()) else None

    def _waiting_calls(self) -> dict[str, list[JsonObject]]:
        found: dict[str, list[JsonObject]] = {name: [] for name in (*_WAITING.values(), CHILDREN)}
        for call in self.state.open_calls:
            about: JsonObject = {
                "run": self.row.id,
                "call_id": call.id,
                "tool": call.judged.name,
                "arguments": call.judged.arguments,
            }
            if call.state in _WAITING:
                found[_WAITING[call.state]].append(_MORE[call.state](self, call) | about)
            elif (child := self.children.get(call.id)) is not None:
                status = status_after(child.state)
                found[CHILDREN].append(about | {"child": child.row.id, "child_status": status})
                for name, calls in child._waiting_calls().items():
                    found[name] += calls
        return found


CHILDREN = "children"
_WAITING = {ASKED: "approvals", AWAITED: "outputs", PARKED: "parked"}


def _approval(view: RunView, call: Call) -> JsonObject:
    asked = call.approval
    if asked is None:
        return {}
    found: JsonObject = {"approval_id": asked.approval, "expires_at": int(asked.expires)}
    if asked.definition is not None:
        found["changed_definition"] = _tool_object(asked.definition)
    return found


def _parked(view: RunView, call: Call) -> JsonObject:
    key = view.keys.get(call.id)
    return {"key": key, "intended_at": int(call.intended_at), "why": call.why}


_MORE: dict[RunCallState, Callable[[RunView, Call], JsonObject]] = {
    ASKED: _approval,
    AWAITED: lambda view, call: {},
    PARKED: _parked,
}
"""What is said of a call in each of these states, beside its name and arguments."""


def _error(state: RunState) -> JsonObject | None:
    match state.end:
        case RunFailed(code=code, message=message):
            return {"code": code, "message": message}
        case RunCancelled(by=by, reason=reason):
            return {"code": "cancelled", "message": reason or f"cancelled by {by}"}
    return None


def _summed(usages: Iterable[Usage]) -> JsonObject | None:
    """Each count over all turns; null where no turn has it."""
    found = [asdict(one) for one in usages]
    if not found:
        return None
    return {
        name: sum(counts)
        if (counts := [one[name] for one in found if one[name] is not None])
        else None
        for name in found[0]
    }


async def run_view(store: Store, row: RunRow) -> RunView:
    """A run with the runs that it waits for, and theirs. Raises StoreError."""
    view, after = RunView(row, RunState(row.id)), 0
    while events := await store.run_events(row.id, after):
        if sum(len(event.body) for event in events) > SMALL:
            await offload(view.apply, events)
        else:
            view.apply(events)
        after = events[-1].seq
    # Events may have come since: then the row is older than they are.
    if view.state.end is not None and row.ended is None:
        view.row = await store.run(row.id) or row
    for call in view.state.open_calls if view.state.end is None else ():
        child = await store.run(call.child) if call.is_child else None
        if child is not None:
            view.children[call.id] = await run_view(store, child)
    return view


def summary_object(row: RunRow) -> JsonObject:
    """A run in a list: what its row says."""
    return {
        "id": row.id,
        "object": "run",
        "agent": row.agent,
        "status": row.status,
        "created_at": int(row.created),
        "ended_at": None if row.ended is None else int(row.ended),
        "events": row.seq,
        "parent": row.parent,
    }


def event_object(event: RunEvent) -> dict[str, object]:
    """An event with its run, number and time; its `kind` is in the body."""
    return {"run": event.run, "seq": event.seq, "at": event.at, **_read_fields(event.body)}


def progress_object(progress: CallProgress, kind: str) -> JsonObject:
    return {"run": progress.run, "kind": kind, "call": progress.call, "text": progress.text}


def part_object(run: str, part: Part, kind: str) -> JsonObject:
    return {"run": run, "kind": kind, "part": part}


def agent_object(definition: AgentDefinition) -> JsonObject:
    return {
        "id": definition.name,
        "object": "agent",
        "description": definition.description,
        "model": definition.model,
        "instructions": definition.instructions,
        "tools": [_tool_object(one) for one in definition.tools],
        "limits": asdict(definition.limits),
        "on_interrupt": definition.on_interrupt,
        "on_ambiguous": definition.on_ambiguous,
        "tools_visible": definition.tools_visible,
        "digest": definition.digest,
    }


def _tool_object(tool: ToolSpec) -> JsonObject:
    fields = ("name", "description", "parameters", "kind", "server", "retry", "approval", "timeout")
    return {name: getattr(tool, name) for name in fields}
