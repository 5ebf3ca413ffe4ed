"""One output item as it is watched, from `added` to the terminal snapshot.

What streams is known four times over: as deltas, in its own `.done`, in its part and in its item.
Each must say the same as the one before it.
"""

from weft.dialects.checking.once import JsonObject, Once, plain
from weft.dialects.checking.untyped import count, elements, fields, parsed, shown, text
from weft.dialects.openai_responses.validation.required import CALLS, INDEX, PARTS, Flow
from weft.dialects.rules import JsonValue

VALUES = {**CALLS, "mcp_call": "arguments", "code_interpreter_call": "code"}
"""Items in which one value streams, and its key."""

STATES = frozenset({"completed", "incomplete"})


class Value:
    """A value that streams: its deltas, and what its `.done` said."""

    __slots__ = ("_pieces", "initial", "said", "said_at")

    def __init__(self, initial: str = "") -> None:
        self.initial = initial
        """What was there before any delta."""
        self._pieces: list[str] = []
        self.said: str | None = None
        self.said_at = 0

    @property
    def streamed(self) -> str:
        return "".join(self._pieces)

    @property
    def flowed(self) -> bool:
        """Whether anything of it came by events of its own."""
        return bool(self._pieces) or self.said is not None

    @property
    def last(self) -> str:
        """The value as the latest event has it."""
        if self.said is not None:
            return self.said
        return self.streamed or self.initial

    def add(self, piece: str) -> None:
        self._pieces.append(piece)


class Part:
    """One part of an item."""

    __slots__ = ("annotations", "at", "closed_at", "type", "value")

    def __init__(self, type: str, at: int | None, initial: str) -> None:
        self.type = type
        self.at = at
        """The event that added it; none if nothing did."""
        self.closed_at: int | None = None
        self.annotations = 0
        self.value = Value(initial)


class Item:
    """One output item: who it is, what it said, and what the rules say to that."""

    def __init__(self, report: Once, index: int | None, item: JsonObject, place: int) -> None:
        self._report = report
        self.index = index
        self.place = place
        """How many items came before it."""
        self.id = text(item.get("id"))
        self.type = text(item.get("type"))
        self.call_id = text(item.get("call_id"))
        self.name = text(item.get("name"))
        self.added_at: int | None = None
        self.closed_at: int | None = None
        self.done: JsonObject = {}
        """The item as its `done` had it."""
        self._parts: dict[str, dict[int, Part]] = {"content": {}, "summary": {}}
        self._announced = {"content": 0, "summary": 0}
        self._value = Value(value_of(item))

    def __str__(self) -> str:
        return f"{plain(self.type or 'item')} {shown(self.id)} (output_index {shown(self.index)})"

    # Who it is

    def same(self, item: JsonObject, where: str) -> None:
        """Holds a later spelling of the item against the first one."""
        self.identified(text(item.get("id")), where)
        for key, rule, first in (
            ("type", "item-type-changed", self.type),
            ("call_id", "call-id-changed", self.call_id),
            ("name", "call-name-changed", self.name),
        ):
            if key != "type" and self.type not in CALLS:
                continue  # a hosted call may learn its name, and its call id, on the way
            now = text(item.get(key))
            if first and now and now != first:
                detail = f"{where} has {key} {shown(now)} for {self}; expected {shown(first)}"
                self._report(rule, self, detail + ", as it was added")

    def identified(self, id: str, where: str) -> None:
        if id and self.id and id != self.id:
            detail = f"{where} calls {self} {shown(id)}; expected {shown(self.id)} everywhere"
            self._report("item-id-changed", self, detail)

    # Its parts

    def add_part(self, group: str, event: JsonObject, where: str) -> None:
        index = count(event.get(INDEX[group]))
        part = fields(event.get("part"))
        if index is None:
            return
        parts = self._parts[group]
        place = f"{INDEX[group]} {shown(index)} of {self}"
        if index in parts and parts[index].at is not None:
            detail = f"{where} for {place}, which was added at event {parts[index].at}"
            self._report("part-repeated", (self, group, index), f"{detail}; expected its deltas")
            return
        if index != self._announced[group]:
            detail = f"{where} for {place}; expected {INDEX[group]} {self._announced[group]}"
            self._report("part-index", (self, group), detail)
        self._announced[group] += 1
        added = Part(text(part.get("type")), self._report.at, text_of(part))
        if index in parts:
            added.value = parts[index].value
        parts[index] = added

    def close_part(self, group: str, event: JsonObject, where: str) -> None:
        index = count(event.get(INDEX[group]))
        if index is None:
            return
        part = self._part(group, index, where)
        place = f"{INDEX[group]} {shown(index)} of {self}"
        if part.closed_at is not None:
            detail = f"{where} for {place}, which was done at event {part.closed_at}"
            self._report("part-closed", (self, group, index), f"{detail}; expected nothing more")
            return
        part.closed_at = self._report.at
        whole = fields(event.get("part"))
        self._unsaid(part.value, place, where)
        if part.type in PARTS and text_of(whole) != part.value.last:
            detail = f"{where} says {shown(text_of(whole))} for {place}; expected "
            self._report("part-differs", (self, group, index), detail + shown(part.value.last))
        if len(elements(whole.get("annotations"))) < part.annotations:
            had = len(elements(whole.get("annotations")))
            detail = f"{where} has {had} annotations for {place}; expected {part.annotations}"
            self._report("annotation-lost", (self, group, index), detail + ", as were added")

    def annotate(self, event: JsonObject, where: str) -> None:
        index = count(event.get("content_index"))
        if index is not None:
            part = self._part("content", index, where)
            part.annotations += 1

    def _part(self, group: str, index: int, where: str) -> Part:
        parts = self._parts[group]
        if index not in parts:
            detail = f"{where} for {INDEX[group]} {shown(index)} of {self}, which nothing added"
            wrapper = "content_part" if group == "content" else "reasoning_summary_part"
            expected = f"; expected response.{wrapper}.added first"
            self._report("part-not-added", (self, group), detail + expected)
            parts[index] = Part("", None, "")
        return parts[index]

    # What it says

    def delta(self, flow: Flow, event: JsonObject, where: str) -> None:
        value = self._value_at(flow, event, where)
        piece = event.get("delta")
        if value is None or not isinstance(piece, str):
            return
        if value.said is not None:
            detail = f"{where} for {self}, whose value was said whole at event {value.said_at}"
            self._report("part-closed", (self, flow.key), f"{detail}; expected no delta after that")
        elif value.initial:
            detail = f"{where} for {self}, which was added with {shown(value.initial)} in it"
            self._report("added-not-empty", self, f'{detail}; expected "" before the first delta')
        if not piece:
            self._report("empty-delta", self, f"{where} for {self} is empty; expected text")
        value.add(piece)

    def say(self, flow: Flow, event: JsonObject, where: str) -> None:
        value = self._value_at(flow, event, where)
        whole = event.get(flow.key)
        if value is None or not isinstance(whole, str):
            return
        if value.said is not None:
            detail = f"{where} for {self} came again; it came at event {value.said_at}"
            self._report("part-closed", (self, flow.key), f"{detail}; expected it once")
            return
        streamed = value.streamed or value.initial
        if not streamed and whole:
            detail = f"{where} for {self} says {shown(whole)}, of which no delta came"
            self._report("deltas-missing", self, f"{detail}; expected deltas that join to it")
        elif streamed != whole:
            detail = f"{where} for {self} says {shown(whole)}; expected {shown(streamed)}"
            self._report("deltas-differ", (self, flow.key), f"{detail}, as its deltas join to")
        value.said = whole
        value.said_at = self._report.at

    def _value_at(self, flow: Flow, event: JsonObject, where: str) -> Value | None:
        if not flow.group:
            return self._value
        index = count(event.get(INDEX[flow.group]))
        if index is None:
            return None
        part = self._part(flow.group, index, where)
        if part.closed_at is not None:
            detail = f"{where} for {INDEX[flow.group]} {shown(index)} of {self}, done at event "
            detail += f"{part.closed_at}; expected nothing more for it"
            self._report("part-closed", (self, flow.group, index), detail)
        if part.type and part.type not in flow.parts:
            detail = f"{where} for a part of type {shown(part.type)} of {self}; expected "
            self._report("part-kind", (self, index), detail + " or ".join(flow.parts))
        return part.value

    def _unsaid(self, value: Value, place: str, where: str) -> None:
        if value.streamed and value.said is None:
            detail = f"{where} for {place}, of which deltas came; expected their .done before it"
            self._report("text-done-missing", place, detail)

    # Its end

    def close(self, item: JsonObject, where: str) -> None:
        """Holds the item at its `done` against all that it said."""
        self.done = item
        self.closed_at = self._report.at
        for group in ("content", "summary"):
            self._close_group(group, elements(item.get(group)), where)
        self._close_value(item, where)
        self._finished(item, where)

    def _close_group(self, group: str, listed: list[JsonValue], where: str) -> None:
        parts = self._parts[group]
        if not parts:
            if any(text_of(fields(part)) for part in listed):
                detail = f"{where} has {group} for {self}, of which nothing was streamed"
                self._report("deltas-missing", self, f"{detail}; expected parts and deltas")
            return
        if len(listed) != len(parts):
            detail = f"{where} has {len(listed)} parts in {group} of {self}; expected {len(parts)}"
            self._report("item-differs", (self, group), detail + ", as were streamed")
        for index, part in sorted(parts.items()):
            place = f"{INDEX[group]} {shown(index)} of {self}"
            if part.at is not None and part.closed_at is None:
                detail = f"{where} while {place} is open; expected its part to be done first"
                self._report("part-not-done", (self, group, index), detail)
            if 0 <= index < len(listed) and part.value.flowed:
                said = text_of(fields(listed[index]))
                self._compare(said, part.value.last, place, where)

    def _close_value(self, item: JsonObject, where: str) -> None:
        said = value_of(item)
        if self._value.flowed:
            self._unsaid(self._value, str(self), where)
            self._compare(said, self._value.last, str(self), where)
        elif self.type in CALLS and said and not self._value.initial:
            detail = f"{where} has {shown(said)} for {self}, of which nothing was streamed"
            self._report("deltas-missing", self, f"{detail}; expected deltas that join to it")

    def _compare(self, said: str, last: str, place: str, where: str) -> None:
        if said != last:
            detail = f"{where} says {shown(said)} for {place}; expected {shown(last)}"
            self._report("item-differs", place, f"{detail}, as was streamed")

    def _finished(self, item: JsonObject, where: str) -> None:
        status = text(item.get("status"))
        if self.type in (*CALLS, "message", "reasoning") and status and status not in STATES:
            detail = f"{where} has status {shown(status)} for {self}; expected completed"
            self._report("item-status", self, f"{detail} or incomplete")
        arguments = value_of(item)
        if self.type == "function_call" and status != "incomplete" and not _is_json(arguments):
            detail = f"{where} has arguments {shown(arguments)} for {self}; expected JSON text"
            self._report("call-arguments-invalid", self, detail)

    def repeated(self, item: JsonObject, where: str) -> None:
        """Holds the item in the terminal snapshot against its `done`."""
        self.same(item, where)
        for key, before in content_of(self.done).items():
            now = content_of(item)[key]
            if self.closed_at is not None and now != before:
                detail = f"{where} says {shown(now)} as {key} of {self}; expected "
                detail += f"{shown(before)}, as its output_item.done"
                self._report("output-differs", self, detail)


def text_of(part: JsonObject) -> str:
    """What a part says."""
    return text(part.get("text")) or text(part.get("refusal"))


def value_of(item: JsonObject) -> str:
    """The one value that streams in an item without parts."""
    type = text(item.get("type"))
    if type == "apply_patch_call":
        return text(fields(item.get("operation")).get("diff"))
    return text(item.get(VALUES.get(type, "")))


def content_of(item: JsonObject) -> dict[str, str]:
    """All that an item says, as text that can be compared."""
    texts = {
        group: "".join(text_of(fields(part)) for part in elements(item.get(group)))
        for group in ("content", "summary")
    }
    return {**texts, "status": text(item.get("status")), "value": value_of(item)}


def _is_json(written: str) -> bool:
    try:
        parsed(written)
    except ValueError:
        return False
    return True
