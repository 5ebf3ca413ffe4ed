"""Aliases: names for one model of an upstream, or for several."""

from collections.abc import Mapping, Sequence
from functools import partial

from weft.gateway.settings.problems import Problems, unknown_name


def aliases(
    models: Mapping[str, str | tuple[str, ...]], upstreams: Sequence[str], problems: Problems
) -> dict[str, tuple[str, ...]]:
    """Returns the targets of each alias, in the order in which they are tried."""
    found = {name: (one,) if isinstance(one, str) else one for name, one in models.items()}
    for name, targets in found.items():
        add = partial(problems.add, ("models", name))
        if not name or not name.isprintable() or " " in name:
            add("an alias must be a word without blanks")
        first, slash, _ = name.partition("/")
        # Otherwise it would depend on the order of lookup which of the two a request means.
        if slash and first in upstreams:
            add(f"is already a model of the upstream {first}; choose another name")
        if not targets:
            add("needs at least one target, <upstream>/<model>")
        for number, target in enumerate(targets):
            first, slash, model = target.partition("/")
            if target in found:
                add(f"{target!r} is itself an alias; expected <upstream>/<model>")
            elif not slash or not model:
                add(f"{target!r} is not a target; expected <upstream>/<model>")
            elif first not in upstreams:
                add(f"{target!r}: {unknown_name('upstream', first, upstreams)}")
            elif target in targets[:number]:
                add(f"{target!r} is listed twice")
    return found
