"""The log: one JSON object a line, without secrets, and never in the way."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.assembler import Response
from weft.findings import Finding
from weft.gateway import logs
from weft.parts import ErrorPart, Usage
from weft.relay.record import Attempt, Record
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
    handler = logs.Lines(SCRUB)
    with written() as lines:
        try:
            raise ValueError("planted-secret\u2028\n in it")
        except ValueError as problem:
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
    assert "ValueError" in stack
    assert "planted-secret" not in stack


def test_a_request_is_one_line() -> None:
    record = Record("req_1", "openai-chat", "a/m", "alice", True, started=1.0, first=1.5, ended=3.0)
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
        "findings": [
            {"code": "delta-late", "at": 1, "detail": "x"},
            {"code": "delta-late", "at": 2, "detail": "y"},
        ],
        "finish": "stop",
        "tokens": [1, 2],
    }


def test_a_client_that_left_is_called_so_and_errors_are_scrubbed() -> None:
    record = Record("req_1", "gemini", "a/m", "", False)
    record.error = ErrorPart("cancelled", "the client went away")
    line = logs.request(record, SCRUB)
    assert (line["level"], line["error"]) == (
        "warning",
        {"kind": "client-gone", "message": "the client went away"},
    )
    record.error = ErrorPart("upstream", "no planted-secret")
    assert logs.request(record, SCRUB)["error"] == {"kind": "upstream", "message": "no ***"}


def test_a_log_that_cannot_be_written_stops_nobody() -> None:
    before, sys.stderr = sys.stderr, io.TextIOWrapper(io.BytesIO())
    try:
        sys.stderr.close()
        logs.write({"a": 1})
        logs.Lines(SCRUB).emit(logging.LogRecord("x", 20, "f", 1, "%d", ("no number",), None))
    finally:
        sys.stderr = before
