"""Agents and the MCP servers of their tools: what can be checked without importing or connecting to
anything."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec.structs import replace

from weft.agent.tool_spec import TOOL_NAME
from weft.gateway.settings.line_numbers import Key
from weft.gateway.settings.problems import Problems, unknown_name
from weft.gateway.settings.schema import AgentSettings, McpSettings, SettingsFile
from weft.gateway.settings.secrets import (
    SecretResolver,
    is_secret_header,
    is_secret_variable,
)
from weft.upstream.urls import parse_base_url

MCP = "mcp:"
"""What the reference to an MCP server begins with."""

AGENT = "agent:"
"""What the reference to another agent begins with."""

FILE = "file:"
DEMO = "demo"
DEMO_AGENT = AgentSettings(
    model="demo/agent",
    instructions="You help customers of a shop. Look at an order before you refund it.",
    tools=("weft.agent.demo:order_status", "weft.agent.demo:refund"),
)
"""An agent that works without any settings."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SERVER_NAME = re.compile(r"[a-zA-Z0-9-]{1,32}")
_PYTHON_TOOL = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def build_agents(
    file: SettingsFile,
    upstreams: Sequence[str],
    models: Mapping[str, tuple[str, ...]],
    folder: Path,
    problems: Problems,
) -> dict[str, AgentSettings]:
    """Returns the agents, with their instructions read; the demo agent if neither agents nor
    upstreams are set."""
    if not file.agents:
        has_demo = not file.upstreams and file.store.enabled and DEMO not in models
        return {DEMO: DEMO_AGENT} if has_demo else {}
    # The log of a run is what survives a restart.
    if not file.store.enabled:
        problems.add(("agents",), "agents need the store, and store.enabled is false")
    found = {}
    for name, agent in file.agents.items():
        key = ("agents", name)
        if not _NAME.fullmatch(name):
            problems.add(key, "a name has 1 to 64 letters, digits, '.', '_' and '-'")
        # Both are names that a client can ask for.
        if name in models:
            problems.add(key, "is already an alias in [models]; choose another name")
        # As `Routing.targets` finds it: an alias, a model of an upstream, or a pattern.
        first, slash, rest = agent.model.partition("/")
        is_known = agent.model in models or (bool(slash and rest) and first in upstreams)
        if not is_known and not any(fnmatchcase(agent.model, one) for one in models if "*" in one):
            known = [*models, *(f"{one}/…" for one in upstreams)]
            text = f"{agent.model!r}: {unknown_name('model', agent.model, known)}"
            problems.add((*key, "model"), text)
        _check_tools(agent, file, (*key, "tools"), problems)
        text = _instructions(agent.instructions, folder, (*key, "instructions"), problems)
        found[name] = replace(agent, instructions=text)
    for circle in _circles(found):
        problems.add(("agents", circle[0], "tools"), f"agents in a circle: {' → '.join(circle)}")
    return found


def agents_of(agent: AgentSettings) -> list[str]:
    """The agents that are its tools."""
    return [one.removeprefix(AGENT) for one in agent.tools if one.startswith(AGENT)]


def _circles(agents: Mapping[str, AgentSettings]) -> list[list[str]]:
    """Agents that call themselves through others, each circle once."""
    found: list[list[str]] = []
    over: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            found.append([*path[path.index(name) :], name])
        elif name not in over and name in agents:
            for one in agents_of(agents[name]):
                visit(one, [*path, name])
            over.add(name)

    for name in agents:
        visit(name, [])
    return found


def _check_tools(agent: AgentSettings, file: SettingsFile, key: Key, problems: Problems) -> None:
    for place, tool in enumerate(agent.tools):
        name = tool.partition(":")[2]
        if tool in agent.tools[:place]:
            problems.add(key, f"{tool!r} is listed twice")
        elif tool.startswith(MCP):
            if name not in file.mcp:
                problems.add(key, f"{tool!r}: {unknown_name('MCP server', name, file.mcp)}")
        elif tool.startswith(AGENT):
            if name not in file.agents:
                problems.add(key, f"{tool!r}: {unknown_name('agent', name, file.agents)}")
            elif not TOOL_NAME.fullmatch(name):
                problems.add(key, f"{tool!r}: an agent with a '.' in its name cannot be a tool")
        elif not _PYTHON_TOOL.fullmatch(tool):
            expected = "module:function, mcp:SERVER or agent:NAME"
            problems.add(key, f"{tool!r} is not a tool; expected {expected}")


def _instructions(text: str, folder: Path, key: Key, problems: Problems) -> str:
    if not text.startswith(FILE):
        return text
    path = folder / Path(text.removeprefix(FILE)).expanduser()
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        problems.add(key, f"the file {path} is not text")
    except OSError as problem:
        problems.add(key, f"the file {path} cannot be read: {problem.strerror}")
    return ""


def build_mcp_servers(
    servers: Mapping[str, McpSettings], secrets: SecretResolver, problems: Problems
) -> dict[str, McpSettings]:
    """Returns the MCP servers, with the values that their settings refer to."""
    found = {}
    for name, server in servers.items():
        key = ("mcp", name)
        # No underscore: in `files__read` two of them end the name of the server.
        if not _SERVER_NAME.fullmatch(name):
            problems.add(key, "a name has 1 to 32 letters, digits and '-'")
        if bool(server.command) == (server.url is not None):
            problems.add(key, "needs either a command or a url")
        if server.url is not None and not server.url.startswith(("http://", "https://")):
            problems.add((*key, "url"), "expected http://… or https://…")
        elif server.url is not None:
            try:
                parse_base_url(server.url)
            except ValueError as problem:
                problems.add((*key, "url"), str(problem))
        # What belongs to the other kind of server would be ignored, unnoticed.
        if server.env and not server.command:
            problems.add((*key, "env"), "is only for a server with a command")
        if server.headers and server.url is None:
            problems.add((*key, "headers"), "is only for a server with a url")
        env = secrets.resolve_values(server.env, (*key, "env"), is_secret_variable)
        headers = secrets.resolve_values(server.headers, (*key, "headers"), is_secret_header)
        found[name] = replace(server, env=env, headers=headers)
    return found
