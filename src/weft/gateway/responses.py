"""The endpoints of a gateway with a store: turns continue earlier ones, and responses may run on
without their client.
"""

from dataclasses import replace

from weft.dialects import DIALECTS
from weft.errors import BadRequest
from weft.gateway import http_response
from weft.gateway.endpoints import (
    Endpoint,
    GatewayContext,
    MessagesEndpoint,
    Scope,
    Send,
    decode_body,
)
from weft.gateway.sessions import Sessions, parse_preamble
from weft.gateway.stored_responses import stream_events
from weft.gateway.writers import EventStreamWriter
from weft.relay.incoming import IncomingRequest, RequestFailed, bad_request
from weft.relay.offload import for_body
from weft.relay.run import Run
from weft.store.base import StoreError


class StoringEndpoint(Endpoint):
    """Stored streams go on for `resume_window` seconds after their client disconnected."""

    def __init__(self, gateway: GatewayContext, dialect: str, sessions: Sessions) -> None:
        super().__init__(gateway, dialect)
        self._sessions = sessions

    async def _start(self, incoming: IncomingRequest, scope: Scope, send: Send) -> Run | None:
        run = self._gateway.start(incoming)
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
        return await self._sessions.with_history(incoming, preamble)

    async def _start(self, incoming: IncomingRequest, scope: Scope, send: Send) -> Run | None:
        if not incoming.background:
            return await super()._start(incoming, scope, send)
        # Streamed from the upstream in any case: so it can be followed, cancelled and recovered.
        run = self._gateway.start(replace(incoming, stream=True))
        client = self._client(scope, send)
        try:
            snapshot = await self._sessions.launch(run, incoming, self._gateway.end_run)
        except (StoreError, BadRequest) as problem:
            # Nothing drives it yet: nobody else would end it.
            await run.close()
            self._gateway.end_run(run)
            if isinstance(problem, BadRequest):
                raise RequestFailed(bad_request(problem)) from None
            raise
        if incoming.stream:
            events = self._sessions.events(incoming.response_id or "")
            writer = self._stream_writer()
            await stream_events(scope, client, events, writer, self._gateway.keepalive)
        else:
            await http_response.send_json(client.send, client.id, snapshot)
        return None
