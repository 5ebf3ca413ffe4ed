"""The rules of a wire, as the checker reads them.

A rule is a value: what must hold, why, and bytes that break it. A dialect's `validator.py` checks
a stream by its rules. It reads untyped frames and shares no code with the decoder, so that the two
cannot be wrong in the same way.
"""

from typing import Literal, Protocol

import msgspec

from weft.sse import Frame

Severity = Literal["error", "warning", "note"]
"""error: clients break or lose something; warning: some do; note: legal, but worth knowing."""

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
"""What an untyped frame holds."""


class Rule(msgspec.Struct, frozen=True):
    """One promise of a wire. Its full id is `<dialect>/<name>`, and stays what it is."""

    name: str
    severity: Severity
    promise: str
    """What holds in a good stream, as one sentence."""

    why: str
    """Who breaks, or what is lost, when it does not."""

    example: str
    """The shortest piece of a stream that breaks it."""


class Validator(Protocol):
    """Checks one response by the rules of its wire: every frame of it, then its end.

    Adds a finding for each broken rule, whose code is the name of the rule, with what came and
    what was expected. Whoever feeds it keeps the position in the findings up to date.
    """

    def feed(self, frame: Frame, event: JsonValue) -> None:
        """`event` is the frame's JSON; None also for what is no JSON, such as `[DONE]`."""
        ...

    def finish(self) -> None: ...
