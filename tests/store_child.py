"""A process that writes to a store and says what was acknowledged: to be killed, or raced.

python -m tests.store_child endure URL SERVER     until killed
python -m tests.store_child contest URL SERVER    once, after a line on stdin
python -m tests.store_child open URL SERVER       once, after a line on stdin
python -m tests.store_child serve URL SERVER      until killed: with a lease, and one response
"""

import asyncio
import sys
from itertools import count

from tests.stores import SWIFT, ending, entry, log
from weft.store.base import Store
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


VERBS = {"endure": endure, "contest": contest, "serve": serve}


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
