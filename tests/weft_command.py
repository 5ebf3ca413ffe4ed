"""`weft` as people run it: a process of its own, real files, real pipes.

A run takes the time of its work, not that of some hundred imports: it is forked from a process
that has done them. How `weft` starts by itself is the matter of test_cli_start.py.
"""

import atexit
import functools
import gc
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
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
COMMANDS = ("assemble", "check", "config", "convert", "demo", "parts", "verify")
"""The commands that read something and end."""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def run(
    *arguments: str | Path,
    given: bytes = b"",
    folder: Path | None = None,
    environment: Mapping[str, str] = ENVIRONMENT,
) -> Done:
    """Runs `weft` in a folder, with these bytes on standard input."""
    request = [[*map(str, arguments)], str(folder or Path.cwd()), {**environment}]
    (stdin, writer), (out, stdout), (err, stderr) = os.pipe(), os.pipe(), os.pipe()
    template = _template()
    socket.send_fds(template, [json.dumps(request).encode() + b"\n"], [stdin, stdout, stderr])
    for end in (stdin, stdout, stderr):
        os.close(end)
    with (
        ThreadPoolExecutor(2) as pool,
        os.fdopen(out, "rb") as printed,
        os.fdopen(err, "rb") as noted,
    ):
        reading = pool.submit(printed.read), pool.submit(noted.read)
        with suppress(BrokenPipeError), os.fdopen(writer, "wb") as file:
            file.write(given)
        return Done(int(template.recv(16)), *(one.result().decode() for one in reading))


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
    """Forks a process for each request, and returns in that process alone."""
    while True:
        message, ends, _, _ = socket.recv_fds(requests, 65536, 3)
        while message and not message.endswith(b"\n"):
            message += requests.recv(65536)
        if not message:
            sys.exit()
        child = os.fork()
        if not child:
            break
        for end in ends:
            os.close(end)
        _, status = os.waitpid(child, 0)
        requests.send(b"%d" % os.waitstatus_to_exitcode(status))
    requests.close()
    for stream, end in enumerate(ends):
        os.dup2(end, stream)
        os.close(end)
    arguments, folder, environment = json.loads(message)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [str(WEFT), *arguments]


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
