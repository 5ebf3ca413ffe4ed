"""`/health` and `/ready`: whether the process lives, and whether it can take requests."""

import os
from pathlib import Path
from typing import Protocol

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse

from weft.gateway.sessions import Sessions

MIN_FREE_DISK = 16 * 1024 * 1024
"""Free bytes on the disk of the store below which the gateway is not ready: small writes may still
succeed then, but a response may not fit."""


class ProbedGateway(Protocol):
    @property
    def is_draining(self) -> bool: ...

    @property
    def open_requests(self) -> int: ...


class Probes:
    """Answers the probes of a gateway."""

    def __init__(self, gateway: ProbedGateway, sessions: Sessions | None, store_url: str) -> None:
        """Without `sessions` nothing is stored."""
        self._gateway = gateway
        self._sessions = sessions
        self._disk = None if sessions is None else disk_of(store_url)

    async def health(self, request: HttpRequest) -> HttpResponse:
        return _json({"status": "ok"})

    async def ready(self, request: HttpRequest) -> HttpResponse:
        sessions, is_draining = self._sessions, self._gateway.is_draining
        reason = None
        if is_draining:
            reason = "the server is shutting down"
        elif sessions is not None and sessions.lease_error is not None:
            # Each renewal of the lease is a write, so a probe need not try one of its own.
            reason = f"the store accepts no writes: {sessions.lease_error}"
        elif self._disk is not None and free_bytes(self._disk) < MIN_FREE_DISK:
            reason = "the disk of the store is full"
        count = self._gateway.open_requests
        if reason is None:
            return _json({"status": "ready", "open": count})
        status = "draining" if is_draining else "unready"
        return _json({"status": status, "reason": reason, "open": count}, 503)


def disk_of(url: str) -> Path | None:
    """Returns the folder of an SQLite store; None for other stores."""
    file = url.removeprefix("sqlite:///")
    return None if file == url else Path(file).parent


def free_bytes(folder: Path) -> int:
    """Returns the free space on the disk of a folder."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def _json(value: object, status: int = 200) -> HttpResponse:
    return HttpResponse(msgspec.json.encode(value), status, media_type="application/json")
