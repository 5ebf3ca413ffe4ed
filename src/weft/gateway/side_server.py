"""A server for some paths, in a process whose work is something else."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn

from weft.gateway.http_protocol import ConnectionLimits, protocol
from weft.gateway.server import QUIET, listen, url_of
from weft.gateway.uvicorn_internals import ASGI3Application

CLOSE_TIMEOUT = 2
"""Seconds for responses that are being sent when the process ends."""


class _SideServer(uvicorn.Server):
    """Signals belong to the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def side_server(app: ASGI3Application, host: str, port: int) -> AsyncIterator[str]:
    """Serves an app on the running loop; yields its URL. Raises OSError if it cannot listen."""
    sockets = listen(host, port)
    config = uvicorn.Config(
        app,
        http=protocol(ConnectionLimits()),
        ws="none",
        lifespan="off",
        **QUIET,
        timeout_graceful_shutdown=CLOSE_TIMEOUT,
    )
    server = _SideServer(config)
    serving = asyncio.create_task(server.serve(sockets))
    try:
        # Connections that come before it accepts them wait in the queue of the sockets.
        yield url_of(host, sockets)
    finally:
        server.should_exit = True
        await serving
