"""What was measured: all figures as one table, and those with limits as another."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.gateway.load import BURST, FEW, MANY, PACED, PLAIN, STORING_LOAD, Load, Memory, Run

MB = 1e6


@dataclass(slots=True)
class Row:
    """One gateway with one kind of client: its runs, round by round."""

    gateway: str
    client: str
    runs: dict[Load, list[Run]] = field(default_factory=lambda: defaultdict(list))
    memory: Memory | None = None
    broken: str | None = None
    """Why there are no figures."""

    def cost(self, load: Load) -> float | None:
        """Microseconds of CPU, the median of the rounds; None if it was not measured."""
        return median(run.cost for run in self.runs[load]) if self.runs[load] else None

    def rate(self, load: Load) -> float | None:
        return median(run.rate for run in self.runs[load]) if self.runs[load] else None

    def first(self, percent: int) -> float | None:
        """Milliseconds to the first token, of all rounds together."""
        times = sorted(time for run in self.runs[PACED] for time in run.report.first)
        return times[min(len(times) - 1, len(times) * percent // 100)] if times else None


HEADERS = (
    ("", "client"),
    ("burst", "µs/event"),
    ("burst", "events/s"),
    ("5 paced", "µs/event"),
    ("50 paced", "µs/event"),
    ("400 paced", "µs/event"),
    ("first token", "p50 ms"),
    ("first token", "p99 ms"),
    ("plain", "requests/s"),
    ("plain", "CPU ms/request"),
    ("open stream", "KiB"),
)
NOT_MEASURED = "-"


def _cells(row: Row) -> list[str]:
    if row.broken:
        return [row.client, row.broken]
    costs = {load: row.cost(load) or None for load in (BURST, FEW, PACED, MANY, PLAIN)}
    plain = costs[PLAIN]
    return [
        row.client,
        _number(costs[BURST], ".2f"),
        _number(row.rate(BURST), ",.0f"),
        *(_number(costs[load], ".1f") for load in (FEW, PACED, MANY)),
        _number(row.first(50), ".2f"),
        _number(row.first(99), ".2f"),
        _number(row.rate(PLAIN), ",.0f"),
        _number(plain and plain / 1000, ".3f"),
        _number(row.memory.stream / 1024 if row.memory else None, ".1f"),
    ]


def _number(value: float | None, form: str) -> str:
    return NOT_MEASURED if value is None else format(value, form)


def lines(rows: Sequence[Row]) -> list[str]:
    """All figures. A row that is broken says why instead."""
    cells = [[row.gateway, *_cells(row)] for row in rows]
    heads = [["", *(head[level] for head in HEADERS)] for level in (0, 1)]
    whole = [line for line in (*heads, *cells) if len(line) == len(HEADERS) + 1]
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


@dataclass(frozen=True, slots=True)
class Limit:
    """What is measured, what it should be, and what it may be. Several figures of one row have
    aims of their own, and one limit, for the worst of them."""

    what: str
    aims: tuple[float, ...]
    limit: float
    digits: int = 2
    at_least: bool = False

    def verdict(self, figures: Sequence[float] | None) -> str:
        if figures is None:
            return "not measured"
        if self.is_broken(figures):
            return "over the limit" if not self.at_least else "below the limit"
        pairs = zip(figures, self.aims, strict=True)
        met = all(one >= aim if self.at_least else one <= aim for one, aim in pairs)
        return "ok" if met else "ok, aim missed"

    def is_broken(self, figures: Sequence[float] | None) -> bool:
        if figures is None:
            return False
        return min(figures) < self.limit if self.at_least else max(figures) > self.limit


LIMITS = {
    "burst": Limit("burst, chat → chat / Messages / Responses, µs a token", (5, 6, 6), 8),
    "paced": Limit("50 streams, an event every 20 ms, chat → Responses, times nginx", (1.5,), 2.2),
    "few": Limit("5 streams, times nginx", (1.8,), 2.5),
    "many": Limit("400 streams, times nginx", (1.2,), 1.5),
    "plain": Limit("not streamed, chat → Responses, ms a request", (0.3,), 0.45),
    "first": Limit("first token later than direct, median of 50 streams, ms", (1.2,), 2),
    "stored": Limit("storing, 100 tokens a response, % more CPU", (10,), 15, 1),
    "memory": Limit("idle → 200 streams, MB", (55, 65), 80, 1),
    "workers": Limit("two workers, times the events of one", (1.9,), 1.7, at_least=True),
}
"""CPU of the gateway alone, unless it says otherwise."""

Measured = dict[str, tuple[float, ...] | None]


def markdown(measured: Measured) -> list[str]:
    """The limits as a table for docs/performance.md."""
    rows = ["| | aim | limit | measured | |", "|---|---|---|---|---|"]
    for name, limit in LIMITS.items():
        figures = measured.get(name)
        shown = NOT_MEASURED if figures is None else _joined(figures, limit.digits)
        aims = " / ".join(f"{aim:g}" for aim in limit.aims)
        rows.append(
            f"| {limit.what} | {aims} | {limit.limit:g} | {shown} | {limit.verdict(figures)} |"
        )
    return rows


def _joined(figures: Sequence[float], digits: int) -> str:
    return " / ".join(f"{one:.{digits}f}" for one in figures)


def measure(rows: Sequence[Row], workers: Sequence[float]) -> Measured:
    """The figures that have limits; None where a run is missing."""
    found = {(row.gateway, row.client): row for row in rows if not row.broken}
    weft, nginx = found.get(("weft", "responses")), found.get(("nginx", "chat"))
    direct, stored = found.get(("direct", "chat")), found.get(("weft, stored", "responses"))
    clients = [found.get(("weft", client)) for client in ("chat", "messages", "responses")]
    bursts = tuple(cost for row in clients if row and (cost := row.cost(BURST)))
    plain = weft and weft.cost(PLAIN)
    ours, theirs = weft and weft.first(50), direct and direct.first(50)
    memory = weft and weft.memory
    return {
        "burst": bursts if len(bursts) == len(clients) else None,
        "paced": _ratio(weft, nginx, PACED),
        "few": _ratio(weft, nginx, FEW),
        "many": _ratio(weft, nginx, MANY),
        "plain": (plain / 1000,) if plain else None,
        "first": (ours - theirs,) if ours and theirs else None,
        "stored": _ratio(stored, weft, STORING_LOAD, lambda ratio: 100 * (ratio - 1)),
        "memory": (memory.idle / MB, memory.full / MB) if memory else None,
        "workers": (median(workers),) if workers else None,
    }


def _ratio(
    one: Row | None, other: Row | None, load: Load, show: Callable[[float], float] = float
) -> tuple[float] | None:
    """The median of the rounds' ratios: what slows down a round slows down both."""
    if one is None or other is None or not one.runs[load] or not other.runs[load]:
        return None
    pairs = zip(one.runs[load], other.runs[load], strict=True)
    return (show(median(first.cost / second.cost for first, second in pairs)),)
