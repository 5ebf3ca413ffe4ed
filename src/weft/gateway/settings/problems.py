"""Problems of the settings, each with its file, line and key."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

from weft.errors import ClientError
from weft.gateway.settings.line_numbers import Key, LineNumbers

ENVIRONMENT = "environment"
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: `weft.toml:12: server.port: must be …`."""

    path: str
    """The file, or `environment`; `defaults` if there is no file."""

    line: int | None
    key: str
    """The dotted key, or the name of the variable."""

    message: str

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return ": ".join(filter(None, (place, self.key, self.message)))


class SettingsError(ClientError):
    """Invalid settings, with all their problems."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(slots=True)
class Problems:
    """Collects problems, so that all are reported at once."""

    path: str
    lines: LineNumbers
    variables: dict[Key, str] = field(default_factory=dict)
    """The variables of settings from the environment, by key."""

    found: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    _keys: list[Key] = field(default_factory=list)

    def add(self, key: Key, message: str) -> None:
        """Adds an error."""
        self._keys.append(key)
        self.found.append(self._located(key, message))

    def has_any(self, key: Key) -> bool:
        """Whether there is an error at this key or below it."""
        return any(one[: len(key)] == key for one in self._keys)

    def warn(self, key: Key, message: str) -> None:
        """Adds a warning: valid, but probably a mistake."""
        self.warnings.append(self._located(key, message))

    def in_file_order(self) -> list[Problem]:
        """The errors in the order of the file, then those of the environment."""
        # sorted is stable: problems of one line stay in the order in which they were found.
        return sorted(self.found, key=lambda one: (one.path == ENVIRONMENT, one.line or 0))

    def _located(self, key: Key, message: str) -> Problem:
        if key in self.variables:
            return Problem(ENVIRONMENT, None, self.variables[key], message)
        return Problem(self.path, self.lines.of(key), dotted(key), message)


def dotted(key: Key) -> str:
    """Returns a key as written in TOML, with quotes where they are needed."""
    return ".".join(name if _BARE.fullmatch(name) else json.dumps(name) for name in key)


def closest(name: str, known: Iterable[str]) -> str | None:
    """Returns the most similar known name, if there is one."""
    near = get_close_matches(name.lower(), list(known), n=1, cutoff=0.65)
    return near[0] if near else None


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """Returns `no such WHAT`, with the most similar name, or all names."""
    names = list(known)
    near = closest(name, names)
    hint = f"did you mean {near}?" if near else f"there are {', '.join(names) or 'none'}"
    return f"no such {what}; {hint}"
