"""What a client asked, and what each target is asked for it."""

import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from msgspec import Raw

from weft.codec import Translated
from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.faults import ErrorClass, fault
from weft.dialects.openai_responses.quirks import ResponsesQuirks
from weft.dialects.requests import Loss, Losses, RequestCodec, keys_of
from weft.errors import BadRequest, InternalError, Refused
from weft.ids import Ids
from weft.parts import ErrorPart, Json
from weft.relay.reasoning import CallState, restored
from weft.relay.routing import Target
from weft.request import AnyContent, CallContent, Message, ReasoningContent, Request
from weft.upstream.base import Outgoing, Place, endpoint

RESPONSES = "openai-responses"
WAITING = "required_action"
"""What clients include who want to be told which outputs an answer waits for."""

_ITEM = re.compile(r"input\[(\d+)\]")
_replace = msgspec.structs.replace
_json = msgspec.json.Encoder().encode


class Failed(Exception):
    """A request that ends without an answer: `error` is what its client is told."""

    def __init__(self, error: ErrorPart) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may hold, and what its answer may take."""

    response: int = 64 * 1024 * 1024
    duration: float = 1800.0
    grace: float = 1.0
    """Seconds to wait for usage once the upstream told why it ends."""

    messages: int = 10_000
    tools: int = 512
    schema: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Kept:
    """What to remember of a request beside its answer."""

    request: bytes
    """The client's body, as it came."""

    input: bytes = b"[]"
    """The items of this turn: a JSON array."""

    visible: bool = True
    """Whether the answer may be retrieved."""

    key: str | None = None
    """What it is stored under, where that is not the id that the client is told."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as it came; where it goes on from an earlier one, with all that was said."""

    dialect: str
    body: bytes
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

    resumable: bool = False
    """Whether the client wants events with ids, to resume from."""

    kept: Kept | None = None
    """What is stored with the answer; None: it is not stored."""

    tool_session: bool = False
    """An answer that waits for tool outputs says so, whether the client asked for that or not."""

    @property
    def is_ours(self) -> bool:
        """Whether the answer tells what no upstream knows: its id, or what it goes on from."""
        return self.background or bool(self.previous or self.conversation or self.response_id)


@dataclass(frozen=True, slots=True)
class Question:
    """The request for one target, and how to read and tell its answer."""

    target: Target
    request: Request
    translated: Translated
    reading: Context
    """For the decoder: proofs are this upstream's."""

    telling: Context
    """For the encoder: proofs travel sealed."""

    own: bool = False
    """Whether the answer tells what the upstream does not know: an id, what it goes on from, what
    it waits for."""

    @property
    def place(self) -> Place:
        return self.target.upstream.place

    @property
    def warnings(self) -> list[Loss]:
        return [loss for loss in self.translated.losses if loss.outcome == "warned"]

    @property
    def changed(self) -> bool:
        """Whether the answer must be changed before the client may see it."""
        rendered = self.translated.rendered
        return bool(self.own or rendered.names or rendered.bridged or rendered.stop)

    def outgoing(self, asked: Asked, body: bytes | None = None) -> Outgoing:
        place = self.place
        path = endpoint(place.dialect, self.target.model, asked.stream)
        accept = "text/event-stream" if asked.stream else "application/json"
        headers = {"accept": accept, **passed_on(asked, place)}
        return Outgoing(path, self.translated.body if body is None else body, headers)


def passed_on(asked: Asked, place: Place) -> dict[str, str]:
    """The headers of a client that go on to an upstream: the version to its own wire, the beta
    flags to the wire that has them, as far as the host takes them.
    """
    version = asked.version if asked.dialect == place.dialect else None
    betas: list[str] = []
    if place.dialect == "anthropic-messages":
        betas = [flag for flag in asked.betas if place.betas is None or flag in place.betas]
    told = {"anthropic-version": version, "anthropic-beta": ",".join(betas)}
    return {name: value for name, value in told.items() if value}


def codec_of(dialect: str) -> RequestCodec:
    codec = DIALECTS[dialect].request
    if codec is None:
        raise InternalError(f"{dialect} has no requests")
    return codec


def question(
    asked: Asked,
    target: Target,
    limits: Limits,
    states: Mapping[str, CallState] = {},
    *,
    thoughtless: bool = False,
) -> Question:
    """Returns what a target is asked; raises Failed if it cannot be.

    `states` are put back to the calls that lack them. `thoughtless` leaves out all reasoning of
    earlier turns: its proofs were refused.
    """
    place = target.upstream.place
    same = place.dialect == asked.dialect
    ids = Ids(secrets.token_bytes(16))
    # A proof that came bare was shown to the client by an upstream of its own dialect.
    bare = Context(ids=ids, origin=place.origin if same else None)
    now = int(time.time())
    context = Context(ids=ids, now=now, quirks=place.quirks, origin=place.origin)
    losses = Losses()
    try:
        parsed = codec_of(asked.dialect).parse(asked.body, bare)
        found = restored(_checked(parsed.request, limits), states)
        found.place(parsed.places)
        losses.found += found.losses
        request = found.request
        if asked.betas:
            request = _replace(request, betas=asked.betas)
        if thoughtless:
            request = _replace(request, messages=tuple(map(_thoughtless, request.messages)))
        betas = request.betas if place.dialect == "anthropic-messages" else ()
        sent = _replace(request, model=target.model, stream=asked.stream, betas=betas)
        rendered = codec_of(place.dialect).render(sent, context, losses)
    except BadRequest as problem:
        shown = type(problem)(_in_own_body(problem.path, asked), problem.reason)
        raise Failed(bad_request(shown)) from None
    differences = [
        Loss(_in_own_body(parsed.places.source(one.path), asked), one.outcome, one.detail)
        for one in losses.found
    ]
    if thoughtless:
        detail = "the upstream refused the proofs of earlier reasoning: left out"
        differences.append(Loss(parsed.places.source("messages"), "warned", detail))
    _reject(asked, place, differences)
    request = _as_asked(request, asked)
    accent = ResponsesQuirks(tool_session=True) if asked.tool_session else None
    waiting = asked.dialect == RESPONSES and (asked.tool_session or WAITING in request.include)
    return Question(
        target,
        request,
        Translated(request, rendered, tuple(differences)),
        Context(request, place.quirks, ids, now, origin=place.origin),
        Context(request, accent, ids, now, response_id=asked.response_id),
        asked.is_ours or waiting,
    )


def _as_asked(request: Request, asked: Asked) -> Request:
    """What was asked, as the answer tells it again: with what is looked after here."""
    request = _replace(request, model=asked.model, stream=asked.stream)
    if asked.is_ours:
        request = _replace(
            request, background=asked.background, previous_response_id=asked.previous
        )
    if asked.conversation is not None:
        request = _replace(request, extra=_naming(request.extra, asked.conversation))
    if asked.kept is not None and request.store is None:
        request = _replace(request, store=True)
    return request


def _in_own_body(path: str, asked: Asked) -> str:
    """A path in the body that the client sent, which may be a part of the one that was read."""
    found = _ITEM.match(path) if asked.before else None
    if found is None:
        return path
    number = int(found[1]) - asked.before
    if number < 0:
        return "conversation" if asked.previous is None else "previous_response_id"
    return f"input[{number}]{path[found.end() :]}"


def _naming(extra: Json, conversation: str) -> Json:
    """What only the client's wire says, and the conversation that was looked up here."""
    return Raw(_json({**keys_of(extra), "conversation": conversation}))


def _checked(request: Request, limits: Limits) -> Request:
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


def _thoughtless(message: Message) -> Message:
    """A message without what was thought, and without the proofs of its calls."""
    kept = (one for one in message.content if not isinstance(one, ReasoningContent))
    return _replace(message, content=tuple(map(_unsigned, kept)))


def _unsigned(content: AnyContent) -> AnyContent:
    if isinstance(content, CallContent) and content.signature is not None:
        return _replace(content, signature=None, origin=None)
    return content


def _reject(asked: Asked, place: Place, losses: list[Loss]) -> None:
    worst = [loss for loss in losses if loss.outcome == "refused"]
    if asked.reject_lossy:
        worst += [loss for loss in losses if loss.outcome == "warned"]
    if worst:
        loss = worst[0]
        message = f"{loss.path}: {loss.detail} ({place.name} speaks {place.dialect})"
        raise Failed(fault("unsupported", message, param=loss.path))


def bad_request(problem: BadRequest) -> ErrorPart:
    """The error that a client is told about its own body."""
    found: ErrorClass = "unsupported" if isinstance(problem, Refused) else "bad-request"
    return fault(found, str(problem), param=problem.path or None)
