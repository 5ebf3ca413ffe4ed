"""Which upstreams a model name refers to.

A model is `<upstream>/<model>`, split at the first slash, or an alias: one target, or several to
try in order. An alias may hold `*` (`claude-*`); a `*` in its target stands for the requested name.
Names take precedence over patterns, and earlier patterns over later ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from weft.errors import ClientError
from weft.upstream.base import Upstream
from weft.upstream.breaker import RequestBreaker, UpstreamBreakers


class UnknownModel(ClientError):
    """No upstream and no alias has this name."""


@dataclass(frozen=True, slots=True)
class Target:
    """One model of one upstream, for one request."""

    upstream: Upstream
    model: str
    breaker: RequestBreaker

    @property
    def name(self) -> str:
        return f"{self.upstream.config.name}/{self.model}"


class Routing:
    """All upstreams and aliases."""

    def __init__(
        self, upstreams: Mapping[str, Upstream], aliases: Mapping[str, tuple[str, ...]]
    ) -> None:
        self._upstreams = dict(upstreams)
        self._breakers = {
            name: UpstreamBreakers(name, upstream.config.breaker)
            for name, upstream in upstreams.items()
        }
        self._aliases = dict(aliases)

    def targets(self, model: str) -> tuple[Target, ...]:
        """Returns the targets to try, in order; raises UnknownModel."""
        names = self._aliases.get(model)
        if names is None and self._upstream_of(model):
            names = (model,)
        if names is None:
            matching = (
                names
                for pattern, names in self._aliases.items()
                # `fnmatchcase`, since fnmatch ignores case on some systems.
                if "*" in pattern and fnmatchcase(model, pattern)
            )
            names = next(matching, None)
        if names is None:
            known = ", ".join([*(f"{name}/…" for name in self._upstreams), *self._aliases])
            raise UnknownModel(f"no model {model[:200]!r}; expected one of: {known}")
        targets = []
        for name in (name.replace("*", model) for name in names):
            upstream = self._upstream_of(name)
            if upstream is None:
                raise UnknownModel(f"no upstream for {name[:200]!r}")
            # Names of models have slashes themselves (`meta-llama/Llama-3`): only the first one
            # counts.
            own = name.partition("/")[2]
            breaker = self._breakers[upstream.config.name].request(own)
            targets.append(Target(upstream, own, breaker))
        return tuple(targets)

    def _upstream_of(self, model: str) -> Upstream | None:
        name, slash, rest = model.partition("/")
        return self._upstreams.get(name) if slash and rest else None

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        return self._upstreams

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
