"""From an address to a store."""

from pathlib import Path

from weft.scrub import Secret
from weft.store.base import Store, UnknownStore
from weft.store.sql import SqlStore
from weft.store.sqlite import Sqlite
from weft.store.writer import WritePolicy

try:
    from weft.store.postgres import Postgres
except ModuleNotFoundError as error:  # asyncpg comes with the extra `postgres`
    if error.name != "asyncpg":
        raise
    POSTGRES = False
else:
    POSTGRES = True

LOCK_WAIT = 1.0
STATEMENT = 5.0
"""Seconds that one try may take in SQLite, and one statement in PostgreSQL: what waits for another
server is tried again and again, as long as we have patience."""

DEFAULT = WritePolicy()


def store_from_url(url: str, policy: WritePolicy = DEFAULT, server: str = "") -> Store:
    """Returns the store at an address, not yet open. Raises UnknownStore. `server` is whose
    responses it writes to, until it takes a lease.

    `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://user:password@host/database`.
    """
    scheme, found, rest = url.partition("://")
    if not found:
        raise UnknownStore("an address begins with sqlite:// or postgresql://")
    match scheme:
        case "sqlite":
            return SqlStore(Sqlite(_path(rest), min(LOCK_WAIT, policy.timeout)), policy, server)
        case "postgresql" | "postgres" if POSTGRES:
            return SqlStore(Postgres(Secret(url), min(STATEMENT, policy.timeout)), policy, server)
        case "postgresql" | "postgres":
            raise UnknownStore("PostgreSQL needs asyncpg: pip install 'weft[postgres]'")
        case _:
            raise UnknownStore(f"{scheme[:20]!r} is no database: sqlite or postgresql")


def _path(rest: str) -> Path:
    if ":memory:" in rest or rest in {"", "/"}:
        raise UnknownStore(
            "a store in memory would be lost with its process, and no other could read it: "
            "name a file, as in sqlite:///weft.db"
        )
    if not rest.startswith("/"):
        raise UnknownStore("three slashes before a relative path, four before an absolute one")
    if "?" in rest or "\0" in rest:
        raise UnknownStore("an address of SQLite has no options")
    return Path(rest[1:])
