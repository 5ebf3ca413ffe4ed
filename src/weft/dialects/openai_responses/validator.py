"""Watches one Responses stream for its rules (`promises.py`).

Reads untyped events. An item is known by its id, and else by its output index; after a rule was
broken the watch goes on with what the event most likely meant, so that one fault is one finding.
"""

from collections.abc import Callable
from enum import Enum

from weft.dialects.checking.once import JsonObject, Once, kind, plain
from weft.dialects.checking.untyped import Framing, count, elements, fields, shown, text
from weft.dialects.openai_responses.validation.required import (
    CALLS,
    EVENTS,
    FLOWS,
    WRAPPERS,
    Flow,
    Shapes,
)
from weft.dialects.openai_responses.validation.rules import RULES
from weft.dialects.openai_responses.validation.state import Item
from weft.dialects.rules import JsonValue
from weft.findings import Findings
from weft.sse import DONE, Frame

__all__ = ["RULES", "ResponsesInvariants"]

STATUSES: dict[str, tuple[str, ...]] = {
    "response.created": ("in_progress", "queued"),
    "response.queued": ("queued",),
    "response.in_progress": ("in_progress",),
    "response.completed": ("completed",),
    "response.incomplete": ("incomplete", "cancelled"),
    "response.failed": ("failed",),
}
"""Events with a response, and what its status may be there."""

TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})
ACTION = "response.required_action"
SPOKEN = frozenset({*CALLS, "message", "reasoning"})
"""Items that are in progress when they are added."""


class _Phase(Enum):
    FRESH = "fresh"
    OPEN = "open"
    ENDED = "ended"
    DONE = "done"
    BODY = "body"
    """No stream at all: the response, or its error, in one piece."""


class ResponsesInvariants:
    """Watches one response, streamed or in one body."""

    def __init__(self, findings: Findings) -> None:
        self._report = Once(findings)
        self._shapes = Shapes(self._report)
        self._framing = Framing()
        self._phase = _Phase.FRESH
        self._seen: dict[str, int] = {}
        """Types of events, and where each came first."""
        self._terminal = ""
        self._unnamed: int | None = None
        self._numbers: set[int] = set()
        self._highest = -1
        self._id = ""
        self._items: list[Item] = []
        self._known: dict[tuple[str | None, int | None], Item] = {}
        """The first item of each id and index, of each id, and of each index."""
        self._calls: dict[str, Item] = {}

    def feed(self, frame: Frame, event: JsonValue) -> None:
        self._framing.feed(frame)
        if frame.id is not None:
            self._report("id-line", "", f"an id: line with {shown(frame.id)}; expected none")
        if self._phase is _Phase.DONE:
            detail = f"{_name(frame, event)} came after [DONE]; expected the end of the stream"
            self._report("after-done", "", detail)
        elif frame.data == DONE:
            self._done()
        elif not isinstance(event, dict):
            detail = f"data is {kind(event) if event is not None else 'no JSON'}"
            self._report("data-invalid", self._report.at, f"{detail}; expected an object or [DONE]")
        elif self._phase is _Phase.FRESH and "type" not in event and _is_body(event):
            self._body(event)
        else:
            self._event(frame, event)

    def finish(self) -> None:
        if self._phase is _Phase.BODY:
            return
        if self._phase is not _Phase.DONE and self._framing.events:
            detail = f"the stream ended after {self._last()}; expected [DONE]"
            self._report("done-missing", "", detail)
        if "error" in self._seen:
            self._failure(self._seen["error"])
        elif not self._terminal:
            expected = "expected response.completed, response.incomplete or response.failed"
            self._report(
                "terminal-missing", "", f"the stream ended after {self._last()}; {expected}"
            )

    def _last(self) -> str:
        return plain(next(reversed(self._seen), "nothing"))

    def _failure(self, at: int) -> None:
        """An error is announced by an event and settled by the response, if there is one."""
        if self._terminal != "response.failed" and "response.created" in self._seen:
            last = self._terminal or "the end of the stream"
            detail = f"error at event {at} was followed by {last}; expected response.failed"
            self._report("error-without-failed", "", detail)

    # Frames

    def _done(self) -> None:
        if self._phase is _Phase.BODY:
            detail = "a whole body in a stream; expected events, each with a type"
            self._report("type-missing", "", detail)
            return
        self._phase = _Phase.DONE
        self._nameless()

    def _named(self, frame: Frame, type: str) -> None:
        if not frame.event:
            if self._unnamed is None:
                self._unnamed = self._report.at
        elif type and frame.event != type:
            detail = f"event: {plain(frame.event)} with type {shown(type)}; expected the type there"
            self._report("event-name-differs", frame.event, detail)
        self._nameless()

    def _nameless(self) -> None:
        if self._unnamed is not None and self._framing.events:
            detail = f"event {self._unnamed} has no event: line; expected one that equals its type"
            self._report("event-name-missing", "", detail)

    # Events

    def _event(self, frame: Frame, event: JsonObject) -> None:
        type = text(event.get("type"))
        self._named(frame, type)
        if not type:
            detail = f"type is {shown(event.get('type'))}; expected the name of the event"
            self._report("type-missing", frame.event, detail)
            type = frame.event
        self._number(event, type)
        if not type:
            return
        self._place(type)
        self._seen.setdefault(type, self._report.at)
        if type not in EVENTS:
            detail = f"{shown(type)} is no event of this wire; expected one that clients know"
            self._report("unknown-event", type, detail)
        self._shapes.event(type, event)
        handler = _HANDLERS.get(type)
        if handler is not None:
            handler(self, type, event)
        elif "output_index" in EVENTS.get(type, ()):
            self._touched(type, event)

    def _number(self, event: JsonObject, type: str) -> None:
        number = count(event.get("sequence_number"))
        place = f"{plain(type or 'the event')} has sequence_number"
        if number is None:
            detail = f"{place} {shown(event.get('sequence_number'))}; expected an integer"
            self._report("number-missing", type, detail)
            return
        expected = self._highest + 1
        detail = f"{place} {shown(number)}; expected {shown(expected)}"
        if not self._numbers and number != 0:
            self._report("number-start", "", detail)
        elif number in self._numbers:
            self._report("number-repeated", number, f"{detail}: that number came before")
        elif number < expected:
            self._report("number-order", "", f"{detail}: numbers grow")
        elif number > expected:
            self._report("number-gap", number, f"{detail}: numbers have no gaps")
        self._numbers.add(number)
        self._highest = max(self._highest, number)

    def _place(self, type: str) -> None:
        """Where in the stream this event may stand."""
        if self._phase in (_Phase.ENDED, _Phase.BODY):
            rule = "terminal-repeated" if type in TERMINAL else "after-terminal"
            detail = f"{plain(type)} came after {self._terminal or 'a whole body'}; expected [DONE]"
            self._report(rule, "", detail)
        elif self._phase is _Phase.FRESH and type in EVENTS:
            self._phase = _Phase.OPEN
            if type not in ("response.created", "error"):
                detail = f"{type} is the first event; expected response.created"
                self._report("created-first", "", detail)

    def _error(self, type: str, event: JsonObject) -> None:
        self._shapes.error(type, event)

    # The response

    def _body(self, event: JsonObject) -> None:
        self._phase = _Phase.BODY
        if event.get("object") != "response":
            self._shapes.error("the body", event)
            return
        self._shapes.snapshot("the body", event)
        for item in elements(event.get("output")):
            self._shapes.item("the body", fields(item))

    def _response(self, type: str, event: JsonObject) -> None:
        response = fields(event.get("response"))
        if response:
            self._shapes.snapshot(type, response)
            self._status(type, response)
        id = text(response.get("id"))
        if id and self._id and id != self._id:
            detail = f"{type} has response id {shown(id)}; expected {shown(self._id)}"
            self._report("response-id-changed", "", detail)
        self._id = self._id or id

    def _status(self, type: str, response: JsonObject) -> None:
        status = text(response.get("status"))
        legal = STATUSES.get(type, ())
        waits = ACTION in self._seen and status == "incomplete"  # for the outputs of its calls
        if status and legal and status not in legal and not waits:
            detail = f"{type} has a response with status {shown(status)}"
            self._report("status-differs", type, f"{detail}; expected {' or '.join(legal)}")

    def _in_progress(self, type: str) -> None:
        if "response.in_progress" not in self._seen:
            expected = "expected response.created, response.in_progress, then items"
            detail = f"{type} came before response.in_progress; {expected}"
            self._report("in-progress-missing", "", detail)

    def _end(self, type: str, event: JsonObject) -> None:
        self._response(type, event)
        if not self._terminal:
            self._terminal = type
            self._phase = _Phase.ENDED
            _ENDS[type](self, type, fields(event.get("response")))

    def _failed(self, type: str, response: JsonObject) -> None:
        """What was open when a response failed need not be closed, nor repeated."""
        error = fields(response.get("error"))
        if not all(isinstance(error.get(key), str) for key in ("code", "message")):
            detail = f"{type} has {shown(response.get('error'))} as error of the response"
            self._report("failed-without-error", "", f"{detail}; expected its code and message")

    def _incomplete(self, type: str, response: JsonObject) -> None:
        reason = fields(response.get("incomplete_details")).get("reason")
        if not text(reason):
            detail = f"{type} has {shown(reason)} as reason in incomplete_details"
            self._report("incomplete-without-reason", "", f"{detail}; expected a word")
        self._finished(type, response)
        for item in self._items[:-1]:
            if item.done.get("status") == "incomplete":
                detail = f"{item} is incomplete and not the last item; expected only the last to be"
                self._report("incomplete-not-last", "", detail)

    def _completed(self, type: str, response: JsonObject) -> None:
        self._finished(type, response)
        for item in self._items:
            if item.done.get("status") == "incomplete" and response.get("status") == "completed":
                detail = f"{item} is incomplete and the response is completed; expected both alike"
                self._report("incomplete-item", "", detail)

    def _finished(self, type: str, response: JsonObject) -> None:
        self._in_progress(type)
        for item in self._items:
            if item.closed_at is None and item.added_at is not None:
                detail = f"{type} came while {item} is open; expected its output_item.done before"
                self._report("item-not-done", item, detail)
        if isinstance(response.get("output"), list):
            self._output(type, [fields(item) for item in elements(response["output"])])
        self._shapes.usage(type, response.get("usage"))

    def _output(self, type: str, output: list[JsonObject]) -> None:
        """The terminal output is the streamed items, all of them, in order."""
        where = f"output of {type}"
        ids = {text(said.get("id")) for said in output}
        places: dict[int, None] = {}
        for index, said in enumerate(output):
            self._shapes.item(where, said)
            id = text(said.get("id"))
            item = self._found(id, index)
            strange = item is None or (id != item.id and item.id in ids)
            if item is None or strange or item.place in places:
                detail = f"{where} has {shown(said.get('id'))} at {index}, which was not streamed"
                self._report("output-unknown", index, f"{detail}; expected only streamed items")
            else:
                places[item.place] = None
                item.repeated(said, where)
        for item in self._items:
            if item.place not in places and item.added_at is not None:
                detail = f"{where} lacks {item}; expected all streamed items"
                self._report("output-lost", item, detail)
        if list(places) != sorted(places):
            found = ", ".join(shown(said.get("id")) for said in output)
            expected = ", ".join(shown(item.id) for item in self._items)
            self._report("output-order", "", f"{where} has {found}; expected {expected}")

    # Items

    def _added_item(self, type: str, event: JsonObject) -> None:
        self._in_progress(type)
        said = fields(event.get("item"))
        self._shapes.item(type, said)
        item = Item(self._report, count(event.get("output_index")), said, len(self._items))
        if not self._is_new(item, type):
            return
        if item.type in CALLS:
            self._call(item, type)
        status = text(said.get("status"))
        if item.type in SPOKEN and status not in ("", "in_progress"):
            detail = f"{type} has status {shown(status)} for {item}; expected in_progress"
            self._report("item-status", item, detail)
        item.added_at = self._report.at
        self._keep(item)

    def _keep(self, item: Item) -> None:
        self._items.append(item)
        for key in ((item.id, item.index), (item.id, None), (None, item.index)):
            self._known.setdefault(key, item)

    def _is_new(self, item: Item, type: str) -> bool:
        """Whether this `added` opens an item; notes why it should not."""
        holder = self._known.get((None, item.index)) if item.index is not None else None
        twin = self._known.get((item.id, None)) if item.id else None
        place = f"{type} for {item}"
        if holder is not None and holder is twin:
            detail = f"{place}, which was added at event {holder.added_at}"
            self._report("item-repeated", holder, f"{detail}; expected one added for each item")
            return False
        expected = len(self._items)
        if holder is not None:
            detail = f"{place}: that index is taken by {holder}; expected output_index {expected}"
            self._report("index-repeated", item, detail)
        elif item.index is not None and item.index != expected:
            detail = f"{place}; expected output_index {expected}, the next free one"
            self._report("index-order", "", detail)
        if twin is not None:
            detail = f"{place}: that id is taken by {twin}; expected another id for another item"
            self._report("item-id-repeated", item, detail)
        return True

    def _call(self, item: Item, type: str) -> None:
        if not item.name:
            detail = f"{type} has no name for {item}; expected the name of a tool"
            self._report("call-nameless", item, detail)
        if not item.call_id:
            detail = f"{type} has no call_id for {item}; expected the id that its output will carry"
            self._report("call-id-missing", item, detail)
            return
        other = self._calls.setdefault(item.call_id, item)
        if other is not item:
            detail = f"{type} announces call {shown(item.call_id)} as {item}; it was announced at "
            detail += f"event {other.added_at} as {other}; expected one item for each call"
            self._report("call-repeated", item.call_id, detail)

    def _done_item(self, type: str, event: JsonObject) -> None:
        said = fields(event.get("item"))
        self._shapes.item(type, said)
        item = self._found(text(said.get("id")), count(event.get("output_index")))
        if item is None:
            item = self._unknown(type, said, event)
        elif item.closed_at is not None:
            detail = f"{type} for {item} came again; it was done at event {item.closed_at}"
            self._report("item-done-repeated", item, f"{detail}; expected one done for each item")
            return
        self._indexed(item, type, event)
        item.same(said, type)
        item.close(said, type)

    def _found(self, id: str, index: int | None) -> Item | None:
        """An item by its id; by its index where no item has that id."""
        known = self._known
        named = known.get((id, index)) or known.get((id, None)) if id else None
        return named or (known.get((None, index)) if index is not None else None)

    def _unknown(self, type: str, said: JsonObject, event: JsonObject) -> Item:
        """An item that nothing added. It is watched from here on, if it can be known again."""
        id = text(said.get("id")) or text(event.get("item_id"))
        index = count(event.get("output_index"))
        item = Item(self._report, index, {**said, "id": id}, len(self._items))
        detail = f"{type} for {item}, which nothing added; expected output_item.added first"
        self._report("item-not-added", (id, index), detail)
        if id or index is not None:
            self._keep(item)
        return item

    def _indexed(self, item: Item, type: str, event: JsonObject) -> None:
        index = count(event.get("output_index"))
        if index is not None and index != item.index:
            detail = f"{type} has output_index {shown(index)} for {item}; expected {item.index}"
            self._report("index-changed", item, detail)

    def _touched(self, type: str, event: JsonObject) -> Item:
        """The item that an event speaks of, which must be open."""
        id = text(event.get("item_id"))
        item = self._found(id, count(event.get("output_index")))
        if item is None:
            return self._unknown(type, {}, event)
        item.identified(id, type)
        self._indexed(item, type, event)
        if item.closed_at is not None:
            detail = f"{type} for {item}, which was done at event {item.closed_at}"
            self._report("item-closed", item, f"{detail}; expected nothing more for it")
        return item

    # What items say

    def _added_part(self, type: str, event: JsonObject) -> None:
        self._shapes.part(type, fields(event.get("part")))
        self._touched(type, event).add_part(WRAPPERS[_stem(type)], event, type)

    def _done_part(self, type: str, event: JsonObject) -> None:
        self._shapes.part(type, fields(event.get("part")))
        self._touched(type, event).close_part(WRAPPERS[_stem(type)], event, type)

    def _annotation(self, type: str, event: JsonObject) -> None:
        self._touched(type, event).annotate(event, type)

    def _delta(self, type: str, event: JsonObject) -> None:
        self._touched(type, event).delta(_flow(type), event, type)

    def _said(self, type: str, event: JsonObject) -> None:
        self._touched(type, event).say(_flow(type), event, type)


def _stem(type: str) -> str:
    return type.rpartition(".")[0]


def _flow(type: str) -> Flow:
    return FLOWS[_stem(type)]


def _name(frame: Frame, event: JsonValue) -> str:
    if frame.data == DONE:
        return "[DONE]"
    return plain(text(fields(event).get("type")) or frame.event or "an event without a type")


def _is_body(event: JsonObject) -> bool:
    return event.get("object") == "response" or "error" in event


_Handler = Callable[[ResponsesInvariants, str, JsonObject], None]

_HANDLERS: dict[str, _Handler] = {
    **dict.fromkeys((*STATUSES, ACTION), ResponsesInvariants._response),
    **dict.fromkeys(TERMINAL, ResponsesInvariants._end),
    "response.output_item.added": ResponsesInvariants._added_item,
    "response.output_item.done": ResponsesInvariants._done_item,
    **{f"{name}.added": ResponsesInvariants._added_part for name in WRAPPERS},
    **{f"{name}.done": ResponsesInvariants._done_part for name in WRAPPERS},
    "response.output_text.annotation.added": ResponsesInvariants._annotation,
    **{f"{name}.delta": ResponsesInvariants._delta for name in FLOWS},
    **{f"{name}.done": ResponsesInvariants._said for name in FLOWS},
    "error": ResponsesInvariants._error,
}

_ENDS: dict[str, _Handler] = {
    "response.completed": ResponsesInvariants._completed,
    "response.incomplete": ResponsesInvariants._incomplete,
    "response.failed": ResponsesInvariants._failed,
}
