"""Hooks: Python functions that get the record of every finished request.

    def hook(record: RequestRecord) -> None: ...

They are named in the settings (`server.hooks`), or by installed packages (the entry point group
`weft.hooks`). They run in a thread of their own, one after the other, after the response: a hook
that fails, or hangs, hurts no request. If hooks are slower than requests come, records are dropped,
and the log says how many.
"""

import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from weft.gateway.settings import Settings, SettingsError
from weft.log_events import log_event
from weft.relay.request_record import Observer, RequestRecord

GROUP = "weft.hooks"
"""The group of entry points."""

QUEUED = 1000
"""Records that wait for hooks; each may hold a whole response."""

FLUSH = 5.0
"""Seconds that hooks have for the last records when the server stops."""

REPORT = 10.0
"""Seconds between two lines about dropped records."""

log = logging.getLogger("weft.hooks")


@dataclass(frozen=True, slots=True)
class Hook:
    """A function, and the name that the log has for it."""

    name: str
    call: Callable[[RequestRecord], object]


def load_hooks(settings: Settings) -> list[Hook]:
    """Imports the hooks. Raises SettingsError for those of the settings; an installed one that
    cannot be imported is logged, and left out."""
    folder = str((settings.path.parent if settings.path is not None else Path()).resolve())
    if settings.server.hooks and folder not in sys.path:
        sys.path.append(folder)  # at the end, as for the tools of agents
    hooks, problems = [], []
    for reference in settings.server.hooks:
        try:
            module, colon, name = reference.partition(":")
            found = getattr(import_module(module), name) if colon and name else None
            if not callable(found):
                raise TypeError("expected module:function")
            hooks.append(Hook(reference, found))
        except Exception as problem:  # whatever a module does when it is imported
            reason = f"{reference}: {type(problem).__name__}: {problem}"
            problems.append(settings.problem(("server", "hooks"), reason))
    if problems:
        raise SettingsError(problems)
    for entry in entry_points(group=GROUP):
        try:
            hooks.append(Hook(entry.name, entry.load()))
        except Exception as problem:
            log.error("hook %s cannot be imported", entry.name, exc_info=problem)
    return hooks


class Hooks:
    """Calls the hooks of one process. `start` before the first request, `close` after the last."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = tuple(hooks)
        self._queue: queue.Queue[RequestRecord | None] = queue.Queue(QUEUED)
        self._thread: threading.Thread | None = None
        self._dropped = 0
        self._reported = 0.0

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Itself, if there are hooks."""
        return (self._observe,) if self._hooks else ()

    def _observe(self, record: RequestRecord) -> None:
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._dropped += 1
            now = time.monotonic()
            if now - self._reported > REPORT:
                self._reported = now
                about = log_event("hooks-slow", dropped=self._dropped)
                log.warning("hooks are too slow: %d records dropped", self._dropped, extra=about)

    def start(self) -> None:
        """Starts the thread; after a fork, since threads do not survive one."""
        if self._hooks:
            # A daemon: a hook that hangs does not hold up the exit.
            self._thread = threading.Thread(target=self._run, name="hooks", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Waits until the hooks have seen every record, for some seconds. Blocks."""
        if self._thread is not None:
            try:
                self._queue.put(None, timeout=FLUSH)
            except queue.Full:
                return
            self._thread.join(FLUSH)

    def _run(self) -> None:
        while (record := self._queue.get()) is not None:
            for hook in self._hooks:
                try:
                    hook.call(record)
                except Exception as problem:
                    about = log_event("hook-failed", record.id, hook=hook.name)
                    log.error("hook %s failed", hook.name, exc_info=problem, extra=about)
