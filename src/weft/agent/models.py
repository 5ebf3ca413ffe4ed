"""The models of agents: those of the relay, with its routing, retries, limits and storage.

A turn is a response like any other. It is stored from its first event, can be followed while it
runs, and is audited by `weft verify`; only its end is special: it is committed together with the
receipt of the turn.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from weft.agent.driver import TurnQuestion
from weft.codec import fresh_context
from weft.dialects.error_classes import new_error
from weft.relay.incoming import (
    IncomingRequest,
    RequestBody,
    RequestFailed,
    RequestLimits,
    StorePolicy,
)
from weft.relay.persistence import FinishResponse, Persistence, ResponseWriter
from weft.relay.request_record import Observer
from weft.relay.routing import Routing, UnknownModel
from weft.relay.run import Run
from weft.scrub import Scrubber
from weft.store.base import StoreError

RESPONSES: Final = "openai-responses"


class RelayModels:
    """Asks the models of a routing table."""

    def __init__(
        self,
        routing: Routing,
        persistence: Persistence,
        limits: RequestLimits,
        scrub: Scrubber,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._routing = routing
        self._persistence = persistence
        self._limits = limits
        self._scrub = scrub
        self._observers = observers

    async def respond(self, question: TurnQuestion, finish: FinishResponse) -> None:
        context = fresh_context()
        incoming = IncomingRequest(
            body=RequestBody(RESPONSES, question.body),
            model=question.model,
            stream=True,
            id=context.ids.mint("req"),
            caller=question.owner,
            background=True,
            response_id=question.response,
            created=context.now,
        )
        # The input of a turn is in the log of the run: stored with every turn, it would grow with
        # the square of their number.
        policy = StorePolicy(b"{}", visible=False)
        writer = ResponseWriter(self._persistence, incoming, policy, finish)
        await writer.announce(question.response, "in_progress", None)
        try:
            targets = self._routing.targets(question.model)
        except UnknownModel as error:
            targets = ()
            failure = new_error("not-found", str(error))
        run = Run(incoming, targets, self._limits, self._scrub, self._observers, writer)
        try:
            if not targets:
                raise RequestFailed(failure)
            stream = await run.open()
            while await stream.next():
                pass
        except RequestFailed as failed:
            await run.fail(failed.error)
        finally:
            with suppress(StoreError):
                await run.close()
