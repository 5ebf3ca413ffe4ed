"""Works on one run, for as long as this process holds its lease.

The driver performs the actions that `decide` returns, and decides nothing itself. Turns and calls
are tasks of their own, so a slow tool delays no other call. When the lease is lost everything
stops. A call that goes on for a moment has its intent in the log and no receipt, and the process
that takes the run over treats it as such.

A bug, here or in a tool's declaration, is an event too: after a few of them the run fails, instead
of being taken up again each time a lease expires.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager

from msgspec import Raw

from weft.agent.children import AGENT, NO_BUDGET, WEFT, ChildTool, new_child
from weft.agent.claimed_run import ClaimedRun, LeaseLost, UnreadableLog, new_event
from weft.agent.conversations import conversation_update, load_outputs
from weft.agent.decide import (
    LEFT_BEHIND,
    TURN,
    Action,
    DispatchCall,
    ExpireApproval,
    FailRun,
    FinishRun,
    InterruptTurn,
    LookUpCall,
    ParkCall,
    RefuseCall,
    RequestApproval,
    SettleCall,
    StartTurn,
    WaitOutside,
    decide,
    due,
)
from weft.agent.environment import RunEnvironment, TurnRequest
from weft.agent.events import (
    AnyRunEvent,
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallIntended,
    CallParked,
    CallRefused,
    CallResolved,
    Contents,
    LimitReached,
    RunErrored,
    RunFailed,
    RunFinished,
    RunResumed,
    TurnFinished,
    TurnInterrupted,
    TurnStarted,
    encode_event,
    joined_text,
    text_result,
)
from weft.agent.gate import judge
from weft.agent.results import MAX_REASON, cut
from weft.agent.run_trace import turn_span
from weft.agent.state import Call
from weft.agent.tool_spec import Ambiguous, Changed, Finished, NotDone, ToolSpec
from weft.agent.tools import AgentTool, Arguments, BadArguments, PythonTool, ToolContext
from weft.agent.turns import output_text, render_turn
from weft.assembler import Response
from weft.codec import fresh_context
from weft.prices import dollars
from weft.relay.metering import plausible
from weft.store.base import EVENT_SIZE, AlreadyExists, StoreError
from weft.store.queries import Queries
from weft.store.records import Ending, NewEvent, RunAppend, RunWrite

GRACE = 10.0
"""Seconds that running calls have to end when the process stops."""

OUTCOME_UNKNOWN = "The outcome of this call is unknown: verify it before you go on."
TOOL_UNAVAILABLE = "Not run: this tool is no longer available."
MAX_ERRORS = 3
"""Internal errors that a run survives, less one."""

log = logging.getLogger("weft.agent")


class RunDriver:
    """Performs the actions of one run that this process has claimed."""

    def __init__(
        self,
        environment: RunEnvironment,
        id: str,
        epoch: int,
        claimed: float,
        notify: Callable[[str], None],
        idle: float = 0.0,
    ) -> None:
        """As ClaimedRun. `idle`: the seconds for which nobody worked on the run, although somebody
        had to."""
        self._run = ClaimedRun(environment, id, epoch, claimed, notify)
        self.state = self._run.state
        self._environment = environment
        self._idle = idle
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """What runs here: the turn under TURN, and calls by their ids."""
        self._outputs: dict[str, list[Raw]] = {}
        """Output items of finished turns, by response."""
        self._failure: Exception | None = None
        """An internal error of a task."""
        self._stopping = False
        self._is_released = False

    def wake(self) -> bool:
        """Something was appended from outside. Returns False if the driver will not look at it: it
        has given the run back, or lost it."""
        self._run.set_stale()
        return not self._is_released and self._run.lost is None

    def stop(self) -> None:
        """Lets running calls end, starts nothing, and gives the run back."""
        self._stopping = True
        self._run.changed.set()

    async def drive(self, failure: RunFailed | None = None) -> float | None:
        """Works until the run ends, waits for somebody, or is lost. With a `failure` it ends at
        once. Returns the seconds after which a process must look at it again; None if none
        must."""
        try:
            async with self._holding():
                await self._begin()
                if failure is not None:
                    await self._end(failure)
                return await self._work()
        except LeaseLost:
            # Not None: the process that holds the lease may die, and then another must take over.
            return self._environment.lease
        except UnreadableLog as error:
            log.error("run %s: %s", self.state.id, error)
            return self._environment.lease
        except StoreError:
            raise
        except Exception as error:
            log.exception("run %s: internal error", self.state.id)
            return await self._fail(error)

    async def step(self) -> Action | None:
        """Performs the first action that `decide` returns, waits for its end, and gives the run
        back. Returns the action; None if there is nothing to do: the run has ended, or waits.
        Raises LeaseLost, StoreError."""
        async with self._holding():
            await self._begin()
            action = next(iter(decide(self.state, self._run.now)), None)
            if action is not None:
                await self._perform(action)
            while self._tasks:
                await asyncio.wait([*self._tasks.values()])
            for problem in (self._run.lost, self._failure):
                if problem is not None:
                    raise problem
            self._stopping = True  # the next process may continue at once
            while not await self._run.release(self._due):
                pass
            return action

    @asynccontextmanager
    async def _holding(self) -> AsyncIterator[None]:
        """Renews the lease, and cancels at the end what is still running. Raises LeaseLost."""
        async with self._run.held():
            try:
                yield
            finally:
                self._is_released = True
                await self._cancel_tasks()

    async def _begin(self) -> None:
        """Reads the log, and writes down for how long nobody did: a run must not fail for the time
        in which its servers were down."""
        await self._run.refresh()
        state = self.state
        # Less than a lease is not worth an event: so long may pass before anybody takes over.
        if state.end is None and state.waiting is None and self._idle > self._environment.lease:
            await self._run.append(RunResumed(self._idle))

    async def _fail(self, error: Exception) -> float | None:
        """Counts an internal error, and ends the run if there were too many. Raises StoreError."""
        # Its message may have anything in it; the log of the process has it.
        name, count = type(error).__name__, self.state.errors + 1
        events: list[AnyRunEvent] = [RunErrored(name)]
        if count >= MAX_ERRORS:
            why = f"{count} internal errors, the last one {name}; the server's log has the details"
            events.append(RunFailed("internal", why))
        try:
            await self._run.append(*events)
            if self.state.end is not None and await self._run.release(self._due):
                return None
        except LeaseLost:
            pass
        return self._environment.lease  # it expires, and somebody takes the run over

    async def _work(self) -> float | None:
        while True:
            self._run.changed.clear()
            if self._run.lost is not None:
                raise self._run.lost
            if self._failure is not None:
                raise self._failure
            await self._run.refresh()
            if self.state.end is not None:
                await self._cancel_tasks()
            actions = [] if self._stopping else decide(self.state, self._run.now, self._tasks)
            for action in actions:
                await self._perform(action)
            if actions:
                continue
            if self._stopping and self._tasks:
                await asyncio.wait([*self._tasks.values()], timeout=GRACE)
                await self._cancel_tasks()
            if self._tasks:
                await self._run.changed.wait()
            elif await self._run.release(self._due):
                return 0.0 if self._stopping and self.state.end is None else self._due()

    def _due(self) -> float | None:
        when = None if self.state.end is not None else due(self.state)
        if self._stopping and self.state.end is None and self.state.waiting is None:
            return 0.0
        return None if when is None else max(0.0, when - self._run.now)

    async def _end(self, *events: AnyRunEvent) -> None:
        """Appends the last events of the run, and adds it to its conversation."""
        beside = await conversation_update(self._environment.store, self.state, self._outputs)
        await self._run.append(*events, beside=beside)

    # Actions

    async def _perform(self, action: Action) -> None:
        state, calls = self.state, self.state.calls
        match action:
            case StartTurn(turn, attempt, is_last):
                response = fresh_context().ids.mint("resp")
                if await self._run.append(TurnStarted(turn, attempt, response)):
                    self._start(TURN, self._turn(response, is_last))
            case InterruptTurn(turn, attempt):
                await self._run.append(TurnInterrupted(turn, attempt, LEFT_BEHIND))
            case RefuseCall(id):
                judged = calls[id].judged
                reason, text = judged.refusal or "limit", judged.text or "Not run: the run ends."
                await self._run.append(CallRefused(id, reason, text))
            case RequestApproval(id):
                await self._run.append(self._approval(calls[id]))
            case ExpireApproval(id):
                approval = calls[id].approval
                if approval is not None:
                    name, why = approval.approval, "nobody decided in time"
                    await self._run.append(ApprovalDecided(name, id, False, WEFT, why))
            case DispatchCall(id, attempt):
                await self._dispatch(calls[id], attempt)
            case LookUpCall(id):
                self._start(id, self._look_up(calls[id]))
            case ParkCall(id, why):
                await self._run.append(CallParked(id, why))
            case SettleCall(id):
                unknown = text_result(OUTCOME_UNKNOWN)
                await self._run.append(CallResolved(id, "done", WEFT, unknown, is_error=True))
            case WaitOutside(waiting, _):
                await self._run.append(waiting)
            case FinishRun(turn, reason):
                if state.parent is not None:
                    entry = await self._environment.store.entry(state.turns[-1].response)
                    body = b"" if entry is None or entry.body is None else entry.body
                    answer = text_result(output_text(body) if body else "")
                    self._run.answer = joined_text(cut(answer, state.definition.limits.result))
                await self._end(RunFinished(turn, reason))
            case FailRun(code, message, limit):
                reached = [LimitReached(limit, message)] if limit is not None else []
                await self._end(*reached, RunFailed(code, message))
        log.debug("run %s: %s", state.id, action)

    def _start(self, name: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[name] = task
        task.add_done_callback(lambda done: self._ended(name, done))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(name, None)
        self._run.changed.set()
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, LeaseLost):
            self._run.lost = error
        elif isinstance(error, StoreError):
            log.warning("run %s: %s", self.state.id, error)
        elif isinstance(error, Exception):
            self._failure = error

    async def _cancel_tasks(self) -> None:
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _approval(self, call: Call, definition: ToolSpec | None = None) -> ApprovalRequested:
        expires = self._run.now + self.state.definition.limits.approval
        name = fresh_context().ids.mint("appr")
        return ApprovalRequested(name, call.id, call.judged.digest, expires, definition)

    # Turns

    async def _turn(self, response: str, is_last: bool) -> None:
        state, turn = self.state, self.state.turn
        assert turn is not None
        await load_outputs(self._environment.store, state, self._outputs)
        body = render_turn(state, self._outputs, is_last=is_last)
        model = state.definition.model
        trace = turn_span(state, turn.number, turn.attempt)
        is_limited = state.definition.limits.cost is not None
        request = TurnRequest(state.id, model, state.owner, response, body, trace, is_limited)
        await self._environment.models.respond(request, self._finish_turn)

    async def _finish_turn(self, id: str, ending: Ending, response: Response) -> bool:
        """Ends the response and appends the receipt of the turn, in one transaction."""
        store = self._environment.store
        cost = dollars(ending.cost)

        def make() -> Sequence[AnyRunEvent] | None:
            return self._receipt(response, cost) if self.state.end is None else None

        if await self._run.commit(make, lambda append: store.finish_and_append(id, ending, append)):
            return True
        # The run was cancelled meanwhile: its response must end nevertheless.
        return self.state.end is not None and await store.finish(id, ending)

    def _receipt(self, response: Response, cost: float | None) -> tuple[AnyRunEvent, ...]:
        turn = self.state.turn
        assert turn is not None
        failure = response.error
        if failure is not None or response.finish_reason is None:
            why = "the response has no end" if failure is None else failure.message[:MAX_REASON]
            return (TurnInterrupted(turn.number, turn.attempt, why, cost or None),)
        calls = judge(self.state, response, self._needs_approval)
        finished = TurnFinished(
            turn.number,
            turn.attempt,
            response.finish_reason,
            has_text=bool(response.text or response.refusal),
            calls=tuple(calls),
            usage=response.usage and plausible(response.usage),
            cost=cost,
        )
        if len(encode_event(finished)) > EVENT_SIZE:
            why = f"the calls of the turn are larger than {EVENT_SIZE} bytes"
            return (TurnInterrupted(turn.number, turn.attempt, why, cost or None),)
        refused = [call for call in calls if call.verdict == "refused"]
        reasons = [CallRefused(one.id, one.refusal or "limit", one.text) for one in refused]
        return (finished, *reasons)

    @property
    def _tools(self) -> Mapping[str, AgentTool]:
        return self._environment.tools(self.state.definition.name)

    def _needs_approval(self, spec: ToolSpec, arguments: str) -> bool:
        tool = self._tools.get(spec.name)
        if tool is None:
            return spec.approval != "never"  # it is refused when it is dispatched
        decoded = tool.decode(arguments)
        if spec.approval == "predicate":
            return tool.needs_approval(decoded)
        return spec.approval == "always"

    # Calls

    async def _dispatch(self, call: Call, attempt: int) -> None:
        """Writes the intent, right before the call and never earlier, and starts it."""
        found, spec = self._tools.get(call.judged.name), call.tool
        if found is None or spec is None:
            await self._run.append(CallRefused(call.id, "unknown-tool", TOOL_UNAVAILABLE))
            return
        tool = found.pinned(spec)
        # Another definition than the one that the run was started with, or that somebody has
        # approved since, is a tool that nobody has agreed to.
        if tool.spec.digest != spec.digest:
            await self._run.append(self._approval(call, tool.spec))
            return
        try:
            arguments = tool.decode(call.judged.arguments)
        except BadArguments as error:  # the tool has changed since the gate
            why = f"Not run: {error}"[:MAX_REASON]
            await self._run.append(CallRefused(call.id, "bad-arguments", why))
            return
        if isinstance(tool, ChildTool):
            await self._start_child(call, tool, attempt)
            return
        context = self._context(call, attempt)
        if await self._run.append(
            CallIntended(call.id, attempt, context.key, self._environment.store.server)
        ):
            self._start(call.id, self._call(call, tool, arguments, context))

    async def _start_child(self, call: Call, tool: ChildTool, attempt: int) -> None:
        """Writes the intent, and creates the run that is the call, in one transaction."""
        state, budget = self.state, self.state.share(self._run.now)
        if budget is None:
            await self._run.append(CallRefused(call.id, "limit", NO_BUDGET))
            return
        id = fresh_context().ids.mint("run")
        child = new_child(state, call, tool, budget, id, self._environment.hint(id))
        key = f"{state.id}/{call.id}"
        try:
            intended = CallIntended(call.id, attempt, key, AGENT, id, budget)
            if await self._run.append(intended, child=child):
                self._environment.appended(id)
        except AlreadyExists:
            text = f"Not run: the idempotency key {key!r} belongs to another run."
            await self._run.append(CallRefused(call.id, "limit", text))

    def _context(self, call: Call, attempt: int) -> ToolContext:
        state, progress, id = self.state, self._environment.progress, call.id
        limits = state.definition.limits
        left = max(0.0, limits.active - state.used(self._run.now).active)

        async def report(text: str) -> None:
            progress(state.id, id, joined_text(cut(text_result(text), limits.result)))

        return ToolContext(
            state.id,
            id,
            attempt=attempt,
            deadline=time.monotonic() + left,
            report=report,
            executor=self._environment.threads,
        )

    async def _call(
        self, call: Call, tool: AgentTool, arguments: Arguments, context: ToolContext
    ) -> None:
        # A process that was frozen since it wrote the intent counts as dead by now: somebody may
        # have decided that the call has not happened.
        if not self._run.is_held:
            raise self._run.lose()
        begun = time.monotonic()
        if isinstance(tool, PythonTool) and tool.spec.retry == "transactional":
            await self._transact(call, tool, arguments, context)
            return
        outcome = await tool.call(arguments, context)
        match outcome:
            case Finished(content, is_error):
                result = cut(content, self.state.definition.limits.result)
                duration = time.monotonic() - begun
                await self._run.append(CallFinished(call.id, result, is_error, duration))
            case Ambiguous(why):
                # What may be repeated or looked up is left without a receipt: `decide` treats it as
                # that of a dead process.
                spec = call.tool
                if spec is None or (spec.retry == "once" and not spec.has_lookup):
                    await self._run.append(CallParked(call.id, why[:MAX_REASON]))
            case Changed(new=new):
                # It was not sent: somebody has to agree to what the tool is now.
                await self._run.append(self._approval(call, new))

    async def _look_up(self, call: Call) -> None:
        known, spec = self._tools.get(call.judged.name), call.tool
        context = self._context(call, call.attempts)
        if known is None or spec is None:
            await self._run.append(CallParked(call.id, LEFT_BEHIND))
            return
        tool = known.pinned(spec)
        found = await tool.lookup(context)
        match found:
            case Finished(content, is_error):
                result = cut(content, self.state.definition.limits.result)
                await self._run.append(CallFinished(call.id, result, is_error))
            case NotDone():
                arguments = tool.decode(call.judged.arguments)
                await self._call(call, tool, arguments, context)
            case _:
                why = f"{LEFT_BEHIND}; lookup: {found.why or 'unknown'}"
                await self._run.append(CallParked(call.id, why[:MAX_REASON]))

    async def _transact(
        self, call: Call, tool: PythonTool, arguments: Arguments, context: ToolContext
    ) -> None:
        """Effects and receipt in one transaction."""
        limit = self.state.definition.limits.result
        events: list[AnyRunEvent] = []
        failures: list[Contents] = []

        def effects() -> Queries[list[NewEvent]]:
            finished = yield from tool.queries(arguments, context)
            events[:] = [CallFinished(call.id, cut(finished.content, limit), finished.is_error)]
            return [new_event(events[0])]

        async def write(append: RunAppend) -> RunWrite | None:
            try:
                return await self._environment.store.transact(append, effects)
            except Exception as error:
                # The tool raised it, or the database refused a statement: what was written is
                # undone, so this is the answer. Any other failure of the store is not the tool's.
                if isinstance(error, StoreError) and error.kind != "broken":
                    raise
                failures.append(cut(text_result(f"{type(error).__name__}: {error}"), limit))
                return None

        def make() -> Sequence[AnyRunEvent] | None:
            events.clear()  # the transaction makes them
            return events if self.state.end is None else None

        await self._run.commit(make, write)
        for failure in failures:
            await self._run.append(CallFinished(call.id, failure, is_error=True))
