"""The Messages encoder: one block at a time, nothing forged, nothing lost without a finding."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import anthropic
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jiter import from_json
from msgspec import Raw

from tests.captures import CHAT, Capture
from tests.encoded import CALL, TEXT, named_events
from tests.serving import anthropic_client, serving
from tests.strategies import ANY_PART, SOUP, examples
from tests.tables import each_row
from tests.test_anthropic_messages_decoder import CAPTURES, RECORDED
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
    ReasoningStart,
    Request,
    Response,
    ResponseMetadata,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
    Usage,
    assemble,
    convert,
    decode_all,
    encode,
)
from weft.dialects import DialectName
from weft.dialects.anthropic_messages.encoder import body
from weft.dialects.envelope import Envelope, ReasoningState, wrap
from weft.dialects.requests.names import NameSanitizer
from weft.findings import Findings
from weft.lifecycle import FAMILY
from weft.partial_json import Scan, escape, is_json
from weft.parts import ItemPart

NAME: Final = "anthropic-messages"
Event = dict[str, Any]

START = ResponseMetadata("up_1", model="m-1", usage=Usage(input_tokens=30, cache_read_tokens=20))
OTHER: list[Part] = [
    ToolParamsStart("call_2", "read"),
    ToolParamsDelta("call_2", '{"from":'),
    ToolParamsDelta("call_2", "2}"),
    ToolParamsEnd("call_2"),
    ToolCall("call_2", "read", '{"from":2}'),
]
END = Finish("stop", usage=Usage(30, 4))


def write(*parts: Part, finish: Part = END, first: Part = START) -> bytes:
    return b"".join(encode([first, *parts, finish], NAME, context=Context(ids=Ids(b"1"))))


def written(*parts: Part, finish: Part = END, first: Part = START) -> list[Event]:
    return named_events(write(*parts, finish=finish, first=first))


def blocks(found: list[Event]) -> list[Event]:
    """The content, put together as clients do, after checking that one block is open at a time."""
    content: list[Event] = []
    current: int | None = None
    for event in found:
        match event["type"]:
            case "content_block_start":
                assert (current, event["index"]) == (None, len(content))
                current = event["index"]
                content.append(dict(event["content_block"]))
            case "content_block_delta":
                assert event["index"] == current
                grow(content[-1], event["delta"])
            case "content_block_stop":
                assert event["index"] == current
                current = None
            case "message_delta":
                assert current is None
    return content


FITS = {
    "text_delta": ("text",),
    "citations_delta": ("text",),
    "thinking_delta": ("thinking",),
    "signature_delta": ("thinking",),
    "input_json_delta": ("tool_use", "server_tool_use", "mcp_tool_use"),
}


def grow(block: Event, delta: Event) -> None:
    assert block["type"] in FITS[delta["type"]]
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            assert block["signature"] == ""
            block["thinking"] += delta["thinking"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case "input_json_delta":
            block["json"] = block.get("json", "") + delta["partial_json"]
        case "citations_delta":
            block["citations"] = [*block.get("citations", []), delta["citation"]]


def lost(*parts: Part, first: Part = START) -> list[str]:
    """The findings of the encoder, each as far as its colon."""
    encoder = Encoder(NAME, context=Context(ids=Ids(b"1")))
    guard = Guard(Ids(b"1"), Findings())
    encoder.feed(guard.feed([first, *parts, END]))
    assert {finding.code for finding in encoder.findings} <= {"not-carried"}
    return [finding.detail.partition(":")[0] for finding in encoder.findings]


# The message


def test_text_is_encoded_as_the_vendor_writes_it() -> None:
    assert written(*TEXT) == [
        {
            "type": "message_start",
            "message": {
                "id": Ids(b"1").mint("msg"), "model": "m-1", "type": "message",
                "role": "assistant", "content": [], "stop_reason": None, "stop_sequence": None,
                "usage": {"input_tokens": 10, "output_tokens": 0, "cache_read_input_tokens": 20},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"input_tokens": 10, "output_tokens": 4, "cache_read_input_tokens": 20},
        },
        {"type": "message_stop"},
    ]  # fmt: skip


def test_the_id_and_the_model_of_the_context_are_used() -> None:
    context = Context(response_id="msg_ours", request=Request("asked"))
    raw = b"".join(encode([ResponseMetadata("x"), Finish("stop")], NAME, context=context))
    message = named_events(raw)[0]["message"]
    assert (message["id"], message["model"]) == ("msg_ours", "asked")
    assert message["usage"] == {"input_tokens": 0, "output_tokens": 0}


@pytest.mark.parametrize(
    ("finish", "word"),
    [
        (Finish("stop"), "end_turn"),
        (Finish("stop", stop_sequence="\n\n"), "stop_sequence"),
        (Finish("length"), "max_tokens"),
        (Finish("pause"), "pause_turn"),
        (Finish("other", raw_reason="bored"), "end_turn"),
        (Finish("tool-calls"), "end_turn"),
        (Finish("content-filter"), "refusal"),
    ],
)
def test_the_finish_reason_decides_the_stop_reason(finish: Finish, word: str) -> None:
    last = written(*TEXT, finish=finish)[-2]
    assert last["delta"]["stop_reason"] == word
    assert last["delta"]["stop_sequence"] == finish.stop_sequence
    refused = {"type": "refusal", "category": None, "explanation": None}
    assert last["delta"].get("stop_details") == (refused if word == "refusal" else None)


def test_a_response_with_calls_stops_with_tool_use() -> None:
    assert written(*CALL)[-2]["delta"]["stop_reason"] == "tool_use"


def test_input_tokens_are_written_without_cached_ones() -> None:
    usage = Usage(126, 9, None, 4, 100, 20)
    assert written(finish=Finish("stop", usage=usage))[-2]["usage"] == {
        "input_tokens": 6,
        "output_tokens": 9,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 100,
        "output_tokens_details": {"thinking_tokens": 4},
    }
    less = Usage(5, 1, cache_read_tokens=9)
    assert written(finish=Finish("stop", usage=less))[-2]["usage"]["input_tokens"] == 0


def test_a_keepalive_is_a_ping() -> None:
    assert Encoder(NAME).keepalive() == [b'event: ping\ndata: {"type":"ping"}\n\n']


# Blocks


def test_thinking_carries_a_signature_of_this_dialect() -> None:
    found = written(
        ReasoningStart("r", "raw"),
        ReasoningDelta("r", "hm"),
        ReasoningEnd("r", signature="sig", origin=NAME),
        ReasoningStart("s", "raw"),
        ReasoningEnd("s", signature="only", origin=NAME),
        ReasoningStart("u", "raw"),
        ReasoningEnd("u", redacted="data", origin=NAME),
    )
    assert blocks(found) == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "thinking", "thinking": "", "signature": "only"},
        {"type": "redacted_thinking", "data": "data"},
    ]


def test_a_signature_of_another_origin_is_wrapped_and_none_is_made_up() -> None:
    parts: list[Part] = [
        ReasoningStart("r", "summary"),
        ReasoningDelta("r", "hm"),
        ReasoningEnd("r", encrypted="xyz", origin="openai-responses"),
        ReasoningStart("s", "raw"),
        ReasoningEnd("s", signature="sig"),
        ReasoningStart("u", "raw"),
        ReasoningEnd("u"),
    ]
    (block,) = blocks(written(*parts))
    envelope = Envelope("openai-responses", "m-1", ReasoningState(encrypted="xyz", kind="summary"))
    assert block == {"type": "thinking", "thinking": "hm", "signature": wrap(envelope)}
    assert lost(*parts) == ["reasoning-end", "reasoning-start", "reasoning-start"]


def test_the_origin_may_be_the_upstream() -> None:
    parts = [START, ReasoningStart("r", "raw"), ReasoningEnd("r", signature="s", origin="mirror")]
    raw = b"".join(encode([*parts, END], NAME, context=Context(origin="mirror")))
    assert blocks(named_events(raw)) == [{"type": "thinking", "thinking": "", "signature": "s"}]


SIGNED: list[Part] = [
    ToolParamsStart("call.1", "look", signature="s", origin="host"),
    ToolParamsDelta("call.1", '{"at":1}'),
    ToolParamsEnd("call.1"),
    ToolCall("call.1", "look", '{"at":1}', signature="s", origin="host"),
]


@pytest.mark.parametrize("call_parts", [SIGNED, SIGNED[-1:]], ids=["streamed", "whole"])
def test_the_signature_of_a_call_is_wrapped_in_a_block_before_it(call_parts: list[Part]) -> None:
    """It names the call as the client knows it."""
    thought: list[Part] = [ReasoningStart("r", "raw"), ReasoningEnd("r", "own", origin=NAME)]
    first, carrier, call = blocks(written(*thought, *call_parts))
    assert first["signature"] == "own"
    assert call["id"] != "call.1"
    envelope = Envelope("host", "m-1", ReasoningState("s", call=call["id"]))
    assert carrier == {"type": "redacted_thinking", "data": wrap(envelope)}
    assert lost(*thought, *call_parts) == []
    content = json.loads(body(fold(START, *thought, *call_parts, END), Context()))["content"]
    assert content[1] == carrier


@pytest.mark.parametrize(
    "call_parts",
    [
        [ToolParamsStart("call.1", "look"), *SIGNED[1:]],
        [ToolParamsStart("call.1", "look", signature="s"), *SIGNED[1:3], SIGNED[3]],
        [
            ToolCall(
                "s", "search", "{}", "server_tool_use", provider_executed=True, signature="s",
                origin="host",
            )
        ],
    ],
    ids=["it came late", "its origin is unknown", "the host executes its call"],
)  # fmt: skip
def test_the_signature_of_a_call_that_has_no_place_leaves_a_finding(call_parts: list[Part]) -> None:
    assert lost(*call_parts) == ["tool-call"]
    (block,) = blocks(written(*call_parts))
    assert block["type"] in ("tool_use", "server_tool_use")


def test_a_call_has_its_arguments_in_deltas_only() -> None:
    for call in (CALL, CALL[-1:]):
        found = written(*call)
        start = {"type": "tool_use", "id": "call_1", "name": "look", "input": {}}
        assert found[1]["content_block"] == start
        assert blocks(found) == [{**start, "json": '{"at":1}'}]


def test_free_text_is_written_as_an_object_with_the_key_input() -> None:
    command = 'ls "a"\n\U0001faa1'
    parts: list[Part] = [
        ToolParamsStart("c", "sh", kind="custom", format="text"),
        ToolParamsDelta("c", command[:4]),
        ToolParamsDelta("c", command[4:]),
        ToolParamsEnd("c"),
        ToolCall("c", "sh", command, kind="custom", format="text"),
    ]
    for call in (parts, parts[-1:]):
        (block,) = blocks(written(*call))
        assert json.loads(block["json"]) == {"input": command}


def test_calls_that_overlap_are_written_one_after_the_other() -> None:
    mixed = [part for pair in zip(CALL, OTHER, strict=True) for part in pair]
    assert [block["json"] for block in blocks(written(*mixed))] == ['{"at":1}', '{"from":2}']
    late = [OTHER[0], *CALL, *OTHER[1:]]
    assert [block["name"] for block in blocks(written(*late))] == ["read", "look"]


def test_text_and_reasoning_that_overlap_wait_for_their_turn() -> None:
    cite = Raw(b'{"type":"char_location","cited_text":"x"}')
    parts: list[Part] = [
        TextStart("t"),
        ReasoningStart("r", "raw"),
        ReasoningDelta("r", "h"),
        ReasoningDelta("r", "m"),
        TextStart("u"),
        Source("s", "document", "u", raw=cite),
        TextDelta("u", "wait"),
        TextDelta("t", "first"),
        ReasoningEnd("r", signature="sig", origin=NAME),
        TextDelta("u", "ed"),
        TextEnd("t"),
        TextDelta("u", "!"),
        TextEnd("u"),
    ]
    assert blocks(written(*parts)) == [
        {"type": "text", "text": "first"},
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "waited!", "citations": [json.loads(bytes(cite))]},
    ]


def test_the_fold_may_be_ahead_of_the_encoder() -> None:
    parts = [START, TextStart("t"), TextDelta("t", "x"), TextStart("u"), TextDelta("u", "a"),
             TextEnd("t"), TextDelta("u", "b"), TextEnd("u"), END]  # fmt: skip
    encoder = Encoder(NAME)
    found = named_events(b"".join(encoder.feed(parts)))
    assert [block["text"] for block in blocks(found)] == ["x", "ab"]


def test_an_empty_text_is_not_written() -> None:
    parts: list[Part] = [TextStart("t"), TextEnd("t")]
    assert blocks(written(*parts)) == []
    assert json.loads(body(fold(*parts), Context()))["content"] == []
    cited = Source("s", "document", "t", raw=Raw(b'{"type":"char_location"}'))
    (block,) = blocks(written(parts[0], cited, parts[1]))
    assert (block["type"], block["text"]) == ("text", "")


def test_a_refusal_is_written_as_text() -> None:
    parts = [TextStart("t", refusal=True), TextDelta("t", "No."), TextEnd("t")]
    found = written(*parts, finish=Finish("content-filter"))
    assert blocks(found) == [{"type": "text", "text": "No."}]
    assert found[-2]["delta"]["stop_reason"] == "refusal"


def test_calls_that_the_host_executed_are_written_with_their_results() -> None:
    search = ToolCall("a", "web_search", "{}", kind="server_tool_use", provider_executed=True)
    find = ToolCall("b", "tool_search_tool_bm25", "{}", kind="server_tool_use",
                    provider_executed=True)  # fmt: skip
    roll = ToolCall("c", "roll", "{}", kind="mcp_tool_use", server_label="dice",
                    provider_executed=True)  # fmt: skip
    results = [ToolResult(id, Raw(b'[{\n"x": 1}]'), is_error=id == "c") for id in "abc"]
    found = written(search, find, roll, *results)
    assert blocks(found)[2]["server_name"] == "dice"
    content = [{"x": 1}]
    assert blocks(found)[3:] == [
        {"type": "web_search_tool_result", "tool_use_id": "a", "content": content},
        {"type": "tool_search_tool_result", "tool_use_id": "b", "content": content},
        {"type": "mcp_tool_result", "tool_use_id": "c", "content": content, "is_error": True},
    ]
    assert found[-2]["delta"]["stop_reason"] == "end_turn"


def mcp(id: str, params: str = '{"n":1}', **more: Any) -> ToolCall:
    return ToolCall(id, "roll", params, kind="mcp_call", provider_executed=True,
                    server_label="dice", **more)  # fmt: skip


@pytest.mark.parametrize(
    ("result", "content"),
    [
        (b'"4"', "4"),
        (b'{"type":"call","name":"roll","output":"4","error":null}', "4"),
        (b'{"output":null,"error":{"code":500}}', '{"code":500}'),
        (b'{"k":1}', '{"k":1}'),
        (b"[4]", "[4]"),
    ],
)
def test_an_mcp_call_of_another_dialect_is_written_with_its_result(
    result: bytes, content: str
) -> None:
    start = ToolParamsStart("c", "roll", kind="mcp_call", provider_executed=True)
    streamed = [start, ToolParamsDelta("c", '{"n":1}'), ToolParamsEnd("c")]
    early = ToolResult("c", Raw(b"0"), preliminary=True)
    texts = [TextStart("t"), TextDelta("t", "."), TextEnd("t")]
    # Without deltas: Claude Code drops a stream in which a block that it does not know has some.
    use = {"type": "mcp_tool_use", "id": "c", "name": "roll", "input": {"n": 1},
           "server_name": "dice"}  # fmt: skip
    answer = {"type": "mcp_tool_result", "tool_use_id": "c", "content": content, "is_error": False}
    for parts in ([mcp("c")], [*streamed, mcp("c")]):
        found = written(*parts, early, *texts, ToolResult("c", Raw(result)))
        assert blocks(found) == [{"type": "text", "text": "."}, use, answer]
        assert found[-2]["delta"]["stop_reason"] == "end_turn"


def test_an_mcp_call_without_usable_arguments_or_without_a_result_is_left_out() -> None:
    broken = mcp("a", "{", invalid="bad-arguments")
    for parts in ([broken, ToolResult("a", Raw(b"1"))], [mcp("b", "7")], [mcp("c")]):
        assert blocks(written(*parts)) == []
        assert "tool-call" in lost(*parts)


def test_a_block_that_was_passed_on_unparsed_is_written_unchanged() -> None:
    raw = Raw(b'{"type":"compaction","content":null,"encrypted_content":"zzz"}')
    found = write(Opaque(NAME, "compaction", raw))
    assert bytes(raw) in found


def test_a_part_that_messages_cannot_carry_leaves_a_finding() -> None:
    parts: list[Part] = [
        TextStart("t"),
        TextDelta("t", "a"),
        TextEnd("t", signature="s", origin="gemini"),
        Source("s1", "url", "t", url="https://a.example"),
        Source("s2", "document", "t", raw=Raw(b'{"type":"char_location"}')),
        Source("s3", "url", url="https://a.example", raw=Raw(b'{"type":"web_search_result"}')),
        Source("s4", "url", "t", url="https://a.example", raw=Raw(b"7")),
        File("f", "image/png", data="AA=="),
        Opaque("gemini", "thing", Raw(b"{}")),
        Opaque(NAME, "unknown", Raw(b"{}")),
        ToolParamsStart("w", "search", kind="web_search_call", provider_executed=True),
        ToolParamsDelta("w", "{}"),
        ToolParamsEnd("w"),
        ToolCall("w", "search", "{}", kind="web_search_call", provider_executed=True),
        ToolApprovalRequest("w", "ap_1"),
        ToolResult("w", Raw(b"1")),
        *CALL,
        ToolResult("call_1", Raw(b"1"), provider_executed=False),
    ]
    assert lost(*parts) == [
        "text-end",
        "source",
        "source",
        "source",
        "source",
        "file",
        "opaque",
        "opaque",
        "tool-call",
        "tool-approval-request",
        "tool-result",
        "tool-result",
    ]
    assert [block["type"] for block in blocks(written(*parts))] == ["text", "tool_use"]


# Errors


@pytest.mark.parametrize(
    ("error", "type"),
    [
        (ErrorPart("upstream", "no", code="overloaded_error", status=529), "overloaded_error"),
        (ErrorPart("upstream", "no", code="rate_limit_exceeded", status=429), "rate_limit_error"),
        (ErrorPart("upstream", "no", code=404), "not_found_error"),
        (ErrorPart("upstream", "no", status=503), "overloaded_error"),
        (ErrorPart("timeout", "no"), "timeout_error"),
        (ErrorPart("truncated", "no"), "api_error"),
    ],
)
def test_an_error_ends_the_stream(error: ErrorPart, type: str) -> None:
    found = written(*TEXT[:2], *CALL[:2], error, finish=Finish("error"))
    assert found[-1] == {"type": "error", "error": {"type": type, "message": "no"}}
    assert [event["type"] for event in found[1:-1]] == ["content_block_start",
                                                        "content_block_delta"]  # fmt: skip


def test_blocks_that_wait_at_an_error_leave_findings() -> None:
    error = ErrorPart("upstream", "no")
    assert lost(*TEXT[:2], *CALL, ReasoningStart("r", "raw"), error) == ["error", "usage"]


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("c", "look", '{"at":', invalid="bad-arguments"),
        ToolCall("c", "look", "[1]"),
        ToolCall("c", "web_search", "[", kind="server_tool_use", provider_executed=True),
    ],
)
def test_a_call_that_a_client_cannot_run_fails_the_stream(call: ToolCall) -> None:
    found = written(*TEXT, call, *OTHER)
    assert blocks(found) == [{"type": "text", "text": "Hello"}]
    assert found[-1]["type"] == "error"
    assert found[-1]["error"]["type"] == "api_error"
    unsaid = ["tool-call", "error", "error", "usage"]
    assert lost(*TEXT, call, *OTHER, *TEXT) == unsaid


def test_a_call_without_a_name_is_left_out() -> None:
    call = ToolCall("c", "", "{}", invalid="nameless")
    found = written(*TEXT, call, finish=Finish("tool-calls"))
    assert blocks(found) == [{"type": "text", "text": "Hello"}]
    assert found[-2]["delta"]["stop_reason"] == "end_turn"
    assert "tool-call" in lost(*TEXT, call)
    whole = assemble([ResponseMetadata("r"), *TEXT, call, Finish("tool-calls")])
    message = json.loads(body(whole, Context()))
    assert (len(message["content"]), message["stop_reason"]) == (1, "end_turn")


CUT: list[Part] = [
    *CALL[:2],
    ToolParamsEnd("call_1"),
    ToolCall("call_1", "look", '{"at":', invalid="bad-arguments"),
]


def test_a_call_that_was_cut_by_the_limit_is_written_as_far_as_it_came() -> None:
    for cut in (CUT, CUT[-1:]):
        found = written(*TEXT, *cut, *OTHER, finish=Finish("length", usage=Usage(30, 4)))
        assert [block.get("json") for block in blocks(found)] == [None, '{"at":', '{"from":2}']
        assert found[-2]["delta"]["stop_reason"] == "max_tokens"
    message = json.loads(body(fold(*TEXT, *CUT, finish=Finish("length")), Context()))
    assert (message["stop_reason"], message["content"][1]["input"]) == ("max_tokens", {})


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("c", "look", '{"at":}', invalid="bad-arguments"),
        ToolCall("c", "look", "[1", invalid="bad-arguments"),
        ToolCall("c", "look", "[1]"),
    ],
)
def test_arguments_that_are_not_a_truncated_object_fail_the_stream_at_the_limit_too(
    call: ToolCall,
) -> None:
    found = written(*TEXT, call, finish=Finish("length"))
    assert (blocks(found), found[-1]["type"]) == ([{"type": "text", "text": "Hello"}], "error")


def test_a_broken_call_waits_for_its_turn_before_it_fails_the_stream() -> None:
    broken = [ToolParamsStart("c", "look"), ToolParamsDelta("c", '{"at":'), ToolParamsEnd("c"),
              ToolCall("c", "look", '{"at":', invalid="bad-arguments")]  # fmt: skip
    found = written(TextStart("t"), *broken, TextDelta("t", "first"), TextEnd("t"))
    assert blocks(found) == [{"type": "text", "text": "first"}]
    assert found[-1]["type"] == "error"
    live = written(*broken)
    assert [event["type"] for event in live][1:] == ["content_block_start", "content_block_delta",
                                                     "error"]  # fmt: skip


# Ids


def test_call_ids_have_only_allowed_characters_and_stay_distinct() -> None:
    calls = [ToolCall(id, "look", "{}") for id in ("a.b", "a_b", "a:b", "x" * 70, "toolu_1", "")]
    ids = [block["id"] for block in blocks(written(*calls))]
    assert (ids[1], ids[4]) == ("a_b", "toolu_1")
    assert len(set(ids)) == 6
    assert all(1 <= len(id) <= 64 and set(id) <= ALLOWED for id in ids)
    again = [block["id"] for block in blocks(written(*calls))]
    assert again == ids


ALLOWED = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def test_a_result_has_the_rewritten_id_of_its_call() -> None:
    call = ToolCall("a.b", "web_search", "{}", kind="server_tool_use", provider_executed=True)
    use, result = blocks(written(call, ToolResult("a.b", Raw(b"[]"))))
    assert use["id"] == result["tool_use_id"] == SPELLING.sanitize("a.b")


# There and back


def gist(parts: Sequence[Part]) -> list[tuple[object, ...]]:
    """The content of a stream, item by item in order of announcement."""
    groups: dict[tuple[str, str], list[Part]] = {}
    for part in parts:
        if isinstance(part, ItemPart) and not isinstance(part, ToolApprovalRequest):
            family = "result" if isinstance(part, ToolResult) else FAMILY[type(part)]
            groups.setdefault((family, part.id), []).append(part)
    failed = next((at for at, part in enumerate(parts) if isinstance(part, ErrorPart)), len(parts))
    found = [one for group in groups.values() for one in item(group, parts, failed)]
    return [*found, *(end(part) for part in parts if isinstance(part, ErrorPart | Finish))]


def item(group: list[Part], parts: Sequence[Part], failed: int) -> list[tuple[object, ...]]:
    first, last = group[0], group[-1]
    whole = any(part is last for part in parts[:failed])
    deltas = (TextDelta, ReasoningDelta, ToolParamsDelta)
    text = "".join(part.delta for part in group if isinstance(part, deltas))
    match first, last:
        case TextStart(), _:
            return [("text", text, whole)]
        case ReasoningStart(), ReasoningEnd():
            return [("reasoning", text, ReasoningEnd("", *signatures(last)), whole)]
        case _, ToolCall():
            kind = last.kind if last.provider_executed else "function"
            fine = whole and not last.invalid
            text = text or ("" if isinstance(first, ToolParamsStart) else last.params)
            return [("call", last.id, last.name, kind, last.format, text, fine, whole)]
        case _:
            final = [part for part in group if isinstance(part, ToolResult)]
            return [("result", part.id, bytes(part.result), part.preliminary) for part in final]


def signatures(end: ReasoningEnd) -> tuple[str | None, str | None, str | None, str | None]:
    return (end.signature, end.encrypted, end.redacted, end.origin)


def end(part: ErrorPart | Finish) -> tuple[object, ...]:
    if isinstance(part, ErrorPart):
        return ("error",)
    return ("finish", part.reason, part.usage)


def usable(items: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """All but calls that a client cannot run: how much of one was written does not matter."""
    return [one for one in items if one[0] != "call" or one[-2]]


SPELLING = NameSanitizer("a-zA-Z0-9_-", 64)


def carried(items: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """What of that this dialect can carry: item after item, until one is broken or open."""
    out: list[tuple[object, ...]] = []
    executed: set[object] = set()
    called = False
    for one in items:
        match one:
            case ("text", text, whole):
                out += [one] if text else []
            case ("reasoning", text, ReasoningEnd() as reasoning, whole):
                out += carried_reasoning(str(text), reasoning, whole)
            case ("call", id, name, kind, format, params, fine, whole):
                if kind not in ("function", "server_tool_use") or not name:
                    continue
                if kind == "server_tool_use":
                    executed.add(id)
                params = str(params)
                if format == "text":
                    params = '{"input":"' + escape(params) + '"}'
                if not (fine and params.lstrip().startswith("{")):
                    if items[-1][:2] != ("finish", "length") or not could_be(str(name), params):
                        return [*out, ("error",), ("finish", "error", ANYTHING)]
                    params = params or "{}"
                    if not is_json(params):
                        continue
                called = called or kind == "function"
                spelled = SPELLING.sanitize(str(id))
                out.append(("call", spelled, name, kind, "json", params, True, True))
            case ("result", id, _, False):
                out += [one] if id in executed else []
                whole = True
            case ("error",):
                return [*out, one, ("finish", "error", ANYTHING)]
            case ("finish", reason, usage):
                stop = {"other": "stop", "tool-calls": "stop"}.get(str(reason), reason)
                reason = "tool-calls" if stop == "stop" and called else stop
                return [*out, ("finish", reason, usage or Usage(0, 0))]
            case _:
                whole = True
        if not whole:  # an error cut it, and whatever waited behind it
            return [*out, ("error",), ("finish", "error", ANYTHING)]
    raise AssertionError("no end")


def could_be(name: str, params: str) -> bool:
    """Whether these are the beginning of the arguments of a call."""
    scan = Scan()
    scan.feed(params)
    return bool(name) and scan.viable and params.lstrip()[:1] in ("", "{")


def carried_reasoning(text: str, end: ReasoningEnd, whole: object) -> list[tuple[object, ...]]:
    """Signatures of this dialect as two blocks; those of others in an envelope."""
    bare = ReasoningEnd("")
    if not whole or end.origin is None or signatures(end)[:3] == (None, None, None):
        end = bare
    if end.origin != NAME or end.encrypted is not None:
        return [("reasoning", text, end, whole)] if text or end != bare else []
    found: list[tuple[object, ...]] = []
    if text or end.signature:
        signed = ReasoningEnd("", end.signature, origin=NAME) if end.signature else bare
        found.append(("reasoning", text, signed, whole))
    if end.redacted:
        found.append(("reasoning", "", ReasoningEnd("", redacted=end.redacted, origin=NAME), whole))
    return found


class _Anything:
    def __eq__(self, other: object) -> bool:
        return True


ANYTHING = _Anything()


def adapted(part: Part) -> Part:
    """The part with values that this dialect can carry."""
    match part:
        case ToolCall() | ToolParamsStart():
            kind = "server_tool_use" if part.provider_executed else "function"
            return msgspec.structs.replace(part, kind=kind)
        case ReasoningEnd(encrypted=signature):
            own = NAME if part.origin == "s1" else part.origin
            return ReasoningEnd(part.id, signature=signature, origin=own, whole=part.whole)
        case ResponseMetadata():
            return ResponseMetadata(part.id, model="m")
        case ToolResult():
            return ToolResult(part.id, part.result, preliminary=part.preliminary)
        case Finish():
            usage = None if part.usage is None else Usage(3, 4, None, 1, 2, 0)
            return Finish(part.reason, usage=usage)
    return part


STREAM = st.lists(ANY_PART.map(adapted), max_size=16)


def guarded(parts: list[Part]) -> list[Part]:
    guard = Guard(Ids(b"guard"), Findings())
    return guard.feed([ResponseMetadata("r", model="m"), *parts]) + guard.finish()


@examples(400)
@given(STREAM)
def test_what_is_encoded_decodes_to_the_same_parts(drawn: list[Part]) -> None:
    parts = guarded(drawn)
    raw = b"".join(encode(parts, NAME, context=Context(ids=Ids(b"1"))))
    (back,) = decode_all(raw, NAME)
    assert usable(gist(back.parts)) == carried(gist(parts))


@examples(300)
@given(SOUP)
def test_any_parts_become_a_valid_stream(drawn: list[Part]) -> None:
    pieces = list(encode(drawn, NAME, context=Context(ids=Ids(b"1"))))
    assert all(piece.endswith(b"\n\n") and piece.count(b"\n\n") == 1 for piece in pieces)
    found = named_events(b"".join(pieces))
    content = blocks(found)
    assert [event["type"] for event in found].count("message_start") == 1
    assert found[0]["type"] == "message_start"
    assert found[-1]["type"] in ("message_stop", "error")
    if found[-1]["type"] == "message_stop":
        assert found[-2]["type"] == "message_delta"
        assert found[-2]["delta"]["stop_reason"] is not None
        assert found[-2]["usage"]["output_tokens"] >= 0
        uses = [block for block in content if block["type"].endswith("_use")]
        cut = found[-2]["delta"]["stop_reason"] == "max_tokens"
        assert cut or all(isinstance(json.loads(block["json"]), dict) for block in uses)
        assert all(isinstance(from_json(block.get("json", "{}").encode(), partial_mode=True), dict)
                   for block in uses)  # fmt: skip
        assert len({block["id"] for block in uses}) == len(uses)


@each_row("capture", CHAT, ids=str)
def test_a_chat_capture_survives_encoding_and_decoding(capture: Capture) -> None:
    for one in capture.decode_all():
        encoder = Encoder(NAME, context=Context(ids=Ids(b"1")), fold=one.fold)
        raw = b"".join(encoder.feed(one.parts))
        blocks(named_events(raw))
        (back,) = decode_all(raw, NAME)
        items = usable(gist(back.parts))
        assert without_usage(items) == without_usage(carried(gist(one.parts)))
        assert {finding.code for finding in encoder.findings} <= {"not-carried"}


def without_usage(items: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return [one[:2] if one[0] == "finish" else one for one in items]


OWN = [*CAPTURES, *RECORDED]


def uncounted(response: Response) -> list[str]:
    """The findings of a response without token counts."""
    usage = response.usage or Usage()
    counted = usage.input_tokens is not None and usage.output_tokens is not None
    return [] if counted else ["usage: unknown counts are written as 0"]


def whole(path: Any) -> list[Decoded]:
    """What a capture says, if nothing in it was broken."""
    found = decode_all(path.read_bytes(), NAME)
    return [
        one for one in found if one.response.error is None and not one.response.invalid_tool_calls
    ]


def required(usage: Usage | None) -> Usage:
    """Usage with what this wire must tell, also when it is not known."""
    usage = usage or Usage()
    known = usage.input_tokens or 0, usage.output_tokens or 0
    return msgspec.structs.replace(usage, input_tokens=known[0], output_tokens=known[1])


def same(response: Response) -> tuple[object, ...]:
    """All of it but names that are given anew, and how it was spelled."""
    items = msgspec.json.encode(response.items).decode()
    for at, one in enumerate(response.items):
        if not isinstance(one, ToolCall | ToolResult | Opaque):
            items = items.replace(json.dumps(one.id), str(at))
    usage, reason = required(response.usage), response.finish_reason
    return json.loads(items), usage, reason, response.stop_sequence, response.raw_finish_reason


@each_row("path", OWN, ids=lambda path: path.name)
def test_a_capture_of_this_dialect_is_encoded_as_it_came(path: Any) -> None:
    for one in whole(path):
        encoder = Encoder(NAME, context=Context(ids=Ids(b"1")), fold=one.fold)
        (back,) = decode_all(b"".join(encoder.feed(one.parts)), NAME)
        assert [finding.detail for finding in encoder.findings] == uncounted(one.response)
        first, second = same(one.response), same(back.response)
        if path.stem not in DIFFERENT:
            assert first == second
        assert first[1:4] == second[1:4]


DIFFERENT = {
    "index-zero-for-every-block": "ids of parts come from the index",
    "no-stop-reason": "one is written",
    "anthropic-programmatic-tool-calling.1": "end_turn, although calls were made: tool_use",
}


@each_row("path", OWN, ids=lambda path: path.name)
@each_row("target", ["openai-chat", "openai-responses"])
def test_a_capture_of_this_dialect_converts_to_the_others(path: Any, target: DialectName) -> None:
    raw = path.read_bytes()
    back = decode_all(convert(raw, NAME, target), target)
    for one, other in zip(decode_all(raw, NAME), back, strict=True):
        assert other.response.text == one.response.text
        assert (other.response.error is None) == (one.response.error is None)


# Bodies


def fold(*parts: Part, finish: Finish = END, first: Part = START) -> Response:
    return assemble([first, *parts, finish])


@each_row("path", OWN, ids=lambda path: path.name)
def test_the_body_of_a_response_decodes_to_the_same_response(path: Any) -> None:
    for response in (one.response for one in whole(path)):
        findings = Findings()
        (back,) = decode_all(body(response, Context(), findings), NAME)
        assert [finding.detail for finding in findings.found] == uncounted(response)
        assert back.response.text == response.text
        assert back.response.reasoning == response.reasoning
        assert back.response.tool_calls == response.tool_calls
        assert (back.response.usage, back.response.finish_reason) == (
            required(response.usage),
            response.finish_reason,
        )


@examples(200)
@given(STREAM)
def test_a_body_equals_the_accumulated_stream(drawn: list[Part]) -> None:
    parts = guarded(drawn)
    (stream,) = decode_all(b"".join(encode(parts, NAME, context=Context(ids=Ids(b"1")))), NAME)
    (whole,) = decode_all(body(assemble(parts), Context(ids=Ids(b"1"))), NAME)
    if stream.response.error is None:
        assert without_usage(gist(whole.parts)) == without_usage(gist(stream.parts))
    assert (whole.response.error is None) == (stream.response.error is None)


def test_a_body_leaves_findings_for_what_it_cannot_carry() -> None:
    findings = Findings()
    response = fold(
        ReasoningStart("r", "raw"),
        ReasoningEnd("r"),
        File("f", "image/png", data="AA=="),
        Source("s", "url", url="https://a.example"),
        ToolCall("w", "search", "{}", kind="web_search_call", provider_executed=True),
        ToolApprovalRequest("w", "ap_1"),
        ToolResult("w", Raw(b"1")),
        Opaque("gemini", "thing", Raw(b"{}")),
        finish=Finish("content-filter"),
    )
    message = json.loads(body(response, Context(ids=Ids(b"1")), findings))
    assert message["content"] == []
    assert (message["stop_reason"], message["stop_details"]["type"]) == ("refusal", "refusal")
    assert [finding.detail.partition(":")[0] for finding in findings.found] == [
        "reasoning-start",
        "file",
        "source",
        "tool-call",
        "tool-approval-request",
        "tool-result",
        "opaque",
        "usage",
    ]


def test_a_failed_response_is_an_error_body() -> None:
    error = ErrorPart("upstream", "no", status=429)
    failed = fold(*TEXT[:2], error, finish=Finish("error"))
    assert json.loads(body(failed, Context())) == {
        "type": "error",
        "error": {"type": "rate_limit_error", "message": "no"},
    }
    broken = fold(ToolCall("c", "look", "["))
    assert json.loads(body(broken, Context()))["error"]["type"] == "api_error"


# The official client, over real HTTP


@contextmanager
def served(answer: bytes, kind: str = "text/event-stream") -> Iterator[anthropic.Anthropic]:
    """A client of a server that answers every request with these bytes."""
    with (
        serving(answer, kind) as url,
        anthropic_client(url) as client,
    ):
        yield client


def streamed_message(client: anthropic.Anthropic) -> anthropic.types.Message:
    with client.messages.stream(
        model="m-1", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
    ) as stream:
        list(stream)
        return stream.get_final_message()


RICH: list[Part] = [
    ReasoningStart("r", "raw"),
    ReasoningDelta("r", "hm"),
    ReasoningEnd("r", signature="sig", origin=NAME),
    *[part for pair in zip(CALL, OTHER, strict=True) for part in pair],
    *TEXT,
]


def assert_rich(final: anthropic.types.Message) -> None:
    thought, first, second, text = final.content
    assert thought.type == "thinking"
    assert (thought.thinking, thought.signature) == ("hm", "sig")
    assert first.type == second.type == "tool_use"
    assert (first.id, first.name, first.input) == ("call_1", "look", {"at": 1})
    assert (second.id, second.name, second.input) == ("call_2", "read", {"from": 2})
    assert text.type == "text"
    assert text.text == "Hello"
    assert final.stop_reason == "tool_use"
    usage = final.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_input_tokens) == (6, 9, 100)


RICH_END = Finish("tool-calls", usage=Usage(126, 9, None, 4, 100, 20))


def test_the_official_client_accumulates_the_same_text_thinking_calls_and_usage() -> None:
    with served(write(*RICH, finish=RICH_END)) as client:
        assert_rich(streamed_message(client))


def test_the_official_client_reads_a_body_the_same() -> None:
    whole = body(fold(*RICH, finish=RICH_END), Context(ids=Ids(b"1")))
    with served(whole, "application/json") as client:
        final = client.messages.create(
            model="m-1", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        )
    assert_rich(final)


def test_the_official_client_raises_on_a_stream_that_failed() -> None:
    stream = write(*TEXT[:2], ErrorPart("truncated", "cut off"), finish=Finish("error"))
    with served(stream) as client, pytest.raises(anthropic.APIStatusError, match="cut off"):
        streamed_message(client)


def test_the_official_client_sees_that_a_call_was_truncated() -> None:
    with served(write(*TEXT, *CUT, finish=Finish("length"))) as client:
        final = streamed_message(client)
    assert (final.stop_reason, final.content[1].type) == ("max_tokens", "tool_use")


def test_the_official_client_raises_on_a_call_that_cannot_be_used() -> None:
    stream = write(*TEXT, *CUT, finish=Finish("tool-calls"))
    with served(stream) as client, pytest.raises(anthropic.APIStatusError, match="not usable"):
        streamed_message(client)


def test_the_official_client_skips_pings() -> None:
    ping = Encoder(NAME).keepalive()[0]
    with served(write(*TEXT).replace(b"\n\n", b"\n\n" + ping)) as client:
        (text,) = streamed_message(client).content
    assert text.type == "text"
    assert text.text == "Hello"
