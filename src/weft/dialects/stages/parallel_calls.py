"""Calls inside one call of `multi_tool_use.parallel`, a function that nobody declared.

Models that were trained with such a function sometimes call it: `parallel`, with the calls that
they mean as `{"tool_uses": [{"recipient_name": "functions.NAME", "parameters": {…}}]}`. This stage
makes each of them a call of its own, under an id derived from the wrapper's. A wrapper that names a
tool nobody declared, or has other arguments, stays the call that it is.

The arguments of a wrapper are held until its end: only then is it known what it wraps.
"""

from collections.abc import Collection

import msgspec
from msgspec import UNSET

from weft.assembler import Buffer
from weft.dialects.requests.multi_tool_use import WRAPPERS, WrappedCall, parse_wrapped_calls
from weft.dialects.stages import Handlers, HandlerStage
from weft.findings import Findings
from weft.parts import (
    Delta,
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
    """A call that was announced and may be a wrapper."""

    __slots__ = ("end", "params", "start")

    def __init__(self, start: ToolParamsStart) -> None:
        self.start = start
        self.params = Buffer()
        self.end: ToolParamsEnd | None = None


class ParallelCalls(HandlerStage):
    """A stage for one response. `tools` are the names of the tools that were declared."""

    def __init__(self, tools: Collection[str], findings: Findings) -> None:
        self._handlers = _HANDLERS
        self._tools = frozenset(tools)
        # A client that declared such a name itself means its own tool.
        self._wrappers = WRAPPERS - self._tools
        # Nothing can be unwrapped if no tool was declared, or all names of wrappers were.
        self.passes = not (self._tools and self._wrappers)
        self._findings = findings
        self._held: dict[str, _HeldWrapper] = {}

    @property
    def holding(self) -> bool:
        return bool(self._held)

    def reads(self, kind: type[Delta], id: str) -> bool:
        return kind is ToolParamsDelta and id in self._held

    def finish(self) -> list[Part]:
        """Returns what was held for an end that never came, as it is."""
        out: list[Part] = []
        for id in list(self._held):
            self._release(self._held.pop(id), out)
        return out

    def _may_wrap(self, part: ToolParamsStart | ToolCall) -> bool:
        return part.name in self._wrappers and part.format == "json" and not part.provider_executed

    def _start(self, part: ToolParamsStart, out: list[Part]) -> None:
        if self._may_wrap(part) and part.id not in self._held:
            self._held[part.id] = _HeldWrapper(part)
        else:
            out.append(part)

    def _delta(self, part: ToolParamsDelta, out: list[Part]) -> None:
        wrapper = self._held.get(part.id)
        if wrapper is None:
            out.append(part)
        else:
            wrapper.params.add(part.delta)

    def _end(self, part: ToolParamsEnd, out: list[Part]) -> None:
        wrapper = self._held.get(part.id)
        if wrapper is None:
            out.append(part)
        else:
            wrapper.end = part

    def _call(self, part: ToolCall, out: list[Part]) -> None:
        held = self._held.pop(part.id, None)
        if held is None and not self._may_wrap(part):
            out.append(part)
            return
        # Some wires end a call without repeating its arguments.
        params = part.params or ("" if held is None else held.params.text)
        # What was cut may lack calls at its end: then none of them is made.
        calls = [] if part.invalid else self._wrapped(params)
        what = f"call {part.id!r} of {part.name!r}"
        if not calls:
            # capture: parallel-that-wraps-a-tool-nobody-declared
            detail = f"{what} does not wrap calls of declared tools: kept"
            self._findings.note("parallel-wrapper", detail)
            if held is not None:
                self._release(held, out)
            out.append(part)
            return
        self._findings.note("parallel-wrapper", f"{what} wraps {len(calls)} calls: unwrapped")
        for number, inner in enumerate(calls):
            # From 0, as `requests/multi_tool_use.py` expects the results.
            id, name, params = f"{part.id}_{number}", inner.name, inner.params
            out += (ToolParamsStart(id, name), ToolParamsDelta(id, params), ToolParamsEnd(id))
            call = _replace(part, id=id, name=name, params=params, item_id=None)
            if number:  # the signature of the wrapper goes with the first call
                call = _replace(call, signature=None, origin=None, extra=UNSET)
            out.append(call)

    def _wrapped(self, params: str) -> list[WrappedCall]:
        """The calls inside a wrapper; none if these are not calls of declared tools."""
        try:
            calls = parse_wrapped_calls(params)
        except ValueError:
            return []
        # A call with other arguments could not be run, and the client would not see why.
        are_objects = all(bytes(call.parameters).startswith(b"{") for call in calls)
        are_declared = self._tools.issuperset(call.name for call in calls)
        return calls if are_objects and are_declared else []

    def _release(self, wrapper: _HeldWrapper, out: list[Part]) -> None:
        """Emits what was held, as it came."""
        out.append(wrapper.start)
        # In one delta: the pieces carry no meaning.
        if wrapper.params.length:
            out.append(ToolParamsDelta(wrapper.start.id, wrapper.params.text))
        if wrapper.end is not None:
            out.append(wrapper.end)


_HANDLERS: Handlers = {
    ToolParamsStart: ParallelCalls._start,
    ToolParamsDelta: ParallelCalls._delta,
    ToolParamsEnd: ParallelCalls._end,
    ToolCall: ParallelCalls._call,
    ErrorPart: ParallelCalls._last,
    Finish: ParallelCalls._last,
}
