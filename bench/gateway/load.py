"""The loads, and one run of one of them against one gateway."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import msgspec

from bench.gateway.asking import Client
from bench.gateway.gateways import Gateway
from bench.gateway.processes import Server

LIMIT = 240
"""Seconds for one run."""

NOT_TOKENS = 4
"""Events of a stream beside its tokens: the role, the finish, the usage and the end mark."""


@dataclass(frozen=True, slots=True)
class Load:
    model: str
    """Tells the upstream how to answer."""

    tokens: int
    connections: int
    answers: int
    stream: bool = True
    stagger: int = 0
    """Microseconds between the first requests of two connections."""

    def of(self, share: float) -> Self:
        return replace(self, answers=max(self.connections, round(self.answers * share)))

    @property
    def events(self) -> int:
        """What the upstream sends in one answer."""
        return self.tokens + NOT_TOKENS if self.stream else 1


BURST = Load("burst-400", 400, 8, 400)
PACED = Load("paced-100-20", 100, 50, 150, stagger=40_000)
"""50 streams with an event every 20 ms. They begin one after another over the two seconds that one
takes, so that at any time some are at their first token and the others on their way."""

PLAIN = Load("plain-100", 100, 8, 2000, stream=False)
IDLE = Load("idle", 2, 200, 0)
WARM = (Load("burst-400", 400, 8, 40), Load("plain-100", 100, 8, 80, stream=False))
SPREAD = replace(BURST, connections=32, answers=800)
"""Enough connections that each of several workers has its share."""


class Report(msgspec.Struct, frozen=True):
    """What the clients saw."""

    answers: int
    failed: int
    complaint: str
    tokens: int
    deltas: int
    fewest_events: int
    most_events: int
    seconds: float
    cpu: float
    """Of the clients themselves."""

    first: list[float]
    """Milliseconds to the first token, of each answer."""


class Broken(Exception):
    """Answers were wrong, or events lost."""


@dataclass(frozen=True, slots=True)
class Run:
    """One load against one gateway."""

    report: Report
    events: int
    cpu: float
    """Seconds that the gateway used."""

    @property
    def cost(self) -> float:
        """Microseconds an event; of an answer that is no stream, of the whole."""
        return self.cpu * 1e6 / self.events

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.report.seconds


@dataclass(frozen=True, slots=True)
class Bench:
    """Where the runs are made: the clients' command, and a directory for what they send."""

    command: list[str]
    directory: Path

    def run(self, gateway: Gateway, server: Server, client: Client, load: Load) -> Run:
        """Raises Broken when any answer was not what the upstream had sent."""
        load = load.of(gateway.share)
        before = server.cpu()
        process = self._start(gateway, server, client, load)
        out, _ = process.communicate()
        cpu = server.cpu() - before
        report = _report(process, out)
        _verify(report, load, f"{gateway.name}, {client.name}, {load.model}", gateway.exact)
        return Run(report, report.answers * load.events, cpu)

    @contextmanager
    def held(
        self, gateway: Gateway, server: Server, client: Client, streams: int
    ) -> Iterator[None]:
        """That many streams, each open and silent after its first token."""
        load = replace(IDLE, connections=streams)
        process = self._start(gateway, server, client, load)
        assert process.stdout is not None
        report = _report(process, process.stdout.readline())
        if report.failed:
            raise Broken(f"{gateway.name}, {client.name}, {load.model}: {report.complaint}")
        yield
        process.communicate()

    def _start(
        self, gateway: Gateway, server: Server, client: Client, load: Load
    ) -> subprocess.Popen[bytes]:
        request = self.directory / f"{client.name}-{load.model}-{server.port}.request"
        request.write_bytes(client.request(gateway.prefix + load.model, load.stream, server.port))
        mark, last = (client.mark, client.last) if load.stream else ("", "")
        words = (server.port, request, load.connections, load.answers, load.tokens, mark, last)
        return subprocess.Popen(
            [*self.command, *map(str, (*words, load.stagger, LIMIT))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def per_stream(self, gateway: Gateway, server: Server, client: Client) -> float:
        """Bytes of memory of one more open stream. The first 50 are not counted: they fill what
        is then used again."""
        with self.held(gateway, server, client, 50):
            before = _settled(server)
            with self.held(gateway, server, client, IDLE.connections):
                return (_settled(server) - before) / IDLE.connections


def _settled(server: Server) -> int:
    time.sleep(0.5)
    return server.memory()


def _report(process: subprocess.Popen[bytes], out: bytes) -> Report:
    if not out:
        process.kill()
        raise Broken(f"the clients ended without a word, with code {process.wait()}")
    return msgspec.json.decode(out, type=Report)


def _verify(report: Report, load: Load, what: str, exact: bool) -> None:
    """The clients have compared each answer token by token; here all of them together."""
    if report.failed:
        raise Broken(f"{what}: {report.failed} of {load.answers} answers, {report.complaint}")
    if report.tokens != load.answers * load.tokens:
        raise Broken(f"{what}: {report.tokens} tokens in {load.answers} answers")
    if exact and report.deltas != report.tokens:
        raise Broken(f"{what}: {report.tokens} tokens came in {report.deltas} events")
    if exact and report.fewest_events != report.most_events:
        raise Broken(f"{what}: {report.fewest_events} to {report.most_events} events an answer")
