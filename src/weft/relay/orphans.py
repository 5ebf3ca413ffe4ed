"""Ends the responses that dead processes have left."""

import logging

from weft.log_events import log_event
from weft.relay.persistence import Persistence, recover_ending, unread_ending
from weft.store.base import StoreError

MAX_RECOVERIES = 3
"""Attempts to recover a response of a dead process, before it is ended without its log."""

UNAVAILABLE = frozenset({"busy", "full", "lost", "closed"})
"""Store errors that concern every response, not one."""

log = logging.getLogger("weft.relay")


async def recover_orphans(persistence: Persistence) -> None:
    """Ends the responses of dead processes, and those whose end could not be stored: each on its
    own, so that a failure does not affect the others. To be called regularly. Raises StoreError."""
    store = persistence.store
    await store.revoke_dead()
    for id, server in await store.orphans():
        # Before it is ours: if it is not known for a while whether it is, nobody else can end it.
        persistence.unfinished.add(id)
        # Of several processes that see the orphan, one succeeds.
        if not await store.take_over(id, server):
            persistence.unfinished.discard(id)
    for id in list(persistence.unfinished):
        if id in persistence.logs:  # another request has begun a response under this id
            persistence.unfinished.discard(id)
            continue
        try:
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
