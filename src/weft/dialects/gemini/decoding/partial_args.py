"""Turns streamed arguments, which are values with JSON paths, into JSON text."""

import re

from msgspec import Raw

from weft.dialects.gemini import wire
from weft.partial_json import escape

JsonPath = tuple[str | int, ...]

_STEP = re.compile(
    # The steps of RFC 9535 that name one value: `.name`, `[0]`, `['name']`, `["name"]`. No array
    # has an index of more than nine digits.
    r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d{1,9})\]"
    r"|\['(?P<single>(?:[^'\\]|\\.)*)'\]|\[\"(?P<double>(?:[^\"\\]|\\.)*)\"\]"
)
_ESCAPED = re.compile(r"\\(.)")
_CLOSERS = {"{": "}", "[": "]"}


def parse_json_path(path: str) -> JsonPath | None:
    """Returns the keys and indices of a JSON path; None if it is not one."""
    steps: list[str | int] = []
    position = 1
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            return None
        position = step.end()
        quoted = step["single"] or step["double"]
        index = step["index"]
        name = step["name"] or _ESCAPED.sub(r"\1", quoted or "")
        steps.append(name if index is None else int(index))
    return tuple(steps) if steps and path.startswith("$") else None


class _Container:
    """An object or an array that is not closed yet."""

    __slots__ = ("keys", "opener", "step")

    def __init__(self, opener: str, step: str | int | None) -> None:
        self.opener = opener
        self.step = step
        """Its key or index in the container around it."""
        self.keys: set[str | int] = set()

    def member(self, step: str | int) -> str | None:
        """Returns the text before the value at this key or index; None if the value cannot be
        written any more, because text that was emitted cannot be changed.
        """
        # An array grows by its next element; an object takes each key once. What came out of order
        # cannot be put in between, since the text before it has left.
        fits = step not in self.keys if self.opener == "{" else step == len(self.keys)
        if not fits or isinstance(step, str) is not (self.opener == "{"):
            return None
        comma = "," if self.keys else ""
        self.keys.add(step)
        return f'{comma}"{escape(step)}":' if isinstance(step, str) else comma


class PartialArgsWriter:
    """Writes the JSON text of one call's arguments. Text is only ever appended."""

    def __init__(self) -> None:
        self._stack: list[_Container] = []
        self._string: JsonPath | None = None
        """The path of the string that is not closed yet."""
        self.problem: str | None = None
        """Why the text is unusable. Nothing is written after a problem."""

    @property
    def is_empty(self) -> bool:
        return not self._stack

    def feed(self, value: wire.PartialArg) -> str:
        """Returns the text that this value adds."""
        path = parse_json_path(value.json_path or "")
        if path is None and self.problem is None:
            self.problem = f"invalid jsonPath {value.json_path!r}"
        if path is None or self.problem is not None:
            return ""
        text = self._scalar(value)
        if path == self._string and text is None:
            # A string goes on, or ends with an empty piece.
            # capture: arguments-value-by-value
            return self._string_text(path, value)
        if text is None and value.string_value is None:
            self.problem = f"no value at {value.json_path!r}"
            return ""
        prefix = self._move_to(path)
        if prefix is None:
            self.problem = f"{value.json_path!r} comes too late: a later value was written"
            return ""
        return prefix + (text or '"' + self._string_text(path, value))

    def finish(self) -> str:
        """Returns the text that closes everything."""
        if self.problem is not None:
            return ""
        if not self._stack:
            # A call that was opened and closed without any value has no arguments.
            return "{}"
        return self._close_string() + self._close(0)

    def _string_text(self, path: JsonPath, value: wire.PartialArg) -> str:
        # The quote is left open while more of the string is announced.
        self._string = path if value.will_continue else None
        return escape(value.string_value or "") + ("" if value.will_continue else '"')

    @staticmethod
    def _scalar(value: wire.PartialArg) -> str | None:
        # The digits as they came: a float would change large integers.
        if isinstance(value.number_value, Raw):
            return bytes(value.number_value).decode()
        if value.bool_value is not None:
            return "true" if value.bool_value else "false"
        return "null" if isinstance(value.null_value, Raw) else None

    def _close_string(self) -> str:
        string, self._string = self._string, None
        return "" if string is None else '"'

    def _close(self, depth: int) -> str:
        closers = [_CLOSERS[container.opener] for container in reversed(self._stack[depth:])]
        del self._stack[depth:]
        return "".join(closers)

    def _move_to(self, path: JsonPath) -> str | None:
        """Closes the containers that the path leaves and opens those it enters; None if the path
        leads back to a value before the last one.
        """
        text = [self._close_string()]
        if self._stack:
            shared = 1  # how many of the open containers contain this path
            while shared < min(len(self._stack), len(path)):
                if self._stack[shared].step != path[shared - 1]:
                    break
                shared += 1
            text.append(self._close(shared))
        else:
            text.append(self._enter(path[0], None))
        for depth in range(len(self._stack) - 1, len(path)):
            member = self._stack[-1].member(path[depth])
            if member is None:
                return None
            text.append(member)
            if depth + 1 < len(path):
                text.append(self._enter(path[depth + 1], path[depth]))
        return "".join(text)

    def _enter(self, first: str | int, step: str | int | None) -> str:
        # A container is known only by the first step into it.
        opener = "{" if isinstance(first, str) else "["
        self._stack.append(_Container(opener, step))
        return opener
