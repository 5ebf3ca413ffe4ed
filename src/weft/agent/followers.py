"""Who follows which runs in this process, and how they learn that there are new events.

The drivers of this process notify it. For all other runs the store is asked, by one task for
all of them together: a thousand clients that follow runs which wait for somebody cost a few
statements each time, and not a thousand.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from weft.agent.merge import CallProgress
from weft.store.base import Store, StoreError

INTERVAL = 0.2
"""Seconds between two looks for the events of runs that this process does not work on."""

MAX_PROGRESS = 256
"""Preliminary results that wait for one follower; older ones are dropped."""

log = logging.getLogger("weft.agent")


class Follower:
    """Somebody who waits for the next events of some runs."""

    __slots__ = ("appended", "progress")

    def __init__(self) -> None:
        self.appended = asyncio.Event()
        """Set when there may be some. The follower clears it before it reads."""
        self.progress: deque[CallProgress] = deque(maxlen=MAX_PROGRESS)

    def take(self, call: str) -> list[CallProgress]:
        """Takes the progress of one call."""
        taken = [one for one in self.progress if one.call == call]
        for one in taken:
            self.progress.remove(one)
        return taken


class RunFollowers:
    """The followers of all runs in one process."""

    def __init__(self, store: Store, is_driven: Callable[[str], bool]) -> None:
        """`is_driven`: whether somebody here works on this run, and will call `notify`."""
        self._store = store
        self._is_driven = is_driven
        self._by_run: dict[str, set[Follower]] = {}
        self._seen: dict[str, int] = {}
        """The last events that the store had, of the runs that it was asked for."""
        self._polling: asyncio.Task[None] | None = None

    @contextmanager
    def following(self, runs: Collection[str]) -> Iterator[Follower]:
        """Somebody who follows these runs, as long as the context lasts."""
        follower = Follower()
        for id in runs:
            self._by_run.setdefault(id, set()).add(follower)
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll())
        try:
            yield follower
        finally:
            for id in runs:
                self._by_run[id].discard(follower)
                if not self._by_run[id]:
                    del self._by_run[id]

    def notify(self, id: str) -> None:
        for follower in self._by_run.get(id, ()):
            follower.appended.set()

    def notify_all(self) -> None:
        for id in self._by_run:
            self.notify(id)

    def progress(self, run: str, call: str, text: str) -> None:
        """Shows a preliminary result to the followers of the run."""
        for follower in self._by_run.get(run, ()):
            follower.progress.append(CallProgress(run, call, text))
            follower.appended.set()

    async def close(self) -> None:
        """Asks the store no more."""
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait({self._polling})

    async def _poll(self) -> None:
        """Looks for new events until nobody follows a run."""
        while self._by_run:
            await asyncio.sleep(INTERVAL)
            ids = [id for id in self._by_run if not self._is_driven(id)]
            try:
                found = await self._store.last_events(ids) if ids else {}
            # RuntimeError: from the threads of a store that is closed.
            except (StoreError, RuntimeError) as error:
                log.debug("cannot poll for events: %s", error)
                self._seen = {}
                self.notify_all()  # they ask themselves, and meet the error
                continue
            for id in ids:
                if id not in self._seen or self._seen[id] != found.get(id):
                    self.notify(id)
            self._seen = found
