"""Names and ids as the client knows them, where the upstream was told others.

A target that refuses a tool's name, or the spelling of a call's id, is asked in words that it
takes. This stage gives the originals back, in every part that shows one. A word that is not in
the mapping stays, and so do the names of tools that the upstream runs itself: nobody renamed
them, even if one should be spelled like a client's.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

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


class RestoreNames:
    """A stage for one response. `names` and `ids`: what the target was told, and the original.

    The original of a tool in a namespace is its name, or `<namespace>.<name>`; `tools` are the
    ones that were declared, so that the call says the namespace, too.
    """

    passes = False  # there may always be more to do
    holding = False  # every part comes out at once

    def __init__(
        self,
        names: Mapping[str, str],
        ids: Mapping[str, str] = _NONE,
        tools: Iterable[Tool] = (),
    ) -> None:
        self._names = names
        self._ids = ids
        grouped = [(tool.name, tool.namespace) for tool in tools if tool.namespace]
        self._grouped = {name: (name, namespace) for name, namespace in grouped}
        self._grouped |= {f"{namespace}.{name}": (name, namespace) for name, namespace in grouped}

    def feed(self, parts: list[Part]) -> list[Part]:
        out: list[Part] = []
        for part in parts:
            handler = _HANDLERS.get(part.__class__)
            out.append(part if handler is None else handler(self, part))
        return out

    def finish(self) -> list[Part]:
        """Nothing is ever held back."""
        return []

    def _id(self, part: ItemPart) -> ItemPart:
        id = self._ids.get(part.id)
        return part if id is None else _replace(part, id=id)

    def _start(self, part: ToolParamsStart) -> ItemPart:
        if not part.provider_executed and part.name in self._names:
            part = _replace(part, name=self._original(part.name)[0])
        return self._id(part)

    def _call(self, part: ToolCall) -> ItemPart:
        if not part.provider_executed and part.name in self._names:
            name, namespace = self._original(part.name)
            part = _replace(part, name=name, namespace=part.namespace or namespace)
        caller = self._ids.get(part.caller or "")
        return self._id(part if caller is None else _replace(part, caller=caller))

    def _original(self, spelled: str) -> tuple[str, str | None]:
        """The name and the namespace that a word of the target stands for."""
        original = self._names[spelled]
        return self._grouped.get(original, (original, None))


_HANDLERS: dict[type[Part], Callable[[RestoreNames, Any], Part]] = {
    ToolParamsStart: RestoreNames._start,
    ToolParamsDelta: RestoreNames._id,
    ToolParamsEnd: RestoreNames._id,
    ToolCall: RestoreNames._call,
    ToolResult: RestoreNames._id,
    ToolApprovalRequest: RestoreNames._id,
}
