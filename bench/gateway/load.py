"""The loads, and one run of one of them against one gateway."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import msgspec

from bench.gateway.gateways import Gateway
from bench.gateway.processes import Server
from bench.gateway.requests import Client

LIMIT = 240
"""Seconds for one run."""

NOT_TOKENS = 4
"""Events of a stream that are not tokens: the role, the finish, the usage and the end mark."""


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


BURST = Load("burst-400", 400, 16, 320)


def paced(streams: int, answers: int, tokens: int = 100, interval: int = 20) -> Load:
    """Streams with an event every `interval` milliseconds. They begin one after another over the
    time that one takes, so that at any time some are at their first token and the others on their
    way."""
    stagger = tokens * interval * 1000 // streams
    return Load(f"paced-{tokens}-{interval}", tokens, streams, answers, stagger=stagger)


FEW, PACED, MANY = paced(5, 15), paced(50, 150), paced(400, 800)
STORING_LOAD = paced(200, 400, interval=50)
"""For comparing a gateway that stores with one that does not: 100 tokens per response."""

PLAIN = Load("plain-100", 100, 8, 2000, stream=False)
IDLE = Load("idle", 2, 200, 0)
WARM_UP = (Load("burst-400", 400, 8, 40), Load("plain-100", 100, 8, 80, stream=False))
SPREAD = replace(BURST, connections=32, answers=800)
"""Enough connections that each of several workers gets some."""


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


class BadAnswers(Exception):
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
        """Microseconds per event; per answer if it is not streamed."""
        return self.cpu * 1e6 / self.events

    @property
    def rate(self) -> float:
        """Events per second."""
        return self.events / self.report.seconds


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident bytes."""

    idle: int
    full: int
    """With 200 open streams."""

    stream: float
    """Of one more open stream. The first 200 are not counted: the memory that they allocate is used
    again."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Runs loads: the command of the clients, and a directory for what they send."""

    command: list[str]
    directory: Path

    def run(self, gateway: Gateway, server: Server, client: Client, load: Load) -> Run:
        """Raises BadAnswers when any answer was not what the upstream had sent."""
        load = load.of(gateway.share)
        before = server.cpu()
        process = self._start(gateway, server, client, load)
        out, _ = process.communicate()
        cpu = server.cpu() - before
        report = _read_report(process, out)
        _verify(report, load, f"{gateway.name}, {client.name}, {load.model}", gateway.exact)
        return Run(report, report.answers * load.events, cpu)

    @contextmanager
    def open_streams(
        self, gateway: Gateway, server: Server, client: Client, streams: int
    ) -> Iterator[None]:
        """Keeps that many streams open, each silent after its first token."""
        load = replace(IDLE, connections=streams)
        process = self._start(gateway, server, client, load)
        assert process.stdout is not None
        report = _read_report(process, process.stdout.readline())
        if report.failed:
            raise BadAnswers(f"{gateway.name}, {client.name}, {load.model}: {report.complaint}")
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

    def memory(self, gateway: Gateway, server: Server, client: Client) -> "Memory":
        """Measures a process that has served nothing yet: one that has served much has free memory
        left."""
        idle = _memory_after_pause(server)
        with self.open_streams(gateway, server, client, IDLE.connections):
            full = _memory_after_pause(server)
            with self.open_streams(gateway, server, client, IDLE.connections):
                return Memory(idle, full, (_memory_after_pause(server) - full) / IDLE.connections)


def _memory_after_pause(server: Server) -> int:
    time.sleep(0.5)
    return server.memory()


def _read_report(process: subprocess.Popen[bytes], out: bytes) -> Report:
    if not out:
        process.kill()
        raise BadAnswers(f"the clients ended without a report, with code {process.wait()}")
    return msgspec.json.decode(out, type=Report)


def _verify(report: Report, load: Load, label: str, exact: bool) -> None:
    """The clients have compared each answer token by token; here all of them together."""
    if report.failed:
        raise BadAnswers(f"{label}: {report.failed} of {load.answers} answers, {report.complaint}")
    if report.tokens != load.answers * load.tokens:
        raise BadAnswers(f"{label}: {report.tokens} tokens in {load.answers} answers")
    if exact and report.deltas != report.tokens:
        raise BadAnswers(f"{label}: {report.tokens} tokens came in {report.deltas} events")
    if exact and report.fewest_events != report.most_events:
        raise BadAnswers(
            f"{label}: {report.fewest_events} to {report.most_events} events an answer"
        )
