"""The agent runtime: starts runs, takes what comes from outside, and works on what is due.

A run belongs to nobody. Any process with the same store may start it, work on it, approve a call or
cancel it; the lease says who works on it at the moment, and its log is all there is of it. A run
that waits for somebody costs no task and no memory.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Literal

import msgspec
from msgspec import Raw

from weft.agent.agents import Agent, with_children
from weft.agent.children import beside_end, parent_of, receipt
from weft.agent.claimed_run import LeaseLost
from weft.agent.conversations import conversation_update, with_conversation
from weft.agent.decide import Action
from weft.agent.dispatch import RUNS, Advance, Dispatcher, LocalDispatcher
from weft.agent.driver import RunDriver
from weft.agent.environment import Models, RunEnvironment, RunObserver
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
    RunFailed,
    Scope,
    decode_event,
    encode_event,
    text_result,
)
from weft.agent.followers import Follower, RunFollowers
from weft.agent.lifecycle import PARKED
from weft.agent.merge import CallProgress
from weft.agent.results import cut
from weft.agent.state import IllegalEvent, RunState
from weft.agent.status import status_of
from weft.agent.tool_execution import ToolThreads
from weft.agent.tool_spec import ToolSpec
from weft.agent.tools import AgentTool
from weft.codec import fresh_context
from weft.errors import ClientError
from weft.store.base import NotFound, Store, StoreError
from weft.store.queries import Beside, Queries
from weft.store.records import NewEvent, NewRun, RunAppend, RunEvent, RunRow

DEFAULT_PATIENCE = 7 * 86400.0
"""Seconds for which a run may be due while no process has its agent; then it ends."""

START_GRACE = 600.0
"""Seconds after its start in which a process does not yet count an agent as missing."""

MAX_MESSAGES = 256
"""Messages during one run: while it waits for somebody, no other limit counts them."""

log = logging.getLogger("weft.agent")
_SCOPES: tuple[Scope, ...] = ("call", "tool", "run")
_json = msgspec.json.Encoder().encode


class _CallEvent(msgspec.Struct):
    """What is read of an event about a call."""

    call: str = ""


_read_call = msgspec.json.Decoder(_CallEvent).decode
_CALL_ENDS = frozenset({"call.finished", "call.parked", "approval.requested"})
"""Kinds of events after which a call has no progress to show."""


class UnknownAgent(ClientError):
    """No agent has this name."""


class KeyReused(ClientError):
    """An idempotency key that belongs to another request."""


class IllegalFork(ClientError):
    """A run cannot be forked there; the message says where it can."""


class RunBusy(ClientError):
    """Somebody works on the run."""


class AgentRuntime:
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
        observers: Sequence[RunObserver] = (),
        patience: float = DEFAULT_PATIENCE,
    ) -> None:
        """The store is open and has a lease (`take_lease`), and somebody renews it. `lease` is that
        of a run: after this many seconds without a renewal another process takes over. At most
        `concurrency` runs are worked on at the same time. The dispatcher, by default a local one,
        is closed by the caller. A run that is due for `patience` seconds, and whose agent nobody
        has, ends. Agents that are tools of these are there by themselves. Raises
        ArgumentValueError if two have the same name."""
        self.agents = with_children(agents)
        self._store = store
        self._threads = ToolThreads(threads)
        self._dispatcher = dispatcher or LocalDispatcher(store)
        self._drivers: dict[str, RunDriver] = {}
        self._followers = RunFollowers(store, self._drivers.__contains__)
        wake = partial(self._dispatcher.wake, RUNS)
        self._environment = RunEnvironment(
            store,
            models,
            self._tools,
            self._threads,
            wake,
            hint=self._hint,
            appended=self.wake,
            progress=self._followers.progress,
            lease=lease,
            observers=observers,
        )
        self._slots = asyncio.Semaphore(concurrency)
        self._tasks: dict[str, asyncio.Task[float | None]] = {}
        self._again: set[str] = set()
        """Runs to look at again: something came when their driver had already released them."""
        self._patience = patience
        self._since = time.monotonic()
        """When this process began to look for runs."""
        self._draining = False
        self._stop = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self.queues: dict[str, Advance] = {RUNS: self._handle}
        """What the dispatcher serves in this process; to be changed before it starts."""

    async def __aenter__(self) -> "AgentRuntime":
        self._serving = asyncio.create_task(
            self._dispatcher.serve(self.queues, self._stop, self._due_runs)
        )
        self._since = time.monotonic()
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
        await self._followers.close()
        self._threads.shutdown(wait=False)

    @property
    def is_draining(self) -> bool:
        return self._draining

    def drain(self) -> None:
        """Ends all `events` and `follow` iterators: their clients can continue with another
        process."""
        self._draining = True
        self._followers.notify_all()

    # Runs

    async def start(
        self,
        agent: str,
        input: str | Sequence[object],
        *,
        owner: str = "",
        key: str | None = None,
        limits: Mapping[str, object] | None = None,
        metadata: Mapping[str, str] | None = None,
        client_tools: Sequence[ToolSpec] = (),
        conversation: str | None = None,
        request: str = "",
        traceparent: str = "",
    ) -> str:
        """Starts a run; returns its id. `input` is a text, or items of the Responses API.
        `client_tools` join those of the agent; the client runs them. In a `conversation` of the
        owner, its items come first, and the run is added to it when it ends. The same `key` of the
        same owner gives the same run, if the digests `request` of both are equal. `traceparent` is
        the span that starts it, if that is traced. Raises UnknownAgent, UnknownConversation,
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
        items, before = _items(input), 0
        if conversation is not None:
            items, before = await with_conversation(self._store, owner, conversation, agent, items)
        created = RunCreated(
            definition,
            tuple(items),
            owner,
            None,
            dict(metadata or {}),
            request,
            conversation=conversation,
            before=before,
            traceparent=traceparent,
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
        state, legal = RunState(id), []
        for event in events:
            state.apply(decode_event(event.body), event.at)
            if state.is_settled and state.end is None:
                legal.append(event.seq)
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
        # Its beginning is in the conversation already, or will be. And nobody has called it: the
        # receipt for the caller is that of the run itself.
        created = msgspec.structs.replace(
            first, request=f"fork {origin}", forked=origin, conversation=None, parent=None
        )
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
        async for event in self.follow(id, after):
            if isinstance(event, RunEvent):
                yield event

    async def follow(self, id: str, after: int = 0) -> AsyncIterator[RunEvent | CallProgress]:
        """As `events`, with the progress of calls that this process runs: after the intent of a
        call, and before its receipt."""
        with self._followers.following([id]) as follower:
            while True:
                follower.appended.clear()
                # Taken before the log is read: so the log has the intents of these calls.
                progress = [*follower.progress]
                follower.progress.clear()
                row = await self._store.run(id)
                async for event in self._events(id, after):
                    after = event.seq
                    if event.kind in _CALL_ENDS:
                        # Some may have come while the log was read, with this receipt behind them.
                        progress += follower.take(call := _read_call(event.body).call)
                        for one in progress:
                            if one.call == call:
                                yield one
                        progress = [one for one in progress if one.call != call]
                    yield event
                for one in progress:
                    yield one
                if row is None or (row.ended is not None and row.seq <= after) or self._draining:
                    return
                await follower.appended.wait()

    def following(self, ids: Collection[str]) -> AbstractContextManager[Follower]:
        """Notifies of events that are appended to these runs, here or elsewhere, and of `drain`."""
        return self._followers.following(ids)

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
        """Approves or denies a call. The same decision again changes nothing. Raises NotFound, and
        IllegalEvent if it was decided otherwise, or with a narrower scope."""

        def event(state: RunState) -> AnyRunEvent | None:
            for call in state.calls.values():
                if call.approval is not None and call.approval.approval == approval:
                    was = call.decision
                    # A call may be asked about twice: also when its tool has changed.
                    if was is None or was.approval != approval:
                        return ApprovalDecided(approval, call.id, approved, by, reason, scope)
                    word = "approved" if was.approved else "denied"
                    if was.approved != approved:
                        raise IllegalEvent(f"the call has already been {word}, by {was.by}")
                    if approved and _SCOPES.index(scope) > _SCOPES.index(was.scope):
                        # Not silently: whoever approves the tool expects not to be asked again.
                        raise IllegalEvent(
                            f"the call has already been approved, by {was.by}, "
                            f"with scope {was.scope}"
                        )
                    return None
            raise NotFound(f"no approval {approval[:200]!r} in run {id[:200]!r}")

        await self._post(id, owner, event)

    async def submit_outputs(
        self, id: str, outputs: Sequence[CallOutput], *, owner: str | None = None
    ) -> None:
        """Submits the results of calls that the client runs. The same outputs again change nothing.
        Raises NotFound, IllegalEvent."""

        def event(state: RunState) -> AnyRunEvent | None:
            limit = state.definition.limits.result
            given = [CallOutput(one.call, cut(one.result, limit), one.is_error) for one in outputs]
            known = {one.call: state.calls.get(one.call) for one in given}
            same = all(
                call is not None
                and call.was_submitted
                and (call.result, call.is_error) == (one.result, one.is_error)
                for one in given
                for call in (known[one.call],)
            )
            return None if given and same else OutputsSubmitted(tuple(given))

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
        """Settles a call whose outcome is unknown. The same decision again changes nothing. Raises
        NotFound, IllegalEvent."""
        contents = text_result(result) if isinstance(result, str) else result

        def event(state: RunState) -> AnyRunEvent | None:
            result = cut(contents, state.definition.limits.result)
            resolved = CallResolved(call, action, by, result, is_error)
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
        """Adds a message of the user while the agent works. The same `key` again changes nothing.
        Raises NotFound, and IllegalEvent after MAX_MESSAGES."""
        [item] = _items(message if isinstance(message, str) else [message])

        def event(state: RunState) -> AnyRunEvent | None:
            if key and key in state.message_keys:
                return None
            if len(state.messages) >= MAX_MESSAGES:
                raise IllegalEvent(f"the run has {MAX_MESSAGES} messages, which is the limit")
            return MessageAdded(item, key)

        await self._post(id, owner, event)

    async def cancel(self, id: str, *, by: str, reason: str = "", owner: str | None = None) -> None:
        """Ends a run. One that has ended stays as it is. Raises NotFound."""

        def event(state: RunState) -> AnyRunEvent | None:
            return RunCancelled(by, reason) if state.end is None else None

        await self._post(id, owner, event)

    async def _post(
        self, id: str, owner: str | None, make: Callable[[RunState], AnyRunEvent | None]
    ) -> None:
        """Appends what `make` returns for the state of the run, if that is legal there. The process
        that works on the run may append at the same time; then `make` is called again with the
        new state."""
        while True:
            state = await self.state(id, owner)
            event = make(state)
            if event is None:
                return
            seq = state.seq
            state.apply(event, 0.0)
            others: list[str] = []
            beside = self._hint(id)
            if state.end is not None:
                finished = None
                if state.parent is not None:
                    # Without the time since its last event, which only the database knows.
                    finished = receipt(state, state.end, "", 0.0)
                also = await conversation_update(self._store, state)
                beside = beside_end(state, finished, self._hint, others, also)
            append = RunAppend(
                run=id,
                at=seq,
                events=[(event.kind, encode_event(event))],
                status=status_of(event),
                due=None if state.end is not None else 0.0,
                ended=state.end is not None,
                parent=None if state.end is None else parent_of(state),
                beside=beside,
            )
            written = await self._store.append_run(append)
            if written.outcome == "missing":
                raise NotFound(f"no run {id[:200]!r}")
            if written.outcome == "written":
                for observer in self._environment.observers:
                    observer(state, event, written.at)
                for one in (id, *others):
                    self.wake(one)
                return

    # Working

    def wake(self, id: str) -> None:
        """Looks at the run in this process, unless another one works on it."""
        self._followers.notify(id)
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
        after = self._environment.lease if takes else 0.0

        def beside(seq: int) -> Queries[None]:
            return self._dispatcher.wake(RUNS, id, str(seq), after)

        return beside

    async def advance(self, id: str) -> float | None:
        """Works on a run until it ends or waits. Returns the seconds after which somebody must look
        at it again: another process works on it or has its agent, or an approval expires. None:
        nobody need."""
        row = await self._store.run(id)
        # A run that has ended while it was leased must be claimed nevertheless, to end the lease.
        if row is None or (row.ended is not None and not row.until):
            return None
        failure = None
        if row.ended is None and row.agent not in self.agents:
            # Without its tools the run would go on, and every call would be refused: another
            # process may have them. A process that has just started may have them soon.
            is_new = time.monotonic() - self._since < min(START_GRACE, self._patience)
            if is_new or await self._store.overdue(id) < self._patience:
                return self._environment.lease
            days = self._patience / 86400
            failure = RunFailed(
                "unavailable", f"no server has had agent {row.agent!r} for {days:g} days"
            )
        sent = time.monotonic()
        claim = await self._store.claim_run(id, self._environment.lease)
        if claim.outcome == "missing":
            return None
        if claim.outcome == "held":
            return claim.wait
        idle = claim.overdue if failure is None else 0.0
        driver = self._drivers[id] = RunDriver(
            self._environment, id, claim.epoch, sent, self._followers.notify, idle
        )
        if self._stop.is_set():
            driver.stop()
        try:
            return await driver.drive(failure)
        finally:
            del self._drivers[id]

    async def _due_runs(self, limit: int) -> list[str]:
        """Only of agents that this process has, or nobody has for long: other runs that are due
        could fill the whole list."""
        return await self._store.due_runs(limit, [*self.agents], self._patience)

    async def step(self, id: str) -> Action | None:
        """Performs one action of a run and waits for its end, if nobody works on the run. Returns
        the action; None if there is nothing to do: the run has ended, or waits. Raises NotFound,
        RunBusy, StoreError."""
        await self.row(id)
        sent = time.monotonic()
        claim = await self._store.claim_run(id, self._environment.lease)
        if claim.outcome != "claimed":
            raise RunBusy(
                f"run {id[:200]!r}: another process is working on it; a step needs it alone"
            )
        try:
            driver = RunDriver(
                self._environment, id, claim.epoch, sent, self._followers.notify, claim.overdue
            )
            return await driver.step()
        except LeaseLost:
            raise RunBusy(f"run {id[:200]!r} was taken over during the step") from None

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
            return self._environment.lease  # this process may die
        return await asyncio.shield(self._begin(id))

    def _begin(self, id: str) -> "asyncio.Task[float | None]":
        task = self._tasks[id] = asyncio.create_task(self._work_on(id))
        return task

    async def _work_on(self, id: str) -> float | None:
        """As `advance`, again if something came when the driver had released the run, and without
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
            self._followers.notify(id)
        return self._environment.lease  # it expires, and somebody takes the run over

    def _tools(self, agent: str) -> Mapping[str, AgentTool]:
        found = self.agents.get(agent)
        return {} if found is None else found.tools


def _items(input: str | Sequence[object]) -> list[Raw]:
    if isinstance(input, str):
        input = [{"type": "message", "role": "user", "content": input}]
    return [Raw(_json(one)) for one in input]
