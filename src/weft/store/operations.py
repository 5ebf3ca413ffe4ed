"""The operations on responses, reasoning and servers, with their SQL statements.

1. An operation that raises does so before it writes: its transaction goes on with the others.
2. No statement violates a constraint: it checks first, or has ON CONFLICT, so that a transaction
   with many operations does not fail because of one. LOCKS lists which rows are locked meanwhile.
3. Where callers compete, one UPDATE has the condition, and RETURNING says whether it was met.
"""

import time
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from weft.errors import ClientError
from weft.store.base import (
    BLOCKS_AT_A_TIME,
    CHAIN_LENGTH,
    REASONING_SIZE,
    UPSTREAM_AT_A_TIME,
    AlreadyExists,
    NotFound,
    StoreError,
    check_ids,
)
from weft.store.conversations import LOCK_CONVERSATION, append_items
from weft.store.queries import (
    CLOCK,
    MAX_NUMBER,
    Queries,
    Row,
    Value,
    clamp,
    value_of,
    values_of,
)
from weft.store.records import (
    Block,
    CallReasoning,
    Ending,
    Entry,
    Extent,
    Item,
    ListedResponse,
    NewJob,
    ResponseFilter,
    ResponsePage,
    RunAppend,
    RunWrite,
    Status,
    UpstreamBlock,
    with_ending,
)
from weft.store.runs import LOCK_RUN, append_run

# Responses

ENTRY = """SELECT r.id, r.owner, r.dialect, r.model, r.status, r.created, r.ended, r.previous,
    r.conversation, r.background, r.stream, r.visible, r.server, q.request, q.input, q.context,
    CASE WHEN a.response IS NULL THEN q.begun ELSE a.body END, a.record, r.digest, r.events,
    r.size, r.cancelling, r.answered, r.pruned, r.findings, r.cost, coalesce(a.in_pieces, FALSE)
    FROM response r JOIN asked q ON q.response = r.id LEFT JOIN answer a ON a.response = r.id"""
ENTRY_BY_ID = ENTRY + " WHERE r.id = ?"
OWNED_ENTRY = ENTRY + " WHERE r.id = ? AND r.owner = ?"
ENTRIES_BY_ID = ENTRY + " WHERE r.id > ? ORDER BY r.id LIMIT ?"
NEWEST_ENTRIES = ENTRY + " WHERE r.owner = ? ORDER BY r.created DESC, r.id DESC LIMIT ?"
VISIBLE_ASCENDING = (
    ENTRY
    + """ WHERE r.owner = ? AND r.dialect = ? AND r.visible AND r.ended IS NOT NULL
        AND (r.created, r.id) > (?, ?) ORDER BY r.created, r.id LIMIT ?"""
)
VISIBLE_DESCENDING = (
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
    answered, pruned, findings, cost)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING RETURNING id"""
INSERT_ASKED = """INSERT INTO asked (response, request, input, context, begun)
    VALUES (?, ?, ?, ?, ?)"""
INSERT_ANSWER = """INSERT INTO answer (response, body, record, in_pieces) VALUES (?, ?, ?, ?)
    ON CONFLICT (response) DO UPDATE
    SET body = excluded.body, record = excluded.record, in_pieces = excluded.in_pieces"""
INSERT_BLOCK = """INSERT INTO block (response, number, first, count, data) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING"""

# Due since ever: whether somebody may run it is said by its server.
INSERT_JOB = "INSERT INTO job (response, body, options, tries, due) VALUES (?, ?, ?, ?, 0)"
DELETE_JOB = "DELETE FROM job WHERE response = ?"
LOCK_JOB = "SELECT server, cancelling FROM response WHERE id = ? AND ended IS NULL"


def begin(entry: Entry, first: Sequence[Block] = (), job: NewJob | None = None) -> Queries[None]:
    check_ids(entry.id)
    e = entry
    made = yield (
        INSERT_RESPONSE,
        (
            *(e.id, e.owner, e.dialect, e.model, e.status, e.created, e.ended, e.previous),
            *(e.conversation, e.background, e.stream, e.visible, e.server, e.digest, e.events),
            *(e.size, e.cancelling, e.answered, e.pruned, e.findings, e.cost),
        ),
    )
    if not made:
        raise AlreadyExists("a response with this id exists already")
    # The answer has a row of its own only once it is whole: each row is a page or two to write.
    begun = e.body if e.record is None else None
    yield INSERT_ASKED, (e.id, e.request, e.input, e.context, begun)
    if e.record is not None:
        yield INSERT_ANSWER, (e.id, e.body, e.record, False)
    for block in first:
        yield INSERT_BLOCK, (e.id, block.number, block.first, block.count, block.data)
    if job is not None:
        yield INSERT_JOB, (e.id, job.body, job.options, job.tries)
        if job.beside is not None:
            yield from job.beside(0)


def add(entry: Entry, ending: Ending) -> Queries[None]:
    """The beginning and the end of a response, without what only one that runs needs."""
    check_ids(*(item.id for item in ending.items))
    if (torn := _difference(ending, 0, 0)) is not None:
        raise torn
    rest = () if ending.rest is None else (ending.rest,)
    yield from begin(with_ending(entry, ending), rest)
    yield from _add_to_conversation(entry.conversation, ending.items)


RUNNING_HERE = "SELECT conversation FROM response WHERE id = ? AND server = ? AND ended IS NULL"
RUNNING_LOG = """SELECT r.conversation, EXISTS (SELECT 1 FROM job j WHERE j.response = r.id),
    (SELECT coalesce(sum(b.count), 0) FROM block b WHERE b.response = r.id),
    (SELECT coalesce(sum(length(b.data)), 0) FROM block b WHERE b.response = r.id)
    FROM response r WHERE r.id = ? AND r.server = ? AND r.ended IS NULL"""
UNFINISHED = "SELECT 1 FROM response WHERE id = ? AND ended IS NULL"
EXTENT = """SELECT coalesce(max(number), -1) + 1, coalesce(sum(count), 0),
    coalesce(sum(length(data)), 0) FROM block WHERE response = ?"""
END_RESPONSE = """UPDATE response SET status = ?, ended = ?, digest = ?, events = ?, size = ?,
    findings = ?, cost = ? WHERE id = ?"""
# Of a running response only its server writes blocks, one transaction after the other: what is
# counted here cannot grow meanwhile.
END_WHOLE_RESPONSE = (
    END_RESPONSE
    + """ AND server = ? AND ended IS NULL
    AND (SELECT coalesce(sum(b.count), 0) FROM block b WHERE b.response = response.id) = ?
    AND (SELECT coalesce(sum(length(b.data)), 0) FROM block b WHERE b.response = response.id) = ?
    RETURNING conversation, EXISTS (SELECT 1 FROM job j WHERE j.response = id)"""
)


PIECED_FIELDS = ("body", "record")
"""The fields that may be stored in pieces."""

Pieces: TypeAlias = Mapping[str, int] | None
"""The number of pieces of each field that was stored in advance, if they were."""

PIECE = """INSERT INTO piece (response, field, number, data) VALUES (?, ?, ?, ?)
    ON CONFLICT (response, field, number) DO UPDATE SET data = excluded.data"""
PIECES = "SELECT data FROM piece WHERE response = ? AND field = ? ORDER BY number"
DROP_PIECES = "DELETE FROM piece WHERE response = ? AND field = ? AND number >= ?"


def store_piece(id: str, server: str, field: str, number: int, data: bytes) -> Queries[None]:
    """Stores a piece of a response that has not ended; it is invisible until then."""
    if (yield RUNNING_HERE, (id, server)):
        yield PIECE, (id, field, number, data)


def finish(id: str, ending: Ending, server: str, pieces: Pieces) -> Queries[bool]:
    check_ids(*(item.id for item in ending.items))
    rest = ending.rest
    count, length = (0, 0) if rest is None else (rest.count, len(rest.data))
    before = (server, ending.events - count, ending.size - length)
    if ended := (yield END_WHOLE_RESPONSE, (*_end_parameters(id, ending), *before)):
        yield from _end_of(id, ending, ended[0], pieces)
        return True
    # Nearly never: what follows tells why, and ends it if another transaction was in the way.
    running = yield from _check_ending(id, ending, server)
    if running:
        yield from _end(id, ending, running[0], pieces)
    return bool(running)


def finish_and_append(
    append: RunAppend, id: str, ending: Ending, server: str, pieces: Pieces
) -> Queries[RunWrite | None]:
    """Both conditions are checked, and their rows locked, before anything of either is written."""
    running = yield from _check_ending(id, ending, server)
    if not running:
        return None
    written = yield from append_run(append, server)
    if written.outcome == "written":
        yield from _end(id, ending, running[0], pieces)
    return written


def _check_ending(id: str, ending: Ending, server: str) -> Queries[Sequence[Row]]:
    """Returns a row of RUNNING_LOG, or none if this server cannot end the response. Raises
    StoreError (`torn`)."""
    check_ids(*(item.id for item in ending.items))
    running = yield RUNNING_LOG, (id, server)
    if not running:
        return running
    events, size = (int(number or 0) for number in running[0][2:])
    if _difference(ending, events, size) is not None:
        # A database with concurrent writers may have counted before it got the lock.
        logged = yield from extent(id)
        if (torn := _difference(ending, logged.events, logged.size)) is not None:
            raise torn
    return running


def _difference(ending: Ending, events: int, size: int) -> StoreError | None:
    """The error if an ending does not describe the log, which has so many events and bytes without
    the rest."""
    if (rest := ending.rest) is not None:
        events, size = events + rest.count, size + len(rest.data)
    if events == ending.events and size == ending.size:
        return None
    return StoreError(
        f"the log holds {events} events and {size} bytes, "
        f"but the ending has {ending.events} and {ending.size}",
        "torn",
    )


def _end(id: str, ending: Ending, running: Row, pieces: Pieces) -> Queries[None]:
    """`running` is a row of RUNNING_LOG."""
    yield END_RESPONSE, _end_parameters(id, ending)
    yield from _end_of(id, ending, running, pieces)


def _end_parameters(id: str, end: Ending) -> tuple[Value, ...]:
    return (end.status, end.ended, end.digest, end.events, end.size, end.findings, end.cost, id)


def _end_of(id: str, ending: Ending, row: Row, pieces: Pieces) -> Queries[None]:
    """Writes what an ending has in other tables. The row begins with the conversation of the
    response, and whether it has a job."""
    conversation, has_job, *_ = row
    if (rest := ending.rest) is not None:
        yield INSERT_BLOCK, (id, rest.number, rest.first, rest.count, rest.data)
    yield INSERT_ANSWER, (id, ending.body, ending.record, pieces is not None)
    if has_job:
        yield DELETE_JOB, (id,)
    for field, count in (pieces or {}).items():  # an earlier attempt may have left more
        yield DROP_PIECES, (id, field, count)
    yield from _add_to_conversation(conversation, ending.items)


def _add_to_conversation(id: Value, items: Sequence[Item]) -> Queries[None]:
    """Appends the items of a turn, unless the conversation was deleted."""
    if isinstance(id, str) and items and (yield LOCK_CONVERSATION, (id,)):
        yield from append_items(id, items)


def is_running(id: str) -> Queries[bool]:
    return bool((yield UNFINISHED, (id,)))


def entry(id: str) -> Queries[Entry | None]:
    found = yield from _entries((yield ENTRY_BY_ID, (id,)))
    return found[0] if found else None


def owned(owner: str, id: str) -> Queries[Entry | None]:
    found = yield from _entries((yield OWNED_ENTRY, (id, owner)))
    return found[0] if found else None


def entries(after: str, limit: int) -> Queries[list[Entry]]:
    return (yield from _entries((yield ENTRIES_BY_ID, (after, clamp(limit)))))


def newest(owner: str, limit: int) -> Queries[list[Entry]]:
    return (yield from _entries((yield NEWEST_ENTRIES, (owner, clamp(limit)))))


def list_visible(
    owner: str, dialect: str, after: Entry | None, limit: int, descending: bool
) -> Queries[list[Entry]]:
    edge = (float(MAX_NUMBER), "") if descending else (-1.0, "")
    created, id = edge if after is None else (after.created, after.id)
    query = VISIBLE_DESCENDING if descending else VISIBLE_ASCENDING
    return (yield from _entries((yield query, (owner, dialect, created, id, clamp(limit)))))


LISTED = """SELECT id, dialect, model, status, created, ended, previous, conversation, background,
    stream, findings, cost FROM response WHERE owner = ? AND visible AND (created, id) < (?, ?)"""
LISTED_AFTER = "SELECT created FROM response WHERE id = ? AND owner = ? AND visible"
NEWEST_FIRST = " ORDER BY created DESC, id DESC LIMIT ?"


def responses(
    owner: str, matching: ResponseFilter, after: str | None, limit: int
) -> Queries[ResponsePage]:
    limit, created, last = clamp(limit), float(MAX_NUMBER), ""
    if after is not None:
        found = yield LISTED_AFTER, (after, owner)
        if not found:
            raise NotFound("no response has this id")
        created, last = float(found[0][0] or 0), after
    query = LISTED
    parameters: list[Value] = [owner, created, last]
    if matching.conversation is not None:
        query += " AND conversation = ?"
        parameters.append(matching.conversation)
    if matching.statuses:
        query += AMONG
        parameters += [*matching.statuses, *[""] * STATUSES][:STATUSES]
    if matching.model is not None:
        query += " AND model = ?"
        parameters.append(matching.model)
    if matching.with_findings:
        query += " AND findings > 0"
    rows = yield query + NEWEST_FIRST, (*parameters, limit + 1)
    return ResponsePage(values_of(ListedResponse, rows[:limit]), len(rows) > limit)


def chain(owner: str, id: str) -> Queries[list[Entry]]:
    return (yield from _entries((yield CHAIN, (id, owner, owner, CHAIN_LENGTH))))


def _entries(rows: Sequence[Row]) -> Queries[list[Entry]]:
    """The entries of rows selected by ENTRY, with pieces joined."""
    found: list[Entry] = []
    for *fields, in_pieces in rows:
        entry = value_of(Entry, fields)
        if in_pieces and entry.ended is not None:
            joined = {}
            for field in PIECED_FIELDS:
                pieces = yield PIECES, (entry.id, field)
                data = b"".join(piece for (piece,) in pieces if isinstance(piece, bytes))
                joined[field] = data if pieces else None
            entry = msgspec.structs.replace(entry, **joined)
        found.append(entry)
    return found


# The second condition searches from the end of the log: a follower of a long log asks for its end
# again and again.
BLOCKS = """SELECT number, first, count, data FROM block WHERE response = ? AND number > ?
    AND number > coalesce((SELECT number FROM block WHERE response = ? AND number > ?
        AND count > 0 AND first + count <= ? ORDER BY number DESC LIMIT 1), -1)
    ORDER BY number LIMIT ?"""


def blocks(id: str, after_event: int, after_block: int) -> Queries[list[Block]]:
    first = max(min(after_event, MAX_NUMBER), -1) + 1
    found = yield BLOCKS, (id, after_block, id, after_block, first, BLOCKS_AT_A_TIME)
    return values_of(Block, found)


def extent(id: str) -> Queries[Extent]:
    numbers = (yield EXTENT, (id,))[0]
    return Extent(*(int(number or 0) for number in numbers))


DELETE = "DELETE FROM response WHERE id = ? AND owner = ? RETURNING id"
CHANGE_STATUS = """UPDATE response SET status = ? WHERE id = ? AND (ended IS NOT NULL OR server = ?)
    AND status IN (?, ?, ?, ?, ?, ?) RETURNING id"""
STATUSES = 6
AMONG = " AND status IN (?, ?, ?, ?, ?, ?)"
SET_ANSWERED = "UPDATE response SET answered = ? WHERE id = ? AND answered IS NULL RETURNING id"
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
    return bool((yield CHANGE_STATUS, (status, id, server, *among)))


def set_answered(id: str, next_id: str) -> Queries[bool]:
    return bool((yield SET_ANSWERED, (next_id, id)))


def set_context(owner: str, id: str, context: bytes) -> Queries[bool]:
    return bool((yield SET_CONTEXT, (context, id, id, owner)))


def request_cancel(id: str) -> Queries[bool]:
    return bool((yield REQUEST_CANCEL, (id,)))


def cancel_requests() -> Queries[set[str]]:
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


# What upstreams sent

IDS_AT_A_TIME = 64
EXISTING = "SELECT id FROM response WHERE id IN (?" + ", ?" * (IDS_AT_A_TIME - 1) + ") ORDER BY id"
SAVE_UPSTREAM = """INSERT INTO upstream (response, number, created, data) VALUES (?, ?, ?, ?)
    ON CONFLICT DO NOTHING"""
UPSTREAM = """SELECT number, data FROM upstream WHERE response = ? AND number > ?
    ORDER BY number LIMIT ?"""
PRUNE_UPSTREAM = """DELETE FROM upstream WHERE (response, number) IN
    (SELECT response, number FROM upstream WHERE created < ? ORDER BY created LIMIT ?)
    RETURNING number"""


def save_upstream(blocks: Sequence[tuple[str, UpstreamBlock]]) -> Queries[None]:
    now = time.time()
    # In the order of their ids: two transactions that lock the same rows cannot deadlock.
    ids = sorted({id for id, _ in blocks})
    existing: set[Value] = set()
    for start in range(0, len(ids), IDS_AT_A_TIME):
        some = ids[start : start + IDS_AT_A_TIME]
        padded = (*some, *[some[0]] * (IDS_AT_A_TIME - len(some)))
        existing |= {row[0] for row in (yield EXISTING, padded)}
    for id, block in blocks:
        if id in existing:
            yield SAVE_UPSTREAM, (id, block.number, now, block.data)


def upstream(id: str, after: int) -> Queries[list[UpstreamBlock]]:
    return values_of(UpstreamBlock, (yield UPSTREAM, (id, after, UPSTREAM_AT_A_TIME)))


def prune_upstream(before: float) -> Queries[int]:
    """Removes some of it, and says how much."""
    return len((yield PRUNE_UPSTREAM, (before, PRUNED_AT_A_TIME)))


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
    check_ids(*(one.call for one in calls), *(one.response for one in calls))
    if any(len(one.data) > REASONING_SIZE for one in calls):
        raise ClientError(f"reasoning of more than {REASONING_SIZE} bytes")
    # Always in the same order: two transactions that replace the same rows cannot deadlock.
    for one in sorted(calls, key=lambda one: one.call):
        yield (
            SAVE_REASONING,
            (owner, one.call, one.response, one.origin, one.created, one.data),
        )


def load_reasoning(owner: str, calls: Sequence[str], since: float) -> Queries[list[CallReasoning]]:
    found: list[CallReasoning] = []
    for start in range(0, len(calls), CALLS_AT_A_TIME):
        some = calls[start : start + CALLS_AT_A_TIME]
        padded = [*some, *[some[0]] * (CALLS_AT_A_TIME - len(some))]
        found += values_of(CallReasoning, (yield REASONING, (owner, since, *padded)))
    return found


# Servers


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The lease of a server."""

    server: str
    until: float
    """When it expires, by the clock of the database, in seconds since 1970."""

    expired: bool
    """Whether it had expired when it was read."""


TAKE_LEASE = "INSERT INTO server (name, host, pid, until) VALUES (?, ?, ?, " + CLOCK + " + ?)"
RENEW_LEASE = "UPDATE server SET until = " + CLOCK + " + ? WHERE name = ? RETURNING name"
RELEASE_LEASE = "DELETE FROM server WHERE name = ?"
LEASES = "SELECT name, until, until < " + CLOCK + " FROM server WHERE name <> ?"
REVOKE_LEASE = "DELETE FROM server WHERE name = ? AND until = ? RETURNING name"
ORPHANS_AT_A_TIME = 1000
ORPHANS = """SELECT id, server FROM response WHERE ended IS NULL AND server IN (
        SELECT server FROM response WHERE ended IS NULL EXCEPT SELECT name FROM server)
    AND id NOT IN (SELECT response FROM job) ORDER BY created LIMIT ?"""
RUNNING_ON = "SELECT id FROM response WHERE id = ? AND server = ? AND ended IS NULL"
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
    """The leases of the other servers."""
    return values_of(Lease, (yield LEASES, (but,)))


def revoke_lease(lease: Lease) -> Queries[bool]:
    """Revokes it unless it was renewed."""
    return bool((yield REVOKE_LEASE, (lease.server, lease.until)))


def orphans() -> Queries[list[tuple[str, str]]]:
    """The unfinished responses of servers without a lease, each with its server; but for those that
    another server may run."""
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
    if not (yield RUNNING_ON, (id, of)):
        return False
    return bool((yield TAKE_OVER, (server, id, of)))


LOCKS: Mapping[str, str] = {
    RUNNING_LOG: " FOR UPDATE",  # waits for writers of its blocks, and keeps others out
    RUNNING_HERE: " FOR UPDATE",  # the same
    RUNNING_ON: " FOR UPDATE",  # the same: no block of the old server follows the takeover
    LOCK_CONVERSATION: " FOR UPDATE",  # one transaction at a time assigns positions
    EXISTING: " FOR KEY SHARE",  # it is not deleted before the row that refers to it is written
    LOCK_JOB: " FOR UPDATE",  # the same as RUNNING_ON
    LOCK_RUN: " FOR UPDATE",  # one transaction at a time assigns sequence numbers
}
"""What a database with concurrent writers appends to a statement."""


# The log

SAME_BLOCK = """SELECT 1 FROM block WHERE response = ? AND number = ? AND first = ? AND count = ?
    AND data = ?"""


def dropped(blocks: Sequence[tuple[str, Block]]) -> Queries[set[str]]:
    """The responses of which some of these blocks are not in the log."""
    missing = set()
    for id, block in blocks:
        if not (yield SAME_BLOCK, (id, block.number, block.first, block.count, block.data)):
            missing.add(id)
    return missing


def nothing() -> Queries[None]:
    """An operation that writes nothing: it returns when everything before it is committed."""
    yield from ()
