"""Behind an encoder an event is a value until a writer at the edge frames it: nobody there parses,
splits or searches framed bytes.
"""

import re
from pathlib import Path

import pytest

from tests.tables import each_row

SOURCE = Path(__file__).parents[1] / "src" / "weft"
FOLDERS = ("relay", "gateway", "store")

SUSPECT = re.compile(
    r"""split\(\s*b?["'](\\r|\\n)|\.rfind\(|\.replace\(\s*b["']|re\.compile\(\s*rb|FrameReader|"""
    r"""b["']data:|b["']event:|\bfind\(\s*b["']|partition\(\s*b["']\\"""
)
"""How bytes are taken apart."""

ALLOWED: dict[str, str] = {
    "relay/response_reader.py": "reads what an upstream sends, which is bytes",
    "relay/fast_lane.py": "compares what an upstream sends with what it sent before",
    "relay/recording.py": "records what an upstream sends, line by line",
    "relay/rerun.py": "reads once more what an upstream sent",
    "gateway/ledger.py": "reads its own journal, line by line",
    "gateway/exchange.py": "looks into the values of headers",
    "gateway/bodies.py": "looks into the bodies of requests",
}
"""Who may, and why."""


def files() -> list[Path]:
    return sorted(path for name in FOLDERS for path in (SOURCE / name).rglob("*.py"))


def suspects(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [f"{number}: {line}" for number, line in enumerate(lines, 1) if SUSPECT.search(line)]


@each_row("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_nobody_behind_an_encoder_takes_framed_bytes_apart(path: Path) -> None:
    if str(path.relative_to(SOURCE)) not in ALLOWED:
        assert suspects(path) == []


def test_whoever_may_does() -> None:
    """A row that nobody needs goes."""
    assert [name for name in ALLOWED if not suspects(SOURCE / name)] == []


@pytest.mark.parametrize(
    "line",
    [
        'raw.split(b"\\n\\n")',
        "raw.split(b'\\r\\n')",
        'block.replace(b"a", b"b")',
        'raw.rfind(b"x")',
        '_NUMBER = re.compile(rb"sequence_number")',
        "reader = FrameReader()",
        'if raw.startswith(b"data: "):',
    ],
)
def test_what_is_looked_for_would_be_found(line: str) -> None:
    assert SUSPECT.search(line)
