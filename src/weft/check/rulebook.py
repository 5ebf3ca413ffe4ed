"""All rules there are, by their full ids: `<wire>/<name>`. Ids are stable."""

from difflib import get_close_matches

from weft.check import lifecycle, lines
from weft.dialects import DIALECTS
from weft.dialects.rules import Rule
from weft.errors import ClientError

WIRES: dict[str, tuple[Rule, ...]] = {
    lines.WIRE: lines.RULES,
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
_NEAR = 5


def rules_named(name: str) -> list[str]:
    """Returns the full ids of the rules of that id, or of that bare name in any wire.

    Raises ClientError if there is none, with the ids that come near.
    """
    wire, _, rest = name.rpartition("/")
    wanted = f"{_ALIASES.get(wire, wire)}/{rest}" if wire else rest
    found = [id for id in RULES if wanted in (id, id.partition("/")[2])]
    if not found:
        near = _near(wanted)
        hint = f"; near it: {', '.join(near)}" if near else "; `weft check --rules` lists all"
        raise ClientError(f"no rule is called {name!r}{hint}")
    return found


def _near(name: str) -> list[str]:
    bare = {id.partition("/")[2]: id for id in RULES}
    near = get_close_matches(name, RULES, _NEAR)
    near += [bare[one] for one in get_close_matches(name.rpartition("/")[2], bare, _NEAR)]
    return list(dict.fromkeys(near))[:_NEAR]
