"""A canonical request, written as a body of the Messages wire.

A request that came in this dialect is written as it was. Of other dialects, turns alternate,
results stand first, instructions that come late stay where they are, and the limit that this
wire needs is always there.
"""

from operator import attrgetter

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft import large_json
from weft.context import Context
from weft.dialects.anthropic_messages.asking import asked, sent_options
from weft.dialects.anthropic_messages.asking.sent_contents import Blocks, is_plain
from weft.dialects.anthropic_messages.asking.sent_options import Plan
from weft.dialects.anthropic_messages.asking.sent_tools import Tools
from weft.dialects.anthropic_messages.quirks import MessagesQuirks, quirks_of
from weft.dialects.anthropic_messages.wire import NAME
from weft.dialects.asking.arranging import (
    behind_results,
    check_end,
    folded,
    heads,
    lost_in_turns,
    nameless,
    source_of,
    whole_message,
)
from weft.dialects.asking.bridging import Names
from weft.dialects.asking.leftovers import drop, drop_beside, kept, written
from weft.dialects.asking.turns import Placed, Turn, leading, spoken, turns
from weft.dialects.asking.verbatim import Meaning, fields_as_said, messages_as_said, said_by
from weft.dialects.requests import Losses, Rendered, keys_of
from weft.parts import Json
from weft.request import FileContent, ImageContent, Request, TextContent

_LONGEST_NAME = 128
"""The most that any host takes: what a client of this wire calls a tool is left alone."""

_OPENING = "(The conversation begins with the assistant.)"
_SHOWN = (ImageContent, FileContent)
_THINKING = frozenset({"thinking", "redacted_thinking"})
_json = msgspec.json.Encoder().encode


def render(request: Request, context: Context, losses: Losses) -> Rendered:
    """Writes the body; what cannot be said as it was asked is in the losses."""
    native = request.dialect == NAME
    before = len(losses.found)
    quirks = sent_options.for_model(quirks_of(context), request.model)
    limit = max(quirks.name_limit, _LONGEST_NAME) if native else quirks.name_limit
    names = Names(request, "a-zA-Z0-9_-", limit, losses)
    blocks = Blocks(context, losses, names, native=native)
    tools = Tools(request, context, losses, names, native=native)
    system, messages = _Conversation(request, quirks, losses, blocks, native=native).written()
    choice = tools.choice()
    if native:
        plan = sent_options.own_plan(request, quirks)
    else:
        plan = sent_options.plan(request, quirks, losses)
        _forced(plan, choice, losses)
        _unsaid(request, losses)
    if not native or len(losses.found) > before:
        plan = _thinkable(plan, messages, losses)
    body = _body(request, plan, quirks, losses, native=native)
    body.system, body.messages = system, [one.raw for one in messages]
    body.tools = tools.declared or UNSET
    body.mcp_servers = tools.servers or UNSET
    body.tool_choice = choice
    fields = keys_of(_whole(body, request, native=native))
    if native and lost_in_turns(request, losses.found[before:]):
        sent = fields["messages"]
        fields = fields_as_said(said_by(request, NAME), request, fields, MEANING)
        fields["messages"] = sent
    cut = () if native else _cut(request)
    return Rendered(large_json.write(fields), names.restored, tools.bridged, cut)


def _body(
    request: Request, plan: Plan, quirks: MessagesQuirks, losses: Losses, *, native: bool
) -> asked.Written:
    thinks = plan.thinking is not UNSET and plan.thinking.type != "disabled"
    drawn = sent_options.own_sampling(request)
    if not native:
        drawn = sent_options.sampling(request, quirks, thinks, losses)
    return asked.Written(
        request.model,
        plan.max_tokens,
        [],
        thinking=plan.thinking,
        output_config=sent_options.output_config(request, plan.effort, losses, native=native),
        stop_sequences=_stops(request, native=native) or UNSET,
        temperature=drawn.temperature,
        top_p=drawn.top_p,
        top_k=drawn.top_k,
        metadata=sent_options.metadata(request, losses, native=native),
        service_tier=sent_options.tier(request, losses, native=native),
        cache_control=asked.marked(request.cache, "", losses, ttl=quirks.cache_ttl),
        stream=True if request.stream else UNSET,
    )


def _whole(body: asked.Written, request: Request, *, native: bool) -> Raw:
    """The body with what came beside it; options of thinking are below their own key."""
    if not native:
        return Raw(large_json.write(body))
    options = keys_of(request.reasoning.extra) if request.reasoning else {}
    beside = {f"thinking.{key}": said for key, said in options.items() if key != "effort"}
    return written(body, kept(keys_of(request.extra), beside), asked.INNER)


def _stops(request: Request, *, native: bool) -> tuple[str, ...]:
    cut = () if native else _cut(request)
    return tuple(stop for stop in request.stop if stop not in cut)


def _instructions(request: Request) -> object:
    """What `system` says."""
    return request.instructions, request.messages[: heads(request)]


MEANING: Meaning = {
    "model": attrgetter("model"),
    "max_tokens": attrgetter("max_output_tokens"),
    "messages": attrgetter("messages"),
    "system": _instructions,
    "tools": attrgetter("tools"),
    "mcp_servers": attrgetter("tools"),
    "tool_choice": attrgetter("tool_choice", "parallel_tool_calls", "extra"),
    "thinking": attrgetter("reasoning", "extra"),
    "output_config": attrgetter("output", "reasoning", "extra"),
    "stop_sequences": attrgetter("stop"),
    "temperature": attrgetter("sampling"),
    "top_p": attrgetter("sampling"),
    "top_k": attrgetter("sampling"),
    "metadata": attrgetter("user", "extra"),
    "service_tier": attrgetter("service_tier"),
    "cache_control": attrgetter("cache", "extra"),
    "stream": attrgetter("stream"),
}
"""What of a request each key of a body says."""


class _Message(msgspec.Struct):
    """A message that is nearly written: others of its role may be added to it."""

    role: str
    blocks: list[Raw]
    plain: str | None = None
    extra: Json = UNSET
    source: Raw | None = None
    """The bytes it came in, if it goes out as it was."""

    @property
    def raw(self) -> Raw:
        if self.source is not None:
            return self.source
        content = self.blocks if self.plain is None else self.plain
        return written(asked.Turn(self.role, content), self.extra)

    def kind(self) -> str:
        """The type of its first block."""
        if not self.blocks:
            return ""
        return msgspec.json.decode(self.blocks[0], type=asked.Typed).type


class _Conversation:
    """Who says what, in this wire's order."""

    def __init__(
        self,
        request: Request,
        quirks: MessagesQuirks,
        losses: Losses,
        blocks: Blocks,
        *,
        native: bool,
    ) -> None:
        self._request = request
        self._quirks = quirks
        self._losses = losses
        self._blocks = blocks
        self._native = native
        self._sources = messages_as_said(said_by(request, NAME), request)

    def written(self) -> tuple[str | list[Raw] | UnsetType, list[_Message]]:
        """The instructions at the beginning, and the messages."""
        found = (
            list(spoken(self._request, self._losses))
            if self._native
            else turns(self._request, self._losses)
        )
        first = leading(found)
        return self._system(found[:first]), self._messages(self._arranged(found[first:]))

    def _system(self, found: list[Turn]) -> str | list[Raw] | UnsetType:
        match found:
            case [Turn(path="instructions", contents=[Placed(content=TextContent(text=text))])]:
                if text.strip() or self._native:
                    return text
        blocks: list[Raw] = []
        for turn in found:
            if turn.message is not None:
                drop_beside(turn.message.extra, turn.path, self._losses, NAME)
            blocks += self._instructions(turn)
        return blocks or UNSET

    def _instructions(self, turn: Turn) -> list[Raw]:
        found: list[Raw] = []
        for placed in turn.contents:
            if not isinstance(placed.content, TextContent) and not self._native:
                self._losses.refused(placed.path, "instructions are text here")
            elif (block := self._blocks.block(placed, "system")) is not None:
                found.append(block)
        nameless(turn, self._losses, said=bool(found))
        return found

    def _arranged(self, said: list[Turn]) -> list[Turn]:
        """The turns, with what the user must say for others behind the next results."""
        out: list[Turn] = []
        waiting: list[Placed] = []
        for turn in said:
            if turn.role in ("system", "developer"):
                if not self._quirks.late_system:
                    waiting += folded(turn, self._losses)
                    continue
            elif turn.role == "assistant" and not self._native:
                turn, shown = self._shown(turn)
                waiting += shown
            elif turn.role == "user" and waiting:
                turn = turn._replace(contents=behind_results(turn.contents, waiting))
                waiting = []
            out.append(turn)
        return [*out, Turn(waiting[0].path, "user", waiting)] if waiting else out

    def _shown(self, turn: Turn) -> tuple[Turn, list[Placed]]:
        """Images and files that the assistant made: only the user can show them."""
        shown = [
            one for one in turn.contents if isinstance(one.content, ImageContent | FileContent)
        ]
        for placed in shown:
            self._losses.warned(placed.path, "shown by the user: the assistant shows nothing here")
        rest = [one for one in turn.contents if one not in shown]
        return turn._replace(contents=rest), shown

    def _messages(self, said: list[Turn]) -> list[_Message]:
        written = [(turn, self._message(turn)) for turn in said]
        if self._native:
            return [message for _, message in written]
        written = [(turn, message) for turn, message in written if message.blocks]
        check_end([turn for turn, _ in written], self._losses)
        out = self._opening(written[0][0]) if written else []
        for _, message in written:
            if out and out[-1].role == message.role:
                out[-1].blocks += message.blocks
                out[-1].plain = None
            else:
                out.append(message)
        return out

    def _opening(self, first: Turn) -> list[_Message]:
        """What is put before a conversation that does not begin with the user, as it must."""
        if first.role == "user":
            return []
        self._losses.adapted(first.path, "a short user turn is put first: this wire requires one")
        return [_Message("user", [Raw(_json(asked.Text(_OPENING)))], _OPENING)]

    def _message(self, turn: Turn) -> _Message:
        if self._native and (whole := whole_message(turn)) is not None:
            return _Message("", [], source=whole)
        before = len(self._losses.found)
        found = [self._blocks.block(placed, turn.role) for placed in turn.contents]
        blocks = [block for block in found if block is not None]
        nameless(turn, self._losses, said=bool(blocks))
        plain = is_plain([placed.content for placed in turn.contents])
        extra = turn.message.extra if turn.message else UNSET
        if not self._native:
            drop_beside(extra, turn.path, self._losses, NAME)
            extra = UNSET
        source = source_of(turn, self._sources) if self._native else None
        if len(self._losses.found) > before:
            source = None
        role = "system" if turn.role == "developer" else turn.role
        return _Message(role, blocks, plain.text if plain else None, extra, source)


def _with_a_budget(plan: Plan) -> bool:
    return plan.thinking is not UNSET and plan.thinking.type == "enabled"


def _forced(plan: Plan, choice: asked.Choice | UnsetType, losses: Losses) -> None:
    if _with_a_budget(plan) and choice is not UNSET and choice.type in ("any", "tool"):
        losses.refused("tool_choice", "a model that thinks cannot be forced to call a tool")


def _thinkable(plan: Plan, messages: list[_Message], losses: Losses) -> Plan:
    """With a budget, the turn that called must begin with its thinking, or nothing is thought."""
    match messages[-2:]:
        case [called, answered] if _with_a_budget(plan) and answered.kind() == "tool_result":
            if called.kind() not in _THINKING:
                losses.warned("reasoning", "no thinking: that of the calls is not there any more")
                return plan._replace(thinking=asked.Thinking("disabled"))
    return plan


def _cut(request: Request) -> tuple[str, ...]:
    """The stop sequences that the wire does not take: those of blanks."""
    return tuple(stop for stop in request.stop if not stop.strip())


def _unsaid(request: Request, losses: Losses) -> None:
    """What this wire has no field for."""
    told = request.sampling
    weakened = {
        "sampling.seed": told.seed,
        "sampling.presence_penalty": told.presence_penalty,
        "sampling.frequency_penalty": told.frequency_penalty,
        "verbosity": request.verbosity,
        "prompt_cache_key": request.prompt_cache_key,
        "sampling.logprobs": told.logprobs,
        "sampling.logit_bias": None if told.logit_bias is UNSET else told.logit_bias,
        "max_tool_calls": request.max_tool_calls,
        "truncation": None if request.truncation == "disabled" else request.truncation,
    }
    impossible = {
        "choices": request.choices > 1,
        "previous_response_id": request.previous_response_id is not None,
    }
    for path, value in weakened.items():
        if value is not None:
            losses.dropped(path, NAME)
    for path, wanted in impossible.items():
        if wanted:
            losses.refused(path, f"{path} is not available on {NAME}; remove it")
    if request.metadata:
        losses.adapted("metadata", "kept here, not sent")
    if _cut(request):
        losses.adapted("stop", "blanks are not taken here; Weft cuts the answer itself")
    drop(request.extra, "", losses, NAME)
