"""What a request asks, leaf by leaf: the stated normalisation of requests between dialects.

Two requests ask the same if their leaves are the same. The conversation is what is said, in order:
who says it (results of tools are the user's), and each content. So a conversion may, without a
word,

- put what one speaker says in a row into one message or several, and say instructions in a field
  or as the first message;
- leave out what asks for nothing: an empty text, a default, a key beside the fields that is
  false, null or empty;
- tell the name of a result's call or leave it to the call; which kind of tool a call or a choice
  is for follows from the tool and from how its arguments are written;
- leave out the model, where the address tells it;
- choose an effort for a budget that it reports.

Contents, and tools, are compared with those they are most alike. What a target says of its own
accord in its own words is not compared; what the source said in its own is, and is lost unless
the target says the same.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from weft.dialects.requests import Loss
from weft.partial_json import canonical
from weft.request import Request

Leaf = None | bool | int | float | str
Leaves = dict[str, Leaf]

APART = {"messages", "instructions", "tools"}
"""What is compared in another way."""

TRANSPORT = {"dialect", "stream", "include_usage", "include", "store", "said"}

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

IMPLIED = {"call": ("kind", "format"), "result": ("kind", "name")}
"""What follows from the rest, or from what it belongs to."""

NUANCES = ("cache", "is_error", "output.schema")
"""What dialects mean differently though they read each other: how long a cache keeps, in which
words a failed result says so, whether the shape of an answer is enforced.
"""

NO_TEXT: Leaves = {"type": "text", "text": ""}
FAILED = "Error: "
ADDED = "[+]"
ONLY = "tool_choice.allowed[0]"
INSTRUCTING = {"system", "developer"}


class Asked(NamedTuple):
    """One content or tool: where it is, what it says, and what it says in its own words."""

    path: str
    leaves: Leaves
    own: Leaves
    speaker: str = ""
    inside: tuple["Asked", ...] = ()
    """What a result holds."""


Pair = tuple[Asked | None, Asked | None]


def differences(one: Request, other: Request) -> list[str]:
    """The paths of `one` at which the two do not ask the same."""
    found = [*_fields(one, other), *_about_messages(one)]
    found += _unlike(list(conversation(one)), list(conversation(other)), "messages")
    found += _unlike(list(_tools(one)), list(_tools(other)), "tools")
    return found


def unnamed(different: list[str], losses: list[Loss]) -> list[str]:
    """What differs without a loss that names it, or what is around it."""
    return [path for path in different if not any(_names(loss, path) for loss in losses)]


def groundless(different: list[str], losses: list[Loss]) -> list[Loss]:
    """Losses that name what does not differ. What is refused is not sent at all."""
    told = [one for one in losses if one.outcome != "refused" and not one.path.endswith(NUANCES)]
    grounds = [path.removesuffix(ADDED) for path in different]
    return [loss for loss in told if not any(_related(loss.path, path) for path in grounds)]


def _names(loss: Loss, path: str) -> bool:
    """Whether a loss is about a path: around it, or, if something was added or all refused, in it."""
    if loss.outcome == "refused" or path.endswith(ADDED):
        return _related(loss.path, path.removesuffix(ADDED))
    return _within(path, loss.path)


def _related(one: str, other: str) -> bool:
    return _within(one, other) or _within(other, one)


def _within(path: str, around: str) -> bool:
    return path == around or (path.startswith(around) and path[len(around)] in ".[")


# What is asked


def _fields(one: Request, other: Request) -> Iterator[str]:
    mine, my_own = _leaves(one)
    theirs, their_own = _leaves(other)
    if not other.model:
        mine.pop("model")
        theirs.pop("model")
    if mine.get("reasoning.effort") == "none":
        mine.pop("reasoning.summary", None)
        theirs.pop("reasoning.summary", None)
    if "reasoning.budget_tokens" in mine and "reasoning.effort" not in mine:
        theirs.pop("reasoning.effort", None)
    if "safety_identifier" in mine and "user" not in mine:
        theirs.pop("user", None)
    if ONLY in mine and "tool_choice.allowed[1]" not in mine and "tool_choice.name" in theirs:
        theirs[ONLY] = theirs.pop("tool_choice.name")
    yield from _lost(mine, theirs)
    yield from (path for path in my_own if my_own[path] != their_own.get(path))


def _about_messages(request: Request) -> Iterator[str]:
    """What only one dialect says of a message: no other has a place for it."""
    for number, message in enumerate(request.messages):
        for name, value in (
            ("name", message.name),
            ("phase", message.phase),
            ("item_id", message.item_id),
        ):
            if value is not None:
                yield f"messages[{number}].{name}"
        yield from (f"messages[{number}].{key}" for key in _leaves(message)[1])


def conversation(request: Request) -> Iterator[Asked]:
    if request.instructions:
        yield Asked("instructions", {"type": "text", "text": request.instructions}, {}, "system")
    for number, message in enumerate(request.messages):
        speaker = "user" if message.role == "tool" else message.role
        yield from _contents(f"messages[{number}].content", message.content, speaker)


def _contents(path: str, contents: Sequence[msgspec.Struct], speaker: str) -> Iterator[Asked]:
    for place, content in enumerate(contents):
        where = f"{path}[{place}]"
        inside: tuple[Asked, ...] = ()
        leaves, own = _leaves(content)
        if leaves["type"] == "result":
            held: Sequence[msgspec.Struct] = getattr(content, "content")
            inside = tuple(_contents(f"{where}.content", held, speaker))
        if (said := Asked(where, leaves, own, speaker, inside)) and not _empty(said):
            yield said


def _empty(said: Asked) -> bool:
    return said.leaves == NO_TEXT and not said.own


def _tools(request: Request) -> Iterator[Asked]:
    for number, tool in enumerate(request.tools):
        leaves, own = _leaves(tool)
        if tool.kind not in ("function", "custom"):
            leaves.pop("name")
        yield Asked(f"tools[{number}]", leaves, own)


# Leaves


def _leaves(value: msgspec.Struct) -> tuple[Leaves, Leaves]:
    """What is said in words that all dialects share, and in the dialect's own."""
    built = msgspec.json.decode(msgspec.json.encode(value), type=dict[str, object])
    kind = str(built.get("type", ""))
    apart = {*IMPLIED.get(kind, ()), "raw", "origin"}
    if isinstance(value, Request):
        apart |= APART | TRANSPORT
    if kind == "result":
        apart.add("content")
    built = {key: one for key, one in built.items() if key not in apart}
    own = dict(_own(built))
    return dict(_flat(built)), own


def _own(built: dict[str, object], path: str = "") -> Iterator[tuple[str, Leaf]]:
    """Takes the dialect's own words out of what was built."""
    match built.pop("extra", None):
        case dict() as extra:
            told = {key: one for key, one in extra.items() if one not in (None, False, "", [], {})}
            yield from _flat(told, path)
    for key, one in built.items():
        if isinstance(one, dict):
            yield from _own(one, key)


def _flat(value: object, path: str = "") -> Iterator[tuple[str, Leaf]]:
    match value:
        case dict():
            for key, one in value.items():
                yield from _flat(one, f"{path}.{key}" if path else str(key))
        case list() | tuple():
            for number, one in enumerate(value):
                yield from _flat(one, f"{path}[{number}]")
        case bool() | int() | float() | str() | None:
            yield path, value
        case _:
            raise AssertionError(f"{path}: {value!r}")


def _lost(mine: Leaves, theirs: Leaves) -> list[str]:
    names = sorted({*mine, *theirs})
    return [name for name in names if not _same(name, mine.get(name), theirs.get(name))]


def _same(path: str, one: Leaf, other: Leaf) -> bool:
    if one == other:
        return True
    nothing = next((v for k, v in ASKS_NOTHING.items() if path.endswith(k)), ())
    if {one, other} <= {None, *nothing}:
        return True
    if path == "params" and isinstance(one, str) and isinstance(other, str):
        return canonical(one or "{}") == canonical(other or "{}")
    return False


# Lists, item by item


def _unlike(said: Sequence[Asked], heard: Sequence[Asked], whole: str) -> Iterator[str]:
    for mine, theirs in aligned(said, heard):
        if mine is None:
            yield f"{whole}{ADDED}"
        elif theirs is None and mine.leaves.get("text") == "":
            yield from _differing(mine, mine._replace(leaves=NO_TEXT, own={}))
        elif theirs is None:
            yield mine.path
        else:
            yield from _differing(mine, theirs)


def _differing(mine: Asked, theirs: Asked) -> Iterator[str]:
    theirs = _as_result(mine, theirs)
    below = [*_lost(mine.leaves, theirs.leaves)]
    below += [name for name in mine.own if mine.own[name] != theirs.own.get(name)]
    yield from (f"{mine.path}.{name}" for name in below)
    if mine.speaker != theirs.speaker:
        yield f"{mine.path.partition('.content')[0]}.role"
    yield from _unlike(mine.inside, theirs.inside, f"{mine.path}.content")


def _as_result(mine: Asked, theirs: Asked) -> Asked:
    """A result that says in its contents what the other says of it as a whole."""
    leaves, inside = dict(theirs.leaves), [dict(one.leaves) for one in theirs.inside]
    if inside and "cache" in mine.leaves and "cache" not in leaves and "cache" in inside[-1]:
        leaves["cache"] = inside[-1].pop("cache")
    if inside and "is_error" in mine.leaves and "is_error" not in leaves:
        said = str(inside[0].get("text", ""))
        inside[0]["text"] = "" if said == FAILED.strip(": ") else said.removeprefix(FAILED)
    held = [one._replace(leaves=own) for one, own in zip(theirs.inside, inside, strict=True)]
    return theirs._replace(leaves=leaves, inside=tuple(one for one in held if not _empty(one)))


def aligned(said: Sequence[Asked], heard: Sequence[Asked]) -> list[Pair]:
    """What was said beside what was heard, in order, so that as much as can be is alike."""
    best: list[list[tuple[float, list[Pair]]]] = [[(0.0, []) for _ in range(len(heard) + 1)]]
    for b, theirs in enumerate(heard):
        best[0][b + 1] = (0.0, [*best[0][b][1], (None, theirs)])
    for mine in said:
        above = best[-1]
        row: list[tuple[float, list[Pair]]] = [(0.0, [*above[0][1], (mine, None)])]
        for b, theirs in enumerate(heard):
            left, up, corner = row[b], above[b + 1], above[b]
            ways: list[tuple[float, list[Pair]]] = [
                (left[0], [*left[1], (None, theirs)]),
                (up[0], [*up[1], (mine, None)]),
            ]
            if (alike := _alike(mine, theirs)) > 0:
                ways.insert(0, (corner[0] + alike, [*corner[1], (mine, theirs)]))
            row.append(max(ways, key=lambda way: way[0]))
        best.append(row)
    return best[-1][-1][1]


def _alike(mine: Asked, theirs: Asked) -> float:
    """How much two say the same; nothing, if they are of two kinds."""
    names = {*mine.leaves, *theirs.leaves}
    same = sum(_same(name, mine.leaves.get(name), theirs.leaves.get(name)) for name in names)
    if mine.leaves.get("type") != theirs.leaves.get("type") or not _one(mine, theirs):
        return 0.0
    return (same + (mine.speaker == theirs.speaker)) / (len(names) + 1)


def _one(mine: Asked, theirs: Asked) -> bool:
    """Whether one speaker says both, as far as dialects tell them apart."""
    return mine.speaker == theirs.speaker or {mine.speaker, theirs.speaker} == INSTRUCTING
