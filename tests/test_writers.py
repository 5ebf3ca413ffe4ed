"""How events leave the process: framed, with ids, in an array, over a socket."""

import json

from hypothesis import given
from hypothesis import strategies as st

from weft.gateway.writers import EventStreamWriter, JsonArrayWriter
from weft.sse import Event, FrameReader, comment

EVENTS = st.lists(
    st.builds(
        Event,
        st.sampled_from(["", "ping", "response.created"]),
        st.dictionaries(st.text(), st.text() | st.integers(), min_size=1).map(
            lambda value: json.dumps(value).encode()
        ),
    )
)
IDLE = comment("keepalive")


@given(EVENTS)
def test_what_is_written_is_read_as_it_was(events: list[Event]) -> None:
    frames = FrameReader().feed(EventStreamWriter(IDLE).write(events))
    assert [(frame.event, frame.data) for frame in frames] == [(e.name, e.data) for e in events]


@given(EVENTS, EVENTS, st.integers(0, 99))
def test_ids_name_the_log_and_count_its_events(
    before: list[Event], behind: list[Event], first: int
) -> None:
    writer = EventStreamWriter(IDLE, "log_1", first)
    ping = Event("ping", b"{}")
    raw = writer.write(before) + writer.keepalive(None) + writer.keepalive(ping)
    frames = FrameReader().feed(raw + writer.write(behind))
    numbers = range(first, first + len(before) + 1 + len(behind))
    assert [frame.id for frame in frames] == [f"log_1/{number}" for number in numbers]


def test_json_over_several_lines_is_one_event() -> None:
    raw = EventStreamWriter(IDLE).write([Event("a", b'{\n"b":\n1}')])
    (frame,) = FrameReader().feed(raw)
    assert (frame.event, json.loads(frame.data)) == ("a", {"b": 1})


def test_where_a_wire_has_no_event_for_silence_its_own_blanks_are_sent() -> None:
    assert EventStreamWriter(b"\n").keepalive(None) == b"\n"
    assert EventStreamWriter(IDLE).end() == b""


@given(st.lists(EVENTS), st.sets(st.integers(0, 5)))
def test_an_array_is_one_json_value_whenever_there_is_silence(
    blocks: list[list[Event]], silences: set[int]
) -> None:
    writer, raw = JsonArrayWriter(), b""
    for at, events in enumerate(blocks):
        raw += writer.keepalive(None) if at in silences else b""
        raw += writer.write(events)
    raw += writer.end()
    assert json.loads(raw) == [json.loads(one.data) for events in blocks for one in events]
    assert raw[:1] == b"["
