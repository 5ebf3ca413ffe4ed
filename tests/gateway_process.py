"""The real gateway as a process of its own, for tests that talk to it over HTTP."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

READY = re.compile(r"listening on (http://\S+)")
PATIENCE = 30.0
"""Seconds to start, and to stop."""


class Gateway:
    """A running `weft serve`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
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
def gateway(
    settings: str,
    folder: Path,
    *arguments: str,
    environment: dict[str, str] | None = None,
    before: tuple[str, ...] = (),
) -> Iterator[Gateway]:
    """Starts `weft serve` with a weft.toml of this text in a folder; stops it in the end. `before`
    is a command that runs it."""
    (folder / "weft.toml").write_text(settings, encoding="utf-8")
    command = Path(sys.executable).with_name("weft")
    process = subprocess.Popen(
        [*before, str(command), "serve", "--config", "weft.toml", "--host", "127.0.0.1",
         "--port", "0", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )  # fmt: skip
    running = Gateway(process)
    try:
        running.wait_ready()
        yield running
    finally:
        running.stop()
