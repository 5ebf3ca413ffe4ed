"""A request as it came: read once, whatever targets are tried for it."""

import re
import secrets
from dataclasses import dataclass

from msgspec import Raw

from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.base import Dialect
from weft.dialects.error_classes import ErrorClass, new_error
from weft.dialects.requests.codec import Parsed, RequestCodec
from weft.errors import BadRequest, InternalError, Refused
from weft.ids import Ids
from weft.parts import ErrorPart
from weft.request import Request

_ITEM = re.compile(r"input\[(\d+)\]")


class RequestFailed(Exception):
    """A request that ends without an answer: `error` is what its client is told."""

    def __init__(self, error: ErrorPart) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What one request may hold, and what its answer may take."""

    response: int = 64 * 1024 * 1024
    duration: float = 1800.0
    grace: float = 1.0
    """Seconds to wait for usage once the upstream told why it ends."""

    messages: int = 10_000
    tools: int = 512
    schema: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StorePolicy:
    """What is stored of a request beside its answer."""

    request: bytes
    """The client's body, as it came."""

    input: bytes = b"[]"
    """The items of this turn: a JSON array."""

    visible: bool = True
    """Whether the answer may be retrieved."""

    key: str | None = None
    """What it is stored under, where that is not the id that the client is told."""


class RequestBody:
    """The body of a request. It is parsed when it is first asked for, and never again."""

    def __init__(self, dialect: str, raw: bytes) -> None:
        self.dialect = dialect
        self.raw = raw
        self._parsed: Parsed | None = None

    @property
    def parsed(self) -> Parsed:
        """Raises BadRequest."""
        if self._parsed is None:  # no cached_property: that locks one body for all of them
            context = Context(ids=Ids(secrets.token_bytes(16)))
            self._parsed = codec_of(self.dialect).parse(self.raw, context)
        return self._parsed


@dataclass(frozen=True, slots=True)
class IncomingRequest:
    """One request; where it goes on from an earlier one, with all that was said."""

    body: RequestBody
    model: str
    """As the client named it."""

    stream: bool
    betas: tuple[str, ...] = ()
    version: str | None = None
    """Of the client's wire, where that has versions."""

    id: str = ""
    caller: str = ""
    """The name of the key that asked."""

    reject_lossy: bool = False
    previous: str | None = None
    """The response it goes on from."""

    conversation: str | None = None
    before: int = 0
    """How many items of the input were said in earlier turns."""

    background: bool = False
    """The answer is wanted whether the client waits for it or not."""

    response_id: str | None = None
    """The id that the answer has, if that was given already."""

    created: int | None = None
    """The time that the answer tells, if it began here before an upstream was asked."""

    resumable: bool = False
    """Whether the client wants events with ids, to resume from."""

    store: StorePolicy | None = None
    """What is stored with the answer; None: it is not stored."""

    tool_session: bool = False
    """An answer that waits for tool outputs says so, whether the client asked for that or not."""

    @property
    def dialect(self) -> Dialect:
        return DIALECTS[self.body.dialect]

    @property
    def is_stateful(self) -> bool:
        """Whether the answer tells what no upstream knows: its id, or what it goes on from."""
        return self.background or bool(self.previous or self.conversation or self.response_id)

    def checked(self, limits: RequestLimits) -> Request:
        """What was asked. Raises RequestFailed if it cannot be read, or is too much."""
        try:
            return _within(self.body.parsed.request, limits)
        except BadRequest as problem:
            shown = type(problem)(self.client_path(problem.path), problem.reason)
            raise RequestFailed(bad_request(shown)) from None

    def client_path(self, path: str) -> str:
        """A path in the body that the client sent, which may be a part of the one that was read."""
        found = _ITEM.match(path) if self.before else None
        if found is None:
            return path
        number = int(found[1]) - self.before
        if number < 0:
            return "conversation" if self.previous is None else "previous_response_id"
        return f"input[{number}]{path[found.end() :]}"


def codec_of(dialect: str) -> RequestCodec:
    codec = DIALECTS[dialect].request
    if codec is None:
        raise InternalError(f"{dialect} has no requests")
    return codec


def _within(request: Request, limits: RequestLimits) -> Request:
    """Raises BadRequest for a request that is more than one, or too much of one."""
    if request.choices > 1:
        raise Refused("n", f"{request.choices} answers to one request; expected 1")
    schemas = [*(tool.parameters for tool in request.tools), request.output.schema]
    largest = max(len(bytes(one)) if isinstance(one, Raw) else 0 for one in schemas)
    for path, count, most in (
        ("messages", len(request.messages), limits.messages),
        ("tools", len(request.tools), limits.tools),
        ("schema", largest, limits.schema),
    ):
        if count > most:
            raise BadRequest(path, f"{count}; expected at most {most}")
    return request


def bad_request(problem: BadRequest) -> ErrorPart:
    """The error that a client is told about its own body."""
    found: ErrorClass = "unsupported" if isinstance(problem, Refused) else "bad-request"
    return new_error(found, str(problem), param=problem.path or None)
