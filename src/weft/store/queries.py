"""An operation as a generator: it yields statements and receives their rows, so that the same code
runs in a thread that executes at once and on a connection that must be awaited.
"""

from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from weft.errors import InternalError

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

Value: TypeAlias = str | bytes | float | None
"""The value of a column; bool and int count as numbers."""

Row: TypeAlias = Sequence[Value]
Query: TypeAlias = tuple[str, tuple[Value, ...]]
"""A statement with `?` for each of its parameters."""

Queries: TypeAlias = Generator[Query, Sequence[Row], T]

Beside: TypeAlias = Callable[[int], Queries[None]]
"""Makes further statements for the transaction that writes to a run, given its last event: a queue
row that commits with the event that it tells of. What they do to other tables is their own affair,
but they must not raise."""

MAX_NUMBER = 2**62
"""Larger than any number in a column."""

MAX_ROWS = 10_000
"""The most rows that one query returns."""

CLOCK = "((julianday('now') - 2440587.5) * 86400.0)"
"""The clock of the database in seconds since 1970, for SQLite: that of the machine. PostgreSQL
replaces the expression by its own."""


class Verbatim(str):
    """A statement on tables that are not ours: the text in its parameters and rows is not escaped,
    because others read and write these tables without our escapes."""

    __slots__ = ()


class StatementFailed(Exception):
    """The database refused a statement. Thrown into the operation where it yielded the statement,
    so that it can return to a savepoint; one that does not catch it fails with `cause`."""

    def __init__(self, error: InternalError, cause: Exception) -> None:
        super().__init__(str(error))
        self.error = error
        """What a caller may see: without parameters."""
        self.cause = cause


FLAGS = frozenset({"background", "stream", "visible", "cancelling", "pruned", "expired"})
"""SQLite returns them as 0 and 1."""


def value_of(kind: type[S], row: Row) -> S:
    """The struct with the values of a row, in the order of its fields."""
    named = {
        name: bool(value) if name in FLAGS else value
        for name, value in zip(kind.__struct_fields__, row, strict=True)
    }
    return msgspec.convert(named, kind)


def clamp(limit: int) -> int:
    return max(0, min(limit, MAX_ROWS))


def first_value(kind: type[S], rows: Sequence[Row]) -> S | None:
    return value_of(kind, rows[0]) if rows else None


def values_of(kind: type[S], rows: Sequence[Row]) -> list[S]:
    return [value_of(kind, row) for row in rows]
