"""Which of many cases of one promise `make test` has; `make test-long` has the others."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

Case = TypeVar("Case")


def one_in(
    every: int, cases: Iterable[Case], id: Callable[[Case], str] = str
) -> list[ParameterSet]:
    """The cases, of which one in so many is in `make test`."""
    return [
        pytest.param(case, id=id(case), marks=[pytest.mark.long] if number % every else [])
        for number, case in enumerate(cases)
    ]


def in_turn(
    every: int, rows: Iterable[Case], columns: Iterable[str], id: Callable[[Case], str] = str
) -> list[ParameterSet]:
    """All pairs. `make test` has one in so many of each row and of each column."""
    names = list(columns)
    return [
        pytest.param(
            row,
            column,
            id=f"{column}-{id(row)}",
            marks=[pytest.mark.long] if (number + place) % every else [],
        )
        for number, row in enumerate(rows)
        for place, column in enumerate(names)
    ]
