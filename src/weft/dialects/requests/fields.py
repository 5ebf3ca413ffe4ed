"""Reads JSON objects of request bodies: typed, or field by field."""

import re
from collections.abc import Callable
from functools import cache
from typing import TypeVar, cast

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.errors import BadRequest
from weft.parts import Json

S = TypeVar("S", bound=msgspec.Struct)

# How msgspec ends its messages; the path becomes the `param` of the error.
_AT = re.compile(r" - at `\$(.*)`$")
_SPARE_LEVELS = 100
"""Levels of nesting left for code that reads a body later, deeper in the stack."""

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode


def check_body(data: bytes) -> None:
    """Raises BadRequest for bytes that are not UTF-8, or nested too deeply to be read."""
    # The check costs less than decoding.
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as problem:
            raise BadRequest("", f"byte {problem.start} is not UTF-8") from None
    if data.count(b"[") + data.count(b"{") < _SPARE_LEVELS:
        return  # however they are nested
    try:
        # msgspec raises at Python's recursion limit, so the body is tried with levels to spare.
        msgspec.json.decode(b"[" * _SPARE_LEVELS + data + b"]" * _SPARE_LEVELS, type=Raw)
    except RecursionError:
        raise BadRequest("", "nested too deeply") from None
    except ValueError:
        """Reported by `read_object`, with the position."""


def read_object(data: bytes | Raw, wanted: type[S], path: str = "") -> S:
    """Reads an object of a body; raises BadRequest with the path of what does not fit."""
    try:
        if len(data) <= large_json.LARGE:  # nearly always
            return msgspec.json.decode(data, type=wanted)
        return large_json.read(data, wanted)
    except RecursionError:
        # `check_body` looked at the whole; a `Raw` may be read from deeper in the stack.
        raise BadRequest(path, "nested too deeply") from None
    except ValueError as problem:
        at = _AT.search(str(problem))
        where = f"{path}{at[1]}" if at else path
        reason = _AT.sub("", str(problem))
        if reason[1:2].islower():  # not `JSON is malformed`
            reason = reason[:1].lower() + reason[1:]
        raise BadRequest(where.lstrip("."), reason) from None


def exact_reader(shape: type[S]) -> Callable[[bytes | Raw], S | None]:
    """Returns a function that reads an object whose fields the struct declares, all of them. It
    returns None for one that is large, does not fit or has another field.
    """
    exact = msgspec.defstruct(shape.__name__, (), bases=(shape,), forbid_unknown_fields=True)
    decode = cast("Callable[[bytes | Raw], S]", msgspec.json.Decoder(exact).decode)

    def read_one(data: bytes | Raw) -> S | None:
        if len(data) > large_json.LARGE:
            return None
        try:
            return decode(data)
        except (ValueError, RecursionError):
            return None

    return read_one


def object_reader(shape: type[S]) -> Callable[[Raw, str], tuple[S, dict[str, Raw]]]:
    """Returns a function that reads an object at a path as `read_object` does, and with it the
    fields that the struct does not declare.
    """
    read_exact = exact_reader(shape)

    def read_one(data: Raw, path: str) -> tuple[S, dict[str, Raw]]:
        # Nearly all objects have no other fields: one pass in C finds that out, too.
        value = read_exact(data)
        if value is not None:
            return value, {}
        return read_object(data, shape, path), undeclared_fields(data, shape)

    return read_one


def fields_of(extra: Json) -> dict[str, Raw]:
    """Returns the fields of a raw object; none if it is unset."""
    return large_json.members(extra) if isinstance(extra, Raw) else {}


def undeclared_fields(
    data: bytes | Raw, known: type[msgspec.Struct], *handled: str
) -> dict[str, Raw]:
    """Returns the fields of an object that a struct does not declare."""
    names = declared_names(known)
    found = large_json.members(data)
    if names.issuperset(found):  # nearly always
        return {}
    return {key: value for key, value in found.items() if key not in names and key not in handled}


def other_fields(data: bytes | Raw, known: type[msgspec.Struct], *handled: str) -> Json:
    """Returns the fields of an object that a struct does not declare, as one raw object."""
    rest = undeclared_fields(data, known, *handled)
    return Raw(large_json.write(rest)) if rest else UNSET


def set_fields(value: msgspec.Struct) -> dict[str, object]:
    """Returns the fields of a struct that are written, if null and unset ones are left out."""
    values = zip(value.__struct_fields__, msgspec.structs.astuple(value), strict=True)
    return {name: one for name, one in values if one is not None and one is not UNSET}


# Structs are few and never change; this is asked for every object of a body.
@cache
def declared_names(shape: type[msgspec.Struct]) -> frozenset[str]:
    """Returns the names of a struct's fields on the wire, its tag included."""
    tag = shape.__struct_config__.tag_field
    names = {field.encode_name for field in msgspec.structs.fields(shape)}
    return frozenset(names | ({tag} if tag else set()))


def is_json_object(text: bytes | str | Raw) -> bool:
    """Whether a text is one JSON object, as arguments must be."""
    try:
        _decode_object(text)
    except (ValueError, RecursionError):
        return False
    return True
