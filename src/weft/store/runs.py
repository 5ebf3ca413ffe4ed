"""The operations on runs and their events; `operations.py` has the rules.

1. Events have consecutive numbers. A writer says which one it has read last; if another was
   appended since, nothing is written. So every event was written by somebody who knew all before.
2. A run has at most one lease. Each claim has a new epoch, and a write under an earlier epoch, or
   after the release, is refused. An expired lease that nobody else has claimed still counts.
3. A lease ends by its release, and that only at the last event: an event that its holder has not
   read is never left alone. Somebody must look at a run whose lease has expired, due or not.
4. Only the clock of the database counts.
"""

import re
from collections.abc import Collection, Sequence

import msgspec

from weft.errors import ClientError
from weft.store.base import EVENT_SIZE, AlreadyExists, Effects, NotFound, check_ids
from weft.store.queries import (
    CLOCK,
    MAX_NUMBER,
    Beside,
    Queries,
    StatementFailed,
    Value,
    Verbatim,
    clamp,
    first_value,
    values_of,
)
from weft.store.records import (
    NewEvent,
    NewRun,
    RunAppend,
    RunClaim,
    RunEvent,
    RunPage,
    RunRow,
    RunWrite,
)

WAKE = "CASE WHEN until > 0 THEN until ELSE due END"
"""When somebody must look at a run. An index has the same expression, and is used for no other."""


def _sql(text: str) -> str:
    """The statement, with the expressions that NOW and WAKE stand for."""
    return text.replace("WAKE", WAKE).replace("NOW", CLOCK)


# Creating

INSERT_RUN = _sql("""INSERT INTO run (id, owner, agent, status, created, updated, seq, epoch,
    holder, until, due, parent, key) VALUES (?, ?, ?, ?, NOW, NOW, ?, 0, '', 0, NOW + ?, ?, ?)
    ON CONFLICT DO NOTHING RETURNING created""")
RUN_OF_KEY = "SELECT id FROM run WHERE owner = ? AND key = ?"
INSERT_EVENT = "INSERT INTO run_event (run, seq, kind, at, epoch, body) VALUES (?, ?, ?, ?, ?, ?)"


def create_run(new: NewRun) -> Queries[str]:
    check_ids(new.id, new.parent or "", new.key or "")
    check_events(new.events)
    row = (new.id, new.owner, new.agent, new.status, len(new.events), new.due, new.parent, new.key)
    made = yield INSERT_RUN, row
    if not made:
        # Either the id or the key was taken. PostgreSQL has waited for the other transaction, so
        # its run is visible now.
        first = (yield RUN_OF_KEY, (new.owner, new.key)) if new.key is not None else ()
        if not first:
            raise AlreadyExists("a run with this id exists already")
        return str(first[0][0])
    yield from _insert_events(new.id, 0, new.events, made[0][0], 0)
    if new.beside is not None:
        yield from new.beside(len(new.events))
    return new.id


def _insert_events(
    run: str, after: int, events: Sequence[NewEvent], at: Value, epoch: int
) -> Queries[None]:
    for seq, (kind, body) in enumerate(events, after + 1):
        yield INSERT_EVENT, (run, seq, kind, at, epoch, body)


def check_events(events: Sequence[NewEvent]) -> None:
    """Raises ClientError if a body is too large for one statement."""
    for kind, body in events:
        if len(body) > EVENT_SIZE:
            raise ClientError(
                f"the body of {kind[:100]!r} has {len(body)} bytes, an event at most {EVENT_SIZE}"
            )


# Appending

LOCK_RUN = "SELECT seq, epoch, holder, until FROM run WHERE id = ?"
ADVANCE_RUN = _sql("""UPDATE run SET seq = ?, status = ?, updated = NOW, due = NOW + ?,
    ended = CASE WHEN ? THEN NOW END WHERE id = ? RETURNING updated""")


def append_run(append: RunAppend, server: str) -> Queries[RunWrite]:
    """Checks everything before it writes: other operations may run it between their own checks and
    writes. Raises AlreadyExists if the key of the child is taken."""
    check_events(append.events)
    refused = yield from _refusal(append, server)
    if refused is not None:
        return refused
    child = append.child
    # First: if it cannot be created, nothing is written.
    if child is not None and (yield from create_run(child)) != child.id:
        raise AlreadyExists("a run with the key of the child exists already")
    return (yield from _write(append, append.events))


def _refusal(append: RunAppend, server: str) -> Queries[RunWrite | None]:
    """Locks the run, and returns why this writer cannot append now, if it cannot."""
    if append.parent is not None:
        yield LOCK_RUN, (append.parent,)
    found = yield LOCK_RUN, (append.run,)
    if not found:
        return RunWrite("missing")
    seq, epoch, holder, until = found[0]
    last = int(seq or 0)
    # Released is not the same as held by nobody's name: a server without a lease has the id "".
    mine = until != 0 and (epoch, holder) == (append.epoch, server)
    if append.epoch is not None and not mine:
        return RunWrite("fenced", last)
    return None if last == append.at else RunWrite("moved", last)


def _write(append: RunAppend, events: Sequence[NewEvent]) -> Queries[RunWrite]:
    last = append.at + len(events)
    changed = yield ADVANCE_RUN, (last, append.status, append.due, append.ended, append.run)
    at = changed[0][0]
    yield from _insert_events(append.run, append.at, events, at, append.epoch or 0)
    if append.beside is not None:
        yield from append.beside(last)
    return RunWrite("written", last, float(at or 0))


# Appending to the run of somebody else, beside an append to one's own

TELL_RUN = _sql("""UPDATE run SET seq = seq + 1, status = ?, updated = NOW, due = NOW + ?,
    ended = CASE WHEN ? THEN NOW END WHERE id = ? AND ended IS NULL RETURNING seq, updated""")
OPEN_CHILDREN = "SELECT id FROM run WHERE parent = ? AND ended IS NULL ORDER BY id"


def tell_run(run: str, event: NewEvent, status: str, *, ended: bool = False) -> Queries[int]:
    """Appends an event that can follow whatever the run has come to, unless it has ended. Somebody
    must look at it then. Returns the number of the event; 0: it was not appended."""
    due = None if ended else 0.0
    changed = yield TELL_RUN, (status, due, ended, run)
    if not changed:
        return 0
    seq, at = changed[0]
    yield from _insert_events(run, int(seq or 0) - 1, [event], at, 0)
    return int(seq or 0)


def open_children(run: str) -> Queries[list[str]]:
    """The runs that this one has started and that have not ended."""
    return [str(row[0]) for row in (yield OPEN_CHILDREN, (run,))]


# Effects and their receipt in one transaction

SAVEPOINT = "SAVEPOINT effects"
ROLLBACK = "ROLLBACK TO SAVEPOINT effects"
RELEASE = "RELEASE SAVEPOINT effects"
ALLOWED = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b", re.IGNORECASE)
"""How a statement of a caller begins: one like COMMIT would end the transaction of everybody."""


class Undone(msgspec.Struct, frozen=True):
    """The effects failed and were undone; the other operations of the transaction were not."""

    error: Exception


def transact(append: RunAppend, make: Effects, server: str) -> Queries[RunWrite | Undone]:
    """The fence comes first: the run stays locked, so that the append cannot be refused after the
    effects. Whatever the caller's code raises is returned, not raised: it must not reach the
    writer, which would take it for an error of its own."""
    check_events(append.events)
    refused = yield from _refusal(append, server)
    if refused is not None:
        return refused
    yield SAVEPOINT, ()
    try:
        events = [*append.events, *(yield from _effects(make()))]
        check_events(events)
        written = yield from _write(append, events)
    except Exception as error:
        # If the connection or the whole transaction is gone, this fails too, and all is retried.
        yield ROLLBACK, ()
        yield RELEASE, ()
        return Undone(error.error if isinstance(error, StatementFailed) else error)
    yield RELEASE, ()
    return written


def _effects(queries: Queries[Sequence[NewEvent]]) -> Queries[Sequence[NewEvent]]:
    """The queries of a caller. They do not see a failed statement: PostgreSQL accepts no other one
    until the savepoint is rolled back."""
    try:
        statement, parameters = next(queries)
        while True:
            if not ALLOWED.match(statement):
                raise ClientError(f"{statement[:20]!r}: a tool may only read and change rows")
            expected = statement.count("?")
            if expected != len(parameters):  # each database would report this in its own way
                raise ClientError(f"{len(parameters)} parameters, the statement has {expected}")
            statement, parameters = queries.send((yield Verbatim(statement), parameters))
    except StopIteration as end:
        result: Sequence[NewEvent] = end.value
        return result
    finally:
        queries.close()


# Leases

CLAIM = _sql("""UPDATE run SET epoch = epoch + 1, holder = ?, until = NOW + ?
    WHERE id = ? AND until <= NOW RETURNING epoch, seq""")
LEASE_LEFT = _sql("SELECT until - NOW FROM run WHERE id = ?")
RENEW = _sql("""UPDATE run SET until = NOW + ?
    WHERE id = ? AND epoch = ? AND holder = ? AND until > 0 RETURNING id""")
RELEASE_RUN = _sql("""UPDATE run SET holder = '', until = 0, status = ?, updated = NOW,
    due = NOW + ? WHERE id = ? AND epoch = ? AND holder = ? AND until > 0 AND seq = ?
    RETURNING id""")


def claim_run(id: str, server: str, lease: float) -> Queries[RunClaim]:
    # If somebody else claims it now, nothing is claimed below.
    waited = yield from overdue(id)
    claimed = yield CLAIM, (server, lease, id)
    if claimed:
        epoch, seq = claimed[0]
        return RunClaim("claimed", int(epoch or 0), int(seq or 0), overdue=waited)
    left = yield LEASE_LEFT, (id,)
    if not left:
        return RunClaim("missing")
    return RunClaim("held", wait=max(0.0, float(left[0][0] or 0)))  # it may have expired just now


def renew_run(id: str, epoch: int, server: str, lease: float) -> Queries[bool]:
    return bool((yield RENEW, (lease, id, epoch, server)))


def release_run(
    id: str,
    epoch: int,
    server: str,
    at: int,
    status: str,
    due: float | None,
    beside: Beside | None,
) -> Queries[bool]:
    released = bool((yield RELEASE_RUN, (status, due, id, epoch, server, at)))
    if released and beside is not None:
        yield from beside(at)
    return released


# PostgreSQL evaluates a subquery once; a volatile function by itself is no condition of an index.
DUE_RUNS = _sql("SELECT id FROM run WHERE WAKE <= (SELECT NOW){} ORDER BY WAKE LIMIT ?")
OF_AGENTS = _sql(" AND (agent IN ({}) OR ended IS NOT NULL OR WAKE <= (SELECT NOW - ?))")
OVERDUE = _sql("SELECT NOW - WAKE FROM run WHERE id = ?")
# And SQLite searches an index on an expression for a range, but not for IS NOT NULL.
NEXT_DUE = _sql("SELECT WAKE - NOW FROM run WHERE WAKE > 0 ORDER BY WAKE LIMIT 1")


def due_runs(limit: int, agents: Collection[str] | None, patience: float) -> Queries[list[str]]:
    if agents is None:
        found = yield DUE_RUNS.format(""), (clamp(limit),)
    else:
        some = OF_AGENTS.format(", ".join("?" * len(agents)) or "NULL")
        found = yield DUE_RUNS.format(some), (*agents, patience, clamp(limit))
    return [str(row[0]) for row in found]


def overdue(id: str) -> Queries[float]:
    found = yield OVERDUE, (id,)
    return max(0.0, float(found[0][0] or 0)) if found else 0.0


def next_due() -> Queries[float | None]:
    found = yield NEXT_DUE, ()
    return max(0.0, float(found[0][0] or 0)) if found else None


# Reading

RUN = """SELECT id, owner, agent, status, created, updated, ended, seq, epoch, holder, until, due,
    parent, key FROM run"""
RUN_COUNTS = "SELECT status, count(*) FROM run GROUP BY status"
RUN_BY_ID = RUN + " WHERE id = ?"
OWNED_RUN = RUN + " WHERE id = ? AND owner = ?"
# A filter that is NULL lets everything through.
RUNS = RUN + " WHERE owner = ? AND status = coalesce(?, status) AND agent = coalesce(?, agent)"
CHILDREN = RUNS + " AND parent = ?"
ASCENDING = " AND (created, id) > (?, ?) ORDER BY created, id LIMIT ?"
DESCENDING = " AND (created, id) < (?, ?) ORDER BY created DESC, id DESC LIMIT ?"
EVENTS = "SELECT run, seq, kind, at, epoch, body FROM run_event WHERE run = ? AND seq > ?"
ALL_EVENTS = EVENTS + " ORDER BY seq LIMIT ?"
MAX_KINDS = 32
EVENTS_OF_KINDS = EVENTS + " AND kind IN (?" + ", ?" * (MAX_KINDS - 1) + ") ORDER BY seq LIMIT ?"

IDS_AT_A_TIME = 100
LAST_EVENTS = "SELECT id, seq FROM run WHERE id IN (?" + ", ?" * (IDS_AT_A_TIME - 1) + ")"


def count_runs() -> Queries[dict[str, int]]:
    return {str(status): int(count or 0) for status, count in (yield RUN_COUNTS, ())}


def run(id: str) -> Queries[RunRow | None]:
    return first_value(RunRow, (yield RUN_BY_ID, (id,)))


def owned_run(owner: str, id: str) -> Queries[RunRow | None]:
    return first_value(RunRow, (yield OWNED_RUN, (id, owner)))


def last_events(ids: Sequence[str]) -> Queries[dict[str, int]]:
    found: dict[str, int] = {}
    for start in range(0, len(ids), IDS_AT_A_TIME):
        some = ids[start : start + IDS_AT_A_TIME]
        padded = [*some, *[some[0]] * (IDS_AT_A_TIME - len(some))]
        found |= {str(id): int(seq or 0) for id, seq in (yield LAST_EVENTS, tuple(padded))}
    return found


def run_of_key(owner: str, key: str) -> Queries[str | None]:
    found = yield RUN_OF_KEY, (owner, key)
    return str(found[0][0]) if found else None


def runs(
    owner: str,
    status: str | None,
    agent: str | None,
    after: str | None,
    limit: int,
    descending: bool,
    parent: str | None,
) -> Queries[RunPage]:
    limit = clamp(limit)
    created, id = (float(MAX_NUMBER), "") if descending else (-1.0, "")
    if after is not None:
        cursor = yield from owned_run(owner, after)
        if cursor is None:
            raise NotFound("no run has this id")
        created, id = cursor.created, cursor.id
    # Two statements: each uses an index of its own.
    filters = (owner, status, agent) if parent is None else (owner, status, agent, parent)
    query = (RUNS if parent is None else CHILDREN) + (DESCENDING if descending else ASCENDING)
    rows = yield query, (*filters, created, id, limit + 1)
    return RunPage(values_of(RunRow, rows[:limit]), len(rows) > limit)


def run_events(
    id: str, after: int, limit: int, kinds: Sequence[str] | None
) -> Queries[list[RunEvent]]:
    after = max(min(after, MAX_NUMBER), 0)
    if kinds is None:
        return values_of(RunEvent, (yield ALL_EVENTS, (id, after, clamp(limit))))
    if not kinds:
        return []
    if len(kinds) > MAX_KINDS:
        raise ClientError(f"{len(kinds)} kinds of events, at most {MAX_KINDS}")
    padded = [*kinds, *[kinds[0]] * (MAX_KINDS - len(kinds))]
    return values_of(RunEvent, (yield EVENTS_OF_KINDS, (id, after, *padded, clamp(limit))))


# Removing

DELETE_RUN = "DELETE FROM run WHERE id = ? AND owner = ? AND ended IS NOT NULL RETURNING id"
PRUNED_AT_A_TIME = 200
PRUNE_RUNS = """DELETE FROM run WHERE id IN
    (SELECT id FROM run WHERE ended < ? ORDER BY ended LIMIT ?) RETURNING id"""


def delete_run(owner: str, id: str) -> Queries[bool]:
    return bool((yield DELETE_RUN, (id, owner)))


def prune_runs(before: float) -> Queries[int]:
    """Removes some of them, and says how many."""
    return len((yield PRUNE_RUNS, (before, PRUNED_AT_A_TIME)))
