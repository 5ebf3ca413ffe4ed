"""Frames whose keys are spelled in snake_case, as a dump of typed objects has them."""

import json
from types import UnionType
from typing import Union, get_args, get_origin

import msgspec

from weft.dialects.gemini import wire


def respelled(data: bytes) -> bytes | None:
    """Returns the frame with the names of the wire, or None if it has them. Only keys that a shape
    knows are touched, so arguments and results stay as they are.
    """
    try:
        value = json.loads(data.decode("utf-8", "replace"), strict=False)
        spelled = _walk(value, wire.GenerateContentResponse)
        return None if spelled == value else json.dumps(spelled).encode()
    except (ValueError, RecursionError):
        return None


def _walk(value: object, shape: object) -> object:
    for option in get_args(shape) if get_origin(shape) in (Union, UnionType) else (shape,):
        if isinstance(value, list) and get_origin(option) is list:
            return [_walk(one, get_args(option)[0]) for one in value]
        if isinstance(value, dict) and isinstance(option, type) and issubclass(option, wire.GeminiObject):
            return _struct(value, option)
    return value


def _struct(value: dict[str, object], shape: type[wire.GeminiObject]) -> dict[str, object]:
    fields = msgspec.structs.fields(shape)
    names = {field.name: field.encode_name for field in fields}
    types = {field.encode_name: field.type for field in fields}
    spelled = {names.get(key, key): one for key, one in value.items()}
    return {key: _walk(one, types.get(key)) for key, one in spelled.items()}
