"""Two streams, item by item."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import QUICK, cuts
from tests.test_trace import captures, chunk
from weft.trace import EmitRow, FindingRow, TraceRow, time_comment, trace
from weft.trace_diff import DiffRow, diff, event_diff, is_different

DONE = b"data: [DONE]\n\n"


def text(*deltas: str, finish: str = "stop") -> bytes:
    said = b"".join(chunk(json.dumps({"content": one})) for one in deltas if one)
    return said + chunk("{}", f'"{finish}"') + DONE


def call(name: str, arguments: str, index: int = 0) -> str:
    function = {"name": name, "arguments": arguments}
    return json.dumps({"tool_calls": [{"index": index, "id": f"c{index}", "function": function}]})


def compared(a: bytes, b: bytes) -> list[DiffRow]:
    return diff(trace(a, "openai-chat"), trace(b, "openai-chat"))


def changes(a: bytes, b: bytes) -> list[tuple[str, str, str | None, str | None]]:
    return [
        (row.op, row.kind, row.a.value if row.a else None, row.b.value if row.b else None)
        for row in compared(a, b)
        if row.op != "same"
    ]


@QUICK
@given(pieces=st.text(min_size=1, max_size=40).flatmap(cuts))
def test_how_a_text_is_cut_into_chunks_is_no_difference(pieces: list[str]) -> None:
    # A text of blanks alone, or one that looks like markup, may be read otherwise piece by piece.
    whole = "Warp " + "".join(pieces).replace("<", "")
    parts = ["Warp ", *(piece.replace("<", "") for piece in pieces)]
    assert not is_different(compared(text(whole), text(*parts)))


@QUICK
@given(data=st.data())
def test_a_stream_does_not_differ_from_itself(data: st.DataObject) -> None:
    path, source = data.draw(st.sampled_from(captures()))
    rows = trace(path.read_bytes(), source)
    assert not is_different(diff(rows, rows))


def test_a_changed_text_and_a_changed_end() -> None:
    assert changes(text("Warp"), text("Weft", finish="length")) == [
        ("changed", "text", "Warp", "Weft"),
        ("changed", "finish", "stop", "length"),
    ]


def test_calls_are_aligned_by_their_names() -> None:
    one = chunk(call("dye", "{}"))
    two = chunk(call("wind", '{"n":1}')) + chunk(call("dye", "{}", 1))
    end = chunk("{}", '"tool_calls"') + DONE
    rows = [(row.op, row.kind, (row.a or row.b).name) for row in compared(one + end, two + end)]  # type: ignore[union-attr]
    assert ("added", "call", "wind") in rows
    assert ("same", "call", "dye") in rows


def test_what_is_missing_and_what_was_found() -> None:
    cut = chunk(json.dumps({"content": "Warp"}))
    found = changes(text("Warp"), cut)
    assert ("changed", "finish", "stop", "error") in found
    assert [one[:2] for one in found if one[1] == "error"] == [("added", "error")]


def test_times_are_those_of_the_first_and_the_last_frame() -> None:
    raw = (
        time_comment(0.5) + chunk('{"content":"a"}') + time_comment(2.0) + chunk('{"content":"b"}')
    )
    rows = compared(raw, raw)
    found = next(row for row in rows if row.kind == "text")
    assert found.a is not None
    assert (found.a.start, found.a.end, found.a.value) == (0.5, 2.0, "ab")


# Event by event


def events(*said: tuple[str, str]) -> list[TraceRow]:
    return [
        EmitRow(row=at, n=at, part=None, event=name, data=data)
        for at, (name, data) in enumerate(said)
    ]


EVENTS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("123")), max_size=8)


@given(one=EVENTS, other=EVENTS)
def test_events_that_differ_turn_one_stream_into_the_other(
    one: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    rows = event_diff(events(*one), events(*other))
    assert bool(rows) == (one != other)
    old = {row.a.row for row in rows if row.a is not None}
    new = {row.b.row for row in rows if row.b is not None}
    kept = [said for at, said in enumerate(one) if at not in old]
    assert kept == [said for at, said in enumerate(other) if at not in new]


def test_an_event_that_was_inserted_is_the_only_difference() -> None:
    before = [("a", "1"), ("b", "2"), ("a", "3")]
    [row] = event_diff(events(*before), events(before[0], ("c", "new"), *before[1:]))
    assert (row.op, row.a, row.b and row.b.name) == ("added", None, "c")


def test_very_many_events_are_compared_by_their_places() -> None:
    many = [("a", str(at)) for at in range(3000)]
    other = [(name, f"{data}!") for name, data in many]
    assert [row.op for row in event_diff(events(*many), events(*other))] == ["changed"] * 3000


def found(*codes: str) -> list[TraceRow]:
    return [FindingRow(row=at, frame=None, part=None, code=code, before=None, after=None, detail="")
            for at, code in enumerate(codes)]  # fmt: skip


def test_items_are_aligned_by_what_they_are_and_very_many_by_their_places() -> None:
    """What they are is compared with the square of their number."""
    few, many = ["a", "b"] * 10, ["a", "b"] * 1000
    ops = [row.op for row in diff(found("c", *few, "d"), found(*few, "c", "d"))]
    assert ops == ["missing", *["same"] * 20, "added", "same"]
    ops = [row.op for row in diff(found("c", *many, "d"), found(*many, "c", "d"))]
    assert ops == [*["changed"] * 2001, "same"]


KEYS = st.lists(st.sampled_from("abc"), max_size=12)


@given(one=KEYS, other=KEYS)
def test_an_item_is_in_one_row_of_a_comparison(one: list[str], other: list[str]) -> None:
    rows = diff(found(*one), found(*other))
    assert [row.a.name for row in rows if row.a is not None] == one
    assert [row.b.name for row in rows if row.b is not None] == other
    assert is_different(rows) == (one != other)
