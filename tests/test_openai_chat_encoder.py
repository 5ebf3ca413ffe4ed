"""The Chat Completions encoder: well-formed chunks of one message, and the same as a body."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.captures import CHAT, Capture
from tests.encoded import CALL, TEXT, data_events
from tests.serving import openai_client, serving
from tests.strategies import OBJECTS, SOUP, cuts, examples, spelled
from tests.tables import each_row
from weft import (
    Context,
    Decoded,
    Encoder,
    ErrorPart,
    File,
    Finish,
    Guard,
    Ids,
    Opaque,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningItem,
    ReasoningStart,
    Request,
    Response,
    ResponseMetadata,
    Source,
    TextDelta,
    TextEnd,
    TextItem,
    TextStart,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
    Usage,
    assemble,
    decode_all,
    encode,
)
from weft.dialects.envelope import Envelope, ReasoningState, unwrap
from weft.dialects.openai_chat.encoder import body
from weft.findings import Findings
from weft.parts import FinishReason, Json

Chunk = dict[str, Any]

DIALECT: Final = "openai-chat"
START = ResponseMetadata("up_1", model="m-1", created=1790000000)
OURS = ResponseMetadata("up_1", model="m-1", created=1790000000, dialect=DIALECT)
PARALLEL: list[Part] = [
    ToolParamsStart("a", "look"),
    ToolParamsStart("b", "read"),
    ToolParamsDelta("a", '{"x":'),
    ToolParamsDelta("b", '{"y":'),
    ToolParamsDelta("a", "1}"),
    ToolParamsDelta("b", "2}"),
    ToolParamsEnd("a"),
    ToolParamsEnd("b"),
    ToolCall("a", "look", '{"x":1}'),
    ToolCall("b", "read", '{"y":2}'),
]


def plain() -> Context:
    return Context(ids=Ids(b"1"))


def asked() -> Context:
    return Context(request=Request("m", include_usage=True), ids=Ids(b"1"))


def write(
    *parts: Part,
    finish: Part | None = None,
    context: Context | None = None,
    start: ResponseMetadata = START,
) -> bytes:
    stream = [start, *parts, finish or Finish("stop", usage=Usage(3, 4, 7))]
    return b"".join(encode(stream, DIALECT, context=context or plain()))


def written(
    *parts: Part,
    finish: Part | None = None,
    context: Context | None = None,
    start: ResponseMetadata = START,
) -> list[Chunk]:
    return data_events(write(*parts, finish=finish, context=context, start=start))


def deltas(found: list[Chunk]) -> list[Chunk]:
    """Returns the deltas between the first chunk and the finish."""
    return [chunk["choices"][0]["delta"] for chunk in found[1:-1]]


def entries(found: list[Chunk]) -> list[Chunk]:
    """Returns the entries of `tool_calls`, one per chunk."""
    return [entry for delta in deltas(found) for entry in delta["tool_calls"]]


def lost(*parts: Part, start: ResponseMetadata = START, finish: Part | None = None) -> list[str]:
    """Returns the details of the findings `not-carried`."""
    guard = Guard(Ids(b"1"), Findings())
    encoder = Encoder(DIALECT, context=plain())
    encoder.feed(guard.feed([start, *parts, finish or Finish("stop")]))
    assert {finding.code for finding in encoder.findings} <= {"not-carried"}
    return [finding.detail for finding in encoder.findings]


# The stream


def test_text_is_a_role_chunk_then_content_then_finish_reason_then_done() -> None:
    found = written(*TEXT)
    id = found[0]["id"]
    assert id.startswith("chatcmpl-")
    head = {
        "id": id,
        "object": "chat.completion.chunk",
        "created": 1790000000,
        "model": "m-1",
    }
    sequence: list[tuple[Chunk, str | None]] = [
        ({"role": "assistant", "content": "", "refusal": None}, None),
        ({"content": "Hel"}, None),
        ({"content": "lo"}, None),
        ({}, "stop"),
    ]
    assert found == [
        {
            **head,
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}],
        }
        for delta, reason in sequence
    ]


THOUGHT = [ReasoningStart("r", "raw"), ReasoningDelta("r", "hmm"), ReasoningEnd("r")]
REFUSAL = [TextStart("t", refusal=True), TextDelta("t", "No."), TextEnd("t")]


@pytest.mark.parametrize(
    ("parts", "content"),
    [(TEXT, ""), ([], ""), (CALL, None), (THOUGHT, None), (REFUSAL, None), ([*TEXT, *CALL], "")],
    ids=["text", "nothing", "a call", "reasoning", "a refusal", "text and a call"],
)
def test_the_first_content_is_null_unless_the_answer_begins_with_text(
    parts: list[Part], content: str | None
) -> None:
    first, *rest = written(*parts)
    delta = first["choices"][0]["delta"]
    assert delta == {"role": "assistant", "content": content, "refusal": None}
    assert not any("role" in chunk["choices"][0]["delta"] for chunk in rest)


@pytest.mark.parametrize(
    ("parts", "content"), [(TEXT, "Hello"), ([], ""), (CALL, None), (THOUGHT, None)]
)
def test_the_content_of_a_body_is_the_joined_content_of_its_stream(
    parts: list[Part], content: str | None
) -> None:
    whole = assemble([ResponseMetadata("x"), *parts, Finish("stop")])
    message = json.loads(body(whole, Context()))["choices"][0]["message"]
    assert message["content"] == content


def test_response_id_and_time_come_from_the_gateway() -> None:
    context = Context(response_id="chatcmpl-ours", now=1790000009, request=Request("asked"))
    raw = b"".join(
        encode([ResponseMetadata("x"), Finish("stop", model="later")], DIALECT, context=context)
    )
    first, last = data_events(raw)
    assert (first["id"], first["created"], first["model"]) == (
        "chatcmpl-ours",
        1790000009,
        "asked",
    )
    assert (last["id"], last["model"]) == ("chatcmpl-ours", "later")


def test_a_refusal_has_a_field_of_its_own() -> None:
    found = written(TextStart("t", refusal=True), TextDelta("t", "No."), TextEnd("t"))
    assert deltas(found) == [{"refusal": "No."}]


@pytest.mark.parametrize("kind", ["raw", "summary"])
def test_reasoning_of_either_kind_has_a_field_of_its_own(kind: Any) -> None:
    found = written(ReasoningStart("r", kind), ReasoningDelta("r", "hmm"), ReasoningEnd("r"))
    assert deltas(found) == [{"reasoning_content": "hmm"}]


def test_a_call_starts_with_id_and_name_and_continues_by_index() -> None:
    assert entries(written(*CALL)) == [
        {
            "index": 0,
            "id": "call_1",
            "type": "function",
            "function": {"name": "look", "arguments": ""},
        },
        {"index": 0, "function": {"arguments": '{"at":'}},
        {"index": 0, "function": {"arguments": "1}"}},
    ]


def test_parallel_calls_interleave_by_index() -> None:
    found = entries(written(*PARALLEL))
    assert [entry["index"] for entry in found] == [0, 1, 0, 1, 0, 1]
    assert [entry.get("id") for entry in found] == ["a", "b", None, None, None, None]
    actual = [(entry["index"], entry["function"]["arguments"]) for entry in found[2:]]
    assert actual == [(0, '{"x":'), (1, '{"y":'), (0, "1}"), (1, "2}")]


def test_a_call_that_came_whole_is_written_like_a_streamed_one() -> None:
    whole = ToolCall("call_1", "look", '{"at":1}')
    streamed = [*CALL[:1], ToolParamsDelta("call_1", '{"at":1}'), *CALL[3:]]
    assert written(whole) == written(*streamed)


def test_a_custom_call_is_free_text() -> None:
    found = written(
        ToolParamsStart("call_1", "sh", kind="custom", format="text"),
        ToolParamsDelta("call_1", "ls -l"),
        ToolParamsEnd("call_1"),
        ToolCall("call_1", "sh", "ls -l", kind="custom", format="text"),
        ToolCall("call_2", "sh", "", kind="custom", format="text"),
    )
    assert entries(found) == [
        {"index": 0, "id": "call_1", "type": "custom", "custom": {"name": "sh", "input": ""}},
        {"index": 0, "custom": {"input": "ls -l"}},
        {"index": 1, "id": "call_2", "type": "custom", "custom": {"name": "sh", "input": ""}},
    ]


def test_sources_are_annotations_in_one_chunk_before_the_finish() -> None:
    parts: list[Part] = [
        Source("s0", "url", url="https://a.example"),
        *TEXT,
        *CALL,
        TextStart("u"),
        TextDelta("u", "world"),
        Source("s1", "url", "u", url="https://b.example", title="B", start=1, end=3),
        TextEnd("u"),
    ]
    found = written(*parts)
    assert deltas(found)[-1] == {
        "annotations": [
            {
                "type": "url_citation",
                "url_citation": {
                    "url": "https://a.example",
                    "title": "",
                    "start_index": 0,
                    "end_index": 0,
                },
            },
            {
                "type": "url_citation",
                "url_citation": {
                    "url": "https://b.example",
                    "title": "B",
                    "start_index": 6,  # the message has one text: "Helloworld"
                    "end_index": 8,
                },
            },
        ]
    }
    assert sum("annotations" in delta for delta in deltas(found)) == 1


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool-calls", "tool_calls"),
        ("content-filter", "content_filter"),
        ("other", "stop"),
        ("pause", "length"),
    ],
)
def test_the_finish_reason_is_one_of_the_api_reference(reason: Any, word: str) -> None:
    sequence = CALL if reason == "tool-calls" else TEXT
    found = written(*sequence, finish=Finish(reason))
    assert found[-1]["choices"][0]["delta"] == {}
    assert found[-1]["choices"][0]["finish_reason"] == word
    inexact = [f"finish: reason {reason} is written as {word}"] * (reason in ("other", "pause"))
    assert lost(*sequence, finish=Finish(reason)) == inexact


def test_a_stream_without_calls_never_finishes_with_tool_calls() -> None:
    found = written(*TEXT, finish=Finish("tool-calls"))
    assert found[-1]["choices"][0]["finish_reason"] == "stop"
    assert lost(*TEXT, finish=Finish("tool-calls")) == ["finish: no call could be written"]
    response = assemble([START, *TEXT, Finish("tool-calls")])
    assert json.loads(body(response, Context()))["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("reason", "word"), [("stop", "length"), ("content-filter", "content_filter")]
)
def test_a_call_that_was_cut_never_looks_complete(reason: Any, word: str) -> None:
    found = written(ToolParamsStart("a", "look"), ToolParamsDelta("a", '{"x":1}'),
                    finish=Finish(reason))  # fmt: skip
    assert found[-1]["choices"][0]["finish_reason"] == word


def test_invalid_arguments_are_written_unchanged() -> None:
    bad: list[Part] = [
        *CALL[:2],
        ToolParamsEnd("call_1"),
        ToolCall("call_1", "look", '{"at":', invalid="bad-arguments"),
    ]
    found = written(*bad, finish=Finish("tool-calls"))
    assert entries(found)[1]["function"] == {"arguments": '{"at":'}
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"


# Usage


def test_usage_follows_the_finish_reason_only_if_requested() -> None:
    assert not any("usage" in chunk for chunk in written(*TEXT))
    found = written(*TEXT, context=asked())
    assert [chunk["usage"] for chunk in found[:-1]] == [None] * 4
    assert found[-1]["choices"] == []
    assert found[-1]["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_tokens": 7,
    }


def test_usage_has_only_counts_that_are_known() -> None:
    start = msgspec.structs.replace(START, usage=Usage(10, cache_read_tokens=3))
    actual = Usage(output_tokens=5, reasoning_tokens=2, cache_write_tokens=1)
    found = written(*TEXT, start=start, finish=Finish("stop", usage=actual), context=asked())
    assert found[-1]["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    for nothing in (None, Usage(), Usage(10)):  # half of it would break whoever reads the rest
        none = written(*TEXT, finish=Finish("stop", usage=nothing), context=asked())
        assert none[-1]["choices"][0]["finish_reason"] == "stop"


# Errors


@pytest.mark.parametrize(
    ("error", "actual"),
    [
        (ErrorPart("truncated", "cut off"), ("server_error", "truncated")),
        (ErrorPart("upstream", "cut off"), ("server_error", None)),
        (ErrorPart("upstream", "cut off", code=529, status=529), ("server_error", "529")),
        (ErrorPart("upstream", "cut off", code="x", status=429), ("rate_limit_error", "x")),
        (ErrorPart("upstream", "cut off", status=400), ("invalid_request_error", None)),
    ],
)
def test_an_error_is_the_last_event_and_there_is_no_finish_reason(
    error: ErrorPart, actual: tuple[str, str | None]
) -> None:
    found = written(*TEXT[:2], *CALL[:2], error, finish=Finish("error"))
    type, code = actual
    assert found[-1] == {"error": {"message": "cut off", "type": type, "param": None, "code": code}}
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in found[:-1])
    assert body(assemble([START, error]), plain()) == json.dumps(
        found[-1], separators=(",", ":")
    ).encode()  # fmt: skip


def test_an_error_event_has_usage_if_requested() -> None:
    error, end = ErrorPart("upstream", "no"), Finish("error", usage=Usage(3, 4))
    actual = written(error, finish=end, context=asked())[-1]["usage"]
    assert actual == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert written(error, finish=end)[-1].keys() == {"error"}


def test_buffered_text_and_sources_are_written_before_the_error() -> None:
    found = written(
        *TEXT[:2],
        TextStart("u"),
        TextDelta("u", "wait"),
        Source("s", "url", url="https://a.example"),
        ErrorPart("upstream", "no"),
        finish=Finish("error"),
    )
    assert [next(iter(delta)) for delta in deltas(found)] == ["content", "content", "annotations"]
    assert "error" in found[-1]


# One message


def test_overlapping_texts_are_written_one_after_the_other() -> None:
    found = written(
        TextStart("a"),
        TextStart("b"),
        TextStart("c"),
        TextStart("d"),
        TextDelta("a", "a1 "),
        TextDelta("b", "b1 "),
        TextDelta("c", "c1 "),
        TextEnd("b"),
        TextDelta("a", "a2 "),
        TextEnd("a"),
        TextDelta("c", "c2 "),
        TextDelta("d", "d1 "),
        TextEnd("c"),
        TextEnd("d"),
    )
    sequence = "".join(delta["content"] for delta in deltas(found))
    assert sequence == "a1 a2 b1 c1 c2 d1 "


def test_overlapping_reasonings_are_written_one_after_the_other() -> None:
    parts: list[Part] = [
        ReasoningStart("a", "raw"),
        ReasoningStart("b", "raw"),
        ReasoningDelta("b", "b1"),
        ReasoningDelta("a", "a1"),
        ReasoningEnd("b"),
        ReasoningDelta("a", "a2"),
        ReasoningEnd("a"),
    ]
    for start in (START, OURS):
        found = written(*parts, start=start)
        sequence = [delta["reasoning_content"] for delta in deltas(found)]
        assert sequence == ["a1", "a2", "b1"]


def test_neighbouring_texts_are_joined_with_a_finding() -> None:
    again: list[Part] = [TextStart("u"), TextDelta("u", "x"), TextEnd("u")]
    joined = ["text-start: joined to the one before it"]
    assert lost(*TEXT, *again) == joined
    assert lost(*TEXT, *CALL, *again) == []
    assert lost(*TEXT, ReasoningStart("r", "raw"), ReasoningEnd("r"), *again) == []


# What is not carried


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([File("f", "image/png", data="AA==")], "file: files have no field"),
        ([Opaque("gemini", "x", Raw(b"1"))], "opaque: items of a dialect have no field"),
        (
            [Source("s", "document", file_id="f")],
            "source: only sources with a URL can be annotations",
        ),
        ([ToolResult("c", Raw(b"1"), earlier=True)], "tool-result: results have no field"),
        (
            [*CALL, ToolApprovalRequest("call_1", "ap_1")],
            "tool-approval-request: approvals have no field",
        ),
        (
            [
                ToolParamsStart("w", "search", kind="web_search_call", provider_executed=True),
                ToolParamsDelta("w", '{"q":1}'),
                ToolParamsEnd("w"),
                ToolCall("w", "search", '{"q":1}', kind="web_search_call", provider_executed=True),
            ],
            "tool-call: calls that the provider executes have no field",
        ),
        ([ToolCall("n", "", "{", invalid="nameless")], "tool-call: it has no name"),
        (
            [ToolCall("n", "look", "{", invalid="stream-failed")],
            "tool-call: it was never announced",
        ),
        (
            [ToolCall("n", "sh", "{}", kind="shell_call")],
            "tool-call: kind shell_call is written as function",
        ),
        (
            [ToolCall("n", "look", "{}", signature="s")],
            "tool-call: the origin of its signature is not known",
        ),
        (
            [ReasoningStart("r", "raw"), ReasoningEnd("r", signature="s")],
            "reasoning-end: the origin of its signature is not known",
        ),
        (
            [TextStart("t"), TextDelta("t", "x"), TextEnd("t", signature="s", origin="other")],
            "text-end: its signature goes back to 'other' only",
        ),
    ],
)
def test_parts_without_a_field_leave_a_finding_in_streams_and_bodies(
    parts: list[Part], why: str
) -> None:
    assert lost(*parts) == [why]
    findings = Findings()
    whole = body(assemble([START, *parts, Finish("stop")]), plain(), findings)
    actual = [finding.detail for finding in findings.found]
    if "never announced" in why:  # a fold does not know; the reason says that it was cut
        assert actual == ["finish: reason stop is written as length"]
    else:
        assert actual == [why]
    assert json.loads(whole)["object"] == "chat.completion"


def test_a_stop_sequence_has_no_field() -> None:
    finish = Finish("stop", stop_sequence="END")
    assert lost(*TEXT, finish=finish) == ["finish: the stop sequence has no field"]


# What goes back to this dialect


DETAILS = b'{"reasoning_details":[{"type":"reasoning.text","text":"hmm","signature":"s"}]}'


def thought(extra: Json, origin: str | None = DIALECT) -> list[Part]:
    return [
        ReasoningStart("r", "raw"),
        ReasoningDelta("r", "h"),
        ReasoningDelta("r", "mm"),
        ReasoningEnd("r", signature="s", origin=origin, extra=extra),
    ]


def test_reasoning_details_are_written_with_the_last_delta() -> None:
    found = written(*thought(Raw(DETAILS)), start=OURS)
    details = json.loads(DETAILS)["reasoning_details"]
    assert deltas(found) == [
        {"reasoning_content": "h"},
        {"reasoning_content": "mm", "reasoning_details": details},
    ]


@pytest.mark.parametrize(
    ("start", "extra", "origin"),
    [
        (START, Raw(DETAILS), DIALECT),  # the parts are another dialect's
        (OURS, Raw(DETAILS), "another"),
        (OURS, Raw(b'{"x":1}'), DIALECT),
    ],
)
def test_a_signature_of_another_origin_is_wrapped_in_an_envelope(
    start: ResponseMetadata, extra: Raw, origin: str
) -> None:
    found = written(*thought(extra, origin), start=start)
    (detail,) = deltas(found)[-1]["reasoning_details"]
    inside = unwrap(detail["data"])
    assert (detail["type"], detail["index"]) == ("reasoning.encrypted", 0)
    envelope = ReasoningState(signature="s", kind="raw", text="hmm")
    assert inside == Envelope(origin, start.model, envelope)
    assert lost(*thought(extra, origin), start=start) == []


def test_extra_content_of_a_call_is_written_in_an_entry_of_its_own() -> None:
    extra = Raw(b'{"loom":\n {"thought_signature": "c2ln"}}')
    call = ToolCall("call_1", "look", '{"at":1}', signature="c2ln", extra=extra)
    found = written(*CALL[:-1], call, start=OURS)
    assert entries(found)[-1] == {
        "index": 0,
        "function": {"arguments": ""},
        "extra_content": {"loom": {"thought_signature": "c2ln"}},
    }
    assert entries(written(*CALL[:-1], call)) == entries(written(*CALL))


@pytest.mark.parametrize("early", [True, False], ids=["with its first entry", "behind it"])
def test_the_signature_of_a_call_is_wrapped_under_the_key_that_clients_send_back(
    early: bool,
) -> None:
    call = ToolCall("call_1", "look", '{"at":1}', signature="s", origin="host")
    start = ToolParamsStart("call_1", "look")
    if early:
        start = msgspec.structs.replace(start, signature="s", origin="host")
    stream: list[Part] = [start, *CALL[1:-1], call]
    (place,) = [n for n, one in enumerate(entries(written(*stream))) if "extra_content" in one]
    assert place == (0 if early else len(entries(written(*stream))) - 1)
    extra = entries(written(*stream))[place]["extra_content"]
    envelope = unwrap(extra["google"]["thought_signature"])
    assert envelope == Envelope("host", START.model, ReasoningState("s", call="call_1"))
    assert lost(*stream) == []
    whole = json.loads(body(assemble([START, *stream, Finish("tool-calls")]), plain()))
    assert whole["choices"][0]["message"]["tool_calls"][0]["extra_content"] == extra


def test_extra_content_of_a_text_is_written_at_its_end() -> None:
    extra = Raw(b'{"loom":{"thought_signature":"c2ln"}}')
    signed: list[Part] = [
        *TEXT[:2],
        TextStart("u"),
        TextDelta("u", "x"),
        TextEnd("u", signature="c2ln", origin=DIALECT, extra=extra),
        TextEnd("t"),
    ]
    found = written(*signed, start=OURS)
    assert deltas(found) == [
        {"content": "Hel"},
        {"content": "x"},
        {"extra_content": json.loads(bytes(extra))},
    ]
    whole = json.loads(body(assemble([OURS, *signed, Finish("stop")]), plain()))
    assert whole["choices"][0]["message"]["extra_content"] == json.loads(bytes(extra))


def test_the_code_of_an_error_of_this_dialect_stays_a_number() -> None:
    error = ErrorPart("upstream", "no", code=503, status=503)
    assert written(error, start=OURS)[-1]["error"]["code"] == 503


# Verbs


def test_a_keepalive_is_a_comment() -> None:
    assert Encoder(DIALECT).keepalive() == [b": keepalive\n\n"]


def test_finish_adds_nothing() -> None:
    assert Encoder(DIALECT).finish() == []


@examples(150)
@given(SOUP)
def test_any_legal_parts_become_a_well_formed_stream(soup: list[Part]) -> None:
    pieces = list(encode(soup, DIALECT, context=asked()))
    assert all(piece.endswith(b"\n\n") and piece.count(b"\n") == 2 for piece in pieces)
    found = data_events(b"".join(pieces))
    sequence = [choice for one in found for choice in one.get("choices", ())]
    assert sequence[0]["delta"]["role"] == "assistant"
    ends = [choice["finish_reason"] is not None for choice in sequence]
    assert ends == [False] * (len(sequence) - 1) + ["error" not in found[-1]]
    assert sum("annotations" in choice["delta"] for choice in sequence) <= 1
    begun = [one for choice in sequence for one in choice["delta"].get("tool_calls", ())]
    ids = [entry["id"] for entry in begun if "id" in entry]
    assert len(set(ids)) == len(ids)
    assert [entry["index"] for entry in begun if "id" in entry] == list(range(len(ids)))
    assert all(entry["index"] < len(ids) for entry in begun)


# Bodies


def test_a_body_has_text_reasoning_calls_and_usage() -> None:
    parts: list[Part] = [
        OURS,
        *thought(Raw(DETAILS)),
        *TEXT,
        Source("s", "url", "t", url="https://a.example", title="A", start=0, end=5),
        *CALL,
        ToolCall("call_2", "sh", "ls", kind="custom", format="text"),
        Finish("tool-calls", usage=Usage(3, 4)),
    ]
    whole = json.loads(body(assemble(parts), Context(response_id="chatcmpl-ours")))
    citation = {"url": "https://a.example", "title": "A", "start_index": 0, "end_index": 5}
    assert whole == {
        "id": "chatcmpl-ours",
        "object": "chat.completion",
        "created": 1790000000,
        "model": "m-1",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Hello",
                    "refusal": None,
                    "reasoning_content": "hmm",
                    **json.loads(DETAILS),
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "look", "arguments": '{"at":1}'},
                        },
                        {"id": "call_2", "type": "custom", "custom": {"name": "sh", "input": "ls"}},
                    ],
                    "annotations": [{"type": "url_citation", "url_citation": citation}],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
    }


def test_a_body_without_text_has_null_content() -> None:
    parts: list[Part] = [TextStart("t", refusal=True), TextDelta("t", "No."), TextEnd("t")]
    whole = json.loads(body(assemble([START, *parts, Finish("stop")]), plain()))
    message = {"role": "assistant", "content": None, "refusal": "No."}
    assert whole["choices"][0]["message"] == message
    assert whole["id"].startswith("chatcmpl-")
    assert "usage" not in whole


def test_a_body_of_an_unfinished_response_has_no_finish_reason() -> None:
    whole = json.loads(body(Response("r", items=(TextItem("t", "x"),)), plain()))
    assert whole["choices"][0]["finish_reason"] is None


def test_texts_of_a_body_are_always_joined_with_a_finding() -> None:
    again: list[Part] = [TextStart("u"), TextDelta("u", " x"), TextEnd("u")]
    findings = Findings()
    whole = body(assemble([START, *TEXT, *CALL, *again, Finish("stop")]), plain(), findings)
    assert json.loads(whole)["choices"][0]["message"]["content"] == "Hello x"
    actual = [finding.detail for finding in findings.found]
    assert actual == ["text-start: joined to the one before it"]


# There and back

WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
REASONS: list[FinishReason] = ["stop", "length", "tool-calls", "content-filter"]


def spans(
    start: type[TextStart] | type[ReasoningStart], id: str, pieces: list[str], **fields: Any
) -> list[Part]:
    delta, end = (
        (TextDelta, TextEnd) if start is TextStart else (ReasoningDelta, ReasoningEnd)
    )  # fmt: skip
    return [start(id, **fields), *[delta(id, piece) for piece in pieces], end(id)]


def params(id: str, pieces: list[str], **fields: Any) -> list[Part]:
    whole = ToolCall(id, "look", "".join(pieces), **fields)
    deltas = [ToolParamsDelta(id, piece) for piece in pieces if piece]
    return [ToolParamsStart(id, "look", **fields), *deltas, ToolParamsEnd(id), whole]


@st.composite
def items(draw: st.DrawFn, id: str) -> list[Part]:
    """The parts of one item that the wire can carry."""
    words = draw(st.lists(WORDS, min_size=1, max_size=3))
    value = draw(OBJECTS)
    arguments = draw(spelled(value))
    custom: dict[str, Any] = {"kind": "custom", "format": "text"}
    length = draw(st.integers(1, len(arguments)))
    source = Source(id, "url", url=f"https://{id}.example", title=draw(st.none() | WORDS))
    return draw(
        st.sampled_from(
            [
                spans(TextStart, id, words),
                spans(TextStart, id, words, refusal=True),
                spans(ReasoningStart, id, words, kind="raw"),
                spans(ReasoningStart, id, words, kind="summary"),
                params(id, draw(cuts(arguments))),
                params(id, draw(cuts(arguments[:length]))),
                params(id, words, **custom),
                [ToolCall(id, "look", arguments)],
                [source],
            ]
        )
    )


@st.composite
def streams(draw: st.DrawFn, *, mixed: bool) -> list[Part]:
    """A legal stream of such items, one after the other or mixed, with any end."""
    waiting = [draw(items(id)) for id in draw(st.permutations("abcde"))[: draw(st.integers(0, 5))]]
    parts: list[Part] = []
    while waiting:
        item = draw(st.sampled_from(waiting)) if mixed else waiting[0]
        parts.append(item.pop(0))
        waiting = [item for item in waiting if item]
    usage = draw(st.none() | st.builds(Usage, *[st.none() | st.integers(0, 9)] * 6))
    reason: FinishReason = draw(st.sampled_from(REASONS))
    end: list[Part] = [Finish(reason, usage=usage)]
    if draw(st.integers(0, 3)) == 0:
        del parts[draw(st.integers(0, len(parts))) :]
        end = [ErrorPart("upstream", draw(WORDS), code=draw(st.none() | WORDS))]
        end.append(Finish("error", usage=usage))
    start = ResponseMetadata("r", model="m", dialect=draw(st.sampled_from([None, DIALECT])))
    guard = Guard(Ids(b"guard"), Findings())
    return guard.feed([start, *parts, *end]) + guard.finish()


def back(raw: bytes) -> Decoded:
    (one,) = decode_all(raw, DIALECT)
    return one


def normal(parts: Sequence[Part]) -> list[Part]:
    """Returns what the wire carries: one reasoning, one text and one refusal; calls in no
    order, as that of their first arguments decides; sources with all fields; a summed total.
    """
    response = assemble(parts)
    sequence: list[Part] = [ResponseMetadata("r", model=response.model)]
    if response.reasoning:
        sequence += spans(ReasoningStart, "reasoning", [response.reasoning], kind="raw")
    if response.text:
        sequence += spans(TextStart, "text", [response.text])
    if response.refusal:
        sequence += spans(TextStart, "refusal", [response.refusal], refusal=True)
    sequence += [_source(item) for item in response.items if isinstance(item, Source)]
    calls = sorted((*response.tool_calls, *response.invalid_tool_calls), key=lambda call: call.id)
    if response.error is None:
        sequence += calls
    else:
        sequence += [
            ErrorPart("upstream", response.error.message, code=response.error.code),
            *calls,
        ]
    reason = response.finish_reason
    assert reason is not None
    if reason == "tool-calls" and not calls:
        reason = "stop"
    return [*sequence, Finish(reason, usage=_usage(response.usage))]


def _source(part: Source) -> Source:
    title, start, end = part.title or "", part.start or 0, part.end or 0
    return Source(part.url or "", "url", url=part.url, title=title, start=start, end=end)


def _usage(usage: Usage | None) -> Usage | None:
    if usage is None or None in (usage.input_tokens, usage.output_tokens):
        return None
    if usage.total_tokens is not None:
        return usage
    total = (usage.input_tokens or 0) + (usage.output_tokens or 0)
    return msgspec.structs.replace(usage, total_tokens=total)


def unavoidable(parts: Sequence[Part]) -> set[str]:
    """Findings of any decoder: arguments that are not JSON, unless the response failed."""
    failed = any(isinstance(part, ErrorPart) for part in parts)
    bad = any(isinstance(part, ToolCall) and part.invalid == "bad-arguments" for part in parts)
    return {"arguments-invalid"} if bad and not failed else set()


@examples(150)
@given(streams(mixed=True))
def test_what_is_encoded_decodes_to_the_same_parts_and_without_findings(
    parts: list[Part],
) -> None:
    there = back(b"".join(encode(parts, DIALECT, context=asked())))
    assert normal(there.parts) == normal(parts)
    assert {finding.code for finding in there.response.findings} == unavoidable(parts)


def in_order(response: Response) -> list[tuple[str, str]]:
    """Returns texts and calls in order; neighbouring parts of one kind are joined."""
    sequence: list[tuple[str, str]] = []
    for item in response.items:
        match item:
            case TextItem(text=text, refusal=refusal):
                kind = "refusal" if refusal else "text"
            case ReasoningItem(text=text):
                kind = "reasoning"
            case ToolCall(id=text):
                kind = "call"
            case _:  # sources come last
                continue
        if not text:
            continue
        if sequence and sequence[-1][0] == kind != "call":
            text = sequence.pop()[1] + text
        sequence.append((kind, text))
    return sequence


@examples(100)
@given(streams(mixed=False))
def test_items_that_do_not_overlap_keep_their_order(parts: list[Part]) -> None:
    there = back(b"".join(encode(parts, DIALECT, context=asked())))
    assert in_order(there.response) == in_order(assemble(parts))


@examples(100)
@given(streams(mixed=True))
def test_the_normalisation_is_idempotent(parts: list[Part]) -> None:
    once = normal(parts)
    assert normal(once) == once


@examples(150)
@given(streams(mixed=True))
def test_a_body_decodes_to_what_the_stream_decodes_to(parts: list[Part]) -> None:
    streamed = back(b"".join(encode(parts, DIALECT, context=asked())))
    whole = back(body(assemble(parts), asked()))
    assert whole.response.error == streamed.response.error
    if whole.response.error is None:  # a failed response has no body but the error
        assert normal(whole.parts) == normal(streamed.parts)
        assert {finding.code for finding in whole.response.findings} == unavoidable(parts)


# Captures: odd streams of this dialect, encoded again


NOT_CARRIED = {
    # references without an address
    "content-as-parts": ["source: only sources with a URL can be annotations"],
    # references without a place
    "body-with-citations": ["source: its place in the text is not known: written as 0 to 0"],
    "citations-on-every-chunk": ["source: its place in the text is not known: written as 0 to 0"],
    # usage of which only a part could be read
    "number-out-of-range": ["usage: clients need both input and output tokens"],
    # words that the wire itself does not have
    "finish-reason-cancelled": ["finish: reason other is written as stop"],
    "finish-reason-network-error": ["finish: reason other is written as stop"],
    "finish-reason-unknown": ["finish: reason other is written as stop"],
    "whole-call-then-an-unknown-reason": ["finish: reason other is written as tool_calls"],
    # calls that nobody can make
    "ends-before-a-name": ["tool-call: it has no name"],
    "phantom-arguments": ["tool-call: it has no name"],
    "phantom-entry-with-id": ["tool-call: it has no name"],
    "nameless-call-beside-a-whole-one": ["tool-call: it has no name"],
    # calls of a choice that is not read
    "body-over-two-choices": ["finish: no call could be written"],
    "one-answer-over-two-choices": ["finish: no call could be written"],
    "name-of-one-blank": [
        "tool-call: it has no name", "finish: no call could be written",
    ],
}  # fmt: skip
"""What a well-formed stream cannot carry of a capture, and why."""


def finish_summary(response: Response) -> str | None:
    """Returns the reason as it is decoded again: an unknown one is stop or tool-calls."""
    reason = response.finish_reason
    if reason not in ("other", "tool-calls"):
        return reason
    named = [call for call in response.invalid_tool_calls if call.name]
    if response.tool_calls:
        return "tool-calls"
    return reason if named and reason == "tool-calls" else "stop"


def summary_of(response: Response) -> dict[str, object]:
    """Returns all that the wire carries of a response. The kind of an error becomes its code."""
    error = response.error
    kind = error.kind if error and error.kind != "upstream" else None
    calls = [*response.tool_calls, *response.invalid_tool_calls]
    states = [
        (item.signature, item.encrypted, item.extra)
        for item in response.items
        if isinstance(item, ReasoningItem)
    ]
    return {
        "text": response.text,
        "reasoning": response.reasoning,
        "refusal": response.refusal,
        "calls": [call for call in calls if call.name],
        "states": [envelope for envelope in states if any(envelope[:2])],
        "sources": [one.url for one in response.items if isinstance(one, Source) and one.url],
        "finish": finish_summary(response),
        "usage": _usage(response.usage),
        "model": response.model if error is None else None,
        "error": error and (error.message, error.code or kind, error.status),
    }


@each_row("capture", CHAT, ids=str)
def test_a_capture_encoded_again_is_the_same_response(capture: Capture) -> None:
    for one in capture.decode_all():
        encoder = Encoder(DIALECT, context=asked(), fold=one.fold)
        there = back(b"".join(encoder.feed(one.parts)))
        assert summary_of(there.response) == summary_of(one.response)
        unsaid = NOT_CARRIED.get(str(capture), [])
        assert [finding.detail for finding in encoder.findings] == unsaid
        assert {finding.code for finding in there.response.findings} == unavoidable(one.parts)


# The official client, over real HTTP


@contextmanager
def served(answer: bytes, kind: str = "text/event-stream") -> Iterator[openai.OpenAI]:
    """Returns a client of a server that answers every request with these bytes."""
    with (
        serving(answer, kind) as url,
        openai_client(url) as client,
    ):
        yield client


HELLO: Any = [{"role": "user", "content": "hi"}]
EVERYTHING: list[Part] = [
    *thought(Raw(DETAILS)),
    *TEXT,
    *PARALLEL[:-1],
    ToolCall("b", "read", '{"y":2}', signature="c2ln", extra=Raw(b'{"loom":{"n":1}}')),
    Source("s", "url", "t", url="https://a.example", title="A", start=0, end=5),
    Source("s", "url", "t", url="https://b.example", title="B", start=0, end=5),
]
"""Signed reasoning, text, interleaved calls and sources, of this dialect."""


def check(message: Any, usage: Any) -> None:
    """Returns what a client has in the end."""
    assert (message.content, message.reasoning_content) == ("Hello", "hmm")
    calls = [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls]
    assert calls == [("a", "look", '{"x":1}'), ("b", "read", '{"y":2}')]
    assert message.tool_calls[1].extra_content == {"loom": {"n": 1}}
    assert message.reasoning_details == json.loads(DETAILS)["reasoning_details"]
    assert len(message.annotations) == 2
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (3, 4, 7)


def test_the_official_client_ends_with_the_same_text_calls_and_usage() -> None:
    answer = write(*EVERYTHING, start=OURS, context=asked())
    with (
        served(answer) as client,
        client.chat.completions.stream(model="m-1", messages=HELLO) as stream,
    ):
        seen = [event.type for event in stream]
        final = stream.get_final_completion()
    assert seen.count("tool_calls.function.arguments.delta") == 7
    assert final.choices[0].finish_reason == "tool_calls"
    check(final.choices[0].message, final.usage)


def test_the_official_client_reads_chunk_by_chunk() -> None:
    answer = write(*TEXT, *PARALLEL, context=asked())
    with served(answer) as client:
        found = list(client.chat.completions.create(model="m-1", messages=HELLO, stream=True))
    text = "".join(one.choices[0].delta.content or "" for one in found if one.choices)
    assert text == "Hello"
    assert found[-2].choices[0].finish_reason == "tool_calls"
    assert found[-1].choices == []
    assert found[-1].usage is not None
    assert found[-1].usage.total_tokens == 7


def test_the_official_client_reads_the_body() -> None:
    parts = [OURS, *EVERYTHING, Finish("tool-calls", usage=Usage(3, 4, 7))]
    with served(body(assemble(parts), plain()), "application/json") as client:
        completion = client.chat.completions.create(model="m-1", messages=HELLO)
    check(completion.choices[0].message, completion.usage)


def by_the_helper(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="m-1", messages=HELLO) as stream:
        stream.until_done()


def by_chunks(client: openai.OpenAI) -> None:
    list(client.chat.completions.create(model="m-1", messages=HELLO, stream=True))


@pytest.mark.parametrize("read", [by_the_helper, by_chunks])
def test_the_official_client_raises_on_a_stream_that_failed(
    read: Callable[[openai.OpenAI], None],
) -> None:
    answer = write(*TEXT[:2], ErrorPart("truncated", "cut off"), finish=Finish("error"))
    with served(answer) as client, pytest.raises(openai.APIError, match="cut off") as caught:
        read(client)
    assert (caught.value.code, caught.value.type) == ("truncated", "server_error")
