"""What the attempts of a request have used: each attempt is charged once, however it ends.

Tokens are those that the upstream reported. If it reported none, or a number that cannot be true,
or was cut off before it did, they are estimated from the length of the texts. An attempt that
brought no content is charged without tokens, unless it was abandoned: then the upstream had the
request, and may have worked on it.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from msgspec import Raw
from msgspec.structs import astuple, replace

from weft.assembler import Assembler
from weft.parts import ErrorPart, Usage
from weft.prices import DOLLAR, HIGHEST_COST, PriceTable
from weft.relay.incoming import IncomingRequest
from weft.relay.routing import Target
from weft.request import (
    CallContent,
    ImageContent,
    ReasoningContent,
    Request,
    ResultContent,
    TextContent,
)
from weft.store.accounts import Source

PER_TOKEN = 4
"""Characters of text per token, about."""

PER_IMAGE = 1_000
"""Tokens of an image, about."""

MOST_TOKENS = 10**9
"""More tokens than any response has."""

AGENT = "agent:"
"""The base URL of agents."""


class Charge(msgspec.Struct, frozen=True, gc=False):
    """What one attempt has used."""

    owner: str
    target: str
    """`<upstream>/<model>`."""

    source: Source
    usage: Usage
    requests: int
    """More than 1 if the upstream paused, and was asked to go on."""

    is_failed: bool
    """Whether it brought no whole response."""

    is_unknown_model: bool
    """Whether the upstream does not know the model."""

    at: float


ChargeAttempt = Callable[[Charge], int | None]
"""Returns the cost in billionths of a US dollar; None if the price is not known."""


def cost_of_attempt(prices: PriceTable, charge: Charge) -> int | None:
    """As ChargeAttempt. An attempt without tokens costs nothing, whatever its model."""
    if charge.source == "none":
        return 0
    cost = prices.cost_of(charge.target, charge.usage, charge.at)
    return None if cost is None else min(round(cost * DOLLAR), HIGHEST_COST)


class AdmittedRequest(Protocol):
    """A request that may run: `charge` what it uses, `close` it when it has ended."""

    def charge(self, charge: Charge) -> int | None:
        """As ChargeAttempt."""
        ...

    def close(self) -> None: ...


class AdmitTurn(Protocol):
    """Admits the turn of an agent. Raises RequestFailed."""

    async def __call__(
        self, incoming: IncomingRequest, targets: Sequence[Target]
    ) -> AdmittedRequest: ...


_NO_USAGE = Usage()


def plausible(usage: Usage | None) -> Usage:
    """The token counts without those that cannot be true, as if they had not been reported: below
    0, which would pay for others, or more than a database can add up."""
    if usage is None:
        return _NO_USAGE
    counts: tuple[int | None, ...] = astuple(usage)
    for one in counts:
        if one is not None and not 0 <= one <= MOST_TOKENS:
            break
    else:
        return usage
    return Usage(*(one if one is not None and 0 <= one <= MOST_TOKENS else None for one in counts))


class Meter(msgspec.Struct, eq=False):
    """Charges the attempts of one request, one after the other."""

    _incoming: IncomingRequest
    _charge: ChargeAttempt | None
    _target: Target | None = None
    """Of the attempt that is not charged yet."""

    _requests: int = 0
    _costs: list[int | None] = []

    @property
    def cost(self) -> int | None:
        """What the attempts so far have cost, in billionths of a US dollar; None if there was none,
        or the price of one is not known."""
        known = [one for one in self._costs if one is not None]
        return sum(known) if known and len(known) == len(self._costs) else None

    def begin(self, target: Target) -> None:
        """A request is about to be sent."""
        if not is_composed(target):
            self._target, self._requests = target, 1

    def continued(self) -> None:
        """The upstream paused, and is asked to go on."""
        self._requests += 1

    def failed(self, error: ErrorPart, fold: Assembler | None = None) -> None:
        """The attempt failed before there was content."""
        usage = plausible(None if fold is None else fold.usage)
        found: tuple[Source, Usage] = ("none" if usage == _NO_USAGE else "reported", usage)
        self._end(*found, is_failed=True, is_unknown_model=error.status == 404)

    def ended(self, fold: Assembler | None) -> None:
        """The response is complete, failed, or abandoned. None: abandoned before it began."""
        if self._target is None or self._charge is None:
            return
        usage = plausible(None if fold is None else fold.usage)
        is_whole = fold is not None and fold.is_whole
        if is_whole and usage.input_tokens is not None and usage.output_tokens is not None:
            self._end("reported", usage, is_failed=False)
            return
        sent = usage.input_tokens
        if sent is None:
            sent = estimate_input(self._incoming.body.parsed.request)
        received = 0 if fold is None else -(-fold.length // PER_TOKEN)
        # Some wires count what was written so far, others begin with 0 or 1.
        received = max(received, usage.output_tokens or 0)
        estimated = replace(usage, input_tokens=sent, output_tokens=received)
        self._end("estimated", estimated, is_failed=not is_whole)

    def _end(
        self, source: Source, usage: Usage, *, is_failed: bool, is_unknown_model: bool = False
    ) -> None:
        target, self._target = self._target, None
        if target is not None and self._charge is not None:
            charge = Charge(
                self._incoming.caller,
                target.name,
                source,
                usage,
                self._requests,
                is_failed,
                is_unknown_model,
                time.time(),
            )
            self._costs.append(self._charge(charge))


def is_composed(target: Target) -> bool:
    """Whether its responses are made of responses of other models, which are charged themselves:
    it is an agent."""
    return target.upstream.config.base_url.startswith(AGENT)


_TEXTS = (TextContent, ReasoningContent)


def estimate_input(request: Request) -> int:
    """About how many tokens a request has."""
    length = len(request.instructions or "")
    images = 0
    for message in request.messages:
        for content in message.content:
            if isinstance(content, _TEXTS):
                length += len(content.text)
            elif isinstance(content, CallContent):
                length += len(content.params)
            elif isinstance(content, ImageContent):
                images += 1
            elif isinstance(content, ResultContent):
                length += sum(len(o.text) for o in content.content if isinstance(o, TextContent))
                images += sum(isinstance(one, ImageContent) for one in content.content)
    for tool in request.tools:
        length += len(tool.name) + len(tool.description or "")
        length += len(tool.parameters) if isinstance(tool.parameters, Raw) else 0
    return length // PER_TOKEN + PER_IMAGE * images + 1
