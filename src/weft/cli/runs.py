"""`weft runs`: lists, shows and exports runs, and decides about them."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import click
import msgspec

from weft.agent.events import Scope
from weft.agent.lifecycle import ASKED
from weft.agent.runtime import AgentRuntime
from weft.agent.turns import output_text
from weft.cli.agents import runtime_to_write, who
from weft.cli.open_store import UnusableStore, settings_of
from weft.errors import ClientError
from weft.gateway.run_objects import (
    JsonObject,
    event_object,
    run_view,
    summary_object,
)
from weft.store.base import Store, StoreError

Action = Callable[[AgentRuntime, Store], Awaitable[None]]

_encode = msgspec.json.Encoder().encode


def _do(config: Path | None, action: Action, writes: bool = False) -> None:
    settings = settings_of(config, needs_store=True)

    async def main() -> None:
        async with runtime_to_write(settings, hints=writes) as (runtime, store):
            await action(runtime, store)

    try:
        asyncio.run(main())
    except StoreError as problem:
        raise UnusableStore(str(problem)) from None
    except ClientError as problem:  # no such run, or what was decided is not to be decided
        raise click.ClickException(str(problem)) from None


def _print(value: object) -> None:
    click.echo(_encode(value))


# Reading


def list_runs(
    config: Path | None,
    status: str | None,
    agent: str | None,
    owner: str,
    limit: int,
    as_json: bool,
) -> None:
    async def action(runtime: AgentRuntime, store: Store) -> None:
        page = await store.runs(owner, status, agent, None, limit)
        for row in page.runs:
            if as_json:
                _print(summary_object(row))
                continue
            created = datetime.fromtimestamp(row.created, UTC).strftime("%Y-%m-%d %H:%M:%S")
            click.echo(f"{row.id}  {row.status:<9}  {created}  {row.seq:>5} events  {row.agent}")
        if page.more:
            click.echo(f"there are more than {limit}: see --limit", err=True)

    _do(config, action)


async def _object(runtime: AgentRuntime, store: Store, id: str) -> JsonObject:
    view = await run_view(store, await runtime.row(id))
    entry = None if view.answer is None else await store.entry(view.answer)
    body = None if entry is None else entry.body
    return view.object(None if body is None else output_text(body))


def show(config: Path | None, run: str) -> None:
    async def action(runtime: AgentRuntime, store: Store) -> None:
        click.echo(msgspec.json.format(_encode(await _object(runtime, store, run)), indent=2))

    _do(config, action)


def events(config: Path | None, run: str, after: int, follow: bool) -> None:
    async def action(runtime: AgentRuntime, store: Store) -> None:
        await runtime.row(run)
        if not follow:
            runtime.drain()  # what is there, and no more
        async for event in runtime.events(run, after):
            _print(event_object(event))
            sys.stdout.flush()

    _do(config, action)


def export(config: Path | None, run: str) -> None:
    async def action(runtime: AgentRuntime, store: Store) -> None:
        about = await _object(runtime, store, run)
        runtime.drain()
        log = [event_object(event) async for event in runtime.events(run)]
        state = await runtime.state(run)
        responses: JsonObject = {}
        for turn in state.turns:
            entry = await store.entry(turn.response)
            if entry is not None and entry.body is not None:
                responses[turn.response] = msgspec.Raw(entry.body)
        _print({"run": about, "events": log, "responses": responses})

    _do(config, action)


# Deciding


def approve(
    config: Path | None,
    run: str,
    calls: tuple[str, ...],
    deny: bool,
    reason: str,
    scope: Scope,
) -> None:
    async def action(runtime: AgentRuntime, store: Store) -> None:
        state = await runtime.state(run)
        pending = {
            call.id: call.approval.approval
            for call in state.open_calls
            if call.state is ASKED and call.approval is not None and state.end is None
        }
        if not calls and len(pending) != 1:
            waiting = ", ".join(pending) or "none"
            raise click.ClickException(f"name the calls to decide about; waiting: {waiting}")
        for name in calls or pending:
            # By the id of the call, or that of the approval: both are shown.
            approval = pending.get(name, name)
            await runtime.decide_approval(
                run, approval, not deny, by=who(), reason=reason, scope=scope
            )

    _do(config, action, writes=True)


def resolve(
    config: Path | None,
    run: str,
    call: str,
    action: Literal["done", "retry", "abandon"],
    result: str,
    is_error: bool,
) -> None:
    async def act(runtime: AgentRuntime, store: Store) -> None:
        await runtime.resolve(run, call, action, by=who(), result=result, is_error=is_error)

    _do(config, act, writes=True)


def cancel(config: Path | None, run: str, reason: str) -> None:
    async def action(runtime: AgentRuntime, store: Store) -> None:
        await runtime.cancel(run, by=who(), reason=reason)

    _do(config, action, writes=True)


def fork(config: Path | None, run: str, after: int) -> None:
    async def action(runtime: AgentRuntime, store: Store) -> None:
        click.echo(await runtime.fork(run, after))

    _do(config, action, writes=True)
