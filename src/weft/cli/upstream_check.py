"""Whether the upstreams of the settings can be reached, and accept their keys."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from weft.upstream.base import UpstreamConfig
from weft.upstream.discovery import ListingFailed, ask_for_models, parse_listing
from weft.upstream.http import HttpUpstream
from weft.upstream.urls import DEMO

REFUSED = (401, 403)
"""Statuses of a key that is missing or wrong."""


@dataclass(frozen=True, slots=True)
class UpstreamCheck:
    """What asking one upstream for its models has shown."""

    name: str
    works: bool
    detail: str
    advice: str = ""
    """What to do, if it does not work."""

    clock: float | None = None
    """Seconds that this machine's clock is ahead of the upstream's, if it sent its time."""


def check_upstreams(upstreams: Iterable[UpstreamConfig]) -> list[UpstreamCheck]:
    """Asks all of them at the same time; it takes as long as the slowest."""

    async def ask_all() -> list[UpstreamCheck]:
        return list(await asyncio.gather(*map(_check, upstreams)))

    return asyncio.run(ask_all())


async def _check(config: UpstreamConfig) -> UpstreamCheck:
    if config.base_url in DEMO:
        return UpstreamCheck(config.name, True, "built in")
    upstream = HttpUpstream(config)
    try:
        response, data = await ask_for_models(upstream)
    except ListingFailed as problem:
        advice = f"check base_url ({config.base_url}), the network, HTTPS_PROXY and NO_PROXY"
        return UpstreamCheck(config.name, False, _own(problem, config), advice)
    finally:
        await upstream.close()
    clock = None
    with suppress(KeyError, ValueError):  # no date, or none that can be read
        clock = time.time() - parsedate_to_datetime(response.headers["date"]).timestamp()
    if response.status in REFUSED:
        what = "has no API key" if config.key is None else "rejected the API key"
        detail = f"{what} (HTTP {response.status})"
        return UpstreamCheck(config.name, False, detail, "check api_key, or its variable", clock)
    try:
        detail = f"{len(parse_listing(upstream, response, data))} models"
    except ListingFailed as problem:
        # Reachable, and not every server lists its models.
        detail = f"reachable, but {_own(problem, config)}"
    return UpstreamCheck(config.name, True, detail, clock=clock)


def _own(problem: ListingFailed, config: UpstreamConfig) -> str:
    """The message without the name of the upstream, which is printed before it."""
    return str(problem).removeprefix(f'upstream "{config.name}": ')
