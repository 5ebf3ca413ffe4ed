"""`POST /v1/messages/count_tokens` and `POST /v1/responses/input_tokens`: the tokens of a request.

They are counted by the upstream if it can, otherwise estimated; a header says so.
"""

import asyncio
from typing import ClassVar

import msgspec

from weft.dialects.error_classes import new_error
from weft.gateway import http_response
from weft.gateway.apis import RESPONSES
from weft.gateway.bodies import RequestAborted
from weft.gateway.endpoints import Endpoint, GatewayContext, Receive, Scope, Send, decode_body
from weft.gateway.memory import RESERVED
from weft.gateway.sessions import Sessions, parse_preamble
from weft.relay.incoming import IncomingRequest, RequestFailed
from weft.relay.offload import for_body
from weft.relay.reasoning import Restored
from weft.relay.routing import Routing, Target, UnknownModel
from weft.relay.translation import forwarded_headers, translate
from weft.upstream.base import OutgoingRequest, Unreachable, Upstream

PER_TOKEN = 4
"""Characters of text per token, about."""

_ESTIMATED = (b"weft-findings", b"warned:estimated")
_READ = 64 * 1024
_UNCOUNTED = frozenset(
    ("data", "type", "model", "image_url", "file_data", "signature", "encrypted_content")
)
"""Keys whose values are not text for the model: images, files, signatures, and names."""

_COUNTABLE = frozenset(
    (
        "model",
        "input",
        "instructions",
        "parallel_tool_calls",
        "previous_response_id",
        "reasoning",
        "text",
        "tool_choice",
        "tools",
        "truncation",
    )
)
"""Fields of a Responses request that a request for its tokens may have."""

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _Count(msgspec.Struct):
    input_tokens: int


_count = msgspec.json.Decoder(_Count).decode


class CountTokens(Endpoint):
    """Asks the upstream, if it has the same dialect."""

    PATH = "/v1/messages/count_tokens"
    """The path at the upstream."""

    FIELDS: ClassVar[dict[str, str]] = {}
    """Further fields of the response."""

    def __init__(self, gateway: GatewayContext, routing: Routing, dialect: str) -> None:
        super().__init__(gateway, dialect)
        self._routing = routing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        about = http_response.weft_headers(scope["weft.id"])
        try:
            incoming = await self._receive_request(scope, receive)
            self._gateway.check_model(incoming.caller, incoming.model)
            try:
                target = self._routing.targets(incoming.model)[0]
            except UnknownModel as problem:
                raise RequestFailed(new_error("not-found", str(problem), param="model")) from None
            config = target.upstream.config
            # Only the first target is used: another model would count differently.
            body = await for_body(incoming.body.raw, self._body_to_count, incoming, target)
            data, more = None, [(b"weft-upstream", config.name.encode())]
            if config.dialect == self._dialect:
                outgoing = OutgoingRequest(self.PATH, body, forwarded_headers(incoming, config))
                data = await _ask_upstream(target.upstream, outgoing)
            if data is None:
                count = await for_body(body, _estimate, body)
                data, more = (
                    msgspec.json.encode({**self.FIELDS, "input_tokens": count}),
                    [_ESTIMATED],
                )
        except RequestAborted:
            return
        except RequestFailed as failed:
            await http_response.send_error(send, self._dialect, failed, about)
        else:
            await http_response.send_json(send, scope["weft.id"], data, more)

    async def validate(self, incoming: IncomingRequest) -> None:
        """A request to count need not be complete: it may lack `max_tokens`, for example."""

    def _body_to_count(self, incoming: IncomingRequest, target: Target) -> bytes:
        """The request, with the upstream's name of the model."""
        model = msgspec.Raw(msgspec.json.encode(target.model))
        return msgspec.json.encode(_fields(incoming.body.raw) | {"model": model})


class InputTokens(CountTokens):
    """The same for a Responses request, with the turns that it continues. The estimate is of the
    request that the upstream would get.
    """

    # Below a base URL that ends with /v1; that of Messages ends before it.
    PATH = "/responses/input_tokens"
    FIELDS: ClassVar[dict[str, str]] = {"object": "response.input_tokens"}

    def __init__(
        self, gateway: GatewayContext, routing: Routing, sessions: Sessions | None
    ) -> None:
        super().__init__(gateway, routing, RESPONSES)
        self._sessions = sessions

    async def parse_request(self, scope: Scope, body: bytes) -> IncomingRequest:
        preamble = await for_body(body, decode_body, parse_preamble, body)
        incoming = self._build_request(
            scope, body, self._model_name(preamble), bool(preamble.stream)
        )
        if self._sessions is None:
            return incoming
        return await self._sessions.with_history(incoming, preamble, scope.get(RESERVED))

    def _body_to_count(self, incoming: IncomingRequest, target: Target) -> bytes:
        request = Restored(incoming.checked(self._gateway.limits))
        body = translate(incoming, request, target).translated.body
        if target.upstream.config.dialect != self._dialect:
            return body
        countable = {name: one for name, one in _fields(body).items() if name in _COUNTABLE}
        return msgspec.json.encode(countable)


async def _ask_upstream(upstream: Upstream, outgoing: OutgoingRequest) -> bytes | None:
    """Returns the response of the upstream; None if it cannot count."""
    try:
        incoming = await upstream.send(outgoing)
    except Unreachable:
        # An estimate is better than an error: the count is only advice.
        return None
    data = b""
    try:
        async with asyncio.timeout(upstream.config.timeouts.between_events):
            while len(data) < _READ and (more := await incoming.read()):
                data += more
        _count(data)  # some upstreams answer 200 on any path
        return data if incoming.status == 200 else None
    except (Unreachable, TimeoutError, ValueError):
        return None
    finally:
        # The response may be longer than was read: its connection is not reused.
        incoming.abort()


def _estimate(body: bytes) -> int:
    """About how many tokens a request has."""
    return max(1, sum(map(len, _texts(msgspec.json.decode(body)))) // PER_TOKEN)


def _texts(value: object) -> list[str]:
    """All texts of a body that count."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    if isinstance(value, dict):
        inner = {key: one for key, one in value.items() if key not in _UNCOUNTED}
        return [text for one in inner.values() for text in _texts(one)]
    return []
