"""SQLite: its file, its threads, its locks, and a disk that is full."""

import asyncio
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import chdir
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.store_scenario import scenario
from tests.stores import (
    Stores,
    audit,
    ended,
    ending,
    entry,
    log,
    over,
    path_of,
    sqlite_store,
    whole_log,
)
from weft.store.base import Store, StoreError, UnknownStore
from weft.store.checkpoints import CHECKPOINT, CheckpointPolicy
from weft.store.records import Block
from weft.store.sqlite import WriterThread
from weft.store.urls import store_from_url
from weft.store.writer import WritePolicy

INTERVAL = CheckpointPolicy().interval
HASTY = WritePolicy(timeout=2.0, flush_interval=0.0, first_retry=0.005, max_retry=0.05)
"""Fails soon, but not because a busy machine is slow."""


# Addresses


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("sqlite://:memory:", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("sqlite://", "in memory"),
        ("sqlite:///", "in memory"),
        ("sqlite://weft.db", "three slashes"),
        ("sqlite:///weft.db?mode=ro", "no options"),
        ("mysql://me:hunter2@host/db", "unknown database 'mysql'"),
        ("me:hunter2@host", "begins with"),
        ("", "begins with"),
    ],
)
def test_a_url_of_no_database_is_refused_with_a_clear_message(url: str, why: str) -> None:
    with pytest.raises(UnknownStore, match=why) as caught:
        store_from_url(url)
    assert "hunter2" not in str(caught.value)


def test_without_its_driver_postgresql_is_refused_and_sqlite_is_not() -> None:
    code = """
import sys
sys.modules["asyncpg"] = None
from weft.store.urls import store_from_url
store_from_url("sqlite:///weft.db")
store_from_url("postgresql://me:hunter2@host/db")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.endswith("UnknownStore: PostgreSQL needs asyncpg: pip install 'weft[postgres]'")


@pytest.mark.parametrize("slashes", ["sqlite:///", "sqlite:////"])
def test_three_slashes_are_relative_and_four_absolute(slashes: str, tmp_path: Path) -> None:
    name = "a b%20#.db"
    store = store_from_url(
        slashes + (name if slashes.count("/") == 3 else str(tmp_path / name)[1:])
    )

    async def main() -> None:
        await store.open()
        await store.begin(entry())
        assert await store.entry("resp_1") == entry()
        await store.close()

    with chdir(tmp_path):
        asyncio.run(main())
    assert [path.name for path in tmp_path.iterdir()] == [name]


@sqlite_store
async def test_only_its_owner_may_read_the_file(stores: Stores) -> None:
    await (await stores.opened()).begin(entry())
    files = list(stores.folder.iterdir())
    assert len(files) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


@pytest.mark.parametrize("name", ["missing/store.db", "."])
def test_a_file_that_cannot_be_created_is_reported(name: str, tmp_path: Path) -> None:
    store = store_from_url(f"sqlite:///{tmp_path / name}")
    with pytest.raises(StoreError) as caught:
        asyncio.run(store.open())
    assert caught.value.kind == "broken"


def test_a_file_that_is_no_database_is_reported_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x" * 5000)
    store = store_from_url(f"sqlite:///{tmp_path / 'notes.txt'}")
    with pytest.raises(StoreError, match="not a database"):
        asyncio.run(store.open())
    assert (tmp_path / "notes.txt").read_text() == "x" * 5000


# Threads


class OffTheLoop(sqlite3.Connection):
    """Notes the threads that use it."""

    threads: ClassVar[set[int]] = set()

    def execute(self, *arguments: object) -> sqlite3.Cursor:
        self.threads.add(threading.get_ident())
        return super().execute(*arguments)  # type: ignore[arg-type]

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        super().close()


@sqlite_store
async def test_the_loop_is_never_blocked(stores: Stores) -> None:
    store = over(path_of(stores), OffTheLoop)
    OffTheLoop.threads.clear()
    await scenario(store, set())
    assert OffTheLoop.threads
    assert threading.get_ident() not in OffTheLoop.threads


@sqlite_store
async def test_readers_do_not_wait_for_the_writer(stores: Stores) -> None:
    store = await stores.opened()
    await store.begin(entry())
    other = sqlite3.connect(path_of(stores), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.ensure_future(store.begin(entry("resp_2")))
    assert await store.entry("resp_1") == entry()
    assert not waiting.done()
    other.execute("ROLLBACK")
    other.close()
    await waiting


class Synchronous(sqlite3.Connection):
    """Notes how far each commit goes: 1 is NORMAL, 2 is FULL."""

    levels: ClassVar[list[int]] = []

    def execute(self, *arguments: object) -> sqlite3.Cursor:
        if arguments[0] == "COMMIT" and super().execute("PRAGMA query_only").fetchone() == (0,):
            Synchronous.levels += super().execute("PRAGMA synchronous").fetchone()
        return super().execute(*arguments)  # type: ignore[arg-type]


@sqlite_store
async def test_an_ending_survives_a_power_cut(stores: Stores) -> None:
    store = over(path_of(stores), Synchronous)
    await store.open()
    Synchronous.levels.clear()
    for number in range(2):
        await store.begin(entry(f"resp_{number}"))
        await store.finish(f"resp_{number}", ending())
    assert Synchronous.levels == [1, 2, 1, 2]
    await store.close()


# Checkpoints


class Checkpointing(sqlite3.Connection):
    """Notes the threads that make checkpoints."""

    threads: ClassVar[list[str]] = []
    fault: ClassVar[sqlite3.Error | None] = None

    def execute(self, *arguments: object) -> sqlite3.Cursor:
        if arguments[0] == CHECKPOINT:
            Checkpointing.threads.append(threading.current_thread().name)
            if self.fault is not None:
                raise self.fault
        return super().execute(*arguments)  # type: ignore[arg-type]


async def write_blocks(store: Store, count: int) -> None:
    await store.begin(entry())
    for number in range(count):
        store.append("resp_1", Block(number, number, 1, bytes(1024 * 1024)))
        await store.wait_for_room("resp_1")
    await store.flush("resp_1")


@pytest.mark.parametrize("fault", [None, sqlite3.OperationalError("disk I/O error")])
def test_checkpoints_are_made_beside_the_writer_and_may_fail(
    fault: sqlite3.Error | None, tmp_path: Path
) -> None:
    count = 3 * INTERVAL // (1024 * 1024)
    Checkpointing.threads.clear()
    Checkpointing.fault = fault

    async def main() -> None:
        store = over(tmp_path / "weft.db", Checkpointing)
        await store.open()
        await write_blocks(store, count)
        assert (await store.extent("resp_1")).events == count
        await store.close()

    asyncio.run(main())
    assert {name.rstrip("_0") for name in Checkpointing.threads} == {"weft-store-checkpoint"}


class BusyOnce(Checkpointing):
    """Is locked at the first attempt to open it."""

    is_busy: ClassVar[bool] = True

    def execute(self, *arguments: object) -> sqlite3.Cursor:
        if arguments[0] == "BEGIN IMMEDIATE" and BusyOnce.is_busy:
            BusyOnce.is_busy = False
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorname = "SQLITE_BUSY"
            raise error
        return super().execute(*arguments)


@sqlite_store
async def test_a_store_that_opened_at_the_second_attempt_makes_checkpoints(stores: Stores) -> None:
    count = INTERVAL // (1024 * 1024) + 4
    Checkpointing.threads.clear()
    Checkpointing.fault, BusyOnce.is_busy = None, True
    store = over(path_of(stores), BusyOnce)
    await store.open()
    await write_blocks(store, count)
    assert (await store.extent("resp_1")).events == count
    await store.close()
    assert not BusyOnce.is_busy
    assert Checkpointing.threads


class SmallLimit(sqlite3.Connection):
    """Cuts a WAL to 32 MB instead of 512: a test need not write that much."""

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        statement, *parameters = arguments
        return super().execute(statement.replace("536870912", "33554432"), *parameters)


@sqlite_store
async def test_a_long_wal_is_cut_when_it_starts_over(stores: Stores) -> None:
    """The next commit after a whole checkpoint starts it over."""
    store = over(path_of(stores), SmallLimit)
    await store.open()
    wal = path_of(stores).with_name(f"{path_of(stores).name}-wal")
    reading = sqlite3.connect(path_of(stores), isolation_level=None)
    reading.execute("BEGIN")
    reading.execute("SELECT * FROM response").fetchall()  # the WAL cannot start over before its end
    await write_blocks(store, 80)
    assert wal.stat().st_size > 80 * 1024 * 1024
    reading.execute("COMMIT")
    async with asyncio.timeout(60):
        while True:  # one that the store has begun may be under way: it keeps out this one
            busy, pages, copied = reading.execute(CHECKPOINT).fetchone()
            if not busy and pages == copied:
                break
            await asyncio.sleep(0.01)
    await store.finish("resp_1", ending(events=80, size=80 * 1024 * 1024))
    reading.close()
    assert wal.stat().st_size == 32 * 1024 * 1024


# The thread that writes


def test_the_loop_gives_way_to_a_function_that_takes_long() -> None:
    """Again and again, and no longer once it has returned."""

    async def main() -> None:
        writer, may_return = WriterThread("a writer"), threading.Event()
        running = asyncio.ensure_future(writer.run(may_return.wait))
        async with asyncio.timeout(60):
            while writer.pauses < 5:
                await asyncio.sleep(0)
            during = writer.gives_way
            may_return.set()
            assert await running
        assert (during, writer.gives_way) == (True, False)
        assert await writer.run(lambda: "the next one") == "the next one"
        writer.stop()

    asyncio.run(main())


# Locks


@sqlite_store
async def test_a_lock_is_waited_for(stores: Stores) -> None:
    store = await stores.opened()
    await store.begin(entry())
    other = sqlite3.connect(path_of(stores), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for block in log(3):
        store.append("resp_1", block)
    finishing = asyncio.ensure_future(store.finish("resp_1", ending(log(3))))
    beginning = asyncio.ensure_future(store.begin(entry("resp_2")))
    await asyncio.wait({finishing, beginning}, timeout=0.05)
    other.execute("COMMIT")
    other.close()
    assert await finishing
    await beginning
    assert set(await audit(store)) == {"resp_1", "resp_2"}


@sqlite_store
async def test_waiting_for_a_lock_times_out_and_nothing_is_written_later(stores: Stores) -> None:
    store = await stores.opened(HASTY)
    await store.begin(entry())
    other = sqlite3.connect(path_of(stores), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for block in log(3):
        store.append("resp_1", block)
    attempts = [
        store.finish("resp_1", ending(log(3))),
        store.begin(entry("resp_2")),
        store.flush("resp_1"),
    ]
    async with asyncio.timeout(30):
        failed = await asyncio.gather(*attempts, return_exceptions=True)
    assert [one.kind for one in failed if isinstance(one, StoreError)] == ["busy"] * 3
    other.execute("COMMIT")
    other.close()
    await store.flush("resp_1")
    assert await store.entry("resp_1") == entry()
    assert await store.entry("resp_2") is None
    assert await store.finish("resp_1", ending(log(3)))
    assert set(await audit(store)) == {"resp_1"}


# A full disk


class Small(sqlite3.Connection):
    """A disk with room for so many pages."""

    pages: ClassVar[int] = 0

    def execute(self, *arguments: object) -> sqlite3.Cursor:
        if arguments[0] == "BEGIN IMMEDIATE":
            super().execute(f"PRAGMA max_page_count = {self.pages}")
        return super().execute(*arguments)  # type: ignore[arg-type]


@sqlite_store
async def test_a_full_disk_is_reported_and_the_queue_is_written_when_there_is_room(
    stores: Stores,
) -> None:
    Small.pages = 60
    store = over(path_of(stores), Small, HASTY)
    await store.open()
    await store.begin(entry())
    await store.begin(entry("resp_2"))
    blocks = [Block(number, number, 1, b"x" * 50_000) for number in range(10)]
    for block in blocks:
        store.append("resp_1", block)
    with pytest.raises(StoreError) as caught:
        await store.finish("resp_1", ending(blocks))
    assert caught.value.kind == "full"
    assert [await store.entry("resp_1"), await store.blocks("resp_1")] == [entry(), []]
    assert store.waiting > 500_000
    Small.pages = 10_000
    await store.flush("resp_1")
    assert await store.finish("resp_1", ending(blocks))
    assert await store.entry("resp_1") == ended(entry(), ending(blocks))
    assert await whole_log(store, "resp_1") == blocks
    await store.close()


# Restored from a backup


@sqlite_store
async def test_a_restored_backup_is_used_as_it_is(stores: Stores) -> None:
    """Responses that began after the backup are missing; their blocks are reported as dropped."""
    store = await stores.opened()
    await store.begin(entry())
    await store.close()
    backup = path_of(stores).read_bytes()
    store = await stores.opened()
    await store.begin(entry("resp_2"))
    await store.close()
    path_of(stores).write_bytes(backup)
    store = await stores.opened()
    store.append("resp_2", log(1)[0])
    with pytest.raises(StoreError):
        await store.flush("resp_2")
    assert not await store.finish("resp_2", ending(log(1)))
    assert set(await audit(store)) == {"resp_1"}
