"""Agents without a gateway: a runtime in any program, with models and a store of its own.

`Runtime` opens what it needs and closes it again. Its runs are those of any other process on the
same store: a gateway lists them, `weft runs` decides about them, and the process that comes after a
crash continues them."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import Any, Literal, TypedDict

import msgspec

from weft.agent.agents import Agent, with_children
from weft.agent.decide import Action
from weft.agent.dispatch import dispatcher_from_url
from weft.agent.events import (
    CallOutput,
    RunCancelled,
    RunFailed,
    Scope,
    decode_event,
    text_result,
)
from weft.agent.lifecycle import ASKED, AWAITED, PARKED
from weft.agent.models import RelayModels
from weft.agent.runtime import AgentRuntime
from weft.agent.state import RunState
from weft.agent.turns import output_text
from weft.context import Quirks
from weft.dialects import DIALECTS
from weft.errors import ArgumentTypeError, ArgumentValueError, ClientError
from weft.prices import Price, PriceTable
from weft.relay.incoming import RequestLimits
from weft.relay.orphans import recover_orphans
from weft.relay.persistence import Persistence
from weft.relay.routing import Routing
from weft.scrub import Scrubber, Secret
from weft.store.base import Store, StoreError
from weft.store.records import RunEvent
from weft.store.urls import store_from_url
from weft.upstream.base import Upstream, UpstreamConfig
from weft.upstream.catalog import HOSTS
from weft.upstream.demo import DemoUpstream
from weft.upstream.urls import parse_base_url

RENEWALS_PER_LEASE = 3
HTTP = "weft.upstream.http"
"""Imported only for an upstream that needs it: it comes with the extra `gateway`."""

DEFAULT_ACTOR = "library"
"""Who decided, if the program does not say."""

log = logging.getLogger("weft.agent")
_read_fields = msgspec.json.Decoder(dict[str, Any]).decode


class UpstreamOptions(TypedDict, total=False):
    """An upstream, with the names of `[upstreams.NAME]` in the settings of the gateway. Everything
    that is left out comes from the preset, by default that of the upstream's name."""

    preset: str
    dialect: str
    base_url: str
    api_key: str
    """The key itself; by default it is read from the environment variable of the preset."""

    headers: Mapping[str, str]
    quirks: Quirks


class RunNotEnded(ClientError):
    """The runtime was closed before the run had ended. The run is stored, and can go on."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One event of a run."""

    seq: int
    """Its number, from 1."""

    at: float
    """When it was written, by the clock of the database."""

    kind: str
    fields: Mapping[str, Any]
    """What the kind has, as in the events of `/v1/runs`."""


@dataclass(frozen=True, slots=True)
class RunStep:
    """What one step of a run was, and what it wrote."""

    action: Action
    entries: tuple[LogEntry, ...]


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended."""

    status: Literal["finished", "failed", "cancelled"]
    output: str
    """The text of the last turn; empty if the run has not finished."""

    error: str | None = None
    """Why it failed, or was cancelled."""


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that somebody outside must act on."""

    id: str
    tool: str
    arguments: str
    needs: Literal["approval", "output", "resolution"]
    why: str = ""
    """Why its outcome is unknown, if it needs a resolution."""

    run: str = ""
    """The run that it belongs to: this one, or that of an agent that was called."""


_NEEDS: dict[object, Literal["approval", "output", "resolution"]] = {
    ASKED: "approval",
    AWAITED: "output",
    PARKED: "resolution",
}


class RunHandle:
    """A run. It belongs to no process: the handle only knows its id."""

    def __init__(self, runtime: AgentRuntime, store: Store, id: str) -> None:
        self.id = id
        self._runtime = runtime
        self._store = store

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def events(self, after: int = 0) -> AsyncIterator[LogEntry]:
        """Yields the events numbered above `after`, as they come, until the run has ended or the
        runtime is closed."""
        async for event in self._runtime.events(self.id, after):
            yield _entry(event)

    async def result(self) -> RunResult:
        """Returns when the run has ended: one that waits for somebody may take days. Raises
        RunNotEnded if the runtime is closed before."""
        state = RunState(self.id)
        try:
            async for event in self._runtime.events(self.id):
                state.apply(decode_event(event.body), event.at)
        # RuntimeError: from the threads of a store that is closed.
        except (StoreError, RuntimeError):
            if not self._runtime.is_draining:
                raise
        match state.end:
            case None:
                raise RunNotEnded(f"the runtime was closed before run {self.id} had ended")
            case RunFailed(message=message):
                return RunResult("failed", "", message)
            case RunCancelled(by=by, reason=reason):
                return RunResult("cancelled", "", reason or f"cancelled by {by}")
        turn = state.turn
        entry = None if turn is None else await self._store.entry(turn.response)
        body = None if entry is None else entry.body
        return RunResult("finished", "" if body is None else output_text(body))

    async def pending(self) -> list[PendingCall]:
        """The calls that somebody outside must act on, with those of agents that the run has
        called: they belong to runs of their own."""
        state = await self._runtime.state(self.id)
        if state.end is not None:
            return []
        found: list[PendingCall] = []
        for call in state.open_calls:
            if call.is_child:
                found += await RunHandle(self._runtime, self._store, call.child).pending()
            elif call.state in _NEEDS:
                needs, judged = _NEEDS[call.state], call.judged
                found.append(
                    PendingCall(call.id, judged.name, judged.arguments, needs, call.why, self.id)
                )
        return found

    async def approve(
        self,
        call: str | None = None,
        *,
        approve: bool = True,
        reason: str = "",
        scope: Scope = "call",
        by: str = DEFAULT_ACTOR,
    ) -> None:
        """Approves a call, or denies it. Without `call` it is the one that needs approval; if none
        or several do, raises ArgumentValueError. `scope` is for later calls, too: those of this
        `tool`, or all of the `run`. To say the same again changes nothing; raises IllegalEvent if
        it was decided otherwise."""
        state = await self._runtime.state(self.id)
        asked = {one.id: one.approval for one in state.calls.values() if one.approval is not None}
        if call is None:
            waiting = [one.id for one in state.open_calls if one.state is ASKED]
            if len(waiting) != 1 or state.end is not None:
                named = ", ".join(waiting) if state.end is None else ""
                raise ArgumentValueError(
                    f"name the call to decide about; waiting: {named or 'none'}"
                )
            [call] = waiting
        found = asked.get(call)
        if found is None:
            raise ArgumentValueError(f"no approval was requested for call {call[:200]!r}")
        await self._runtime.decide_approval(
            self.id, found.approval, approve, by=by, reason=reason, scope=scope
        )

    async def submit(self, outputs: Mapping[str, str]) -> None:
        """Gives the outputs of tools that the client runs, by call. Raises IllegalEvent."""
        found = [CallOutput(call, text_result(text)) for call, text in outputs.items()]
        await self._runtime.submit_outputs(self.id, found)

    async def resolve(
        self,
        call: str,
        action: Literal["done", "retry", "abandon"],
        result: str = "",
        *,
        is_error: bool = False,
        by: str = DEFAULT_ACTOR,
    ) -> None:
        """Settles a call whose outcome is unknown. Raises IllegalEvent."""
        await self._runtime.resolve(self.id, call, action, by=by, result=result, is_error=is_error)

    async def say(self, message: str, *, key: str = "") -> None:
        """Says something to the agent while it works. The same `key` again changes nothing. Raises
        IllegalEvent if the run has ended."""
        await self._runtime.add_message(self.id, message, key=key)

    async def cancel(self, reason: str = "", *, by: str = DEFAULT_ACTOR) -> None:
        """Ends the run. One that has ended stays as it is."""
        await self._runtime.cancel(self.id, by=by, reason=reason)


class Runtime:
    """Runs agents in this process, and works on those that others left in the same store.

    Inside `async with` it works in the background, unless `work` is False: then nothing happens
    but by `step`.
    """

    def __init__(
        self,
        store: str | Store,
        agents: Iterable[Agent],
        *,
        upstreams: Mapping[str, UpstreamOptions] | None = None,
        models: Mapping[str, str | Sequence[str]] | None = None,
        prices: Mapping[str, Price] | None = None,
        work: bool = True,
        lease: float = 15.0,
        concurrency: int = 64,
    ) -> None:
        """`store` is a URL, as in `[store]`, or an open store, which stays open. `upstreams` are
        the servers of models, by name; without any there is the built-in `demo`. `models` are
        aliases: one target `upstream/model`, or several to try in order. `prices` are those of
        targets, in place of their list prices. `lease`: seconds after which others take over the
        runs of a process that died. Raises ArgumentValueError, and ClientError for a model that no
        upstream has."""
        configs = [
            _config(name, options)
            for name, options in (upstreams or {"demo": UpstreamOptions()}).items()
        ]
        aliases = {
            name: (targets,) if isinstance(targets, str) else tuple(targets)
            for name, targets in (models or {}).items()
        }
        self._prices = PriceTable(prices or {}, {one.name: one.base_url for one in configs})
        self._agents = [*with_children(agents).values()]
        self._scrub = Scrubber([one.key for one in configs if one.key is not None])
        self._routing = Routing({one.name: _upstream(one) for one in configs}, aliases)
        for agent in self._agents:
            self._routing.targets(agent.definition.model)  # raises UnknownModel
        self._store = store_from_url(store) if isinstance(store, str) else store
        self._url = store if isinstance(store, str) else None
        self._work = work
        self._lease = lease
        self._concurrency = concurrency
        self._opened = AsyncExitStack()
        self._runtime: AgentRuntime | None = None

    async def __aenter__(self) -> "Runtime":
        if self._runtime is not None:
            raise ArgumentValueError("this runtime is open already")
        async with AsyncExitStack() as opened:
            await self._open(opened)
            self._opened = opened.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._runtime = None
        await self._opened.aclose()

    async def _open(self, opened: AsyncExitStack) -> None:
        """Opens everything; `opened` closes it in the opposite order."""
        store, persistence = self._store, Persistence(self._store)
        for upstream in self._routing.upstreams.values():
            opened.push_async_callback(upstream.close)
        if self._url is not None:
            await store.open()
            opened.push_async_callback(store.close)
        if not store.server:
            await store.take_lease(self._lease)
            often = self._lease / RENEWALS_PER_LEASE
            # Two tasks: to end what the dead have left may take longer than a lease lasts.
            for work in (store.renew_lease, partial(recover_orphans, persistence)):
                opened.push_async_callback(_cancelled, asyncio.create_task(_repeat(often, work)))
        dispatcher = dispatcher_from_url(
            store,
            self._url or "",
            kind="auto" if self._url else "local",
            lease=self._lease,
            concurrency=self._concurrency,
        )
        await dispatcher.open()
        opened.push_async_callback(dispatcher.close)
        # To import the list prices takes too long for the event loop.
        loading = asyncio.create_task(asyncio.to_thread(self._prices.preload))
        opened.push_async_callback(_cancelled, loading)
        limits, prices = RequestLimits(), self._prices
        models = RelayModels(self._routing, persistence, limits, self._scrub, prices=prices)
        runtime = AgentRuntime(
            store,
            self._agents,
            models,
            lease=self._lease,
            concurrency=self._concurrency,
            dispatcher=dispatcher,
        )
        opened.push_async_callback(runtime.close)
        if self._work:
            await runtime.__aenter__()
        self._runtime = runtime

    @property
    def _open_runtime(self) -> AgentRuntime:
        if self._runtime is None:
            raise ArgumentValueError("the runtime is not open: use it inside `async with`")
        return self._runtime

    async def start(
        self,
        agent: str | Agent,
        input: str | Sequence[object],
        *,
        key: str | None = None,
        limits: Mapping[str, float] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> RunHandle:
        """Starts a run of one of the agents. `input` is a text, or items of the Responses API. The
        same `key` gives the same run. `limits` can only be lower than those of the agent. Raises
        UnknownAgent, ClientError, StoreError."""
        name = agent.definition.name if isinstance(agent, Agent) else agent
        runtime = self._open_runtime
        id = await runtime.start(name, input, key=key, limits=limits, metadata=metadata)
        return RunHandle(runtime, self._store, id)

    async def run(self, id: str) -> RunHandle:
        """A run that exists. Raises NotFound."""
        await self._open_runtime.row(id)
        return RunHandle(self._open_runtime, self._store, id)

    async def step(self, run: RunHandle) -> RunStep | None:
        """Performs the next action of a run, to its end: asks the model once, runs one call, or
        writes what was decided. Returns what it did; None if there is nothing to do, since the run
        has ended or waits for somebody. For tests and debuggers, with `work=False`. Raises RunBusy
        if somebody else works on the run."""
        runtime = self._open_runtime
        before = (await runtime.row(run.id)).seq
        action = await runtime.step(run.id)
        if action is None:
            return None
        entries = [_entry(event) for event in await self._store.run_events(run.id, before)]
        return RunStep(action, tuple(entries))


def _entry(event: RunEvent) -> LogEntry:
    fields = _read_fields(event.body)
    fields.pop("kind", None)
    return LogEntry(event.seq, event.at, event.kind, fields)


def _config(name: str, options: UpstreamOptions) -> UpstreamConfig:
    """The upstream with these options. Raises ArgumentValueError, ArgumentTypeError."""
    if unknown := options.keys() - UpstreamOptions.__annotations__.keys():
        expected = ", ".join(UpstreamOptions.__annotations__)
        raise ArgumentTypeError(
            f"upstream {name}: unknown option {min(unknown)!r}; expected some of {expected}"
        )
    base_url, chosen = options.get("base_url"), options.get("preset")
    # With a base_url of its own, an upstream named `openai` may be any server.
    host = HOSTS.get(chosen or name) if chosen or base_url is None else None
    if host is None and (chosen or base_url is None):
        raise ArgumentValueError(f"upstream {name}: no preset {chosen or name!r}, and no base_url")
    dialect = options.get("dialect") or (host.dialect if host is not None else None)
    if dialect not in DIALECTS or DIALECTS[dialect].request is None:
        known = ", ".join(one.name for one in DIALECTS.values() if one.request is not None)
        raise ArgumentValueError(f"upstream {name}: dialect {dialect!r}; expected one of {known}")
    address = base_url or (host.base_url if host is not None else None)
    if address is None:
        raise ArgumentValueError(f"upstream {name}: base_url is missing")
    try:
        url = parse_base_url(address)
    except ValueError as error:
        raise ArgumentValueError(f"upstream {name}: base_url: {error}") from None
    key = options.get("api_key")
    if key is None and host is not None and host.variable is not None:
        key = os.environ.get(host.variable)
    fits = host is not None and host.dialect == dialect
    return UpstreamConfig(
        name=name,
        dialect=DIALECTS[dialect].name,
        base_url=url.url,
        key=Secret(key) if key else None,
        quirks=options.get("quirks") or (host.quirks if host is not None and fits else None),
        headers={name.lower(): value for name, value in options.get("headers", {}).items()},
        origin=url.origin,
    )


def _upstream(config: UpstreamConfig) -> Upstream:
    if config.origin == "demo":
        return DemoUpstream(config)
    try:
        module = import_module(HTTP)
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.startswith("weft"):
            raise
        raise ArgumentValueError(
            f"upstream {config.name} needs an extra: pip install 'weft[gateway]' "
            f"({missing.name} is missing)"
        ) from None
    upstream: Upstream = module.HttpUpstream(config)
    return upstream


async def _repeat(pause: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await work()
        except StoreError as error:
            log.warning("store error: %s", error)
        await asyncio.sleep(pause)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
