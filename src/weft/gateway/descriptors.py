"""The file descriptors of the process: some are kept free for upstreams and the store.

A new descriptor has the lowest free number, so its number tells how many are in use. When only the
reserve is left, a new connection gets 503 before accept() itself fails, which could be neither
answered nor logged. Only the change is logged, not every connection.
"""

import logging
import os
import resource
import sys

RESERVE = 16
"""Descriptors that no client connection gets."""

log = logging.getLogger("weft.server")


class FileDescriptors:
    """Whether one process has descriptors left for clients."""

    def __init__(self) -> None:
        self.are_exhausted = False
        self._highest = -1
        """The highest number that was allowed since the last check."""

    def allow(self, number: int) -> bool:
        """Returns whether a client connection may have the descriptor with this number."""
        if number <= self._highest:
            return True
        limit = _soft_limit()
        if number < limit - RESERVE:
            self._highest = number
            return True
        self._exhaust(limit)
        return False

    def check(self) -> None:
        """Updates the state; called every second. There are enough descriptors again when twice the
        reserve is free: otherwise the state could change with every connection."""
        limit, self._highest = _soft_limit(), -1
        try:
            # POSIX: the lowest free number, as for accept().
            number = os.dup(0)
        except OSError:
            self._exhaust(limit)
            return
        os.close(number)
        if number >= limit - RESERVE:
            self._exhaust(limit)
        elif self.are_exhausted and number < limit - 2 * RESERVE:
            self.are_exhausted = False
            log.warning("file descriptors are available again: new connections are accepted")

    def _exhaust(self, limit: int) -> None:
        if not self.are_exhausted:
            self.are_exhausted = True
            log.error(
                "out of file descriptors (limit %d): new connections get 503. Raise the limit "
                "(ulimit -n), or lower server.limits.connections",
                limit,
            )


def _soft_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def raise_limit(wanted: int) -> None:
    """Raises the soft limit of descriptors to this number, as far as the hard limit allows."""
    # The soft limit is 1024 on most systems, for the sake of select(); the hard one is what was
    # granted.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and most > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
