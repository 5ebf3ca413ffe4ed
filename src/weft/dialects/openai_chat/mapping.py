"""Values of the wire and canonical values: tool calls, finish reasons, usage, errors."""

import json
from collections.abc import Iterable

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.calls import CallDelta
from weft.dialects.envelope import unwrap_signature
from weft.dialects.error_classes import CLASSES, ErrorPartExtra, classify, is_known_code
from weft.dialects.openai_chat import wire
from weft.ids import Ids
from weft.partial_json import mended
from weft.parts import (
    ErrorPart,
    FinishReason,
    Json,
    ParamsFormat,
    Source,
    ToolCall,
    ToolParamsStart,
    Usage,
)

FINISH_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "end_turn": "stop",
    "eos": "stop",
    "complete": "stop",
    "completed": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tool-calls",
    "tool_call": "tool-calls",
    "tool_use": "tool-calls",
    "function_call": "tool-calls",
    "content_filter": "content-filter",
    "refusal": "content-filter",
    "safety": "content-filter",
    "sensitive": "content-filter",
    "pause_turn": "pause",
    "error": "error",
}
"""All finish reasons that servers send, in lower case. Any other is `other`."""
# capture: finish-reason-end-turn, finish-reason-mixed-case, finish-reason-context-exceeded
# capture: finish-reason-refusal, finish-reason-unknown

WRITTEN_FINISH_REASONS: dict[FinishReason, str] = {
    "stop": "stop",
    "length": "length",
    "tool-calls": "tool_calls",
    "content-filter": "content_filter",
    # A paused answer is incomplete; the wire has no other word for that.
    "pause": "length",
    "other": "stop",
}
"""An error has none: it is written instead of a finish reason."""

CUT_FINISH_REASONS: dict[FinishReason, str] = dict.fromkeys(WRITTEN_FINISH_REASONS, "length") | {
    "content-filter": "content_filter"
}
"""For a response with a call that never ended: clients must not take it for complete."""

CALL_TYPES: dict[ParamsFormat, str] = {"json": "function", "text": "custom"}
"""The types of calls that the wire has, by the format of their params."""


# From the wire


def canonical_finish_reason(reason: str) -> FinishReason:
    return FINISH_REASONS.get(reason.lower(), "other")


def call_delta(call: wire.ChatToolCall) -> CallDelta:
    """Returns an entry of `tool_calls` with empty values made absent."""
    extra = call.extra_content
    extra = extra.copy() if isinstance(extra, Raw) else extra  # else it keeps the whole frame alive
    signature, _ = signature_in(extra, wire.NAME)
    custom = call.custom
    if custom is not None and (not_blank(custom.name) or custom.input):
        # capture: custom-tool, custom-empty-on-a-function
        return CallDelta(
            call.index,
            call.id or None,
            not_blank(custom.name),
            custom.input or "",
            kind="custom",
            format="text",
            signature=signature,
            extra=extra,
        )
    kind = "custom" if (call.type or "").lower() == "custom" else "function"
    function = call.function
    return CallDelta(
        call.index,
        call.id or None,
        # capture: function-null-or-missing, name-empty-on-continuations
        not_blank(function.name) if function else None,
        (function.arguments or "") if function else "",
        kind=kind,
        format="text" if kind == "custom" else "json",
        signature=signature,
        extra=extra,
    )


def not_blank(name: str | None) -> str | None:
    # capture: name-empty-on-continuations
    return name if name and name.strip() else None


def signature_in(extra: Raw | UnsetType, host: str) -> tuple[str | None, str | None]:
    """Returns the signature in the `extra_content` of a call or a text, and its origin."""
    if not isinstance(extra, Raw):
        return None, None
    try:
        vendors = wire.read_extra_content(extra)
    except ValueError:
        return None, None
    signatures = (one.thought_signature for one in vendors.values() if one.thought_signature)
    return unwrap_signature(next(signatures, None), host)


def parse_usage(usage: wire.ChatUsage) -> Usage | None:
    """Returns None for usage without any number."""
    prompt = usage.prompt_tokens_details or wire.ChatTokenDetails()
    completion = usage.completion_tokens_details or wire.ChatTokenDetails()
    # capture: usage-in-a-last-chunk
    # Hosts put the cached tokens into the details, under a name of their own, or beside them.
    cached = prompt.cached_tokens
    if cached is None:
        cached = usage.prompt_cache_hit_tokens
    if cached is None:
        cached = usage.cached_tokens
    found = Usage(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        reasoning_tokens=completion.reasoning_tokens,
        cache_read_tokens=cached,
        cache_write_tokens=prompt.cache_write_tokens,
    )
    # Some chunks have `usage: {}`.
    return None if found == Usage() else found  # capture: usage-only-empty


def with_total(usage: Usage | None) -> Usage | None:
    """Returns usage with its total computed if the server sent none."""
    if usage is None or usage.total_tokens is not None:  # capture: usage-total-is-not-the-sum
        return usage
    if usage.input_tokens is None or usage.output_tokens is None:
        return usage
    total = usage.input_tokens + usage.output_tokens  # capture: usage-empty-or-in-part
    return msgspec.structs.replace(usage, total_tokens=total)


def parse_error(chunk: wire.ChatChunk) -> ErrorPart:
    """Returns an error object of any shape: the message, and the code, whatever its type."""
    error = _lenient(chunk.error)
    fields = error if isinstance(error, dict) else {}
    # capture: error-body-instead-of-stream, error-inside-a-chunk
    code = _lenient(chunk.code) if fields.get("code") is None else fields["code"]
    if isinstance(code, bool | float) or not isinstance(code, str | int | None):
        code = str(code)
    # capture: error-is-a-string, error-body-instead-of-stream
    message = fields.get("message") or (error if isinstance(error, str) else None)
    # capture: error-event-without-error-key, error-as-field-name
    message = message or _lenient(chunk.message) or fields.get("type") or "unknown error"
    status = next(
        (one for one in (fields.get("status"), code) if isinstance(one, int) and 400 <= one <= 599),
        None,
    )
    type = fields.get("type") if isinstance(fields.get("type"), str) else None
    known = (
        status is not None or is_known_code(code) or is_known_code(type)
    )  # capture: error-of-type-error
    return ErrorPart(
        "upstream",
        message if isinstance(message, str) else msgspec.json.encode(message).decode(),
        code=code,
        status=status,
        retryable=known and CLASSES[classify(status, code, type)].retryable,
        extra=Raw(msgspec.json.encode(ErrorPartExtra(type=type))) if type else UNSET,
    )


def _lenient(raw: Raw | UnsetType) -> object:
    """Returns the value of a raw field, or its text if it is not JSON: no error may get lost."""
    if not isinstance(raw, Raw):
        return None
    try:
        return mended(json.loads(bytes(raw), strict=False))
    except (ValueError, RecursionError):
        return bytes(raw).decode("utf-8", "replace")


# To the wire


def new_id(ids: Ids) -> str:
    """Mints the id of a response: `chatcmpl-…`."""
    return ids.mint("chatcmpl").replace("_", "-", 1)


def render_call(part: ToolParamsStart | ToolCall, extra: Json = UNSET) -> wire.ChatToolCall:
    """Returns a call with empty params: a function for JSON, a custom tool for free text."""
    text = part.format == "text"
    return wire.ChatToolCall(
        id=part.id,
        type=CALL_TYPES[part.format],
        function=None if text else wire.ChatFunction(part.name, ""),
        custom=wire.ChatCustom(part.name, "") if text else None,
        extra_content=extra,
    )


def render_annotations(
    sources: Iterable[Source], texts: Iterable[tuple[str, int]]
) -> list[wire.ChatAnnotation]:
    """Returns citations of the one text of the message, which joins the texts with these ids and
    lengths. Clients need all four fields, so what is not known is empty."""
    offsets: dict[str, int] = {}
    length = 0
    for id, characters in texts:
        offsets[id] = length
        length += characters
    annotations = []
    for source in sources:
        start = end = 0
        if source.start is not None and source.end is not None:
            offset = offsets.get(source.text_id or "", 0)
            start, end = offset + source.start, offset + source.end
        citation = wire.ChatUrlCitation(source.url or "", source.title or "", start, end)
        annotations.append(wire.ChatAnnotation("url_citation", citation))
    return annotations


def render_usage(usage: Usage) -> wire.ChatUsage | UnsetType:
    """Returns UNSET unless both input and output tokens are known: clients need them."""
    if usage.input_tokens is None or usage.output_tokens is None:
        return UNSET
    prompt = wire.ChatTokenDetails(usage.cache_read_tokens, usage.cache_write_tokens)
    completion = wire.ChatTokenDetails(reasoning_tokens=usage.reasoning_tokens)
    total = usage.total_tokens
    return wire.ChatUsage(
        usage.input_tokens,
        usage.output_tokens,
        usage.input_tokens + usage.output_tokens if total is None else total,
        None if prompt == wire.ChatTokenDetails() else prompt,
        None if completion == wire.ChatTokenDetails() else completion,
    )
