"""What can happen in a stream, told in parts; and the bytes of it in each dialect.

A scenario is told once. A dialect tells it with its own encoder; where a wire has words of its
own for it (a tool that it runs itself, an approval), `captures/<dialect>/<scenario>.sse` is what
a server of that wire sends, and takes the encoder's place. So a dialect is covered as soon as it
has a row in DIALECTS.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Raw

import weft
from weft.dialects import DIALECTS, DialectName
from weft.parts import (
    ErrorPart,
    Finish,
    FinishReason,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
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
)
from weft.request import Request

CAPTURES = Path(__file__).parent / "captures"
USAGE = Usage(11, 7, 18, 3, 2, 1)


def response(
    *parts: Part, reason: FinishReason = "stop", usage: Usage | None = USAGE
) -> list[Part]:
    head = ResponseMetadata("resp_1", "m-1", 1_700_000_000)
    return [head, *parts, Finish(reason, usage=usage)]


def text(id: str, *deltas: str, refusal: bool = False, end: bool = True) -> list[Part]:
    ended: list[Part] = [TextEnd(id)] if end else []
    return [TextStart(id, refusal=refusal), *(TextDelta(id, delta) for delta in deltas), *ended]


def call(id: str, name: str, *deltas: str, custom: bool = False) -> list[Part]:
    kind = "custom" if custom else "function"
    return [
        ToolParamsStart(id, name, kind, format="text" if custom else "json"),
        *(ToolParamsDelta(id, delta) for delta in deltas),
        ToolParamsEnd(id),
        ToolCall(id, name, "".join(deltas), kind, format="text" if custom else "json"),
    ]


def said_text(origin: str) -> list[Part]:
    return response(*text("t", "Zwei ", "Wörter \N{WAVING HAND SIGN} ", '"\\n"'))


def reasoning(origin: str) -> list[Part]:
    return response(
        ReasoningStart("r", "summary"),
        ReasoningDelta("r", "First, "),
        ReasoningDelta("r", "think."),
        ReasoningEnd("r"),
        *text("t", "Done."),
    )


def proven_reasoning(origin: str) -> list[Part]:
    """With a proof, which its origin wants back."""
    proof = ReasoningEnd("r", signature="c2lnbmVk", encrypted="c2VjcmV0", origin=origin)
    return response(
        ReasoningStart("r", "summary"), ReasoningDelta("r", "Hm."), proof, *text("t", "Done.")
    )


def one_call(origin: str) -> list[Part]:
    return response(*call("call_1", "weather", '{"city":', '"Köln"}'), reason="tool-calls")


def signed_call(origin: str) -> list[Part]:
    """With a signature, which its origin wants back."""
    start = ToolParamsStart("call_1", "look", signature="c2lnbmVk", origin=origin)
    end = ToolCall("call_1", "look", '{"at":1}', signature="c2lnbmVk", origin=origin)
    return response(start, *call("call_1", "look", '{"at":1}')[1:-1], end, reason="tool-calls")


def parallel_calls(origin: str) -> list[Part]:
    first, second = call("call_1", "f", '{"a":', "1}"), call("call_2", "g", '{"b":', "[2]}")
    return response(
        first[0], second[0], first[1], second[1], first[2], second[2], *first[3:], *second[3:],
        reason="tool-calls",
    )  # fmt: skip


def call_without_arguments(origin: str) -> list[Part]:
    return response(*call("call_1", "now", "{}"), reason="tool-calls")


def text_then_call(origin: str) -> list[Part]:
    parts = [*text("t", "Let me look."), *call("call_1", "look", '{"at":"it"}')]
    return response(*parts, reason="tool-calls")


def custom_tool(origin: str) -> list[Part]:
    script = ("*** Begin\n", 'say "hi" \\ \N{WAVING HAND SIGN}\n')
    return response(*call("call_1", "patch", *script, custom=True), reason="tool-calls")


def provider_executed(origin: str) -> list[Part]:
    """A tool that the upstream ran, of a kind that no wire knows."""
    return response(
        ToolParamsStart("ran_1", "lookup", "lookup_call", provider_executed=True),
        ToolParamsDelta("ran_1", '{"q":"x"}'),
        ToolParamsEnd("ran_1"),
        ToolCall("ran_1", "lookup", '{"q":"x"}', "lookup_call", provider_executed=True),
        ToolResult("ran_1", Raw(b'{"found":1}')),
        *text("t", "One."),
    )


def approval(origin: str) -> list[Part]:
    return response(
        ToolParamsStart("mcp_1", "delete", "mcp_call", provider_executed=True),
        ToolParamsDelta("mcp_1", '{"id":1}'),
        ToolParamsEnd("mcp_1"),
        ToolCall("mcp_1", "delete", '{"id":1}', "mcp_call", provider_executed=True),
        ToolApprovalRequest("mcp_1", "approve_1"),
    )


def sources(origin: str) -> list[Part]:
    return response(
        TextStart("t"),
        TextDelta("t", "It rains."),
        Source("s", "url", "t", "https://example.org/rain", title="Rain", start=3, end=8),
        TextEnd("t"),
    )


def refusal(origin: str) -> list[Part]:
    return response(*text("t", "I can't.", refusal=True), reason="content-filter")


def length(origin: str) -> list[Part]:
    return response(*text("t", "And so on and"), reason="length")


def error_mid_stream(origin: str) -> list[Part]:
    return response(
        *text("t", "Half a", end=False),
        ErrorPart("upstream", "the model is overloaded", "overloaded", 529, retryable=True),
        TextEnd("t"),
        reason="error",
    )


SCENARIOS: dict[str, Callable[[str], list[Part]]] = {
    "text": said_text,
    "reasoning": reasoning,
    "reasoning-with-proof": proven_reasoning,
    "one-call": one_call,
    "signed-call": signed_call,
    "parallel-interleaved-calls": parallel_calls,
    "call-without-arguments": call_without_arguments,
    "text-then-call": text_then_call,
    "custom-tool": custom_tool,
    "provider-executed-tool": provider_executed,
    "approval": approval,
    "sources": sources,
    "refusal": refusal,
    "length": length,
    "error-mid-stream": error_mid_stream,
    "cut-stream": said_text,
}

ASKED = Request("m-1", include_usage=True)


def encoded(parts: Sequence[Part], dialect: DialectName) -> tuple[bytes, list[weft.Finding]]:
    """What a client of this dialect gets, and what it could not be told."""
    encoder = weft.Encoder(dialect, context=weft.Context(request=ASKED, now=1_700_000_000))
    out = b"".join([*encoder.feed(parts), *encoder.finish()])
    return out, encoder.findings


def source(dialect: DialectName, scenario: str) -> bytes:
    """The bytes that a server of this dialect sends."""
    native = CAPTURES / dialect / f"{scenario}.sse"
    if native.exists():
        return native.read_bytes()
    raw, _ = encoded(SCENARIOS[scenario](dialect), dialect)
    if scenario == "cut-stream":
        events = raw.split(b"\n\n")
        return b"\n\n".join(events[: len(events) // 2]) + b"\n\n"
    return raw


PAIRS = [(scenario, one, other) for scenario in SCENARIOS for one in DIALECTS for other in DIALECTS]
