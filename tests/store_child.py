"""A process that writes to a store and says what was acknowledged: to be killed, or raced.

python -m tests.store_child endure URL SERVER     until killed
python -m tests.store_child contest URL SERVER    once, after a line on stdin
python -m tests.store_child open URL SERVER       once, after a line on stdin
python -m tests.store_child serve URL SERVER      until killed: with a lease, and one response
python -m tests.store_child turns URL SERVER      until killed: responses that a run tells of
python -m tests.store_child hold URL SERVER       claims a run; appends to it after a line on stdin
"""

import asyncio
import sys
from itertools import count

import msgspec

from tests.stores import SWIFT, ending, entry, log
from weft.store.base import Store
from weft.store.queries import Queries
from weft.store.records import NewEvent, RunAppend
from weft.store.urls import store_from_url


def say(*words: object) -> None:
    print(*words, flush=True)


async def endure(store: Store, server: str) -> None:
    """Several responses at once, each with a log, one after the other for ever."""
    await asyncio.gather(*(respond(store, f"{server}_{lane}") for lane in range(4)))


async def respond(store: Store, prefix: str) -> None:
    for number in count():
        id = f"resp_{prefix}_{number:06}"
        blocks = log(number % 7)
        await store.begin(entry(id, server=store.server))
        say("begun", id)
        for block in blocks:
            store.append(id, block)
            await asyncio.sleep(0.001 * (number % 3))
        if await store.finish(id, ending(blocks)):
            say("ended", id)


async def contest(store: Store, server: str) -> None:
    """Tries to win each of the responses that are there."""
    say("ready")
    sys.stdin.readline()
    entries = await store.entries()
    wins = await asyncio.gather(*(store.take_over(one.id, "nobody") for one in entries))
    say(*(one.id for one, won in zip(entries, wins, strict=True) if won))


async def serve(store: Store, server: str) -> None:
    """Says the id of its server, which is that of the response, too."""
    await store.take_lease(36_000.0)
    await store.begin(entry(store.server, server=store.server))
    say(store.server)
    sys.stdin.readline()


RUN = "run_1"


async def turns(store: Store, server: str) -> None:
    """Ends responses and tells of each in the log of the run; every third time it is the row of a
    tool that commits with its receipt."""
    claim = await store.claim_run(RUN, 0.0)
    seq = claim.seq
    for number in count():
        id = f"{server}_{number:06}"

        def effect(id: str = id) -> Queries[list[NewEvent]]:
            yield (
                "INSERT INTO conversation (id, owner, created, metadata) VALUES (?, ?, ?, ?)",
                (id, "", 0.0, b""),
            )
            return [("effect", id.encode())]

        append = RunAppend(run=RUN, at=seq, status="running", epoch=claim.epoch)
        if number % 3 == 2:
            written = await store.transact(append, effect)
        else:
            await store.begin(entry(id, server=server), log(1))
            turn = msgspec.structs.replace(append, events=[("turn", id.encode())])
            answer = await store.finish_and_append(id, ending(log(1)), turn)
            assert answer is not None
            written = answer
        assert written.outcome == "written"
        seq = written.seq
        say("written", seq)


async def hold(store: Store, server: str) -> None:
    """The lease has expired at once, but that of a frozen process would have, too."""
    claim = await store.claim_run(RUN, 0.0)
    say(claim.outcome, claim.epoch)
    sys.stdin.readline()
    late = RunAppend(
        run=RUN, at=claim.seq, events=[("late", b"")], status="late", epoch=claim.epoch
    )
    written = await store.append_run(late)
    say(written.outcome, await store.renew_run(RUN, claim.epoch, 60.0))


VERBS = {"endure": endure, "contest": contest, "serve": serve, "turns": turns, "hold": hold}


async def main(verb: str, url: str, server: str) -> None:
    store = store_from_url(url, SWIFT, server)
    if verb == "open":
        say("ready")
        sys.stdin.readline()
    await store.open()
    try:
        if verb in VERBS:
            await VERBS[verb](store, server)
    finally:
        await store.close()
    say("done")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
