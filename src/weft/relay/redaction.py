"""Errors of upstreams as clients may see them: without secrets, and not about our own key."""

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.error_classes import class_of, upstream_auth
from weft.parts import ErrorPart
from weft.scrub import Scrubber


class ErrorRedactor:
    """Removes from an error what its client may not see."""

    def __init__(self, scrub: Scrubber) -> None:
        self._scrub = scrub

    def __call__(self, error: ErrorPart) -> ErrorPart:
        """An upstream that refuses our key says nothing about the key of the client."""
        # A 401 would tell the client that its own key is wrong: it becomes a 502 (`upstream_auth`).
        if class_of(error) in ("auth", "permission"):
            error = upstream_auth(error)
            # The upstream speaks of "your key", which a client would take for its own.
            message = (
                f"the upstream rejected the API key of the gateway, not yours: {error.message}"
            )
            error = msgspec.structs.replace(error, message=message)
        # Providers quote the key that they refuse.
        code = self._scrub(error.code) if isinstance(error.code, str) else error.code
        message, extra = self._scrub(error.message), error.extra
        if isinstance(extra, Raw):  # a field, details, a request id
            try:
                extra = Raw(msgspec.json.encode(self._clean(msgspec.json.decode(extra))))
            except (ValueError, RecursionError):
                extra = UNSET
        return msgspec.structs.replace(error, message=message, code=code, extra=extra)

    def _clean(self, value: object) -> object:
        if isinstance(value, str):
            return self._scrub(value)
        if isinstance(value, list):
            return [self._clean(one) for one in value]
        if isinstance(value, dict):
            return {self._scrub(key): self._clean(one) for key, one in value.items()}
        return value
