"""What each target is asked: the client's request, rendered in the target's dialect."""

import secrets
import time
from dataclasses import dataclass

import msgspec
from msgspec import Raw

from weft.codec import Translated
from weft.context import Context
from weft.dialects import DIALECTS, http_of
from weft.dialects.base import Dialect
from weft.dialects.error_classes import new_error
from weft.dialects.openai_responses.quirks import ResponsesQuirks
from weft.dialects.requests.codec import Loss, Losses
from weft.dialects.requests.fields import fields_of
from weft.errors import BadRequest
from weft.ids import Ids
from weft.parts import Json
from weft.relay.incoming import IncomingRequest, RequestFailed, bad_request, codec_of
from weft.relay.reasoning import Restored
from weft.relay.routing import Target
from weft.request import (
    AnyContent,
    CallContent,
    Message,
    ReasoningContent,
    Request,
)
from weft.upstream.base import OutgoingRequest, UpstreamConfig, endpoint

REQUIRED_ACTION = "required_action"
"""What clients include who want to be told which outputs an answer waits for."""

_replace = msgspec.structs.replace
_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """The request for one target, and how to read its answer and tell it to the client."""

    incoming: IncomingRequest
    target: Target
    request: Request
    """As the answer tells it again."""

    translated: Translated
    decoding: Context
    """Proofs are this upstream's."""

    encoding: Context
    """Proofs travel in an envelope; the response has an id of ours."""

    is_changed: bool = False
    """Whether the answer tells what the upstream does not know: an id, what it goes on from, what
    it waits for."""

    @property
    def place(self) -> UpstreamConfig:
        return self.target.upstream.config

    @property
    def dialect(self) -> Dialect:
        """The upstream's."""
        return DIALECTS[self.place.dialect]

    @property
    def warnings(self) -> list[Loss]:
        return [loss for loss in self.translated.losses if loss.outcome == "warned"]

    @property
    def passes(self) -> bool:
        """Whether the client may see the upstream's own answer."""
        rendered = self.translated.rendered
        changed = self.is_changed or rendered.names or rendered.bridged or rendered.stop
        return self.dialect is self.incoming.dialect and not changed

    def outgoing(self, body: bytes | None = None) -> OutgoingRequest:
        incoming, place = self.incoming, self.place
        path = endpoint(place.dialect, self.target.model, incoming.stream)
        accept = "text/event-stream" if incoming.stream else "application/json"
        headers = {"accept": accept, **forwarded_headers(incoming, place)}
        return OutgoingRequest(path, self.translated.body if body is None else body, headers)


def forwarded_headers(incoming: IncomingRequest, place: UpstreamConfig) -> dict[str, str]:
    """The headers of a client that go on to an upstream: the version to its own wire, the beta
    flags to the wire that has them, as far as the host takes them.
    """
    api = http_of(place.dialect)
    version = incoming.version if incoming.body.dialect == place.dialect else None
    betas = [flag for flag in incoming.betas if place.betas is None or flag in place.betas]
    headers = ((api.version, version), (api.betas, ",".join(betas)))
    return {name: value for name, value in headers if name and value}


def translate(
    incoming: IncomingRequest,
    restored: Restored,
    target: Target,
    *,
    without_reasoning: bool = False,
) -> UpstreamRequest:
    """Returns what a target is asked; raises RequestFailed if it cannot be.

    `restored` is what was read of the incoming one. `without_reasoning` leaves out all reasoning of
    earlier turns: the upstream refused its proofs.
    """
    place = target.upstream.config
    ids, now = Ids(secrets.token_bytes(16)), int(time.time())
    losses = Losses()
    losses.found += restored.losses
    request = restored.request
    sent = _addressed(incoming, request, target)
    if without_reasoning:
        sent = _replace(sent, messages=tuple(map(_without_reasoning, sent.messages)))
    context = Context(ids=ids, now=now, quirks=place.quirks, origin=place.origin)
    try:
        rendered = codec_of(place.dialect).render(sent, context, losses)
    except BadRequest as problem:
        named = type(problem)(incoming.client_path(problem.path), problem.reason)
        raise RequestFailed(bad_request(named)) from None
    found = _named(incoming, losses)
    if without_reasoning:
        detail = "dropped all earlier reasoning: the upstream refused its signatures"
        found.append(Loss(incoming.body.parsed.source_paths.source("messages"), "warned", detail))
    shown = _as_asked(request, incoming)
    accent = None
    if is_retrievable(incoming):
        accent = ResponsesQuirks(tool_session=True) if incoming.tool_session else None
    elif REQUIRED_ACTION in request.include:
        detail = "left out: nobody can submit outputs to a response that is not stored"
        found.append(Loss(incoming.body.parsed.source_paths.source("include"), "warned", detail))
    _reject(incoming, place, found)
    created = incoming.created if incoming.response_id is not None else None
    response_id = incoming.response_id or incoming.dialect.new_id(ids)
    return UpstreamRequest(
        incoming,
        target,
        shown,
        Translated(shown, rendered, tuple(found)),
        Context(shown, place.quirks, ids, now, origin=place.origin),
        Context(shown, accent, ids, now, response_id=response_id, created=created),
        incoming.is_stateful or accent is not None or REQUIRED_ACTION in shown.include,
    )


def _addressed(incoming: IncomingRequest, request: Request, target: Target) -> Request:
    """A request as it goes to this target: about its model."""
    place = target.upstream.config
    takes_betas = http_of(place.dialect).betas is not None
    betas = (request.betas or incoming.betas) if takes_betas else ()
    return _replace(request, model=target.model, stream=incoming.stream, betas=betas)


def _named(incoming: IncomingRequest, losses: Losses) -> list[Loss]:
    """The losses, by the paths of the body that the client sent."""
    source = incoming.body.parsed.source_paths.source
    return [
        Loss(incoming.client_path(source(one.path)), one.outcome, one.detail)
        for one in losses.found
    ]


def _as_asked(request: Request, incoming: IncomingRequest) -> Request:
    """What was asked, as the answer tells it again: with what is looked after here."""
    request = _replace(request, model=incoming.model, stream=incoming.stream)
    if incoming.is_stateful:
        request = _replace(
            request, background=incoming.background, previous_response_id=incoming.previous
        )
    if incoming.conversation is not None:
        request = _replace(request, extra=_with_conversation(request.extra, incoming.conversation))
    if incoming.store is not None and request.store is None:
        request = _replace(request, store=True)
    if REQUIRED_ACTION in request.include and not is_retrievable(incoming):
        include = tuple(one for one in request.include if one != REQUIRED_ACTION)
        request = _replace(request, include=include)
    return request


def is_retrievable(incoming: IncomingRequest) -> bool:
    """Whether the answer is stored, and its client may ask for it."""
    return incoming.store is not None and incoming.store.visible


def _with_conversation(extra: Json, conversation: str) -> Json:
    """What only the client's wire says, and the conversation that was looked up here."""
    return Raw(_json({**fields_of(extra), "conversation": conversation}))


def _without_reasoning(message: Message) -> Message:
    """A message without what was thought, and without the proofs of its calls."""
    kept = (one for one in message.content if not isinstance(one, ReasoningContent))
    return _replace(message, content=tuple(map(_unsigned, kept)))


def _unsigned(content: AnyContent) -> AnyContent:
    if isinstance(content, CallContent) and content.signature is not None:
        return _replace(content, signature=None, origin=None)
    return content


def _reject(incoming: IncomingRequest, place: UpstreamConfig, losses: list[Loss]) -> None:
    worst = [loss for loss in losses if loss.outcome == "refused"]
    if incoming.reject_lossy:
        worst += [loss for loss in losses if loss.outcome == "warned"]
    if worst:
        loss = worst[0]
        message = f"{loss.path}: {loss.detail} ({place.name} speaks {place.dialect})"
        raise RequestFailed(new_error("unsupported", message, param=loss.path))
