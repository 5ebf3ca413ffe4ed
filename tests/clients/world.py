"""One gateway, one scripted upstream behind it, and an event loop for the clients."""

import asyncio
import os
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from tests.clients import with_anthropic, with_gemini, with_openai
from tests.clients.drivers import CHAT, GEMINI, MESSAGES, RESPONSES
from tests.clients.scripted import Upstream, scripted
from tests.clients.vendor import KEY
from tests.gateway_process import Gateway, gateway

T = TypeVar("T")

UPSTREAMS = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES, "gemini": GEMINI}
"""The upstreams of the gateway, and what they speak."""

UPSTREAM = """\
[upstreams.{name}]
dialect = "{dialect}"
base_url = "{base}"
api_key = "env:PLANTED_KEY"
models = ["text"]
retry = {{ attempts = 1 }}
breaker = {{ failures = 0 }}
{more}
"""
MORE = {"chat": 'quirks = { reasoning_back = ["reasoning_content", "reasoning_details"] }'}
BELOW = {"chat": "/v1", "responses": "/v1"}


@dataclass
class World:
    """What a test talks to."""

    upstream: Upstream
    gateway: Gateway
    runner: asyncio.Runner
    _tags: Iterator[int] = field(default_factory=lambda: count(1))

    def tag(self) -> str:
        return f"c{next(self._tags)}"

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)


def settings(url: str) -> str:
    """The weft.toml of a gateway in front of the scripted upstream."""
    upstreams = [
        UPSTREAM.format(
            name=name, dialect=dialect, base=url + BELOW.get(name, ""), more=MORE.get(name, "")
        )
        for name, dialect in UPSTREAMS.items()
    ]
    return "\n".join(upstreams)


@contextmanager
def world(folder: Path, more: str = "") -> Iterator[World]:
    """`more` is added to the settings."""
    environment = {**os.environ, "PLANTED_KEY": KEY}
    with (
        scripted() as upstream,
        gateway(settings(upstream.url) + more, folder, environment=environment) as running,
        asyncio.Runner() as runner,
    ):
        try:
            yield World(upstream, running, runner)
        finally:
            runner.run(_close())


async def _close() -> None:
    """Closes the clients that were kept."""
    for module in (with_openai, with_anthropic, with_gemini):
        await module.close()
