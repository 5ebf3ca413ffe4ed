"""A recorded log: the events of a run and of the run that it started, and the responses of their
turns. One JSON object a line."""

import tomllib
from pathlib import Path

import msgspec
from msgspec import Raw

from weft.agent.events import AnyRunEvent, RunEnd, RunWaiting, decode_event, joined_text
from weft.agent.state import RunState, fold

FOLDER = Path(__file__).parent


class ReachedState(msgspec.Struct, frozen=True):
    """What matters of the state of a run, in words that outlive the code."""

    end: str
    turns: list[str]
    calls: dict[str, tuple[str, str, bool]]
    """The state of each call, its result and whether that is an error."""

    messages: int


class RecordedRun(msgspec.Struct, frozen=True, tag_field="type", tag="run"):
    """The head of a run: that of the caller is the first line."""

    id: str
    agent: str
    parent: str | None
    reached: ReachedState


class RecordedEvent(msgspec.Struct, frozen=True, tag_field="type", tag="event"):
    run: str
    at: float
    body: Raw

    @property
    def event(self) -> AnyRunEvent:
        return decode_event(bytes(self.body))


class RecordedResponse(msgspec.Struct, frozen=True, tag_field="type", tag="response"):
    id: str
    body: Raw


AnyLine = RecordedRun | RecordedEvent | RecordedResponse
_line = msgspec.json.Decoder(AnyLine)


class RecordedLog(msgspec.Struct, frozen=True):
    runs: list[RecordedRun]
    events: dict[str, list[RecordedEvent]]
    """Of each run, in their order."""

    responses: list[RecordedResponse]

    @classmethod
    def parse(cls, text: str) -> "RecordedLog":
        lines = [_line.decode(line) for line in text.splitlines()]
        runs = [one for one in lines if isinstance(one, RecordedRun)]
        events: dict[str, list[RecordedEvent]] = {run.id: [] for run in runs}
        for one in lines:
            if isinstance(one, RecordedEvent):
                events[one.run].append(one)
        return cls(runs, events, [one for one in lines if isinstance(one, RecordedResponse)])

    def render(self) -> str:
        lines = [*self.runs, *(one for some in self.events.values() for one in some)]
        return "".join(
            msgspec.json.encode(one).decode() + "\n" for one in (*lines, *self.responses)
        )

    def renamed(self, suffix: str) -> "RecordedLog":
        """The same log of other runs: so that several fit into one store."""
        text = self.render()
        ids = [one.id for one in self.runs] + [one.id for one in self.responses]
        for id in ids:
            text = text.replace(id, id + suffix)
        return self.parse(text)

    def until(self, count: int) -> "RecordedLog":
        """As it was when the first run had so many events. A run that it had started and not heard
        from again waits for somebody."""
        main, *children = self.runs
        events = {main.id: self.events[main.id][:count]}
        state = RecordedLog([main], events, []).state(main.id)
        started = {call.child: call for call in state.calls.values() if call.child}
        for run in children:
            if run.id in started:
                own = self.events[run.id]
                kinds = [one.event for one in own]
                waits = next(at for at, one in enumerate(kinds, 1) if isinstance(one, RunWaiting))
                events[run.id] = own[:waits] if started[run.id].is_child else own
        runs = [run for run in self.runs if run.id in events]
        return RecordedLog(runs, events, self.responses)

    def state(self, run: str) -> RunState:
        return fold(run, ((one.event, one.at) for one in self.events[run]))

    def has_ended(self, run: str) -> bool:
        return isinstance(self.events[run][-1].event, RunEnd)


def reached(state: RunState) -> ReachedState:
    return ReachedState(
        state.end.kind if state.end is not None else "",
        [turn.state.name for turn in state.turns],
        {
            call.id: (call.state.name, joined_text(call.result), call.is_error)
            for call in state.calls.values()
        },
        len(state.messages),
    )


def version() -> str:
    """That of this tree."""
    project = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text())
    return str(project["project"]["version"])
