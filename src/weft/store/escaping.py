"""Escapes text for a column: PostgreSQL takes no NUL, and no database half a surrogate pair.

What a column cannot hold is written as a backslash and four hexadecimal digits, and so is the
backslash. Text that needs no escape, as any id that Weft creates, is stored unchanged.
"""

import re
from collections.abc import Sequence

from weft.store.queries import Row, Value

_UNSTORABLE = re.compile("[\\\\\0\ud800-\udfff]")
_ESCAPE = re.compile(r"\\([0-9a-f]{4})")


def escape(text: str) -> str:
    """Different texts have different escapes."""
    if text.isprintable() and "\\" not in text:
        return text
    return _UNSTORABLE.sub(lambda found: f"\\{ord(found[0]):04x}", text)


def unescape(column: str) -> str:
    """The inverse of `escape`."""
    if "\\" not in column:
        return column
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), column)


def escape_parameters(parameters: tuple[Value, ...]) -> tuple[Value, ...]:
    text = "".join([value for value in parameters if isinstance(value, str)])
    if text.isprintable() and "\\" not in text:  # nearly always: one look at all of them
        return parameters
    return tuple(escape(value) if isinstance(value, str) else value for value in parameters)


def unescape_rows(rows: Sequence[Row]) -> list[Row]:
    return [
        tuple(unescape(value) if isinstance(value, str) else value for value in row) for row in rows
    ]
