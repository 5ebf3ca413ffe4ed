"""Calls inside one call of `multi_tool_use.parallel`, a function that nobody declared.

A response shows clients the inner calls, under ids derived from the wrapper's. A history that holds
their results but still the wrapper is unwrapped in the same way, so that each result has its call.
"""

from collections.abc import Collection

import msgspec
from msgspec import UNSET, Raw

from weft.request import CallContent, Request, ResultContent

WRAPPERS = frozenset({"parallel", "multi_tool_use.parallel", "multi_tool_use_parallel"})
"""The names of the function: alone, and with its namespace, for hosts that allow no dot."""

# Models put the namespace of functions before each name, as in their training.
_PREFIX = "functions."


class WrappedCall(msgspec.Struct):
    """One call inside a wrapper."""

    recipient_name: str
    # Raw: the arguments go out with the spelling that the model chose.
    parameters: Raw = Raw(b"{}")

    @property
    def name(self) -> str:
        return self.recipient_name.removeprefix(_PREFIX)

    @property
    def params(self) -> str:
        return bytes(self.parameters).decode()


class _Wrapper(msgspec.Struct):
    tool_uses: list[WrappedCall]


def parse_wrapped_calls(params: str) -> list[WrappedCall]:
    """Returns the calls in the arguments of a wrapper; raises ValueError for other arguments."""
    return msgspec.json.decode(params, type=_Wrapper).tool_uses


def answered_ids(request: Request) -> frozenset[str]:
    """Returns the ids of all results."""
    return frozenset(
        content.id
        for message in request.messages
        for content in message.content
        if isinstance(content, ResultContent)
    )


def declares_wrapper(request: Request) -> bool:
    """Whether the client declared a tool of that name itself."""
    return any(tool.name in WRAPPERS for tool in request.tools)


def unwrap_calls(call: CallContent, answered: Collection[str]) -> list[CallContent]:
    """Returns the calls inside a wrapper, if they have results; none for any other call."""
    # A client that answered the wrapper itself knows it as one call.
    if call.name not in WRAPPERS or call.id in answered:
        return []
    try:
        uses = parse_wrapped_calls(call.params)
    except ValueError:
        return []
    # Weft numbers the inner calls from 0; a history from elsewhere may begin with 1.
    numbers = next(
        (
            range(first, first + len(uses))
            for first in (0, 1)
            if all(f"{call.id}_{first + number}" in answered for number in range(len(uses)))
        ),
        range(0),
    )
    return [
        msgspec.structs.replace(
            call,
            id=f"{call.id}_{number}",
            name=use.name,
            params=use.params,
            # The id of the item was the wrapper's.
            item_id=None,
            # A step is signed once, on its first call.
            signature=call.signature if number == numbers.start else None,
            extra=UNSET,
        )
        for number, use in zip(numbers, uses, strict=False)
    ]
