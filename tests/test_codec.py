"""The library's verbs: streams of one response, captures of several, both ways."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from tests.chat import calls, chunk, entry, stream
from tests.responses import events
from weft import (
    Context,
    Decoder,
    Encoder,
    ErrorPart,
    Finish,
    Ids,
    Part,
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
from weft.sse import MAX_LINE

HELLO = stream([chunk({"content": "Hel"}), chunk({"content": "lo"})])
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
    for pieces in ([HELLO[:300], b"x" * (MAX_LINE + 1)], [HELLO[:300] + b"x" * (MAX_LINE + 1)]):
        decoder = Decoder("openai-chat")
        parts = [part for piece in pieces for part in decoder.feed(piece)] + decoder.finish()
        (error,) = [part for part in parts if isinstance(part, ErrorPart)]
        assert error.kind == "too-large"
        assert decoder.response.text == "Hel"
        assert decoder.finish() == []
    with pytest.raises(Unreadable, match="line over 8388608 bytes at byte") as caught:
        decode_all(HELLO + b"x" * (MAX_LINE + 1), "openai-chat")
    assert (caught.value.offset, caught.value.event) == (len(HELLO), 4)


def test_a_dialect_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UnknownDialect, match="'klingon'; there are openai-chat"):
        Decoder("klingon")


def test_the_dialect_is_detected_or_the_candidates_are_named() -> None:
    assert detect(b": hi\n\n" + HELLO) == "openai-chat"
    assert detect(convert(HELLO, "openai-chat", "openai-responses")) == "openai-responses"
    with pytest.raises(Unreadable, match="say which with --from: openai-chat"):
        detect(b'data: {"error":{"message":"no"}}\n\n')
    with pytest.raises(Unreadable, match="no event in it"):
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
