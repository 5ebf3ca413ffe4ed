"""The rules of a wire, as the checker reads them.

A rule is a value: what must hold, why, and bytes that break it. `rules.toml` in the folder of a
dialect lists them, and `validator.py` there checks streams by them. It reads untyped frames and
shares no code with the decoder, so that the two cannot be wrong in the same way.
"""

from typing import Literal, Protocol

import msgspec

from weft.sse import Frame

Severity = Literal["error", "warning", "note"]
"""error: clients break or lose something; warning: some do; note: legal, but worth knowing."""

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
"""What an untyped frame holds."""


# Unknown fields are refused: a slip in the TOML would silently drop a sentence.
class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule of a wire, as `rules.toml` has it below its name."""

    severity: Severity
    promise: str
    """What holds in a good stream, as one sentence."""

    why: str
    """Who breaks, or what is lost, when it does not."""

    example: str
    """The shortest piece of a stream that breaks it."""

    # One defect is one finding: the report leaves these out.
    implies_at_event: tuple[str, ...] = ()
    """The ids of rules that are always broken at the same event, by the same defect."""

    implies_in_response: tuple[str, ...] = ()
    """The ids of rules that the same defect breaks once each, at another event."""


class Validator(Protocol):
    """Checks one response by the rules of its wire: every frame of it, then its end.

    Adds a finding for each broken rule, whose code is the name of the rule, with what came and
    what was expected. The caller keeps the position in the findings up to date.
    """

    def feed(self, frame: Frame, event: JsonValue) -> None:
        """`event` is the frame's JSON; None also for what is no JSON, such as `[DONE]`."""
        ...

    def finish(self) -> None: ...
