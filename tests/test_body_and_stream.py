"""A body is what the events of the same parts add up to, key by key."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.captures import CHAT, HERE
from tests.recordings import FIXTURES
from tests.strategies import ANY_PART, examples
from tests.tables import each_row
from weft import (
    DIALECTS,
    Context,
    ErrorPart,
    Finish,
    Guard,
    Ids,
    Part,
    ResponseMetadata,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolParamsStart,
    decode_all,
)
from weft.assembler import Assembler
from weft.dialects import DialectName
from weft.findings import Findings

Json = dict[str, Any]

CAPTURES = [
    (dialect, path)
    for dialect, folder in (("anthropic-messages", "anthropic"), ("gemini", "google"))
    for path in sorted([
        *(HERE / dialect.replace("-", "_")).glob("*.sse"),
        *(FIXTURES / folder).glob("*.chunks.txt"),
    ])
]  # fmt: skip


def guarded(parts: list[Part]) -> tuple[list[Part], Assembler]:
    guard = Guard(Ids(b"guard"), Findings())
    return guard.feed(parts) + guard.finish(), guard.fold


def events(dialect: str, parts: Sequence[Part], fold: Assembler) -> list[Json]:
    make = DIALECTS[dialect].encoder
    assert make is not None
    encoder = make(Context(ids=Ids(b"1"), now=7), fold, Findings())
    written = encoder.feed(parts) + encoder.finish()
    return [json.loads(event.data) for event in written if event.data != b"[DONE]"]


def body(dialect: str, fold: Assembler) -> Json:
    make = DIALECTS[dialect].body
    assert make is not None
    told: Json = json.loads(make(fold.response(), Context(ids=Ids(b"1"), now=7), Findings()))
    return told


# Anthropic Messages


def message(found: list[Json]) -> Json:
    """As the official client accumulates events; but all usage counts, as the wire says."""
    if found[-1]["type"] in ("error", "message"):
        return found[-1]
    told: Json = found[0]["message"]
    inputs: dict[int, str] = {}
    for event in found[1:]:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(told["content"])
                told["content"].append(event["content_block"])
            case "content_block_delta":
                block, delta = told["content"][event["index"]], event["delta"]
                match delta["type"]:
                    case "text_delta":
                        block["text"] += delta["text"]
                    case "thinking_delta":
                        block["thinking"] += delta["thinking"]
                    case "signature_delta":
                        block["signature"] = delta["signature"]
                    case "citations_delta":
                        block["citations"] = [*block.get("citations", []), delta["citation"]]
                    case "input_json_delta":
                        index = event["index"]
                        inputs[index] = inputs.get(index, "") + delta["partial_json"]
            case "message_delta":
                told |= event["delta"]
                told["usage"] |= event["usage"]
                if "context_management" in event:
                    told["context_management"] = event["context_management"]
    for index, text in inputs.items():
        told["content"][index]["input"] = parsed(text)
    return told


def parsed(text: str) -> object:
    """Arguments; those that were cut have no place in a body."""
    try:
        return json.loads(text)
    except ValueError:
        return {}


# Gemini


def answer(found: list[Json]) -> Json:
    """The last frame, with the parts of all of them: text goes on until a signature, or another
    part, ends it.
    """
    last = found[-1]
    if "error" in last:
        return last
    merged: list[Json] = []
    for frame in found:
        for part in frame["candidates"][0]["content"]["parts"]:
            if not grown(merged, part):
                merged.append(part)
    whole = [part for part in merged if part != {"text": ""}]
    last["candidates"][0]["content"]["parts"] = whole or [{"text": ""}]
    return last


def grown(merged: list[Json], part: Json) -> bool:
    """Whether this is more of the last part."""
    if not merged or not {"text"} <= part.keys() <= {"text", "thought", "thoughtSignature"}:
        return False
    last = merged[-1]
    if not last.keys() <= {"text", "thought"} or last.get("thought") != part.get("thought"):
        return part == {"text": ""}
    last["text"] += part["text"]
    last |= {key: part[key] for key in part if key == "thoughtSignature"}
    return True


# Chat Completions


def completion(found: list[Json]) -> Json:
    """Chunks as clients join them: the message, its reason and who says it."""
    if "error" in found[-1]:
        return found[-1]
    message: Json = {}
    calls: dict[int, Json] = {}
    told: Json = {"choices": [{"index": 0, "message": message}]}
    for chunk in found:
        told |= {key: chunk[key] for key in ("id", "created", "model")}
        for choice in chunk["choices"]:
            if choice.get("finish_reason"):
                told["choices"][0]["finish_reason"] = choice["finish_reason"]
            for key, value in choice["delta"].items():
                if key == "tool_calls":
                    for call in value:
                        joined(calls.setdefault(call.pop("index"), {}), call)
                elif value and key != "role":
                    message[key] = message[key] + value if key in message else value
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return told


def joined(call: Json, more: Json) -> None:
    for key, value in more.items():
        if isinstance(value, dict):
            joined(call.setdefault(key, {}), value)
        else:
            call[key] = call.get(key, "") + value if key in ("arguments", "input") else value


def completed(body: Json) -> Json:
    """As much of a body as chunks tell: usage only who asks for it."""
    if "error" in body:
        return body
    (choice,) = body["choices"]
    said = {key: value for key, value in choice["message"].items() if value and key != "role"}
    told = {key: body[key] for key in ("id", "created", "model")}
    reason = choice["finish_reason"]
    return {**told, "choices": [{"index": 0, "message": said, "finish_reason": reason}]}


@each_row("told", [*CAPTURES, *(("openai-chat", one.path) for one in CHAT)],
                         ids=lambda told: f"{told[0]}-{told[1].stem}")  # fmt: skip
def test_a_capture_is_one_chat_answer_in_both_forms(told: tuple[DialectName, Path]) -> None:
    source, path = told
    for one in decode_all(path.read_bytes(), source):
        streamed = completion(events("openai-chat", one.parts, one.fold))
        assert completed(body("openai-chat", one.fold)) == streamed


@examples(300)
@given(soup=st.lists(ANY_PART, max_size=16), native=st.booleans())
def test_any_parts_are_one_chat_answer_in_both_forms(soup: list[Part], native: bool) -> None:
    first = ResponseMetadata("r", model="m", dialect="openai-chat" if native else None)
    parts, _ = guarded([first, *soup])
    parts, fold = guarded(tame(parts))
    streamed = completion(events("openai-chat", parts, fold))
    assert without_details(completed(body("openai-chat", fold))) == without_details(streamed)


FOLDS: dict[str, Callable[[list[Json]], Json]] = {"anthropic-messages": message, "gemini": answer}


@each_row("told", CAPTURES, ids=lambda told: f"{told[0]}-{told[1].stem}")
@each_row("dialect", FOLDS)
def test_a_capture_is_one_answer_in_both_forms(
    dialect: str, told: tuple[DialectName, Path]
) -> None:
    source, path = told
    for one in decode_all(path.read_bytes(), source):
        streamed = FOLDS[dialect](events(dialect, one.parts, one.fold))
        whole = FOLDS[dialect]([body(dialect, one.fold)])
        if path.stem == "fallback-renames-the-model":  # which a stream cannot know when it begins
            key = "modelVersion" if dialect == "gemini" else "model"
            whole[key] = streamed[key] = ""
        assert without_details(whole) == without_details(streamed)


def without_details(told: Json) -> Json:
    """The details of an error are not in the fold."""
    if isinstance(told.get("error"), dict):
        told["error"].pop("details", None)
    return told


def tame(parts: list[Part]) -> list[Part]:
    """Parts whose place the fold remembers: sources inside their texts, signatures of calls from
    the beginning, one item a part; and what is extra of a text at its end, where the decoders of
    these dialects leave it.
    """
    out: list[Part] = []
    open_texts: set[str] = set()
    signed: dict[str, tuple[str | None, str | None]] = {}
    for part in parts:
        match part:
            case TextStart():
                open_texts.add(part.id)
                part = msgspec.structs.replace(part, extra=msgspec.UNSET)
            case TextEnd():
                open_texts.discard(part.id)
            case Source():
                if part.text_id not in open_texts:
                    continue
            case ToolParamsStart():
                signed[part.id] = part.signature, part.origin
            case ToolCall() if part.id in signed:
                signature, origin = signed[part.id]
                part = msgspec.structs.replace(part, signature=signature, origin=origin)
        if "item_id" in part.__struct_fields__:
            part = msgspec.structs.replace(part, item_id=None)
        out.append(part)
    return out


@pytest.mark.parametrize("dialect", FOLDS)
@examples(300)
@given(soup=st.lists(ANY_PART, max_size=16), native=st.booleans())
def test_any_parts_are_one_answer_in_both_forms(
    dialect: str, soup: list[Part], native: bool
) -> None:
    first = ResponseMetadata("r", model="m", dialect=dialect if native else None)
    parts, _ = guarded([first, *soup])
    parts, fold = guarded(tame(parts))
    streamed = FOLDS[dialect](events(dialect, parts, fold))
    whole = FOLDS[dialect]([body(dialect, fold)])
    assert without_details(whole) == without_details(streamed)


KEPT: dict[str, tuple[Json, dict[str, object]]] = {
    "anthropic-messages": (
        {
            "container": {"id": "c"},
            "context_management": {"applied_edits": []},
            "stop_details": {"type": "x"},
            "usage": {"server_tool_use": {"web_search_requests": 1}, "service_tier": "standard"},
        },
        {
            "container": {"id": "c"},
            "context_management": {"applied_edits": []},
            "stop_details": {"type": "x"},
            "usage": {
                "input_tokens": 0,
                "output_tokens": 0,
                "server_tool_use": {"web_search_requests": 1},
                "service_tier": "standard",
            },
        },
    ),
    "gemini": (
        {"finishMessage": "done", "urlContextMetadata": {"a": 1}, "webSearchQueries": ["q"]},
        {
            "finishMessage": "done",
            "urlContextMetadata": {"a": 1},
            "groundingMetadata": {"webSearchQueries": ["q"]},
        },
    ),
}


@pytest.mark.parametrize("dialect", FOLDS)
def test_what_a_finish_keeps_is_in_the_body(dialect: str) -> None:
    extra, wanted = KEPT[dialect]
    parts: list[Part] = [
        ResponseMetadata("r", model="m", dialect=dialect),
        TextStart("t"),
        TextDelta("t", "a"),
        TextEnd("t"),
        Finish("stop", extra=Raw(json.dumps(extra).encode())),
    ]
    parts, fold = guarded(parts)
    told = body(dialect, fold)
    told = told["candidates"][0] if dialect == "gemini" else told
    assert {key: told[key] for key in wanted} == wanted
    assert FOLDS[dialect](events(dialect, parts, fold)) == body(dialect, fold)


def test_there_is_an_error_in_both_forms() -> None:
    for dialect, folded in FOLDS.items():
        parts, fold = guarded([ErrorPart("upstream", "no", status=429)])
        assert body(dialect, fold) == folded(events(dialect, parts, fold))
