"""Tries the targets of a request in order, with retries, until one of them sends content.

Nothing is sent to the client before there is content: until then, a target that fails is tried
again, or the next one is; afterwards never.
"""

import asyncio
import logging
import random
import re
import time
from collections.abc import Sequence

from msgspec.structs import replace

from weft.dialects.error_classes import class_of
from weft.log_events import log_event
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
from weft.relay.metering import is_composed
from weft.relay.offload import for_body
from weft.relay.reasoning import Restored
from weft.relay.request_record import Attempt
from weft.relay.routing import Target
from weft.relay.stream import OpenStream, RequestState, send
from weft.relay.translation import RUN_HEADER, translate
from weft.upstream.breaker import summary
from weft.upstream.retry import retry_delay

_SIGNATURE_ERROR = re.compile(
    r"signature|encrypted[_ ]content|thinking block|reasoning item", re.IGNORECASE
)
"""What the errors of upstreams say that do not accept the reasoning of earlier turns."""

log = logging.getLogger("weft.relay")

_FINAL = frozenset(("bad-request", "cancelled"))
"""Errors that every target would have: no other one is tried."""


async def open_target(
    state: RequestState, restored: Restored, targets: Sequence[Target]
) -> OpenStream:
    """Returns a stream that has content. Raises RequestFailed with the last error if none has."""
    error = ErrorPart("internal", "there is no target")
    reason = ""
    for number, target in enumerate(targets):
        if number:
            about = log_event("failover", state.record.id, target=target.name)
            log.warning("failover: %s %s", target.name, reason, extra=about)
        paused = target.breaker.refusal(time.monotonic())
        if paused is not None:
            error = paused
            # The breaker's own words: they say that it is open, and may be shown to anybody.
            reason = f"because {target.name} was not asked: {error.message}"
            state.record.attempts.append(Attempt(target.name, error))
        else:
            try:
                stream = await _with_retries(state, restored, target)
            except RequestFailed as failed:
                error = failed.error
                reason = f"after {target.name} failed: {summary(error)}"
                target.breaker.failed(error, time.monotonic())
            except BaseException:
                target.breaker.abandoned()
                raise
            else:
                target.breaker.succeeded(time.monotonic())
                return stream
        if class_of(error) in _FINAL:
            break
    raise RequestFailed(error)


async def _with_retries(state: RequestState, restored: Restored, target: Target) -> OpenStream:
    """Tries one target as often as its retry policy says."""
    policy = target.upstream.config.retry
    tries, without_reasoning = 0, False
    while True:
        # Before it is sent: an attempt that the client did not wait for has been made all the same.
        attempt = Attempt(target.name)
        state.record.attempts.append(attempt)
        try:
            return await _send_once(state, restored, target, attempt, without_reasoning)
        except RequestFailed as failed:
            attempt.error = error = failed.error
            attempt.ended = time.time()
        # Signatures are bound to a model, and may be to an account or a conversation: after a
        # change the upstream refuses what it signed itself, and would refuse it in every further
        # turn. So there is one more try without reasoning, which neither counts nor waits.
        is_signature_error = error.status == 400 and _SIGNATURE_ERROR.search(error.message)
        if is_signature_error and not without_reasoning:
            without_reasoning = True
            about = log_event("attempt-failed", state.record.id, target=target.name)
            log.warning("%s: refused its signatures; retry without them", target.name, extra=about)
            continue
        tries += 1
        reason = summary(error)
        pause = retry_delay(policy, tries, error, jitter=random.random(), now=time.time())
        about = log_event("attempt-failed", state.record.id, target=target.name, attempt=tries)
        if pause is None:
            log.warning("%s: attempt %d failed: %s", target.name, tries, reason, extra=about)
            raise RequestFailed(error)
        retry = f"retry in {pause:.2f} s"
        log.warning("%s: attempt %d failed: %s; %s", target.name, tries, reason, retry, extra=about)
        # All of this runs inside `Interrupt.wait`: a stop or a timeout ends the pause.
        await asyncio.sleep(pause)


async def _send_once(
    state: RequestState,
    restored: Restored,
    target: Target,
    attempt: Attempt,
    without_reasoning: bool,
) -> OpenStream:
    """Sends the request once, and reads until there is content."""
    incoming = state.incoming
    sent = await for_body(
        incoming.body.raw,
        translate,
        *(incoming, restored, target),
        without_reasoning=without_reasoning,
    )
    trace = incoming.trace
    if trace is not None:
        sent = replace(sent, trace=trace.child(len(state.record.attempts)))
    attempt.started = time.time()
    state.meter.begin(target)
    stream: OpenStream | None = None
    try:
        response = await send(sent)
        if is_composed(target) and (agent_run := response.headers.get(RUN_HEADER)):
            sent, state.record.agent_run = sent.of_run(agent_run), agent_run
        stream = OpenStream(state, sent, response)
        try:
            await stream.read_until(_has_content)
        except BaseException:
            stream.abort()
            state.deadlines.stop_idle_timeout()  # of this attempt: the next one may wait longer
            raise
    except RequestFailed as failed:
        state.meter.failed(failed.error, None if stream is None else stream.fold)
        raise RequestFailed(state.redact(failed.error)) from None
    except BaseException:
        state.meter.ended(None if stream is None else stream.fold)
        raise
    return stream


# An overloaded upstream may open a message and then fail, as Anthropic does with the error event of
# what would otherwise be a 529. Before content, another target can still be tried.
_EMPTY = frozenset((ResponseMetadata, TextStart, TextEnd, ReasoningStart, ErrorPart, Finish))


def _has_content(parts: Sequence[Part]) -> bool:
    """Whether one of the parts has content: starts and ends alone have none."""
    for part in parts:
        if isinstance(part, ReasoningEnd):
            if part.signature or part.encrypted or part.redacted:
                return True
        elif part.__class__ not in _EMPTY:
            return True
    return False
