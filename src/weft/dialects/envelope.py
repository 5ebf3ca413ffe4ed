"""Proofs of another origin, sealed so that a client can carry them and send them back.

A client of one wire has one opaque field for the proof of a reasoning; the proof of another
origin travels in it as `weft1:<origin>:<model>:<base64>`. Whoever reads that field opens it and
has the proof as it was, with its origin. The envelope itself never goes upstream.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

_MARK = "weft1"


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
    if text is None or not text.startswith(f"{_MARK}:") or text.count(":") != 3:
        return None
    _, origin, model, data = text.split(":")
    try:
        proof = _proof(urlsafe_b64decode(data))
    except ValueError:
        return None
    return Sealed(_unquoted(origin), _unquoted(model) or None, proof)


def _quoted(text: str) -> str:
    return text.replace("%", "%25").replace(":", "%3A")


def _unquoted(text: str) -> str:
    return text.replace("%3A", ":").replace("%25", "%")
