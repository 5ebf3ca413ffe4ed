"""The tables are created once, and never changed by an older version."""

import ast
import asyncio
import hashlib
import re
import sqlite3
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import pytest

from tests.stores import Stores, each_store, entry
from weft.store import base
from weft.store.base import StoreError
from weft.store.migrations import MIGRATIONS, POSTGRES, SQLITE, with_types
from weft.store.urls import store_from_url

SOURCE = Path(base.__file__).parent

RELEASED = [
    "ecf132674cf6d6a5",
    "f8b73c334e919f98",
    "d1cae768b0f7ab1b",
    "e2535099042eb01f",
    "1cbac5c096816a07",
    "4e4dc81623ce651f",
    "02fbbdd2bab9e242",
    "4a11cbbb1b7a0c14",
    "78fe1463395f0fde",
    "f70a3fa0f159520e",
    "d88d7770d0100d6c",
]
"""The digest of each migration as it was released. To change a table, add a migration."""


def digest(statements: tuple[str, ...]) -> str:
    both = [
        with_types(statement, words) for statement in statements for words in (SQLITE, POSTGRES)
    ]
    return hashlib.sha256("\n".join(both).encode()).hexdigest()[:16]


def test_no_released_migration_was_edited() -> None:
    assert [digest(statements) for statements in MIGRATIONS] == RELEASED


async def rows(stores: Stores, query: str) -> list[tuple[object, ...]]:
    """What the database itself says."""
    if stores.kind == "sqlite":
        connection = sqlite3.connect(stores.url.removeprefix("sqlite:///"), isolation_level=None)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()
    server = await asyncpg.connect(stores.url)
    try:
        return [tuple(row) for row in await server.fetch(query)]
    finally:
        await server.close()


@each_store
async def test_each_migration_is_recorded_once(stores: Stores) -> None:
    for _ in range(2):
        await (await stores.opened()).close()
    numbers = await rows(stores, "SELECT number FROM migration ORDER BY number")
    assert numbers == [(number + 1,) for number in range(len(MIGRATIONS))]
    assert await rows(stores, "SELECT count(*) FROM migration WHERE applied > 1700000000") == [
        (len(MIGRATIONS),)
    ]


@each_store
async def test_stores_that_open_at_once_make_the_tables_once(stores: Stores) -> None:
    opened = await asyncio.gather(*(stores.opened() for _ in range(4)))
    await opened[0].begin(entry())
    assert await opened[3].entry("resp_1") == entry()


@each_store
async def test_a_database_of_a_newer_version_is_refused(stores: Stores) -> None:
    await (await stores.opened()).close()
    await rows(stores, "INSERT INTO migration VALUES (999, 1.0)")
    store = store_from_url(stores.url)
    with pytest.raises(StoreError, match="has migration 999, this version of Weft knows") as caught:
        await store.open()
    assert caught.value.kind == "newer"
    await store.close()


def test_no_statement_is_built_from_values() -> None:
    """Parameters only: no f-string, no `%` and no `format` makes SQL."""
    sql = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|WHERE|ORDER BY|SET)\b")
    found = []
    for path in SOURCE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.JoinedStr(values=parts):
                    texts = [part.value for part in parts if isinstance(part, ast.Constant)]
                case ast.BinOp(left=ast.Constant(value=text), op=ast.Mod()):
                    texts = [text]
                case ast.Call(func=ast.Attribute(value=ast.Constant(value=text), attr="format")):
                    texts = [text]
                case _:
                    continue
            if any(sql.search(str(text)) for text in texts):
                found.append(f"{path.name}:{node.lineno}")
    assert found == []
