"""Limits in one process and in several, without HTTP: nobody gets more than there is."""

import asyncio
import random
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

from tests.test_relay_metering import BODY, target
from weft.gateway.keys import Client, KeyRing
from weft.gateway.ledger import UsageLedger
from weft.gateway.limits import (
    IDLE,
    Admission,
    KeyAccount,
    KeyLimitReached,
    Limiter,
    LocalLimits,
    Need,
)
from weft.gateway.settings.schema import BudgetSettings, KeyRules
from weft.gateway.settings.secrets import ClientKey
from weft.parts import Usage
from weft.prices import DOLLAR, Price, PriceTable
from weft.relay.incoming import IncomingRequest, RequestBody
from weft.relay.metering import Charge
from weft.scrub import Secret
from weft.store.accounts import KeyBudget
from weft.store.sql import SqlStore
from weft.store.urls import store_from_url

PRICES = PriceTable({"demo/m": Price(0.0, 1_000.0)}, {"demo": "demo:"})
"""A thousand tokens, as many as are expected, cost a dollar."""

REQUEST = IncomingRequest(RequestBody("openai-chat", BODY), "demo/m", True, caller="alice")


def limiter(rules: KeyRules, store: SqlStore | None = None) -> Limiter:
    keys = KeyRing([ClientKey("alice", Secret("0123456789"), rules)], None)
    return Limiter(keys, UsageLedger(store, PRICES), PRICES, store)


def use(admission: Admission, tokens: int) -> None:
    usage = Usage(0, tokens)
    admission.charge(Charge("alice", "demo/m", "reported", usage, 1, False, False, 1_794_916_800.0))
    admission.close()


async def admitted(limiters: Sequence[Limiter], number: int) -> list[Admission]:
    found = await asyncio.gather(
        *(limiters[at % len(limiters)].admit(REQUEST, [target()]) for at in range(number)),
        return_exceptions=True,
    )
    assert all(isinstance(one, Admission | KeyLimitReached) for one in found), found
    return [one for one in found if isinstance(one, Admission)]


def test_streams_of_one_process() -> None:
    async def play() -> None:
        one = limiter(KeyRules(streams=3))
        running = await admitted([one], 10)
        assert len(running) == 3
        running[0].close()
        running[0].close()  # once is enough
        assert len(await admitted([one], 5)) == 1

    asyncio.run(play())


def test_slots_that_were_just_used_are_kept_for_the_next_streams() -> None:
    async def play() -> None:
        store = LocalLimits()
        account = KeyAccount.of(Client("alice", rules=KeyRules(streams=100)))
        assert account is not None
        assert account.streams is not None
        one, now = Need(1, 1, 0, 0), asyncio.get_running_loop().time()
        await account.fill(store, "here", one)
        assert account.try_take(one, now)
        account.streams.used = 0  # it has ended
        await account.give_back(store, now + IDLE / 2)
        assert account.try_take(one, now + IDLE / 2)  # without a look into the store
        account.streams.used = 0
        await account.give_back(store, now + 2 * IDLE)
        everything = await store.reserve_streams("alice", "there", 100, 100, 0)
        assert everything.granted == 100  # others can have all of them again

    asyncio.run(play())


@pytest.mark.parametrize("rules", [KeyRules(), KeyRules(models=("demo/*",))])
def test_a_key_without_limits_is_not_limited(rules: KeyRules) -> None:
    async def play() -> None:
        one = limiter(rules)
        assert len(await admitted([one], 500)) == 500
        # Without a store nobody asks what it has used.
        assert not (await one.admit(REQUEST, [target()])).is_metered

    asyncio.run(play())


@pytest.mark.parametrize("tokens", [1_000, 100, 3_000])
def test_a_budget_is_exceeded_by_no_more_than_what_was_in_flight(
    tmp_path: Path, tokens: int
) -> None:
    """Three processes, and responses as long as expected, shorter, and longer."""

    async def play() -> None:
        stores = [store_from_url(f"sqlite:///{tmp_path / 'store.db'}") for _ in range(3)]
        for store in stores:
            await store.open()
            await store.take_lease(15.0)
        rules = KeyRules(budget=BudgetSettings(total=20.0))
        limiters = [limiter(rules, store) for store in stores]
        chance, spent, most = random.Random(tokens), 0, 0
        running: list[Admission] = []
        for _ in range(60):
            running += await admitted(limiters, 4)
            most = max(most, len(running))
            chance.shuffle(running)
            while len(running) > 3:
                use(running.pop(), tokens)
                spent += tokens * DOLLAR // 1_000
            for one in limiters:
                await one.ledger.flush()
                await one.give_back()
        for admission in running:
            use(admission, tokens)
            spent += tokens * DOLLAR // 1_000
        for one in limiters:
            await one.ledger.flush()
        rows = await stores[0].accounts.usage("alice")
        assert sum(row.cost for row in rows) == spent
        beyond = max(0, tokens - 1_000) * DOLLAR // 1_000
        assert spent <= 20 * DOLLAR + most * beyond
        # What is left is reserved for the three that run, held as a part by a process, or less than
        # one more may cost.
        assert spent >= (20 - 3 - 3 * 0.4 - 1) * DOLLAR
        for store in stores:
            await store.close()

    asyncio.run(play())


def test_new_rules_replace_the_limits_of_a_key_and_equal_ones_do_not() -> None:
    async def play() -> None:
        keys = KeyRing([], None)
        one = Limiter(keys, UsageLedger(None, PRICES), PRICES, None)

        async def admit(rules: KeyRules) -> int:
            keys.update([ClientKey("alice", Secret("0123456789"), rules)])
            return len(await admitted([one], 5))

        assert await admit(KeyRules(streams=3)) == 3
        assert await admit(KeyRules(streams=3)) == 0
        assert await admit(KeyRules()) == 5
        assert await admit(KeyRules(models=("demo/*",))) == 5
        assert await admit(KeyRules(requests_per_minute=2)) == 2

    asyncio.run(play())


def test_lower_limits_of_one_process_count_what_was_taken_before() -> None:
    async def play() -> None:
        store = LocalLimits()
        assert (await store.reserve_streams("alice", "", 3, 3, 0)).granted == 3
        assert (await store.reserve_streams("alice", "", 1, 1, 0)).granted == 0
        await store.release("alice", "streams", "", 2)
        assert (await store.reserve_streams("alice", "", 1, 1, 0)).granted == 0
        await store.release("alice", "streams", "", 1)
        assert (await store.reserve_streams("alice", "", 1, 1, 0)).granted == 1

    asyncio.run(play())


def test_accounts_by_old_rules_return_everything_once_their_requests_have_ended(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        store = store_from_url(f"sqlite:///{tmp_path / 'store.db'}")
        await store.open()
        await store.take_lease(15.0)
        keys = KeyRing([], store.accounts)
        one = Limiter(keys, UsageLedger(store, PRICES), PRICES, store)

        async def admit(rules: KeyRules) -> Admission:
            keys.update([ClientKey("alice", Secret("0123456789"), rules)])
            return (await admitted([one], 1))[0]

        async def give_back() -> tuple[int, int]:
            """Returns the money, in dollars, and the streams that nobody has then."""
            await one.ledger.flush()
            await one.give_back()
            budget, server = KeyBudget(total=100 * DOLLAR), store.server
            money = await store.accounts.reserve_money("alice", server, budget, 0, 0)
            streams = await store.accounts.reserve_streams("alice", server, 100, 0, 0)
            return money.left // DOLLAR, streams.left

        limited = KeyRules(budget=BudgetSettings(total=100.0), streams=100, requests_per_minute=100)
        lower = KeyRules(budget=BudgetSettings(total=90.0), streams=60, tokens_per_minute=50_000)
        running = [await admit(limited), await admit(lower), await admit(KeyRules())]
        # Only what may be needed: a dollar and a slot for each.
        assert await give_back() == (98, 98)
        use(running[0], 3_000)
        assert await give_back() == (96, 99)
        use(running[1], 500)
        use(running[2], 1_500)
        assert await give_back() == (95, 100)
        assert await give_back() == (95, 100)
        await store.close()

    asyncio.run(play())


def test_the_headers_about_rates() -> None:
    rules = KeyRules(requests_per_minute=10, tokens_per_minute=2_000)
    account = KeyAccount.of(Client("alice", rules=rules))
    assert account is not None
    requests, tokens = account.requests, account.tokens
    assert requests is not None
    assert tokens is not None
    requests.free, requests.left, requests.until = 2, 3, 160.0
    tokens.free, tokens.left, tokens.until = -7, 2, 99.0  # the minute is over
    assert account.headers("openai-chat", 100.5) == [
        (b"x-ratelimit-limit-requests", b"10"),
        (b"x-ratelimit-remaining-requests", b"5"),
        (b"x-ratelimit-reset-requests", b"60s"),
        (b"x-ratelimit-limit-tokens", b"2000"),
        (b"x-ratelimit-remaining-tokens", b"0"),
        (b"x-ratelimit-reset-tokens", b"0s"),
    ]
    assert account.headers("gemini", 100.5) == []

    def reset(now: float) -> float:
        found = dict(account.headers("anthropic-messages", now))
        text = found[b"anthropic-ratelimit-requests-reset"].decode()
        return datetime.fromisoformat(text).timestamp()

    began = time.time()
    assert -1 <= reset(100.0) - began - 60 <= 5
    assert reset(100.0) == reset(130.0)  # the same moment
    requests.until = 220.0
    assert -1 <= reset(160.0) - began - 60 <= 5
    assert -1 <= reset(230.0) - began <= 5


def test_a_limit_that_cannot_be_checked_is_unavailable(tmp_path: Path) -> None:
    async def play() -> None:
        store = store_from_url(f"sqlite:///{tmp_path / 'store.db'}")
        one = limiter(KeyRules(requests_per_minute=5), store)  # which is not open
        with pytest.raises(KeyLimitReached) as refused:
            await one.admit(REQUEST, [target()])
        assert refused.value.status == 503

    asyncio.run(play())
