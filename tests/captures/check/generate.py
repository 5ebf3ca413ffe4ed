"""Writes the captures of the rules of every wire: for each rule a stream that breaks it, and its
twin that breaks none. What else the checker reports of a bad one is written by hand into
`<rule>.bad.expect`, with the reason.

    python -m tests.captures.check.generate

A new rule is a row of the wire's `*_cases.py`. The streams are made by hand: they show what a
rule says, and no more.
"""

import sys
from pathlib import Path

from tests.captures.check import (
    ai_sdk_cases,
    chat_cases,
    gemini_cases,
    messages_cases,
    responses_cases,
)
from tests.captures.check.cases import Case, broken
from weft.check.checker import VIOLATIONS, examine
from weft.check.rules import rule

HERE = Path(__file__).parent
CASES: dict[str, list[Case]] = {
    "openai-chat": chat_cases.CASES,
    "openai-responses": responses_cases.CASES,
    "anthropic-messages": messages_cases.CASES,
    "gemini": gemini_cases.CASES,
    "ai-sdk": ai_sdk_cases.CASES,
}


def serious(dialect: str, raw: bytes) -> list[str]:
    """The rules that a capture breaks, without notes."""
    found = {one.code for one in examine(raw, dialect).findings}
    return sorted(id for id in found if rule(id).severity in VIOLATIONS)


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
    good, bad = serious(dialect, case.good), broken(dialect, case.bad)
    if good or broken(dialect, case.good) or case.rule not in bad:
        return [f"{dialect}/{case.rule}: good breaks {good}, bad breaks {bad}"]
    return []


if __name__ == "__main__":
    sys.exit(main())
