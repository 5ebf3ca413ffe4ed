"""Calls that a model wrapped into one call of a function that nobody declared.

Models that were trained with such a function sometimes call it: `parallel`, with the calls that
they mean as `{"tool_uses": [{"recipient_name": "functions.NAME", "parameters": {…}}]}`. This stage
makes each of them a call of its own, under an id made of the wrapper's. A wrapper that names a
tool nobody declared, or says something else, stays the call that it is.

The arguments of a wrapper wait for its end: only then is it known what it wraps.
"""

from collections.abc import Callable, Collection
from typing import Any

import msgspec
from msgspec import UNSET

from weft.assembler import Buffer
from weft.dialects.requests.multi_tool_use import WRAPPERS, WrappedCall, parse_wrapped_calls
from weft.findings import Findings
from weft.parts import (
    ErrorPart,
    Finish,
    Part,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
)

_replace = msgspec.structs.replace


class _HeldWrapper:
    """A wrapper that was announced and is not known to be one."""

    __slots__ = ("end", "params", "start")

    def __init__(self, start: ToolParamsStart) -> None:
        self.start = start
        self.params = Buffer()
        self.end: ToolParamsEnd | None = None


class ParallelCalls:
    """A stage for one response. `tools` are the names of the tools that were declared."""

    def __init__(self, tools: Collection[str], findings: Findings) -> None:
        self._tools = frozenset(tools)
        self._wrappers = WRAPPERS - self._tools
        self._findings = findings
        self._waiting: dict[str, _HeldWrapper] = {}

    @property
    def passes(self) -> bool:
        """Whether nothing can be unfolded: no tool was declared, or all wrappers' names were."""
        return not (self._tools and self._wrappers)

    @property
    def holding(self) -> bool:
        return bool(self._waiting)

    def feed(self, parts: list[Part]) -> list[Part]:
        out: list[Part] = []
        for part in parts:
            handler = _HANDLERS.get(part.__class__)
            if handler is None or self.passes:
                out.append(part)
            else:
                handler(self, part, out)
        return out

    def finish(self) -> list[Part]:
        """Returns what waited for an end that never came, as it is."""
        out: list[Part] = []
        for id in list(self._waiting):
            self._leave(self._waiting.pop(id), out)
        return out

    def _start(self, part: ToolParamsStart, out: list[Part]) -> None:
        ours = part.name in self._wrappers and part.format == "json" and not part.provider_executed
        if ours and part.id not in self._waiting:
            self._waiting[part.id] = _HeldWrapper(part)
        else:
            out.append(part)

    def _delta(self, part: ToolParamsDelta, out: list[Part]) -> None:
        wrapper = self._waiting.get(part.id)
        if wrapper is None:
            out.append(part)
        else:
            wrapper.params.add(part.delta)

    def _end(self, part: ToolParamsEnd, out: list[Part]) -> None:
        wrapper = self._waiting.get(part.id)
        if wrapper is None:
            out.append(part)
        else:
            wrapper.end = part

    def _call(self, part: ToolCall, out: list[Part]) -> None:
        wrapper = self._waiting.pop(part.id, None)
        lone = part.name in self._wrappers and part.format == "json" and not part.provider_executed
        if wrapper is None and not lone:
            out.append(part)
            return
        told = part.params or ("" if wrapper is None else wrapper.params.text)
        uses = None if part.invalid else self._uses(told)
        if uses is not None:
            detail = f"call {part.id!r} of {part.name!r} wraps {len(uses)} calls: made one by one"
            self._findings.note("parallel-wrapper", detail)
            for number, use in enumerate(uses):
                self._unfold(part, number, use, out)
            return
        detail = f"call {part.id!r} of {part.name!r} does not wrap calls of declared tools: kept"
        self._findings.note("parallel-wrapper", detail)
        if wrapper is not None:
            self._leave(wrapper, out)
        out.append(part)

    def _uses(self, params: str) -> list[WrappedCall] | None:
        """What is wrapped; None if that is anything but calls of declared tools."""
        try:
            uses = parse_wrapped_calls(params)
        except ValueError:
            return None
        names = [use.name for use in uses]
        objects = all(bytes(use.parameters).startswith(b"{") for use in uses)
        return uses if uses and objects and self._tools.issuperset(names) else None

    def _unfold(self, wrapper: ToolCall, number: int, use: WrappedCall, out: list[Part]) -> None:
        """One of the calls. What signs the wrapper goes with the first of them."""
        id, name, params = f"{wrapper.id}_{number}", use.name, use.params
        out += (ToolParamsStart(id, name), ToolParamsDelta(id, params), ToolParamsEnd(id))
        call = _replace(wrapper, id=id, name=name, params=params, item_id=None)
        if number:
            call = _replace(call, signature=None, origin=None, extra=UNSET)
        out.append(call)

    def _leave(self, wrapper: _HeldWrapper, out: list[Part]) -> None:
        """Hands over what waited, as it came."""
        out.append(wrapper.start)
        if wrapper.params.length:
            out.append(ToolParamsDelta(wrapper.start.id, wrapper.params.text))
        if wrapper.end is not None:
            out.append(wrapper.end)

    def _last(self, part: Part, out: list[Part]) -> None:
        """An error or a finish: what waits goes first."""
        out += self.finish()
        out.append(part)


_HANDLERS: dict[type[Part], Callable[[ParallelCalls, Any, list[Part]], None]] = {
    ToolParamsStart: ParallelCalls._start,
    ToolParamsDelta: ParallelCalls._delta,
    ToolParamsEnd: ParallelCalls._end,
    ToolCall: ParallelCalls._call,
    ErrorPart: ParallelCalls._last,
    Finish: ParallelCalls._last,
}
