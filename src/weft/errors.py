"""Every exception Weft raises on purpose.

    WeftError
    ├── UpstreamError       the upstream's fault: what it sent cannot be read
    │   ├── TooLarge        a line or an event over the limit
    │   └── Unreachable     no answer, or no more of it (upstream/base.py)
    │       └── Busy        it was not even asked: too many answers are under way
    ├── ClientError         the caller's fault: a wrong argument, an unreadable capture
    │   ├── UnknownDialect  no dialect of that name, or not in that direction
    │   ├── Unreadable      a capture that is no stream, or whose dialect cannot be told
    │   ├── UnknownModel    no upstream and no alias of that name (relay/routing.py)
    │   ├── SettingsError   what is wrong in weft.toml (gateway/settings)
    │   ├── Taken           there is something of that id already (store/base.py)
    │   ├── Absent          there is nothing of that id (store/base.py)
    │   ├── UnknownStore    the address of no database (store/base.py)
    │   └── BadRequest      a request body that cannot be read
    │       └── Refused     one that can, but that the target cannot say
    └── InternalError       our fault; please report it with the capture
        └── StoreError      the database cannot do it; `kind` says why (store/base.py)

A broken stream is not an exception: it decodes to an `error` part and a `finish` with the
reason `error`. Exceptions are for what cannot become a stream at all.
"""


class WeftError(Exception):
    """The root of all that Weft raises on purpose."""


class UpstreamError(WeftError):
    """What an upstream sent cannot be read."""


class TooLarge(UpstreamError):
    """A line or an event is over its limit."""

    def __init__(self, what: str, limit: int, *, offset: int, event: int) -> None:
        super().__init__(f"{what} over {limit} bytes at byte {offset}, event {event}")
        self.offset = offset
        self.event = event


class ClientError(WeftError):
    """The caller asked for something that cannot be."""


class UnknownDialect(ClientError):
    """There is no dialect of that name, or not in that direction."""


class Unreadable(ClientError):
    """A capture that is no stream of any dialect, or of more than one."""

    def __init__(self, reason: str, *, offset: int = 0, event: int = 0) -> None:
        super().__init__(reason)
        self.offset = offset
        self.event = event


class BadRequest(ClientError):
    """A request that cannot be: `path` names the field, in the client's own body."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


class Refused(BadRequest):
    """A request that would mean something else in the target dialect."""


class InternalError(WeftError):
    """Weft broke one of its own promises."""
