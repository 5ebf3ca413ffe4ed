"""The server process: starts, prints where it listens, and drains before it exits.

The first SIGTERM or SIGINT closes the listeners and idle connections, and the app accepts no new
work. Open responses may go on for `drain` seconds; then the app aborts them, has a few seconds to
tell its clients, and the process exits with 0. A second signal ends it at once.
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
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, TypeAlias

import uvicorn

from weft.gateway.allocator import return_free_memory, reuse_large_blocks
from weft.gateway.buffered_transport import set_socket_options
from weft.gateway.descriptors import raise_limit
from weft.gateway.http_protocol import ConnectionLimits, HttpProtocol, protocol
from weft.gateway.uvicorn_internals import ASGI3Application, HttpToolsProtocol
from weft.gateway.websocket_protocol import protocol as socket_protocol
from weft.log_events import log_event

ABORT_TIMEOUT = 5.0
"""Seconds that the app has to abort open responses, before their connections are dropped."""

FORCED_EXIT = 1.0
"""Seconds after a second signal until the process exits, whatever it does."""

BLOCKED = 0.1
"""Seconds without a turn after which the event loop counts as blocked."""

BACKLOG = 2048
SPARE_DESCRIPTORS = 256
"""Beside two for each connection: its own, and that of its upstream."""

IDLE = 10
"""Seconds without a request after which free memory is returned to the kernel."""

# uvicorn's defaults guess the interface, configure logging, write a line per request, believe
# X-Forwarded-For, and name the server.
QUIET: dict[str, Any] = {
    "interface": "asgi3",
    "log_config": None,
    "access_log": False,
    "proxy_headers": False,
    "server_header": False,
}

Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None
EXIT_SIGNALS = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger("weft.server")


class Drainable(Protocol):
    """An application that can be drained."""

    @property
    def app(self) -> ASGI3Application: ...

    def drain(self) -> None:
        """Called once, on the event loop: from now on no new request is accepted."""

    def abort(self) -> None:
        """Called once, on the event loop, if responses are still open after the drain time: they
        should end now, with an error for their clients."""


def listen(host: str, port: int) -> list[socket.socket]:
    """Returns listening sockets, one for each address of the host; port 0 is a free one, the same
    for all. Raises OSError."""
    found: list[socket.socket] = []
    kind, passive = socket.SOCK_STREAM, socket.AI_PASSIVE
    # `localhost` is both ::1 and 127.0.0.1, and clients try either first.
    for family, *_, where in socket.getaddrinfo(host, port, type=kind, flags=passive):
        number = found[0].getsockname()[1] if found else port
        try:
            found.append(bind(family, (where[0], number, *where[2:])))
            found[-1].listen(BACKLOG)
        except OSError:
            if not found:
                raise  # this machine may not have the other addresses
    return found


def bind(family: int, where: tuple[object, ...], *options: int) -> socket.socket:
    """Returns a bound socket with SO_REUSEADDR and further options. Raises OSError."""
    channel = socket.socket(family, socket.SOCK_STREAM)
    try:
        # SO_REUSEADDR: a restart must not wait for old connections in TIME_WAIT.
        for option in (socket.SO_REUSEADDR, *options):
            channel.setsockopt(socket.SOL_SOCKET, option, 1)
        if family == socket.AF_INET6:
            # On Linux `::` takes IPv4 as well, and 0.0.0.0 on the same port would fail.
            channel.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        channel.bind(where)
    except OSError:
        channel.close()
        raise
    return channel


def url_of(host: str, sockets: Sequence[socket.socket]) -> str:
    """Returns the URL of listening sockets."""
    port = sockets[0].getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def announce(url: str) -> None:
    """Prints where the gateway listens."""
    print(f"listening on {url}", flush=True)


Announce: TypeAlias = Callable[[str], None]
"""Called with the URL once requests are answered."""


def serve(
    factory: Callable[[], Drainable],
    *,
    host: str = "127.0.0.1",
    port: int = 8787,
    sockets: list[socket.socket] | None = None,
    ready: Callable[[], None] | None = None,
    announce: Announce = announce,
    limits: ConnectionLimits | None = None,
    drain: float = 30.0,
    keep_alive: float = 75.0,
    websocket: bool = True,
    websocket_message: int = 32 * 1024 * 1024,
    reload: Callable[[], None] | None = None,
) -> int:
    """Serves until a signal; returns the exit code: 0, unless the app failed to start.

    `factory` is called in this process, before the event loop runs. Listening `sockets` replace
    host and port. `ready` is called once requests are answered; by default `announce` is, with the
    URL.
    `reload` is called on the loop when SIGHUP comes. Raises OSError if it cannot listen.
    """
    # First: mallopt has to run before anything starts a thread.
    reuse_large_blocks()
    served = factory()
    listening = listen(host, port) if sockets is None else sockets
    http = protocol(limits or ConnectionLimits())
    raise_limit(2 * http.limits.connections + SPARE_DESCRIPTORS)
    config = uvicorn.Config(
        served.app,
        http=http,
        ws=socket_protocol(http.registry.memory) if websocket else "none",
        ws_max_size=websocket_message,
        ws_per_message_deflate=False,  # a small frame could inflate to a large message
        lifespan="on",  # by default it goes on if the app does not start
        **QUIET,
        timeout_keep_alive=keep_alive,  # type: ignore[arg-type]
    )
    url = url_of(host, listening)
    server = GatewayServer(
        config, served, drain=drain, ready=ready or (lambda: announce(url)), reload=reload
    )
    try:
        server.run(listening)
    except SystemExit as failure:  # raised by uvicorn if the app did not start
        return failure.code if isinstance(failure.code, int) else 1
    return 0


def restore_signals(before: Mapping[int, Handler], *, exiting: bool) -> None:
    """Restores the signal handlers. A process that is exiting as it was asked to ignores further
    signals: they must not change its exit code."""
    for number, handler in before.items():
        is_ignored = exiting and number in EXIT_SIGNALS
        signal.signal(number, signal.SIG_IGN if is_ignored else handler)


class GatewayServer(uvicorn.Server):
    """uvicorn's server, with its own way to shut down."""

    def __init__(
        self,
        config: uvicorn.Config,
        served: Drainable,
        *,
        drain: float,
        ready: Callable[[], None],
        reload: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(config)
        self._reload = reload
        self._has_terminal = sys.stderr.isatty()
        self.drain = drain
        self._served = served
        self._ready = ready
        self._drain_event = asyncio.Event()
        self._force_event = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reason = "asked to stop"

    def stop(self) -> None:
        """Begins to drain; the second time, exits at once. Can be called from any thread."""
        # The flags are set here, not on the loop: a signal may come before the loop runs, or while
        # it is blocked.
        event = self._force_event if self.should_exit else self._drain_event
        self.force_exit, self.should_exit = self.should_exit, True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(event.set)

    # Signals

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Unlike uvicorn's, does not raise the signal again: an exit on request is no failure.
        Ignored signals stay ignored."""
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = [one for one in EXIT_SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
        before: dict[int, Handler] = {one: signal.signal(one, self.handle_exit) for one in handled}
        if self._reload is not None and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self.handle_hangup)
        try:
            yield
        finally:
            restore_signals(before, exiting=self.should_exit)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._reason = signal.Signals(sig).name
        self.stop()
        if self.force_exit:
            exit_within(FORCED_EXIT)

    def handle_hangup(self, sig: int, frame: FrameType | None) -> None:
        # The kernel sends the same signal when a terminal is closed: nobody will read the log, or
        # press Ctrl-C.
        if self._has_terminal and not os.isatty(2):
            self.handle_exit(sig, frame)
        elif self._reload is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._reload)

    # Startup, serving and shutdown

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in sockets or ():
            set_socket_options(listener)
        await super().startup(sockets)
        await self.on_tick(0)  # sets the Date header of the first response
        if not self.should_exit:
            self._ready()

    async def main_loop(self) -> None:
        http = self.config.http_protocol_class
        registry = http.registry if issubclass(http, HttpProtocol) else None
        # Begins as already idle: a new process has nothing to return.
        idle = IDLE  # seconds without a request
        with Watchdog(asyncio.get_running_loop()):
            while not self.should_exit:
                await self.on_tick(0)
                if registry is not None:
                    registry.descriptors.check()
                idle = 0 if self.server_state.tasks else idle + 1
                if idle == IDLE:
                    # In a thread: it takes up to tens of milliseconds, and a request may come just
                    # now.
                    await asyncio.to_thread(return_free_memory)
                await _wait_for(1.0, self._drain_event)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Listeners first: a client that is refused by the kernel tries another server at once.
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        # Before the connections: a request that is parsed from here on must find the app draining.
        self._served.drain()
        about = log_event("draining", connections=len(self.server_state.connections))
        log.info("%s: draining for up to %g s", self._reason, self.drain, extra=about)
        for connection in list(self.server_state.connections):
            if isinstance(connection, HttpToolsProtocol):  # the app closes its WebSockets
                connection.shutdown()
        if not await self._wait_until_idle(self.drain):
            connections = len(self.server_state.connections)
            reason = "a second signal" if self.force_exit else "the drain time is over"
            about = log_event("aborting", connections=connections)
            log.warning("aborting %d connections: %s", connections, reason, extra=about)
            self._served.abort()
            await self._wait_until_idle(ABORT_TIMEOUT)
        if threading.current_thread() is threading.main_thread():
            exit_within(ABORT_TIMEOUT)  # even if the app does not end
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        for task in list(self.server_state.tasks):
            task.cancel()
        with contextlib.suppress(TimeoutError):
            # Half: the rest is for what runs after it, before exit_within ends the process.
            timeout = FORCED_EXIT / 2 if self.force_exit else ABORT_TIMEOUT
            await asyncio.wait_for(self.lifespan.shutdown(), timeout)
        log.info("stopped", extra=log_event("stopped"))

    async def _wait_until_idle(self, limit: float) -> bool:
        """Waits until no connection is open; returns False after `limit` seconds, or a second
        signal."""
        state = self.server_state
        end = time.monotonic() + limit
        while state.connections or state.tasks:
            if time.monotonic() >= end or self._force_event.is_set():
                return False
            await _wait_for(0.02, self._force_event)
        return True


async def _wait_for(seconds: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


def exit_within(seconds: float) -> None:
    """Ends the process with exit code 0 after these seconds, if it still runs."""
    # A thread, since the event loop may be what hangs; and os._exit, since sys.exit would end only
    # that thread.
    timer = threading.Timer(seconds, os._exit, (0,))
    timer.daemon = True
    timer.start()


# The watchdog


class Watchdog:
    """A context in which a thread logs what blocks the loop's thread for longer than `limit`
    seconds, once for each time. It says nothing where nobody is to blame: the process was stopped,
    or the machine had no time for it.

    The thread looks at what the loop does. Only if that is neither to wait nor to turn, it asks the
    loop for an answer: a heartbeat would wake a loop that has nothing to do, twenty times a second.
    """

    LONGEST = 10.0
    """Seconds after which a loop that is still blocked is logged."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: float = BLOCKED) -> None:
        self._loop = loop
        self._limit = limit
        self._watched = threading.get_ident()
        self._schedule: int | None = None
        """A file that tells how long the loop's thread has waited for a processor."""
        with contextlib.suppress(OSError):  # not Linux
            path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
            self._schedule = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._asked = 0
        self._answered = 0
        """The last question that the loop has answered."""
        self._turned = time.monotonic()
        """When the loop was last known not to be blocked."""
        # Held until the end: to wait for a lock is one call, to wait for an event a dozen, and the
        # thread needs the interpreter for each.
        self._running = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> None:
        self._running.acquire()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._running.release()
        self._thread.join()
        if self._schedule is not None:
            os.close(self._schedule)

    def _answer(self, number: int) -> None:
        """Runs on the loop."""
        self._turned, self._answered = time.monotonic(), number

    def _has_ended(self, seconds: float) -> bool:
        """Waits that long, but not beyond the end; returns whether that has come."""
        if not self._running.acquire(timeout=seconds):
            return False
        self._running.release()
        return True

    def _waited(self) -> float:
        """Seconds that the loop's thread has waited for a processor; 0 where that is not known."""
        if self._schedule is None:
            return 0.0
        try:
            # Documentation/scheduler/sched-stats.rst: on the processor, waiting for it, slices.
            return int(os.pread(self._schedule, 100, 0).split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0

    def _watch(self) -> None:
        while not self._has_ended(self._limit / 2):
            now = time.monotonic()  # before the look: the loop may be blocked right after it
            frame = sys._current_frames().get(self._watched)
            # In its own code the loop waits for events, or is between two callbacks.
            is_waiting = frame is None or frame.f_code.co_name in _LOOP_FRAMES
            del frame  # it holds everything that its callers hold
            if is_waiting:
                self._turned = now
            else:
                self._ask()

    def _ask(self) -> None:
        """Asks the loop for an answer, and returns when it has given one; logs what it does if that
        takes too long."""
        self._asked += 1
        turned = self._turned
        asked, used, before = time.monotonic(), time.process_time(), self._waited()
        self._loop.call_soon_threadsafe(self._answer, self._asked)
        # In two steps: a loop that is busy answers soon, and has to be looked at again.
        for _ in range(2):
            if self._has_ended(self._limit / 2) or self._answered == self._asked:
                return
        # This thread is late as well, and no other has worked: the process was stopped, and nobody
        # knows what the loop would have done. If it is blocked, the next look finds it.
        if time.monotonic() - asked - self._limit - (time.process_time() - used) > self._limit / 2:
            return
        # Taken while it is blocked; afterwards the stack would be innocent.
        frame = sys._current_frames().get(self._watched)
        stack = traceback.extract_stack(frame) if frame is not None else []
        end = time.monotonic() + self.LONGEST
        while self._is_blocked(0.005) and time.monotonic() < end:
            pass
        now, starved = time.monotonic(), self._waited() - before
        culprit = culprit_of(stack)
        if culprit is not None and now - asked - starved > self._limit:
            about = log_event("loop-blocked", ms=round(1000 * (now - turned)))
            lines = "".join(traceback.format_list(stack))
            log.warning(
                "the event loop was blocked for %.0f ms by %s:\n%s",
                *(1000 * (now - turned), culprit, lines),
                extra=about,
            )
        # One line for each time it blocks, however long.
        while self._is_blocked(self._limit / 2):
            pass

    def _is_blocked(self, pause: float) -> bool:
        """Whether the loop has not answered after `pause` seconds."""
        return self._answered != self._asked and not self._has_ended(pause)


def culprit_of(stack: Sequence[traceback.FrameSummary]) -> str | None:
    """Returns the place that blocks the loop: the innermost frame. None if that is the loop itself,
    which then waits for events, or for its turn."""
    if not stack or stack[-1].name in _LOOP_FRAMES:
        return None
    frame = stack[-1]
    return f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})"


_LOOP_FRAMES = frozenset(("run", "run_forever", "run_until_complete", "_run_once", "select"))
"""The functions of asyncio that run a loop, and wait."""
