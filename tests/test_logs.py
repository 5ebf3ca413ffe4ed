"""The log: one JSON object a line, without secrets, and never in the way."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.assembler import Response
from weft.dialects.requests.codec import Loss
from weft.findings import Finding
from weft.gateway import logs
from weft.parts import ErrorPart, Usage
from weft.relay.request_record import Attempt, RequestRecord
from weft.scrub import Scrubber, Secret

SCRUB = Scrubber([Secret("planted-secret")])


@contextmanager
def written() -> Iterator[list[dict[str, Any]]]:
    """The lines that are written meanwhile."""
    lines: list[dict[str, Any]] = []
    before, sys.stderr = sys.stderr, io.TextIOWrapper(io.BytesIO())
    try:
        yield lines
        sys.stderr.flush()
        raw = sys.stderr.buffer
        assert isinstance(raw, io.BytesIO)
        lines += [json.loads(line) for line in raw.getvalue().splitlines()]
    finally:
        sys.stderr = before


def test_what_is_logged_is_a_line_with_its_stack_and_without_secrets() -> None:
    handler = logs.JsonLogHandler(SCRUB)
    with written() as lines:
        try:
            raise OSError("planted-secret\u2028\n in it")
        except OSError as problem:
            info = (type(problem), problem, problem.__traceback__)
        record = logging.LogRecord("weft.x", 40, "f", 1, "key %s", ("planted-secret",), info)
        record.request_id = "req_1"
        handler.emit(record)
    (line,) = lines
    stack = line.pop("stack")
    assert line == {
        "time": line["time"],
        "level": "error",
        "from": "weft.x",
        "message": "key ***",
        "id": "req_1",
    }
    assert "builtins.OSError: ***" in stack
    assert "planted-secret" not in stack


def test_a_stack_quotes_no_request() -> None:
    """An exception quotes what it failed at; what led to it does, too."""
    handler = logs.JsonLogHandler(SCRUB)
    with written() as lines:
        try:
            try:
                raise KeyError("a planted prompt")
            except KeyError as problem:
                raise ValueError("a planted prompt") from problem
        except ValueError as problem:
            info = (type(problem), problem, problem.__traceback__)
        handler.emit(logging.LogRecord("asyncio", 40, "f", 1, "x\nplanted", (), info))
    (line,) = lines
    assert line["message"] == "x"
    stack = line["stack"]
    assert stack.index("builtins.KeyError\n") < stack.index("builtins.ValueError\n")
    assert "in test_a_stack_quotes_no_request" in stack
    assert "planted prompt" not in stack.replace('raise KeyError("a planted prompt")', "").replace(
        'raise ValueError("a planted prompt")', ""
    )  # the source is no secret


@given(st.text(), st.text())
def test_what_a_finding_quotes_is_masked(quoted: str, other: str) -> None:
    record = RequestRecord("req_1", "gemini", "a/m", "", False)
    whole = f"call {quoted!r}: not {other!r}: dropped"
    record.findings = tuple(
        Finding("delta-late", 1, 2, whole[:length]) for length in (len(whole), len(whole) - 10)
    )
    line = logs.request(record, Scrubber())
    found = line["findings"]
    assert isinstance(found, list)
    assert found[0]["detail"] == "call '…': not '…': dropped"
    assert found[1]["detail"] == "call '…': not '…'"


WARNINGS = {
    'unknown field "planted" (did you mean "max_tokens"?)': (
        "unknown field '…' (did you mean \"max_tokens\"?)"
    ),
    'unknown field "planted": dropped': "unknown field '…': dropped",
    "planted is not available on Gemini; the default is used": (
        "'…' is not available on Gemini; the default is used"
    ),
    "dropped: Chat has no tier planted": "dropped: Chat has no tier '…'",
    "dropped: planted that another upstream ran": "dropped: '…' that another upstream ran",
    "call planted is there twice; the first is kept": (
        "call '…' is there twice; the first is kept"
    ),
    "call planted\n has two results; the first is kept": (
        "call '…' has two results; the first is kept"
    ),
    "dropped: Chat has no tier " + "planted" * 100: "'…'",
    "dropped: Gemini has no equivalent": "dropped: Gemini has no equivalent",
}


@pytest.mark.parametrize(("detail", "shown"), WARNINGS.items())
def test_a_warning_is_logged_without_values_of_the_client(detail: str, shown: str) -> None:
    record = RequestRecord("req_1", "gemini", "a/m", "", False)
    record.losses = (Loss("seed", "adapted", "planted"), Loss("p" * 300, "warned", detail))
    assert logs.request(record, SCRUB)["warned"] == [{"path": "p" * 200, "detail": shown}]
    record.losses = record.losses[:1]
    assert "warned" not in logs.request(record, SCRUB)


def test_a_request_is_one_line() -> None:
    record = RequestRecord(
        "req_1", "openai-chat", "a/m", "alice", True, started=1.0, first=1.5, ended=3.0
    )
    record.attempts += [Attempt("a/m", ErrorPart("timeout", "late")), Attempt("b/m")]
    record.findings = (Finding("delta-late", 1, 2, "x"), Finding("delta-late", 2, 3, "y"))
    record.response = Response("r", finish_reason="stop", usage=Usage(1, 2))
    record.bytes_in, record.bytes_out = 10, 20
    assert logs.request(record, SCRUB) == {
        "time": 3.0,
        "level": "info",
        "from": "weft.request",
        "id": "req_1",
        "dialect": "openai-chat",
        "model": "a/m",
        "stream": True,
        "status": 200,
        "ms": 2000.0,
        "in": 10,
        "out": 20,
        "key": "alice",
        "first_ms": 500.0,
        "upstream": "b",
        "attempts": 2,
        "tried": ["a/m: late", "b/m"],
        "findings": [
            {"code": "delta-late", "at": 1, "detail": "x"},
            {"code": "delta-late", "at": 2, "detail": "y"},
        ],
        "finish": "stop",
        "tokens": [1, 2],
    }


def test_a_client_that_left_is_called_so_and_errors_are_scrubbed() -> None:
    record = RequestRecord("req_1", "gemini", "a/m", "", False)
    record.error = ErrorPart("cancelled", "the client went away")
    line = logs.request(record, SCRUB)
    assert (line["level"], line["error"]) == (
        "warning",
        {"kind": "client-gone", "class": "cancelled", "message": "the client went away"},
    )
    record.error = ErrorPart("truncated", "no planted-secret")
    assert logs.request(record, SCRUB)["error"] == {
        "kind": "truncated",
        "class": "bad-upstream-answer",
        "message": "no ***",
    }


def test_an_error_of_an_upstream_is_logged_by_class_code_and_status() -> None:
    record = RequestRecord("req_1", "gemini", "a/m", "", False)
    record.error = ErrorPart("upstream", "you asked: a planted prompt", "slow_down", 503)
    assert logs.request(record, SCRUB)["error"] == {
        "kind": "upstream",
        "class": "overloaded",
        "code": "slow_down",
        "status": 503,
    }
    record.error = ErrorPart("upstream", "", "a planted prompt", 400)
    found = logs.request(record, SCRUB)["error"]
    assert found == {"kind": "upstream", "class": "bad-request", "status": 400}


def test_a_log_that_cannot_be_written_stops_nobody() -> None:
    before, sys.stderr = sys.stderr, io.TextIOWrapper(io.BytesIO())
    try:
        sys.stderr.close()
        logs.write({"a": 1})
        logs.JsonLogHandler(SCRUB).emit(
            logging.LogRecord("x", 20, "f", 1, "%d", ("no number",), None)
        )
    finally:
        sys.stderr = before
