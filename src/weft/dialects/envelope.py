"""Proofs of another origin, sealed so that a client can carry them and send them back.

A client of one wire has one opaque field for the proof of a reasoning; the proof of another
origin travels in it as `weft1:<origin>:<model>:<base64>`. Whoever reads that field opens it and
has the proof as it was, with its origin. The envelope itself never goes upstream. A wire whose
field holds bytes has the same envelope in base64.

What signs a call travels the same way: on the call where the wire has a field for it, else in a
reasoning that stands before the call; so the envelope names the call.

What stands for turns that were summed up travels as `weft1-summary:<base64>`. It proves nothing:
whoever reads it has a text that the client might have sent as well.
"""

from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode

import msgspec
from msgspec import UNSET, Raw

from weft.assembler import ReasoningItem
from weft.parts import (
    Json,
    ReasoningEnd,
    ReasoningKind,
    ReasoningStart,
    ToolCall,
    ToolParamsStart,
)
from weft.request import CallContent, ReasoningContent

_PREFIX = "weft1"
_PREFIX_IN_BASE64 = "d2VmdDE6"
_SUMMARY_PREFIX = "weft1-summary:"


class ReasoningText(msgspec.Struct, frozen=True, array_like=True):
    """What one part of a reasoning says."""

    kind: ReasoningKind
    text: str


class ReasoningState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a reasoning needs to be taken back, so that it does not matter what else of it a client
    returns; or what signs a call.
    """

    signature: str | None = None
    encrypted: str | None = None
    redacted: str | None = None
    item_id: str | None = None
    kind: ReasoningKind | None = None
    text: str | None = None
    """What it proves, to the letter; None where the wire has it in one piece, and clients may not
    change it."""
    call: str | None = None
    """The call that `signature` is about, by the id that the client knows it by."""
    before: tuple[ReasoningText, ...] = ()
    """Parts of the same item that came before, and have no proof of their own."""


class Envelope(msgspec.Struct, frozen=True):
    """A proof, with whose it is."""

    origin: str
    model: str | None
    state: ReasoningState


_encode = msgspec.json.Encoder().encode
_decode_state = msgspec.json.Decoder(ReasoningState).decode


def wrap(envelope: Envelope) -> str:
    """Returns the envelope: letters, digits and marks that every opaque field takes."""
    data = urlsafe_b64encode(_encode(envelope.state)).decode()
    return f"{_PREFIX}:{_quote(envelope.origin)}:{_quote(envelope.model or '')}:{data}"


def unwrap(text: str | None) -> Envelope | None:
    """Returns what an envelope holds; None for anything that is not one of ours."""
    if text is not None and text.startswith(_PREFIX_IN_BASE64):
        text = _from_base64(text)
    if text is None or not text.startswith(f"{_PREFIX}:") or text.count(":") != 3:
        return None
    _, origin, model, data = text.split(":")
    try:
        proof = _decode_state(urlsafe_b64decode(data))
    except ValueError:
        return None
    return Envelope(_unquote(origin), _unquote(model) or None, proof)


def to_base64(envelope: str) -> str:
    return b64encode(envelope.encode()).decode()


def _from_base64(text: str) -> str | None:
    try:
        return b64decode(text, validate=True).decode()
    except ValueError:
        return None


def wrap_summary(text: str) -> str:
    """The envelope of a summary."""
    return _SUMMARY_PREFIX + urlsafe_b64encode(text.encode()).decode()


def unwrap_summary(text: str | None) -> str | None:
    """The summary in an envelope; None for anything that is not one of ours."""
    if text is None or not text.startswith(_SUMMARY_PREFIX):
        return None
    try:
        return b64decode(text.removeprefix(_SUMMARY_PREFIX), b"-_", validate=True).decode()
    except ValueError:
        return None


def wrap_reasoning(
    end: ReasoningEnd | ReasoningItem,
    model: str | None,
    start: ReasoningStart | ReasoningItem,
    text: str | None = None,
    before: tuple[ReasoningText, ...] = (),
) -> str | None:
    """The envelope of a reasoning; None if nobody knows whose it is. One without a proof has its
    origin only where that may want the reasoning back.
    """
    if end.origin is None:
        return None
    proof = ReasoningState(
        end.signature,
        end.encrypted,
        end.redacted,
        start.item_id,
        start.kind,
        text,
        before=before,
    )
    return wrap(Envelope(end.origin, model, proof))


def wrap_origin(origin: str, model: str | None) -> str:
    """The envelope of a reasoning without a proof: its origin may want the text back."""
    return wrap(Envelope(origin, model, ReasoningState()))


def wrap_call_signature(
    call: ToolParamsStart | ToolCall, model: str | None, id: str | None = None
) -> str | None:
    """The envelope of what signs a call; None if nothing does, or nobody knows who did. `id` is
    how the client knows the call, if not by its own id.
    """
    if call.signature is None or call.origin is None:
        return None
    return wrap(Envelope(call.origin, model, ReasoningState(call.signature, call=id or call.id)))


def unwrap_signature(text: str | None, carrier: str) -> tuple[str | None, str | None]:
    """What signs a call, and who did: whoever it came from, unless it came in an envelope."""
    inside = unwrap(text)
    if inside is not None:
        return inside.state.signature, inside.origin
    return (text, carrier) if text else (None, None)


def with_signature(call: CallContent, inside: Envelope) -> CallContent:
    """The call of an earlier turn with what signs it."""
    return msgspec.structs.replace(call, signature=inside.state.signature, origin=inside.origin)


def unwrap_reasoning_end(end: ReasoningEnd) -> ReasoningEnd:
    """The end of a reasoning; its proof as it was, if it came in an envelope."""
    inside = unwrap(end.signature) or unwrap(end.encrypted)
    if inside is None or inside.state.call is not None:
        return end
    proof = inside.state
    proven = proof.signature or proof.encrypted or proof.redacted
    origin = inside.origin if proven else None
    return ReasoningEnd(
        end.id, proof.signature, proof.encrypted, proof.redacted, origin, end.whole, end.extra
    )


def restore_reasoning(
    inside: Envelope, text: str, kind: ReasoningKind, extra: Json = UNSET
) -> ReasoningContent:
    """The reasoning of an earlier turn that a client sent back: `text` is what it knows of it."""
    proof = inside.state
    return ReasoningContent(
        text if proof.text is None else proof.text,
        proof.kind or kind,
        proof.item_id,
        proof.signature,
        proof.encrypted,
        proof.redacted,
        inside.origin,
        extra,
    )


def restore_reasoning_item(inside: Envelope) -> tuple[ReasoningContent, ...]:
    """The whole reasoning of an item that an envelope holds: its parts, the last with the proof."""
    proof = inside.state
    before = [
        ReasoningContent(one.text, one.kind, proof.item_id, origin=inside.origin)
        for one in proof.before
    ]
    return (*before, restore_reasoning(inside, "", "raw"))


def _quote(text: str) -> str:
    return text.replace("%", "%25").replace(":", "%3A")


def _unquote(text: str) -> str:
    return text.replace("%3A", ":").replace("%25", "%")


def is_envelope(raw: Json) -> bool:
    """Whether a raw value is a text that carries a proof of another origin."""
    try:
        text = msgspec.json.decode(raw, type=str) if isinstance(raw, Raw) else None
    except ValueError:
        return False
    return unwrap(text) is not None
