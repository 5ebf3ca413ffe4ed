"""What known clients make of a stream that breaks a rule: raise, lose, double, hang or ignore.

What nobody has seen has no row: no row is no promise.
"""

from weft.check.executed import EXECUTED
from weft.check.recorded import RECORDED
from weft.check.verdict import Verdict

VERDICTS: tuple[Verdict, ...] = (*EXECUTED, *RECORDED)


def verdicts(dialect: str, broken: set[str]) -> tuple[Verdict, ...]:
    """Returns the rows for the rules that a stream of this dialect breaks, in table order."""
    return tuple(row for row in VERDICTS if row.dialect == dialect and row.rule in broken)


def verdicts_on(rule: str) -> tuple[Verdict, ...]:
    """Returns all rows of a rule, in table order."""
    return tuple(row for row in VERDICTS if row.rule == rule)
