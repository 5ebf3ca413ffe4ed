"""The agents of the settings, and the runtime that works on their runs.

Each process of the gateway has one runtime. Which of them works on a run is decided by the lease of
the run, so any number of processes and gateways can share a database.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from weft.agent.dispatch import OwnRunsDispatcher, dispatcher_from_url
from weft.agent.models import RelayModels
from weft.agent.runtime import Agent, Runtime
from weft.agent.tools import PythonTool, load_tool
from weft.errors import ArgumentTypeError, ArgumentValueError
from weft.gateway.settings import Settings, SettingsError
from weft.gateway.settings.agents import MCP
from weft.gateway.settings.problems import Problem
from weft.relay.incoming import RequestLimits
from weft.relay.persistence import Persistence
from weft.relay.request_record import Observer
from weft.relay.routing import Routing
from weft.scrub import Scrubber


def load_agents(settings: Settings) -> list[Agent]:
    """Imports the tools of all agents. Raises SettingsError with everything that fails."""
    # At the end: a file beside the settings must not replace an installed module.
    folder = str((settings.path.parent if settings.path is not None else Path()).resolve())
    if folder not in sys.path:
        sys.path.append(folder)
    agents: list[Agent] = []
    problems: list[Problem] = []
    for name, agent in settings.agents.items():
        key = ("agents", name)
        tools: list[PythonTool] = []
        before = len(problems)
        for reference in agent.tools:
            try:
                tools.append(_tool(reference))
            except ArgumentValueError as error:
                problems.append(settings.problem((*key, "tools"), str(error)))
        if len(problems) > before:
            continue  # its approvals may be for the tool that is missing
        try:
            agents.append(
                Agent(
                    name,
                    agent.model,
                    agent.instructions,
                    tools,
                    limits=agent.limits,
                    approval=agent.approval,
                    on_interrupt=agent.on_interrupt,
                    on_ambiguous=agent.on_ambiguous,
                )
            )
        except (ArgumentValueError, ArgumentTypeError) as error:
            problems.append(settings.problem(key, str(error).removeprefix(f"agent {name}: ")))
    if problems:
        raise SettingsError(problems)
    return agents


def _tool(reference: str) -> PythonTool:
    """The one place where a tool of the settings becomes one of an agent."""
    if reference.startswith(MCP):
        raise ArgumentValueError(f"{reference!r}: tools of MCP servers are not available yet")
    return load_tool(reference)


class AgentService:
    """The runtime of one process: `start` after the store is open, `close` before it is closed."""

    def __init__(
        self,
        settings: Settings,
        routing: Routing,
        persistence: Persistence,
        limits: RequestLimits,
        scrub: Scrubber,
        observers: Sequence[Observer],
        own_runs: bool = False,
    ) -> None:
        """Imports the tools. With `own_runs`, works on no run that this process has not started or
        written to. Raises SettingsError, and MissingQueue."""
        models = RelayModels(routing, persistence, limits, scrub, observers)
        agents, workers = load_agents(settings), settings.workers
        self.store = persistence.store
        self.persistence = persistence
        self.dispatcher = dispatcher_from_url(
            self.store,
            settings.store.url,
            # Without agents nothing is worked on here, and no queue need be set up.
            kind=workers.dispatcher if agents else "local",
            lease=workers.lease,
            concurrency=workers.concurrency,
        )
        if own_runs:
            self.dispatcher = OwnRunsDispatcher(self.store, self.dispatcher)
        self.runtime = Runtime(
            self.store,
            agents,
            models,
            lease=workers.lease,
            concurrency=workers.concurrency,
            dispatcher=self.dispatcher,
        )

    async def start(self) -> None:
        await self.dispatcher.open()
        # A gateway without agents has no tools: it must not take a run from one that has them.
        if self.runtime.agents:
            await self.runtime.__aenter__()

    def drain(self) -> None:
        """Ends the streams of events: a run may go on for days."""
        self.runtime.drain()

    async def close(self) -> None:
        await self.runtime.close()
        await self.dispatcher.close()
