"""The limits of client keys: requests and tokens per minute, open streams, and money.

Limits hold for all processes on one database. A process takes a part of each from the store, a few
percent at a time, and uses it up by itself, so that most requests need no transaction; of a small
limit it takes one at a time. What a request will use is estimated and reserved before it runs, and
settled when it has ended. So a limit can be exceeded by no more than what the running requests use
beyond their estimates.

Without a store the limits are those of one process.
"""

import asyncio
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, Protocol

import msgspec

from weft.dialects import http_of
from weft.dialects.base import RateLimitHeaders
from weft.dialects.error_classes import ErrorClass, new_error
from weft.gateway.auth import HttpRejection
from weft.gateway.keys import NO_RULES, Client, KeyRing
from weft.gateway.ledger import UsageLedger
from weft.gateway.settings.schema import BudgetSettings, KeyRules
from weft.parts import Usage
from weft.prices import DOLLAR, PriceTable
from weft.relay.incoming import IncomingRequest
from weft.relay.metering import Charge, estimate_input, is_composed
from weft.relay.routing import Target
from weft.store.accounts import BUDGET, MINUTE, STREAMS, KeyBudget, Reserved, Window
from weft.store.base import StoreError
from weft.store.sql import SqlStore

PARTS = 50
"""Into how many parts a rate or a budget is divided: a process takes one at a time."""

STREAM_PARTS = 20
EXPECTED_OUTPUT = 1_000
"""Tokens that a response is expected to have, unless its request allows fewer."""

STREAM_WAIT = 0.3
"""Seconds to wait for an open stream to end: another process may be about to report it."""

STREAM_POLL = 0.03
IDLE = 2.0
"""Seconds after which all money and streams that are reserved and not needed are given back."""

Headers = list[tuple[bytes, bytes]]


class LimitStore(Protocol):
    """Where limits are shared: `Accounts` documents the methods."""

    async def take(self, owner: str, kind: str, limit: int, need: int, block: int) -> Window: ...

    async def untake(self, owner: str, kind: str, number: int, amount: int) -> None: ...

    async def reserve_streams(
        self, owner: str, server: str, limit: int, need: int, block: int
    ) -> Reserved: ...

    async def reserve_money(
        self, owner: str, server: str, budget: KeyBudget, need: int, block: int
    ) -> Reserved: ...

    async def release(self, owner: str, kind: str, server: str, amount: int) -> None: ...


class LocalLimits:
    """Limits of this process alone. There are no budgets: the settings refuse them without a
    store."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, str], tuple[int, int]] = {}
        self._streams: dict[str, int] = {}

    async def take(self, owner: str, kind: str, limit: int, need: int, block: int) -> Window:
        now = time.time()
        number = int(now // MINUTE)
        of, used = self._used.get((owner, kind), (number, 0))
        used = used if of == number else 0
        left = max(limit - used, 0)
        granted = min(max(block, need), left) if left >= need else 0
        self._used[owner, kind] = (number, used + granted)
        return Window(granted, left - granted, number, (number + 1) * MINUTE - now)

    async def untake(self, owner: str, kind: str, number: int, amount: int) -> None:
        of, used = self._used.get((owner, kind), (number, amount))
        if of == number:
            self._used[owner, kind] = (number, used - amount)

    async def reserve_streams(
        self, owner: str, server: str, limit: int, need: int, block: int
    ) -> Reserved:
        used = self._streams.get(owner, 0)
        left = max(limit - used, 0)  # used may be more, if the limit was higher
        granted = min(max(block, need), left) if left >= need else 0
        self._streams[owner] = used + granted
        return Reserved(granted, left - granted, "streams")

    async def reserve_money(
        self, owner: str, server: str, budget: KeyBudget, need: int, block: int
    ) -> Reserved:
        return Reserved(0, 0, "total")

    async def release(self, owner: str, kind: str, server: str, amount: int) -> None:
        self._streams[owner] -= amount


class KeyLimitReached(HttpRejection):
    """A limit of the key is reached."""

    def __init__(
        self, status: int, found: ErrorClass, message: str, seconds: float | None = None
    ) -> None:
        after = None if seconds is None else max(1, math.ceil(seconds))
        super().__init__(status, new_error(found, message, retry_after=after))


class StreamsReached(KeyLimitReached):
    """The key has as many open streams as it may have."""

    def __init__(self, limit: int) -> None:
        message = f"this API key is limited to {limit} responses at the same time"
        super().__init__(429, "rate", message, 1)


@dataclass(slots=True)
class Rate:
    """What this process has of a rate, in the current minute."""

    kind: Literal["requests", "tokens"]
    limit: int
    free: int = 0
    """Less than 0: more was used than taken."""

    left: int = 0
    """What nobody had taken, when this process took something last."""

    number: int = -1
    until: float = 0.0
    """When the minute is over, by the clock of the event loop."""

    def covers(self, need: int, now: float) -> bool:
        return now < self.until and self.free >= need

    async def take(self, store: LimitStore, owner: str, need: int) -> None:
        clock = asyncio.get_running_loop().time
        is_same = False
        while not is_same:
            if clock() >= self.until:
                self.free = 0  # of a minute that is over
            missing = need - self.free
            window = await store.take(owner, self.kind, self.limit, missing, self.limit // PARTS)
            # Only the clock of the database tells which minute it is.
            is_same = window.number == self.number
            self.free = window.granted + (self.free if is_same else 0)
            self.number, self.until = window.number, clock() + window.seconds
            self.left = window.left
            if self.free >= need:
                return
        message = f"this API key is limited to {self.limit} {self.kind} per minute"
        raise KeyLimitReached(429, "rate", message, window.seconds)


class RateHeaders:
    """The headers about one rate, as the vendor of one dialect names them."""

    __slots__ = ("is_time", "limit", "rate", "remaining", "reset", "reset_at", "until")

    def __init__(self, style: RateLimitHeaders, rate: Rate) -> None:
        limit, self.remaining, self.reset = (
            style.name.format(kind=rate.kind, field=field).encode()
            for field in ("limit", "remaining", "reset")
        )
        self.limit = (limit, b"%d" % rate.limit)
        self.rate = rate
        self.is_time = style.reset == "time"
        self.until, self.reset_at = math.nan, b""
        """The end of the minute, by the clock of the event loop and as a time."""

    def reset_time(self, seconds: float) -> bytes:
        """When the rate is reset, in so many seconds: a time that is rendered once a minute."""
        if seconds <= 0:
            return _time_in(0)
        if self.until != self.rate.until:
            self.until, self.reset_at = self.rate.until, _time_in(seconds)
        return self.reset_at


def _time_in(seconds: float) -> bytes:
    moment = datetime.fromtimestamp(time.time() + seconds, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ").encode()


@dataclass(slots=True)
class Streams:
    """The slots for open streams that this process has."""

    limit: int
    held: int = 0
    used: int = 0
    refused: float = -math.inf
    """When the store had no slot left, by the clock of the event loop."""

    used_at: float = 0.0
    keep: int = field(init=False)
    """Slots that are kept for the next streams."""

    def __post_init__(self) -> None:
        self.keep = self.limit // STREAM_PARTS

    async def reserve(self, store: LimitStore, owner: str, server: str) -> None:
        now, need = asyncio.get_running_loop().time(), self.used + 1 - self.held
        # Whoever was refused a moment ago was refused for all others, too.
        if need > 0 and self.used < self.limit and now - self.refused >= STREAM_POLL:
            found = await store.reserve_streams(owner, server, self.limit, need, self.keep)
            self.held += found.granted
            if not found.granted:
                self.refused = now
        if self.held <= self.used:
            raise StreamsReached(self.limit)


@dataclass(slots=True)
class Money:
    """The money that this process has reserved."""

    budget: KeyBudget
    granted: int = 0
    in_flight: int = 0
    """What the running requests are expected to cost."""

    spent: int = 0
    """What was spent and is not in the ledger of the store yet."""

    used_at: float = 0.0

    @property
    def available(self) -> int:
        return self.granted - self.in_flight - self.spent

    @property
    def block(self) -> int:
        limits = (self.budget.day, self.budget.month, self.budget.total)
        return min(one for one in limits if one is not None) // PARTS

    async def reserve(self, store: LimitStore, owner: str, server: str, need: int) -> None:
        missing = need - self.available
        found = await store.reserve_money(owner, server, self.budget, missing, self.block)
        self.granted += found.granted
        if self.available >= need:
            return
        limit: int = getattr(self.budget, found.limit)
        per = "in total" if found.limit == "total" else f"per {found.limit}"
        message = f"this API key may spend ${limit / DOLLAR:.2f} {per}"
        # What this process has spent is in the ledger of the store a moment later.
        if found.unspent - self.spent >= need:
            message += (
                ", and running requests have reserved the rest; try again when they have ended"
            )
            raise KeyLimitReached(429, "rate", message, 1)
        # OpenAI's status and code for it: their clients know that waiting does not help soon.
        raise KeyLimitReached(429, "billing", f"{message}, which is used up", found.seconds)

    def take_spent(self) -> int:
        """What was spent, as far as it was reserved: the ledger replaces the reservation."""
        released = min(self.spent, self.granted)
        self.granted -= released
        self.spent = 0
        return released


@dataclass(slots=True)
class KeyAccount:
    """What this process has of the limits of one key."""

    name: str
    rules: KeyRules
    requests: Rate | None
    tokens: Rate | None
    streams: Streams | None
    money: Money | None
    server: str = ""
    users: int = 0
    """Requests that were admitted or wait for it, and have not ended."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _headers: dict[str, list[RateHeaders]] = field(default_factory=dict)
    """By dialect."""

    @classmethod
    def of(cls, client: Client) -> "KeyAccount | None":
        """None if the key has no limits."""
        rules = client.rules
        per_minute, tokens, streams = (
            rules.requests_per_minute,
            rules.tokens_per_minute,
            rules.streams,
        )
        is_unlimited = per_minute is None and tokens is None and streams is None
        budget = budget_of(rules.budget)
        if is_unlimited and budget is None:
            return None
        return cls(
            client.name,
            rules,
            None if per_minute is None else Rate("requests", per_minute),
            None if tokens is None else Rate("tokens", tokens),
            None if streams is None else Streams(streams),
            None if budget is None else Money(budget),
        )

    def try_take(self, need: "Need", now: float) -> bool:
        """Takes what a request needs, if this process has it."""
        requests, tokens, streams, money = self.requests, self.tokens, self.streams, self.money
        # Written out: this is asked for every request.
        if (
            (requests is not None and (now >= requests.until or requests.free < need.requests))
            or (tokens is not None and (now >= tokens.until or tokens.free < need.tokens))
            or (streams is not None and streams.held - streams.used < need.streams)
            or (money is not None and money.granted - money.in_flight - money.spent < need.money)
        ):
            return False
        if requests is not None:
            requests.free -= need.requests
        if tokens is not None:
            tokens.free -= need.tokens
        if streams is not None:
            streams.used += need.streams
            streams.used_at = now
        if money is not None:
            money.in_flight += need.money
            money.used_at = now
        return True

    def headers(self, dialect: str, now: float) -> Headers:
        """The rate limits, in the headers of the vendor whose dialect it is."""
        shown = self._headers.get(dialect)
        if shown is None:
            style = http_of(dialect).rate_limits
            rates = [one for one in (self.requests, self.tokens) if one is not None]
            shown = [] if style is None else [RateHeaders(style, one) for one in rates]
            self._headers[dialect] = shown
        found: Headers = []
        for one in shown:
            rate = one.rate
            remaining, seconds = rate.free + rate.left, rate.until - now
            if one.is_time:
                reset = one.reset_time(seconds)
            else:
                reset = b"%ds" % math.ceil(seconds) if seconds > 0 else b"0s"
            shown_remaining = b"%d" % remaining if remaining > 0 else b"0"
            found += (one.limit, (one.remaining, shown_remaining), (one.reset, reset))
        return found

    @property
    def holds_anything(self) -> bool:
        """Whether something is reserved, such as money that was spent and that the ledger of the
        store does not have yet."""
        money, streams = self.money, self.streams
        has_money = money is not None and (money.granted > 0 or money.spent > 0)
        return has_money or (streams is not None and streams.held > 0)

    def follow(self, server: str) -> None:
        """To be called with the id under which this process reserves now."""
        if server != self.server:
            # The lease was lost, and with it what was reserved under the old id.
            self.server = server
            if self.streams is not None:
                self.streams.held = 0
            if self.money is not None:
                self.money.granted = 0

    async def fill(self, store: LimitStore, server: str, need: "Need") -> None:
        """Takes from the store what is missing. Raises KeyLimitReached, StoreError."""
        self.follow(server)
        now = asyncio.get_running_loop().time()
        # Money first: what is taken of a rate and not used is lost.
        if self.money is not None and self.money.available < need.money:
            await self.money.reserve(store, self.name, server, need.money)
        if self.streams is not None and need.streams:
            await self.streams.reserve(store, self.name, server)
        if self.tokens is not None and not self.tokens.covers(need.tokens, now):
            await self.tokens.take(store, self.name, need.tokens)
        if self.requests is not None and not self.requests.covers(need.requests, now):
            await self.requests.take(store, self.name, need.requests)

    def unknown_rates(self, now: float) -> list[Rate]:
        """The rates of which this process has taken nothing in this minute."""
        return [one for one in (self.requests, self.tokens) if one and now >= one.until]

    async def give_back(self, store: LimitStore, now: float, *, keeps: bool = True) -> None:
        """Returns what is reserved and not needed, and keeps a part of it for the next requests if
        there may be any. Raises StoreError."""
        streams, money = self.streams, self.money
        if streams is not None:
            # Taken again by the next request, each time in a transaction, if all were given back.
            kept = streams.keep if keeps and now - streams.used_at < IDLE else 0
            extra = streams.held - streams.used - kept
            if extra > 0:
                streams.held -= extra
                await store.release(self.name, STREAMS, self.server, extra)
        if money is not None:
            kept = money.block if keeps and now - money.used_at < IDLE else 0
            extra = money.available - kept
            if extra > 0:
                money.granted -= extra
                await store.release(self.name, BUDGET, self.server, extra)
        requests, tokens = self.requests, self.tokens
        if requests is not None and not keeps and now < requests.until and requests.free > 0:
            extra, requests.free = requests.free, 0
            await store.untake(self.name, requests.kind, requests.number, extra)
        if tokens is None or now >= tokens.until:
            return
        extra = tokens.free - (tokens.limit // PARTS if keeps else 0)
        # Responses were shorter or longer than expected: the other processes must know.
        if extra > 0:
            tokens.free -= extra
            await store.untake(self.name, tokens.kind, tokens.number, extra)
        elif tokens.free < 0:
            window = await store.take(self.name, tokens.kind, tokens.limit, 0, -tokens.free)
            if window.number == tokens.number:
                tokens.free += window.granted
                tokens.left = window.left


class Need(msgspec.Struct, frozen=True, gc=False):
    """What a request is expected to use."""

    requests: int
    streams: int
    tokens: int
    money: int


class Admission(msgspec.Struct, eq=False):
    """A request that may run: `charge` what it uses, `close` it when it has ended."""

    limiter: "Limiter"
    account: KeyAccount | None
    """None: nothing is limited."""

    need: Need
    at: float
    """When it was admitted, by the clock of the event loop."""

    window: int
    """The minute of which its tokens were taken."""

    tokens: int = 0
    """What it has used."""

    is_closed: bool = False
    is_metered: bool = True
    """Whether somebody needs its charges: a limit, or the ledger of a store."""

    def charge(self, charge: Charge) -> int | None:
        """As ChargeAttempt."""
        cost = self.limiter.ledger.charge(charge)
        account = self.account
        if account is not None:
            self.tokens += (charge.usage.input_tokens or 0) + (charge.usage.output_tokens or 0)
            if account.money is not None:
                account.money.spent += cost or 0
        return cost

    def close(self) -> None:
        """Settles what was reserved. May be called again."""
        account, need = self.account, self.need
        if account is None or self.is_closed:
            return
        self.is_closed = True
        account.users -= 1
        if account.money is not None:
            account.money.in_flight -= need.money
        if account.tokens is not None:
            more = self.tokens - need.tokens
            # What was reserved in a minute that is over is not given back.
            if more > 0 or account.tokens.number == self.window:
                account.tokens.free -= more
        streams = account.streams
        if streams is not None and need.streams:
            streams.used -= need.streams
            if streams.held - streams.used > streams.keep:
                self.limiter.release_streams(account, streams)

    def headers(self, dialect: str) -> Headers:
        """The rate limits, in the headers of the vendor whose dialect it is."""
        return [] if self.account is None else self.account.headers(dialect, self.at)


class Limiter:
    """Admits requests, and settles what they have used."""

    def __init__(
        self, keys: KeyRing, ledger: UsageLedger, prices: PriceTable, store: SqlStore | None
    ) -> None:
        self.ledger = ledger
        self._keys = keys
        self._prices = prices
        self._store = store
        self._shared: LimitStore = LocalLimits() if store is None else store.accounts
        self._accounts: dict[str, KeyAccount] = {}
        self._retired: list[KeyAccount] = []
        """Those whose rules have changed. Their requests settle what was reserved by the old rules,
        and what is left goes back to the store, where the new account finds it."""
        self._without_limits: dict[str, KeyRules] = {}
        """The rules of keys that limit nothing."""
        self._unlimited = Admission(
            self, None, Need(0, 0, 0, 0), 0.0, -1, is_metered=store is not None
        )
        self._releasing: set[asyncio.Task[None]] = set()
        ledger.collect_spent = self._take_spent

    async def admit(
        self, incoming: IncomingRequest, targets: Sequence[Target], *, is_turn: bool = False
    ) -> Admission:
        """Returns when the request may run. The turn of an agent, or a background response that was
        counted before, uses tokens and money, but it is neither a request nor a stream of its
        client. Raises HttpRejection."""
        client = self._keys.client(incoming.caller)
        account, rules = self._accounts.get(client.name), client.rules
        if account is None and rules is self._without_limits.get(client.name, NO_RULES):
            return self._unlimited
        # The rules of a key are the same object until they change.
        if account is None or account.rules is not rules:
            account = self._update_account(account, client)
            if account is None:
                return self._unlimited
        account.users += 1
        try:
            return await self._admit(account, incoming, targets, is_turn)
        except BaseException:
            account.users -= 1
            raise

    async def _admit(
        self,
        account: KeyAccount,
        incoming: IncomingRequest,
        targets: Sequence[Target],
        is_turn: bool,
    ) -> Admission:
        try:
            need = self._need(account, incoming, targets, is_turn)
            now = await self._take(account, need)
        except HttpRejection as refused:
            if refused.status != 503:  # the store has just not answered
                refused.headers = await self._rates_of(account, incoming.body.dialect)
            raise
        window = -1 if account.tokens is None else account.tokens.number
        return Admission(self, account, need, now, window)

    async def _take(self, account: KeyAccount, need: Need) -> float:
        """Returns when the account has given what is needed: the time, by the clock of the event
        loop. Raises KeyLimitReached."""
        clock = asyncio.get_running_loop().time
        now = clock()
        until = now + STREAM_WAIT
        while not account.try_take(need, now):
            try:
                # One after the other: several requests would each take what one of them gets.
                async with account.lock:
                    now = clock()
                    if account.try_take(need, now):
                        break
                    await account.fill(self._shared, self._server, need)
            except StoreError:
                message = "the limits of this API key cannot be checked now"
                raise KeyLimitReached(503, "overloaded", message, 1) from None
            except StreamsReached:
                if clock() >= until:
                    raise
                await asyncio.sleep(STREAM_POLL)
            now = clock()
        return now

    async def _rates_of(self, account: KeyAccount, dialect: str) -> Headers:
        """The headers of a refusal, which may be the first answer in this minute."""
        clock = asyncio.get_running_loop().time
        # Usually there are none, and then a refusal waits for nobody.
        if account.unknown_rates(clock()):
            try:
                async with account.lock:
                    for rate in account.unknown_rates(clock()):
                        await rate.take(self._shared, account.name, 0)
            except StoreError:
                return []
        return account.headers(dialect, clock())

    def _update_account(self, account: KeyAccount | None, client: Client) -> KeyAccount | None:
        """The account by the rules that the client has now; None if it has no limits."""
        if account is not None and account.rules == client.rules:
            account.rules = client.rules
            return account
        if account is not None:
            self._retired.append(account)
        account = KeyAccount.of(client)
        if account is None:
            self._accounts.pop(client.name, None)
            self._without_limits[client.name] = client.rules
        else:
            self._accounts[client.name] = account
        return account

    @property
    def _server(self) -> str:
        return "" if self._store is None else self._store.server

    def _need(
        self,
        account: KeyAccount,
        incoming: IncomingRequest,
        targets: Sequence[Target],
        is_turn: bool,
    ) -> Need:
        count = 0 if is_turn else 1
        if account.tokens is None and account.money is None:
            return Need(count, count, 0, 0)
        models = [one for one in targets if not is_composed(one)]
        if not models:
            return Need(count, count, 0, 0)
        request = incoming.body.parsed.request
        sent = estimate_input(request)
        output = min(request.max_output_tokens or EXPECTED_OUTPUT, EXPECTED_OUTPUT)
        limit = None if account.tokens is None else account.tokens.limit
        if limit is not None and sent > limit:
            message = (
                f"the request has about {sent} tokens, and this API key is limited to {limit} "
                "tokens per minute"
            )
            raise KeyLimitReached(413, "too-large", message)
        tokens = sent + output if limit is None else min(sent + output, limit)
        money = 0
        if account.money is not None:
            usage = Usage(sent, output)
            for model in models:
                cost = self._prices.cost_of(model.name, usage)
                if cost is None:
                    message = (
                        f"the price of {model.name[:100]!r} is not known, and this API key has a "
                        "budget; set it under [prices]"
                    )
                    raise HttpRejection(403, new_error("permission", message, param="model"))
                money = max(money, round(cost * DOLLAR))
        return Need(count, count, tokens, money)

    # Giving back

    def release_streams(self, account: KeyAccount, streams: Streams) -> None:
        """Gives back at once what need not be kept: the slots of a key that has few."""
        extra = streams.held - streams.used - streams.keep
        streams.held -= extra
        task = asyncio.get_running_loop().create_task(
            self._release(account.name, account.server, extra)
        )
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def _release(self, owner: str, server: str, extra: int) -> None:
        with suppress(StoreError):  # it is given back when the lease of this server ends
            await self._shared.release(owner, STREAMS, server, extra)

    async def give_back(self) -> None:
        """To be called regularly. Raises StoreError."""
        now = asyncio.get_running_loop().time()
        for account in list(self._accounts.values()):
            async with account.lock:
                await account.give_back(self._shared, now)
        for account in list(self._retired):
            is_idle = not account.users  # and will be: nobody comes to it any more
            async with account.lock:
                account.follow(self._server)
                await account.give_back(self._shared, now, keeps=False)
            if is_idle and not account.holds_anything:
                self._retired.remove(account)

    def _take_spent(self) -> list[tuple[str, int]]:
        found = [
            (one.name, one.money.take_spent())
            for one in (*self._accounts.values(), *self._retired)
            if one.money is not None
        ]
        return [(name, amount) for name, amount in found if amount]


def budget_of(settings: BudgetSettings) -> KeyBudget | None:
    def amount(dollars: float | None) -> int | None:
        return None if dollars is None else round(dollars * DOLLAR)

    found = KeyBudget(amount(settings.day), amount(settings.month), amount(settings.total))
    return None if found == KeyBudget() else found
