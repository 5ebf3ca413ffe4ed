"""What the tables of the queue say, and when they have changed: the database tells."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg  # type: ignore[import-untyped]

TELL = """
CREATE OR REPLACE FUNCTION SCHEMA.tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_notify('told_SCHEMA', ''); RETURN NULL; END $$;
CREATE OR REPLACE TRIGGER tell AFTER INSERT OR UPDATE OR DELETE ON TABLE
FOR EACH STATEMENT EXECUTE FUNCTION SCHEMA.tell()
"""

Rows = list[tuple[object, ...]]


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[tuple[asyncpg.Connection, str]]:
    """A connection, and the schema of the store."""
    connection = await asyncpg.connect(url)
    try:
        yield connection, str(await connection.fetchval("SELECT current_schema()"))
    finally:
        await connection.close()


async def query_queue(url: str, query: str) -> Rows:
    """The rows of a query; QUEUE stands for the schema of the queue."""
    async with _connected(url) as (connection, schema):
        found = await connection.fetch(query.replace("QUEUE", f"weft_queue_{schema}"))
        return [tuple(row) for row in found]


async def until_rows(url: str, table: str, query: str, expected: Rows) -> None:
    """Returns when a query of this table has these rows: at once, or after a change of it."""
    async with _connected(url) as (connection, schema):
        changed = asyncio.Event()
        await connection.add_listener(f"told_{schema}", lambda *_: changed.set())
        named = table.replace("QUEUE", f"weft_queue_{schema}")
        await connection.execute(TELL.replace("ON TABLE", f"ON {named}").replace("SCHEMA", schema))
        async with asyncio.timeout(60):
            while await query_queue(url, query) != expected:
                await changed.wait()
                changed.clear()
