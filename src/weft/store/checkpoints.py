"""Checkpoints of a SQLite file beside its writer.

A commit appends pages to the WAL; a checkpoint copies them into the file itself, and the next
transaction that finds all of them copied starts the WAL over (sqlite.org/wal.html). Left to SQLite,
the commit that makes the WAL too long also copies it, and everybody waits: 32 MB took 100 ms where
the commits took 10.

Here a thread with a connection of its own copies while the writer goes on ("passive"). A writer
that never pauses would never let it copy the last page, so from time to time the writer copies the
rest itself, right after the thread. A checkpoint that fails is no error: the pages stay in the WAL,
and the next one copies them.

SQLite syncs the file only in a checkpoint that copies the last page, which is the writer's. All
that the thread has copied would be written to the disk then: 300 ms behind a response of 60 MB. So
the thread syncs what it has copied, and the writer waits until the thread has left little.
"""

import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

PASSES = 8
"""Of the thread, at most: each copies what was written during the one before. The last one is
short, so it often ends before the next commit, and the WAL starts over by itself."""

LITTLE = 1024
"""Pages that the last pass copies, at most: about as many are left then."""

CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """Sizes in bytes."""

    interval: int = 16 * 1024 * 1024
    """What is written between two checkpoints: pages that change often are copied once."""

    wal: int = 256 * 1024 * 1024
    """What is written until the writer copies what is left, if that is little."""

    max_wal: int = 512 * 1024 * 1024
    """What is written until it does so in any case, however long that takes."""


class Checkpoints:
    """Used by the writer's thread. `connect` opens a connection to the file at `path`."""

    def __init__(
        self,
        path: Path,
        connect: Callable[[], sqlite3.Connection],
        policy: CheckpointPolicy | None = None,
    ) -> None:
        self._path = path
        self._policy = policy or CheckpointPolicy()
        self._connect = connect
        self._file: int | None = None
        self._thread = ThreadPoolExecutor(1, "weft-store-checkpoint")
        self._running: Future[bool] | None = None
        self._written = 0
        """Bytes since the thread began its last checkpoint."""
        self._length = 0
        """Bytes since the writer's own."""

    def committed(self, writer: sqlite3.Connection, size: int) -> None:
        """Counts what a commit has written, and does what is due."""
        self._written += size
        self._length += size
        if self._running is None:
            if self._written >= self._policy.interval:
                self._written = 0
                self._running = self._thread.submit(self._checkpoint)
        elif self._running.done():
            left_little = self._running.result()
            self._running = None
            if self._length >= (self._policy.wal if left_little else self._policy.max_wal):
                self._length = 0
                with suppress(sqlite3.Error):
                    writer.execute(CHECKPOINT)

    @property
    def running(self) -> bool:
        """Whether the thread makes a checkpoint."""
        return self._running is not None and not self._running.done()

    def stop(self) -> None:
        """Returns when no checkpoint is running."""
        self._thread.shutdown(wait=True)

    def close(self) -> None:
        """Called last: to close a file releases all locks that this process has on it, also those
        of SQLite (sqlite.org/howtocorrupt.html, 2.2)."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _checkpoint(self) -> bool:
        """Returns whether little is left to copy."""
        before = 0
        with suppress(sqlite3.Error, OSError), closing(self._connect()) as connection:
            for _ in range(PASSES):
                _, _, copied = connection.execute(CHECKPOINT).fetchone()
                if self._file is None:
                    self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
                os.fsync(self._file)
                if copied - before <= LITTLE:
                    return True
                before = copied
        return False
