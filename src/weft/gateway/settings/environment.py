"""Settings from environment variables, and the variables that the file uses."""

from collections.abc import Mapping

from weft.gateway.settings.problems import Problems
from weft.gateway.settings.reader import EnvironmentText

PREFIX = "WEFT_"
CONFIG = "WEFT_CONFIG"
CLIENT_KEY = "WEFT_KEY"
"""The key with which a client uses a gateway: `weft ask --url`, and our recipes for others."""

_TABLES = ("server", "store", "workers", "otel")
"""The tables whose keys can be set; in all others the user chooses the keys."""


class Environment:
    """The variables of the process; those that were read count as known."""

    def __init__(self, variables: Mapping[str, str], problems: Problems) -> None:
        self._variables = variables
        self._problems = problems
        self._known = {CONFIG, CLIENT_KEY}

    def get(self, name: str) -> str | None:
        self._known.add(name)
        return self._variables.get(name)

    def applied_to(self, table: dict[str, object]) -> dict[str, object]:
        """Returns the table of the file with the settings of the environment."""
        for name, text in sorted(self._variables.items()):
            # Two underscores, since names of settings contain single ones.
            key = tuple(name.removeprefix(PREFIX).lower().split("__"))
            if name.startswith(PREFIX) and len(key) > 1 and key[0] in _TABLES and all(key):
                self._known.add(name)
                self._problems.variables[key] = name
                table = _with(table, key, EnvironmentText(text))
        return table

    def report_unknown(self) -> None:
        """Warns of every unknown variable that begins with WEFT_."""
        names = [f"{PREFIX}{table.upper()}__KEY" for table in _TABLES]
        for name in sorted(self._variables):
            # A misspelled variable leaves a default in place. No error: clients and scripts have
            # variables of their own (`WEFT_KEY`).
            if name.startswith(PREFIX) and name not in self._known:
                key = (name,)
                self._problems.variables[key] = name
                self._problems.warn(
                    key, f"unknown variable; expected {', '.join((CONFIG, *names))}"
                )


def _with(table: dict[str, object], key: tuple[str, ...], value: object) -> dict[str, object]:
    name, *rest = key
    inner = table.get(name)
    if rest:
        value = _with(inner if isinstance(inner, dict) else {}, tuple(rest), value)
    return {**table, name: value}
