"""Which upstreams a model name refers to.

A model is `<upstream>/<model>`, split at the first slash, or an alias: one target, or several to
try one after the other. An alias may hold `*` (`claude-*`); a `*` in its target stands for the
requested name. Names take precedence over patterns, and earlier patterns over later ones.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

import msgspec

from weft.errors import ClientError
from weft.upstream.base import Upstream
from weft.upstream.breaker import BreakerState, RequestBreaker, UpstreamBreakers


class UnknownModel(ClientError):
    """No upstream and no alias has this name."""


class Target(msgspec.Struct, frozen=True):
    """One model of one upstream, for one request."""

    upstream: Upstream
    model: str
    breaker: RequestBreaker
    name: str
    """`<upstream>/<model>`."""


@dataclass(frozen=True, slots=True)
class AliasPolicy:
    """How the targets of an alias are chosen, and what may be lost on the way to them."""

    balance: Literal["order", "weighted", "least-busy"] = "order"
    weights: tuple[float, ...] = ()
    """One for each target; none: all are equal."""

    lossy: Literal["warn", "refuse"] | None = None
    """What happens to a request with fields that a target cannot express; None: as for all."""


_DEFAULT = AliasPolicy()

_Place = tuple[Upstream, str, UpstreamBreakers, str]
"""An upstream, one of its models, their breakers, and the name of both."""

Load = Callable[[str], int]
"""Returns the number of requests in progress at a target, by its name."""


class Routing:
    """All upstreams and aliases."""

    def __init__(
        self,
        upstreams: Mapping[str, Upstream],
        aliases: Mapping[str, tuple[str, ...]],
        policies: Mapping[str, AliasPolicy] | None = None,
    ) -> None:
        """An alias without a policy is tried in order."""
        self._upstreams: dict[str, Upstream] = {}
        self._breakers: dict[str, UpstreamBreakers] = {}
        self.update(upstreams, aliases, policies or {})

    def update(
        self,
        upstreams: Mapping[str, Upstream],
        aliases: Mapping[str, tuple[str, ...]],
        policies: Mapping[str, AliasPolicy],
    ) -> list[Upstream]:
        """Replaces everything; returns the upstreams that are no longer used. Those that stay keep
        their breakers."""
        before, kept = self._upstreams, self._breakers
        self._upstreams = dict(upstreams)
        self._breakers = {
            name: kept[name]
            if before.get(name) is upstream
            else UpstreamBreakers(name, upstream.config.breaker)
            for name, upstream in upstreams.items()
        }
        self._aliases = dict(aliases)
        self._policies = dict(policies)
        # Anew, since the names have changed. Bounded, since clients can invent names.
        self._resolve = lru_cache(maxsize=1_000)(self._resolved)
        return [one for one in before.values() if one not in self._upstreams.values()]

    def targets(self, model: str, load: Load | None = None) -> tuple[Target, ...]:
        """Returns the targets to try, in order; raises UnknownModel."""
        policy, places = self._resolve(model)
        targets = [
            Target(upstream, own, RequestBreaker(breakers, own), name)
            for upstream, own, breakers, name in places
        ]
        if policy.balance == "weighted":
            return tuple(_shuffled(targets, policy.weights))
        if policy.balance == "least-busy" and load is not None:
            # Stable: of equally busy ones, the first.
            return tuple(sorted(targets, key=lambda target: load(target.name)))
        return tuple(targets)

    def policy(self, model: str) -> AliasPolicy:
        """Returns how requests for a model are treated; raises UnknownModel."""
        return self._resolve(model)[0]

    def _resolved(self, model: str) -> tuple[AliasPolicy, list[_Place]]:
        """Returns how requests for a model are treated, and where they go."""
        alias, names = self._look_up(model)
        places = [self._place(name.replace("*", model)) for name in names]
        return self._policies.get(alias, _DEFAULT), places

    def _look_up(self, model: str) -> tuple[str, tuple[str, ...]]:
        """Returns the alias that the name stands for, or the name itself, and its targets."""
        if model in self._aliases:
            return model, self._aliases[model]
        name, _, rest = model.partition("/")
        if rest and name in self._upstreams:
            return model, (model,)
        for pattern, names in self._aliases.items():
            # `fnmatchcase`, since fnmatch ignores case on some systems.
            if "*" in pattern and fnmatchcase(model, pattern):
                return pattern, names
        known = ", ".join([*(f"{name}/…" for name in self._upstreams), *self._aliases])
        raise UnknownModel(f"no model {model[:200]!r}; expected one of: {known}")

    def _place(self, name: str) -> _Place:
        # Names of models have slashes themselves (`meta-llama/Llama-3`): only the first one counts.
        place, _, model = name.partition("/")
        upstream = self._upstreams.get(place) if model else None
        if upstream is None:
            raise UnknownModel(f"no upstream for {name[:200]!r}")
        return upstream, model, self._breakers[place], name

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        return self._upstreams

    @property
    def breakers(self) -> list[tuple[str, str, BreakerState]]:
        """Upstream, model and state of the breakers that have counted a failure; the model is empty
        for the breaker of the connections."""
        return [
            (name, model, state)
            for name, breakers in self._breakers.items()
            for model, state in breakers.states
        ]

    @property
    def models(self) -> list[str]:
        """The names to list: aliases, and the models in the settings of upstreams."""
        aliases = [name for name in self._aliases if "*" not in name]
        listed = [
            f"{name}/{model}"
            for name, upstream in self._upstreams.items()
            for model in upstream.config.models
        ]
        return list(dict.fromkeys([*aliases, *listed]))


def _shuffled(targets: Sequence[Target], weights: Sequence[float]) -> list[Target]:
    """The targets in random order. Each is the first as often as its weight says, and so is each of
    the rest if those before it failed."""
    # Of exponential waiting times with these rates, each is the shortest with a probability that is
    # proportional to its rate (Efraimidis and Spirakis, 2006).
    waits = [
        -math.log(1.0 - random.random()) / weight for weight in weights or [1.0] * len(targets)
    ]
    return [targets[at] for at in sorted(range(len(targets)), key=waits.__getitem__)]
