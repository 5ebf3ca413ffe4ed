"""Validates one Responses stream against its rules (`rules.toml`).

Reads untyped events and shares no code with the decoder. An item is found by its id, or else by its
output index. After a violation it goes on with the most likely meaning of the event, so that one
mistake is reported once.
"""

from collections.abc import Callable
from enum import Enum

from weft.dialects.openai_responses.validation.required import (
    CALL_VALUES,
    EVENTS,
    PART_EVENTS,
    STREAMED_FIELDS,
    ShapeValidator,
    StreamedField,
)
from weft.dialects.openai_responses.validation.state import TrackedItem
from weft.dialects.rules import JsonValue
from weft.dialects.validation.reporter import JsonObject, Reporter, json_type, quote_word
from weft.dialects.validation.untyped import FramingDetector, count, elements, fields, shown, text
from weft.findings import Findings
from weft.sse import DONE, Frame

EVENT_STATUSES: dict[str, tuple[str, ...]] = {
    "response.created": ("in_progress", "queued"),
    "response.queued": ("queued",),
    "response.in_progress": ("in_progress",),
    "response.completed": ("completed",),
    # There is no event for a cancelled response, so Weft ends it with this one.
    "response.incomplete": ("incomplete", "cancelled"),
    "response.failed": ("failed",),
}
"""Events that carry a response, and its legal statuses (Open Responses, State machines)."""

TERMINAL_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed"})
REQUIRED_ACTION = "response.required_action"
ITEMS_WITH_PROGRESS = frozenset({*CALL_VALUES, "message", "reasoning"})
"""Items that are `in_progress` when they are added."""


class _StreamPhase(Enum):
    # A stream goes through the first four; the first frame decides whether it is one.
    NOT_STARTED = "fresh"
    OPEN = "open"
    ENDED = "ended"
    DONE = "done"
    BODY = "body"
    """Not a stream: a response body or an error body."""


class ResponsesValidator:
    """Validates one response, streamed or as a body."""

    def __init__(self, findings: Findings) -> None:
        self._report = Reporter(findings)
        self._shapes = ShapeValidator(self._report)
        self._framing = FramingDetector()
        self._phase = _StreamPhase.NOT_STARTED
        # In order of their first occurrence, so that a report can name the last new one.
        self._seen: dict[str, int] = {}
        """Event types, and the event at which each came first."""
        self._terminal = ""
        self._first_unnamed: int | None = None
        self._numbers: set[int] = set()
        self._highest = -1
        self._id = ""
        self._items: list[TrackedItem] = []
        # Ids and indexes may each be wrong, so an item can be found by either alone. The first one
        # wins: a repeated index or id is reported, and later events mean the item that had it
        # first.
        self._by_key: dict[tuple[str | None, int | None], TrackedItem] = {}
        """The first item with each (id, index), (id, None) and (None, index)."""
        self._calls: dict[str, TrackedItem] = {}

    def feed(self, frame: Frame, event: JsonValue) -> None:
        self._framing.feed(frame)
        # Servers SHOULD NOT use `id` (Open Responses).
        if frame.id is not None:
            self._report("id-line", "", f"an id: line with {shown(frame.id)}; expected none")
        if self._phase is _StreamPhase.DONE:
            type = text(fields(event).get("type")) or frame.event or "an event without a type"
            name = "[DONE]" if frame.data == DONE else quote_word(type)
            detail = f"{name} came after [DONE]; expected the end of the stream"
            self._report("after-done", "", detail)
        # A body alone is legal. With [DONE] behind it, it stood in the place of events.
        elif frame.data == DONE and self._phase is _StreamPhase.BODY:
            detail = "a response body inside a stream; expected events, each with a type"
            self._report("type-missing", "", detail)
        elif frame.data == DONE:
            self._phase = _StreamPhase.DONE
            self._report_unnamed()
        elif not isinstance(event, dict):
            detail = f"data is {json_type(event) if event is not None else 'not JSON'}"
            self._report("data-invalid", self._report.at, f"{detail}; expected an object or [DONE]")
        elif (
            self._phase is _StreamPhase.NOT_STARTED
            and "type" not in event
            and (event.get("object") == "response" or "error" in event)
        ):
            self._on_body(event)
        else:
            self._on_event(frame, event)

    def finish(self) -> None:
        if self._phase is _StreamPhase.BODY:
            return
        # The terminator belongs to server-sent events: on a WebSocket there is none.
        if self._phase is not _StreamPhase.DONE and self._framing.events:
            detail = f"the stream ended after {self._last_event()}; expected [DONE]"
            self._report("done-missing", "", detail)
        # Without `response.created` there is no response that could fail.
        if "error" in self._seen:
            if self._terminal != "response.failed" and "response.created" in self._seen:
                last = self._terminal or "the end of the stream"
                detail = f"error at event {self._seen['error']} was followed by {last}"
                self._report("error-without-failed", "", f"{detail}; expected response.failed")
        elif not self._terminal:
            expected = "expected response.completed, response.incomplete or response.failed"
            self._report(
                "terminal-missing", "", f"the stream ended after {self._last_event()}; {expected}"
            )

    def _last_event(self) -> str:
        return quote_word(next(reversed(self._seen), "nothing"))

    # Frames

    def _check_event_name(self, frame: Frame, type: str) -> None:
        # Whether the input has event names at all is known later: JSON lines and WebSocket messages
        # do not.
        if not frame.event:
            if self._first_unnamed is None:
                self._first_unnamed = self._report.at
        elif type and frame.event != type:
            detail = (
                f"event: {quote_word(frame.event)} with type {shown(type)}; expected the type there"
            )
            self._report("event-name-differs", frame.event, detail)
        self._report_unnamed()

    def _report_unnamed(self) -> None:
        if self._first_unnamed is not None and self._framing.events:
            detail = (
                f"event {self._first_unnamed} has no event: line; expected one that equals its type"
            )
            self._report("event-name-missing", "", detail)

    # Events

    def _on_event(self, frame: Frame, event: JsonObject) -> None:
        type = text(event.get("type"))
        self._check_event_name(frame, type)
        if not type:
            detail = f"type is {shown(event.get('type'))}; expected the name of the event"
            self._report("type-missing", frame.event, detail)
            # Continues with the name, so that one missing key is not reported as an unknown event
            # as well.
            type = frame.event
        self._check_number(event, type)
        if not type:
            return
        self._check_order(type)
        self._seen.setdefault(type, self._report.at)
        if type not in EVENTS:
            detail = f"{shown(type)} is not an event of this API; expected a known one"
            self._report("unknown-event", type, detail)
        self._shapes.event(type, event)
        handler = _HANDLERS.get(type)
        if handler is not None:
            handler(self, type, event)
        # Progress events have no rules of their own, but their item must exist and be open.
        elif "output_index" in EVENTS.get(type, ()):
            self._open_item(type, event)

    def _check_number(self, event: JsonObject, type: str) -> None:
        number = count(event.get("sequence_number"))
        subject = f"{quote_word(type or 'the event')} has sequence_number"
        if number is None:
            detail = f"{subject} {shown(event.get('sequence_number'))}; expected an integer"
            self._report("number-missing", "", detail)
            return
        # The specification only says that numbers grow. From 0 and without gaps is practice, and
        # lets a client notice a lost event.
        expected = self._highest + 1
        detail = f"{subject} {shown(number)}; expected {shown(expected)}"
        if not self._numbers and number != 0:
            self._report("number-start", "", detail)
        elif number in self._numbers:
            self._report("number-repeated", number, f"{detail}: the number is repeated")
        elif number < expected:
            self._report("number-order", "", f"{detail}: numbers increase")
        elif number > expected:
            self._report("number-gap", number, f"{detail}: numbers have no gaps")
        self._numbers.add(number)
        self._highest = max(self._highest, number)

    def _check_order(self, type: str) -> None:
        """Checks that the event may come at this point of the stream."""
        # `completed` and then `failed` after a late read error is a common mistake, so a second
        # terminal event has a rule of its own.
        if self._phase in (_StreamPhase.ENDED, _StreamPhase.BODY):
            rule = "terminal-repeated" if type in TERMINAL_EVENTS else "after-terminal"
            after = self._terminal or "a response body"
            detail = f"{quote_word(type)} came after {after}; expected [DONE]"
            self._report(rule, "", detail)
        elif self._phase is _StreamPhase.NOT_STARTED and type in EVENTS:
            self._phase = _StreamPhase.OPEN
            # An error may come before anything was created.
            if type not in ("response.created", "error"):
                detail = f"{type} is the first event; expected response.created"
                self._report("created-first", "", detail)

    def _on_error(self, type: str, event: JsonObject) -> None:
        self._shapes.error(type, event)

    # The response

    def _on_body(self, event: JsonObject) -> None:
        self._phase = _StreamPhase.BODY
        if event.get("object") != "response":
            self._shapes.error("the body", event)
            return
        self._shapes.snapshot("the body", event)
        for item in elements(event.get("output")):
            self._shapes.item("the body", fields(item))

    def _on_response(self, type: str, event: JsonObject) -> None:
        response = fields(event.get("response"))
        # A missing response is reported by the rule about the keys of an event.
        if response:
            self._shapes.snapshot(type, response)
        status, legal = text(response.get("status")), EVENT_STATUSES.get(type, ())
        # A tool session ends a turn that waits for tool outputs like this.
        waits_for_tools = REQUIRED_ACTION in self._seen and status == "incomplete"
        if status and legal and status not in legal and not waits_for_tools:
            detail = f"{type} has a response with status {shown(status)}"
            self._report("status-differs", type, f"{detail}; expected {' or '.join(legal)}")
        id = text(response.get("id"))
        if id and self._id and id != self._id:
            detail = f"{type} has response id {shown(id)}; expected {shown(self._id)}"
            self._report("response-id-changed", "", detail)
        self._id = self._id or id

    def _check_in_progress(self, type: str) -> None:
        # Checked where items begin and where the response ends, because either may come first.
        if "response.in_progress" not in self._seen:
            expected = "expected response.created, response.in_progress, then items"
            detail = f"{type} came before response.in_progress; {expected}"
            self._report("in-progress-missing", "", detail)

    def _on_terminal(self, type: str, event: JsonObject) -> None:
        self._on_response(type, event)
        if not self._terminal:
            self._terminal = type
            self._phase = _StreamPhase.ENDED
            _TERMINAL_HANDLERS[type](self, type, fields(event.get("response")))

    def _on_failed(self, type: str, response: JsonObject) -> None:
        """Items that were open when the response failed need not be closed or listed."""
        error = fields(response.get("error"))
        if not all(isinstance(error.get(key), str) for key in ("code", "message")):
            detail = f"{type} has {shown(response.get('error'))} as error of the response"
            self._report("failed-without-error", "", f"{detail}; expected its code and message")

    def _on_incomplete(self, type: str, response: JsonObject) -> None:
        reason = fields(response.get("incomplete_details")).get("reason")
        if not text(reason):
            detail = f"{type} has {shown(reason)} as reason in incomplete_details"
            self._report("incomplete-without-reason", "", f"{detail}; expected a reason")
        self._check_finished(type, response)
        # An incomplete item must be the last one (Open Responses, State machines).
        for item in self._items[:-1]:
            if item.done.get("status") == "incomplete":
                detail = f"{item} is incomplete and not the last item; expected only the last to be"
                self._report("incomplete-not-last", "", detail)

    def _on_completed(self, type: str, response: JsonObject) -> None:
        self._check_finished(type, response)
        for item in self._items:
            if item.done.get("status") == "incomplete" and response.get("status") == "completed":
                detail = (
                    f"{item} is incomplete and the response is completed; expected the same status"
                )
                self._report("incomplete-item", "", detail)

    def _check_finished(self, type: str, response: JsonObject) -> None:
        self._check_in_progress(type)
        # What was cancelled may leave items open, like what failed: a client could run a call that
        # is done.
        is_cancelled = response.get("status") == "cancelled"
        for item in self._items:
            # An item that was never added is reported as such.
            if item.done_at is None and item.added_at is not None and not is_cancelled:
                detail = f"{type} came while {item} is open; expected its output_item.done before"
                self._report("item-not-done", item, detail)
        if isinstance(response.get("output"), list):
            self._check_output(type, [fields(item) for item in elements(response["output"])])
        self._shapes.usage(type, response.get("usage"))

    def _check_output(self, type: str, output: list[JsonObject]) -> None:
        """Checks that the final output is all streamed items, in order."""
        where = f"output of {type}"
        # An item whose id changed is found by its position, unless the item at that position is
        # listed under its own id.
        ids = {text(listed.get("id")) for listed in output}
        seen: dict[int, None] = {}
        for index, listed in enumerate(output):
            self._shapes.item(where, listed)
            id = text(listed.get("id"))
            item = self._find(id, index)
            is_other = item is None or (id != item.id and item.id in ids)
            if item is None or is_other or item.order in seen:
                detail = f"{where} has {shown(listed.get('id'))} at {index}, which was not streamed"
                self._report("output-unknown", index, f"{detail}; expected only streamed items")
            else:
                seen[item.order] = None
                item.check_snapshot(listed, where)
        for item in self._items:
            if item.order not in seen and item.added_at is not None:
                detail = f"{where} lacks {item}; expected all streamed items"
                self._report("output-lost", item, detail)
        # `seen` keeps the order of the output. Some servers rebuild it as reasoning, message,
        # calls.
        if list(seen) != sorted(seen):
            found = ", ".join(shown(listed.get("id")) for listed in output)
            expected = ", ".join(shown(item.id) for item in self._items)
            self._report("output-order", "", f"{where} has {found}; expected {expected}")

    # Items

    def _on_item_added(self, type: str, event: JsonObject) -> None:
        self._check_in_progress(type)
        listed = fields(event.get("item"))
        self._shapes.item(type, listed)
        item = TrackedItem(self._report, count(event.get("output_index")), listed, len(self._items))
        if not self._check_new_item(item, type):
            return
        if item.type in CALL_VALUES:
            self._check_call(item, type)
        status = text(listed.get("status"))
        if item.type in ITEMS_WITH_PROGRESS and status not in ("", "in_progress"):
            detail = f"{type} has status {shown(status)} for {item}; expected in_progress"
            self._report("item-status", item, detail)
        item.added_at = self._report.at
        self._track(item)

    def _track(self, item: TrackedItem) -> None:
        self._items.append(item)
        # The exact pair first, then either alone: see `_find`.
        for key in ((item.id, item.index), (item.id, None), (None, item.index)):
            self._by_key.setdefault(key, item)

    def _check_new_item(self, item: TrackedItem, type: str) -> bool:
        """Returns whether this event adds a new item, and reports what is wrong with its id and
        index.
        """
        same_index = self._by_key.get((None, item.index)) if item.index is not None else None
        same_id = self._by_key.get((item.id, None)) if item.id else None
        subject = f"{type} for {item}"
        if same_index is not None and same_index is same_id:
            detail = f"{subject}, which was added at event {same_index.added_at}"
            self._report("item-repeated", same_index, f"{detail}; expected one added for each item")
            return False
        # One counter over all kinds of items. Servers that count calls apart collide as soon as
        # there is reasoning, too.
        expected = len(self._items)
        if same_index is not None:
            detail = (
                f"{subject}: that index is taken by {same_index}; expected output_index {expected}"
            )
            self._report("index-repeated", item, detail)
        elif item.index is not None and item.index != expected:
            detail = f"{subject}; expected output_index {expected}, the next free one"
            self._report("index-order", "", detail)
        if same_id is not None:
            detail = (
                f"{subject}: that id is taken by {same_id}; expected another id for another item"
            )
            self._report("item-id-repeated", item, detail)
        return True

    def _check_call(self, item: TrackedItem, type: str) -> None:
        if not item.name:
            detail = f"{type} has no name for {item}; expected the name of a tool"
            self._report("call-nameless", item, detail)
        if not item.call_id:
            detail = f"{type} has no call_id for {item}; expected the id that its output will carry"
            self._report("call-id-missing", item, detail)
            return
        other = self._calls.setdefault(item.call_id, item)
        # A client may execute the call once for each item.
        if other is not item:
            detail = f"{type} announces call {shown(item.call_id)} as {item}; it was announced at "
            detail += f"event {other.added_at} as {other}; expected one item for each call"
            self._report("call-repeated", item.call_id, detail)

    def _on_item_done(self, type: str, event: JsonObject) -> None:
        listed = fields(event.get("item"))
        self._shapes.item(type, listed)
        item = self._find(text(listed.get("id")), count(event.get("output_index")))
        if item is None:
            item = self._track_unannounced(type, listed, event)
        elif item.done_at is not None:
            detail = f"{type} for {item} is repeated; it was done at event {item.done_at}"
            self._report("item-done-repeated", item, f"{detail}; expected one done for each item")
            return
        self._check_index(item, type, event)
        item.check_identity(listed, type)
        item.finish(listed, type)

    def _find(self, id: str, index: int | None) -> TrackedItem | None:
        """Finds an item by its id, or by its index if no item has that id."""
        known = self._by_key
        # Ids before indexes, unlike in the decoder, which must also read hosts that change ids.
        by_id = known.get((id, index)) or known.get((id, None)) if id else None
        return by_id or (known.get((None, index)) if index is not None else None)

    def _track_unannounced(self, type: str, listed: JsonObject, event: JsonObject) -> TrackedItem:
        """Reports an item that was never added, and tracks it from here on if it can be found
        again.
        """
        id = text(listed.get("id")) or text(event.get("item_id"))
        index = count(event.get("output_index"))
        item = TrackedItem(self._report, index, {**listed, "id": id}, len(self._items))
        detail = f"{type} for {item}, which was never added; expected output_item.added first"
        self._report("item-not-added", (id, index), detail)
        # An event with neither belongs to no item that could be named again.
        if id or index is not None:
            self._track(item)
        return item

    def _check_index(self, item: TrackedItem, type: str, event: JsonObject) -> None:
        index = count(event.get("output_index"))
        if index is not None and index != item.index:
            detail = f"{type} has output_index {shown(index)} for {item}; expected {item.index}"
            self._report("index-changed", item, detail)

    def _open_item(self, type: str, event: JsonObject) -> TrackedItem:
        """Returns the item that an event is about, and reports one that is done."""
        id = text(event.get("item_id"))
        item = self._find(id, count(event.get("output_index")))
        if item is None:
            return self._track_unannounced(type, {}, event)
        item.check_id(id, type)
        self._check_index(item, type, event)
        if item.done_at is not None:
            detail = f"{type} for {item}, which was done at event {item.done_at}"
            self._report("item-closed", item, f"{detail}; expected nothing more for it")
        return item

    # Parts and values

    def _on_part_added(self, type: str, event: JsonObject) -> None:
        self._shapes.part(type, fields(event.get("part")))
        self._open_item(type, event).add_part(PART_EVENTS[_stem(type)], event, type)

    def _on_part_done(self, type: str, event: JsonObject) -> None:
        self._shapes.part(type, fields(event.get("part")))
        self._open_item(type, event).finish_part(PART_EVENTS[_stem(type)], event, type)

    def _on_annotation(self, type: str, event: JsonObject) -> None:
        self._open_item(type, event).annotate(event, type)

    def _on_delta(self, type: str, event: JsonObject) -> None:
        self._open_item(type, event).add_delta(_streamed_field(type), event, type)

    def _on_value_done(self, type: str, event: JsonObject) -> None:
        self._open_item(type, event).finish_value(_streamed_field(type), event, type)


def _stem(type: str) -> str:
    return type.rpartition(".")[0]


def _streamed_field(type: str) -> StreamedField:
    return STREAMED_FIELDS[_stem(type)]


_Handler = Callable[[ResponsesValidator, str, JsonObject], None]

_HANDLERS: dict[str, _Handler] = {
    **dict.fromkeys((*EVENT_STATUSES, REQUIRED_ACTION), ResponsesValidator._on_response),
    **dict.fromkeys(TERMINAL_EVENTS, ResponsesValidator._on_terminal),
    "response.output_item.added": ResponsesValidator._on_item_added,
    "response.output_item.done": ResponsesValidator._on_item_done,
    **{f"{name}.added": ResponsesValidator._on_part_added for name in PART_EVENTS},
    **{f"{name}.done": ResponsesValidator._on_part_done for name in PART_EVENTS},
    "response.output_text.annotation.added": ResponsesValidator._on_annotation,
    **{f"{name}.delta": ResponsesValidator._on_delta for name in STREAMED_FIELDS},
    **{f"{name}.done": ResponsesValidator._on_value_done for name in STREAMED_FIELDS},
    "error": ResponsesValidator._on_error,
}

_TERMINAL_HANDLERS: dict[str, _Handler] = {
    "response.completed": ResponsesValidator._on_completed,
    "response.incomplete": ResponsesValidator._on_incomplete,
    "response.failed": ResponsesValidator._on_failed,
}
