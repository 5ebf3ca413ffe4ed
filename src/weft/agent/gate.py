"""Which calls of a model may be dispatched: the gate before any intent.

Each turn is judged once, when its response is complete. The verdicts are part of its receipt, so a
restart does not judge again. The order of the checks:

1. The response is finished and its reason is tool-calls. Nothing is dispatched from a stream that
   is still running, failed or was cut.
2. The call has a name, and is not invalid.
3. The tool is in the run's snapshot.
4. The arguments fit the tool's schema.
5. The limits of the run have room. In the last turn they have none: its model was asked without
   tools, and no turn could read a result.
6. It is not the same call once more, and once more.
7. A person need not be asked.

A nameless call gets no result: no dialect accepts one. Every other call gets exactly one.
"""

import hashlib
import json
from collections.abc import Callable, Iterator

import msgspec

from weft.agent.events import JudgedCall, Refusal, Verdict
from weft.agent.results import MAX_REASON
from weft.agent.state import RunState
from weft.agent.tool_spec import ToolSpec
from weft.agent.tools import BadArguments
from weft.assembler import Response
from weft.parts import ToolCall

MAX_ID = 256
"""Characters of the id of a call."""

MAX_CALLS = 1024
"""Calls of one turn that are kept at all: a response of 64 MB could hold a million."""


NeedsApproval = Callable[[ToolSpec, str], bool]
"""Checks the arguments of a call, and whether a person must approve them. Raises BadArguments."""


def judge(state: RunState, response: Response, needs_approval: NeedsApproval) -> list[JudgedCall]:
    """The calls of a finished response that are not the upstream's own, each with its verdict."""
    return list(_Gate(state, response, needs_approval).judged())


class _Gate:
    """The state of the run, as the calls of one turn go through."""

    def __init__(self, state: RunState, response: Response, needs_approval: NeedsApproval) -> None:
        self._definition = state.definition
        self._complete = response.finish_reason == "tool-calls"
        self._response = response
        self._needs_approval = needs_approval
        self._ids = {*state.calls}
        used = state.used(0.0)
        self._dispatched = used.calls
        self._is_last = used.turns >= state.definition.limits.turns
        self._streak, self._last = state.streak, state.last_call

    def judged(self) -> Iterator[JudgedCall]:
        calls = [item for item in self._response.items if isinstance(item, ToolCall)]
        own = [call for call in calls if not call.provider_executed]
        limits = self._definition.limits
        for number, call in enumerate(own[:MAX_CALLS]):
            digest = digest_of(call.params)
            if call.name:
                same = (call.name, digest)
                self._streak = self._streak + 1 if same == self._last else 1
                self._last = same
            verdict, refusal, text = self._verdict(call)
            if number >= limits.calls_per_turn and call.name:
                verdict, refusal = "dropped", "limit"
                text = f"Not run: one turn may make {limits.calls_per_turn} calls."
            elif number >= limits.calls_per_turn:
                verdict = "dropped"
            self._dispatched += verdict not in ("refused", "dropped")
            id = self._unique(call.id)
            yield JudgedCall(
                id=id,
                name=call.name,
                arguments=call.params,
                digest=digest,
                verdict=verdict,
                wire_id=None if id == call.id else call.id,
                refusal=refusal,
                text=text,
            )

    def _verdict(self, call: ToolCall) -> tuple[Verdict, Refusal | None, str]:
        limits, tool = self._definition.limits, self._definition.tool(call.name)
        if not call.name or call.invalid == "nameless":
            return "refused", "nameless", "Not run: the call has no name."
        if not self._complete or call.invalid == "stream-failed":
            return "refused", "stream-failed", "Not run: the response was cut off."
        if tool is None:
            known = ", ".join(tool.name for tool in self._definition.tools) or "none"
            text = f"There is no tool {call.name[:200]!r}; there are: {known}"
            return "refused", "unknown-tool", text
        try:
            if call.invalid is not None:
                raise BadArguments("the arguments are not valid JSON")
            # The client checks the arguments of its own tools.
            asks = tool.kind != "client" and self._needs_approval(tool, call.params)
        except BadArguments as error:
            return "refused", "bad-arguments", f"Not run: {error}"[:MAX_REASON]
        if self._is_last:
            return "refused", "limit", f"Not run: this is the last of {limits.turns} turns."
        if self._dispatched >= limits.calls:
            return "refused", "limit", f"Not run: one run may make {limits.calls} calls."
        if self._streak >= limits.same_call:
            text = f"Not run: the same call with the same arguments, {self._streak} times in a row."
            return "refused", "repeated", text
        if tool.kind == "client":
            return "client", None, ""
        return ("ask" if asks else "dispatch"), None, ""

    def _unique(self, id: str) -> str:
        """The id, or one made of it if an earlier turn has used it: keys are made of these ids, and
        a key must stand for one call. Every event of the call has it, so it must not be long."""
        if len(id) > MAX_ID:
            id = f"call_{hashlib.sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()}"
        unique, number = id, 2
        while unique in self._ids:
            unique, number = f"{id}_{number}", number + 1
        self._ids.add(unique)
        return unique


def digest_of(arguments: str) -> str:
    """The digest of arguments that does not depend on blanks, or on the order of keys."""
    try:
        canonical = json.dumps(msgspec.json.decode(arguments), sort_keys=True, allow_nan=False)
    except (ValueError, RecursionError):
        canonical = arguments  # not JSON: the tool's own text format, or a broken call
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()
