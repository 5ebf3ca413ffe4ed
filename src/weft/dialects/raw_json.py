"""Raw JSON values: carried from one wire to another without being read.

They come from upstreams as they were written, perhaps indented, and are part of the `extra` of a
part, of a tool's arguments and results, and of items that only their own dialect knows.
"""

from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.parts import Json

ShapeT = TypeVar("ShapeT", bound=msgspec.Struct)

_encode = msgspec.json.Encoder().encode


def decode_or_default(raw: Json, shape: type[ShapeT]) -> ShapeT:
    """Decodes a raw value; returns one without any field set if it is absent or does not fit."""
    try:
        return msgspec.json.decode(raw, type=shape) if isinstance(raw, Raw) else shape()
    except (ValueError, RecursionError):
        return shape()


def pack_extra(extra: msgspec.Struct) -> Json:
    """Encodes the `extra` of a part; UNSET if no field is set. The shape must omit defaults."""
    text = _encode(extra)
    return UNSET if text == b"{}" else Raw(text)


# A line end would end the data of an event (WHATWG HTML 9.2.6). In JSON it stands only between
# tokens: inside a string it is escaped (RFC 8259 §7).


def to_one_line(text: bytes) -> bytes:
    """Returns JSON without line ends; what has any is written anew without blanks.

    Raises ValueError if it has any and is not JSON.
    """
    # Formatting parses the whole value, so it is done only where needed.
    return msgspec.json.format(text, indent=-1) if b"\n" in text or b"\r" in text else text


def copy_raw(raw: Raw) -> Raw:
    """Copies a raw value out of its frame, on one line: a body may be indented."""
    return Raw(to_one_line(large_json.copied(raw)))


def same_json(one: bytes | Raw, other: bytes | Raw) -> bool:
    """Whether two JSON texts have the same value, whatever their blanks and order of keys. What is
    not JSON equals only its own bytes.
    """
    try:
        return one == other or bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except (ValueError, RecursionError):
        return False


def blank_line_ends(text: bytes) -> bytes:
    """Returns text that may not be JSON, or that must keep its other bytes, without line ends."""
    return text.replace(b"\n", b" ").replace(b"\r", b" ")
