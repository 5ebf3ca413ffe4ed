"""Access to untyped JSON, for validators, never for codecs.

No function here raises for any JSON value, except `parse_json`.
"""

import json
from typing import NoReturn

from weft.dialects.rules import JsonValue
from weft.sse import Frame

_MIN_EVENT_BYTES = len(b"data:\n\n")
"""The fewest bytes that an event has beside its data. A line of JSON has only its line end."""

_MAX_QUOTED = 60
"""Characters of a value that a finding quotes."""

# Python refuses to print integers of more than 4,300 digits, and nobody would read them.
_LARGE_NUMBER = 10**18


def fields(value: JsonValue) -> dict[str, JsonValue]:
    """The fields of an object; none for anything else."""
    return value if isinstance(value, dict) else {}


def elements(value: JsonValue) -> list[JsonValue]:
    """The elements of an array; none for anything else."""
    return value if isinstance(value, list) else []


def text(value: JsonValue) -> str:
    """A string; an empty one for anything else."""
    return value if isinstance(value, str) else ""


def count(value: JsonValue) -> int | None:
    """An integer from 0 on; None for anything else."""
    # In Python `True` is an integer, and JSON's `true` is none.
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value


def shown(value: JsonValue) -> str:
    """A value as a finding quotes it: shortened, and only its type if it is large."""
    if isinstance(value, dict):
        return "an object" if value else "{}"
    if isinstance(value, list):
        return "an array" if value else "[]"
    if isinstance(value, int) and abs(value) >= _LARGE_NUMBER:
        return "a large number"
    # Cut before it is quoted: a string may have megabytes.
    quoted = json.dumps(value[: _MAX_QUOTED + 1] if isinstance(value, str) else value)
    return quoted if len(quoted) <= _MAX_QUOTED else f"{quoted[:_MAX_QUOTED]}…"


def parse_json(written: str) -> JsonValue:
    """The value of a JSON text; raises ValueError for any other text."""
    try:
        # Python reads NaN and Infinity, which JSON does not have (RFC 8259, section 6).
        value: JsonValue = json.loads(written, parse_constant=_reject_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def same(one: JsonValue, other: JsonValue) -> bool:
    """Whether two values are equal; True for values that are too deep to compare."""
    # Comparing nested values recurses in C.
    try:
        return one == other
    except RecursionError:
        return True


class FramingDetector:
    """Detects server-sent events or lines of JSON, by the bytes between two frames.

    Rules about `event:` lines or `[DONE]` do not apply to lines of JSON.
    """

    def __init__(self) -> None:
        self._before: Frame | None = None
        self.events: bool | None = None
        """Whether these are server-sent events; None while that is unknown."""

    def feed(self, frame: Frame) -> None:
        before, self._before = self._before, frame
        # Only server-sent events have such lines.
        if frame.event or frame.id is not None or frame.split:
            self.events = True
        elif self.events is None and before is not None:
            between = frame.offset - before.offset - len(before.data)
            self.events = not 0 < between < _MIN_EVENT_BYTES
