"""Reads TOML tables as values of the schema.

An invalid value is reported and left at its default, so that the rest can still be checked.
"""

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from weft.gateway.settings.line_numbers import Key
from weft.gateway.settings.problems import Problems, unknown_name
from weft.gateway.settings.schema import FIELD_RANGES, NAMED_VALUES
from weft.scrub import Secret

T = TypeVar("T")


class EnvironmentText(str):
    """The value of an environment variable: a text that may stand for a number or a list."""

    __slots__ = ()


_INVALID = object()
"""In place of an invalid value, whose problem was added."""


class TableReader:
    """Reads tables as Structs and dataclasses, according to the types of their fields."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems

    def table(self, value: dict[str, object], wanted: type[T], key: Key = ()) -> T | None:
        """Returns the value; None if a required field is missing."""
        given = self.fields(value, wanted, key)
        for name in required_fields(wanted):
            if name not in value:
                self._problems.add(key, f"{name} is missing")
        return wanted(**given) if given.keys() >= set(required_fields(wanted)) else None

    def fields(self, table: dict[str, object], wanted: type, key: Key) -> dict[str, object]:
        """Returns the valid fields that a table sets of a Struct or dataclass."""
        hints = field_types(wanted)
        for name in (name for name in table if name not in hints):
            # `gpt-5.1 = …` without quotes is a key `1` of a table `gpt-5`.
            hint = "; a name with a dot in it needs quotes" if key[:1] == ("models",) else ""
            self._problems.add((*key, name), unknown_name("setting", name, hints) + hint)
        return self._fields({name: hints[name] for name in table if name in hints}, table, key)

    def _fields(
        self, hints: Mapping[str, object], table: dict[str, object], key: Key
    ) -> dict[str, object]:
        found = {name: self._value(table[name], hint, (*key, name)) for name, hint in hints.items()}
        return {name: value for name, value in found.items() if value is not _INVALID}

    def _value(self, value: object, wanted: object, key: Key) -> object:
        options = union_members(wanted)
        # A variable has no syntax for a list.
        if isinstance(value, EnvironmentText) and any(get_origin(one) is tuple for one in options):
            value = [one.strip() for one in value.split(",") if one.strip()]
        # Before anything that may fail: no message of an error can quote it.
        if isinstance(value, str) and Secret in options:
            return Secret(str(value))
        for option in options:
            if isinstance(value, str) and value in NAMED_VALUES.get(option, ()):
                return NAMED_VALUES[option][value]
        if isinstance(value, dict):
            return self._table(value, wanted, key)
        # msgspec cannot read dicts of secrets, so no such dict gets to `convert`.
        if Secret in options or all(_is_table(one) or _is_mapping(one) for one in options):
            return self._invalid(
                key, f"expected {describe_type(wanted)}, got {describe_value(value)}"
            )
        try:
            if isinstance(value, EnvironmentText):
                # Not strict: "9000" and "true" are how a variable spells a number and a truth.
                return msgspec.convert(str(value), wanted, strict=False)
            return msgspec.convert(value, wanted)
        except msgspec.ValidationError as problem:
            return self._invalid(key, _conversion_error(str(problem), value, wanted))

    def _table(self, value: dict[str, object], wanted: object, key: Key) -> object:
        """Reads a table: one of the schema, or one whose keys the user chooses."""
        for option in union_members(wanted):
            if _is_table(option):
                found = self.table(value, cast("type[object]", option), key)
                return _INVALID if found is None else found
            if _is_mapping(option):
                (_, inner) = get_args(option)
                return (
                    value
                    if inner is object
                    else self._fields(dict.fromkeys(value, inner), value, key)
                )
        return self._invalid(key, f"expected {describe_type(wanted)}, got a table")

    def _invalid(self, key: Key, message: str) -> object:
        self._problems.add(key, message)
        return _INVALID


def field_types(wanted: type) -> dict[str, object]:
    """Returns the types of the fields, with their ranges."""
    return get_type_hints(wanted, include_extras=True) | FIELD_RANGES.get(wanted, {})


def required_fields(wanted: type) -> list[str]:
    """Returns the fields without a default."""
    if is_dataclass(wanted):
        return [
            one.name
            for one in fields(wanted)
            if one.default is MISSING and one.default_factory is MISSING
        ]
    return [one.name for one in msgspec.structs.fields(wanted) if one.required]


def union_members(wanted: object) -> tuple[object, ...]:
    """Returns the members of a union without None; or the one type."""
    wanted = unannotated(wanted)
    if get_origin(wanted) in (Union, UnionType):
        return tuple(one for one in get_args(wanted) if one is not NoneType)
    return (wanted,)


def unannotated(wanted: object) -> object:
    return get_args(wanted)[0] if get_origin(wanted) is Annotated else wanted


def _is_table(option: object) -> bool:
    return isinstance(option, type) and (issubclass(option, msgspec.Struct) or is_dataclass(option))


def _is_mapping(option: object) -> bool:
    return get_origin(option) is dict


# Descriptions


_KINDS: Mapping[type, str] = {
    str: "text",
    EnvironmentText: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


def describe_value(value: object) -> str:
    return _KINDS.get(value.__class__, "a time")  # TOML has nothing else


def describe_type(wanted: object) -> str:
    """Returns a type in plain English."""
    return " or ".join(_describe_member(option) for option in union_members(wanted))


def _describe_member(option: object) -> str:
    option = unannotated(option)
    if get_origin(option) is Literal:
        return "one of " + ", ".join(map(str, get_args(option)))
    if get_origin(option) is tuple:
        (inner, *_) = get_args(option)
        return "a list of texts" if inner is str else f"a list of {_describe_member(inner)}"
    if _is_mapping(option) or _is_table(option):
        return "a table"
    return "text" if option is Secret else _KINDS[cast(type, option)]


_NUMBER = re.compile(r"`(?:int|float)` [<>]")


def _conversion_error(problem: str, value: object, wanted: object) -> str:
    """Text values are not quoted: they may be secrets in the wrong place."""
    if "length" in problem:
        return "must not be empty"
    if _NUMBER.search(problem) and isinstance(value, list):
        (inner, *_) = get_args(unannotated(wanted))
        return f"each must be {describe_range(inner)}"
    if _NUMBER.search(problem):
        return f"must be {describe_range(wanted)}, got {value}"
    if isinstance(value, list) and "$[" in problem:
        return f"expected {describe_type(wanted)}"
    return f"expected {describe_type(wanted)}, got {describe_value(value)}"


def describe_range(wanted: object) -> str:
    """Returns the range of a number in plain English; empty if it has none."""
    is_union = get_origin(wanted) in (Union, UnionType)
    metas = [
        meta
        for option in (wanted, *(get_args(wanted) if is_union else ()))
        if get_origin(option) is Annotated
        for meta in get_args(option)[1:]
        if isinstance(meta, Meta)
    ]
    if not metas:
        return ""
    low, above, high = metas[0].ge, metas[0].gt, metas[0].le
    least = f"more than {above:,}" if above is not None else f"at least {low:,}"
    if high is None:
        return least
    return f"{least} and at most {high:,}" if above is not None else f"from {low:,} to {high:,}"
