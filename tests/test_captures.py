"""Every capture means what the catalogue says, however the network cuts it."""

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.captures import (
    CHAT,
    GUARD,
    HERE,
    STAGED,
    Capture,
    PartsCapture,
    lines,
    outcome,
    read_lines,
    unminted,
)
from tests.captures.catalogue import NOT_SHOWN, READINGS, REASONS, ROWS
from tests.strategies import examples
from tests.tables import each_row
from tests.weft_command import run
from weft.assembler import Assembler
from weft.dialects import DIALECTS
from weft.lifecycle import violations
from weft.parts import Part, ToolCall, ToolParamsDelta

SINGLE = [capture for capture in CHAT if len(capture.expected) == 1]
"""Captures of one response and one choice, which is what one decoder reads."""


def fed(capture: Capture, pieces: list[bytes]) -> tuple[bytes, list[object]]:
    """The parts as printed, without minted ids, and the findings."""
    decoder = capture.decoder()
    parts = [part for piece in pieces for part in decoder.feed(piece)]
    parts += decoder.finish()
    return unminted(lines(parts)), [*decoder.findings]


def split(raw: bytes, cuts: list[int]) -> list[bytes]:
    return [raw[start:end] for start, end in pairwise([0, *sorted(cuts), len(raw)])]


def assert_legal(parts: Sequence[Part]) -> None:
    assert violations(parts, Assembler()) == []
    joined: dict[str, str] = {}
    for part in parts:
        if isinstance(part, ToolParamsDelta):
            joined[part.id] = joined.get(part.id, "") + part.delta
        elif isinstance(part, ToolCall) and part.id in joined:
            assert part.params == joined[part.id]
            assert part.invalid or part.format == "text" or json.loads(part.params) is not None


@each_row("capture", CHAT, ids=str)
def test_the_outcome_is_the_one_the_catalogue_asks_for(capture: Capture) -> None:
    decoded, expected = capture.decode_all(), capture.expected
    assert len(decoded) == len(expected)
    outcomes = [outcome(one.response, want) for one, want in zip(decoded, expected, strict=True)]
    assert outcomes == expected


@each_row("capture", CHAT, ids=str)
def test_the_golden_is_what_is_printed(capture: Capture) -> None:
    printed = b"".join(lines(one.parts) for one in capture.decode_all())
    assert printed.decode() == capture.golden.read_text()


@each_row("capture", CHAT, ids=str)
def test_the_parts_are_legal_and_deltas_join_to_the_params(capture: Capture) -> None:
    for one in capture.decode_all():
        assert_legal(one.parts)
        ids = [part.id for part in one.parts if isinstance(part, ToolCall)]
        assert len(ids) == len(set(ids))
        assert all(ids)


@each_row("capture", SINGLE, ids=str)
def test_fed_whole_or_byte_by_byte_the_parts_are_the_golden(capture: Capture) -> None:
    raw = capture.raw
    whole, findings = fed(capture, [raw])
    assert whole == unminted(capture.golden.read_bytes())
    assert fed(capture, split(raw, list(range(len(raw))))) == (whole, findings)


@pytest.mark.parametrize("capture", SINGLE, ids=str)
@examples(12)
@given(data=st.data())
def test_where_the_network_cuts_the_bytes_changes_nothing(
    capture: Capture, data: st.DataObject
) -> None:
    raw = capture.raw
    cuts = data.draw(st.lists(st.integers(0, len(raw)), max_size=12))
    assert fed(capture, split(raw, cuts)) == fed(capture, [raw])


@pytest.mark.parametrize("capture", [*GUARD, *STAGED], ids=str)
def test_the_guard_makes_any_parts_legal(capture: PartsCapture) -> None:
    parts, _, _ = capture.guarded()
    assert lines(parts) == capture.golden.read_bytes()
    assert_legal(parts)


@pytest.mark.parametrize("capture", [*GUARD, *STAGED], ids=str)
def test_what_the_guard_made_legal_it_leaves_alone(capture: PartsCapture) -> None:
    golden = read_lines(capture.golden.read_bytes())
    again = PartsCapture(capture.golden)
    parts, _, findings = again.guarded()
    assert (parts, findings.found) == (golden, [])


def test_every_row_of_the_catalogue_is_shown() -> None:
    rows = {f"Q{number:02}" for number in range(1, 124)}
    assert {row for row, names in ROWS.items() if names} | set(NOT_SHOWN) == rows
    assert not set(ROWS) & set(NOT_SHOWN)


def test_every_capture_has_a_row_or_a_reason() -> None:
    captures = {str(capture) for capture in CHAT}
    shown = {name for names in ROWS.values() for name in names}
    assert shown | set(REASONS) == captures
    assert set(READINGS) <= captures


@pytest.mark.parametrize("folder", [name.replace("-", "_") for name in DIALECTS])
def test_the_command_line_reads_the_captures_as_the_tests_do(folder: str) -> None:
    done = run("test", HERE / folder)
    assert (done.code, done.out) == (0, "")


def test_no_file_stands_alone() -> None:
    chat = {path.name.partition(".")[0] for path in (HERE / "openai_chat").iterdir()}
    guard = {path.name.partition(".")[0] for path in (HERE / "guard").iterdir()}
    assert chat == {str(capture) for capture in CHAT}
    assert guard == {str(capture) for capture in GUARD}
    stages = {path.name.partition(".")[0] for path in (HERE / "stages").iterdir()}
    assert stages == {str(capture) for capture in STAGED}
