"""What a request asks, leaf by leaf: the stated normalisation of requests between dialects.

Two requests ask the same if their leaves are the same. The conversation is what is said, in order:
who says it (results of tools are the user's), and each content. So a conversion may, without a
word,

- put what one speaker says in a row into one message or several, and say instructions in a field
  or as the first message;
- leave out what asks for nothing: an empty text, a default, a key beside the fields that is
  false, null or empty, how to show thoughts that are not to be had;
- tell the name of a result's call or leave it to the call; the kind of tool that a call or a
  choice is for, and the name of a hosted tool, follow from the rest;
- declare the client's tools and the hosted ones in any order of the two;
- require the only tool that is allowed, or require some tool and allow just that one;
- mark the last content of a result for the cache, instead of the result;
- leave out the model, where the address tells it;
- choose an effort for a budget, tell the user by the safety identifier, and begin a failed result
  with `Error: `, if it reports the budget, the identifier, or that the result failed.

Contents, and tools, are compared with those they are most alike (`alike.py`). What a target says
of its own accord in its own words is not compared; what the source said in its own is, and is
lost unless the target says the same.
"""

from collections.abc import Iterator, Sequence

import msgspec

from tests.matrix.alike import ADDED, NO_TEXT, Asked, Leaf, Leaves, lost, unlike
from weft.dialects.requests.codec import Loss
from weft.request import AnyContent, Message, Request, ResultContent, TextContent

APART = {"messages", "instructions", "tools"}
"""What is compared in another way."""

TRANSPORT = {"dialect", "stream", "include_usage", "include", "store", "source"}

IMPLIED = {"call": {"kind", "format"}, "result": {"kind", "name", "content"}}
"""What follows from the rest of a content, or is compared in another way."""

NUANCES = ("cache", "is_error", "output.schema")
"""What dialects mean differently though they read each other: how long a cache keeps, in which
words a failed result says so, whether the shape of an answer is enforced.
"""

ONLY = "tool_choice.allowed[0]"


def told_apart(request: Request) -> Request:
    """The request with no text said twice, so that it is clear which one is missing."""

    def numbered(content: AnyContent, path: str) -> AnyContent:
        if isinstance(content, TextContent) and content.text.strip():
            return msgspec.structs.replace(content, text=f"{content.text} {path}")
        return content

    messages = tuple(
        msgspec.structs.replace(
            message,
            content=tuple(
                numbered(one, f"{number}.{place}") for place, one in enumerate(message.content)
            ),
        )
        for number, message in enumerate(request.messages)
    )
    return msgspec.structs.replace(request, messages=messages)


def differences(one: Request, other: Request) -> list[str]:
    """The paths of `one` at which the two do not ask the same."""
    found = [*_fields(one, other), *_about_messages(one)]
    found += unlike(list(conversation(one)), list(conversation(other)), "messages")
    found += unlike(_tools(one), _tools(other), "tools")
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
    """A loss names what is in it; where something was added or refused, also what it is in."""
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
    yield from lost(mine, theirs)
    yield from (path for path in my_own if my_own[path] != their_own.get(path))


def _about_messages(request: Request) -> Iterator[str]:
    """What only one dialect says of a message: no other has a place for it."""
    for number, message in enumerate(request.messages):
        bare = Message(message.role, (), message.name, message.item_id, message.phase)
        told = _leaves(bare)[0].keys() - {"role"} | _leaves(message)[1].keys()
        yield from (f"messages[{number}].{name}" for name in told)


def conversation(request: Request) -> Iterator[Asked]:
    if request.instructions:
        yield Asked("instructions", {"type": "text", "text": request.instructions}, {}, "system")
    for number, message in enumerate(request.messages):
        speaker = "user" if message.role == "tool" else message.role
        yield from _contents(f"messages[{number}].content", message.content, speaker)


def _contents(path: str, contents: Sequence[msgspec.Struct], speaker: str) -> Iterator[Asked]:
    for place, content in enumerate(contents):
        where = f"{path}[{place}]"
        leaves, own = _leaves(content)
        held = content.content if isinstance(content, ResultContent) else ()
        inside = tuple(_contents(f"{where}.content", held, speaker))
        if leaves != NO_TEXT or own:
            yield Asked(where, leaves, own, speaker, inside)


def _tools(request: Request) -> list[Asked]:
    client: list[Asked] = []
    hosted: list[Asked] = []
    for number, tool in enumerate(request.tools):
        leaves, own = _leaves(tool)
        if tool.kind not in ("function", "custom"):
            leaves.pop("name")
        runs = client if "name" in leaves else hosted
        runs.append(Asked(f"tools[{number}]", leaves, own))
    return client + hosted


# Leaves


def _leaves(value: msgspec.Struct) -> tuple[Leaves, Leaves]:
    """What is said in words that all dialects share, and in the dialect's own."""
    built = msgspec.json.decode(msgspec.json.encode(value), type=dict[str, object])
    apart = IMPLIED.get(str(built.get("type")), set()) | {"raw", "origin"}
    if isinstance(value, Request):
        apart |= APART | TRANSPORT
    told = {key: one for key, one in built.items() if key not in apart}
    own = dict(_own(told))
    return dict(_flat(told)), own


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
        case list():
            for number, one in enumerate(value):
                yield from _flat(one, f"{path}[{number}]")
        case bool() | int() | float() | str() | None:
            yield path, value
        case _:
            raise AssertionError(f"{path}: {value!r}")
