"""The Messages decoder: every event and block by its name, odd streams as captures, no finding for
a clean one.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, get_args

import anthropic.types as stable
import anthropic.types.beta as beta
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.captures import lines, unminted
from tests.recordings import FIXTURES
from tests.strategies import examples
from tests.tables import each_row
from weft import (
    DIALECTS,
    Context,
    Decoder,
    Ids,
    Opaque,
    Part,
    ReasoningItem,
    Response,
    Source,
    TextItem,
    ToolResult,
    Usage,
    decode_all,
    detect,
)
from weft.assembler import Assembler
from weft.dialects.anthropic_messages import wire
from weft.dialects.anthropic_messages.decoder import EVENTS
from weft.dialects.anthropic_messages.decoding.blocks import DELTAS, STARTS
from weft.dialects.anthropic_messages.wire import ERROR_TYPES, FINISH_REASONS
from weft.lifecycle import violations
from weft.sse import Frame

NAME: Final = "anthropic-messages"
Event = dict[str, Any]

CAPTURES = sorted((Path(__file__).parent / "captures" / "anthropic_messages").glob("*.sse"))
RECORDED = sorted(
    path for path in (FIXTURES / "anthropic").glob("*") if path.suffix in (".txt", ".json")
)

START: Event = {
    "type": "message_start",
    "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "content": [],
        "stop_reason": None, "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    },
}  # fmt: skip
STOP: Event = {"type": "message_stop"}


def capture(*events: Event) -> bytes:
    """The events as a server sends them."""
    blocks = [f"event: {event.get('type', '')}\ndata: {json.dumps(event)}\n\n" for event in events]
    return "".join(blocks).encode()


def end(reason: str | None = "end_turn", **delta: Any) -> list[Event]:
    fields = {"stop_reason": reason, "stop_sequence": None, **delta}
    return [{"type": "message_delta", "delta": fields, "usage": {"output_tokens": 7}}, STOP]


def read(*events: Event, reason: str | None = "end_turn") -> Response:
    (one,) = decode_all(capture(START, *events, *end(reason)), NAME)
    assert violations(one.parts, Assembler()) == []
    return one.response


def codes(response: Response) -> list[str]:
    return [finding.code for finding in response.findings]


def start(index: int, **block: Any) -> Event:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, type: str, **fields: Any) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": {"type": type, **fields}}


def stop(index: int) -> Event:
    return {"type": "content_block_stop", "index": index}


def block(index: int, *deltas: Event, **fields: Any) -> list[Event]:
    return [start(index, **fields), *deltas, stop(index)]


def text(index: int, content: str) -> list[Event]:
    return block(index, delta(index, "text_delta", text=content), type="text", text="")


def use(index: int, id: str, *pieces: str, type: str = "tool_use", **more: Any) -> list[Event]:
    deltas = [delta(index, "input_json_delta", partial_json=piece) for piece in pieces]
    return block(index, *deltas, **{"type": type, "id": id, "name": "look", "input": {}, **more})


# Every type of the official client


def names(union: Any) -> set[str]:
    """The types of the members of a union."""
    found: set[str] = set()
    for one in get_args(union):
        if hasattr(one, "model_fields"):
            found |= set(get_args(one.model_fields["type"].annotation))
        else:
            found |= names(one)
    return found


BLOCKS = names(stable.ContentBlock) | names(beta.BetaContentBlock)
DELTA_TYPES = names(stable.RawContentBlockDelta) | names(beta.BetaRawContentBlockDelta)
KINDS = names(stable.RawMessageStreamEvent) | names(beta.BetaRawMessageStreamEvent)


def test_every_type_of_the_official_client_has_a_handler() -> None:
    reasons = set(get_args(stable.StopReason)) | set(get_args(beta.BetaStopReason))
    assert len(BLOCKS) >= 18
    assert STARTS.keys() >= BLOCKS
    assert DELTAS.keys() >= DELTA_TYPES
    assert KINDS | {"ping", "error"} == EVENTS.keys()
    assert reasons <= FINISH_REASONS.keys()
    assert names(stable.TextCitation) | names(beta.BetaTextCitation) == wire.CITATIONS
    assert {name for name in BLOCKS if name.endswith("_tool_result")} == wire.RESULTS


SAMPLES: dict[str, tuple[dict[str, Any], str]] = {
    "text": ({"text": "a"}, "text-end"),
    "thinking": ({"thinking": "a", "signature": "s"}, "reasoning-end"),
    "redacted_thinking": ({"data": "d"}, "reasoning-end"),
    "tool_use": ({"id": "i", "name": "n", "input": {}}, "tool-call"),
    "server_tool_use": ({"id": "i", "name": "web_search", "input": {"q": 1}}, "tool-call"),
    "mcp_tool_use": ({"id": "i", "name": "n", "input": {}, "server_name": "s"}, "tool-call"),
    "container_upload": ({"file_id": "f"}, "opaque"),
    "compaction": ({"content": "c", "encrypted_content": None}, "opaque"),
    "fallback": ({"from": {"model": "a"}, "to": {"model": "b"}}, "opaque"),
    "mcp_tool_listing": ({"mcp_server_name": "s", "tools": []}, "opaque"),
    **dict.fromkeys(wire.RESULTS, ({"tool_use_id": "i", "content": []}, "tool-result")),
}
"""What each block holds, and the part that it ends with."""


@pytest.mark.parametrize("name", sorted(BLOCKS))
def test_a_block_of_every_type_is_decoded(name: str) -> None:
    fields, last = SAMPLES[name]
    (one,) = decode_all(capture(START, *block(0, type=name, **fields), *end()), NAME)
    assert one.parts[-2].type == last
    assert set(codes(one.response)) <= {"stop-with-calls"}


GROWING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "text_delta": ({"type": "text", "text": ""}, {"text": "a"}),
    "citations_delta": ({"type": "text", "text": ""}, {"citation": {"type": "char_location"}}),
    "thinking_delta": ({"type": "thinking", "thinking": ""}, {"thinking": "a"}),
    "signature_delta": ({"type": "thinking", "thinking": ""}, {"signature": "a"}),
    "input_json_delta": (SAMPLES["tool_use"][0] | {"type": "tool_use"}, {"partial_json": "{}"}),
    "compaction_delta": ({"type": "compaction"}, {"content": "a", "encrypted_content": "b"}),
}


@pytest.mark.parametrize("name", sorted(DELTA_TYPES))
def test_a_delta_of_every_type_is_decoded(name: str) -> None:
    fields, more = GROWING[name]
    response = read(*block(0, delta(0, name, **more), **fields))
    assert set(codes(response)) <= {"stop-with-calls"}
    assert response.items


@pytest.mark.parametrize(("word", "reason"), FINISH_REASONS.items())
def test_every_stop_reason_has_its_finish_reason(word: str, reason: str) -> None:
    response = read(*text(0, "a"), reason=word)
    assert (response.finish_reason, response.raw_finish_reason) == (reason, word)
    assert response.findings == ()


def test_an_unknown_stop_reason_is_other() -> None:
    assert read(*text(0, "a"), reason="bored").finish_reason == "other"


@pytest.mark.parametrize(("type", "meaning"), ERROR_TYPES.items())
def test_every_error_has_its_status(type: str, meaning: tuple[int, bool]) -> None:
    body = {"type": "error", "error": {"type": type, "message": "no"}, "request_id": "r"}
    raw = json.dumps(body).encode()
    (one,) = decode_all(raw, NAME)
    error = one.response.error
    assert detect(raw) == NAME
    assert error is not None
    assert (error.kind, error.message, error.code) == ("upstream", "no", type)
    assert (error.status, error.retryable) == meaning
    assert one.response.findings == ()


# Captures


def test_there_are_captures() -> None:
    assert len(CAPTURES) > 30


@each_row("path", CAPTURES, ids=lambda path: path.stem)
def test_a_capture_decodes_to_its_golden_parts(path: Path) -> None:
    raw = path.read_bytes()
    decoded = decode_all(raw, NAME)
    assert detect(raw) == NAME
    golden = path.with_suffix(".parts.jsonl").read_bytes()
    assert unminted(b"".join(lines(one.parts) for one in decoded)) == unminted(golden)
    for one in decoded:
        assert violations(one.parts, Assembler()) == []


CLEAN = {
    "plain", "thinking-signed", "thinking-omitted-and-redacted", "call-without-arguments",
    "parallel-calls", "search-with-citations", "citations-of-documents", "remote-tools",
    "executed-tools-that-fail", "call-made-by-code-in-the-first-event", "paused-turn-goes-on",
    "executed-call-with-an-odd-id",
    "refusal-with-details", "refusal-without-a-block", "stop-sequence", "context-window-exceeded",
    "compaction", "fallback-renames-the-model", "error-inside-text", "error-body", "body",
    "no-event-lines", "two-messages", "text-in-the-start-block",
    "no-message-stop", "cut-inside-a-call", "another-message-spliced-in",
}  # fmt: skip
"""Captures without any repair: the wire as documented, and what a reader may not need."""

ODD = {
    "arguments-at-the-start-and-by-deltas": ["arguments-repeated"],
    "blocks-interleaved": ["block-interleaved"],
    "body-with-a-call-repeated": ["block-empty", "call-repeated", "call-id-collision"],
    "call-left-open": ["end-missing"],
    "call-left-open-and-cut": ["end-missing", "end-missing"],
    "call-repeated": ["call-repeated", "call-id-collision", "call-repeated", "call-id-collision"],
    "call-repeated-and-cut": ["end-missing", "call-id-collision", "end-missing"],
    "character-cut-in-two": ["surrogate-lone"],
    "delta-after-the-stop": ["delta-late", "block-interleaved", "delta-late", "end-missing"],
    "deltas-that-do-not-fit": ["event-unknown", "event-unknown", "end-repeated",
                               "end-without-start"],
    "deltas-without-a-start": ["start-missing"] * 3 + ["call-id-minted", "call-nameless"],
    "done-at-the-end": ["event-unknown"],
    "empty-object-before-the-arguments": ["arguments-placeholder"],
    "index-gap": ["block-index-gap", "block-index-gap"],
    "index-zero-for-every-block": ["call-index-reused"] * 3,
    "message-start-twice": ["metadata-repeated"],
    "no-indexes": ["call-index-missing"],
    "no-message-start": ["metadata-missing"],
    "no-stop-reason": ["finish-inferred"],
    "no-usage-at-the-end": ["field-missing"],
    "one-id-for-two-calls": ["call-id-collision"],
    "stop-reason-erased": ["finish-repeated"],
    "stop-reason-told-twice": ["finish-repeated"],
    "text-block-empty": ["block-empty", "block-empty"],
    "thinking-left-open": ["block-interleaved", "end-missing"],
    "tokens-run-out-inside-a-call": ["arguments-invalid"],
    "unknown-block-and-event": ["event-unknown", "event-unknown"],
}  # fmt: skip


@each_row("path", CAPTURES, ids=lambda path: path.stem)
def test_a_capture_leaves_the_findings_of_its_repairs_and_no_others(path: Path) -> None:
    found = [code for one in decode_all(path.read_bytes(), NAME) for code in codes(one.response)]
    assert found == ([] if path.stem in CLEAN else ODD[path.stem])


SINGLE = [
    path for path in CAPTURES if path.stem not in ("two-messages", "another-message-spliced-in")
]


def fed(pieces: list[bytes]) -> tuple[list[Part], list[str]]:
    decoder = Decoder(NAME, context=Context(ids=Ids(b"1")))
    parts = [part for piece in pieces for part in decoder.feed(piece)]
    return [*parts, *decoder.finish()], [finding.code for finding in decoder.findings]


@each_row("path", SINGLE, ids=lambda path: path.stem)
def test_fed_byte_by_byte_the_parts_are_the_same(path: Path) -> None:
    raw = path.read_bytes()
    assert fed([raw[at : at + 1] for at in range(len(raw))]) == fed([raw])


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: path.stem)
@examples(8)
@given(cuts=st.lists(st.integers(0, 4000), max_size=8))
def test_where_the_network_cuts_the_bytes_changes_nothing(path: Path, cuts: list[int]) -> None:
    raw = path.read_bytes()
    edges = pairwise([0, *sorted(cuts), len(raw)])
    assert fed([raw[left:right] for left, right in edges]) == fed([raw])


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: path.stem)
@examples(20)
@given(at=st.integers(0, 3000), byte=st.integers(0, 255))
def test_damaged_or_truncated_bytes_give_legal_parts(path: Path, at: int, byte: int) -> None:
    raw = path.read_bytes()
    at = at % len(raw)
    for damaged in (raw[:at], raw[:at] + bytes([byte]) + raw[at + 1 :]):
        for one in decode_all(damaged, NAME):
            assert violations(one.parts, Assembler()) == []
            lines(one.parts).decode()


# Recordings

APART = {
    "anthropic-programmatic-tool-calling.1": "the stream holds 15 responses, the body is all of "
    "them in one message, whose calls were answered although its reason is end_turn",
    "anthropic-advisor-stop-reasons": "the body leaves out the counts of cached tokens",
    "anthropic-code-execution-20250825.pptx-skill": "two long runs that went different ways",
    "anthropic-web-search-tool.1": "one search in the stream, two in the body",
}
"""Streams and bodies of one name that differ, and why."""


@each_row("path", RECORDED, ids=lambda path: path.name)
def test_a_recording_decodes_to_legal_parts(path: Path) -> None:
    raw = path.read_bytes()
    assert detect(raw) == NAME
    for one in decode_all(raw, NAME):
        assert violations(one.parts, Assembler()) == []
        assert one.response.error is None
        assert not one.response.invalid_tool_calls
        whole = path.name == "anthropic-programmatic-tool-calling.1.json"
        assert codes(one.response) == (["stop-with-calls"] if whole else [])


def pairs() -> list[tuple[Path, Path]]:
    streams = [path for path in RECORDED if path.name.endswith(".chunks.txt")]
    bodies = [path.with_name(path.name.replace(".chunks.txt", ".json")) for path in streams]
    return [pair for pair in zip(streams, bodies, strict=True) if pair[1].exists()]


def gist(path: Path) -> object:
    """What two runs of one prompt agree in: which calls, which items, how it ended."""
    response = decode_all(path.read_bytes(), NAME)[0].response
    calls = [(one.name, one.kind, one.provider_executed, one.dynamic) for one in response._calls()]
    usage = response.usage
    assert usage is not None
    counted = [getattr(usage, name) is not None for name in usage.__struct_fields__]
    seen = bool(response.text), bool(response.reasoning), response.finish_reason
    signed = [one.signature is None for one in response.items if isinstance(one, ReasoningItem)]
    return calls, seen, signed, counted


@pytest.mark.parametrize("pair", pairs(), ids=lambda pair: pair[0].name)
def test_a_recorded_stream_equals_the_recorded_body_of_the_same_name(
    pair: tuple[Path, Path],
) -> None:
    stream, body = pair
    apart = stream.name.removesuffix(".chunks.txt") in APART
    assert (gist(stream) == gist(body)) is not apart


def test_a_stream_and_a_body_of_one_message_give_the_same_response() -> None:
    cite = {"type": "char_location", "cited_text": "w", "document_index": 0}
    raw = capture(
        START,
        *block(0, delta(0, "thinking_delta", thinking="hm"), delta(0, "signature_delta",
               signature="s"), type="thinking", thinking="", signature=""),
        *block(1, delta(1, "text_delta", text="warp"), delta(1, "citations_delta", citation=cite),
               type="text", text=""),
        *use(2, "a", '{"x":', " 1}"),
        *use(3, "b", ""),
        *use(4, "c", type="server_tool_use", name="web_search"),
        *block(5, type="web_search_tool_result", tool_use_id="c",
               content=[{"type": "web_search_result", "url": "https://a.example", "title": "A"}]),
        *end("tool_use"),
    )  # fmt: skip
    body = {
        **START["message"],
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "warp", "citations": [cite]},
            {"type": "tool_use", "id": "a", "name": "look", "input": {"x": 1}},
            {"type": "tool_use", "id": "b", "name": "look", "input": {}},
            {"type": "server_tool_use", "id": "c", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "c",
             "content": [{"type": "web_search_result", "url": "https://a.example", "title": "A"}]},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 10, "output_tokens": 7},
    }  # fmt: skip
    (one,), (other,) = decode_all(raw, NAME), decode_all(json.dumps(body).encode(), NAME)
    first, second = one.response, other.response
    assert (first.text, first.reasoning, first.usage) == (second.text, second.reasoning,
                                                          second.usage)  # fmt: skip
    assert first.tool_calls[1:] == second.tool_calls[1:]
    assert json.loads(first.tool_calls[0].params) == json.loads(second.tool_calls[0].params)
    assert first.items[-2:] == second.items[-2:]
    assert first.findings == second.findings == ()
    assert first.finish_reason == second.finish_reason == "tool-calls"


# One by one


def test_input_tokens_include_cached_ones_and_the_last_count_wins() -> None:
    first = {"input_tokens": 5, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 100,
             "output_tokens": 1}  # fmt: skip
    last = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {
            "input_tokens": 6,
            "output_tokens": 9,
            "output_tokens_details": {"thinking_tokens": 4},
        },
    }
    opened = {**START, "message": {**START["message"], "usage": first}}
    (one,) = decode_all(capture(opened, *text(0, "a"), last, last, STOP), NAME)
    assert one.response.usage == Usage(126, 9, None, 4, 100, 20)
    assert one.response.findings == ()


def test_missing_usage_is_none() -> None:
    bare = {"type": "message_start", "message": {"id": "m", "usage": {}}}
    last = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    (one,) = decode_all(capture(bare, last, STOP), NAME)
    assert one.response.usage is None
    (other,) = decode_all(capture({"type": "message_start", "message": {"id": "m"}}), NAME)
    assert other.response.usage is None


def test_the_origin_of_a_signature_is_the_upstream_if_it_is_known() -> None:
    raw = capture(START, *block(0, type="redacted_thinking", data="d"), *end())
    for origin in (None, "mirror"):
        (one,) = decode_all(raw, NAME, context=Context(origin=origin))
        (thought,) = one.response.items
        assert isinstance(thought, ReasoningItem)
        assert (thought.redacted, thought.origin) == ("d", origin or NAME)


def test_unsigned_thinking_has_no_origin() -> None:
    (thought,) = read(
        *block(0, delta(0, "thinking_delta", thinking="a"), type="thinking", thinking="")
    ).items
    assert isinstance(thought, ReasoningItem)
    assert (thought.text, thought.signature, thought.origin) == ("a", None, None)


def test_a_second_signature_replaces_the_first() -> None:
    deltas = [delta(0, "signature_delta", signature=one) for one in ("a", "b")]
    response = read(*block(0, *deltas, type="thinking", thinking=""))
    (thought,) = response.items
    assert isinstance(thought, ReasoningItem)
    assert (thought.signature, codes(response)) == ("b", ["field-dropped"])


def test_a_call_keeps_its_caller_and_its_toolset() -> None:
    caller = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
    (call,) = read(*use(0, "a", caller=caller, toolset_name="set")).tool_calls
    assert call.caller == "srvtoolu_1"
    assert isinstance(call.extra, Raw)
    assert json.loads(bytes(call.extra)) == {"caller": caller, "toolset_name": "set"}


@pytest.mark.parametrize("given", [None, {}, ""])
def test_an_empty_input_means_no_arguments(given: object) -> None:
    (call,) = read(*block(0, type="tool_use", id="a", name="look", input=given)).tool_calls
    assert call.params == "{}"


def test_an_input_that_is_not_an_object_stays_as_it_is() -> None:
    (call,) = read(*block(0, type="tool_use", id="a", name="look", input=[1])).tool_calls
    assert call.params == "[1]"


def test_results_of_one_id_go_to_the_newest_call() -> None:
    content: list[object] = []
    twice = [
        *use(0, "a", "{}", type="server_tool_use"),
        *use(1, "a", '{"x":1}', type="server_tool_use"),
    ]
    response = read(*twice, *block(2, type="x_tool_result", tool_use_id="a", content=content))
    (result,) = [item for item in response.items if isinstance(item, ToolResult)]
    assert (result.id, result.earlier) == ("a_2", False)


def test_a_result_without_an_id_or_content_is_passed_on_unparsed() -> None:
    response = read(*block(0, type="web_search_tool_result", tool_use_id="", content=[]))
    (kept,) = response.items
    assert isinstance(kept, Opaque)
    assert (kept.kind, codes(response)) == ("web_search_tool_result", ["field-dropped"])


def test_search_hits_are_sources_and_a_search_error_has_none() -> None:
    hits = [{"type": "web_search_result", "url": "https://a.example"}, {"no": "url"}, 7]
    response = read(
        *use(0, "a", type="server_tool_use"),
        *block(1, type="web_search_tool_result", tool_use_id="a", content=hits),
        *use(2, "b", type="server_tool_use"),
        *block(3, type="web_search_tool_result", tool_use_id="b",
               content={"type": "web_search_tool_result_error", "error_code": "unavailable"}),
    )  # fmt: skip
    assert [one.url for one in response.items if isinstance(one, Source)] == ["https://a.example"]
    results = [one for one in response.items if isinstance(one, ToolResult)]
    assert [one.is_error for one in results] == [False, True]


def test_a_delta_without_a_type_is_recognised_by_its_fields() -> None:
    bare = [{"type": "content_block_delta", "index": 0, "delta": {key: value}}
            for key, value in (("thinking", "hm"), ("signature", "s"))]  # fmt: skip
    (thought,) = read(*block(0, *bare, type="thinking", thinking="")).items
    assert isinstance(thought, ReasoningItem)
    assert (thought.text, thought.signature) == ("hm", "s")


def test_empty_deltas_give_no_parts() -> None:
    empty = {"type": "content_block_delta", "index": 0}
    deltas = [delta(0, "text_delta", text=""), delta(0, "citations_delta"), empty]
    response = read(*block(0, *deltas, type="text", text=""))
    assert (response.items, codes(response)) == ((), ["event-unknown", "block-empty"])


def test_a_delta_without_index_or_block_opens_one() -> None:
    events = [{"type": "content_block_delta", "delta": {"type": kind, **more}} for kind, more in (
        ("text_delta", {"text": "a"}), ("text_delta", {"text": "b"}))]  # fmt: skip
    lost = {"type": "content_block_delta", "index": 5, "delta": {"type": "hum_delta"}}
    response = read(*events, {"type": "content_block_stop"}, lost, stop(5))
    assert response.text == "ab"
    assert codes(response) == ["call-index-missing", "start-missing", "start-missing",
                               "event-unknown", "event-unknown"]  # fmt: skip


def test_a_start_that_comes_again_starts_nothing() -> None:
    first, grown, last = use(0, "a", '{"x":1}')
    response = read(first, first, grown, last, reason="tool_use")
    assert [(one.id, one.params) for one in response.tool_calls] == [("a", '{"x":1}')]
    assert codes(response) == ["start-repeated"]


def test_a_compaction_that_is_not_an_object_stays_as_it_is() -> None:
    odd = {"type": "content_block_start", "index": 0, "content_block": "compaction"}
    response = read(odd, delta(0, "compaction_delta", content="c"), stop(0))
    (kept,) = response.items
    assert isinstance(kept, Opaque)
    assert bytes(kept.raw) == b'"compaction"'
    assert codes(response) == ["event-unknown", "field-dropped"]


def test_a_compaction_delta_without_a_value_changes_nothing() -> None:
    response = read(*block(0, delta(0, "compaction_delta"), type="compaction", content="c"))
    (kept,) = response.items
    assert isinstance(kept, Opaque)
    assert json.loads(bytes(kept.raw)) == {"type": "compaction", "content": "c"}


def test_a_block_that_is_null_is_passed_on_with_a_finding() -> None:
    response = read({"type": "content_block_start", "index": 0}, stop(0))
    (kept,) = response.items
    assert isinstance(kept, Opaque)
    assert (kept.kind, codes(response)) == ("unknown", ["event-unknown"])


@pytest.mark.parametrize(
    ("arguments", "reason", "invalid"),
    [
        ('{"x":1}', "tool_use", None),
        ("", "tool_use", None),
        ('{"x":', "tool_use", "stream-failed"),
        ('{"x":1}', "max_tokens", "stream-failed"),
        ('{"x":1}', "end_turn", "stream-failed"),
    ],
)
def test_an_open_call_is_complete_if_the_message_stops_for_it_and_its_json_is_valid(
    arguments: str, reason: str, invalid: str | None
) -> None:
    response = read(*use(0, "a", arguments)[:-1], reason=reason)
    assert [one.invalid for one in response._calls()] == [invalid]
    assert "end-missing" in codes(response)


@pytest.mark.parametrize(
    ("arguments", "reason", "found"),
    [
        ('{"x":2}', "tool_use", [None, None]),
        ('{"x":2}', "max_tokens", [None, "stream-failed"]),
        ('{"x":', "tool_use", [None, "stream-failed"]),
        ('{"x":1}', "tool_use", [None]),
        ('{"x":1}', "max_tokens", [None]),
    ],
)
def test_an_open_call_that_repeats_an_id_is_complete_like_any_other(
    arguments: str, reason: str, found: list[str | None]
) -> None:
    events = [*use(0, "a", '{"x":1}'), *use(1, "a", arguments)[:-1]]
    calls = read(*events, reason=reason)._calls()
    assert [call.invalid for call in calls] == found


def test_an_open_compaction_is_not_lost_at_a_clean_end() -> None:
    response = read(start(0, type="compaction", content="c"))
    assert [type(item) for item in response.items] == [Opaque]
    assert codes(response) == ["end-missing"]


def test_lone_surrogates_in_calls_and_thinking_are_replaced() -> None:
    (one,) = decode_all(
        capture(START, *block(0, delta(0, "thinking_delta", thinking="a\ud83e"), type="thinking",
                              thinking=""),
                *use(1, "a", '{"x":"', "\ud83e", "\udea1", '"}'), *end("tool_use")), NAME,
    )  # fmt: skip
    assert one.response.reasoning == "a\ufffd"
    assert [call.params for call in one.response.tool_calls] == ['{"x":"\U0001faa1"}']
    assert codes(one.response) == ["surrogate-lone"]


def test_bytes_that_are_not_utf8_are_replaced_in_every_field() -> None:
    result = block(0, type="x_tool_result", tool_use_id="a", content="@@")
    raw = capture(START, *result, *text(1, "@@"), *end()).replace(b"@@", b"\xff")
    (one,) = decode_all(raw, NAME)
    assert one.response.text == "\ufffd"
    body = {**START["message"], "content": [{"type": "hologram", "rays": "@@"}]}
    (other,) = decode_all(json.dumps(body).encode().replace(b"@@", b"\xff"), NAME)
    (kept,) = other.response.items
    assert isinstance(kept, Opaque)
    assert json.loads(bytes(kept.raw))["rays"] == "\ufffd"


def test_wrong_types_are_coerced_or_left_out() -> None:
    response = read(
        *block(0, delta(0, "text_delta", text={"a": 1}), type="text", text=None),
        *block(1, delta(1, "input_json_delta", partial_json={"a": 1}), type="tool_use",
               id="a", name="look"),
    )  # fmt: skip
    assert response.text == '{"a":1}'
    assert [call.params for call in response.tool_calls] == ['{"a":1}']
    assert set(codes(response)) == {"field-coerced", "field-missing", "stop-with-calls"}


@pytest.mark.parametrize(
    ("frame", "kind", "message"),
    [
        (b'event: error\ndata: {"error":{"type":"api_error","message":"no"}}', "upstream", "no"),
        (b'data: {"error":{"message":"no"}}', "upstream", "no"),
        (b'data: {"type":"error","error":"no"}', "upstream", "no"),
        (b'data: {"type":"error","message":"no"}', "upstream", "no"),
        (b'data: {"type":"error","error":{"type":"odd"}}', "upstream", "odd"),
        (b'data: {"type":"error"}', "upstream", "unknown error"),
        (b"data: no", "upstream", "no"),
        (b"event: error\ndata: no", "upstream", "no"),
        (b'data: {"type":', "malformed", ""),
    ],
)
def test_every_shape_of_an_error_is_decoded(frame: bytes, kind: str, message: str) -> None:
    raw = capture(START, start(0, type="text", text="a"))
    late = capture(*text(1, "late"), STOP)
    decoder = Decoder(NAME, context=Context(ids=Ids(b"1")))
    parts = decoder.feed(raw + frame + b"\n\n" + late) + decoder.finish()
    assert violations(parts, Assembler()) == []
    response = decoder.response
    assert response.error is not None
    assert response.error.kind == kind
    assert not message or response.error.message == message
    assert (response.text, response.finish_reason) == ("a", "error")
    assert codes(response) == ["after-error"]


def test_after_an_error_usage_and_the_reason_are_still_read() -> None:
    failed = {"type": "error", "error": {"type": "api_error", "message": "no"}}
    (one,) = decode_all(capture(START, failed, failed, *end("refusal")), NAME)
    response = one.response
    assert (response.finish_reason, response.raw_finish_reason) == ("error", "refusal")
    assert response.usage == Usage(10, 7)
    (cut,) = decode_all(capture(START, failed), NAME)
    assert (cut.response.finish_reason, cut.response.usage) == ("error", Usage(10, 1))


def test_an_error_before_message_start_gets_metadata() -> None:
    (one,) = decode_all(b"data: bad gateway\n\n", NAME)
    assert [part.type for part in one.parts] == ["response-metadata", "error", "finish"]
    assert one.response.findings == ()


def test_a_named_event_that_is_not_json_is_ignored() -> None:
    raw = capture(START) + b"event: note\ndata: hello\n\n" + capture(*text(0, "a"), *end())
    (one,) = decode_all(raw, NAME)
    assert (one.response.text, codes(one.response)) == ("a", ["event-unknown"])


def test_the_event_line_alone_can_say_the_type() -> None:
    raw = capture(START, *text(0, "a"), *end()).replace(b'"type": "content_block_delta", ', b"")
    (one,) = decode_all(raw, NAME)
    assert (one.response.text, codes(one.response)) == ("a", ["field-missing"])


def test_pings_are_allowed_everywhere() -> None:
    ping = {"type": "ping"}
    (one,) = decode_all(capture(ping, START, ping, *text(0, "a"), ping, *end(), ping), NAME)
    assert (one.response.text, one.response.findings) == ("a", ())


def test_a_message_without_an_id_gets_one() -> None:
    unnamed = {**START, "message": {**START["message"], "id": None}}
    (one,) = decode_all(capture(unnamed, *text(0, "a"), *end()), NAME)
    assert one.response.id.startswith("msg_")
    assert codes(one.response) == ["metadata-id-minted"]


def test_content_after_the_stop_reason_still_counts() -> None:
    (one,) = decode_all(capture(START, end()[0], *text(0, "a"), STOP), NAME)
    assert (one.response.text, codes(one.response)) == ("a", ["finish-late-content"])


def test_a_whole_message_beside_a_stream_is_ignored() -> None:
    decoder = Decoder(NAME, context=Context(ids=Ids(b"1")))
    parts = decoder.feed(capture(START, {**START["message"]}, *text(0, "a"), *end()))
    assert [part.type for part in parts][-1] == "finish"
    assert [finding.code for finding in decoder.findings] == ["message-ignored"]
    assert decoder.finish() == []


def test_an_event_with_an_id_that_came_before_is_a_replay() -> None:
    said = b"id: 7\n" + capture(delta(0, "text_delta", text="a"))
    raw = capture(START, start(0, type="text", text="")) + said + said + capture(stop(0), *end())
    (one,) = decode_all(raw, NAME)
    assert (one.response.text, codes(one.response)) == ("a", ["frame-replayed"])


def test_one_newline_and_a_missing_blank_line_are_read() -> None:
    events = [START, *text(0, "a"), *end()]
    tight = b"\n".join(b"data: " + json.dumps(event).encode() for event in events)
    (one,) = decode_all(tight, NAME)
    assert (one.response.text, one.response.finish_reason) == ("a", "stop")
    assert set(codes(one.response)) == {"frame-lines-split", "frame-unterminated"}
    (cut,) = decode_all(capture(START, *text(0, "a"))[:-20], NAME)
    assert cut.response.error is not None
    assert (cut.response.text, cut.response.error.kind) == ("a", "truncated")
    assert codes(cut.response) == ["frame-unterminated"]


def test_a_stream_without_an_answer_is_empty() -> None:
    (one,) = decode_all(capture(START), NAME)
    assert one.response.error is not None
    assert one.response.error.kind == "empty"
    (nothing,) = decode_all(capture({"type": "ping"}), NAME)
    assert nothing.response.error is not None


@pytest.mark.parametrize(
    "foreign",
    [
        {"type": "error", "sequence_number": 1, "error": {"type": "api_error", "message": "no"}},
        {"type": "error", "error": {"type": "rate_limit_error", "code": "x", "message": "no"}},
        {"type": "error", "error": {"type": "odd"}},
        {"type": "message", "role": "user"},
        {"type": "ping"},
        {"choices": []},
    ],
)
def test_events_that_other_dialects_share_do_not_identify_this_one(foreign: Event) -> None:
    assert not DIALECTS[NAME].speaks(Frame(json.dumps(foreign).encode()))


def test_two_bodies_are_two_responses() -> None:
    body = json.dumps({**START["message"], "stop_reason": "end_turn"}).encode()
    assert len(decode_all(body + b"\n" + body + b"\n", NAME)) == 2


def test_two_text_blocks_are_two_texts() -> None:
    response = read(*text(0, "a"), *text(1, "b"))
    assert [(i.id, i.text) for i in response.items if isinstance(i, TextItem)] == [
        ("msg_1:0", "a"),
        ("msg_1:1", "b"),
    ]
