"""An operation as a generator: it yields statements and receives their rows, so that the same code
runs in a thread that executes at once and on a connection that must be awaited.
"""

from collections.abc import Generator, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from weft.errors import ClientError
from weft.store.base import ID_LENGTH

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

Value: TypeAlias = str | bytes | float | None
"""The value of a column; bool and int count as numbers."""

Row: TypeAlias = Sequence[Value]
Query: TypeAlias = tuple[str, tuple[Value, ...]]
"""A statement with `?` for each of its parameters."""

Queries: TypeAlias = Generator[Query, Sequence[Row], T]

MAX_NUMBER = 2**62
"""Larger than any number in a column."""

MAX_ROWS = 10_000
"""The most rows that one query returns."""


FLAGS = frozenset({"background", "stream", "visible", "cancelling", "pruned", "expired"})
"""SQLite returns them as 0 and 1."""


def value_of(kind: type[S], row: Row) -> S:
    """The struct with the values of a row, in the order of its fields."""
    named = {
        name: bool(value) if name in FLAGS else value
        for name, value in zip(kind.__struct_fields__, row, strict=True)
    }
    return msgspec.convert(named, kind)


def check_ids(*ids: str) -> None:
    """Raises ClientError for an id that is too long for an index of PostgreSQL."""
    if any(len(id) > ID_LENGTH for id in ids):
        raise ClientError(f"an id of more than {ID_LENGTH} characters")


def clamp(limit: int) -> int:
    return max(0, min(limit, MAX_ROWS))


def first_value(kind: type[S], rows: Sequence[Row]) -> S | None:
    return value_of(kind, rows[0]) if rows else None


def values_of(kind: type[S], rows: Sequence[Row]) -> list[S]:
    return [value_of(kind, row) for row in rows]
