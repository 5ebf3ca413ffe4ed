"""Requests between dialects: what the parsers and renderers of all wires share.

`parse` reads a wire's body into a `Request`; `render` writes the body of a wire from one. No
field is dropped silently: whatever the target cannot say as it was asked is a `Loss`, adapted
(the meaning is kept), warned (style or cost may differ) or refused (it would mean something
else). Losses are named by the path in the canonical request; `Places` knows where in the
client's own body that is.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.context import Context
from weft.errors import BadRequest
from weft.parts import Json
from weft.request import Request

Outcome = Literal["adapted", "warned", "refused"]

S = TypeVar("S", bound=msgspec.Struct)


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


class Places:
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
    places: Places


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


_AT = re.compile(r" - at `\$(.*)`$")


def read(data: bytes | Raw, wanted: type[S], path: str = "") -> S:
    """Reads an object of a body; raises BadRequest with the path of what does not fit."""
    try:
        return large_json.read(data, wanted)
    except RecursionError:
        raise BadRequest(path, "nested too deeply") from None
    except ValueError as problem:
        at = _AT.search(str(problem))
        where = f"{path}{at[1]}" if at else path
        reason = _AT.sub("", str(problem))
        raise BadRequest(where.lstrip("."), reason[:1].lower() + reason[1:]) from None


def unknown(data: bytes | Raw, known: type[msgspec.Struct], *handled: str) -> Json:
    """Returns the keys of an object that a shape does not know, as one raw object."""
    names = names_of(known)
    found = large_json.members(data)
    rest = {key: value for key, value in found.items() if key not in names and key not in handled}
    return Raw(large_json.write(rest)) if rest else UNSET


@cache
def names_of(shape: type[msgspec.Struct]) -> frozenset[str]:
    """The keys that a shape knows, its tag included."""
    tag = shape.__struct_config__.tag_field
    names = {field.encode_name for field in msgspec.structs.fields(shape)}
    return frozenset(names | ({tag} if tag else set()))


# Writing


def origins(context: Context, name: str, *, native: bool) -> frozenset[str]:
    """Whose proofs a target takes back: its own. In the dialect that a request came in also those
    that came bare: only an upstream of that dialect can have shown them to the client.
    """
    own = context.origin or name
    return frozenset({own, name}) if native else frozenset({own})


def keys_of(extra: Json) -> dict[str, Raw]:
    """The keys of a raw object; none if there is none."""
    return large_json.members(extra) if isinstance(extra, Raw) else {}


class Spelling:
    """Ids or names as a target takes them: the same original always gives the same word.

    What is legal stays. Else letters the target refuses become `_`, and a short hash of the
    original keeps what was two apart.
    """

    __slots__ = ("_illegal", "_limit", "changed")

    def __init__(self, letters: str, limit: int) -> None:
        """`letters` is the inside of a character class."""
        self._illegal = re.compile(f"[^{letters}]")
        self._limit = limit
        self.changed: dict[str, str] = {}
        """What was spelled anew: the new word, and its original."""

    def spell(self, original: str) -> str:
        cleaned = self._illegal.sub("_", original)
        if cleaned == original and 0 < len(original) <= self._limit:
            return original
        mark = sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        spelled = f"{cleaned[: self._limit - 9]}_{mark}"
        self.changed[spelled] = original
        return spelled
