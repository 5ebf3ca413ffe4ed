"""Proofs of reasoning, as the demo model makes them: the text, signed with a key that is no secret.

They show that reasoning comes home byte for byte. They protect nothing.
"""

import hmac
from base64 import b64decode, b64encode
from hashlib import sha256

_KEY = b"weft demo"
_LENGTH = 16


def proof(text: str) -> str:
    """Returns the proof of a reasoning: base64, as the fields of every wire take it."""
    data = text.encode("utf-8", "replace")
    return b64encode(_mark(data) + data).decode()


def holds(proof: str, text: str) -> bool:
    """Whether a proof was made here, and for this text. A client may have left the text out."""
    try:
        data = b64decode(proof, validate=True)
    except ValueError:
        return False
    mark, proven = data[:_LENGTH], data[_LENGTH:]
    return hmac.compare_digest(mark, _mark(proven)) and (
        not text or text.encode("utf-8", "replace") == proven
    )


def _mark(data: bytes) -> bytes:
    return hmac.digest(_KEY, data, sha256)[:_LENGTH]
