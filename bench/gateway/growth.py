"""`python -m bench.gateway.growth`: how the cost of a gateway grows.

With the number of streams, with the tokens of a response, with the turns of a conversation, and
with the arguments of a call; each beside nginx under the same load, as tables in Markdown. Both
take turns; a figure is the median of the rounds. CPU is that of the gateways alone.

Exits 1 when an answer was wrong.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.gateway.build import helpers
from bench.gateway.gateways import NGINX_GATEWAY, ONE_WORKER, Gateway, find_nginx
from bench.gateway.load import PLAIN, WARM_UP, BadAnswers, Bench, Load, paced
from bench.gateway.processes import Server, start_server
from bench.gateway.requests import CHAT, QUESTION, RESPONSES, Body, Client

DELTA = 20
"""Bytes of arguments in one delta of the upstream."""

TOOL = {
    "name": "write",
    "description": "Writes a text.",
    "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
}


def with_turns(client: Client, turns: int) -> Client:
    """The client of a conversation with so many turns before its question."""
    roles = ("user", "assistant")
    earlier: list[Body] = [
        {"role": roles[number % 2], "content": f"{number}: {QUESTION}"} for number in range(turns)
    ]

    def body(model: str, stream: bool) -> Body:
        key = "input" if client.path == RESPONSES.path else "messages"
        request = client.body(model, stream)
        last = request[key]
        assert isinstance(last, list)
        return {**request, key: [*last[:-1], *earlier, last[-1]]}

    return replace(client, name=f"{client.name}-{turns}", body=body)


def with_tool(client: Client, mark: str) -> Client:
    """The client of a model that calls a tool."""
    declared: Body = {"type": "function", **TOOL}
    if client.path == CHAT.path:
        declared = {"type": "function", "function": TOOL}

    def body(model: str, stream: bool) -> Body:
        return {**client.body(model, stream), "tools": [declared]}

    return replace(client, name=f"{client.name}-tool", body=body, mark=mark)


@dataclass(frozen=True, slots=True)
class Step:
    """One row of a table: how much there is of something, and what is sent for it."""

    label: str
    load: Load
    ours: Client = RESPONSES
    theirs: Client = CHAT


@dataclass(frozen=True, slots=True)
class Growth:
    """One table."""

    what: str
    unit: str
    steps: Sequence[Step]
    scale: float = 1.0
    """Microseconds in one unit of the figures."""


def growths() -> list[Growth]:
    tool = with_tool(RESPONSES, '"response.function_call_arguments.delta"')
    plain_tool = with_tool(CHAT, CHAT.mark)
    deltas = [(size, size * 1000 // DELTA) for size in (1, 10, 100, 1000)]
    return [
        Growth(
            "streams, an event every 20 ms",
            "µs an event",
            [Step(f"{n}", paced(n, max(2 * n, 15))) for n in (1, 5, 50, 200, 400)],
        ),
        Growth(
            "tokens of a response",
            "µs a token",
            [
                Step(f"{n:,}", Load(f"burst-{n}", n, 8, 80_000 // n))
                for n in (10, 100, 1000, 10_000)
            ],
        ),
        Growth(
            "turns before the question, not streamed",
            "ms a request",
            [
                Step(
                    f"{n:,}",
                    replace(PLAIN, answers=max(40, 1600 // max(n, 1))),
                    with_turns(RESPONSES, n),
                    with_turns(CHAT, n),
                )
                for n in (0, 10, 100, 1000)
            ],
            1000.0,
        ),
        Growth(
            f"KB of arguments of a call, {DELTA} bytes a delta",
            "µs a delta",
            [
                Step(f"{size:,}", Load(f"tool-{n}", n, 4, max(4, 40_000 // n)), tool, plain_tool)
                for size, n in deltas
            ],
        ),
    ]


class Runner:
    """Both gateways, and what their runs have cost."""

    def __init__(self, bench: Bench, gateways: Sequence[tuple[Gateway, Server]], rounds: int):
        self._bench = bench
        self._gateways = gateways
        self._rounds = rounds

    def figures(self, step: Step) -> dict[str, float]:
        """Microseconds by gateway. Raises BadAnswers."""
        found: dict[str, list[float]] = {one.name: [] for one, _ in self._gateways}
        for number in range(self._rounds):
            for one, server in self._gateways if number % 2 == 0 else self._gateways[::-1]:
                client = step.ours if one is ONE_WORKER else step.theirs
                found[one.name].append(self._bench.run(one, server, client, step.load).cost)
        return {name: median(costs) for name, costs in found.items()}

    def table(self, growth: Growth) -> list[str]:
        names = [one.name for one, _ in self._gateways]
        lines = [
            f"| {growth.what} | " + " | ".join(f"{name}, {growth.unit}" for name in names) + " |",
            "|---" * (len(names) + 1) + "|",
        ]
        for step in growth.steps:
            print(f"… {growth.what}: {step.label}", file=sys.stderr, flush=True)
            costs = self.figures(step)
            cells = " | ".join(f"{costs[name] / growth.scale:.3g}" for name in names)
            lines.append(f"| {step.label} | {cells} |")
        return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.growth")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with TemporaryDirectory(prefix="weft-bench-") as name, ExitStack() as stack:
        directory = Path(name)
        directory.chmod(0o755)  # nginx's worker may be another user
        made = helpers(directory)
        upstream = stack.enter_context(start_server(made.upstream, directory / "upstream.log"))
        gateways = [ONE_WORKER]
        if find_nginx():
            gateways.append(NGINX_GATEWAY)
        else:
            print("note: nginx is not installed (Debian: apt-get install nginx-light)")
        running = [
            (one, stack.enter_context(one.start(upstream.port, directory))) for one in gateways
        ]
        bench = Bench(made.client, directory)
        runner = Runner(bench, running, given.rounds)
        try:
            for one, server in running:
                for load in WARM_UP:
                    bench.run(one, server, one.clients[0], load)
            for growth in growths():
                print("\n".join([*runner.table(growth), ""]), flush=True)
        except BadAnswers as error:
            sys.exit(f"FAIL  {error}")


if __name__ == "__main__":
    main()
