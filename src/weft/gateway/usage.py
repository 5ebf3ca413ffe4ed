"""The ledger for people and programs: `GET /v1/usage`, and what `weft usage` prints."""

from collections.abc import Collection, Iterable, Sequence
from datetime import date
from typing import Literal, get_args
from urllib.parse import parse_qs

import msgspec

from weft.errors import BadRequest
from weft.gateway import http_response
from weft.gateway.apis import RESPONSES
from weft.gateway.endpoints import Receive, Scope, Send
from weft.gateway.keys import KeyRing
from weft.gateway.ledger import UsageLedger
from weft.gateway.stored_responses import EXPECTED_ERRORS, send_problem
from weft.prices import DOLLAR
from weft.store.accounts import FOREVER, UsageRow

Group = Literal["day", "key", "model", "upstream"]
GROUPS: tuple[Group, ...] = get_args(Group)
DEFAULT_GROUPS: tuple[Group, ...] = ("day", "model", "upstream")

_FIELDS = {"day": "day", "key": "owner", "model": "model", "upstream": "upstream"}


class TokenCounts(msgspec.Struct):
    """Requests whose token counts come from one source, and the counts."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Of the input tokens."""

    reasoning_tokens: int = 0
    """Of the output tokens."""

    def add(self, row: UsageRow) -> None:
        self.requests += row.requests
        self.input_tokens += row.input
        self.output_tokens += row.output
        self.cached_tokens += row.cached
        self.reasoning_tokens += row.reasoning


class UsageSum(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The sum of a group of the ledger."""

    day: str | None = None
    key: str | None = None
    model: str | None = None
    upstream: str | None = None
    requests: int
    failed_requests: int
    unpriced_requests: int
    cost: float
    """In US dollars."""

    reported: TokenCounts
    estimated: TokenCounts
    none: TokenCounts


def summed(rows: Iterable[UsageRow], groups: Collection[Group]) -> list[UsageSum]:
    """Sums up the rows of each group."""
    found: dict[tuple[str, ...], list[UsageRow]] = {}
    for row in rows:
        values = [getattr(row, _FIELDS[one]) for one in GROUPS if one in groups]
        found.setdefault(tuple(values), []).append(row)
    return [_sum(found[values], groups) for values in sorted(found)]


def _sum(rows: Sequence[UsageRow], groups: Collection[Group]) -> UsageSum:
    counts = {"reported": TokenCounts(), "estimated": TokenCounts(), "none": TokenCounts()}
    for row in rows:
        counts[row.source].add(row)
    first = rows[0]
    return UsageSum(
        day=first.day if "day" in groups else None,
        key=first.owner if "key" in groups else None,
        model=first.model if "model" in groups else None,
        upstream=first.upstream if "upstream" in groups else None,
        requests=sum(row.requests for row in rows),
        failed_requests=sum(row.failed for row in rows),
        unpriced_requests=sum(row.unpriced for row in rows),
        cost=sum(row.cost for row in rows) / DOLLAR,
        reported=counts["reported"],
        estimated=counts["estimated"],
        none=counts["none"],
    )


def matching(rows: Iterable[UsageRow], model: str | None, upstream: str | None) -> list[UsageRow]:
    """The rows of a model, by its own name or as `<upstream>/<model>`, and of an upstream."""
    return [
        row
        for row in rows
        if (model is None or model in (row.model, f"{row.upstream}/{row.model}"))
        and (upstream is None or upstream == row.upstream)
    ]


def day_of(name: str, text: str) -> str:
    """Returns a day as it is in the ledger. Raises BadRequest."""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise BadRequest(name, f"{text[:50]!r}; expected a day, as in 2026-01-31") from None


def groups_of(text: str) -> tuple[Group, ...]:
    """Reads a list of groups, with commas. Raises BadRequest."""
    names = [one.strip() for one in text.split(",") if one.strip()]
    found = tuple(one for one in GROUPS if one in names)
    for name in names:
        if name not in GROUPS:
            raise BadRequest("group_by", f"{name[:50]!r}; expected some of {', '.join(GROUPS)}")
    return found


class UsageEndpoint:
    """`GET /v1/usage`: what the key of the caller has used, or all keys if it may see that."""

    def __init__(self, ledger: UsageLedger, keys: KeyRing) -> None:
        self._ledger = ledger
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            data = await self._read(scope)
        except EXPECTED_ERRORS as problem:
            await send_problem(send, RESPONSES, scope["weft.id"], problem)
        else:
            await http_response.send_json(send, scope["weft.id"], data)

    async def _read(self, scope: Scope) -> bytes:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        given = {name: values[-1] for name, values in query.items()}
        first = day_of("start", given["start"]) if "start" in given else ""
        last = day_of("end", given["end"]) if "end" in given else FOREVER
        groups = groups_of(",".join(query["group_by"])) if "group_by" in query else DEFAULT_GROUPS
        caller, key = scope["weft.caller"], given.get("key")
        sees_all = self._keys.client(caller).rules.usage == "all"
        rows = await self._ledger.usage(key if sees_all else caller, first, last)
        if not sees_all and key not in (None, caller):
            rows = []  # as if nobody had this key
        found = matching(rows, given.get("model"), given.get("upstream"))
        return msgspec.json.encode({"object": "list", "data": summed(found, groups)})
