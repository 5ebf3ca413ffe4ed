"""All rules there are, by their ids: `<wire>/<name>`. Ids are stable.

The rules of a dialect are in `rules.toml` in its folder; those of every stream are `sse.toml` and
`lifecycle.toml` here. A file is read when a rule of its wire is first needed.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

import msgspec

from weft.dialects import DIALECTS
from weft.dialects.rules import Rule
from weft.errors import ClientError

SSE = "sse"
LIFECYCLE = "lifecycle"
WIRES: tuple[str, ...] = (
    SSE,
    LIFECYCLE,
    *(name for name, dialect in DIALECTS.items() if dialect.validator is not None),
)
"""What has rules: every stream, and each dialect with a validator."""

_ALIASES: dict[str, str] = {
    alias: dialect.name for dialect in DIALECTS.values() for alias in dialect.aliases
}
_MAX_SIMILAR = 5


@cache
def rules_of(wire: str) -> dict[str, Rule]:
    """Returns the rules of one wire by their names, in the order of its file; none if it is not
    one of `WIRES`.
    """
    if wire not in WIRES:
        return {}
    if wire in (SSE, LIFECYCLE):
        file = files("weft.check") / f"{wire}.toml"
    else:
        file = files("weft.dialects") / wire.replace("-", "_") / "rules.toml"
    return msgspec.toml.decode(file.read_bytes(), type=dict[str, Rule])


def rule(id: str) -> Rule:
    """Returns the rule of that id; raises KeyError if there is none."""
    wire, _, name = id.partition("/")
    return rules_of(wire)[name]


@cache
def all_rules() -> dict[str, Rule]:
    """Returns every rule by its id, wire by wire."""
    return {f"{wire}/{name}": rule for wire in WIRES for name, rule in rules_of(wire).items()}


def rules_named(name: str) -> list[str]:
    """Returns the ids of the rules of that id, or of that bare name in any wire.

    Raises ClientError if there is none, with the ids that are similar.
    """
    # A bare name may stand for a rule of several wires.
    wanted = _canonical(name)
    found = [id for id in all_rules() if wanted in (id, id.partition("/")[2])]
    if not found:
        bare = {id.partition("/")[2]: id for id in all_rules()}
        # By id and by name alone: with the prefix of the wire, ids are similar to too many others.
        similar = get_close_matches(wanted, all_rules(), _MAX_SIMILAR)
        names = get_close_matches(wanted.rpartition("/")[2], bare, _MAX_SIMILAR)
        similar = list(dict.fromkeys([*similar, *(bare[one] for one in names)]))[:_MAX_SIMILAR]
        hint = f"did you mean {', '.join(similar)}?" if similar else "see `weft check --rules`"
        raise ClientError(f"there is no rule {name!r}; {hint}")
    return found


def rules_matching(pattern: str) -> list[str]:
    """As rules_named; if there is none, all rules whose ids begin so, such as `openai-chat/`."""
    try:
        # An exact id first: it must not select the rules whose ids only begin like it.
        return rules_named(pattern)
    except ClientError:
        found = [id for id in all_rules() if pattern and id.startswith(_canonical(pattern))]
        if not found:
            raise
        return found


def _canonical(name: str) -> str:
    """The name with an alias of its dialect replaced by the dialect's own name."""
    wire, slash, rest = name.rpartition("/")
    return f"{_ALIASES.get(wire, wire)}/{rest}" if slash else _ALIASES.get(name, name)


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
    return Selection(chosen or None, left_out)  # an empty --select selects all


def _matching(lists: Iterable[str]) -> frozenset[str]:
    patterns = [one.strip() for each in lists for one in each.split(",")]
    return frozenset(id for one in patterns if one for id in rules_matching(one))
