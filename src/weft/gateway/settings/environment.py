"""Settings from the environment, and the variables that the file names."""

from collections.abc import Mapping

from weft.gateway.settings.problems import Problems
from weft.gateway.settings.reader import EnvironmentText

PREFIX = "WEFT_"
CONFIG = "WEFT_CONFIG"
_TABLES = ("server", "store")
"""The tables whose keys can be set; the names of all others are the user's own."""


class Environment:
    """The variables of the process. Those it was asked for by name are known."""

    def __init__(self, variables: Mapping[str, str], problems: Problems) -> None:
        self._variables = variables
        self._problems = problems
        self._known = {CONFIG}

    def get(self, name: str) -> str | None:
        self._known.add(name)
        return self._variables.get(name)

    def applied_to(self, table: dict[str, object]) -> dict[str, object]:
        """Returns the table of the file with what the environment sets in it."""
        for name, text in sorted(self._variables.items()):
            key = tuple(name.removeprefix(PREFIX).lower().split("__"))
            if name.startswith(PREFIX) and len(key) > 1 and key[0] in _TABLES and all(key):
                self._known.add(name)
                self._problems.variables[key] = name
                table = _with(table, key, EnvironmentText(text))
        return table

    def report_unknown(self) -> None:
        """Adds a problem for every variable of ours that means nothing."""
        names = [f"{PREFIX}{table.upper()}__KEY" for table in _TABLES]
        for name in sorted(self._variables):
            if name.startswith(PREFIX) and name not in self._known:
                key = (name,)
                self._problems.variables[key] = name
                self._problems.add(
                    key, f"no such variable; there are {', '.join((CONFIG, *names))}"
                )


def _with(table: dict[str, object], key: tuple[str, ...], value: object) -> dict[str, object]:
    name, *rest = key
    inner = table.get(name)
    if rest:
        value = _with(inner if isinstance(inner, dict) else {}, tuple(rest), value)
    return {**table, name: value}
