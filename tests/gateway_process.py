"""The real gateway as a process of its own, for tests that talk to it over HTTP."""

import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.weft_command import WEFT, ForkedWeft, can_be_forked

READY = re.compile(r"listening on (http://\S+)")
PATIENCE = 30.0
"""Seconds to start, and to stop."""


class Gateway:
    """A running `weft serve`."""

    def __init__(self, process: subprocess.Popen[str] | ForkedWeft) -> None:
        self.process = process
        self.url = ""
        self._said: list[str] = []
        self._told: list[str] = []
        self._ready = threading.Event()
        self._readers = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._collect, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def stdout(self) -> str:
        return "".join(self._said)

    @property
    def stderr(self) -> str:
        """What it logged so far; all of it once it has stopped."""
        return "".join(self._told)

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._said.append(line)
            found = READY.search(line)
            if found:
                self.url = found[1]
                self._ready.set()
        self._ready.set()

    def _collect(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._told.append(line)

    def wait_ready(self) -> None:
        """Raises with what it logged, if it does not come up."""
        self._ready.wait(PATIENCE)
        if not self.url:
            self.stop()
            raise RuntimeError(f"the gateway did not start:\n{self.stdout}{self.stderr}")

    def stop(self) -> int:
        """Asks it to stop, and returns its exit code. Once it has stopped, just the code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        return code


@contextmanager
def _running(process: subprocess.Popen[str] | ForkedWeft) -> Iterator[Gateway]:
    running = Gateway(process)
    try:
        running.wait_ready()
        yield running
    finally:
        running.stop()


@contextmanager
def gateway(
    settings: str,
    folder: Path,
    *arguments: str,
    environment: dict[str, str] | None = None,
    prefix: Sequence[str] = (),
    command: Sequence[str] = (str(WEFT), "serve"),
) -> Iterator[Gateway]:
    """Starts `weft serve` with a weft.toml of this text in a folder; stops it in the end. `prefix`
    is the command that runs it."""
    (folder / "weft.toml").write_text(settings, encoding="utf-8")
    options = ["--config", "weft.toml", "--host", "127.0.0.1", "--port", "0", *arguments]
    given = environment or {**os.environ}
    process: subprocess.Popen[str] | ForkedWeft
    if [*prefix, *command] == [str(WEFT), "serve"] and can_be_forked(given):
        process = ForkedWeft(["serve", *options], folder, given)
    else:
        process = subprocess.Popen(
            [*prefix, *command, *options],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
    with _running(process) as made:
        yield made


@contextmanager
def started(*arguments: str | Path) -> Iterator[Gateway]:
    """Another command of `weft` that listens, on a port that is free; stops it in the end."""
    process = ForkedWeft([*arguments, "--port", "0"], Path.cwd(), os.environ)
    with _running(process) as made:
        yield made
