"""Calls, and results that are items of their own: their fields, and the events between `added` and
`done`.
"""

from enum import Enum

import msgspec
from msgspec import Raw

from weft.dialects.json_string import JsonStringExtractor
from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.encoding.call_kinds import (
    CUSTOM,
    RESULT_ITEMS,
    CallKind,
    StreamedParams,
    result_keys,
)
from weft.dialects.openai_responses.encoding.events import (
    DeltaPrefix,
    EventWriter,
    SentEvents,
    delta_prefix,
)
from weft.dialects.openai_responses.encoding.items import ClosePolicy, ItemSlot, OutputItem
from weft.dialects.openai_responses.wire import Fields, parse_object
from weft.dialects.raw_json import decode_or_default
from weft.dialects.replay import JoinedTexts
from weft.partial_json import Scan
from weft.parts import ToolCall, ToolParamsEnd, ToolParamsStart, ToolResult

_json = msgspec.json.Encoder().encode

# The deepest streamed string, a diff, is two objects deep.
_JSON_ENDINGS = ("", '"}', '"}}')
"""What may complete params that were cut right where their streamed string begins."""


class CallPhase(Enum):
    """Whether the events of a call are written."""

    WAITING = "waiting"
    WRITING = "writing"
    WRITTEN = "written"
    """Its params are complete, and another call is being written."""


class CallItem(OutputItem):
    """A call. Its fields are completed by the tool-call and by the result."""

    __slots__ = (
        "_scan", "call_id", "delta_prefix", "ended", "extractor", "fields", "held_parts", "invalid",
        "kind", "name", "partial_images", "phase", "public_call_id", "received", "written",
    )  # fmt: skip
    closes_on_error = False

    def __init__(
        self, slot: ItemSlot, part: ToolParamsStart | ToolCall, kind: CallKind, known_fields: Fields
    ) -> None:
        super().__init__(slot)
        self.call_id = part.id
        self.public_call_id = None if part.provider_executed and part.id == slot.id else part.id
        """The call id that is written. A hosted call that has the id of its item has none."""
        self.name = part.name
        self.kind = kind
        labels = self._labels(part) if isinstance(part, ToolCall) else {}  # it comes whole
        self.fields = {**kind.placeholders, **labels, **known_fields}
        self.invalid = False
        # Params of a function are the streamed text themselves. Code and diffs are a string inside
        # them, which is extracted as it comes.
        path = kind.streamed.path if kind.streamed else ()
        self.extractor = JsonStringExtractor(*path) if path else None
        self.delta_prefix = self._new_delta_prefix()
        """The beginning of its delta events, if its params are streamed."""
        self.partial_images = 0
        self.open = 1
        self.phase = CallPhase.WRITING
        self.received = 0
        """How many characters of its params were received."""
        self.written = 0
        self.ended = False
        self.held_parts: list[ToolParamsEnd | ToolCall] = []
        """Parts of its end that are held until it may be written."""
        self._scan: Scan | None = None
        """Scans its params for their end; set when another call waits for it."""

    def _new_delta_prefix(self) -> DeltaPrefix | None:
        streamed = self.kind.streamed
        return delta_prefix(streamed.event + ".delta", self.locator) if streamed else None

    def resume(self, sent: SentEvents) -> None:
        self.delta_prefix = self._new_delta_prefix()

    @property
    def close_policy(self) -> ClosePolicy:
        return ClosePolicy.FINISH if self.invalid else ClosePolicy.NONE

    def params_complete(self, fold: JoinedTexts) -> bool:
        """Whether its params are one complete JSON value, or have ended."""
        # A scan is paid for only if another call waits; it then resumes where it stopped.
        if self._scan is None and not self.ended:
            self._scan = Scan()
            if self.kind is not CUSTOM:
                self._scan.feed(fold.joined(self.call_id)[: self.received])
        return self.ended or (self._scan is not None and self._scan.finished)

    @property
    def is_watched(self) -> bool:
        """Whether its params are scanned for their end, since another call waits for it."""
        return self._scan is not None

    def feed_params(self, delta: str) -> bool:
        """Whether this delta completes the params, if another call waits for that."""
        # Free text never looks complete.
        if self._scan is None or self.kind is CUSTOM:
            return False
        self._scan.feed(delta)
        return self._scan.finished

    def render(self, status: wire.Status) -> wire.RenderedItem:
        # `fields` come last: a status that the upstream gave stays.
        own = {"status": status, "call_id": self.public_call_id, "name": self.name}
        identity = {key: value for key, value in own.items() if key in self.kind.keys}
        head = {"type": self.kind.type, "id": self.id, **identity}
        return {**{key: wire.to_raw(value) for key, value in head.items()}, **self.fields}

    def is_cut(self, last: bool) -> bool:
        return self.invalid or self.open > 0

    # Between `added` and `done`

    def take_opening(self, text: str) -> None:
        """Takes fields from the beginning of its params, which `added` should contain."""
        # A delta may end anywhere. If none of the endings makes it an object, `added` has
        # placeholders.
        shorter = text.rpartition("\\")[0] or text  # the last escape may be incomplete
        found = (parse_object(start + end) for start in (text, shorter) for end in _JSON_ENDINGS)
        opening = next(filter(None, found), None)
        if opening is not None and self.extractor is not None:
            self.fields |= self._with_streamed_text(opening, "")

    def write_progress(self, events: EventWriter, progress: str) -> None:
        """Writes a progress event, if there is one for this step."""
        if progress:
            events.write(f"response.{self.kind.type}.{progress}", self.position, self.locator)

    def write_delta(self, events: EventWriter, text: str) -> None:
        """Writes a delta of the params, if they are streamed."""
        text = text if self.extractor is None else self.extractor.feed(text)
        if self.delta_prefix and text:
            events.delta(self.delta_prefix, text)

    def write_done(self, events: EventWriter, params: str) -> None:
        """Writes that the params are complete."""
        streamed = self.kind.streamed
        text = self._streamed_text(params)
        if streamed is not None and text is not None:
            key = b',"%b":' % streamed.key.encode()
            events.write(streamed.event + ".done", self.position, self.locator, key, _json(text))

    def _streamed_text(self, params: str) -> str | None:
        """Returns the streamed text of the params; None if they do not contain it."""
        if self.extractor is None:
            return params
        extractor = JsonStringExtractor(*self.extractor.path)
        text = extractor.feed(params)
        return text if extractor.found else None

    def take_call(self, part: ToolCall, item_fields: Fields) -> None:
        """Takes the fields of the complete call and those that the decoder stored. A `call_id` is
        not added later, because clients would see another item.
        """
        item_fields = {
            key: item_fields[key] for key in item_fields if key != "call_id" or key in self.fields
        }
        params_fields = self.kind.params_to_fields(part.params)
        text = self._streamed_text(part.params) if self.extractor is not None else None
        # The params have no valid end, but what came of the code or diff is worth showing.
        if text is not None and parse_object(part.params) is None:  # cut inside the streamed text
            params_fields = self._with_streamed_text(self.fields, text)
        self.invalid = part.invalid is not None
        self.fields = (
            _without_kept(params_fields, item_fields, self.kind.streamed)
            | self._labels(part)
            | item_fields
        )

    def _labels(self, part: ToolCall) -> Fields:
        """Returns the fields that only the complete call has."""
        labels: dict[str, object] = {
            "namespace": part.namespace,
            # Required in an MCP call, so it is never left out.
            "server_label": part.server_label or "",
            "approval_request_id": part.approval_request_id,
        }
        labels = {key: labels[key] for key in self.kind.labels}
        if part.caller is not None:
            labels["caller"] = {"type": "program", "caller_id": part.caller}
        return {key: wire.to_raw(value) for key, value in labels.items() if value is not None}

    def take_result(
        self, events: EventWriter, part: ToolResult, item_fields: Fields, *, is_native: bool
    ) -> None:
        """Takes the fields of the result."""
        to_fields = self.kind.result_to_fields or result_keys("output")
        call_fields = _without_kept(self.fields, item_fields, self.kind.streamed)
        self.fields = call_fields | to_fields(self.fields, part.result) | item_fields
        # Core items of the specification have no status `failed`, but those of hosted tools do. An
        # item of this dialect keeps the status it had.
        if part.is_error and not is_native:
            self.fields["status"] = Raw(b'"failed"')
        progress = self.kind.progress
        self.write_progress(events, progress.failed if part.is_error else progress.completed)

    def write_partial(self, events: EventWriter, part: ToolResult, item_fields: Fields) -> None:
        """Writes a partial image. Other preliminary results have no event."""
        image = (parse_object(part.result) or {}).get("result")
        if self.kind.type != "image_generation_call" or image is None:
            return
        event_fields = {"partial_image_index": Raw(b"%d" % self.partial_images), **item_fields}
        self.partial_images += 1
        body = _json({**event_fields, "partial_image_b64": image})[1:-1]
        type = "response.image_generation_call.partial_image"
        events.write(type, self.position, self.locator, b",", body)

    def _with_streamed_text(self, fields: Fields, text: str) -> Fields:
        """Returns the fields with this value of the streamed text."""
        *outer, last = self.kind.streamed.path if self.kind.streamed else ("",)
        value = wire.to_raw(text)
        # From the inside out: the operation is written again with the diff in it.
        for key in reversed(outer):
            inside = parse_object(fields.get(key, Raw(b"{}"))) or {}
            if text or last in inside:
                inside[last] = value
            last, value = key, wire.to_raw(inside)
        return {**fields, last: value}


class CallResultItem(OutputItem):
    """A result that is an item of its own. The output of commands may be written before it is
    complete.
    """

    __slots__ = ("call_id", "emitted", "fields", "type")
    closes_on_error = False

    def __init__(self, slot: ItemSlot, call_id: str, type: str, item_fields: Fields) -> None:
        super().__init__(slot)
        self.call_id = call_id
        self.type = type
        self.fields = {**RESULT_ITEMS.get(type, ("", {}))[1], **item_fields}
        self.emitted: list[wire.CommandOutputDelta] = []
        self.open = 1

    @property
    def close_policy(self) -> ClosePolicy:
        return ClosePolicy.NONE

    def render(self, status: wire.Status) -> wire.RenderedItem:
        own_fields = {"type": self.type, "id": self.id, "status": status, "call_id": self.call_id}
        return {**{key: wire.to_raw(value) for key, value in own_fields.items()}, **self.fields}

    def is_cut(self, last: bool) -> bool:
        return self.open > 0

    def write_partial(self, events: EventWriter, result: Raw) -> None:
        """Writes the output since the last preliminary result."""
        outputs = decode_or_default(result, _CommandOutputs).output
        for index, now in enumerate(outputs):
            known = index < len(self.emitted)
            before = self.emitted[index] if known else wire.CommandOutputDelta()
            # A preliminary result repeats all output; the wire has only what is new.
            delta = wire.CommandOutputDelta(
                _appended(before.stdout, now.stdout), _appended(before.stderr, now.stderr)
            )
            if delta != wire.CommandOutputDelta():
                key = b',"command_index":%d,"delta":' % index
                name = "response.shell_call_output_content.delta"
                events.write(name, (self.index, index), self.locator, key, _json(delta))
        self.emitted = outputs

    def take_result(self, events: EventWriter, part: ToolResult, item_fields: Fields) -> None:
        """Takes the fields of the result, and finishes each command whose output was written
        before.
        """
        outputs = decode_or_default(part.result, _RawCommandOutputs).output
        # Commands of which nothing was streamed are only in the item.
        for index, output in enumerate(outputs[: len(self.emitted)]):
            key = b',"command_index":%d,"output":' % index
            name = "response.shell_call_output_content.done"
            events.write(name, (self.index, index), self.locator, key, _json([output]))
        self.fields = result_keys("output")({}, part.result) | item_fields


def _appended(before: str | None, now: str | None) -> str | None:
    """Returns what was appended; None if that is nothing, or the beginning changed."""
    old, new = before or "", now or ""
    return (new[len(old) :] or None) if new.startswith(old) else None


def _without_kept(fields: Fields, item_fields: Fields, streamed: StreamedParams | None) -> Fields:
    """Returns the fields that the decoder did not store in another form: params in `arguments`, or
    a single `action` in place of `actions`. Streamed fields stay.
    """
    if "arguments" in item_fields:
        kept = set(streamed.path[:1] if streamed else ())
    else:
        kept = fields.keys() - ({"actions"} if "action" in item_fields else set())
    return {key: value for key, value in fields.items() if key in kept}


class _CommandOutputs(msgspec.Struct):
    output: list[wire.CommandOutputDelta] = []


class _RawCommandOutputs(msgspec.Struct):
    output: list[Raw] = []
