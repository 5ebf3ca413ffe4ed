"""The tables, as numbered, append-only migrations.

1. A released migration is never edited: a database that has it would not get the change. A test
   holds the digest of each.
2. `open` applies what is missing, in one transaction, under a lock: two servers may start at once.
3. A database with more migrations than the code is refused: its rows may have another meaning.

Both databases run the same statements; only the column types differ.
"""

import time
from collections.abc import Mapping

from weft.store.base import StoreError
from weft.store.queries import Queries

SQLITE: Mapping[str, str] = {"BYTES": "BLOB"}
POSTGRES: Mapping[str, str] = {
    "BYTES": "BYTEA",
    "TEXT": 'TEXT COLLATE "C"',  # ids sort by their bytes in both, whatever the server's language
}

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # What changes is apart from what is large: a change of status rewrites a short row.
        """CREATE TABLE response (
            id TEXT PRIMARY KEY,
            owner TEXT NOT NULL,
            dialect TEXT NOT NULL,
            model TEXT NOT NULL,
            status TEXT NOT NULL,
            created DOUBLE PRECISION NOT NULL,
            ended DOUBLE PRECISION,
            previous TEXT,
            conversation TEXT,
            background BOOLEAN NOT NULL,
            stream BOOLEAN NOT NULL,
            visible BOOLEAN NOT NULL,
            server TEXT NOT NULL,
            digest TEXT,
            events BIGINT NOT NULL,
            size BIGINT NOT NULL,
            cancelling BOOLEAN NOT NULL,
            answered TEXT,
            pruned BOOLEAN NOT NULL
        )""",
        "CREATE INDEX response_newest ON response (owner, created, id)",
        "CREATE INDEX response_running ON response (server, created) WHERE ended IS NULL",
        "CREATE INDEX response_cancelling ON response (id) WHERE cancelling AND ended IS NULL",
        "CREATE INDEX response_ended ON response (ended) WHERE ended IS NOT NULL",
        """CREATE INDEX response_logged ON response (ended)
            WHERE ended IS NOT NULL AND NOT pruned AND events > 0""",
        """CREATE TABLE asked (
            response TEXT PRIMARY KEY REFERENCES response ON DELETE CASCADE,
            request BYTES NOT NULL,
            input BYTES NOT NULL,
            context BYTES NOT NULL
        )""",
        """CREATE TABLE answer (
            response TEXT PRIMARY KEY REFERENCES response ON DELETE CASCADE,
            body BYTES,
            record BYTES
        )""",
        """CREATE TABLE block (
            response TEXT NOT NULL REFERENCES response ON DELETE CASCADE,
            number BIGINT NOT NULL,
            first BIGINT NOT NULL,
            count BIGINT NOT NULL,
            data BYTES NOT NULL,
            PRIMARY KEY (response, number)
        )""",
        """CREATE TABLE conversation (
            id TEXT PRIMARY KEY,
            owner TEXT NOT NULL,
            created DOUBLE PRECISION NOT NULL,
            metadata BYTES NOT NULL
        )""",
        """CREATE TABLE item (
            conversation TEXT NOT NULL REFERENCES conversation ON DELETE CASCADE,
            position BIGINT NOT NULL,
            id TEXT NOT NULL,
            data BYTES NOT NULL,
            PRIMARY KEY (conversation, id),
            UNIQUE (conversation, position)
        )""",
        """CREATE TABLE server (
            name TEXT PRIMARY KEY,
            host TEXT NOT NULL,
            pid BIGINT NOT NULL,
            beat DOUBLE PRECISION NOT NULL
        )""",
    ),
    (
        """CREATE TABLE reasoning (
            owner TEXT NOT NULL,
            call TEXT NOT NULL,
            response TEXT NOT NULL,
            origin TEXT NOT NULL,
            created DOUBLE PRECISION NOT NULL,
            data BYTES NOT NULL,
            PRIMARY KEY (owner, call)
        )""",
        "CREATE INDEX reasoning_response ON reasoning (response)",
        "CREATE INDEX reasoning_created ON reasoning (created)",
    ),
    (
        # No server of an earlier version has a lease: what it has not ended is taken over.
        "DROP TABLE server",
        """CREATE TABLE server (
            name TEXT PRIMARY KEY,
            host TEXT NOT NULL,
            pid BIGINT NOT NULL,
            until DOUBLE PRECISION NOT NULL
        )""",
    ),
    (
        # A body or record that is large, in pieces: what one statement carries is bounded.
        """CREATE TABLE piece (
            response TEXT NOT NULL REFERENCES response ON DELETE CASCADE,
            field TEXT NOT NULL,
            number BIGINT NOT NULL,
            data BYTES NOT NULL,
            PRIMARY KEY (response, field, number)
        )""",
        "ALTER TABLE answer ADD COLUMN in_pieces BOOLEAN NOT NULL DEFAULT FALSE",
        # How often somebody set out to end what a dead process left.
        "ALTER TABLE response ADD COLUMN recoveries BIGINT NOT NULL DEFAULT 0",
    ),
    (
        """CREATE TABLE run (
            id TEXT PRIMARY KEY,
            owner TEXT NOT NULL,
            agent TEXT NOT NULL,
            status TEXT NOT NULL,
            created DOUBLE PRECISION NOT NULL,
            updated DOUBLE PRECISION NOT NULL,
            ended DOUBLE PRECISION,
            seq BIGINT NOT NULL,
            epoch BIGINT NOT NULL,
            holder TEXT NOT NULL,
            until DOUBLE PRECISION NOT NULL,
            due DOUBLE PRECISION,
            parent TEXT,
            key TEXT
        )""",
        "CREATE INDEX run_newest ON run (owner, created, id)",
        "CREATE UNIQUE INDEX run_key ON run (owner, key) WHERE key IS NOT NULL",
        # When somebody must look at a run: when its lease expires, or if it has none, when due.
        "CREATE INDEX run_wake ON run ((CASE WHEN until > 0 THEN until ELSE due END))",
        "CREATE INDEX run_ended ON run (ended) WHERE ended IS NOT NULL",
        """CREATE TABLE run_event (
            run TEXT NOT NULL REFERENCES run ON DELETE CASCADE,
            seq BIGINT NOT NULL,
            kind TEXT NOT NULL,
            at DOUBLE PRECISION NOT NULL,
            epoch BIGINT NOT NULL,
            body BYTES NOT NULL,
            PRIMARY KEY (run, seq)
        )""",
    ),
    (
        "ALTER TABLE response ADD COLUMN findings BIGINT NOT NULL DEFAULT 0",
        """CREATE INDEX response_conversation ON response (conversation, created)
            WHERE conversation IS NOT NULL""",
        "CREATE INDEX conversation_newest ON conversation (owner, created, id)",
        # What an upstream sent, in compressed blocks: number 0 says how it was read.
        """CREATE TABLE upstream (
            response TEXT NOT NULL REFERENCES response ON DELETE CASCADE,
            number BIGINT NOT NULL,
            created DOUBLE PRECISION NOT NULL,
            data BYTES NOT NULL,
            PRIMARY KEY (response, number)
        )""",
        "CREATE INDEX upstream_created ON upstream (created)",
    ),
    (
        # What a process needs to run a background response that another one has accepted. A row is
        # there until the response has ended.
        """CREATE TABLE job (
            response TEXT PRIMARY KEY REFERENCES response ON DELETE CASCADE,
            body BYTES NOT NULL,
            options BYTES NOT NULL,
            tries BIGINT NOT NULL,
            due DOUBLE PRECISION NOT NULL
        )""",
    ),
    (
        # The runs that a run has started, which end with it.
        "CREATE INDEX run_parent ON run (parent) WHERE parent IS NOT NULL",
    ),
    (
        """CREATE TABLE client_key (
            name TEXT PRIMARY KEY,
            digest TEXT NOT NULL UNIQUE,
            hint TEXT NOT NULL,
            created DOUBLE PRECISION NOT NULL,
            revoked DOUBLE PRECISION,
            rules BYTES NOT NULL,
            revision BIGINT NOT NULL
        )""",
        # Money in billionths of a US dollar: sums are exact.
        """CREATE TABLE token_usage (
            owner TEXT NOT NULL,
            day TEXT NOT NULL,
            model TEXT NOT NULL,
            upstream TEXT NOT NULL,
            source TEXT NOT NULL,
            requests BIGINT NOT NULL,
            failed BIGINT NOT NULL,
            input BIGINT NOT NULL,
            output BIGINT NOT NULL,
            cached BIGINT NOT NULL,
            reasoning BIGINT NOT NULL,
            cost BIGINT NOT NULL,
            unpriced BIGINT NOT NULL,
            PRIMARY KEY (owner, day, model, upstream, source)
        )""",
        # How far the journal of a process was added to the ledger.
        "CREATE TABLE journal (id TEXT PRIMARY KEY, position BIGINT NOT NULL)",
        """CREATE TABLE rate_window (
            owner TEXT NOT NULL,
            kind TEXT NOT NULL,
            number BIGINT NOT NULL,
            used BIGINT NOT NULL,
            PRIMARY KEY (owner, kind)
        )""",
        """CREATE TABLE reservation (
            owner TEXT NOT NULL,
            kind TEXT NOT NULL,
            server TEXT NOT NULL,
            amount BIGINT NOT NULL,
            PRIMARY KEY (owner, kind, server)
        )""",
    ),
    (
        # What the response has cost; NULL if the price was not known, or nobody counted.
        "ALTER TABLE response ADD COLUMN cost BIGINT",
    ),
    (
        # The response object of a response that runs; before, it had a row in answer.
        "ALTER TABLE asked ADD COLUMN begun BYTES",
    ),
)

_CREATE = """CREATE TABLE IF NOT EXISTS migration
    (number BIGINT PRIMARY KEY, applied DOUBLE PRECISION)"""
_LAST = "SELECT coalesce(max(number), 0) FROM migration"
_INSERT = "INSERT INTO migration (number, applied) VALUES (?, ?)"


def migrate(types: Mapping[str, str]) -> Queries[None]:
    """Applies the migrations that are missing. The caller holds the lock and the transaction."""
    yield _CREATE, ()
    found = int((yield _LAST, ())[0][0] or 0)
    if found > len(MIGRATIONS):
        raise StoreError(
            f"the database has migration {found}, this version of Weft knows {len(MIGRATIONS)}: "
            "it was migrated by a newer version",
            "newer",
        )
    for number, statements in enumerate(MIGRATIONS[found:], found + 1):
        for statement in statements:
            yield with_types(statement, types), ()
        yield _INSERT, (number, time.time())


def with_types(statement: str, types: Mapping[str, str]) -> str:
    """The statement with the column types of one database."""
    for name, own in types.items():
        statement = statement.replace(f" {name}", f" {own}")
    return statement
