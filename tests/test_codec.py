"""The library's verbs: streams of one response, captures of several, both ways."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import cast

import pytest

from tests.captures import HERE
from tests.chat import calls, chunk, entry, stream
from tests.daily import one_in
from tests.responses import events
from weft import (
    DIALECTS,
    Context,
    Decoder,
    Encoder,
    ErrorPart,
    Finding,
    Finish,
    Ids,
    Part,
    Response,
    ResponseMetadata,
    TextDelta,
    TextEnd,
    TextStart,
    UnknownDialect,
    Unreadable,
    adecode,
    assemble,
    convert,
    decode,
    decode_all,
    detect,
    encode,
)
from weft.dialects import DialectName, dialect_named
from weft.sse import MAX_EVENT

HELLO = stream([chunk({"content": "Hel"}), chunk({"content": "lo"})])
WRITTEN = [dialect.name for dialect in DIALECTS.values() if dialect.encoder]
READ = ("anthropic_messages", "gemini", "openai_chat", "openai_responses")
CAPTURES = sorted(path for folder in READ for path in (HERE / folder).glob("*.sse"))
PARTS: list[Part] = [
    ResponseMetadata("chatcmpl-1", model="m-1", created=1790000000, dialect="openai-chat"),
    TextStart("text_0"),
    TextDelta("text_0", "Hel"),
    TextDelta("text_0", "lo"),
    TextEnd("text_0"),
    Finish("stop", raw_reason="stop", model="m-1"),
]


def test_decode_yields_the_parts_of_one_response() -> None:
    assert list(decode([HELLO[:40], HELLO[40:]], "openai-chat")) == PARTS


def test_adecode_yields_the_same() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield HELLO[:99]
        yield HELLO[99:-1]  # the last event has no blank line after it: finish completes it

    async def read() -> list[Part]:
        return [part async for part in adecode(chunks(), "openai-chat")]

    assert asyncio.run(read()) == PARTS


def test_assemble_is_the_fold() -> None:
    response = assemble(PARTS)
    assert (response.text, response.finish_reason, response.model) == ("Hello", "stop", "m-1")
    assert response.findings == ()


REPAIRED = stream([calls(entry(0, "c", "look", "{")), calls(entry(0, "c", "", "}"))], "stop")
"""The id of the call comes twice, and the reason is not the one for calls."""
CODES = [("call-id-repeated", 1), ("stop-with-calls", 3)]


async def pieces_of(raw: bytes) -> AsyncIterator[bytes]:
    yield raw[:99]
    yield raw[99:]


def places(findings: Iterable[Finding]) -> list[tuple[str, int]]:
    return [(one.code, one.at) for one in findings]


def test_the_fold_of_a_decoded_stream_has_the_findings_of_its_decoder() -> None:
    stream = decode([REPAIRED], "openai-chat")
    assert stream.findings == []
    assert assemble(stream) == stream.response
    assert places(stream.response.findings) == places(stream.findings) == CODES
    assert [REPAIRED[one.offset :][:6] for one in stream.findings] == [b"data: "] * 2
    begun = decode([REPAIRED], "openai-chat")
    next(begun)
    assert assemble(begun).items == stream.response.items, "what was iterated before counts too"
    assert assemble(list(decode([REPAIRED], "openai-chat"))).findings == ()


def test_a_decoded_stream_tells_what_was_found_as_it_is_found() -> None:
    stream = decode([REPAIRED], "openai-chat")
    found = [(part.type, len(stream.findings)) for part in stream]
    assert found == [
        ("response-metadata", 0),
        ("tool-params-start", 0),
        ("tool-params-delta", 0),
        ("tool-params-delta", 1),
        ("tool-params-end", 2),
        ("tool-call", 2),
        ("finish", 2),
    ]


def test_an_asynchronous_stream_has_the_same_response_and_findings() -> None:
    async def read() -> tuple[list[Part], Response]:
        stream = adecode(pieces_of(REPAIRED), "openai-chat")
        return [part async for part in stream], stream.response

    parts, response = asyncio.run(read())
    stream = decode([REPAIRED], "openai-chat")
    assert parts == list(stream)
    assert response == stream.response
    assert places(response.findings) == CODES


def test_a_stream_that_is_closed_yields_no_more() -> None:
    async def rest() -> list[Part]:
        stream = adecode(pieces_of(REPAIRED), "openai-chat")
        async with contextlib.aclosing(stream):
            first = await anext(stream)
        return [first, *[part async for part in stream]]

    with contextlib.closing(decode([REPAIRED], "openai-chat")) as stream:
        first = next(stream)
    assert [first, *stream] == asyncio.run(rest()) == PARTS[:1]
    with contextlib.closing(encode(PARTS, "openai-chat")) as events:
        next(events)
    assert list(events) == []


def test_an_encoded_stream_tells_what_was_repaired_and_what_its_dialect_cannot_carry() -> None:
    lost = [*CODES, ("not-carried", 3)]  # the usage that Messages clients need, and nobody told
    for raw in ([REPAIRED], [REPAIRED[:70], REPAIRED[70:]]):
        events = encode(decode(raw, "openai-chat"), "anthropic-messages")
        assert b"tool_use" in b"".join(events)
        assert places(events.findings) == lost
    repaired = encode([TextDelta("t", "x")], "anthropic-messages")
    assert list(repaired)
    assert [one.code for one in repaired.findings][:2] == ["metadata-missing", "start-missing"]


def test_what_is_converted_tells_the_findings_of_all_its_responses_in_order() -> None:
    converted = convert(REPAIRED * 2, "openai-chat", "anthropic-messages")
    assert isinstance(converted, bytes)
    once = [*CODES, ("not-carried", 3)]
    assert places(converted.findings) == [*once, *((code, at + 4) for code, at in once)]
    assert convert(HELLO, "openai-chat", "openai-chat").findings == ()


@pytest.mark.parametrize(
    "path", one_in(2, CAPTURES, lambda path: f"{path.parent.name}/{path.stem}")
)
def test_converting_a_capture_finds_what_reading_and_writing_it_find(path: Path) -> None:
    raw, source = path.read_bytes(), dialect_named(path.parent.name.replace("_", "-")).name
    read = decode_all(raw, source)
    noted = {place for one in read for place in places(one.response.findings)}
    for target in WRITTEN:
        found = {*places(convert(raw, source, target).findings)}
        assert noted <= found, target
        if len(read) == 1:
            events = encode(decode([raw], source), target)
            assert b"".join(events), target
            assert {*places(events.findings)} == found, target


def test_assemble_and_encode_make_illegal_parts_legal_first() -> None:
    soup: list[Part] = [TextDelta("t", "x")]
    response = assemble(soup)
    assert response.text == "x"
    assert response.error is not None
    assert [finding.code for finding in response.findings] == ["metadata-missing", "start-missing"]
    found = events(b"".join(encode(soup, "openai-responses")))
    assert found[-1]["type"] == "response.failed"


def test_equal_captures_give_equal_bytes_and_live_ids_are_never_equal() -> None:
    raw = stream([calls(entry(0, None, "look", "{}"))])
    assert convert(raw, "openai-chat", "openai-responses") == convert(
        raw, "openai-chat", "open-responses"
    )
    first, second = (list(decode([raw], "openai-chat"))[1] for _ in range(2))
    assert first != second


def test_an_encoder_reads_the_fold_it_is_given_or_makes_its_own() -> None:
    decoder = Decoder("openai-chat")
    shared = Encoder("openai-responses", context=Context(ids=Ids(b"1")), fold=decoder.fold)
    alone = Encoder("openai-responses", context=Context(ids=Ids(b"1")))
    parts = decoder.feed(HELLO) + decoder.finish()
    assert shared.feed(parts) == alone.feed(parts)
    assert shared.finish() == alone.finish() == []
    assert alone.findings == []
    assert decoder.findings == []


def test_a_capture_of_several_responses_is_cut_where_another_begins() -> None:
    raw = HELLO + b"data: [DONE]\n\n" + stream([chunk({"content": "two"})])
    assert [one.response.text for one in decode_all(raw, "openai-chat")] == ["Hello", "two"]
    both = convert(raw, "openai-chat", "openai-responses")
    assert [one.response.text for one in decode_all(both, "openai-responses")] == ["Hello", "two"]


def test_a_response_that_another_one_cuts_off_is_truncated() -> None:
    whole = convert(HELLO, "openai-chat", "openai-responses")
    cut = whole[: whole.index(b"event: response.output_text.done")]
    first, second = decode_all(cut + whole, "openai-responses")
    assert first.response.error is not None
    assert first.response.error.kind == "truncated"
    assert second.response.finish_reason == "stop"


def test_each_choice_of_a_capture_is_a_response_of_its_own() -> None:
    choices = [
        {"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"},
        {"index": 0, "delta": {"content": "a"}, "finish_reason": "length"},
    ]
    raw = b"data: " + json.dumps({"id": "c", "choices": choices}).encode() + b"\n\n"
    first, second = (one.response for one in decode_all(raw, "openai-chat"))
    assert (first.choice, first.text, first.finish_reason) == (0, "a", "length")
    assert (second.choice, second.text, second.finish_reason) == (1, "b", "stop")
    assert first.findings[0].code == "choice-other"


def test_an_empty_capture_is_one_empty_response() -> None:
    (one,) = decode_all(b"", "openai-chat")
    assert one.response.error is not None
    assert one.response.error.kind == "empty"


def test_events_after_the_end_belong_to_nobody() -> None:
    (one,) = decode_all(HELLO + b'data: {"late":1}\n\n', "openai-chat")
    assert one.response.text == "Hello"
    assert [finding.code for finding in one.response.findings] == ["after-finish"]


def test_a_line_without_end_fails_the_response_and_keeps_what_came() -> None:
    for pieces in ([HELLO[:300], b"x" * 1001], [HELLO[:300] + b"x" * 1001]):
        decoder = Decoder("openai-chat", limit=1000)
        parts = [part for piece in pieces for part in decoder.feed(piece)] + decoder.finish()
        (error,) = [part for part in parts if isinstance(part, ErrorPart)]
        assert error.kind == "too-large"
        assert decoder.response.text == "Hel"
        assert decoder.finish() == []


def test_a_capture_is_read_however_long_its_lines_are() -> None:
    long = "x" * (MAX_EVENT + 1)
    (one,) = decode_all(HELLO.replace(b'"Hel"', f'"{long}"'.encode()), "openai-chat")
    assert one.response.text == long + "lo"


def test_a_dialect_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UnknownDialect, match='unknown dialect "klingon"; known: openai-chat'):
        Decoder(cast(DialectName, "klingon"))


def test_the_dialect_is_detected_or_the_candidates_are_named() -> None:
    assert detect(b": hi\n\n" + HELLO) == "openai-chat"
    assert detect(convert(HELLO, "openai-chat", "openai-responses")) == "openai-responses"
    with pytest.raises(Unreadable, match="say which with --from: openai-chat"):
        detect(b'data: {"error":{"message":"no"}}\n\n')
    with pytest.raises(Unreadable, match="an HTML page, not a stream"):
        detect(b"<html></html>")


def test_a_response_that_is_created_twice_over_is_one() -> None:
    whole = convert(HELLO, "openai-chat", "openai-responses")
    created = whole[: whole.index(b"event: response.in_progress")]
    (one,) = decode_all(created + whole, "openai-responses")
    assert [finding.code for finding in one.response.findings] == ["frame-replayed"]
    again = created.replace(b'"sequence_number":0', b'"sequence_number":7')
    (one,) = decode_all(again + whole, "openai-responses")
    codes = [finding.code for finding in one.response.findings]
    assert codes == ["sequence-number-disordered", "metadata-repeated"]


def test_an_end_that_is_told_twice_is_one_end() -> None:
    whole = convert(HELLO, "openai-chat", "anthropic-messages")
    stop = whole[whole.index(b"event: message_stop") :]
    (one,) = decode_all(whole + stop + stop, "anthropic-messages")
    assert one.response.finish_reason == "stop"
