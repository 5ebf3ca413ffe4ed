"""An operation as steps: it yields statements and is sent their rows, so that one text serves a
thread that executes at once and a connection that must be awaited.
"""

from collections.abc import Generator, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Value: TypeAlias = str | bytes | float | None
"""What a column holds; bool and int are numbers here."""

Row: TypeAlias = Sequence[Value]
Query: TypeAlias = tuple[str, tuple[Value, ...]]
"""A statement with `?` for each of its parameters."""

Queries: TypeAlias = Generator[Query, Sequence[Row], T]
