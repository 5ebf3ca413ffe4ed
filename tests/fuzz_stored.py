"""Fuzzing of what is stored: upstream bytes -> relay -> SQLite -> the audit of `weft verify`.

Mutated streams of every dialect are told to clients of every dialect, streamed and whole, with
breaks, limits and clients that leave at any place, and stored in a real database. Then:

1. no false alarm: the audit finds nothing, and the log is what the client was sent;
2. not blind: one value of the stored rows is changed (a byte, a count, a status; an event or a row
   is dropped, two are swapped), and the audit must notice. Then the row is put back.

    python -m tests.fuzz_stored --count 100000 --seed 1 --seconds 3600
    python -m tests.fuzz_stored --file /tmp/weft-fuzz/1-4711-v99.sse --variant 99
"""

import asyncio
import atexit
import functools
import hashlib
import json
import math
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec

from tests import fuzz_inputs
from tests.faults.wires import CHAT, GEMINI, MESSAGES, RESPONSES
from tests.fuzz import Target, cut, main, must
from tests.played import BODY, EVENTS, Piece, Play, Played
from tests.stored_logs import as_sent, events_of, pack, unpack
from tests.test_relay_run import REQUEST_BODIES, upstream_config
from weft.gateway.sessions import Sessions, parse_preamble
from weft.relay.audit import audit_entry
from weft.relay.incoming import (
    IncomingRequest,
    RequestBody,
    RequestFailed,
    RequestLimits,
    StorePolicy,
)
from weft.relay.persistence import Persistence, ResponseWriter
from weft.relay.routing import Routing
from weft.relay.run import Run
from weft.scrub import Scrubber
from weft.sse import Event, write_events
from weft.store.escaping import escape
from weft.store.urls import store_from_url
from weft.upstream.base import Unreachable

DIALECTS = (CHAT, RESPONSES, MESSAGES, GEMINI)
TIMES = 4
"""Changes of the rows of each answer."""

Value = str | bytes | int | float | None


# What is asked, and how it goes


@dataclass(frozen=True)
class Way:
    """How one answer goes: who asks whom, what for, and what happens on the way."""

    upstream: str
    client: str
    stream: bool
    fields: dict[str, object]
    headers: dict[str, str]
    breaks: bool
    """The connection of the upstream breaks behind its last byte."""
    leaves: int
    """After so many reads the client leaves; 0: it stays."""
    limit: int
    """Of the bytes of an answer."""
    tool_session: bool


def way(variant: int) -> Way:
    """The way that a variant names: a number whose first digit is the upstream's dialect."""
    rng = Random(variant)
    client = rng.choice(DIALECTS)
    fields: dict[str, object] = dict(REQUEST_BODIES[client])
    if client != GEMINI:
        fields["stream"] = stream = rng.random() < 0.75
    else:
        stream = rng.random() < 0.75
    if rng.random() < 0.5:
        fields |= TOOLS[client]
    if client == CHAT and stream and rng.random() < 0.5:
        fields["stream_options"] = {"include_usage": True}
    if client == RESPONSES and rng.random() < 0.3:
        fields["include"] = [rng.choice(["required_action", "reasoning.raw"])]
    return Way(
        upstream=DIALECTS[variant % len(DIALECTS)],
        client=client,
        stream=stream,
        fields=fields,
        headers=BODY if rng.random() < 0.1 else EVENTS,
        breaks=rng.random() < 0.15,
        leaves=rng.randrange(1, 5) if rng.random() < 0.1 else 0,
        limit=rng.randrange(2000) if rng.random() < 0.05 else 10_000_000,
        tool_session=client == RESPONSES and rng.random() < 0.1,
    )


_NAMES = ("look", "read", "weather", "wind", "find_thread")
_SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOLS: dict[str, dict[str, object]] = {
    CHAT: {
        "tools": [
            {"type": "function", "function": {"name": one, "parameters": _SCHEMA}} for one in _NAMES
        ]
    },
    RESPONSES: {
        "tools": [
            *({"type": "function", "name": one, "parameters": _SCHEMA} for one in _NAMES[1:]),
            {"type": "custom", "name": _NAMES[0]},
        ]
    },
    MESSAGES: {"tools": [{"name": one, "input_schema": _SCHEMA} for one in _NAMES]},
    GEMINI: {
        "tools": [
            {"functionDeclarations": [{"name": one, "parameters": _SCHEMA} for one in _NAMES]}
        ]
    },
}


def made(seed: int, number: int) -> tuple[list[bytes], int]:
    """The pieces of one input, and the variant that says how it goes."""
    rng = Random(f"stored {seed} {number}")
    variant = rng.randrange(10**6)
    return fuzz_inputs.mutated(way(variant).upstream, rng), variant


# The world


class World:
    """A store, and upstreams that say what they are told to."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="weft-fuzz-")
        path = Path(self._folder.name) / "weft.db"
        self.runner = asyncio.Runner()
        self.store = store_from_url(f"sqlite:///{path}")
        self.sessions = Sessions(Persistence(self.store))
        self.runner.run(self.store.open())
        self.rows = sqlite3.connect(path, isolation_level=None)
        self.rows.execute("PRAGMA synchronous = OFF")

    def close(self) -> None:
        self.rows.close()
        self.runner.run(self.store.close())
        self.runner.close()
        self._folder.cleanup()

    def check(self, raw: bytes, variant: int) -> None:
        self.runner.run(self._check(raw, way(variant), Random(hashlib.sha256(raw).digest())))

    async def _check(self, raw: bytes, way: Way, rng: Random) -> None:
        told, id = await self._told(cut(raw, rng), way)
        if id is None:
            return
        try:
            await self._no_false_alarm(id, told)
            for _ in range(TIMES):
                await self._not_blind(id, rng)
        finally:
            await self.store.delete("", id)

    async def _no_false_alarm(self, id: str, told: bytes | None) -> None:
        entry = await self.store.entry(id)
        must(entry is not None and entry.ended is not None, "the answer was told and not ended")
        assert entry is not None
        log = as_sent(events_of(await self.store.blocks(id)))
        must(told is None or told == log, "the log is not what was sent")
        found = await audit_entry(self.store, entry)
        must(not found, f"false alarm: {found[0].what}: {found[0].detail}" if found else "")

    # One answer

    async def _told(self, pieces: list[bytes], way: Way) -> tuple[bytes | None, str | None]:
        """What the client was sent, if it stayed, and the id under which that is stored."""
        script: list[Piece] = [one for one in pieces if one]
        if way.breaks:
            script.append(Unreachable("connection lost", "truncated"))
        upstream = Played(upstream_config(dialect=way.upstream), Play(script, 200, way.headers))
        run, writer = await self._run(upstream, way)
        told: bytes | None = None
        with suppress(RequestFailed):
            try:
                opened = await run.open()
                if not way.stream:
                    told = (await opened.read_body())[1]
                else:
                    events: list[Event] = []
                    reads = 0
                    while some := await opened.next():
                        events += some
                        reads += 1
                        if reads == way.leaves:
                            break
                    told = None if reads == way.leaves else write_events(events)
            finally:
                await run.close()
        return told, writer.log.id if writer.has_begun else None

    async def _run(self, upstream: Played, way: Way) -> tuple[Run, ResponseWriter]:
        body = json.dumps(way.fields).encode()
        incoming = IncomingRequest(
            RequestBody(way.client, body),
            "a/m",
            way.stream,
            store=StorePolicy(body, b'["x"]'),
            tool_session=way.tool_session,
        )
        if way.client == RESPONSES:
            incoming = await self.sessions.with_history(incoming, parse_preamble(body))
        writer = self.sessions.persistence.writer(incoming)
        assert writer is not None
        targets = Routing({"a": upstream}, {}).targets("a/m")
        limits = RequestLimits(response=way.limit, grace=0.05)
        return Run(incoming, targets, limits, Scrubber([]), (), writer), writer

    # Changes

    async def _not_blind(self, id: str, rng: Random) -> None:
        change, own = rng.choice(CHANGES), escape(id)
        before = self._dump(own)
        what = change(self.rows, own, rng)
        try:
            if what is not None and self._dump(own) != before:
                must(await self._noticed(id), f"blind: {what}")
        finally:
            self._restore(own, before)

    async def _noticed(self, id: str) -> bool:
        try:
            entry = await self.store.entry(id)
            return entry is None or bool(await audit_entry(self.store, entry))
        except msgspec.ValidationError:  # a row that is none: the store cannot be read
            return True

    def _dump(self, id: str) -> dict[str, list[tuple[Value, ...]]]:
        """All rows of a response, by the id that their columns have."""
        return {
            table: self.rows.execute(f"SELECT * FROM {table} WHERE {key} = ?", (id,)).fetchall()
            for table, key in tables(self.rows)
        }

    def _restore(self, id: str, rows: dict[str, list[tuple[Value, ...]]]) -> None:
        self.rows.execute("BEGIN")
        for table, key in tables(self.rows):
            self.rows.execute(f"DELETE FROM {table} WHERE {key} = ?", (id,))
            for row in rows[table]:
                marks = ", ".join("?" * len(row))
                self.rows.execute(f"INSERT INTO {table} VALUES ({marks})", row)
        self.rows.execute("COMMIT")


def tables(rows: sqlite3.Connection) -> list[tuple[str, str]]:
    """Every table that holds something of a response, and the column that names it."""
    found = []
    names = rows.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (name,) in names:
        columns = [row[1] for row in rows.execute(f"PRAGMA table_info({name})")]
        if name == "response":
            found.append((name, "id"))
        elif "response" in columns and name != "reasoning":
            found.append((name, "response"))
    return found


FREE = {
    ("response", "id"): "whose it is: without it, nobody finds the row",
    ("response", "server"): "the process that ran it",
    ("response", "cancelling"): "that somebody wanted it stopped",
    ("response", "recoveries"): "how often somebody set out to end it",
    ("response", "answered"): "what went on from it: it comes later",
    ("asked", "context"): "what its client writes on it later",
    ("asked", "begun"): "how it looked while it ran: nobody reads that once it has ended",
}
"""What may change once a response has ended, and so is under no checksum."""


def flipped(value: Value, rng: Random) -> Value:
    """The same value with one bit, or one character, changed."""
    match value:
        case bytes():
            data = bytearray(value or b"x")
            at = rng.randrange(len(data))
            data[at] ^= 1 << rng.randrange(8)
            return bytes(data)
        case str():
            at = rng.randrange(len(value) + 1)
            return value[:at] + rng.choice("az09_") + value[at + 1 :]
        case int():
            return value ^ (1 << rng.randrange(3))
        case float():
            return math.nextafter(value, math.inf)
        case None:
            return "x"


def change_a_value(rows: sqlite3.Connection, id: str, rng: Random) -> str | None:
    """Any column of any row."""
    table, key = rng.choice(tables(rows))
    found = rows.execute(f"SELECT rowid, * FROM {table} WHERE {key} = ?", (id,))
    names = [one[0] for one in found.description][1:]
    all_rows = found.fetchall()
    name = rng.choice([one for one in names if one != "response" and (table, one) not in FREE])
    if not all_rows:
        return None
    number, *values = rng.choice(all_rows)
    old = values[names.index(name)]
    new: Value = (not old) if name in FLAGS else flipped(old, rng)
    with suppress(sqlite3.IntegrityError):  # two rows of one key: not even SQLite takes that
        rows.execute(f"UPDATE {table} SET {name} = ? WHERE rowid = ?", (new, number))
    return f"{table}.{name}"


FLAGS = frozenset({"background", "stream", "visible", "pruned"})


def drop_a_row(rows: sqlite3.Connection, id: str, rng: Random) -> str | None:
    """Any but those that make it a response."""
    table, key = rng.choice([one for one in tables(rows) if one[0] not in ("response", "asked")])
    numbers = rows.execute(f"SELECT rowid FROM {table} WHERE {key} = ?", (id,)).fetchall()
    if not numbers:
        return None
    rows.execute(f"DELETE FROM {table} WHERE rowid = ?", rng.choice(numbers))
    return f"a row of {table} is gone"


def change_the_log(rows: sqlite3.Connection, id: str, rng: Random) -> str | None:
    """An event is gone, comes twice, or at another place; counts and sizes fit."""
    found = rows.execute("SELECT rowid, data FROM block WHERE response = ?", (id,)).fetchall()
    if not found:
        return None
    number, data = rng.choice(found)
    events = unpack(data)
    at = rng.randrange(len(events))
    what = rng.choice(["gone", "twice", "swapped"])
    if what == "gone":
        del events[at]
    elif what == "twice":
        events.insert(at, events[at])
    else:
        other = rng.randrange(len(events))
        events[at], events[other] = events[other], events[at]
    now = pack(events)
    rows.execute("UPDATE block SET data = ?, count = ? WHERE rowid = ?", (now, len(events), number))
    all_data = rows.execute("SELECT count, length(data) FROM block WHERE response = ?", (id,))
    counts, sizes = zip(*all_data.fetchall(), strict=True)
    rows.execute(
        "UPDATE response SET events = ?, size = ? WHERE id = ?", (sum(counts), sum(sizes), id)
    )
    return f"an event of the log is {what}"


_STATUSES = ("queued", "in_progress", "completed", "incomplete", "failed", "cancelled")


def change_the_status(rows: sqlite3.Connection, id: str, rng: Random) -> str | None:
    status = rng.choice(_STATUSES)
    ((old, body),) = rows.execute(
        "SELECT status, body FROM response LEFT JOIN answer ON answer.response = id WHERE id = ?",
        (id,),
    ).fetchall()
    if (old, status) == ("incomplete", "completed") and b'"required_action":{' in (body or b""):
        return None  # as it becomes when the outputs have come
    rows.execute("UPDATE response SET status = ? WHERE id = ?", (status, id))
    return "response.status"


Change = Callable[[sqlite3.Connection, str, Random], str | None]
"""Changes something of a response; says what, if it did."""

CHANGES: tuple[Change, ...] = (
    *[change_a_value] * 6, drop_a_row, *[change_the_log] * 2, change_the_status,
)  # fmt: skip


@functools.cache
def world() -> World:
    """That of this process."""
    made = World()
    atexit.register(made.close)
    return made


def check(raw: bytes, variant: int) -> None:
    world().check(raw, variant)


STORED = Target("tests.fuzz_stored", made, check)

if __name__ == "__main__":
    sys.exit(main(target=STORED, about=__doc__, count=100_000))
