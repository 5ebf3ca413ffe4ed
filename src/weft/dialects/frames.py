"""How every decoder turns frames into typed events.

- A frame is a replay, and dropped, if its SSE id and its bytes were both seen before.
- Data is decoded into the dialect's event type; if that fails, once more by `Salvage`.
- Data that is not JSON at all ends the response: `malformed`, or the upstream's own error if it is
  plain text. Two kinds are only reported: an event that the input ended inside, and an event whose
  name the dialect does not have.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from types import NoneType, UnionType
from typing import Generic, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Raw, UnsetType

from weft import large_json
from weft.dialects.delta_templates import MAX_TEMPLATES, FrameTemplate
from weft.findings import Findings
from weft.partial_json import join_halves, mended, whole_characters
from weft.parts import Delta, ErrorPart, Part
from weft.sse import DONE, Frame

S = TypeVar("S", bound=msgspec.Struct)

_JSON_TYPES = {dict: "object", list: "array", str: "text", bool: "boolean", NoneType: "null"}
# How servers spell a field that is not there.
_EMPTY_VALUES = frozenset((b"null", b"false", b'""', b"{}", b"[]"))
_HALF = re.compile("[\ud800-\udfff]")
_QUOTED = 40
"""Characters of unreadable data that are quoted in a finding."""


def is_present(value: Raw | UnsetType) -> bool:
    """Whether a raw field is there and not empty, false or null."""
    return isinstance(value, Raw) and bytes(value) not in _EMPTY_VALUES


# A struct, as is `Salvage`: every response makes one, which msgspec does in C, and hardly any needs
# it.
class SurrogateJoiner(msgspec.Struct, eq=False):
    """Joins surrogate pairs that were split between two deltas of an item."""

    findings: Findings
    held: dict[object, str] = {}
    """The high surrogates whose other half has not come yet, by their item."""

    def feed(self, item: object, text: str) -> str:
        """Returns the text that is complete, possibly none. Text that is ASCII needs no call, as
        long as nothing is held.
        """
        if not self.held and len(text) < large_json.SLICE and _HALF.search(text) is None:
            return text  # nearly always
        # By item: calls interleave, and each may be cut inside a character.
        half = self.held.pop(item, "")
        joined, held = join_halves(half, text)
        if held:
            self.held[item] = held
        if half or held or joined != text:
            detail = "a character was split between two deltas"
            self.findings.once("surrogate-lone", "", detail)
        return joined

    def flush(self, item: object) -> str:
        """Returns U+FFFD for a half whose other half never came; nothing if there is none."""
        return whole_characters(self.held.pop(item, "")) if self.held else ""


class EventDecoder(ABC, Generic[S]):
    """The base of the decoders: reads each frame as an event and hands it to `_handle`.

    A subclass has `_handle` and `_fail`, and `_done` if its wire has a `[DONE]`.
    """

    template: FrameTemplate | None = None
    """See FrameDecoder. None on wires whose deltas differ in more than their text."""

    _last_template: FrameTemplate | None = None
    _useless_templates = 0

    def __init__(
        self,
        findings: Findings,
        shape: type[S],
        read: Callable[[bytes], S],
        streamed_fields: frozenset[str],
        event_names: Collection[str] = (),
    ) -> None:
        """`read` decodes an event or raises ValueError; `event_names` are the names that events of
        this dialect have in their `event:` lines, if they have any.
        """
        self._findings = findings
        self._salvage = Salvage(findings, streamed_fields)
        self._shape = shape
        self._read_event = read
        self._event_names = event_names
        self._digests: dict[str | int, int] = {}
        """The hashes of events by their id or number, to recognise replays."""
        self._cut_off = False
        """Whether the input ended inside an event that could not be read."""

    def feed(self, frame: Frame) -> list[Part]:
        """Returns the parts that this frame completes, possibly none."""
        out: list[Part] = []
        if frame.id is not None and self._is_replay(frame.id, frame.data):
            # capture: events-replayed-under-their-id
            return out
        if frame.data == DONE:
            # Looked at first: at the end of every stream, two parsers would have to fail at it.
            self._done(out)
            return out
        try:
            event = self._read_event(frame.data)
        except (ValueError, RecursionError):
            # The typed decoder is several times faster than `Salvage`, and fits nearly every event.
            try:
                event = self._salvage_event(frame.data)
            except ValueError as problem:
                self._unreadable(frame, problem, out)
                return out
        if frame.cut:  # capture: last-event-unterminated
            self._findings.once("frame-unterminated", "", "no blank line after the last event")
        if frame.split:  # capture: one-newline-between-events
            self._findings.once("frame-lines-split", "", "events are separated by one newline")
        self._handle(event, frame, out)
        return out

    def _make_template(self, frame: Frame, key: bytes, part: Delta) -> FrameTemplate | None:
        """Makes a template of a frame that had this delta under this key, and nothing else; returns
        it, if it could be made."""
        last = self._last_template
        if last is not None and not last.is_used:
            self._useless_templates += 1
        self._last_template = None
        if self._useless_templates < MAX_TEMPLATES:
            self._last_template = FrameTemplate.of(frame, key, part)
            self._useless_templates += self._last_template is None
        self.template = self._last_template
        return self.template

    def _is_replay(self, id: str | int, data: bytes) -> bool:
        """Whether an event with this id, or number, and these bytes came before; reports it."""
        # A hash, not the bytes: the response would be held twice. The id alone is not enough,
        # because a server may give the same one to other events.
        digest = hash(data)
        if self._digests.get(id) == digest:
            self._findings.note("frame-replayed", f"event {id!r} was repeated: dropped")
            return True
        self._digests[id] = digest
        return False

    def _salvage_event(self, data: bytes) -> S:
        """Decodes data that does not fit the type; raises ValueError if it is not an object."""
        return self._salvage.read(data, self._shape)

    def _unreadable(self, frame: Frame, problem: ValueError, out: list[Part]) -> None:
        """Handles a frame that is not a JSON object."""
        text = frame.data.decode("utf-8", "replace")
        # `error` is the one name that may come with text of any kind.
        is_named = frame.event not in ("", "error")
        if frame.cut:  # capture: last-event-cut, cut-in-the-first-chunk, ends-inside-a-frame
            self._cut_off = True
            self._findings.note("frame-unterminated", f"the input ended inside {text[:_QUOTED]!r}")
        elif is_named and frame.event not in self._event_names:
            # capture: named-events-that-are-no-chunks
            self._note_unknown(frame.event)
        elif is_named or text.startswith(("{", "[")):  # capture: chunk-that-is-not-json
            detail = f"event {frame.number} is not JSON: {problem}"
            self._fail(ErrorPart("malformed", detail), out)
        else:
            self._fail(ErrorPart("upstream", text), out)  # capture: error-as-plain-text

    def _note_unknown(self, name: str, key: str | None = None) -> None:
        """Reports an event that the dialect does not have, once for each name."""
        detail = f"unknown event {name[:_QUOTED]!r}: ignored"
        self._findings.once("event-unknown", name if key is None else key, detail)

    def _done(self, out: list[Part]) -> None:
        """Handles `[DONE]`: most wires do not have it."""
        # capture: done-at-the-end
        self._note_unknown("[DONE]")

    @abstractmethod
    def _handle(self, event: S, frame: Frame, out: list[Part]) -> None:
        """Appends the parts that this event completes."""

    @abstractmethod
    def _fail(self, error: ErrorPart, out: list[Part]) -> None:
        """Appends an error, unless one came already or the response is over."""


class Salvage(msgspec.Struct, eq=False):
    """Decodes an object that does not fit its type: the only place where a dict is legal.

    Numbers in strings become numbers, objects where text belongs become their JSON text, and
    what cannot be used is left out, each with a finding. In `streamed_fields` half a surrogate
    pair is kept, because its other half may follow; everywhere else it is replaced.
    """

    findings: Findings
    streamed_fields: frozenset[str]

    def read(self, data: bytes, wanted: type[S]) -> S:
        """Raises ValueError when this is not a JSON object at all."""
        try:
            # The standard library reads what msgspec rejects: lone surrogates and, not being
            # strict, control characters in strings.
            value = json.loads(data.decode("utf-8", "replace"), strict=False)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        if isinstance(value, list) and len(value) == 1:  # capture: error-in-an-array
            self.findings.once("field-coerced", "", "an array of one instead of an object")
            value = value[0]
        if not isinstance(value, dict):
            raise ValueError(f"expected an object, got {_json_type(value)}")
        return self._struct(value, wanted, "")

    def item(self, raw: Raw | UnsetType, wanted: type[S]) -> S:
        """Decodes an object inside a frame; an empty one if it is not an object."""
        data = raw if isinstance(raw, Raw) else Raw(b"{}")
        try:
            return large_json.read(data, wanted)
        except (ValueError, RecursionError):
            pass
        try:
            return self.read(bytes(data), wanted)
        except ValueError:
            return wanted()

    def _struct(self, value: dict[str, object], wanted: type[S], path: str) -> S:
        known: dict[str, object] = {}
        for field in msgspec.structs.fields(wanted):
            if field.encode_name in value:
                where = f"{path}.{field.encode_name}" if path else field.encode_name
                try:
                    known[field.name] = self._value(value[field.encode_name], field.type, where)
                except ValueError:
                    self._note_dropped(where, value[field.encode_name])
        return wanted(**known)

    def _list(self, values: list[object], wanted: object, path: str) -> list[object]:
        usable: list[object] = []
        for value in values:
            try:
                usable.append(self._value(value, wanted, path))
            except ValueError:
                self._note_dropped(path, value)
        return usable

    def _note_dropped(self, path: str, value: object) -> None:
        self.findings.once("field-dropped", path, f"{path}: {_json_type(value)} cannot be used")

    def _value(self, value: object, wanted: object, path: str) -> object:
        options = get_args(wanted) if get_origin(wanted) in (Union, UnionType) else (wanted,)
        if value is None and NoneType in options:
            return None
        # Raw fields take any JSON, but no half of a surrogate pair: it cannot be encoded as UTF-8.
        if Raw in options:
            return Raw(msgspec.json.encode(mended(value)))
        for option in options:
            # Exact classes: `True` must not pass as an integer.
            if option is value.__class__:
                if isinstance(value, str) and path.rpartition(".")[2] not in self.streamed_fields:
                    return whole_characters(value)
                return value
            if get_origin(option) is list and isinstance(value, list):
                return self._list(value, get_args(option)[0], path)
            if (
                isinstance(value, dict)
                and isinstance(option, type)
                and issubclass(option, msgspec.Struct)
            ):
                return self._struct(value, option, path)
        coerced = self._coerce(value, options, path)
        detail = f"{path}: {_json_type(value)} instead of another type"
        self.findings.once("field-coerced", path, detail)
        return coerced

    def _coerce(self, value: object, options: tuple[object, ...], path: str) -> object:
        """Raises ValueError if none of the types can be made of the value."""
        # capture: number-out-of-range
        # `"3"` and `3.0` are meant as 3; an infinite float raises.
        if int in options and isinstance(value, str | float):
            try:
                return int(value)
            except OverflowError:
                raise ValueError(f"{value} is not an integer") from None
        for option in options:
            # One entry where a list belongs: servers leave the list out if there is only one.
            if get_origin(option) is list and isinstance(value, dict):
                return self._list([value], get_args(option)[0], path)
        # capture: arguments-object, arguments-empty-object-before-text
        # An empty object or array where text belongs means no text yet.
        if str in options and not isinstance(value, str):
            return msgspec.json.encode(mended(value)).decode() if value or value == 0 else ""
        raise ValueError(f"{path}: {_json_type(value)}")


def _json_type(value: object) -> str:
    return _JSON_TYPES.get(value.__class__, "number")
