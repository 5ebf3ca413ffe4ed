"""The four dialects by hand: what a client asks, what an upstream says, how errors look.

Nothing here is made by Weft's codecs: it is what they are judged by.
"""

import json
import re
from dataclasses import dataclass
from typing import Final

from weft.dialects import DialectName
from weft.sse import FrameReader

CHAT: Final = "openai-chat"
RESPONSES: Final = "openai-responses"
MESSAGES: Final = "anthropic-messages"
GEMINI: Final = "gemini"
DIALECTS: tuple[DialectName, ...] = (CHAT, RESPONSES, MESSAGES, GEMINI)

Object = dict[str, object]


def event(value: Object, name: str | None = None) -> bytes:
    """A frame."""
    line = b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
    return line if name is None else b"event: " + name.encode() + b"\n" + line


def typed(value: Object) -> bytes:
    """A frame that tells its type twice."""
    return event(value, str(value["type"]))


# What upstreams say


@dataclass(frozen=True)
class Speech:
    """One answer of an upstream, in pieces; joined it is a whole stream."""

    head: tuple[bytes, ...]
    """Without content."""

    content: tuple[bytes, ...]
    end: tuple[bytes, ...]
    """From the frame that tells why it ends."""

    body: bytes
    """The same, not streamed."""

    error: bytes
    """An error in the stream, of an overloaded server."""

    @property
    def frames(self) -> tuple[bytes, ...]:
        return self.head + self.content + self.end


def _chunk(delta: Object, finish: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return event({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m",
                  "choices": [choice], **more})  # fmt: skip


_CHAT_USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
_RESPONSES_USAGE = {
    "input_tokens": 3,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 5,
}
_GEMINI_USAGE = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}


def _response(status: str, output: list[Object], **more: object) -> Object:
    return {"id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": "m",
            "output": output, **more}  # fmt: skip


def _said(status: str, *texts: str) -> Object:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": status,
            "content": content}  # fmt: skip


def _numbered(number: int, type: str, **fields: object) -> bytes:
    return typed({"type": type, **fields, "sequence_number": number})


def _delta(number: int, text: str) -> bytes:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return _numbered(number, "response.output_text.delta", **place, delta=text)


_PLACE = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
_PART = {"type": "output_text", "text": "", "annotations": []}
_WHOLE = {"type": "output_text", "text": "Warp and weft.", "annotations": []}


def _candidate(text: str, finish: str | None = None, **more: object) -> Object:
    content = {"parts": [{"text": text}], "role": "model"}
    candidate: Object = {"content": content, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], **more, "modelVersion": "m", "responseId": "r1"}


_MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}

SPEECHES: dict[str, Speech] = {
    CHAT: Speech(
        head=(_chunk({"role": "assistant", "content": ""}),),
        content=(_chunk({"content": "Warp "}), _chunk({"content": "and weft."})),
        end=(_chunk({}, "stop", usage=_CHAT_USAGE), b"data: [DONE]\n\n"),
        body=json.dumps(
            {
                "id": "c1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": "Warp and weft."},
                        "finish_reason": "stop",
                    }
                ],
                "usage": _CHAT_USAGE,
            }
        ).encode(),
        error=event(
            {"error": {"message": "too busy", "type": "server_error", "code": "overloaded"}}
        ),
    ),
    RESPONSES: Speech(
        head=(
            _numbered(0, "response.created", response=_response("in_progress", [])),
            _numbered(1, "response.in_progress", response=_response("in_progress", [])),
        ),
        content=(
            _numbered(2, "response.output_item.added", output_index=0, item=_said("in_progress")),
            _numbered(3, "response.content_part.added", **_PLACE, part=_PART),
            _delta(4, "Warp "),
            _delta(5, "and weft."),
            _numbered(6, "response.output_text.done", **_PLACE, text="Warp and weft."),
            _numbered(7, "response.content_part.done", **_PLACE, part=_WHOLE),
            _numbered(
                8,
                "response.output_item.done",
                output_index=0,
                item=_said("completed", "Warp and weft."),
            ),
        ),
        end=(
            _numbered(
                9,
                "response.completed",
                response=_response(
                    "completed", [_said("completed", "Warp and weft.")], usage=_RESPONSES_USAGE
                ),
            ),
        ),
        body=json.dumps(
            _response("completed", [_said("completed", "Warp and weft.")], usage=_RESPONSES_USAGE)
        ).encode(),
        error=typed(
            {
                "type": "error",
                "code": "overloaded",
                "message": "too busy",
                "param": None,
                "sequence_number": 6,
            }
        ),
    ),
    MESSAGES: Speech(
        head=(
            typed(
                {
                    "type": "message_start",
                    "message": {
                        **_MESSAGE,
                        "content": [],
                        "stop_reason": None,
                        "stop_sequence": None,
                        "usage": {"input_tokens": 3, "output_tokens": 1},
                    },
                }
            ),
        ),
        content=(
            typed(
                {
                    "type": "content_block_start",
                    "index": 0,
                    "content_block": {"type": "text", "text": ""},
                }
            ),
            *(
                typed(
                    {
                        "type": "content_block_delta",
                        "index": 0,
                        "delta": {"type": "text_delta", "text": text},
                    }
                )
                for text in ("Warp ", "and weft.")
            ),
            typed({"type": "content_block_stop", "index": 0}),
        ),
        end=(
            typed(
                {
                    "type": "message_delta",
                    "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                    "usage": {"output_tokens": 2},
                }
            ),
            typed({"type": "message_stop"}),
        ),
        body=json.dumps(
            {
                **_MESSAGE,
                "content": [{"type": "text", "text": "Warp and weft."}],
                "stop_reason": "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 3, "output_tokens": 2},
            }
        ).encode(),
        error=typed(
            {"type": "error", "error": {"type": "overloaded_error", "message": "too busy"}}
        ),
    ),
    GEMINI: Speech(
        head=(),
        content=(event(_candidate("Warp ")), event(_candidate("and weft."))),
        end=(event(_candidate("", "STOP", usageMetadata=_GEMINI_USAGE)),),
        body=json.dumps(_candidate("Warp and weft.", "STOP", usageMetadata=_GEMINI_USAGE)).encode(),
        error=event({"error": {"code": 503, "message": "too busy", "status": "UNAVAILABLE"}}),
    ),
}


def error_body(dialect: str, message: str, type: str = "", code: str | int | None = None) -> bytes:
    """An error as an upstream of this dialect writes it."""
    if dialect == GEMINI:
        return json.dumps({"error": {"code": code, "message": message, "status": type}}).encode()
    if dialect == MESSAGES:
        return json.dumps({"type": "error", "error": {"type": type, "message": message}}).encode()
    error = {"message": message, "type": type, "param": None, "code": code}
    return json.dumps({"error": error}).encode()


# What clients ask

PATHS = {CHAT: "/v1/chat/completions", RESPONSES: "/v1/responses", MESSAGES: "/v1/messages"}


def path_of(dialect: str, model: str, stream: bool) -> str:
    if dialect == GEMINI:
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/v1beta/models/{model}:{verb}"
    return PATHS[dialect]


def body_of(dialect: str, model: str, stream: bool, **more: object) -> bytes:
    asked: Object = {}
    if dialect == GEMINI:
        asked["contents"] = [{"role": "user", "parts": [{"text": "hi"}]}]
    elif dialect == RESPONSES:
        asked |= {"model": model, "input": "hi", "stream": stream}
    else:
        asked |= {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    if dialect == MESSAGES:
        asked["max_tokens"] = 100
    if dialect == CHAT and stream:
        asked["stream_options"] = {"include_usage": True}
    return json.dumps(asked | more).encode()


def question(dialect: str, model: str, stream: bool, *headers: str, **more: object) -> bytes:
    """A whole request."""
    return posted(
        path_of(dialect, model, stream), body_of(dialect, model, stream, **more), *headers
    )


def posted(path: str, body: bytes, *headers: str) -> bytes:
    own = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    if not any(one.lower().startswith(("content-length", "transfer-encoding")) for one in headers):
        own.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*own, "", ""]).encode("latin-1") + body


# How an error looks to a client


@dataclass(frozen=True)
class Seen:
    """An error, whichever the shape: what a client tells by it."""

    word: str
    """Its type, or what this dialect has for it."""

    code: str | int | None
    message: str


def error_seen(dialect: str, body: bytes) -> Seen:
    """Reads an error body, and holds it to the exact shape of its dialect."""
    value = json.loads(body)
    if dialect == MESSAGES:
        assert set(value) - {"request_id"} == {"type", "error"}, value
        assert value["type"] == "error"
        error = value["error"]
        assert set(error) <= {"type", "message", "details"}, error
        return Seen(error["type"], error.get("details", {}).get("error_code"), error["message"])
    assert list(value) in (["error"], ["error", "usage"]), value
    error = value["error"]
    if dialect == GEMINI:
        assert set(error) <= {"code", "message", "status", "details"}, error
        return Seen(error["status"], error["code"], error["message"])
    assert list(error) == ["message", "type", "param", "code"], error
    return Seen(error["type"], error["code"], error["message"])


def frames_of(body: bytes) -> list[tuple[str, bytes]]:
    """The events of a stream: their names and data. A stream ends with a whole event."""
    assert body.endswith(b"\n\n"), body[-200:]
    reader = FrameReader()
    return [(frame.event or "", frame.data) for frame in reader.feed(body) + reader.finish()]


def error_ending(dialect: str, body: bytes) -> Seen:
    """Reads a stream that failed: exactly one error, at the end, and never a good end beside it."""
    return _ENDINGS[dialect](body)


_GOOD_ENDS = {
    CHAT: re.compile(rb'"finish_reason":\s?"'),
    RESPONSES: re.compile(rb"response\.(completed|incomplete)\b"),
    MESSAGES: re.compile(rb"message_delta|message_stop"),
    GEMINI: re.compile(rb"finishReason"),
}


def has_good_end(dialect: str, body: bytes) -> bool:
    return _GOOD_ENDS[dialect].search(body) is not None


def _chat_ending(body: bytes) -> Seen:
    *before, (_, error), (_, done) = frames_of(body)
    assert done == b"[DONE]"
    assert not any(b'"error"' in data or data == b"[DONE]" for _, data in before)
    assert not has_good_end(CHAT, body)
    return error_seen(CHAT, error)


_ITEM_DONE = "response.output_item.done"


def _responses_ending(body: bytes) -> Seen:
    *before, (name, error), (last, failed), (_, done) = frames_of(body)
    assert (name, last, done) == ("error", "response.failed", b"[DONE]")
    assert not any(name in ("error", "response.failed") for name, _ in before)
    assert not has_good_end(RESPONSES, body)
    numbers = [json.loads(data)["sequence_number"] for _, data in frames_of(body)[:-1]]
    assert numbers == list(range(len(numbers)))
    flat, ended = json.loads(error), json.loads(failed)["response"]
    nested = flat["error"]
    assert (flat["type"], flat["code"], flat["message"]) == (
        "error",
        nested["code"],
        nested["message"],
    )
    assert ended["status"] == "failed"
    assert ended["error"]["message"] == nested["message"]
    done_items = [json.loads(data)["item"] for name, data in before if name == _ITEM_DONE]
    closed = {item["id"]: item["status"] for item in done_items}
    cut = [item for item in ended["output"] if item["id"] not in closed]  # never done: only calls
    assert {(item["type"], item["status"]) for item in cut} <= {("function_call", "incomplete")}
    whole = [item for item in ended["output"] if item["id"] in closed]
    assert [(item["id"], item["status"]) for item in whole] == list(closed.items())
    return Seen(nested["type"], nested["code"], nested["message"])


def _messages_ending(body: bytes) -> Seen:
    *before, (name, error) = frames_of(body)
    assert name == "error"
    assert not any(name == "error" for name, _ in before)
    assert not has_good_end(MESSAGES, body)
    return error_seen(MESSAGES, error)


def _gemini_ending(body: bytes) -> Seen:
    *before, (_, error) = frames_of(body)
    assert not any(b'"error"' in data for _, data in before)
    assert not has_good_end(GEMINI, body)
    return error_seen(GEMINI, error)


_ENDINGS = {
    CHAT: _chat_ending,
    RESPONSES: _responses_ending,
    MESSAGES: _messages_ending,
    GEMINI: _gemini_ending,
}
