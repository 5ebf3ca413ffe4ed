"""The models of agents: those of the relay, with its routing, retries, limits and storage.

A turn is a response like any other. It is stored from its first event, can be followed while it
runs, and is audited by `weft verify`; only its end is special: it is committed together with the
receipt of the turn.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from weft.agent.environment import FinishTurn, TurnRequest
from weft.codec import fresh_context
from weft.dialects.error_classes import new_error
from weft.parts import Usage
from weft.prices import PriceTable
from weft.relay.incoming import (
    IncomingRequest,
    RequestBody,
    RequestFailed,
    RequestLimits,
    StorePolicy,
)
from weft.relay.metering import AdmittedRequest, AdmitTurn, Charge, cost_of_attempt
from weft.relay.persistence import Persistence, ResponseWriter
from weft.relay.request_record import Observer
from weft.relay.routing import Routing, UnknownModel
from weft.relay.run import Run
from weft.scrub import Scrubber
from weft.store.base import StoreError

RESPONSES: Final = "openai-responses"


def incoming_turn(request: TurnRequest) -> IncomingRequest:
    """Returns the request of a turn as one to the gateway: a response in the background."""
    context = fresh_context()
    return IncomingRequest(
        body=RequestBody(RESPONSES, request.body),
        model=request.model,
        stream=True,
        id=context.ids.mint("req"),
        caller=request.owner,
        background=True,
        response_id=request.response,
        created=context.now,
        trace=None if request.trace is None else replace(request.trace, is_turn=True),
    )


class RelayModels:
    """Asks the models of a routing table."""

    def __init__(
        self,
        routing: Routing,
        persistence: Persistence,
        limits: RequestLimits,
        scrub: Scrubber,
        observers: Sequence[Observer] = (),
        admit: AdmitTurn | None = None,
        prices: PriceTable | None = None,
    ) -> None:
        """Without `prices`, none is known."""
        self._routing = routing
        self._persistence = persistence
        self._limits = limits
        self._scrub = scrub
        self._observers = observers
        self._admit = admit
        self._prices = prices

    async def respond(self, request: TurnRequest, finish: FinishTurn) -> None:
        incoming = incoming_turn(request)
        # The input of a turn is in the log of the run: stored with every turn, it would grow with
        # the square of their number.
        policy = StorePolicy(b"{}", visible=False)
        writer = ResponseWriter(self._persistence, incoming, policy, finish)
        await writer.announce(request.response, "in_progress", None)
        try:
            targets = self._routing.targets(request.model)
        except UnknownModel as error:
            targets = ()
            failure = new_error("not-found", str(error))
        admitted: AdmittedRequest | None = None

        def charge(charged: Charge) -> int | None:
            if admitted is not None:
                return admitted.charge(charged)
            return None if self._prices is None else cost_of_attempt(self._prices, charged)

        run = Run(
            incoming, targets, self._limits, self._scrub, self._observers, writer, charge=charge
        )
        try:
            if not targets:
                raise RequestFailed(failure)
            for target in targets if request.needs_price else ():
                # Nobody could say what a response of it costs.
                if self._prices is None or self._prices.cost_of(target.name, Usage(0, 0)) is None:
                    message = (
                        f"the price of {target.name[:100]!r} is not known, and the cost of this "
                        "run is limited; set it in `prices`"
                    )
                    raise RequestFailed(new_error("permission", message, param="model"))
            if self._admit is not None:
                admitted = await self._admit(incoming, targets)
            stream = await run.open()
            while await stream.next():
                pass
        except RequestFailed as failed:
            await run.fail(failed.error)
        finally:
            with suppress(StoreError):
                await run.close()
            if admitted is not None:
                admitted.close()
