"""`POST /v1/messages/count_tokens`: counted by the upstream that can, else estimated."""

import msgspec

from weft.dialects.faults import fault
from weft.gateway import answers
from weft.gateway.bodies import ClientGone
from weft.gateway.endpoints import Endpoint, Host, Receive, Scope, Send
from weft.relay.asked import Asked, Failed, passed_on
from weft.relay.routing import Routing, UnknownModel
from weft.upstream.base import Outgoing, Place, Unreachable, Upstream

PER_TOKEN = 4
"""Bytes of a request's text that are about one token."""

_ESTIMATED = (b"weft-findings", b"warned:estimated")
_READ = 64 * 1024


class CountTokens(Endpoint):
    """Asks the upstream if it speaks this dialect. What is estimated says so in a header."""

    def __init__(self, host: Host, routing: Routing) -> None:
        super().__init__(host, "anthropic-messages")
        self._routing = routing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        about = answers.about(scope["weft.id"])
        try:
            asked = await self._read(scope, receive)
            data, more = await self._counted(asked)
        except ClientGone:
            return
        except Failed as failed:
            await answers.failure(send, self._dialect, failed, about)
        else:
            await answers.body(send, 200, data, [answers.JSON, *about, *more])

    async def _counted(self, asked: Asked) -> tuple[bytes, answers.Headers]:
        try:
            target = self._routing.targets(asked.model)[0]
        except UnknownModel as problem:
            raise Failed(fault("not-found", str(problem), param="model")) from None
        place = target.upstream.place
        if place.dialect == self._dialect:
            told = await _told(target.upstream, _outgoing(asked, target.model, place))
            if told is not None:
                return told, [(b"weft-upstream", place.name.encode())]
        count = max(1, sum(map(len, _texts(msgspec.json.decode(asked.body)))) // PER_TOKEN)
        return msgspec.json.encode({"input_tokens": count}), [_ESTIMATED]


def _outgoing(asked: Asked, model: str, place: Place) -> Outgoing:
    """What the upstream is asked: the same, about its own model."""
    body = msgspec.json.decode(asked.body, type=dict[str, msgspec.Raw])
    body["model"] = msgspec.Raw(msgspec.json.encode(model))
    path = "/v1/messages/count_tokens"
    return Outgoing(path, msgspec.json.encode(body), passed_on(asked, place))


async def _told(upstream: Upstream, outgoing: Outgoing) -> bytes | None:
    """What the upstream counted; nothing if it cannot."""
    try:
        incoming = await upstream.ask(outgoing)
    except Unreachable:
        return None
    data = b""
    try:
        while len(data) < _READ and (more := await incoming.read()):
            data += more
    except Unreachable:
        return None
    finally:
        incoming.abort()
    return data if incoming.status == 200 else None


def _texts(value: object) -> list[str]:
    """All texts of a body but those that are pictures."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    if isinstance(value, dict):
        inner = {key: one for key, one in value.items() if key not in ("data", "type", "model")}
        return [text for one in inner.values() for text in _texts(one)]
    return []
