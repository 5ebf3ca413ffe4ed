"""What of an upstream's errors a client may see: no secrets, and never that its key is wrong."""

import msgspec

from weft.dialects.faults import class_of, upstream_auth
from weft.parts import ErrorPart, Part
from weft.scrub import Scrubber


class Shown:
    """A stage that scrubs errors; everything else passes."""

    def __init__(self, scrub: Scrubber) -> None:
        self._scrub = scrub

    def feed(self, parts: list[Part]) -> list[Part]:
        for place, part in enumerate(parts):
            if isinstance(part, ErrorPart):
                parts[place] = self.error(part)
        return parts

    def finish(self) -> list[Part]:
        return []

    def error(self, error: ErrorPart) -> ErrorPart:
        """Our own key is not the client's: where it is refused, the client's is still good."""
        if class_of(error) in ("auth", "permission"):
            error = upstream_auth(error)
        return msgspec.structs.replace(error, message=self._scrub(error.message))
