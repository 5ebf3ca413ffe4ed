"""Which servers are alive, and which of them may write to a response.

1. A server takes a lease under a random id. Its row in `server` holds the expiry time; only the
   clock of the database counts. Host name and pid are informative.
2. Only the server named in the row of a running response can write to it. A server that takes the
   response over writes its own id there: from then on every write of the other is refused.
3. A lease is revoked at once if its process is known to be dead (`lockfile`). Otherwise it must
   have expired, and must be unchanged some time after that was first seen: a server that comes
   back together with the database, or whose clock differs, has time to renew its lease.
4. A revoked lease is never renewed. Its server takes a new one under a new id, and no longer owns
   what it ran under the old one.
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
from weft.store.base import StoreError
from weft.store.lockfile import LockFile, is_released, remove
from weft.store.operations import Lease
from weft.store.queries import Queries

T = TypeVar("T")

CONFIRMATION = 1 / 4
"""The fraction of its length for which an expired lease is watched before it is revoked."""


class RunQueries(Protocol):
    """Runs queries; see `Database.read`."""

    async def __call__(self, make: Callable[[], Queries[T]]) -> T: ...


class RunOperation(Protocol):
    """Runs an operation; see `Writer.submit`."""

    async def __call__(self, make: Callable[[], Queries[T]], *, last: bool = False) -> T: ...


class _Suspect(msgspec.Struct, frozen=True):
    lease: Lease
    since: float
    """When it was first seen expired, by the clock of our event loop."""


class Leases:
    """The lease of this server, and those of the others."""

    def __init__(
        self, server: str, lock_path: Callable[[str], Path], write: RunOperation, read: RunQueries
    ) -> None:
        """`server` is the id until a lease is taken."""
        self.server = server
        self._lock_path = lock_path
        self._write = write
        self._read = read
        self._length = 0.0
        """Seconds; 0: no lease was taken."""
        self._renewed = 0.0
        """When the lease was renewed last, by the clock of the event loop."""
        self._lock: LockFile | None = None
        self._renewing: asyncio.Task[None] | None = None
        """The attempt that is under way, for all that wait for one."""
        self._suspects: dict[str, _Suspect] = {}

    async def take(self, length: float) -> None:
        self._length = length
        await self._take()

    async def renew(self) -> None:
        """Callers share one attempt: after one another, each of them would wait for a database that
        is away as long as all before it together."""
        is_shared = self._renewing is not None
        try:
            await self._attempt()
        except StoreError:
            # An attempt that began before this call may have timed out just when the database came
            # back.
            if not is_shared:
                raise
            await self._attempt()

    async def _attempt(self) -> None:
        """Returns when the attempt that is under way has succeeded, or else a new one."""
        if self._renewing is None:
            self._renewing = asyncio.get_running_loop().create_task(self._renew())
            self._renewing.add_done_callback(self._renewal_ended)
        # A caller that leaves must not cancel it for the others.
        await asyncio.shield(self._renewing)

    async def _renew(self) -> None:
        sent_at = asyncio.get_running_loop().time()
        if await self._write(partial(operations.renew_lease, self.server, self._length)):
            self._renewed = sent_at
        else:
            await self._take()

    def _renewal_ended(self, renewing: "asyncio.Task[None]") -> None:
        self._renewing = None
        if not renewing.cancelled():
            renewing.exception()  # retrieved here, since all callers may have left

    async def ensure(self) -> str:
        since = asyncio.get_running_loop().time() - self._renewed
        if self._length and since > self._length:
            await self.renew()
        return self.server

    async def release(self) -> None:
        """Returns when the row is deleted. The lock file is released in any case. Raises
        StoreError."""
        if not self._length:
            return
        lock, self._lock, self._length = self._lock, None, 0.0
        try:
            # Last: nobody takes over what this server is still ending.
            release = partial(operations.release_lease, self.server)
            await self._write(release, last=True)
        finally:
            if lock is not None:
                lock.release()

    async def _take(self) -> None:
        server, sent_at = secrets.token_hex(16), asyncio.get_running_loop().time()
        lock = await asyncio.to_thread(_locked, self._lock_path(server))
        row = (server, socket.gethostname(), os.getpid(), self._length)
        try:
            await self._write(partial(operations.take_lease, *row))
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        if self._lock is not None:
            self._lock.release()
        self._lock, self.server, self._renewed = lock, server, sent_at

    # The others

    async def revoke_dead(self) -> None:
        leases = await self._read(partial(operations.leases, self.server))
        now = asyncio.get_running_loop().time()
        before, self._suspects = self._suspects, {}
        for lease in leases:
            if lease.expired:
                suspect = before.get(lease.server)
                if suspect is None or suspect.lease != lease:  # new, or renewed since
                    suspect = _Suspect(lease, now)
                self._suspects[lease.server] = suspect
        for lease in leases:
            path, watched = self._lock_path(lease.server), self._suspects.get(lease.server)
            is_dead = watched is not None and now - watched.since >= self._length * CONFIRMATION
            is_dead = is_dead or await asyncio.to_thread(is_released, path)
            if is_dead and await self._write(partial(operations.revoke_lease, lease)):
                await asyncio.to_thread(remove, path)


def _locked(path: Path) -> LockFile | None:
    """None where no such file can be made: other servers then wait for the lease to expire."""
    try:
        return LockFile(path)
    except OSError:
        return None
