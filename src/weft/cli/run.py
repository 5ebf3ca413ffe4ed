"""`weft run`: runs an agent, shows what it does, and asks for approvals.

The run is in the store from its first event on, like any other: another process may work on it,
approve its calls or cancel it, and this one shows that.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

import click
import msgspec

from weft.agent.dispatch import MissingQueue, OwnRunsDispatcher
from weft.agent.events import (
    AnyRunEvent,
    ApprovalDecided,
    CallFinished,
    CallIntended,
    CallParked,
    CallRefused,
    RunCancelled,
    RunFailed,
    RunWaiting,
    Scope,
    TurnFinished,
    TurnInterrupted,
    TurnStarted,
    decode_event,
)
from weft.agent.lifecycle import ASKED, AWAITED, PARKED
from weft.agent.merge import shown_text
from weft.agent.runtime import UnknownAgent
from weft.agent.state import Call, IllegalEvent
from weft.agent.status import status_after
from weft.cli.agents import silent_gateway, who
from weft.cli.open_store import UnusableStore, settings_of
from weft.errors import ClientError
from weft.gateway.agents import AgentService
from weft.gateway.app import Gateway
from weft.gateway.run_objects import event_object
from weft.relay.log import follow
from weft.store.base import StoreError

FAILED = 1
WAITING = 3
INTERRUPTED = 130
TERMINATED = 143
"""Exit codes; the last two as shells have them."""

ENTRY_POLL = 0.05
"""Seconds between two looks for a response that is about to begin."""

CONNECTING = 60.0
"""Seconds to wait for the tools of an agent."""

WIDTH = 300
"""Characters of arguments and results that are shown."""

ANSWERS: dict[str, tuple[bool, Scope]] = {
    "y": (True, "call"),
    "n": (False, "call"),
    "t": (True, "tool"),
    "a": (True, "run"),
}
NEEDS = {ASKED: "approval", AWAITED: "an output", PARKED: "to be resolved"}
QUESTION = "[y]es, [n]o, [t]his tool from now on, [a]ll calls of this run? "

Approve = Literal["never", "ask", "always"]


class _Delta(msgspec.Struct):
    type: str = ""
    delta: str = ""


_read_delta = msgspec.json.Decoder(_Delta).decode
_TEXT = frozenset({"response.output_text.delta", "response.refusal.delta"})


def run(
    config: Path | None,
    agent: str | None,
    prompt: str | None,
    resume: str | None,
    approve: Approve,
    as_json: bool,
) -> None:
    text = "" if resume is not None else _prompt(prompt)
    settings = settings_of(config, needs_store=True)
    # What goes wrong is shown; that something works is not news on a terminal.
    server = msgspec.structs.replace(settings.server, log="error")
    try:
        gateway = silent_gateway(replace(settings, server=server), own_runs=True)
        sys.exit(asyncio.run(_run(gateway, agent, text, resume, approve, as_json)))
    except (UnknownAgent, MissingQueue) as problem:
        raise click.ClickException(str(problem)) from None
    except StoreError as problem:
        raise UnusableStore(str(problem)) from None
    except ClientError as problem:
        raise click.ClickException(str(problem)) from None


def _prompt(prompt: str | None) -> str:
    if prompt is None and sys.stdin.isatty():
        raise click.UsageError("Missing argument 'PROMPT'.")
    text = sys.stdin.read() if prompt in (None, "-") else prompt
    if not text or not text.strip():
        raise click.UsageError("the prompt is empty")
    return text


async def _run(
    gateway: Gateway,
    agent: str | None,
    prompt: str,
    resume: str | None,
    approve: Approve,
    as_json: bool,
) -> int:
    async with gateway.running():
        service = gateway.agents
        assert service is not None  # the settings have a store
        runtime, after = service.runtime, 0
        if resume is None:
            name = agent or ""
            try:
                async with asyncio.timeout(CONNECTING):  # the MCP servers of the agent
                    while name in service.unavailable:
                        await asyncio.sleep(ENTRY_POLL)
            except TimeoutError:
                reason = service.unavailable.get(name, "")
                raise click.ClickException(f"agent {name} is not available: {reason}") from None
            id = await runtime.start(name, prompt)
        else:
            id, after = resume, (await runtime.row(resume)).seq
        terminal = Terminal(service, id, approve, as_json)
        return await terminal.show(after)


class Terminal:
    """Shows one run to its end, or until it waits for somebody else."""

    def __init__(self, service: AgentService, id: str, approve: Approve, as_json: bool) -> None:
        self._runtime = service.runtime
        self._service = service
        self._id = id
        self._approve = approve
        self._as_json = as_json
        self._approved_tools: set[str] = set()
        self._stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The exit code, when it is known before the run ends."""
        self._interrupted = asyncio.Event()
        self._cancelling: asyncio.Task[None] | None = None
        self._streaming: asyncio.Task[None] | None = None
        self._names: dict[str, str] = {}
        """The tools of the calls, by call."""
        self._children: dict[str, asyncio.Task[None]] = {}
        """The tasks that follow the runs of agents that were called."""
        self._asking = asyncio.Lock()

    async def show(self, after: int) -> int:
        """Returns the exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        loop.add_signal_handler(signal.SIGTERM, self._stop, TERMINATED)
        _print_error(f"run {self._id}")
        showing = asyncio.create_task(self._show(after))
        await asyncio.wait({showing, self._stopped}, return_when=asyncio.FIRST_COMPLETED)
        if self._stopped.done():
            showing.cancel()
            await asyncio.wait({showing})
            return self._stopped.result()
        return await showing

    def _stop(self, code: int) -> None:
        if not self._stopped.done():
            self._stopped.set_result(code)

    def _interrupt(self) -> None:
        if self._interrupted.is_set():
            # Nothing is written any more: what is not cancelled by now can be resumed.
            os._exit(INTERRUPTED)
        _print_error("\ncancelling; press Ctrl-C again to quit at once")
        self._interrupted.set()

        async def cancel() -> None:
            try:
                await self._runtime.cancel(self._id, by=who(), reason="Ctrl-C")
            except StoreError as problem:
                _print_error(f"cannot cancel: {problem}")
                self._stop(INTERRUPTED)

        self._cancelling = asyncio.create_task(cancel())

    async def _show(self, after: int) -> int:
        if after:
            await self._continue()
        try:
            async for stored in self._runtime.events(self._id, after):
                event = decode_event(stored.body)
                if self._as_json:
                    click.echo(msgspec.json.encode(event_object(stored)))
                    sys.stdout.flush()
                else:
                    await self._tell(event)
                await self._react(self._id, event)
                if self._stopped.done():
                    break
        finally:
            for task in self._children.values():
                task.cancel()
            await asyncio.gather(*self._children.values(), return_exceptions=True)
            await self._end_stream()
        match (await self._runtime.state(self._id)).end:
            case RunFailed():
                return FAILED
            case RunCancelled():
                return INTERRUPTED
            case None:
                return WAITING
            case _:
                return 0

    async def _continue(self) -> None:
        """Continues a run that exists: works on it, unless another process does."""
        dispatcher = self._service.dispatcher
        assert isinstance(dispatcher, OwnRunsDispatcher)
        dispatcher.adopt(self._id)
        self._runtime.wake(self._id)
        state = await self._runtime.state(self._id)
        if state.end is not None:
            status = status_after(state)
            _print_error(f"the run is {status}; see weft runs show {self._id}")
        for call in state.calls.values():
            self._names[call.id] = call.judged.name
            if call.is_child:
                dispatcher.adopt(call.child)
                self._runtime.wake(call.child)
                self._follow_child(call.child)
        await self._decide(self._id)

    async def _react(self, run: str, event: AnyRunEvent) -> None:
        """Asks the person at the terminal if an event needs a decision."""
        if isinstance(event, RunWaiting):
            await self._decide(run)
        elif isinstance(event, CallIntended) and event.child:
            self._follow_child(event.child)

    def _follow_child(self, run: str) -> None:
        """Decides about the calls of an agent that was called, and of those that it calls."""

        async def follow() -> None:
            async for stored in self._runtime.events(run):
                await self._react(run, decode_event(stored.body))

        self._children[run] = asyncio.create_task(follow())

    async def _tell(self, event: AnyRunEvent) -> None:
        match event:
            case TurnStarted(response=response):
                await self._end_stream()
                self._streaming = asyncio.create_task(self._stream(response))
            case TurnFinished(calls=calls):
                await self._end_stream(whole=True)
                for call in calls:
                    self._names[call.id] = call.name
                    _print_error(f"call {call.name} {_short(call.arguments)}")
            case TurnInterrupted(why=why):
                await self._end_stream()
                _print_error(f"turn interrupted: {_short(why)}")
            case CallFinished(call=id, result=result, is_error=is_error):
                verb = "failed" if is_error else "result"
                _print_error(f"{verb} {self._names.get(id, id)}: {_short(shown_text(result))}")
            case CallRefused(call=id, text=text):
                _print_error(f"refused {self._names.get(id) or 'a call'}: {_short(text)}")
            case ApprovalDecided(call=id, approved=approved, by=by):
                verb = "approved" if approved else "denied"
                _print_error(f"{verb} {self._names.get(id, id)}, by {by}")
            case CallParked(call=id, why=why):
                _print_error(f"parked {self._names.get(id, id)}: {_short(why)}")
            case RunFailed(message=message):
                _print_error(f"failed: {message}")
            case RunCancelled(by=by):
                _print_error(f"cancelled by {by}")

    # The text of a turn

    async def _stream(self, response: str) -> None:
        """Prints the text of a response as it comes."""
        store = self._service.store
        while await store.entry(response) is None:
            await asyncio.sleep(ENTRY_POLL)
        printed = False
        try:
            async for events in follow(store, self._service.persistence.logs, response):
                for event in events:
                    if event.name in _TEXT:
                        click.echo(_read_delta(event.data).delta, nl=False)
                        printed = True
                sys.stdout.flush()
        finally:
            if printed:
                click.echo()

    async def _end_stream(self, whole: bool = False) -> None:
        """`whole`: the response has ended, and so does its text."""
        task, self._streaming = self._streaming, None
        if task is None:
            return
        if not whole:
            task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    # Approvals

    async def _decide(self, run: str) -> None:
        """Decides about the calls that wait for approval; leaves the run if others must act."""
        async with self._asking:
            await self._decide_calls(run)

    async def _decide_calls(self, run: str) -> None:
        state = await self._runtime.state(run)
        if state.waiting is None or state.end is not None:
            return  # somebody else was faster
        asked = [call for call in state.open_calls if call.state is ASKED]
        for call in asked:
            if not await self._decided(run, call):
                break
        else:
            if asked:
                return
        # Cancelled, or a call was approved when the run was about to wait: more comes.
        if self._interrupted.is_set() or any(
            call.state not in (ASKED, AWAITED, PARKED) for call in state.open_calls
        ):
            return
        waiting = [
            f"{call.judged.name} ({call.id}) needs {NEEDS[call.state]}" for call in state.open_calls
        ]
        _print_error(f"the run waits: {', '.join(waiting)}; see weft runs show {run}")
        self._stop(WAITING)

    async def _decided(self, run: str, call: Call) -> bool:
        """Returns False if nobody is here to ask."""
        answer = await self._answer(call)
        if answer is None or call.approval is None:
            return False
        approved, scope = answer
        # Calls that wait already are not covered by a scope that comes later.
        if approved and scope == "run":
            self._approve = "always"
        elif approved and scope == "tool":
            self._approved_tools.add(call.judged.name)
        approval = call.approval.approval
        # Somebody else may have decided meanwhile, or cancelled the run.
        with suppress(IllegalEvent):
            await self._runtime.decide_approval(run, approval, approved, by=who(), scope=scope)
        return True

    async def _answer(self, call: Call) -> tuple[bool, Scope] | None:
        if call.judged.name in self._approved_tools:
            return True, "call"
        if self._approve != "ask":
            return self._approve == "always", "call"
        if not sys.stdin.isatty():
            return None
        while True:
            _print_error(f"run {call.judged.name} {_short(call.judged.arguments)}?")
            click.echo(QUESTION, err=True, nl=False)
            line = await self._read_line()
            if not line:
                return None  # the terminal is gone, or the run is cancelled
            found = ANSWERS.get(line.strip().lower()[:1])
            if found is not None:
                return found

    async def _read_line(self) -> str:
        """A line of standard input, which a terminal hands over as a whole; empty: there is no more
        of it, or Ctrl-C came first."""
        loop, number = asyncio.get_running_loop(), sys.stdin.fileno()
        either = asyncio.Event()
        interrupted = asyncio.create_task(self._interrupted.wait())
        interrupted.add_done_callback(lambda _: either.set())
        loop.add_reader(number, either.set)
        try:
            await either.wait()
        finally:
            loop.remove_reader(number)
            interrupted.cancel()
        return "" if self._interrupted.is_set() else os.read(number, 4096).decode(errors="replace")


def _short(text: str) -> str:
    """On one line, and not too long."""
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else f"{line[:WIDTH]}…"


def _print_error(text: str) -> None:
    """Everything but the text of the agent goes to standard error."""
    click.echo(text, err=True)
