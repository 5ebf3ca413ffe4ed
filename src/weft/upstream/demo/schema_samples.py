"""Makes JSON that satisfies a schema: arguments of calls, and structured output.

Values come from the message of the user where that is plausible. A schema never fails a request and
never costs more than a bounded amount of work: one that has no value, or an unusual pattern, is
satisfied as far as possible.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator

import msgspec
from msgspec import Raw

from weft.dialects.rules import JsonValue
from weft.parts import Json
from weft.upstream.demo.message_values import MessageValues

_MAX_VALUES = 500
"""Values that are made for one schema; long ones count as several."""

_LONG = 100
"""Characters that count as one value."""

_DEEP = 6
"""From this depth on, only what is required is made."""

_MAX_DEPTH = 40
_MAX_ITEMS = 100
_MAX_LENGTH = 1000
_MAX_PATTERN = 200

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
"""Texts that are tried for a pattern: short, so that no pattern can take long over them."""

_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
_IMPLIED_TYPES = {
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
"""The type of a schema without one, by the keywords it has."""

_BOUNDS: dict[str, Callable[[float, float], bool]] = {
    "minimum": operator.ge,
    "exclusiveMinimum": operator.gt,
    "maximum": operator.le,
    "exclusiveMaximum": operator.lt,
}

Schema = dict[str, JsonValue]


def sample(schema: Json, message: str, *, optional: bool) -> JsonValue:
    """Returns a value that satisfies a schema. `optional`: properties that are not required are
    filled in too.
    """
    try:
        root: JsonValue = msgspec.json.decode(schema) if isinstance(schema, Raw) else {}
    except (ValueError, RecursionError):
        root = {}
    if not isinstance(root, dict):
        root = {}
    return _Sampler(root, MessageValues(message), optional=optional).value(root, "", 0)


class _Sampler:
    def __init__(self, root: Schema, message: MessageValues, *, optional: bool) -> None:
        self._root = root
        self._message = message
        self._optional = optional
        self._left = _MAX_VALUES

    def value(self, schema: JsonValue, field: str, depth: int) -> JsonValue:
        self._left -= 1
        if self._left < 0 or depth > _MAX_DEPTH:
            return None  # only a schema that is meant to do harm gets here
        resolved = self._resolve(schema)
        options = [resolved["const"]] if "const" in resolved else resolved.get("enum")
        if isinstance(options, list) and options:
            mentioned = (
                one for one in options if isinstance(one, str) and self._message.mentions(one)
            )
            option: JsonValue = next(mentioned, options[0])
            self._left -= len(msgspec.json.encode(option)) // _LONG
            return option
        match _type_of(resolved):
            case "object":
                return self._object(resolved, depth)
            case "array":
                return self._array(resolved, field, depth)
            case "string":
                return self._string(resolved, field)
            case "boolean":
                return True
            case "null":
                return None
            case number:
                found = self._number(resolved, integer=number == "integer")
                return int(found) if found.is_integer() else found

    def _resolve(self, schema: JsonValue) -> Schema:
        """Merges references and combinations into one schema."""
        merged: Schema = {}
        waiting = [schema]
        for _ in range(_MAX_DEPTH):
            if not waiting:
                break
            one = waiting.pop()
            if not isinstance(one, dict):
                continue
            both = [(key, merged.get(key), one.get(key)) for key in ("properties", "required")]
            # What was merged first wins: it is the schema that refers, and may narrow what it
            # refers to.
            merged = one | merged
            for key, first, second in both:
                if isinstance(first, dict) and isinstance(second, dict):
                    merged[key] = second | first
                elif isinstance(first, list) and isinstance(second, list):
                    merged[key] = first + second
            waiting += self._combined(one)
        return merged

    def _combined(self, schema: Schema) -> Iterator[JsonValue]:
        """The schemas that must hold too: of alternatives, the first that is not null."""
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            place: JsonValue = self._root
            # `#/$defs/City`, a JSON Pointer. Other documents are never fetched.
            for name in reference[1:].split("/")[1:]:
                name = name.replace("~1", "/").replace("~0", "~")  # RFC 6901
                place = place.get(name) if isinstance(place, dict) else None
            yield place
        every = schema.get("allOf")
        yield from every if isinstance(every, list) else ()
        for key in ("anyOf", "oneOf"):
            options = schema.get(key)
            if isinstance(options, list) and options:
                nulls = [
                    one for one in options if isinstance(one, dict) and _type_of(one) == "null"
                ]
                yield next((one for one in options if one not in nulls), options[0])

    def _object(self, schema: Schema, depth: int) -> JsonValue:
        properties, required = schema.get("properties"), schema.get("required")
        fields: Schema = properties if isinstance(properties, dict) else {}
        entries: list[JsonValue] = required if isinstance(required, list) else []
        names = [name for name in entries if isinstance(name, str)]
        least = _limit(schema, "minProperties") or 0
        if (self._optional and depth < _DEEP) or least > len(names):
            names += fields
        self._left -= sum(map(len, names)) // _LONG
        return {
            name: self.value(fields.get(name, {}), name, depth + 1) for name in dict.fromkeys(names)
        }

    def _array(self, schema: Schema, field: str, depth: int) -> JsonValue:
        prefix, most = schema.get("prefixItems"), _limit(schema, "maxItems")
        items: list[JsonValue] = prefix if isinstance(prefix, list) else []
        size = max(int(_limit(schema, "minItems") or 0), len(items), int(depth < _DEEP))
        size = min(size, _MAX_ITEMS, size if most is None else int(most))
        made: list[JsonValue] = []
        for number in range(size):
            if self._left <= 0:
                break
            item = items[number] if number < len(items) else schema.get("items", {})
            value = self.value(item, field, depth + 1)
            if schema.get("uniqueItems") is True and value in made:
                if isinstance(value, str):
                    value = f"{value} {number + 1}"
                elif isinstance(value, int | float) and not isinstance(value, bool):
                    value += number
            made.append(value)
        return made

    def _number(self, schema: Schema, *, integer: bool) -> float:
        multiple = _limit(schema, "multipleOf")
        step = multiple or (1.0 if integer else 0.5)
        found = {key: _limit(schema, key) for key in _BOUNDS}
        bounds = {key: bound for key, bound in found.items() if bound is not None}
        near = [(bound // step + more) * step for bound in bounds.values() for more in (-1, 0, 1)]
        middle = sum(bounds.values()) / max(1, len(bounds))
        candidates = (*self._message.numbers(), 1.0, *bounds.values(), *near, middle, step, 0.0)
        for number in candidates:
            if (
                math.isfinite(number)
                and (not integer or number.is_integer())
                and (not multiple or abs(math.remainder(number, multiple)) < 1e-9)
                and all(_BOUNDS[key](number, bound) for key, bound in bounds.items())
            ):
                return number
        return 1.0

    def _string(self, schema: Schema, field: str) -> str:
        format, pattern = schema.get("format"), schema.get("pattern")
        if isinstance(format, str) and format in _FORMATS:
            return _FORMATS[format]
        text = self._message.for_field(field)
        if not isinstance(pattern, str):
            return _with_length(text, schema)
        try:
            wanted = re.compile(pattern[:_MAX_PATTERN])
        except (re.error, RecursionError, OverflowError):
            return text
        matching = (one for one in _SAMPLES if wanted.search(one))
        return next((one for one in matching if _with_length(one, schema) == one), text)


def _type_of(schema: Schema) -> str:
    """The first type that is not null; without any, the one that the keywords imply."""
    declared = schema.get("type")
    names = declared if isinstance(declared, list) else [declared]
    # Gemini's schemas have types in capitals.
    known = [name.lower() for name in names if isinstance(name, str) and name.lower() in _TYPES]
    if known:
        return next((name for name in known if name != "null"), "null")
    return next((type for key, type in _IMPLIED_TYPES.items() if key in schema), "string")


def _limit(schema: Schema, key: str) -> float | None:
    value = schema.get(key)
    # True is an int in Python. Above 2^53 a float cannot count: 1e15 stays below.
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= 1e15:
        return None
    return float(value)


def _with_length(text: str, schema: Schema) -> str:
    least, most = _limit(schema, "minLength"), _limit(schema, "maxLength")
    text = text.ljust(min(int(least or 0), _MAX_LENGTH), "x")
    return text if most is None else text[: max(0, int(most))]
