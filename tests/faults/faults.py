"""What upstreams do wrong, as a table: the bytes that go wrong, and what a client must be told."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.faults.upstream import (
    FIN,
    LAST,
    RESET,
    STREAM,
    Hold,
    Step,
    answer,
    chunk,
    stream,
)
from tests.faults.wires import (
    CHAT,
    GEMINI,
    MESSAGES,
    RESPONSES,
    SPEECHES,
    Speech,
    error_body,
    event,
)

KEY = "sk-of-an-upstream"
PAGE = b"<!doctype html><html><head><title>Oops</title></head><body><p>our proxy</p></body></html>"


# What a client is told: the status, the word and the code of each class in its dialect

Told = tuple[int, str, str | int | None]


WORDS: dict[str, dict[str, Told]] = {
    "bad-request": {
        CHAT: (400, "invalid_request_error", None),
        RESPONSES: (400, "invalid_request", None),
        MESSAGES: (400, "invalid_request_error", None),
        GEMINI: (400, "INVALID_ARGUMENT", 400),
    },
    "not-found": {
        CHAT: (404, "invalid_request_error", "model_not_found"),
        RESPONSES: (404, "not_found", "model_not_found"),
        MESSAGES: (404, "not_found_error", None),
        GEMINI: (404, "NOT_FOUND", 404),
    },
    "rate": {
        CHAT: (429, "rate_limit_error", "rate_limit_exceeded"),
        RESPONSES: (429, "too_many_requests", "rate_limit_exceeded"),
        MESSAGES: (429, "rate_limit_error", None),
        GEMINI: (429, "RESOURCE_EXHAUSTED", 429),
    },
    "server": {
        CHAT: (500, "server_error", None),
        RESPONSES: (500, "server_error", None),
        MESSAGES: (500, "api_error", None),
        GEMINI: (500, "INTERNAL", 500),
    },
    "bad-answer": {
        CHAT: (502, "server_error", "bad_upstream_answer"),
        RESPONSES: (502, "server_error", "bad_upstream_answer"),
        MESSAGES: (502, "api_error", None),
        GEMINI: (500, "INTERNAL", 500),
    },
    "upstream-auth": {
        CHAT: (502, "server_error", "upstream_auth"),
        RESPONSES: (502, "server_error", "upstream_auth"),
        MESSAGES: (502, "api_error", "upstream_auth"),
        GEMINI: (502, "INTERNAL", 502),
    },
    "overloaded": {
        CHAT: (503, "server_error", "overloaded"),
        RESPONSES: (503, "server_error", "overloaded"),
        MESSAGES: (529, "overloaded_error", None),
        GEMINI: (503, "UNAVAILABLE", 503),
    },
    "timeout": {
        CHAT: (504, "server_error", "timeout"),
        RESPONSES: (504, "server_error", "timeout"),
        MESSAGES: (504, "timeout_error", None),
        GEMINI: (504, "DEADLINE_EXCEEDED", 504),
    },
}


def told(dialect: str, error: str, narrower: str = "") -> list[Told]:
    """What a client may be told of an error. The narrower words of one that we noticed ourselves
    (`truncated` …) take the place of the code where a dialect has codes."""
    status, word, code = WORDS[error][dialect]
    own = narrower.split() if dialect in (CHAT, RESPONSES) else []
    return [(status, word, one) for one in own] or [(status, word, code)]


# Faults

Wrong = Callable[[Speech, str, bool], Sequence[Step]]
"""What an upstream does, by its speech, its dialect, and whether a stream was asked."""


@dataclass(frozen=True)
class Fault:
    name: str
    wrong: Wrong
    error: str
    """The class that the client is told."""

    narrower: str = ""
    message: str = ""
    """Stands in what the client is told."""

    retry_after: str | None = None

    def __str__(self) -> str:
        return self.name


def refusal(
    name: str, status: str, type: str, error: str, *lines: str, message: str = "no, not this one",
    retry_after: str | None = None,
) -> Fault:  # fmt: skip
    """An answer with a status that is no success, in the shape of its dialect."""
    number = int(status.split()[0])

    def wrong(speech: Speech, dialect: str, stream: bool) -> Sequence[Step]:
        return [answer(error_body(dialect, message, type, number), status, *lines)]

    shown = message.replace(KEY, "***")
    return Fault(name, wrong, error, message=shown, retry_after=retry_after)


def whole(name: str, error: str, data: bytes, narrower: str = "", **more: str) -> Fault:
    """An answer that is the same in every dialect."""
    return Fault(name, lambda speech, dialect, stream: [data], error, narrower, **more)


def _cut_body(*end: Step) -> Wrong:
    """Half a body, told to be whole."""

    def wrong(speech: Speech, dialect: str, stream: bool) -> Sequence[Step]:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        half = speech.body[: len(speech.body) // 2]
        return [head % len(speech.body) + half, *end]

    return wrong


def _first(what: Callable[[Speech], Sequence[bytes]]) -> Wrong:
    """Frames without content; where no stream was asked, the same bytes all the same."""
    return lambda speech, dialect, asked: [STREAM, *map(chunk, what(speech)), LAST]


BEFORE = (
    refusal("400", "400 Bad Request", "invalid_request_error", "bad-request"),
    refusal("404", "404 Not Found", "not_found_error", "not-found"),
    refusal("401", "401 Unauthorized", "authentication_error", "upstream-auth",
            message=f"Incorrect API key provided: {KEY}."),
    refusal("403", "403 Forbidden", "permission_error", "upstream-auth",
            message=f"the key {KEY} may not do this"),
    refusal("429", "429 Too Many Requests", "rate_limit_error", "rate", "Retry-After: 7",
            retry_after="7"),
    refusal("500", "500 Internal Server Error", "api_error", "server"),
    refusal("502", "502 Bad Gateway", "", "bad-answer"),
    refusal("503", "503 Service Unavailable", "", "overloaded", "Retry-After: 3", retry_after="3"),
    refusal("504", "504 Gateway Timeout", "", "timeout"),
    refusal("529", "529 Overloaded", "overloaded_error", "overloaded"),
    whole("503 in HTML", "overloaded", answer(PAGE, "503 Busy", "Content-Type: text/html"),
          message="Oops"),
    whole("empty 500", "server", answer(b"", "500 Internal Server Error")),
    whole("204", "bad-answer", b"HTTP/1.1 204 No Content\r\n\r\n", "empty"),
    whole("HTML", "bad-answer", answer(PAGE, "200 OK", "Content-Type: text/html"), "empty"),
    whole("an empty 200", "bad-answer", answer(b""), "empty"),
    whole("an empty stream", "bad-answer", STREAM + LAST, "empty"),
    whole("text", "bad-answer", answer(b"it is down", "200 OK", "Content-Type: text/plain"),
          "empty"),
    whole("a JSON string", "bad-answer", answer(b'"it is down"'), "empty"),
    whole("an empty object", "bad-answer", answer(b"{}"), "empty"),
    whole("no HTTP", "bad-answer", b"220 mail.example ESMTP\r\n\r\n"),
    Fault("closed before the head", lambda *_: [FIN], "bad-answer"),
    Fault("reset before the head", lambda *_: [RESET], "bad-answer"),
    Fault("half a head, then closed", lambda *_: [STREAM[:40], FIN], "bad-answer"),
    Fault("reset after the head", lambda *_: [STREAM, RESET], "bad-answer", "truncated"),
    Fault("closed after the head", lambda *_: [STREAM, FIN], "bad-answer", "truncated"),
    Fault("an error event first", _first(lambda said: [said.error]), "overloaded",
          message="too busy"),
    Fault("an error event after the head", _first(lambda said: [*said.head, said.error]),
          "overloaded", message="too busy"),
    Fault("malformed", _first(lambda said: [*said.head, b'data: {"cho\n\n']), "bad-answer",
          "malformed"),
    whole("gzip that is none", "bad-answer",
          answer(b"not gzip at all", "200 OK", "Content-Encoding: gzip"), "truncated"),
    whole("an unknown coding", "bad-answer",
          answer(b"\x00\x01\x02", "200 OK", "Content-Encoding: x-own"), "empty"),
)  # fmt: skip
"""Nothing was told: the client gets a status."""


def redirect(status: int, to: str) -> Fault:
    """Never followed: `to` sees nobody."""
    line = f"{status} Elsewhere"
    return whole(f"{status}", "bad-answer", answer(b"", line, f"Location: {to}"))


def _after(*end: Step) -> Wrong:
    """All content, in chunks, and then this, when the client has all of it."""

    def wrong(speech: Speech, dialect: str, asked: bool) -> Sequence[Step]:
        return [STREAM, *map(chunk, speech.head + speech.content), Hold(), *end]

    return wrong


def _after_frame(frame: Callable[[Speech], bytes]) -> Wrong:
    return lambda speech, dialect, asked: [
        *_after(chunk(frame(speech)))(speech, dialect, asked),
        *map(chunk, speech.end),
        LAST,
    ]


def _until_closed(*end: Step) -> Wrong:
    """A stream whose end is that of its connection."""

    def wrong(speech: Speech, dialect: str, asked: bool) -> Sequence[Step]:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
        return [head + b"".join(speech.head + speech.content), Hold(), *end]

    return wrong


def _short(speech: Speech, dialect: str, asked: bool) -> Sequence[Step]:
    said = b"".join(speech.head + speech.content)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
    return [head % (len(said) + 100) + said, Hold(), FIN]


def _garbled(speech: Speech, dialect: str, asked: bool) -> Sequence[Step]:
    """A compressed stream that goes wrong after its content."""
    packer = zlib.compressobj(wbits=31)
    said = packer.compress(b"".join(speech.head + speech.content))
    said += packer.flush(zlib.Z_SYNC_FLUSH)
    head = STREAM.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")
    return [head, chunk(said), Hold(), chunk(b"\xff" * 20), LAST]


AFTER = (
    Fault("reset", _after(RESET), "bad-answer", "truncated"),
    Fault("closed inside the chunks", _after(FIN), "bad-answer", "truncated"),
    Fault("a clean end without a terminal event", _after(LAST), "bad-answer", "truncated"),
    Fault("closed", _until_closed(FIN), "bad-answer", "truncated"),
    Fault("reset while it tells no length", _until_closed(RESET), "bad-answer", "truncated"),
    Fault("a short content-length", _short, "bad-answer", "truncated"),
    Fault("bad chunk framing", _after(b"zz\r\nnonsense\r\n"), "bad-answer", "truncated"),
    Fault("an end inside a frame", _after(chunk(b'data: {"choi'), LAST), "bad-answer",
          "truncated malformed"),
    Fault("an error event", _after_frame(lambda said: said.error), "overloaded",
          message="too busy"),
    Fault("malformed", _after_frame(lambda said: b'data: {"choi\n\n'), "bad-answer", "malformed"),
    Fault("gzip that breaks", _garbled, "bad-answer", "truncated"),
)  # fmt: skip
"""Content was told: the stream ends with an error."""

BODIES = (
    Fault("a short content-length", _cut_body(FIN), "bad-answer", "truncated malformed empty"),
    Fault("reset inside the body", _cut_body(RESET), "bad-answer",
          "truncated malformed empty"),
    Fault("a broken body", lambda said, *_: [answer(said.body[:-20])], "bad-answer",
          "truncated malformed empty"),
    Fault("a stream without an end",
          lambda said, *_: stream(*said.head, *said.content), "bad-answer", "truncated"),
    Fault("an error inside a stream",
          lambda said, *_: stream(*said.head, *said.content, said.error), "overloaded",
          message="too busy"),
)  # fmt: skip
"""No stream was asked: the client gets a status, however much had come."""


def _late(frame: Callable[[Speech], Sequence[bytes]]) -> Wrong:
    """A good stream, and something behind its terminal event, in the same packet. Gemini has
    none: its reason for an end may stand in every frame, and only the last frame is the end."""

    def wrong(speech: Speech, dialect: str, asked: bool) -> Sequence[Step]:
        late = () if dialect == GEMINI else frame(speech)
        return stream(*speech.head, *speech.content, b"".join((*speech.end, *late)))

    return wrong


HARMLESS = (
    Fault("content after the end", _late(lambda said: said.content[-1:]), ""),
    Fault("all of it again", _late(lambda said: said.frames), ""),
    Fault("a second end", _late(lambda said: said.end), ""),
    Fault("an error after the end", _late(lambda said: [said.error]), ""),
    Fault("an unknown event", lambda said, *_: stream(
        *said.head, event({"type": "weather"}, "weather"), *said.content, *said.end), ""),
    Fault("a broken frame after the end", _late(lambda said: [b'data: {"\n\n']), ""),
    Fault("a body where a stream was asked", lambda said, *_: [answer(said.body)], ""),
    Fault("a reset after the end",
          lambda said, *_: [STREAM, *map(chunk, said.frames), RESET], ""),
    Fault("no last chunk", lambda said, *_: [STREAM, *map(chunk, said.frames), FIN], ""),
    Fault("no blank line at the end",
          lambda said, *_: stream(*said.frames[:-1], said.frames[-1][:-1]), ""),
    Fault("no end of the last line",
          lambda said, *_: stream(*said.frames[:-1], said.frames[-1][:-2]), ""),
    Fault("an endless silence after the end",
          lambda said, *_: [STREAM, *map(chunk, said.frames)], ""),
)  # fmt: skip
"""What changes nothing for the client. `error` stays empty."""

__all__ = ["AFTER", "BEFORE", "BODIES", "HARMLESS", "KEY", "SPEECHES", "Fault", "redirect", "told"]
