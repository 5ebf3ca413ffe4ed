"""Frames become events alike in every dialect: replays, wrong types, data that is not JSON."""

import json

import pytest

from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.frames import SurrogateJoiner
from weft.findings import Findings
from weft.parts import ErrorPart
from weft.sse import DONE, Frame

KNOWN_NAMES = {
    "openai-responses": "response.output_text.delta",
    "anthropic-messages": "content_block_delta",
}
"""An event of each dialect whose events have names."""


def read(dialect: str, *frames: Frame) -> tuple[list[ErrorPart], list[str]]:
    """The errors that a decoder reads from frames, and the codes of its findings."""
    findings = Findings()
    make = DIALECTS[dialect].decoder
    assert make is not None
    decoder = make(Context(), findings)
    parts = [part for frame in frames for part in decoder.feed(frame)]
    codes = [one.code for one in findings.found if one.code != "metadata-id-minted"]
    return [part for part in parts if isinstance(part, ErrorPart)], codes


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_event_with_the_same_id_and_bytes_is_dropped(dialect: str) -> None:
    first = Frame(b'{"type":"an.unknown.one"}', id="7")
    other = Frame(b'{"type":"another.unknown.one"}', id="7")
    assert read(dialect, first, first)[1].count("frame-replayed") == 1
    assert "frame-replayed" not in read(dialect, first, other)[1]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("data", [b'{"type": ', b"[1, 2"])
def test_broken_json_is_malformed(dialect: str, data: bytes) -> None:
    (error,), _ = read(dialect, Frame(data, number=3))
    assert error.kind == "malformed"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("event", ["", "error"])
def test_plain_text_is_the_error_of_the_upstream(dialect: str, event: str) -> None:
    (error,), _ = read(dialect, Frame(b"the loom stopped", event))
    assert (error.kind, error.message) == ("upstream", "the loom stopped")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_event_of_another_name_may_hold_anything(dialect: str) -> None:
    frame = Frame(b"2026-03-04 05:06:07", "loom.progress")
    assert read(dialect, frame, frame) == ([], ["event-unknown"])


@pytest.mark.parametrize(("dialect", "event"), KNOWN_NAMES.items())
def test_an_event_of_the_dialect_must_be_json(dialect: str, event: str) -> None:
    (error,), _ = read(dialect, Frame(b"the loom stopped", event))
    assert error.kind == "malformed"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_event_that_the_input_ended_inside_is_no_error(dialect: str) -> None:
    assert read(dialect, Frame(b'{"type": ', cut=True)) == ([], ["frame-unterminated"])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_last_event_without_a_blank_line_is_read(dialect: str) -> None:
    """The same finding for each dialect; what follows is what the event itself says."""
    body = json.dumps({"type": "an.unknown.one"}).encode()
    codes = read(dialect, Frame(body, cut=True, split=True))[1]
    assert codes[:2] == ["frame-unterminated", "frame-lines-split"]


@pytest.mark.parametrize("dialect", ["anthropic-messages", "gemini"])
def test_a_dialect_without_done_reports_it(dialect: str) -> None:
    assert read(dialect, Frame(DONE)) == ([], ["event-unknown"])


def test_half_a_character_waits_for_the_other_half_of_its_item() -> None:
    findings = Findings()
    joiner = SurrogateJoiner(findings)
    assert joiner.feed("a", "é") == "é"
    assert not findings.found
    assert joiner.feed("a", "x\ud83d") == "x"
    assert joiner.feed("b", "y") == "y"
    assert joiner.held == {"a": "\ud83d"}
    assert joiner.feed("a", "\ude00!") == "😀!"
    assert [one.code for one in findings.found] == ["surrogate-lone"]


def test_half_a_character_that_stays_alone_is_replaced() -> None:
    joiner = SurrogateJoiner(Findings())
    assert joiner.feed("a", "\ude00") == "�"
    assert joiner.feed("a", "\ud83d") == ""
    assert (joiner.flush("b"), joiner.flush("a"), joiner.flush("a")) == ("", "�", "")
