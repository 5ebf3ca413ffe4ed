"""Checkpoints of a SQLite file beside its writer.

A commit appends pages to the WAL; a checkpoint copies them into the file itself, and the next
transaction that finds all of them copied starts the WAL over (sqlite.org/wal.html). Left to SQLite,
the commit that makes the WAL too long also copies it, and everybody waits: 32 MB took 100 ms where
the commits took 10.

Here a thread with a connection of its own copies while the writer goes on ("passive"). A writer
that never pauses would never let it copy the last page, so from time to time the writer copies the
rest itself, right after the thread: that is little then. A checkpoint that fails is no error: the
pages stay in the WAL, and the next one copies them.
"""

import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress

INTERVAL = 16 * 1024 * 1024
"""Bytes that are written between two checkpoints: pages that change often are copied once."""

PASSES = 2
"""Of the thread: the second copies what was written during the first. That is little, so it often
ends before the next commit, and the WAL starts over by itself."""

WAL_LENGTH = 256 * 1024 * 1024
"""Bytes after which the writer copies the rest itself: it then waits 30 to 90 ms for the disk."""

CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"


class Checkpoints:
    """Used by the writer's thread. `connect` opens a connection to the file."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._thread = ThreadPoolExecutor(1, "weft-store-checkpoint")
        self._running: Future[None] | None = None
        self._written = 0
        """Bytes since the thread began its last checkpoint."""
        self._length = 0
        """Bytes since the writer's own."""

    def committed(self, writer: sqlite3.Connection, size: int) -> None:
        """Counts what a commit has written, and does what is due."""
        self._written += size
        self._length += size
        if self._running is None:
            if self._written >= INTERVAL:
                self._written = 0
                self._running = self._thread.submit(self._checkpoint)
        elif self._running.done():
            self._running = None
            if self._length >= WAL_LENGTH:
                self._length = 0
                with suppress(sqlite3.Error):
                    writer.execute(CHECKPOINT)

    def close(self) -> None:
        """Returns when no checkpoint is running."""
        self._thread.shutdown(wait=True)

    def _checkpoint(self) -> None:
        with suppress(sqlite3.Error), closing(self._connect()) as connection:
            for _ in range(PASSES):
                connection.execute(CHECKPOINT)
