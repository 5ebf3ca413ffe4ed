"""The checker: what it finds, where, how it is written down, and how the command ends."""

import json
import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests import chat, weft_command
from tests.captures import CHAT, HERE, Capture
from tests.daily import in_turn
from tests.strategies import FEW, QUICK
from tests.tables import each_row
from tests.weft_command import WEFT
from weft.check import lifecycle
from weft.check.checker import VIOLATIONS, Checker, examine, is_body, parse_leniently
from weft.check.report import (
    Checked,
    as_json,
    explanation,
    finding_line,
    list_rules,
    summary,
    verdict_lines,
)
from weft.check.rules import all_rules, rules_named, rules_of
from weft.check.sarif import as_sarif
from weft.check.sse_lines import LineCounter, Position
from weft.context import Context
from weft.dialects import DIALECTS, DialectName
from weft.dialects.rules import Severity
from weft.errors import ClientError, UnknownDialect, Unreadable
from weft.findings import LIMIT, Code, Finding
from weft.parts import ErrorKind
from weft.sse import FrameReader

DOCS = HERE.parents[1] / "docs"
CODES: tuple[Code, ...] = get_args(Code)
RULES = all_rules()
FIRST = chat.chunk({"role": "assistant", "content": "Hel"})
PLAIN = chat.stream([FIRST, chat.chunk({"content": "lo"})])
CUT = chat.stream([FIRST, chat.chunk({"content": "\ud83d"}), chat.chunk({"content": "lo"})])
"""Breaks one rule: a character is cut in two, and its other half never comes."""
FOUND = Finding(
    "lifecycle/surrogate-lone", 1, len(FIRST), "a character was split between two deltas"
)
WHERE = f"(event 1, byte {len(FIRST)})"


def codes(raw: bytes, dialect: DialectName | None = None) -> list[str]:
    return [found.code for found in weft.check(raw, dialect)]


def broken(raw: bytes, dialect: str = "openai-chat") -> set[str]:
    return examine(raw, dialect).broken


def serious(found: list[Finding]) -> list[Finding]:
    return [one for one in found if RULES[one.code].severity in VIOLATIONS]


# The rules of all streams


@each_row("code", CODES)
def test_every_code_of_a_finding_is_a_rule_or_listed_as_none(code: Code) -> None:
    assert (f"lifecycle/{code}" in RULES) != (code in lifecycle.NOT_RULES)


def test_every_rule_of_the_lifecycle_is_a_code_or_a_way_to_fail() -> None:
    known = {*CODES, *lifecycle.FAILURES.values()}
    assert set(rules_of("lifecycle")) == known - set(lifecycle.NOT_RULES)


@pytest.mark.parametrize("kind", get_args(ErrorKind))
def test_every_kind_of_error_breaks_a_rule(kind: ErrorKind) -> None:
    assert f"lifecycle/{lifecycle.FAILURES[kind]}" in RULES


def captured(code: str) -> Capture | None:
    """The capture that `docs/findings.md` names for a code, if it is a recorded stream."""
    page = (DOCS / "findings.md").read_text()
    match = re.search(
        rf"^### `{code}`$.*?^Capture: `openai_chat/(.+?)`$", page, re.MULTILINE | re.DOTALL
    )
    named = match[1] if match and match[0].count("###") == 1 else ""
    return next((capture for capture in CHAT if str(capture) == named), None)


SHOWN = [code for code in CODES if captured(code) and code not in lifecycle.NOT_RULES]


@each_row("code", SHOWN)
def test_the_capture_of_a_code_breaks_its_rule(code: str) -> None:
    capture = captured(code)
    assert capture is not None
    context = Context(quirks=capture.reading.quirks, request=capture.reading.request)
    assert f"lifecycle/{code}" in examine(capture.raw, "openai-chat", context=context).broken


def test_most_codes_are_shown_by_a_recorded_stream() -> None:
    assert len(SHOWN) > 35


def written(example: str) -> bytes:
    """The bytes that an example of a rule stands for."""
    data = re.sub(
        rb"\\x([0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()), example.encode()
    )
    return data.replace(b"\\r", b"\r").replace(b"\\n", b"\n")


EXAMPLES = [
    f"{wire}/{name}"
    for wire in ("lifecycle", "sse")
    for name, rule in rules_of(wire).items()
    if rule.example.startswith(("data:", "id:", "event:", "error:", ":", "\\x"))
    and name != "markup-call"  # only by quirks
]


@each_row("id", EXAMPLES)
def test_the_example_of_a_rule_breaks_it(id: str) -> None:
    assert id in broken(written(RULES[id].example))


def test_the_examples_that_are_no_stream_are_parts_or_words() -> None:
    for name, rule in rules_of("lifecycle").items():
        if f"lifecycle/{name}" not in EXAMPLES and name not in (
            "markup-call",
            "findings-suppressed",
        ):
            assert [json.loads(line)["type"] for line in rule.example.splitlines()]


# What is found


@pytest.mark.parametrize("dialect", [None, "openai-chat"])
def test_a_plain_stream_breaks_nothing(dialect: DialectName | None) -> None:
    assert weft.check(PLAIN, dialect) == []


def test_a_finding_has_the_rule_the_event_and_its_first_byte() -> None:
    assert weft.check(CUT) == [FOUND]


def test_findings_come_in_the_order_of_the_stream() -> None:
    found = weft.check(CUT.replace(b"data: [DONE]", b"data: : keep-alive\n\nid: 7") + CUT)
    assert [one.at for one in found] == sorted(one.at for one in found)
    assert len({one.code for one in found}) >= 3


def test_what_breaks_a_rule_of_the_wire_and_one_of_all_streams_is_reported_once() -> None:
    again = chat.calls(chat.entry(0, "c1", None, "}"))
    raw = chat.stream(
        [
            chat.chunk({"role": "assistant", "tool_calls": [chat.entry(0, "c1", "look", "{")]}),
            again,
        ],
        "tool_calls",
    )
    report = examine(raw)
    assert [one.code for one in report.findings] == ["openai-chat/call-id-repeated"]
    assert [one.code for one in report.implied] == ["lifecycle/call-id-repeated"]
    assert {one.offset for one in (*report.findings, *report.implied)} == {raw.index(again)}


def test_every_response_of_a_capture_is_checked() -> None:
    report = examine(CUT + PLAIN + CUT)
    assert (report.dialect, report.responses, report.events) == ("openai-chat", 3, 14)
    assert [one.code for one in report.findings] == [FOUND.code] * 2
    assert [one.at for one in report.findings] == [1, 10]


def test_a_response_that_another_one_cuts_off_is_truncated() -> None:
    cut = weft.convert(PLAIN, "openai-chat", "openai-responses")
    begun = cut[: cut.index(b"event: response.output_text.done")]
    report = examine(begun + cut)
    assert report.responses == 2
    last = begun.rindex(b"data: ")
    assert ("lifecycle/truncated", last) in [(one.code, one.offset) for one in report.implied]
    rule = "openai-responses/terminal-missing"
    assert (rule, last) in [(one.code, one.offset) for one in report.findings]


def test_every_choice_is_checked_and_what_concerns_all_is_reported_once() -> None:
    def chunk(choice: int, delta: dict[str, object], reason: str | None = None) -> bytes:
        entry = {"index": choice, "delta": delta, "finish_reason": reason}
        return chat.chunk({}, choices=[entry])

    raw = b"".join(
        (
            *(chunk(0, {"role": "assistant", "content": text}) for text in ("Hi", " there")),
            *(chunk(1, {"role": "assistant", "content": text}) for text in ("Hi", "\ud83d")),
            chunk(0, {}, "stop"),
            chunk(1, {}, "stop"),
            b"data: [DONE]",
        )
    )
    found = [code for code in codes(raw) if code.startswith("lifecycle/")]
    assert found == ["lifecycle/surrogate-lone", "lifecycle/frame-unterminated"]


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (FIRST, "truncated"),
        (FIRST[:-9] + b"\n\n" + PLAIN, "malformed"),
        (b": nothing\n\n", "empty"),
        (b'data: {"error":{"message":"overloaded"}}\n\n', "error-reported"),
    ],
)
def test_a_stream_that_fails_breaks_the_rule_of_its_failure(raw: bytes, rule: str) -> None:
    assert f"lifecycle/{rule}" in broken(raw)


def test_an_error_is_reported_at_its_event_in_its_words() -> None:
    event = b'data: {"error":{"message":"overloaded"}}\n\n'
    report = examine(FIRST + event + b"data: [DONE]\n\n")
    assert report.implied == (Finding("lifecycle/error-reported", 1, len(FIRST), "overloaded"),)
    assert serious(list(report.findings)) == []


def test_a_body_is_checked_without_the_rules_of_streams() -> None:
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m-1",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "c1",
                            "type": "function",
                            "function": {"name": "f", "arguments": "{"},
                        }
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ],
    }
    assert codes(json.dumps(body, indent=1).encode()) == ["lifecycle/arguments-invalid"]


def test_a_body_breaks_no_rule_of_streams() -> None:
    body = (HERE / "anthropic_messages/body.sse").read_bytes()
    assert weft.check(body) == []
    event = b"data: " + json.dumps(json.loads(body)).encode() + b"\n\n"
    assert "anthropic-messages/message-start-first" in codes(event)


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (b'{"a":1}', True),
        (b' \n[{"a":1}]', False),
        (b"\xef\xbb\xbf{}", True),
        (b"data: {}", False),
    ],
)
def test_one_json_value_alone_is_a_body(raw: bytes, body: bool) -> None:
    reader = FrameReader()
    (frame,) = reader.feed(raw) + reader.finish()
    assert is_body(frame) is body


@pytest.mark.parametrize("size", [1, 7, 100])
@pytest.mark.parametrize("name", ["cut", "crlf", "lines", "several", "json-lines", "heads"])
def test_a_capture_is_checked_alike_in_any_pieces(name: str, size: int) -> None:
    raw = {
        "cut": CUT,
        "crlf": CUT.replace(b"\n", b"\r\n"),
        "lines": b"\xef\xbb\xbf" + PLAIN.replace(b"\n\n", b"\r\n\ndata:\n\nid: 1\n\n: x\n\n", 2),
        "several": CUT + PLAIN + CUT[:-5],
        "json-lines": CUT.replace(b"data: ", b"").replace(b"\n\n", b"\n"),
        "heads": HEAD + CUT + HEAD + PLAIN,
    }[name]
    checker = Checker("openai-chat")
    for start in range(0, len(raw), size):
        checker.feed(raw[start : start + size])
    assert checker.finish() == examine(raw, "openai-chat")


def test_the_findings_of_a_response_are_known_when_the_next_one_begins() -> None:
    checker = Checker("openai-chat")
    assert checker.feed(CUT) == []
    assert checker.feed(FIRST) == [FOUND]
    assert checker.position(FOUND) == Position(3, 1)


def test_what_is_forgotten_is_counted_all_the_same() -> None:
    """The memory of a pipe without an end is that of one response, however broken they are."""
    raw = CUT * 20 + PLAIN + CUT[:-5]
    checker, returned = Checker("openai-chat"), 0
    for start in range(0, len(raw), 50):
        returned += len(checker.feed(raw[start : start + 50]))
        checker.forget()
    forgetful, whole = checker.finish(), examine(raw, "openai-chat")
    assert returned == sum(forgetful.earlier.values()) == 20
    assert len(whole.findings) == returned + len(forgetful.findings)
    one, other = Checked("a", forgetful), Checked("a", whole)
    assert (one.counts, one.verdicts) == (other.counts, other.verdicts)
    assert summary([one]) == summary([other])


TEXTS = st.text("\nn\ré€😀\ufeff", max_size=12)


@QUICK
@given(TEXTS, st.lists(st.integers(0, 40)), st.integers(1, 5))
def test_lines_and_columns_are_those_of_the_text(text: str, at: list[int], size: int) -> None:
    raw = text.encode()
    counter = LineCounter()
    for start in range(0, len(raw), size):
        counter.feed(raw[start : start + size])
    for count in sorted(place for place in at if place <= len(text)):
        before = text[:count].removeprefix("\ufeff")
        expected = Position(before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1)
        assert counter.position(len(text[:count].encode())) == expected


def test_columns_count_characters() -> None:
    # CR ends a line of the stream, but none of an editor.
    raw = CUT.replace(b"Hel", "Hé€😀".encode()).replace(b"\n", b"\r")
    (found,) = [one for one in examine(raw).findings if one.code == FOUND.code]
    assert (found.offset, examine(raw).position(found)) == (
        len(FIRST) + 7,
        Position(1, len(FIRST) + 2),
    )


HEAD = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


def test_http_heads_break_no_rule_and_count_as_lines_and_bytes() -> None:
    assert weft.check(HEAD + PLAIN) == []
    report = examine(HEAD + PLAIN + HEAD + CUT)
    (found,) = report.findings
    offset = 2 * len(HEAD) + len(PLAIN) + len(FIRST)
    assert (found.code, found.at, found.offset) == (FOUND.code, 5, offset)
    assert report.position(found) == Position((HEAD + PLAIN + HEAD + FIRST).count(b"\n") + 1, 1)


def test_json_lines_are_a_stream_whose_lines_are_no_server_sent_events() -> None:
    lines = b"".join(
        line.removeprefix(b"data: ") + b"\n"
        for line in PLAIN.splitlines()
        if line and b"[DONE]" not in line
    )
    found = weft.check(lines.replace(b"\n", b"\r\n"))
    assert [one for one in found if one.code.startswith(("sse/", "lifecycle/"))] == []


def test_what_concerns_a_whole_response_is_reported_once_for_all_its_choices() -> None:
    choices = [{"index": 0, "delta": {"content": "Hi"}}, {"index": 1, "delta": {"content": "Ho"}}]
    raw = b"data: " + json.dumps({"choices": choices}).encode() + b"\n\n"
    assert codes(raw, "openai-chat").count("lifecycle/metadata-id-minted") == 1


def test_a_line_between_events_is_reported_with_the_event_before_it() -> None:
    raw = PLAIN.replace(b"\n\n", b"\n\ndata:\n\n", 2)
    assert weft.check(raw) == [
        Finding("sse/data-empty", 0, len(FIRST) + 6, "an event whose data is empty (2 times)")
    ]


def test_a_bare_json_line_is_lost_between_events_and_a_body_behind_comments() -> None:
    assert codes(FIRST + b'{"choices":[]}\n\n', "openai-chat").count("sse/field-unknown") == 1
    body = b': waiting\n\n{"id":"r","object":"chat.completion","choices":[]}\n'
    assert "sse/field-unknown" not in codes(body, "openai-chat")


def test_the_quirks_of_an_upstream_can_be_given() -> None:
    capture = next(one for one in CHAT if str(one) == "markup-calls-json")
    context = Context(quirks=capture.reading.quirks)
    assert "lifecycle/markup-call" not in codes(capture.raw)
    found = weft.check(capture.raw, context=context)
    assert "lifecycle/markup-call" in [one.code for one in found]


def test_a_hostile_stream_cannot_fill_the_memory_with_findings() -> None:
    event = b'id: 1\ndata: {"id":"r","choices":[{"delta":{"content":"x"}}]}\n\n'
    found = weft.check(event * (LIMIT + 50))
    assert len([one for one in found if one.code == "lifecycle/frame-replayed"]) <= LIMIT
    assert "lifecycle/findings-suppressed" in [one.code for one in found]


@pytest.mark.parametrize("raw", [b"", b"hello\n", b"{"])
def test_bytes_of_no_known_dialect_are_unreadable(raw: bytes) -> None:
    with pytest.raises(Unreadable):
        weft.check(raw)


def test_a_dialect_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownDialect, match="klingon"):
        weft.check(PLAIN, cast(DialectName, "klingon"))


def test_a_dialect_may_be_called_by_its_other_name() -> None:
    raw = weft.convert(PLAIN, "openai-chat", "openai-responses")
    assert weft.check(raw, "open-responses") == weft.check(raw)
    assert examine(raw, "open-responses").dialect == "openai-responses"


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"a":[1,null]}', {"a": [1, None]}),
        (b'{"a":"\\ud83d"}', {"a": "\ud83d"}),
        (b'{"a":"\n"}', {"a": "\n"}),
        (b'{"a":"\xe9"}', {"a": "\ufffd"}),
        (b"[DONE]", None),
        (b"[" * 100_000, None),
        (b"", None),
    ],
)
def test_a_frame_is_read_untyped_as_leniently_as_it_can_be(data: bytes, value: object) -> None:
    assert parse_leniently(data) == value


# Against everything


@pytest.mark.parametrize("dialect", DIALECTS)
@given(data=st.binary(max_size=400), form=st.sampled_from([b"%s", b"data: %s\n\n", b"{%s}"]))
@QUICK
def test_any_bytes_are_checked_or_unreadable(dialect: str, data: bytes, form: bytes) -> None:
    try:
        report = examine(form % data, dialect)
    except Unreadable:
        return
    assert all(one.code in RULES and one.detail for one in report.findings)


def broken_streams() -> list[Path]:
    return sorted(path for path in HERE.glob("*/*.sse"))


@pytest.mark.parametrize("dialect", DIALECTS)
@given(path=st.sampled_from(broken_streams()), data=st.data())
@FEW
def test_any_piece_of_any_capture_is_checked_in_any_dialect(
    dialect: str, path: Path, data: st.DataObject
) -> None:
    raw = path.read_bytes()
    start = data.draw(st.integers(0, len(raw)))
    report = examine(raw[start:] + raw[:start], dialect)
    assert all(one.code in RULES for one in report.findings)
    assert [one.at for one in report.findings] == sorted(one.at for one in report.findings)


GOOD = sorted((HERE / "check").glob("*/*.good.*"))
WRITTEN = [dialect.name for dialect in DIALECTS.values() if dialect.encoder]


UNKNOWN = {
    "anthropic-messages/signature-missing": "reasoning that nobody signed, and none is forged",
    "openai-responses/incomplete-without-reason": "a pause, for which the wire has no word",
}
"""What another wire does not say cannot be written."""

CARRIED = {
    "ai-sdk/output-open": "a last result that never came",
    "anthropic-messages/tool-id-spelling": "an id that the upstream itself spelled so",
    "anthropic-messages/stop-sequence": "a stop sequence that nobody named",
    "anthropic-messages/usage-missing": "a count below zero",
    "anthropic-messages/usage-shrinks": "a count that shrinks",
    "anthropic-messages/use-without-result": "a result that never came",
    "gemini/key-spelling": "a part of an unknown kind, kept as it is",
    "gemini/signature-spelling": "a signature, kept byte for byte",
    "lifecycle/arguments-empty": "arguments that could not be read, of which nothing is left",
    "lifecycle/arguments-invalid": "arguments that are no JSON are handed over as they came",
    "lifecycle/whole-contradicts": "arguments that are a JSON string",
    "openai-chat/call-arguments-invalid": "arguments that are no JSON",
    "openai-chat/stop-with-calls": "calls that must not be dispatched do not change the reason",
    "openai-responses/call-arguments-invalid": "arguments that are no JSON",
    "openai-responses/incomplete-item": "an item that says itself that it is incomplete",
    "openai-responses/incomplete-not-last": "an item that says itself that it is incomplete",
    "openai-responses/usage-invalid": "a count below zero",
}
"""What is wrong with an answer itself stays wrong in every dialect: it is not for a converter to
make it up. Nothing else that Weft writes of a broken stream breaks a rule."""


@pytest.mark.parametrize("path", GOOD, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_weft_writes_of_a_good_stream_is_good(path: Path) -> None:
    raw = path.read_bytes()
    source = weft.detect(raw)
    for target in WRITTEN:
        written = weft.convert(raw, source, target)
        found = [one.code for one in serious(weft.check(written, target))]
        assert set(found) <= set(UNKNOWN), target


FOLDERS = sorted({path.parent for path in HERE.rglob("*.sse")})


@pytest.mark.parametrize(
    ("folder", "target"),
    in_turn(2, FOLDERS, WRITTEN, lambda path: str(path.relative_to(HERE))),
)
def test_what_weft_writes_of_any_capture_is_good_save_for_what_the_answer_says(
    folder: Path, target: DialectName
) -> None:
    broken: dict[str, list[Finding]] = {}
    for path in sorted(folder.glob("*.sse")):
        raw = path.read_bytes()
        with suppress(Unreadable):
            found = serious(weft.check(weft.convert(raw, weft.detect(raw), target), target))
            broken[path.name] = [one for one in found if one.code not in {**UNKNOWN, **CARRIED}]
    assert {name: found for name, found in broken.items() if found} == {}


# How it is written down


def plain(word: str, severity: Severity) -> str:
    return word


def checked() -> list[Checked]:
    return [
        Checked("a b.sse", examine(CUT)),
        Checked("gone.sse", error="gone.sse: byte 0, event 0: No such file or directory"),
        Checked("-", examine(PLAIN)),
    ]


def test_text_has_a_line_for_each_finding_and_verdict_and_a_summary() -> None:
    cut, gone, good = checked()
    (found,) = cut.findings
    line = finding_line(cut.path, found, cut.position(found), plain)
    assert line == f"a b.sse:3:1: warning {FOUND.code}: {FOUND.detail} {WHERE}"
    assert verdict_lines(cut)
    assert all(line.startswith("a b.sse: ") for line in verdict_lines(cut))
    assert (gone.findings, good.findings) == ((), ())
    assert verdict_lines(gone) == verdict_lines(good) == []
    assert summary([cut, gone, good]) == (
        "2 captures checked: 0 errors, 1 warning, 0 notes; 1 capture unreadable"
    )


def test_json_has_the_same_keys_for_every_capture() -> None:
    report = json.loads(as_json(checked()))
    verdicts = [one.pop("verdicts") for one in report["captures"]]
    assert report == {
        "captures": [
            {
                "file": "a b.sse",
                "error": None,
                "dialect": "openai-chat",
                "responses": 1,
                "events": 5,
                "findings": [
                    {
                        "code": FOUND.code,
                        "severity": "warning",
                        "at": 1,
                        "offset": len(FIRST),
                        "line": 3,
                        "column": 1,
                        "detail": FOUND.detail,
                    }
                ],
            },
            {
                "file": "gone.sse",
                "error": "gone.sse: byte 0, event 0: No such file or directory",
                "dialect": None,
                "responses": 0,
                "events": 0,
                "findings": [],
            },
            {
                "file": "-",
                "error": None,
                "dialect": "openai-chat",
                "responses": 1,
                "events": 4,
                "findings": [],
            },
        ],
        "errors": 0,
        "warnings": 1,
        "notes": 0,
    }
    keys = ["client", "version", "date", "rule", "effect", "says", "evidence", "source"]
    assert [list(row) for row in verdicts[0]] == [keys] * len(verdicts[0])
    assert verdicts[1:] == [[], []]


def test_sarif_is_one_run_with_its_rules_results_and_what_could_not_be_read() -> None:
    log = json.loads(as_sarif(checked(), "1.2.3"))
    rule = log["runs"][0]["tool"]["driver"]["rules"][0]
    assert rule.pop("help") == {"text": explanation(FOUND.code)}
    assert log == {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "weft",
                        "semanticVersion": "1.2.3",
                        "rules": [
                            {
                                "id": FOUND.code,
                                "shortDescription": {"text": RULES[FOUND.code].promise},
                                "fullDescription": rule["fullDescription"],
                                "defaultConfiguration": {"level": "warning"},
                            }
                        ],
                    }
                },
                "invocations": [
                    {
                        "executionSuccessful": False,
                        "toolExecutionNotifications": [
                            {
                                "level": "error",
                                "message": {
                                    "text": "gone.sse: byte 0, event 0: No such file or directory"
                                },
                            }
                        ],
                    }
                ],
                "results": [
                    {
                        "ruleId": FOUND.code,
                        "ruleIndex": 0,
                        "level": "warning",
                        "message": {"text": FOUND.detail},
                        "locations": [
                            {
                                "physicalLocation": {
                                    "artifactLocation": {"uri": "a%20b.sse"},
                                    "region": {
                                        "startLine": 3,
                                        "startColumn": 1,
                                        "byteOffset": len(FIRST),
                                    },
                                }
                            }
                        ],
                        "properties": {"event": 1},
                    }
                ],
                "columnKind": "unicodeCodePoints",
            }
        ],
    }


@pytest.mark.parametrize(
    ("path", "uri"),
    [("-", "stdin"), ("x/é.sse", "x/%C3%A9.sse"), ("/tmp/a b", "file:///tmp/a%20b")],
)
def test_sarif_names_a_capture_by_a_uri(path: str, uri: str) -> None:
    log: Any = json.loads(as_sarif([Checked(path, examine(CUT))], "1"))
    (place,) = log["runs"][0]["results"][0]["locations"]
    assert place["physicalLocation"]["artifactLocation"] == {"uri": uri}


def test_sarif_results_point_to_their_rules_and_lines() -> None:
    raw = PLAIN + CUT.replace(b"data: [DONE]\n\n", b"") + b"data:\n\ndata: [DONE]"
    log: Any = json.loads(as_sarif([Checked("x", examine(raw))], "1"))
    (run,) = log["runs"]
    ids = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert len(run["results"]) == 3
    for result in run["results"]:
        region = result["locations"][0]["physicalLocation"]["region"]
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert region["startLine"] == raw.count(b"\n", 0, region["byteOffset"]) + 1


@each_row("id", RULES)
def test_every_rule_can_be_explained(id: str) -> None:
    rule, explained = RULES[id], explanation(id)
    for fact in (id, rule.severity, rule.promise, rule.why, rule.example.split("\n")[0]):
        assert fact in explained


def test_rules_are_found_by_their_id_their_bare_name_and_the_other_name_of_a_dialect() -> None:
    assert rules_named("lifecycle/think-tags") == ["lifecycle/think-tags"]
    assert rules_named("think-tags") == ["lifecycle/think-tags"]
    for name in rules_of("openai-responses"):
        id = f"openai-responses/{name}"
        assert rules_named(f"open-responses/{name}") == [id]
        assert id in rules_named(name)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("lifecycle/think-tag", "lifecycle/think-tags"),
        ("cal-nameless", "lifecycle/call-nameless"),
        ("sse/data-coment", "sse/data-comment"),
    ],
)
def test_a_rule_that_does_not_exist_is_reported_with_similar_ones(name: str, near: str) -> None:
    with pytest.raises(ClientError, match=f"{name}.*did you mean .*{near}"):
        rules_named(name)
    with pytest.raises(ClientError, match="--rules"):
        rules_named("xyzzy")


def test_the_list_of_rules_has_a_line_for_each() -> None:
    assert [line.split()[0] for line in list_rules().splitlines()] == list(RULES)


# The command


def run(*arguments: str | Path, given: bytes = b"") -> tuple[int, str, str]:
    done = weft_command.run("check", *arguments, given=given)
    return done.code, done.out, done.err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plain.sse").write_bytes(PLAIN)
    (tmp_path / "cut.sse").write_bytes(CUT)
    (tmp_path / "note.sse").write_bytes(PLAIN.replace(b"\n", b"\r\n"))
    (tmp_path / "prose.txt").write_bytes(b"hello\n")
    return tmp_path


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["plain.sse"], 0),
        (["note.sse"], 0),
        (["cut.sse"], 1),
        (["plain.sse", "cut.sse"], 1),
        (["prose.txt"], 2),
        (["gone.sse", "cut.sse"], 2),
    ],
)
@pytest.mark.parametrize("form", ["text", "json", "sarif"])
def test_the_exit_code_is_that_of_the_worst_capture(
    folder: Path, names: list[str], code: int, form: str
) -> None:
    done = run("--format", form, *(folder / name for name in names))
    assert done[0] == code
    assert (done[2] == "") is (code != 2)


def test_the_captures_beside_an_unreadable_one_are_still_checked(folder: Path) -> None:
    code, out, err = run(folder / "prose.txt", folder / "cut.sse", folder / "gone.sse")
    assert code == 2
    assert FOUND.code in out
    assert out.endswith("1 capture checked: 0 errors, 1 warning, 0 notes; 2 captures unreadable\n")
    assert [line.split(":")[1].strip() for line in err.splitlines()] == [
        str(folder / "prose.txt"),
        str(folder / "gone.sse"),
    ]


@pytest.mark.parametrize("dialect", [(), ("--dialect", "openai-chat"), ("--from", "openai-chat")])
def test_a_capture_may_come_through_a_pipe(dialect: tuple[str, ...]) -> None:
    code, out, err = run("-", *dialect, given=CUT)
    assert (code, err) == (1, "")
    assert out.startswith(f"-:3:1: warning {FOUND.code}: {FOUND.detail} {WHERE}\n")


def test_there_is_no_colour_in_a_pipe_and_some_on_a_terminal(folder: Path) -> None:
    assert "\x1b" not in run(folder / "cut.sse")[1]
    screen, behind = os.openpty()
    try:
        subprocess.run([WEFT, "check", folder / "cut.sse"], stdout=behind, check=False)
        shown = os.read(screen, 10_000).decode()
    finally:
        os.close(screen)
        os.close(behind)
    assert f"\x1b[33mwarning\x1b[0m {FOUND.code}" in shown


def test_a_rule_is_explained_and_nothing_is_checked() -> None:
    code, out, err = run("--explain", "lifecycle/call-id-repeated", "gone.sse")
    assert (code, out, err) == (0, explanation("lifecycle/call-id-repeated"), "")
    assert out in run("--explain", "call-id-repeated")[1]


def test_an_unknown_rule_is_a_mistake() -> None:
    code, out, err = run("--explain", "lifecycle/call-id-repeat")
    assert (code, out) == (2, "")
    assert "did you mean lifecycle/call-id-repeated" in err


def test_all_rules_can_be_listed() -> None:
    assert run("--rules") == (0, list_rules(), "")


def test_a_check_of_nothing_is_a_mistake() -> None:
    code, out, err = run()
    assert (code, out) == (2, "")
    assert "CAPTURE" in err
