"""The log on standard error, without prompts, responses and keys: one JSON object per line, or one
line for people if standard error is a terminal (log_text.py).

Upstreams quote requests in their error messages, findings quote responses, and exceptions quote
what they failed at. So an error is logged with its kind, class, code and status, and with its
message only if Weft wrote it; quotations in a finding are masked; an exception is logged with its
class and stack, and with its message only if it comes from the system or from Weft.
"""

import logging
import os
import re
import sys
import time
import traceback
from collections.abc import Sequence

import msgspec

from weft.assembler import Failure
from weft.dialects.error_classes import CLASSES, class_of, extra_of
from weft.dialects.requests.codec import Loss
from weft.errors import InternalError
from weft.findings import MAX_DETAIL
from weft.gateway.access import AccessRecord
from weft.gateway.log_text import render_text
from weft.parts import ErrorKind, ErrorPart
from weft.relay.request_record import RequestRecord
from weft.scrub import Scrubber
from weft.upstream.breaker import summary

_encode = msgspec.json.Encoder().encode
_HANDSHAKE_NOISE = "ASGI callable returned without completing handshake."
"""Logged by uvicorn for a WebSocket handshake that was answered with a status, as intended."""

_ACCEPT_NOISE = "socket.accept() out of system resource"
"""Logged by asyncio every second without file descriptors; descriptors.py logs it once."""

MAX_FINDINGS = 20
"""The most findings in one line, and the most fields that were warned of."""

MAX_PATH = 200
"""The most characters of a path in one line: nothing else bounds what a client chooses."""

_OWN_MESSAGES = frozenset[ErrorKind](
    ("truncated", "malformed", "empty", "timeout", "cancelled", "too-large")
)
"""Kinds of errors that Weft detects itself: their messages quote nothing."""

_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""An error code that is a word, not a sentence."""

_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*+(?:'|\\?$)|"(?:[^"\\]|\\.)*+(?:"|\\?$)""", re.DOTALL)
"""Quotations in a finding, as written by repr(); the last one may be cut off."""

_HINT = re.compile(r' \(did you mean "\w+"\?\)\Z')
"""The end of a warning of an unknown field. What it quotes is a name of ours."""

_VALUE = re.compile(
    r"(?<=\Acall ).*(?= is there twice| has two results)"
    r"|(?<=\Adropped: ).*(?= that another upstream ran)"
    r"|\A.*(?= is not available on )"
    r"|(?<= has no tier ).*",
    re.DOTALL,
)
"""Values of the client that warnings quote without quotation marks."""

_SAFE_MESSAGES = (OSError, InternalError)
"""Exceptions whose messages quote neither requests nor responses."""

_OWN_STATUSES = frozenset((401, 403, 404, 405, 408, 413, 415, 421, 426, 429, 431, 503))
"""Statuses of refusals that say nothing of what a request contains, except in quotation marks."""

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class JsonLogHandler(logging.Handler):
    """Writes log records, including those of libraries, as JSON lines."""

    def __init__(self, scrub: Scrubber) -> None:
        super().__init__()
        self._scrub = scrub

    def emit(self, record: logging.LogRecord) -> None:
        try:
            refused = getattr(record, "refused_request", None)
            if isinstance(refused, AccessRecord):
                write(_refusal(refused, self._scrub))
                return
            line: dict[str, object] = {
                "time": round(record.created, 3),
                "level": record.levelname.lower(),
                "from": record.name,
                "message": self._scrub(_message(record)),
            }
            id = getattr(record, "request_id", None)
            if id is not None:
                line["id"] = id
            name = getattr(record, "event", None)
            if isinstance(name, str):
                line = {"event": name, **line, **getattr(record, "fields", {})}
            if record.exc_info is not None:
                line["stack"] = self._scrub(_stack(record.exc_info[1]))
            write(line)
        except Exception:  # a failure of the log must not end a stream
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Nothing: there is nowhere else to report it."""


def _message(record: logging.LogRecord) -> str:
    """The message. Libraries that log an exception repeat its text after the first line."""
    message = record.getMessage()
    is_foreign = record.exc_info is not None and not record.name.startswith("weft")
    return message.partition("\n")[0] if is_foreign else message


def _stack(problem: BaseException | None) -> str:
    """The stack of an exception and of its causes, without messages that may quote."""
    lines: list[str] = []
    seen: set[int] = set()
    # Written by hand, since traceback.format_exception prints every message. A cause may be its own
    # context, in a circle.
    while problem is not None and id(problem) not in seen:
        seen.add(id(problem))
        own = f": {problem}" if isinstance(problem, _SAFE_MESSAGES) else ""
        name = f"{type(problem).__module__}.{type(problem).__qualname__}"
        lines[:0] = [*traceback.format_tb(problem.__traceback__), f"{name}{own}\n"]
        problem = problem.__cause__ or problem.__context__
    return "".join(lines)


class _LogForm:
    """How lines are written; one for the process."""

    text = False
    colours = False


def write(line: dict[str, object]) -> None:
    try:
        data = render_text(line, _LogForm.colours).encode() if _LogForm.text else _encode(line)
        sys.stderr.buffer.write(data + b"\n")
        sys.stderr.buffer.flush()
    except (OSError, ValueError):
        pass  # the disk is full, or the pipe is closed: streams go on


def begin(level: str, scrub: Scrubber, form: str = "auto") -> None:
    """Writes everything that this process logs to standard error. `form` is `text`, `json`, or
    `auto`: text on a terminal."""
    is_terminal = sys.stderr.isatty()
    _LogForm.text = is_terminal if form == "auto" else form == "text"
    _LogForm.colours = is_terminal and not os.environ.get("NO_COLOR")  # https://no-color.org
    root = logging.getLogger()
    # Replaced, not added: a handler that was there would write unscrubbed lines.
    root.handlers = [JsonLogHandler(scrub)]
    root.setLevel(LEVELS[level])
    # Below that, uvicorn has a line for every start, stop and WebSocket.
    logging.getLogger("uvicorn").setLevel(max(LEVELS[level], logging.WARNING))
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.msg != _HANDSHAKE_NOISE)
    logging.getLogger("asyncio").addFilter(
        lambda record: not str(record.msg).startswith(_ACCEPT_NOISE)
    )


def request(record: RequestRecord, scrub: Scrubber) -> dict[str, object]:
    """The line of a request that has ended."""
    ended, response = record.ended or time.time(), record.response
    failure = record.error or (response.error if response is not None else None)
    # Rounded by division: round() takes several times as long, by way of decimal digits.
    line: dict[str, object] = {
        "time": (1000 * ended + 0.5) // 1 / 1000,
        "level": "info" if failure is None and record.unstored is None else "warning",
        "from": "weft.request",
        "id": record.id,
        "dialect": record.dialect,
        # As the client sent it: JSON escapes it, but nothing else bounds its length.
        "model": record.model[:200],
        "stream": record.stream,
        "status": record.status,
        "ms": (10_000 * (ended - record.started) + 0.5) // 1 / 10,
        "in": record.bytes_in,
        "out": record.bytes_out,
    }
    if record.caller:
        line["key"] = record.caller
    if record.first is not None:
        line["first_ms"] = (10_000 * (record.first - record.started) + 0.5) // 1 / 10
    if record.attempts:
        line["upstream"] = record.upstream
        line["attempts"] = len(record.attempts)
        if len(record.attempts) > 1:
            line["tried"] = [
                one.target if one.error is None else f"{one.target}: {summary(one.error)}"
                for one in record.attempts
            ]
    if record.findings:
        line["findings"] = [
            {"code": one.code, "at": one.at, "detail": _QUOTED.sub("'…'", scrub(one.detail))}
            for one in record.findings[:MAX_FINDINGS]
        ]
        if len(record.findings) > MAX_FINDINGS:
            line["more_findings"] = len(record.findings) - MAX_FINDINGS
    if record.losses:
        line |= _warned(record.losses, scrub)
    if failure is not None:
        line["error"] = _error(failure, scrub, record.status)
    if record.unstored is not None:
        line["unstored"] = scrub(record.unstored)
    if response is not None:
        line["finish"] = response.finish_reason
        usage = response.usage
        if usage is not None:
            line["tokens"] = [usage.input_tokens, usage.output_tokens]
    return line


def access(record: AccessRecord, scrub: Scrubber) -> dict[str, object]:
    """The line of a request without a run: refused, or about something stored."""
    ended, error = time.time(), record.error
    line: dict[str, object] = {
        "time": round(ended, 3),
        "level": access_level(record),
        "from": "weft.request",
        "id": record.id,
        "method": record.method,
        "path": scrub(record.path[:MAX_PATH]),
        "status": record.status,
        "ms": round(1000 * (ended - record.started), 1),
    }
    if record.caller:
        line["key"] = record.caller
    if error is not None:
        line["error"] = found = _error(error, scrub, record.status)
        if record.status in _OWN_STATUSES and error.kind == "internal":
            found["message"] = _QUOTED.sub("'…'", scrub(error.message))
    return line


def _refusal(record: AccessRecord, scrub: Scrubber) -> dict[str, object]:
    """The line of a request that the application never saw: as that of others, without what is not
    known of it."""
    line = access(record, scrub)
    for name in ("id", "method", "path"):
        if not line[name]:
            del line[name]
    if record.error is not None:
        # Whatever the status: such a message is the same for every request.
        sent = _error(record.error, scrub, record.status)
        line["error"] = {**sent, "message": record.error.message}
    return {"event": "request-refused", **line}


def access_level(record: AccessRecord) -> str:
    """Probes come every few seconds, and say nothing while they succeed."""
    if record.status >= 400:
        return "warning"
    return "debug" if record.path in _PROBES else "info"


_PROBES = frozenset(("/health", "/ready", "/metrics", "/", "/api/hello"))


def _warned(losses: Sequence[Loss], scrub: Scrubber) -> dict[str, object]:
    """The fields of the request that could not be carried in full, if there are any."""
    warned = [loss for loss in losses if loss.outcome == "warned"]
    if not warned:
        return {}
    details: list[str] = []
    for detail in [one.detail for one in warned[:MAX_FINDINGS]]:
        hint = _HINT.search(detail)
        end = len(detail) if hint is None else hint.start()
        shown = _VALUE.sub("'…'", _QUOTED.sub("'…'", detail[:end])) + detail[end:]
        # Our own words are never that long: it quotes something.
        details.append(shown if len(detail) <= MAX_DETAIL else "'…'")
    found: dict[str, object] = {
        "warned": [
            {"path": scrub(one.path[:MAX_PATH]), "detail": scrub(detail)}
            for one, detail in zip(warned, details, strict=False)
        ]
    }
    if len(warned) > MAX_FINDINGS:
        found["more_warned"] = len(warned) - MAX_FINDINGS
    return found


def _error(failure: ErrorPart | Failure, scrub: Scrubber, sent: int) -> dict[str, object]:
    """An error without what it quotes. `sent` is the status that the client got."""
    found: dict[str, object] = {}
    is_internal, error_class = failure.kind == "internal", class_of(failure)
    # Weft refuses requests with errors of its own, whose kind would call a mistake of the client
    # ours: then the class alone says whose it is.
    if not (is_internal and CLASSES[error_class].status < 500):
        found["kind"] = "client-gone" if failure.kind == "cancelled" else failure.kind
    found["class"] = error_class
    code = scrub(str(failure.code)) if failure.code is not None else ""
    if _CODE.fullmatch(code):
        found["code"] = code
    if failure.status is not None:
        # That of an upstream is no status of ours, and a stream that has begun was a 200.
        is_sent = is_internal and sent >= 400
        found["status"] = sent if is_sent else failure.status
    # `connected` is set by our own HTTP client, whose messages are in our own words.
    if failure.kind in _OWN_MESSAGES or extra_of(failure).connected is not None:
        found["message"] = scrub(failure.message)
    return found
