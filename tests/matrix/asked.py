"""What a request asks, leaf by leaf: the stated normalisation of requests between dialects.

Two requests ask the same if their leaves are the same. The conversation is what is said, in order:
who says it (results of tools are the user's), and each content. So a conversion may, without a
word, put what one speaker says in a row into one message or several, say instructions in a field
or as the first message, tell the name of a result's call or leave it to the call, and leave out
what asks for nothing: an empty text, a default, parameters of a tool that takes none. Which kind
of tool a call is for follows from how its arguments are written.
"""

from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import NamedTuple

import msgspec

from weft.dialects.requests import Loss
from weft.partial_json import canonical
from weft.request import Request, TextContent

Leaf = None | bool | int | float | str

APART = {
    "messages",
    "instructions",
    "dialect",
    "stream",
    "include_usage",
    "include",
    "store",
    "said",
}
"""What is compared in another way, or is about the transport."""

OWN = {"extra", "raw", "origin"}
"""What is said in the words of one dialect only."""

ASKS_NOTHING: dict[str, tuple[Leaf, ...]] = {
    "strict": (False,),
    "parallel_tool_calls": (True,),
    "tool_choice.mode": ("auto",),
    "detail": ("auto",),
    "parameters.type": ("object",),
    "reasoning.adaptive": (True,),
    "truncation": ("disabled",),
}
"""Values that say what is so anyway."""


IMPLIED = {"call": ("kind", "format"), "result": ("kind", "name")}
"""What follows from the rest of a content, or from its call."""


class Said(NamedTuple):
    """One content, and who said it."""

    path: str
    speaker: str
    leaves: dict[str, Leaf]
    own: dict[str, Leaf]
    """What is said beside it in the dialect's own words."""


def differences(one: Request, other: Request) -> list[str]:
    """The paths of `one` at which the two do not ask the same."""
    found = list(_fields(one, other))
    found += [f"{said.path}.{name}" for said in conversation(one) for name in said.own]
    found += [f"messages[{n}].name" for n, said in enumerate(one.messages) if said.name]
    said, heard = list(conversation(one)), list(conversation(other))
    found += [path for mine, theirs in aligned(said, heard) for path in _unlike(mine, theirs)]
    return found


def aligned(said: list[Said], heard: list[Said]) -> Iterator[tuple[Said | None, Said | None]]:
    """What was said beside what was heard: equal contents first, then those of one kind."""
    equal = SequenceMatcher(None, [*map(_key, said)], [*map(_key, heard)], autojunk=False)
    for tag, a, b, c, d in equal.get_opcodes():
        if tag == "equal":
            yield from zip(said[a:b], heard[c:d], strict=True)
        else:
            yield from _by_kind(said[a:b], heard[c:d])


def _by_kind(said: list[Said], heard: list[Said]) -> Iterator[tuple[Said | None, Said | None]]:
    mine, theirs = ([str(one.leaves["type"]) for one in half] for half in (said, heard))
    for tag, a, b, c, d in SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes():
        if tag in ("equal", "replace"):
            yield from zip_longest(said[a:b], heard[c:d])
        else:
            yield from ((one, None) for one in said[a:b])
            yield from ((None, one) for one in heard[c:d])


def _fields(one: Request, other: Request) -> Iterator[str]:
    mine, theirs = dict(_flat(_rest(one))), dict(_flat(_shared(_rest(other))))
    for path in sorted({*mine, *theirs}):
        if not _same(path, mine.get(path), theirs.get(path)):
            yield path


def _rest(request: Request) -> object:
    built = _built(request)
    return {name: value for name, value in built.items() if name not in APART}


def _shared(value: object) -> object:
    """All but what is said in a dialect's own words."""
    match value:
        case dict():
            return {key: _shared(one) for key, one in value.items() if key not in OWN}
        case list():
            return [_shared(one) for one in value]
    return value


def _built(value: msgspec.Struct) -> dict[str, object]:
    return msgspec.json.decode(msgspec.json.encode(value), type=dict[str, object])


def conversation(request: Request) -> Iterator[Said]:
    if request.instructions is not None:
        yield Said("instructions", "system", {"type": "text", "text": request.instructions}, {})
    for number, message in enumerate(request.messages):
        speaker = "user" if message.role == "tool" else message.role
        for place, content in enumerate(message.content):
            if content == TextContent(""):
                continue
            path = f"messages[{number}].content[{place}]"
            own = dict(_flat(_built(content).get("extra", {})))
            leaves = dict(_flat(_shared(_built(content))))
            implied = IMPLIED.get(str(leaves["type"]), ())
            yield Said(path, speaker, {k: v for k, v in leaves.items() if k not in implied}, own)


def _key(said: Said) -> str:
    return repr((said.speaker, sorted(said.leaves.items(), key=lambda row: row[0])))


def _unlike(mine: Said | None, theirs: Said | None) -> Iterator[str]:
    if mine is None:
        yield "messages"
    elif theirs is None:
        yield mine.path
    else:
        if mine.speaker != theirs.speaker:
            yield f"{mine.path.partition('.content')[0]}.role"
        for name in sorted({*mine.leaves, *theirs.leaves}):
            if not _same(name, mine.leaves.get(name), theirs.leaves.get(name)):
                yield f"{mine.path}.{name}" if mine.path != "instructions" else mine.path


def _flat(value: object, path: str = "") -> Iterator[tuple[str, Leaf]]:
    match value:
        case dict():
            for key, one in value.items():
                if key not in ("raw", "origin"):
                    below = path if key == "extra" else f"{path}.{key}" if path else str(key)
                    yield from _flat(one, below)
        case list() | tuple():
            for number, one in enumerate(value):
                yield from _flat(one, f"{path}[{number}]")
        case bool() | int() | float() | str() | None:
            yield path, value
        case _:
            raise AssertionError(f"{path}: {value!r}")


def _same(path: str, one: Leaf, other: Leaf) -> bool:
    if one == other:
        return True
    nothing = next((v for k, v in ASKS_NOTHING.items() if path.endswith(k)), ())
    if {one, other} <= {None, *nothing}:
        return True
    if path.endswith("params") and isinstance(one, str) and isinstance(other, str):
        return canonical(one or "{}") == canonical(other or "{}")
    return False


def unnamed(different: list[str], losses: list[Loss]) -> list[str]:
    """What differs without a loss that names it, or something around or inside it."""
    return [path for path in different if not any(_about(loss.path, path) for loss in losses)]


def groundless(different: list[str], losses: list[Loss]) -> list[Loss]:
    """Losses that name what does not differ."""
    return [loss for loss in losses if not any(_about(loss.path, path) for path in different)]


def _about(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return long == short or (long.startswith(short) and long[len(short)] in ".[")
