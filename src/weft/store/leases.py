"""Which servers are alive, and which of them may write to a response.

1. A server takes a lease under an id of its own, drawn at random. Its row in `server` says until
   when the lease holds; the database's clock decides. No host name and no pid decides anything.
2. Only the server that the row of a running response names can write to it. Whoever takes the
   response over puts its own id there: from then on every write of the other is refused.
3. A lease is revoked at once if its process is known to be dead (`lockfile`). Else it must have run
   out, and must still be the same some time after that was first seen: a server that is back
   together with the database, or has another clock, has time to renew its lease.
4. A lease that was revoked is never renewed. Its server takes another under another id, and what it
   ran under the old one is no longer its own.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from weft.store import operations
from weft.store.lockfile import LockFile, is_released, remove
from weft.store.operations import Lease
from weft.store.queries import Queries

T = TypeVar("T")

CONFIRMATION = 1 / 4
"""Of the length of a lease: how long one that has run out is watched before it is revoked."""


class RunWrite(Protocol):
    """Writes: see `writer.Writer.submit`."""

    async def __call__(self, make: Callable[[], Queries[T]]) -> T: ...


class RunRead(Protocol):
    async def __call__(self, make: Callable[[], Queries[T]]) -> T: ...


class _Suspect(msgspec.Struct, frozen=True):
    lease: Lease
    since: float
    """When it was first seen to have run out, by our own clock."""


class Leases:
    """The lease of this server, and those of the others."""

    def __init__(
        self, server: str, lock_path: Callable[[str], Path], submit: RunWrite, read: RunRead
    ) -> None:
        """`server` is the id until a lease is taken."""
        self.server = server
        self._lock_path = lock_path
        self._submit = submit
        self._read = read
        self._length = 0.0
        """Seconds; 0: no lease was taken."""
        self._renewed = 0.0
        """When the lease was renewed last, by the clock of the loop."""
        self._lock: LockFile | None = None
        self._changing = asyncio.Lock()
        self._suspects: dict[str, _Suspect] = {}

    async def take(self, length: float) -> None:
        self._length = length
        await self._take()

    async def renew(self) -> None:
        async with self._changing:
            sent_at = asyncio.get_running_loop().time()
            renewal = partial(operations.renew_lease, self.server, self._length)
            if await self._submit(renewal):
                self._renewed = sent_at
            else:
                await self._take()

    async def ensure(self) -> str:
        since = asyncio.get_running_loop().time() - self._renewed
        if self._length and since > self._length:
            await self.renew()
        return self.server

    async def release(self) -> None:
        """Returns when the row is gone; the lock is let go of in any case. Raises StoreError."""
        if not self._length:
            return
        lock, self._lock, self._length = self._lock, None, 0.0
        try:
            await self._submit(partial(operations.release_lease, self.server))
        finally:
            if lock is not None:
                lock.release()

    async def _take(self) -> None:
        server, sent_at = secrets.token_hex(16), asyncio.get_running_loop().time()
        lock = await asyncio.to_thread(_locked, self._lock_path(server))
        about = (server, socket.gethostname(), os.getpid(), self._length)
        try:
            await self._submit(partial(operations.take_lease, *about))
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        if self._lock is not None:
            self._lock.release()
        self._lock, self.server, self._renewed = lock, server, sent_at

    # The others

    async def revoke_dead(self) -> None:
        found = await self._read(partial(operations.leases, self.server))
        now = asyncio.get_running_loop().time()
        suspects = {one.server: self._suspect(one, now) for one in found if one.expired}
        self._suspects = suspects
        for one in found:
            path = self._lock_path(one.server)
            watched = now - suspects[one.server].since if one.expired else -1.0
            is_dead = watched >= self._length * CONFIRMATION
            is_dead = is_dead or await asyncio.to_thread(is_released, path)
            if is_dead and await self._submit(partial(operations.revoke_lease, one)):
                await asyncio.to_thread(remove, path)

    def _suspect(self, lease: Lease, now: float) -> _Suspect:
        before = self._suspects.get(lease.server)
        return before if before is not None and before.lease == lease else _Suspect(lease, now)


def _locked(path: Path) -> LockFile | None:
    """Where there can be no such file, the others wait for the lease to run out."""
    try:
        return LockFile(path)
    except OSError:
        return None
