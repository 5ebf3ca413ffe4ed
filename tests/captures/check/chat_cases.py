"""Streams for the rules of the Chat Completions wire: made by hand, a few chunks each."""

from collections.abc import Sequence

from tests.captures.check.cases import Case, dumped
from weft.dialects.rules import JsonValue
from weft.sse import DONE, write

Chunk = dict[str, JsonValue]

USAGE: Chunk = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}


# Good streams


def chunk(*choices: Chunk, **fields: JsonValue) -> Chunk:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1790000000,
        "model": "m-1",
        "choices": [*choices],
        **fields,
    }


def choice(delta: Chunk, reason: str | None = None, index: int = 0) -> Chunk:
    return {"index": index, "delta": delta, "finish_reason": reason}


def said(delta: Chunk, reason: str | None = None, **fields: JsonValue) -> Chunk:
    """A chunk of one choice."""
    return chunk({**choice(delta, reason), **fields})


def role(**fields: JsonValue) -> Chunk:
    return said({"role": "assistant", "content": "", **fields})


def text(content: JsonValue) -> Chunk:
    return said({"content": content})


def end(reason: str = "stop") -> Chunk:
    return said({}, reason)


def entry(index: int = 0, **fields: JsonValue) -> Chunk:
    return said({"tool_calls": [{"index": index, **fields}]})


def first(index: int = 0, id: str = "call_1", name: str = "look") -> Chunk:
    return entry(index, id=id, type="function", function={"name": name, "arguments": ""})


def more(arguments: str, index: int = 0, **fields: JsonValue) -> Chunk:
    return entry(index, **fields, function={"arguments": arguments})


def usage(**fields: JsonValue) -> Chunk:
    return chunk(usage={**USAGE, **fields})


def sse(chunks: Sequence[Chunk], end: bytes = write("", DONE)) -> bytes:
    return b"".join(write("", dumped(one)) for one in chunks) + end


def row(rule: str, good: Sequence[Chunk], bad: Sequence[Chunk]) -> Case:
    return Case(rule, sse(good), sse(bad))


TEXT = [role(), text("Hel"), text("lo"), end()]
COUNTED = [*TEXT, usage()]
CALL = [role(), first(), more('{"city":'), more('"Oslo"}'), end("tool_calls")]
CALLS = [
    role(),
    first(),
    more('{"city":"Oslo"}'),
    first(1, "call_2"),
    more('{"city":"Rome"}', 1),
    end("tool_calls"),
]
REASONED = [role(), said({"reasoning_content": "So."}), text("Hello"), end()]
REFUSED = [role(), said({"refusal": "No."}), end()]
ERROR: Chunk = {"error": {"message": "overloaded", "type": "server_error", "code": None}}


def logprobs(value: JsonValue) -> list[Chunk]:
    return [role(), said({"content": "Hello"}, logprobs=value), end()]


def headed(**fields: JsonValue) -> list[Chunk]:
    """Text with other heads on its second chunk."""
    return [TEXT[0], {**TEXT[1], **fields}, *TEXT[2:]]


def lacking(key: str) -> list[Chunk]:
    """Text with something missing in the choice of its second chunk."""
    left = {name: value for name, value in choice({"content": "Hel"}).items() if name != key}
    return [TEXT[0], chunk(left), *TEXT[2:]]


def called(call: Chunk) -> Chunk:
    return said({"tool_calls": [call]})


UNTYPED: Chunk = {"id": "call_1", "function": {"name": "look", "arguments": ""}}
UNINDEXED: Chunk = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "look", "arguments": "{}"},
}

CASES: list[Case] = [
    # Frames
    Case("data-invalid", sse(TEXT), sse(TEXT[:2], b'data: {"choices":[{\n\n')),
    Case("event-line", sse(TEXT), b"event: chunk\n" + sse(TEXT)),
    Case("done-missing", sse(TEXT), sse(TEXT, b"")),
    Case("after-done", sse(TEXT), sse(TEXT) + write("", DONE)),
    # Chunks
    row("choices-missing", COUNTED, [*TEXT, {**usage(), "choices": None}]),
    row("chunk-object", TEXT, headed(object="chat.completion")),
    row("chunk-keys", TEXT, headed(id="")),
    row("chunk-id-changed", TEXT, headed(id="chatcmpl-2")),
    row("model-changed", TEXT, headed(model="m-2")),
    row("created-changed", TEXT, headed(created=1790000001)),
    row("error-chunk", TEXT, [*TEXT[:2], ERROR]),
    row("error-shape", TEXT, [*TEXT[:2], {"error": "overloaded"}]),
    row("after-error", TEXT, [*TEXT[:2], ERROR, *TEXT[2:]]),
    # Choices
    row("choice-index-missing", TEXT, lacking("index")),
    row("delta-missing", TEXT, [*TEXT[:2], *lacking("delta")[1:]]),
    row("message-in-chunk", TEXT, [*TEXT[:3], said({}, "stop", message={"content": "Hello"})]),
    row("role-missing", TEXT, TEXT[1:]),
    row("role-repeated", TEXT, [role(), role(content="Hel"), *TEXT[2:]]),
    row("content-type", TEXT, [role(), text([{"type": "text", "text": "Hello"}]), end()]),
    row(
        "reasoning-twice",
        REASONED,
        [role(), said({"reasoning": "So.", "reasoning_content": "So."}), *REASONED[2:]],
    ),
    row("refusal-and-content", REFUSED, [role(), text("Sure"), *REFUSED[1:]]),
    row("empty-delta", TEXT, [*TEXT[:2], text(""), *TEXT[2:]]),
    row("logprobs-shape", logprobs({"content": []}), logprobs([])),
    row(
        "function-call-legacy",
        CALL,
        [role(), said({"function_call": {"name": "look", "arguments": "{}"}}), end("tool_calls")],
    ),
    # Calls
    row("call-index-missing", CALL, [role(), called(UNINDEXED), end("tool_calls")]),
    row("call-index-order", CALL, [role(), first(1), more("{}", 1), end("tool_calls")]),
    row("call-index-reused", CALLS, [*CALLS[:3], first(0, "call_2"), more("{}"), CALLS[-1]]),
    row("call-id-missing", CALL, [role(), first(id=""), *CALL[2:]]),
    row("call-id-repeated", CALL, [*CALL[:2], more("{}", id="call_1"), CALL[-1]]),
    row("call-id-changed", CALL, [*CALL[:2], more("{}", id="call_2"), CALL[-1]]),
    row("call-id-shared", CALLS, [*CALLS[:3], first(1, "call_1"), *CALLS[4:]]),
    row("call-nameless", CALL, [role(), first(name=""), *CALL[2:]]),
    row(
        "call-name-repeated",
        CALL,
        [*CALL[:2], entry(function={"name": "look", "arguments": "{}"}), CALL[-1]],
    ),
    row("call-type-missing", CALL, [role(), called({"index": 0, **UNTYPED}), *CALL[2:]]),
    row(
        "call-arguments-type",
        CALL,
        [*CALL[:2], entry(function={"arguments": {"city": "Oslo"}}), CALL[-1]],
    ),
    row("call-arguments-invalid", CALL, [*CALL[:3], CALL[-1]]),
    # Ends
    row("finish-missing", TEXT, TEXT[:3]),
    row("finish-repeated", TEXT, [*TEXT, end()]),
    row("finish-unknown", TEXT, [*TEXT[:3], end("end_turn")]),
    row("finish-without-calls", TEXT, [*TEXT[:3], end("tool_calls")]),
    row("stop-with-calls", CALL, [*CALL[:4], end()]),
    row("after-finish", TEXT, [*TEXT[:2], end(), TEXT[2]]),
    # Usage
    row("usage-with-choices", COUNTED, [*TEXT[:3], {**end(), "usage": USAGE}]),
    row("usage-not-last", COUNTED, [*TEXT[:2], usage(), *TEXT[2:]]),
    row("usage-repeated", COUNTED, [*TEXT, usage(), usage()]),
    row("usage-invalid", COUNTED, [*TEXT, usage(completion_tokens=-4)]),
    row("usage-total", COUNTED, [*TEXT, usage(total_tokens=99)]),
]
