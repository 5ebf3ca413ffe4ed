"""What the validator remembers of texts, reasonings and calls, in both forms of stream."""

from collections.abc import Callable

from weft.dialects.rules import JsonValue
from weft.dialects.validation.reporter import JsonObject, Reporter
from weft.dialects.validation.untyped import parse_json, same, shown, text

Broken = Callable[[str, str], None]


class SdkItemsState:
    """The texts and reasonings of one stream, and when each started and ended."""

    def __init__(self, broken: Broken, once: Reporter) -> None:
        self._broken = broken
        self._once = once
        self._open: dict[tuple[str, str], int] = {}
        """The event at which each open item started."""
        self._ended: dict[tuple[str, str], int] = {}

    def feed(self, item: str, verb: str, id: str) -> None:
        """Checks an event `<item>-<verb>`, such as `text-start`."""
        key = (item, id)
        started, ended = self._open.get(key), self._ended.get(key)
        if verb == "start" and started is not None:
            detail = f"{item}-start for {shown(id)}, which is open since event {started}"
            self._broken("item-repeated", f"{detail}; expected another id")
        elif verb == "start":
            # Models may use an id again, as it is local to its item; clients that go by ids mix the
            # two up.
            if ended is not None:
                detail = f"{item}-start for {shown(id)}, which ended at event {ended}"
                self._once("item-id-reused", key, f"{detail}; expected another id")
            self._open[key] = self._once.at
        elif started is None:
            state = f"it ended at event {ended}" if ended is not None else "unknown"
            detail = f"{item}-{verb} for {shown(id)}: {state}; expected its {item}-start first"
            # Once for each item: every delta of it would say the same.
            self._once("item-not-open", key, detail)
        elif verb == "end":
            del self._open[key]
            self._ended[key] = self._once.at

    def close(self, before: str) -> None:
        """Reports and ends the items that are open."""
        for (item, id), at in self._open.items():
            detail = f"{before} while {item} {shown(id)} is open since event {at}"
            self._broken("item-open", f"{detail}; expected its {item}-end first")
            self._ended[item, id] = self._once.at
        self._open.clear()


class SdkCallState:
    __slots__ = ("at", "dynamic", "name", "pieces", "stage")

    def __init__(self, name: str, dynamic: bool, at: int) -> None:
        self.name = name
        self.dynamic = dynamic
        self.at = at
        self.pieces: list[str] = []
        self.stage = ANNOUNCED


# Numbers, because rules ask whether a call has come this far.
ANNOUNCED, INPUT_ENDED, COMPLETE, PRELIMINARY, ANSWERED = range(5)
"""The stages of a call, in order."""


class SdkCallsState:
    """The calls of a message. Within a step, an id belongs to one call."""

    def __init__(self, broken: Broken, once: Reporter, *, continued: bool) -> None:
        self._broken = broken
        self._once = once
        self._calls: dict[str, SdkCallState] = {}
        self._unannounced: list[tuple[str, str, JsonValue]] = []
        """Whole calls that were not announced: id, name and input."""
        self._earlier: set[str] = set()
        """The ids of calls of earlier steps."""
        self.continued = continued
        """Whether the stream continues a message, whose earlier steps may have calls."""

    def start(self, id: str, event: JsonObject) -> None:
        if id in self._calls:
            detail = f"tool-input-start for {shown(id)}, known since event {self._calls[id].at}"
            self._broken("item-repeated", f"{detail}; expected another id")
            return
        self._calls[id] = call = _call(event, self._once.at)
        self._check_name(id, call)

    def grow(self, id: str, piece: JsonValue, verb: str) -> None:
        call = self._calls.get(id)
        if call is None or call.stage != ANNOUNCED:
            state = "unknown" if call is None else "its input has ended"
            detail = f"tool-input-{verb} for {shown(id)}: {state}; expected its start first"
            self._once("item-not-open", id, detail)
        elif verb == "end":
            call.stage = INPUT_ENDED
        else:
            call.pieces.append(text(piece))

    def _check_name(self, id: str, call: SdkCallState) -> None:
        if not call.name:
            self._once("call-name", id, f"call {shown(id)} without a name; expected one")

    def complete(self, id: str, event: JsonObject) -> SdkCallState | None:
        """Returns the call that a whole one completes; None if it is complete already."""
        whole = _call(event, self._once.at)
        call = self._calls.get(id)
        if call is None:
            # A whole call alone is legal. It is remembered, because it may be an announced one
            # whose id changed.
            self._unannounced.append((id, whole.name, event.get("input")))
            self._calls[id] = call = whole
            self._check_name(id, call)
        elif call.stage >= COMPLETE:
            detail = f"call {shown(id)} is completed a second time; expected it once"
            self._broken("call-repeated", detail)
            return None
        else:
            if whole.name != call.name:
                detail = f"call {shown(id)} is {shown(whole.name)}; expected {shown(call.name)}"
                self._broken("call-name", f"{detail}, as it was announced")
            if whole.dynamic != call.dynamic:
                detail = f"call {shown(id)} has dynamic {whole.dynamic}; expected {call.dynamic}"
                self._broken("call-dynamic", f"{detail}, as it was announced")
        call.stage = COMPLETE
        return call

    def answer(self, id: str, what: str, *, final: bool) -> None:
        """Checks an output, which is preliminary or `final`."""
        call = self._known(id, what)
        if call is None:
            return
        if call.stage == ANSWERED:
            detail = f"{what} for call {shown(id)}, which has its final output; expected no more"
            self._broken("output-repeated", detail)
        call.stage = ANSWERED if final else max(call.stage, PRELIMINARY)

    def mention(self, id: str, what: str) -> None:
        """Checks the call of an approval or a denial."""
        self._known(id, what)

    def _known(self, id: str, what: str) -> SdkCallState | None:
        call = self._calls.get(id)
        if call is None and id not in self._earlier:
            # Then the call may stand in an earlier message, which the capture does not show.
            nothing_yet = self.continued or not (self._calls or self._earlier)
            rule = "output-earlier-call" if nothing_yet else "output-unknown-call"
            detail = f"{what} for call {shown(id)}; expected that call before it"
            self._broken(rule, detail)
        return call

    def cut(self, before: str) -> None:
        """Reports the calls that an error or an abort leaves open."""
        for id, call in self._calls.items():
            if call.stage < COMPLETE:
                detail = f"{before} while call {shown(id)} is open since event {call.at}"
                self._broken("item-open", f"{detail}; expected tool-input-error first")
                call.stage = COMPLETE  # reported once

    def close(self, before: str) -> None:
        """Reports the calls that the end of a step leaves incomplete."""
        for id, call in self._calls.items():
            if call.stage < COMPLETE:
                # The id changed between start and call, which is another defect than a call without
                # an end.
                same = (
                    other
                    for other, name, input in self._unannounced
                    if name == call.name
                    and not differs(call, input, written=isinstance(input, str))
                )
                completed_as = next(same, None)
                if completed_as is None:
                    detail = f"{before} while call {shown(id)} is open since event {call.at}"
                    self._broken("call-open", f"{detail}; expected the complete call first")
                else:
                    detail = f"call {shown(id)} was completed as {shown(completed_as)}"
                    expected = "expected the id it was announced with"
                    self._broken("call-id-differs", f"{detail}; {expected}")
            elif call.stage == PRELIMINARY:
                detail = f"{before} after preliminary outputs of call {shown(id)}"
                self._broken("output-open", f"{detail}; expected a final one")
        # Ids are unique within a step; outputs may refer to calls of steps before.
        self._earlier |= set(self._calls)
        self._calls.clear()
        self._unannounced.clear()


def _call(event: JsonObject, at: int) -> SdkCallState:
    return SdkCallState(text(event.get("toolName")), event.get("dynamic") is True, at)


def differs(call: SdkCallState, input: JsonValue, *, written: bool) -> bool:
    """Whether the input of a call is not what its deltas join to; `written`: it is JSON text."""
    joined = "".join(call.pieces)
    if not joined.strip():
        return False  # nothing was streamed
    try:
        streamed = parse_json(joined)
    except ValueError:
        return joined != input  # free text, or a call that was cut
    try:
        value = parse_json(text(input) or "{}") if written else input
    except ValueError:
        return True
    return not same(streamed, value)
