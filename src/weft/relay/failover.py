"""Tries the targets of a request in order, with retries, until one of them sends content.

Nothing is sent to the client before there is content: until then, a target that fails is tried
again, or the next one is; afterwards never.
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
from weft.relay.stream import OpenStream, RequestState, send
from weft.relay.translation import translate
from weft.upstream.retry import retry_delay

_SIGNATURE_ERROR = re.compile(
    r"signature|encrypted[_ ]content|thinking block|reasoning item", re.IGNORECASE
)
"""What the errors of upstreams say that do not accept the reasoning of earlier turns."""

_FINAL = frozenset(("bad-request", "cancelled"))
"""Errors that every target would have: no other one is tried."""


async def open_target(
    state: RequestState, restored: Restored, targets: Sequence[Target]
) -> OpenStream:
    """Returns a stream that has content. Raises RequestFailed with the last error if none has."""
    clock = asyncio.get_running_loop().time
    error = ErrorPart("internal", "there is no target")
    for target in targets:
        paused = target.breaker.refusal(clock())
        if paused is not None:
            error = paused
            state.record.attempts.append(Attempt(target.name, error))
        else:
            try:
                stream = await _with_retries(state, restored, target)
            except RequestFailed as failed:
                error = failed.error
                target.breaker.failed(error, clock())
            except BaseException:
                target.breaker.abandoned()
                raise
            else:
                target.breaker.succeeded(clock())
                return stream
        if class_of(error) in _FINAL:
            break
    raise RequestFailed(error)


async def _with_retries(state: RequestState, restored: Restored, target: Target) -> OpenStream:
    """Tries one target as often as its retry policy says."""
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
        # Signatures are bound to a model, and may be to an account or a conversation: after a
        # change the upstream refuses what it signed itself, and would refuse it in every further
        # turn. So there is one more try without reasoning, which neither counts nor waits.
        is_signature_error = error.status == 400 and _SIGNATURE_ERROR.search(error.message)
        if is_signature_error and not without_reasoning:
            without_reasoning = True
            continue
        tries += 1
        pause = retry_delay(policy, tries, error, jitter=random.random(), now=time.time())
        if pause is None:
            raise RequestFailed(error)
        # All of this runs inside `Interrupt.wait`: a stop or a timeout ends the pause.
        await asyncio.sleep(pause)


async def _attempt(
    state: RequestState, restored: Restored, target: Target, without_reasoning: bool
) -> OpenStream:
    """Sends the request once, and reads until there is content."""
    work = partial(translate, state.incoming, restored, target, without_reasoning=without_reasoning)
    sent = await for_body(state.incoming.body.raw, work)
    try:
        stream = OpenStream(state, sent, await send(sent))
        try:
            await stream.read_until(_is_content)
        except BaseException:
            stream.abort()
            state.deadlines.stop_idle_timeout()  # of this attempt: the next one may wait longer
            raise
    except RequestFailed as failed:
        raise RequestFailed(state.redact(failed.error)) from None
    return stream


# An overloaded upstream may open a message and then fail, as Anthropic does with the error event of
# what would otherwise be a 529. Before content, another target can still be tried.
_EMPTY = (ResponseMetadata, TextStart, TextEnd, ReasoningStart, ErrorPart, Finish)


def _is_content(part: Part) -> bool:
    """Whether a part has content: starts and ends alone have none."""
    if isinstance(part, ReasoningEnd):
        return bool(part.signature or part.encrypted or part.redacted)
    return not isinstance(part, _EMPTY)
