"""Aliases: names for one model of an upstream, or for several."""

from collections.abc import Iterable, Mapping, Sequence

from weft.gateway.settings.problems import Problems, unknown_name


def aliases(
    models: Mapping[str, str | tuple[str, ...]], upstreams: Sequence[str], problems: Problems
) -> dict[str, tuple[str, ...]]:
    """Returns the targets of each alias, in the order in which they are tried."""
    found = {name: (one,) if isinstance(one, str) else one for name, one in models.items()}
    for name, targets in found.items():
        for message in (
            *_name_problems(name, upstreams),
            *_target_problems(targets, found, upstreams),
        ):
            problems.add(("models", name), message)
    return found


def _name_problems(name: str, upstreams: Sequence[str]) -> Iterable[str]:
    if not name or not name.isprintable() or " " in name:
        yield "an alias must be a word without blanks"
    first, slash, _ = name.partition("/")
    if slash and first in upstreams:
        yield f"is already a model of the upstream {first}; choose another name"


def _target_problems(
    targets: tuple[str, ...], models: Mapping[str, object], upstreams: Sequence[str]
) -> Iterable[str]:
    if not targets:
        yield "needs at least one target, <upstream>/<model>"
    for number, target in enumerate(targets):
        first, slash, model = target.partition("/")
        if target in models:
            yield f"{target!r} is itself an alias; expected <upstream>/<model>"
        elif not slash or not model:
            yield f"{target!r} is not a target; expected <upstream>/<model>"
        elif first not in upstreams:
            yield f"{target!r}: {unknown_name('upstream', first, upstreams)}"
        elif target in targets[:number]:
            yield f"{target!r} is listed twice"
