"""A trace of a capture: what it is made of, and the laws that tie it to everything else."""

from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.captures import HERE, lines
from tests.recordings import FIXTURES, QUIRKS
from tests.strategies import QUICK, cut_at
from weft.assembled import assembled
from weft.captures import convert, decode_all, in_order
from weft.context import Context
from weft.dialects import DialectName
from weft.dialects.openai_chat.quirks import ChatQuirks
from weft.errors import WeftError
from weft.parts import ToolParamsDelta
from weft.sse import write
from weft.trace import (
    CaptureTracer,
    EmitRow,
    EndRow,
    FindingRow,
    FrameRow,
    PartRow,
    TraceRow,
    parts_of,
    row_line,
    time_comment,
    trace,
)

TARGETS: tuple[DialectName, ...] = (
    "openai-chat",
    "openai-responses",
    "anthropic-messages",
    "gemini",
    "ai-sdk",
)
LARGEST = 200_000
"""Bytes of a capture; those above are only longer."""


@cache
def captures() -> list[tuple[Path, DialectName]]:
    """Every capture of the repository and every recording, with its dialect."""
    found: list[tuple[Path, DialectName]] = []
    for folder in (HERE, FIXTURES, QUIRKS):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix in (".sse", ".txt", ".json"):
                raw = path.read_bytes()
                try:
                    if len(raw) <= LARGEST:
                        found.append((path, weft.detect(raw)))
                except WeftError:
                    continue
    return found


def check_laws(raw: bytes, source: DialectName, target: DialectName, rows: list[TraceRow]) -> None:
    converted = convert(raw, source, target)
    emitted = [row for row in rows if isinstance(row, EmitRow)]
    assert b"".join(write(row.event or "", row.data.encode()) for row in emitted) == converted
    decoded = decode_all(raw, source)
    assert lines(parts_of(rows)) == b"".join(lines(one.parts) for one in decoded)
    found = {(row.code, row.detail) for row in rows if isinstance(row, FindingRow)}
    assert found == {(one.code, one.detail) for one in converted.findings}
    guarded = in_order(one for each in decoded for one in each.response.findings)
    assert {(one.code, one.detail) for one in guarded} <= found
    ends = [row.response for row in rows if isinstance(row, EndRow)]
    assert len(ends) == len(decoded)
    for end, one in zip(ends, decoded, strict=True):
        # The end has what the encoder found, too.
        said = msgspec.structs.replace(assembled(one.response), findings=())
        assert msgspec.structs.replace(end, findings=()) == said


def check_links(rows: list[TraceRow]) -> None:
    """Rows are numbered, and each refers to an earlier one; texts end where they end."""
    assert [row.row for row in rows] == list(range(1, len(rows) + 1))
    frames: set[int] = set()
    parts: set[int] = set()
    ends: dict[tuple[int, str, str], int] = {}
    for row in rows:
        match row:
            case FrameRow():
                assert row.n not in frames
                frames.add(row.n)
            case PartRow():
                assert row.frame is None or row.frame in frames
                assert row.n not in parts
                parts.add(row.n)
                if row.end is not None and row.item is not None:
                    kind = row.part.type.partition("-")[0].replace("tool", "call")
                    ends[row.stream, kind, row.item] = row.end
            case EmitRow() | FindingRow():
                assert row.part is None or row.part in parts
            case EndRow():
                for one in row.items:
                    assert ends[row.stream, one.kind, one.item] == len(one.text)


def check(
    path: Path, source: DialectName, target: DialectName, cuts: list[int] | None = None
) -> None:
    raw = path.read_bytes()
    tracer = CaptureTracer(source, target)
    pieces = [raw] if cuts is None else cut_at(raw, cuts)
    rows = [row for piece in pieces for row in tracer.feed(piece)] + tracer.finish()
    check_laws(raw, source, target, rows)
    check_links(rows)
    for row in rows:
        assert msgspec.json.decode(row_line(row))["row"] == row.row


@QUICK
@given(data=st.data())
def test_a_trace_is_what_convert_and_parts_and_the_guard_say(data: st.DataObject) -> None:
    path, source = data.draw(st.sampled_from(captures()))
    size = path.stat().st_size
    cuts = data.draw(st.lists(st.integers(0, size), max_size=6))
    check(path, source, data.draw(st.sampled_from(TARGETS)), cuts)


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_so_it_is_for_every_capture(target: DialectName) -> None:
    for path, source in captures():
        check(path, source, target)


CHUNK = (
    'data: {{"id":"r","model":"m","choices":[{{"index":0,"delta":{0},"finish_reason":{1}}}]}}\n\n'
)


def chunk(delta: str, finish: str = "null") -> bytes:
    return CHUNK.format(delta, finish).encode()


CALL = '{"tool_calls":[{"index":0,"id":"c","function":{"name":"look","arguments":"%s"}}]}'


def test_each_row_says_where_it_comes_from() -> None:
    raw = chunk('{"content":"Hi 🧵"}') + chunk("{}", '"stop"') + b"data: [DONE]\n\n"
    rows = trace(raw, "openai-chat", "openai-chat")
    shown = [msgspec.json.decode(row_line(row)) for row in rows]
    first, metadata, start, delta = shown[:4]
    assert (first["lane"], first["n"], first["t"], first["event"]) == ("frame", 0, None, None)
    assert metadata["part"]["type"] == "response-metadata"
    assert (start["item"], start["end"], start["frame"]) == ("text_0", 0, 0)
    assert (delta["item"], delta["end"], delta["part"]["delta"]) == ("text_0", 4, "Hi 🧵")
    said = [row for row in shown if row["lane"] == "emit" and "Hi" in row["data"]]
    assert [row["part"] for row in said] == [delta["n"]]
    assert shown[-1]["items"] == [{"item": "text_0", "kind": "text", "text": "Hi 🧵"}]
    assert shown[-1]["digest"]["stored"] is None


def test_a_finding_shows_the_parts_before_and_after_the_repair() -> None:
    # The id comes again in each chunk, as on some hosts: it is one call.
    raw = chunk(CALL % '{\\"a\\":') + chunk(CALL % "1}") + chunk("{}", '"tool_calls"')
    rows = trace(raw + b"data: [DONE]\n\n", "openai-chat", "anthropic-messages")
    found = [row for row in rows if isinstance(row, FindingRow)]
    assert [row.code for row in found][:1] == ["call-id-repeated"]
    assert found[0].frame == 1
    deltas = [row for row in rows if isinstance(row, PartRow) and row.n == found[0].part]
    assert [row.part for row in deltas] == [ToolParamsDelta("c", "1}")]


def test_what_a_stage_made_is_shown_with_what_it_was() -> None:
    raw = chunk('{"content":"<think>So</think>Hi"}') + chunk("{}", '"stop"') + b"data: [DONE]\n\n"
    rows = trace(raw, "openai-chat")
    staged = [row for row in rows if isinstance(row, PartRow) and row.before is not None]
    assert [part.type for row in staged for part in row.before or ()] == ["text-delta"]
    assert staged[0].part.type == "reasoning-start"


def test_what_the_end_of_the_input_adds_has_no_frame() -> None:
    rows = trace(chunk('{"content":"Hi"}'), "openai-chat")
    late = [row.part.type for row in rows if isinstance(row, PartRow) and row.frame is None]
    assert late == ["error", "text-end", "finish"]


def test_times_are_read_from_the_comments_between_events() -> None:
    raw = (
        time_comment(0.25)
        + chunk('{"content":"a"}')
        + chunk('{"content":"b"}')
        + time_comment(1.5)
        + chunk("{}", '"stop"')
    )
    for cuts in ([], [5], list(range(len(raw)))):
        tracer = CaptureTracer("openai-chat")
        rows = [row for piece in cut_at(raw, cuts) for row in tracer.feed(piece)]
        times = [row.t for row in rows + tracer.finish() if isinstance(row, FrameRow)]
        assert times == [0.25, 0.25, 1.5]


def test_quirks_decide_how_a_capture_is_read() -> None:
    raw = chunk('{"content":"So</think>Hi"}') + chunk("{}", '"stop"') + b"data: [DONE]\n\n"
    context = Context(quirks=ChatQuirks(implicit_think=True))
    thought = trace(raw, "openai-chat", context=context)
    assert "reasoning-delta" in [part.type for part in parts_of(thought)]
    assert "reasoning-delta" not in [part.type for part in parts_of(trace(raw, "openai-chat"))]


def test_verdicts_name_the_row_that_a_client_trips_over() -> None:
    rows = trace(chunk('{"content":"Hi"}'), "openai-chat", "openai-responses")
    last = rows[-1]
    assert isinstance(last, EndRow)
    upstream = [one for one in last.verdicts if one.on == "upstream"]
    assert {one.rule for one in upstream} >= {"lifecycle/truncated"}
    frames = {row.row for row in rows if isinstance(row, FrameRow)}
    assert all(one.row in frames for one in upstream)


def test_several_responses_and_choices_are_told_apart() -> None:
    two = '{"id":"r","model":"m","choices":[{"index":%d,"delta":{"content":"%s"}}]}'
    raw = b"".join(
        b"data: %b\n\n" % (two % (index, text)).encode() for index, text in ((0, "a"), (1, "b"))
    )
    rows = trace(raw + b"data: [DONE]\n\n" + chunk('{"content":"c"}'), "openai-chat")
    texts = {row.stream: row.response.text for row in rows if isinstance(row, EndRow)}
    assert texts == {0: "a", 1: "b", 2: "c"}
    assert [row.n for row in rows if isinstance(row, FrameRow)] == [0, 1, 2, 3]
    check_links(rows)


def test_an_empty_capture_has_an_end() -> None:
    rows = trace(b"", "openai-chat")
    last = rows[-1]
    assert isinstance(last, EndRow)
    assert last.response.error is not None
