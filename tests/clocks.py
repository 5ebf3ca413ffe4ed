"""Processes whose clocks are wrong."""

import os
from importlib.util import find_spec
from pathlib import Path


def hours_off(hours: int) -> dict[str, str]:
    """The environment of a process whose clock is so many hours ahead, also for its SQLite. What it
    measures, rather than reads from the clock, is right."""
    package = find_spec("libfaketime")
    assert package is not None
    assert package.origin is not None
    library = Path(package.origin).with_name("vendor") / "libfaketime/src/libfaketime.so.1"
    shift = {"FAKETIME": f"{hours:+}h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    return {**os.environ, "LD_PRELOAD": str(library), **shift}
