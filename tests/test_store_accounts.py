"""Keys, the ledger, rates and reservations in the store, on both databases."""

import asyncio

import pytest

from tests.stores import Stores, each_store
from weft.errors import ClientError
from weft.store.accounts import KeyBudget, StoredKey, UsageRow
from weft.store.base import AlreadyExists, NotFound
from weft.store.sql import SqlStore

TODAY = "2026-11-17"


async def opened(stores: Stores, server: str = "one") -> SqlStore:
    store = await stores.opened(server=server)
    assert isinstance(store, SqlStore)
    return store


async def leased(stores: Stores) -> SqlStore:
    """A store of a server that is alive."""
    store = await opened(stores)
    await store.take_lease(15.0)
    return store


def row(owner: str = "alice", model: str = "m", **counts: int) -> UsageRow:
    return UsageRow(owner, TODAY, model, "up", "reported", **counts)


def key(name: str, digest: str = "d1") -> StoredKey:
    return StoredKey(name, digest, "1234", 1.0, None, b"{}")


# Keys


@each_store
async def test_a_key_is_made_rotated_and_revoked(stores: Stores) -> None:
    accounts = (await opened(stores)).accounts
    assert (await accounts.revision(), await accounts.keys()) == (0, [])
    await accounts.create_key(key("alice"))
    await accounts.create_key(key("bob", "d2"))
    before = await accounts.revision()
    await accounts.rotate_key("alice", "d3", "9876")
    await accounts.revoke_key("bob", 5.0)
    alice, bob = await accounts.keys()
    assert (alice.digest, alice.hint, alice.revoked) == ("d3", "9876", None)
    assert (bob.name, bob.revoked) == ("bob", 5.0)
    assert await accounts.revision() == before + 2


@each_store
async def test_a_name_is_used_once_and_what_is_revoked_stays_so(stores: Stores) -> None:
    accounts = (await opened(stores)).accounts
    await accounts.create_key(key("alice"))
    await accounts.revoke_key("alice", 5.0)
    with pytest.raises(AlreadyExists):
        await accounts.create_key(key("alice", "d2"))
    with pytest.raises(ClientError, match="revoked"):
        await accounts.rotate_key("alice", "d3", "")
    with pytest.raises(ClientError, match="revoked"):
        await accounts.revoke_key("alice", 6.0)
    for act in (accounts.revoke_key("' OR '1'='1", 6.0), accounts.rotate_key("nobody", "d", "")):
        with pytest.raises(NotFound):
            await act


# The ledger


@each_store
async def test_a_part_of_a_journal_is_added_once(stores: Stores) -> None:
    accounts = (await opened(stores)).accounts
    first = [row(requests=1, input=10, cost=5)]
    assert await accounts.add_usage("j", 0, 100, first)
    assert not await accounts.add_usage("j", 0, 100, first)
    assert await accounts.add_usage("j", 100, 200, [row(requests=1, input=1, unpriced=1)])
    assert await accounts.usage("alice") == [row(requests=2, input=11, cost=5, unpriced=1)]
    assert await accounts.position("j") == 200
    assert await accounts.usage("bob") == []


@each_store
async def test_servers_add_to_the_same_rows_at_once(stores: Stores) -> None:
    """In opposite orders: nobody waits for ever, and nothing is lost."""
    one, two = await opened(stores), await opened(stores, "two")
    models = [f"m{number}" for number in range(20)]

    async def add(store: SqlStore, journal: str, names: list[str]) -> None:
        for at in range(10):
            rows = [row(model=name, requests=1, output=3) for name in names]
            assert await store.accounts.add_usage(journal, at, at + 1, rows)

    await asyncio.gather(add(one, "a", models), add(two, "b", models[::-1]))
    found = await one.accounts.usage(None)
    assert found == [row(model=name, requests=20, output=60) for name in sorted(models)]


@each_store
async def test_days_are_selected(stores: Stores) -> None:
    accounts = (await opened(stores)).accounts
    days = ["2026-01-31", "2026-02-01", "2026-02-02"]
    rows = [UsageRow("a", day, "m", "u", "none", requests=1) for day in days]
    await accounts.add_usage("j", 0, 1, rows)
    assert [one.day for one in await accounts.usage("a", "2026-02-01", "2026-02-01")] == days[1:2]
    assert [one.day for one in await accounts.usage("a", "2026-02-01")] == days[1:]


# Limits


@each_store
async def test_servers_share_a_rate(stores: Stores) -> None:
    one, two = await opened(stores), await opened(stores, "two")

    async def take(store: SqlStore, need: int, block: int) -> tuple[int, int]:
        window = await store.accounts.take("alice", "requests", 100, need, block)
        assert 0 < window.seconds <= 60
        return window.number, window.granted

    taken = await asyncio.gather(*(take(store, 1, 7) for store in (one, two) * 20))
    granted: dict[int, int] = {}
    for number, amount in taken:
        granted[number] = granted.get(number, 0) + amount
    # A test may begin in one minute and end in the next.
    assert granted[min(granted)] <= 100
    assert max(granted.values()) == 100
    number, rest = await take(one, 1, 1)
    assert rest == (0 if granted.get(number) == 100 else 1)


@each_store
async def test_what_a_server_holds_is_free_when_it_is_gone(stores: Stores) -> None:
    one, two = await leased(stores), await leased(stores)

    async def reserve(store: SqlStore, need: int) -> int:
        return (await store.accounts.reserve_streams("a", store.server, 3, need, need)).granted

    assert [await reserve(one, 2), await reserve(two, 2), await reserve(two, 1)] == [2, 0, 1]
    await two.accounts.release("a", "streams", two.server, 1)
    assert [await reserve(one, 1), await reserve(two, 1)] == [1, 0]
    await one.close()
    assert await reserve(two, 3) == 3


@each_store
async def test_money_is_left_that_was_neither_spent_nor_reserved(stores: Stores) -> None:
    one, two = await leased(stores), await leased(stores)

    async def reserve(store: SqlStore, budget: KeyBudget, need: int) -> tuple[int, str]:
        found = await store.accounts.reserve_money("alice", store.server, budget, need, 0)
        return found.granted, found.limit

    total = KeyBudget(total=100)
    assert await reserve(one, total, 60) == (60, "total")
    assert await reserve(two, total, 50) == (0, "total")
    assert await reserve(two, total, 40) == (40, "total")
    # What was spent is no longer reserved.
    await one.accounts.add_usage("j", 0, 1, [row(cost=60)], one.server, [("alice", 60)])
    assert await reserve(one, total, 1) == (0, "total")
    await two.accounts.release("alice", "budget", two.server, 40)
    assert await reserve(one, total, 40) == (40, "total")
    # The ledger has nothing of this month, if it is not the month of the row.
    assert await reserve(one, KeyBudget(total=1_000, day=50, month=1_000), 20) == (0, "day")


@each_store
async def test_servers_compete_for_the_last_of_a_budget(stores: Stores) -> None:
    one, two = await leased(stores), await leased(stores)

    found = await asyncio.gather(
        *(
            store.accounts.reserve_money("a", store.server, KeyBudget(total=10), 1, 1)
            for store in (one, two) * 15
        )
    )
    assert sum(one.granted for one in found) == 10
