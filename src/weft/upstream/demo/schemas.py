"""JSON that satisfies a schema: the arguments of calls, and structured answers.

What a schema asks for is filled from the message of the user where that is plausible. What cannot
be satisfied (a schema without any value, an odd pattern) is answered as well as it can be: a
schema never fails a request, and never costs more than a bounded amount of work.
"""

import math
import re
from collections.abc import Callable, Iterator
from typing import TypeGuard

import msgspec
from msgspec import Raw

from weft.dialects.rules import JsonValue
from weft.parts import Json
from weft.upstream.demo.picking import Picker

_VALUES = 500
"""Values that are made for one schema; long ones count as several."""

_LONG = 100
"""Characters that count as one value."""

_DEEP = 6
"""From here on only what is required is made."""

_DEEPEST = 40
_ITEMS = 100
_LENGTH = 1000
_PATTERN = 200

_FORMATS = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "ada@example.com",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "byte": "ZGVtbw==",
    "regex": ".*",
    "json-pointer": "/a",
}

_SAMPLES = (
    "a", "A", "0", "1", "ab", "AB", "12", "abc", "ABC", "123", "Ab1", "a-b", "a_b", "A1", "1.0",
    "#a1b2c3", "12:30", "12345", "+12345678", "2026-01-31", "2026-01", "a@b.cd", "1.0.0",
    "en-US", "USD", "AB-1234", "ABC-123", "abc-123", "123-45-6789", "555-0100", "_", "-", "",
)  # fmt: skip
"""What patterns often mean: short, so that no pattern can take long over them."""

Schema = dict[str, JsonValue]


def satisfying(schema: Json, message: str, *, whole: bool) -> JsonValue:
    """Returns a value that satisfies a schema.

    `whole`: also what is not required is filled in.
    """
    try:
        root: JsonValue = msgspec.json.decode(schema) if isinstance(schema, Raw) else {}
    except (ValueError, RecursionError):
        root = {}
    if not isinstance(root, dict):
        root = {}
    return _Maker(root, Picker(message), whole=whole).value(root, "", 0)


class _Maker:
    def __init__(self, root: Schema, picker: Picker, *, whole: bool) -> None:
        self._root = root
        self._picker = picker
        self._whole = whole
        self._left = _VALUES

    def value(self, schema: JsonValue, field: str, depth: int) -> JsonValue:
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            return None  # no schema that means well comes here
        known = self._plain(schema)
        if "const" in known:
            return self._given(known["const"])
        options = known.get("enum")
        if isinstance(options, list) and options:
            return self._given(self._option(options))
        return _MAKERS[_type(known)](self, known, field, depth)

    def _given(self, value: JsonValue) -> JsonValue:
        """A value of the schema itself, which may be of any size, and asked for many times."""
        self._left -= len(msgspec.json.encode(value)) // _LONG
        return value

    def _option(self, options: list[JsonValue]) -> JsonValue:
        named = [one for one in options if isinstance(one, str) and self._picker.names(one)]
        return named[0] if named else options[0]

    # What a schema says, in one object

    def _plain(self, schema: JsonValue) -> Schema:
        """The schema with its references and combinations merged into it."""
        found: Schema = {}
        waiting = [schema]
        for _ in range(_DEEPEST):
            if not waiting:
                break
            one = waiting.pop()
            if not isinstance(one, dict):
                continue
            found = _merged(found, one)
            waiting += self._inside(one)
        return found

    def _inside(self, schema: Schema) -> Iterator[JsonValue]:
        if "$ref" in schema:
            yield self._referred(schema["$ref"])
        every = schema.get("allOf")
        yield from every if isinstance(every, list) else ()
        for key in ("anyOf", "oneOf"):
            options = schema.get(key)
            if isinstance(options, list) and options:
                yield self._branch(options)

    def _branch(self, options: list[JsonValue]) -> JsonValue:
        """The first one that is not nothing."""
        some = [one for one in options if not (isinstance(one, dict) and _type(one) == "null")]
        return (some or options)[0]

    def _referred(self, reference: JsonValue) -> JsonValue:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        place: JsonValue = self._root
        for name in reference[1:].split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            place = place.get(name) if isinstance(place, dict) else None
        return place

    # Values by type

    def _nothing(self, schema: Schema, field: str, depth: int) -> JsonValue:
        return None

    def _boolean(self, schema: Schema, field: str, depth: int) -> JsonValue:
        return True

    def _object(self, schema: Schema, field: str, depth: int) -> JsonValue:
        declared, required = schema.get("properties"), schema.get("required")
        fields = declared if isinstance(declared, dict) else {}
        names = [one for one in required if isinstance(one, str)] if _is_list(required) else []
        least = int(_number(schema, "minProperties") or 0)
        if (self._whole and depth < _DEEP) or least > len(names):
            names += fields
        self._left -= sum(map(len, names)) // _LONG
        return {
            name: self.value(fields.get(name, {}), name, depth + 1) for name in dict.fromkeys(names)
        }

    def _array(self, schema: Schema, field: str, depth: int) -> JsonValue:
        first = schema.get("prefixItems")
        places: list[JsonValue] = first if isinstance(first, list) else []
        least = int(_number(schema, "minItems") or 0)
        most = _number(schema, "maxItems")
        wanted = max(least, len(places), 1 if depth < _DEEP else 0)
        wanted = min(wanted, _ITEMS, wanted if most is None else max(0, int(most)))
        made: list[JsonValue] = []
        for number in range(wanted):
            if self._left <= 0:
                break
            item = places[number] if number < len(places) else schema.get("items", {})
            value = self.value(item, field, depth + 1)
            made.append(_another(value, made) if schema.get("uniqueItems") is True else value)
        return made

    def _integer(self, schema: Schema, field: str, depth: int) -> JsonValue:
        return int(self._counted(schema, whole=True))

    def _float(self, schema: Schema, field: str, depth: int) -> JsonValue:
        found = self._counted(schema, whole=False)
        return int(found) if found.is_integer() else found

    def _counted(self, schema: Schema, *, whole: bool) -> float:
        said = self._picker.numbers()
        candidates = [*said, 1.0, *_bounds(schema, whole=whole)]
        fitting = (one for one in candidates if _fits(one, schema, whole=whole))
        return next(fitting, 1.0)

    def _string(self, schema: Schema, field: str, depth: int) -> JsonValue:
        format, pattern = schema.get("format"), schema.get("pattern")
        text = self._picker.word(field)
        if isinstance(format, str) and format in _FORMATS:
            return _FORMATS[format]
        if isinstance(pattern, str):
            return _matching(pattern, schema) or text
        return _long_enough(text, schema)


_MAKERS: dict[str, Callable[[_Maker, Schema, str, int], JsonValue]] = {
    "null": _Maker._nothing,
    "boolean": _Maker._boolean,
    "object": _Maker._object,
    "array": _Maker._array,
    "integer": _Maker._integer,
    "number": _Maker._float,
    "string": _Maker._string,
}

_TELLING = {
    "properties": "object",
    "required": "object",
    "additionalProperties": "object",
    "items": "array",
    "prefixItems": "array",
    "minItems": "array",
    "minimum": "number",
    "maximum": "number",
    "multipleOf": "number",
}
"""Keys that tell the type where it is not said."""


def _type(schema: Schema) -> str:
    """The type to make: the first one that is not null."""
    said = schema.get("type")
    names = said if isinstance(said, list) else [said]
    known = [one.lower() for one in names if isinstance(one, str) and one.lower() in _MAKERS]
    some = [one for one in known if one != "null"]
    if some or known:
        return (some or known)[0]
    return next((type for key, type in _TELLING.items() if key in schema), "string")


def _merged(one: Schema, other: Schema) -> Schema:
    """Both; of two lists of fields, all of them."""
    found = {**other, **one}
    for key in ("properties", "required"):
        mine, theirs = one.get(key), other.get(key)
        if isinstance(mine, dict) and isinstance(theirs, dict):
            found[key] = {**theirs, **mine}
        elif isinstance(mine, list) and isinstance(theirs, list):
            found[key] = [*mine, *theirs]
    return found


def _is_list(value: JsonValue) -> TypeGuard[list[JsonValue]]:
    return isinstance(value, list)


def _number(schema: Schema, key: str) -> float | None:
    value = schema.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e15 else None


def _bounds(schema: Schema, *, whole: bool) -> Iterator[float]:
    """Numbers at the limits of a schema."""
    step = _number(schema, "multipleOf") or (1.0 if whole else 0.5)
    for key in ("minimum", "exclusiveMinimum"):
        least = _number(schema, key)
        if least is not None:
            yield from (least, math.ceil(least / step) * step, (least // step + 1) * step)
    for key in ("maximum", "exclusiveMaximum"):
        most = _number(schema, key)
        if most is not None:
            yield from (most, most // step * step, (math.ceil(most / step) - 1) * step)
    low, high = _limits(schema)
    yield from ((low + high) / 2, step, 0.0)


def _limits(schema: Schema) -> tuple[float, float]:
    lows = [_number(schema, key) for key in ("minimum", "exclusiveMinimum")]
    highs = [_number(schema, key) for key in ("maximum", "exclusiveMaximum")]
    low = max((one for one in lows if one is not None), default=0.0)
    return low, min((one for one in highs if one is not None), default=low + 2)


def _fits(number: float, schema: Schema, *, whole: bool) -> bool:
    least, most = _number(schema, "minimum"), _number(schema, "maximum")
    above, below = _number(schema, "exclusiveMinimum"), _number(schema, "exclusiveMaximum")
    step = _number(schema, "multipleOf")
    return (
        (not whole or number.is_integer())
        and (least is None or number >= least)
        and (most is None or number <= most)
        and (above is None or number > above)
        and (below is None or number < below)
        and (not step or math.isclose(number / step, round(number / step), abs_tol=1e-9))
    )


def _long_enough(text: str, schema: Schema) -> str:
    least, most = _number(schema, "minLength"), _number(schema, "maxLength")
    text = text.ljust(min(int(least or 0), _LENGTH), "x")
    return text if most is None else text[: max(0, int(most))]


def _matching(pattern: str, schema: Schema) -> str | None:
    try:
        wanted = re.compile(pattern[:_PATTERN])
    except (re.error, RecursionError, OverflowError):
        return None
    for sample in _SAMPLES:
        if wanted.search(sample) and _long_enough(sample, schema) == sample:
            return sample
    return None


def _another(value: JsonValue, before: list[JsonValue]) -> JsonValue:
    """A value that was not there before, if one is easily found."""
    number = len(before)
    if value not in before or isinstance(value, bool | None):
        return value
    if isinstance(value, int | float):
        return value + number
    return f"{value} {number + 1}" if isinstance(value, str) else value
