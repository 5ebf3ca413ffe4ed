"""The agent runtime: starts runs, takes what comes from outside, and works on what is due.

A run belongs to nobody. Any process with the same store may start it, work on it, approve a call or
cancel it; the lease says who works on it at the moment, and its log is all there is of it. A run
that waits for somebody costs no task and no memory.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Literal

import msgspec
from msgspec import Raw

from weft.agent.definition import AgentDefinition, Limits
from weft.agent.dispatch import RUNS, Dispatcher, LocalDispatcher
from weft.agent.driver import STATUS, Models, RunDriver, Workshop
from weft.agent.events import (
    AnyRunEvent,
    ApprovalDecided,
    CallOutput,
    CallResolved,
    Contents,
    MessageAdded,
    OutputsSubmitted,
    RunCancelled,
    RunCreated,
    Scope,
    decode_event,
    encode_event,
    text_result,
)
from weft.agent.lifecycle import PARKED
from weft.agent.state import RunState
from weft.agent.tool_spec import ToolSpec
from weft.agent.tools import AgentTool, tool_of
from weft.codec import fresh_context
from weft.errors import ArgumentValueError, ClientError
from weft.store.base import NotFound, Store, StoreError
from weft.store.queries import Beside, Queries
from weft.store.records import NewEvent, NewRun, RunAppend, RunEvent, RunRow

FOLLOW = 0.2
"""Seconds between two looks for the events of a run that another process works on."""

log = logging.getLogger("weft.agent")
_json = msgspec.json.Encoder().encode


class UnknownAgent(ClientError):
    """No agent has this name."""


class KeyReused(ClientError):
    """An idempotency key that belongs to another request."""


class IllegalFork(ClientError):
    """A run cannot be forked there; the message says where it can."""


class Agent:
    """An agent with its tools: functions with `@weft.tool`, or tools of MCP servers."""

    def __init__(
        self,
        name: str,
        model: str,
        instructions: str = "",
        tools: Iterable[object] = (),
        *,
        limits: Limits | None = None,
        approval: Mapping[str, Literal["never", "always"]] | None = None,
        on_interrupt: Literal["retry", "fail"] = "retry",
        on_ambiguous: Literal["park", "tell-model"] = "park",
    ) -> None:
        """`approval` overrides what the tools say of themselves, by their names."""
        found: list[AgentTool] = [
            one if hasattr(one, "spec") else tool_of(one)  # type: ignore[misc]
            for one in tools
        ]
        self.tools = {one.spec.name: one for one in found}
        if len(self.tools) < len(found):
            raise ArgumentValueError(f"agent {name}: two of its tools have the same name")
        wished = dict(approval or {})
        specs = [
            msgspec.structs.replace(one.spec, approval=wished.pop(one.spec.name, one.spec.approval))
            for one in found
        ]
        if wished:
            unknown = ", ".join(wished)
            raise ArgumentValueError(
                f"agent {name}: approval for tools it does not have: {unknown}"
            )
        self.definition = AgentDefinition(
            name,
            model,
            instructions,
            tuple(specs),
            limits or Limits(),
            on_interrupt,
            on_ambiguous,
        )


class Runtime:
    """The runs of one store, in one process; `async with` starts and stops its work."""

    def __init__(
        self,
        store: Store,
        agents: Iterable[Agent],
        models: Models,
        *,
        lease: float = 15.0,
        concurrency: int = 64,
        threads: int = 32,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        """The store is open and has a lease (`take_lease`), and somebody renews it. `lease` is that
        of a run: after so many seconds without a sign of life another process takes over. At most
        `concurrency` runs are worked on at the same time. The dispatcher, by default a local one,
        is closed by the caller."""
        self.agents = {agent.definition.name: agent for agent in agents}
        self._store = store
        self._threads = ThreadPoolExecutor(threads, "weft-tool")
        self._dispatcher = dispatcher or LocalDispatcher(store)
        wake = partial(self._dispatcher.wake, RUNS)
        self._shop = Workshop(store, models, self._tools, self._threads, wake, lease)
        self._slots = asyncio.Semaphore(concurrency)
        self._drivers: dict[str, RunDriver] = {}
        self._tasks: dict[str, asyncio.Task[float | None]] = {}
        self._again: set[str] = set()
        """Runs that must be looked at once more: something came when their driver had let go."""
        self._followers: dict[str, set[asyncio.Event]] = {}
        """Each is set when the run has new events, as far as this process knows."""
        self._draining = False
        self._stop = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Runtime":
        work = {RUNS: self._handle}
        self._serving = asyncio.create_task(self._dispatcher.serve(work, self._stop))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Lets running calls end, and gives all runs back."""
        self.drain()
        self._stop.set()
        for driver in self._drivers.values():
            driver.stop()
        if self._tasks:
            await asyncio.wait([*self._tasks.values()])
        if self._serving is not None:
            await self._serving
        self._threads.shutdown(wait=False)

    def drain(self) -> None:
        """Ends all `events`, wherever they are: whoever follows a run can go on elsewhere."""
        self._draining = True
        for id in self._followers:
            self._notify(id)

    # Runs

    async def start(
        self,
        agent: str,
        input: str | Sequence[object],
        *,
        owner: str = "",
        key: str | None = None,
        limits: Mapping[str, object] | None = None,
        parent: str | None = None,
        metadata: Mapping[str, str] | None = None,
        client_tools: Sequence[ToolSpec] = (),
        request: str = "",
    ) -> str:
        """Starts a run; returns its id. `input` is a text, or items of the Responses API.
        `client_tools` join those of the agent; the client runs them. The same `key` of the same
        owner gives the same run, if the digests `request` of both are equal. Raises UnknownAgent,
        KeyReused, ClientError, StoreError."""
        found = self.agents.get(agent)
        if found is None:
            known = ", ".join(self.agents) or "none"
            raise UnknownAgent(f"no agent {agent[:200]!r}; expected one of: {known}")
        definition = found.definition
        if limits:
            lowered = definition.limits.lowered(limits)
            definition = msgspec.structs.replace(definition, limits=lowered)
        if client_tools:
            taken = {tool.name for tool in definition.tools}
            for one in client_tools:
                if one.name in taken:
                    raise ClientError(f"tools: there is a tool {one.name!r} already")
                taken.add(one.name)
            all_tools = (*definition.tools, *client_tools)
            definition = msgspec.structs.replace(definition, tools=all_tools)
        created = RunCreated(
            definition, _items(input), owner, parent, dict(metadata or {}), request
        )
        return await self._create(created, [], key)

    async def fork(
        self, id: str, after: int, *, owner: str | None = None, key: str | None = None
    ) -> str:
        """Starts a run that goes on from the first `after` events of another, and returns its id.
        No effect is repeated: it can only begin where all calls have their results. Raises
        NotFound, IllegalFork, KeyReused, StoreError."""
        await self.row(id, owner)
        events = [event async for event in self._events(id, 0)]
        legal = _forkable(id, events)
        if after not in legal:
            near = [one for one in legal if one > after][:3] or legal[-3:]
            raise IllegalFork(
                f"run {id[:200]!r} cannot be forked after event {after}: there must be such an "
                "event, nothing may be under way after it, and it must not be the end; "
                f"possible are {', '.join(map(str, near)) or 'none'}"
            )
        first = decode_event(events[0].body)
        assert isinstance(first, RunCreated)  # by the fold
        origin = f"{id}/{after}"
        created = msgspec.structs.replace(first, request=f"fork {origin}", forked=origin)
        return await self._create(created, [(one.kind, one.body) for one in events[1:after]], key)

    async def _create(self, created: RunCreated, rest: list[NewEvent], key: str | None) -> str:
        """Stores a run with its first events, unless one with this key exists."""
        id = fresh_context().ids.mint("run")
        new = NewRun(
            id=id,
            owner=created.owner,
            agent=created.definition.name,
            status="running",
            events=[(created.kind, encode_event(created)), *rest],
            due=0.0,
            parent=created.parent,
            key=key,
            beside=self._hint(id),
        )
        id = await self._store.create_run(new)
        if id == new.id:
            self.wake(id)
            return id
        async for event in self._events(id, 0):
            earlier = decode_event(event.body)
            if isinstance(earlier, RunCreated) and earlier.request == created.request:
                break
            raise KeyReused(f"the idempotency key belongs to another request, that of run {id}")
        return id

    async def row(self, id: str, owner: str | None = None) -> RunRow:
        """What the store knows of a run. Raises NotFound, also for the run of another owner."""
        row = await (self._store.run(id) if owner is None else self._store.owned_run(owner, id))
        if row is None:
            raise NotFound(f"no run {id[:200]!r}")
        return row

    async def state(self, id: str, owner: str | None = None) -> RunState:
        """The state of a run. Raises NotFound, also for the run of another owner."""
        await self.row(id, owner)
        state = RunState(id)
        async for event in self._events(id, 0):
            state.apply(decode_event(event.body), event.at)
        return state

    async def events(self, id: str, after: int = 0) -> AsyncIterator[RunEvent]:
        """Yields the events of a run numbered above `after`, as they come, to its end or until
        `drain`."""
        appended = asyncio.Event()
        followers = self._followers.setdefault(id, set())
        followers.add(appended)
        try:
            while True:
                appended.clear()
                row = await self._store.run(id)
                async for event in self._events(id, after):
                    after = event.seq
                    yield event
                if row is None or (row.ended is not None and row.seq <= after) or self._draining:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(FOLLOW):
                        await appended.wait()
        finally:
            followers.discard(appended)
            if not followers:
                self._followers.pop(id, None)

    async def _events(self, id: str, after: int) -> AsyncIterator[RunEvent]:
        while events := await self._store.run_events(id, after):
            for event in events:
                yield event
            after = events[-1].seq

    # From outside

    async def decide_approval(
        self,
        id: str,
        approval: str,
        approved: bool,
        *,
        by: str,
        reason: str = "",
        scope: Scope = "call",
        owner: str | None = None,
    ) -> None:
        """Approves or denies a call. To say the same again changes nothing. Raises NotFound, and
        IllegalEvent if it was decided otherwise."""

        def event(state: RunState) -> AnyRunEvent | None:
            for call in state.calls.values():
                if call.approval is not None and call.approval.approval == approval:
                    decision = ApprovalDecided(approval, call.id, approved, by, reason, scope)
                    was = call.decision
                    return None if was is not None and was.approved == approved else decision
            raise NotFound(f"no approval {approval[:200]!r} in run {id[:200]!r}")

        await self._post(id, owner, event)

    async def submit_outputs(
        self, id: str, outputs: Sequence[CallOutput], *, owner: str | None = None
    ) -> None:
        """Gives the results of calls that the client runs. The same outputs again change nothing.
        Raises NotFound, IllegalEvent."""

        def event(state: RunState) -> AnyRunEvent | None:
            known = {one.call: state.calls.get(one.call) for one in outputs}
            same = all(
                call is not None
                and call.was_submitted
                and (call.result, call.is_error) == (one.result, one.is_error)
                for one in outputs
                for call in (known[one.call],)
            )
            return None if outputs and same else OutputsSubmitted(tuple(outputs))

        await self._post(id, owner, event)

    async def resolve(
        self,
        id: str,
        call: str,
        action: Literal["done", "retry", "abandon"],
        *,
        by: str,
        result: str | Contents = (),
        is_error: bool = False,
        owner: str | None = None,
    ) -> None:
        """Settles a call of which it is unknown whether it has happened. To say the same again
        changes nothing. Raises NotFound, IllegalEvent."""
        contents = text_result(result) if isinstance(result, str) else result
        resolved = CallResolved(call, action, by, contents, is_error)

        def event(state: RunState) -> AnyRunEvent | None:
            found = state.calls.get(call)
            was = found.resolution if found is not None and found.state is not PARKED else None
            same = was is not None and msgspec.structs.replace(was, by=by) == resolved
            return None if same else resolved

        await self._post(id, owner, event)

    async def add_message(
        self,
        id: str,
        message: str | Mapping[str, object],
        *,
        key: str = "",
        owner: str | None = None,
    ) -> None:
        """Says something to the agent while it works. The same `key` again changes nothing. Raises
        NotFound, IllegalEvent."""
        [item] = _items(message if isinstance(message, str) else [message])

        def event(state: RunState) -> AnyRunEvent | None:
            return None if key and key in state.message_keys else MessageAdded(item, key)

        await self._post(id, owner, event)

    async def cancel(self, id: str, *, by: str, reason: str = "", owner: str | None = None) -> None:
        """Ends a run. One that has ended stays as it is. Raises NotFound."""

        def event(state: RunState) -> AnyRunEvent | None:
            return RunCancelled(by, reason) if state.end is None else None

        await self._post(id, owner, event)

    async def _post(
        self, id: str, owner: str | None, make: Callable[[RunState], AnyRunEvent | None]
    ) -> None:
        """Appends what `make` returns for the state of the run, if that is legal there. Whoever
        works on the run may append at the same time: then the state is another, and so may be
        what `make` returns."""
        while True:
            state = await self.state(id, owner)
            event = make(state)
            if event is None:
                return
            seq = state.seq
            state.apply(event, 0.0)
            append = RunAppend(
                run=id,
                at=seq,
                events=[(event.kind, encode_event(event))],
                status=STATUS.get(event.kind, "running"),
                due=None if state.end is not None else 0.0,
                ended=state.end is not None,
                beside=None if state.end is not None else self._hint(id),
            )
            written = await self._store.append_run(append)
            if written.outcome == "missing":
                raise NotFound(f"no run {id[:200]!r}")
            if written.outcome == "written":
                self.wake(id)
                return

    # Working

    def wake(self, id: str) -> None:
        """Somebody must look at the run: this process does, unless another one works on it."""
        self._notify(id)
        if id in self._tasks:
            driver = self._drivers.get(id)
            # One without a driver has read nothing yet.
            if driver is not None and not driver.wake():
                self._again.add(id)
        elif self._serving is not None and not self._stop.is_set():
            self._begin(id)

    def _hint(self, id: str) -> Beside:
        """The hint for other processes that goes with an event of this one. If this process has
        room, it works on the run itself, and the hint is for the case that it dies."""
        takes = self._serving is not None and not self._stop.is_set() and not self._slots.locked()
        after = self._shop.lease if takes else 0.0

        def beside(seq: int) -> Queries[None]:
            return self._dispatcher.wake(RUNS, id, str(seq), after)

        return beside

    async def advance(self, id: str) -> float | None:
        """Works on a run until it ends or waits. Returns the seconds after which somebody must look
        at it again: another process works on it or has its agent, or an approval expires. None:
        nobody need."""
        row = await self._store.run(id)
        # One that has ended under somebody's lease must be claimed all the same, to end the lease.
        if row is None or (row.ended is not None and not row.until):
            return None
        # Without its tools the run would go on, and every call be refused: another process may have
        # them, or this one soon.
        if row.ended is None and row.agent not in self.agents:
            return self._shop.lease
        sent = time.monotonic()
        claim = await self._store.claim_run(id, self._shop.lease)
        if claim.outcome == "missing":
            return None
        if claim.outcome == "held":
            return claim.wait
        driver = self._drivers[id] = RunDriver(self._shop, id, claim.epoch, sent, self._notify)
        if self._stop.is_set():
            driver.stop()
        try:
            return await driver.drive()
        finally:
            del self._drivers[id]

    async def join(self, id: str) -> None:
        """Returns when this process does not work on the run any more."""
        task = self._tasks.get(id)
        if task is not None:
            await asyncio.wait({task})

    async def _handle(self, id: str) -> float | None:
        """Follows a hint of the dispatcher."""
        if self._stop.is_set():
            return 0.0
        if id in self._tasks:
            self.wake(id)
            return self._shop.lease  # this process may die
        return await asyncio.shield(self._begin(id))

    def _begin(self, id: str) -> "asyncio.Task[float | None]":
        task = self._tasks[id] = asyncio.create_task(self._work_on(id))
        return task

    async def _work_on(self, id: str) -> float | None:
        """As `advance`, once more if something came when the driver had let go, and without
        raising. Nothing is awaited between the last look at `_again` and the end."""
        try:
            async with self._slots:
                while not self._stop.is_set():
                    self._again.discard(id)
                    after = await self.advance(id)
                    if id not in self._again:
                        return after
            return 0.0
        except StoreError as error:
            log.warning("run %s: %s", id, error)
        except Exception:
            log.exception("run %s: internal error", id)
        finally:
            self._again.discard(id)
            del self._tasks[id]
            self._notify(id)
        return self._shop.lease  # it expires, and somebody takes the run over

    def _notify(self, id: str) -> None:
        for appended in self._followers.get(id, ()):
            appended.set()

    def _tools(self, agent: str) -> Mapping[str, AgentTool]:
        found = self.agents.get(agent)
        return {} if found is None else found.tools


def _forkable(id: str, events: Sequence[RunEvent]) -> list[int]:
    """The events after which the run can be forked, by their numbers."""
    state, found = RunState(id), []
    for event in events:
        state.apply(decode_event(event.body), event.at)
        if state.is_settled and state.end is None:
            found.append(event.seq)
    return found


def _items(input: str | Sequence[object]) -> tuple[Raw, ...]:
    if isinstance(input, str):
        input = [{"type": "message", "role": "user", "content": input}]
    return tuple(Raw(_json(one)) for one in input)
