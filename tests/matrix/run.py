"""A conversion: a response that was read, told to a client of another dialect."""

from functools import cache

import weft
from tests.matrix.facts import Fact, facts, unexplained
from tests.matrix.scenarios import encoded, source
from weft.captures import Decoded
from weft.dialects import DialectName


class Conversion:
    """What went in, what came out, and what was said about the difference."""

    def __init__(self, read: Decoded, target: DialectName) -> None:
        self.read = read
        self.raw, findings = encoded(read.parts, target)
        self.told = [finding.detail for finding in findings]
        (self.back,) = weft.decode_all(self.raw, target)

    @property
    def unexplained(self) -> list[Fact]:
        """What differs without a finding that says so."""
        return unexplained(facts(self.read.response), facts(self.back.response), self.told)


def cell(scenario: str, source: str, target: DialectName) -> Conversion:
    """One cell of the matrix."""
    return Conversion(decoded(source, scenario), target)


@cache
def decoded(dialect: DialectName, scenario: str) -> Decoded:
    """What a dialect can say of a scenario."""
    (found,) = weft.decode_all(source(dialect, scenario), dialect)
    return found
