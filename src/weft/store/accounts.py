"""The accounts of client keys: the keys themselves, what they have used, and what they may still
use.

1. The ledger is the sum of what was used, by key, day, model, upstream and source. A batch of a
   journal is added once, however often it is sent: its position in the journal must be the next.
2. A rate counts in windows of one minute, by the clock of the database. A server takes a part of a
   window and uses it up by itself; what it neither uses nor gives back is lost with the window.
3. A reservation is what a server holds of a limit that is no rate: open streams, and money that
   running requests may cost. It counts as long as the server has a lease. The money that is left is
   the budget without what the ledger says was spent, and without all reservations.

`operations.py` has the rules for statements. Money is in billionths of a US dollar.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal, Protocol, TypeAlias, TypeVar

import msgspec

from weft.errors import ClientError
from weft.store.base import AlreadyExists, NotFound, check_ids
from weft.store.queries import CLOCK, Queries, Row, Value, values_of

T = TypeVar("T")

Source: TypeAlias = Literal["reported", "estimated", "none"]
"""Where the token counts come from: the upstream; Weft, because the upstream reported none or was
cut off; or nowhere, because there was no response."""

MINUTE = 60
STREAMS = "streams"
BUDGET = "budget"
LEDGER = "~ledger"
"""Where the rows of this module stand among those that transactions lock: after all ids."""


class SubmitOperation(Protocol):
    """See `Writer.submit`."""

    async def __call__(
        self,
        make: Callable[[], Queries[T]],
        size: int = 0,
        durable: bool = False,
        after: str = "",
        last: bool = False,
        row: str = "",
    ) -> T: ...


class ReadQueries(Protocol):
    """See `Database.read`."""

    async def __call__(self, make: Callable[[], Queries[T]]) -> T: ...


class StoredKey(msgspec.Struct, frozen=True):
    """A client key. The key itself is not stored."""

    name: str
    digest: str
    """SHA-256, in hexadecimal digits."""

    hint: str
    """The last characters of the key, by which its owner can tell it from others."""

    created: float
    revoked: float | None
    rules: bytes
    """What the key may do, as JSON."""


class UsageRow(msgspec.Struct, frozen=True):
    """What was used by one key of one model, on one day."""

    owner: str
    day: str
    """`YYYY-MM-DD`, in UTC."""

    model: str
    upstream: str
    source: Source
    requests: int = 0
    """Attempts at the upstream."""

    failed: int = 0
    """Those of them without a whole response."""

    input: int = 0
    output: int = 0
    cached: int = 0
    """Input tokens that were read from a cache."""

    reasoning: int = 0
    cost: int = 0
    """In billionths of a US dollar."""

    unpriced: int = 0
    """Requests whose cost is not known."""


class KeyBudget(msgspec.Struct, frozen=True):
    """Limits of money, in billionths of a US dollar."""

    day: int | None = None
    month: int | None = None
    total: int | None = None


class Window(msgspec.Struct, frozen=True):
    """What is left of a rate in the current minute."""

    granted: int
    left: int
    """What nobody has taken."""

    number: int
    """Which minute it is, since 1970."""

    seconds: float
    """Until it is over."""


class Reserved(msgspec.Struct, frozen=True):
    """The answer to a reservation."""

    granted: int
    left: int
    limit: Literal["day", "month", "total", "streams"]
    """The limit that leaves the least."""

    seconds: float | None = None
    """Until the day or the month is over."""

    unspent: int = 0
    """What would be left of money without the reservations."""


# Keys

KEYS = "SELECT name, digest, hint, created, revoked, rules FROM client_key ORDER BY created, name"
KEY = "SELECT revoked FROM client_key WHERE name = ?"
REVISION = "SELECT coalesce(max(revision), 0) FROM client_key"
INSERT_KEY = """INSERT INTO client_key (name, digest, hint, created, revoked, rules, revision)
    VALUES (?, ?, ?, ?, NULL, ?, (SELECT coalesce(max(revision), 0) + 1 FROM client_key))
    ON CONFLICT DO NOTHING RETURNING name"""
REVOKE_KEY = """UPDATE client_key SET revoked = ?,
    revision = (SELECT max(revision) + 1 FROM client_key)
    WHERE name = ? AND revoked IS NULL RETURNING name"""
ROTATE_KEY = """UPDATE client_key SET digest = ?, hint = ?,
    revision = (SELECT max(revision) + 1 FROM client_key)
    WHERE name = ? AND revoked IS NULL RETURNING name"""


def keys() -> Queries[list[StoredKey]]:
    return values_of(StoredKey, (yield KEYS, ()))


def revision() -> Queries[int]:
    return int((yield REVISION, ())[0][0] or 0)


def create_key(key: StoredKey) -> Queries[None]:
    check_ids(key.name)
    values = (key.name, key.digest, key.hint, key.created, key.rules)
    if not (yield INSERT_KEY, values):
        # Also a revoked one: the responses of its client are stored under its name.
        raise AlreadyExists(f"there is or was a key with the name {key.name!r}")


def revoke_key(name: str, now: float) -> Queries[None]:
    yield from _existing(name)
    yield REVOKE_KEY, (now, name)


def rotate_key(name: str, digest: str, hint: str) -> Queries[None]:
    yield from _existing(name)
    yield ROTATE_KEY, (digest, hint, name)


def _existing(name: str) -> Queries[None]:
    found = yield KEY, (name,)
    if not found:
        raise NotFound(f"there is no key with the name {name!r}")
    if found[0][0] is not None:
        raise ClientError(f"the key {name!r} is revoked")


# The ledger

POSITION = """INSERT INTO journal (id, position) VALUES (?, 0)
    ON CONFLICT (id) DO UPDATE SET position = journal.position RETURNING position"""
ADVANCE = "UPDATE journal SET position = ? WHERE id = ?"
REMOVE_JOURNAL = "DELETE FROM journal WHERE id = ?"
ADD_USAGE = """INSERT INTO token_usage (owner, day, model, upstream, source, requests, failed,
    input, output, cached, reasoning, cost, unpriced) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (owner, day, model, upstream, source) DO UPDATE SET
    requests = token_usage.requests + excluded.requests,
    failed = token_usage.failed + excluded.failed, input = token_usage.input + excluded.input,
    output = token_usage.output + excluded.output, cached = token_usage.cached + excluded.cached,
    reasoning = token_usage.reasoning + excluded.reasoning,
    cost = token_usage.cost + excluded.cost, unpriced = token_usage.unpriced + excluded.unpriced"""
USAGE = """SELECT owner, day, model, upstream, source, requests, failed, input, output, cached,
    reasoning, cost, unpriced FROM token_usage WHERE day >= ? AND day <= ?
    ORDER BY day, owner, model, upstream, source"""
OWN_USAGE = """SELECT owner, day, model, upstream, source, requests, failed, input, output, cached,
    reasoning, cost, unpriced FROM token_usage WHERE day >= ? AND day <= ? AND owner = ?
    ORDER BY day, owner, model, upstream, source"""
FOREVER = "9999-12-31"


def position(journal: str) -> Queries[int]:
    """How far a journal was added to the ledger."""
    return int((yield POSITION, (journal,))[0][0] or 0)


def add_usage(
    journal: str,
    start: int,
    end: int,
    rows: Sequence[UsageRow],
    server: str,
    spent: Sequence[tuple[str, int]],
) -> Queries[bool]:
    """Adds the part of a journal from `start` to `end`; returns False if it was added before.
    `spent` is what this server has reserved for it, by owner: it is reserved no longer."""
    if (yield from position(journal)) != start:
        return False
    yield ADVANCE, (end, journal)
    # In one order everywhere: two servers that add to the same rows must not wait for one another.
    for row in sorted(rows, key=_identity):
        yield ADD_USAGE, msgspec.structs.astuple(row)
    for owner, amount in sorted(spent):
        yield RELEASE, (amount, owner, BUDGET, server)
    return True


def remove_journal(journal: str) -> Queries[None]:
    yield REMOVE_JOURNAL, (journal,)


def usage(owner: str | None, first: str, last: str) -> Queries[list[UsageRow]]:
    rows: Sequence[Row]
    if owner is None:
        rows = yield USAGE, (first, last)
    else:
        rows = yield OWN_USAGE, (first, last, owner)
    return values_of(UsageRow, rows)


def _identity(row: UsageRow) -> tuple[str, ...]:
    return (row.owner, row.day, row.model, row.upstream, row.source)


# Rates

TIME = "SELECT " + CLOCK
# Locks the row, so that nobody else changes it before this transaction ends.
LOCK_WINDOW = """INSERT INTO rate_window (owner, kind, number, used) VALUES (?, ?, ?, 0)
    ON CONFLICT (owner, kind) DO UPDATE SET
    used = CASE WHEN rate_window.number = excluded.number THEN rate_window.used ELSE 0 END,
    number = excluded.number RETURNING used"""
UNUSE_WINDOW = """UPDATE rate_window SET used = used - ?
    WHERE owner = ? AND kind = ? AND number = ?"""
USE_WINDOW = "UPDATE rate_window SET used = used + ? WHERE owner = ? AND kind = ?"


def take(owner: str, kind: str, limit: int, need: int, block: int) -> Queries[Window]:
    """Takes from the current minute of a rate: `block` if so much is left, or less, but at least
    `need`; otherwise nothing."""
    now = float((yield TIME, ())[0][0] or 0.0)
    number = int(now // MINUTE)
    used = int((yield LOCK_WINDOW, (owner, kind, number))[0][0] or 0)
    left = max(limit - used, 0)
    granted = min(max(block, need), left) if left >= need else 0
    if granted:
        yield USE_WINDOW, (granted, owner, kind)
    return Window(granted, left - granted, number, (number + 1) * MINUTE - now)


def untake(owner: str, kind: str, number: int, amount: int) -> Queries[None]:
    """Gives back what was taken in a minute, unless that is over."""
    yield UNUSE_WINDOW, (amount, owner, kind, number)


# Reservations

# Like a window, and only for its lock.
LOCK_RESERVATIONS = LOCK_WINDOW
REMOVE_DEAD = """DELETE FROM reservation WHERE owner = ? AND kind = ?
    AND server NOT IN (SELECT name FROM server)"""
RESERVED = "SELECT coalesce(sum(amount), 0) FROM reservation WHERE owner = ? AND kind = ?"
RESERVE = """INSERT INTO reservation (owner, kind, server, amount) VALUES (?, ?, ?, ?)
    ON CONFLICT (owner, kind, server) DO UPDATE SET amount = reservation.amount + excluded.amount"""
RELEASE = """UPDATE reservation SET amount = amount - ?
    WHERE owner = ? AND kind = ? AND server = ?"""
SPENT = "SELECT coalesce(sum(cost), 0) FROM token_usage WHERE owner = ? AND day >= ?"


def reserve_streams(
    owner: str, server: str, limit: int, need: int, block: int
) -> Queries[Reserved]:
    """Reserves slots for open streams, as `take` takes from a rate."""
    reserved = yield from _reserved(owner, STREAMS)
    return (yield from _reserve(owner, STREAMS, server, limit - reserved, need, block, "streams"))


def reserve_money(
    owner: str, server: str, budget: KeyBudget, need: int, block: int
) -> Queries[Reserved]:
    """Reserves money, as `take` takes from a rate."""
    reserved = yield from _reserved(owner, BUDGET)
    now = float((yield TIME, ())[0][0] or 0.0)
    day, month, rest_of_day, rest_of_month = _calendar(now)
    left: list[tuple[int, Literal["day", "month", "total"], float | None]] = []
    if budget.day is not None:
        left.append((budget.day - (yield from _spent(owner, day)), "day", rest_of_day))
    if budget.month is not None:
        left.append((budget.month - (yield from _spent(owner, month)), "month", rest_of_month))
    if budget.total is not None:
        left.append((budget.total - (yield from _spent(owner, "")), "total", None))
    least, limit, seconds = min(left, key=lambda one: one[0])
    found = yield from _reserve(owner, BUDGET, server, least - reserved, need, block, limit)
    return msgspec.structs.replace(found, seconds=seconds, unspent=max(least, 0))


def release(owner: str, kind: str, server: str, amount: int) -> Queries[None]:
    yield RELEASE, (amount, owner, kind, server)


def _reserved(owner: str, kind: str) -> Queries[int]:
    """What all servers have reserved. Locks the reservations."""
    yield LOCK_RESERVATIONS, (owner, kind, 0)
    yield REMOVE_DEAD, (owner, kind)
    return int((yield RESERVED, (owner, kind))[0][0] or 0)


def _reserve(
    owner: str,
    kind: str,
    server: str,
    left: int,
    need: int,
    block: int,
    limit: Literal["day", "month", "total", "streams"],
) -> Queries[Reserved]:
    left = max(left, 0)
    granted = min(max(block, need), left) if left >= need else 0
    if granted:
        yield RESERVE, (owner, kind, server, granted)
    return Reserved(granted, left - granted, limit)


def _spent(owner: str, since: str) -> Queries[int]:
    values: tuple[Value, ...] = (owner, since)
    return int((yield SPENT, values)[0][0] or 0)


def _calendar(now: float) -> tuple[str, str, float, float]:
    """This day and the first of this month, and the seconds until they are over."""
    today = datetime.fromtimestamp(now, UTC)
    midnight = today.replace(hour=0, minute=0, second=0, microsecond=0)
    first = midnight.replace(day=1)
    next_month = (first + timedelta(days=31)).replace(day=1)
    return (
        midnight.date().isoformat(),
        first.date().isoformat(),
        (midnight + timedelta(days=1) - today).total_seconds(),
        (next_month - today).total_seconds(),
    )


class Accounts:
    """The accounts in one database; the functions above document its methods."""

    def __init__(self, submit: SubmitOperation, read: ReadQueries) -> None:
        self._submit = submit
        self._read = read

    async def keys(self) -> list[StoredKey]:
        return await self._read(keys)

    async def revision(self) -> int:
        """Changes with every change of a key."""
        return await self._read(revision)

    async def create_key(self, key: StoredKey) -> None:
        """Raises AlreadyExists."""
        await self._submit(partial(create_key, key), durable=True)

    async def revoke_key(self, name: str, now: float) -> None:
        """Raises NotFound, or ClientError if it is revoked already."""
        await self._submit(partial(revoke_key, name, now), durable=True)

    async def rotate_key(self, name: str, digest: str, hint: str) -> None:
        """Replaces the secret of a key. Raises as `revoke_key`."""
        await self._submit(partial(rotate_key, name, digest, hint), durable=True)

    async def position(self, journal: str) -> int:
        return await self._submit(partial(position, journal), row=LEDGER)

    async def add_usage(
        self,
        journal: str,
        start: int,
        end: int,
        rows: Sequence[UsageRow],
        server: str = "",
        spent: Sequence[tuple[str, int]] = (),
    ) -> bool:
        make = partial(add_usage, journal, start, end, rows, server, spent)
        return await self._submit(make, size=200 * len(rows), row=LEDGER)

    async def remove_journal(self, journal: str) -> None:
        await self._submit(partial(remove_journal, journal), row=LEDGER)

    async def usage(
        self, owner: str | None, first: str = "", last: str = FOREVER
    ) -> list[UsageRow]:
        """The ledger of one key, or of all, from one day to another."""
        return await self._read(partial(usage, owner, first, last))

    async def take(self, owner: str, kind: str, limit: int, need: int, block: int) -> Window:
        return await self._submit(
            partial(take, owner, kind, limit, need, block), row=_row(owner, kind)
        )

    async def untake(self, owner: str, kind: str, number: int, amount: int) -> None:
        make = partial(untake, owner, kind, number, amount)
        await self._submit(make, row=_row(owner, kind))

    async def reserve_streams(
        self, owner: str, server: str, limit: int, need: int, block: int
    ) -> Reserved:
        make = partial(reserve_streams, owner, server, limit, need, block)
        return await self._submit(make, row=_row(owner, STREAMS))

    async def reserve_money(
        self, owner: str, server: str, budget: KeyBudget, need: int, block: int
    ) -> Reserved:
        make = partial(reserve_money, owner, server, budget, need, block)
        return await self._submit(make, row=_row(owner, BUDGET))

    async def release(self, owner: str, kind: str, server: str, amount: int) -> None:
        """Gives back what a server has reserved."""
        make = partial(release, owner, kind, server, amount)
        await self._submit(make, row=_row(owner, kind))


def _row(owner: str, kind: str) -> str:
    return f"{LEDGER} {owner} {kind}"
