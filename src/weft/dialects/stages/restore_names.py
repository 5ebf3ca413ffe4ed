"""Names and ids as the client knows them, where the upstream was sent others.

A target that rejects a tool's name, or the form of a call's id, is sent one that it accepts. This
stage restores the original in every part that has one. What is not in the mapping stays, and so do
the names of tools that the upstream runs itself: nobody renamed those, even if one equals a name
that was sent.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from weft.dialects.stages import Handlers, HandlerStage
from weft.parts import (
    Delta,
    ItemPart,
    Part,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
)
from weft.request import Tool

_replace = msgspec.structs.replace
# Read-only: it is the default of every stage.
_NONE: Mapping[str, str] = MappingProxyType({})


class RestoreNames(HandlerStage):
    """A stage for one response. `names` and `ids`: what the target was sent, and the original.

    The original of a tool in a namespace is its name, or `<namespace>.<name>`; `tools` are those
    that were declared, so that the call gets its namespace, too.
    """

    holding = False  # every part comes out at once

    def __init__(
        self,
        names: Mapping[str, str],
        ids: Mapping[str, str] = _NONE,
        tools: Iterable[Tool] = (),
    ) -> None:
        self._handlers = _HANDLERS
        self._names = names
        self._ids = ids
        grouped = [(tool.name, tool.namespace) for tool in tools if tool.namespace]
        # By both forms of the original: two namespaces may hold tools of the same name.
        self._grouped = {name: (name, namespace) for name, namespace in grouped}
        self._grouped |= {f"{namespace}.{name}": (name, namespace) for name, namespace in grouped}

    def reads(self, kind: type[Delta], id: str) -> bool:
        return False  # only ids and names are changed

    def finish(self) -> list[Part]:
        """Nothing is ever held back."""
        return []

    def _id(self, part: ItemPart, out: list[Part]) -> None:
        id = self._ids.get(part.id)
        out.append(part if id is None else _replace(part, id=id))

    def _start(self, part: ToolParamsStart, out: list[Part]) -> None:
        if not part.provider_executed and part.name in self._names:
            part = _replace(part, name=self._original(part.name)[0])
        self._id(part, out)

    def _call(self, part: ToolCall, out: list[Part]) -> None:
        if not part.provider_executed and part.name in self._names:
            name, namespace = self._original(part.name)
            part = _replace(part, name=name, namespace=part.namespace or namespace)
        # A call made by a program names the call that runs the program.
        caller = self._ids.get(part.caller or "")
        self._id(part if caller is None else _replace(part, caller=caller), out)

    def _original(self, sent: str) -> tuple[str, str | None]:
        """The name and the namespace that a name of the target stands for."""
        original = self._names[sent]
        return self._grouped.get(original, (original, None))


_HANDLERS: Handlers = {
    ToolParamsStart: RestoreNames._start,
    ToolParamsDelta: RestoreNames._id,
    ToolParamsEnd: RestoreNames._id,
    ToolCall: RestoreNames._call,
    # What refers to a call by its id must follow when the id changes.
    ToolResult: RestoreNames._id,
    ToolApprovalRequest: RestoreNames._id,
}
