"""Hints: when they are written, when they are kept, and which dispatcher there is."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.queue_tables import query_queue, until_rows
from tests.stores import SWIFT, empty, entry
from weft.agent.dispatch import (
    RESPONSES,
    RUNS,
    Advance,
    Dispatcher,
    LocalDispatcher,
    MissingQueue,
    dispatcher_from_url,
)
from weft.agent.pgqueuer_dispatch import PgQueuerDispatcher, queue_settings
from weft.store.base import Store, StoreError
from weft.store.queries import Queries
from weft.store.records import NewJob, NewRun, RunAppend
from weft.store.urls import store_from_url

CREATED = ("run.created", b"{}")


class Queue:
    """A store with a queue, and what is in it."""

    def __init__(self, store: Store, dispatcher: PgQueuerDispatcher, url: str) -> None:
        self.store = store
        self.dispatcher = dispatcher
        self.url = url

    def beside(self, seq: int) -> Queries[None]:
        return self.dispatcher.wake(RUNS, "run_1", str(seq))

    async def start(self, key: str | None = None, id: str = "run_1") -> str:
        new = NewRun(
            id=id, agent="a", status="running", events=[CREATED], key=key, beside=self.beside
        )
        return await self.store.create_run(new)

    async def ask(self, query: str) -> list[tuple[object, ...]]:
        return await query_queue(self.url, query)

    async def keys(self) -> list[object]:
        found = await self.ask("SELECT dedupe_key FROM QUEUE.pgqueuer ORDER BY id")
        return [key for (key,) in found]

    async def serve_until(self, advance: Advance, done: asyncio.Event) -> None:
        stop = asyncio.Event()
        serving = asyncio.create_task(self.dispatcher.serve({RUNS: advance}, stop))
        async with asyncio.timeout(60):
            await done.wait()
            stop.set()
            await serving


@asynccontextmanager
async def queue(folder: Path, sweep: float = 3600.0) -> AsyncIterator[Queue]:
    url = empty("postgres", folder)
    store = store_from_url(url, SWIFT, "one")
    await store.open()
    dispatcher = PgQueuerDispatcher(store, url, lease=1.0, sweep=sweep)
    await dispatcher.open()
    try:
        yield Queue(store, dispatcher, url)
    finally:
        await dispatcher.close()
        await store.close()


def test_a_hint_commits_with_its_event_or_not_at_all(tmp_path: Path) -> None:
    async def scene() -> None:
        async with queue(tmp_path) as there:
            assert await there.start("key") == "run_1"
            assert await there.start("key", "run_2") == "run_1"
            assert await there.keys() == ["run_1:1"]
            append = RunAppend(run="run_1", at=7, events=[CREATED], status="x", beside=there.beside)
            assert (await there.store.append_run(append)).outcome == "moved"
            assert await there.keys() == ["run_1:1"]
            append = RunAppend(
                run="run_1", at=1, events=[CREATED] * 2, status="x", beside=there.beside
            )
            assert (await there.store.append_run(append)).outcome == "written"
            assert await there.keys() == ["run_1:1", "run_1:3"]
            claim = await there.store.claim_run("run_1", 9.0)
            release = there.store.release_run
            assert not await release("run_1", claim.epoch, 1, "x", 0.0, there.beside)
            assert await there.keys() == ["run_1:1", "run_1:3"]
            assert await release("run_1", claim.epoch, 3, "x", 0.0, there.beside)
            assert await there.keys() == ["run_1:1", "run_1:3"], "this cause has a hint already"

    asyncio.run(scene())


def test_a_hint_that_cannot_be_written_fails_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with queue(tmp_path) as there:
            await there.ask("DROP TABLE QUEUE.pgqueuer")
            with caplog.at_level(logging.WARNING, "weft.agent"):
                assert await there.start() == "run_1"
            assert await there.store.run("run_1") is not None

    asyncio.run(scene())
    assert "run run_1: not queued" in caplog.text


def test_a_hint_is_kept_until_there_is_nothing_left_to_do(tmp_path: Path) -> None:
    """Seconds, an error, and a hint that comes meanwhile for another cause."""

    async def scene() -> None:
        async with queue(tmp_path) as there:
            seen: list[str] = []
            done = asyncio.Event()

            async def advance(id: str) -> float | None:
                seen.append(id)
                match len(seen):
                    case 1:
                        return 0.05
                    case 2:
                        raise RuntimeError("not ours")
                    case 3:
                        # Its own row is being handled at this moment: another cause, another row.
                        written = RunAppend(
                            run="run_1", at=1, events=[CREATED], status="x", beside=there.beside
                        )
                        await there.store.append_run(written)
                        return None
                    case _:
                        done.set()
                        return None

            await there.start()
            await there.serve_until(advance, done)
            assert seen == ["run_1"] * 4
            assert await there.keys() == []

    asyncio.run(scene())


def test_a_process_that_stops_gives_its_hints_back(tmp_path: Path) -> None:
    async def scene() -> None:
        async with queue(tmp_path) as there:
            taken, stop = asyncio.Event(), asyncio.Event()

            async def advance(id: str) -> float | None:
                taken.set()
                await stop.wait()
                return 0.0

            await there.start()
            serving = asyncio.create_task(there.dispatcher.serve({RUNS: advance}, stop))
            async with asyncio.timeout(60):
                await taken.wait()
                stop.set()
                await serving
            found = await there.ask("SELECT dedupe_key, status::text FROM QUEUE.pgqueuer")
            assert found == [("run_1:1", "queued")]

    asyncio.run(scene())


def test_the_sweep_queues_a_run_once_and_prunes_the_log(tmp_path: Path) -> None:
    async def scene() -> None:
        async with queue(tmp_path, sweep=0.05) as there:
            new = NewRun(id="run_1", agent="a", status="running", events=[CREATED], due=0.0)
            await there.store.create_run(new)
            sweeps, done = 0, asyncio.Event()

            async def advance(id: str) -> float | None:
                nonlocal sweeps
                sweeps += 1
                for _ in range(3):
                    # Its removal ends a sweep: between two of them lies a whole one.
                    await there.ask(
                        "INSERT INTO QUEUE.pgqueuer_log (created, job_id, status, priority,"
                        " entrypoint) VALUES (now() - interval '2 days', 1, 'queued', 0, 'run')"
                    )
                    old = (
                        "SELECT 1 FROM QUEUE.pgqueuer_log WHERE created < now() - interval '1 day'"
                    )
                    await until_rows(there.url, "QUEUE.pgqueuer_log", old, [])
                    assert await there.keys() == ["run_1:sweep"]
                done.set()
                return None

            await there.serve_until(advance, done)
            assert sweeps == 1

    asyncio.run(scene())


def test_the_sweep_finds_background_responses_that_nobody_runs(tmp_path: Path) -> None:
    async def scene() -> None:
        async with queue(tmp_path, sweep=0.05) as there:
            await there.store.take_lease(30.0)
            mine = entry("resp_1", server=there.store.server, status="queued")
            for one in (mine, entry("resp_2", server="", status="queued")):
                await there.store.begin(one, (), NewJob(body=b"{}", options=b"{}"))
            found, done, stop = [], asyncio.Event(), asyncio.Event()

            async def advance(id: str) -> float | None:
                found.append((id, await there.keys()))
                await there.store.delete("", id)
                done.set()
                return None

            serving = asyncio.create_task(there.dispatcher.serve({RESPONSES: advance}, stop))
            async with asyncio.timeout(60):
                await done.wait()
                stop.set()
                await serving
            assert found == [("resp_2", ["resp_2:sweep"])]

    asyncio.run(scene())


def test_the_names_of_the_queue_come_from_nowhere_else(tmp_path: Path) -> None:
    """PgQueuer reads variables like these from the environment."""
    code = (
        "from weft.agent.pgqueuer_dispatch import queue_settings as q\n"
        "print(sorted(q('public').model_dump(mode='json').items()))"
    )
    plain, odd = (
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": ":".join(sys.path), **extra},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for extra in (
            {},
            {"CHANNEL": "x", "PGQUEUER_SCHEMA": "x", "QUEUE_TABLE": "x", "PGQUEUER_PREFIX": "x"},
        )
    )
    assert plain == odd
    assert "('db_schema', 'weft_queue')" in plain
    assert queue_settings("Weft prod").db_schema == "weft_queue_weft_prod"


def test_which_dispatcher_there_is(tmp_path: Path) -> None:
    async def scene() -> None:
        sqlite, postgres = empty("sqlite", tmp_path), empty("postgres", tmp_path)
        store = store_from_url(sqlite)

        async def kind(url: str, wished: str) -> type[Dispatcher]:
            found = dispatcher_from_url(store, url, kind=wished)  # type: ignore[arg-type]
            await found.open()
            await found.close()
            return type(found)

        assert await kind(sqlite, "auto") is LocalDispatcher
        assert await kind(sqlite, "local") is LocalDispatcher
        assert await kind(postgres, "local") is LocalDispatcher
        assert await kind(postgres, "auto") is PgQueuerDispatcher
        assert await kind(postgres, "pgqueuer") is PgQueuerDispatcher
        with pytest.raises(MissingQueue, match="PostgreSQL"):
            await kind(sqlite, "pgqueuer")
        with pytest.raises(StoreError, match="cannot set up the queue"):
            await kind("postgresql://nobody@127.0.0.1:1/none", "auto")

    asyncio.run(scene())


WITHOUT = """
import sys
sys.modules["pgqueuer"] = None  # as if it were not installed
from weft.agent.dispatch import MissingQueue, dispatcher_from_url
print(type(dispatcher_from_url(None, "postgresql://x")).__name__)
try:
    dispatcher_from_url(None, "postgresql://x", kind="pgqueuer")
except MissingQueue as error:
    print(error)
"""


def test_without_the_extra_there_is_the_local_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "LocalDispatcher",
        "PgQueuer needs an extra: pip install 'weft[workers]' (pgqueuer is missing)",
    ]
