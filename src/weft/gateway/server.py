"""The process that serves: starts, says where it listens, and leaves without cutting anyone short.

The first SIGTERM or SIGINT closes the listeners and the idle connections, and tells the app to
take no new work. What is open may go on for `drain` seconds; then the app is told to cut it, has a
few seconds to say so to its clients, and the process ends with 0. A second signal ends it now.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Protocol, TypeAlias

import uvicorn
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from weft.gateway.allocator import return_free_memory, reuse_large_blocks
from weft.gateway.descriptors import raise_limit
from weft.gateway.protocol import Door, DoorLimits, protocol
from weft.gateway.sockets import protocol as socket_protocol

CUT = 5.0
"""Seconds between telling the app to cut what is open and cutting it."""

NOW = 1.0
"""Seconds after a second signal in which the process is gone, whatever it does."""

BLOCKED = 0.1
"""Seconds without a turn after which the event loop counts as blocked."""

IDLE = 10
"""Seconds without a request after which free memory is returned to the kernel."""

BACKLOG = 2048
SPARE_DESCRIPTORS = 256
"""Beside two for each connection: its own, and that of its upstream."""

Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None
HANDLED = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger("weft.server")


class Drainable(Protocol):
    """What is served."""

    @property
    def app(self) -> ASGI3Application: ...

    def drain(self) -> None:
        """Called once, on the event loop: from now on there is no new work."""

    def cut(self) -> None:
        """Called once, on the event loop, if something is still open when the time is over: it
        should end now, and say so to its clients."""


def listen(host: str, port: int) -> list[socket.socket]:
    """Returns listening sockets, one for each address that the name has; port 0 is any free one,
    the same for all. Raises OSError."""
    found: list[socket.socket] = []
    kind, passive = socket.SOCK_STREAM, socket.AI_PASSIVE
    for family, *_, place in socket.getaddrinfo(host, port, type=kind, flags=passive):
        number = found[0].getsockname()[1] if found else port
        try:
            found.append(bind(family, (place[0], number, *place[2:])))
            found[-1].listen(BACKLOG)
        except OSError:
            if not found:
                raise  # a second address may be one that this machine does not have
    return found


def bind(family: int, place: tuple[object, ...], *options: int) -> socket.socket:
    """Returns a socket that is bound there, with more options than it needs. Raises OSError."""
    channel = socket.socket(family, socket.SOCK_STREAM)
    try:
        for option in (socket.SO_REUSEADDR, *options):
            channel.setsockopt(socket.SOL_SOCKET, option, 1)
        if family == socket.AF_INET6:
            channel.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        channel.bind(place)
    except OSError:
        channel.close()
        raise
    return channel


def address(host: str, sockets: Sequence[socket.socket]) -> str:
    """Returns the URL of what listens there."""
    port = sockets[0].getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def announce(url: str) -> None:
    """Says on stdout where the gateway listens."""
    print(f"listening on {url}", flush=True)


def serve(
    factory: Callable[[], Drainable],
    *,
    host: str = "127.0.0.1",
    port: int = 8787,
    sockets: list[socket.socket] | None = None,
    ready: Callable[[], None] | None = None,
    limits: DoorLimits | None = None,
    drain: float = 30.0,
    keep_alive: float = 75.0,
    websocket: bool = True,
    websocket_message: int = 32 * 1024 * 1024,
) -> int:
    """Serves until a signal comes; returns the exit code, 0 unless the app failed to start.

    `factory` is called in this process, before the event loop runs. Instead of host and port
    there may be sockets that listen. `ready` is called when requests are answered; without it,
    stdout says where. Raises OSError where one cannot listen.
    """
    reuse_large_blocks()
    served = factory()
    listening = listen(host, port) if sockets is None else sockets
    http = protocol(limits or DoorLimits())
    raise_limit(2 * http.limits.connections + SPARE_DESCRIPTORS)
    config = uvicorn.Config(
        served.app,
        http=http,
        ws=socket_protocol(http.lobby.memory) if websocket else "none",
        ws_max_size=websocket_message,
        ws_per_message_deflate=False,  # a small frame must not become a large message
        interface="asgi3",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=keep_alive,  # type: ignore[arg-type]
    )
    url = address(host, listening)
    server = Server(config, served, drain=drain, ready=ready or (lambda: announce(url)))
    try:
        server.run(listening)
    except SystemExit as failure:  # the way uvicorn says that the app did not start
        return failure.code if isinstance(failure.code, int) else 1
    return 0


def release(before: Mapping[int, Handler], *, left: bool) -> None:
    """Puts the handlers of signals back. A process that was asked to leave and did is about to end
    with its code: one more signal must not kill it on its last steps."""
    for number, handler in before.items():
        asked_to_leave = left and number in HANDLED
        signal.signal(number, signal.SIG_IGN if asked_to_leave else handler)


class Server(uvicorn.Server):
    """uvicorn's server, with its own way to leave."""

    def __init__(
        self,
        config: uvicorn.Config,
        served: Drainable,
        *,
        drain: float,
        ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self.drain = drain
        self._served = served
        self._ready = ready
        self._leave = asyncio.Event()
        self._hurry = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def stop(self) -> None:
        """The first time: begins to drain. The second time: ends at once. From any thread."""
        event = self._hurry if self.should_exit else self._leave
        self.force_exit, self.should_exit = self.should_exit, True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(event.set)

    # Signals

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn's, does not raise them again: to be asked to leave is no failure. A
        signal that is ignored stays so."""
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        heard = [one for one in HANDLED if signal.getsignal(one) is not signal.SIG_IGN]
        before: dict[int, Handler] = {one: signal.signal(one, self.handle_exit) for one in heard}
        try:
            yield
        finally:
            release(before, left=self.should_exit)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.stop()
        if self.force_exit:
            leave_within(NOW)

    # The life of the server

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        await self.on_tick(0)  # the first answer has a date, too
        if not self.should_exit:
            self._ready()

    async def main_loop(self) -> None:
        http = self.config.http_protocol_class
        lobby = http.lobby if issubclass(http, Door) else None
        idle = IDLE  # seconds without a request
        with watching(asyncio.get_running_loop()):
            while not self.should_exit:
                await self.on_tick(0)
                if lobby is not None:
                    lobby.descriptors.look()
                idle = 0 if self.server_state.tasks else idle + 1
                if idle == IDLE:
                    await asyncio.to_thread(return_free_memory)
                await _within(1.0, self._leave)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._close_listeners(sockets or [])
        self._served.drain()
        for connection in list(self.server_state.connections):
            if isinstance(connection, HttpToolsProtocol):  # a WebSocket is the app's to close
                connection.shutdown()
        if not await self._all_done(self.drain):
            log.warning("cut: %d connections are still open", len(self.server_state.connections))
            self._served.cut()
            await self._all_done(CUT)
        if threading.current_thread() is threading.main_thread():
            leave_within(CUT)  # an app that does not end is ended
        self._drop()
        await self._end_lifespan()

    def _close_listeners(self, sockets: list[socket.socket]) -> None:
        for server in self.servers:
            server.close()
        for channel in sockets:
            channel.close()

    async def _all_done(self, limit: float) -> bool:
        """Waits until nothing is open, the time is over, or there is a hurry; tells which."""
        state = self.server_state
        end = time.monotonic() + limit
        while state.connections or state.tasks:
            if time.monotonic() >= end or self._hurry.is_set():
                return False
            await _within(0.02, self._hurry)
        return True

    def _drop(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        for task in list(self.server_state.tasks):
            task.cancel()

    async def _end_lifespan(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.lifespan.shutdown(), NOW / 2 if self.force_exit else CUT)


async def _within(seconds: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


def leave_within(seconds: float) -> None:
    """Ends the process with 0 by then, if it did not end by itself."""
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()


# The watchdog


@contextlib.contextmanager
def watching(loop: asyncio.AbstractEventLoop, limit: float = BLOCKED) -> Iterator[None]:
    """While inside, a thread logs what the loop's thread does when the loop takes no turn for
    longer than the limit: once for each time."""
    watchdog = Watchdog(loop, limit)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.stop()


class Watchdog:
    """Use `watching`."""

    LONGEST = 10.0
    """Seconds after which a loop that is still blocked is logged all the same."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: float) -> None:
        self._loop = loop
        self._limit = limit
        self._turn = time.monotonic()
        self._watched = threading.get_ident()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._beat()
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        self._turn = time.monotonic()
        self._timer = self._loop.call_later(self._limit / 4, self._beat)

    def _watch(self) -> None:
        while not self._over.wait(self._limit / 2):
            turn = self._turn
            if time.monotonic() - turn > self._limit:
                self._report(turn, _stack(self._watched))

    def _report(self, turn: float, stack: str) -> None:
        end = time.monotonic() + self.LONGEST
        while self._turn == turn and time.monotonic() < end and not self._over.wait(0.005):
            pass
        blocked = time.monotonic() - turn
        log.warning("the event loop was blocked for %.0f ms:\n%s", 1000 * blocked, stack)
        while self._turn == turn and not self._over.wait(self._limit / 2):
            pass


def _stack(thread: int) -> str:
    frame = sys._current_frames().get(thread)
    return "".join(traceback.format_stack(frame)) if frame is not None else ""
