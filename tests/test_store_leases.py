"""Leases: who is alive is decided by the database's clock and by locks that die with their process;
a lease that was revoked is never renewed.
"""

import asyncio
import os
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.clocks import hours_off
from tests.stores import (
    Stores,
    each_store,
    ending,
    entry,
    path_of,
    postgres_store,
    sqlite_store,
)
from tests.test_store_migrations import rows
from tests.test_store_processes import child, read_words
from weft.store.base import Store, StoreError
from weft.store.lockfile import LockFile, is_released, remove
from weft.store.postgres import NOW
from weft.store.queries import CLOCK
from weft.store.writer import WritePolicy

AT_ONCE = 0.001
"""Seconds of a lease that has run out when another server looks at it."""

BEFORE_TAKEN = 1e-6
"""Seconds of a lease that has run out before its row is written, even by the fastest machine."""

HOURS = 36_000.0
CLOCKS = {"sqlite": CLOCK, "postgres": NOW}
PATIENCE = 60.0


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await true():
            await asyncio.sleep(0.005)


async def serving(stores: Stores, length: float) -> Store:
    """A store with a lease, and one response under way: its id is the server's."""
    store = await stores.opened()
    await store.take_lease(length)
    await store.begin(entry(store.server, server=store.server))
    return store


async def left(store: Store) -> set[str]:
    """What is found to have been left by others, after one look."""
    await store.revoke_dead()
    return {id for id, _ in await store.orphans()}


@each_store
async def test_responses_of_a_server_with_a_lease_are_no_orphans(stores: Stores) -> None:
    one, two = await serving(stores, HOURS), await serving(stores, AT_ONCE)
    assert one.server != two.server
    for _ in range(3):
        assert await left(two) == set()
    assert await one.ensure_lease() == one.server
    await one.renew_lease()
    assert await one.finish(one.server, ending())


@each_store
async def test_responses_of_a_stopped_server_are_orphans_at_once(stores: Stores) -> None:
    one, two = await serving(stores, HOURS), await serving(stores, HOURS)
    stopped = one.server
    await one.close()
    assert await left(two) == {stopped}
    assert await two.take_over(stopped, stopped)
    assert await left(two) == set()
    assert await two.finish(stopped, ending())


@each_store
async def test_a_lease_that_is_not_renewed_is_revoked(stores: Stores) -> None:
    """Though the process is there, as one that is frozen is."""
    one, two = await serving(stores, AT_ONCE), await serving(stores, AT_ONCE)
    frozen = one.server

    async def revoked() -> bool:
        return await left(two) == {frozen}

    await until(revoked)
    assert await one.finish(frozen, ending()), "whoever comes first"
    await one.begin(entry("resp_late", server=one.server))
    assert await two.take_over("resp_late", frozen)
    await one.renew_lease()
    assert one.server != frozen
    assert not await one.finish("resp_late", ending())
    assert await two.finish("resp_late", ending())


@each_store
async def test_an_expired_lease_is_renewed_before_a_response_begins(stores: Stores) -> None:
    one, two = await serving(stores, AT_ONCE), await serving(stores, AT_ONCE)
    frozen = one.server

    async def revoked() -> bool:
        return frozen in await left(two)

    await until(revoked)
    fresh = await one.ensure_lease()
    assert fresh == one.server != frozen


@sqlite_store
async def test_all_who_wait_for_the_lease_wait_for_one_renewal(stores: Stores) -> None:
    """Not one after the other, each as long as a write may take."""
    limit, callers = 0.4, 100
    store = await stores.opened(WritePolicy(timeout=limit))
    await store.take_lease(BEFORE_TAKEN)
    other = sqlite3.connect(path_of(stores), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        async with asyncio.timeout(limit * callers / 2):
            waiting = [store.ensure_lease() for _ in range(callers)]
            failed = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(one) for one in failed} == {StoreError}
    finally:
        other.close()

    async def renewed() -> bool:
        with suppress(StoreError):  # a busy machine may need longer than the limit
            return await store.ensure_lease() == store.server
        return False

    await until(renewed)


@sqlite_store
async def test_a_caller_that_leaves_does_not_end_the_renewal_of_others(stores: Stores) -> None:
    store = await stores.opened()
    await store.take_lease(BEFORE_TAKEN)
    other = sqlite3.connect(path_of(stores), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    leaving = asyncio.ensure_future(store.ensure_lease())
    staying = asyncio.ensure_future(store.ensure_lease())
    await asyncio.wait({staying}, timeout=0.05)
    leaving.cancel()
    await asyncio.wait({leaving})
    other.close()
    assert await staying == store.server


@each_store
async def test_an_expired_lease_that_is_renewed_is_not_revoked(stores: Stores) -> None:
    """As after the database was away for all of them, or where the clock of one is wrong: whoever
    looks finds each time that it has run out, and each time another one."""
    one, two = await serving(stores, AT_ONCE), await serving(stores, AT_ONCE)
    before, clock = one.server, CLOCKS[stores.kind]
    query = f"SELECT until < {clock} FROM server WHERE name = '{before}'"

    async def expired() -> bool:
        return await rows(stores, query) == [(True,)]

    for _ in range(20):
        await one.renew_lease()
        await until(expired)  # a renewal within the same tick of the clock would change nothing
        assert await left(two) == set()
    assert one.server == before


@each_store
async def test_a_process_that_was_killed_is_found_at_once_and_a_frozen_one_is_not(
    stores: Stores,
) -> None:
    two = await serving(stores, HOURS)
    with child("serve", stores.url, "") as process:
        (server,) = await asyncio.to_thread(read_words, process)
        os.kill(process.pid, signal.SIGSTOP)
        for _ in range(3):
            assert await left(two) == set()
        process.kill()
        await asyncio.to_thread(process.wait)
        assert await left(two) == {server}


@postgres_store
async def test_the_clock_of_the_database_decides_how_long_a_lease_holds(stores: Stores) -> None:
    store = await stores.opened()
    for hours in (1, -1):
        with child("serve", stores.url, "", hours_off(hours)) as process:
            await asyncio.to_thread(read_words, process)
            query = "SELECT until - extract(epoch from now())::float8 FROM server"
            ((left_over,),) = await rows(stores, query)
        await store.revoke_dead()
        assert abs(float(str(left_over)) - HOURS) < 600


@sqlite_store
async def test_lock_files_lie_beside_the_database_and_are_removed_with_their_server(
    stores: Stores,
) -> None:
    path = path_of(stores)
    one, two = await serving(stores, AT_ONCE), await serving(stores, AT_ONCE)

    def locks() -> set[str]:
        return {found.name for found in path.parent.glob(f"{path.name}-server-*")}

    assert locks() == {f"{path.name}-server-{store.server}" for store in (one, two)}
    frozen = one.server

    async def revoked() -> bool:
        return frozen in await left(two)

    await until(revoked)
    assert locks() == {f"{path.name}-server-{two.server}"}
    await one.renew_lease()
    assert locks() == {f"{path.name}-server-{store.server}" for store in (one, two)}
    await one.close()
    await two.close()
    assert locks() == set()


@sqlite_store
async def test_without_a_lock_the_lease_decides(stores: Stores) -> None:
    """A file that is gone is no sign of death."""
    one, two = await serving(stores, HOURS), await serving(stores, HOURS)
    path = path_of(stores)
    path.with_name(f"{path.name}-server-{one.server}").unlink()
    assert await left(two) == set()


# Locked files


def test_a_lock_file_is_released_when_its_process_releases_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_released(path), "a file that is not there says nothing"
    held = LockFile(path)
    assert not is_released(path)
    with pytest.raises(FileExistsError):
        LockFile(path)
    assert path.stat().st_mode & 0o777 == 0o600
    held.release()
    held.release()
    assert not path.exists()
    path.touch()
    assert is_released(path)
    link = tmp_path / "link"
    link.symlink_to(path)
    assert not is_released(link)
    remove(path)
    remove(path)
    assert not path.exists()
