"""Whether a JSON schema meets the rules of strict mode: closed objects, all keys required."""

import msgspec
from msgspec import UNSET, Raw, UnsetType


# OpenAI, "Structured Outputs": the subset of JSON Schema that strict mode supports.
class _StrictSchema(msgspec.Struct):
    """The keywords of a JSON schema that strictness depends on."""

    type: Raw | UnsetType = UNSET
    properties: "dict[str, _StrictSchema | bool] | UnsetType" = UNSET
    required: list[str] | UnsetType = UNSET
    additional: "bool | _StrictSchema | UnsetType" = msgspec.field(
        name="additionalProperties", default=UNSET
    )
    items: "_StrictSchema | bool | UnsetType" = UNSET
    any_of: "list[_StrictSchema | bool] | UnsetType" = msgspec.field(name="anyOf", default=UNSET)
    all_of: Raw | UnsetType = msgspec.field(name="allOf", default=UNSET)
    one_of: Raw | UnsetType = msgspec.field(name="oneOf", default=UNSET)
    defs: "dict[str, _StrictSchema | bool] | UnsetType" = msgspec.field(name="$defs", default=UNSET)


def is_strict(schema: Raw | UnsetType) -> bool:
    """Whether every object of a schema is closed and requires all its properties."""
    if not isinstance(schema, Raw):
        return False
    try:
        top = msgspec.json.decode(schema, type=_StrictSchema)
    except (ValueError, RecursionError):
        return False
    # The root must be an object, and not a union of types.
    return top.type == Raw(b'"object"') and _is_closed(top)


def _is_closed(schema: _StrictSchema | bool) -> bool:
    # `true` allows anything, and neither `allOf` nor `oneOf` is supported.
    if isinstance(schema, bool) or schema.all_of is not UNSET or schema.one_of is not UNSET:
        return False
    properties = schema.properties if isinstance(schema.properties, dict) else {}
    # The type may be a list, such as `["object", "null"]`.
    if properties or (isinstance(schema.type, Raw) and b'"object"' in bytes(schema.type)):
        required = schema.required if isinstance(schema.required, list) else []
        # Optional keys are written as nullable ones, so every key is required.
        if schema.additional is not False or set(properties) != set(required):
            return False
    inner = [*properties.values()]
    inner += schema.defs.values() if isinstance(schema.defs, dict) else ()
    inner += schema.any_of if isinstance(schema.any_of, list) else ()
    inner += () if isinstance(schema.items, UnsetType) else (schema.items,)
    return all(map(_is_closed, inner))
