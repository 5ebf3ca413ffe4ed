"""The gate of `make coverage`: fails unless values and law are covered whole, codecs nearly, and so
is what decides in the agent runtime.

Reads what `coverage combine` left. Lines and branches count alike. The layers are those of the
import law; the command line, which the tests run as other processes, is not asked. Neither is what
of the runtime does I/O: its tests kill processes, which leave no measurements.
"""

import subprocess
import sys
from pathlib import Path

import msgspec

from tests.test_layers import SOURCE, layer

AGENT_LAW = "L5 agent, what does no I/O"
DECIDING = (
    "decide",
    "definition",
    "events",
    "gate",
    "lifecycle",
    "merge",
    "results",
    "state",
    "tool_execution",
    "tool_schema",
    "tool_spec",
    "tools",
    "turns",
)
"""The modules of the agent runtime that say what is legal and what is next."""

WANTED = {
    "errors": 100.0,
    "L0 values": 100.0,
    "L1 law": 100.0,
    "L2 dialects": 97.0,
    AGENT_LAW: 98.0,
}
"""Per cent of the lines and branches of each group, taken together."""


class Summary(msgspec.Struct):
    num_statements: int
    covered_lines: int
    num_branches: int
    covered_branches: int


class Measured(msgspec.Struct):
    summary: Summary
    missing_lines: list[int]
    missing_branches: list[tuple[int, int]]


class Report(msgspec.Struct):
    files: dict[str, Measured]


def report() -> Report:
    command = [sys.executable, "-m", "coverage", "json", "-q", "-o", "-"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"coverage: {(done.stdout + done.stderr).decode().strip()}")
    return msgspec.json.decode(done.stdout, type=Report)


def module(path: str) -> str:
    names = Path(path).resolve().relative_to(SOURCE).with_suffix("").parts
    return ".".join(("weft", *names)).removesuffix(".__init__")


def group(name: str) -> str | None:
    """The group of a module: its layer, or a part of it."""
    is_law = name in {f"weft.agent.{one}" for one in DECIDING}
    return AGENT_LAW if is_law else layer(name)


def percent(measured: list[Measured]) -> float:
    sums = [one.summary for one in measured]
    wanted = sum(one.num_statements + one.num_branches for one in sums)
    covered = sum(one.covered_lines + one.covered_branches for one in sums)
    return 100.0 * covered / wanted if wanted else 100.0


def missing(measured: Measured) -> str:
    """Lines that never ran, and branches that were never taken from lines that did."""
    lines = [str(line) for line in measured.missing_lines]
    branches = [
        f"{start}->{end if end > 0 else 'exit'}"
        for start, end in measured.missing_branches
        if start not in measured.missing_lines
    ]
    return " ".join(lines + branches)


def gate(found: dict[str, Measured]) -> tuple[str, bool]:
    """Returns the table of what is measured, and whether every layer is covered as wanted."""
    lines: list[str] = []
    passed = True
    for name, wanted in WANTED.items():
        members = {one: measured for one, measured in found.items() if group(one) == name}
        reached = percent(list(members.values()))
        enough = bool(members) and reached >= wanted
        passed = passed and enough
        verdict = "" if enough else f", wanted {wanted:.0f} %"
        lines.append(f"{name}: {reached:.2f} % of lines and branches{verdict}")
        lines += [
            f"  {one} {percent([measured]):.2f} %: {missing(measured)}"
            for one, measured in members.items()
            if missing(measured)
        ]
    return "\n".join(lines), passed


def main() -> None:
    table, passed = gate({module(path): one for path, one in report().files.items()})
    print(table)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
