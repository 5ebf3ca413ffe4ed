"""From the signature of a function to a struct for its arguments, and to their JSON Schema."""

import copy
import inspect
import typing
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from weft.errors import ArgumentTypeError

_NO_PARAMETERS: dict[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "takes any number of values, which no schema can name",
    inspect.Parameter.VAR_KEYWORD: "takes values of any name, which no schema can list",
    inspect.Parameter.POSITIONAL_ONLY: "has no name for the caller; remove the / behind it",
}
"""Arguments are an object with fixed keys, so that is what a signature must be."""


def arguments_struct(
    name: str, function: Callable[..., object], context: type
) -> tuple[str | None, type[msgspec.Struct]]:
    """Returns the name of the first parameter if it is annotated with `context`, and a struct with
    a field for each of the others. Raises ArgumentTypeError for what cannot be a tool.
    """
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ArgumentTypeError(
            f"tool {name}: an annotation cannot be resolved: {error}; "
            "annotations must be names of the function's module"
        ) from error
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError as error:  # some functions that are written in C
        raise ArgumentTypeError(f"tool {name}: {error}") from error
    # Only the first: anywhere else it is a mistake, which msgspec reports as an unknown type.
    context_parameter = None
    if parameters and hints.get(parameters[0].name) is context:
        context_parameter = parameters.pop(0).name
    fields = [_field(name, parameter, hints) for parameter in parameters]
    # Keyword-only, so that a parameter without a default may follow one that has one. Not named
    # like the tool: msgspec fails if a type of the arguments happens to have that name too.
    struct = msgspec.defstruct(
        f"arguments-of-{name}", fields, forbid_unknown_fields=True, kw_only=True, frozen=True
    )
    return context_parameter, struct


def _field(name: str, parameter: inspect.Parameter, hints: dict[str, Any]) -> tuple[str, Any, Any]:
    what = f"tool {name}: parameter {parameter.name!r}"
    if why := _NO_PARAMETERS.get(parameter.kind):
        raise ArgumentTypeError(f"{what} {why}")
    if parameter.name not in hints:
        raise ArgumentTypeError(f"{what} has no annotation, so there is no schema for it")
    annotation, default = hints[parameter.name], parameter.default
    field: Any = msgspec.NODEFAULT
    if isinstance(default, list | dict | set | bytearray):
        # A copy for each call; msgspec would refuse to share a mutable default.
        field = msgspec.field(default_factory=lambda: copy.deepcopy(default))
    elif default is not inspect.Parameter.empty:
        field = default
    # One by one, so that the message names the parameter.
    try:
        json_schema(msgspec.defstruct("field", [(parameter.name, annotation, field)]))
    except (TypeError, ValueError, KeyError, RecursionError) as error:
        # msgspec's text begins with advice for its own users; its last line says what is wrong.
        raise ArgumentTypeError(f"{what}: {str(error).splitlines()[-1]}") from error
    return parameter.name, annotation, field


def json_schema(struct: type[msgspec.Struct]) -> tuple[msgspec.json.Decoder[msgspec.Struct], Raw]:
    """Returns a decoder for the arguments and their schema. Raises what msgspec raises for types
    that it cannot decode or describe, and for defaults that JSON cannot express.
    """
    decoder = msgspec.json.Decoder(struct)
    (reference,), components = msgspec.json.schema_components(
        [struct], ref_template="#/$defs/{name}"
    )
    # Model APIs want an object at the top, where msgspec has a reference to one.
    schema = components.pop(reference["$ref"].removeprefix("#/$defs/"))
    del schema["title"]
    # What is left are the types that the arguments refer to.
    if components:
        schema["$defs"] = components
    return decoder, Raw(msgspec.json.encode(schema))
