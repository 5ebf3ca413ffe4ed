"""The types of request conversion: codecs, and the losses they report.

`parse` reads a wire's body into a `Request`; `render` writes the body of a wire from one. No field
is dropped silently: whatever the target cannot express is a `Loss`, adapted (the meaning is kept),
warned (style or cost may differ) or refused (the request would mean something else). Losses are
named by their path in the canonical request; `SourcePaths` knows the path in the client's own body.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from weft.context import Context
from weft.request import Request

Outcome = Literal["adapted", "warned", "refused"]


class Loss(msgspec.Struct, frozen=True):
    """One difference between the request and what the target is sent."""

    path: str
    outcome: Outcome
    detail: str


class Losses:
    """Collects losses in order, equal ones once."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: list[Loss] = []

    def adapted(self, path: str, detail: str) -> None:
        """Reports a field that is expressed differently, with the same meaning."""
        self._add(Loss(path, "adapted", detail))

    def warned(self, path: str, detail: str) -> None:
        """Reports a field without which the answer may differ in style or cost, not in truth."""
        self._add(Loss(path, "warned", detail))

    def dropped(self, path: str, target: str) -> None:
        """Warns of a field that the target does not have."""
        self.warned(path, f"dropped: {target} has no equivalent")

    def refused(self, path: str, detail: str) -> None:
        """Reports a field without which the request would mean something else."""
        self._add(Loss(path, "refused", detail))

    def _add(self, loss: Loss) -> None:
        # Renderers of tools and of their choice look at the same values. Lists are short: no set.
        if loss not in self.found:
            self.found.append(loss)

    @property
    def refusals(self) -> list[Loss]:
        return [loss for loss in self.found if loss.outcome == "refused"]

    @property
    def refusal(self) -> Loss | None:
        """The first refusal, if there is one."""
        return next(iter(self.refusals), None)


class SourcePaths(dict[str, str]):
    """Maps paths of the canonical request to paths of the client's own body."""

    __slots__ = ()

    def source(self, canonical: str) -> str:
        """Returns the client's path: the longest known prefix is replaced, the rest kept."""
        # Parsers record only where a path differs; what is below it is found by its prefix.
        for cut in range(len(canonical), 0, -1):
            # Only whole steps of a path: `user` is not the beginning of `user_id`.
            if cut < len(canonical) and canonical[cut] not in ".[":
                continue
            source = self.get(canonical[:cut])
            if source is not None:
                return source + canonical[cut:]
        return canonical


class Parsed(msgspec.Struct, frozen=True):
    """A parsed body, and where its fields came from."""

    request: Request
    source_paths: SourcePaths


class Rendered(msgspec.Struct, frozen=True):
    """A body to send, and what is needed to decode its response."""

    body: bytes
    names: Mapping[str, str]
    """The tool names that were changed for the target: the new name, and the original."""

    bridged: frozenset[str] = frozenset()
    """Custom tools that were declared as functions, by their original names."""

    stop: tuple[str, ...] = ()
    """Stop sequences that the target does not support: the response must be cut at them."""


@dataclass(frozen=True, slots=True)
class RequestCodec:
    """Requests of one dialect, both ways."""

    parse: Callable[[bytes, Context], Parsed]
    """Raises BadRequest, which names the field, what came and what was expected."""

    render: Callable[[Request, Context, Losses], Rendered]
    """Never raises for a request that was parsed: what cannot be expressed is in the losses."""

    # Only Anthropic Messages pauses, with `pause_turn`.
    continued: Callable[[bytes, bytes], bytes] | None = None
    """For a wire whose responses may pause: the body that requests the rest, from the body of the
    request and the body of the response so far."""


def accepted_origins(context: Context, name: str, *, native: bool) -> frozenset[str]:
    """Returns whose signatures a target accepts: its own. With `native`, for a request in the
    target's own dialect, also those without an envelope: only an upstream of that dialect can have
    given them to the client.
    """
    # A dialect's name stands for its host where no upstream is known, as in the library.
    own = context.origin or name
    return frozenset({own, name}) if native else frozenset({own})
