"""Requests between dialects: what the parsers and renderers of all wires share.

`parse` reads a wire's body into a `Request`; `render` writes the body of a wire from one. No
field is dropped silently: whatever the target cannot say as it was asked is a `Loss`, adapted
(the meaning is kept), warned (style or cost may differ) or refused (it would mean something
else). Losses are named by the path in the canonical request; `Places` knows where in the
client's own body that is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from weft.context import Context
from weft.request import Request

Outcome = Literal["adapted", "warned", "refused"]


class Loss(msgspec.Struct, frozen=True):
    """One difference between what was asked and what the target is told."""

    path: str
    outcome: Outcome
    detail: str


class Losses:
    """Collects losses in order, each path and outcome once."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: list[Loss] = []

    def adapted(self, path: str, detail: str) -> None:
        """Said in other words; the meaning is kept."""
        self._add(Loss(path, "adapted", detail))

    def warned(self, path: str, detail: str) -> None:
        """Weakened: the answer may differ in style or cost, not in truth."""
        self._add(Loss(path, "warned", detail))

    def dropped(self, path: str, target: str) -> None:
        """Not sent, as the target has no such field; the answer means the same without it."""
        self.warned(path, f"dropped: {target} has no equivalent")

    def refused(self, path: str, detail: str) -> None:
        """Cannot be said: the request would mean something else."""
        self._add(Loss(path, "refused", detail))

    def _add(self, loss: Loss) -> None:
        if loss not in self.found:
            self.found.append(loss)

    @property
    def refusals(self) -> list[Loss]:
        """The losses that must not happen."""
        return [loss for loss in self.found if loss.outcome == "refused"]

    @property
    def refusal(self) -> Loss | None:
        """The first loss that must not happen, if there is one."""
        return next(iter(self.refusals), None)


class SourcePaths:
    """Where in the client's own body a path of the canonical request is."""

    __slots__ = ("_places",)

    def __init__(self, fields: Mapping[str, str] | None = None) -> None:
        self._places = dict(fields or {})

    def add(self, canonical: str, source: str) -> None:
        self._places[canonical] = source

    def source(self, canonical: str) -> str:
        """The client's path: the longest known beginning is replaced, the rest kept."""
        for cut in range(len(canonical), 0, -1):
            if cut < len(canonical) and canonical[cut] not in ".[":
                continue
            place = self._places.get(canonical[:cut])
            if place is not None:
                return place + canonical[cut:]
        return canonical


@dataclass(frozen=True, slots=True)
class Parsed:
    """A body that was read, and where its fields came from."""

    request: Request
    source_paths: SourcePaths


@dataclass(frozen=True, slots=True)
class Rendered:
    """A body to send, and what its answer must be read with."""

    body: bytes
    names: Mapping[str, str]
    """The tool names that the target could not take: what it was told, and the original."""

    bridged: frozenset[str] = frozenset()
    """Tools for free text that were declared as functions, by the names the client gave them."""

    stop: tuple[str, ...] = ()
    """Stop sequences that the target does not know: the answer must be cut at them."""


@dataclass(frozen=True, slots=True)
class RequestCodec:
    """Requests of one dialect, both ways."""

    parse: Callable[[bytes, Context], Parsed]
    """Raises BadRequest, which names the field, what came and what was expected."""

    render: Callable[[Request, Context, Losses], Rendered]
    """Never raises for a request that was parsed: what cannot be said is in the losses."""

    continued: Callable[[bytes, bytes], bytes] | None = None
    """For a wire whose answers may pause: the body that asks for the rest, from the body that
    was asked with and the body of what was answered so far."""


# Reading


# Writing


def accepted_origins(context: Context, name: str, *, native: bool) -> frozenset[str]:
    """Whose proofs a target takes back: its own. In the dialect that a request came in also those
    that came bare: only an upstream of that dialect can have shown them to the client.
    """
    own = context.origin or name
    return frozenset({own, name}) if native else frozenset({own})
