"""Streams for the rules of both AI SDK streams: chunks for a front end, and parts of a model."""

from tests.captures.check.cases import Case, Event, dumped
from weft.sse import DONE, write

START: Event = {"type": "start", "messageId": "msg_1"}
STEP: Event = {"type": "start-step"}
STEP_END: Event = {"type": "finish-step"}
FINISH: Event = {"type": "finish", "finishReason": "stop"}
TEXT: Event = {"type": "text-start", "id": "t1"}
DELTA: Event = {"type": "text-delta", "id": "t1", "delta": "Hello"}
TEXT_END: Event = {"type": "text-end", "id": "t1"}
HELLO = (TEXT, DELTA, TEXT_END)
CALL: Event = {"type": "tool-input-start", "toolCallId": "c1", "toolName": "look"}
PIECE: Event = {"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": '{"city":"Oslo"}'}
AVAILABLE: Event = {
    "type": "tool-input-available",
    "toolCallId": "c1",
    "toolName": "look",
    "input": {"city": "Oslo"},
}
OUTPUT: Event = {"type": "tool-output-available", "toolCallId": "c1", "output": {"sky": "blue"}}
ERROR: Event = {"type": "error", "errorText": "Overloaded"}
FILE: Event = {"type": "file", "url": "https://a.example/a.png", "mediaType": "image/png"}
APPROVAL: Event = {"type": "tool-approval-request", "approvalId": "a1", "toolCallId": "c1"}
NO_OUTPUT: Event = {"type": "tool-output-error", "toolCallId": "c1", "errorText": "not JSON"}
URL: Event = {"sourceType": "url", "url": "https://a.example"}
EXECUTED: Event = {"providerExecuted": True}


def stream(*chunks: Event) -> bytes:
    return b"".join(write("", dumped(chunk)) for chunk in chunks)


def message(*chunks: Event, reason: str = "stop") -> bytes:
    """A UI message of one step."""
    end = FINISH | {"finishReason": reason}
    return stream(START, STEP, *chunks, STEP_END, end) + write("", DONE)


def called(*chunks: Event) -> bytes:
    return message(*chunks, reason="tool-calls")


PLAIN = message(*HELLO)
CALLED = called(CALL, PIECE, AVAILABLE)


def answered(*outputs: Event) -> bytes:
    return called(CALL, PIECE, AVAILABLE, *outputs)


ANSWERED = answered(OUTPUT)
FAILED = stream(START, STEP, *HELLO, ERROR, STEP_END, FINISH | {"finishReason": "error"}) + write(
    "", DONE
)

# A model's stream

FIRST: Event = {"type": "stream-start", "warnings": []}
WHO: Event = {"type": "response-metadata", "id": "r1", "modelId": "m-1"}
USED: Event = {
    "inputTokens": {"total": 4, "noCache": 4},
    "outputTokens": {"total": 2, "text": 2},
}
LAST: Event = {
    "type": "finish",
    "finishReason": {"unified": "stop", "raw": "end_turn"},
    "usage": USED,
}
MODEL_CALL: Event = {
    "type": "tool-call",
    "toolCallId": "c1",
    "toolName": "look",
    "input": '{"city":"Oslo"}',
}


def lines(*parts: Event) -> bytes:
    return b"".join(dumped(part) + b"\n" for part in parts)


def model(*parts: Event, last: Event = LAST) -> bytes:
    return lines(FIRST, WHO, *parts, last)


MODEL_PLAIN = model(*HELLO)


def model_case(rule: str, bad: bytes, good: bytes = MODEL_PLAIN) -> Case:
    return Case(rule, good, bad, "jsonl")


CASES = [
    Case(
        "event-object", PLAIN, stream(START) + write("", b"[1]") + PLAIN.removeprefix(stream(START))
    ),
    Case(
        "chunk-type",
        message({"type": "data-progress", "data": 10}, *HELLO),
        message({"type": "progress", "percent": 10}, *HELLO),
    ),
    model_case("part-type", model({"type": "progress", "percent": 10}, *HELLO)),
    Case("mixed-forms", CALLED, called(CALL, PIECE, MODEL_CALL)),
    model_case(
        "dump",
        lines(
            {"type": "start"},
            {"type": "start-step", "request": {}, "warnings": []},
            TEXT,
            {"type": "text-delta", "id": "t1", "text": "Hello"},
            TEXT_END,
            {"type": "finish-step", "finishReason": "stop", "usage": {}},
            {"type": "finish", "finishReason": "stop", "totalUsage": {}},
        ),
    ),
    Case("required-key", PLAIN, message(*HELLO, {"type": "source-url", "sourceId": "s1"})),
    Case("null-key", PLAIN, message(TEXT | {"providerMetadata": None}, DELTA, TEXT_END)),
    Case("unknown-key", PLAIN, message(TEXT, DELTA | {"index": 0}, TEXT_END)),
    Case(
        "newer-chunk",
        message(FILE),
        message(FILE | {"type": "reasoning-file"}),
    ),
    Case("item-not-open", PLAIN, message(DELTA, TEXT_END)),
    Case("item-repeated", PLAIN, message(TEXT, *HELLO)),
    Case(
        "item-id-reused",
        message(*HELLO, *({**one, "id": "t2"} for one in HELLO)),
        message(*HELLO, *HELLO),
    ),
    Case("item-open", PLAIN, message(TEXT, DELTA)),
    Case("call-id-differs", CALLED, called(CALL, PIECE, AVAILABLE | {"toolCallId": "c2"})),
    Case("call-repeated", CALLED, called(CALL, PIECE, AVAILABLE, AVAILABLE)),
    Case("call-open", CALLED, message(CALL, PIECE)),
    Case(
        "call-input-differs", CALLED, called(CALL, PIECE, AVAILABLE | {"input": {"city": "Rome"}})
    ),
    Case(
        "call-input-rewritten",
        message(CALL | EXECUTED, PIECE, AVAILABLE | EXECUTED, OUTPUT | EXECUTED),
        message(
            CALL | EXECUTED,
            PIECE,
            AVAILABLE | EXECUTED | {"input": {"type": "look", "city": "Oslo"}},
            OUTPUT | EXECUTED,
        ),
    ),
    Case("call-input-form", CALLED, called(AVAILABLE | {"input": '{"city":"Oslo"}'})),
    model_case(
        "call-input-json",
        model(MODEL_CALL | {"input": '{"city":"Os'}),
        model(MODEL_CALL, last=LAST | {"finishReason": {"unified": "tool-calls"}}),
    ),
    Case("call-name", CALLED, called(CALL, PIECE, AVAILABLE | {"toolName": "read"})),
    Case("call-dynamic", CALLED, called(CALL, PIECE, AVAILABLE | {"dynamic": True})),
    Case("output-unknown-call", ANSWERED, answered(OUTPUT, OUTPUT | {"toolCallId": "c2"})),
    Case("output-earlier-call", ANSWERED, message(OUTPUT, *HELLO)),
    Case("output-repeated", ANSWERED, answered(OUTPUT, OUTPUT)),
    Case(
        "output-open",
        answered(OUTPUT | {"preliminary": True}, OUTPUT),
        answered(OUTPUT | {"preliminary": True}),
    ),
    Case("finish-missing", PLAIN, stream(START, STEP, *HELLO)),
    Case(
        "after-finish", PLAIN, stream(START, STEP, *HELLO, STEP_END, FINISH, FINISH) + PLAIN[-14:]
    ),
    Case("after-error", FAILED, stream(START, STEP, ERROR, *HELLO) + write("", DONE)),
    Case("after-done", PLAIN, PLAIN + stream(FILE)),
    Case("done-missing", PLAIN, stream(START, STEP, *HELLO, STEP_END, FINISH)),
    Case(
        "start-first",
        PLAIN,
        stream({"type": "data-progress", "data": 10}, STEP, *HELLO, STEP_END, FINISH)
        + write("", DONE),
    ),
    Case("start-repeated", PLAIN, stream(START) + PLAIN),
    Case(
        "message-id",
        PLAIN,
        stream({"type": "start"}, STEP, *HELLO, STEP_END, FINISH) + write("", DONE),
    ),
    Case("step-marks", PLAIN, stream(START, STEP, *HELLO, FINISH) + write("", DONE)),
    model_case("stream-start-first", lines(WHO, *HELLO, LAST)),
    Case("finish-reason", CALLED, message(CALL, PIECE, AVAILABLE, reason="tool_calls")),
    model_case("usage-shape", model(*HELLO, last=LAST | {"usage": {"inputTokens": "4"}})),
    model_case(
        "usage-total",
        model(
            *HELLO, last=LAST | {"usage": {"inputTokens": 4, "outputTokens": 2, "totalTokens": 5}}
        ),
    ),
]
