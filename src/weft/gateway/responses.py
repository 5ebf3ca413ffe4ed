"""The endpoints of a gateway with a store: turns continue earlier ones, and responses may run on
without their client.
"""

from msgspec.structs import replace

from weft.dialects import DIALECTS
from weft.dialects.error_classes import new_error
from weft.errors import BadRequest
from weft.gateway import http_response
from weft.gateway.auth import HttpRejection
from weft.gateway.endpoints import (
    Endpoint,
    GatewayContext,
    MessagesEndpoint,
    Scope,
    Send,
    decode_body,
    idempotency_key,
)
from weft.gateway.memory import RESERVED
from weft.gateway.sessions import Sessions, parse_preamble
from weft.gateway.stored_responses import response_body, stream_events
from weft.gateway.writers import EventStreamWriter
from weft.ids import Ids
from weft.relay.incoming import IncomingRequest, RequestFailed, bad_request
from weft.relay.offload import for_body
from weft.relay.run import Run
from weft.store.base import AlreadyExists


class StoringEndpoint(Endpoint):
    """Stored streams go on for `resume_window` seconds after their client disconnected."""

    def __init__(self, gateway: GatewayContext, dialect: str, sessions: Sessions) -> None:
        super().__init__(gateway, dialect)
        self._sessions = sessions

    async def _start(self, incoming: IncomingRequest, scope: Scope, send: Send) -> Run | None:
        run = await self._gateway.start(incoming)
        # Without a window the run ends with its client, so the client's own task may drive it: that
        # is faster than to follow its log.
        if not (incoming.stream and run.writer is not None and self._sessions.window):
            return run
        # From here on the client is a follower like any other, and may come and go.
        id = await self._sessions.detach(run, self._gateway.end_run)
        client = self._client(scope, send)
        writer = self._stream_writer(id if incoming.resumable else None)
        await stream_events(
            scope, client, self._sessions.events(id), writer, self._gateway.keepalive, run
        )
        return None

    def _stream_writer(self, log_id: str | None = None) -> EventStreamWriter:
        return EventStreamWriter(DIALECTS[self._dialect].idle, log_id)


class StoringMessagesEndpoint(StoringEndpoint, MessagesEndpoint):
    pass


class ResponsesEndpoint(StoringEndpoint):
    async def parse_request(self, scope: Scope, body: bytes) -> IncomingRequest:
        preamble = await for_body(body, decode_body, parse_preamble, body)
        incoming = self._build_request(
            scope, body, self._model_name(preamble), bool(preamble.stream)
        )
        incoming = await self._sessions.with_history(incoming, preamble, scope.get(RESERVED))
        key = idempotency_key(scope) if incoming.background else None
        if key is None:
            return incoming
        # The id comes from the key, so the store itself refuses to begin the same response twice,
        # on whichever server.
        seed = f"{incoming.caller}\0{key}".encode()
        return replace(incoming, response_id=Ids(seed).mint("resp"))

    async def _start(self, incoming: IncomingRequest, scope: Scope, send: Send) -> Run | None:
        if not incoming.background:
            return await super()._start(incoming, scope, send)
        client = self._client(scope, send)
        try:
            snapshot = await self._gateway.launch(incoming)
        except BadRequest as problem:
            raise RequestFailed(bad_request(problem)) from None
        except AlreadyExists:
            snapshot = await self._repeated(incoming)
        if incoming.stream:
            events = self._sessions.events(incoming.response_id or "")
            writer = self._stream_writer()
            await stream_events(scope, client, events, writer, self._gateway.keepalive)
        else:
            await http_response.send_json(client.send, client.id, snapshot)
        return None

    async def _repeated(self, incoming: IncomingRequest) -> bytes:
        """Returns the response to an earlier request with the same Idempotency-Key."""
        entry = await self._sessions.store.owned(incoming.caller, incoming.response_id or "")
        if entry is None or incoming.store is None or entry.request != incoming.store.request:
            message = "the Idempotency-Key belongs to a request with another body"
            raise HttpRejection(409, new_error("bad-request", message))
        return await for_body(entry.body or b"", response_body, entry)
