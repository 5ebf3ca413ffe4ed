"""Settings: `weft.toml` and the environment, read once at the start, and all that follows from it.

The rules of the environment:

- `WEFT_CONFIG` is the file to read, if none is named.
- `WEFT_SERVER__PORT=9000` is `port = 9000` under `[server]`; `WEFT_SERVER__LIMITS__BODY` goes one
  table deeper, and so on, for every key of `[server]` and `[store]`. It wins over the file.
  Lists are written with commas.
- Any other variable that begins with `WEFT_` is an error, unless the file names it (`env:WEFT_X`).
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from weft.gateway.settings.aliases import aliases
from weft.gateway.settings.environment import Environment
from weft.gateway.settings.line_numbers import LineNumbers
from weft.gateway.settings.problems import Problem, Problems, SettingsError
from weft.gateway.settings.reader import TableReader
from weft.gateway.settings.schema import (
    KeySettings,
    LimitSettings,
    ServerSettings,
    SettingsFile,
    StoreSettings,
    UpstreamSettings,
)
from weft.gateway.settings.secrets import ClientKey, SecretResolver
from weft.gateway.settings.upstreams import UpstreamBuilder
from weft.gateway.settings.validation import validate_server, validate_store
from weft.scrub import Secret
from weft.upstream.base import UpstreamConfig

__all__ = [
    "DEFAULT",
    "ClientKey",
    "KeySettings",
    "LimitSettings",
    "Problem",
    "ServerSettings",
    "Settings",
    "SettingsError",
    "StoreSettings",
    "UpstreamSettings",
    "load",
]

DEFAULT = Path("weft.toml")
"""Read if it is there, and no other file is named."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that was set, checked and resolved. It does not change while the server runs."""

    path: Path | None
    """The file it came from; None: there was none."""

    server: ServerSettings
    store: StoreSettings = field(repr=False)  # its address may have a password
    upstreams: tuple[UpstreamConfig, ...]
    """The upstreams, in the order of the file."""

    models: Mapping[str, tuple[str, ...]]
    """Aliases: the targets of each, in their order."""

    keys: tuple[ClientKey, ...]
    """Who may use the server; none: whoever can reach it."""

    agents: Mapping[str, object]
    """As they are in the file."""

    secrets: tuple[Secret, ...]
    """All secrets that are in use, for the Scrubber."""

    warnings: tuple[Problem, ...] = ()
    """What can be, but is hardly meant. `weft config check` shows it."""


def load(path: Path | None, environ: Mapping[str, str]) -> Settings:
    """Reads the settings. Raises SettingsError with everything that is wrong.

    No path: that of `WEFT_CONFIG`, else `weft.toml` in the current directory if there is one,
    else the defaults: the demo upstream alone.
    """
    path = path or _default_path(environ)
    text = "" if path is None else _read_text(path)
    table = {} if path is None else _parse_toml(path, text)
    problems = Problems("defaults" if path is None else str(path), LineNumbers(text))
    environment = Environment(environ, problems)
    file = (
        TableReader(problems).table(environment.applied_to(table), SettingsFile) or SettingsFile()
    )
    folder = Path() if path is None else path.parent
    secrets = SecretResolver(environment, folder, problems)
    upstreams = UpstreamBuilder(secrets, folder, problems).build(file.upstreams)
    keys = secrets.client_keys(file.server.keys)
    models = aliases(file.models, _names(table, upstreams), problems)
    server = validate_server(file.server, problems)
    validate_store(file.store, problems)
    secrets.add_password(file.store.url, ("store", "url"))
    environment.report_unknown()
    if problems.found:
        raise SettingsError(problems.in_file_order())
    return Settings(
        path=path,
        server=server,
        store=file.store,
        upstreams=upstreams,
        models=models,
        keys=keys,
        agents=file.agents,
        secrets=tuple(secrets.found),
        warnings=tuple(problems.warnings),
    )


def _names(table: dict[str, object], upstreams: tuple[UpstreamConfig, ...]) -> list[str]:
    """The upstreams that aliases may speak of, those included with which something is wrong."""
    named = table.get("upstreams")
    return list(named) if isinstance(named, dict) and named else [one.name for one in upstreams]


def _default_path(environ: Mapping[str, str]) -> Path | None:
    if environ.get("WEFT_CONFIG"):
        return Path(environ["WEFT_CONFIG"])
    return DEFAULT if DEFAULT.exists() else None


def _read_text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as problem:
        raise SettingsError(
            [Problem(str(path), None, "", problem.strerror or "unreadable")]
        ) from None
    try:
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
        place = _PLACE.search(str(problem))
        line = int(place[1]) if place and place[1] else text.rstrip().count("\n") + 1
        message = _PLACE.sub("", str(problem))
        raise SettingsError(
            [Problem(str(path), line, "", message[:1].lower() + message[1:])]
        ) from None
