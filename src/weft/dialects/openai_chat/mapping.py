"""What the wire's words mean: entries, usage, finish reasons, errors, proofs of reasoning."""

import json
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.assembler import Buffer
from weft.calls import CallDelta
from weft.dialects.envelope import signed, unsealed
from weft.dialects.faults import CLASSES, Extra, classify, is_word
from weft.dialects.openai_chat import wire
from weft.partial_json import mended, whole_characters
from weft.parts import ErrorPart, FinishReason, ReasoningEnd, Usage

WORDS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
"""The finish reasons that the dialect itself has: strict readers know no other."""

REASONS: dict[str, FinishReason] = {
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
"""Finish reasons, compared in lower case. A word that is not here is `other`."""


class Proof:
    """The `reasoning_details` of one reasoning part, merged by type and index.

    A part has one `data`: another one proves another reasoning. Streams number all details alike,
    and those of one reasoning may have several numbers, so numbers tell nothing until it is proven.
    """

    __slots__ = ("_details", "_texts")

    def __init__(self) -> None:
        self._details: dict[tuple[str | None, int | None], wire.Detail] = {}
        self._texts: dict[tuple[str | None, int | None], Buffer] = {}

    def add(self, detail: wire.Detail) -> None:
        key = (detail.type, detail.index)
        known = self._details.setdefault(key, detail)
        self._texts.setdefault(key, Buffer()).add(detail.text or detail.summary or "")
        known.signature = detail.signature or known.signature
        known.data = detail.data or known.data
        known.id = detail.id or known.id
        known.format = detail.format or known.format

    @property
    def begun(self) -> bool:
        """Whether there are details: they come out with the end of the reasoning."""
        return bool(self._details)

    @property
    def proven(self) -> bool:
        return any(map(proves, self._details.values()))

    def takes(self, detail: wire.Detail) -> bool:
        """Whether a detail is about this reasoning: any is until it is proven, then those with its
        id or index. Beside `data`, only what was not told yet: neither other `data` nor more text.
        """
        text, known = text_of([detail]), self._details.values()
        if not self.proven or not (text or proves(detail)):
            return True
        data = any(one.data for one in known)
        if data and detail.data:
            return any(_is_again(detail, one) for one in known)
        ids = {one.id for one in known if one.id}
        if detail.id and ids:
            return detail.id in ids
        if data and text and (detail.type, detail.index) in self._details:
            return False
        return any(one.index == detail.index for one in known)

    def end(self, id: str, host: str | None) -> ReasoningEnd:
        """The end of the reasoning. A host may want it back also where it did not prove it."""
        if not self._details:
            return ReasoningEnd(id, origin=host)
        for key, detail in self._details.items():
            text = whole_characters(self._texts[key].text) or None
            if detail.summary is not None:
                detail.summary = text
            else:
                detail.text = text
        details = list(self._details.values())
        end = ReasoningEnd(
            id,
            signature=next((one.signature for one in details if one.signature), None),
            encrypted=next((one.data for one in details if one.data), None),
            origin=host or wire.NAME,
            extra=Raw(msgspec.json.encode({"reasoning_details": details})),
        )
        return unsealed(end)


def text_of(details: Sequence[wire.Detail]) -> str:
    return "".join(one.text or one.summary or "" for one in details)


def is_summary(details: Sequence[wire.Detail]) -> bool:
    return any(one.type == "reasoning.summary" for one in details)


def proves(detail: wire.Detail) -> bool:
    return bool(detail.signature or detail.data)


def _is_again(detail: wire.Detail, known: wire.Detail) -> bool:
    """Whether a detail tells the same `data` once more."""
    same = (detail.data, detail.index) == (known.data, known.index)
    return same and (not detail.id or not known.id or detail.id == known.id)


def cut(proof: Proof, details: Sequence[wire.Detail]) -> list[tuple[Proof, list[wire.Detail]]]:
    """Adds details to the reasonings that they are about, which may be the one of `proof`.

    Returns each with those that it got, in the order they came.
    """
    found: list[tuple[Proof, list[wire.Detail]]] = [(proof, [])]
    for detail in details:
        if not found[-1][0].takes(detail):
            found.append((Proof(), []))
        proof, own = found[-1]
        proof.add(detail)
        own.append(detail)
    return [(proof, own) for proof, own in found if own]


def finish_reason(word: str) -> FinishReason:
    return REASONS.get(word.lower(), "other")


def call_delta(call: wire.Call) -> CallDelta:
    """One entry, normalised: what is empty is absent, a stray empty `custom` is nothing."""
    extra = call.extra_content
    extra = extra.copy() if isinstance(extra, Raw) else extra  # not the whole frame
    signature, _ = proof_of(extra, wire.NAME)
    custom = call.custom
    if custom is not None and (named(custom.name) or custom.input):
        return CallDelta(
            call.index,
            call.id or None,
            named(custom.name),
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
        named(function.name) if function else None,
        (function.arguments or "") if function else "",
        kind=kind,
        format="text" if kind == "custom" else "json",
        signature=signature,
        extra=extra,
    )


def named(name: str | None) -> str | None:
    """A name that says something: one of nothing but blanks is none."""
    return name if name and name.strip() else None


def proof_of(extra: Raw | UnsetType, host: str) -> tuple[str | None, str | None]:
    """The signature beside a call or a text, and whose it is."""
    if not isinstance(extra, Raw):
        return None, None
    try:
        owners = wire.read_extra(extra)
    except ValueError:
        return None, None
    told = (one.thought_signature for one in owners.values() if one.thought_signature)
    return signed(next(told, None), host)


def usage_of(usage: wire.Usage) -> Usage | None:
    """Returns None for usage that tells nothing."""
    prompt = usage.prompt_tokens_details or wire.TokenDetails()
    completion = usage.completion_tokens_details or wire.TokenDetails()
    cached = (prompt.cached_tokens, usage.prompt_cache_hit_tokens, usage.cached_tokens)
    found = Usage(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        reasoning_tokens=completion.reasoning_tokens,
        cache_read_tokens=next((count for count in cached if count is not None), None),
        cache_write_tokens=prompt.cache_write_tokens,
    )
    return None if found == Usage() else found


def total_of(usage: Usage) -> int | None:
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    return usage.input_tokens + usage.output_tokens


def error_of(chunk: wire.Chunk) -> ErrorPart:
    """An error object in any of its shapes: the message and the code, of whatever type."""
    error = _plain(chunk.error)
    fields = error if isinstance(error, dict) else {}
    code = _plain(chunk.code) if fields.get("code") is None else fields["code"]
    message = fields.get("message") or (error if isinstance(error, str) else None)
    message = message or _plain(chunk.message) or fields.get("type") or "unknown error"
    status = next((one for one in (fields.get("status"), code) if _is_status(one)), None)
    status = status if isinstance(status, int) else None
    type = fields.get("type")
    word = type if isinstance(type, str) else None
    known = status is not None or is_word(_code(code)) or is_word(word)
    return ErrorPart(
        "upstream",
        message if isinstance(message, str) else msgspec.json.encode(message).decode(),
        code=_code(code),
        status=status,
        retryable=known and CLASSES[classify(status, _code(code), word)].retryable,
        extra=Raw(msgspec.json.encode(Extra(type=word))) if word else UNSET,
    )


def _plain(raw: Raw | UnsetType) -> object:
    """The value of a raw field, read as leniently as can be: an error must not get lost."""
    if not isinstance(raw, Raw):
        return None
    try:
        return mended(json.loads(bytes(raw), strict=False))
    except (ValueError, RecursionError):
        return bytes(raw).decode("utf-8", "replace")


def _code(value: object) -> str | int | None:
    """A code of whatever type: text and whole numbers as they are, the rest as text."""
    if isinstance(value, bool | float):
        return str(value)
    return value if isinstance(value, str | int) or value is None else str(value)


def _is_status(value: object) -> bool:
    return isinstance(value, int) and 400 <= value <= 599
