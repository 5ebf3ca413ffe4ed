"""What is wrong with the settings, each with its place."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

from weft.errors import ClientError
from weft.gateway.settings.line_numbers import Key, LineNumbers

ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: `weft.toml:12: server.port: must be …`."""

    path: str
    """The file, or `environment`; `defaults` where there is no file."""

    line: int | None
    key: str
    """As it would be written in one line of the file, or the name of the variable."""

    message: str

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return ": ".join(filter(None, (place, self.key, self.message)))


class SettingsError(ClientError):
    """Settings that cannot be used: all that is wrong with them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(slots=True)
class Problems:
    """Collects what is wrong, so that one look finds everything."""

    path: str
    lines: LineNumbers
    variables: dict[Key, str] = field(default_factory=dict)
    """The settings that came from the environment, with the names of their variables."""

    found: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    _keys: list[Key] = field(default_factory=list)

    def add(self, key: Key, message: str) -> None:
        """Something that cannot be."""
        self._keys.append(key)
        self.found.append(self._located(key, message))

    def has_any(self, key: Key) -> bool:
        """Whether anything is wrong with this key, or inside its table."""
        return any(one[: len(key)] == key for one in self._keys)

    def warn(self, key: Key, message: str) -> None:
        """Something that can be, but is hardly meant."""
        self.warnings.append(self._located(key, message))

    def in_file_order(self) -> list[Problem]:
        """All that cannot be, as one reads the file, and then the environment."""
        return sorted(self.found, key=lambda one: (one.path == ENVIRONMENT, one.line or 0))

    def _located(self, key: Key, message: str) -> Problem:
        if key in self.variables:
            return Problem(ENVIRONMENT, None, self.variables[key], message)
        return Problem(self.path, self.lines.of(key), dotted(key), message)


def dotted(key: Key) -> str:
    """Returns a key as one writes it: names that need quotes have them."""
    return ".".join(name if _bare(name) else json.dumps(name) for name in key)


def _bare(name: str) -> bool:
    return bool(name) and name.isascii() and name.replace("-", "_").replace("_", "a").isalnum()


def closest(name: str, known: Iterable[str]) -> str | None:
    """Returns what was perhaps meant."""
    near = get_close_matches(name.lower(), list(known), n=1, cutoff=0.65)
    return near[0] if near else None


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """Returns `no such WHAT`, and what was perhaps meant, or else what there is."""
    names = list(known)
    near = closest(name, names)
    hint = f"did you mean {near}?" if near else f"there are {', '.join(names) or 'none'}"
    return f"no such {what}; {hint}"
