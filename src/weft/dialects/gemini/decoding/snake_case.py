"""Converts frames with snake_case keys, as some hosts dump typed objects."""

import json
from types import UnionType
from typing import Union, get_args, get_origin

import msgspec

from weft.dialects.gemini import wire


def to_camel_case(data: bytes) -> bytes | None:
    """Returns the frame with camelCase keys; None if it has no others. Only keys of known shapes
    are renamed, so arguments and results stay as they are.
    """
    # capture: names-in-snake-case
    try:
        # As lenient as `Salvage`: control characters in strings, bytes that are no UTF-8.
        value = json.loads(data.decode("utf-8", "replace"), strict=False)
        renamed = _rename(value, wire.GenerateContentResponse)
        return None if renamed == value else json.dumps(renamed).encode()
    except (ValueError, RecursionError):
        return None


def _rename(value: object, shape: object) -> object:
    for option in get_args(shape) if get_origin(shape) in (Union, UnionType) else (shape,):
        if isinstance(value, list) and get_origin(option) is list:
            return [_rename(element, get_args(option)[0]) for element in value]
        is_object = isinstance(option, type) and issubclass(option, wire.GeminiObject)
        if is_object and isinstance(value, dict):
            # A field whose type is raw (arguments, results, schemas) has no shape: what is below it
            # belongs to the user, whatever its keys look like.
            fields = msgspec.structs.fields(option)
            names = {field.name: field.encode_name for field in fields}
            types = {field.encode_name: field.type for field in fields}
            renamed = [(names.get(key, key), element) for key, element in value.items()]
            return {key: _rename(element, types.get(key or "")) for key, element in renamed}
    return value
