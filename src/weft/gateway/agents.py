"""The agents of the settings, and the runtime that works on their runs.

Each process of the gateway has one runtime. Which of them works on a run is decided by the lease of
the run, so any number of processes and gateways can share a database.

An agent with tools of MCP servers is there once they have listed their tools, and one that calls
another once that one is there. Until then its runs are left to others, or wait: a run must not go
on without its tools.
"""

import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from weft.agent.agents import Agent
from weft.agent.dispatch import RUNS, OwnRunsDispatcher, dispatcher_from_url
from weft.agent.environment import RunObserver
from weft.agent.mcp import McpClient
from weft.agent.mcp_config import McpServerConfig, McpUnavailable
from weft.agent.models import RelayModels
from weft.agent.runtime import AgentRuntime
from weft.agent.tools import AgentTool, PythonTool, load_tool
from weft.agent.upstream import RunUpstream
from weft.errors import ArgumentValueError
from weft.gateway.settings import AgentSettings, McpSettings, Settings, SettingsError
from weft.gateway.settings.agents import AGENT, MCP, agents_of
from weft.gateway.settings.problems import Problem
from weft.prices import PriceTable
from weft.relay.incoming import RequestLimits
from weft.relay.metering import AdmitTurn
from weft.relay.persistence import Persistence
from weft.relay.request_record import Observer
from weft.relay.routing import Routing
from weft.scrub import Scrubber

RETRY = 1.0
"""Seconds between two questions to MCP servers for their tools."""

log = logging.getLogger("weft.agent")


@dataclass(frozen=True, slots=True)
class LoadedAgent:
    """An agent whose Python tools are imported."""

    name: str
    settings: AgentSettings
    tools: tuple[PythonTool, ...]
    servers: tuple[str, ...]
    """The MCP servers of other tools."""
    agents: tuple[str, ...]
    """The agents that are its tools."""

    def agent(self, tools: Sequence[AgentTool | Agent] = ()) -> Agent:
        """The agent with the tools of its MCP servers, and with the agents that it calls. Raises
        ArgumentValueError."""
        settings = self.settings
        return Agent(
            self.name,
            settings.model,
            settings.instructions,
            [*self.tools, *tools],
            limits=settings.limits,
            approval=settings.approval,
            on_interrupt=settings.on_interrupt,
            on_ambiguous=settings.on_ambiguous,
            description=settings.description,
            tools_visible=settings.tools_visible,
        )


def load_agents(settings: Settings) -> list[LoadedAgent]:
    """Imports the tools of all agents. Raises SettingsError with everything that fails."""
    # At the end: a file beside the settings must not replace an installed module.
    folder = str((settings.path.parent if settings.path is not None else Path()).resolve())
    if folder not in sys.path:
        sys.path.append(folder)
    agents: list[LoadedAgent] = []
    problems: list[Problem] = []
    for name, agent in settings.agents.items():
        key = ("agents", name)
        servers = tuple(one.removeprefix(MCP) for one in agent.tools if one.startswith(MCP))
        if servers and find_spec("mcp") is None:
            missing = "MCP servers need the package mcp: pip install 'weft[mcp]'"
            problems.append(settings.problem((*key, "tools"), missing))
        tools: list[PythonTool] = []
        for reference in (one for one in agent.tools if not one.startswith((MCP, AGENT))):
            try:
                tools.append(load_tool(reference))
            except ArgumentValueError as error:
                problems.append(settings.problem((*key, "tools"), str(error)))
        loaded = LoadedAgent(name, agent, tuple(tools), servers, tuple(agents_of(agent)))
        agents.append(loaded)
        # Otherwise its approvals may be for a tool that is missing, or not known yet.
        if len(tools) == len(agent.tools):
            try:
                loaded.agent()
            except ArgumentValueError as error:
                problems.append(settings.problem(key, str(error).removeprefix(f"agent {name}: ")))
    if problems:
        raise SettingsError(problems)
    try:
        _built(agents)
    except ArgumentValueError as error:
        name = str(error).removeprefix("agent ").partition(":")[0]
        text = str(error).removeprefix(f"agent {name}: ")
        raise SettingsError([settings.problem(("agents", name), text)]) from error
    return agents


def _built(loaded: Sequence[LoadedAgent]) -> dict[str, Agent]:
    """The agents that need no MCP server, neither themselves nor through others. Raises
    ArgumentValueError."""
    found: dict[str, Agent] = {}
    waiting = [one for one in loaded if not one.servers]
    while ready := [one for one in waiting if all(name in found for name in one.agents)]:
        for one in ready:
            found[one.name] = one.agent([found[name] for name in one.agents])
        waiting = [one for one in waiting if one not in ready]
    return {one.name: found[one.name] for one in loaded if one.name in found}


class _Unavailable(Exception):
    """An agent is not there yet."""


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
        admit: AdmitTurn,
        prices: PriceTable,
        own_runs: bool = False,
        run_observers: Sequence[RunObserver] = (),
    ) -> None:
        """Imports the tools. With `own_runs`, works on no run that this process has not started or
        written to. Raises SettingsError, and MissingQueue."""
        models = RelayModels(routing, persistence, limits, scrub, observers, admit, prices)
        loaded, workers = load_agents(settings), settings.workers
        self.store = persistence.store
        self.persistence = persistence
        self.dispatcher = dispatcher_from_url(
            self.store,
            settings.store.url,
            kind=workers.dispatcher,
            lease=workers.lease,
            concurrency=workers.concurrency,
        )
        if own_runs:
            self.dispatcher = OwnRunsDispatcher(self.store, self.dispatcher)
        built = _built(loaded)
        self.runtime = AgentRuntime(
            self.store,
            built.values(),
            models,
            lease=workers.lease,
            concurrency=workers.concurrency,
            dispatcher=self.dispatcher,
            observers=run_observers,
        )
        self._waiting = [one for one in loaded if one.name not in built]
        self.unavailable = {one.name: "not started" for one in self._waiting}
        """Why an agent is not there yet, by its name."""
        self.upstream = RunUpstream(self.runtime, persistence, unavailable=self.unavailable)
        """The agents as models."""
        used = {name for one in loaded for name in one.servers}
        self._clients = {
            name: McpClient(_mcp_config(name, server))
            for name, server in settings.mcp.items()
            if name in used
        }
        self._connecting: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.dispatcher.open()
        for client in self._clients.values():
            await client.__aenter__()
        self._connecting = [asyncio.create_task(self._connect(one)) for one in self._waiting]
        # A gateway without agents need not look for runs.
        if not (self.runtime.agents or self._waiting):
            del self.runtime.queues[RUNS]
        await self.runtime.__aenter__()

    async def _connect(self, loaded: LoadedAgent) -> None:
        """Asks the MCP servers of an agent for their tools, until all have answered, and waits for
        the agents that it calls."""
        reason = ""
        while True:
            try:
                for name in loaded.agents:
                    if name in self.unavailable:
                        raise _Unavailable(f"agent {name}: {self.unavailable[name]}")
                called = [self.runtime.agents[name] for name in loaded.agents]
                some = [await self._clients[name].tools() for name in loaded.servers]
                agent = loaded.agent([*(tool for tools in some for tool in tools), *called])
            # ArgumentValueError: an approval for a tool that no server has.
            except (McpUnavailable, _Unavailable, ArgumentValueError) as error:
                if str(error) != reason:
                    log.warning("agent %s is not available: %s", loaded.name, error)
                reason = self.unavailable[loaded.name] = str(error)
                await asyncio.sleep(RETRY)
            else:
                self.runtime.agents[loaded.name] = agent
                del self.unavailable[loaded.name]
                return

    def drain(self) -> None:
        """Ends the streams of events: a run may go on for days."""
        self.upstream.stop()
        self.runtime.drain()

    async def close(self) -> None:
        for task in self._connecting:
            task.cancel()
        if self._connecting:
            await asyncio.wait(self._connecting)
        # First: running calls of MCP tools may end.
        await self.runtime.close()
        await self.dispatcher.close()
        for client in self._clients.values():
            await client.__aexit__()


def _mcp_config(name: str, server: McpSettings) -> McpServerConfig:
    return McpServerConfig(
        name=name,
        command=server.command,
        url=server.url,
        env={name: value.reveal() for name, value in server.env.items()},
        headers={name: value.reveal() for name, value in server.headers.items()},
        allow_private=server.allow_private,
        allow=server.allow,
        trust_hints=server.trust_hints,
        timeout=server.timeout,
        connect_timeout=server.connect_timeout,
    )
