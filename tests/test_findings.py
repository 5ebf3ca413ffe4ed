"""Every finding is explained to people, and a capture proves that it is raised."""

import re
from itertools import pairwise
from pathlib import Path
from typing import get_args

import msgspec

from tests.captures import CHAT, GUARD, HERE, STAGED, Capture, PartsCapture
from tests.tables import each_row
from weft.captures import decode_all
from weft.codec import Decoder, Encoder
from weft.context import Context
from weft.dialects import dialect_named
from weft.findings import LIMIT, Code, Finding, Findings
from weft.ids import Ids

DOCS = Path(__file__).parents[1] / "docs" / "findings.md"
CODES: tuple[str, ...] = get_args(Code)
SUPPRESSED = "findings-suppressed"
GENERATED = (SUPPRESSED, "turn-interrupted")
"""Codes that no capture can raise: a test of their own does."""
CAPTURES: dict[str, Capture | PartsCapture | Path] = {
    **{f"openai_chat/{capture}": capture for capture in CHAT},
    **{f"guard/{capture}": capture for capture in GUARD},
    **{f"stages/{capture}": capture for capture in STAGED},
    **{
        f"{folder}/{path.stem}": path
        for folder in ("anthropic_messages", "gemini", "openai_responses")
        for path in (HERE / folder).glob("*.sse")
    },
}


def sections() -> dict[str, str]:
    """Code -> what the page says of it, in the order of the page."""
    text = DOCS.read_text()
    marks = list(re.finditer(r"^### `(.+)`$", text, re.MULTILINE))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    return {mark[1]: text[mark.end() : end] for mark, end in zip(marks, ends, strict=True)}


def raised(capture: Capture | PartsCapture | Path) -> list[Finding]:
    """What reading a capture leaves; parts are then written as Responses events as well."""
    if isinstance(capture, Capture):
        return [found for one in capture.decode_all() for found in one.response.findings]
    if isinstance(capture, Path):
        dialect = dialect_named(capture.parent.name.replace("_", "-")).name
        decoded = decode_all(capture.read_bytes(), dialect)
        return [found for one in decoded for found in one.response.findings]
    parts, guard, findings = capture.guarded()
    encoder = Encoder("openai-responses", context=Context(), fold=guard.fold)
    encoder.feed(parts)
    encoder.finish()
    return findings.found + encoder.findings


def test_every_code_is_explained_once_in_the_order_of_the_type() -> None:
    assert tuple(sections()) == CODES
    assert DOCS.read_text().count("\n### ") == len(CODES)


@each_row("code", [code for code in CODES if code not in GENERATED])
def test_the_capture_on_the_page_raises_the_code(code: str) -> None:
    named = re.findall(r"^Capture: `(.+)`$", sections()[code], re.MULTILINE)
    assert len(named) == 1
    assert code in [found.code for found in raised(CAPTURES[named[0]])]


def test_nothing_is_raised_for_a_plain_stream() -> None:
    assert raised(CAPTURES["openai_chat/plain"]) == []


def test_a_finding_tells_the_event_and_its_first_byte() -> None:
    for capture in CHAT:
        if len(capture.expected) == 1:
            raw, found = capture.raw, raised(capture)
            assert all(0 <= one.offset <= len(raw) and one.detail for one in found), str(capture)
            assert all(one.at <= other.at for one, other in pairwise(found)), str(capture)


def test_a_hostile_stream_cannot_fill_the_memory_with_findings() -> None:
    event = b'id: 1\ndata: {"id":"r","choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
    decoder = Decoder("openai-chat", context=Context(ids=Ids()))
    decoder.feed(event * (LIMIT + 50))
    decoder.finish()
    codes = [found.code for found in decoder.findings]
    assert codes == ["frame-replayed"] * LIMIT + [SUPPRESSED]


def test_a_code_is_noted_once_for_one_subject() -> None:
    findings = Findings()
    for subject in ("a", "b", "a"):
        findings.once("delta-empty", subject, f"delta of {subject}")
    assert [found.detail for found in findings.found] == ["delta of a", "delta of b"]


def test_subjects_that_never_end_are_not_remembered_for_ever() -> None:
    findings = Findings()
    for number in range(3 * LIMIT):
        findings.once("delta-empty", str(number), "empty")
    assert len(findings.found) == LIMIT + 1
    assert findings.found[-1].code == SUPPRESSED


def test_a_finding_says_where_it_was_noticed() -> None:
    findings = Findings()
    findings.at, findings.offset = 3, 120
    findings.note("event-unknown", "'ping': ignored")
    assert msgspec.to_builtins(findings.found) == [
        {"code": "event-unknown", "at": 3, "offset": 120, "detail": "'ping': ignored"}
    ]


def test_a_finding_is_one_printable_line() -> None:
    found = Finding("event-unknown", 3, 120, "'a\nb': ignored")
    assert found.line("x.sse") == (
        "x.sse:event 3 (byte 120): finding event-unknown: 'a\\nb': ignored"
    )
