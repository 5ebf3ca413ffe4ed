"""What each operation says to the database: every statement there is, but for the log's.

1. Queries that raise do so before they write: their transaction goes on with the operations of
   others.
2. No statement fails by a constraint: it asks first, or says ON CONFLICT, so that a transaction
   that carries many is not lost to one. LOCKS says which rows to hold on to meanwhile.
3. A contest is one UPDATE with its condition; RETURNING tells whether it was met.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from weft.errors import ClientError
from weft.store.base import (
    BLOCKS_AT_A_TIME,
    CHAIN_LENGTH,
    ID_LENGTH,
    REASONING_SIZE,
    AlreadyExists,
    NotFound,
    StoreError,
)
from weft.store.queries import Queries, Row, Value
from weft.store.records import (
    Block,
    CallReasoning,
    Conversation,
    Ending,
    Entry,
    Extent,
    Item,
    Page,
    Status,
)

S = TypeVar("S", bound=msgspec.Struct)

BEYOND = 2**62
"""No number in a column is as large."""

MOST = 10_000
"""Rows at a time, whatever is asked for."""


# Rows as values

FLAGS = frozenset({"background", "stream", "visible", "cancelling", "pruned", "expired"})
"""SQLite tells them as 0 and 1."""


def value_of(kind: type[S], row: Row) -> S:
    """The value whose fields a row holds, in their order."""
    named = {
        name: bool(value) if name in FLAGS else value
        for name, value in zip(kind.__struct_fields__, row, strict=True)
    }
    return msgspec.convert(named, kind)


def _short(*ids: str) -> None:
    """Raises for an id that is too long: an index of PostgreSQL has no room for long ones."""
    if any(len(id) > ID_LENGTH for id in ids):
        raise ClientError(f"an id of more than {ID_LENGTH} characters")


def _up_to(limit: int) -> int:
    return max(0, min(limit, MOST))


# Responses

ENTRY = """SELECT r.id, r.owner, r.dialect, r.model, r.status, r.created, r.ended, r.previous,
    r.conversation, r.background, r.stream, r.visible, r.server, q.request, q.input, q.context,
    a.body, a.record, r.digest, r.events, r.size, r.cancelling, r.answered, r.pruned,
    coalesce(a.in_pieces, FALSE)
    FROM response r JOIN asked q ON q.response = r.id LEFT JOIN answer a ON a.response = r.id"""
ONE = ENTRY + " WHERE r.id = ?"
OWNED = ENTRY + " WHERE r.id = ? AND r.owner = ?"
ALL = ENTRY + " WHERE r.id > ? ORDER BY r.id LIMIT ?"
NEWEST = ENTRY + " WHERE r.owner = ? ORDER BY r.created DESC, r.id DESC LIMIT ?"
FORTH = (
    ENTRY
    + """ WHERE r.owner = ? AND r.dialect = ? AND r.visible AND r.ended IS NOT NULL
        AND (r.created, r.id) > (?, ?) ORDER BY r.created, r.id LIMIT ?"""
)
BACK = (
    ENTRY
    + """ WHERE r.owner = ? AND r.dialect = ? AND r.visible AND r.ended IS NOT NULL
        AND (r.created, r.id) < (?, ?) ORDER BY r.created DESC, r.id DESC LIMIT ?"""
)
CHAIN = (
    """WITH RECURSIVE chain (id, previous, depth) AS (
        SELECT id, previous, 1 FROM response WHERE id = ? AND owner = ?
        UNION ALL
        SELECT e.id, e.previous, c.depth + 1 FROM chain c JOIN response e ON e.id = c.previous
        WHERE e.owner = ? AND c.depth < ?
    ) """
    + ENTRY
    + " JOIN chain c ON c.id = r.id ORDER BY c.depth DESC"
)

INSERT_RESPONSE = """INSERT INTO response (id, owner, dialect, model, status, created, ended,
    previous, conversation, background, stream, visible, server, digest, events, size, cancelling,
    answered, pruned) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING RETURNING id"""
INSERT_ASKED = "INSERT INTO asked (response, request, input, context) VALUES (?, ?, ?, ?)"
INSERT_ANSWER = """INSERT INTO answer (response, body, record, in_pieces) VALUES (?, ?, ?, ?)
    ON CONFLICT (response) DO UPDATE
    SET body = excluded.body, record = excluded.record, in_pieces = excluded.in_pieces"""
INSERT_BLOCK = """INSERT INTO block (response, number, first, count, data) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING"""


def begin(entry: Entry, first: Sequence[Block] = ()) -> Queries[None]:
    _short(entry.id)
    e = entry
    made = yield (
        INSERT_RESPONSE,
        (
            *(e.id, e.owner, e.dialect, e.model, e.status, e.created, e.ended, e.previous),
            *(e.conversation, e.background, e.stream, e.visible, e.server, e.digest, e.events),
            *(e.size, e.cancelling, e.answered, e.pruned),
        ),
    )
    if not made:
        raise AlreadyExists("there is a response of this id already")
    yield INSERT_ASKED, (e.id, e.request, e.input, e.context)
    if e.body is not None or e.record is not None:
        yield INSERT_ANSWER, (e.id, e.body, e.record, False)
    for block in first:
        yield INSERT_BLOCK, (e.id, block.number, block.first, block.count, block.data)


RUNNING = "SELECT conversation FROM response WHERE id = ? AND server = ? AND ended IS NULL"
RUNS = "SELECT 1 FROM response WHERE id = ? AND ended IS NULL"
EXTENT = """SELECT coalesce(max(number), -1) + 1, coalesce(sum(count), 0),
    coalesce(sum(length(data)), 0) FROM block WHERE response = ?"""
END = """UPDATE response SET status = ?, ended = ?, digest = ?, events = ?, size = ?
    WHERE id = ?"""


FIELDS = ("body", "record")
"""Of an answer: those that may be stored in pieces."""

PIECE = """INSERT INTO piece (response, field, number, data) VALUES (?, ?, ?, ?)
    ON CONFLICT (response, field, number) DO UPDATE SET data = excluded.data"""
PIECES = "SELECT data FROM piece WHERE response = ? AND field = ? ORDER BY number"
DROP_PIECES = "DELETE FROM piece WHERE response = ? AND field = ? AND number >= ?"


def store_piece(id: str, server: str, field: str, number: int, data: bytes) -> Queries[None]:
    """A piece of an answer that has not ended: there for nobody until it has."""
    if (yield RUNNING, (id, server)):
        yield PIECE, (id, field, number, data)


def finish(
    id: str, ending: Ending, server: str, pieces: Mapping[str, int] | None = None
) -> Queries[bool]:
    """`pieces`: of how many each field consists that was stored ahead."""
    _short(*(item.id for item in ending.items))
    running = yield RUNNING, (id, server)
    if not running:
        return False
    logged = yield from extent(id)
    events, size, rest = logged.events, logged.size, ending.rest
    if rest is not None:
        events, size = events + rest.count, size + len(rest.data)
    if (events, size) != (ending.events, ending.size):
        raise StoreError(
            f"the log holds {events} events and {size} bytes, "
            f"the ending tells of {ending.events} and {ending.size}",
            "torn",
        )
    yield (
        END,
        (ending.status, ending.ended, ending.digest, ending.events, ending.size, id),
    )
    if rest is not None:
        yield INSERT_BLOCK, (id, rest.number, rest.first, rest.count, rest.data)
    yield INSERT_ANSWER, (id, ending.body, ending.record, pieces is not None)
    for field, count in (pieces or {}).items():  # more of them are left of an earlier attempt
        yield DROP_PIECES, (id, field, count)
    conversation = running[0][0]
    if (
        isinstance(conversation, str)
        and ending.items
        and (yield CONVERSATION_LOCKED, (conversation,))
    ):
        yield from _append_items(conversation, ending.items)
    return True


def is_running(id: str) -> Queries[bool]:
    return bool((yield RUNS, (id,)))


def entry(id: str) -> Queries[Entry | None]:
    found = yield from _entries((yield ONE, (id,)))
    return found[0] if found else None


def owned(owner: str, id: str) -> Queries[Entry | None]:
    found = yield from _entries((yield OWNED, (id, owner)))
    return found[0] if found else None


def entries(after: str, limit: int) -> Queries[list[Entry]]:
    return (yield from _entries((yield ALL, (after, _up_to(limit)))))


def newest(owner: str, limit: int) -> Queries[list[Entry]]:
    return (yield from _entries((yield NEWEST, (owner, _up_to(limit)))))


def list_visible(
    owner: str, dialect: str, after: Entry | None, limit: int, descending: bool
) -> Queries[list[Entry]]:
    edge = (float(BEYOND), "") if descending else (-1.0, "")
    created, id = edge if after is None else (after.created, after.id)
    query = BACK if descending else FORTH
    return (yield from _entries((yield query, (owner, dialect, created, id, _up_to(limit)))))


def chain(owner: str, id: str) -> Queries[list[Entry]]:
    return (yield from _entries((yield CHAIN, (id, owner, owner, CHAIN_LENGTH))))


def _entries(rows: Sequence[Row]) -> Queries[list[Entry]]:
    """Rows of ENTRY; what they hold in pieces is put together."""
    found: list[Entry] = []
    for *fields, in_pieces in rows:
        entry = value_of(Entry, fields)
        if in_pieces and entry.ended is not None:
            whole = {}
            for field in FIELDS:
                pieces = yield PIECES, (entry.id, field)
                whole[field] = _joined(pieces) if pieces else None
            entry = msgspec.structs.replace(entry, **whole)
        found.append(entry)
    return found


def _first(kind: type[S], rows: Sequence[Row]) -> S | None:
    return value_of(kind, rows[0]) if rows else None


def _each(kind: type[S], rows: Sequence[Row]) -> list[S]:
    return [value_of(kind, row) for row in rows]


def _joined(rows: Sequence[Row]) -> bytes:
    return b"".join(row[0] for row in rows if isinstance(row[0], bytes))


# The second condition finds where to begin from the end of the log: whoever follows a long one asks
# for its end again and again.
BLOCKS = """SELECT number, first, count, data FROM block WHERE response = ? AND number > ?
    AND number > coalesce((SELECT number FROM block WHERE response = ? AND number > ?
        AND count > 0 AND first + count <= ? ORDER BY number DESC LIMIT 1), -1)
    ORDER BY number LIMIT ?"""


def blocks(id: str, after: int, behind: int) -> Queries[list[Block]]:
    first = max(min(after, BEYOND), -1) + 1
    found = yield BLOCKS, (id, behind, id, behind, first, BLOCKS_AT_A_TIME)
    return _each(Block, found)


def extent(id: str) -> Queries[Extent]:
    numbers = (yield EXTENT, (id,))[0]
    return Extent(*(int(number or 0) for number in numbers))


DELETE = "DELETE FROM response WHERE id = ? AND owner = ? RETURNING id"
CHANGE = """UPDATE response SET status = ? WHERE id = ? AND (ended IS NOT NULL OR server = ?)
    AND status IN (?, ?, ?, ?, ?, ?) RETURNING id"""
STATUSES = 6
ANSWERED = "UPDATE response SET answered = ? WHERE id = ? AND answered IS NULL RETURNING id"
SET_CONTEXT = """UPDATE asked SET context = ? WHERE response = ?
    AND EXISTS (SELECT 1 FROM response WHERE id = ? AND owner = ?) RETURNING response"""
REQUEST_CANCEL = """UPDATE response SET cancelling = TRUE WHERE id = ? AND ended IS NULL
    RETURNING id"""
CANCELLING = "SELECT id FROM response WHERE cancelling AND ended IS NULL"


def delete(owner: str, id: str) -> Queries[bool]:
    yield DELETE_REASONING, (id, owner)
    return bool((yield DELETE, (id, owner)))


def change_status(id: str, status: Status, of: tuple[Status, ...], server: str) -> Queries[bool]:
    among = [*of, *[""] * STATUSES][:STATUSES]
    return bool((yield CHANGE, (status, id, server, *among)))


def set_answered(id: str, next_id: str) -> Queries[bool]:
    return bool((yield ANSWERED, (next_id, id)))


def set_context(owner: str, id: str, context: bytes) -> Queries[bool]:
    return bool((yield SET_CONTEXT, (context, id, id, owner)))


def request_cancel(id: str) -> Queries[bool]:
    return bool((yield REQUEST_CANCEL, (id,)))


def cancel_requests() -> Queries[set[str]]:
    """They are few, and soon done."""
    return {str(row[0]) for row in (yield CANCELLING, ())}


PRUNED_AT_A_TIME = 200
PRUNE_ENTRIES = """DELETE FROM response WHERE id IN
    (SELECT id FROM response WHERE ended < ? ORDER BY ended LIMIT ?) RETURNING id"""
PRUNE_LOGS = """UPDATE response SET pruned = TRUE WHERE id IN
    (SELECT id FROM response WHERE ended < ? AND NOT pruned AND events > 0
        ORDER BY ended LIMIT ?) RETURNING id"""
PRUNE_LOG = "DELETE FROM block WHERE response = ?"


def prune_entries(before: float) -> Queries[int]:
    """Removes some of them, and says how many."""
    return len((yield PRUNE_ENTRIES, (before, PRUNED_AT_A_TIME)))


def prune_logs(before: float) -> Queries[int]:
    """Removes some of them, and says how many."""
    found = yield PRUNE_LOGS, (before, PRUNED_AT_A_TIME)
    for row in found:
        yield PRUNE_LOG, (row[0],)
    return len(found)


def prune_reasoning(before: float) -> Queries[int]:
    """Removes some of it, and says how much."""
    return len((yield PRUNE_REASONING, (before, PRUNED_AT_A_TIME)))


# Reasoning

SAVE_REASONING = """INSERT INTO reasoning (owner, call, response, origin, created, data)
    VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (owner, call) DO UPDATE SET response = excluded.response,
        origin = excluded.origin, created = excluded.created, data = excluded.data"""
CALLS_AT_A_TIME = 64
REASONING = (
    """SELECT call, response, origin, created, data FROM reasoning
    WHERE owner = ? AND created >= ? AND call IN (?"""
    + ", ?" * (CALLS_AT_A_TIME - 1)
    + ")"
)
DELETE_REASONING = "DELETE FROM reasoning WHERE response = ? AND owner = ?"
PRUNE_REASONING = """DELETE FROM reasoning WHERE (owner, call) IN
    (SELECT owner, call FROM reasoning WHERE created < ? ORDER BY created LIMIT ?)
    RETURNING call"""


def save_reasoning(owner: str, calls: Sequence[CallReasoning]) -> Queries[None]:
    _short(*(one.call for one in calls), *(one.response for one in calls))
    if any(len(one.data) > REASONING_SIZE for one in calls):
        raise ClientError(f"reasoning of more than {REASONING_SIZE} bytes")
    # In one order for all: two transactions that replace the same rows never wait for each other.
    for one in sorted(calls, key=lambda one: one.call):
        yield (
            SAVE_REASONING,
            (owner, one.call, one.response, one.origin, one.created, one.data),
        )


def load_reasoning(owner: str, calls: Sequence[str], since: float) -> Queries[list[CallReasoning]]:
    found: list[CallReasoning] = []
    for start in range(0, len(calls), CALLS_AT_A_TIME):
        some = calls[start : start + CALLS_AT_A_TIME]
        asked = [*some, *[some[0]] * (CALLS_AT_A_TIME - len(some))]
        found += _each(CallReasoning, (yield REASONING, (owner, since, *asked)))
    return found


# Servers


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The lease of a server, as it was read."""

    server: str
    until: float
    """When it runs out, by the database's clock, in seconds since 1970."""

    expired: bool
    """Whether that was so when it was read."""


CLOCK = "((julianday('now') - 2440587.5) * 86400.0)"
"""The database's clock in seconds since 1970, as SQLite tells it: a file is on one machine, whose
clock it is. Elsewhere another expression takes its place."""

TAKE_LEASE = "INSERT INTO server (name, host, pid, until) VALUES (?, ?, ?, " + CLOCK + " + ?)"
RENEW_LEASE = "UPDATE server SET until = " + CLOCK + " + ? WHERE name = ? RETURNING name"
RELEASE_LEASE = "DELETE FROM server WHERE name = ?"
LEASES = "SELECT name, until, until < " + CLOCK + " FROM server WHERE name <> ?"
REVOKE_LEASE = "DELETE FROM server WHERE name = ? AND until = ? RETURNING name"
ORPHANS_AT_A_TIME = 1000
ORPHANS = """SELECT id, server FROM response WHERE ended IS NULL AND server IN (
        SELECT server FROM response WHERE ended IS NULL EXCEPT SELECT name FROM server)
    ORDER BY created LIMIT ?"""
RUN_BY = "SELECT id FROM response WHERE id = ? AND server = ? AND ended IS NULL"
TAKE_OVER = (
    "UPDATE response SET server = ? WHERE id = ? AND server = ? AND ended IS NULL RETURNING id"
)


def take_lease(server: str, host: str, pid: int, length: float) -> Queries[None]:
    yield TAKE_LEASE, (server, host, pid, length)


def renew_lease(server: str, length: float) -> Queries[bool]:
    return bool((yield RENEW_LEASE, (length, server)))


def release_lease(server: str) -> Queries[None]:
    yield RELEASE_LEASE, (server,)


def leases(but: str) -> Queries[list[Lease]]:
    """Those of the other servers."""
    return _each(Lease, (yield LEASES, (but,)))


def revoke_lease(lease: Lease) -> Queries[bool]:
    """Only if nobody has renewed it."""
    return bool((yield REVOKE_LEASE, (lease.server, lease.until)))


def orphans() -> Queries[list[tuple[str, str]]]:
    """The unfinished responses of servers that have no lease, and whose they are."""
    return [(str(id), str(server)) for id, server in (yield ORPHANS, (ORPHANS_AT_A_TIME,))]


BEGIN_RECOVERY = """UPDATE response SET recoveries = recoveries + 1
    WHERE id = ? AND server = ? AND ended IS NULL RETURNING recoveries"""
DROP_INCOMPLETE = """DELETE FROM block WHERE response = ? AND number >
    coalesce((SELECT max(number) FROM block WHERE response = ? AND count > 0), -1)"""


def begin_recovery(id: str, server: str) -> Queries[int | None]:
    found = yield BEGIN_RECOVERY, (id, server)
    if not found:
        return None
    yield DROP_INCOMPLETE, (id, id)
    return int(found[0][0] or 0)


def take_over(id: str, server: str, of: str) -> Queries[bool]:
    if not (yield RUN_BY, (id, of)):
        return False
    return bool((yield TAKE_OVER, (server, id, of)))


# Conversations

INSERT_CONVERSATION = """INSERT INTO conversation (id, owner, created, metadata)
    VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING id"""
CONVERSATION = "SELECT id, owner, created, metadata FROM conversation WHERE id = ? AND owner = ?"
CONVERSATION_LOCKED = "SELECT id FROM conversation WHERE id = ?"
SET_METADATA = "UPDATE conversation SET metadata = ? WHERE id = ? AND owner = ? RETURNING id"
DELETE_CONVERSATION = "DELETE FROM conversation WHERE id = ? AND owner = ? RETURNING id"


def create_conversation(conversation: Conversation, items: Sequence[Item]) -> Queries[None]:
    _short(conversation.id, *(item.id for item in items))
    _distinct(items)
    c = conversation
    if not (yield INSERT_CONVERSATION, (c.id, c.owner, c.created, c.metadata)):
        raise AlreadyExists("there is a conversation of this id already")
    yield from _append_items(c.id, items)


def conversation(owner: str, id: str) -> Queries[Conversation | None]:
    return _first(Conversation, (yield CONVERSATION, (id, owner)))


def set_metadata(owner: str, id: str, metadata: bytes) -> Queries[bool]:
    return bool((yield SET_METADATA, (metadata, id, owner)))


def delete_conversation(owner: str, id: str) -> Queries[bool]:
    return bool((yield DELETE_CONVERSATION, (id, owner)))


# Items

TOP = "SELECT coalesce(max(position), -1) FROM item WHERE conversation = ?"
INSERT_ITEM = """INSERT INTO item (conversation, position, id, data) VALUES (?, ?, ?, ?)
    ON CONFLICT (conversation, id) DO NOTHING RETURNING id"""
ITEM = "SELECT id, data FROM item WHERE conversation = ? AND id = ?"
POSITION = "SELECT position FROM item WHERE conversation = ? AND id = ?"
DELETE_ITEM = "DELETE FROM item WHERE conversation = ? AND id = ? RETURNING id"
FORWARDS = """SELECT id, data FROM item WHERE conversation = ? AND position > ? AND position < ?
    ORDER BY position LIMIT ?"""
BACKWARDS = """SELECT id, data FROM item WHERE conversation = ? AND position > ? AND position < ?
    ORDER BY position DESC LIMIT ?"""


def add_items(id: str, items: Sequence[Item]) -> Queries[None]:
    _short(*(item.id for item in items))
    _distinct(items)
    if not (yield CONVERSATION_LOCKED, (id,)):
        raise NotFound("there is no conversation of this id")
    for item in items:
        if (yield POSITION, (id, item.id)):
            raise AlreadyExists("the conversation has an item of this id already")
    yield from _append_items(id, items)


def _distinct(items: Sequence[Item]) -> None:
    if len({item.id for item in items}) < len(items):
        raise AlreadyExists("two items of one id")


def _append_items(conversation: str, items: Sequence[Item]) -> Queries[None]:
    """One whose id is taken gets its position behind it: some upstreams repeat theirs."""
    top = int((yield TOP, (conversation,))[0][0] or 0)
    for position, item in enumerate(items, top + 1):
        if not (yield INSERT_ITEM, (conversation, position, item.id, item.data)):
            yield INSERT_ITEM, (conversation, position, f"{item.id}_{position}", item.data)


def items(
    id: str, after: str | None, before: str | None, limit: int, descending: bool
) -> Queries[Page]:
    limit = _up_to(limit)
    behind = yield from _position(id, after)
    ahead = yield from _position(id, before)
    low, high = (ahead, behind) if descending else (behind, ahead)
    backwards = after is None and before is not None  # from `before` towards the beginning
    rows = yield (
        BACKWARDS if descending != backwards else FORWARDS,
        (id, -1 if low is None else low, BEYOND if high is None else high, limit + 1),
    )
    found = _each(Item, rows[:limit])
    return Page(found[::-1] if backwards else found, len(rows) > limit)


def _position(conversation: str, id: str | None) -> Queries[Value]:
    if id is None:
        return None
    found = yield POSITION, (conversation, id)
    if not found:
        raise NotFound("the conversation has no item of this id")
    return found[0][0]


def item(id: str, item_id: str) -> Queries[Item | None]:
    return _first(Item, (yield ITEM, (id, item_id)))


def delete_item(id: str, item_id: str) -> Queries[bool]:
    return bool((yield DELETE_ITEM, (id, item_id)))


LOCKS: Mapping[str, str] = {
    RUNNING: " FOR UPDATE",  # waits for whoever writes a block of it, and keeps others from it
    RUN_BY: " FOR UPDATE",  # the same: no block of the old server's comes after it was taken over
    CONVERSATION_LOCKED: " FOR UPDATE",  # one at a time hands out positions
}
"""What a database with many writers adds to a statement."""


# The log

SAME_BLOCK = """SELECT 1 FROM block WHERE response = ? AND number = ? AND first = ? AND count = ?
    AND data = ?"""


def dropped(blocks: Sequence[tuple[str, Block]]) -> Queries[set[str]]:
    """The responses of which not every one of these blocks is in the log."""
    missing = set()
    for id, block in blocks:
        if not (yield SAME_BLOCK, (id, block.number, block.first, block.count, block.data)):
            missing.add(id)
    return missing


def nothing() -> Queries[None]:
    """Waits its turn."""
    yield from ()
