"""Texts and reasonings as they are read, each known by its id from its start to its end."""

from collections.abc import Callable

from msgspec import UNSET

from weft.dialects.ai_sdk import wire
from weft.dialects.ai_sdk.wire import Extra, Halves, kept, packed, proof_of
from weft.dialects.base import is_present
from weft.findings import Findings
from weft.parts import (
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    TextDelta,
    TextEnd,
    TextStart,
)


class Span:
    """A text or a reasoning that is open: what its end will tell."""

    __slots__ = ("metadata", "origin", "proof")

    def __init__(self) -> None:
        self.metadata: wire.Json = UNSET
        self.origin: str | None = None
        self.proof = wire.Proof()

    @property
    def signature(self) -> str | None:
        return self.proof.signature or self.proof.thought_signature

    def learn(self, metadata: wire.Json) -> None:
        """Takes in what a provider says beside the item; what is not told again stays."""
        if not is_present(metadata):
            return
        self.metadata = kept(metadata)
        found = proof_of(metadata)
        if found is None:
            return
        self.origin, proof = found
        before = self.proof
        self.proof = wire.Proof(
            proof.signature or before.signature,
            proof.thought_signature or before.thought_signature,
            proof.redacted_data or before.redacted_data,
            proof.reasoning_encrypted_content or before.reasoning_encrypted_content,
            proof.item_id or before.item_id,
        )


class Spans:
    """The texts, or the reasonings, of one response."""

    def __init__(self, origin: str | None, findings: Findings) -> None:
        self._origin = origin
        self._spans: dict[str, Span] = {}
        self._halves = Halves(findings)

    def feed(self, event: wire.Event, out: list[Part]) -> None:
        """A start, a delta or an end. One that nothing came before opens what it speaks of."""
        id = event.id or ""
        span = self._spans.get(id)
        if span is None:
            self._spans[id] = span = Span()
        if event.provider_metadata is not UNSET:
            span.learn(event.provider_metadata)
        _VERBS[(event.type or "").rpartition("-")[2]](self, id, span, event, out)

    def close(self, out: list[Part]) -> None:
        """Ends all that is open."""
        out += [self.end(id, span) for id, span in self._spans.items()]
        self._spans.clear()

    def _start(self, id: str, span: Span, event: wire.Event, out: list[Part]) -> None:
        out.append(self.start(id, span))

    def _delta(self, id: str, span: Span, event: wire.Event, out: list[Part]) -> None:
        text = wire.piece(event)
        if not text and event.provider_metadata is not UNSET:
            return  # it only brings a proof
        whole = self._halves.feed(id, text)
        if whole is not None:
            out.append(self.delta(id, whole))

    def _end(self, id: str, span: Span, event: wire.Event, out: list[Part]) -> None:
        del self._spans[id]
        rest = self._halves.rest(id)
        if rest is not None:
            out.append(self.delta(id, rest))
        out.append(self.end(id, span))

    def start(self, id: str, span: Span) -> Part:
        raise NotImplementedError

    def delta(self, id: str, text: str) -> Part:
        raise NotImplementedError

    def end(self, id: str, span: Span) -> Part:
        raise NotImplementedError


class Texts(Spans):
    def start(self, id: str, span: Span) -> TextStart:
        return TextStart(id, item_id=span.proof.item_id, extra=packed(Extra(span.metadata)))

    def delta(self, id: str, text: str) -> TextDelta:
        return TextDelta(id, text)

    def end(self, id: str, span: Span) -> TextEnd:
        origin = (self._origin or span.origin) if span.signature else None
        extra = packed(Extra(span.metadata))
        return TextEnd(id, signature=span.signature, origin=origin, extra=extra)


class Thoughts(Spans):
    def start(self, id: str, span: Span) -> ReasoningStart:
        extra = packed(Extra(span.metadata))
        return ReasoningStart(id, "raw", item_id=span.proof.item_id, extra=extra)

    def delta(self, id: str, text: str) -> ReasoningDelta:
        return ReasoningDelta(id, text)

    def end(self, id: str, span: Span) -> ReasoningEnd:
        proof, signature = span.proof, span.signature
        encrypted, redacted = proof.reasoning_encrypted_content, proof.redacted_data
        proven = signature or encrypted or redacted
        origin = (self._origin or span.origin) if proven else None
        extra = packed(Extra(span.metadata))
        return ReasoningEnd(id, signature, encrypted, redacted, origin, extra=extra)


_VERBS: dict[str, Callable[[Spans, str, Span, wire.Event, list[Part]], None]] = {
    "start": Spans._start,
    "delta": Spans._delta,
    "end": Spans._end,
}
