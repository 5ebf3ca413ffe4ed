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
from weft.gateway.settings.lines import Lines
from weft.gateway.settings.places import Places
from weft.gateway.settings.problems import Problem, Problems, SettingsError
from weft.gateway.settings.reading import Reader
from weft.gateway.settings.secrets import ClientKey, Secrets
from weft.gateway.settings.served import served, stored
from weft.gateway.settings.shape import (
    File,
    KeySettings,
    Limits,
    Server,
    Store,
    UpstreamSettings,
)
from weft.scrub import Secret
from weft.upstream.base import UpstreamConfig

__all__ = [
    "DEFAULT",
    "ClientKey",
    "KeySettings",
    "Limits",
    "Problem",
    "Server",
    "Settings",
    "SettingsError",
    "Store",
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

    server: Server
    store: Store = field(repr=False)  # its address may have a password
    places: tuple[UpstreamConfig, ...]
    """The upstreams, in the order of the file."""

    models: Mapping[str, tuple[str, ...]]
    """Aliases: the targets of each, in their order."""

    keys: tuple[ClientKey, ...]
    """Who may use the server; none: whoever can reach it."""

    agents: Mapping[str, object]
    """As they are in the file."""

    secrets: tuple[Secret, ...]
    """All secrets that are in use, for the Scrubber."""

    doubts: tuple[Problem, ...] = ()
    """What can be, but is hardly meant. `weft config check` shows it."""


def load(path: Path | None, environ: Mapping[str, str]) -> Settings:
    """Reads the settings. Raises SettingsError with everything that is wrong.

    No path: that of `WEFT_CONFIG`, else `weft.toml` in the current directory if there is one,
    else the defaults: the demo upstream alone.
    """
    path = path or _chosen(environ)
    text = "" if path is None else _text(path)
    table = {} if path is None else _parsed(path, text)
    problems = Problems("defaults" if path is None else str(path), Lines(text))
    environment = Environment(environ, problems)
    file = Reader(problems).table(environment.over(table), File) or File()
    folder = Path() if path is None else path.parent
    secrets = Secrets(environment, folder, problems)
    places = Places(secrets, folder, problems).made(file.upstreams)
    keys = secrets.clients(file.server.keys)
    models = aliases(file.models, _names(table, places), problems)
    server = served(file.server, problems)
    stored(file.store, problems)
    secrets.within(file.store.url, ("store", "url"))
    environment.unknown()
    if problems.found:
        raise SettingsError(problems.ordered())
    return Settings(
        path=path,
        server=server,
        store=file.store,
        places=places,
        models=models,
        keys=keys,
        agents=file.agents,
        secrets=tuple(secrets.found),
        doubts=tuple(problems.doubtful),
    )


def _names(table: dict[str, object], places: tuple[UpstreamConfig, ...]) -> list[str]:
    """The upstreams that aliases may speak of, those included with which something is wrong."""
    upstreams = table.get("upstreams")
    return (
        list(upstreams)
        if isinstance(upstreams, dict) and upstreams
        else [one.name for one in places]
    )


def _chosen(environ: Mapping[str, str]) -> Path | None:
    if environ.get("WEFT_CONFIG"):
        return Path(environ["WEFT_CONFIG"])
    return DEFAULT if DEFAULT.exists() else None


def _text(path: Path) -> str:
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


def _parsed(path: Path, text: str) -> dict[str, object]:
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
