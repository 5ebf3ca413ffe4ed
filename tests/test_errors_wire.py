"""Error bodies and HTTP statuses, both ways: what one wire tells, another tells as its own."""

import json
import re
from typing import Any, get_args

import anthropic
import msgspec
import openai
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import Raw

from tests.serving import anthropic_client, openai_client, serving
from tests.strategies import QUICK, THOROUGH
from tests.tables import each_row
from weft import Context, Encoder, Ids
from weft.assembler import Failure
from weft.dialects import DIALECTS, DialectName
from weft.dialects.error_classes import (
    CLASSES,
    GENERIC_CODES,
    MAX_MESSAGE,
    SPECIFIC_CODES,
    ErrorClass,
    ErrorPartExtra,
    class_of,
    classify,
    error_headers,
    extra_of,
    new_error,
    upstream_auth,
)
from weft.parts import ErrorKind, ErrorPart, Finish, ResponseMetadata

CHAT, RESPONSES, MESSAGES, CONTENT = WIRES = (
    "openai-chat",
    "openai-responses",
    "anthropic-messages",
    "gemini",
)
HTML = b"""<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head>
<body><center><h1>502 Bad Gateway</h1></center><hr><center>nginx</center></body></html>"""


def read(wire: str, status: int | None, body: object, retry_after: str | None = None) -> ErrorPart:
    reader = DIALECTS[wire].read_error
    assert reader is not None
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return reader(status, data, retry_after)


def write(wire: str, error: ErrorPart) -> tuple[int, Any]:
    writer = DIALECTS[wire].write_error
    assert writer is not None
    status, body = writer(error)
    return status, json.loads(body)


def openai_body(type: str, code: str | None, param: str | None = None) -> dict[str, object]:
    return {"error": {"message": "no", "type": type, "param": param, "code": code}}


def messages_body(type: str, cause: str | None = None) -> dict[str, object]:
    error: dict[str, object] = {"type": type, "message": "no"}
    if cause:
        error["details"] = {"error_code": cause}
    return {"type": "error", "error": error, "request_id": None}


def content_body(code: int, status: str, reason: str | None = None) -> dict[str, object]:
    error: dict[str, object] = {"code": code, "message": "no", "status": status}
    if reason:
        kind = "type.googleapis.com/google.rpc.ErrorInfo"
        error["details"] = [{"@type": kind, "reason": reason, "domain": "weft"}]
    return {"error": error}


Row = tuple[tuple[int, str, str | None], tuple[int, str, str | None], tuple[int, str, str | None]]

TABLE: dict[ErrorClass, Row] = {
    # class: OpenAI status, type and code; Messages status, type and cause; Gemini's the same
    "bad-request": (
        (400, "invalid_request_error", None),
        (400, "invalid_request_error", None),
        (400, "INVALID_ARGUMENT", None),
    ),
    "context-too-long": (
        (400, "invalid_request_error", "context_length_exceeded"),
        (400, "invalid_request_error", "context_length_exceeded"),
        (400, "INVALID_ARGUMENT", "CONTEXT_LENGTH_EXCEEDED"),
    ),
    "unsupported": (
        (400, "invalid_request_error", "unsupported_parameter"),
        (400, "invalid_request_error", "unsupported_parameter"),
        (400, "INVALID_ARGUMENT", "UNSUPPORTED_PARAMETER"),
    ),
    "auth": (
        (401, "invalid_request_error", "invalid_api_key"),
        (401, "authentication_error", None),
        (401, "UNAUTHENTICATED", None),
    ),
    "billing": (
        (429, "insufficient_quota", "insufficient_quota"),
        (402, "billing_error", None),
        (429, "RESOURCE_EXHAUSTED", "INSUFFICIENT_QUOTA"),
    ),
    "permission": (
        (403, "invalid_request_error", "permission_denied"),
        (403, "permission_error", None),
        (403, "PERMISSION_DENIED", None),
    ),
    "not-found": (
        (404, "invalid_request_error", "model_not_found"),
        (404, "not_found_error", None),
        (404, "NOT_FOUND", None),
    ),
    "conflict": (
        (409, "invalid_request_error", "conflict"),
        (409, "conflict_error", None),
        (409, "ABORTED", None),
    ),
    "too-large": (
        (413, "invalid_request_error", "request_too_large"),
        (413, "request_too_large", None),
        (413, "INVALID_ARGUMENT", None),
    ),
    "rate": (
        (429, "rate_limit_error", "rate_limit_exceeded"),
        (429, "rate_limit_error", None),
        (429, "RESOURCE_EXHAUSTED", None),
    ),
    "cancelled": (
        (499, "invalid_request_error", "cancelled"),
        (499, "api_error", None),
        (499, "CANCELLED", None),
    ),
    "server": ((500, "server_error", None), (500, "api_error", None), (500, "INTERNAL", None)),
    "bad-upstream-answer": (
        (502, "server_error", "bad_upstream_answer"),
        (502, "api_error", None),
        (500, "INTERNAL", "BAD_UPSTREAM_ANSWER"),
    ),
    "upstream-auth": (
        (502, "server_error", "upstream_auth"),
        (502, "api_error", "upstream_auth"),
        (502, "INTERNAL", "UPSTREAM_AUTH"),
    ),
    "overloaded": (
        (503, "server_error", "overloaded"),
        (529, "overloaded_error", None),
        (503, "UNAVAILABLE", None),
    ),
    "timeout": (
        (504, "server_error", "timeout"),
        (504, "timeout_error", None),
        (504, "DEADLINE_EXCEEDED", None),
    ),
}
SPECIFICATION = {"billing": "too_many_requests", "rate": "too_many_requests"} | {
    "not-found": "not_found"
}
"""Types of Responses that are not those of Chat Completions, but for the first."""


def expected(found: ErrorClass, wire: str) -> tuple[int, dict[str, object]]:
    """The status and the body that each wire has for a class."""
    openai_row, messages_row, content_row = TABLE[found]
    if wire == MESSAGES:
        return messages_row[0], messages_body(*messages_row[1:])
    if wire == CONTENT:
        return content_row[0], content_body(*content_row)
    status, type, code = openai_row
    if wire == RESPONSES:
        plain = "invalid_request" if type == "invalid_request_error" else type
        type = SPECIFICATION.get(found, plain)
    return status, openai_body(type, code)


def test_the_table_has_every_class() -> None:
    assert tuple(TABLE) == tuple(CLASSES) == get_args(ErrorClass)
    assert set(SPECIFIC_CODES.values()) | set(GENERIC_CODES.values()) == set(CLASSES)


@each_row("target", WIRES)
@each_row("source", WIRES)
@each_row("found", TABLE)
def test_an_error_of_one_wire_is_the_same_error_on_another(
    found: ErrorClass, source: str, target: str
) -> None:
    status, body = expected(found, source)
    error = read(source, status, body)
    assert class_of(error) == found
    assert (error.kind, error.message, error.status) == ("upstream", "no", status)
    assert error.retryable == CLASSES[found].retryable
    assert write(target, error) == expected(found, target)


@each_row("wire", WIRES)
@each_row("found", TABLE)
def test_an_error_of_our_own_is_written_as_the_wire_has_it(found: ErrorClass, wire: str) -> None:
    assert write(wire, new_error(found, "no")) == expected(found, wire)


KINDS: dict[ErrorKind, ErrorClass] = {
    "upstream": "server",
    "internal": "server",
    "truncated": "bad-upstream-answer",
    "malformed": "bad-upstream-answer",
    "empty": "bad-upstream-answer",
    "too-large": "bad-upstream-answer",
    "timeout": "timeout",
    "cancelled": "cancelled",
}


@pytest.mark.parametrize(("kind", "found"), KINDS.items())
def test_a_broken_stream_has_a_class_too(kind: ErrorKind, found: ErrorClass) -> None:
    assert set(KINDS) == set(get_args(ErrorKind))
    assert class_of(ErrorPart(kind, "no")) == class_of(Failure(kind, "no")) == found
    status, body = write(CHAT, ErrorPart(kind, "no"))
    assert status == CLASSES[found].status
    if found == "bad-upstream-answer":  # the code says more than the class
        assert body == openai_body("server_error", kind)
    assert class_of(read(CHAT, status, body)) == found
    assert write(MESSAGES, ErrorPart(kind, "no")) == expected(found, MESSAGES)


@each_row("wire", [CHAT, MESSAGES, CONTENT])
@each_row("found", TABLE)
def test_an_error_in_a_stream_has_the_same_words(found: ErrorClass, wire: DialectName) -> None:
    encoder = Encoder(wire, context=Context(ids=Ids(b"1")))
    parts = [ResponseMetadata("r"), new_error(found, "no"), Finish("error")]
    events = b"".join(encoder.feed(parts) + encoder.finish()).split(b"\n")
    (told,) = [json.loads(line[6:]) for line in events if b'"error":' in line]
    row = dict(zip((CHAT, MESSAGES, CONTENT), TABLE[found], strict=True))[wire]
    words = told["error"]
    assert words["message"] == "no"
    assert words.get("type", words.get("status")) == row[1]
    assert words.get("code") == {CHAT: row[2], MESSAGES: None, CONTENT: CLASSES[found].status}[wire]


# What wires really say

REAL: dict[str, tuple[str, int, object, ErrorClass, str | int | None]] = {
    "a spent quota": (
        CHAT,
        429,
        openai_body("insufficient_quota", "insufficient_quota"),
        "billing",
        "insufficient_quota",
    ),
    "a spent quota that only the type tells": (
        CHAT,
        429,
        openai_body("insufficient_quota", None),
        "billing",
        "insufficient_quota",
    ),
    "a rate of tokens": (
        CHAT,
        429,
        openai_body("tokens", "rate_limit_exceeded"),
        "rate",
        "rate_limit_exceeded",
    ),
    "a number for a code": (
        CHAT,
        402,
        {"error": {"message": "no", "code": 402}},
        "billing",
        402,
    ),
    "a code in words and a type that knows better": (
        CHAT,
        400,
        openai_body("exceed_context_size_error", "400"),
        "context-too-long",
        "400",
    ),
    "a response that is not there": (
        RESPONSES,
        400,
        openai_body("invalid_request_error", "previous_response_not_found"),
        "not-found",
        "previous_response_not_found",
    ),
    "a limit of spending": (
        MESSAGES,
        429,
        messages_body("rate_limit_error", "enforced_spend_limit_reached"),
        "billing",
        "rate_limit_error",
    ),
    "a wrong key": (
        CONTENT,
        400,
        content_body(400, "INVALID_ARGUMENT", "API_KEY_INVALID"),
        "auth",
        "INVALID_ARGUMENT",
    ),
    "a precondition": (
        CONTENT,
        400,
        content_body(400, "FAILED_PRECONDITION"),
        "bad-request",
        "FAILED_PRECONDITION",
    ),
    "a word without a status": (
        CONTENT,
        200,
        {"error": {"status": "RESOURCE_EXHAUSTED"}},
        "rate",
        "RESOURCE_EXHAUSTED",
    ),
    "a status that a proxy invented": (CHAT, 524, b"", "timeout", None),
    "a redirection": (CHAT, 302, b"", "bad-upstream-answer", None),
    "a success that failed": (CHAT, 200, {"error": {"message": "no"}}, "server", None),
}


@pytest.mark.parametrize("case", REAL)
def test_what_wires_say_is_understood(case: str) -> None:
    wire, status, body, found, code = REAL[case]
    error = read(wire, status, body)
    assert (class_of(error), error.code) == (found, code)
    assert error.retryable == CLASSES[found].retryable
    for target in WIRES:  # whoever it is told to understands the same
        assert class_of(read(target, *write(target, error))) == found


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        (MESSAGES, "prompt is too long: 210000 tokens > 200000 maximum"),
        (MESSAGES, "input length and `max_tokens` exceed context limit: 9 + 2 > 10"),
        (CONTENT, "The input token count (9) exceeds the maximum number of tokens allowed (8)."),
        (CHAT, "This model's maximum context length is 8 tokens, you asked for 9."),
    ],
)
@pytest.mark.parametrize("target", WIRES)
def test_a_prompt_over_the_limit_is_told_by_its_message(
    wire: str, message: str, target: str
) -> None:
    body = {"error": {"message": message, "type": "invalid_request_error"}}
    status, written = write(target, read(wire, 400, body))
    assert status == 400
    assert written["error"].get("code") in ("context_length_exceeded", 400, None)
    assert class_of(read(target, status, written)) == "context-too-long"
    assert class_of(read(wire, 500, body)) == "server"  # not whatever it says


def test_own_words_stay_and_foreign_ones_do_not() -> None:
    same = openai_body("invalid_request_error", "string_above_max_length", "messages[0].content")
    assert write(CHAT, read(CHAT, 400, same)) == (400, same)
    assert write(CHAT, read(RESPONSES, 422, same)) == (422, same)
    gone = write(RESPONSES, read(RESPONSES, 404, openai_body("x", "previous_response_not_found")))
    assert gone == (404, openai_body("not_found", "previous_response_not_found"))
    spent = messages_body("rate_limit_error", "enforced_spend_limit_reached")
    assert write(MESSAGES, read(MESSAGES, 429, spent)) == (
        402,
        messages_body("billing_error", "enforced_spend_limit_reached"),
    )
    early = content_body(400, "FAILED_PRECONDITION")
    assert write(CONTENT, read(CONTENT, 400, early)) == (400, early)
    assert write(MESSAGES, read(CONTENT, 400, early)) == expected("bad-request", MESSAGES)
    named = {**messages_body("api_error"), "request_id": "req_1"}
    assert write(MESSAGES, read(MESSAGES, 500, named)) == (500, named)


def test_the_cause_that_a_stream_told_is_written_too() -> None:
    error = ErrorPart(
        "upstream", "no", "rate_limit_error", 429, extra=Raw(b'{"error_code":"busy"}')
    )
    assert write(MESSAGES, error) == (429, messages_body("rate_limit_error", "busy"))


def test_an_extra_that_cannot_be_read_changes_nothing() -> None:
    for extra in (b"7", b'{"details":7,"param":7}', b'{"retry_after":[]}', b'{"fault":"odd"}'):
        error = ErrorPart("upstream", "no", status=429, extra=Raw(extra))
        for wire in WIRES:
            assert write(wire, error) == expected("rate", wire)


def test_details_that_are_odd_are_kept_where_they_came_from() -> None:
    body = content_body(400, "INVALID_ARGUMENT")
    details = [7, {"@type": "x/Help", "links": []}, {"reason": 7}]
    body["error"]["details"] = details  # type: ignore[index]
    error = read(CONTENT, 400, body)
    assert write(CONTENT, error) == (400, body)
    assert write(MESSAGES, error) == expected("bad-request", MESSAGES)


# What stands beside code and status


@pytest.mark.parametrize("wire", [CHAT, RESPONSES, CONTENT])
def test_the_field_at_fault_is_named(wire: str) -> None:
    error = new_error("unsupported", "logit_bias is not available there", param="logit_bias")
    status, body = write(wire, error)
    back = read(wire, status, body)
    assert (status, extra_of(back).param) == (400, "logit_bias")
    assert (back.message, class_of(back)) == (error.message, "unsupported")
    if wire != CONTENT:
        assert body["error"]["param"] == "logit_bias"


@pytest.mark.parametrize(
    ("header", "seconds", "written"),
    [
        ("12", 12, "12"),
        ("0.2", 0.2, "1"),
        ("Wed, 21 Oct 2026 07:28:00 GMT", "Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("-1", None, None),
        ("soon", None, None),
        ("1e9", None, None),
        ("Wed, 21\r\nset-cookie: x", None, None),
        (None, None, None),
    ],
)
def test_the_time_to_wait_comes_from_the_header(
    header: str | None, seconds: float | str | None, written: str | None
) -> None:
    for wire in WIRES:
        error = read(wire, 429, b"", header)
        assert extra_of(error).retry_after == seconds
        told = error_headers(error).get("retry-after")
        assert told == (seconds if isinstance(seconds, str) else written)


def test_the_time_to_wait_comes_from_the_details() -> None:
    delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12.5s"}
    body = {"error": {"code": 429, "message": "no", "status": "X", "details": [delay]}}
    error = read(CONTENT, 429, body)
    assert error_headers(error) == {"retry-after": "13"}
    assert error_headers(read(CONTENT, 429, body, "3")) == {
        "retry-after": "3"
    }  # the header is closer
    status, again = write(CONTENT, read(CHAT, 429, b"", "12.5"))
    assert (status, again["error"]["details"]) == (429, [delay])


@pytest.mark.parametrize("found", CLASSES)
def test_clients_are_told_not_to_try_again_where_it_is_no_use(found: ErrorClass) -> None:
    told = {} if CLASSES[found].retryable else {"x-should-retry": "false"}
    assert error_headers(new_error(found, "no")) == told
    row = CLASSES[found]  # a stream's error may not know it
    assert error_headers(ErrorPart("upstream", "no", row.code, row.status)) == told


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("wire", WIRES)
def test_our_own_key_failing_is_not_the_clients_fault(wire: str, status: int) -> None:
    error = upstream_auth(read(CHAT, status, openai_body("invalid_request_error", "x")))
    assert (error.kind, error.message, error.code, error.status, error.retryable) == (
        "upstream",
        "no",
        "upstream_auth",
        502,
        False,
    )
    assert write(wire, error) == expected("upstream-auth", wire)


# Odd bodies

ODD: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "HTTP 502 without a message"),
    "blanks": (b" \r\n", "HTTP 502 without a message"),
    "null": (b"null", "HTTP 502 without a message"),
    "an empty object": (b"{}", "HTTP 502 without a message"),
    "an empty list": (b"[]", "HTTP 502 without a message"),
    "a page": (HTML, "502 Bad Gateway"),
    "a page without a title": (b"<html><style>x{}</style><p>Out &amp; about</p>", "Out & about"),
    "a page inside an error": (b'{"error":{"message":"<html><p>gone</p></html>"}}', "gone"),
    "plain text": (b"upstream connect error\n", "upstream connect error"),
    "text in quotes": (b'"no"', "no"),
    "not UTF-8": (b"caf\xe9 closed", "caf\ufffd closed"),
    "half a character": (b'{"error":"\\ud83d"}', "\ufffd"),
    "a byte order mark": (b'\xef\xbb\xbf{"error":"no"}', "no"),
    "an error that is text": (b'{"error":"no","code":7}', "no"),
    "an error inside a list": (b'[{"error":{"message":"no"}}]', "no"),
    "a list of errors": (b'{"errors":[{"message":"no"},{"message":"never"}]}', "no"),
    "a list of texts": (b'{"errors":["no"]}', "no"),
    "a message": (b'{"message":"no"}', "no"),
    "a message and a type": (b'{"type":"error","message":"no"}', "no"),
    "a message with a capital": (b'{"Message":"no"}', "no"),
    "an object for a message": (b'{"error":{"message":{"detail":"no"}}}', "no"),
    "a detail": (b'{"detail":"Not Found"}', "Not Found"),
    "a detail that is an object": (b'{"detail":{"error":{"message":"no"}}}', "no"),
    "complaints about fields": (
        b'{"detail":[{"loc":["body","n"],"msg":"too big"},{"loc":["query"],"msg":"x"}]}',
        "n: too big; query: x",
    ),
    "a problem": (b'{"title":"Gone","status":410,"detail":"It went."}', "It went."),
    "a fault": (b'{"fault":{"faultstring":"no"}}', "no"),
    "only a type": (b'{"error":{"type":"overloaded_error"}}', "overloaded_error"),
    "only a code": (b'{"error":{"code":7}}', '{"error": {"code": 7}}'),
    "an event": (b'event: error\ndata: {"error":{"message":"no"}}\n\n', "no"),
    "an event that is text": (b"data: engine died\n\n", "engine died"),
    "what cannot be told": (b'{"errors":{"n":["too big"]}}', '{"errors": {"n": ["too big"]}}'),
    "a number": (b"502", "HTTP 502 without a message"),
    "control characters in JSON": (b'{"error":"a\tb"}', "a\tb"),
}


@each_row("wire", WIRES)
@each_row("case", ODD)
def test_an_error_is_read_whatever_its_body_is(case: str, wire: str) -> None:
    body, message = ODD[case]
    error = read(wire, 502, body)
    assert (error.kind, error.message, error.status) == ("upstream", message, 502)
    for target in WIRES:
        status, written = write(target, error)
        assert written["error"]["message"] == message
        assert status in (500, 502, 503, 529)


def test_the_field_of_the_first_complaint_is_the_one_at_fault() -> None:
    error = read(CHAT, 422, {"detail": [{"loc": ["body", "messages", 0], "msg": "no"}]})
    assert extra_of(error) == ErrorPartExtra(param="messages.0")
    assert write(RESPONSES, error) == (
        422,
        {
            "error": {
                "message": "messages.0: no",
                "type": "invalid_request",
                "param": "messages.0",
                "code": None,
            }
        },
    )


@pytest.mark.parametrize("wire", WIRES)
def test_a_body_without_end_or_bottom_is_cut(wire: str) -> None:
    long = read(wire, 500, b"x" * 9000)
    assert long.message == "x" * (MAX_MESSAGE - 1) + "…"
    for deep in (b"[" * 99999, b'{"message":' * 400 + b'"no"' + b"}" * 400, b"data:" * 5000):
        assert 0 < len(read(wire, 500, deep).message) <= MAX_MESSAGE
    page = b"<html>" + b"<script>" * 20000
    assert 0 < len(read(wire, 500, page).message) <= MAX_MESSAGE


# Properties

WORDS = st.sampled_from([*SPECIFIC_CODES, *GENERIC_CODES, "odd", "x_y"])
CODES = st.none() | WORDS | WORDS.map(str.upper) | st.integers(0, 999)
PAGES = re.compile(r"\s*<", re.IGNORECASE)
MESSAGES_TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)


@pytest.mark.parametrize("wire", WIRES)
@THOROUGH
@given(
    kind=st.sampled_from(get_args(ErrorKind)),
    message=MESSAGES_TEXT,
    code=CODES,
    status=st.none() | st.integers(100, 599),
    param=st.none() | st.just("tools[0].name"),
    wait=st.none() | st.integers(0, 99),
)
def test_what_is_written_reads_back_as_the_same_error(
    wire: str,
    kind: ErrorKind,
    message: str,
    code: str | int | None,
    status: int | None,
    param: str | None,
    wait: int | None,
) -> None:
    assume(not PAGES.match(message))
    extra = Raw(msgspec.json.encode(ErrorPartExtra(param=param, retry_after=wait)))
    error = ErrorPart(kind, message, code, status, extra=extra)
    written, body = write(wire, error)
    assert 400 <= written <= 599
    back = read(wire, written, body, error_headers(error).get("retry-after"))
    assert (class_of(back), back.message) == (class_of(error), message)
    assert back.retryable == CLASSES[class_of(error)].retryable
    assert extra_of(back).retry_after == wait
    assert extra_of(back).param == (param if wire != MESSAGES else None)
    assert write(wire, back) == (written, body)


@QUICK
@given(body=st.binary(max_size=60), status=st.none() | st.integers(0, 999))
def test_any_bytes_are_an_error(body: bytes, status: int | None) -> None:
    for wire in WIRES:
        error = read(wire, status, body)
        assert error.message
        for target in WIRES:
            assert 400 <= write(target, error)[0] <= 599


KEYS = st.sampled_from(
    [
        *("error", "errors", "fault", "message", "msg", "detail", "details", "code", "type"),
        *("status", "param", "loc", "@type", "reason", "retryDelay", "fieldViolations", "field"),
        *("error_code", "request_id"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@THOROUGH
@given(body=JSON, status=st.none() | st.integers(400, 599))
def test_any_json_is_an_error(body: object, status: int | None) -> None:
    for wire in WIRES:
        error = read(wire, status, body)
        assert error.message
        for target in WIRES:
            assert 400 <= write(target, error)[0] <= 599


@given(status=st.none() | st.integers(-1, 1000), words=st.lists(CODES, max_size=3))
def test_a_specific_word_decides_before_the_status_and_that_before_a_generic_one(
    status: int | None, words: list[str | int | None]
) -> None:
    texts = [word.lower() for word in words if isinstance(word, str)]
    numbers = [one for one in (status, *words) if isinstance(one, int) and 300 <= one <= 599]
    specific = [SPECIFIC_CODES[text] for text in texts if text in SPECIFIC_CODES]
    generic = [GENERIC_CODES[text] for text in texts if text in GENERIC_CODES]
    by_status = [classify(number) for number in numbers]
    assert classify(status, *words) == [*specific, *by_status, *generic, "server"][0]


# The official clients

RAISED: dict[int, tuple[Any, Any]] = {
    400: (openai.BadRequestError, anthropic.BadRequestError),
    401: (openai.AuthenticationError, anthropic.AuthenticationError),
    402: (openai.APIStatusError, anthropic.APIStatusError),
    403: (openai.PermissionDeniedError, anthropic.PermissionDeniedError),
    404: (openai.NotFoundError, anthropic.NotFoundError),
    409: (openai.ConflictError, anthropic.ConflictError),
    413: (openai.APIStatusError, anthropic.ContentTooLargeError),
    429: (openai.RateLimitError, anthropic.RateLimitError),
    499: (openai.APIStatusError, anthropic.ClientClosedRequestError),
    500: (openai.InternalServerError, anthropic.InternalServerError),
    502: (openai.InternalServerError, anthropic.InternalServerError),
    503: (openai.InternalServerError, anthropic.ServiceUnavailableError),
    504: (openai.InternalServerError, anthropic.GatewayTimeoutError),
    529: (openai.InternalServerError, anthropic.OverloadedError),
}


def ask(wire: str, url: str) -> None:
    """One request by the official client of a wire."""
    hello: Any = [{"role": "user", "content": "hi"}]
    if wire == MESSAGES:
        with anthropic_client(url) as messages:
            messages.messages.create(model="m", max_tokens=9, messages=hello)
    with openai_client(url) as client:
        if wire == CHAT:
            client.chat.completions.create(model="m", messages=hello)
        client.responses.create(model="m", input="hi")


def raised(wire: str, error: ErrorPart) -> Any:
    """What the official client of a wire raises when it is answered with this error."""
    writer = DIALECTS[wire].write_error
    assert writer is not None
    status, body = writer(error)
    failure = anthropic.APIStatusError if wire == MESSAGES else openai.APIStatusError
    with serving(body, "application/json", status) as url, pytest.raises(failure) as caught:
        ask(wire, url)
    return caught.value


@pytest.mark.parametrize("wire", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize("found", TABLE)
def test_the_official_client_raises_what_it_should(found: ErrorClass, wire: str) -> None:
    error = raised(wire, new_error(found, "no", param="n" if found == "unsupported" else None))
    status, body = expected(found, wire)
    assert error.status_code == status
    assert error.__class__ is RAISED[status][wire == MESSAGES]
    if wire == MESSAGES:
        told = body["error"]
        assert (error.type, error.api_message) == (told["type"], "no")  # type: ignore[index]
        assert error.error_code == TABLE[found][1][2]
        assert error.body == body
    else:
        told = body["error"] | {"param": error.param}  # type: ignore[operator]
        assert error.body == told
        assert (error.type, error.code) == (told["type"], told["code"])
        assert error.param == ("n" if found == "unsupported" else None)
        assert error.message == f"Error code: {status} - no"
