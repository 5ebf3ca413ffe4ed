"""Whether the process has file descriptors left: some are kept for upstreams and the store.

A new descriptor has the lowest number that is free, so its number tells how many there are. When
only the last ones are free, a new connection gets 503 before the system itself has to refuse it,
which would be neither answered nor logged. What is logged is the change, not every connection.
"""

import logging
import os
import resource
import sys

RESERVE = 16
"""Descriptors that no new client gets."""

log = logging.getLogger("weft.server")


class FileDescriptors:
    """What one process knows of its descriptors."""

    def __init__(self) -> None:
        self.are_short = False

    def take(self, number: int) -> bool:
        """Returns whether a client may have the descriptor of this number."""
        limit = _limit()
        if number < limit - RESERVE:
            return True
        self._run_short(limit)
        return False

    def look(self) -> None:
        """Notes a change that no connection told of. There are enough again when twice the reserve
        is free: at the edge the state would change with every connection."""
        limit = _limit()
        try:
            number = os.dup(0)
        except OSError:
            self._run_short(limit)
            return
        os.close(number)
        if number >= limit - RESERVE:
            self._run_short(limit)
        elif self.are_short and number < limit - 2 * RESERVE:
            self.are_short = False
            log.warning("there are enough file descriptors again")

    def _run_short(self, limit: int) -> None:
        if not self.are_short:
            self.are_short = True
            log.error(
                "out of file descriptors (the limit is %d): new connections get 503. Raise the "
                "limit (ulimit -n), or lower server.limits.connections",
                limit,
            )


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def raise_limit(wanted: int) -> None:
    """Has the system allow so many descriptors, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and most > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
