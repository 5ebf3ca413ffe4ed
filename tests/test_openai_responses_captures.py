"""Captures of the Responses wire: each means what its golden says, however the network cuts it."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.captures import HERE, lines, unminted
from tests.strategies import FEW
from tests.tables import each_row
from weft import Context, Decoder, Ids, Part, decode_all, detect
from weft.assembler import Assembler
from weft.lifecycle import violations

NAME: Final = "openai-responses"
CAPTURES = sorted((HERE / "openai_responses").glob("*.sse"))
SEVERAL = ("two-responses", "another-response-spliced-in")
SINGLE = [path for path in CAPTURES if path.stem not in SEVERAL]

ODD = {
    "annotation-without-an-index-after-a-gap": ["index-disordered"],
    "annotations-of-every-kind": ["start-missing", "event-unknown"],
    "arguments-only-at-the-end": ["whole-extends"],
    "call-id-only-at-the-end": ["call-id-late", "call-id-late"],
    "character-cut-in-two": ["start-missing", "surrogate-lone"],
    "deltas-before-their-item": ["start-missing"],
    "deltas-without-added": ["start-missing"],
    "diff-never-streamed": ["whole-extends"],
    "done-without-added": ["start-missing", "start-missing"],
    "ids-rotate": ["item-id-contradicted", "start-missing"],
    "response-id-rotates": ["response-id-changed"],
    "indexes-with-gaps": ["index-disordered", "index-disordered"],
    "index-zero-for-every-annotation": ["index-disordered"],
    "index-zero-for-every-item": ["call-index-reused", "call-index-reused"],
    "item-added-twice": ["item-id-contradicted", "start-repeated", "end-repeated"],
    "item-that-says-nothing": ["end-missing"],
    "item-without-an-id": ["item-id-missing"],
    "items-never-done": [
        *("start-missing", "end-missing", "end-missing", "whole-extends", "end-missing")
    ],
    "items-that-say-nothing": [*["end-missing"] * 2, "event-unknown", *["end-missing"] * 4],
    "items-only-in-the-terminal-event": ["start-missing"],
    "never-created": ["metadata-missing"],
    "no-indexes": ["index-missing", "start-missing"],
    "no-sequence-numbers": ["sequence-number-missing"],
    "one-call-under-two-items": ["call-repeated"],
    "one-id-for-two-calls": ["call-id-collision", "call-id-collision"],
    "sequence-number-twice": ["sequence-number-disordered"],
    "text-without-its-part": ["start-missing"],
    "tool-searches": ["call-id-changed"],
    "unknown-item-event-and-part": ["event-unknown", "event-unknown", "event-unknown"],
    "whole-that-differs": ["start-missing", "whole-contradicts", "whole-contradicts"],
}
"""What is noted in a capture. In all others nothing is."""


def test_there_are_captures_and_the_odd_ones_are_among_them() -> None:
    assert len(CAPTURES) > 40
    assert set(ODD) <= {path.stem for path in CAPTURES}


@each_row("path", CAPTURES, ids=lambda path: path.stem)
def test_a_capture_is_decoded_as_its_golden_file_says(path: Path) -> None:
    decoded = decode_all(path.read_bytes(), NAME)
    golden = path.with_suffix(".parts.jsonl").read_bytes()
    assert unminted(b"".join(lines(one.parts) for one in decoded)) == unminted(golden)
    for one in decoded:
        assert violations(one.parts, Assembler()) == []
    found = [finding.code for one in decoded for finding in one.response.findings]
    assert found == ODD.get(path.stem, [])


@each_row(
    "path",
    [path for path in CAPTURES if path.stem not in ("chunks-of-another-dialect", "error-body")],
    ids=lambda path: path.stem,
)
def test_the_dialect_of_a_capture_is_detected(path: Path) -> None:
    assert detect(path.read_bytes()) == NAME


def test_the_document_names_captures_that_exist() -> None:
    page = (HERE.parents[1] / "docs" / "openai-responses.md").read_text()
    odd = page.partition("## Odd streams")[2].partition("\n## ")[0]
    named = set(re.findall(r"\| `([a-z-]+)` \|$", odd, re.MULTILINE))
    assert named <= {path.stem for path in CAPTURES}
    assert len(named) > 10


def fed(pieces: list[bytes]) -> tuple[list[Part], list[str]]:
    decoder = Decoder(NAME, context=Context(ids=Ids(b"1")))
    parts = [part for piece in pieces for part in decoder.feed(piece)]
    return [*parts, *decoder.finish()], [finding.code for finding in decoder.findings]


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_fed_byte_by_byte_the_parts_are_the_same(path: Path) -> None:
    raw = path.read_bytes()
    assert fed([raw[at : at + 1] for at in range(len(raw))]) == fed([raw])


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: path.stem)
@FEW
@given(cuts=st.lists(st.integers(0, 4000), max_size=8))
def test_where_the_network_cuts_the_bytes_changes_nothing(path: Path, cuts: list[int]) -> None:
    raw = path.read_bytes()
    edges = pairwise([0, *sorted(cuts), len(raw)])
    assert fed([raw[left:right] for left, right in edges]) == fed([raw])


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
@FEW
@given(at=st.integers(0, 6000), byte=st.integers(0, 255))
def test_a_damaged_byte_or_a_cut_still_gives_legal_parts(path: Path, at: int, byte: int) -> None:
    raw = path.read_bytes()
    at = at % len(raw)
    for damaged in (raw[:at], raw[:at] + bytes([byte]) + raw[at + 1 :]):
        for one in decode_all(damaged, NAME):
            assert violations(one.parts, Assembler()) == []
            lines(one.parts).decode()
