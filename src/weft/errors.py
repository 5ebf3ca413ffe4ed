"""Every exception Weft raises on purpose.

    WeftError
    ├── UpstreamError           the upstream's fault: what it sent cannot be read
    │   ├── TooLarge            a line or an event over the limit
    │   └── Unreachable         no response, or only part of it (upstream/base.py)
    │       └── Busy            not sent: too many requests are in progress
    ├── ClientError             the caller's fault: a wrong argument, an unreadable capture
    │   ├── ArgumentTypeError   an argument of the wrong type; also a TypeError
    │   ├── ArgumentValueError  an argument with an unusable value; also a ValueError
    │   │   └── UnknownDialect  no dialect of that name, or not in that direction
    │   ├── Unreadable          not a stream, or its dialect cannot be detected
    │   ├── UnknownModel        no upstream and no alias of that name (relay/routing.py)
    │   ├── SettingsError       errors in weft.toml (gateway/settings)
    │   ├── AlreadyExists       the id exists already (store/base.py)
    │   ├── NotFound            the id does not exist (store/base.py)
    │   ├── UnknownStore        not the URL of a supported database (store/base.py)
    │   ├── BadArguments        a tool call does not fit its schema (agent/tools.py)
    │   ├── McpUnavailable      an MCP server cannot be used (agent/mcp_config.py)
    │   ├── IllegalEvent        cannot follow in this state of a run (agent/state.py)
    │   ├── UnknownAgent        no agent of that name (agent/runtime.py)
    │   ├── KeyReused           an idempotency key of another request (agent/runtime.py)
    │   ├── IllegalFork         a run cannot be forked there (agent/runtime.py)
    │   └── BadRequest          a request body that is not valid
    │       └── Refused         a valid one that the target dialect cannot express
    └── InternalError           our fault; please report it with the capture
        └── StoreError          the database failed; `kind` says why (store/base.py)

A broken stream is not an exception: it decodes to an `error` part and a `finish` with the
reason `error`. Exceptions are for wrong arguments and unusable input.
"""


class WeftError(Exception):
    """The base class of all exceptions that Weft raises on purpose."""


class UpstreamError(WeftError):
    """What an upstream sent cannot be read."""


class TooLarge(UpstreamError):
    """A line or an event is over its limit."""

    def __init__(self, what: str, limit: int, *, offset: int, event: int) -> None:
        super().__init__(f"{what} over {limit} bytes at byte {offset}, event {event}")
        self.offset = offset
        self.event = event


class ClientError(WeftError):
    """The caller made a mistake: a wrong argument, an unreadable capture, a bad request."""


# Also built-in types, so that `except TypeError` works as with any Python function.
class ArgumentTypeError(ClientError, TypeError):
    """An argument of a public function has the wrong type."""


class ArgumentValueError(ClientError, ValueError):
    """An argument of a public function has a value that cannot be used."""


class UnknownDialect(ArgumentValueError):
    """There is no dialect of that name, or not in that direction."""


class Unreadable(ClientError):
    """The capture is not a stream of any dialect, or it could be one of several."""

    def __init__(self, reason: str, *, offset: int = 0, event: int = 0) -> None:
        super().__init__(reason)
        self.offset = offset
        self.event = event


class BadRequest(ClientError):
    """A request body cannot be used; `path` names the field in the client's own body."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


class Refused(BadRequest):
    """A request that would change its meaning in the target dialect."""


class InternalError(WeftError):
    """A bug in Weft. Please report it, with the capture."""
