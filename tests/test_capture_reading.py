"""Captures, read as they come: HTTP heads, dialects, responses and choices, in any pieces."""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import chat
from tests.captures import HERE, lines
from tests.splitting import frames_of_responses
from tests.strategies import QUICK
from weft import Context, Ids, Unreadable, convert, decode_all, detect
from weft.captures import (
    MAX_CHOICES,
    CaptureFrames,
    CapturePiece,
    CaptureReader,
    ChoiceConverter,
    ChoiceReader,
    Detector,
    HttpHeads,
)
from weft.dialects import DialectName
from weft.parts import Part

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HELLO = chat.stream([chat.chunk({"content": "Hel"}), chat.chunk({"content": "lo"})])
BODY = b'{"id":"r","object":"chat.completion","choices":[{"message":{"content":"Hi"}}]}'
SEVERAL = [
    *sorted((HERE / "openai_chat").glob("two-*.sse")),
    *sorted((HERE / "openai_responses").glob("two-*.sse")),
    *sorted((HERE / "gemini").glob("two-*.sse")),
    *sorted((HERE / "anthropic_messages").glob("two-*.sse")),
]


def cut(raw: bytes, cuts: Iterable[int]) -> list[bytes]:
    places = sorted({0, len(raw), *(at % (len(raw) + 1) for at in cuts)})
    return [raw[start:end] for start, end in pairwise(places)]


# Heads


def joined(pieces: Iterable[CapturePiece]) -> list[CapturePiece]:
    """The pieces, those of one kind in a row as one."""
    out: list[CapturePiece] = []
    for piece in pieces:
        if out and out[-1].is_head == piece.is_head:
            before = out.pop()
            out.append(CapturePiece(before.offset, before.data + piece.data, piece.is_head))
        else:
            out.append(piece)
    return out


@pytest.mark.parametrize(
    "pieces",
    [
        [(HEAD, True), (HELLO, False)],
        [(CONTINUE + HEAD, True), (HELLO, False), (HEAD, True), (HELLO, False)],
        [(HEAD, True), (BODY, False), (HEAD, True), (BODY, False)],
        [(b"HTTP/2 200 \r\n\r\n", True), (BODY, False)],
        [(b"HTTP/1.1 200\n\n", True), (HELLO, False)],
        [(HELLO, False), (b"HTTP/1.1 502 Bad Gateway\r\ncontent-", True)],
        [(b"data: HTTP/1.1 200 OK\n\nHTTP/ is a protocol\n\nHTTP/1.1 2", False)],
        [(b"H", False)],
        [],
    ],
    ids=["one", "two", "glued", "http2", "lf", "cut", "none", "letter", "empty"],
)
@given(cuts=st.lists(st.integers(0, 1000), max_size=9))
@QUICK
def test_heads_are_separated_from_bodies_in_any_pieces(
    pieces: list[tuple[bytes, bool]], cuts: list[int]
) -> None:
    heads = HttpHeads()
    raw = b"".join(data for data, _ in pieces)
    found = [piece for data in cut(raw, cuts) for piece in heads.feed(data)] + heads.finish()
    assert b"".join(piece.data for piece in found) == raw
    assert [(piece.data, piece.is_head) for piece in joined(found)] == pieces
    assert all(raw.startswith(piece.data, piece.offset) for piece in found)


@pytest.mark.parametrize("size", [1 << 16, 60])
def test_a_body_that_is_still_in_chunks_is_refused(size: int) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
    raw = head + b"1e\r\ndata: a stream\n\n"
    pieces = [raw[start : start + size] for start in range(0, len(raw), size)]
    with pytest.raises(Unreadable, match="--raw") as caught:
        [*map(HttpHeads().feed, pieces)]
    assert caught.value.offset == len(head)
    # As curl writes it, without the framing.
    assert HttpHeads().feed(head + b"data: a stream\n\n")[-1].data == b"data: a stream\n\n"


def test_the_status_is_that_of_the_last_head() -> None:
    heads = HttpHeads()
    heads.feed(CONTINUE)
    assert heads.status == 100
    heads.feed(b"HTTP/2 502 \r\n")
    assert heads.status == 502


def test_a_head_moves_the_events_behind_it_and_changes_nothing_else() -> None:
    plain, headed = CaptureFrames(), CaptureFrames()
    before = plain.feed(HELLO)
    after = headed.feed(HEAD + HELLO)
    assert [(one.data, one.number, one.offset + len(HEAD)) for one in before] == [
        (one.data, one.number, one.offset) for one in after
    ]


# Responses and choices


def test_a_head_begins_another_response() -> None:
    half = HELLO[: HELLO.index(b"data: [DONE]") - 1]
    responses = [one.response for one in decode_all(half + HEAD + HELLO, "openai-chat")]
    assert [one.text for one in responses] == ["Hello", "Hello"]
    assert len(decode_all(CONTINUE + HEAD + HELLO, "openai-chat")) == 1


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic-messages"])
def test_json_bodies_one_a_line_are_a_response_each(dialect: DialectName) -> None:
    folder = HERE / dialect.replace("-", "_")
    body = BODY if dialect == "openai-chat" else (folder / "body.sse").read_bytes()
    one = body.replace(b"\n", b"") + b"\n"
    assert len(decode_all(one * 3, dialect)) == 3


@pytest.mark.parametrize("path", SEVERAL, ids=lambda path: f"{path.parent.name}-{path.stem}")
@given(cuts=st.lists(st.integers(0, 100_000), max_size=9))
@QUICK
def test_where_a_capture_is_cut_changes_nothing(path: Path, cuts: list[int]) -> None:
    raw = path.read_bytes()
    dialect = detect(raw)
    texts: list[str] = []

    def ended(choices: list[ChoiceReader]) -> None:
        texts.extend(choice.response.text for choice in choices)

    parts = CaptureReader[Part](dialect, lambda choice: choice, ended=ended)
    events = CaptureReader[bytes](dialect, lambda choice: ChoiceConverter(choice, "gemini"))
    printed: list[Part] = []
    written: list[bytes] = []
    for data in cut(raw, cuts):
        printed += parts.feed(data)
        written += events.feed(data)
    whole = decode_all(raw, dialect)
    assert lines(printed + parts.finish()) == lines(part for one in whole for part in one.parts)
    assert b"".join(written + events.finish()) == convert(raw, dialect, "gemini")
    assert texts == [one.response.text for one in whole]


def test_so_many_choices_are_read_and_no_more() -> None:
    """Each of them reads every frame: 200,000 of them in a capture of 20 MB would take days."""
    choice = '{"index":%d,"delta":{"content":"Hi"},"finish_reason":"stop"}'
    choices = ",".join(choice % number for number in range(2 * MAX_CHOICES))
    raw = f'data: {{"id":"c","choices":[{choices}]}}\n\ndata: [DONE]\n\n'.encode()
    assert len(decode_all(raw, "openai-chat")) == MAX_CHOICES


def test_there_are_captures_of_several_responses_and_choices() -> None:
    assert len(SEVERAL) > 3
    captures = [path.read_bytes() for path in SEVERAL]
    assert max(len(frames_of_responses(raw, detect(raw))) for raw in captures) > 1


def test_ids_depend_on_what_was_read_and_on_the_context() -> None:
    nameless = b'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n'
    one, same = (decode_all(nameless % b"a", "openai-chat")[0].response.id for _ in range(2))
    (other,) = decode_all(nameless % b"b", "openai-chat")
    (seeded,) = decode_all(nameless % b"a", "openai-chat", context=Context(ids=Ids(b"x")))
    assert one == same
    assert len({one, other.response.id, seeded.response.id}) == 3


# Dialects


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_the_dialect_is_known_with_the_first_event_that_shows_it(size: int) -> None:
    detector = Detector()
    raw = b": hello\n\n" + HELLO
    decided = raw.index(b"\n\n", 20) + 1
    found = [detector.feed(raw[at : at + size]) for at in range(0, len(raw), size)]
    assert found.index("openai-chat") * size <= decided <= (found.index("openai-chat") + 1) * size


def test_a_given_dialect_needs_a_sign_of_a_stream() -> None:
    assert Detector("gemini").feed(b": hello") == "gemini"
    assert Detector("gemini").feed(b'{"candidates":') == "gemini"
    assert Detector("gemini").feed(b"INFO hello\n") is None
    detector = Detector("gemini")
    detector.feed(b"INFO hello\n")
    with pytest.raises(Unreadable, match="plain text, not a stream"):
        detector.finish()


def test_a_search_for_a_dialect_ends() -> None:
    with pytest.raises(Unreadable, match="cannot tell the dialect"):
        Detector().feed(b"data: {}\n\n" * 20_000)
    with pytest.raises(Unreadable, match="plain text"):
        Detector().feed(b"INFO hello\n" * 200_000)
