"""From a database URL to a store."""

from pathlib import Path

from weft.scrub import Secret
from weft.store.base import UnknownStore
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

LOCK_TIMEOUT = 1.0
STATEMENT_TIMEOUT = 5.0
"""Seconds for one attempt in SQLite, and for one statement in PostgreSQL. Attempts are repeated for
`WritePolicy.timeout` seconds."""

DEFAULT = WritePolicy()


def store_from_url(url: str, policy: WritePolicy = DEFAULT, server: str = "") -> SqlStore:
    """Returns the store at a URL, not yet open. Raises UnknownStore. `server` is the id of the
    server that the store writes for, until it takes a lease.

    `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://user:password@host/database`.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise UnknownStore("an address begins with sqlite:// or postgresql://")
    match scheme:
        case "sqlite":
            lock_timeout = min(LOCK_TIMEOUT, policy.timeout)
            return SqlStore(Sqlite(_path(rest), lock_timeout), policy, server)
        case "postgresql" | "postgres" if POSTGRES:
            statement_timeout = min(STATEMENT_TIMEOUT, policy.timeout)
            return SqlStore(Postgres(Secret(url), statement_timeout), policy, server)
        case "postgresql" | "postgres":
            raise UnknownStore("PostgreSQL needs asyncpg: pip install 'weft[postgres]'")
        case _:
            raise UnknownStore(f"unknown database {scheme[:20]!r}: use sqlite or postgresql")


def _path(rest: str) -> Path:
    if ":memory:" in rest or rest in {"", "/"}:
        raise UnknownStore(
            "a store in memory would be lost with its process, and no other could read it: "
            "name a file, as in sqlite:///weft.db"
        )
    if not rest.startswith("/"):
        raise UnknownStore("three slashes before a relative path, four before an absolute one")
    if "?" in rest or "\0" in rest:
        raise UnknownStore("an SQLite URL has no options")
    return Path(rest[1:])
