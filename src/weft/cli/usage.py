"""`weft usage`: the ledger as a table, CSV or JSON."""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click
import msgspec

from weft.cli.config import columns
from weft.cli.open_store import settings_of, with_store
from weft.errors import BadRequest
from weft.gateway.ledger import UsageLedger
from weft.gateway.usage import GROUPS, UsageSum, day_of, groups_of, matching, summed
from weft.prices import PriceTable
from weft.store.accounts import FOREVER, UsageRow
from weft.store.sql import SqlStore

SUMS = ("requests", "failed_requests")
SOURCES = ("reported", "estimated", "none")
COUNTS = ("requests", "input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")


def run(
    config: Path | None,
    start: str | None,
    end: str | None,
    key: str | None,
    model: str | None,
    upstream: str | None,
    group_by: str,
    form: Literal["table", "csv", "json"],
) -> None:
    try:
        first = "" if start is None else day_of("--start", start)
        last = FOREVER if end is None else day_of("--end", end)
        groups = groups_of(group_by)
    except BadRequest as problem:
        raise click.ClickException(str(problem)) from None

    async def read(store: SqlStore) -> list[UsageRow]:
        ledger = UsageLedger(store, PriceTable())
        # What a gateway that was killed has left.
        await ledger.recover()
        return await ledger.usage(key, first, last)

    url = settings_of(config, needs_store=True).store.url
    rows = with_store(url, read, refused=click.ClickException)
    found = summed(matching(rows, model, upstream), groups)
    if form == "json":
        for one in found:
            click.echo(msgspec.json.encode(one))
    elif form == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(_head(groups, long=True))
        writer.writerows(_cells(one, groups, long=True) for one in found)
    else:
        lines = [_cells(one, groups, long=False) for one in found]
        click.echo("\n".join(columns([_head(groups, long=False), *lines])))


def _head(groups: Sequence[str], *, long: bool) -> list[str]:
    named = [one for one in GROUPS if one in groups]
    if long:
        counts = [f"{source}_{count}" for source in SOURCES for count in COUNTS]
        return [*named, *SUMS, *counts, "cost", "unpriced_requests"]
    return [*named, "requests", "failed", "input", "output", "cached", "reasoning", "estimated",
            "cost"]  # fmt: skip


def _cells(one: UsageSum, groups: Sequence[str], *, long: bool) -> list[str]:
    named = [str(getattr(one, name)) or "-" for name in GROUPS if name in groups]
    cost = f"{one.cost:.9f}" if long else f"${one.cost:.4f}"
    if long:
        counts = [str(getattr(getattr(one, source), name)) for source in SOURCES for name in COUNTS]
        sums = [str(getattr(one, name)) for name in SUMS]
        return [*named, *sums, *counts, cost, str(one.unpriced_requests)]
    tokens = [
        str(sum(getattr(counts, name) for counts in (one.reported, one.estimated, one.none)))
        for name in COUNTS[1:]
    ]
    # A cost that leaves something out says so.
    cost += f" + {one.unpriced_requests} without a price" if one.unpriced_requests else ""
    return [*named, str(one.requests), str(one.failed_requests), *tokens,
            str(one.estimated.requests), cost]  # fmt: skip
