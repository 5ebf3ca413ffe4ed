"""Several worker processes behind one port, and the parent that supervises them.

The parent binds, forks, restarts workers that died, and forwards signals; it answers no request
itself, so little can go wrong in it. A worker that dies soon after its start is restarted later and
later. A worker whose parent died drains.

On Linux each worker has its own socket on the port (SO_REUSEPORT), and the kernel distributes
connections evenly: of 400 connections at once, two workers got 214 and 186. With one socket for
all, the worker that wakes first takes most of a burst (338 and 62). If a worker dies, only its own
queue is lost. Other systems have one socket for all.
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

from weft.gateway.server import (
    BACKLOG,
    EXIT_SIGNALS,
    Handler,
    announce,
    bind,
    listen,
    restore_signals,
    url_of,
)

MIN_RESTART_DELAY, MAX_RESTART_DELAY = 0.1, 10.0
"""Seconds before a worker is restarted: doubled each time it dies soon after its start."""

CRASH_LOOP = 60.0
"""A worker that dies within so many seconds of its start is in a crash loop."""

log = logging.getLogger("weft.workers")

Run = Callable[[list[socket.socket], Callable[[], None]], int]
"""Runs a worker with its listening sockets and a callback for when it is ready; returns its exit
code."""

REUSE_PORT = sys.platform == "linux"
"""Whether the kernel distributes connections to several sockets on one port."""


@dataclass(slots=True)
class WorkerSlot:
    """One worker; its process is replaced when it dies."""

    number: int
    pid: int | None = None
    ready_pipe: int | None = None
    """Readable once the process is ready or dead; None afterwards."""

    started: float = 0.0
    delay: float = 0.0
    """The delay of the last restart, in seconds."""

    start_at: float = 0.0
    """When to start the next process, on the monotonic clock."""


def supervise(
    count: int,
    run: Run,
    *,
    host: str,
    port: int,
    ready: Callable[[str], None] = announce,
    started: Callable[[int], None] = lambda worker: None,
    ended: Callable[[int], None] = lambda worker: None,
) -> int:
    """Runs `count` workers until a signal comes and all have ended; returns the exit code: 0, or
    that of a worker that ended before all were ready for the first time.

    `run` is called in the workers. `ready` is called once, with the URL, when all workers are
    ready. `started` is called in each worker, before `run`, and `ended` in the parent after a
    worker has ended: with its number, which its replacement has, too. Raises OSError if it cannot
    listen. Call it in the main thread of a process without
    other threads.
    """
    reserved = reserve(host, port)
    url = url_of(host, reserved)
    return Supervisor(count, run, reserved, lambda: ready(url), started, ended).run()


def reserve(host: str, port: int) -> list[socket.socket]:
    """Returns sockets that reserve the port for the workers; they may or may not listen."""
    sockets = listen(host, port)  # fails if another process listens: only workers share
    if not REUSE_PORT:
        return sockets
    # SO_REUSEPORT has to be set on every socket of a port, so they are bound again; with it alone,
    # another server of the same user would not be noticed. Since they do not listen, the kernel
    # gives the parent no connections, but the port stays reserved while all workers are down.
    addresses = [(one.family, one.getsockname()) for one in sockets]
    for one in sockets:
        one.close()
    return [bind(family, where, socket.SO_REUSEPORT) for family, where in addresses]


def worker_sockets(reserved: list[socket.socket]) -> list[socket.socket]:
    """Returns the listening sockets of one worker."""
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
        self,
        count: int,
        run: Run,
        reserved: list[socket.socket],
        ready: Callable[[], None],
        started: Callable[[int], None],
        ended: Callable[[int], None],
    ) -> None:
        self._run = run
        self._started, self._ended = started, ended
        self._reserved = reserved
        self._ready: Callable[[], None] | None = ready
        self._slots = [WorkerSlot(number) for number in range(count)]
        self._signals: list[int] = []
        self._stopping = False
        self._has_terminal = os.isatty(2)
        self._code = 0
        self._wakeup_read, self._wakeup_write = os.pipe()
        self._parent_read, self._parent_write = os.pipe()
        """Nothing is written to it: it reaches its end when the parent dies."""

    def run(self) -> int:
        # Required by set_wakeup_fd: a signal handler must not block.
        os.set_blocking(self._wakeup_write, False)
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        # SIGCHLD only writes to the pipe; without a handler the interpreter would not.
        handled = [signal.SIGTERM, signal.SIGINT, signal.SIGCHLD]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            handled.append(signal.SIGHUP)
        before: dict[int, Handler] = {one: signal.signal(one, self._on_signal) for one in handled}
        try:
            while not (self._stopping and all(slot.pid is None for slot in self._slots)):
                now = time.monotonic()
                for slot in self._slots:
                    if slot.pid is None and slot.start_at <= now and not self._stopping:
                        self._start(slot)
                self._wait()
                # Each signal is forwarded: the second one ends a worker that drains.
                while self._signals:
                    if self._signals.pop(0) == signal.SIGHUP and os.isatty(2) >= self._has_terminal:
                        self._signal_workers(signal.SIGHUP)  # each reads its settings again
                    else:
                        self._stop()
                self._reap()
            return self._code
        finally:
            signal.set_wakeup_fd(-1)
            restore_signals(before, exiting=self._stopping)
            pipes = (self._wakeup_read, self._wakeup_write, self._parent_read, self._parent_write)
            for descriptor in pipes:
                os.close(descriptor)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self._signals.append(number)

    def _stop(self) -> None:
        """Asks the workers to exit. They handle only SIGTERM, and only from here: a terminal sends
        SIGINT to the whole group, and they must not take that for a second signal."""
        self._stopping = True
        for channel in self._reserved:
            channel.close()  # otherwise new connections would wait in its queue
        self._signal_workers(signal.SIGTERM)

    def _signal_workers(self, number: int) -> None:
        for slot in self._slots:
            if slot.pid is not None:
                os.kill(slot.pid, number)

    def _wait(self) -> None:
        """Waits for a signal, for a worker to be ready, or for the next restart."""
        pipes = {slot.ready_pipe: slot for slot in self._slots if slot.ready_pipe is not None}
        starts = [slot.start_at for slot in self._slots if slot.pid is None]
        timeout = None
        if starts and not self._stopping:
            timeout = max(0.0, min(starts) - time.monotonic())
        for descriptor in select.select([self._wakeup_read, *pipes], [], [], timeout)[0]:
            if descriptor == self._wakeup_read:
                os.read(descriptor, 512)
            else:
                is_ready = os.read(descriptor, 1)  # nothing if the worker died
                os.close(descriptor)
                pipes[descriptor].ready_pipe = None
                waiting = any(one.pid is None or one.ready_pipe is not None for one in self._slots)
                if is_ready and self._ready is not None and not waiting:
                    ready, self._ready = self._ready, None
                    ready()

    # Workers

    def _start(self, slot: WorkerSlot) -> None:
        slot.ready_pipe, write_end = os.pipe()
        slot.started = time.monotonic()
        # a signal must not reach a child that still has the handlers of its parent
        signal.pthread_sigmask(signal.SIG_BLOCK, EXIT_SIGNALS)
        sys.stdout.flush()
        sys.stderr.flush()
        slot.pid = os.fork()
        if slot.pid == 0:
            self._run_worker(slot.number, write_end)
        os.close(write_end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, EXIT_SIGNALS)

    def _run_worker(self, number: int, ready_pipe: int) -> None:
        """The child process: never returns."""
        code = 1

        def report_ready() -> None:
            os.write(ready_pipe, b"r")
            os.close(ready_pipe)

        try:
            self._detach_from_parent()
            self._started(number)
            code = self._run(worker_sockets(self._reserved), report_ready)
        except BaseException:
            log.exception("a worker failed")
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            # Not sys.exit: the `finally` and atexit handlers of the parent's stack would run in the
            # child.
            os._exit(code)

    def _detach_from_parent(self) -> None:
        """Closes what the child inherited, and resets its signals."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            # Until the server has its own handler: a worker that starts reads new settings anyway.
            signal.signal(signal.SIGHUP, lambda number, frame: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, EXIT_SIGNALS)
        pipes = [slot.ready_pipe for slot in self._slots if slot.ready_pipe is not None]
        # As long as any child holds `_parent_write`, the pipe does not end with the parent.
        for descriptor in (self._wakeup_read, self._wakeup_write, self._parent_write, *pipes):
            os.close(descriptor)
        threading.Thread(target=_watch_parent, args=(self._parent_read,), daemon=True).start()

    def _reap(self) -> None:
        """Handles the workers that have ended."""
        for slot in self._slots:
            # Every slot is looked at: several SIGCHLD may arrive as one.
            pid, status = (0, 0) if slot.pid is None else os.waitpid(slot.pid, os.WNOHANG)
            if not pid:
                continue
            code, slot.pid = os.waitstatus_to_exitcode(status), None
            self._ended(slot.number)
            if slot.ready_pipe is not None:
                os.close(slot.ready_pipe)
                slot.ready_pipe = None
            if self._stopping:
                # Negative if a signal killed it, which is what a forced exit does.
                self._code = self._code or max(code, 0)
            elif self._ready is not None and code > 0:
                # It would not start the next time either: a setting is wrong, or the store cannot
                # be opened. One that a signal killed is restarted.
                log.error("worker %d did not start (exit code %d)", pid, code)
                self._code = code
                self._stop()
            else:
                now = time.monotonic()
                is_crash_loop = now - slot.started < CRASH_LOOP
                longer = min(max(2 * slot.delay, MIN_RESTART_DELAY), MAX_RESTART_DELAY)
                slot.delay = longer if is_crash_loop else MIN_RESTART_DELAY
                slot.start_at = now + slot.delay
                log.error("worker %d ended (exit code %d); restart in %g s", pid, code, slot.delay)


def _watch_parent(pipe: int) -> None:
    """Drains this worker when its parent dies, however that happens."""
    os.read(pipe, 1)
    log.warning("the parent process died: draining")
    os.kill(os.getpid(), signal.SIGTERM)
