"""Processes that are started for one run, and the CPU and memory that they use (Linux only)."""

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT = 60.0
"""Seconds that a process may take to start."""


class NotStarted(Exception):
    """A process ended, or did not listen in time. The message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running process and the port where it answers. Without a pid it is not one of ours."""

    port: int
    pid: int | None = None

    def cpu(self) -> float:
        """CPU seconds, user and system, of the process and its descendants, to the nanosecond."""
        return sum(_cpu_clock(pid) for pid in self._processes())

    def memory(self) -> int:
        """Resident bytes of the process and its descendants."""
        return sum(_resident(pid) for pid in self._processes())

    def _processes(self) -> list[int]:
        return [] if self.pid is None else _processes(self.pid)


def _cpu_clock(pid: int) -> float:
    # The process's CPU clock by its number, as clock_getcpuclockid(3) makes it: the nanoseconds of
    # all /proc/PID/task/*/schedstat, and of the threads that have ended. /proc/PID/stat holds the
    # same time in steps of 10 ms.
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def _resident(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next(
        (int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS")),
        0,
    )


def _processes(pid: int) -> list[int]:
    found = [pid]
    for parent in found:  # grows while it is walked
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += map(int, children.read_text().split())
    return found


@contextlib.contextmanager
def start_server(command: list[str], log: Path, directory: Path | None = None) -> Iterator[Server]:
    """Starts a server whose first line on standard output ends with its port."""
    with _process(command, log, directory) as process:
        assert process.stdout is not None
        line = process.stdout.readline().decode().strip()
        port = line.rpartition(":")[2].rstrip("/")
        if not port.isdecimal():
            raise NotStarted(f"{command[0]} printed {line!r}; {_last_output(log)}")
        yield Server(int(port), process.pid)


@contextlib.contextmanager
def start_server_on(command: list[str], port: int, log: Path) -> Iterator[Server]:
    """Starts a server on a given port, and waits until it accepts connections."""
    with _process(command, log, None) as process:
        end = time.monotonic() + START_TIMEOUT
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > end:
                raise NotStarted(f"{command[0]} does not listen; {_last_output(log)}")
            time.sleep(0.05)
        yield Server(port, process.pid)


@contextlib.contextmanager
def _process(
    command: list[str], log: Path, directory: Path | None
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def _listens(port: int) -> bool:
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0


def _last_output(log: Path) -> str:
    """The end of the log, on one line."""
    words = log.read_text(errors="replace").split()
    return " ".join(words)[-200:] or "it wrote nothing"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
