"""SQLite on a disk that fails: at each operation once, or from each operation on."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pytest

from tests.store_scenario import ALL, scenario, seen
from tests.stores import Stores, over, path_of, sqlite_store
from weft.store.base import Store, StoreError
from weft.store.writer import WritePolicy

PATIENT = WritePolicy(timeout=30.0, flush_interval=0.0, first_retry=0.001)
HASTY = WritePolicy(timeout=0.1, flush_interval=0.0, first_retry=0.001)

FAULTS = {
    "SQLITE_IOERR_WRITE": "disk I/O error",
    "SQLITE_FULL": "database or disk is full",
    "SQLITE_BUSY": "database is locked",
}


class Failing(sqlite3.Connection):
    """Fails at certain operations, counted over all connections."""

    count: ClassVar[int] = 0
    met: ClassVar[int] = 0
    name: ClassVar[str] = ""
    fails: ClassVar[Callable[[int], bool]]

    @classmethod
    def prepare(cls, name: str, fails: Callable[[int], bool]) -> None:
        cls.count, cls.met, cls.name = 0, 0, name
        cls.fails = staticmethod(fails)

    @classmethod
    def _operate(cls) -> None:
        cls.count += 1
        if cls.fails(cls.count):
            cls.met += 1
            error = sqlite3.OperationalError(FAULTS[cls.name])
            error.sqlite_errorname = cls.name
            raise error

    def execute(self, *arguments: object) -> sqlite3.Cursor:
        if arguments[0] != "ROLLBACK":  # SQLite undoes it by itself where it cannot
            self._operate()
        return super().execute(*arguments)  # type: ignore[arg-type]


def met(path: Path, name: str, fails: Callable[[int], bool], policy: WritePolicy) -> int | None:
    """Plays the scenario and checks what it left behind. Returns how many faults it met; None if
    it met none because a busy machine needed more time than the policy gives."""
    Failing.prepare(name, fails)
    acknowledged: set[str] = set()

    async def main() -> set[str]:
        with suppress(StoreError):
            await scenario(over(path, Failing, policy), acknowledged)
        healthy = over(path)
        await healthy.open()
        found = await seen(healthy)
        await healthy.close()
        return found

    assert acknowledged <= asyncio.run(main())
    return Failing.met if Failing.met or len(acknowledged) == ALL else None


async def open_and_close(store: Store) -> None:
    await store.open()
    await store.close()


def operations(path: Path) -> int:
    """How many there are when none fails."""
    assert met(path, "SQLITE_FULL", lambda count: False, PATIENT) == 0
    return Failing.count


# each so many-th operation; all of them take long
EACH = [
    *(pytest.param(name, 4, id=name) for name in FAULTS),
    *(pytest.param(name, 1, id=f"{name}-each", marks=pytest.mark.long) for name in FAULTS),
]


@pytest.mark.parametrize(("name", "step"), EACH)
def test_whichever_call_fails_once_nothing_acknowledged_is_lost(
    name: str, step: int, tmp_path: Path
) -> None:
    tries = range(1, operations(tmp_path / "well.db"), step)
    faults = [met(tmp_path / f"{nth}.db", name, nth.__eq__, PATIENT) for nth in tries]
    assert faults.count(1) > len(tries) * 0.8  # what is written together varies a little


@pytest.mark.parametrize(("name", "step"), EACH)
def test_from_whichever_call_on_all_fail_nothing_acknowledged_is_lost(
    name: str, step: int, tmp_path: Path
) -> None:
    tries = range(1, operations(tmp_path / "well.db"), step * 3)
    faults = [met(tmp_path / f"{nth}.db", name, nth.__le__, HASTY) for nth in tries]
    assert len([count for count in faults if count != 0]) > len(tries) * 0.8
    assert any(faults)


@pytest.mark.parametrize("name", FAULTS)
def test_transient_errors_are_not_noticed(name: str, tmp_path: Path) -> None:
    Failing.prepare(name, lambda count: False)
    asyncio.run(open_and_close(over(tmp_path / "empty.db", Failing)))
    opened = Failing.count  # to open it is not retried after such an error
    Failing.prepare(name, lambda count: count in range(opened + 4, opened + 63, 13))
    acknowledged: set[str] = set()
    asyncio.run(scenario(over(tmp_path / "store.db", Failing, PATIENT), acknowledged))
    assert (Failing.met >= 3, len(acknowledged)) == (True, ALL)


@sqlite_store
async def test_a_write_that_was_given_up_is_never_made(stores: Stores) -> None:
    """A caller that got an error can rely on it."""
    Failing.prepare("SQLITE_IOERR_WRITE", lambda count: count > 60)
    acknowledged: set[str] = set()
    unknown: set[str] = set()  # where the disk of this machine took longer than the patience
    with suppress(StoreError):
        await scenario(over(path_of(stores), Failing, HASTY), acknowledged, unknown)
    found = await seen(await stores.opened())
    assert found - acknowledged - unknown <= {"flush a"}
