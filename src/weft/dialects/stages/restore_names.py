"""Names and ids as the client knows them, where the upstream was told others.

A target that refuses a tool's name, or the spelling of a call's id, is asked in words that it
takes. This stage gives the originals back, in every part that shows one. A word that is not in
the mapping stays, and so do the names of tools that the upstream runs itself: nobody renamed
them, even if one should be spelled like a client's.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from weft.dialects.stages import Handlers, HandlerStage
from weft.parts import (
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
_NONE: Mapping[str, str] = MappingProxyType({})


class RestoreNames(HandlerStage):
    """A stage for one response. `names` and `ids`: what the target was told, and the original.

    The original of a tool in a namespace is its name, or `<namespace>.<name>`; `tools` are the
    ones that were declared, so that the call says the namespace, too.
    """

    holding = False  # every part comes out at once

    def __init__(
        self,
        names: Mapping[str, str],
        ids: Mapping[str, str] = _NONE,
        tools: Iterable[Tool] = (),
    ) -> None:
        super().__init__(_HANDLERS)
        self._names = names
        self._ids = ids
        grouped = [(tool.name, tool.namespace) for tool in tools if tool.namespace]
        self._grouped = {name: (name, namespace) for name, namespace in grouped}
        self._grouped |= {f"{namespace}.{name}": (name, namespace) for name, namespace in grouped}

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
        caller = self._ids.get(part.caller or "")
        self._id(part if caller is None else _replace(part, caller=caller), out)

    def _original(self, spelled: str) -> tuple[str, str | None]:
        """The name and the namespace that a word of the target stands for."""
        original = self._names[spelled]
        return self._grouped.get(original, (original, None))


_HANDLERS: Handlers = {
    ToolParamsStart: RestoreNames._start,
    ToolParamsDelta: RestoreNames._id,
    ToolParamsEnd: RestoreNames._id,
    ToolCall: RestoreNames._call,
    ToolResult: RestoreNames._id,
    ToolApprovalRequest: RestoreNames._id,
}
