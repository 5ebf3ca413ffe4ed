"""Untyped frames, read with care: for the rules of a wire, never for its codecs.

No function here raises for what a stream may hold, save `parsed`, which says so.
"""

import json
from typing import NoReturn

from weft.dialects.rules import JsonValue
from weft.sse import Frame

_MIN_EVENT_BYTES = len(b"data:\n\n")
"""The fewest bytes that an event has beside its data. A line of JSON has its line end."""

_MAX_QUOTED = 60
"""Characters of a value that are quoted in a detail."""

_LARGE_NUMBER = 10**18


def fields(value: JsonValue) -> dict[str, JsonValue]:
    """The fields of an object; none for anything else."""
    return value if isinstance(value, dict) else {}


def elements(value: JsonValue) -> list[JsonValue]:
    """The elements of an array; none for anything else."""
    return value if isinstance(value, list) else []


def text(value: JsonValue) -> str:
    """A text; an empty one for anything else."""
    return value if isinstance(value, str) else ""


def count(value: JsonValue) -> int | None:
    """A whole number from 0 on; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value


def shown(value: JsonValue) -> str:
    """A value as a detail quotes it: short, and only its kind if it is large."""
    if isinstance(value, dict):
        return "an object" if value else "{}"
    if isinstance(value, list):
        return "an array" if value else "[]"
    if isinstance(value, int) and abs(value) >= _LARGE_NUMBER:
        return "a large number"
    quoted = json.dumps(value[: _MAX_QUOTED + 1] if isinstance(value, str) else value)
    return quoted if len(quoted) <= _MAX_QUOTED else f"{quoted[:_MAX_QUOTED]}…"


def parse_json(written: str) -> JsonValue:
    """The value of a JSON text; raises ValueError for what is none."""
    try:
        value: JsonValue = json.loads(written, parse_constant=_reject_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def same(one: JsonValue, other: JsonValue) -> bool:
    """Whether two values are equal; of two that are too deep to compare, nothing is said."""
    try:
        return one == other
    except RecursionError:
        return True


class FramingDetector:
    """Tells server-sent events from lines of JSON, by the bytes between two frames.

    A frame itself does not say how it was written, and a rule about `event:` lines or `[DONE]`
    is no rule for lines of JSON.
    """

    def __init__(self) -> None:
        self._before: Frame | None = None
        self.events: bool | None = None
        """None as long as it is not known: one frame alone does not tell."""

    def feed(self, frame: Frame) -> None:
        before, self._before = self._before, frame
        if frame.event or frame.id is not None or frame.split:
            self.events = True
        elif self.events is None and before is not None:
            between = frame.offset - before.offset - len(before.data)
            self.events = not 0 < between < _MIN_EVENT_BYTES
