"""What of an upstream's errors a client may see: no secrets, and never that its key is wrong."""

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.error_classes import class_of, upstream_auth
from weft.parts import ErrorPart, Json
from weft.scrub import Scrubber


class ErrorRedactor:
    """Makes of an error what a client may see of it."""

    def __init__(self, scrub: Scrubber) -> None:
        self._scrub = scrub

    def __call__(self, error: ErrorPart) -> ErrorPart:
        """Our own key is not the client's: where it is refused, the client's is still good."""
        if class_of(error) in ("auth", "permission"):
            error = upstream_auth(error)
        code = self._scrub(error.code) if isinstance(error.code, str) else error.code
        message, extra = self._scrub(error.message), self._extra(error.extra)
        return msgspec.structs.replace(error, message=message, code=code, extra=extra)

    def _extra(self, extra: Json) -> Json:
        """What else an upstream told of an error: a field, details, the id of a request."""
        if not isinstance(extra, Raw):
            return extra
        try:
            return Raw(msgspec.json.encode(self._clean(msgspec.json.decode(extra))))
        except (ValueError, RecursionError):
            return UNSET

    def _clean(self, value: object) -> object:
        if isinstance(value, str):
            return self._scrub(value)
        if isinstance(value, list):
            return [self._clean(one) for one in value]
        if isinstance(value, dict):
            return {self._scrub(key): self._clean(one) for key, one in value.items()}
        return value
