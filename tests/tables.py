"""Tables whose rows take less time than a test does.

pytest takes a millisecond to run and report a test, and every worker collects all of them. A table
of hundreds of rows that take a fraction of that is therefore one test, which tries every row and
names those that fail.
"""

import functools
import inspect
from collections.abc import Callable, Iterable

import pytest

Test = Callable[..., None]
Ids = Callable[..., str] | Iterable[str]


def each_row(names: str, rows: Iterable[object], ids: Ids = repr) -> Callable[[Test], Test]:
    """Runs a test for every row of a table, as `pytest.mark.parametrize` does, within one test.

    It fails after the last row, and each failure carries the name of its row. Fixtures are made
    once for all rows, so the test must not change what they are. A row cannot be skipped; without
    rows, as where the recordings are missing, the test is.
    """
    columns = [name.strip() for name in names.split(",")]
    cells = [row if isinstance(row, tuple) and len(columns) > 1 else (row,) for row in rows]
    named = ["-".join(map(ids, row)) for row in cells] if callable(ids) else list(ids)
    table = [
        (name, dict(zip(columns, row, strict=True))) for name, row in zip(named, cells, strict=True)
    ]

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def whole(**fixtures: object) -> None:
            failures: list[BaseException] = []
            for name, row in table:
                try:
                    test(**fixtures, **row)
                except (Exception, pytest.fail.Exception) as failure:
                    failure.add_note(f"Row: {name}")
                    failures.append(failure)
            if len(failures) == 1:
                raise failures[0]
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(table)} rows fail", failures)

        parameters = inspect.signature(test).parameters
        assert parameters.keys() >= set(columns), f"{test.__name__} does not take {names}"
        fixtures = [one for name, one in parameters.items() if name not in columns]
        whole.__dict__["__signature__"] = inspect.Signature(fixtures)
        return whole if table else pytest.mark.skip(reason=f"no rows of {names}")(whole)

    return decorate
