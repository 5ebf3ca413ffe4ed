"""Schemas between JSON Schema and the subset that this wire calls `parameters`.

The subset has its own words for types, one type at a time, and no references. What it cannot
say is a loss: annotations are dropped, a keyword that restricts is warned of or refused.
"""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw

from weft.dialects.requests import Losses, keys_of

Keys = dict[str, Raw]

_ANNOTATIONS = frozenset(
    {
        "$anchor",
        "$comment",
        "$defs",
        "$id",
        "$schema",
        "definitions",
        "deprecated",
        "examples",
        "readOnly",
        "strict",
        "title",
        "writeOnly",
    }
)
"""Left out: nothing that an answer must be."""

_SAME = frozenset(
    {
        "default",
        "description",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "nullable",
        "pattern",
        "propertyOrdering",
        "required",
    }
)
_COUNTS = frozenset(
    {"maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"}
)
_REFUSED = frozenset(
    {
        "allOf",
        "contains",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "not",
        "patternProperties",
        "propertyNames",
        "then",
    }
)
MOST_REFERENCES = 1000
"""Written out, references that lead to one another may grow without end."""

_json = msgspec.json.Encoder().encode
_NULL = Raw(b'"null"')


def _raw(value: object) -> Raw:
    return Raw(_json(value))


def _list(raw: Raw) -> list[Raw] | None:
    try:
        return msgspec.json.decode(raw, type=list[Raw])
    except ValueError:
        return None


def _object(raw: Raw) -> Keys | None:
    try:
        return msgspec.json.decode(raw, type=Keys)
    except ValueError:
        return None


def _text(raw: Raw | None) -> str | None:
    try:
        return msgspec.json.decode(raw, type=str) if raw is not None else None
    except ValueError:
        return None


def _each(raw: Raw, change: Callable[[Raw, str], Raw], path: str) -> Raw:
    """A group of schemas by name, or a list of them, each changed."""
    named, listed = _object(raw), _list(raw)
    if named is not None:
        return _raw({key: change(one, f"{path}.{key}") for key, one in named.items()})
    if listed is not None:
        return _raw([change(one, f"{path}[{place}]") for place, one in enumerate(listed)])
    return raw


# From the subset to JSON Schema


def json_schema(parameters: Raw) -> Raw:
    """Returns the JSON Schema that a schema of the subset is."""
    keys = _object(parameters)
    if keys is None:
        return parameters
    found: Keys = {}
    for key, value in keys.items():
        name = _CAMEL.get(key, key)
        if name == "properties" or name in ("anyOf", "prefixItems"):
            found[name] = _each(value, lambda one, _: json_schema(one), "")
        elif name == "items":
            found[name] = json_schema(value)
        elif name in _COUNTS:
            found[name] = _number(value)
        elif name == "example":
            found["examples"] = Raw(b"[" + bytes(value) + b"]")
        elif name not in ("nullable", "propertyOrdering", "type"):
            found[name] = value
    return _raw(_typed(keys, found))


_CAMEL = {
    "any_of": "anyOf",
    "max_items": "maxItems",
    "max_length": "maxLength",
    "max_properties": "maxProperties",
    "min_items": "minItems",
    "min_length": "minLength",
    "min_properties": "minProperties",
    "prefix_items": "prefixItems",
    "property_ordering": "propertyOrdering",
}


def _number(value: Raw) -> Raw:
    """Counts are numbers in strings here."""
    text = _text(value)
    return Raw(text.encode()) if text is not None and text.isdigit() else value


def _typed(keys: Mapping[str, Raw], found: Keys) -> Keys:
    word = _text(keys.get("type"))
    nullable = bytes(keys.get("nullable", Raw(b"false"))) == b"true"
    if word is None or word == "TYPE_UNSPECIFIED":
        return found
    kind = word.lower()
    type = _raw([kind, "null"]) if nullable and kind != "null" else _raw(kind)
    return {"type": type, **found}


# From JSON Schema to the subset


class Subset:
    """Cuts one schema down. References are replaced by what they stand for."""

    def __init__(self, schema: Raw, path: str, losses: Losses) -> None:
        self._losses = losses
        self._top = schema
        self._path = path
        self._open: list[str] = []
        """The references that are being followed."""
        self._followed_so_far = 0

    def schema(self) -> Raw:
        try:
            return self._cut(self._top, self._path)
        except RecursionError:
            self._losses.refused(self._path, "nested too deeply")
            return Raw(b"{}")

    def _cut(self, schema: Raw, path: str) -> Raw:
        keys = _object(schema)
        if keys is None:  # true: anything
            self._losses.warned(path, "a schema that is no object is sent as one for anything")
            return Raw(b"{}")
        if "$ref" in keys:
            return self._followed(keys, path)
        found: Keys = {}
        for key, value in keys.items():
            self._keyword(key, value, keys, found, path)
        return _raw(found)

    def _followed(self, keys: Keys, path: str) -> Raw:
        target = _text(keys["$ref"]) or ""
        if target in self._open:
            self._losses.refused(path, "a schema that holds itself is not available here")
            return Raw(b'{"type":"OBJECT"}')
        there = self._find(target)
        self._followed_so_far += 1
        if there is None or self._followed_so_far > MOST_REFERENCES:
            why = f"nothing is at {target}" if there is None else "too many references"
            self._losses.refused(path, why)
            return Raw(b"{}")
        self._losses.adapted(path, f"{target} is written out")
        self._open.append(target)
        beside = {key: value for key, value in keys.items() if key != "$ref"}
        found = self._cut(_raw({**keys_of(there), **beside}), path)
        self._open.pop()
        return found

    def _find(self, target: str) -> Raw | None:
        if not target.startswith("#"):
            return None
        here: Raw | None = self._top
        for step in target[1:].strip("/").split("/") if target != "#" else ():
            keys = _object(here) if here is not None else None
            here = (keys or {}).get(step.replace("~1", "/").replace("~0", "~"))
        return here if here is not None and _object(here) is not None else None

    def _keyword(self, key: str, value: Raw, keys: Keys, found: Keys, path: str) -> None:
        handler = _KEYWORDS.get(key)
        if handler is not None:
            handler(self, value, keys, found, path)
        elif key in _SAME:
            found[key] = value
        elif key in _ANNOTATIONS:
            self._losses.adapted(f"{path}.{key}", "left out: it says nothing of the answer")
        elif key in _REFUSED:
            self._losses.refused(f"{path}.{key}", "is not available here; remove it")
        else:
            self._losses.warned(f"{path}.{key}", "left out: the host does not know it")

    def _type(self, value: Raw, keys: Keys, found: Keys, path: str) -> None:
        kinds = _list(value)
        if kinds is None:
            found["type"] = _raw((_text(value) or "").upper())
            return
        plain = [one for one in kinds if one != _NULL]
        if len(plain) < len(kinds):
            found["nullable"] = Raw(b"true")
        if len(plain) == 1:
            found["type"] = _raw((_text(plain[0]) or "").upper())
        else:
            found["anyOf"] = _raw([{"type": (_text(one) or "").upper()} for one in plain])

    def _enum(self, value: Raw, keys: Keys, found: Keys, path: str) -> None:
        values = _list(value) or []
        words = [one for one in values if _text(one) is not None]
        if len(words) < len(values):
            self._losses.warned(f"{path}.enum", "left out: only texts can be listed")
        else:
            found["enum"] = value
            found.setdefault("type", _raw("STRING"))

    def _const(self, value: Raw, keys: Keys, found: Keys, path: str) -> None:
        self._enum(Raw(b"[" + bytes(value) + b"]"), keys, found, path)

    def _below(self, value: Raw, keys: Keys, found: Keys, path: str) -> None:
        found["properties"] = _each(value, self._cut, f"{path}.properties")

    def _items(self, value: Raw, keys: Keys, found: Keys, path: str) -> None:
        found["items"] = self._cut(value, f"{path}.items")

    def _prefix(self, value: Raw, keys: Keys, found: Keys, path: str) -> None:
        found["prefixItems"] = _each(value, self._cut, f"{path}.prefixItems")

    def _any(self, value: Raw, keys: Keys, found: Keys, path: str) -> None:
        options = _list(value) or []
        kept = [one for one in options if _object(one) != {"type": _NULL}]
        if len(kept) < len(options):
            found["nullable"] = Raw(b"true")
        found["anyOf"] = _raw([self._cut(one, f"{path}.anyOf") for one in kept])

    def _one(self, value: Raw, keys: Keys, found: Keys, path: str) -> None:
        self._losses.warned(f"{path}.oneOf", "sent as anyOf: more than one may fit")
        self._any(value, keys, found, path)

    def _open_ended(self, value: Raw, keys: Keys, found: Keys, path: str) -> None:
        if bytes(value) in (b"true", b"false"):
            self._losses.adapted(f"{path}.additionalProperties", "left out: the host decides")
        else:
            self._losses.warned(
                f"{path}.additionalProperties", "left out: only named keys have a shape"
            )

    def _above(self, value: Raw, keys: Keys, found: Keys, path: str) -> None:
        self._bound("minimum", value, 1, keys, found, f"{path}.exclusiveMinimum")

    def _under(self, value: Raw, keys: Keys, found: Keys, path: str) -> None:
        self._bound("maximum", value, -1, keys, found, f"{path}.exclusiveMaximum")

    def _bound(self, key: str, value: Raw, step: int, keys: Keys, found: Keys, path: str) -> None:
        try:
            bound = msgspec.json.decode(value, type=int)
        except ValueError:
            bound = None
        if bound is None or _text(keys.get("type")) != "integer":
            self._losses.warned(path, f"sent as {key}, which the value itself may be")
            found[key] = value
        else:
            self._losses.adapted(path, f"sent as {key}")
            found[key] = _raw(bound + step)


_KEYWORDS: dict[str, Callable[[Subset, Raw, Keys, Keys, str], None]] = {
    "type": Subset._type,
    "enum": Subset._enum,
    "const": Subset._const,
    "properties": Subset._below,
    "items": Subset._items,
    "prefixItems": Subset._prefix,
    "additionalProperties": Subset._open_ended,
    "anyOf": Subset._any,
    "oneOf": Subset._one,
    "exclusiveMinimum": Subset._above,
    "exclusiveMaximum": Subset._under,
}
