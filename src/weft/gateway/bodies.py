"""Bodies of requests: read with a limit, and looked at before anybody parses them.

The looks are cheap for ordinary bodies: what could be too deep, too wide or too large a number is
found in the bytes first, and only then looked for in the values.
"""

import re
from collections.abc import Awaitable, Callable, MutableMapping
from itertools import accumulate
from typing import Any

import msgspec

from weft.dialects.faults import fault
from weft.errors import BadRequest
from weft.gateway.doors import Shut

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_SOME_STRINGS = re.compile(rb'(?:[^"]*+"(?:[^"\\]++|\\.)*+"){1,5000}+')
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))
_PIECE = 65536
_LARGE_NUMBER = re.compile(rb"\d{19}|[eE][+-]?\d{3}")
_INTEGERS = range(-(2**63), 2**63)


LARGE = 256 * 1024
"""Bodies over this size are looked at in a thread."""


class Shape(msgspec.Struct, frozen=True):
    """What a JSON body may be."""

    depth: int = 64
    object_keys: int = 10_000
    array_items: int = 100_000


class ClientGone(Exception):
    """The client left before its request was whole."""


async def read(receive: Receive, told: bytes | None, limit: int) -> bytes:
    """Returns the body; raises Shut if it is too large, ClientGone if there is no rest of it."""
    if told is not None and int(told) > limit:
        raise _too_large(limit)
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        more = message.get("more_body", False)
    return b"".join(pieces)


def _too_large(limit: int) -> Shut:
    return Shut(413, fault("too-large", f"the body is over {limit} bytes"))


def check(body: bytes, shape: Shape) -> None:
    """Raises BadRequest for a body that no request of any dialect can be."""
    if not body.strip():
        raise BadRequest("", "the body is empty; expected a JSON object")
    bare = _bare(body)
    if _is_deeper(bare.translate(_STEPS, _OTHERS), shape.depth):
        raise BadRequest("", f"nested deeper than {shape.depth} levels")
    wide = bare.count(b",") >= min(shape.object_keys, shape.array_items)
    if wide or _LARGE_NUMBER.search(bare):
        _walk(_value(body), shape)


def _bare(body: bytes) -> bytes:
    """A body without its strings. Of a large one some at a time: others want to run meanwhile."""
    if len(body) <= LARGE:
        return _STRINGS.sub(b"", body)
    pieces: list[bytes] = []
    start = 0
    while (some := _SOME_STRINGS.match(body, start)) is not None:
        pieces.append(_STRINGS.sub(b"", some[0]))
        start = some.end()
    return b"".join([*pieces, body[start:]])


def _is_deeper(steps: bytes, depth: int) -> bool:
    """Whether steps up and down lead above a depth. What is far too deep is not read to its end."""
    level = 0
    for start in range(0, len(steps), _PIECE):
        piece = memoryview(steps)[start : start + _PIECE].cast("b")
        levels = list(accumulate(piece, initial=level))
        if max(levels) > depth:
            return True
        level = levels[-1]
    return False


def _value(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise BadRequest("", "nested too deeply") from None
    except ValueError as problem:
        reason = str(problem).partition(" - at ")[0]  # which knows no keys
        raise BadRequest("", reason[:1].lower() + reason[1:]) from None


def _walk(value: object, shape: Shape) -> None:
    """Looks at every value: how wide, how large."""
    open: list[tuple[str, object]] = [("", value)]
    while open:
        path, one = open.pop()
        if isinstance(one, dict):
            if len(one) > shape.object_keys:
                raise BadRequest(path, f"an object of more than {shape.object_keys} keys")
            open += [(f"{path}.{key}" if path else key, inner) for key, inner in one.items()]
        elif isinstance(one, list):
            if len(one) > shape.array_items:
                raise BadRequest(path, f"an array of more than {shape.array_items} items")
            open += [(f"{path}[{place}]", inner) for place, inner in enumerate(one)]
        elif isinstance(one, int) and one not in _INTEGERS:
            raise BadRequest(path, "the integer has more than 64 bits")
