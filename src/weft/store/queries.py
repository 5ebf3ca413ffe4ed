"""An operation as a generator: it yields statements and receives their rows, so that the same code
runs in a thread that executes at once and on a connection that must be awaited.
"""

from collections.abc import Generator, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Value: TypeAlias = str | bytes | float | None
"""The value of a column; bool and int count as numbers."""

Row: TypeAlias = Sequence[Value]
Query: TypeAlias = tuple[str, tuple[Value, ...]]
"""A statement with `?` for each of its parameters."""

Queries: TypeAlias = Generator[Query, Sequence[Row], T]
