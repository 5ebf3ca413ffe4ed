"""A locked file for each server: the kernel releases the lock when the process dies, however it
dies, and everybody who can see the file can tell, even from another pid namespace.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path


class LockFile:
    """A file that this process holds locked until `release`, or until it dies."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor: int | None = os.open(path, flags, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Removes the file. May be called more than once."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._path.unlink(missing_ok=True)
            os.close(descriptor)


def is_released(path: Path) -> bool:
    """Whether the process that locked this file is certainly dead. A file that does not exist, or
    cannot be opened, proves nothing: its process may run on another machine.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def remove(path: Path) -> None:
    """Removes the file of a dead process."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
