"""The Gemini encoder: strict framing, one item at a time, calls whole or not at all."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.captures import CHAT, Capture
from tests.strategies import ANY_PART, SOUP, examples
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
    convert,
    decode_all,
    encode,
)
from weft.dialects.envelope import Envelope, ReasoningState, unwrap
from weft.dialects.gemini.encoder import body
from weft.dialects.gemini.encoding.losses import call_args
from weft.findings import Findings

CAPTURES = sorted((Path(__file__).parent / "captures" / "gemini").glob("*.sse"))

Json = dict[str, Any]

START = ResponseMetadata("up_1", model="m-1", created=1790000000)
NATIVE = ResponseMetadata("up_1", model="m-1", dialect="gemini")
TEXT: list[Part] = [TextStart("t"), TextDelta("t", "Hel"), TextDelta("t", "lo"), TextEnd("t")]
SIGNED = Raw(b'{"thoughtSignature":"s"}')


def write(*parts: Part, finish: Part | None = None, context: Context | None = None) -> bytes:
    begun = bool(parts) and isinstance(parts[0], ResponseMetadata)
    stream = [*(() if begun else (START,)), *parts, finish or Finish("stop")]
    return b"".join(encode(stream, "gemini", context=context or Context(ids=Ids(b"1"))))


def frames(raw: bytes) -> list[Json]:
    """The frames, after checking what strict readers of this wire ask for."""
    assert raw.endswith(b"\n\n")
    found: list[Json] = []
    for block in raw[:-2].split(b"\n\n"):
        assert len(block.decode().splitlines()) == 1
        assert block.startswith(b"data: {")
        found.append(json.loads(block.removeprefix(b"data: ")))
    return found


def written(*parts: Part, finish: Part | None = None, context: Context | None = None) -> list[Json]:
    return frames(write(*parts, finish=finish, context=context))


def said(found: list[Json]) -> list[Json]:
    """The parts of all frames, but for the empty text of the last one."""
    candidates = [one["candidates"][0] for one in found if "candidates" in one]
    assert all(one["index"] == 0 and one["content"]["role"] == "model" for one in candidates)
    parts = [part for one in candidates for part in one["content"]["parts"]]
    return [part for part in parts if part != {"text": ""}]


def last(found: list[Json]) -> Json:
    candidate: Json = found[-1]["candidates"][0]
    return candidate


def losses(*parts: Part, finish: Part | None = None) -> list[str]:
    """The details of what was not carried."""
    guard = Guard(Ids(b"1"), Findings())
    encoder = Encoder("gemini", fold=guard.fold)
    encoder.feed(guard.feed([START, *parts, finish or Finish("stop")]))
    assert {finding.code for finding in encoder.findings} <= {"not-carried"}
    return [finding.detail for finding in encoder.findings]


# Frames


def test_each_delta_is_one_frame_and_the_last_frame_has_the_finish_reason() -> None:
    found = written(*TEXT, finish=Finish("stop", usage=Usage(3, 4, 7)))
    assert [one["responseId"] for one in found] == [found[0]["responseId"]] * 3
    assert found[0] == {
        "candidates": [{"content": {"parts": [{"text": "Hel"}], "role": "model"}, "index": 0}],
        "modelVersion": "m-1",
        "responseId": found[0]["responseId"],
        "createTime": "2026-09-21T14:13:20Z",
    }
    assert last(found) == {
        "content": {"parts": [{"text": ""}], "role": "model"},
        "finishReason": "STOP",
        "index": 0,
    }
    assert all("finishReason" not in one["candidates"][0] for one in found[:-1])


def test_the_response_id_is_that_of_the_context() -> None:
    (only,) = written(context=Context(response_id="mine"))
    assert only["responseId"] == "mine"


def test_the_model_is_the_streams_or_the_requests_or_left_out() -> None:
    anonymous = ResponseMetadata("up_1")
    (named,) = written(anonymous, context=Context(request=Request("asked")))
    assert named["modelVersion"] == "asked"
    (unnamed,) = written(anonymous)
    assert "modelVersion" not in unnamed
    (late,) = written(anonymous, finish=Finish("stop", model="m-2"))
    assert late["modelVersion"] == "m-2"


def test_a_changed_model_keeps_its_first_name() -> None:
    found = written(*TEXT, finish=Finish("stop", model="m-2"))
    assert {frame["modelVersion"] for frame in found} == {"m-1"}


def test_the_only_keepalive_is_a_blank_line() -> None:
    assert Encoder("gemini").keepalive() == [b"\n"]


def test_finish_adds_nothing() -> None:
    assert Encoder("gemini").finish() == []


@pytest.mark.parametrize("character", ["\n", "\r", "\x0b", "\x1c", "\x85", "\u2028", "\u2029"])
def test_nothing_in_a_frame_ends_its_line(character: str) -> None:
    sharp = f"a{character}b"
    params = json.dumps({"at": sharp}, indent=1, ensure_ascii=False).replace("\n", "\r\n")
    found = written(
        TextStart("t"), TextDelta("t", sharp), TextEnd("t"), ToolCall("c", "look", params)
    )
    one, other = said(found)
    assert one["text"] == sharp
    assert other["functionCall"]["args"] == {"at": sharp}


def test_equal_parts_give_equal_bytes() -> None:
    assert write(*TEXT) == write(*TEXT)


@examples(150)
@given(SOUP)
def test_whatever_is_encoded_is_framed_strictly_and_ends_once(soup: list[Part]) -> None:
    raw = b"".join(encode(soup, "gemini", context=Context(ids=Ids(b"1"))))
    found = frames(raw)
    ends = [one for one in found if "error" in one or "finishReason" in one["candidates"][0]]
    assert ends == found[-1:]
    assert "candidates" not in found[-1] or "error" not in found[-1]
    for part in said(found):
        assert len(set(part) - {"thought", "thoughtSignature"}) == 1 or part == {"k": 1}


# Text and reasoning


def test_reasoning_is_thought_parts() -> None:
    found = written(ReasoningStart("r", "raw"), ReasoningDelta("r", "Hm"), ReasoningEnd("r"))
    assert said(found) == [{"text": "Hm", "thought": True}]


@pytest.mark.parametrize("origin", ["gemini", "host-7"])
def test_a_signature_of_ours_is_an_empty_signed_part(origin: str) -> None:
    found = written(
        ReasoningStart("r", "summary"),
        ReasoningDelta("r", "Hm"),
        ReasoningEnd("r", signature="s1", origin=origin),
        TextStart("t"),
        TextEnd("t", signature="s2", origin=origin),
        context=Context(origin="host-7"),
    )
    assert said(found) == [
        {"text": "Hm", "thought": True},
        {"text": "", "thought": True, "thoughtSignature": "s1"},
        {"text": "", "thoughtSignature": "s2"},
    ]


@pytest.mark.parametrize(
    "end",
    [
        ReasoningEnd("r", signature="s", origin="elsewhere"),
        ReasoningEnd("r", encrypted="e", origin="gemini"),
        ReasoningEnd("r", redacted="x", origin="elsewhere"),
    ],
)
def test_a_foreign_reasoning_signature_is_wrapped(end: ReasoningEnd) -> None:
    parts = [ReasoningStart("r", "raw", item_id="i"), ReasoningDelta("r", "Hm"), end]
    (thought, signed) = said(written(*parts))
    assert thought == {"text": "Hm", "thought": True}
    assert b64decode(signed["thoughtSignature"], validate=True).startswith(b"weft1:")
    inside = unwrap(signed["thoughtSignature"])
    proof = ReasoningState(end.signature, end.encrypted, end.redacted, "i", "raw")
    assert inside == Envelope(end.origin or "", "m-1", proof)
    assert losses(*parts) == []


def test_a_signature_of_unknown_origin_is_not_carried() -> None:
    end = ReasoningEnd("r", signature="s")
    parts = [ReasoningStart("r", "raw"), ReasoningDelta("r", "Hm"), end]
    assert said(written(*parts)) == [{"text": "Hm", "thought": True}]
    (loss,) = losses(*parts)
    assert loss.startswith("reasoning-end: its signature is only for")


def test_a_foreign_signature_of_a_text_is_not_carried() -> None:
    parts = [TextStart("t"), TextDelta("t", "A"), TextEnd("t", signature="s", origin="else")]
    assert said(written(*parts)) == [{"text": "A"}]
    assert losses(*parts) == ["text-end: its signature is only for 'else'"]


def test_overlapping_texts_are_written_one_after_the_other() -> None:
    parts = [
        TextStart("a"), TextStart("b"), ReasoningStart("r", "raw"),
        TextDelta("b", "B1 "), TextDelta("a", "A1 "), ReasoningDelta("r", "R"),
        ToolCall("c", "look", "{}"), TextEnd("a"),
        TextDelta("b", "B2"), TextEnd("b", signature="s", origin="gemini"),
        ReasoningEnd("r"),
    ]  # fmt: skip
    found = said(written(*parts))
    assert found == [
        {"text": "A1 "},
        {"text": "B1 "},
        {"text": "B2"},
        {"text": "", "thoughtSignature": "s"},
        {"text": "R", "thought": True},
        {"functionCall": {"id": "c", "name": "look", "args": {}}},
    ]


def test_a_fold_that_is_ahead_of_the_encoder_changes_nothing() -> None:
    parts = [
        TextStart("a"), TextStart("b"), TextDelta("b", "B1"), TextDelta("a", "A1"),
        TextEnd("a"), TextDelta("b", "B2"), TextEnd("b"),
    ]  # fmt: skip
    guard = Guard(Ids(b"1"), Findings())
    legal = guard.feed([START, *parts, Finish("stop")])
    ahead = Encoder("gemini", context=Context(ids=Ids(b"1")), fold=guard.fold)
    assert b"".join(ahead.feed(legal)) == write(*parts)


def test_a_refusal_is_text_and_a_filter_is_safety() -> None:
    parts = [TextStart("t", refusal=True), TextDelta("t", "No."), TextEnd("t")]
    found = written(*parts, finish=Finish("content-filter", raw_reason="content_filter"))
    assert said(found) == [{"text": "No."}]
    assert last(found)["finishReason"] == "SAFETY"
    assert losses(*parts) == ["text-start: a refusal is written as text"]


# Calls


def test_a_call_is_one_part_with_an_object_for_arguments() -> None:
    parts = [
        ToolParamsStart("c", "look"),
        ToolParamsDelta("c", '{"at":'),
        ToolParamsDelta("c", "1}"),
        ToolParamsEnd("c"),
        ToolCall("c", "look", '{"at":1}'),
    ]
    found = written(*parts)
    assert said(found) == [{"functionCall": {"id": "c", "name": "look", "args": {"at": 1}}}]
    assert last(found)["finishReason"] == "STOP"
    assert losses(*parts) == []


def test_a_custom_call_has_its_text_under_one_key() -> None:
    found = written(ToolCall("c", "shell", "ls -l", kind="custom", format="text"))
    assert said(found)[0]["functionCall"]["args"] == {"input": "ls -l"}


def test_a_lone_surrogate_in_arguments_is_replaced() -> None:
    found = written(ToolCall("c", "look", '{"at":"\\ud83d"}'))
    assert said(found)[0]["functionCall"]["args"] == {"at": "�"}


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("c", "look", '{"at":'),
        ToolCall("c", "look", "[1]"),
        ToolCall("c", "look", '"\\ud83d"'),
        ToolCall("c", "look", "{}", invalid="bad-arguments"),
        ToolCall("c", "look", "x", format="text", invalid="stream-failed"),
    ],
)
def test_an_unusable_call_ends_the_stream_with_an_error(
    call: ToolCall,
) -> None:
    found = written(*TEXT, call, TextStart("u"), TextDelta("u", "more"), TextEnd("u"))
    assert said(found) == [{"text": "Hel"}, {"text": "lo"}]
    assert (found[-1]["error"]["code"], found[-1]["error"]["status"]) == (500, "INTERNAL")
    assert repr(call.name) in found[-1]["error"]["message"]


def test_a_call_without_a_name_is_left_out() -> None:
    call = ToolCall("c", "", "{}", invalid="nameless")
    found = written(*TEXT, call, finish=Finish("tool-calls"))
    assert "".join(part["text"] for part in said(found)) == "Hello"
    assert found[-1]["candidates"][0]["finishReason"] == "STOP"
    assert "tool-call: it has no name" in losses(call)


def test_arguments_are_sent_only_if_they_are_an_object() -> None:
    assert call_args(ToolCall("c", "look", "{")) is None
    assert call_args(ToolCall("c", "look", '{"a":1}')) == Raw(b'{"a":1}')


def test_an_invalid_call_waits_for_the_text_that_began_before_it() -> None:
    found = written(
        TextStart("t"), TextDelta("t", "A"), ToolCall("c", "f", "[]"), TextDelta("t", "B"),
        TextEnd("t"),
    )  # fmt: skip
    assert said(found) == [{"text": "A"}, {"text": "B"}]
    assert "error" in found[-1]


def test_the_signature_of_a_call_is_written_only_if_this_api_made_it() -> None:
    call = ToolCall("c", "look", "{}", signature="s")
    (native,) = said(written(NATIVE, call))
    assert native["thoughtSignature"] == "s"
    (foreign,) = said(written(call))
    assert "thoughtSignature" not in foreign
    assert losses(call) == ["tool-call: the origin of its signature is unknown"]


def test_a_foreign_signature_of_a_call_is_wrapped() -> None:
    call = ToolCall("c", "look", "{}", signature="s", origin="elsewhere")
    (foreign,) = said(written(call))
    assert unwrap(foreign["thoughtSignature"]) == Envelope(
        "elsewhere", "m-1", ReasoningState("s", call="c")
    )
    assert losses(call) == []


def code(params: str, **more: Any) -> ToolCall:
    return ToolCall(
        "x", "code_execution", params, kind="executable_code", provider_executed=True, **more
    )


def test_executed_code_and_its_result_have_their_own_parts() -> None:
    found = written(
        NATIVE,
        code('{"language":"PYTHON","code":"1"}', signature="s"),
        ToolResult("x", Raw(b'{"outcome":"OUTCOME_OK","output":"1"}'), extra=SIGNED),
    )
    assert said(found) == [
        {
            "executableCode": {"id": "x", "language": "PYTHON", "code": "1"},
            "thoughtSignature": "s",
        },
        {
            "codeExecutionResult": {"id": "x", "outcome": "OUTCOME_OK", "output": "1"},
            "thoughtSignature": "s",
        },
    ]
    assert last(found)["finishReason"] == "STOP"


def test_a_tool_of_the_server_has_its_own_parts() -> None:
    call = ToolCall("t", "server:WEB", '{"q":1}', kind="server_tool", provider_executed=True)
    found = written(call, ToolResult("t", Raw(b'{"n":2}')))
    assert said(found) == [
        {"toolCall": {"id": "t", "toolType": "WEB", "args": {"q": 1}}},
        {"toolResponse": {"id": "t", "toolType": "WEB", "response": {"n": 2}}},
    ]


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("x", "web_search", "{}", kind="web_search_call", provider_executed=True),
        ToolCall("x", "server:X", "[]", kind="server_tool", provider_executed=True),
        code("[]"),
        code('{"code":1}'),
        code("{}", invalid="bad-arguments"),
    ],
)
def test_other_executed_calls_are_not_carried(call: ToolCall) -> None:
    parts: list[Part] = [call, ToolResult("x", Raw(b"{}"))]
    assert said(written(*parts)) == []
    assert len(losses(*parts)) == 2


def test_a_result_that_is_no_outcome_of_code_is_not_carried() -> None:
    parts = [code('{"code":"1"}'), ToolResult("x", Raw(b'"text"'))]
    assert len(said(written(*parts))) == 1
    assert losses(*parts) == ["tool-result: its call was not written"]


@pytest.mark.parametrize(
    ("result", "response"),
    [
        (ToolResult("c", Raw(b'{"a":1}')), {"a": 1}),
        (ToolResult("c", Raw(b"7")), {"output": 7}),
        (ToolResult("c", Raw(b'"no"'), is_error=True), {"error": "no"}),
    ],
)
def test_the_result_of_a_client_call_is_an_object(result: ToolResult, response: Json) -> None:
    _, answer = said(written(ToolCall("c", "look", "{}"), result))
    assert answer == {"functionResponse": {"id": "c", "name": "look", "response": response}}


def test_preliminary_results_and_approvals_are_not_carried() -> None:
    parts = [
        ToolCall("c", "look", "{}"),
        ToolResult("c", Raw(b"{}"), preliminary=True),
        ToolApprovalRequest("c", "a"),
    ]
    assert len(said(written(*parts))) == 1
    assert losses(*parts) == [
        "tool-result: preliminary results are not sent",
        "tool-approval-request: there is no part for an approval request",
    ]


# Files, opaque parts, sources


def test_files_are_inline_or_referred_to() -> None:
    found = written(
        NATIVE,
        File("a", "image/png", data="AA==", reasoning=True, extra=SIGNED),
        File("b", "video/mp4", reference="https://f.example"),
        File("c", "image/png", data="", extra=Raw(b"7")),
    )
    assert said(found) == [
        {
            "inlineData": {"mimeType": "image/png", "data": "AA=="},
            "thought": True,
            "thoughtSignature": "s",
        },
        {"fileData": {"mimeType": "video/mp4", "fileUri": "https://f.example"}},
        {"inlineData": {"mimeType": "image/png", "data": ""}},
    ]


@pytest.mark.parametrize("file", [File("a", "x/y"), File("a", "x/y", reference="file_9")])
def test_a_file_without_data_or_uri_is_not_carried(file: File) -> None:
    assert said(written(file)) == []
    assert losses(file) == ["file: it has neither data nor a URI"]


def test_an_opaque_part_is_written_only_for_its_own_dialect() -> None:
    ours, theirs = Opaque("gemini", "part", Raw(b'{"x":1}')), Opaque("else", "item", Raw(b"{}"))
    assert said(written(ours, theirs)) == [{"x": 1}]
    assert losses(ours, theirs) == ["opaque: 'item' belongs to else"]


def grounding(*parts: Part, finish: Part | None = None) -> Json:
    metadata: Json = last(written(*parts, finish=finish)).get("groundingMetadata", {})
    return metadata


def test_sources_are_grounding_metadata_with_byte_offsets() -> None:
    metadata = grounding(
        TextStart("t"),
        TextDelta("t", "ä bü"),
        Source("1", "url", "t", url="https://a.example", title="A", start=2, end=4),
        Source("2", "url", "t", url="https://a.example", title="A", start=0, end=1),
        Source("3", "document", file_id="d1", title="D"),
        TextEnd("t"),
    )
    assert metadata == {
        "groundingChunks": [
            {"web": {"uri": "https://a.example", "title": "A"}},
            {"retrievedContext": {"title": "D", "documentName": "d1"}},
        ],
        "groundingSupports": [
            {
                "segment": {"startIndex": 3, "endIndex": 6, "text": "bü"},
                "groundingChunkIndices": [0],
            },
            {"segment": {"endIndex": 2, "text": "ä"}, "groundingChunkIndices": [0]},
        ],
    }


def test_byte_offsets_count_from_the_start_of_the_part() -> None:
    """Texts that follow one another are one part to the reader; others are parts of their own."""
    metadata = grounding(
        ReasoningStart("r", "raw"), ReasoningDelta("r", "Hm"), ReasoningEnd("r"),
        TextStart("a"), TextDelta("a", "ä"), TextEnd("a"),
        TextStart("hollow"), TextEnd("hollow"),
        TextStart("b"), TextDelta("b", "B"), TextEnd("b"),
        ToolCall("c", "look", "{}"), ToolCall("d", "look", "{}"),
        TextStart("e"), TextDelta("e", "E"), TextEnd("e"),
        Source("1", "url", "b", url="https://a.example", start=0, end=1),
        Source("2", "url", "e", url="https://a.example", start=0, end=1),
        Source("3", "url", "e", url="https://a.example", start=1, end=1),
        Source("4", "url", "absent", url="https://a.example", start=0, end=1),
    )  # fmt: skip
    assert [one["segment"] for one in metadata["groundingSupports"]] == [
        {"partIndex": 1, "startIndex": 2, "endIndex": 3, "text": "B"},
        {"partIndex": 4, "endIndex": 1, "text": "E"},
    ]


@pytest.mark.parametrize("raw", [b'{"web":{"uri":"u","domain":"d"}}', b'{"uri":"u"}', b"7"])
def test_a_grounding_chunk_of_this_dialect_is_written_as_it_came(raw: bytes) -> None:
    (chunk,) = grounding(Source("1", "url", url="u", raw=Raw(raw)))["groundingChunks"]
    assert chunk == (json.loads(raw) if b"web" in raw else {"web": {"uri": "u"}})


# The end


@pytest.mark.parametrize(
    ("finish", "word"),
    [
        (Finish("stop"), "STOP"),
        (Finish("tool-calls"), "STOP"),
        (Finish("tool-calls", raw_reason="STOP"), "STOP"),
        (Finish("length", raw_reason="max_tokens"), "MAX_TOKENS"),
        (Finish("content-filter"), "SAFETY"),
        (Finish("content-filter", raw_reason="RECITATION"), "RECITATION"),
        (Finish("other", raw_reason="weird"), "OTHER"),
        (Finish("pause", raw_reason="pause_turn"), "OTHER"),
    ],
)
def test_a_finish_reason_is_written_as(finish: Finish, word: str) -> None:
    assert last(written(finish=finish))["finishReason"] == word


def test_a_pause_is_explained() -> None:
    assert "paused" in last(written(finish=Finish("pause")))["finishMessage"]


def test_metadata_of_the_finish_is_written_again() -> None:
    extra = Raw(
        b'{"finishMessage":"m","continuationToken":"t","webSearchQueries":["q"],'
        b'"urlContextMetadata":{"u":1}}'
    )
    finish = Finish("pause", raw_reason="CONTINUATION", extra=extra)
    told = last(written(NATIVE, finish=finish))
    assert (told["finishReason"], told["finishMessage"]) == ("CONTINUATION", "m")
    assert (told["continuationToken"], told["urlContextMetadata"]) == ("t", {"u": 1})
    assert told["groundingMetadata"] == {"webSearchQueries": ["q"]}
    assert "finishMessage" not in last(written(NATIVE, finish=Finish("stop", extra=Raw(b"7"))))
    assert "finishMessage" not in last(written(finish=Finish("stop", extra=extra)))


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            Usage(13, 35, 48, 30, 8),
            {
                "promptTokenCount": 13,
                "cachedContentTokenCount": 8,
                "candidatesTokenCount": 5,
                "thoughtsTokenCount": 30,
                "totalTokenCount": 48,
            },
        ),
        (Usage(3, 4, 9), {"promptTokenCount": 3, "candidatesTokenCount": 4, "totalTokenCount": 7}),
        (Usage(3), {"promptTokenCount": 3}),
        (Usage(None, 1, None, 4), {"candidatesTokenCount": 0, "thoughtsTokenCount": 4}),
    ],
)  # fmt: skip
def test_usage_is_split_as_this_api_counts(usage: Usage, expected: Json) -> None:
    assert written(finish=Finish("stop", usage=usage))[-1]["usageMetadata"] == expected


def test_usage_of_the_start_counts_too() -> None:
    start = ResponseMetadata("up_1", usage=Usage(input_tokens=3))
    found = written(start, finish=Finish("stop", usage=Usage(output_tokens=4)))
    assert found[-1]["usageMetadata"]["totalTokenCount"] == 7
    assert "usageMetadata" not in written()[-1]


def test_what_the_last_frame_cannot_carry_is_a_finding() -> None:
    finish = Finish("stop", stop_sequence="\n", usage=Usage(1, 1, cache_write_tokens=1))
    assert losses(*TEXT, finish=finish) == [
        "finish: there is no field for the matched stop sequence",
        "usage: there is no field for these cache write tokens",
    ]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorPart("upstream", "m"), (500, "INTERNAL")),
        (ErrorPart("upstream", "m", status=429), (429, "RESOURCE_EXHAUSTED")),
        (ErrorPart("upstream", "m", code="overloaded", status=529), (529, "UNAVAILABLE")),
        (ErrorPart("upstream", "m", status=418), (418, "INVALID_ARGUMENT")),
        (ErrorPart("upstream", "m", status=502), (502, "INTERNAL")),
        (ErrorPart("upstream", "m", code="FAILED_PRECONDITION"), (400, "FAILED_PRECONDITION")),
        (ErrorPart("timeout", "m"), (504, "DEADLINE_EXCEEDED")),
        (ErrorPart("cancelled", "m"), (499, "CANCELLED")),
        (ErrorPart("truncated", "m"), (500, "INTERNAL")),
    ],
)
def test_an_error_is_a_frame_of_its_own_and_never_a_finish_reason(
    error: ErrorPart, expected: tuple[int, str]
) -> None:
    found = written(*TEXT[:2], error, finish=Finish("error"))
    code, status = expected
    assert found[-1] == {"error": {"code": code, "message": "m", "status": status}}
    assert len(found) == 2


def test_items_that_wait_at_an_error_are_not_written() -> None:
    """The bytes of a failed stream begin like those of the whole one."""
    parts = [TextStart("a"), TextStart("b"), TextDelta("b", "B"), TextDelta("a", "A")]
    found = written(*parts, ErrorPart("upstream", "m"), finish=Finish("error"))
    assert said(found) == [{"text": "A"}]


def test_details_of_an_error_are_written_only_for_this_dialect() -> None:
    error = ErrorPart("upstream", "m", extra=Raw(b'{"details":[1]}'))
    assert written(NATIVE, error, finish=Finish("error"))[-1]["error"]["details"] == [1]
    assert "details" not in written(error, finish=Finish("error"))[-1]["error"]
    odd = ErrorPart("upstream", "m", extra=Raw(b"7"))
    assert "details" not in written(NATIVE, odd, finish=Finish("error"))[-1]["error"]


# Bodies


def whole(*parts: Part, finish: Part | None = None, context: Context | None = None) -> Json:
    response = assemble([START, *parts, finish or Finish("stop")])
    raw = body(response, context or Context(ids=Ids(b"1")), Findings())
    found: Json = json.loads(raw)
    return found


def test_a_body_holds_each_item_as_one_part_with_its_signature_on_it() -> None:
    found = whole(
        ReasoningStart("r", "raw"), ReasoningDelta("r", "Hm"),
        ReasoningEnd("r", signature="s1", origin="gemini"),
        *TEXT,
        TextStart("u"), TextEnd("u", signature="s2", origin="gemini"),
        TextStart("hollow"), TextEnd("hollow"), ReasoningStart("h", "raw"), ReasoningEnd("h"),
        ToolCall("c", "look", '{\n"at":1}'),
        File("f", "image/png", data="AA=="),
        finish=Finish("tool-calls", usage=Usage(3, 4)),
        context=Context(response_id="mine"),
    )  # fmt: skip
    assert found == {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"text": "Hm", "thought": True, "thoughtSignature": "s1"},
                        {"text": "Hello"},
                        {"text": "", "thoughtSignature": "s2"},
                        {"functionCall": {"id": "c", "name": "look", "args": {"at": 1}}},
                        {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
                    ],
                    "role": "model",
                },
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4, "totalTokenCount": 7},
        "modelVersion": "m-1",
        "responseId": "mine",
        "createTime": "2026-09-21T14:13:20Z",
    }


def test_texts_of_a_body_that_follow_one_another_are_one_part_for_their_sources() -> None:
    found = whole(
        *TEXT,
        TextStart("u"), TextDelta("u", "ä b"),
        Source("1", "url", "u", url="https://a.example", start=2, end=3),
        Source("2", "url", url="https://b.example"),
        TextEnd("u"),
    )  # fmt: skip
    assert last([found])["groundingMetadata"] == {
        "groundingChunks": [
            {"web": {"uri": "https://a.example"}},
            {"web": {"uri": "https://b.example"}},
        ],
        "groundingSupports": [
            {
                "segment": {"startIndex": 8, "endIndex": 9, "text": "b"},
                "groundingChunkIndices": [0],
            }
        ],
    }
    assert said([found]) == [{"text": "Helloä b"}]


def test_a_call_that_was_cut_by_the_limit_is_left_out_and_else_an_error() -> None:
    cut = ToolCall("c", "look", '{"at":', invalid="bad-arguments")
    other = ToolCall("d", "look", "{}")
    for found in (written(*TEXT, cut, other, finish=Finish("length")),
                  [whole(*TEXT, cut, other, finish=Finish("length"))]):  # fmt: skip
        (call,) = [one["functionCall"] for one in said(found) if "functionCall" in one]
        assert (call["id"], last(found)["finishReason"]) == ("d", "MAX_TOKENS")
    for finish in (Finish("stop"), Finish("tool-calls")):
        assert written(*TEXT, cut, finish=finish)[-1]["error"]["code"] == 500
        assert whole(*TEXT, cut, finish=finish)["error"]["code"] == 500


def test_a_failed_response_or_call_is_an_error_body() -> None:
    failed = whole(*TEXT, ErrorPart("upstream", "m", status=503), finish=Finish("error"))
    assert failed == {"error": {"code": 503, "message": "m", "status": "UNAVAILABLE"}}
    assert whole(*TEXT, ToolCall("c", "look", "[1]"))["error"]["status"] == "INTERNAL"


def test_a_body_loses_what_the_stream_loses() -> None:
    parts = [
        TextStart("t", refusal=True), TextDelta("t", "No"),
        TextEnd("t", signature="s", origin="else"),
        ToolCall("x", "web_search", "{}", kind="web_search_call", provider_executed=True),
        ToolApprovalRequest("x", "a"), ToolResult("x", Raw(b"{}")), File("f", "x/y"),
        Opaque("else", "item", Raw(b"{}")),
    ]  # fmt: skip
    findings = Findings()
    body(assemble([START, *parts, Finish("stop")]), Context(), findings)
    assert sorted(finding.detail for finding in findings.found) == sorted(losses(*parts))


def test_a_body_without_content_is_an_empty_text() -> None:
    assert said([whole()]) == []


# There and back


@each_row("capture", CAPTURES, ids=lambda path: path.stem)
def test_a_capture_decodes_the_same_after_encoding(capture: Path) -> None:
    raw = capture.read_bytes()
    for one in decode_all(raw, "gemini"):
        encoder = Encoder("gemini", fold=one.fold)
        again = b"".join(encoder.feed(one.parts))
        (back,) = decode_all(again, "gemini")
        if any(call.invalid == "bad-arguments" for call in one.response.invalid_tool_calls):
            assert back.response.finish_reason == one.response.finish_reason == "length"
            assert back.response.tool_calls == one.response.tool_calls
            continue
        assert meaning(back) == meaning(one)
        failed = back.response.error is not None and one.response.usage is not None
        unsaid = ["usage: nothing is written after an error"] if failed else []
        assert [finding.detail for finding in encoder.findings] == unsaid


def meaning(one: Decoded) -> dict[str, object]:
    """All that a response says, without minted ids."""
    response = one.response
    names = {call.id: number for number, call in enumerate(response.tool_calls)}
    items = [
        msgspec.structs.replace(item, id=f"call {names.get(item.id, item.id)}")
        if isinstance(item, ToolCall | ToolResult)
        else item
        for item in response.items
    ]
    finish = one.parts[-1]
    assert isinstance(finish, Finish)
    spelled = [
        msgspec.structs.replace(item, params=json.dumps(json.loads(item.params)))
        if isinstance(item, ToolCall)
        else msgspec.structs.replace(item, raw=Raw(b"0"))
        if isinstance(item, Source)
        else item
        for item in items
    ]
    failed = response.error is not None
    return {
        "items": [json.loads(msgspec.json.encode(item)) for item in spelled if not failed],
        "text": response.text,
        "error": response.error and (response.error.message, response.error.status or 500),
        "reason": response.finish_reason,
        "raw": None if failed else response.raw_finish_reason,
        "usage": None if failed else response.usage,
    }


@each_row("capture", CHAT, ids=str)
def test_a_chat_stream_decodes_the_same_after_conversion(capture: Capture) -> None:
    for one in capture.decode_all():
        response = one.response
        encoder = Encoder("gemini", fold=one.fold)
        (there,) = decode_all(b"".join(encoder.feed(one.parts)), "gemini")
        back = there.response
        assert_said(response, back)
        if any(
            not usable(call) for call in made(response)
        ):  # a call that cannot be told truthfully is an error here, unless the limit cut it
            cut = response.finish_reason == "length"
            assert back.finish_reason == ("length" if cut else "error")
        elif response.finish_reason == "pause":
            assert back.finish_reason == "other"
        else:
            stops = response.finish_reason == "tool-calls" and not made(response)
            assert back.finish_reason == ("stop" if stops else response.finish_reason)
            assert calls(back) == calls(response)


def assert_said(before: Response, after: Response) -> None:
    """Text, a refusal as text, and reasoning, in order; up to a call that ends the stream."""
    whole = "".join(item.text for item in before.items if isinstance(item, TextItem))
    cut = after.error is not None
    assert whole.startswith(after.text) if cut else whole == after.text
    assert (
        before.reasoning.startswith(after.reasoning)
        if cut
        else (before.reasoning == after.reasoning)
    )


def calls(response: Response) -> list[tuple[str, str, object]]:
    return [
        (call.id, call.name, call.params if call.format == "text" else _arguments(call))
        for call in response.tool_calls
    ]


def _arguments(call: ToolCall) -> object:
    found = json.loads(call.params)
    return found["input"] if set(found) == {"input"} else found


def test_convert_writes_a_stream_that_decodes_the_same() -> None:
    capture = next(one for one in CHAT if str(one) == "custom-tool")
    raw = convert(capture.raw, "openai-chat", "gemini")
    assert raw == convert(capture.raw, "openai-chat", "gemini")
    (back,) = decode_all(raw, "gemini")
    assert back.response.finish_reason == "tool-calls"


KEPT = (
    TextStart, TextDelta, TextEnd, ReasoningStart, ReasoningDelta, ReasoningEnd, ToolParamsStart,
    ToolParamsDelta, ToolParamsEnd, ToolCall, File, Finish, ErrorPart,
)  # fmt: skip


def told(part: Part) -> Part:
    """The part with what the wire can say of it."""
    match part:
        case ToolCall(invalid=None):
            return ToolCall(part.id, part.name or "look", '{"a":1}', format=part.format)
        case ToolCall():
            return ToolCall(part.id, part.name, part.params, invalid=part.invalid)
        case ToolParamsStart():
            return ToolParamsStart(part.id, part.name or "look", format=part.format)
        case TextStart():
            return TextStart(part.id)
        case TextEnd():
            return TextEnd(part.id, signature=part.signature, origin="gemini")
        case ReasoningEnd():
            return ReasoningEnd(part.id, signature=part.encrypted, origin="gemini")
        case ReasoningStart():
            return ReasoningStart(part.id, "summary")
        case Finish():
            return Finish(part.reason, usage=None if part.usage is None else Usage(3, 4, 7, 1, 2))
    return part


def normal(response: Response) -> dict[str, object]:
    """What the wire can tell: neighbours of one kind are one, unless a signature parts them."""
    items: list[tuple[object, ...]] = []
    for item in response.items:
        match item:
            case TextItem() | ReasoningItem():
                _add(items, type(item).__name__, item.text, item.signature)
            case ToolCall(invalid=None):
                given = {"input": item.params} if item.format == "text" else None
                items.append((item.id, item.name, given or json.loads(item.params)))
            case File():
                items.append((item.media_type, item.data, item.reference, item.reasoning))
    reason = response.finish_reason or ""
    unsaid = {"pause": "other", "tool-calls": "tool-calls" if response.tool_calls else "stop"}
    return {
        "items": items,
        "reason": unsaid.get(reason, reason),
        "usage": response.usage,
    }


def _add(items: list[tuple[object, ...]], kind: str, text: str, signature: str | None) -> None:
    if not text and not signature:
        return
    before = items[-1] if items else ()
    if len(before) == 3 and before[0] == kind and before[2] is None:
        items[-1] = (kind, f"{before[1]}{text}", signature)
    else:
        items.append((kind, text, signature))


@examples(300)
@given(st.lists(ANY_PART.filter(lambda part: isinstance(part, KEPT)).map(told), max_size=16))
def test_what_is_encoded_decodes_to_the_same_items(soup: list[Part]) -> None:
    guard = Guard(Ids(b"guard"), Findings())
    legal = guard.feed([START, *soup]) + guard.finish()
    before = guard.fold.response()
    encoder = Encoder("gemini", context=Context(ids=Ids(b"1")), fold=guard.fold)
    (back,) = decode_all(b"".join(encoder.feed(legal)), "gemini")
    after = back.response
    (at_once,) = decode_all(body(before, Context(ids=Ids(b"1")), Findings()), "gemini")
    assert at_once.response.finish_reason == after.finish_reason
    if before.error is not None or any(not usable(call) for call in made(before)):
        assert after.finish_reason == "error"
        assert after.tool_calls == ()
    else:
        assert normal(after) == normal(at_once.response) == normal(before)
        assert after.findings == at_once.response.findings == ()


def made(response: Response) -> list[ToolCall]:
    return [item for item in response.items if isinstance(item, ToolCall) and item.name]


def usable(call: ToolCall) -> bool:
    if call.invalid is not None:
        return False
    return call.format == "text" or isinstance(json.loads(call.params), dict)
