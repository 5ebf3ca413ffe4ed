"""Request bodies: received up to a limit, and checked before they are parsed.

The check is cheap for ordinary bodies: whether an object may be too wide, or a number too large, is
found in the bytes; only then is each value visited.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import suppress
from itertools import accumulate, chain
from math import isinf
from typing import Any

import msgspec

from weft.dialects.error_classes import new_error
from weft.errors import BadRequest
from weft.gateway.auth import HttpRejection
from weft.large_json import CLOSED, SLICE, end_of_string

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

# Possessive (`++`, `*+`): no body can make them backtrack, so the time stays linear.
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_TOKEN = re.compile(rb'["\[\]{},]|-?[0-9][0-9.eE+-]*+')
# An opening bracket becomes +1, a closing one -1 as a signed byte: their running sum is the depth,
# computed in C.
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_OTHERS = bytes(set(range(256)) - set(b"[]{},"))
# What may be out of range, not what must be: 2^63 has 19 digits, and the largest exponent of a
# double is 308. Begins with a digit, which is rare in most bodies, and is searched for in C; what
# stands before an exponent is looked at only then.
_LARGE_NUMBER = re.compile(rb"[0-9](?:[0-9]{18}|(?:(?<=[eE].)|(?<=[eE][+-].))[0-9]{2})", re.DOTALL)
_NUMERIC = frozenset(b"0123456789.eE+-")
_COMMA = ord(",")
_MAX_NUMBER_LENGTH = 1000
_INTEGERS = range(-(2**63), 2**63)


class JsonLimits(msgspec.Struct, frozen=True):
    """Limits of a JSON body."""

    depth: int = 64
    object_keys: int = 10_000
    array_items: int = 100_000
    values: int = 1_000_000


class RequestAborted(Exception):
    """The client disconnected before its request was complete."""


async def read(receive: Receive, content_length: bytes | None, limit: int) -> bytes:
    """Returns the body; raises HttpRejection if it is too large, RequestAborted if the client
    disconnected before its end."""
    # httptools has checked that it is a number. A 413 need not wait for the body.
    if content_length is not None and int(content_length) > limit:
        raise body_too_large(limit)
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestAborted
        piece = message.get("body", b"")
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise body_too_large(limit)
        more = message.get("more_body", False)
    return b"".join(pieces)


def body_too_large(limit: int) -> HttpRejection:
    return HttpRejection(413, new_error("too-large", f"the body is larger than {limit} bytes"))


def check(body: bytes, shape: JsonLimits) -> int:
    """Raises BadRequest for a body that is empty or exceeds the limits. Returns how many objects it
    has, if they may be many.

    The time is linear in the size, and every step is short, so that a thread lets others run.
    """
    if not body or body.isspace():
        raise BadRequest("", "the body is empty; expected a JSON object")
    # So it is with most bodies: too few brackets and commas to exceed a limit, even if none of them
    # were inside strings, and no large number.
    if len(body) <= SLICE:
        opened = body.count(b"[") + body.count(b"{")
        fewest = min(shape.object_keys, shape.array_items, shape.values)
        is_small = opened <= shape.depth and opened + body.count(b",") < fewest
        if is_small and _LARGE_NUMBER.search(body) is None:
            return 0
    level = values = objects = 0
    has_large_number = False
    structure: list[bytes] = []
    for bare in _without_strings(body):
        marks = bare.translate(None, _OTHERS)
        steps = marks.translate(_STEPS, b",")
        levels = list(accumulate(memoryview(steps).cast("b"), initial=level))
        if max(levels) > shape.depth:
            raise BadRequest("", f"nested deeper than {shape.depth} levels")
        level = levels[-1]
        # Every value but the first of an object or array has a comma before it.
        values += marks.count(b",") + steps.count(1)
        if values > shape.values:
            raise BadRequest("", f"more than {shape.values} values")
        objects += marks.count(b"{")
        structure.append(marks)
        has_large_number = has_large_number or _LARGE_NUMBER.search(bare) is not None
    # Hardly any body gets further.
    may_be_wide = values >= min(shape.object_keys, shape.array_items)
    if has_large_number or (may_be_wide and _is_wide(structure, shape)):
        _JsonScanner(body, shape).run()
    return objects


def _is_wide(structure: Iterable[bytes], shape: JsonLimits) -> bool:
    """Whether an object or array has too many members; `structure` has the brackets and commas."""
    most_of = {ord("["): shape.array_items, ord("{"): shape.object_keys}
    around: list[tuple[int, int]] = []
    commas, most = 0, shape.values + 1
    for mark in chain.from_iterable(structure):
        if mark == _COMMA:
            commas += 1
            if commas >= most:
                return True
        elif mark in most_of:
            around.append((commas, most))
            commas, most = 0, most_of[mark]
        elif around:
            commas, most = around.pop()
    return False


def _without_strings(body: bytes) -> Iterator[bytes]:
    """Yields the body in slices, without its strings."""
    start, size = 0, len(body)
    while start < size:
        end = start + SLICE
        while end < min(size, start + SLICE + 40) and body[end] in _NUMERIC:
            end += 1  # a large number must not look like two small ones
        closed = CLOSED.match(body, start, end)
        stop = closed.end() if closed is not None else end
        yield _STRINGS.sub(b"", body[start:stop])
        start = end_of_string(body, stop) if body[stop : stop + 1] == b'"' else stop


class _JsonScanner:
    """Finds an object, array or number that is too large, and its path. Invalid JSON is left to
    the parser."""

    def __init__(self, body: bytes, shape: JsonLimits) -> None:
        self._body = body
        self._shape = shape
        self._around: list[tuple[bool, int, bytes]] = []
        """The objects and arrays around the current one, each with the three values below."""
        self._is_object = False
        self._number = 0
        """The index of the current member."""
        self._key = b""
        """Its key, once that was read."""

    def run(self) -> None:
        """Raises BadRequest."""
        body, size, position = self._body, len(self._body), 0
        while position < size:
            end = position + SLICE
            token = _TOKEN.search(body, position, end)
            if token is None:
                position = end
                continue
            start = token.start()
            if token.end() == end and start > position:  # a number that may go on in the next slice
                position = start
                continue
            found, position = token[0], token.end()
            if found == b'"':
                position = end_of_string(body, start)
                if self._is_object and not self._key:
                    self._key = body[start : min(position, start + 200)]
            elif found == b",":
                self._next_member()
            elif found in b"[{":
                self._around.append((self._is_object, self._number, self._key))
                self._is_object, self._number, self._key = found == b"{", 0, b""
            elif found not in b"]}":
                self._check_number(found)
            elif self._around:
                self._is_object, self._number, self._key = self._around.pop()

    def _next_member(self) -> None:
        self._number += 1
        self._key = b""
        if not self._around:
            return
        what, most = ("array", self._shape.array_items)
        if self._is_object:
            what, most = ("object", self._shape.object_keys)
        if self._number >= most:
            members = "keys" if self._is_object else "items"
            raise BadRequest(self._path(), f"an {what} with more than {most} {members}")

    def _check_number(self, text: bytes) -> None:
        # The shortest number that is out of range is 1e309.
        if len(text) < 5:
            return
        is_integer = text.lstrip(b"-").isdigit()
        # -2^63 has 20 characters. Longer texts never reach int(), which takes quadratic time.
        if is_integer and (len(text) > 20 or int(text) not in _INTEGERS):
            raise BadRequest(self._path(member=True), "the integer has more than 64 bits")
        with suppress(ValueError):  # left to the parser
            if len(text) > _MAX_NUMBER_LENGTH or isinf(float(text)):
                raise BadRequest(self._path(member=True), "the number is out of range")

    def _path(self, *, member: bool = False) -> str:
        """The path of the current object or array, or of its member."""
        current = [(self._is_object, self._number, self._key)] if member else []
        path = ""
        for is_object, number, key in [*self._around, *current][1:]:
            path += f".{_name(key)}" if is_object else f"[{number}]"
        return path.removeprefix(".")


def _name(key: bytes) -> str:
    try:
        return str(msgspec.json.decode(key))
    except ValueError:  # a long key is cut
        return key.decode("utf-8", "replace").strip('"')
