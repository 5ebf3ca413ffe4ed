"""Streams for the rules of the generateContent wire."""

from tests.captures.check.cases import Case, Event, dumped
from weft.sse import write

USAGE: Event = {"promptTokenCount": 4, "candidatesTokenCount": 2, "totalTokenCount": 6}


def stream(*frames: object) -> bytes:
    return b"".join(write("", dumped(frame)) for frame in frames)


def frame(*parts: Event, usage: Event | None = None, **candidate: object) -> Event:
    """A frame with parts of the answer."""
    content = {"parts": list(parts), "role": "model"}
    whole: Event = {
        "candidates": [{"content": content, "index": 0, **candidate}],
        "modelVersion": "m-1",
        "responseId": "r-1",
    }
    return whole if usage is None else whole | {"usageMetadata": usage}


def end(reason: str = "STOP", **fields: object) -> Event:
    return frame({"text": ""}, usage=USAGE, finishReason=reason, **fields)


def call(**fields: object) -> Event:
    return frame({"functionCall": fields})


def value(path: str, said: str, *, more: bool = False) -> Event:
    piece: Event = {"jsonPath": path, "stringValue": said}
    return piece | {"willContinue": True} if more else piece


def values(*pieces: Event) -> Event:
    return call(partialArgs=list(pieces), willContinue=True)


def said(*parts: Event) -> bytes:
    return stream(*map(frame, parts), end())


def grounded(*indices: int, start: int, stop: int) -> bytes:
    return placed(*indices, startIndex=start, endIndex=stop, text="Oslo")


def placed(*indices: int, **segment: object) -> bytes:
    """An answer with one stretch that is grounded in one source."""
    source = {"web": {"uri": "https://a.example", "title": "A"}}
    support = {"segment": segment, "groundingChunkIndices": list(indices)}
    metadata = {"groundingChunks": [source], "groundingSupports": [support]}
    return stream(frame({"text": "Café Oslo"}), end(groundingMetadata=metadata))


def feedback(**fields: object) -> Event:
    return {
        "promptFeedback": {"blockReason": "SAFETY"},
        "modelVersion": "m-1",
        "responseId": "r-1",
        **fields,
    }


def without(event: Event, *keys: str) -> Event:
    return {key: value for key, value in event.items() if key not in keys}


HELLO = frame({"text": "Hello"})
PLAIN = stream(HELLO, end())
CALL = call(id="c1", name="look", args={"city": "Oslo"})
CALLED = stream(CALL, end())
OPENED = call(name="look", willContinue=True)
OSLO = values(value("$.city", "Os", more=True)), values(value("$.city", "lo"))
PIECES = stream(OPENED, *OSLO, call(), end())
THOUGHT = frame({"text": "Let me see.", "thought": True})
SIGNED = frame({"functionCall": {"name": "look", "args": {}}, "thoughtSignature": "c2lnbmVk"})
CODE: Event = {"executableCode": {"language": "PYTHON", "code": "print(1)"}}
RAN: Event = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}}
IMAGE: Event = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
ERROR: Event = {"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}}
FAILED = stream(HELLO, ERROR)
TOOL: Event = {"id": "t1", "toolType": "SEARCH"}
TRAFFIC: Event = frame({"text": "Hi"}, usage={"trafficType": "ON_DEMAND"})
ODD = ["candidate-shape", "response-id"]


def failed(**changes: object) -> bytes:
    error = ERROR["error"]
    assert isinstance(error, dict)
    return stream(HELLO, {"error": error | changes})


CASES = [
    Case("extra-line", PLAIN, b"id: 1\n" + PLAIN),
    Case("done-frame", PLAIN, PLAIN + write("", b"[DONE]")),
    Case("frame-object", PLAIN, stream(HELLO, "working", end())),
    Case("frame-array", PLAIN, stream([HELLO, end()])),
    Case("frame-empty", PLAIN, stream(without(HELLO, "candidates"), HELLO, end())),
    Case(
        "key-spelling",
        CALLED,
        stream(frame({"function_call": {"name": "look", "args": {}}}), end()),
    ),
    Case("response-id", PLAIN, stream(HELLO, without(end(), "responseId"))),
    Case("model-version", PLAIN, stream(HELLO, end() | {"modelVersion": "m-2"})),
    Case("candidate-shape", PLAIN, stream(HELLO, end(index="0"))),
    Case(
        "candidate-index",
        PLAIN,
        stream(HELLO, end() | {"candidates": [{"index": 0}, {"index": 0, "finishReason": "STOP"}]}),
    ),
    Case("role", PLAIN, stream(HELLO, end(content={"parts": [], "role": "assistant"}))),
    Case("finish-missing", PLAIN, stream(HELLO)),
    Case("finish-repeated", PLAIN, stream(HELLO, end(), end())),
    Case("finish-word", PLAIN, stream(HELLO, end("DONE"))),
    Case("content-late", PLAIN, stream(end(), HELLO)),
    Case(
        "blocked-content",
        stream(feedback()),
        stream(feedback(candidates=[{"index": 0}])),
    ),
    Case("after-error", FAILED, stream(HELLO, ERROR, end())),
    Case("error-shape", FAILED, failed(code="503")),
    Case("error-status", FAILED, failed(status="OVERLOADED")),
    Case(
        "part-payload",
        stream(HELLO, CALL, end()),
        said({"text": "Hello", "functionCall": {"id": "c1", "name": "look", "args": {}}}),
    ),
    Case("part-empty", PLAIN, said({"text": "Hello"}, {})),
    Case("part-type", PLAIN, said({"text": "Hello"}, {"hologram": {"light": 1}})),
    Case("part-shape", said(IMAGE), said({"inlineData": {"data": "AA=="}})),
    Case(
        "signature-spelling",
        said({"text": "Hello"}, {"text": "", "thoughtSignature": "c2lnbmVk"}),
        said({"text": "Hello"}, {"text": "", "thoughtSignature": "not base64!"}),
    ),
    Case("call-name", CALLED, stream(call(id="c1", name="", args={}), end())),
    Case("call-args", CALLED, stream(call(id="c1", name="look", args='{"city":"Oslo"}'), end())),
    Case("call-id", CALLED, stream(call(id="", name="look", args={}), end())),
    Case(
        "call-id-repeated",
        stream(CALL, call(id="c2", name="look", args={}), end()),
        stream(CALL, call(id="c1", name="look", args={}), end()),
    ),
    Case("call-stray", PIECES, stream(HELLO, *OSLO, call(), end())),
    Case(
        "call-overlap",
        stream(OPENED, *OSLO, call(), CALL, end()),
        stream(OPENED, *OSLO, CALL, end()),
    ),
    Case("call-open", PIECES, stream(OPENED, *OSLO, end())),
    Case("partial-args", PIECES, stream(OPENED, values({"stringValue": "Oslo"}), call(), end())),
    Case(
        "partial-args-order",
        PIECES,
        stream(OPENED, OSLO[0], values(value("$.day", "today")), OSLO[1], call(), end()),
    ),
    Case("call-unsigned", stream(THOUGHT, SIGNED, end()), stream(THOUGHT, CALL, end())),
    Case("result-without-call", said(CODE, RAN), said(RAN)),
    Case("grounding-chunk", grounded(0, start=6, stop=10), grounded(1, start=6, stop=10)),
    Case("grounding-segment", grounded(0, start=6, stop=10), grounded(0, start=5, stop=9)),
    Case("usage-shape", PLAIN, stream(HELLO, end() | {"usageMetadata": {"promptTokenCount": "4"}})),
    Case(
        "usage-shrinks",
        PLAIN,
        stream(HELLO | {"usageMetadata": {"candidatesTokenCount": 3}}, end()),
    ),
    Case(
        "usage-total",
        PLAIN,
        stream(HELLO, end() | {"usageMetadata": USAGE | {"totalTokenCount": 9}}),
    ),
]
