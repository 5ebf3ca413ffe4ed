"""One output item as the validator tracks it, from `added` to the terminal snapshot.

A streamed value arrives four times: as deltas, in its own `.done`, in its part and in its item.
Each must equal the one before it.
"""

from weft.dialects.openai_responses.validation.required import (
    CALL_VALUES,
    INDEX_KEYS,
    PART_KEYS,
    StreamedField,
)
from weft.dialects.rules import JsonValue
from weft.dialects.validation.reporter import JsonObject, Reporter, quote_word
from weft.dialects.validation.untyped import count, elements, fields, parse_json, shown, text

STREAMED_VALUES = {**CALL_VALUES, "mcp_call": "arguments", "code_interpreter_call": "code"}
"""Items with one streamed value, and its key."""

DONE_STATUSES = frozenset({"completed", "incomplete"})


class TrackedValue:
    """A streamed value: its deltas, and the value of its `.done`."""

    __slots__ = ("_pieces", "final", "final_at", "initial")

    def __init__(self, initial: str = "") -> None:
        self.initial = initial
        """The value when it was added, before any delta."""
        # Joined when it is compared, so that a long stream is not copied for each delta.
        self._pieces: list[str] = []
        self.final: str | None = None
        self.final_at = 0

    @property
    def streamed(self) -> str:
        return "".join(self._pieces)

    @property
    def was_streamed(self) -> bool:
        """Whether a delta or a `.done` came for it."""
        return bool(self._pieces) or self.final is not None

    @property
    def latest(self) -> str:
        """The value according to the latest event."""
        if self.final is not None:
            return self.final
        return self.streamed or self.initial

    def add(self, piece: str) -> None:
        self._pieces.append(piece)


class TrackedPart:
    """One part of an item."""

    __slots__ = ("added_at", "annotations", "done_at", "type", "value")

    def __init__(self, type: str, at: int | None, initial: str) -> None:
        self.type = type
        self.added_at = at
        """The event that added it; None if there was none."""
        self.done_at: int | None = None
        self.annotations = 0
        self.value = TrackedValue(initial)


class TrackedItem:
    """One output item: its identity, its parts and its value, and the rules about them."""

    def __init__(self, report: Reporter, index: int | None, item: JsonObject, order: int) -> None:
        self._report = report
        self.index = index
        self.order = order
        """How many items were added before it."""
        self.id = text(item.get("id"))
        self.type = text(item.get("type"))
        self.call_id = text(item.get("call_id"))
        self.name = text(item.get("name"))
        self.added_at: int | None = None
        self.done_at: int | None = None
        self.done: JsonObject = {}
        """The item in its `output_item.done`."""
        # By index and not as a list: indexes come in any order, and with gaps.
        self._parts: dict[str, dict[int, TrackedPart]] = {"content": {}, "summary": {}}
        self._parts_added = {"content": 0, "summary": 0}
        self._value = TrackedValue(item_value(item))

    def __str__(self) -> str:
        return (
            f"{quote_word(self.type or 'item')} {shown(self.id)} (output_index {shown(self.index)})"
        )

    def _location(self, group: str, index: int) -> str:
        return f"{INDEX_KEYS[group]} {shown(index)} of {self}"

    # Identity

    def check_identity(self, item: JsonObject, where: str) -> None:
        """Checks that the item still has the type, name and ids it was added with."""
        self.check_id(text(item.get("id")), where)
        for key, rule, first in (
            ("type", "item-type-changed", self.type),
            ("call_id", "call-id-changed", self.call_id),
            ("name", "call-name-changed", self.name),
        ):
            if key != "type" and self.type not in CALL_VALUES:
                continue  # a hosted call may get its name and call id later
            now = text(item.get(key))
            # An absent value is for the rules about keys.
            if first and now and now != first:
                detail = f"{where} has {key} {shown(now)} for {self}; expected {shown(first)}"
                self._report(rule, self, detail + ", as it was added")

    def check_id(self, id: str, where: str) -> None:
        if id and self.id and id != self.id:
            detail = (
                f"{where} gives {self} the id {shown(id)}; expected {shown(self.id)} everywhere"
            )
            self._report("item-id-changed", self, detail)

    # Parts

    def add_part(self, group: str, event: JsonObject, where: str) -> None:
        index = count(event.get(INDEX_KEYS[group]))
        part = fields(event.get("part"))
        if index is None:
            return
        parts = self._parts[group]
        location = self._location(group, index)
        # A part that only deltas announced may still be added.
        if index in parts and parts[index].added_at is not None:
            detail = f"{where} for {location}, which was added at event {parts[index].added_at}"
            self._report("part-repeated", (self, group, index), f"{detail}; expected its deltas")
            return
        # A common mistake is to count tokens instead of parts.
        if index != self._parts_added[group]:
            detail = (
                f"{where} for {location}; expected {INDEX_KEYS[group]} {self._parts_added[group]}"
            )
            self._report("part-index", (self, group), detail)
        self._parts_added[group] += 1
        added = TrackedPart(text(part.get("type")), self._report.at, part_text(part))
        # What was streamed before it was added counts.
        if index in parts:
            added.value = parts[index].value
        parts[index] = added

    def finish_part(self, group: str, event: JsonObject, where: str) -> None:
        index = count(event.get(INDEX_KEYS[group]))
        if index is None:
            return
        part = self._part_at(group, index, where)
        location = self._location(group, index)
        if part.done_at is not None:
            detail = f"{where} for {location}, which was done at event {part.done_at}"
            self._report("part-closed", (self, group, index), f"{detail}; expected nothing more")
            return
        part.done_at = self._report.at
        full = fields(event.get("part"))
        self._check_value_done(part.value, location, where)
        # Of a part without text there is nothing to compare.
        if part.type in PART_KEYS and part_text(full) != part.value.latest:
            detail = f"{where} says {shown(part_text(full))} for {location}; expected "
            self._report("part-differs", (self, group, index), detail + shown(part.value.latest))
        # More are legal: not every annotation has an event.
        if len(elements(full.get("annotations"))) < part.annotations:
            present = len(elements(full.get("annotations")))
            detail = (
                f"{where} has {present} annotations for {location}; expected {part.annotations}"
            )
            self._report("annotation-lost", (self, group, index), detail + ", as were added")

    def annotate(self, event: JsonObject, where: str) -> None:
        index = count(event.get("content_index"))
        if index is not None:
            part = self._part_at("content", index, where)
            part.annotations += 1

    def _part_at(self, group: str, index: int, where: str) -> TrackedPart:
        parts = self._parts[group]
        if index not in parts:
            detail = f"{where} for {self._location(group, index)}, which was never added"
            wrapper = "content_part" if group == "content" else "reasoning_summary_part"
            expected = f"; expected response.{wrapper}.added first"
            self._report("part-not-added", (self, group), detail + expected)
            # Tracked from here on, so that only its first event is reported.
            parts[index] = TrackedPart("", None, "")
        return parts[index]

    # Values

    def add_delta(self, field: StreamedField, event: JsonObject, where: str) -> None:
        value = self._value_at(field, event, where)
        piece = event.get("delta")
        if value is None or not isinstance(piece, str):
            return
        if value.final is not None:
            detail = f"{where} for {self}, whose value was completed at event {value.final_at}"
            self._report(
                "part-closed", (self, field.key), f"{detail}; expected no delta after that"
            )
        # A client that appends deltas to what was added would have it twice.
        elif value.initial:
            detail = f"{where} for {self}, which was added with {shown(value.initial)} in it"
            self._report("added-not-empty", self, f'{detail}; expected "" before the first delta')
        if not piece:
            self._report("empty-delta", self, f"{where} for {self} is empty; expected text")
        value.add(piece)

    def finish_value(self, field: StreamedField, event: JsonObject, where: str) -> None:
        value = self._value_at(field, event, where)
        full = event.get(field.key)
        if value is None or not isinstance(full, str):
            return
        if value.final is not None:
            detail = f"{where} for {self} is repeated; it came at event {value.final_at}"
            self._report("part-closed", (self, field.key), f"{detail}; expected it once")
            return
        # A value that was there at `added` needs no deltas.
        streamed = value.streamed or value.initial
        if not streamed and full:
            detail = f"{where} for {self} says {shown(full)}, of which no delta came"
            self._report("deltas-missing", self, f"{detail}; expected deltas that join to it")
        elif streamed != full:
            detail = f"{where} for {self} says {shown(full)}; expected {shown(streamed)}"
            self._report("deltas-differ", (self, field.key), f"{detail}, as its deltas join to")
        value.final = full
        value.final_at = self._report.at

    def _value_at(self, field: StreamedField, event: JsonObject, where: str) -> TrackedValue | None:
        if not field.group:
            return self._value
        index = count(event.get(INDEX_KEYS[field.group]))
        if index is None:
            return None
        part = self._part_at(field.group, index, where)
        if part.done_at is not None:
            detail = f"{where} for {self._location(field.group, index)}, done at event "
            detail += f"{part.done_at}; expected nothing more for it"
            self._report("part-closed", (self, field.group, index), detail)
        # A part that was never added has no type to contradict.
        if part.type and part.type not in field.parts:
            detail = f"{where} for a part of type {shown(part.type)} of {self}; expected "
            self._report("part-kind", (self, index), detail + " or ".join(field.parts))
        return part.value

    def _check_value_done(self, value: TrackedValue, location: str, where: str) -> None:
        if value.streamed and value.final is None:
            detail = f"{where} for {location}, of which deltas came; expected their .done before it"
            self._report("text-done-missing", location, detail)

    # Done

    def finish(self, item: JsonObject, where: str) -> None:
        """Checks the item in its `output_item.done` against what was streamed."""
        self.done = item
        self.done_at = self._report.at
        for group in ("content", "summary"):
            self._check_parts(group, elements(item.get(group)), where)
        value = item_value(item)
        # Otherwise it came whole, which is a mistake only for the calls of a client.
        if self._value.was_streamed:
            self._check_value_done(self._value, str(self), where)
            self._compare(value, self._value.latest, str(self), where)
        elif self.type in CALL_VALUES and value and not self._value.initial:
            detail = f"{where} has {shown(value)} for {self}, of which nothing was streamed"
            self._report("deltas-missing", self, f"{detail}; expected deltas that join to it")
        status = text(item.get("status"))
        # Hosted calls have more statuses (`searching`, `generating`, `failed`).
        has_status = status and self.type in (*CALL_VALUES, "message", "reasoning")
        if has_status and status not in DONE_STATUSES:
            detail = f"{where} has status {shown(status)} for {self}; expected completed"
            self._report("item-status", self, f"{detail} or incomplete")
        # Custom input is free text; arguments that a limit cut cannot be valid JSON.
        if self.type == "function_call" and status != "incomplete":
            try:
                parse_json(value)
            except ValueError:
                detail = f"{where} has arguments {shown(value)} for {self}; expected JSON text"
                self._report("call-arguments-invalid", self, detail)

    def _check_parts(self, group: str, listed: list[JsonValue], where: str) -> None:
        parts = self._parts[group]
        if not parts:
            if any(part_text(fields(part)) for part in listed):
                detail = f"{where} has {group} for {self}, of which nothing was streamed"
                self._report("deltas-missing", self, f"{detail}; expected parts and deltas")
            return
        if len(listed) != len(parts):
            detail = f"{where} has {len(listed)} parts in {group} of {self}; expected {len(parts)}"
            self._report("item-differs", (self, group), detail + ", as were streamed")
        for index, part in sorted(parts.items()):
            location = self._location(group, index)
            if part.added_at is not None and part.done_at is None:
                detail = f"{where} while {location} is open; expected its part to be done first"
                self._report("part-not-done", (self, group, index), detail)
            # A different number of parts was reported above.
            if 0 <= index < len(listed) and part.value.was_streamed:
                done_text = part_text(fields(listed[index]))
                self._compare(done_text, part.value.latest, location, where)

    def _compare(self, found: str, expected: str, location: str, where: str) -> None:
        if found != expected:
            detail = f"{where} says {shown(found)} for {location}; expected {shown(expected)}"
            self._report("item-differs", location, f"{detail}, as was streamed")

    def check_snapshot(self, item: JsonObject, where: str) -> None:
        """Checks the item in the terminal snapshot against its `output_item.done`."""
        self.check_identity(item, where)
        for key, before in item_texts(self.done).items():
            now = item_texts(item)[key]
            if self.done_at is not None and now != before:
                detail = f"{where} says {shown(now)} as {key} of {self}; expected "
                detail += f"{shown(before)}, as its output_item.done"
                self._report("output-differs", self, detail)


def part_text(part: JsonObject) -> str:
    """Returns the text of a part."""
    return text(part.get("text")) or text(part.get("refusal"))


def item_value(item: JsonObject) -> str:
    """Returns the streamed value of an item without parts."""
    type = text(item.get("type"))
    if type == "apply_patch_call":
        return text(fields(item.get("operation")).get("diff"))
    return text(item.get(STREAMED_VALUES.get(type, "")))


def item_texts(item: JsonObject) -> dict[str, str]:
    """Returns the texts of an item, for comparison."""
    texts = {
        group: "".join(part_text(fields(part)) for part in elements(item.get(group)))
        for group in ("content", "summary")
    }
    return {**texts, "status": text(item.get("status")), "value": item_value(item)}
