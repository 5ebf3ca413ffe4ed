"""`weft serve` in a process that measures how long its event loop goes without a turn.

    python -m tests.faults.watched --config weft.toml --host 127.0.0.1 --port 0

`GET /stalls` returns what was measured since it was asked last. A stall is the time between two
turns of the loop, as far as the process itself used the CPU meanwhile, in whichever thread, and
without the time in which the loop's thread could have run but had no CPU: a machine that has others
to serve makes none. So a C function in a thread that does not let go of the interpreter is a stall
as well.
"""

import argparse
import asyncio
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from weft.gateway.app import Gateway
from weft.gateway.http_protocol import ConnectionLimits
from weft.gateway.server import serve
from weft.gateway.settings import load

EVERY = 0.002
"""Seconds between two beats."""

STEPS = (5, 10, 20, 35, 50, 75, 100, 150, 250, 500, 1000, 10_000)
"""Milliseconds: the upper ends of the columns of the histogram."""

LONG = 0.03
"""Seconds after which it is noted what goes on."""

Message = MutableMapping[str, Any]


class Measured(msgspec.Struct):
    """What `GET /stalls` returns."""

    worst: float = 0.0
    """Milliseconds."""

    where: str = ""
    """What the threads did in the worst one, as far as another could look."""

    counts: dict[int, int] = {}
    """How many stalls there were up to so many milliseconds, and over the step before."""


def _place(frame: FrameType) -> str:
    """Where a thread is: the last lines of our own code that led there."""
    stack = traceback.extract_stack(frame)
    own = [one for one in stack if "weft" in one.filename] or stack
    return " > ".join(f"{Path(one.filename).stem}:{one.lineno} {one.name}" for one in own[-4:])


class Sampler:
    """Beats on the loop; a thread looks what goes on when a beat is late."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._scheduled = os.open(
            f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY
        )
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self._waited = self._waiting()
        self._seen: dict[str, None] = {}
        self._counts: Counter[int] = Counter()
        self._measured = Measured()
        threading.Thread(target=self._look, daemon=True).start()
        self._beat()

    def _waiting(self) -> float:
        """Seconds in which the loop's thread waited for a CPU so far."""
        return int(os.pread(self._scheduled, 100, 0).split()[1]) / 1e9

    def _beat(self) -> None:
        wall, cpu, waited = time.perf_counter(), time.process_time(), self._waiting()
        stall = 1000 * min(wall - self._wall - (waited - self._waited), cpu - self._cpu)
        seen, self._seen = "\n".join(self._seen), {}
        self._counts[next(step for step in STEPS if stall <= step or step == STEPS[-1])] += 1
        if stall > self._measured.worst:
            self._measured = Measured(stall, seen)
        self._wall, self._cpu, self._waited = wall, cpu, waited
        self._loop.call_later(EVERY, self._beat)

    def _look(self) -> None:
        while True:
            time.sleep(LONG / 3)
            late = time.perf_counter() - self._wall
            if late > LONG:
                frames = sys._current_frames()
                names = {one.ident: one.name for one in threading.enumerate()}
                self._seen |= {
                    f"{names.get(thread, '?')}: {_place(frame)}": None
                    for thread, frame in frames.items()
                    if thread != threading.get_ident()
                }

    def take(self) -> Measured:
        found = Measured(self._measured.worst, self._measured.where, dict(self._counts))
        self._measured, self._counts = Measured(), Counter()
        return found


class Watched:
    """A gateway whose loop is sampled."""

    def __init__(self, inner: Gateway) -> None:
        self._inner = inner
        self.drain, self.abort = inner.drain, inner.abort
        self._sampler: Sampler | None = None

    @property
    def app(self) -> Any:
        return self

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        self._sampler = self._sampler or Sampler()
        if scope["type"] != "http" or scope["path"] != "/stalls":
            await self._inner(scope, receive, send)
            return
        body = msgspec.json.encode(self._sampler.take())
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    settings = load(given.config, {})
    connection_limits = ConnectionLimits(memory=settings.server.limits.memory)
    return serve(
        lambda: Watched(Gateway(settings)),
        host=given.host,
        port=given.port,
        limits=connection_limits,
    )


if __name__ == "__main__":
    sys.exit(main())
