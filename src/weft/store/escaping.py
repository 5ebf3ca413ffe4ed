"""Texts on their way into a column and back: PostgreSQL takes no NUL, no database a lone surrogate.

What a column cannot hold is written as a backslash and four hexadecimal digits, and so is the
backslash. A text that needs none of it, as any id of ours, is stored as it is.
"""

import re
from collections.abc import Iterable, Sequence

from weft.store.queries import Row, Value

_UNFIT = re.compile("[\\\\\0\ud800-\udfff]")
_WRITTEN = re.compile(r"\\([0-9a-f]{4})")


def escape(text: str) -> str:
    """The text as a column holds it: another text, another form."""
    if text.isprintable() and "\\" not in text:
        return text
    return _UNFIT.sub(lambda found: f"\\{ord(found[0]):04x}", text)


def unescape(column: str) -> str:
    """The text that a column holds."""
    if "\\" not in column:
        return column
    return _WRITTEN.sub(lambda found: chr(int(found[1], 16)), column)


def escape_parameters(parameters: Sequence[Value]) -> tuple[Value, ...]:
    return tuple(escape(value) if isinstance(value, str) else value for value in parameters)


def unescape_rows(rows: Iterable[Row]) -> list[Row]:
    return [
        tuple(unescape(value) if isinstance(value, str) else value for value in row) for row in rows
    ]
