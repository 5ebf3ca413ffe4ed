"""Runs, their events and agents as JSON objects. Everything but a list is folded from the log."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec import Raw
from msgspec.structs import asdict

from weft.agent.definition import AgentDefinition
from weft.agent.driver import status_after
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
from weft.agent.state import Call, RunState
from weft.agent.tool_spec import ToolSpec
from weft.parts import Usage
from weft.store.records import RunEvent, RunRow

JsonObject = dict[str, object]


class _OutputContent(msgspec.Struct):
    text: str = ""
    refusal: str = ""


class _OutputItem(msgspec.Struct):
    type: str = ""
    content: list[_OutputContent] | None = None


class _TurnOutput(msgspec.Struct):
    output: list[_OutputItem] = []


_read_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_read_output = msgspec.json.Decoder(_TurnOutput).decode


@dataclass(slots=True)
class RunView:
    """What a client sees of a run: its state, and what the state leaves out."""

    row: RunRow
    state: RunState
    created: RunCreated | None = None
    usages: list[Usage] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    """The keys of the effects, by call."""

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
            "turns": len(state.turns),
            "responses": [turn.response for turn in state.turns],
            "events": state.seq,
            "limits": asdict(state.definition.limits),
            "metadata": created.metadata if created is not None else {},
            "parent": state.parent,
            "forked_from": created.forked if created is not None else None,
        }

    def _waiting(self) -> JsonObject | None:
        """The calls that somebody outside must act on. There may be some while others still run."""
        if self.state.end is not None:
            return None
        found: dict[str, list[JsonObject]] = {name: [] for name in _WAITING.values()}
        for call in self.state.open_calls:
            if call.state in _WAITING:
                about: JsonObject = {
                    "call_id": call.id,
                    "tool": call.judged.name,
                    "arguments": call.judged.arguments,
                }
                found[_WAITING[call.state]].append(_MORE[call.state](self, call) | about)
        return dict(found) if any(found.values()) else None


_WAITING = {ASKED: "approvals", AWAITED: "outputs", PARKED: "parked"}


def _approval(view: RunView, call: Call) -> JsonObject:
    asked = call.approval
    if asked is None:
        return {}
    return {"approval_id": asked.approval, "expires_at": int(asked.expires)}


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


def agent_object(definition: AgentDefinition) -> JsonObject:
    return {
        "id": definition.name,
        "object": "agent",
        "model": definition.model,
        "instructions": definition.instructions,
        "tools": [_tool_object(one) for one in definition.tools],
        "limits": asdict(definition.limits),
        "on_interrupt": definition.on_interrupt,
        "on_ambiguous": definition.on_ambiguous,
        "digest": definition.digest,
    }


def _tool_object(tool: ToolSpec) -> JsonObject:
    fields = ("name", "description", "parameters", "kind", "server", "retry", "approval", "timeout")
    return {name: getattr(tool, name) for name in fields}


def output_text(body: bytes) -> str:
    """The text of a response object."""
    return "".join(
        content.text or content.refusal
        for item in _read_output(body).output
        if item.type == "message"
        for content in item.content or ()
    )
