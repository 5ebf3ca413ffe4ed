"""Writes the captures of the rules of the two OpenAI wires: for each rule a stream that breaks
it, and its twin that breaks none. What else the checker reports of a bad one is written by hand
into `<rule>.bad.expect`, with the reason.

    python -m tests.captures.check.generate_openai
"""

import sys
from pathlib import Path

from tests.captures.check import chat_cases, responses_cases
from tests.captures.check.cases import Case
from weft.check.checker import VIOLATIONS, examine
from weft.check.rules import rule

HERE = Path(__file__).parent
CASES: dict[str, list[Case]] = {
    "openai-chat": chat_cases.CASES,
    "openai-responses": responses_cases.CASES,
}


def broken(dialect: str, raw: bytes) -> list[str]:
    """The rules that a capture breaks, notes included."""
    return sorted({found.code for found in examine(raw, dialect).findings})


def serious(rules: list[str]) -> list[str]:
    return [id for id in rules if rule(id).severity in VIOLATIONS]


def main() -> int:
    wrong: list[str] = []
    for dialect, cases in CASES.items():
        folder = HERE / dialect
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            if old.suffix != ".expect":
                old.unlink()
        for case in cases:
            wrong += _written(folder, dialect, case)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def _written(folder: Path, dialect: str, case: Case) -> list[str]:
    """Writes the captures of a rule; returns what is wrong with them."""
    (folder / f"{case.rule}.good.{case.suffix}").write_bytes(case.good)
    (folder / f"{case.rule}.bad.{case.suffix}").write_bytes(case.bad)
    rule = f"{dialect}/{case.rule}"
    good, bad = broken(dialect, case.good), broken(dialect, case.bad)
    if serious(good) or rule in good or rule not in bad:
        return [f"{rule}: good breaks {good}, bad breaks {bad}"]
    return []


if __name__ == "__main__":
    sys.exit(main())
