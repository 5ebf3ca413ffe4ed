"""PostgreSQL: connections that are lost, servers that are away, and answers that never come."""

import asyncio
import math
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import pytest

from tests.killed_postgres import PostgresProcesses, postgres_processes
from tests.store_scenario import ALL, scenario, seen
from tests.stores import (
    Stores,
    audit,
    ending,
    entry,
    log,
    postgres,
    postgres_store,
    whole_log,
)
from weft.store.base import AlreadyExists, Store, StoreError
from weft.store.urls import store_from_url
from weft.store.writer import WritePolicy

HASTY = WritePolicy(timeout=2.0, flush_interval=0.0, max_retry=0.05)
PATIENT = WritePolicy(timeout=30.0, flush_interval=0.0)


async def asked(query: str, *values: object) -> list[tuple[object, ...]]:
    """What the server itself says."""
    connection = await asyncpg.connect(postgres().get_uri())
    try:
        return [tuple(row) for row in await connection.fetch(query, *values)]
    finally:
        await connection.close()


async def cut_all() -> None:
    """Ends every connection of a store, whatever it is doing."""
    await asked(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'weft'"
    )


@postgres_store
async def test_lost_connections_are_replaced(stores: Stores) -> None:
    store = await stores.opened(PATIENT)
    await store.begin(entry())
    for block in log(5):
        await cut_all()
        store.append("resp_1", block)
        await store.flush("resp_1")
        await cut_all()
        assert await store.blocks("resp_1") == log(block.number + 1)
    await cut_all()
    assert await store.finish("resp_1", ending(log(5)))
    assert set(await audit(store)) == {"resp_1"}


@postgres_store
async def test_connections_cut_at_any_moment_lose_nothing(stores: Stores) -> None:
    store = await stores.opened(PATIENT)
    ids = [f"resp_{n:02}" for n in range(40)]

    async def respond(id: str) -> bool:
        await store.begin(entry(id))
        for block in log(6):
            store.append(id, block)
            await asyncio.sleep(0.005)
        return await store.finish(id, ending(log(6)))

    async def cut() -> None:
        for number in range(20):
            await cut_all()
            await asyncio.sleep(0.003 * number)

    cutting = asyncio.ensure_future(cut())
    ends = await asyncio.gather(*map(respond, ids))
    await cutting
    assert ends == [True] * 40
    found = await audit(store)
    assert {id: one.status for id, one in found.items()} == dict.fromkeys(ids, "completed")


@postgres_store
async def test_an_unreachable_server_is_waited_for(stores: Stores) -> None:
    store = await stores.opened(PATIENT)
    await store.begin(entry())
    store.append("resp_1", log(1)[0])
    await asyncio.to_thread(postgres().stop)
    try:
        finishing = asyncio.ensure_future(store.finish("resp_1", ending(log(1))))
        reading = asyncio.ensure_future(store.entry("resp_none"))
        await asyncio.wait({finishing, reading}, timeout=0.1)
        assert not finishing.done()
        assert not reading.done()
    finally:
        await asyncio.to_thread(postgres().ensure_postgres_running)
    assert await finishing
    assert await reading is None
    assert await whole_log(store, "resp_1") == log(1)


@postgres_store
async def test_waiting_for_an_unreachable_server_times_out(stores: Stores) -> None:
    store = await stores.opened(HASTY)
    await store.begin(entry())
    await asyncio.to_thread(postgres().stop)
    try:
        store.append("resp_1", log(1)[0])
        attempts = [
            store.finish("resp_1", ending(log(1))),
            store.begin(entry("resp_2")),
            store.flush("resp_1"),
            store.entry("resp_1"),
            store_from_url(stores.url, HASTY).open(),
        ]
        async with asyncio.timeout(60):
            failed = await asyncio.gather(*attempts, return_exceptions=True)
        assert [one.kind for one in failed if isinstance(one, StoreError)] == ["lost"] * 5
    finally:
        await asyncio.to_thread(postgres().ensure_postgres_running)
    assert await until_flushed(store, "resp_1") == entry()
    assert await store.entry("resp_2") is None
    assert await store.finish("resp_1", ending(log(1)))


async def until_flushed(store: Store, id: str) -> object:
    """Its entry, when its blocks are written: that may take longer than patience."""
    async with asyncio.timeout(60):
        while True:
            try:
                await store.flush(id)
                return await store.entry(id)
            except StoreError as error:
                if error.kind not in {"lost", "busy"}:
                    raise


# The answer to a COMMIT is lost


class Line:
    """A line to the server that is cut at the n-th COMMIT, before the server hears of it or after
    it has answered; the next who tries is not let through, or more of them."""

    def __init__(self, server: Path, nth: int, heard: bool) -> None:
        self._server = server
        self._nth = nth
        self._heard = heard
        self.refusing: float = 1
        self.commits = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.commits >= self._nth and self.refusing:
            self.refusing -= 1
            writer.close()
            return
        above, below = await asyncio.open_unix_connection(str(self._server))
        cut = asyncio.Event()
        carrying = [
            asyncio.ensure_future(self._up(reader, below, cut)),
            asyncio.ensure_future(self._down(above, writer, cut)),
        ]
        await asyncio.wait(carrying, return_when=asyncio.FIRST_COMPLETED)
        for one in carrying:
            one.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)
        below.close()
        writer.close()

    async def _up(
        self, reader: asyncio.StreamReader, below: asyncio.StreamWriter, cut: asyncio.Event
    ) -> None:
        while data := await reader.read(65536):
            if b"COMMIT" in data:
                self.commits += 1
                if self.commits == self._nth:
                    cut.set()
                    if not self._heard:
                        return
            below.write(data)
            await below.drain()

    async def _down(
        self, above: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: asyncio.Event
    ) -> None:
        while data := await above.read(65536):
            if cut.is_set():
                return
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def line(
    folder: Path, nth: int, heard: bool, socket: Path | None = None
) -> AsyncIterator[tuple[Path, Line]]:
    """`socket` is that of the server, if it is not the one of all tests."""
    socket = socket or postgres().get_postmaster_info().socket_path
    assert socket is not None
    one = Line(socket, nth, heard)
    server = await asyncio.start_unix_server(one.connected, str(folder / ".s.PGSQL.5432"))
    async with server:
        yield folder, one


def through(url: str, folder: Path) -> str:
    return re.sub(r"host=[^&]*", f"host={folder}", url)


@pytest.mark.parametrize("heard", [True, False], ids=["the answer", "the question"])
def test_whichever_commit_is_cut_each_caller_gets_the_true_result(
    heard: bool, tmp_path: Path
) -> None:
    """`begin` does not find its own row taken, and a contest that was won stays won."""

    async def main(nth: int) -> int:
        stores = Stores("postgres", tmp_path)
        async with line(tmp_path, nth, heard) as (folder, cut):
            store = store_from_url(through(stores.url, folder), PATIENT, "one")
            acknowledged: set[str] = set()
            await scenario(store, acknowledged)
            assert len(acknowledged) == ALL
            assert await seen(await stores.opened()) == acknowledged
            await stores.close()
            return cut.commits

    nth, commits = 2, 2  # the first is that of `open`
    while nth <= commits:
        commits = asyncio.run(main(nth))
        nth += 1
    assert nth > 8


@postgres_store
async def test_a_winner_learns_it_although_the_reply_was_lost(stores: Stores) -> None:
    async with line(stores.folder, 3, True) as (folder, cut):
        store = store_from_url(through(stores.url, folder), PATIENT, "one")
        await store.open()
        await store.begin(entry())
        assert await store.set_answered("resp_1", "resp_2")
        assert not await store.set_answered("resp_1", "resp_2")
        with pytest.raises(AlreadyExists):
            await store.begin(entry())
        await store.close()
    assert cut.commits > 3


@pytest.mark.long
def test_a_commit_that_a_crash_has_lost_is_not_taken_for_that_of_another(tmp_path: Path) -> None:
    """After a crash, PostgreSQL gives the ids of transactions that it lost to others."""

    async def main(server: PostgresProcesses) -> None:
        async with line(tmp_path, 2, False, server.socket) as (folder, cut):
            cut.refusing = math.inf
            store = store_from_url(through(server.url, folder), PATIENT, "one")
            await store.open()
            beginning = asyncio.ensure_future(store.begin(entry()))
            async with asyncio.timeout(20):
                while cut.commits < 2:
                    await asyncio.sleep(0.001)
            with server.killed():
                pass
            other = await asyncpg.connect(server.url)
            for _ in range(20):
                await other.execute("UPDATE migration SET applied = applied")
            await other.close()
            cut.refusing = 0
            await beginning
            assert await store.entry("resp_1") == entry()
            await store.close()

    with postgres_processes() as server:
        asyncio.run(main(server))


# Locks


@postgres_store
async def test_a_locked_row_is_waited_for(stores: Stores) -> None:
    store = await stores.opened(PATIENT)
    await store.begin(entry())
    other = await asyncpg.connect(stores.url)
    await other.execute("BEGIN")
    await other.execute("UPDATE response SET status = 'queued' WHERE id = 'resp_1'")
    finishing = asyncio.ensure_future(store.finish("resp_1", ending()))
    await asyncio.wait({finishing}, timeout=0.05)
    assert not finishing.done()
    await other.execute("ROLLBACK")
    await other.close()
    assert await finishing


@postgres_store
async def test_waiting_for_a_locked_row_times_out(stores: Stores) -> None:
    store = await stores.opened(HASTY)
    await store.begin(entry())
    other = await asyncpg.connect(stores.url)
    await other.execute("BEGIN")
    await other.execute("UPDATE response SET status = 'queued' WHERE id = 'resp_1'")
    with pytest.raises(StoreError) as caught:
        await store.finish("resp_1", ending())
    assert caught.value.kind == "busy"
    await other.execute("ROLLBACK")
    await other.close()
    assert await store.finish("resp_1", ending(status="failed"))


# Error messages


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("postgresql://me:hunter2@127.0.0.1:1/db", "lost"),
        ("postgresql://me:hunter2@127.0.0.1:notaport/db", "broken"),
        ("postgresql://me:hunter2@/nowhere?host={folder}", "broken"),
    ],
    ids=["nobody there", "no address", "no such user"],
)
def test_no_password_is_reported(url: str, kind: str) -> None:
    folder = postgres().get_postmaster_info().socket_dir
    # No second attempt fits in the time; the first one may take long on a busy machine.
    at_once = WritePolicy(timeout=60.0, first_retry=61.0)
    store = store_from_url(url.format(folder=folder), at_once)
    with pytest.raises(StoreError) as caught:
        asyncio.run(store.open())
    assert caught.value.kind == kind
    assert "hunter2" not in f"{caught.value} {caught.value.__cause__!r} {vars(store)}"


@postgres_store
async def test_no_parameters_are_reported(stores: Stores) -> None:
    store = await stores.opened()
    with pytest.raises(StoreError) as caught:
        await store.begin(entry(events=2**70, model="hunter2"))
    assert str(caught.value).startswith("PostgreSQL: ")
    assert "hunter2" not in str(caught.value)
    assert str(2**70) not in str(caught.value)
    assert caught.value.__cause__ is None
