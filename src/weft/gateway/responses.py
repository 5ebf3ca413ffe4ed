"""`POST /v1/responses` of a gateway that remembers: turns go on from earlier ones, answers are
stored, and may run without their client.
"""

from dataclasses import replace

from weft.dialects import DIALECTS
from weft.errors import BadRequest
from weft.gateway import answers
from weft.gateway.endpoints import Endpoint, Host, Messages, Scope, Send, read_as
from weft.gateway.protocol import EXCHANGE
from weft.gateway.sessions import Sessions, preamble_of
from weft.gateway.stored import follow
from weft.gateway.writers import EventStreamWriter
from weft.relay.incoming import IncomingRequest, RequestFailed, bad_request
from weft.relay.offload import for_body
from weft.relay.run import Run
from weft.store.base import StoreError


class Remembering(Endpoint):
    """Stored streams go on for a while when their client has left, if the settings say so."""

    def __init__(self, host: Host, dialect: str, sessions: Sessions) -> None:
        super().__init__(host, dialect)
        self._sessions = sessions

    async def _started(self, incoming: IncomingRequest, scope: Scope, send: Send) -> Run | None:
        run = self._host.start(incoming)
        if not (incoming.stream and run.writer is not None and self._sessions.window):
            return run
        id = await self._sessions.detach(run, self._host.ended)
        client = self._client(scope, send)
        writer = self._following(id if incoming.resumable else None)
        await follow(scope, client, self._sessions.events(id), writer, self._host.keepalive, run)
        return None

    def _following(self, log_id: str | None = None) -> EventStreamWriter:
        return EventStreamWriter(DIALECTS[self._dialect].idle, log_id)

    def _client(self, scope: Scope, send: Send) -> answers.Client:
        return answers.Client(scope["weft.id"], self._dialect, send, scope[EXCHANGE].write)


class RememberedMessages(Remembering, Messages):
    pass


class Responses(Remembering):
    async def _read(self, scope: Scope, body: bytes) -> IncomingRequest:
        preamble = await for_body(body, read_as, preamble_of, body)
        incoming = self._made(scope, body, self._model(preamble), bool(preamble.stream))
        return await self._sessions.recalled(incoming, preamble)

    async def _started(self, incoming: IncomingRequest, scope: Scope, send: Send) -> Run | None:
        if not incoming.background:
            return await super()._started(incoming, scope, send)
        await self._launch(incoming, scope, self._client(scope, send))
        return None

    async def _launch(
        self, incoming: IncomingRequest, scope: Scope, client: answers.Client
    ) -> None:
        """Has it run in the background."""
        run = self._host.start(replace(incoming, stream=True))
        try:
            snapshot = await self._sessions.launch(run, incoming, self._host.ended)
        except (StoreError, BadRequest) as problem:
            await run.close()
            self._host.ended(run)
            if isinstance(problem, BadRequest):
                raise RequestFailed(bad_request(problem)) from None
            raise
        if incoming.stream:
            events = self._sessions.events(incoming.response_id or "")
            await follow(scope, client, events, self._following(), self._host.keepalive)
        else:
            await answers.body(
                client.send, 200, snapshot, [answers.JSON, *answers.about(client.id)]
            )
