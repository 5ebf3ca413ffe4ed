"""Lists of things that are asked, item by item: what was said beside what was heard."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from weft.partial_json import canonical

Leaf = None | bool | int | float | str
Leaves = dict[str, Leaf]

ASKS_NOTHING: dict[str, tuple[Leaf, ...]] = {
    "strict": (False,),
    "parallel_tool_calls": (True,),
    "tool_choice.mode": ("auto",),
    "tool_choice.kind": ("function", "custom"),
    "detail": ("auto",),
    "parameters.type": ("object",),
    "reasoning.adaptive": (True,),
    "reasoning.summary": ("none",),
    "truncation": ("disabled",),
}
"""Values that say what is so anyway."""

ESSENCE = ("type", "kind", "data", "url", "file_id")
"""What two must have in common to be compared."""

INSTRUCTING = {"system", "developer"}
NO_TEXT: Leaves = {"type": "text", "text": ""}
FAILED = "Error: "
ADDED = "[+]"


class Asked(NamedTuple):
    """One content or tool: where it is, what it says, and what it says in its own words."""

    path: str
    leaves: Leaves
    own: Leaves
    speaker: str = ""
    inside: tuple["Asked", ...] = ()
    """What a result holds."""


Pair = tuple[Asked | None, Asked | None]
Way = tuple[float, list[Pair]]
"""Pairs, and how alike they are in all."""


def unlike(said: Sequence[Asked], heard: Sequence[Asked], whole: str) -> Iterator[str]:
    """The paths of what was said and not heard so, and of the `whole` that something is new in."""
    for mine, theirs in aligned(said, heard):
        if mine is None:
            yield f"{whole}{ADDED}"
        elif theirs is None and mine.leaves.get("text") == "":
            yield from _differing(mine, mine._replace(leaves=NO_TEXT, own={}))
        elif theirs is None:
            yield mine.path
        else:
            yield from _differing(mine, theirs)


def lost(mine: Leaves, theirs: Leaves) -> list[str]:
    names = sorted({*mine, *theirs})
    return [name for name in names if not _same(name, mine.get(name), theirs.get(name))]


def aligned(said: Sequence[Asked], heard: Sequence[Asked]) -> list[Pair]:
    """What was said beside what was heard, in order, so that as much as can be is alike."""
    above: list[Way] = [(0.0, [(None, one) for one in heard[:n]]) for n in range(len(heard) + 1)]
    for mine in said:
        row: list[Way] = [(0.0, [*above[0][1], (mine, None)])]
        for place, theirs in enumerate(heard):
            corner, up, left = above[place], above[place + 1], row[place]
            alike = _alike(mine, theirs)
            ways: list[Way] = [  # of two that are as good, the one with the earlier pairs
                (up[0], [*up[1], (mine, None)]),
                (left[0], [*left[1], (None, theirs)]),
            ]
            ways += [(corner[0] + alike, [*corner[1], (mine, theirs)])] if alike else []
            row.append(max(ways, key=lambda way: way[0]))
        above = row
    return above[-1][1]


def _alike(mine: Asked, theirs: Asked) -> float:
    """How much two say the same; nothing, if they are of two kinds or by two speakers."""
    speakers = {mine.speaker, theirs.speaker}
    essential = all(mine.leaves.get(key) == theirs.leaves.get(key) for key in ESSENCE)
    worded = (mine.leaves.get("text") == "") == (theirs.leaves.get("text") == "")
    if not (essential and worded and (len(speakers) == 1 or speakers == INSTRUCTING)):
        return 0.0
    names = {*mine.leaves, *theirs.leaves}
    same = len(names) - len(lost(mine.leaves, theirs.leaves))
    return (same + (len(speakers) == 1) / 2) / (len(names) + 1)


def _differing(mine: Asked, theirs: Asked) -> Iterator[str]:
    theirs = _as_result(mine, theirs)
    below = lost(mine.leaves, theirs.leaves)
    below += [name for name in mine.own if mine.own[name] != theirs.own.get(name)]
    yield from (f"{mine.path}.{name}" for name in below)
    if mine.speaker != theirs.speaker:
        yield f"{mine.path.partition('.content')[0]}.role"
    yield from unlike(mine.inside, theirs.inside, f"{mine.path}.content")


def _as_result(mine: Asked, theirs: Asked) -> Asked:
    """A result that says in its contents what the other says of it as a whole."""
    if not theirs.inside:
        return theirs
    leaves, inside = dict(theirs.leaves), [dict(one.leaves) for one in theirs.inside]
    if "cache" in mine.leaves and "cache" not in leaves and "cache" in inside[-1]:
        leaves["cache"] = inside[-1].pop("cache")
    if "is_error" in mine.leaves and "is_error" not in leaves:
        said = str(inside[0].get("text", ""))
        inside[0]["text"] = "" if said == FAILED.strip(": ") else said.removeprefix(FAILED)
    held = [one._replace(leaves=own) for one, own in zip(theirs.inside, inside, strict=True)]
    kept = tuple(one for one in held if one.leaves != NO_TEXT)
    return theirs._replace(leaves=leaves, inside=kept)


def _same(path: str, one: Leaf, other: Leaf) -> bool:
    if one == other:
        return True
    nothing = next((v for k, v in ASKS_NOTHING.items() if path.endswith(k)), ())
    if {one, other} <= {None, *nothing}:
        return True
    if path == "params" and isinstance(one, str) and isinstance(other, str):
        return canonical(one or "{}") == canonical(other or "{}")
    return False
