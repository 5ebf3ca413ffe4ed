"""Responses that nobody ends any more are ended here; also those of which it was not known for a
while whether they are stored, or whose they are.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.stores import Stores, each_store, entry, postgres_store
from tests.test_store_postgres import Line, line, through
from weft.relay.incoming import IncomingRequest, RequestBody, StorePolicy
from weft.relay.log import blocks_of
from weft.relay.offload import HUGE
from weft.relay.orphans import AT_A_TIME, recover_orphans
from weft.relay.persistence import Persistence
from weft.sse import Event
from weft.store.base import StoreError
from weft.store.records import Entry
from weft.store.urls import store_from_url
from weft.store.writer import WritePolicy

BODY = b'{"model":"a/m","input":"x"}'
INCOMING = IncomingRequest(
    RequestBody("openai-responses", BODY), "a/m", True, store=StorePolicy(BODY, b'["x"]')
)
HOURS = 36_000.0


@asynccontextmanager
async def cut_at(stores: Stores, nth: int) -> AsyncIterator[tuple[Persistence, Line]]:
    """A server with a lease, which hears nothing of its database from the n-th COMMIT on."""
    async with line(stores.folder, nth, True) as (folder, cut):
        cut.refusing = math.inf
        store = store_from_url(through(stores.url, folder), WritePolicy(timeout=3.0))
        await store.open()  # the first COMMIT
        await store.take_lease(HOURS)  # the second
        try:
            yield Persistence(store), cut
        finally:
            await store.close()


async def recovered(persistence: Persistence, id: str) -> Entry:
    """The response when it has ended."""
    async with asyncio.timeout(30):
        while True:
            with suppress(StoreError):
                await recover_orphans(persistence)
                found = await persistence.store.entry(id)
                if found is not None and found.ended is not None:
                    return found
            await asyncio.sleep(0.01)


@pytest.mark.long  # a timeout has to pass
@postgres_store
async def test_a_response_that_may_have_begun_is_ended(stores: Stores) -> None:
    """Its client is told that it failed."""
    async with cut_at(stores, 3) as (persistence, cut):
        writer = persistence.writer(INCOMING)
        assert writer is not None
        with pytest.raises(StoreError) as caught:
            await writer.begin("resp_1")
        assert caught.value.kind == "unknown"
        cut.refusing = 0
        assert (await recovered(persistence, "resp_1")).status == "failed"


@pytest.mark.long  # a timeout has to pass
@postgres_store
async def test_a_response_that_may_have_begun_is_ended_though_its_client_left(
    stores: Stores,
) -> None:
    async with cut_at(stores, 3) as (persistence, cut):
        writer = persistence.writer(INCOMING)
        assert writer is not None
        beginning = asyncio.ensure_future(writer.begin("resp_1"))
        async with asyncio.timeout(20):
            while cut.commits < 3:
                await asyncio.sleep(0.01)
            beginning.cancel()
            while not persistence.unfinished:
                await asyncio.sleep(0.01)
        cut.refusing = 0
        assert (await recovered(persistence, "resp_1")).status == "failed"


@pytest.mark.long  # a timeout has to pass
@postgres_store
async def test_a_response_that_may_have_been_taken_over_is_ended(stores: Stores) -> None:
    await (await stores.opened()).begin(entry("resp_1", server="dead"))
    async with cut_at(stores, 3) as (persistence, cut):
        with pytest.raises(StoreError) as caught:
            await recover_orphans(persistence)
        assert caught.value.kind == "unknown"
        cut.refusing = 0
        found = await recovered(persistence, "resp_1")
        assert (found.status, found.server) == ("failed", persistence.store.server)


@each_store
async def test_a_response_that_runs_here_is_not_ended(stores: Stores) -> None:
    """Though one under the same id might have been left."""
    store = await stores.opened()
    await store.take_lease(HOURS)
    persistence = Persistence(store)
    writer = persistence.writer(INCOMING)
    assert writer is not None
    await writer.begin("resp_1")
    persistence.unfinished.add("resp_1")
    await recover_orphans(persistence)
    assert await store.is_running("resp_1")
    assert not persistence.unfinished


@each_store
async def test_short_responses_do_not_wait_for_long_ones(stores: Stores) -> None:
    """Though those are older, and more than are ended at a time."""
    store = await stores.opened()
    await store.take_lease(HOURS)
    delta = {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0,
             "content_index": 0, "delta": "a" * HUGE, "sequence_number": 0}  # fmt: skip
    blocks = [*blocks_of(0, 0, [Event(str(delta["type"]), json.dumps(delta).encode(), 0)])]
    long = [f"resp_long_{number}" for number in range(AT_A_TIME + 1)]
    short = [f"resp_{number}" for number in range(4 * AT_A_TIME)]
    for number, id in enumerate((*long, *short)):
        first = blocks if id in long else ()
        await store.begin(entry(id, server="dead", created=1.0 + number), first)
    await recover_orphans(Persistence(store))
    ends: dict[str, float] = {}
    for id in (*long, *short):
        found = await store.entry(id)
        assert found is not None
        assert found.ended is not None
        ends[id] = found.ended
    assert max(ends[id] for id in short) < min(ends[id] for id in long)
