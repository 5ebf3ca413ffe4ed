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
from msgspec import UNSET

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

_MARK = "weft1"
_MARK_IN_BASE64 = "d2VmdDE6"
_SUMMARY = "weft1-summary:"


class Thought(msgspec.Struct, frozen=True, array_like=True):
    """What one part of a reasoning says."""

    kind: ReasoningKind
    text: str


class Proof(msgspec.Struct, frozen=True, omit_defaults=True):
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
    before: tuple[Thought, ...] = ()
    """Parts of the same item that came before, and have no proof of their own."""


class Sealed(msgspec.Struct, frozen=True):
    """A proof, with whose it is."""

    origin: str
    model: str | None
    proof: Proof


_encode = msgspec.json.Encoder().encode
_proof = msgspec.json.Decoder(Proof).decode


def seal(sealed: Sealed) -> str:
    """Returns the envelope: letters, digits and marks that every opaque field takes."""
    data = urlsafe_b64encode(_encode(sealed.proof)).decode()
    return f"{_MARK}:{_quoted(sealed.origin)}:{_quoted(sealed.model or '')}:{data}"


def opened(text: str | None) -> Sealed | None:
    """Returns what an envelope holds; None for anything that is not one of ours."""
    if text is not None and text.startswith(_MARK_IN_BASE64):
        text = _plain(text)
    if text is None or not text.startswith(f"{_MARK}:") or text.count(":") != 3:
        return None
    _, origin, model, data = text.split(":")
    try:
        proof = _proof(urlsafe_b64decode(data))
    except ValueError:
        return None
    return Sealed(_unquoted(origin), _unquoted(model) or None, proof)


def in_base64(envelope: str) -> str:
    return b64encode(envelope.encode()).decode()


def _plain(text: str) -> str | None:
    try:
        return b64decode(text, validate=True).decode()
    except ValueError:
        return None


def sealed_summary(text: str) -> str:
    """The envelope of a summary."""
    return _SUMMARY + urlsafe_b64encode(text.encode()).decode()


def opened_summary(text: str | None) -> str | None:
    """The summary in an envelope; None for anything that is not one of ours."""
    if text is None or not text.startswith(_SUMMARY):
        return None
    try:
        return b64decode(text.removeprefix(_SUMMARY), b"-_", validate=True).decode()
    except ValueError:
        return None


def sealed(
    end: ReasoningEnd | ReasoningItem,
    model: str | None,
    start: ReasoningStart | ReasoningItem,
    text: str | None = None,
    before: tuple[Thought, ...] = (),
) -> str | None:
    """The envelope of a reasoning; None if nobody knows whose it is. One without a proof has its
    origin only where that may want the reasoning back.
    """
    if end.origin is None:
        return None
    proof = Proof(
        end.signature,
        end.encrypted,
        end.redacted,
        start.item_id,
        start.kind,
        text,
        before=before,
    )
    return seal(Sealed(end.origin, model, proof))


def unproven(origin: str, model: str | None) -> str:
    """The envelope of a reasoning without a proof: its origin may want the text back."""
    return seal(Sealed(origin, model, Proof()))


def sealed_call(
    call: ToolParamsStart | ToolCall, model: str | None, id: str | None = None
) -> str | None:
    """The envelope of what signs a call; None if nothing does, or nobody knows who did. `id` is
    how the client knows the call, if not by its own id.
    """
    if call.signature is None or call.origin is None:
        return None
    return seal(Sealed(call.origin, model, Proof(call.signature, call=id or call.id)))


def signed(text: str | None, carrier: str) -> tuple[str | None, str | None]:
    """What signs a call, and who did: whoever it came from, unless it came in an envelope."""
    inside = opened(text)
    if inside is not None:
        return inside.proof.signature, inside.origin
    return (text, carrier) if text else (None, None)


def with_proof(call: CallContent, inside: Sealed) -> CallContent:
    """The call of an earlier turn with what signs it."""
    return msgspec.structs.replace(call, signature=inside.proof.signature, origin=inside.origin)


def unsealed(end: ReasoningEnd) -> ReasoningEnd:
    """The end of a reasoning; its proof as it was, if it came in an envelope."""
    inside = opened(end.signature) or opened(end.encrypted)
    if inside is None or inside.proof.call is not None:
        return end
    proof = inside.proof
    proven = proof.signature or proof.encrypted or proof.redacted
    origin = inside.origin if proven else None
    return ReasoningEnd(
        end.id, proof.signature, proof.encrypted, proof.redacted, origin, end.whole, end.extra
    )


def restored(
    inside: Sealed, text: str, kind: ReasoningKind, extra: Json = UNSET
) -> ReasoningContent:
    """The reasoning of an earlier turn that a client sent back: `text` is what it knows of it."""
    proof = inside.proof
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


def all_restored(inside: Sealed) -> tuple[ReasoningContent, ...]:
    """The whole reasoning of an item that an envelope holds: its parts, the last with the proof."""
    proof = inside.proof
    before = [
        ReasoningContent(one.text, one.kind, proof.item_id, origin=inside.origin)
        for one in proof.before
    ]
    return (*before, restored(inside, "", "raw"))


def _quoted(text: str) -> str:
    return text.replace("%", "%25").replace(":", "%3A")


def _unquoted(text: str) -> str:
    return text.replace("%3A", ":").replace("%25", "%")
