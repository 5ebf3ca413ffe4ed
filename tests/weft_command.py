"""`weft` as people run it: a process of its own, real files, real pipes.

A run takes the time of its work, not that of some hundred imports: it is forked from a process
that has done them. How `weft` starts by itself is the matter of test_cli_start.py, and of all tests
that start it with a prefix or under another interpreter's environment.
"""

import atexit
import functools
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

WEFT = Path(sys.executable).with_name("weft")
ENVIRONMENT = {
    **{
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("COVERAGE", "PYTHON"))  # as a person's shell has it
        or name == "PYTHONPATH"  # that of a checkout, if it is not the installed one
    },
    "COLUMNS": "100",
}
COMMANDS = (
    *("ask", "assemble", "check", "config", "convert", "demo", "doctor", "init", "parts"),
    *("runs", "serve", "verify"),
)
"""The commands that tests run most."""

BEFORE_IMPORTS = ("COVERAGE", "LD_", "MALLOC_", "PROMETHEUS", "PYTHON")
"""How variables begin that count before `weft` is imported."""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class ForkedWeft:
    """A `weft` that was forked; it has what tests use of `subprocess.Popen`."""

    def __init__(
        self,
        arguments: Sequence[str | Path],
        folder: Path,
        environment: Mapping[str, str],
        stdin: int | None = None,
    ) -> None:
        """It reads from `stdin`, which is closed here; else there is nothing to read."""
        request = [[*map(str, arguments)], str(folder), {**environment}]
        (out, stdout), (err, stderr) = os.pipe(), os.pipe()
        self._exit, exit = os.pipe()
        ends = [os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin, stdout, stderr, exit]
        with _ASKING:
            template = _template()
            socket.send_fds(template, [json.dumps(request).encode() + b"\n"], ends)
            self.pid = int(template.recv(16))
        for end in ends:
            os.close(end)
        # As they came: `\r\n` is not made `\n`.
        self.stdout = os.fdopen(out, encoding="utf-8", newline="")
        self.stderr = os.fdopen(err, encoding="utf-8", newline="")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            # Not select(): it takes no descriptor above 1023, and some tests open thousands.
            exited = select.poll()
            exited.register(self._exit, select.POLLIN)
            if not exited.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired("weft", timeout or 0.0)
            self.returncode = int(os.read(self._exit, 16))
            os.close(self._exit)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What else it prints, on both streams, once it has ended."""
        with ThreadPoolExecutor(2) as pool, self.stdout as printed, self.stderr as noted:
            reading = pool.submit(printed.read), pool.submit(noted.read)
            try:
                self.wait(timeout)
            finally:
                self.kill()
            out, err = (one.result() for one in reading)
        return out, err

    def close(self) -> None:
        """Ends it, whatever it does; nobody reads what it prints any more."""
        self.kill()
        self.wait()
        self.stdout.close()
        self.stderr.close()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def can_be_forked(environment: Mapping[str, str]) -> bool:
    """Whether a process with this environment is like one that is forked."""
    names = [name for name in {**environment, **os.environ} if name.startswith(BEFORE_IMPORTS)]
    return all(environment.get(name) == os.environ.get(name) for name in names)


def run(
    *arguments: str | Path,
    given: bytes = b"",
    folder: Path | None = None,
    environment: Mapping[str, str] = ENVIRONMENT,
) -> Done:
    """Runs `weft` in a folder, with these bytes on standard input."""
    stdin, writer = os.pipe()
    process = ForkedWeft(arguments, folder or Path.cwd(), environment, stdin)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(process.communicate)
        with suppress(BrokenPipeError), os.fdopen(writer, "wb") as file:
            file.write(given)
        out, err = reading.result()
    return Done(process.wait(), out, err)


_ASKING = threading.Lock()


@functools.cache
def _template() -> socket.socket:
    """Starts the process that the others are forked from; it ends with this one."""
    ours, theirs = socket.socketpair()
    with theirs:
        # Pipes, as a run has them: Python decides by its first ones how it buffers and encodes.
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            pass_fds=[theirs.fileno()],
        )
    atexit.register(process.communicate)
    atexit.register(ours.close)  # before the other: the last comes first
    return ours


def _fork(requests: socket.socket) -> None:
    """Forks a process for each request, and returns in that process alone. Tells the pid of each,
    and its exit code when it ends."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    exits: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _tell_exits(exits)
            continue
        message, ends, _, _ = socket.recv_fds(requests, 65536, 4)
        while message and not message.endswith(b"\n"):
            message += requests.recv(65536)
        if not message:
            sys.exit()
        child = os.fork()
        if not child:
            break
        *streams, exits[child] = ends
        for end in streams:
            os.close(end)
        requests.send(b"%d" % child)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Tests that run in the background of a shell ignore Ctrl-C, and so would this process.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    requests.close()
    for stream, end in enumerate(ends[:3]):
        os.dup2(end, stream)
    for end in (*ends, woken, wakes, *exits.values()):
        os.close(end)
    arguments, folder, environment = json.loads(message)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [str(WEFT), *arguments]


def _tell_exits(exits: dict[int, int]) -> None:
    while exits:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        with suppress(BrokenPipeError):
            os.write(exits[child], b"%d" % os.waitstatus_to_exitcode(status))
        os.close(exits.pop(child))


if __name__ == "__main__":
    from weft.cli.main import main

    for command in COMMANDS:
        import_module(f"weft.cli.{command}")
    gc.freeze()
    _fork(socket.socket(fileno=int(sys.argv[1])))
    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, int):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)  # to take an interpreter apart takes longer than most runs
        raise
