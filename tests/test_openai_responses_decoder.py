"""The Responses decoder: one item per output_index, wholes that only complete, nothing twice."""

import json
from typing import Any

import pytest

from weft import (
    Context,
    Decoder,
    Ids,
    Opaque,
    Part,
    ReasoningItem,
    Response,
    Source,
    TextDelta,
    TextItem,
    decode_all,
)

CREATED: dict[str, Any] = {
    "type": "response.created",
    "response": {"id": "resp_1", "model": "m-1", "created_at": 1790000000, "store": True},
}
COMPLETED: dict[str, Any] = {
    "type": "response.completed",
    "response": {"id": "resp_1", "model": "m-2", "status": "completed", "usage": {
        "input_tokens": 3, "output_tokens": 4, "total_tokens": 7,
        "input_tokens_details": {"cached_tokens": 1}}},
}  # fmt: skip


def capture(*events: dict[str, Any]) -> bytes:
    """The events as a server sends them, numbered unless they say otherwise."""
    blocks = [
        f"event: {event.get('type', '')}\ndata: {json.dumps({'sequence_number': at, **event})}\n\n"
        for at, event in enumerate(events)
    ]
    return "".join(blocks).encode() + b"data: [DONE]\n\n"


def read(*events: dict[str, Any]) -> Response:
    (one,) = decode_all(capture(CREATED, *events, COMPLETED), "openai-responses")
    return one.response


def parts(*events: dict[str, Any]) -> list[Part]:
    (one,) = decode_all(capture(CREATED, *events, COMPLETED), "openai-responses")
    return one.parts


def codes(response: Response) -> list[str]:
    return [finding.code for finding in response.findings]


def event(type: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{type}", **fields}


def added(index: int, **item: Any) -> dict[str, Any]:
    return event("output_item.added", output_index=index, item=item)


def done(index: int, **item: Any) -> dict[str, Any]:
    return event("output_item.done", output_index=index, item=item)


def delta(index: int, text: str, **more: Any) -> dict[str, Any]:
    return event("output_text.delta", output_index=index, content_index=0, delta=text, **more)


def text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def test_metadata_and_finish_come_from_the_snapshots() -> None:
    response = read(delta(0, "a", item_id="m"), done(0, type="message", id="m"))
    assert (response.id, response.model, response.created) == ("resp_1", "m-2", 1790000000)
    assert response.usage is not None
    assert (response.usage.total_tokens, response.usage.cache_read_tokens) == (7, 1)
    assert (response.finish_reason, response.raw_finish_reason) == ("stop", "completed")
    assert response.findings == ()


def test_full_values_verify_and_never_append() -> None:
    response = read(
        added(0, type="message", id="m", content=[]),
        event("content_part.added", output_index=0, content_index=0, part=text_part("")),
        delta(0, "Hel"),
        delta(0, "lo"),
        event("output_text.done", output_index=0, content_index=0, text="Hello"),
        event("content_part.done", output_index=0, content_index=0, part=text_part("Hello")),
        done(0, type="message", id="m", content=[text_part("Hello")]),
    )
    assert response.text == "Hello"
    assert response.findings == ()


def test_a_whole_that_holds_more_completes_and_one_that_differs_is_noted() -> None:
    more = read(delta(0, "Hel"), done(0, type="message", content=[text_part("Hello")]))
    assert (more.text, codes(more)) == ("Hello", ["whole-extends"])
    other = read(delta(0, "Hel"), done(0, type="message", content=[text_part("Bye")]))
    assert (other.text, codes(other)) == ("Hel", ["whole-contradicts"])


def test_ids_may_rotate_because_the_index_names_the_item() -> None:
    response = read(
        added(0, type="message", id="m1"),
        delta(0, "a", item_id="m2"),
        delta(0, "b", item_id="m3"),
        done(0, type="message", id="m4", content=[text_part("ab")]),
    )
    (item,) = response.items
    assert isinstance(item, TextItem)
    assert (item.text, item.item_id) == ("ab", "m1")


def test_without_an_index_the_item_id_serves() -> None:
    response = read(
        event("output_text.delta", item_id="m", delta="a"),
        event("output_text.delta", item_id="m", delta="b"),
        event("output_item.done", item={"type": "message", "id": "m"}),
    )
    assert response.text == "ab"


def test_done_alone_is_the_complete_sequence() -> None:
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
    assert codes(response) == ["end-repeated"]


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


def test_reasoning_ends_with_its_item_and_the_final_proof() -> None:
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


def test_silent_reasoning_is_kept() -> None:
    (thought,) = read(done(0, type="reasoning", id="rs", encrypted_content="x", summary=[])).items
    assert isinstance(thought, ReasoningItem)
    assert (thought.text, thought.encrypted, thought.origin) == ("", "x", "openai-responses")


def test_a_refusal_surfaces_and_decides_the_reason() -> None:
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
        delta(0, "x"),
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


def test_items_without_parts_of_their_own_are_opaque() -> None:
    item = {"type": "compaction", "id": "cmp", "encrypted_content": "z", "arguments": {"a": 1}}
    found = read(added(0, **item), done(0, **item))
    (opaque,) = found.items
    assert isinstance(opaque, Opaque)
    assert (opaque.kind, json.loads(bytes(opaque.raw))) == ("compaction", item)
    (unknown,) = read(event("output_item.done", output_index=0)).items
    assert isinstance(unknown, Opaque)
    assert unknown.kind == "unknown"


def test_what_an_item_says_corrects_a_type_that_nobody_knows() -> None:
    text = read(
        added(0, type="messa", id="m"),
        delta(0, "x"),
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


def test_params_that_no_item_claims_are_a_nameless_call() -> None:
    lost = read(event("function_call_arguments.delta", output_index=0, item_id="fc", delta="{"))
    assert [(c.id, c.params, c.invalid) for c in lost.invalid_tool_calls] == [
        ("fc", "{", "nameless")
    ]


def test_an_item_that_is_no_object_is_ignored() -> None:
    response = read({"type": "response.output_item.done", "output_index": 0, "item": "text"})
    assert (response.items, codes(response)) == ((), ["event-unknown"])


def test_progress_and_pings_say_nothing_and_the_unknown_is_noted_once() -> None:
    response = read(
        event("in_progress"),
        event("web_search_call.searching", output_index=0),
        {"type": "ping"},
        event("surprise"),
        event("surprise"),
        delta(0, ""),
        event("refusal.delta", output_index=1, delta=""),
        event("reasoning.delta", output_index=2, delta=""),
        event("reasoning_summary_text.delta", output_index=2, delta=""),
        event("function_call_arguments.delta", output_index=3, delta=""),
    )
    assert codes(response).count("event-unknown") == 1
    assert response.text == ""


def test_an_event_that_came_before_is_a_replay() -> None:
    twice = {**delta(0, "a"), "sequence_number": 9}
    response = read(twice, twice, done(0, type="message", content=[text_part("a")]))
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
    (one,) = decode_all(capture(CREATED, delta(0, "a"), failure, failed), "openai-responses")
    response = one.response
    assert response.error is not None
    assert (response.error.message, response.error.code) == ("no more", "quota")
    assert (response.text, response.finish_reason) == ("a", "error")


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
    (one,) = decode_all(capture(CREATED, delta(0, "a"), end), "openai-responses")
    assert one.response.finish_reason == reason
    assert one.response.raw_finish_reason == (why or status)


def test_a_tool_session_that_waits_is_tool_calls() -> None:
    call = done(0, type="function_call", call_id="c", name="f", arguments="{}")
    end = {"type": "response.completed", "response": {"status": "incomplete"}}
    raw = capture(CREATED, call, event("required_action"), end)
    (one,) = decode_all(raw, "openai-responses")
    assert one.response.finish_reason == "tool-calls"


def test_a_body_is_a_stream_that_came_at_once() -> None:
    body = {
        "object": "response",
        "status": "completed",
        "output": [{"type": "message", "id": "m", "content": [text_part("hi")]}],
    }
    (one,) = decode_all(json.dumps(body, indent=1).encode(), "openai-responses")
    assert (one.response.text, one.response.finish_reason) == ("hi", "stop")
    assert one.response.id.startswith("resp_")


def test_an_unreadable_frame_is_malformed_and_a_cut_one_truncated() -> None:
    start = capture(CREATED).removesuffix(b"data: [DONE]\n\n")
    for tail, kind in ((b"data: {x}\n\n", "malformed"), (b'data: {"ty', "empty")):
        (one,) = decode_all(start + tail, "openai-responses")
        assert one.response.error is not None
        assert one.response.error.kind == kind


def test_what_follows_the_terminal_event_is_dropped() -> None:
    response = decode_all(capture(CREATED, delta(0, "a"), COMPLETED, delta(0, "b")),
                          "openai-responses")[0].response  # fmt: skip
    assert response.text == "a"
    assert "after-finish" in codes(response)


def test_it_reads_bytes_in_any_pieces() -> None:
    raw = capture(CREATED, delta(0, "é"), done(0, type="message", content=[text_part("é")]),
                  COMPLETED)  # fmt: skip
    decoder = Decoder("openai-responses", context=Context(ids=Ids(b"1")))
    seen = [part for at in range(len(raw)) for part in decoder.feed(raw[at : at + 1])]
    assert [part.delta for part in seen if isinstance(part, TextDelta)] == ["é"]
    assert decoder.finish() == []


def test_a_salvaged_event_still_counts() -> None:
    response = read(delta(0, "a", item_id=7), done(0, type="message", content=[text_part("a")]))
    assert response.text == "a"
    assert codes(response) == ["field-coerced"]
    assert [type(part).__name__ for part in parts(delta(0, "a"))][-1] == "Finish"
