"""Which broken rules say the same thing: one defect is one finding.

A defect is often noticed twice: by a rule of the wire, and by what reading the stream had to
repair. The rule of the wire is more specific, so it is reported; what it implies is not. Its
`rules.toml` lists as implied only what a capture of the tests shows.
"""

from collections.abc import Iterable

import msgspec

from weft.check.rules import EVERY_RULE, Selection, rule
from weft.findings import Finding


class Deduplicated(msgspec.Struct, frozen=True):
    """The findings of one response, in the order of the stream."""

    reported: list[Finding]
    implied: list[Finding]
    """What a reported finding says already."""


def deduplicate(found: Iterable[Finding], selection: Selection = EVERY_RULE) -> Deduplicated:
    """Parts the findings of one response into those to report and those they imply.

    A defect whose rule is ignored is left out, with all that it implies. One that is implied by
    a rule that is not selected is reported itself, if its own rule is.
    """
    # Choices of one response may find the same thing; equal findings are one.
    ordered = sorted(dict.fromkeys(found), key=lambda one: (one.at, one.offset))
    causes = _causes(ordered)
    deduplicated = Deduplicated([], [])
    for one in ordered:
        chain = [one.code]  # its rule, the rule that implies it, the rule that implies that …
        cause = causes.get(one)
        # Rules may imply each other, directly or in a circle.
        while cause is not None and cause.code not in chain:
            chain.append(cause.code)
            cause = causes.get(cause)
        # Someone who ignores a rule does not want the same defect under another name.
        if any(id in selection.ignored for id in chain):
            continue
        if any(map(selection.selects, chain[1:])):
            deduplicated.implied.append(one)
        elif selection.selects(one.code):
            deduplicated.reported.append(one)
    return deduplicated


def _causes(ordered: list[Finding]) -> dict[Finding, Finding]:
    """Returns the finding that implies another one, by the implied one."""
    by_rule: dict[str, list[Finding]] = {}
    for one in ordered:
        by_rule.setdefault(one.code, []).append(one)
    causes: dict[Finding, Finding] = {}
    # What is implied at the same event comes first: there the connection is certain.
    for one in ordered:
        for id in rule(one.code).implies_at_event:
            for other in by_rule.get(id, ()):
                if other.at == one.at:
                    causes.setdefault(other, one)
    for one in ordered:
        for id in rule(one.code).implies_in_response:
            left = [other for other in by_rule.get(id, ()) if other not in causes]
            if left:
                # One each, the nearest: two defects of the same kind keep two findings.
                causes[min(left, key=lambda other: abs(other.at - one.at))] = one
    return causes
