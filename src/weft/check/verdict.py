"""One fact about one client: what it makes of a stream that breaks a rule."""

from typing import Literal

import msgspec

Effect = Literal["raises", "loses", "doubles", "hangs", "ignores"]
"""raises: the reader gets an exception; loses: something that was sent is missing or empty;
doubles: something is there more than once, or joined to itself; hangs: something stays open for
ever; ignores: a response that failed is taken for a good one."""

Evidence = Literal["executed", "recorded"]


UNKNOWN = "unknown"
"""The version of a client, where a report does not name it."""


class Client(msgspec.Struct, frozen=True):
    """One version of one client, and the day its behaviour was observed or reported."""

    name: str
    version: str
    date: str


class Verdict(msgspec.Struct, frozen=True):
    """What one client does with a stream of this dialect that breaks this rule."""

    client: Client
    dialect: str
    rule: str
    effect: Effect
    says: str
    evidence: Evidence
    source: str
    """The capture that is run, below `tests/captures`; or where it was found."""


Row = tuple[str, Effect, str, str]
"""Rule, effect, what happens, source."""


def rows(client: Client, dialect: str, evidence: Evidence, *facts: Row) -> tuple[Verdict, ...]:
    """One row a fact, all of one client and one dialect."""
    return tuple(
        Verdict(client, dialect, rule, effect, says, evidence, source)
        for rule, effect, says, source in facts
    )
