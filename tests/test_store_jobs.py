"""Background responses in the store: who may claim them, and who may write to them then."""

import asyncio

import msgspec

from tests.stores import Stores, each_store, ending, entry, log
from weft.store.base import Store
from weft.store.records import Entry, NewJob

JOB = NewJob(body=b'{"input":"hi"}', options=b'{"before":1}', tries=1)
QUEUED = entry("resp_1", status="queued", background=True)


async def living(stores: Stores) -> Store:
    """A server with a lease."""
    store = await stores.opened()
    await store.take_lease(30.0)
    return store


async def dead(stores: Stores) -> str:
    """The id of a server that had a lease."""
    store = await living(stores)
    server = store.server
    await store.close()
    return server


def of(server: str, **fields: object) -> Entry:
    return msgspec.structs.replace(QUEUED, server=server, **fields)


@each_store
async def test_only_what_no_living_server_runs_can_be_claimed(stores: Stores) -> None:
    one, other = await living(stores), await living(stores)
    await one.begin(of(one.server), (), JOB)
    assert await other.due_jobs() == []
    assert (await other.claim_job("resp_1")).outcome == "held"
    assert (await one.claim_job("resp_1")).outcome == "held", "also by itself"
    assert (await one.claim_job("resp_2")).outcome == "missing"
    await one.begin(entry("resp_3", server=await dead(stores)))
    assert (await other.claim_job("resp_3")).outcome == "missing", "it is no background response"
    await one.close()
    assert await other.due_jobs() == ["resp_1"]
    claim = await other.claim_job("resp_1")
    expected = of(other.server)
    assert (claim.outcome, claim.entry, claim.logged) == ("claimed", expected, 0)
    assert (claim.body, claim.options, claim.tries) == (JOB.body, JOB.options, 2)
    assert await other.due_jobs() == []


@each_store
async def test_of_many_servers_one_claims_it(stores: Stores) -> None:
    servers = [await living(stores) for _ in range(4)]
    await servers[0].begin(of(""), (), JOB)
    claims = await asyncio.gather(*(one.claim_job("resp_1") for one in servers))
    assert sorted(claim.outcome for claim in claims) == ["claimed", "held", "held", "held"]


@each_store
async def test_who_was_taken_over_can_write_no_more(stores: Stores) -> None:
    one, other = await living(stores), await stores.opened(server="two")
    await other.begin(of("two", status="in_progress"), (), JOB)  # "two" has no lease
    assert await one.orphans() == [], "it is not to be ended, but run"
    blocks = log(2)
    claim = await one.claim_job("resp_1")
    assert claim.outcome == "claimed"
    other.append("resp_1", blocks[0])
    assert not await other.finish("resp_1", ending())
    assert not await other.release_job("resp_1")
    for block in blocks:
        one.append("resp_1", block)
    assert await one.finish("resp_1", ending(blocks))
    found = await one.entry("resp_1")
    assert found is not None
    assert (found.status, found.events) == ("completed", 4)
    assert (await other.claim_job("resp_1")).outcome == "missing", "it has ended"


@each_store
async def test_what_is_in_the_log_is_counted_without_half_a_batch(stores: Stores) -> None:
    one, other = await living(stores), await stores.opened(server="two")
    whole, half = log(2)
    await other.begin(of("two"), [whole, msgspec.structs.replace(half, count=0)], JOB)
    claim = await one.claim_job("resp_1")
    assert claim.logged == whole.count
    assert await one.blocks("resp_1") == [whole]


@each_store
async def test_what_is_given_back_is_due_after_a_while_or_when_it_is_cancelled(
    stores: Stores,
) -> None:
    one, other = await living(stores), await living(stores)
    await one.begin(of(one.server, status="in_progress"), (), JOB)
    assert await one.release_job("resp_1", tries=1)
    assert await other.due_jobs() == ["resp_1"]
    first = await other.claim_job("resp_1")
    assert (first.outcome, first.tries) == ("claimed", 1)
    assert first.entry is not None
    assert first.entry.status == "queued"
    assert await other.release_job("resp_1", after=500.0)
    assert await one.due_jobs() == []
    held = await one.claim_job("resp_1")
    assert held.outcome == "held"
    assert held.wait is not None
    assert 400 < held.wait <= 500
    assert await one.request_cancel("resp_1")
    assert await one.due_jobs() == ["resp_1"]
    assert (await one.claim_job("resp_1")).tries == 2
