"""`POST /v1/responses` of a gateway that remembers: turns go on from earlier ones, answers are
stored, and may run without their client.
"""

from dataclasses import replace

from weft.errors import BadRequest
from weft.gateway import answers
from weft.gateway.endpoints import Endpoint, Host, Receive, Scope, Send
from weft.gateway.memory import Memory
from weft.gateway.protocol import EXCHANGE
from weft.gateway.stored import follow
from weft.relay.asked import Asked, Failed, bad_request
from weft.relay.run import Run
from weft.store.base import StoreError


class Responses(Endpoint):
    def __init__(self, host: Host, dialect: str, memory: Memory) -> None:
        super().__init__(host, dialect)
        self._memory = memory

    async def _read(self, scope: Scope, receive: Receive) -> Asked:
        asked = await super()._read(scope, receive)
        try:
            return await self._memory.recalled(asked)
        except BadRequest as problem:
            raise Failed(bad_request(problem)) from None

    async def _started(self, asked: Asked, scope: Scope, send: Send) -> Run | None:
        client = answers.Client(scope["weft.id"], self._dialect, send, scope[EXCHANGE].write)
        if asked.background:
            await self._launch(asked, scope, client)
        elif asked.stream and asked.kept is not None and self._memory.window:
            run = self._host.start(asked)
            id = await self._memory.detach(run, self._host.ended)
            await follow(scope, client, self._memory.events(id), self._host.keepalive, run)
        else:
            return await super()._started(asked, scope, send)
        return None

    async def _launch(self, asked: Asked, scope: Scope, client: answers.Client) -> None:
        """Has it run in the background."""
        run = self._host.start(replace(asked, stream=True))
        try:
            snapshot = await self._memory.launch(run, asked, self._host.ended)
        except StoreError:
            await run.close()
            self._host.ended(run)
            raise
        if asked.stream:
            events = self._memory.events(asked.response_id or "")
            await follow(scope, client, events, self._host.keepalive)
        else:
            await answers.body(
                client.send, 200, snapshot, [answers.JSON, *answers.about(client.id)]
            )
