"""Texts, reasonings and calls of one stream, as the checker watches them, in both forms."""

from collections.abc import Callable

from weft.dialects.rules import JsonValue
from weft.dialects.validation.reporter import JsonObject, Reporter
from weft.dialects.validation.untyped import parse_json, same, shown, text

Broken = Callable[[str, str], None]


class Items:
    """Watches what has a start, deltas and an end under an id of its own."""

    def __init__(self, broken: Broken, once: Reporter) -> None:
        self._broken = broken
        self._once = once
        self._open: dict[tuple[str, str], int] = {}
        """Since which event."""
        self._ended: dict[tuple[str, str], int] = {}

    def feed(self, item: str, verb: str, id: str) -> None:
        """A chunk `<item>-<verb>`, as in `text-start`."""
        key = (item, id)
        if verb != "start":
            self._go_on(item, verb, id)
        elif key in self._open:
            detail = f"{item}-start for {shown(id)}, which is open since event {self._open[key]}"
            self._broken("item-repeated", f"{detail}; expected another id")
        else:
            if key in self._ended:
                detail = f"{item}-start for {shown(id)}, which ended at event {self._ended[key]}"
                self._once("item-id-reused", key, f"{detail}; expected another id")
            self._open[key] = self._once.at

    def _go_on(self, item: str, verb: str, id: str) -> None:
        key = (item, id)
        if key not in self._open:
            state = f"it ended at event {self._ended[key]}" if key in self._ended else "unknown"
            detail = f"{item}-{verb} for {shown(id)}: {state}; expected its {item}-start first"
            self._once("item-not-open", key, detail)
        elif verb == "end":
            del self._open[key]
            self._ended[key] = self._once.at

    def close(self, before: str) -> None:
        """Nothing may be open any more."""
        for (item, id), at in self._open.items():
            detail = f"{before} while {item} {shown(id)} is open since event {at}"
            self._broken("item-open", f"{detail}; expected its {item}-end first")
            self._ended[item, id] = self._once.at
        self._open.clear()


class Call:
    """One call: announced, completed, answered."""

    __slots__ = ("at", "dynamic", "name", "pieces", "stage")

    def __init__(self, name: str, dynamic: bool, at: int) -> None:
        self.name = name
        self.dynamic = dynamic
        self.at = at
        self.pieces: list[str] = []
        self.stage = ANNOUNCED


ANNOUNCED, SEALED, COMPLETE, PARTLY, ANSWERED = range(5)
"""Stages of a call, in order. Sealed: its input has ended, and the call itself is still to come."""


class Calls:
    """Watches the calls of a message, step by step: an id belongs to one call of a step."""

    def __init__(self, broken: Broken, once: Reporter, *, continued: bool) -> None:
        self._broken = broken
        self._once = once
        self._calls: dict[str, Call] = {}
        self._unannounced: list[tuple[str, str, JsonValue]] = []
        """Complete calls that nobody had announced: id, name and input."""
        self._earlier: set[str] = set()
        self.continued = continued
        """Whether calls may have come before what is watched."""

    def start(self, id: str, event: JsonObject) -> None:
        if id in self._calls:
            detail = f"tool-input-start for {shown(id)}, known since event {self._calls[id].at}"
            self._broken("item-repeated", f"{detail}; expected another id")
            return
        self._calls[id] = call = _call(event, self._once.at)
        self._named(id, call)

    def grow(self, id: str, piece: JsonValue, verb: str) -> None:
        call = self._calls.get(id)
        if call is None or call.stage != ANNOUNCED:
            state = "unknown" if call is None else "its input has ended"
            detail = f"tool-input-{verb} for {shown(id)}: {state}; expected its start first"
            self._once("item-not-open", id, detail)
        elif verb == "end":
            call.stage = SEALED
        else:
            call.pieces.append(text(piece))

    def _named(self, id: str, call: Call) -> None:
        if not call.name:
            self._once("call-name", id, f"call {shown(id)} without a name; expected one")

    def complete(self, id: str, event: JsonObject) -> Call | None:
        """A complete call; None for one that was complete before."""
        told = _call(event, self._once.at)
        call = self._calls.get(id)
        if call is None:
            self._unannounced.append((id, told.name, event.get("input")))
            self._calls[id] = call = told
            self._named(id, call)
        elif call.stage >= COMPLETE:
            detail = f"call {shown(id)} is completed a second time; expected it once"
            self._broken("call-repeated", detail)
            return None
        else:
            self._kept(id, call, told)
        call.stage = COMPLETE
        return call

    def _kept(self, id: str, call: Call, told: Call) -> None:
        if told.name != call.name:
            detail = f"call {shown(id)} is {shown(told.name)}; expected {shown(call.name)}"
            self._broken("call-name", f"{detail}, as it was announced")
        if told.dynamic != call.dynamic:
            detail = f"call {shown(id)} has dynamic {told.dynamic}; expected {call.dynamic}"
            self._broken("call-dynamic", f"{detail}, as it was announced")

    def answer(self, id: str, what: str, *, final: bool) -> None:
        """An output; `final` unless it is a preliminary one."""
        call = self._known(id, what)
        if call is None:
            return
        if call.stage == ANSWERED:
            detail = f"{what} for call {shown(id)}, which has its final output; expected no more"
            self._broken("output-repeated", detail)
        call.stage = ANSWERED if final else max(call.stage, PARTLY)

    def mention(self, id: str, what: str) -> None:
        """An approval, or a denial."""
        self._known(id, what)

    def _known(self, id: str, what: str) -> Call | None:
        call = self._calls.get(id)
        if call is None and id not in self._earlier:
            nothing_yet = self.continued or not (self._calls or self._earlier)
            rule = "output-earlier-call" if nothing_yet else "output-unknown-call"
            detail = f"{what} for call {shown(id)}; expected that call before it"
            self._broken(rule, detail)
        return call

    def cut(self, before: str) -> None:
        """An error or an abort: what is open stays so."""
        for id, call in self._calls.items():
            if call.stage < COMPLETE:
                detail = f"{before} while call {shown(id)} is open since event {call.at}"
                self._broken("item-open", f"{detail}; expected tool-input-error first")
                call.stage = COMPLETE

    def close(self, before: str) -> None:
        """The end of a step: what belongs to it must be complete."""
        for id, call in self._calls.items():
            if call.stage < COMPLETE:
                self._left(id, call, before)
            elif call.stage == PARTLY:
                detail = f"{before} after preliminary outputs of call {shown(id)}"
                self._broken("output-open", f"{detail}; expected a final one")
        self._earlier |= set(self._calls)
        self._calls.clear()
        self._unannounced.clear()

    def _left(self, id: str, call: Call, before: str) -> None:
        """A call that is not complete: or was it, under another id?"""
        for other, name, input in self._unannounced:
            written = isinstance(input, str)
            if name == call.name and not differs(call, input, written=written):
                detail = f"call {shown(id)} was completed as {shown(other)}"
                self._broken("call-id-differs", f"{detail}; expected the id it was announced with")
                return
        detail = f"{before} while call {shown(id)} is open since event {call.at}"
        self._broken("call-open", f"{detail}; expected the complete call first")


def _call(event: JsonObject, at: int) -> Call:
    return Call(text(event.get("toolName")), event.get("dynamic") is True, at)


def differs(call: Call, told: JsonValue, *, written: bool) -> bool:
    """Whether the input of a call is not what its deltas make; `written` if it is JSON text."""
    joined = "".join(call.pieces)
    if not joined.strip():
        return False  # nothing was streamed
    try:
        streamed = parse_json(joined)
    except ValueError:
        return joined != told
    try:
        value = parse_json(text(told) or "{}") if written else told
    except ValueError:
        return True
    return not same(streamed, value)
