"""The ledger of a process: nothing is lost when it dies, and nothing is added twice."""

import asyncio
import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stores import Stores, each_store
from weft.gateway.ledger import MAX_COUNT, UsageLedger
from weft.parts import Usage
from weft.prices import DOLLAR, Price, PriceTable
from weft.relay.metering import Charge
from weft.store.accounts import Source, UsageRow
from weft.store.sql import SqlStore
from weft.store.urls import store_from_url

NOON = 1_794_916_800.0  # 2026-11-17 12:00 UTC
PRICES = PriceTable({"up/m": Price(1.0, 2.0)}, {"up": "demo:"})


def charge(
    owner: str = "alice", model: str = "m", source: Source = "reported", at: float = NOON
) -> Charge:
    usage = Usage() if source == "none" else Usage(10, 5, cache_read_tokens=2, reasoning_tokens=1)
    return Charge(owner, f"up/{model}", source, usage, 1, source == "none", False, at)


async def opened(stores: Stores) -> SqlStore:
    store = await stores.opened()
    assert isinstance(store, SqlStore)
    return store


def die(ledger: UsageLedger) -> None:
    """What the kernel does when a process is killed: the lock of its journal is released."""
    assert ledger._journal is not None
    os.close(ledger._journal._descriptor)


@each_store
async def test_what_is_charged_is_summed_up_by_key_day_model_and_source(stores: Stores) -> None:
    ledger = UsageLedger(await opened(stores), PRICES)
    await ledger.start()
    assert ledger.charge(charge()) == round(20e-6 * DOLLAR)
    ledger.charge(charge())
    assert ledger.charge(charge(model="unpriced")) is None
    assert ledger.charge(charge(source="none")) == 0
    ledger.charge(charge("bob", at=NOON + 86_400))
    found = await ledger.usage(None, "", "9999")
    assert found == [
        UsageRow("alice", "2026-11-17", "m", "up", "none", 1, 1),
        UsageRow("alice", "2026-11-17", "m", "up", "reported", 2, 0, 20, 10, 4, 2, 40_000),
        UsageRow("alice", "2026-11-17", "unpriced", "up", "reported", 1, 0, 10, 5, 2, 1, 0, 1),
        UsageRow("bob", "2026-11-18", "m", "up", "reported", 1, 0, 10, 5, 2, 1, 20_000),
    ]  # fmt: skip
    await ledger.close()


@each_store
async def test_a_flush_ends_although_charges_keep_coming(stores: Stores) -> None:
    """It went on, transaction after transaction, for as long as a server was busy."""
    ledger = UsageLedger(await opened(stores), PRICES)
    await ledger.start()
    ledger.charge(charge("bob"))

    async def keep_charging() -> None:
        while True:
            ledger.charge(charge())
            await asyncio.sleep(0)

    charging = asyncio.create_task(keep_charging())
    async with asyncio.timeout(30):
        found = await ledger.usage("bob", "", "9999")
    assert [one.requests for one in found] == [1]
    charging.cancel()
    await ledger.close()


@each_store
async def test_the_rest_of_a_dead_process_is_added_once(stores: Stores) -> None:
    store = await opened(stores)
    dead = UsageLedger(store, PRICES)
    await dead.start()
    dead.charge(charge())
    await dead.flush()
    dead.charge(charge())
    dead.charge(charge())
    living = UsageLedger(store, PRICES)
    await living.recover()  # nobody is dead yet
    assert [one.requests for one in await living.usage("alice", "", "9999")] == [1]
    die(dead)
    others = [UsageLedger(store, PRICES) for _ in range(4)]
    await asyncio.gather(*(one.recover() for one in others))
    assert [one.requests for one in await living.usage("alice", "", "9999")] == [3]
    pattern = store.journal_path("*")
    assert list(pattern.parent.glob(pattern.name)) == []


STEPS = st.lists(st.sampled_from(["charge", "flush", "die", "close"]), max_size=12)


@given(STEPS)
@settings(deadline=None, max_examples=20)
def test_every_charge_is_in_the_ledger_once_whatever_happens(steps: list[str]) -> None:
    async def play(folder: Path) -> None:
        store = store_from_url(f"sqlite:///{folder / 'store.db'}")
        await store.open()
        ledger, charged = UsageLedger(store, PRICES), 0
        await ledger.start()
        for step in steps:
            if step == "charge":
                ledger.charge(charge())
                charged += 1
            elif step == "flush":
                await ledger.flush()
            else:
                if step == "die":
                    die(ledger)
                else:
                    await ledger.close()
                ledger = UsageLedger(store, PRICES)
                await ledger.start()
        found = await ledger.usage("alice", "", "9999")
        assert sum(one.requests for one in found) == charged
        await ledger.close()
        await store.close()
        assert list(folder.glob("*-usage-*")) == []

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))


@pytest.mark.parametrize(
    "rest", [b"\n[", b"\n{}\n", b"\n" + b"\x00" * 9, b'\n["a","b","c","d","e",[]]']
)
def test_a_journal_with_a_broken_end_is_read_as_far_as_it_goes(tmp_path: Path, rest: bytes) -> None:
    async def play() -> None:
        store = store_from_url(f"sqlite:///{tmp_path / 'store.db'}")
        await store.open()
        dead = UsageLedger(store, PRICES)
        await dead.start()
        dead.charge(charge())
        assert dead._journal is not None
        dead._journal.append(rest)
        die(dead)
        living = UsageLedger(store, PRICES)
        await living.start()
        assert [one.requests for one in await living.usage(None, "", "9999")] == [1]
        await living.close()
        await store.close()

    asyncio.run(play())


def test_without_a_folder_for_the_journal_everything_is_charged_all_the_same(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        store = store_from_url(f"sqlite:///{tmp_path / 'store.db'}")
        await store.open()
        ledger = UsageLedger(store, PRICES)
        ledger.charge(charge())
        await ledger.flush()
        ledger.charge(charge())
        assert [one.requests for one in await ledger.usage("alice", "", "9999")] == [2]
        await ledger.close()
        await store.close()

    asyncio.run(play())


def test_without_a_store_only_the_cost_is_known() -> None:
    async def play() -> None:
        ledger = UsageLedger(None, PRICES)
        await ledger.start()
        assert ledger.charge(charge()) == 20_000
        await ledger.flush()
        await ledger.recover()
        assert await ledger.usage(None, "", "9999") == []
        await ledger.close()

    asyncio.run(play())


@each_store
async def test_a_journal_with_numbers_that_no_database_has_is_added(stores: Stores) -> None:
    """An older version may have written it: it must hold up neither the start nor the others."""
    store = await opened(stores)
    counts = [1, 0, 10**30, -5, 0, 0, 10**40, 0]
    line = json.dumps(["alice", "2026-11-17", "m", "up", "reported", counts])
    store.journal_path("f" * 32).write_text(f"\n{line}")
    ledger = UsageLedger(store, PRICES)
    await ledger.start()
    (row,) = await ledger.usage(None, "", "9999")
    assert (row.requests, row.input, row.output, row.cost) == (1, MAX_COUNT, 0, MAX_COUNT)
    await ledger.close()
