"""What known clients make of a stream that breaks a rule, from `clients.toml`.

What nobody has seen has no verdict: no verdict is no promise.
"""

from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

Effect = Literal["raises", "loses", "doubles", "hangs", "ignores"]
"""raises: the reader gets an exception; loses: something that was sent is missing or empty;
doubles: something is there more than once, or joined to itself; hangs: something stays open
forever; ignores: a response that failed is taken for a good one."""

# Kept apart, because only the first is noticed when a new version of a client behaves differently.
Evidence = Literal["executed", "recorded"]
"""executed: the tests run this version on a capture; recorded: measured, read or reported."""

UNKNOWN = "unknown"
"""The version of a client, where a report does not name it."""


class ClientVersion(msgspec.Struct, frozen=True):
    """One version of one client, and the day its behaviour was observed or reported."""

    name: str
    version: str
    date: str


class Verdict(msgspec.Struct, frozen=True):
    """What one client does with a stream of this dialect that breaks this rule."""

    client: ClientVersion
    dialect: str
    rule: str
    effect: Effect
    says: str
    evidence: Evidence
    source: str
    """The capture that is run, below `tests/captures`; or where it was found."""


# The rows of the file. A misspelt key raises instead of being skipped.


class _VerdictRow(msgspec.Struct, forbid_unknown_fields=True):
    dialect: str
    rule: str
    effect: Effect
    says: str
    source: str


class _ClientRows(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    version: str
    date: str
    evidence: Evidence
    verdicts: list[_VerdictRow]


class _ClientFile(msgspec.Struct, forbid_unknown_fields=True):
    clients: list[_ClientRows]


# Read at the first broken rule: a check that finds nothing needs no verdicts.
@cache
def all_verdicts() -> tuple[Verdict, ...]:
    """Returns every verdict, in the order of the file."""
    data = (files("weft.check") / "clients.toml").read_bytes()
    return tuple(
        Verdict(
            ClientVersion(each.name, each.version, each.date),
            row.dialect,
            row.rule,
            row.effect,
            row.says,
            each.evidence,
            row.source,
        )
        for each in msgspec.toml.decode(data, type=_ClientFile).clients
        for row in each.verdicts
    )


def verdicts(dialect: str, broken: set[str]) -> tuple[Verdict, ...]:
    """Returns the verdicts on the rules that a stream of this dialect breaks."""
    if not broken:
        return ()
    return tuple(row for row in all_verdicts() if row.dialect == dialect and row.rule in broken)


def verdicts_on(rule: str) -> tuple[Verdict, ...]:
    """Returns all verdicts on a rule."""
    return tuple(row for row in all_verdicts() if row.rule == rule)
