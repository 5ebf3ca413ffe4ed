"""Several processes on one database, and processes that are killed while they write."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.stores import Stores, audit, each_store, entry

ROOT = Path(__file__).parents[1]


@contextmanager
def child(
    verb: str, url: str, server: str, environment: dict[str, str] | None = None
) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.store_child", verb, url, server]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_words(process: "subprocess.Popen[str]") -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def go(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


@each_store
async def test_what_was_acknowledged_survives_kill_9(stores: Stores) -> None:
    """Killed twice, each time somewhere else; the second begins where the first was cut."""
    begun: set[str] = set()
    ended: set[str] = set()
    for server, heard in (("one", 70), ("two", 131)):
        with child("endure", stores.url, server) as process:
            lines = [read_words(process) for _ in range(heard)]
            process.kill()
            assert process.stdout is not None
            whole, _, _ = process.stdout.read().rpartition("\n")  # the last line may be cut
            lines += [line.split() for line in whole.splitlines()]
        begun |= {id for word, id in lines if word == "begun"}
        ended |= {id for word, id in lines if word == "ended"}
        found = await audit(await stores.opened())
        assert begun <= set(found)
        assert ended <= {id for id, one in found.items() if one.ended is not None}
        assert {one.status for one in found.values() if one.ended is None} <= {"in_progress"}


@each_store
async def test_of_competing_processes_one_wins(stores: Stores) -> None:
    store = await stores.opened()
    ids = [f"resp_{n:02}" for n in range(60)]
    for id in ids:
        await store.begin(entry(id, server="nobody"))
    with ExitStack() as stack:
        children = [
            stack.enter_context(child("contest", stores.url, name)) for name in ("one", "two")
        ]
        assert [read_words(process) for process in children] == [["ready"]] * 2
        for process in children:
            go(process)
        won = {id: n for n, process in enumerate(children) for id in read_words(process)}
    owners = {one.id: one.server for one in await store.entries()}
    assert owners == {id: ("one", "two")[won[id]] for id in ids}


@each_store
async def test_servers_that_start_at_once_make_the_tables_once(stores: Stores) -> None:
    with ExitStack() as stack:
        children = [
            stack.enter_context(child("open", stores.url, str(number))) for number in range(3)
        ]
        assert [read_words(process) for process in children] == [["ready"]] * 3
        for process in children:
            go(process)
        assert [read_words(process) for process in children] == [["done"]] * 3
    store = await stores.opened()
    await store.begin(entry())


@pytest.mark.long
@each_store
async def test_kill_9_at_any_point_leaves_a_whole_store(stores: Stores) -> None:
    for round in range(15):
        with child("endure", stores.url, f"s{round}") as process:
            for _ in range(10 + 7 * round):
                read_words(process)
        await audit(await stores.opened())
