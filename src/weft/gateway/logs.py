"""The log: one JSON object a line on standard error. Neither prompts nor answers, nor any key."""

import logging
import sys
import time
import traceback

import msgspec

from weft.relay.record import Record
from weft.scrub import Scrubber

_encode = msgspec.json.Encoder().encode
_REFUSED = "ASGI callable returned without completing handshake."
"""What uvicorn says of a WebSocket that was answered with a status, as it should be."""

FINDINGS = 20
"""That one line names."""

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class Lines(logging.Handler):
    """Writes what the libraries below us log, as lines like our own."""

    def __init__(self, scrub: Scrubber) -> None:
        super().__init__()
        self._scrub = scrub

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line: dict[str, object] = {
                "time": round(record.created, 3),
                "level": record.levelname.lower(),
                "from": record.name,
                "message": self._scrub(record.getMessage()),
            }
            id = getattr(record, "request_id", None)
            if id is not None:
                line["id"] = id
            if record.exc_info is not None:
                line["stack"] = self._scrub("".join(traceback.format_exception(*record.exc_info)))
            write(line)
        except Exception:  # a log that cannot be written never ends a stream
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """There is nobody to tell."""


def write(line: dict[str, object]) -> None:
    try:
        sys.stderr.buffer.write(_encode(line) + b"\n")
        sys.stderr.buffer.flush()
    except (OSError, ValueError):
        pass  # the disk is full, or nobody listens: streams go on


def begin(level: str, scrub: Scrubber) -> None:
    """Sends everything that is logged in this process to standard error."""
    root = logging.getLogger()
    root.handlers = [Lines(scrub)]
    root.setLevel(LEVELS[level])
    logging.getLogger("uvicorn").setLevel(max(LEVELS[level], logging.WARNING))
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.msg != _REFUSED)


def request(record: Record, scrub: Scrubber) -> dict[str, object]:
    """One line about a request that is over."""
    ended, response = record.ended or time.time(), record.response
    failure = record.error or (response.error if response is not None else None)
    line: dict[str, object] = {
        "time": round(ended, 3),
        "level": "info" if failure is None and record.unstored is None else "warning",
        "from": "weft.request",
        "id": record.id,
        "dialect": record.dialect,
        "model": record.model[:200],
        "stream": record.stream,
        "status": record.status,
        "ms": round(1000 * (ended - record.started), 1),
        "in": record.bytes_in,
        "out": record.bytes_out,
    }
    if record.caller:
        line["key"] = record.caller
    if record.first is not None:
        line["first_ms"] = round(1000 * (record.first - record.started), 1)
    if record.attempts:
        line["upstream"] = record.upstream
        line["attempts"] = len(record.attempts)
    if record.findings:
        line["findings"] = [
            {"code": one.code, "at": one.at, "detail": scrub(one.detail)}
            for one in record.findings[:FINDINGS]
        ]
        if len(record.findings) > FINDINGS:
            line["more_findings"] = len(record.findings) - FINDINGS
    if failure is not None:
        kind = "client-gone" if failure.kind == "cancelled" else failure.kind
        line["error"] = {"kind": kind, "message": scrub(failure.message)}
    if record.unstored is not None:
        line["unstored"] = scrub(record.unstored)
    if response is not None:
        line["finish"] = response.finish_reason
        usage = response.usage
        if usage is not None:
            line["tokens"] = [usage.input_tokens, usage.output_tokens]
    return line
