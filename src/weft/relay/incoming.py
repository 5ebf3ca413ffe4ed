"""A request from a client: parsed once, however many targets are tried."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import msgspec
from msgspec import Raw

from weft.assembler import Response
from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.base import Dialect
from weft.dialects.error_classes import ErrorClass, ErrorReader, new_error
from weft.dialects.requests.codec import Parsed, RequestCodec
from weft.errors import BadRequest, InternalError, Refused
from weft.findings import Findings
from weft.ids import Ids
from weft.parts import ErrorPart
from weft.relay.trace_context import TraceContext
from weft.request import Request

_ITEM = re.compile(r"input\[(\d+)\]")


class RequestFailed(Exception):
    """A request that ends without a response: `error` is what its client gets."""

    def __init__(self, error: ErrorPart) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of one request and its response: sizes in bytes, times in seconds, counts."""

    response: int = 64 * 1024 * 1024
    duration: float = 1800.0
    grace: float = 1.0
    """Seconds to wait for usage after the finish reason."""

    messages: int = 10_000
    tools: int = 512
    schema: int = 1024 * 1024


class StorePolicy(msgspec.Struct, frozen=True):
    """What is stored of a request beside its response."""

    request: bytes
    """The client's body."""

    input: bytes = b"[]"
    """The items of this turn: a JSON array."""

    visible: bool = True
    """Whether the client may retrieve the response."""

    key: str | None = None
    """The id under which it is stored, if that is not the id that the client sees."""


class RequestBody:
    """The body of a request, parsed on first use."""

    def __init__(self, dialect: str, raw: bytes) -> None:
        self.dialect = dialect
        self.row = DIALECTS[dialect]
        self.raw = raw
        self._parsed: Parsed | None = None
        self.checked_for: RequestLimits | None = None
        """The limits that it is known to keep."""

    @property
    def parsed(self) -> Parsed:
        """Raises BadRequest."""
        if self._parsed is None:  # not a cached_property, which has one lock for all bodies
            context = Context(ids=Ids(os.urandom(16)))
            self._parsed = api_of(self.dialect).request.parse(self.raw, context)
        return self._parsed


class IncomingRequest(msgspec.Struct, frozen=True):
    """One request; if it continues an earlier one, with the items of all turns."""

    body: RequestBody
    model: str
    """The client's name for it."""

    stream: bool
    betas: tuple[str, ...] = ()
    version: str | None = None
    """The API version that the client sent, if its dialect has versions."""

    id: str = ""
    caller: str = ""
    """The name of the client's API key."""

    idempotency_key: str | None = None
    """The client's header of this name; only agents honour it."""

    reject_lossy: bool = False
    previous: str | None = None
    """The response it continues."""

    conversation: str | None = None
    before: int = 0
    """How many items of the input belong to earlier turns."""

    background: bool = False
    """Whether the response is produced even if the client does not wait for it."""

    response_id: str | None = None
    """The id of the response, if it was assigned already."""

    created: int | None = None
    """The creation time of the response, if it was assigned already."""

    resumable: bool = False
    """Whether events have ids from which the client can resume."""

    store: StorePolicy | None = None
    """What is stored with the response; None: it is not stored."""

    traceparent: str = ""
    """The client's header (W3C Trace Context)."""

    trace: TraceContext | None = None
    """The span of this request, if it is traced."""

    tool_session: bool = False
    """Whether a response that waits for tool outputs has a required action even if the client did
    not ask for it."""

    @property
    def dialect(self) -> Dialect:
        return self.body.row

    @property
    def is_stateful(self) -> bool:
        """Whether the response shows state that no upstream knows: its id, or what it continues."""
        return self.background or bool(self.previous or self.conversation or self.response_id)

    def checked(self, limits: RequestLimits) -> Request:
        """The parsed request. Raises RequestFailed if it is invalid or exceeds a limit."""
        try:
            request = self.body.parsed.request
            if self.body.checked_for is not limits:  # the endpoint may have checked it
                _check_limits(request, limits)
                self.body.checked_for = limits
        except BadRequest as problem:
            raise self.failed(problem) from None
        return request

    def failed(self, problem: BadRequest) -> RequestFailed:
        """The error for the client, with the path in its own body."""
        # The same class: Refused becomes another error than BadRequest.
        own = type(problem)(self.client_path(problem.path), problem.reason)
        return RequestFailed(bad_request(own))

    def client_path(self, path: str) -> str:
        """The path in the client's own body, which lacks the items of earlier turns."""
        found = _ITEM.match(path) if self.before else None
        if found is None:
            return path
        # The stored turns stand in front of the client's own items in the body that is parsed.
        number = int(found[1]) - self.before
        if number < 0:
            # The fault is in a stored turn, so the field that brought it in is named.
            return "conversation" if self.previous is None else "previous_response_id"
        return f"input[{number}]{path[found.end() :]}"


class DialectApi(NamedTuple):
    """The parts of a dialect that has requests: all but those that are optional."""

    request: RequestCodec
    body: Callable[[Response, Context, Findings], bytes]
    read_error: ErrorReader
    write_error: Callable[[ErrorPart], tuple[int, bytes]]


@cache
def api_of(dialect: str) -> DialectApi:
    """Raises InternalError for a dialect that has streams only: no request gets here with one."""
    # Checked once, so that nobody who needs these functions has to ask whether they are None.
    row = DIALECTS[dialect]
    if row.request is None or row.body is None or row.read_error is None or row.write_error is None:
        raise InternalError(f"{dialect} has streams only")
    return DialectApi(row.request, row.body, row.read_error, row.write_error)


def _check_limits(request: Request, limits: RequestLimits) -> None:
    """Raises BadRequest if the request wants several choices, or exceeds a limit."""
    # One stream of parts is one response; several would need an index in every part.
    if request.choices > 1:
        raise Refused("n", f"{request.choices} choices are not supported; expected 1")
    schema = request.output.schema
    largest = len(schema) if isinstance(schema, Raw) else 0
    for tool in request.tools:
        if isinstance(tool.parameters, Raw):
            largest = max(largest, len(tool.parameters))
    for path, count, most in (
        ("messages", len(request.messages), limits.messages),
        ("tools", len(request.tools), limits.tools),
        ("schema", largest, limits.schema),
    ):
        if count > most:
            raise BadRequest(path, f"{count}; expected at most {most}")


def bad_request(problem: BadRequest) -> ErrorPart:
    """The error for a client about its own body."""
    found: ErrorClass = "unsupported" if isinstance(problem, Refused) else "bad-request"
    return new_error(found, str(problem), param=problem.path or None)
