"""Proofs of another origin, sealed so that a client can carry them and send them back.

A client of one wire has one opaque field for the proof of a reasoning; the proof of another
origin travels in it as `weft1:<origin>:<model>:<base64>`. Whoever reads that field opens it and
has the proof as it was, with its origin. The envelope itself never goes upstream. A wire whose
field holds bytes has the same envelope in base64.
"""

from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode

import msgspec

from weft.assembler import ReasoningItem
from weft.parts import ReasoningEnd

_MARK = "weft1"
_MARK_IN_BASE64 = "d2VmdDE6"


class Proof(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a reasoning needs besides its text to be taken back by its origin."""

    signature: str | None = None
    encrypted: str | None = None
    redacted: str | None = None
    item_id: str | None = None


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


def sealed(end: ReasoningEnd | ReasoningItem, model: str | None, item_id: str | None) -> str | None:
    """The envelope of a reasoning's proof; None if it has none, or nobody knows whose it is."""
    proof = Proof(end.signature, end.encrypted, end.redacted)
    if proof == Proof() or end.origin is None:
        return None
    return seal(Sealed(end.origin, model, msgspec.structs.replace(proof, item_id=item_id)))


def unproven(origin: str, model: str | None) -> str:
    """The envelope of a reasoning without a proof: its origin may want the text back."""
    return seal(Sealed(origin, model, Proof()))


def unsealed(end: ReasoningEnd) -> ReasoningEnd:
    """The end of a reasoning; its proof as it was, if it came in an envelope."""
    inside = opened(end.signature) or opened(end.encrypted)
    if inside is None:
        return end
    proof = inside.proof
    proven = proof.signature or proof.encrypted or proof.redacted
    origin = inside.origin if proven else None
    return ReasoningEnd(
        end.id, proof.signature, proof.encrypted, proof.redacted, origin, end.whole, end.extra
    )


def _quoted(text: str) -> str:
    return text.replace("%", "%25").replace(":", "%3A")


def _unquoted(text: str) -> str:
    return text.replace("%3A", ":").replace("%25", "%")
