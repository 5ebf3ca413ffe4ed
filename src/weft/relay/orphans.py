"""Ends the responses that dead processes have left."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from weft.log_events import log_event
from weft.relay.offload import HUGE
from weft.relay.persistence import Persistence, recover_ending, unread_ending
from weft.store.base import StoreError

T = TypeVar("T")

MAX_RECOVERIES = 3
"""Attempts to recover a response of a dead process, before it is ended without its log."""

AT_A_TIME = 8
"""Small responses that are ended at a time: what they write is committed together."""

UNAVAILABLE = frozenset({"busy", "full", "lost", "closed"})
"""Store errors that concern every response, not one."""

log = logging.getLogger("weft.relay")


async def recover_orphans(persistence: Persistence) -> None:
    """Ends the responses of dead processes, and those whose end could not be stored: each on its
    own, so that a failure does not affect the others. To be called regularly. Raises StoreError."""
    store = persistence.store
    await store.revoke_dead()
    await _for_each(await store.orphans(), partial(_take_over, persistence))
    large: list[str] = []

    async def recover_small(id: str) -> None:
        if not await _recover(persistence, id, HUGE):
            large.append(id)

    await _for_each(list(persistence.unfinished), recover_small)
    # One after the other: each holds the memory for its whole response.
    for id in large:
        await _recover(persistence, id)


async def _for_each(values: Sequence[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Does the work for each of the values, for a few of them at a time. What it raises ends it."""
    waiting = iter(values)

    async def work_through() -> None:
        for value in waiting:
            await work(value)

    tasks = [asyncio.ensure_future(work_through()) for _ in values[:AT_A_TIME]]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _take_over(persistence: Persistence, orphan: tuple[str, str]) -> None:
    id, server = orphan
    # Before it is ours: if it is not known for a while whether it is, nobody else can end it.
    persistence.unfinished.add(id)
    # Of several processes that see the orphan, one succeeds.
    if not await persistence.store.take_over(id, server):
        persistence.unfinished.discard(id)


async def _recover(persistence: Persistence, id: str, at_most: int | None = None) -> bool:
    """Ends a response. Returns False, and has not tried, if its log has more bytes than `at_most`.
    Raises StoreError."""
    store = persistence.store
    try:
        if at_most is not None and (await store.extent(id)).size > at_most:
            return False
        if id in persistence.logs:  # another request has begun a response under this id
            persistence.unfinished.discard(id)
            return True
        attempts = await store.begin_recovery(id)
        entry = await store.entry(id) if attempts is not None else None
        if attempts is not None and entry is not None:
            # Attempts are counted in the database before the log is read: if reading it kills
            # the process, the next ones do not die of it for ever.
            recover = recover_ending if attempts <= MAX_RECOVERIES else unread_ending
            await store.finish(id, await recover(store, entry))
            about = log_event("recovered", response=id)
            log.warning("ended %s: its process died, or its end was lost", id, extra=about)
    except StoreError as problem:
        # The rest would fail alike, and fill the log; they stay in `unfinished` until the next
        # round.
        if problem.kind in UNAVAILABLE:
            raise
        log.warning("cannot recover response %s: %s", id, problem)
    except Exception as problem:
        log.error("cannot recover response %s", id, exc_info=problem)
    else:
        persistence.unfinished.discard(id)
    return True
