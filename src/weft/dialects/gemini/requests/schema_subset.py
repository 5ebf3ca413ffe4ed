"""Converts between JSON Schema and the OpenAPI subset of `parameters` and `responseSchema`.

The subset spells types in upper case, allows one type at a time, and has no references. What it
cannot express is a loss: annotations are dropped, restricting keywords are warned of or refused.
"""

from collections.abc import Callable

import msgspec
from msgspec import Raw

from weft.dialects.gemini.wire import NAME
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.fields import fields_of

Keywords = dict[str, Raw]

# A keyword that the subset does not have makes the API refuse the whole request, so each one is
# decided: left out if it only describes, refused if leaving it out would change what is valid.
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
"""Left out: they do not restrict the response."""

_SHARED = frozenset(
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
_INTEGER_KEYWORDS = frozenset(
    {"maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"}
)
_UNSUPPORTED = frozenset(
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
MAX_REFERENCES = 1000
"""Expanding references that lead to one another may grow without end."""

_json = msgspec.json.Encoder().encode
_NULL = Raw(b'"null"')


def _encode(value: object) -> Raw:
    return Raw(_json(value))


def _as_list(raw: Raw) -> list[Raw] | None:
    try:
        return msgspec.json.decode(raw, type=list[Raw])
    except ValueError:
        return None


def _as_object(raw: Raw) -> Keywords | None:
    try:
        return msgspec.json.decode(raw, type=Keywords)
    except ValueError:
        return None


def _as_text(raw: Raw | None) -> str | None:
    try:
        return msgspec.json.decode(raw, type=str) if raw is not None else None
    except ValueError:
        return None


def _convert_each(raw: Raw, convert: Callable[[Raw, str], Raw], path: str) -> Raw:
    """Converts each schema of an object or a list."""
    named, listed = _as_object(raw), _as_list(raw)
    if named is not None:
        return _encode({key: convert(one, f"{path}.{key}") for key, one in named.items()})
    if listed is not None:
        return _encode([convert(one, f"{path}[{index}]") for index, one in enumerate(listed)])
    return raw


# From the subset to JSON Schema


def to_json_schema(parameters: Raw) -> Raw:
    """Converts a schema of the subset to JSON Schema."""
    keys = _as_object(parameters)
    if keys is None:
        return parameters
    found: Keywords = {}
    for key, value in keys.items():
        name = _CAMEL_CASE.get(key, key)
        if name == "properties" or name in ("anyOf", "prefixItems"):
            found[name] = _convert_each(value, lambda one, _: to_json_schema(one), "")
        elif name == "items":
            found[name] = to_json_schema(value)
        elif name in _INTEGER_KEYWORDS:
            # protobuf's JSON writes 64-bit integers as strings, since JavaScript would round them.
            text = _as_text(value)  # integers may be strings in the subset
            found[name] = Raw(text.encode()) if text is not None and text.isdigit() else value
        elif name == "example":
            # OpenAPI has one `example`, JSON Schema a list of them.
            found["examples"] = Raw(b"[" + bytes(value) + b"]")
        elif name not in ("nullable", "propertyOrdering", "type"):
            found[name] = value
    type_name = _as_text(keys.get("type"))
    if type_name is None or type_name == "TYPE_UNSPECIFIED":
        return _encode(found)
    json_type = type_name.lower()
    # OpenAPI 3.0 has no type "null": it marks a type as nullable.
    nullable = bytes(keys.get("nullable", Raw(b"false"))) == b"true" and json_type != "null"
    return _encode({"type": [json_type, "null"] if nullable else json_type, **found})


_CAMEL_CASE = {
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


# From JSON Schema to the subset


class SubsetRenderer:
    """Converts one JSON Schema to the subset. References are expanded."""

    def __init__(self, schema: Raw, path: str, losses: Losses) -> None:
        self._losses = losses
        self._root = schema
        self._path = path
        self._expanding: list[str] = []
        """The references that are being expanded."""
        self._expanded = 0

    def render(self) -> Raw:
        try:
            return self._convert(self._root, self._path)
        except RecursionError:
            self._losses.refused(self._path, "nested too deeply")
            return Raw(b"{}")

    def _convert(self, schema: Raw, path: str) -> Raw:
        keys = _as_object(schema)
        if keys is None:  # true accepts anything
            self._losses.warned(path, "sent as a schema that accepts anything")
            return Raw(b"{}")
        if "$ref" in keys:
            return self._expand_reference(keys, path)
        found: Keywords = {}
        for key, value in keys.items():
            where = f"{path}.{key}"
            if key in _KEYWORDS:
                _KEYWORDS[key](self, value, keys, found, path)
            elif key in _SHARED:
                found[key] = value
            elif key in _ANNOTATIONS:
                self._losses.adapted(where, "left out: it does not restrict the response")
            elif key in _UNSUPPORTED:
                self._losses.refused(where, f"{key} is not available on {NAME}; remove it")
            else:
                self._losses.warned(where, "left out: the API does not know it")
        return _encode(found)

    def _expand_reference(self, keys: Keywords, path: str) -> Raw:
        target = _as_text(keys["$ref"]) or ""
        if target in self._expanding:
            # The API has no references, so a schema that contains itself has no end.
            self._losses.refused(path, f"a recursive schema is not available on {NAME}")
            return Raw(b'{"type":"OBJECT"}')
        resolved: Raw | None = self._root if target.startswith("#") else None
        for step in target[1:].strip("/").split("/") if target != "#" else ():
            keywords = _as_object(resolved) if resolved is not None else None
            # RFC 6901 §4: `~1` first, else `~01` would become a slash.
            resolved = (keywords or {}).get(step.replace("~1", "/").replace("~0", "~"))
        if resolved is not None and _as_object(resolved) is None:
            resolved = None
        self._expanded += 1
        if resolved is None or self._expanded > MAX_REFERENCES:
            why = f"{target} does not exist" if resolved is None else "too many references"
            self._losses.refused(path, why)
            return Raw(b"{}")
        self._losses.adapted(path, f"{target} is expanded")
        self._expanding.append(target)
        # JSON Schema 2020-12 §8.2.3.1 allows other keywords beside `$ref`; they restrict further.
        siblings = {key: value for key, value in keys.items() if key != "$ref"}
        found = self._convert(_encode({**fields_of(resolved), **siblings}), path)
        self._expanding.pop()
        return found

    def _type(self, value: Raw, keys: Keywords, found: Keywords, path: str) -> None:
        kinds = _as_list(value)
        if kinds is None:
            found["type"] = _encode((_as_text(value) or "").upper())
            return
        plain = [kind for kind in kinds if kind != _NULL]
        if len(plain) < len(kinds):
            found["nullable"] = Raw(b"true")
        if len(plain) == 1:
            found["type"] = _encode((_as_text(plain[0]) or "").upper())
        else:
            found["anyOf"] = _encode([{"type": (_as_text(one) or "").upper()} for one in plain])

    def _enum(self, value: Raw, keys: Keywords, found: Keywords, path: str) -> None:
        values = _as_list(value) or []
        words = [one for one in values if _as_text(one) is not None]
        if len(words) < len(values):
            # `enum` is a list of strings in this API. Numbers as strings would make the model write
            # strings.
            self._losses.warned(f"{path}.enum", "left out: only strings are allowed")
        else:
            found["enum"] = value
            found.setdefault("type", _encode("STRING"))

    def _const(self, value: Raw, keys: Keywords, found: Keywords, path: str) -> None:
        self._enum(Raw(b"[" + bytes(value) + b"]"), keys, found, path)

    def _properties(self, value: Raw, keys: Keywords, found: Keywords, path: str) -> None:
        found["properties"] = _convert_each(value, self._convert, f"{path}.properties")

    def _items(self, value: Raw, keys: Keywords, found: Keywords, path: str) -> None:
        found["items"] = self._convert(value, f"{path}.items")

    def _prefix_items(self, value: Raw, keys: Keywords, found: Keywords, path: str) -> None:
        found["prefixItems"] = _convert_each(value, self._convert, f"{path}.prefixItems")

    def _any_of(self, value: Raw, keys: Keywords, found: Keywords, path: str) -> None:
        options = _as_list(value) or []
        # `anyOf` with null is how generators of schemas write an optional value.
        kept = [one for one in options if _as_object(one) != {"type": _NULL}]
        if len(kept) < len(options):
            found["nullable"] = Raw(b"true")
        found["anyOf"] = _encode([self._convert(one, f"{path}.anyOf") for one in kept])

    def _one_of(self, value: Raw, keys: Keywords, found: Keywords, path: str) -> None:
        self._losses.warned(f"{path}.oneOf", "sent as anyOf: more than one may match")
        self._any_of(value, keys, found, path)

    def _additional_properties(
        self, value: Raw, keys: Keywords, found: Keywords, path: str
    ) -> None:
        if bytes(value) in (b"true", b"false"):
            self._losses.adapted(f"{path}.additionalProperties", "left out: the API decides")
        else:
            self._losses.warned(
                f"{path}.additionalProperties", "left out: only named properties can have a schema"
            )

    def _exclusive_minimum(self, value: Raw, keys: Keywords, found: Keywords, path: str) -> None:
        self._bound("minimum", value, 1, keys, found, f"{path}.exclusiveMinimum")

    def _exclusive_maximum(self, value: Raw, keys: Keywords, found: Keywords, path: str) -> None:
        self._bound("maximum", value, -1, keys, found, f"{path}.exclusiveMaximum")

    def _bound(
        self, key: str, value: Raw, step: int, keys: Keywords, found: Keywords, path: str
    ) -> None:
        try:
            bound = msgspec.json.decode(value, type=int)
        except ValueError:
            bound = None
        # Of a number there is no next value: the bound becomes inclusive, with a warning.
        if bound is None or _as_text(keys.get("type")) != "integer":
            self._losses.warned(path, f"sent as {key}, which includes the value itself")
            found[key] = value
        else:
            self._losses.adapted(path, f"sent as {key}")
            found[key] = _encode(bound + step)


_KEYWORDS: dict[str, Callable[[SubsetRenderer, Raw, Keywords, Keywords, str], None]] = {
    "type": SubsetRenderer._type,
    "enum": SubsetRenderer._enum,
    "const": SubsetRenderer._const,
    "properties": SubsetRenderer._properties,
    "items": SubsetRenderer._items,
    "prefixItems": SubsetRenderer._prefix_items,
    "additionalProperties": SubsetRenderer._additional_properties,
    "anyOf": SubsetRenderer._any_of,
    "oneOf": SubsetRenderer._one_of,
    "exclusiveMinimum": SubsetRenderer._exclusive_minimum,
    "exclusiveMaximum": SubsetRenderer._exclusive_maximum,
}
