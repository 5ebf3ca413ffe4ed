"""All rules there are, by their full ids: `<wire>/<name>`. Ids are stable."""

from collections.abc import Iterable
from difflib import get_close_matches

import msgspec

from weft.check import lifecycle, sse_lines
from weft.dialects import DIALECTS
from weft.dialects.rules import Rule
from weft.errors import ClientError

WIRES: dict[str, tuple[Rule, ...]] = {
    sse_lines.WIRE: sse_lines.RULES,
    lifecycle.WIRE: lifecycle.RULES,
    **{dialect.name: dialect.rules for dialect in DIALECTS.values()},
}
"""The rules of every wire, and of streams of any wire."""

RULES: dict[str, Rule] = {
    f"{wire}/{rule.name}": rule for wire, rules in WIRES.items() for rule in rules
}

_ALIASES: dict[str, str] = {
    alias: dialect.name for dialect in DIALECTS.values() for alias in dialect.aliases
}
_MAX_SIMILAR = 5


def rules_named(name: str) -> list[str]:
    """Returns the full ids of the rules of that id, or of that bare name in any wire.

    Raises ClientError if there is none, with the ids that are similar.
    """
    wanted = _full(name)
    found = [id for id in RULES if wanted in (id, id.partition("/")[2])]
    if not found:
        raise _unknown(name)
    return found


def rules_matching(pattern: str) -> list[str]:
    """As rules_named; also of all rules whose ids begin so, such as `openai-chat/`."""
    wanted = _full(pattern)
    found = [id for id in RULES if wanted in (id, id.partition("/")[2])]
    found = found or [id for id in RULES if pattern and id.startswith(wanted)]
    if not found:
        raise _unknown(pattern)
    return found


def _full(name: str) -> str:
    """The name with the first name of its dialect, if it has one."""
    wire, slash, rest = name.rpartition("/")
    return f"{_ALIASES.get(wire, wire)}/{rest}" if slash else _ALIASES.get(name, name)


def _unknown(name: str) -> ClientError:
    similar = _similar(_full(name))
    hint = f"did you mean {', '.join(similar)}?" if similar else "see `weft check --rules`"
    return ClientError(f"there is no rule {name!r}; {hint}")


class Selection(msgspec.Struct, frozen=True):
    """Which rules are checked."""

    selected: frozenset[str] | None = None
    """None: all."""
    ignored: frozenset[str] = frozenset()

    def selects(self, rule: str) -> bool:
        return self.selected is None or rule in self.selected

    def reports(self, rule: str) -> bool:
        return self.selects(rule) and rule not in self.ignored


EVERY_RULE = Selection()


def selection(select: Iterable[str], ignore: Iterable[str]) -> Selection:
    """Returns the selection by ids, bare names or prefixes, with commas between several.

    Raises ClientError if a pattern matches no rule.
    """
    chosen, left_out = _matching(select), _matching(ignore)
    return Selection(chosen or None, left_out)


def _matching(lists: Iterable[str]) -> frozenset[str]:
    patterns = [one.strip() for each in lists for one in each.split(",")]
    return frozenset(rule for one in patterns if one for rule in rules_matching(one))


def _similar(name: str) -> list[str]:
    bare = {id.partition("/")[2]: id for id in RULES}
    similar = get_close_matches(name, RULES, _MAX_SIMILAR)
    similar += [bare[one] for one in get_close_matches(name.rpartition("/")[2], bare, _MAX_SIMILAR)]
    return list(dict.fromkeys(similar))[:_MAX_SIMILAR]
