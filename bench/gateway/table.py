"""What was measured, as one table, and the aims beside it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.gateway.load import BURST, PACED, PLAIN, Load, Run


@dataclass(slots=True)
class Row:
    """One gateway with one kind of client: its runs, round by round."""

    gateway: str
    client: str
    runs: dict[Load, list[Run]] = field(default_factory=lambda: defaultdict(list))
    memory: list[float] = field(default_factory=list)
    """Bytes of an open stream."""

    broken: str | None = None
    """Why there are no figures."""

    def cost(self, load: Load) -> float:
        """Microseconds of CPU, the median of the rounds."""
        return median(run.cost for run in self.runs[load])

    def rate(self, load: Load) -> float:
        return median(run.rate for run in self.runs[load])

    def first(self, percent: int) -> float:
        """Milliseconds to the first token, of all rounds together."""
        times = sorted(time for run in self.runs[PACED] for time in run.report.first)
        return times[min(len(times) - 1, len(times) * percent // 100)]


HEADS = (
    ("", "client"),
    ("burst", "µs/event"),
    ("burst", "events/s/core"),
    ("burst", "events/s"),
    ("paced", "µs/event"),
    ("first token", "p50 ms"),
    ("first token", "p99 ms"),
    ("over direct", "p50 ms"),
    ("plain", "requests/s"),
    ("plain", "CPU ms/request"),
    ("open stream", "KiB"),
)
NONE = "-"


def _cells(row: Row, direct: Row | None) -> list[str]:
    if row.broken:
        return [row.client, row.broken]
    gateway = row is not direct  # else there is nobody that could cost anything
    burst, paced, plain = (row.cost(load) if gateway else None for load in (BURST, PACED, PLAIN))
    over = row.first(50) - direct.first(50) if direct and gateway else None
    return [
        row.client,
        _number(burst, ".2f"),
        _number(burst and 1e6 / burst, ",.0f"),
        _number(row.rate(BURST), ",.0f"),
        _number(paced, ".1f"),
        _number(row.first(50), ".2f"),
        _number(row.first(99), ".2f"),
        _number(over, "+.2f"),
        _number(row.rate(PLAIN), ",.0f"),
        _number(plain and plain / 1000, ".3f"),
        _number(median(row.memory) / 1024 if row.memory else None, ".1f"),
    ]


def _number(value: float | None, form: str) -> str:
    return NONE if value is None else format(value, form)


def lines(rows: Sequence[Row]) -> list[str]:
    """The table. A row that is broken says why instead."""
    direct = next((row for row in rows if row.gateway == "direct"), None)
    cells = [[row.gateway, *_cells(row, direct)] for row in rows]
    heads = [["", *(head[level] for head in HEADS)] for level in (0, 1)]
    whole = [line for line in (*heads, *cells) if len(line) == len(HEADS) + 1]
    widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
    return ["  ".join(_padded(line, widths)).rstrip() for line in (*heads, *cells)]


def _padded(line: list[str], widths: list[int]) -> list[str]:
    return [
        cell.ljust(width) if number < 2 else cell.rjust(width)
        for number, (cell, width) in enumerate(zip(line, widths, strict=False))
    ]


@dataclass(frozen=True, slots=True)
class Aim:
    """A figure and what it should be."""

    what: str
    figure: float
    limit: float
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.figure >= self.limit if self.at_least else self.figure <= self.limit

    def __str__(self) -> str:
        verdict, sign = "ok" if self.met else "MISS", "≥" if self.at_least else "≤"
        return (
            f"{verdict:>4}  {self.what:<52} {self.figure:8.2f} {self.unit:<4} "
            f"(aim {sign} {self.limit:g})"
        )


def aims(weft: Row, direct: Row, nginx: Row | None, workers: Sequence[float]) -> list[Aim]:
    """Those of the main row: a chat upstream, a Responses client."""
    return [
        Aim("burst, CPU an event", weft.cost(BURST), 10, "µs"),
        *_beside(weft, nginx),
        Aim("plain, CPU a request", weft.cost(PLAIN) / 1000, 0.6, "ms"),
        Aim("first token, p50 over direct", weft.first(50) - direct.first(50), 2, "ms"),
        Aim("memory of an open stream", median(weft.memory) / 1024, 64, "KiB"),
        *_doubled(workers),
    ]


def _beside(weft: Row, nginx: Row | None) -> list[Aim]:
    if nginx is None:
        return []
    pairs = zip(weft.runs[PACED], nginx.runs[PACED], strict=True)
    ratio = median(ours.cost / theirs.cost for ours, theirs in pairs)
    return [Aim("paced, CPU an event / nginx", ratio, 2, "x")]


def _doubled(workers: Sequence[float]) -> list[Aim]:
    if not workers:
        return []
    return [Aim("burst events/s, 2 workers / 1", median(workers), 1.7, "x", at_least=True)]
