"""Several processes behind one listening socket, and the one that looks after them.

The parent binds, forks, starts again what died, and passes signals on; it answers nothing itself,
so little can go wrong in it. A worker that dies soon after its start is started again later and
later. A worker whose parent is gone drains.

On Linux each worker has a socket of its own at the same port, and the kernel deals connections
out evenly; behind one socket for all, a worker that wakes first takes most of a burst (of 400
connections at once, two workers got 338 and 62; with a socket each, 214 and 186). Only a worker's
own queue dies with it. Elsewhere there is one socket for all.
"""

import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

from weft.gateway.server import BACKLOG, Handler, announce, bind, listen, restore_signals, url_of

MIN_RESTART_DELAY, MAX_RESTART_DELAY = 0.1, 10.0
"""Seconds before a worker is started again: doubled each time, while it dies young."""

CRASH_LOOP = 60.0
"""Seconds after which a worker that dies was not in a crash loop."""

log = logging.getLogger("weft.workers")

Run = Callable[[list[socket.socket], Callable[[], None]], int]
"""The life of a worker: is given where to listen and what to call when it is ready; returns its
exit code."""

REUSE_PORT = sys.platform == "linux"
"""Whether the kernel deals connections out to the sockets of one port."""


@dataclass(slots=True)
class WorkerSlot:
    """The place of one worker; its process changes."""

    number: int
    pid: int | None = None
    ready_pipe: int | None = None
    """Where it says that it is ready; None once it has, or is gone."""

    started: float = 0.0
    delay: float = 0.0
    """How long the last start was put off."""

    start_at: float = 0.0
    """When to start it, while it has no process."""


def supervise(
    count: int, run: Run, *, host: str, port: int, ready: Callable[[str], None] = announce
) -> int:
    """Runs so many workers until a signal comes and all have ended; returns the exit code: 0, or
    that of a worker which ended before all were ready for the first time.

    `run` is called in the workers. `ready` is called once, when all workers are, with the URL.
    Raises OSError where one cannot listen. Call it in the main thread of a process that has no
    other.
    """
    reserved = reserve(host, port)
    url = url_of(host, reserved)
    return Supervisor(count, run, reserved, lambda: ready(url)).run()


def reserve(host: str, port: int) -> list[socket.socket]:
    """Returns sockets that keep the port for the workers; they may or may not listen."""
    sockets = listen(host, port)  # fails if somebody else does: only workers share
    if not REUSE_PORT:
        return sockets
    places = [(one.family, one.getsockname()) for one in sockets]
    for one in sockets:
        one.close()
    return [bind(family, place, socket.SO_REUSEPORT) for family, place in places]


def worker_sockets(reserved: list[socket.socket]) -> list[socket.socket]:
    """Returns the sockets where one worker listens."""
    if not REUSE_PORT:
        return reserved
    found = [bind(one.family, one.getsockname(), socket.SO_REUSEPORT) for one in reserved]
    for one in found:
        one.listen(BACKLOG)
    for one in reserved:
        one.close()
    return found


class Supervisor:
    """Use `supervise`."""

    def __init__(
        self, count: int, run: Run, reserved: list[socket.socket], ready: Callable[[], None]
    ) -> None:
        self._run = run
        self._reserved = reserved
        self._ready: Callable[[], None] | None = ready
        self._slots = [WorkerSlot(number) for number in range(count)]
        self._signals: list[int] = []
        self._stopping = False
        self._code = 0
        self._wakeup_read, self._wakeup_write = os.pipe()
        self._parent_read, self._parent_write = os.pipe()
        """Nobody writes there: it ends when the parent does."""

    def run(self) -> int:
        before = self._install_handlers()
        try:
            while not self._finished():
                self._start_those_due()
                self._wait()
                self._forward_signals()
                self._reap()
            return self._code
        finally:
            self._close(before)

    # Signals wake the parent through a pipe

    def _install_handlers(self) -> dict[int, Handler]:
        os.set_blocking(self._wakeup_write, False)
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        handled = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        return {one: signal.signal(one, self._on_signal) for one in handled}

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self._signals.append(number)

    def _close(self, before: dict[int, Handler]) -> None:
        signal.set_wakeup_fd(-1)
        restore_signals(before, left=self._stopping)
        for descriptor in (
            self._wakeup_read,
            self._wakeup_write,
            self._parent_read,
            self._parent_write,
        ):
            os.close(descriptor)

    def _forward_signals(self) -> None:
        """Workers hear only SIGTERM, and only from here: a terminal sends SIGINT to all of a
        group, and they must not take that for a second signal."""
        while self._signals:
            self._signals.pop(0)
            self._stop()

    def _stop(self) -> None:
        self._stopping = True
        for channel in self._reserved:
            channel.close()  # else those who come now would wait for nobody
        for slot in self._slots:
            if slot.pid is not None:
                os.kill(slot.pid, signal.SIGTERM)

    # Waiting

    def _finished(self) -> bool:
        return self._stopping and all(slot.pid is None for slot in self._slots)

    def _wait(self) -> None:
        news = {slot.ready_pipe: slot for slot in self._slots if slot.ready_pipe is not None}
        for descriptor in select.select([self._wakeup_read, *news], [], [], self._timeout())[0]:
            if descriptor == self._wakeup_read:
                os.read(descriptor, 512)
            else:
                self._read_ready(news[descriptor])

    def _timeout(self) -> float | None:
        if self._stopping:
            return None
        dues = [slot.start_at for slot in self._slots if slot.pid is None]
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    def _read_ready(self, slot: WorkerSlot) -> None:
        """It is ready, or will never be."""
        assert slot.ready_pipe is not None
        said = os.read(slot.ready_pipe, 1)
        os.close(slot.ready_pipe)
        slot.ready_pipe = None
        waiting = any(one.pid is None or one.ready_pipe is not None for one in self._slots)
        if said and self._ready is not None and not waiting:
            ready, self._ready = self._ready, None
            ready()

    # Workers

    def _start_those_due(self) -> None:
        now = time.monotonic()
        for slot in self._slots:
            if slot.pid is None and slot.start_at <= now and not self._stopping:
                self._start(slot)

    def _start(self, slot: WorkerSlot) -> None:
        slot.ready_pipe, tell = os.pipe()
        slot.started = time.monotonic()
        # a signal must not meet a child that still has its parent's handlers
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
        sys.stdout.flush()
        sys.stderr.flush()
        slot.pid = os.fork()
        if slot.pid == 0:
            self._run_worker(tell)
        os.close(tell)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))

    def _run_worker(self, tell: int) -> None:
        """The child: never returns."""
        code = 1
        try:
            self._detach_from_parent()
            code = self._run(worker_sockets(self._reserved), lambda: _report_ready(tell))
        except BaseException:
            log.exception("a worker failed")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _detach_from_parent(self) -> None:
        """Leaves the parent's things behind."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
        news = [slot.ready_pipe for slot in self._slots if slot.ready_pipe is not None]
        for descriptor in (self._wakeup_read, self._wakeup_write, self._parent_write, *news):
            os.close(descriptor)
        threading.Thread(target=_watch_parent, args=(self._parent_read,), daemon=True).start()

    def _reap(self) -> None:
        for slot in self._slots:
            if slot.pid is not None:
                pid, status = os.waitpid(slot.pid, os.WNOHANG)
                if pid:
                    self._ended(slot, os.waitstatus_to_exitcode(status))

    def _ended(self, slot: WorkerSlot, code: int) -> None:
        pid, slot.pid = slot.pid, None
        if slot.ready_pipe is not None:
            os.close(slot.ready_pipe)
            slot.ready_pipe = None
        if self._stopping:
            self._code = self._code or max(code, 0)
        elif self._ready is not None and code > 0:
            log.error("worker %d did not start (exit code %d)", pid, code)
            self._code = code
            self._stop()
        else:
            self._schedule_restart(slot)
            log.error("worker %d ended with %d; again in %g s", pid, code, slot.delay)

    def _schedule_restart(self, slot: WorkerSlot) -> None:
        now = time.monotonic()
        young = now - slot.started < CRASH_LOOP
        slot.delay = (
            min(max(2 * slot.delay, MIN_RESTART_DELAY), MAX_RESTART_DELAY)
            if young
            else MIN_RESTART_DELAY
        )
        slot.start_at = now + slot.delay


def _report_ready(tell: int) -> None:
    os.write(tell, b"r")
    os.close(tell)


def _watch_parent(alive: int) -> None:
    """Waits for the end of the parent, however it ends."""
    os.read(alive, 1)
    log.warning("the parent of this worker is gone: draining")
    os.kill(os.getpid(), signal.SIGTERM)
