"""The line numbers of keys in a TOML file, which `tomllib` does not give."""

import re
import tomllib

Key = tuple[str, ...]

_NAME = r"""(?:[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
_NAMES = re.compile(_NAME)
_DOTTED = rf"{_NAME}(?:[ \t]*\.[ \t]*{_NAME})*"
_STATEMENT = re.compile(
    rf"[ \t]*(?:(?P<header>\[\[?)[ \t]*(?P<table>{_DOTTED})|(?P<key>{_DOTTED})[ \t]*=|)"
)
# In the order in which they are tried: three quotes before one. Brackets inside strings and
# comments do not count.
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'"
    r"|#[^\n]*"
    r"|(?P<open>[\[{])|(?P<close>[\]}])|(?P<end>\n)|.",
    re.DOTALL,
)


class LineNumbers:
    """The lines of all keys and tables of a valid file.

    A key in an inline table has the line of the table.
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[Key, int] = {}
        # So that every statement ends with a line.
        text += "\n"
        table: Key = ()
        line, at = 1, 0
        while at < len(text):
            found = _STATEMENT.match(text, at)
            assert found is not None  # every part of it is optional
            if found["header"]:
                table = _names(found["table"])
                self._add(table, line)
            elif found["key"]:
                self._add(table + _names(found["key"]), line)
            start, at = (
                at,
                _end_of_statement(text, found.start("header") if found["header"] else found.end()),
            )
            line += text.count("\n", start, at)

    def of(self, key: Key) -> int | None:
        """Returns the line of a key, or of the nearest table around it; None if there is none."""
        for size in range(len(key), 0, -1):
            if key[:size] in self._lines:
                return self._lines[key[:size]]
        return None

    def _add(self, key: Key, line: int) -> None:
        """The first line of a key counts, also for the tables that it creates implicitly."""
        for size in range(1, len(key) + 1):
            self._lines.setdefault(key[:size], line)


def _end_of_statement(text: str, at: int) -> int:
    """Returns where the next statement begins: after the end of a line, outside brackets."""
    depth = 0
    for token in _TOKEN.finditer(text, at):
        depth += (token["open"] is not None) - (token["close"] is not None)
        if token["end"] and depth <= 0:
            return token.end()
    return len(text)


def _names(dotted: str) -> Key:
    return tuple(_unquoted(name) for name in _NAMES.findall(dotted))


def _unquoted(name: str) -> str:
    """Returns a name without quotes; an invalid one unchanged."""
    if name[0] not in "\"'":
        return name
    try:
        return str(tomllib.loads(f"name = {name}")["name"])
    except ValueError:
        return name
