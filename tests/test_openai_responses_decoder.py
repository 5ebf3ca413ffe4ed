"""The Responses decoder: one item per output_index, wholes that only complete, nothing twice."""

import json
from collections.abc import Sequence
from typing import Any, get_args

import msgspec
import openai.types.responses as sdk
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.responses_events import (
    COMPLETED,
    CREATED,
    DIALECT,
    added,
    at_once,
    body,
    capture,
    codes,
    created,
    decoded,
    done,
    event,
    opened,
    parts,
    raw,
    read,
    said,
    text_part,
    with_request,
)
from tests.strategies import QUICK
from tests.tables import each_row
from weft import (
    Context,
    Decoder,
    Finish,
    Ids,
    Opaque,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningItem,
    ReasoningStart,
    Source,
    TextDelta,
    TextEnd,
    TextItem,
    TextStart,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
    Usage,
    decode_all,
)
from weft.dialects.envelope import Envelope, ReasoningState, wrap
from weft.dialects.openai_responses.decoder import RESPONSE_EVENTS
from weft.dialects.openai_responses.decoding.output_items import ITEM_EVENTS, ITEMS
from weft.request import Request, Tool


def test_metadata_and_finish_come_from_the_snapshots() -> None:
    message = {"type": "message", "id": "m"}
    response = read(added(0, **message), opened(0), said(0, "a", item_id="m"), done(0, **message))
    assert (response.id, response.model, response.created) == ("resp_1", "m-2", 1790000000)
    assert response.usage is not None
    assert (response.usage.total_tokens, response.usage.cache_read_tokens) == (7, 1)
    assert (response.finish_reason, response.raw_finish_reason) == ("stop", "completed")
    assert response.findings == ()


def test_full_values_verify_and_never_append() -> None:
    response = read(
        added(0, type="message", id="m", content=[]),
        event("content_part.added", output_index=0, content_index=0, part=text_part("")),
        said(0, "Hel"),
        said(0, "lo"),
        event("output_text.done", output_index=0, content_index=0, text="Hello"),
        event("content_part.done", output_index=0, content_index=0, part=text_part("Hello")),
        done(0, type="message", id="m", content=[text_part("Hello")]),
    )
    assert response.text == "Hello"
    assert response.findings == ()


def test_a_full_value_completes_the_deltas_and_one_that_differs_is_reported() -> None:
    begun = (added(0, type="message", id="m"), opened(0), said(0, "Hel"))
    more = read(*begun, done(0, type="message", content=[text_part("Hello")]))
    assert (more.text, codes(more)) == ("Hello", ["whole-extends"])
    other = read(*begun, done(0, type="message", content=[text_part("Bye")]))
    assert (other.text, codes(other)) == ("Hel", ["whole-contradicts"])


def test_ids_may_change_because_the_index_identifies_the_item() -> None:
    response = read(
        added(0, type="message", id="m1"),
        said(0, "a", item_id="m2"),
        said(0, "b", item_id="m3"),
        done(0, type="message", id="m4", content=[text_part("ab")]),
    )
    (item,) = response.items
    assert isinstance(item, TextItem)
    assert (item.text, item.item_id) == ("ab", "m1")


def test_without_an_index_the_id_identifies_the_item() -> None:
    response = read(
        event("output_text.delta", item_id="m", delta="a"),
        event("output_text.delta", item_id="m", delta="b"),
        event("output_item.done", item={"type": "message", "id": "m"}),
    )
    assert response.text == "ab"


def test_an_item_that_is_only_done_has_all_its_parts() -> None:
    response = read(
        done(0, type="message", id="m", phase="final_answer", content=[text_part("hi")]),
        done(1, type="function_call", id="fc", call_id="c", name="look", arguments='{"a":1}'),
        done(2, type="custom_tool_call", id="ct", call_id="d", name="sh", input="ls"),
    )
    assert response.text == "hi"
    assert [(c.id, c.kind, c.params, c.format) for c in response.tool_calls] == [
        ("c", "function", '{"a":1}', "json"),
        ("d", "custom", "ls", "text"),
    ]
    assert response.finish_reason == "tool-calls"


def test_an_empty_message_is_an_empty_text() -> None:
    assert [type(item) for item in read(done(0, type="message", id="m")).items] == [TextItem]


def test_several_content_parts_are_several_texts_of_one_item() -> None:
    response = read(
        event("output_text.delta", output_index=0, content_index=0, item_id="m", delta="a"),
        event("output_text.delta", output_index=0, content_index=1, item_id="m", delta="b"),
        done(0, type="message", id="m", content=[text_part("a"), text_part("b")]),
    )
    assert [(i.id, i.text, i.item_id) for i in response.items if isinstance(i, TextItem)] == [
        ("m", "a", "m"),
        ("m:1", "b", "m"),
    ]


def test_a_call_is_announced_once_however_often_it_is_added() -> None:
    start = added(0, type="function_call", id="fc", call_id="c", name="look", arguments="")
    response = read(
        start,
        start | {"item": start["item"] | {"id": "other"}},
        event("function_call_arguments.delta", output_index=0, delta='{"a":'),
        event("function_call_arguments.delta", output_index=0, delta="1}"),
        event("function_call_arguments.done", output_index=0, arguments='{"a":1}'),
        done(0, type="function_call", id="x", call_id="c", name="look", arguments='{"a":1}'),
        done(0, type="function_call", id="x", call_id="c", name="look", arguments='{"a":1}'),
    )
    assert [(c.id, c.params, c.item_id) for c in response.tool_calls] == [("c", '{"a":1}', "fc")]
    assert codes(response) == ["item-id-contradicted", "start-repeated", "end-repeated"]


def test_arguments_that_come_only_at_the_end_are_one_delta() -> None:
    response = read(
        added(0, type="function_call", id="fc", call_id="c", name="look", arguments=""),
        done(0, type="function_call", id="fc", call_id="c", name="look", arguments='{"a":1}'),
    )
    assert [c.params for c in response.tool_calls] == ['{"a":1}']


def test_a_call_gets_its_name_at_its_end_if_not_before() -> None:
    response = read(
        added(0, type="function_call", id="fc", call_id="c"),
        event("function_call_arguments.delta", output_index=0, delta="{}"),
        done(0, type="function_call", id="fc", call_id="c", name="look", arguments="{}"),
    )
    assert [(c.id, c.name) for c in response.tool_calls] == [("c", "look")]


def test_a_call_that_was_cut_is_invalid() -> None:
    response = read(
        done(0, type="function_call", call_id="c", name="f", arguments='{"a', status="incomplete")
    )
    assert [c.invalid for c in response.invalid_tool_calls] == ["bad-arguments"]


def test_reasoning_ends_with_its_item_and_the_final_encrypted_content() -> None:
    response = read(
        added(0, type="reasoning", id="rs", encrypted_content="provisional"),
        event("reasoning_summary_part.added", output_index=0, summary_index=0),
        event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="a"),
        event("reasoning_summary_part.done", output_index=0, summary_index=0),
        event("reasoning_summary_text.delta", output_index=0, summary_index=1, delta="b"),
        done(0, type="reasoning", id="rs", encrypted_content="final",
             summary=[{"text": "a"}, {"text": "bc"}]),
    )  # fmt: skip
    thoughts = [item for item in response.items if isinstance(item, ReasoningItem)]
    assert [(t.text, t.kind, t.encrypted, t.item_id) for t in thoughts] == [
        ("a", "summary", None, "rs"),
        ("bc", "summary", "final", "rs"),
    ]


def test_a_summary_part_that_begins_before_the_last_one_ended_is_reported() -> None:
    response = read(
        added(0, type="reasoning", id="rs"),
        event("reasoning_summary_part.added", output_index=0, summary_index=1),
        event("reasoning_summary_text.delta", output_index=0, summary_index=1, delta="b"),
        done(0, type="reasoning", id="rs", summary=[{"text": "a"}, {"text": "b"}]),
    )
    assert response.reasoning == "ab"
    assert "index-disordered" in codes(response)


@pytest.mark.parametrize("name", ["reasoning", "reasoning_text"])
def test_raw_reasoning_is_read_under_both_its_names(name: str) -> None:
    response = read(
        event("content_part.added", output_index=0, content_index=0,
              part={"type": "reasoning_text", "text": ""}),
        event(f"{name}.delta", output_index=0, content_index=0, delta="hmm"),
        event("content_part.done", output_index=0, content_index=0,
              part={"type": "reasoning_text", "text": "hmm"}),
        done(0, type="reasoning", id="rs", content=[{"type": "reasoning_text", "text": "hmm"}]),
    )  # fmt: skip
    (thought,) = response.items
    assert isinstance(thought, ReasoningItem)
    assert (thought.text, thought.kind) == ("hmm", "raw")


def test_reasoning_without_text_is_kept() -> None:
    (thought,) = read(done(0, type="reasoning", id="rs", encrypted_content="x", summary=[])).items
    assert isinstance(thought, ReasoningItem)
    assert (thought.text, thought.encrypted, thought.origin) == ("", "x", "openai-responses")


def test_a_refusal_is_a_text_and_decides_the_finish_reason() -> None:
    response = read(
        event("refusal.delta", output_index=0, content_index=0, delta="No"),
        event("refusal.done", output_index=0, content_index=0, refusal="No."),
        done(0, type="message", content=[{"type": "refusal", "refusal": "No."}]),
    )
    assert (response.refusal, response.finish_reason) == ("No.", "content-filter")


def test_annotations_are_sources_once_and_stay_with_their_text() -> None:
    citation = {"type": "url_citation", "url": "https://a.example", "title": "A",
                "start_index": 0, "end_index": 1}  # fmt: skip
    file = {"type": "file_citation", "file_id": "f1", "filename": "a.txt"}
    response = read(
        said(0, "x"),
        event("output_text.annotation.added", output_index=0, content_index=0,
              annotation_index=0, annotation=citation),
        event("output_text.annotation.added", output_index=0, content_index=0,
              annotation_index=0, annotation=citation),
        event("output_text.annotation.added", output_index=0, content_index=0),
        done(0, type="message", content=[{**text_part("x"), "annotations": [citation, file]}]),
    )  # fmt: skip
    first, second = [item for item in response.items if isinstance(item, Source)]
    assert (first.kind, first.url, first.title, first.start, first.end) == (
        "url", "https://a.example", "A", 0, 1,
    )  # fmt: skip
    assert (second.kind, second.file_id, second.title) == ("document", "f1", "a.txt")
    (text,) = [item for item in response.items if isinstance(item, TextItem)]
    assert [json.loads(bytes(raw)) for raw in text.annotations] == [citation, file]


CITED = [{"type": "url_citation", "url": f"https://{name}.example"} for name in "abc"]


def annotated(indexes: Sequence[int | None]) -> list[dict[str, Any]]:
    """All of them, under these indexes."""
    return [
        event("output_text.annotation.added", output_index=0, content_index=0,
              annotation_index=index, annotation=one)
        for index, one in zip(indexes, CITED, strict=True)
    ]  # fmt: skip


@QUICK
@given(indexes=st.lists(st.none() | st.integers(0, 3), min_size=3, max_size=3))
def test_each_annotation_is_a_source_whatever_its_index(indexes: list[int | None]) -> None:
    response = read(said(0, "x"), *annotated(indexes))
    sources = [item.url for item in response.items if isinstance(item, Source)]
    assert sources == [one["url"] for one in CITED]


@pytest.mark.parametrize("indexes", [(0, 2, None), (1, 2, None), (2, None, None), (0, 0, 0)])
def test_the_list_of_a_finished_text_repeats_its_annotations(
    indexes: tuple[int | None, ...],
) -> None:
    whole = done(0, type="message", content=[{**text_part("x"), "annotations": CITED}])
    response = read(said(0, "x"), *annotated(indexes), whole)
    sources = [item for item in response.items if isinstance(item, Source)]
    assert [source.url for source in sources] == [one["url"] for one in CITED]


def test_an_annotation_that_its_list_contradicts_stays_as_it_was_streamed() -> None:
    cite = {"type": "url_citation", "url": "https://a.example"}
    other = {"type": "url_citation", "url": "https://b.example"}
    response = read(
        said(0, "x"),
        event("output_text.annotation.added", output_index=0, content_index=0,
              annotation_index=0, annotation=cite),
        done(0, type="message", content=[{**text_part("x"), "annotations": [other]}]),
    )  # fmt: skip
    assert [item.url for item in response.items if isinstance(item, Source)] == [cite["url"]]
    assert codes(response)[-1] == "whole-contradicts"


def test_items_without_parts_of_their_own_are_opaque() -> None:
    item = {"type": "compaction", "id": "cmp", "encrypted_content": "z", "arguments": {"a": 1}}
    found = read(added(0, **item), done(0, **item))
    (opaque,) = found.items
    assert isinstance(opaque, Opaque)
    assert (opaque.kind, json.loads(bytes(opaque.raw))) == ("compaction", item)
    (unknown,) = read(event("output_item.done", output_index=0)).items
    assert isinstance(unknown, Opaque)
    assert unknown.kind == "unknown"


def test_the_parts_of_an_item_decide_its_type_if_that_is_unknown() -> None:
    text = read(
        added(0, type="messa", id="m"),
        said(0, "x"),
        done(0, type="message", content=[text_part("x")]),
    )
    assert [type(item) for item in text.items] == [TextItem]
    call = read(
        added(0, type="func", id="fc"),
        event("function_call_arguments.delta", output_index=0, delta='{"a":1}'),
        done(0, type="function_call", id="fc", call_id="c", name="look", arguments='{"a":1}'),
    )
    assert [(c.id, c.params) for c in call.tool_calls] == [("c", '{"a":1}')]
    assert call.invalid_tool_calls == ()


def test_params_without_an_item_are_a_call_without_a_name() -> None:
    lost = read(event("function_call_arguments.delta", output_index=0, item_id="fc", delta="{"))
    assert [(c.id, c.params, c.invalid) for c in lost.invalid_tool_calls] == [
        ("fc", "{", "nameless")
    ]


def test_an_item_that_is_not_an_object_is_ignored() -> None:
    response = read({"type": "response.output_item.done", "output_index": 0, "item": "text"})
    assert (response.items, codes(response)) == ((), ["event-unknown"])


def test_progress_and_pings_become_no_parts_and_unknown_events_are_reported_once() -> None:
    response = read(
        event("in_progress"),
        event("web_search_call.searching", output_index=0),
        {"type": "ping"},
        event("surprise"),
        event("surprise"),
        said(0, ""),
        event("refusal.delta", output_index=1, delta=""),
        event("reasoning.delta", output_index=2, delta=""),
        event("reasoning_summary_text.delta", output_index=2, delta=""),
        event("function_call_arguments.delta", output_index=3, delta=""),
    )
    assert codes(response).count("event-unknown") == 1
    assert response.text == ""


def test_an_event_that_is_repeated_is_dropped() -> None:
    twice = {**said(0, "a"), "sequence_number": 2}
    message = {"type": "message", "id": "m", "content": [text_part("a")]}
    response = read(added(0, **message), twice, twice, done(0, **message))
    assert (response.text, codes(response)) == ("a", ["frame-replayed"])


@pytest.mark.parametrize(
    "failure",
    [
        {"type": "error", "code": "quota", "message": "no more"},
        {"type": "error", "error": {"type": "x", "code": "quota", "message": "no more"}},
        {"error": {"code": "quota", "message": "no more"}},
        {"type": "response.failed", "response": {
            "status": "failed", "error": {"code": "quota", "message": "no more"}}},
    ],
)  # fmt: skip
def test_an_error_is_one_error_in_all_its_shapes(failure: dict[str, Any]) -> None:
    failed = {"type": "response.failed", "response": {
        "status": "failed", "error": {"code": "other", "message": "again"}}}  # fmt: skip
    (one,) = decode_all(capture(CREATED, said(0, "a"), failure, failed), "openai-responses")
    response = one.response
    assert response.error is not None
    assert (response.error.message, response.error.code) == ("no more", "quota")
    assert (response.text, response.finish_reason) == ("a", "error")
    told_first = failure.get("type") == "response.failed"
    assert response.raw_finish_reason == ("quota" if told_first else "other")


@pytest.mark.parametrize(
    ("status", "why", "reason"),
    [
        ("incomplete", "max_output_tokens", "length"),
        ("incomplete", "content_filter", "content-filter"),
        ("incomplete", "steered", "other"),
        ("cancelled", None, "error"),
        ("failed", None, "error"),
    ],
)
def test_the_terminal_status_decides_the_reason(status: str, why: str | None, reason: str) -> None:
    body = {"id": "r", "status": status, "incomplete_details": why and {"reason": why}}
    end = {"type": "response.incomplete", "response": body}
    (one,) = decode_all(capture(CREATED, said(0, "a"), end), "openai-responses")
    assert one.response.finish_reason == reason
    assert one.response.raw_finish_reason == (why or status)


def test_a_tool_session_that_waits_finishes_with_tool_calls() -> None:
    call = done(0, type="function_call", call_id="c", name="f", arguments="{}")
    end = {"type": "response.completed", "response": {"status": "incomplete"}}
    raw = capture(CREATED, call, event("required_action"), end)
    (one,) = decode_all(raw, "openai-responses")
    assert one.response.finish_reason == "tool-calls"


def test_a_body_is_decoded_like_a_stream() -> None:
    body = {
        "object": "response",
        "status": "completed",
        "output": [{"type": "message", "id": "m", "content": [text_part("hi")]}],
    }
    (one,) = decode_all(json.dumps(body, indent=1).encode(), "openai-responses")
    assert (one.response.text, one.response.finish_reason) == ("hi", "stop")
    assert one.response.id.startswith("resp_")


def test_a_frame_that_is_not_json_is_malformed_and_a_cut_one_truncated() -> None:
    start = capture(CREATED).removesuffix(b"data: [DONE]\n\n")
    for tail, kind in ((b"data: {x}\n\n", "malformed"), (b'data: {"ty', "empty")):
        (one,) = decode_all(start + tail, "openai-responses")
        assert one.response.error is not None
        assert one.response.error.kind == kind


def test_what_follows_the_terminal_event_is_dropped() -> None:
    response = decode_all(capture(CREATED, said(0, "a"), COMPLETED, said(0, "b")),
                          "openai-responses")[0].response  # fmt: skip
    assert response.text == "a"
    assert "after-finish" in codes(response)


def test_it_reads_bytes_in_any_pieces() -> None:
    raw = capture(CREATED, said(0, "é"), done(0, type="message", content=[text_part("é")]),
                  COMPLETED)  # fmt: skip
    decoder = Decoder("openai-responses", context=Context(ids=Ids(b"1")))
    seen = [part for at in range(len(raw)) for part in decoder.feed(raw[at : at + 1])]
    assert [part.delta for part in seen if isinstance(part, TextDelta)] == ["é"]
    assert decoder.finish() == []


def test_a_salvaged_event_still_counts() -> None:
    message = {"type": "message", "id": "m", "content": [text_part("a")]}
    response = read(added(0, **message), said(0, "a", item_id=7), done(0, **message))
    assert response.text == "a"
    assert codes(response) == ["field-coerced", "item-id-contradicted"]


# The ground rules of the wire


CALL: dict[str, Any] = {"type": "function_call", "id": "fc", "call_id": "c", "name": "look"}
MESSAGE: dict[str, Any] = {"type": "message", "id": "m"}


def args(index: int, delta: str) -> dict[str, Any]:
    return event("function_call_arguments.delta", output_index=index, delta=delta)


def test_g1_the_first_id_at_an_index_is_kept() -> None:
    response = read(
        added(0, type="image_generation_call", id="one"),
        event("image_generation_call.partial_image", output_index=0, item_id="two",
              partial_image_b64="QQ=="),
        done(0, type="image_generation_call", id="three", result="Qg=="),
        added(1, type="reasoning", id="four", summary=[]),
        event("reasoning_summary_text.delta", output_index=1, item_id="five", summary_index=0,
              delta="hm"),
        done(1, type="reasoning", id="six", summary=[{"text": "hm"}]),
    )  # fmt: skip
    ids = [one.id for one in response.items if isinstance(one, ToolCall | ToolResult)]
    assert ids == ["one", "one", "one"]
    assert [one.id for one in response.items if isinstance(one, ReasoningItem)] == ["four:0"]
    assert codes(response) == ["item-id-contradicted"]


def test_g2_without_an_index_the_item_id_identifies_the_item() -> None:
    response = read(
        {"type": "response.output_item.added", "item": MESSAGE},
        {"type": "response.output_item.added", "item": CALL},
        event("content_part.added", item_id="m", part=text_part("")),
        event("output_text.delta", item_id="m", delta="a"),
        event("function_call_arguments.delta", item_id="fc", delta="{}"),
        event("output_text.delta", item_id="m", delta="b"),
        {"type": "response.output_item.done", "item": {**CALL, "arguments": "{}"}},
        {"type": "response.output_item.done", "item": {**MESSAGE, "content": [text_part("ab")]}},
    )
    assert (response.text, [call.id for call in response.tool_calls]) == ("ab", ["c"])
    assert codes(response) == ["index-missing"]


def test_g3_another_response_knows_no_earlier_items() -> None:
    second = created(id="resp_2")
    cite = {"type": "url_citation", "url": "https://a.example"}
    annotate = event("output_text.annotation.added", output_index=0, annotation=cite)
    stream = (CREATED, added(0, **MESSAGE), opened(0), said(0, "a"), annotate)
    both = decode_all(capture(*stream, second, *stream[1:], COMPLETED), DIALECT)
    assert [(one.response.id, one.response.text) for one in both] == [
        ("resp_1", "a"),
        ("resp_2", "a"),
    ]
    assert [one.response.finish_reason for one in both] == ["error", "stop"]
    decoder = Decoder(DIALECT, context=Context(ids=Ids(b"1")))
    merged = decoder.feed(capture(*stream, second, *stream[1:], COMPLETED)) + decoder.finish()
    assert decoder.response.error is not None
    assert (decoder.response.error.kind, decoder.response.text) == ("truncated", "a")
    assert merged[-2] == TextEnd("m", (raw(cite),))
    assert [part.type for part in merged][-3:] == ["error", "text-end", "finish"]
    decoder = Decoder(DIALECT, context=Context(ids=Ids(b"1")))
    decoder.feed(capture(*stream, CREATED, done(0, **MESSAGE), COMPLETED))
    assert (decoder.response.text, codes(decoder.response)) == ("a", ["metadata-repeated"])


def test_g1_items_that_share_an_id_share_nothing_else() -> None:
    thought = {"type": "reasoning", "id": "rs", "summary": []}
    summary = [event("reasoning_summary_text.delta", output_index=at, delta=f"t{at}")
               for at in (2, 3)]  # fmt: skip
    response = read(
        added(0, **MESSAGE), added(1, **MESSAGE), added(2, **thought), added(3, **thought),
        opened(0), said(0, "a"), opened(1), said(1, "b"), said(0, "c"), *summary,
        done(1, **MESSAGE), done(0, **MESSAGE), done(3, **thought), done(2, **thought),
    )  # fmt: skip
    texts = [one for one in response.items if isinstance(one, TextItem)]
    assert [(one.id, one.text) for one in texts] == [("m", "ac"), ("m_2", "b")]
    thoughts = [one for one in response.items if isinstance(one, ReasoningItem)]
    assert [(one.id, one.text) for one in thoughts] == [("rs:0", "t2"), ("rs:0_2", "t3")]
    assert codes(response) == ["item-id-contradicted", "id-reused", "id-reused"]


def test_g4_items_overlap_and_end_in_any_order() -> None:
    response = read(
        added(0, type="web_search_call", id="w0"),
        added(1, **CALL),
        added(2, **MESSAGE),
        args(1, '{"a":'),
        opened(2),
        said(2, "x"),
        args(1, "1}"),
        done(2, **MESSAGE, content=[text_part("x")]),
        done(1, **CALL, arguments='{"a":1}'),
        done(0, type="web_search_call", id="w0", action={"type": "search"}),
    )
    assert [type(one).__name__ for one in response.items] == [
        "ToolCall", "ToolCall", "TextItem", "ToolResult",
    ]  # fmt: skip
    assert response.findings == ()


def test_g5_full_texts_are_compared_and_never_appended() -> None:
    message = {**MESSAGE, "content": [text_part("Hello")]}
    end = {**COMPLETED, "response": {**COMPLETED["response"], "output": [message]}}
    response = decoded(
        CREATED,
        added(0, **MESSAGE),
        opened(0),
        said(0, "Hello"),
        event("output_text.done", output_index=0, content_index=0, text="Hello"),
        event("content_part.done", output_index=0, content_index=0, part=text_part("Hello")),
        done(0, **message),
        end,
    ).response
    assert (response.text, response.findings) == ("Hello", ())


@pytest.mark.parametrize(
    ("deltas", "whole", "text", "found"),
    [
        (["He"], "Hello", "Hello", ["whole-extends"]),
        ([], "Hello", "Hello", ["whole-extends"]),
        (["Hello"], "Hello", "Hello", []),
        (["Hello"], "Hell", "Hello", ["whole-contradicts"]),
        (["Bye"], "Hello", "Bye", ["whole-contradicts"]),
    ],
)
def test_g6_a_full_value_completes_the_deltas_and_never_corrects_them(
    deltas: list[str], whole: str, text: str, found: list[str]
) -> None:
    for name in ("reasoning", "message"):
        key = "summary" if name == "reasoning" else "content"
        kind = "reasoning_summary_text" if name == "reasoning" else "output_text"
        pieces = [event(f"{kind}.delta", output_index=0, delta=one) for one in deltas]
        last = {"type": name, "id": "i", key: [{"type": "output_text", "text": whole}]}
        begun = [added(0, type=name, id="i"), *([opened(0)] if name == "message" else [])]
        response = read(*begun, *pieces, done(0, **last))
        assert (response.text or response.reasoning, codes(response)) == (text, found)


def test_g7_a_call_that_is_added_again_starts_nothing() -> None:
    twin = {**CALL, "id": "fc_2"}
    events = [
        added(0, **CALL, arguments=""),
        args(0, '{"a":1}'),
        added(1, **twin, arguments='{"a":1}'),
        args(1, '{"a":1}'),
        event("function_call_arguments.done", output_index=1, arguments='{"a":1}'),
        done(1, **twin, arguments='{"a":1}'),
    ]
    response = read(*events)
    assert [(call.id, call.item_id) for call in response.tool_calls] == [("c", "fc")]
    assert codes(response) == ["call-repeated"]
    after = read(*events[:2], done(0, **CALL, arguments='{"a":1}'), *events[2:])
    assert [(call.id, call.params) for call in after.tool_calls] == [("c", '{"a":1}')]
    both = read(*events, done(0, **CALL, arguments='{"a":1}'))
    assert [(call.id, call.params) for call in both.tool_calls] == [("c", '{"a":1}')]
    begun = read(*events[:2], done(0, **CALL, arguments='{"a":1}'), *events[2:4])
    assert [(call.id, call.invalid) for call in begun.items if isinstance(call, ToolCall)] == [
        ("c", None)
    ]


def test_g7_a_call_that_is_repeated_with_other_spaces_is_one_call() -> None:
    first = (added(0, **CALL), done(0, **CALL, arguments='{"a":1}'))
    response = read(*first, done(1, **{**CALL, "id": "fc_2"}, arguments='{ "a": 1 }'))
    assert [(call.id, call.params) for call in response.tool_calls] == [("c", '{"a":1}')]
    assert "call-repeated" in codes(response)


def test_g7_another_call_under_the_same_id_is_not_lost() -> None:
    first = (added(0, **CALL), done(0, **CALL, arguments='{"a":1}'))
    for other in ({**CALL, "id": "fc_2", "arguments": '{"a":2}'},
                  {**CALL, "id": "fc_2", "name": "read", "arguments": '{"a":1}'}):  # fmt: skip
        for begun in ([added(1, **{**other, "arguments": ""}), args(1, other["arguments"])], []):
            response = read(*first, *begun, done(1, **other), done(1, **other))
            assert [(call.id, call.name, call.params) for call in response.tool_calls] == [
                ("c", "look", '{"a":1}'),
                ("c_2", other["name"], other["arguments"]),
            ]
            assert "call-id-collision" in codes(response)


def test_g7_an_index_that_is_used_again_is_another_item() -> None:
    response = read(
        added(0, **MESSAGE),
        opened(0),
        said(0, "a"),
        done(0, **MESSAGE, content=[text_part("a")]),
        added(0, **CALL),
        args(0, "{}"),
        done(0, **CALL, arguments="{}"),
        done(0, **{**CALL, "id": "fc_2", "call_id": "d"}, arguments="{}"),
    )
    assert (response.text, [call.id for call in response.tool_calls]) == ("a", ["c", "d"])
    assert codes(response)[0] == "call-index-reused"


def test_g7_items_with_the_same_index_are_told_apart() -> None:
    second = {**MESSAGE, "id": "m2"}
    response = read(
        added(0, **MESSAGE),
        opened(0),
        said(0, "a"),
        done(0, **MESSAGE, content=[text_part("a")]),
        added(0, **second),
        opened(0),
        said(0, "b"),
        done(0, **second, content=[text_part("b")]),
    )
    texts = [one for one in response.items if isinstance(one, TextItem)]
    assert [(one.id, one.text) for one in texts] == [("m", "a"), ("m2", "b")]
    assert codes(response) == ["call-index-reused"]
    again = read(added(0, **MESSAGE), done(0, **MESSAGE), added(0, **MESSAGE))
    assert codes(again) == ["start-repeated"]


def test_g8_an_item_that_is_only_done_is_complete() -> None:
    found = parts(done(0, **CALL, arguments='{"a":1}'))
    assert found == [
        ToolParamsStart("c", "look", item_id="fc"),
        ToolParamsDelta("c", '{"a":1}'),
        ToolParamsEnd("c"),
        ToolCall("c", "look", '{"a":1}', item_id="fc"),
    ]
    text = parts(done(0, **MESSAGE, content=[text_part("hi")]))
    assert text == [TextStart("m", "m"), TextDelta("m", "hi"), TextEnd("m")]
    assert codes(read(done(0, **CALL, arguments="{}"))) == ["start-missing"]


def test_g8_deltas_wait_for_the_item_they_belong_to() -> None:
    response = read(
        args(0, '{"a":'),
        event("code_interpreter_call_code.delta", output_index=1, item_id="ci", delta="x"),
        added(0, **CALL),
        added(1, type="code_interpreter_call", id="ci", container_id="k"),
        args(0, "1}"),
        event("code_interpreter_call_code.delta", output_index=1, delta="y"),
        done(0, **CALL, arguments='{"a":1}'),
        done(1, type="code_interpreter_call", id="ci", container_id="k", code="xy"),
    )
    assert [call.params for call in response.tool_calls] == [
        '{"a":1}',
        '{"container_id":"k","code":"xy"}',
    ]
    assert codes(response) == ["start-missing", "start-missing"]


def test_g9_a_call_without_a_name_is_never_announced() -> None:
    nameless = {**CALL, "name": ""}
    late = read(added(0, **nameless), args(0, "{}"), done(0, **CALL, arguments="{}"))
    assert [call.name for call in late.tool_calls] == ["look"]
    never = parts(added(0, **nameless), args(0, '{"a":1}'),
                  done(0, **nameless, arguments='{"a":1}'))  # fmt: skip
    assert never == [ToolCall("c", "", '{"a":1}', invalid="nameless", item_id="fc")]


def test_g9_a_call_without_an_id_waits_for_it() -> None:
    anonymous = {key: CALL[key] for key in ("type", "id", "name")}
    late = read(added(0, **anonymous), args(0, "{}"), done(0, **CALL, arguments="{}"))
    assert [call.id for call in late.tool_calls] == ["c"]
    never = read(added(0, **anonymous), args(0, "{}"), done(0, **anonymous, arguments="{}"))
    assert [call.id for call in never.tool_calls] == ["fc"]


def test_g10_what_is_still_open_is_closed_before_the_finish() -> None:
    open_items = [
        added(0, **MESSAGE), opened(0), said(0, "a"),
        added(1, type="reasoning", id="rs", summary=[]),
        added(2, **CALL), args(2, '{"a"'),
        added(3, type="web_search_call", id="ws"),
    ]  # fmt: skip
    whole = decoded(CREATED, *open_items, COMPLETED)
    assert [part.type for part in whole.parts][-1] == "finish"
    assert [call.invalid for call in whole.response.invalid_tool_calls] == ["stream-failed"] * 2
    assert codes(whole.response) == ["end-missing"] * 4
    cut = decoded(CREATED, *open_items)
    types = [part.type for part in cut.parts]
    assert types[types.index("error") + 1 :] == [
        "text-end", "reasoning-end", "tool-params-end", "tool-call", "tool-params-end",
        "tool-call", "finish",
    ]  # fmt: skip
    assert cut.response.error is not None
    assert cut.response.error.kind == "truncated"


def test_g11_a_split_surrogate_pair_is_joined() -> None:
    high, low = "\ud83d", "\ude00"
    text = read(added(0, **MESSAGE), opened(0), said(0, f"a{high}"), said(0, f"{low}b"),
                done(0, **MESSAGE, content=[text_part("a😀b")]))  # fmt: skip
    assert (text.text, codes(text)) == ("a😀b", ["surrogate-lone"])
    box = {"type": "code_interpreter_call", "id": "ci", "container_id": "k"}
    code = read(
        added(0, **box),
        event("code_interpreter_call_code.delta", output_index=0, delta=high),
        event("code_interpreter_call_code.delta", output_index=0, delta=low),
        event("code_interpreter_call_code.done", output_index=0, code="😀"),
        done(0, **box, code="😀"),
    )
    assert json.loads(code.tool_calls[0].params) == {"container_id": "k", "code": "😀"}
    assert code.findings == ()
    lost = read(added(0, **MESSAGE), said(0, f"a{high}"), done(0, **MESSAGE))
    assert lost.text == "a\ufffd"
    params = read(added(0, **CALL), args(0, f'"{high}'), args(0, f'{low}"'),
                  done(0, **CALL, arguments='"😀"'))  # fmt: skip
    assert [call.params for call in params.tool_calls] == ['"😀"']


@pytest.mark.parametrize(
    "events",
    [
        [{"type": "error", "code": "\ud83d", "message": "\ud83d"}],
        [{"type": "response.failed", "response": {"error": {"code": "\ud83d"}}}],
        [done(0, type="program", id="p", call_id="c", code="\ud83d", fingerprint="\ud83d")],
        [event("code_interpreter_call_code.done", output_index=0, code="\ud83d"),
         added(0, type="custom_tool_call", id="i", call_id="c", name="n")],
        [event("apply_patch_call_operation_diff.done", output_index=0, diff="\ud83d"),
         added(0, **CALL)],
        [done(0, type="mcp_call", id="i", name="\ud83d", output="\ud83d", arguments="\ud83d")],
        [done(0, type="message", id="\ud83d", content=[text_part("\ud83d", {"url": "\ud83d"})])],
        [done(0, type="reasoning", id="i", summary=[{"text": "\ud83d"}])],
        [done(0, type="computer_call", id="i", call_id="\ud83d", status="\ud83d")],
        [done(0, type="surprise", id="i", any=["\ud83d"])],
    ],
)  # fmt: skip
def test_g11_no_part_has_a_lone_surrogate(events: list[dict[str, Any]]) -> None:
    for one in (decoded(CREATED, *events, COMPLETED), decoded(CREATED, *events)):
        assert b"".join(map(msgspec.json.encode, one.parts)).decode()


# The order of parts


def everything() -> list[dict[str, Any]]:
    """A good stream with an item of nearly every type."""
    action = {"type": "search", "query": "q"}
    box = {"type": "code_interpreter_call", "id": "ci", "container_id": "k"}
    image = {"type": "image_generation_call", "id": "ig"}
    patch = {"type": "apply_patch_call", "id": "ap", "call_id": "p"}
    operation = {"type": "create_file", "path": "a"}
    cite = {"type": "url_citation", "url": "https://a.example"}
    mcp = {"type": "mcp_call", "id": "mc", "name": "far", "server_label": "s", "arguments": "{}"}
    ask = {"type": "mcp_approval_request", "id": "ar", "name": "far", "arguments": '{"b":1}'}
    return [
        CREATED,
        event("in_progress", response={"id": "resp_1"}),
        added(0, type="reasoning", id="rs", summary=[], encrypted_content="early"),
        event("reasoning_summary_part.added", output_index=0, summary_index=0),
        event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="hm"),
        event("reasoning_summary_part.done", output_index=0, summary_index=0),
        event("reasoning_summary_part.added", output_index=0, summary_index=1),
        event("reasoning_summary_text.delta", output_index=0, summary_index=1, delta="so"),
        done(0, type="reasoning", id="rs", summary=[{"text": "hm"}, {"text": "so"}],
             encrypted_content="late"),
        added(1, type="web_search_call", id="ws"),
        done(1, type="web_search_call", id="ws", action=action),
        added(2, **box),
        event("code_interpreter_call_code.delta", output_index=2, delta="1"),
        event("code_interpreter_call_code.done", output_index=2, code="1"),
        done(2, **box, code="1", outputs=[]),
        added(3, **image),
        event("image_generation_call.partial_image", output_index=3, partial_image_b64="QQ=="),
        done(3, **image, result="Qg=="),
        added(4, **mcp),
        event("mcp_call_arguments.delta", output_index=4, delta="{}"),
        done(4, **mcp, output="ok"),
        added(5, **MESSAGE, phase="commentary"),
        event("content_part.added", output_index=5, content_index=0, part=text_part("")),
        event("output_text.delta", output_index=5, content_index=0, delta="Hello"),
        event("output_text.annotation.added", output_index=5, content_index=0,
              annotation_index=0, annotation=cite),
        done(5, **MESSAGE, phase="commentary", content=[text_part("Hello", cite)]),
        added(6, **patch, operation=operation),
        event("apply_patch_call_operation_diff.delta", output_index=6, delta="+a"),
        event("apply_patch_call_operation_diff.done", output_index=6, diff="+a"),
        done(6, **patch, operation={**operation, "diff": "+a"}),
        added(7, **CALL),
        args(7, '{"a":1}'),
        done(7, **CALL, arguments='{"a":1}'),
        added(8, **ask),
        done(8, **ask),
        added(9, type="compaction", id="cmp", encrypted_content="short"),
        done(9, type="compaction", id="cmp", encrypted_content="much longer"),
        COMPLETED,
    ]  # fmt: skip


def good() -> list[Any]:
    one = decoded(*everything())
    assert one.response.findings == ()
    return one.parts


def of(kind: type, found: list[Any]) -> list[Any]:
    return [part for part in found if isinstance(part, kind)]


def test_i1_metadata_comes_first_and_finish_last_each_once() -> None:
    types = [part.type for part in good()]
    assert (types[0], types[-1]) == ("response-metadata", "finish")
    assert (types.count("response-metadata"), types.count("finish")) == (1, 1)


def test_i2_every_start_has_its_deltas_and_one_end() -> None:
    found = good()
    for start, end in ((TextStart, TextEnd), (ReasoningStart, ReasoningEnd),
                       (ToolParamsStart, ToolParamsEnd)):  # fmt: skip
        ids = [part.id for part in of(start, found)]
        assert sorted(ids) == sorted(part.id for part in of(end, found))
        assert len(ids) == len(set(ids)) > 0


def test_i3_joined_deltas_are_the_params() -> None:
    found = good()
    calls = {call.id: call for call in of(ToolCall, found)}
    for start in of(ToolParamsStart, found):
        pieces = [part for part in of(ToolParamsDelta, found) if part.id == start.id]
        assert "".join(str(part.delta) for part in pieces) == calls[start.id].params
        types = [part.type for part in found if getattr(part, "id", None) == start.id]
        assert types.index("tool-params-end") < types.index("tool-call")


def test_i4_one_call_an_id_and_results_only_after_it() -> None:
    seen: set[str] = set()
    for part in good():
        if isinstance(part, ToolCall):
            assert part.id not in seen
            seen.add(part.id)
        elif isinstance(part, ToolResult):
            assert part.id in seen or part.earlier
    assert len(seen) == 7


def test_i5_preliminary_results_stand_before_the_last_one() -> None:
    shown = [part.preliminary for part in of(ToolResult, good()) if part.id == "ig"]
    assert shown == [True, False]


def test_i6_every_call_has_a_name_and_usable_params() -> None:
    for call in of(ToolCall, good()):
        assert call.name
        assert json.loads(call.params) is not None
    bad = read(added(0, **CALL), args(0, "{x"), done(0, **CALL, arguments="{x"))
    assert [call.invalid for call in bad.invalid_tool_calls] == ["bad-arguments"]


@pytest.mark.parametrize("last", [[COMPLETED], [], [{"type": "error", "message": "no"}]])
def test_i7_every_annotation_is_in_one_text_end(last: list[dict[str, Any]]) -> None:
    cite = {"type": "url_citation", "url": "https://a.example"}
    odd = {"type": "moon_citation"}
    annotate = [
        event("output_text.annotation.added", output_index=0, content_index=0, annotation=one)
        for one in (cite, odd)
    ]
    found = decoded(CREATED, added(0, **MESSAGE), said(0, "a"), *annotate, *last).parts
    assert [part.annotations for part in of(TextEnd, found)] == [(raw(cite), raw(odd))]
    assert len(of(Source, found)) == 1


def test_i8_reasoning_that_ended_stays_ended_and_the_last_end_has_the_encrypted_content() -> None:
    ends = of(ReasoningEnd, good())
    assert [(end.id, end.encrypted) for end in ends] == [("rs:0", None), ("rs:1", "late")]
    late = decoded(
        CREATED,
        added(0, type="reasoning", id="rs", summary=[]),
        event("reasoning_summary_text.delta", output_index=0, delta="a"),
        event("reasoning_summary_part.done", output_index=0, part={"text": "a"}),
        event("reasoning_summary_part.done", output_index=0, part={"text": "a"}),
        done(0, type="reasoning", id="rs", summary=[{"text": "a"}], encrypted_content="x"),
        COMPLETED,
    )  # fmt: skip
    assert of(ReasoningEnd, late.parts) == [
        ReasoningEnd("rs:0"),
        ReasoningEnd("rs:1", encrypted="x", origin=DIALECT),
    ]
    assert late.response.findings == ()


def test_i9_the_text_is_the_joined_deltas_whatever_follows_them() -> None:
    response = read(
        added(0, **MESSAGE),
        opened(0),
        said(0, "Hello"),
        event("output_text.done", output_index=0, content_index=0, text="Bye"),
        done(0, **MESSAGE, content=[text_part("Hello")]),
    )
    assert (response.text, response.findings) == ("Hello", ())
    empty = done(0, **MESSAGE, content=[text_part("")])
    other = read(added(0, **MESSAGE), opened(0), said(0, "Hello"), empty)
    assert (other.text, codes(other)) == ("Hello", ["whole-contradicts"])


def test_i10_numbers_and_indexes_with_gaps_lose_nothing() -> None:
    numbered = {**said(7, "a"), "sequence_number": 100}
    bare = {**said(7, "b"), "sequence_number": None}
    response = read(added(7, **MESSAGE), opened(7), numbered, bare, bare,
                    done(7, **MESSAGE, content=[text_part("abb")]))  # fmt: skip
    assert (response.text, codes(response)) == (
        "abb",
        ["index-disordered", "sequence-number-missing", "sequence-number-disordered"],
    )


def test_i11_an_item_that_is_never_done_is_done_by_the_terminal_event() -> None:
    cite = {"type": "url_citation", "url": "https://a.example"}
    output = [
        {**MESSAGE, "content": [text_part("Hello", cite)]},
        {**CALL, "arguments": '{"a":1}'},
        {"type": "web_search_call", "id": "ws", "action": {"type": "search"}},
    ]
    end = {**COMPLETED, "response": {**COMPLETED["response"], "output": output}}
    begun = (added(0, **MESSAGE), opened(0), said(0, "Hel"), added(1, **CALL), args(1, '{"a"'))
    search = added(2, type="web_search_call", id="ws")
    response = decoded(CREATED, *begun, search, end).response
    assert (response.text, [call.id for call in response.tool_calls]) == ("Hello", ["c", "ws"])
    assert response.finish_reason == "tool-calls"
    assert set(codes(response)) == {"end-missing", "whole-extends"}
    other = {**COMPLETED, "response": {**COMPLETED["response"], "output": output[1:]}}
    moved = decoded(CREATED, added(0, **MESSAGE), said(0, "Hel"), other).response
    assert (moved.text, moved.tool_calls) == ("Hel", ())  # another item at that index: not read
    thinking = added(0, type="reasoning", id="rs", summary=[])
    filtered = {**COMPLETED, "response": {**COMPLETED["response"], "output": output[:1]}}
    assert decoded(CREATED, thinking, filtered).response.reasoning == ""


def test_a_stream_without_items_has_them_in_its_terminal_event() -> None:
    output = [{**MESSAGE, "content": [text_part("hi")]}, {**CALL, "arguments": "{}"}]
    end = {**COMPLETED, "response": {**COMPLETED["response"], "output": output}}
    response = decoded(CREATED, end).response
    assert (response.text, [call.id for call in response.tool_calls]) == ("hi", ["c"])
    assert codes(response) == ["start-missing"]


def test_arguments_that_were_declared_done_are_a_call_even_if_the_item_is_not() -> None:
    begun = (added(0, **CALL), args(0, '{"a":1}'))
    told = event("function_call_arguments.done", output_index=0, arguments='{"a":1}')
    response = read(*begun, told)
    assert [call.params for call in response.tool_calls] == ['{"a":1}']
    assert (response.finish_reason, codes(response)) == ("tool-calls", ["end-missing"])
    assert [call.invalid for call in read(*begun).invalid_tool_calls] == ["stream-failed"]
    custom = {"type": "custom_tool_call", "id": "ct", "call_id": "c", "name": "sh"}
    text = event("custom_tool_call_input.done", output_index=0, input="ls")
    assert [call.params for call in read(added(0, **custom), text).tool_calls] == ["ls"]
    cut = decoded(CREATED, *begun, told).response
    assert [call.invalid for call in cut.invalid_tool_calls] == ["stream-failed"]


# Every name has a row


def names(union: object) -> set[str]:
    """The values of `type` in a union of the official client's models."""
    found: set[str] = set()
    for one in get_args(union):
        if hasattr(one, "model_fields"):
            found.update(get_args(one.model_fields["type"].annotation))
        else:
            found |= names(one)
    return found


MORE_EVENTS = [
    "response.apply_patch_call_operation_diff.delta",
    "response.apply_patch_call_operation_diff.done",
    "response.reasoning.delta",
    "response.reasoning.done",
    "response.done",
    "response.required_action",
    "response.steer.accepted",
    "response.steer.failed",
    "response.steer.pending",
    "response.create",
    "response.cancel",
    "keepalive",
    "ping",
]
"""What turns up on the wire beside the official client's union."""


def test_every_event_of_the_official_client_has_a_row() -> None:
    known = names(sdk.ResponseStreamEvent)
    assert len(known) >= 59
    assert [name for name in known if name not in RESPONSE_EVENTS and name not in ITEM_EVENTS] == []


@pytest.mark.parametrize("name", MORE_EVENTS)
def test_every_other_event_has_a_row(name: str) -> None:
    assert name in RESPONSE_EVENTS or name in ITEM_EVENTS


def test_every_item_of_the_official_client_has_a_row() -> None:
    known = names(sdk.ResponseOutputItem)
    assert len(known) >= 28
    assert [name for name in known if name not in ITEMS] == []


ITEM_NAMES = [
    "additional_tools",
    "apply_patch_call",
    "apply_patch_call_output",
    "code_interpreter_call",
    "compaction",
    "computer_call",
    "computer_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "file_search_call",
    "function_call",
    "function_call_output",
    "image_generation_call",
    "local_shell_call",
    "local_shell_call_output",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "mcp_list_tools",
    "message",
    "program",
    "program_output",
    "reasoning",
    "shell_call",
    "shell_call_output",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
]
"""Every item that the wire is known to have."""


def test_the_items_with_rows_are_the_items_of_the_api() -> None:
    assert sorted(ITEMS) == ITEM_NAMES


@each_row("name", sorted({*RESPONSE_EVENTS, *ITEM_EVENTS} - {"response.created"}))
def test_any_event_may_come_alone(name: str) -> None:
    response = decoded(CREATED, {"type": name}, COMPLETED).response
    assert response.finish_reason is not None


REPLAYED = [
    name for name in ITEMS if name.endswith("_output") and ITEMS[name] is ITEMS["compaction"]
]


@pytest.mark.parametrize(
    "name", [*REPLAYED, "compaction", "mcp_list_tools", "mcp_approval_response", "additional_tools"]
)
def test_items_without_parts_of_their_own_are_written_back_unchanged(name: str) -> None:
    item = {"type": name, "id": "i", "output": {"a": 1}, "call_id": "c"}
    response = read(added(0, type=name, id="i", call_id="c"), done(0, **item))
    (opaque,) = response.items
    assert opaque == Opaque(DIALECT, name, raw(item))
    assert response.findings == ()


def test_audio_is_written_back_unchanged_and_control_events_are_reported() -> None:
    sound = event("audio.delta", delta="QQ==")
    response = read(sound, event("steer.accepted"), event("steer.accepted"))
    (opaque,) = response.items
    assert isinstance(opaque, Opaque)
    assert opaque.kind == "response.audio.delta"
    assert json.loads(bytes(opaque.raw))["delta"] == "QQ=="
    assert codes(response) == ["event-unknown"]


# Reasoning


def test_raw_reasoning_is_part_0_if_there_was_no_summary() -> None:
    start = added(0, type="reasoning", id="rs", summary=[], content=[])
    delta = event("reasoning_text.delta", output_index=0, content_index=0, delta="hmm")
    told = event("reasoning_text.done", output_index=0, content_index=0, text="hmm")
    content = [{"type": "reasoning_text", "text": "hmm"}]
    found = parts(start, delta, told, done(0, type="reasoning", id="rs", content=content))
    assert found == [
        ReasoningStart("rs:0", "raw", "rs"),
        ReasoningDelta("rs:0", "hmm"),
        ReasoningEnd("rs:0"),
    ]


def test_raw_reasoning_beside_a_summary_has_an_id_of_its_own() -> None:
    raw_delta = event("reasoning_text.delta", output_index=0, content_index=0, delta="hmm")
    summary_delta = event("reasoning_summary_text.delta", output_index=0, summary_index=0,
                          delta="so")  # fmt: skip
    both = {"summary": [{"text": "so"}], "content": [{"type": "reasoning_text", "text": "hmm"}]}
    item = {"type": "reasoning", "id": "rs"}
    for first, second, ids in (
        (raw_delta, summary_delta, ["rs:0", "rs:summary0"]),
        (summary_delta, raw_delta, ["rs:0", "rs:raw0"]),
    ):
        response = read(added(0, **item, content=[]), first, second, done(0, **item, **both))
        thoughts = [one for one in response.items if isinstance(one, ReasoningItem)]
        assert [one.id for one in thoughts] == ids
        assert {one.kind: one.text for one in thoughts} == {"raw": "hmm", "summary": "so"}
        assert response.findings == ()


def test_a_summary_part_that_never_began_has_no_end_unless_it_has_text() -> None:
    item = {"type": "reasoning", "id": "rs"}
    silent = read(event("reasoning_summary_part.done", output_index=0, summary_index=3),
                  done(0, **item))  # fmt: skip
    assert [one.id for one in silent.items if isinstance(one, ReasoningItem)] == ["rs:0"]
    told = read(
        added(0, **item),
        event("reasoning_summary_part.done", output_index=0, summary_index=1, part={"text": "b"}),
        event("reasoning_summary_text.done", output_index=0, summary_index=2, text="c"),
        done(0, **item),
    )
    assert told.reasoning == "bc"


def test_the_request_decides_whether_a_response_is_stored_if_the_response_does_not_say() -> None:
    events = [
        added(0, type="reasoning", id="rs", summary=[]),
        event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="a"),
        event("reasoning_summary_part.done", output_index=0, summary_index=0),
        {"type": "error", "message": "cut"},
    ]
    for store, ended in ((True, True), (False, False), (None, False)):
        context = with_request(Request("m", store=store))
        one = decoded(created(store=None), *events, context=context)
        types = [part.type for part in one.parts]
        assert (types.index("reasoning-end") < types.index("error")) is ended


def test_encrypted_content_in_an_envelope_is_unwrapped() -> None:
    sealed = wrap(Envelope("elsewhere", "m", ReasoningState(signature="sig")))
    response = read(done(0, type="reasoning", id="rs", encrypted_content=sealed))
    (thought,) = response.items
    assert isinstance(thought, ReasoningItem)
    assert (thought.signature, thought.encrypted, thought.origin) == ("sig", None, "elsewhere")


CARRIED = wrap(Envelope("elsewhere", "m", ReasoningState(signature="sig", call="c")))
SIGNED_CALL = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"}


def test_a_reasoning_item_that_only_carries_the_signature_of_a_call_becomes_no_part() -> None:
    thought = {"type": "reasoning", "id": "rs", "summary": []}
    found = parts(
        added(0, **thought, content=[]),
        done(0, **thought, encrypted_content=CARRIED),
        added(1, **{**SIGNED_CALL, "arguments": ""}),
        done(1, **SIGNED_CALL),
    )
    assert [part.type for part in found] == [
        "tool-params-start",
        "tool-params-delta",
        "tool-params-end",
        "tool-call",
    ]
    signed = [part for part in found if isinstance(part, ToolParamsStart | ToolCall)]
    assert [(part.signature, part.origin) for part in signed] == [("sig", "elsewhere")] * 2


def test_a_reasoning_that_carries_the_signature_of_a_call_keeps_its_text_only() -> None:
    summary = [{"type": "summary_text", "text": "hm"}]
    thought = {"type": "reasoning", "id": "rs", "summary": summary, "encrypted_content": CARRIED}
    said_before, call = read(done(0, **thought), done(1, **SIGNED_CALL)).items
    assert said_before == ReasoningItem("rs:0", "hm", "summary", item_id="rs")
    assert isinstance(call, ToolCall)
    assert (call.signature, call.origin) == ("sig", "elsewhere")


# Messages


def test_log_probabilities_a_late_phase_and_an_odd_status_stay_with_the_text() -> None:
    probable = [{"token": "a", "logprob": 0}]
    part = {**text_part("a"), "logprobs": probable}
    last = {**MESSAGE, "phase": "final_answer", "status": "incomplete", "content": [part]}
    found = parts(added(0, **MESSAGE), said(0, "a"), done(0, **last))
    extra = raw({"item": {"status": "incomplete"}, "phase": "final_answer", "logprobs": probable})
    assert found == [TextStart("m", "m"), TextDelta("m", "a"), TextEnd("m", extra=extra)]
    early = parts(done(0, **MESSAGE, phase="final_answer", content=[text_part("a")]))
    assert early[0] == TextStart("m", "m", phase="final_answer")


def test_unknown_content_parts_are_kept() -> None:
    odd = {"type": "output_song", "notes": [1]}
    response = read(
        added(0, **MESSAGE),
        event("content_part.added", output_index=0, content_index=0, part=odd),
        event("content_part.done", output_index=0, content_index=0, part=odd),
        done(0, **MESSAGE, content=[odd, text_part("a")]),
    )
    place = raw({"content": {"item_id": "m", "content_index": 0}})
    assert response.items[0] == Opaque(DIALECT, "output_song", raw(odd), place)
    assert (response.text, codes(response)) == ("a", ["event-unknown", "whole-extends"])


def test_a_refusal_beside_text_has_an_id_of_its_own() -> None:
    refusal = {"type": "refusal", "refusal": "No"}
    response = read(
        added(0, **MESSAGE),
        opened(0),
        said(0, "a"),
        event("content_part.added", output_index=0, content_index=1, part=refusal),
        event("refusal.delta", output_index=0, content_index=1, delta="No"),
        event("refusal.done", output_index=0, content_index=1, refusal="No"),
        done(0, **MESSAGE, content=[text_part("a"), refusal]),
    )
    texts = [one for one in response.items if isinstance(one, TextItem)]
    assert [(one.id, one.text, one.refusal) for one in texts] == [
        ("m", "a", False),
        ("m:refusal1", "No", True),
    ]
    assert (response.finish_reason, response.findings) == ("content-filter", ())


def test_an_item_without_a_type_gets_it_from_its_parts() -> None:
    text = read(event("output_text.delta", output_index=0, delta="a"), done(0, id="m"))
    assert (text.text, codes(text)) == ("a", ["start-missing"])
    thought = read(event("reasoning.delta", output_index=0, delta="a"), done(0, type="new"))
    assert thought.reasoning == "a"


def test_a_null_delta_becomes_no_part() -> None:
    nothing = event("output_text.delta", output_index=0, content_index=0, delta=None)
    response = read(added(0, **MESSAGE), opened(0), nothing, done(0, **MESSAGE, content=[]))
    assert ([one.text for one in response.items if isinstance(one, TextItem)], codes(response)) == (
        [""], [],
    )  # fmt: skip


# Custom calls


CUSTOM: dict[str, Any] = {"type": "custom_tool_call", "id": "ct", "call_id": "c", "name": "find"}


@pytest.mark.parametrize(
    ("tools", "hosted"),
    [
        (None, False),
        ([], False),
        ([{"type": "custom", "name": "other"}], False),
        ([{"type": "x_search"}], True),
        ([{"type": "x_search"}, {"type": "custom", "name": "find"}], False),
        ([{"type": "x_search"}, {"type": "tool_search"}], False),
    ],
)
def test_a_custom_call_is_hosted_only_if_the_declared_tools_say_so(
    tools: list[dict[str, Any]] | None, hosted: bool
) -> None:
    events = (
        added(0, **CUSTOM, input=""),
        event("custom_tool_call_input.delta", output_index=0, delta="x y"),
        event("custom_tool_call_input.done", output_index=0, input="x y"),
        done(0, **CUSTOM, input="x y", status="completed"),
    )
    response = decoded(created(tools=tools), *events, COMPLETED).response
    assert response.items == (
        ToolCall("c", "find", "x y", "custom", hosted, format="text", item_id="ct"),
    )
    assert response.finish_reason == ("stop" if hosted else "tool-calls")
    assert response.findings == ()


def test_the_tools_of_the_request_count_if_the_response_lists_none() -> None:
    asked = Request("m", tools=(Tool("search", "web_search"), Tool("find", "custom")))
    other = Request("m", tools=(Tool("search", "web_search"),))
    item = done(0, **CUSTOM, input="x")
    (mine,) = read(item, context=with_request(asked)).tool_calls
    (theirs,) = read(item, context=with_request(other)).tool_calls
    (named,) = read(done(0, **CUSTOM, input="x", namespace="n"),
                    context=with_request(other)).tool_calls  # fmt: skip
    assert [one.provider_executed for one in (mine, theirs, named)] == [False, True, False]


def test_arguments_that_are_an_object_become_its_json_text() -> None:
    response = at_once({**CALL, "arguments": {"a": 1}})
    assert [call.params for call in response.tool_calls] == ['{"a":1}']
    assert codes(response) == ["field-coerced"]


@pytest.mark.parametrize(
    ("arguments", "params"), [(b'"\\"\\ud83d\\""', '"\ufffd"'), (b"null", "{}"), (b"7", "7")]
)
def test_arguments_may_be_spelled_in_any_way(arguments: bytes, params: str) -> None:
    item = b'{"type":"function_call","id":"fc","call_id":"c","name":"f","arguments":%b}' % arguments
    (one,) = decode_all(b'{"object":"response","id":"r","output":[%b]}' % item, DIALECT)
    assert [call.params for call in one.response.tool_calls] == [params]


# The end


def test_other_fields_of_the_terminal_response_are_kept_in_the_finish() -> None:
    usage = {**COMPLETED["response"]["usage"], "cost": 7}
    context = {"effort": "low", "context": "auto"}
    more = {"service_tier": "flex", "conversation": {"id": "conv"}, "reasoning": context,
            "usage": usage}  # fmt: skip
    end = {**COMPLETED, "response": {**COMPLETED["response"], **more}}
    finish = decoded(CREATED, end).parts[-1]
    assert isinstance(finish, Finish)
    assert finish == Finish("stop", "completed", Usage(3, 4, 7, None, 1, None), "m-2",
                            extra=raw({"response": more}))  # fmt: skip
    assert decoded(CREATED, COMPLETED).parts[-1] == Finish(
        "stop", "completed", Usage(3, 4, 7, None, 1, None), "m-2"
    )


def test_unknown_usage_stays_unknown() -> None:
    for usage in (None, {}, {"input_tokens": None}):
        end = {"type": "response.failed", "response": {"status": "failed", "usage": usage}}
        assert decoded(CREATED, end).response.usage is None


@pytest.mark.parametrize(
    ("type", "reason", "raw_reason"),
    [
        ("response.completed", "stop", "completed"),
        ("response.done", "stop", "completed"),
        ("response.incomplete", "other", "incomplete"),
        ("response.failed", "error", "failed"),
    ],
)
def test_the_event_decides_the_status_if_the_response_has_none(
    type: str, reason: str, raw_reason: str
) -> None:
    response = decoded(CREATED, {"type": type}).response
    assert (response.finish_reason, response.raw_finish_reason) == (reason, raw_reason)


def test_a_limit_decides_the_finish_reason_even_with_calls() -> None:
    end = {"type": "response.incomplete", "response": {
        "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}}  # fmt: skip
    response = decoded(CREATED, done(0, **CALL, arguments="{}"), end).response
    assert (response.finish_reason, response.raw_finish_reason) == ("length", "max_output_tokens")


@pytest.mark.parametrize(
    ("error", "status", "retryable"),
    [
        ({"code": "insufficient_quota", "type": "insufficient_quota"}, 429, False),
        ({"code": "rate_limit_exceeded"}, 429, True),
        ({"code": "context_length_exceeded"}, 400, False),
        ({"type": "invalid_request_error", "param": "input"}, 400, False),
        ({"code": "server_error"}, 500, True),
        ({}, 500, True),
    ],
)
def test_an_error_has_the_http_status_of_its_class(
    error: dict[str, Any], status: int, retryable: bool
) -> None:
    found = decoded(CREATED, {"type": "error", "error": {"message": "no", **error}}).response.error
    assert found is not None
    assert (found.status, found.retryable, found.message) == (status, retryable, "no")


def test_an_unknown_event_with_an_error_field_is_not_an_error() -> None:
    response = read(event("new_call.failed", error={"message": "no"}))
    assert (response.error, codes(response)) == (None, ["event-unknown"])
    other = decoded(CREATED, {"type": "overloaded", "error": {"message": "no"}}).response
    assert other.error is not None


def test_what_follows_an_error_is_not_read() -> None:
    error, odd = {"type": "error", "message": "no"}, {"type": "x", "choices": []}
    after = (event("surprise"), event("queued"), odd, said(0, "a"))
    response = decoded(CREATED, error, *after, COMPLETED).response
    assert response.error is not None
    assert (response.error.message, response.usage) == ("no", Usage(3, 4, 7, None, 1, None))


def test_errors_are_read_in_every_shape() -> None:
    for failure in (
        {"type": "error", "error": "no more"},
        {"error": "no more"},
        {"type": "response.failed", "response": {"status": "failed", "error": "no more"}},
    ):
        response = decoded(CREATED, failure).response
        assert response.error is not None
        assert response.error.message == "no more"
    cancelled = {"type": "response.completed", "response": {"status": "cancelled"}}
    error = decoded(CREATED, cancelled).response.error
    assert error is not None
    assert (error.kind, error.message) == ("cancelled", "the response was cancelled")


def test_an_error_body_is_a_response_that_failed() -> None:
    raw_body = json.dumps({"error": {"message": "no", "code": "quota"}}, indent=1).encode()
    (one,) = decode_all(raw_body, DIALECT)
    assert [part.type for part in one.parts] == ["response-metadata", "error", "finish"]
    assert one.response.findings == ()


def test_a_stream_of_another_dialect_is_one_error() -> None:
    chunk = {"id": "x", "choices": [{"index": 0, "delta": {"content": "a"}}]}
    response = decoded(chunk, chunk, chunk).response
    assert response.error is not None
    assert (response.error.kind, response.error.message) == (
        "malformed",
        "the upstream speaks openai-chat, not openai-responses",
    )


# Heads and bodies


def test_the_metadata_of_a_response_that_was_never_created_comes_from_its_progress() -> None:
    progress = event("in_progress", response=CREATED["response"])
    response = decoded(
        progress, progress, added(0, **MESSAGE), done(0, **MESSAGE), COMPLETED
    ).response
    assert (response.id, codes(response)) == ("resp_1", ["metadata-missing"])
    nothing = decoded(event("queued"), COMPLETED).response
    assert (nothing.id, codes(nothing)) == ("resp_1", ["metadata-missing"])


@pytest.mark.parametrize("first", [{"type": "ping"}, added(0, **MESSAGE)], ids=["ping", "item"])
def test_events_before_response_created_are_reported(first: dict[str, Any]) -> None:
    decoder = Decoder(DIALECT, context=Context(ids=Ids(b"1")))
    decoder.feed(capture(first, CREATED, done(0, **MESSAGE), COMPLETED))
    assert (decoder.response.id, codes(decoder.response)[0]) == ("resp_1", "metadata-missing")


@pytest.mark.parametrize(
    "spoken",
    [
        said(0, "a"),
        event("output_text.done", output_index=0, content_index=0, text=""),
        event("refusal.delta", output_index=0, content_index=0, delta="a"),
        event("refusal.done", output_index=0, content_index=0, refusal="a"),
        event("output_text.annotation.added", output_index=0, content_index=0, annotation={}),
    ],
    ids=lambda spoken: spoken["type"],
)
def test_a_text_whose_part_was_never_added_is_reported(spoken: dict[str, Any]) -> None:
    end = done(0, **MESSAGE)
    assert "start-missing" in codes(read(added(0, **MESSAGE), spoken, end))
    kind = {"type": "refusal", "refusal": ""} if "refusal" in spoken["type"] else text_part("")
    part = event("content_part.added", output_index=0, content_index=0, part=kind)
    assert "start-missing" not in codes(read(added(0, **MESSAGE), part, spoken, end))
    whole = added(0, **MESSAGE, content=[kind])  # its part came with the item
    assert "start-missing" not in codes(read(whole, spoken, end))


@pytest.mark.parametrize("kind", ["mcp_approval_request", "shell_call", "tool_search_output"])
def test_a_call_or_result_that_was_only_added_becomes_no_part(kind: str) -> None:
    """Of an item of another kind there is what was announced: items-that-say-nothing."""
    response = read(added(0, type=kind, id="i", call_id="c", name="look", arguments="{}"))
    assert (response.items, codes(response)) == ((), ["end-missing"])


def test_a_call_id_that_changes_is_reported_and_the_first_one_stays() -> None:
    other = {**CALL, "call_id": "d"}
    response = read(added(0, **CALL), args(0, "{}"), done(0, **other, arguments="{}"))
    assert [call.id for call in response.tool_calls] == ["c"]
    assert codes(response) == ["call-id-changed"]
    nameless = added(0, **{**CALL, "call_id": None})
    late = read(nameless, args(0, "{}"), done(0, **CALL, arguments="{}"))
    assert [call.id for call in late.tool_calls] == ["c"]
    assert codes(late) == ["call-id-late"]


def test_the_event_name_is_the_type_if_the_data_has_none() -> None:
    blocks = [
        f"event: {one['type']}\ndata: {json.dumps({'response': one['response']})}\n\n"
        for one in (CREATED, COMPLETED)
    ]
    (one,) = decode_all("".join(blocks).encode(), DIALECT)
    assert (one.response.id, one.response.finish_reason) == ("resp_1", "stop")


def test_a_body_and_its_stream_are_decoded_alike() -> None:
    events = everything()
    items = [one["item"] for one in events if one["type"] == "response.output_item.done"]
    streamed = decoded(*events).response
    whole = at_once(*items)
    assert whole.findings == ()

    def told(response: Any) -> list[Any]:
        final = [one for one in response.items
                 if not (isinstance(one, ToolResult) and one.preliminary)]  # fmt: skip
        dump = json.loads(json.dumps([_plain(one) for one in final]))
        return sorted(dump, key=json.dumps)

    assert told(whole) == told(streamed)
    assert whole.finish_reason == streamed.finish_reason == "tool-calls"


def _plain(one: Any) -> Any:
    """An item without ids that are minted, and params as what they mean."""
    if isinstance(one, ToolCall):
        approval = one.kind == "mcp_approval_request"
        return ["call", None if approval else one.id, one.name, json.loads(one.params), one.kind]
    if isinstance(one, ToolResult):
        return ["result", one.id, json.loads(bytes(one.result)), one.is_error]
    if isinstance(one, TextItem):
        return ["text", one.id, one.text, one.phase]
    if isinstance(one, ReasoningItem):
        return ["reasoning", one.id, one.text, one.encrypted]
    return [type(one).__name__]


def test_a_body_without_output_is_an_error_that_says_why() -> None:
    response = at_once(output=None, incomplete_details={"reason": "max_output_tokens"})
    assert response.error is not None
    assert response.error.message == "the response has no output: max_output_tokens"
    (failed,) = decode_all(
        body(output=None, status="failed", error={"code": "x", "message": "no"}), DIALECT
    )
    assert failed.response.error is not None
    assert failed.response.error.message == "no"


def test_a_body_beside_a_stream_is_ignored() -> None:
    response = decoded(CREATED, json.loads(body(MESSAGE)), COMPLETED).response
    assert (response.items, codes(response)) == ((), ["message-ignored"])


def test_an_item_of_a_whole_response_that_is_no_object_is_ignored_with_a_finding() -> None:
    body = (
        b'{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"m",'
        b'"output":["1",{"type":"message","id":"msg_1","role":"assistant","content":'
        b'[{"type":"output_text","text":"Warp.","annotations":[]}]}]}'
    )
    [decoded] = weft.decode_all(body, "openai-responses")
    assert decoded.response.text == "Warp."
    assert len(decoded.response.items) == 1
    assert "event-unknown" in [finding.code for finding in decoded.response.findings]
