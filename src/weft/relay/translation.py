"""Renders the client's request in the dialect of a target."""

import os
import time

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
from weft.relay.incoming import IncomingRequest, RequestFailed, api_of
from weft.relay.reasoning import Restored
from weft.relay.routing import Target
from weft.relay.trace_context import TRACEPARENT, TraceContext
from weft.request import (
    AnyContent,
    CallContent,
    Message,
    ReasoningContent,
    Request,
)
from weft.upstream.base import OutgoingRequest, UpstreamConfig, endpoint

REQUIRED_ACTION = "required_action"
"""The `include` value of clients that want to know which tool outputs a response waits for."""

RUN = "weft_run"
"""The key in the metadata of an agent's response that names its run."""

RUN_HEADER = "weft-run"
"""The same as a header: from the upstream of the agents, and to clients."""

_replace = msgspec.structs.replace
_json = msgspec.json.Encoder().encode


class UpstreamRequest(msgspec.Struct, frozen=True):
    """The request for one target, and how to decode its response and encode it for the client."""

    incoming: IncomingRequest
    target: Target
    config: UpstreamConfig
    dialect: Dialect
    """The upstream's."""

    request: Request
    """The request as the response repeats it."""

    translated: Translated
    decoding: Context
    """Reasoning state gets the origin of this upstream."""

    encoding: Context
    """Reasoning state is wrapped in an envelope; the response has an id of ours."""

    is_changed: bool = False
    """Whether the response shows what the upstream does not know: an id, the response it continues,
    a required action."""

    trace: TraceContext | None = None
    """The span of this attempt, if the request is traced."""

    @property
    def passes(self) -> bool:
        """Whether the response of the upstream may be passed through."""
        rendered = self.translated.rendered
        # What was changed in the request has to be changed back in the response: names of tools,
        # tools that became functions, stop sequences that are cut here.
        changed = self.is_changed or rendered.names or rendered.bridged or rendered.stop
        return self.dialect is self.incoming.body.row and not changed

    def of_run(self, run: str) -> "UpstreamRequest":
        """The request to an agent that was answered by this run: the response names it."""
        named = _replace(self.request, metadata={**(self.request.metadata or {}), RUN: run})
        return _replace(self, request=named, encoding=_replace(self.encoding, request=named))

    def outgoing(self, body: bytes | None = None) -> OutgoingRequest:
        incoming, config = self.incoming, self.config
        path = endpoint(config.dialect, self.target.model, incoming.stream)
        accept = "text/event-stream" if incoming.stream else "application/json"
        headers = {"accept": accept, **forwarded_headers(incoming, config)}
        if self.trace is not None:
            headers[TRACEPARENT] = self.trace.traceparent
        body = self.translated.body if body is None else body
        # A background response may be asked for again, by another process.
        key = incoming.response_id if incoming.background else None
        return OutgoingRequest(
            path,
            body,
            headers,
            incoming.caller,
            key,
            incoming.idempotency_key,
            client=incoming.body.row.name,
        )


def forwarded_headers(incoming: IncomingRequest, config: UpstreamConfig) -> dict[str, str]:
    """The headers of a client that are forwarded to an upstream: the API version if the dialect is
    the same, and the beta flags that the upstream accepts.
    """
    if incoming.version is None and not incoming.betas:
        return {}
    api = http_of(config.dialect)
    version = incoming.version if incoming.body.dialect == config.dialect else None
    betas = [flag for flag in incoming.betas if config.betas is None or flag in config.betas]
    headers = ((api.version, version), (api.betas, ",".join(betas)))
    return {name: value for name, value in headers if name and value}


def translate(
    incoming: IncomingRequest,
    restored: Restored,
    target: Target,
    *,
    without_reasoning: bool = False,
) -> UpstreamRequest:
    """Returns the request for a target. Raises RequestFailed if it cannot be rendered.

    `restored` is the parsed request. `without_reasoning` drops all reasoning of earlier turns: the
    upstream refused its signatures.
    """
    config = target.upstream.config
    # The only randomness and the only clock of a response: codecs get both from their context.
    ids, now = Ids(os.urandom(16)), int(time.time())
    losses = Losses()
    if restored.calls:
        losses.found += restored.losses
    request = restored.request
    # To other dialects the flags mean nothing: their renderers would report each as a loss.
    takes_betas = http_of(config.dialect).betas is not None
    betas = (request.betas or incoming.betas) if takes_betas else ()
    sent = _replace(request, model=target.model, stream=incoming.stream, betas=betas)
    if without_reasoning:
        sent = _replace(sent, messages=tuple(map(_without_reasoning, sent.messages)))
    context = Context(ids=ids, now=now, quirks=config.quirks, origin=config.origin)
    try:
        rendered = api_of(config.dialect).request.render(sent, context, losses)
    except BadRequest as problem:
        raise incoming.failed(problem) from None
    found = client_losses(incoming, request, losses, without_reasoning=without_reasoning)
    # Only here: what is lost is known when the request is rendered, for this target alone.
    _check_losses(incoming, config, found)
    repeated = _as_repeated(request, incoming)
    has_session = incoming.tool_session and is_retrievable(incoming)
    quirks = ResponsesQuirks(tool_session=True) if has_session else None
    # An announced response has shown its creation time already.
    created = incoming.created if incoming.response_id is not None else None
    response_id = incoming.response_id or incoming.body.row.new_id(ids)
    return UpstreamRequest(
        incoming,
        target,
        config,
        DIALECTS[config.dialect],
        repeated,
        Translated(repeated, rendered, tuple(found)),
        # Two contexts: the quirks are the upstream's and belong to the decoder, the id is the
        # client's and belongs to the encoder.
        Context(repeated, config.quirks, ids, now, origin=config.origin),
        Context(repeated, quirks, ids, now, response_id=response_id, created=created),
        incoming.is_stateful or quirks is not None or REQUIRED_ACTION in repeated.include,
    )


def client_losses(
    incoming: IncomingRequest, request: Request, losses: Losses, *, without_reasoning: bool
) -> list[Loss]:
    """Returns what gets lost, with the paths of the client's own body."""
    source = incoming.body.parsed.source_paths.source
    found = [
        Loss(incoming.client_path(source(one.path)), one.outcome, one.detail)
        for one in losses.found
    ]
    if without_reasoning:
        # Reported, since it may change the answer.
        detail = "dropped all earlier reasoning: the upstream refused its signatures"
        found.append(Loss(source("messages"), "warned", detail))
    if REQUIRED_ACTION in request.include and not is_retrievable(incoming):
        detail = "dropped: outputs cannot be submitted to a response that is not stored"
        found.append(Loss(source("include"), "warned", detail))
    return found


def _as_repeated(request: Request, incoming: IncomingRequest) -> Request:
    """The request as the response repeats it: with the state that the gateway adds."""
    request = _replace(request, model=incoming.model, stream=incoming.stream)
    if incoming.is_stateful:
        request = _replace(
            request, background=incoming.background, previous_response_id=incoming.previous
        )
    if incoming.conversation is not None:
        extra = {**fields_of(request.extra), "conversation": incoming.conversation}
        request = _replace(request, extra=Raw(_json(extra)))
    if incoming.store is not None and request.store is None:
        request = _replace(request, store=True)
    if REQUIRED_ACTION in request.include and not is_retrievable(incoming):
        include = tuple(one for one in request.include if one != REQUIRED_ACTION)
        request = _replace(request, include=include)
    return request


def is_retrievable(incoming: IncomingRequest) -> bool:
    """Whether the response is stored and its client may retrieve it."""
    return incoming.store is not None and incoming.store.visible


def _without_reasoning(message: Message) -> Message:
    """The message without reasoning, and without the signatures of its calls."""
    kept = (one for one in message.content if not isinstance(one, ReasoningContent))
    return _replace(message, content=tuple(map(_unsigned, kept)))


def _unsigned(content: AnyContent) -> AnyContent:
    if isinstance(content, CallContent) and content.signature is not None:
        return _replace(content, signature=None, origin=None)
    return content


def _check_losses(incoming: IncomingRequest, config: UpstreamConfig, losses: list[Loss]) -> None:
    """Raises RequestFailed for a loss that is refused."""
    if not losses:
        return
    worst = [loss for loss in losses if loss.outcome == "refused"]
    if incoming.reject_lossy:
        worst += [loss for loss in losses if loss.outcome == "warned"]
    if worst:
        # One is enough: an error of these APIs has one `param`.
        loss = worst[0]
        message = f"{loss.path}: {loss.detail} ({config.name} speaks {config.dialect})"
        raise RequestFailed(new_error("unsupported", message, param=loss.path))
