"""Checkpoints of a SQLite file: the thread copies what is much, the writer only what is little."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from weft.store.checkpoints import CHECKPOINT, PASSES, CheckpointPolicy, Checkpoints

KB = 1024
POLICY = CheckpointPolicy(interval=64 * KB, wal=512 * KB, max_wal=2048 * KB)
SALT = slice(16, 20)
"""Of the header of a WAL (sqlite.org/fileformat2.html, 4.1): another each time it starts over."""


class Writer(sqlite3.Connection):
    """Counts its checkpoints."""

    checkpoints = 0

    def execute(self, *arguments: object) -> sqlite3.Cursor:
        self.checkpoints += arguments[0] == CHECKPOINT
        return super().execute(*arguments)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "weft.db"


@pytest.fixture
def writer(path: Path) -> Iterator[Writer]:
    with closing(sqlite3.connect(path, isolation_level=None, factory=Writer)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("CREATE TABLE block (data)")
        yield writer


class Behind(sqlite3.Connection):
    """Each pass copies 4 MB, since so much was written during the one before."""

    passes = 0

    def execute(self, *arguments: object) -> sqlite3.Cursor:
        Behind.passes += 1
        return super().execute("SELECT 0, 1000000, ?", (1025 * Behind.passes,))


def commit(checkpoints: Checkpoints, writer: Writer, size: int = 64 * KB) -> None:
    """Commits so many bytes, and waits until the thread makes no checkpoint."""
    writer.execute("INSERT INTO block VALUES (?)", (bytes(size),))
    checkpoints.committed(writer, size)
    while checkpoints.running:
        os.sched_yield()


def test_the_wal_of_a_writer_that_never_pauses_starts_over(path: Path, writer: Writer) -> None:
    checkpoints = Checkpoints(path, lambda: sqlite3.connect(path), POLICY)
    wal, seen = path.with_name("weft.db-wal"), set[bytes]()
    for _ in range(200):
        writer.execute("INSERT INTO block VALUES (?)", (bytes(64 * KB),))
        checkpoints.committed(writer, 64 * KB)
        seen.add(wal.read_bytes()[SALT])
        if len(seen) == 3:
            break
        while checkpoints.running:
            writer.execute("INSERT INTO block VALUES (1)")
            checkpoints.committed(writer, KB)
    assert len(seen) == 3
    checkpoints.stop()
    checkpoints.close()


def test_the_writer_copies_what_is_left_if_that_is_little(path: Path, writer: Writer) -> None:
    checkpoints = Checkpoints(path, lambda: sqlite3.connect(path), POLICY)
    for number in range(POLICY.wal // (64 * KB)):
        assert writer.checkpoints == 0, number
        commit(checkpoints, writer)
    commit(checkpoints, writer)
    assert writer.checkpoints == 1
    checkpoints.stop()
    checkpoints.close()


def test_it_does_not_copy_what_is_much_before_the_wal_is_too_long(
    path: Path, writer: Writer
) -> None:
    Behind.passes = 0
    checkpoints = Checkpoints(path, lambda: sqlite3.connect(path, factory=Behind), POLICY)
    for number in range(POLICY.max_wal // (64 * KB)):
        assert writer.checkpoints == 0, number
        commit(checkpoints, writer)
    commit(checkpoints, writer)
    assert writer.checkpoints == 1
    assert Behind.passes % PASSES == 0
    checkpoints.stop()
    checkpoints.close()


def test_what_it_has_opened_is_closed(path: Path, writer: Writer) -> None:
    def opened() -> int:
        """How many descriptors of this process are the database."""
        identity, found = path.stat(), 0
        for one in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # the one that listed them is closed
                found += os.path.samestat(os.fstat(int(one.name)), identity)
        return found

    checkpoints = Checkpoints(path, lambda: sqlite3.connect(path), POLICY)
    commit(checkpoints, writer)
    checkpoints.stop()
    writer.close()
    assert opened() == 1
    checkpoints.close()
    assert opened() == 0
