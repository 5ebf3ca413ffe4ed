"""Aliases: a name that stands for a model of an upstream, or for several."""

from collections.abc import Iterable, Mapping, Sequence

from weft.gateway.settings.problems import Problems, unknown_name


def aliases(
    models: Mapping[str, str | tuple[str, ...]], upstreams: Sequence[str], problems: Problems
) -> dict[str, tuple[str, ...]]:
    """Returns the targets of each alias, in the order they are tried."""
    found = {name: (one,) if isinstance(one, str) else one for name, one in models.items()}
    for name, targets in found.items():
        for wrong in (*_name(name, upstreams), *_targets(targets, found, upstreams)):
            problems.add(("models", name), wrong)
    return found


def _name(name: str, upstreams: Sequence[str]) -> Iterable[str]:
    if not name or not name.isprintable() or " " in name:
        yield "an alias is a word without blanks"
    first, slash, _ = name.partition("/")
    if slash and first in upstreams:
        yield f"is a model of the upstream {first} already; an alias needs a name of its own"


def _targets(
    targets: tuple[str, ...], models: Mapping[str, object], upstreams: Sequence[str]
) -> Iterable[str]:
    if not targets:
        yield "needs at least one target, <upstream>/<model>"
    for number, target in enumerate(targets):
        first, slash, model = target.partition("/")
        if target in models:
            yield f"{target!r} is an alias itself; a target is <upstream>/<model>"
        elif not slash or not model:
            yield f"{target!r} is no target; a target is <upstream>/<model>"
        elif first not in upstreams:
            yield f"{target!r}: {unknown_name('upstream', first, upstreams)}"
        elif target in targets[:number]:
            yield f"{target!r} is there twice"
