"""Finds an upstream that answers: targets in order, each as often as it is worth.

Nothing is told before there is content, so a target that fails until then is tried again, or the
next one is; afterwards never.
"""

import asyncio
import random
import re
import time
from collections.abc import Sequence
from functools import partial

from weft.dialects.error_classes import class_of
from weft.parts import (
    ErrorPart,
    Finish,
    Part,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    TextEnd,
    TextStart,
)
from weft.relay.incoming import RequestFailed
from weft.relay.offload import for_body
from weft.relay.reasoning import Restored
from weft.relay.request_record import Attempt
from weft.relay.routing import Target
from weft.relay.stream import OpenStream, RequestState, refusal
from weft.relay.translation import UpstreamRequest, translate
from weft.upstream.base import Unreachable, error_of
from weft.upstream.retry import retry_delay

_PROOF = re.compile(r"signature|encrypted[_ ]content|thinking block|reasoning item", re.IGNORECASE)
"""What upstreams say of a proof that they do not take back."""

_FINAL = frozenset(("bad-request", "cancelled"))
"""What would go wrong everywhere: no other target is tried."""


async def open_target(
    state: RequestState, restored: Restored, targets: Sequence[Target]
) -> OpenStream:
    """Returns a stream that has content. Raises RequestFailed with the last error if none has."""
    failed = RequestFailed(ErrorPart("internal", "there is no target"))
    for target in targets:
        try:
            return await _guarded(state, restored, target)
        except RequestFailed as problem:
            failed = problem
            if class_of(failed.error) in _FINAL:
                break
    raise failed


async def _guarded(state: RequestState, restored: Restored, target: Target) -> OpenStream:
    """Asks one target, if its breaker admits the request."""
    breaker, clock = target.breaker, asyncio.get_running_loop().time
    paused = breaker.refusal(clock())
    if paused is not None:
        state.record.attempts.append(Attempt(target.name, paused))
        raise RequestFailed(paused)
    try:
        stream = await _retried(state, restored, target)
    except RequestFailed as failed:
        breaker.failed(failed.error, clock())
        raise
    except BaseException:
        breaker.abandoned()
        raise
    breaker.succeeded(clock())
    return stream


async def _retried(state: RequestState, restored: Restored, target: Target) -> OpenStream:
    """Asks one target as often as it is worth."""
    policy = target.upstream.config.retry
    tries, without_reasoning = 0, False
    while True:
        try:
            stream = await _attempt(state, restored, target, without_reasoning)
        except RequestFailed as failed:
            error = failed.error
            state.record.attempts.append(Attempt(target.name, error))
        else:
            state.record.attempts.append(Attempt(target.name))
            return stream
        if not without_reasoning and error.status == 400 and _PROOF.search(error.message):
            without_reasoning = True
            continue
        tries += 1
        pause = retry_delay(policy, tries, error, jitter=random.random(), now=time.time())
        if pause is None:
            raise RequestFailed(error)
        await asyncio.sleep(pause)


async def _attempt(
    state: RequestState, restored: Restored, target: Target, without_reasoning: bool
) -> OpenStream:
    """Asks once, and reads until there is content."""
    work = partial(translate, state.incoming, restored, target, without_reasoning=without_reasoning)
    sent = await for_body(state.incoming.body.raw, work)
    stream: OpenStream | None = None
    try:
        stream = await _ask(state, sent)
        await stream.read_until(_is_content)
    except RequestFailed as failed:
        if stream is not None:
            stream.abort()
        raise RequestFailed(state.redact(failed.error)) from None
    except BaseException:
        if stream is not None:
            stream.abort()
        raise
    return stream


async def _ask(state: RequestState, sent: UpstreamRequest) -> OpenStream:
    try:
        incoming = await sent.target.upstream.send(sent.outgoing())
    except Unreachable as problem:
        raise RequestFailed(error_of(problem)) from None
    if incoming.status // 100 != 2:
        raise RequestFailed(await refusal(incoming, sent))
    return OpenStream(state, sent, incoming)


_EMPTY = (ResponseMetadata, TextStart, TextEnd, ReasoningStart, ErrorPart, Finish)


def _is_content(part: Part) -> bool:
    """Whether a part tells anything: what only begins and ends does not."""
    if isinstance(part, ReasoningEnd):
        return bool(part.signature or part.encrypted or part.redacted)
    return not isinstance(part, _EMPTY)
