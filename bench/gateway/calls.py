"""`python -m bench.gateway.calls`: how many calls one request makes in the gateway, and where.

Times differ from run to run by a tenth and more; this number hardly does. Where streams are few,
caches are cold, and what a request costs is how much code it touches: every call counts.

    python -m bench.gateway.calls                  one short stream, Responses from chat
    python -m bench.gateway.calls --plain          an answer that is not streamed
    python -m bench.gateway.calls --client chat --account --store
    python -m bench.gateway.calls --functions      each function by itself
    python -m bench.gateway.calls --tree           in the order in which they are called
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import BuiltinFunctionType, FrameType

from bench.gateway.accounting import accounting_settings
from bench.gateway.build import helpers
from bench.gateway.gateways import ONE_WORKER, WEFT_CONFIG, Gateway
from bench.gateway.load import PLAIN, Bench, paced
from bench.gateway.processes import start_server
from bench.gateway.requests import CHAT, MESSAGES, RESPONSES

CLIENTS = {client.name: client for client in (CHAT, MESSAGES, RESPONSES)}
STREAMED = replace(paced(1, 1, tokens=5, interval=5), connections=1)
"""Two or three of its events take the fast lane."""

NOT_COUNTED = ("Watchdog.",)
"""Runs by the clock, whatever is requested."""

SERVER = "--as-server"
BUILT_IN = "built-in"


class CallCounter:
    """Counts the calls of the main thread between two SIGUSR1, and writes them to a file."""

    def __init__(self, report: Path) -> None:
        self._report = report
        self._calls: list[tuple[int, str, str]] = []
        self._counts = False
        signal.signal(signal.SIGUSR1, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._counts = not self._counts
        if self._counts:
            self._calls.clear()
            self._report.touch()
            sys.setprofile(self._note)
            return
        sys.setprofile(None)
        lines = [f"{depth}\t{where}\t{name}" for depth, where, name in self._calls]
        made = self._report.with_suffix(".made")
        made.write_text("\n".join(lines))
        made.rename(self._report)

    def _note(self, frame: FrameType, event: str, function: object) -> None:
        if event == "call":
            code = frame.f_code
            self._calls.append((_depth(frame), _module(code.co_filename), code.co_qualname))
        elif event == "c_call" and isinstance(function, BuiltinFunctionType):
            self._calls.append((_depth(frame) + 1, BUILT_IN, function.__qualname__))


def _depth(frame: FrameType | None) -> int:
    depth = 0
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


def _module(path: str) -> str:
    for root in sorted(sys.path, key=len, reverse=True):
        if root and path.startswith(root + os.sep):
            return path[len(root) + 1 :]
    return path


def serve(arguments: Sequence[str]) -> None:
    """Runs `weft` in this process, with a counter."""
    report, *words = arguments
    CallCounter(Path(report))
    from weft.cli.main import main as weft

    sys.argv = ["weft", *words]
    weft()


def _wait_for(report: Path, *, content: bool) -> str:
    for _ in range(1000):
        if report.exists() and (not content or report.stat().st_size):
            return report.read_text()
        time.sleep(0.01)
    sys.exit("the server did not count")


def count(given: argparse.Namespace) -> list[tuple[int, str, str]]:
    """The calls of one request, after others like it: depth, module, name."""
    load, client = PLAIN if given.plain else STREAMED, CLIENTS[given.client]
    with TemporaryDirectory(prefix="weft-bench-") as name:
        directory = Path(name)
        report, settings = directory / "calls", directory / "weft.toml"
        made = helpers(directory)
        with start_server(made.upstream, directory / "upstream.log") as upstream:
            stored = "true" if given.store or given.account else "false"
            text = WEFT_CONFIG.format(workers=1, upstream=upstream.port, stored=stored)
            text = text.replace("sqlite:///", f"sqlite:///{directory}/")
            settings.write_text(accounting_settings(text, [load.model]) if given.account else text)
            command = [sys.executable, "-m", "bench.gateway.calls", SERVER, str(report)]
            command += ["serve", "--config", str(settings), "--port", "0"]
            with start_server(command, directory / "weft.log") as server:
                assert server.pid is not None
                gateway = Gateway("weft", ONE_WORKER.start, (client,), ONE_WORKER.prefix)
                bench = Bench(made.client, directory)
                bench.run(gateway, server, client, replace(load, connections=1, answers=20))
                os.kill(server.pid, signal.SIGUSR1)
                _wait_for(report, content=False)
                bench.run(gateway, server, client, replace(load, connections=1, answers=1))
                time.sleep(0.3)  # what follows the answer, such as its line in the log
                os.kill(server.pid, signal.SIGUSR1)
                lines = _wait_for(report, content=True).splitlines()
    found = [(int(depth), where, name) for depth, where, name in (x.split("\t") for x in lines)]
    return [one for one in found if not one[2].startswith(NOT_COUNTED)]


def main() -> None:
    if sys.argv[1:2] == [SERVER]:
        serve(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.calls")
    parser.add_argument("--plain", action="store_true", help="an answer that is not streamed")
    parser.add_argument("--client", choices=CLIENTS, default=RESPONSES.name)
    parser.add_argument("--account", action="store_true", help="with a key that has every limit")
    parser.add_argument("--store", action="store_true", help="with a store")
    parser.add_argument("--functions", action="store_true", help="each function by itself")
    parser.add_argument("--tree", action="store_true", help="in order, with what calls what")
    given = parser.parse_args()
    try:
        calls = count(given)
    except subprocess.SubprocessError as error:
        sys.exit(f"FAIL  {error}")
    if given.tree:
        for depth, where, name in calls:
            print(f"{'  ' * depth}{name}  ({where})")
    else:
        keys = [(where, name if given.functions else "") for _, where, name in calls]
        for (where, name), times in Counter(keys).most_common():
            print(f"{times:5} {where} {name}".rstrip())
    built_in = sum(where == BUILT_IN for _, where, _ in calls)
    print(f"{len(calls) - built_in} calls of functions, {built_in} of built-in ones")


if __name__ == "__main__":
    main()
