"""Maps stop reasons, usage and errors between this API and canonical parts."""

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.anthropic_messages import wire
from weft.dialects.anthropic_messages.wire import ERROR_TYPES, FINISH_REASONS, copy_present
from weft.parts import ErrorPart, FinishReason, Usage

STOP_REASONS: dict[FinishReason, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool-calls": "tool_use",
    "pause": "pause_turn",  # the client sends the turn back
    "content-filter": "refusal",
    "other": "end_turn",
}
"""The stop reason written for each finish reason, unless the response came with its own."""

DEFAULT_REFUSAL = Raw(b'{"type":"refusal","category":null,"explanation":null}')
"""The `stop_details` of a refusal that came without any."""


def finish_reason(stop_reason: str | None) -> FinishReason:
    return "stop" if stop_reason is None else FINISH_REASONS.get(stop_reason, "other")


def parse_error(event: wire.MessagesEvent) -> ErrorPart:
    """Compatible servers send the error as an object, as a string, or as a top-level message."""
    error = event.error if isinstance(event.error, wire.MessagesError) else wire.MessagesError()
    text = next((value for value in (event.error, event.message) if isinstance(value, str)), None)
    status, retryable = ERROR_TYPES.get(error.type or "", (None, False))
    return ErrorPart(
        "upstream",
        error.message or text or error.type or "unknown error",
        code=error.type,
        status=status,
        retryable=retryable,
        extra=copy_present(error.details),
    )


def merge_usage(
    first: wire.MessagesUsage | None, second: wire.MessagesUsage | None
) -> wire.MessagesUsage | None:
    """Counts are cumulative: the later value of each field wins, nothing is added up."""
    if first is None or second is None:
        return first or second
    # Null and absent both leave the value of `message_start`: a `message_delta` usually has only
    # `output_tokens`.
    fields = msgspec.structs.asdict(second)
    new = {key: value for key, value in fields.items() if value is not None and value is not UNSET}
    return msgspec.structs.replace(first, **new)


def parse_usage(usage: wire.MessagesUsage | None) -> Usage | None:
    """Canonical `input_tokens` include cached ones, which this API counts apart."""
    if usage is None:
        return None
    details = usage.output_tokens_details
    # API reference, "Usage": the total input is the sum of these three.
    counts = (
        usage.input_tokens,
        usage.cache_creation_input_tokens,
        usage.cache_read_input_tokens,
    )
    known = [count for count in counts if count is not None]
    parsed = Usage(
        input_tokens=sum(known) if known else None,
        output_tokens=usage.output_tokens,
        reasoning_tokens=details.thinking_tokens if details else None,
        cache_read_tokens=usage.cache_read_input_tokens,
        cache_write_tokens=usage.cache_creation_input_tokens,
    )
    return None if parsed == Usage() else parsed


def render_usage(
    usage: Usage | None, extra: wire.MessagesUsage | None = None, *, first: bool = False
) -> wire.MessagesUsage:
    """Adds the counts to the other fields, `extra`.

    Unknown counts are 0 where the official client reads the field without a check. `first`: the
    usage of `message_start`, where `input_tokens` is such a field too.
    """
    usage = usage or Usage()
    cache_read, cache_write = usage.cache_read_tokens, usage.cache_write_tokens
    uncached = 0 if first else None
    if usage.input_tokens is not None:
        # Never negative, in case a dialect does not count cached tokens as input.
        uncached = max(0, usage.input_tokens - (cache_read or 0) - (cache_write or 0))
    output, thinking = usage.output_tokens or 0, usage.reasoning_tokens
    # The API counts thinking tokens as output tokens. A host that counts them apart would make the
    # detail larger than the total.
    known = thinking is not None and thinking <= output
    return msgspec.structs.replace(
        extra or wire.MessagesUsage(),
        input_tokens=uncached,
        output_tokens=output,
        cache_creation_input_tokens=cache_write,
        cache_read_input_tokens=cache_read,
        output_tokens_details=wire.OutputTokensDetails(thinking) if known else None,
    )


def usage_extra(usage: wire.MessagesUsage | None) -> wire.MessagesUsage | None:
    """The fields that canonical usage does not have."""
    if usage is None:
        return None
    extra = wire.MessagesUsage(
        cache_creation=copy_present(usage.cache_creation),
        server_tool_use=copy_present(usage.server_tool_use),
        service_tier=copy_present(usage.service_tier),
        iterations=copy_present(usage.iterations),
    )
    return None if extra == wire.MessagesUsage() else extra
