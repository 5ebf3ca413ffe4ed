"""Events of the log: a name and fields beside the message, for programs that read it.

    log.warning("retry in %g s", pause, extra=log_event("attempt-failed", request_id, attempt=2))

No field, and no message, holds text of a request or a response.
"""

from typing import Any


def log_event(name: str, request: str | None = None, **fields: object) -> dict[str, Any]:
    """Returns the `extra` of a log call."""
    return {"event": name, "request_id": request, "fields": fields}
