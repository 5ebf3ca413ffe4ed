"""Endpoints of traces: what each frame of a stream became, one JSON object a line."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import Literal
from urllib.parse import parse_qs

import msgspec

from weft.captures import detect
from weft.cases import NAME, CaseContext, case_files, zipped
from weft.context import Context, Quirks
from weft.dialects import DialectName, dialect_named
from weft.dialects.error_classes import new_error
from weft.errors import BadRequest, ClientError, Unreadable
from weft.gateway import bodies, http_response
from weft.gateway.apis import RESPONSES
from weft.gateway.auth import HttpRejection
from weft.gateway.endpoints import (
    DisconnectWatcher,
    GatewayContext,
    Receive,
    Scope,
    Send,
    decode_body,
    headers_of,
    read_body,
)
from weft.gateway.exchange import EXCHANGE
from weft.gateway.lists import text_param
from weft.gateway.sessions import Sessions
from weft.gateway.stored_responses import (
    EXPECTED_ERRORS,
    Query,
    ResponseFindings,
    int_param,
    not_found,
    send_problem,
)
from weft.relay.offload import for_body, offload_inspection
from weft.relay.redaction import ErrorRedactor
from weft.relay.rerun import ResponseTrace, recorded_capture
from weft.relay.translation import RUN, RUN_HEADER
from weft.scrub import Scrubber
from weft.store.records import Entry
from weft.trace import CaptureTracer, TraceRow, row_line
from weft.trace_diff import DiffRow, diff, event_diff
from weft.upstream.catalog import parse_quirks

MAX_UPLOAD = 20 * 1024 * 1024
"""Bytes of a capture that may be uploaded."""

PIECE = 32 * 1024
"""Bytes of a capture that are traced at a time."""

RUN_ID = re.compile(r"run_[0-9a-f]{1,64}")

LARGEST_ROW = 10**9 - 1

NDJSON_HEADERS: http_response.Headers = [
    (b"content-type", b"application/x-ndjson"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class UploadedTrace:
    """`POST /v1/trace`: the trace of a capture. Nothing of it is stored."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        id = scope["weft.id"]
        try:
            query = parse_qs(scope["query_string"].decode("latin-1"))
            raw = await read_capture(scope, receive)
            after = int_param(query, "after", 0, 0, LARGEST_ROW)
            tracer = await offload_inspection(_tracer, raw, query)
        except bodies.RequestAborted:
            return
        except EXPECTED_ERRORS as problem:
            await send_problem(send, RESPONSES, id, problem)
            return
        about: http_response.Headers = [
            (b"weft-trace-source", b"capture"),
            (b"weft-trace-from", tracer.source.encode()),
            (b"weft-trace-as", tracer.target.encode()),
        ]
        await send_lines(scope, send, _lines(tracer, raw, after), about)


class StoredTrace(ResponseFindings):
    """`GET /v1/responses/{id}/trace`: the trace of a stored response of any dialect; that of a
    running one goes on until it has ended."""

    def __init__(self, sessions: Sessions, scrub: Scrubber) -> None:
        super().__init__(sessions)
        self._redact = ErrorRedactor(scrub)

    async def _handle(self, scope: Scope, send: Send, entry: Entry) -> None:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        after = int_param(query, "after", 0, 0, LARGEST_ROW)
        trace = ResponseTrace(self._sessions.persistence, entry, self._redact)
        source = await trace.open(dialect_param(query, "as"))
        about: http_response.Headers = [
            (b"weft-trace-source", source.source.encode()),
            (b"weft-trace-from", source.dialect.encode()),
            (b"weft-trace-as", source.target.encode()),
        ]
        run = await for_body(entry.body or b"", run_of, entry.body or b"{}")
        if run is not None:
            about.append((RUN_HEADER.encode(), run.encode()))
        await send_lines(scope, send, _stored_lines(trace, after), about)


class _NamedRun(msgspec.Struct):
    metadata: dict[str, object] | None = None


_read_metadata = msgspec.json.Decoder(_NamedRun).decode


def run_of(body: bytes) -> str | None:
    """The run of an agent that a response object names."""
    try:
        run = (_read_metadata(body).metadata or {}).get(RUN)
    except msgspec.DecodeError:
        return None  # of another dialect
    return run if isinstance(run, str) and RUN_ID.fullmatch(run) else None


class ResponseCase(ResponseFindings):
    """`GET /v1/responses/{id}/case`: what the upstream sent as a regression case, in a zip file."""

    def __init__(self, sessions: Sessions, scrub: Scrubber) -> None:
        super().__init__(sessions)
        self._scrub = scrub

    async def _handle(self, scope: Scope, send: Send, entry: Entry) -> None:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        name = text_param(query, "name") or entry.id
        if not NAME.fullmatch(name):
            expected = "up to 100 letters, digits and ._-"
            raise BadRequest("name", f"{name[:100]!r}; expected {expected}")
        if entry.ended is None:
            error = new_error("bad-request", "the response is still running")
            raise HttpRejection(409, error)
        found = await recorded_capture(self._sessions.persistence, entry.id, self._scrub)
        if found is None:
            message = (
                f"What the upstream of {entry.id[:100]} sent was not kept: see store.upstream and "
                "store.upstream_retention in the settings."
            )
            raise HttpRejection(404, new_error("bad-request", message))
        data = await offload_inspection(_case, name, *found)
        headers: http_response.Headers = [
            (b"content-type", b"application/zip"),
            (b"content-disposition", f'attachment; filename="{name}.zip"'.encode()),
            *http_response.weft_headers(scope["weft.id"]),
        ]
        await http_response.send_body(send, 200, data, headers)


def _case(name: str, raw: bytes, dialect: DialectName, known: CaseContext) -> bytes:
    return zipped(case_files(name, raw, dialect, known).items())


class _CaptureSide(msgspec.Struct, forbid_unknown_fields=True):
    """One side of a comparison: a stored response, or a capture."""

    response: str | None = None
    sent: bool = False
    """Whether the events that its client was sent are meant, not those of its trace."""
    capture: str | None = None
    source: str | None = msgspec.field(default=None, name="from")
    quirks: str | None = None


class _DiffBody(msgspec.Struct, forbid_unknown_fields=True):
    a: str | _CaptureSide
    b: str | _CaptureSide
    of: Literal["items", "events"] = "items"


_diff_body = msgspec.json.Decoder(_DiffBody).decode


class TraceDiff:
    """`POST /v1/trace/diff`: two responses or captures, item by item or event by event. A response
    is named by its id; a capture is sent along."""

    def __init__(self, gateway: GatewayContext, sessions: Sessions | None, scrub: Scrubber) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._redact = ErrorRedactor(scrub)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        id = scope["weft.id"]
        try:
            body = await read_body(self._gateway, scope, receive)
            wanted = await for_body(body, decode_body, _diff_body, body)
            a = await self._rows(scope, wanted.a, "a")
            b = await self._rows(scope, wanted.b, "b")
            data = await offload_inspection(_diff_object, a, b, _DIFFS[wanted.of])
        except bodies.RequestAborted:
            return
        except EXPECTED_ERRORS as problem:
            await send_problem(send, RESPONSES, id, problem)
        else:
            await http_response.send_json(send, id, data)

    async def _rows(self, scope: Scope, side: str | _CaptureSide, path: str) -> list[TraceRow]:
        """Raises BadRequest, HttpRejection, StoreError."""
        side = _CaptureSide(response=side) if isinstance(side, str) else side
        if (side.response is None) == (side.capture is None):
            raise BadRequest(path, "expected either a response or a capture")
        if side.capture is not None:
            named = {"from": side.source, "quirks": side.quirks}
            query = {name: [value] for name, value in named.items() if value is not None}
            return await offload_inspection(_traced, side.capture, query)
        entry = None
        if self._sessions is not None and side.response is not None:
            entry = await self._sessions.store.owned(scope["weft.caller"], side.response)
        if self._sessions is None or entry is None or not entry.inspectable:
            raise not_found("Response", str(side.response))
        if entry.ended is None:
            raise BadRequest(path, "the response is still running")
        trace = ResponseTrace(self._sessions.persistence, entry, self._redact)
        await trace.open(None, sent=side.sent)
        return [row async for rows in trace.rows() for row in rows]


def _traced(text: str, query: Query) -> list[TraceRow]:
    raw = text.encode("utf-8", "surrogatepass")
    tracer = _tracer(raw, query)
    # In pieces, though all of it is there: one call for all would not release the interpreter.
    rows = [row for piece in _pieces(raw) for row in tracer.feed(piece)]
    return rows + tracer.finish()


def _pieces(raw: bytes) -> Iterator[bytes]:
    return (raw[start : start + PIECE] for start in range(0, len(raw), PIECE))


Differ = Callable[[list[TraceRow], list[TraceRow]], list[DiffRow]]
_DIFFS: dict[str, Differ] = {"items": diff, "events": event_diff}


def _diff_object(a: list[TraceRow], b: list[TraceRow], compare: Differ) -> bytes:
    rows = b",".join([msgspec.json.encode(row) for row in compare(a, b)])
    return b'{"object":"list","data":[%b]}' % rows


async def _stored_lines(trace: ResponseTrace, after: int) -> AsyncIterator[bytes]:
    def lines(rows: Iterable[TraceRow]) -> bytes:
        return b"".join(row_line(row) for row in rows if row.row > after)

    async for rows in trace.rows():
        yield await offload_inspection(lines, rows)


async def read_capture(scope: Scope, receive: Receive) -> bytes:
    """The bytes of an uploaded capture. Raises HttpRejection, RequestAborted."""
    length = headers_of(scope).get(b"content-length")
    try:
        return await bodies.read(receive, length, MAX_UPLOAD)
    except HttpRejection:
        message = (
            f"the capture is larger than {MAX_UPLOAD} bytes; use the command line for it: "
            "weft trace CAPTURE"
        )
        raise HttpRejection(413, new_error("too-large", message)) from None


def _tracer(raw: bytes, query: Query) -> CaptureTracer:
    """Raises BadRequest."""
    source, target = dialect_param(query, "from"), dialect_param(query, "as")
    source = source or detected(raw)
    context = Context(quirks=quirks_param(query, source))
    return CaptureTracer(source, target, context=context, limit=max(len(raw), 1))


def detected(raw: bytes, path: str = "from") -> DialectName:
    """The dialect of a capture. Raises BadRequest."""
    try:
        return detect(raw)
    except Unreadable as problem:
        raise BadRequest(path, str(problem)) from None


def dialect_param(query: Query, name: str) -> DialectName | None:
    """A dialect of the query, if it is there. Raises BadRequest."""
    value = text_param(query, name)
    if value is None:
        return None
    try:
        return dialect_named(value).name
    except ClientError as problem:
        raise BadRequest(name, str(problem)) from None


def quirks_param(query: Query, dialect: DialectName) -> Quirks | None:
    """The quirks that the query names. Raises BadRequest."""
    text = text_param(query, "quirks")
    try:
        return None if text is None else parse_quirks(text, dialect)
    except Unreadable as problem:
        raise BadRequest("quirks", str(problem)) from None


async def _lines(tracer: CaptureTracer, raw: bytes, after: int) -> AsyncIterator[bytes]:
    def lines(rows: Callable[[], Iterable[TraceRow]]) -> bytes:
        return b"".join(row_line(row) for row in rows() if row.row > after)

    for piece in _pieces(raw):
        yield await offload_inspection(lines, partial(tracer.feed, piece))
    yield await offload_inspection(lines, tracer.finish)


async def send_lines(
    scope: Scope, send: Send, lines: AsyncIterator[bytes], about: http_response.Headers
) -> None:
    """Streams lines of JSON."""
    watcher = DisconnectWatcher(scope[EXCHANGE])
    headers = [*NDJSON_HEADERS, *about, *http_response.weft_headers(scope["weft.id"])]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    try:
        async for data in lines:
            for one in http_response.slices(data):
                await send({"type": "http.response.body", "body": one, "more_body": True})
                await http_response.let_others_run(one)
        await send({"type": "http.response.body", "body": b""})
    except asyncio.CancelledError:
        if not watcher.disconnected:
            raise
    finally:
        watcher.stop()
