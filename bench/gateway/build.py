"""The load generator and the upstream: C where a compiler is found, Python otherwise."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Helpers:
    """The commands that start them."""

    upstream: list[str]
    client: list[str]
    note: str | None = None
    """What to know about figures that were measured with them."""


def helpers(directory: Path) -> Helpers:
    """Builds both in the directory."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return _in_python("no C compiler was found")
    for name in ("upstream", "client"):
        built = subprocess.run(
            [compiler, "-O2", "-o", str(directory / name), str(HERE / f"{name}.c")],
            capture_output=True,
            text=True,
        )
        if built.returncode:
            return _in_python(f"{name}.c does not build: {built.stderr.strip()[:200]}")
    return Helpers([str(directory / "upstream")], [str(directory / "client")])


def _in_python(why: str) -> Helpers:
    return Helpers(
        [sys.executable, "-m", "bench.gateway.upstream"],
        [sys.executable, "-m", "bench.gateway.client"],
        f"{why}: load generator and upstream are in Python, slower than what they measure; "
        "CPU figures hold, rates and times do not",
    )
