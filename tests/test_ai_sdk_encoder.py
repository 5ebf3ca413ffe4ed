"""The UI message encoder: only chunks and keys that front ends accept, and ends before errors."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.encoded import data_events
from tests.strategies import ANY_PART, LEGAL, QUICK, THOROUGH
from weft import (
    Context,
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
    convert,
    decode_all,
    encode,
)
from weft.assembler import Assembler
from weft.dialects.ai_sdk.quirks import UiQuirks
from weft.findings import Findings
from weft.lifecycle import FAMILY, settled, violations
from weft.parts import FinishReason, ItemPart
from weft.request import CallContent, Message, TextContent, Tool

Chunk = dict[str, Any]

HERE = Path(__file__).parent / "captures" / "openai_chat"

START = ResponseMetadata("up_1", model="m-1", dialect="somewhere")
SAME_DIALECT = ResponseMetadata("up_1", dialect="ai-sdk")
TEXT: list[Part] = [TextStart("t"), TextDelta("t", "Hel"), TextDelta("t", "lo"), TextEnd("t")]
CALL: list[Part] = [
    ToolParamsStart("call_1", "look"),
    ToolParamsDelta("call_1", '{"at":'),
    ToolParamsDelta("call_1", "1}"),
    ToolParamsEnd("call_1"),
    ToolCall("call_1", "look", '{"at":1}'),
]
END = [{"type": "finish-step"}, {"type": "finish", "finishReason": "stop"}]

REQUIRED: dict[str, set[str]] = {
    "start": set(), "start-step": set(), "finish-step": set(), "finish": {"finishReason"},
    "text-start": {"id"}, "text-delta": {"id", "delta"}, "text-end": {"id"},
    "reasoning-start": {"id"}, "reasoning-delta": {"id", "delta"}, "reasoning-end": {"id"},
    "tool-input-start": {"toolCallId", "toolName"},
    "tool-input-delta": {"toolCallId", "inputTextDelta"},
    "tool-input-available": {"toolCallId", "toolName", "input"},
    "tool-input-error": {"toolCallId", "toolName", "input", "errorText"},
    "tool-output-available": {"toolCallId", "output"},
    "tool-output-error": {"toolCallId", "errorText"},
    "tool-approval-request": {"approvalId", "toolCallId"},
    "source-url": {"sourceId", "url"}, "source-document": {"sourceId", "mediaType", "title"},
    "file": {"url", "mediaType"}, "error": {"errorText"}, "abort": set(),
}  # fmt: skip
"""The chunks that a front end of version 6 knows, with their required keys."""

OPTIONAL: dict[str, set[str]] = {
    "start": {"messageId", "messageMetadata"},
    "finish": {"messageMetadata"},
    "text-start": {"providerMetadata"},
    "text-end": {"providerMetadata"},
    "reasoning-start": {"providerMetadata"},
    "reasoning-end": {"providerMetadata"},
    "tool-input-start": {"providerExecuted", "dynamic", "providerMetadata", "title"},
    "tool-input-available": {"providerExecuted", "dynamic", "providerMetadata", "title"},
    "tool-input-error": {"providerExecuted", "dynamic"},
    "tool-output-available": {"providerExecuted", "dynamic", "preliminary"},
    "tool-output-error": {"providerExecuted", "dynamic"},
    "source-url": {"title"},
    "source-document": {"filename"},
}
"""The optional keys of each chunk. Others may end the chat."""


def written(
    *parts: Part,
    finish: Part | None = None,
    head: Part = START,
    quirks: UiQuirks | None = None,
    request: Request | None = None,
) -> list[Chunk]:
    """Returns the chunks of these parts, without `start` and `start-step`."""
    context = Context(ids=Ids(b"1"), quirks=quirks, request=request)
    stream = [head, *parts, finish or Finish("stop")]
    found = data_events(b"".join(encode(stream, "ai-sdk", context=context)))
    assert (found[0]["type"], found[1]) == ("start", {"type": "start-step"})
    return found[2:]


def content(*parts: Part, **more: Any) -> list[Chunk]:
    """Returns the chunks between the start and the end of the step."""
    return [one for one in written(*parts, **more) if not one["type"].startswith("finish")]


def not_carried(*parts: Part, head: Part = START, quirks: UiQuirks | None = None) -> list[str]:
    """Returns the details of the findings `not-carried`."""
    guard = Guard(Ids(b"1"), Findings())
    encoder = Encoder("ai-sdk", context=Context(ids=Ids(b"1"), quirks=quirks), fold=guard.fold)
    encoder.feed(guard.feed([head, *parts, Finish("other")]))
    assert {finding.code for finding in encoder.findings} <= {"not-carried"}
    return [finding.detail for finding in encoder.findings]


# The message


def test_text_is_written_delta_by_delta() -> None:
    assert written(*TEXT) == [
        {"type": "text-start", "id": "t"},
        {"type": "text-delta", "id": "t", "delta": "Hel"},
        {"type": "text-delta", "id": "t", "delta": "lo"},
        {"type": "text-end", "id": "t"},
        *END,
    ]


def test_a_message_starts_with_an_id_and_a_step() -> None:
    for context, id in (
        (Context(ids=Ids(b"1")), Ids(b"1").mint("msg")),
        (Context(response_id="resp_1"), "resp_1"),
    ):
        found = data_events(b"".join(encode([START, Finish("stop")], "ai-sdk", context=context)))
        assert found == [{"type": "start", "messageId": id}, {"type": "start-step"}, *END]


def test_an_answer_continues_the_last_message_of_the_assistant() -> None:
    answer = Message("assistant", (CallContent("old", "look", "{}"),), item_id="m_7")
    question = Message("user", (TextContent("hi"),), item_id="m_8")
    context = Context(request=Request("m", (answer,)), response_id="resp_1")
    (start, *_) = data_events(b"".join(encode([START, Finish("stop")], "ai-sdk", context=context)))
    assert start["messageId"] == "m_7"
    context = Context(request=Request("m", (answer, question)), response_id="resp_1")
    (start, *_) = data_events(b"".join(encode([START, Finish("stop")], "ai-sdk", context=context)))
    assert start["messageId"] == "resp_1"


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content-filter", "content-filter"),
        ("tool-calls", "stop"),  # there is no call
        ("other", "other"),
        ("pause", "stop"),
    ],
)
def test_every_finish_reason_is_one_that_front_ends_know(reason: FinishReason, word: str) -> None:
    assert written(finish=Finish(reason))[-1] == {"type": "finish", "finishReason": word}


def test_a_pause_with_a_client_call_finishes_with_tool_calls() -> None:
    pause = Finish("pause")
    assert written(*CALL, finish=pause)[-1]["finishReason"] == "tool-calls"
    hosted = ToolCall("k", "search", "{}", provider_executed=True)
    assert written(hosted, finish=pause)[-1]["finishReason"] == "stop"


def test_usage_is_written_only_if_enabled() -> None:
    usage = Finish("stop", usage=Usage(3, 4, 7, 1, 2))
    assert written(finish=usage)[-1] == END[-1]
    assert written(finish=usage, quirks=UiQuirks(usage=True))[-1]["messageMetadata"] == {
        "model": "m-1",
        "usage": {
            "inputTokens": 3,
            "outputTokens": 4,
            "totalTokens": 7,
            "reasoningTokens": 1,
            "cachedInputTokens": 2,
        },
    }
    bare = written(head=SAME_DIALECT, quirks=UiQuirks(usage=True))[-1]
    assert bare["messageMetadata"] == {}


def test_a_comment_keeps_the_stream_alive() -> None:
    encoder = Encoder("ai-sdk", context=Context())
    assert encoder.keepalive() == [b": keepalive\n\n"]
    assert encoder.finish() == []


# Errors


def test_everything_is_ended_before_the_error() -> None:
    found = written(
        TextStart("t"),
        ReasoningStart("r", "raw"),
        *CALL[:2],
        ErrorPart("upstream", "broken"),
        finish=Finish("error"),
    )
    assert found[4:] == [
        {"type": "text-end", "id": "t"},
        {"type": "reasoning-end", "id": "r"},
        {
            "type": "tool-input-error",
            "toolCallId": "call_1",
            "toolName": "look",
            "input": '{"at":',
            "errorText": "the stream ended before the call did",
        },
        {"type": "error", "errorText": "broken"},
        {"type": "finish-step"},
        {"type": "finish", "finishReason": "error"},
    ]


def test_an_error_always_has_a_text() -> None:
    found = written(ErrorPart("upstream", ""), finish=Finish("error"))
    assert found[0] == {"type": "error", "errorText": "unknown error"}


def test_a_cancelled_response_is_an_abort() -> None:
    parts: list[Part] = [TextStart("t"), ErrorPart("cancelled", "enough")]
    end = {"type": "text-end", "id": "t"}
    found = written(*parts, finish=Finish("error"))
    assert found[1:] == [end, {"type": "abort"}]
    found = written(*parts, finish=Finish("error"), quirks=UiQuirks(ui=7))
    assert found[1:] == [end, {"type": "abort", "reason": "enough"}]


# Signatures


def test_signatures_are_written_at_the_end_under_their_origin() -> None:
    found = content(
        ReasoningStart("r", "raw"),
        ReasoningEnd("r", signature="s", encrypted="e", redacted="d", origin="o"),
        TextStart("t"),
        TextEnd("t", signature="s"),
        ToolCall("k", "look", "{}", signature="s"),
    )
    metadata = [one["providerMetadata"] for one in found if "providerMetadata" in one]
    assert metadata == [
        {"o": {"signature": "s", "redactedData": "d", "reasoningEncryptedContent": "e"}},
        {"somewhere": {"signature": "s"}},
        {"somewhere": {"signature": "s"}},
    ]


def test_provider_metadata_is_written_back_unchanged() -> None:
    kept = Raw(b'{"providerMetadata":{"p":{"x":1,"signature":"s"}}}')
    found = content(
        ReasoningStart("r", "raw", extra=kept),
        ReasoningEnd("r", signature="s", origin="p", extra=kept),
        TextStart("t", extra=kept),
        TextEnd("t", extra=kept),
        head=SAME_DIALECT,
    )
    assert [one["providerMetadata"] for one in found] == [{"p": {"x": 1, "signature": "s"}}] * 4
    assert all("providerMetadata" not in one for one in content(TextStart("t", extra=kept)))


def test_annotations_are_metadata_of_the_end_of_their_text() -> None:
    note = b'{"type":"url_citation","url":"https://a.example"}'
    parts = [TextStart("t"), TextDelta("t", "A"), TextEnd("t", (Raw(note),), origin="p")]
    end = next(one for one in written(*parts) if one["type"] == "text-end")
    assert end["providerMetadata"] == {"p": {"annotations": [json.loads(note)]}}


def test_message_metadata_is_written_back_unchanged() -> None:
    kept = Raw(b'{"messageMetadata":{"x":1}}')
    head = ResponseMetadata("m", dialect="ai-sdk", extra=kept)
    raw = b"".join(encode([head, Finish("stop", extra=kept)], "ai-sdk", context=Context()))
    found = data_events(raw)
    assert found[0]["messageMetadata"] == found[-1]["messageMetadata"] == {"x": 1}


# Calls


def test_a_call_is_streamed_then_written_whole_with_parsed_input() -> None:
    assert content(*CALL, finish=Finish("tool-calls")) == [
        {"type": "tool-input-start", "toolCallId": "call_1", "toolName": "look"},
        {"type": "tool-input-delta", "toolCallId": "call_1", "inputTextDelta": '{"at":'},
        {"type": "tool-input-delta", "toolCallId": "call_1", "inputTextDelta": "1}"},
        {
            "type": "tool-input-available",
            "toolCallId": "call_1",
            "toolName": "look",
            "input": {"at": 1},
        },
    ]


def test_arguments_on_many_lines_stay_in_one_chunk() -> None:
    (call,) = content(ToolCall("k", "look", '{\n"at":\r1}'))
    assert call["input"] == {"at": 1}


def test_free_text_is_written_whole() -> None:
    found = content(
        ToolParamsStart("k", "patch", kind="custom", format="text"),
        ToolParamsDelta("k", "*** Begin"),
        ToolParamsEnd("k"),
        ToolCall("k", "patch", "*** Begin", kind="custom", format="text"),
    )
    assert found == [
        {
            "type": "tool-input-available",
            "toolCallId": "k",
            "toolName": "patch",
            "input": "*** Begin",
        }
    ]


def test_an_invalid_call_is_an_input_error_with_its_raw_text() -> None:
    (error,) = content(ToolCall("k", "look", "{oops", invalid="bad-arguments"))
    assert error == {
        "type": "tool-input-error",
        "toolCallId": "k",
        "toolName": "look",
        "input": "{oops",
        "errorText": "the arguments are not valid JSON",
    }
    kept = Raw(b'{"errorText":"no"}')
    call = ToolCall("k", "look", "{oops", invalid="bad-arguments", extra=kept)
    assert content(call, head=SAME_DIALECT)[0]["errorText"] == "no"


def test_a_call_without_a_name_is_not_written() -> None:
    call = ToolCall("k", "", "{}", invalid="nameless")
    assert content(call) == []
    assert not_carried(call, ToolResult("k", Raw(b"1"))) == [
        "tool-call: it has no name",
        "tool-result: the reader does not know its call",
    ]


def test_all_chunks_of_a_call_agree_on_what_it_is() -> None:
    parts: list[Part] = [
        ToolParamsStart("k", "search", provider_executed=True),
        ToolParamsEnd("k"),
        ToolCall("k", "search", "{}", provider_executed=True),
        ToolResult("k", Raw(b"1"), preliminary=True),
        ToolResult("k", Raw(b'"no"'), is_error=True),
    ]
    found = content(*parts)
    assert [one["type"] for one in found] == [
        "tool-input-start",
        "tool-input-delta",
        "tool-input-available",
        "tool-output-available",
        "tool-output-error",
    ]
    whole = [found[0], *found[2:]]
    assert all(one["providerExecuted"] is True and one["dynamic"] is True for one in whole)
    declared = content(*parts, request=Request("m", tools=(Tool("search"),)))
    assert all("dynamic" not in one for one in declared)


def test_a_call_of_this_dialect_keeps_title_and_dynamic() -> None:
    kept = Raw(b'{"dynamic":true,"title":"T"}')
    start = ToolParamsStart("k", "x", extra=kept)
    call = ToolCall("k", "x", "{}", dynamic=True, extra=kept)
    found = content(start, ToolParamsEnd("k"), call, head=SAME_DIALECT)
    assert [one.get("dynamic") for one in found] == [True, None, True]
    assert [one.get("title") for one in found] == ["T", None, "T"]
    (alone,) = content(call, head=SAME_DIALECT, quirks=UiQuirks(ui=5))
    assert (alone["dynamic"], "title" in alone) == (True, False)


def test_results_are_outputs() -> None:
    call = ToolCall("k", "look", "{}")
    for result, chunk in (
        (ToolResult("k", Raw(b"null")), {"type": "tool-output-available", "output": None}),
        (
            ToolResult("k", Raw(b'{\n"a":1}'), preliminary=True),
            {"type": "tool-output-available", "output": {"a": 1}, "preliminary": True},
        ),
        (
            ToolResult("k", Raw(b'{"a": 1}'), is_error=True),
            {"type": "tool-output-error", "errorText": '{"a":1}'},
        ),
        (
            ToolResult("k", Raw(b"{oops\n"), is_error=True),
            {"type": "tool-output-error", "errorText": "{oops "},
        ),
    ):
        assert content(call, result)[1] == {**chunk, "toolCallId": "k"}
    early = ToolResult("k", Raw(b"1"), is_error=True, preliminary=True)
    assert not_carried(call, early) == ["tool-result: an error is always the last result"]


def test_a_result_of_an_earlier_call_is_written_if_the_front_end_has_that_call() -> None:
    result = ToolResult("old", Raw(b"1"), earlier=True, provider_executed=False)
    answer = Message("assistant", (CallContent("old", "look", "{}"),), item_id="m_7")
    chunk = {"type": "tool-output-available", "toolCallId": "old", "output": 1}
    assert content(result, request=Request("m", (answer,))) == [chunk]
    assert content(result) == []
    assert not_carried(result) == ["tool-result: the reader does not know its call"]


def test_approvals_are_written_for_front_ends_that_support_them() -> None:
    call, approval = ToolCall("k", "look", "{}"), ToolApprovalRequest("k", "a")
    chunk = {"type": "tool-approval-request", "approvalId": "a", "toolCallId": "k"}
    assert content(call, approval)[1:] == [chunk]
    assert not_carried(call, approval, quirks=UiQuirks(ui=5)) == [
        "tool-approval-request: this front end has no approvals"
    ]
    nameless = ToolCall("k", "", "{}", invalid="nameless")
    assert len(not_carried(nameless, approval)) == 2


# Sources, files, and the rest


def test_sources_have_a_url_or_a_title() -> None:
    kept = Raw(b'{"mediaType":"a/b","filename":"f"}')
    assert content(
        Source("s", "url", url="https://a.example", title="A"),
        Source("s", "url", url="https://a.example"),
        Source("d", "document", file_id="file_1"),
        Source("e", "document"),
    ) == [
        {"type": "source-url", "sourceId": "s", "url": "https://a.example", "title": "A"},
        {"type": "source-url", "sourceId": "s", "url": "https://a.example"},
        {"type": "source-document", "sourceId": "d", "title": "file_1",
         "mediaType": "application/octet-stream"},
        {"type": "source-document", "sourceId": "e", "title": "e",
         "mediaType": "application/octet-stream"},
    ]  # fmt: skip
    document = {"type": "source-document", "sourceId": "d", "title": "f", "filename": "f",
                "mediaType": "a/b"}  # fmt: skip
    assert content(Source("d", "document", extra=kept), head=SAME_DIALECT) == [document]
    assert not_carried(Source("s", "url"), Source("s", "url", url="u", start=1)) == [
        "source: it has no address",
        "source: where in the text a source belongs is not told",
    ]


def test_files_are_urls() -> None:
    data, url = File("f", "a/b", data="AA=="), File("g", "a/b", reference="https://a.example")
    assert content(data, url) == [
        {"type": "file", "url": "data:a/b;base64,AA==", "mediaType": "a/b"},
        {"type": "file", "url": "https://a.example", "mediaType": "a/b"},
    ]
    thought = File("h", "a/b", data="AA==", reasoning=True)
    assert content(thought, quirks=UiQuirks(ui=7))[0]["type"] == "reasoning-file"
    assert not_carried(thought, File("i", "a/b", reference="file_1")) == [
        "file: this front end has no files in reasoning",
        "file: only its origin knows where it is",
    ]


def test_opaque_chunks_of_this_dialect_are_written_back_unchanged() -> None:
    own = Opaque("ai-sdk", "data-x", Raw(b'{"type":"data-x","data":1}'))
    assert content(own, head=SAME_DIALECT) == [{"type": "data-x", "data": 1}]
    assert not_carried(own) == ["opaque: 'data-x' of ai-sdk has no chunk"]
    custom = Opaque("ai-sdk", "custom", Raw(b'{"type":"custom","kind":"p.x"}'))
    assert content(custom, head=SAME_DIALECT) == []
    assert content(custom, head=SAME_DIALECT, quirks=UiQuirks(ui=7)) == [
        {"type": "custom", "kind": "p.x"}
    ]


def test_opaque_items_of_other_dialects_are_custom_chunks_since_version_7() -> None:
    other = Opaque("there", "item", Raw(b'{"x":1}'))
    assert not_carried(other) == ["opaque: 'item' of there has no chunk"]
    assert content(other, quirks=UiQuirks(ui=7)) == [
        {"type": "custom", "kind": "there.item", "providerMetadata": {"there": {"item": {"x": 1}}}}
    ]


def test_refusals_and_pauses_leave_a_finding() -> None:
    refusal: list[Part] = [TextStart("t", refusal=True), TextEnd("t")]
    assert not_carried(*refusal) == ["text-start: a refusal is written as text"]
    encoder = Encoder("ai-sdk", context=Context())
    encoder.feed([START, Finish("pause")])
    assert [one.detail for one in encoder.findings] == [
        "finish: there is no finish reason for a pause"
    ]


# Whatever is written


def check(found: list[Chunk]) -> None:
    """Checks what a strict front end requires."""
    open_ids: set[tuple[str, str]] = set()
    known: set[str] = set()
    for one in found:
        type = one["type"]
        assert REQUIRED[type] <= set(one) - {"type"}
        assert set(one) - {"type"} - REQUIRED[type] <= OPTIONAL.get(type, set())
        assert None not in [one[key] for key in one if key not in ("output", "input")]
        kind, _, verb = type.partition("-")
        if kind in ("text", "reasoning"):
            key = (kind, one["id"])
            assert (key in open_ids) == (verb != "start")
            {"start": open_ids.add, "end": open_ids.remove}.get(verb, id)(key)
        elif type in ("tool-input-start", "tool-input-available", "tool-input-error"):
            known.add(one["toolCallId"])
        elif "toolCallId" in one:
            assert one["toolCallId"] in known
        elif type in ("error", "abort", "finish-step"):
            assert not open_ids


@THOROUGH
@given(LEGAL)
def test_a_strict_front_end_reads_any_stream(parts: list[Part]) -> None:
    check(data_events(b"".join(encode(parts, "ai-sdk", context=Context(ids=Ids(b"1"))))))


@QUICK
@given(LEGAL)
def test_any_parts_can_be_written_for_every_version(parts: list[Part]) -> None:
    for ui in (5, 7):
        context = Context(ids=Ids(b"1"), quirks=UiQuirks(ui=ui, usage=True))
        data_events(b"".join(encode(parts, "ai-sdk", context=context)))


# Round trips

KEPT: dict[type[Part], tuple[str, ...]] = {
    ResponseMetadata: (),
    TextStart: (),
    TextDelta: ("delta",),
    TextEnd: ("signature",),
    ReasoningStart: (),
    ReasoningDelta: ("delta",),
    ReasoningEnd: ("signature", "encrypted", "redacted"),
    ToolParamsStart: ("name", "format", "provider_executed"),
    ToolParamsDelta: ("delta",),
    ToolParamsEnd: (),
    ToolCall: ("name", "params", "format", "provider_executed", "signature"),
    ErrorPart: ("message",),
    Finish: (),
}
"""The fields that survive a round trip. Parts that are not here have a test of their own."""


def plain(part: Part) -> Part:
    fields = {name: getattr(part, name) for name in KEPT[type(part)]}
    match part:
        case ReasoningStart():
            fields["kind"] = "raw"
        case ToolCall(invalid=None):
            pass
        case ToolCall():
            fields |= {"invalid": "bad-arguments", "signature": None}
        case ErrorPart():
            fields |= {"kind": "upstream", "message": part.message or "unknown error"}
        case Finish(reason=reason):
            fields["reason"] = reason
    if isinstance(part, ToolParamsStart | ToolCall) and part.format == "text":
        fields["kind"] = "custom"
    id = {} if isinstance(part, ErrorPart | Finish) else {"id": "r"}
    return type(part)(**{**id, **fields})


def normal(parts: Sequence[Part]) -> dict[object, list[Part]]:
    """Groups what survives a round trip by item: the order of ends and of an error may change."""
    groups: dict[object, list[Part]] = {}
    for part in parts:
        item = (FAMILY[type(part)], part.id) if isinstance(part, ItemPart) else None
        groups.setdefault(item or type(part), []).append(plain(part))
    calls = [group[-1] for group in groups.values() if isinstance(group[-1], ToolCall)]
    if groups[Finish] == [Finish("tool-calls")] and not any(call.name for call in calls):
        groups[Finish] = [Finish("stop")]
    asked = any(not (call.invalid or call.provider_executed) for call in calls)
    if groups[Finish] == [Finish("pause")]:
        groups[Finish] = [Finish("tool-calls" if asked else "stop")]
    for key, group in groups.items():
        if isinstance(group[-1], ToolCall):
            groups[key] = as_whole_call(group[-1], group)
    nameless = [k for k, g in groups.items() if isinstance(g[-1], ToolCall) and not g[-1].name]
    return {key: group for key, group in groups.items() if key not in nameless}


def as_whole_call(call: ToolCall, group: list[Part]) -> list[Part]:
    """Returns the parts of a call that is written whole: its arguments come back in one delta."""
    if call.invalid and call.format == "text":  # what was no good is not known to be free text
        call = msgspec.structs.replace(call, format="json", kind="function")
    start = ToolParamsStart(
        "r", call.name, call.kind, provider_executed=call.provider_executed, format=call.format
    )
    deltas: list[Part] = [part for part in group if isinstance(part, ToolParamsDelta)]
    if len(group) == 1 or call.format == "text" or call.invalid:
        deltas = [ToolParamsDelta("r", call.params)] if call.params else []
    return [start, *deltas, ToolParamsEnd("r"), call]


CARRIED = ANY_PART.filter(lambda part: type(part) in KEPT)
STREAM = st.lists(CARRIED, max_size=16)


def guarded(parts: list[Part]) -> list[Part]:
    guard = Guard(Ids(b"guard"), Findings())
    return guard.feed([ResponseMetadata("r"), *parts]) + guard.finish()


def ambiguous(parts: list[Part]) -> bool:
    """Whether free text is a JSON object: it is read as arguments."""
    texts = [part for part in parts if isinstance(part, ToolCall) and part.format == "text"]
    return any(part.params.startswith("{") and settled(part.params) for part in texts)


@THOROUGH
@given(STREAM)
def test_what_is_encoded_decodes_to_the_same_parts(soup: list[Part]) -> None:
    parts = guarded([part for part in soup if not isinstance(part, ResponseMetadata)])
    raw = b"".join(encode(parts, "ai-sdk", context=Context(ids=Ids(b"1"))))
    (back,) = decode_all(raw, "ai-sdk")
    assert violations(back.parts, Assembler()) == []
    if not ambiguous(parts):
        assert normal(back.parts) == normal(parts)


@QUICK
@given(LEGAL)
def test_a_stream_of_this_dialect_survives_a_second_round_trip(parts: list[Part]) -> None:
    raw = b"".join(encode(parts, "ai-sdk", context=Context(ids=Ids(b"1"))))
    (once,) = decode_all(raw, "ai-sdk")
    again = b"".join(encode(once.parts, "ai-sdk", context=Context(response_id=once.response.id)))
    (twice,) = decode_all(again, "ai-sdk")
    assert twice.parts == once.parts


CAPTURES = sorted(HERE.glob("arguments-*.sse"))[:12] + sorted(HERE.glob("*reasoning*.sse"))[:6]


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_chat_streams_survive_a_round_trip(path: Path) -> None:
    raw = path.read_bytes()
    before = decode_all(raw, "openai-chat")
    after = decode_all(convert(raw, "openai-chat", "ai-sdk"), "ai-sdk")
    for one, other in zip(before, after, strict=True):
        assert violations(other.parts, Assembler()) == []
        first, second = one.response, other.response
        assert (second.text, second.reasoning) == (first.text, first.reasoning)
        assert second.finish_reason == first.finish_reason
        assert [(call.id, call.name, call.params) for call in second.tool_calls] == [
            (call.id, call.name, call.params) for call in first.tool_calls
        ]
