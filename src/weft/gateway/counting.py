"""Tokens of a request: counted by the upstream that can, else estimated.

`POST /v1/messages/count_tokens` and `POST /v1/responses/input_tokens`. What is estimated says so
in a header.
"""

import msgspec

from weft.dialects.error_classes import new_error
from weft.gateway import answers
from weft.gateway.bodies import ClientGone
from weft.gateway.endpoints import Endpoint, Host, Receive, Scope, Send, read_as
from weft.gateway.sessions import DIALECT, Sessions, preamble_of
from weft.relay.incoming import IncomingRequest, RequestFailed
from weft.relay.offload import for_body
from weft.relay.reasoning import Restored
from weft.relay.routing import Routing, Target, UnknownModel
from weft.relay.translation import forwarded_headers, translate
from weft.upstream.base import OutgoingRequest, Unreachable, Upstream

PER_TOKEN = 4
"""Bytes of a request's text that are about one token."""

_ESTIMATED = (b"weft-findings", b"warned:estimated")
_READ = 64 * 1024
_UNCOUNTED = frozenset(
    ("data", "type", "model", "image_url", "file_data", "signature", "encrypted_content")
)
"""Keys of what is no text: pictures, files, proofs, and names."""

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
"""Fields of a request for a response that one for its tokens has too."""

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _Count(msgspec.Struct):
    input_tokens: int


_count = msgspec.json.Decoder(_Count).decode


class CountTokens(Endpoint):
    """Asks the upstream if it speaks this dialect."""

    PATH = "/v1/messages/count_tokens"
    """Where an upstream is asked."""

    def __init__(self, host: Host, routing: Routing, dialect: str) -> None:
        super().__init__(host, dialect)
        self._routing = routing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        about = answers.about(scope["weft.id"])
        try:
            incoming = await self._incoming(scope, receive)
            data, more = await self._counted(incoming)
        except ClientGone:
            return
        except RequestFailed as failed:
            await answers.failure(send, self._dialect, failed, about)
        else:
            await answers.body(send, 200, data, [answers.JSON, *about, *more])

    async def _check(self, incoming: IncomingRequest) -> None:
        """What is counted need not be a whole request: it may have no limit, for one."""

    async def _counted(self, incoming: IncomingRequest) -> tuple[bytes, answers.Headers]:
        try:
            target = self._routing.targets(incoming.model)[0]
        except UnknownModel as problem:
            raise RequestFailed(new_error("not-found", str(problem), param="model")) from None
        place = target.upstream.config
        body = await for_body(incoming.body.raw, self._sent, incoming, target)
        if place.dialect == self._dialect:
            outgoing = OutgoingRequest(self.PATH, body, forwarded_headers(incoming, place))
            told = await _told(target.upstream, outgoing)
            if told is not None:
                return told, [(b"weft-upstream", place.name.encode())]
        count = await for_body(body, _estimate, body)
        return self._written(count), [_ESTIMATED]

    def _sent(self, incoming: IncomingRequest, target: Target) -> bytes:
        """What is counted: the same, about the upstream's own model."""
        model = msgspec.Raw(msgspec.json.encode(target.model))
        return msgspec.json.encode(_fields(incoming.body.raw) | {"model": model})

    def _written(self, count: int) -> bytes:
        return msgspec.json.encode({"input_tokens": count})


class InputTokens(CountTokens):
    """The same of a request for a response, with all that it goes on from. What is estimated is
    what the upstream would be asked.
    """

    PATH = "/responses/input_tokens"

    def __init__(self, host: Host, routing: Routing, sessions: Sessions | None) -> None:
        super().__init__(host, routing, DIALECT)
        self._sessions = sessions

    async def _read(self, scope: Scope, body: bytes) -> IncomingRequest:
        preamble = await for_body(body, read_as, preamble_of, body)
        incoming = self._made(scope, body, self._model(preamble), bool(preamble.stream))
        if self._sessions is None:
            return incoming
        return await self._sessions.recalled(incoming, preamble)

    def _sent(self, incoming: IncomingRequest, target: Target) -> bytes:
        request = Restored(incoming.checked(self._host.limits))
        body = translate(incoming, request, target).translated.body
        if target.upstream.config.dialect != self._dialect:
            return body
        countable = {name: one for name, one in _fields(body).items() if name in _COUNTABLE}
        return msgspec.json.encode(countable)

    def _written(self, count: int) -> bytes:
        return msgspec.json.encode({"object": "response.input_tokens", "input_tokens": count})


async def _told(upstream: Upstream, outgoing: OutgoingRequest) -> bytes | None:
    """What the upstream counted, in its words; nothing if it cannot."""
    try:
        incoming = await upstream.send(outgoing)
    except Unreachable:
        return None
    data = b""
    try:
        while len(data) < _READ and (more := await incoming.read()):
            data += more
        _count(data)  # there are upstreams that answer whatever they are asked
        return data if incoming.status == 200 else None
    except (Unreachable, ValueError):
        return None
    finally:
        incoming.abort()


def _estimate(body: bytes) -> int:
    """About how many tokens a request is."""
    return max(1, sum(map(len, _texts(msgspec.json.decode(body)))) // PER_TOKEN)


def _texts(value: object) -> list[str]:
    """All texts of a body but those that are pictures."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    if isinstance(value, dict):
        inner = {key: one for key, one in value.items() if key not in _UNCOUNTED}
        return [text for one in inner.values() for text in _texts(one)]
    return []
