"""A canonical request, written as a body of generateContent.

A request that came in this dialect goes out in the bytes it came in, save what was changed. Of
other dialects, the user and the model alternate, all results of a step stand together in the
order of its calls, and instructions that come late are told by the user.
"""

from operator import attrgetter

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json
from weft.context import Context
from weft.dialects.asking.arranging import (
    behind_results,
    check_end,
    folded,
    lost_in_turns,
    nameless,
    source_of,
    whole_message,
)
from weft.dialects.asking.bridging import Names
from weft.dialects.asking.leftovers import drop, drop_beside, written
from weft.dialects.asking.turns import Placed, Turn, leading, merged, spoken, turns
from weft.dialects.asking.verbatim import Meaning, fields_as_said, messages_as_said, said_by
from weft.dialects.gemini.asking import asked, sent_options
from weft.dialects.gemini.asking.sent_contents import Parts
from weft.dialects.gemini.asking.sent_tools import Tools
from weft.dialects.gemini.quirks import quirks_of
from weft.dialects.gemini.wire import NAME
from weft.dialects.requests import Losses, Rendered, keys_of
from weft.request import Request, TextContent

_ROLES = {"user": "user", "assistant": "model"}
_ADDRESS = frozenset({"model", "stream"})
"""What the address says, and not the body."""

MEANING: Meaning = {
    "systemInstruction": lambda one: [turn for turn in one.messages if turn.role == "system"],
    "contents": attrgetter("messages"),
    "tools": attrgetter("tools"),
    "toolConfig": attrgetter("tool_choice", "parallel_tool_calls", "extra"),
    "generationConfig": attrgetter(
        "sampling", "choices", "max_output_tokens", "stop", "output", "reasoning", "extra"
    ),
}
_json = msgspec.json.Encoder().encode


def render(request: Request, context: Context, losses: Losses) -> Rendered:
    """Writes the body; what cannot be said as it was asked is in the losses."""
    native = request.dialect == NAME
    quirks = quirks_of(context)
    before = len(losses.found)
    names = Names(request, "a-zA-Z0-9_.:-", 128, losses, first="a-zA-Z_")
    parts = Parts(context, losses, names, native=native)
    tools = Tools(request, context, losses, names, native=native)
    body = asked.Written([])
    body.tools = tools.entries or UNSET
    if (choice := tools.choice()) is not UNSET:
        body.tool_config = asked.Chosen(choice)
    body.generation_config = sent_options.config(request, quirks, losses, native=native)
    body.system_instruction, contents = _Conversation(
        request, losses, parts, native=native
    ).written()
    if not native:
        _unsaid(request, losses)
    fields = keys_of(written(body, request.extra if native else UNSET, asked.INNER))
    if native and lost_in_turns(request, losses.found[before:]):
        fields = fields_as_said(said_by(request, NAME), request, fields, MEANING)
    fields["contents"] = Raw(large_json.write(contents))
    kept = {key: value for key, value in fields.items() if key not in _ADDRESS}
    cut = () if native else sent_options.cut(request)
    return Rendered(large_json.write(kept), names.restored, tools.bridged, cut)


class _Conversation:
    """Who says what, in this wire's order."""

    def __init__(self, request: Request, losses: Losses, parts: Parts, *, native: bool) -> None:
        self._request = request
        self._losses = losses
        self._parts = parts
        self._native = native
        self._sources = messages_as_said(said_by(request, NAME), request)

    def written(self) -> tuple[asked.Instruction | UnsetType, list[Raw]]:
        """The instructions at the beginning, and the contents."""
        found = (
            list(spoken(self._request, self._losses))
            if self._native
            else turns(self._request, self._losses)
        )
        first = leading(found)
        said = self._arranged(found[first:])
        if self._native:
            contents = [self._as_said(turn) for turn in said]
        else:
            contents = [Raw(large_json.write(one)) for one in self._alternating(said)]
        return self._system(found[:first]), contents

    def _system(self, found: list[Turn]) -> asked.Instruction | UnsetType:
        parts: list[Raw] = []
        for turn in found:
            before = len(parts)
            if turn.message is not None and not self._native:
                drop_beside(turn.message.extra, turn.path, self._losses, NAME)
            for placed in turn.contents:
                if isinstance(placed.content, TextContent) or self._native:
                    parts += self._parts.content([placed], "system")
                else:
                    self._losses.refused(placed.path, "instructions are text here")
            nameless(turn, self._losses, said=len(parts) > before)
        return asked.Instruction(parts) if parts else UNSET

    def _arranged(self, said: list[Turn]) -> list[Turn]:
        """The turns, with late instructions told by the user."""
        out: list[Turn] = []
        waiting: list[Placed] = []
        for turn in said:
            if turn.role in ("system", "developer"):
                waiting += folded(turn, self._losses)
                continue
            if turn.role == "user" and waiting:
                turn = turn._replace(contents=behind_results(turn.contents, waiting))
                waiting = []
            out.append(turn)
        return [*out, Turn(waiting[0].path, "user", waiting)] if waiting else out

    def _as_said(self, turn: Turn) -> Raw:
        """One turn in the bytes it came in, if they can go out."""
        if (whole := whole_message(turn)) is not None:
            return whole
        before = len(self._losses.found)
        said = asked.Said(_ROLES[turn.role], self._parts.content(turn.contents, turn.role))
        source = source_of(turn, self._sources)
        if source is not None and len(self._losses.found) == before:
            return source
        return written(said, turn.message.extra if turn.message else UNSET)

    def _alternating(self, found: list[Turn]) -> list[asked.Said]:
        """One content for all that is said in a row."""
        for turn in found:
            nameless(turn, self._losses)
            if turn.message is not None:
                drop_beside(turn.message.extra, turn.path, self._losses, NAME)
        out: list[asked.Said] = []
        spoken: list[Turn] = []
        for turn in merged(found):
            said = asked.Said(_ROLES[turn.role], self._parts.content(turn.contents, turn.role))
            spoken += [turn] if said.parts else []
            if out and out[-1].role == said.role:
                out[-1].parts += said.parts
            elif said.parts:
                out.append(said)
        check_end(spoken, self._losses)
        return out


def _unsaid(request: Request, losses: Losses) -> None:
    """What this wire has no field for."""
    bias = request.sampling.logit_bias
    weakened = {
        "verbosity": request.verbosity,
        "prompt_cache_key": request.prompt_cache_key,
        "cache": request.cache,
        "user": request.user,
        "safety_identifier": request.safety_identifier,
        "betas": request.betas or None,
        "sampling.logit_bias": None if bias is UNSET else bias,
        "max_tool_calls": request.max_tool_calls,
        "truncation": None if request.truncation == "disabled" else request.truncation,
    }
    for path, value in weakened.items():
        if value is not None:
            losses.dropped(path, NAME)
    if request.previous_response_id is not None:
        detail = f"previous_response_id is not available on {NAME}; send the messages"
        losses.refused("previous_response_id", detail)
    if request.service_tier in ("auto", "default"):
        losses.adapted("service_tier", "left out: it is the usual one")
    elif request.service_tier is not None:
        detail = f"{request.service_tier} is not available; the usual one is used"
        losses.warned("service_tier", detail)
    if request.metadata:
        losses.adapted("metadata", "kept here, not sent")
    drop(request.extra, "", losses, NAME)
