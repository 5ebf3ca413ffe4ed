"""Frames: where the bytes are cut changes nothing, and each quirk of framing has its test."""

import json
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import OBJECTS, QUICK, THOROUGH, cuts, spelled
from weft.errors import TooLarge
from weft.partial_json import parse
from weft.sse import MAX_EVENT, Frame, FrameReader, comment, frame, write, write_events
from weft.sse import Event as OutgoingEvent

BOM = b"\xef\xbb\xbf"
LINE_ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
FIELDS = [
    b"data:", b"data: ", b"event: x", b"event:", b"id: 7", b"retry: 3", b"error: no", b"error:",
    b":", b": ping", b"data", b"x", b" ", b"[DONE]", b"\xff", b"\xc3", b"\xa9",
]  # fmt: skip
JSONS = [b"{", b"}", b'{"a":1}', b'{"a":[', b'"b"', b"[", b"]", b",", BOM]
ENDS = [b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r"]

EVENT_SOUP = st.lists(st.sampled_from([*FIELDS, *ENDS]), max_size=14).map(b"".join)
"""Fields and line ends of all kinds."""

JSON_SOUP = st.lists(st.sampled_from([*JSONS, *FIELDS, b"\n", b"\n\n"]), max_size=14).map(b"".join)
"""The same with JSON lines and bodies among them."""

Outcome = list[Frame | tuple[str, int, int]]


def outcome(pieces: Sequence[bytes], *, limit: int = MAX_EVENT) -> Outcome:
    """All frames of the pieces, and then what it failed with, if it did."""
    reader = FrameReader(limit=limit)
    found: Outcome = []
    for step in [*(lambda piece=piece: reader.feed(piece) for piece in pieces), reader.finish]:
        try:
            found += step()
        except TooLarge as failure:
            found.append((str(failure), failure.offset, failure.event))
    assert reader.finish() == []
    return found


def frames(*pieces: bytes) -> list[Frame]:
    reader = FrameReader()
    fed = [frame for piece in pieces for frame in reader.feed(piece)]
    return fed + reader.finish()


def payloads(raw: bytes) -> list[bytes]:
    return [frame.data for frame in frames(raw)]


# Cuts


@THOROUGH
@given(data=st.data(), raw=EVENT_SOUP)
def test_where_any_event_bytes_are_cut_changes_nothing(data: st.DataObject, raw: bytes) -> None:
    assert frames(*data.draw(cuts(raw))) == frames(raw)


@THOROUGH
@given(data=st.data(), raw=JSON_SOUP)
def test_where_any_json_bytes_are_cut_changes_nothing(data: st.DataObject, raw: bytes) -> None:
    assert frames(*data.draw(cuts(raw))) == frames(raw)


@QUICK
@given(raw=EVENT_SOUP | JSON_SOUP)
def test_byte_by_byte_gives_the_same_frames(raw: bytes) -> None:
    pieces = [raw[at : at + 1] for at in range(len(raw))]
    assert frames(*pieces) == frames(raw) == frames(b"", raw, b"")


@THOROUGH
@given(data=st.data(), raw=EVENT_SOUP | JSON_SOUP)
def test_numbers_count_and_offsets_rise(data: st.DataObject, raw: bytes) -> None:
    found = frames(*data.draw(cuts(raw)))
    assert [frame.number for frame in found] == list(range(len(found)))
    offsets = [frame.offset for frame in found]
    assert offsets == sorted(offsets)
    assert [frame.cut for frame in found[:-1]] == [False] * len(found[:-1])


class Event(msgspec.Struct, frozen=True):
    """An event as a server means it."""

    before: list[bytes]
    data: list[bytes]
    after: list[bytes]
    end: bytes
    name: str = ""
    id: str | None = None

    @property
    def raw(self) -> bytes:
        lines = [*self.before, *(b"data: " + line for line in self.data), *self.after, b""]
        return b"".join(line + self.end for line in lines)

    def frame(self, number: int, offset: int) -> Frame:
        start = offset + sum(len(line + self.end) for line in self.before)
        name = "" if self.name == "message" else self.name  # the standard's name for none
        return Frame(b"\n".join(self.data), name, self.id or None, number, start)


@st.composite
def events(draw: st.DrawFn) -> Event:
    name = draw(st.sampled_from(["", "message", "é"]))
    id = draw(st.sampled_from([None, "7", ""]))
    lines = [b": ping", b"retry: 3", b"data:", b"nothing", b"data: : OPENROUTER PROCESSING"]
    fields = draw(st.lists(st.sampled_from(lines), max_size=3))
    fields += [f"event: {name}".encode()] if name else []
    fields += [f"id: {id}".encode()] if id is not None else []
    fields = draw(st.permutations(fields))
    middle = draw(st.integers(0, len(fields)))
    value = draw(OBJECTS)
    indent = draw(st.sampled_from([None, 1]))
    body = json.dumps(value, ensure_ascii=False, indent=indent).encode()
    data = [line.strip() for line in body.splitlines()]
    return Event(fields[:middle], data, fields[middle:], draw(LINE_ENDS), name, id)


@QUICK
@given(data=st.data(), stream=st.lists(events(), max_size=3))
def test_a_proper_stream_gives_its_events_wherever_it_is_cut(
    data: st.DataObject, stream: list[Event]
) -> None:
    raw, expected = b"", []
    for number, event in enumerate(stream):
        expected.append(event.frame(number, len(raw)))
        raw += event.raw
    assert frames(*data.draw(cuts(raw))) == expected


@QUICK
@given(data=st.data(), values=st.lists(OBJECTS, min_size=1, max_size=4), end=LINE_ENDS)
def test_one_json_value_a_line_is_one_frame_each(
    data: st.DataObject, values: list[object], end: bytes
) -> None:
    lines = [json.dumps(value).encode() + end for value in values]
    found = frames(*data.draw(cuts(b"".join(lines))))
    assert [parse(frame.data) for frame in found] == values
    assert [frame.offset for frame in found] == [
        sum(map(len, lines[:at])) for at in range(len(lines))
    ]
    assert not any(frame.cut or frame.split for frame in found)


@QUICK
@given(data=st.data(), value=OBJECTS)
def test_a_body_is_one_frame_however_it_is_printed(data: st.DataObject, value: object) -> None:
    body = data.draw(spelled(value)).encode()
    before = data.draw(st.sampled_from([b"", BOM, b"\n \n", b": ping\n\n", b": ping\n: ping\n\n"]))
    after = data.draw(st.sampled_from([b"", b"\n", b"\n\ndata: [DONE]\n\n"]))
    found = frames(*data.draw(cuts(before + body + after)))
    assert parse(found[0].data) == value
    assert (found[0].number, found[0].cut) == (0, False)
    assert found[0].offset == (0 if before == BOM else len(before))
    assert [frame.data for frame in found[1:]] == [b"[DONE]"] * (b"DONE" in after)


# Lines and fields


@QUICK
@given(data=st.data(), ends=st.lists(LINE_ENDS, min_size=3, max_size=3))
def test_line_ends_of_any_kind_mean_the_same(data: st.DataObject, ends: list[bytes]) -> None:
    lines = [
        [b"event: a", b"data: 1", b""],
        [b"data: 2", b""],
        [b": ping", b"id: 3", b"data: 3", b""],
    ]
    raw = b"".join(
        line + end for event, end in zip(lines, ends, strict=True) for line in event
    )  # fmt: skip
    found = frames(*data.draw(cuts(raw)))
    assert [(frame.event, frame.id, frame.data) for frame in found] == [
        ("a", None, b"1"),
        ("", None, b"2"),
        ("", "3", b"3"),
    ]


def test_events_that_come_once_the_first_one_is_over_are_read_like_it() -> None:
    first, plain = b"data: 0\n\n", b"data: 1\n\ndata:\n\ndata: : ping\n\ndata:2 \n\n"
    other = b"data: 3\ndata: 4\n\ndata: 5\n\nevent: a\ndata: 6\n\n"
    reader = FrameReader()
    assert reader.feed(first) == [Frame(b"0")]
    assert reader.feed(plain) == [
        Frame(b"1", number=1, offset=9),
        Frame(b"2", number=2, offset=39),
    ]
    assert reader.feed(other + b"data: 7") == frames(first + plain + other)[3:]
    assert reader.feed(b"\n\n") == [Frame(b"7", number=6, offset=92)]
    assert reader.feed(b"data: 8\n") == []
    assert reader.finish() == [Frame(b"8", number=7, offset=101, cut=True)]


def test_lf_ends_an_event_after_a_line_that_crlf_ended() -> None:
    assert payloads(b"data: 1\r\n\ndata: 2\n\r\ndata: 3\r\n\r\n") == [b"1", b"2", b"3"]


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_crlf_cut_in_two_is_one_line_end(cut: int) -> None:
    raw = b"data: 1\r\n\r\ndata: 2\r\n\r\n"
    assert frames(raw[:cut], b"", raw[cut:]) == [
        Frame(b"1", number=0, offset=0),
        Frame(b"2", number=1, offset=11),
    ]


def test_a_byte_order_mark_is_dropped() -> None:
    assert frames(BOM + b"data: 1\n\ndata: 2\n\n") == [
        Frame(b"1", number=0, offset=0),
        Frame(b"2", number=1, offset=12),
    ]


def test_a_byte_order_mark_later_on_is_not_dropped() -> None:
    assert payloads(b": x\n" + BOM + b"data: 1\n\n") == []


def test_comments_and_empty_data_make_no_frames() -> None:
    raw = b": ping\n\n:\n\ndata:\n\ndata: \n\nid: 1\n\n: ping\n\ndata: : OPENROUTER PROCESSING\n\n"
    assert frames(raw) == []


@pytest.mark.parametrize(
    "line", [b"data:1", b"data: 1", b"data:  1 ", b"data:\t1\t", b"data: 1 \t "]
)
def test_the_space_after_the_colon_is_not_required_and_data_is_trimmed(line: bytes) -> None:
    assert payloads(line + b"\n\n" + line + b"\n\n") == [b"1", b"1"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_an_event_keeps_its_name_and_id_but_the_next_one_does_not(end: bytes) -> None:
    raw = b"event: a|id: 7|data: 1||data: 2||id: 8||data: 3||event: b||data: 4||"
    found = frames(raw.replace(b"|", end))
    assert [(frame.event, frame.id, frame.data) for frame in found] == [
        ("a", "7", b"1"),
        ("", None, b"2"),
        ("", None, b"3"),
        ("", None, b"4"),
    ]


def test_a_name_that_is_no_utf8_is_replaced_and_data_is_left_as_it_came() -> None:
    assert frames(b"event: \xff\nid: \xff\ndata: \xff\n\n") == [
        Frame(b"\xff", "\ufffd", "\ufffd", 0, 15)
    ]


def test_an_error_field_is_an_error_event() -> None:
    assert frames(b'error: {"code":500} \n\nerror:\n\ndata: 1\n\n') == [
        Frame(b'{"code":500}', "error", None, 0, 0),
        Frame(b"1", "", None, 1, 30),
    ]


def test_a_character_cut_in_two_is_whole_in_its_frame() -> None:
    raw = 'data: "北"\n\n'.encode()
    for cut in range(len(raw)):
        assert frames(raw[:cut], raw[cut:]) == [Frame('"北"'.encode())]


# Several data lines


def test_several_data_lines_that_make_one_json_value_are_one_frame() -> None:
    assert frames(b'data: {\ndata: "a": 1\ndata: }\n\n') == [Frame(b'{\n"a": 1\n}')]


def test_several_data_lines_that_are_values_of_their_own_are_one_frame_each() -> None:
    assert frames(b'data: {"a":1}\ndata: {"b":2}\ndata: [DONE]\n\n') == [
        Frame(b'{"a":1}', number=0, split=True),
        Frame(b'{"b":2}', number=1, split=True),
        Frame(b"[DONE]", number=2, split=True),
    ]


def test_several_data_lines_without_any_whole_value_stay_together() -> None:
    assert frames(b"data: engine\ndata: died\n\n") == [Frame(b"engine\ndied")]


def test_data_lines_nested_too_deep_to_check_stay_together() -> None:
    deep = b"[" * 100_000
    assert payloads(b"data: " + deep + b"\ndata: 1\n\n") == [deep + b"\n1"]


# The end of the input


@pytest.mark.parametrize("raw", [b"data: 1", b"data: 1\n", b"data: 1\r", b"data: 1\nx"])
def test_an_unterminated_last_event_is_cut(raw: bytes) -> None:
    assert frames(raw) == [Frame(b"1", cut=True)]


def test_of_unterminated_data_lines_only_the_last_is_cut() -> None:
    assert frames(b'data: {"a":1}\ndata: {"b":') == [
        Frame(b'{"a":1}', number=0, split=True),
        Frame(b'{"b":', number=1, cut=True, split=True),
    ]


@pytest.mark.parametrize("raw", [b"", b"\n", b"\n \r\n", BOM, b":", b"event: x", b"data:"])
def test_an_input_that_says_nothing_has_no_frames(raw: bytes) -> None:
    assert frames(raw) == []


def test_finishing_twice_is_harmless() -> None:
    reader = FrameReader()
    assert reader.feed(b"data: 1") == []
    assert reader.finish() == [Frame(b"1", cut=True)]
    assert reader.finish() == []


# JSON


def test_a_body_that_never_closes_is_cut() -> None:
    (found,) = frames(b'{"a":\n[1,\n')
    assert (found.data.split(), found.cut) == ([b'{"a":', b"[1,"], True)


def test_a_json_line_that_never_closes_is_a_frame_before_the_next_one() -> None:
    found = frames(b'{"a":1\n{"b":2}\n{"c":\n3\n{"d":4}\n')
    assert [(frame.data.split(), frame.offset, frame.cut) for frame in found] == [
        ([b'{"a":1'], 0, False),
        ([b'{"b":2}'], 7, False),
        ([b'{"c":', b"3"], 15, False),
        ([b'{"d":4}'], 23, False),
    ]


def test_a_json_line_that_cannot_be_json_is_a_frame_at_once() -> None:
    reader = FrameReader()
    (found,) = reader.feed(b'{"a":"x\n')
    assert found.data.strip() == b'{"a":"x'
    (found,) = reader.feed(b'{"a":1} x\n')
    assert found.data.strip() == b'{"a":1} x'


def test_json_may_be_an_array_and_events_may_follow() -> None:
    found = frames(b'[{"a":1},\n{"a":2}]\n: ping\n\ndata: 1\n\n')
    assert [frame.data.split() for frame in found] == [[b'[{"a":1},', b'{"a":2}]'], [b"1"]]


def test_a_body_behind_comments_is_read() -> None:
    found = frames(b': ping\n\n: ping\n\n{\n"a":\n1}\n\ndata: [DONE]\n\n')
    assert [frame.data.split() for frame in found] == [[b"{", b'"a":', b"1}"], [b"[DONE]"]]


def test_a_terminator_glued_to_a_body_is_a_frame_of_its_own() -> None:
    for glued in (b'{"a":1}data: [DONE]\n\n', b'{"a":\n1}data:[DONE]\n\n'):
        body, done = frames(glued)
        assert (parse(body.data), body.cut) == ({"a": 1}, False)
        assert (done.data, done.number) == (b"[DONE]", 1)


@pytest.mark.parametrize("text", ["}data: [DONE]", "{}data:[DONE]x", "}data: [DONE]}data: [DONE]"])
def test_a_terminator_inside_a_string_is_text(text: str) -> None:
    (found,) = frames(json.dumps({"a": text}).encode() + b"\n")
    assert parse(found.data) == {"a": text}


def test_a_brace_inside_an_event_is_no_body() -> None:
    assert frames(b"data: 1\n{}\n\n") == [Frame(b"1")]


# Limits


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"], ids=["LF", "CR", "CRLF"])
@QUICK
@given(data=st.data())
def test_a_line_at_its_limit_passes_and_one_byte_more_fails(
    end: bytes, data: st.DataObject
) -> None:
    first, line = b"data: 1" + end * 2, b"data: " + b"x" * 10
    raw = first + line + end * 2
    good = Frame(b"1")
    for limit, last in [
        (16, Frame(b"x" * 10, number=1, offset=len(first))),
        (15, (f"line over 15 bytes at byte {len(first)}, event 1", len(first), 1)),
    ]:
        assert outcome(data.draw(cuts(raw)), limit=limit) == [good, last]
        assert outcome(data.draw(cuts(first + line)), limit=limit)[:1] == [good]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"], ids=["LF", "CR", "CRLF"])
@QUICK
@given(data=st.data())
def test_an_event_at_its_limit_passes_and_one_byte_more_fails(
    end: bytes, data: st.DataObject
) -> None:
    first, lines = b"data: 1" + end * 2, [b"data: " + one * 6 + end for one in (b"x", b"y", b"z")]
    raw = first + b"".join(lines) + end
    third = len(first) + len(lines[0]) * 2
    good = Frame(b"1")
    for limit, last in [
        (18, Frame(b"xxxxxx\nyyyyyy\nzzzzzz", number=1, offset=len(first))),
        (17, (f"event over 17 bytes at byte {third}, event 1", third, 1)),
    ]:
        assert outcome(data.draw(cuts(raw)), limit=limit) == [good, last]


@THOROUGH
@given(data=st.data(), raw=EVENT_SOUP, limit=st.integers(1, 12))
def test_where_too_long_lines_are_cut_changes_nothing(
    data: st.DataObject, raw: bytes, limit: int
) -> None:
    pieces = data.draw(cuts(raw))
    assert outcome(pieces, limit=limit) == outcome([raw], limit=limit)


@THOROUGH
@given(data=st.data(), raw=EVENT_SOUP, limit=st.integers(1, 6))
def test_where_too_large_events_are_cut_changes_nothing(
    data: st.DataObject, raw: bytes, limit: int
) -> None:
    raw += b"\n"
    pieces = data.draw(cuts(raw))
    assert outcome(pieces, limit=limit) == outcome([raw], limit=limit)


def test_after_a_failure_nothing_more_is_read() -> None:
    reader = FrameReader(limit=8)
    assert reader.feed(b"data: 1\n\ndata: 1234\n\ndata: 2\n\n") == [Frame(b"1")]
    with pytest.raises(TooLarge):
        reader.feed(b"data: 3\n\n")
    assert reader.feed(b"data: 4\n\n") == []
    assert reader.finish() == []


def test_after_a_failure_at_the_very_beginning_nothing_more_is_read() -> None:
    reader = FrameReader(limit=8)
    with pytest.raises(TooLarge):
        reader.feed(b'{"a":1234')
    assert reader.feed(b"data: 1\n\n") == []
    assert reader.finish() == []


def test_a_line_that_never_ends_fails_without_being_kept() -> None:
    reader = FrameReader(limit=8)
    assert reader.feed(b"data: 12") == []
    with pytest.raises(TooLarge):
        reader.feed(b"3")
    assert reader.feed(b"\n\n") == []


# Writing

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=6)


@QUICK
@given(stream=st.lists(st.tuples(st.sampled_from(["", "a", "é"]), OBJECTS, WORDS), max_size=4))
def test_what_is_written_is_read_back_and_comments_are_not(
    stream: list[tuple[str, object, str]],
) -> None:
    raw, expected = b"", []
    for number, (name, value, words) in enumerate(stream):
        data = msgspec.json.encode(value)
        raw += comment(words)
        start = len(raw) + (len(f"event: {name}\n".encode()) if name else 0)
        expected.append(Frame(data, name, number=number, offset=start))
        raw += write(name, data)
    assert frames(raw) == expected


def test_an_event_is_written_in_one_piece() -> None:
    assert write("", b"{}") == b"data: {}\n\n"
    assert write("done", b"{}") == b"event: done\ndata: {}\n\n"
    assert comment("keep-alive") == b": keep-alive\n\n"


OUTGOING = st.builds(
    OutgoingEvent, st.sampled_from(["", "a", "é"]), st.sampled_from([b"1", b"2\n3", b"[]"])
)


@QUICK
@given(events=st.lists(OUTGOING, max_size=12), repeated=st.integers(1, 12))
def test_events_are_written_as_each_of_them_is(events: list[OutgoingEvent], repeated: int) -> None:
    for stream in (events, events[:1] * repeated):
        assert write_events(stream) == b"".join(write(one.name, one.data) for one in stream)


ANY_SOUP = st.lists(st.sampled_from([*FIELDS, *JSONS, *ENDS]), max_size=14).map(b"".join)


@THOROUGH
@given(data=st.data(), raw=ANY_SOUP)
def test_where_any_bytes_are_cut_changes_nothing(data: st.DataObject, raw: bytes) -> None:
    assert frames(*data.draw(cuts(raw))) == frames(raw)


def test_a_crlf_cut_in_two_changes_no_json_frame() -> None:
    assert frames(b'{"a":\r', b"\n1}") == frames(b'{"a":\r\n1}')


@THOROUGH
@given(data=st.data(), raw=EVENT_SOUP, limit=st.integers(1, 6))
def test_where_small_events_that_are_too_large_are_cut_changes_nothing(
    data: st.DataObject, raw: bytes, limit: int
) -> None:
    pieces = data.draw(cuts(raw))
    assert outcome(pieces, limit=limit) == outcome([raw], limit=limit)


def test_an_event_too_large_at_the_end_of_the_input_fails_once_and_for_good() -> None:
    reader = FrameReader(limit=15)
    assert reader.feed(b"data: 12345678\ndata: 12345678") == []
    with pytest.raises(TooLarge):
        reader.finish()
    assert reader.finish() == []


def test_an_error_field_that_says_nothing_makes_no_frame() -> None:
    assert frames(b"error:  \n\n") == frames(b"error: \n\n") == []


def test_many_terminators_inside_a_string_are_text() -> None:
    raw = b'{"a":"' + b"}data:[DONE]" * 2000 + b'"}'
    assert [frame.data for frame in frames(raw + b"\n")] == [raw]


def test_a_reader_knows_how_much_of_an_event_it_holds() -> None:
    reader = FrameReader()
    assert reader.pending == 0
    reader.feed(b"data: one")
    assert reader.pending == 9
    reader.feed(b"\ndata: tw")
    assert reader.pending == 3 + 8
    reader.feed(b"o\n\n")
    assert reader.pending == 0


def test_events_that_were_read_elsewhere_are_counted() -> None:
    reader, event = FrameReader(), b"data: 1\n\n"
    reader.feed(event)
    assert reader.fresh
    assert reader.skip(2, 2 * len(event), len(event)) == (2, 2 * len(event))
    assert reader.feed(event) == [Frame(b"1", number=3, offset=3 * len(event))]


@pytest.mark.parametrize("name", ["", "message_stop"])
@pytest.mark.parametrize("data", [b"{}", b'{\n "a": 1\n}'], ids=["one line", "several lines"])
def test_an_event_in_pieces_is_the_same_event(name: str, data: bytes) -> None:
    before, middle, after = frame(name, data)
    assert before + middle + after == write(name, data)
    assert middle is data or b"\n" in data, "copied only where lines are added"
