"""Aliases: names for one model of an upstream, or for several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from weft.gateway.settings.problems import Problems, unknown_name
from weft.gateway.settings.schema import AliasSettings
from weft.relay.routing import AliasPolicy


@dataclass(frozen=True, slots=True)
class Aliases:
    """The targets of each alias, in the order of the file, and how they are used."""

    targets: dict[str, tuple[str, ...]]
    policies: dict[str, AliasPolicy]


def build_aliases(
    models: Mapping[str, str | tuple[str, ...] | AliasSettings],
    upstreams: Sequence[str],
    problems: Problems,
) -> Aliases:
    """Returns the aliases, and reports their problems."""
    tables = {name: _table(one) for name, one in models.items()}
    found = {name: one.targets for name, one in tables.items()}
    for name, table in tables.items():
        add = partial(problems.add, ("models", name))
        if problems.has_any(("models", name)):
            continue  # what is missing may be missing because of that
        if not name or not name.isprintable() or " " in name:
            add("an alias must be a word without blanks")
        first, slash, model = name.partition("/")
        if slash and first in upstreams:
            # Otherwise it would depend on the order of lookup which of the two a request means.
            if table.targets:
                add(f"is already a model of the upstream {first}; choose another name")
            elif model:
                found[name] = (name,)  # how this very model is treated
        if not found[name] and not (slash and first in upstreams):
            add("needs at least one target, <upstream>/<model>")
        if table.weights and table.balance != "weighted":
            add('weights need balance = "weighted"')
        if table.weights and len(table.weights) != len(table.targets):
            add(f"has {len(table.weights)} weights for {len(table.targets)} targets")
        for number, target in enumerate(table.targets):
            first, slash, model = target.partition("/")
            if target in tables and tables[target].targets:
                add(f"{target!r} is itself an alias; expected <upstream>/<model>")
            elif not slash or not model:
                add(f"{target!r} is not a target; expected <upstream>/<model>")
            elif first not in upstreams:
                add(f"{target!r}: {unknown_name('upstream', first, upstreams)}")
            elif target in table.targets[:number]:
                add(f"{target!r} is listed twice")
    policies = {
        name: AliasPolicy(one.balance, one.weights, one.lossy)
        for name, one in tables.items()
        if isinstance(models[name], AliasSettings)
    }
    return Aliases(found, policies)


def _table(one: str | tuple[str, ...] | AliasSettings) -> AliasSettings:
    """The other forms as a table."""
    if isinstance(one, AliasSettings):
        return one
    return AliasSettings(targets=(one,) if isinstance(one, str) else one)
