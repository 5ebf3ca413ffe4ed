"""What the wire's words mean: stop reasons, usage, errors; and the words for what we mean."""

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.dialects.anthropic_messages import wire
from weft.dialects.anthropic_messages.wire import kept
from weft.parts import ErrorPart, FinishReason, Usage

REASONS: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool-calls",
    "pause_turn": "pause",
    "compaction": "pause",
    "refusal": "content-filter",
}
"""Stop reasons. A word that is not here is `other`."""

WORDS: dict[FinishReason, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool-calls": "tool_use",
    "pause": "pause_turn",
    "content-filter": "refusal",
    "other": "end_turn",
}
"""The stop reason that is written for each reason, unless the stream came with its own word."""

REFUSAL = Raw(b'{"type":"refusal","category":null,"explanation":null}')
"""The details of a refusal that told none."""

ERRORS: dict[str, tuple[int, bool]] = {
    "invalid_request_error": (400, False),
    "authentication_error": (401, False),
    "billing_error": (402, False),
    "permission_error": (403, False),
    "not_found_error": (404, False),
    "conflict_error": (409, True),
    "request_too_large": (413, False),
    "rate_limit_error": (429, True),
    "api_error": (500, True),
    "timeout_error": (504, True),
    "overloaded_error": (529, True),
}
"""Types of errors, each with its HTTP status and whether a retry may help."""


def finish_reason(word: str | None) -> FinishReason:
    return "stop" if word is None else REASONS.get(word, "other")


def error_of(event: wire.Event) -> ErrorPart:
    """An error in any of its shapes: an object, a text, or fields beside the type."""
    error = event.error if isinstance(event.error, wire.Error) else wire.Error()
    flat = next((one for one in (event.error, event.message) if isinstance(one, str)), None)
    status, retryable = ERRORS.get(error.type or "", (None, False))
    return ErrorPart(
        "upstream",
        error.message or flat or error.type or "unknown error",
        code=error.type,
        status=status,
        retryable=retryable,
        extra=kept(error.details),
    )


def merged(first: wire.Usage | None, second: wire.Usage | None) -> wire.Usage | None:
    """Both: per field the last one told wins, nothing is summed."""
    if first is None or second is None:
        return first or second
    fields = msgspec.structs.asdict(second)
    new = {key: value for key, value in fields.items() if value is not None and value is not UNSET}
    return msgspec.structs.replace(first, **new)


def usage_of(usage: wire.Usage | None) -> Usage | None:
    """Usage with all input in `input_tokens`; None for usage that tells nothing."""
    if usage is None:
        return None
    details = usage.output_tokens_details
    parts = (
        usage.input_tokens,
        usage.cache_creation_input_tokens,
        usage.cache_read_input_tokens,
    )
    known = [count for count in parts if count is not None]
    found = Usage(
        input_tokens=sum(known) if known else None,
        output_tokens=usage.output_tokens,
        reasoning_tokens=details.thinking_tokens if details else None,
        cache_read_tokens=usage.cache_read_input_tokens,
        cache_write_tokens=usage.cache_creation_input_tokens,
    )
    return None if found == Usage() else found


def tokens(usage: Usage | None, extra: wire.UsageExtra, *, first: bool = False) -> wire.Tokens:
    """Usage as it is written: input without what was cached, and what is required always there."""
    usage = usage or Usage()
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    fresh: int | UnsetType = 0 if first else UNSET
    if usage.input_tokens is not None:
        fresh = max(0, usage.input_tokens - (read or 0) - (written or 0))
    made, thought = usage.output_tokens or 0, usage.reasoning_tokens
    return wire.Tokens(
        fresh,
        made,
        UNSET if written is None else written,
        UNSET if read is None else read,
        UNSET if thought is None or thought > made else wire.OutputDetails(thought),
        extra.cache_creation,
        extra.server_tool_use,
        extra.service_tier,
        extra.iterations,
    )


def usage_extra(usage: wire.Usage | None) -> wire.UsageExtra | None:
    """What canonical usage has no field for."""
    if usage is None:
        return None
    extra = wire.UsageExtra(
        kept(usage.cache_creation),
        kept(usage.server_tool_use),
        kept(usage.service_tier),
        kept(usage.iterations),
    )
    return None if extra == wire.UsageExtra() else extra
