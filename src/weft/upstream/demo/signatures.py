"""Signatures of reasoning, as the demo model makes them: the text, signed with a public key.

They show that reasoning comes back byte for byte. They protect nothing.
"""

import hmac
from base64 import b64decode, b64encode
from hashlib import sha256

_KEY = b"weft demo"
_LENGTH = 16


def sign(text: str) -> str:
    """Returns the signature of a reasoning: base64, which every dialect has a field for."""
    data = text.encode("utf-8", "replace")
    return b64encode(_digest(data) + data).decode()


def verify(signature: str, text: str) -> bool:
    """Whether a signature was made here, and for this text. A client may have left the text out."""
    try:
        data = b64decode(signature, validate=True)
    except ValueError:
        return False
    digest, signed = data[:_LENGTH], data[_LENGTH:]
    return hmac.compare_digest(digest, _digest(signed)) and (
        not text or text.encode("utf-8", "replace") == signed
    )


def _digest(data: bytes) -> bytes:
    return hmac.digest(_KEY, data, sha256)[:_LENGTH]
