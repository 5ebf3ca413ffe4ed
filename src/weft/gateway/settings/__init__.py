"""Settings: `weft.toml` and the environment, read and validated once, at the start.

The rules of the environment:

- `WEFT_CONFIG` names the file to read, unless the command line does.
- `WEFT_SERVER__PORT=9000` is `port = 9000` under `[server]`; `WEFT_SERVER__LIMITS__BODY` goes one
  table deeper, and so on, for every key of `[server]`, `[store]`, `[workers]` and `[otel]`. It wins
  over the file. Lists are written with commas.
- Any other variable that begins with `WEFT_` is ignored, with a warning, unless the file uses it
  (`env:WEFT_X`).
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from weft.gateway.settings.agents import build_agents, build_mcp_servers
from weft.gateway.settings.aliases import build_aliases
from weft.gateway.settings.environment import Environment
from weft.gateway.settings.line_numbers import Key, LineNumbers
from weft.gateway.settings.otel import build_otel
from weft.gateway.settings.problems import Problem, Problems, SettingsError, dotted
from weft.gateway.settings.reader import TableReader
from weft.gateway.settings.schema import (
    AgentSettings,
    KeySettings,
    LimitSettings,
    McpSettings,
    OtelSettings,
    ServerSettings,
    SettingsFile,
    StoreSettings,
    UpstreamSettings,
    WorkerSettings,
)
from weft.gateway.settings.secrets import ClientKey, SecretResolver
from weft.gateway.settings.upstreams import build_upstreams
from weft.gateway.settings.validation import (
    validate_keys,
    validate_prices,
    validate_server,
    validate_store,
)
from weft.prices import Price
from weft.relay.routing import AliasPolicy
from weft.scrub import Secret
from weft.upstream.base import UpstreamConfig

__all__ = [
    "DEFAULT",
    "AgentSettings",
    "ClientKey",
    "KeySettings",
    "LimitSettings",
    "McpSettings",
    "OtelSettings",
    "Problem",
    "ServerSettings",
    "Settings",
    "SettingsError",
    "StoreSettings",
    "UpstreamSettings",
    "WorkerSettings",
    "load",
]

DEFAULT = Path("weft.toml")
"""Read if it exists and no other file is named."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Validated settings. They do not change while the server runs."""

    path: Path | None
    """The file; None if there is none."""

    server: ServerSettings
    store: StoreSettings = field(repr=False)  # its URL may contain a password
    upstreams: tuple[UpstreamConfig, ...]
    """The upstreams, in the order of the file."""

    models: Mapping[str, tuple[str, ...]]
    """The targets of each alias, in order."""

    keys: tuple[ClientKey, ...]
    """The client keys; none: everybody who can connect may use the server."""

    agents: Mapping[str, AgentSettings]
    """The agents; their instructions are texts. Their tools are not imported yet."""

    secrets: tuple[Secret, ...]
    """All secrets, for the Scrubber."""

    policies: Mapping[str, AliasPolicy] = field(default_factory=dict)
    """How the targets of aliases are chosen, where that is not in order."""

    mcp: Mapping[str, McpSettings] = field(default_factory=dict)
    """The MCP servers; what their values refer to is resolved."""

    prices: Mapping[str, Price] = field(default_factory=dict)
    """Prices by `<upstream>/<model>`."""

    workers: WorkerSettings = field(default_factory=WorkerSettings)
    otel: OtelSettings = field(default_factory=OtelSettings)
    """What its values refer to is resolved."""

    warnings: tuple[Problem, ...] = ()
    """What is valid, but probably a mistake. `weft config check` prints it."""

    lines: LineNumbers = field(default_factory=lambda: LineNumbers(""), compare=False, repr=False)

    def problem(self, key: Key, message: str) -> Problem:
        """A problem that is found after the file was read: a tool that cannot be imported."""
        path = "defaults" if self.path is None else str(self.path)
        return Problem(path, self.lines.of(key), dotted(key), message)


def load(path: Path | None, environ: Mapping[str, str]) -> Settings:
    """Reads the settings. Raises SettingsError with everything that is wrong.

    Without a path: the file in `WEFT_CONFIG`, otherwise `weft.toml` in the current directory if it
    exists, otherwise the defaults, with the demo upstream.
    """
    if path is None and environ.get("WEFT_CONFIG"):
        path = Path(environ["WEFT_CONFIG"])
    elif path is None and DEFAULT.exists():
        path = DEFAULT
    text = "" if path is None else _read_text(path)
    table = {} if path is None else _parse_toml(path, text)
    # From here on nothing raises: every problem of the file is reported in one go.
    lines = LineNumbers(text)
    problems = Problems("defaults" if path is None else str(path), lines)
    environment = Environment(environ, problems)
    file = (
        TableReader(problems).table(environment.applied_to(table), SettingsFile) or SettingsFile()
    )
    folder = Path() if path is None else path.parent
    secrets = SecretResolver(environment, folder, problems)
    upstreams = build_upstreams(file.upstreams, secrets, folder, problems)
    keys = secrets.client_keys(file.server.keys)
    # Invalid upstreams keep their names: an alias of one is no second problem.
    aliases = build_aliases(file.models, _names(table, upstreams), problems)
    models = aliases.targets
    mcp = build_mcp_servers(file.mcp, secrets, problems)
    agents = build_agents(file, _names(table, upstreams), models, folder, problems)
    validate_prices(file.prices, _names(table, upstreams), problems)
    otel = build_otel(file.otel, secrets, problems)
    server = validate_server(file.server, problems)
    validate_store(file.store, problems)
    validate_keys(file.server, file.store, problems)
    secrets.add_password(file.store.url, ("store", "url"))
    # After all `env:` references were resolved, which make further variables known.
    environment.report_unknown()
    if problems.found:
        raise SettingsError(problems.in_file_order())
    return Settings(
        path=path,
        server=server,
        store=file.store,
        upstreams=upstreams,
        models=models,
        policies=aliases.policies,
        keys=keys,
        agents=agents,
        secrets=tuple(secrets.found),
        mcp=mcp,
        prices=file.prices,
        workers=file.workers,
        otel=otel,
        warnings=tuple(problems.warnings),
        lines=lines,
    )


def _names(table: dict[str, object], upstreams: tuple[UpstreamConfig, ...]) -> list[str]:
    """The names of the upstreams, including invalid ones, so that aliases can be checked."""
    named = table.get("upstreams")
    return list(named) if isinstance(named, dict) and named else [one.name for one in upstreams]


def _read_text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as problem:
        raise SettingsError(
            [Problem(str(path), None, "", problem.strerror or "unreadable")]
        ) from None
    try:
        # Editors on Windows begin a file with a byte order mark, which TOML does not allow.
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        raise SettingsError([Problem(str(path), line, "", "not UTF-8")]) from None


_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


def _parse_toml(path: Path, text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise SettingsError([Problem(str(path), None, "", "nested too deeply")]) from None
    except ValueError as problem:
        # tomllib has the place of an error in its text only.
        place = _PLACE.search(str(problem))
        line = int(place[1]) if place and place[1] else text.rstrip().count("\n") + 1
        message = _PLACE.sub("", str(problem))
        raise SettingsError(
            [Problem(str(path), line, "", message[:1].lower() + message[1:])]
        ) from None
