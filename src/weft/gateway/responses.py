"""`POST /v1/responses` of a gateway that remembers: turns go on from earlier ones, answers are
stored, and may run without their client.
"""

from dataclasses import replace

from weft.errors import BadRequest
from weft.gateway import answers
from weft.gateway.endpoints import Endpoint, Host, Messages, Receive, Scope, Send
from weft.gateway.memory import Memory
from weft.gateway.protocol import EXCHANGE
from weft.gateway.stored import follow
from weft.relay.asked import Asked, Failed, bad_request
from weft.relay.run import Run
from weft.store.base import StoreError


class Remembering(Endpoint):
    """Stored streams go on for a while when their client has left, if the settings say so."""

    def __init__(self, host: Host, dialect: str, memory: Memory) -> None:
        super().__init__(host, dialect)
        self._memory = memory

    async def _started(self, asked: Asked, scope: Scope, send: Send) -> Run | None:
        run = self._host.start(asked)
        if not (asked.stream and run.keeping is not None and self._memory.window):
            return run
        id = await self._memory.detach(run, self._host.ended)
        client = self._client(scope, send)
        await follow(scope, client, self._memory.events(id), self._host.keepalive, run)
        return None

    def _client(self, scope: Scope, send: Send) -> answers.Client:
        return answers.Client(scope["weft.id"], self._dialect, send, scope[EXCHANGE].write)


class RememberedMessages(Remembering, Messages):
    pass


class Responses(Remembering):
    async def _read(self, scope: Scope, receive: Receive) -> Asked:
        asked = await super()._read(scope, receive)
        try:
            return await self._memory.recalled(asked)
        except BadRequest as problem:
            raise Failed(bad_request(problem)) from None

    async def _started(self, asked: Asked, scope: Scope, send: Send) -> Run | None:
        if not asked.background:
            return await super()._started(asked, scope, send)
        await self._launch(asked, scope, self._client(scope, send))
        return None

    async def _launch(self, asked: Asked, scope: Scope, client: answers.Client) -> None:
        """Has it run in the background."""
        run = self._host.start(replace(asked, stream=True))
        try:
            snapshot = await self._memory.launch(run, asked, self._host.ended)
        except (StoreError, BadRequest) as problem:
            await run.close()
            self._host.ended(run)
            if isinstance(problem, BadRequest):
                raise Failed(bad_request(problem)) from None
            raise
        if asked.stream:
            events = self._memory.events(asked.response_id or "")
            await follow(scope, client, events, self._host.keepalive)
        else:
            await answers.body(
                client.send, 200, snapshot, [answers.JSON, *answers.about(client.id)]
            )
