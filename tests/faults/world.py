"""The gateway with scripted upstreams behind it, and ways to look into its process."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.faults.upstream import PATIENCE, Hold, Step, Upstream
from tests.faults.wires import DIALECTS, Object, question
from tests.gateway_process import Gateway, gateway
from tests.raw_http import Answer, Client


@dataclass
class World:
    """A gateway, and the upstream that all of its places lead to."""

    gateway: Gateway
    upstream: Upstream

    @property
    def port(self) -> int:
        return int(self.gateway.url.rpartition(":")[2])

    def client(self, *, receive_buffer: int | None = None) -> Client:
        return Client(self.port, receive_buffer=receive_buffer)

    def ask(self, dialect: str, model: str, stream: bool, *headers: str, **more: object) -> Answer:
        """One request on a connection of its own."""
        with self.client() as client:
            client.send(question(dialect, model, stream, *headers, **more))
            return client.answer()

    def ask_slowly(self, dialect: str, model: str, stream: bool, steps: Sequence[Step]) -> Answer:
        """Where the script of the upstream waits, it goes on when the client has all content."""
        with self.client() as client:
            client.send(question(dialect, model, stream))
            for hold in (step for step in steps if isinstance(step, Hold)):
                self.seen(client, b"and weft.")
                hold.release()
            return client.answer()

    def get(self, path: str) -> Answer:
        with self.client() as client:
            client.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            return client.answer()

    def seen(self, client: Client, mark: bytes) -> None:
        """Waits until this is among what a client can read; it stays there."""
        channel = client.socket
        until(lambda: mark in channel.recv(1 << 20, socket.MSG_PEEK), f"{mark!r} at the client")

    # The log

    @property
    def lines(self) -> list[Object]:
        """What was logged so far. Whatever is no JSON object fails the test."""
        found = [json.loads(line) for line in self.gateway.stderr.split("\n") if line]
        assert all(isinstance(line, dict) for line in found)
        return found

    def logged(self, mark: str) -> list[Object]:
        """Waits until something is in the log; returns the lines that hold it."""
        until(lambda: mark in self.gateway.stderr, f"{mark!r} in the log")
        found = [line for line in self.gateway.stderr.split("\n") if mark in line]
        return [json.loads(line) for line in found]

    def logged_model(self, model: str) -> list[Object]:
        """Waits until a request for a model is in the log; returns the lines of such requests."""

        def lines() -> list[Object]:
            found = [line for line in self.gateway.stderr.split("\n") if f'/{model}"' in line]
            # The attempts of a request have lines of their own.
            return [json.loads(line) for line in found if '"from":"weft.request"' in line]

        until(lambda: lines() != [], f"a request for {model} in the log")
        return lines()

    # The process

    @property
    def open(self) -> int:
        """How many answers are under way."""
        return int(json.loads(self.get("/ready").body)["open"])

    @property
    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.gateway.pid}/fd").iterdir()))

    @property
    def memory(self) -> int:
        """Bytes in memory."""
        pages = Path(f"/proc/{self.gateway.pid}/statm").read_text().split()[1]
        return int(pages) * 4096


def until(
    true: Callable[[], bool], what: str, patience: float = PATIENCE, pause: float = 0.002
) -> None:
    """Waits for what nobody announces."""
    end = time.monotonic() + patience
    tick = threading.Event()
    while not true():
        assert time.monotonic() < end, f"waited in vain for {what}"
        tick.wait(pause)


def place(name: str, dialect: str, url: str, **more: object) -> str:
    """The settings of an upstream."""
    base = f"{url}/v1" if dialect.startswith("openai") else url
    settings = {"dialect": dialect, "base_url": base, "api_key": "sk-of-an-upstream", **more}
    lines = [f"{key} = {_toml(value)}" for key, value in settings.items()]
    return "\n".join([f"[upstreams.{name}]", *lines, ""])


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}"
    return json.dumps(value)


PATIENT: dict[str, object] = {"retry": {"attempts": 1}, "breaker": {"failures": 0}}
"""An upstream that is asked once, however often it fails."""

# Each for one kind of silence alone: on a busy machine another one could come first.
HEADLESS: dict[str, object] = {"timeouts": {"first_byte": 0.3}}
SILENT: dict[str, object] = {"timeouts": {"between_events": 0.8}}


def places(url: str, prefix: str = "", /, **more: object) -> str:
    """An upstream of each dialect, named after it."""
    return "\n".join(
        place(f"{prefix}{dialect}", dialect, url, **{**PATIENT, **more}) for dialect in DIALECTS
    )


@contextmanager
def world(settings: str, folder: Path, upstream: Upstream, *arguments: str) -> Iterator[World]:
    """A gateway with these settings. Whatever it logs of its own errors fails the test."""
    with gateway(settings, folder, *arguments) as running:
        made = World(running, upstream)
        yield made
        code = running.stop()
    assert code == 0, running.stderr
    own = [line for line in made.lines if "stack" in line or line.get("level") == "error"]
    assert own == [], own[:3]


def at_once(works: Sequence[Callable[[], None]]) -> None:
    """Does all of it at the same time, and raises what went wrong."""
    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(work) for work in works]:
            done.result()
