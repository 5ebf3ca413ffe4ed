"""Decodes content blocks: what the start, the deltas and the stop of each type become.

- A call takes its arguments from its deltas; the `input` of the start block counts only if no delta
  came. No arguments at all mean `{}`.
- Tool results are whole at their start. Blocks that are passed on unparsed are emitted at their
  stop, because a compaction gets its content by a delta.
- A text or thinking block starts with its first text, citation or signature; a block without any
  of them is dropped.
- A call that repeats the id and the name of an earlier one waits until its arguments are known: if
  they are the same too, it is dropped.
- Parts without an id of their own are numbered like the blocks that the encoder writes for them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, UnsetType

from weft.context import Context
from weft.dialects.anthropic_messages import wire
from weft.dialects.anthropic_messages.decoding.state import (
    EMPTY_INPUT,
    BlockState,
    OpaqueBlockState,
    RepeatedToolUseState,
    TextBlockState,
    ThinkingBlockState,
    ToolUseState,
)
from weft.dialects.anthropic_messages.wire import NAME, copy_present
from weft.dialects.envelope import Envelope, unwrap, unwrap_reasoning_end
from weft.dialects.frames import Salvage, SurrogateJoiner
from weft.dialects.raw_json import copy_raw, decode_or_default, pack_extra
from weft.findings import Findings
from weft.ids import Claims
from weft.partial_json import canonical
from weft.parts import (
    Opaque,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
)

DeltaPart = type[TextDelta] | type[ReasoningDelta] | type[ToolParamsDelta]

# The API starts every call with `"input": {}`; compatible servers write null or an empty string.
_NO_INPUT = (EMPTY_INPUT, "null", '""')
_EXECUTED_TYPES = frozenset({"server_tool_use", "mcp_tool_use"})


class BlockDecoder:
    """Decodes the blocks of one message."""

    def __init__(self, context: Context, findings: Findings, salvage: Salvage) -> None:
        self._context = context
        self._findings = findings
        self._salvage = salvage
        # The owner of the signatures: they go back only to the upstream that made them.
        self._origin = context.origin or NAME
        self._call_ids: dict[str, str] = {}
        """The id of the parts of a call, by its id on the wire."""
        self._tool_uses: dict[str, list[ToolUseState]] = {}
        """The calls by their id on the wire, which several may share."""
        self._signatures: dict[str, Envelope] = {}
        """Signatures of calls that are yet to come, by the id of the call on the wire."""
        self._unused_signatures: set[str] = set()
        self._surrogates = SurrogateJoiner(findings)
        self._claimed_ids = Claims()
        self._count = 0
        self.message_id = ""
        self.model: str | None = None
        """The model that took over after a fallback."""

    @property
    def holding(self) -> bool:
        """Whether a block was read that no part was emitted for yet, or half a character."""
        return bool(self._unused_signatures or self._surrogates.held)

    def start(self, raw: Raw, out: list[Part]) -> BlockState:
        block = self._salvage.item(raw, wire.ContentBlock)
        type = block.type or ""
        start = STARTS.get(type)
        if start is not None:
            return start(self, block, raw, out)
        # Every new server tool brings a result block of its own, with the same fields: one that
        # RESULTS does not list yet is read like the others.
        if type.endswith("_tool_result"):
            return self._start_result(block, raw, out)
        # Kept byte for byte: the next request has to return the block unchanged.
        # capture: unknown-block-and-event
        detail = f"unknown block type {type!r}: passed on unparsed"
        self._findings.once("event-unknown", f"block {type}", detail)
        return self._start_opaque(block, raw, out)

    def add_delta(
        self, block: BlockState, type: str, delta: wire.EventDelta, out: list[Part]
    ) -> None:
        # A delta is dispatched by its own type, not by that of its block, and fits if the block has
        # the state that it adds to.
        row = DELTAS.get(type)
        if row is None:
            detail = f"unknown delta type {type!r}: ignored"
            # capture: deltas-that-do-not-fit
            self._findings.once("event-unknown", f"delta {type}", detail)
        elif isinstance(block, row.state):
            row.add(self, block, delta, out)
        else:  # the official client ignores it too
            # capture: deltas-that-do-not-fit
            detail = f"{type} in a block of type {block.type!r}: ignored"
            self._findings.once("event-unknown", f"{type} {block.type}", detail)

    def stop(self, block: BlockState, out: list[Part]) -> None:
        block.open = False
        _STOPS[block.__class__](self, block, out)

    def finish(self) -> None:
        for call in sorted(self._unused_signatures):
            detail = f"a signature for call {call!r}, which never came"
            self._findings.note("field-dropped", detail)

    def _next_id(self) -> str:
        """The id of the parts of the next block."""
        # Calls, results and unparsed blocks take a number too, although they do not use it: so the
        # part of a block keeps its id when the block is encoded and decoded again.
        id = f"{self.message_id}:{self._count}"
        self._count += 1
        return id

    def _require(self, value: object, field: str) -> None:
        if value is None or isinstance(value, UnsetType):
            detail = f"{field} is missing; strict clients fail without it"
            self._findings.once("field-missing", field, detail)

    # Starts

    def _start_text(self, block: wire.ContentBlock, raw: Raw, out: list[Part]) -> BlockState:
        self._require(block.text, "content_block.text")
        state = TextBlockState()
        # The API starts with an empty text. The official client puts text that is there before the
        # deltas, and in a body it is all there is.
        # capture: text-in-the-start-block, body
        self._add_text(state, block.text, TextDelta, out)
        for citation in block.citations or ():
            self._add_citation(state, citation, out)
        return state

    def _start_thinking(self, block: wire.ContentBlock, raw: Raw, out: list[Part]) -> BlockState:
        envelope = unwrap(block.data)
        if envelope is not None and envelope.state.call is not None:
            # Weft's own encoder wrote this block, to carry the signature of a call.
            self._signatures[envelope.state.call] = envelope
            self._unused_signatures.add(envelope.state.call)
            return BlockState(block.type or "", self._next_id())
        state = ThinkingBlockState(block.type or "", block)
        if block.type == "thinking":
            self._require(block.thinking, "content_block.thinking")
        self._add_text(state, block.thinking, ReasoningDelta, out)
        return state

    def _start_tool_use(self, block: wire.ContentBlock, raw: Raw, out: list[Part]) -> BlockState:
        self._require(block.input, "content_block.input")
        type, name = block.type or "", block.name or ""
        # Kept as text: arguments go on byte for byte, without a round trip through Python numbers.
        initial_input = bytes(block.input).decode() if isinstance(block.input, Raw) else ""
        if initial_input in _NO_INPUT:
            initial_input = ""
        earlier = self._tool_uses.setdefault(block.id, []) if block.id else []
        state: ToolUseState
        if any((use.type, use.call.name) == (type, name) for use in earlier):
            # Models and joined streams repeat a call under its id. Clients would run it twice, and
            # the API refuses the next request, because ids of calls must be unique.
            # capture: call-repeated, body-with-a-call-repeated
            call = self._tool_call(block, block.id or "")
            state = RepeatedToolUseState(call, type, initial_input)
            state.pending.append(_params_start(call))
        else:
            state = ToolUseState(
                self._tool_call(block, self._claim_call_id(block.id)), type, initial_input
            )
            self._next_id()
            out.append(_params_start(state.call))
        earlier.append(state)
        self._unused_signatures.discard(block.id or "")
        return state

    def _tool_call(self, block: wire.ContentBlock, id: str) -> ToolCall:
        """The call of a block, without its arguments."""
        type = block.type or ""
        executed = type in _EXECUTED_TYPES
        envelope = self._signatures.get(block.id or "")
        extra = wire.ContentBlock(
            server_name=block.server_name,
            caller=copy_present(block.caller),
            toolset_name=block.toolset_name,
        )
        return ToolCall(
            id,
            block.name or "",
            "",
            kind=type if executed else "function",
            provider_executed=executed,
            dynamic=type == "mcp_tool_use",
            caller=self._salvage.item(block.caller, wire.ToolCaller).tool_id,
            server_label=block.server_name,
            signature=envelope.state.signature if envelope else None,
            origin=envelope.origin if envelope else None,
            extra=pack_extra(extra),
        )

    def _claim_call_id(self, id: str | None) -> str:
        """The id of the parts of a new call; a second call with the same id becomes `<id>_2`."""
        if not id:
            # A call that was never started has no id. The next request needs one to pair its
            # result.
            # capture: deltas-without-a-start
            self._findings.note("call-id-minted", "a call without an id: one was made up")
            id = self._context.ids.mint("toolu")
        claimed = self._claimed_ids.claim(id)
        if claimed != id:
            # capture: one-id-for-two-calls
            detail = f"two calls have the id {id!r}: the second is renamed to {claimed!r}"
            self._findings.note("call-id-collision", detail)
        self._call_ids[id] = claimed
        return claimed

    def _start_result(self, block: wire.ContentBlock, raw: Raw, out: list[Part]) -> BlockState:
        type = block.type or ""
        wire_id, content = block.tool_use_id, block.content
        if not wire_id or not isinstance(content, Raw):
            detail = f"{type!r} without tool_use_id or content: passed on unparsed"
            self._findings.note("field-dropped", detail)
            return self._start_opaque(block, raw, out)
        # Only mcp_tool_result has `is_error`. All others say it by the type of their content, such
        # as `web_fetch_tool_error`.
        # capture: executed-tools-that-fail
        failed = bytes(content).startswith(b"{") and (
            decode_or_default(content, wire.OptionalType).type or ""
        ).endswith("_error")
        result = ToolResult(
            self._call_ids.get(wire_id, wire_id),
            copy_raw(content),
            is_error=bool(block.is_error) or failed,
            earlier=wire_id not in self._call_ids,  # capture: paused-turn-goes-on
            extra=pack_extra(wire.ContentBlock(type, caller=copy_present(block.caller))),
        )
        out.append(result)
        # The hits also are sources: other dialects know a search only by what it cites.
        if type == "web_search_tool_result":
            self._add_search_hits(content, out)
        return BlockState(type, self._next_id())

    def _add_search_hits(self, content: Raw, out: list[Part]) -> None:
        try:
            hits = wire.read_list(content)
        except ValueError:  # an error object stands in place of the list
            return
        for raw in hits:
            hit = self._salvage.item(raw, wire.TextCitation)
            if hit.url:
                id = self._context.ids.local("source")
                out.append(Source(id, "url", url=hit.url, title=hit.title, raw=copy_raw(raw)))

    def _start_opaque(self, block: wire.ContentBlock, raw: Raw, out: list[Part]) -> BlockState:
        if block.to is not None:
            # Another model continues the message, for instance after a refusal.
            # capture: fallback-renames-the-model
            self.model = block.to.model or self.model
        return OpaqueBlockState(block.type or "unknown", copy_raw(raw))

    # Deltas

    def _add_text(
        self, block: BlockState, text: str | None, part: DeltaPart, out: list[Part]
    ) -> None:
        if not text:
            return
        if self._surrogates.held or not text.isascii():
            # Servers that cut text by UTF-16 units write each half of a character as `\ud83d`.
            # capture: character-cut-in-two
            text = self._surrogates.feed(block, text)
            if not text:
                return
        self._emit_delta(block, text, part, out)

    def _emit_delta(self, block: BlockState, text: str, part: DeltaPart, out: list[Part]) -> None:
        if not block.has_deltas:
            self._emit_start(block, out)
            block.has_deltas = True
        if isinstance(block, ToolUseState):
            block.streamed.add(text)
        out.append(part(block.id, text))

    def _emit_start(self, block: BlockState, out: list[Part]) -> None:
        if not block.id:
            block.id = self._next_id()
            is_text = isinstance(block, TextBlockState)
            out.append(TextStart(block.id) if is_text else ReasoningStart(block.id, "raw"))

    def _text_delta(self, block: TextBlockState, delta: wire.EventDelta, out: list[Part]) -> None:
        self._add_text(block, delta.text, TextDelta, out)

    def _citations_delta(
        self, block: TextBlockState, delta: wire.EventDelta, out: list[Part]
    ) -> None:
        if isinstance(delta.citation, Raw):
            self._add_citation(block, delta.citation, out)

    def _add_citation(self, block: TextBlockState, raw: Raw, out: list[Part]) -> None:
        """Emits a source. The location in a citation is one in the cited document, not in the
        answer, so it stays in `raw`.
        """
        raw = copy_raw(raw)
        self._emit_start(block, out)
        block.citations.append(raw)
        citation = self._salvage.item(raw, wire.TextCitation)
        url = citation.url or citation.source or ""
        is_url = bool(citation.url) or url.startswith(("http://", "https://"))
        out.append(
            Source(
                self._context.ids.local("source"),
                "url" if is_url else "document",
                block.id,
                url=url if is_url else None,
                file_id=citation.file_id,
                title=citation.title or citation.document_title,  # capture: citations-of-documents
                raw=raw,
            )
        )

    def _thinking_delta(
        self, block: ThinkingBlockState, delta: wire.EventDelta, out: list[Part]
    ) -> None:
        self._add_text(block, delta.thinking, ReasoningDelta, out)

    def _signature_delta(
        self, block: ThinkingBlockState, delta: wire.EventDelta, out: list[Part]
    ) -> None:
        # The API sends one, just before the stop; of two, the official client keeps the last too.
        if block.signature and delta.signature:
            detail = "a second signature replaced the first"
            self._findings.once("field-dropped", block.id, detail)
        block.signature = delta.signature or block.signature

    def _input_json_delta(
        self, block: ToolUseState, delta: wire.EventDelta, out: list[Part]
    ) -> None:
        # For a call without arguments the API sends one delta, which is empty.
        # capture: call-without-arguments
        text = delta.partial_json
        if not text:
            return
        if block.initial_input is not None:
            if text == EMPTY_INPUT and block.initial_input in ("", EMPTY_INPUT):
                # Held: if more follows, it was only a placeholder.
                # capture: empty-object-before-the-arguments
                block.initial_input = EMPTY_INPUT
                return
            if block.initial_input == EMPTY_INPUT:
                # Converters send `{}` as the first delta and then the real arguments. The official
                # client parses `{}` and drops the rest: the tool would run without arguments.
                # capture: empty-object-before-the-arguments
                detail = f"call {block.id!r}: {{}} came before the arguments: dropped"
                self._findings.note("arguments-placeholder", detail)
            elif block.initial_input:
                # The official client takes the deltas too.
                # capture: arguments-at-the-start-and-by-deltas
                detail = f"call {block.id!r}: input in the start block and in deltas: deltas used"
                self._findings.note("arguments-repeated", detail)
            block.initial_input = None
        if isinstance(block, RepeatedToolUseState):
            out = block.pending  # until the stop shows whether it is another call
        self._add_text(block, text, ToolParamsDelta, out)

    def _compaction_delta(
        self, block: OpaqueBlockState, delta: wire.EventDelta, out: list[Part]
    ) -> None:
        """Puts the content, which comes in one delta, into the block."""
        # The API wants the block back verbatim, so the delta is merged into the raw block; its text
        # is no text of the answer.
        # capture: compaction
        fields = {"content": delta.content, "encrypted_content": delta.encrypted_content}
        new = {key: value for key, value in fields.items() if isinstance(value, Raw)}
        try:
            block.raw = Raw(msgspec.json.encode({**wire.read_fields(block.raw), **new}))
        except (ValueError, RecursionError):
            detail = "a compaction block that is not an object"
            self._findings.once("field-dropped", "compaction", detail)

    # Stops

    def _flush_surrogate(self, block: BlockState, part: DeltaPart, out: list[Part]) -> None:
        rest = self._surrogates.flush(block)
        if rest:
            self._emit_delta(block, rest, part, out)

    def _note_empty(self, block: BlockState) -> None:
        # An empty text block would be refused in the next request.
        # capture: text-block-empty
        self._findings.note("block-empty", f"an empty {block.type} block: dropped")

    def _stop_text(self, block: TextBlockState, out: list[Part]) -> None:
        self._flush_surrogate(block, TextDelta, out)
        if not block.id:
            self._note_empty(block)
            return
        out.append(TextEnd(block.id, tuple(block.citations)))

    def _stop_thinking(self, block: ThinkingBlockState, out: list[Part]) -> None:
        self._flush_surrogate(block, ReasoningDelta, out)
        signature, redacted = block.signature, block.redacted
        if not (block.id or signature or redacted):
            self._note_empty(block)
            return
        # With `display: "omitted"` a block has a signature and no text. The next request needs it
        # all the same.
        self._emit_start(block, out)  # capture: thinking-omitted-and-redacted
        origin = self._origin if signature or redacted else None
        end = ReasoningEnd(block.id, signature=signature, redacted=redacted, origin=origin)
        out.append(unwrap_reasoning_end(end))

    def _stop_tool_use(self, block: ToolUseState, out: list[Part]) -> None:
        self._flush_surrogate(block, ToolParamsDelta, out)
        # No delta came: the input is that of the start, as in calls made by code, or none at all.
        if block.initial_input is not None:
            out.append(ToolParamsDelta(block.id, block.initial_input or EMPTY_INPUT))
        out.append(ToolParamsEnd(block.id))
        out.append(block.call)

    def _stop_repeated_tool_use(self, block: RepeatedToolUseState, out: list[Part]) -> None:
        self._stop_tool_use(block, block.pending)
        self.release(block, out)

    def release(self, block: RepeatedToolUseState, out: list[Part]) -> None:
        """Drops the call if its arguments are those of an earlier one too; else emits what came of
        it, under another id.
        """
        wire_id, arguments = block.id, _canonical_arguments(block)
        for earlier in self._tool_uses[wire_id]:
            same = (earlier.type, earlier.call.name) == (block.type, block.call.name)
            if earlier is not block and same and _canonical_arguments(earlier) == arguments:
                # capture: call-repeated, body-with-a-call-repeated
                self._findings.note("call-repeated", f"call {wire_id!r} again: dropped")
                return
        # Renamed here, not at its start: whether it is another call was not known before.
        self._next_id()
        block.id = self._claim_call_id(wire_id)
        out += [msgspec.structs.replace(part, id=block.id) for part in block.pending]

    def _stop_opaque(self, block: OpaqueBlockState, out: list[Part]) -> None:
        self._next_id()
        out.append(Opaque(NAME, block.type, block.raw))

    def _stop_result(self, block: BlockState, out: list[Part]) -> None:
        """Its parts were emitted at the start."""


def _params_start(call: ToolCall) -> ToolParamsStart:
    return ToolParamsStart(
        call.id,
        call.name,
        call.kind,
        provider_executed=call.provider_executed,
        signature=call.signature,
        origin=call.origin,
        extra=call.extra,
    )


def _canonical_arguments(block: ToolUseState) -> bytes:
    """Equal for arguments that are equal as JSON; text that is not JSON stays as it is."""
    encoded = canonical(block.arguments)
    return block.arguments.encode("utf-8", "surrogatepass") if encoded is None else encoded


class DeltaType(NamedTuple):
    """A row of DELTAS."""

    state: type[BlockState]
    """The block that it fits."""
    block_type: str
    """The type of block that is started for a delta without one."""
    add: Callable[["BlockDecoder", Any, wire.EventDelta, list[Part]], None]


_Start = Callable[[BlockDecoder, wire.ContentBlock, Raw, list[Part]], BlockState]

STARTS: dict[str, _Start] = {
    "text": BlockDecoder._start_text,
    "thinking": BlockDecoder._start_thinking,
    "redacted_thinking": BlockDecoder._start_thinking,
    "tool_use": BlockDecoder._start_tool_use,
    "server_tool_use": BlockDecoder._start_tool_use,
    "mcp_tool_use": BlockDecoder._start_tool_use,
    # Complete at the start, no deltas.
    **dict.fromkeys(wire.RESULTS, BlockDecoder._start_result),
    # Without a canonical part: the client has to return them as they are.
    "container_upload": BlockDecoder._start_opaque,
    "compaction": BlockDecoder._start_opaque,
    "fallback": BlockDecoder._start_opaque,
    "mcp_tool_listing": BlockDecoder._start_opaque,
}

DELTAS: dict[str, DeltaType] = {
    "text_delta": DeltaType(TextBlockState, "text", BlockDecoder._text_delta),
    "citations_delta": DeltaType(TextBlockState, "text", BlockDecoder._citations_delta),
    "thinking_delta": DeltaType(ThinkingBlockState, "thinking", BlockDecoder._thinking_delta),
    "signature_delta": DeltaType(ThinkingBlockState, "thinking", BlockDecoder._signature_delta),
    "input_json_delta": DeltaType(ToolUseState, "tool_use", BlockDecoder._input_json_delta),
    "compaction_delta": DeltaType(OpaqueBlockState, "compaction", BlockDecoder._compaction_delta),
}

# Looked up by the exact class: a repeated call is a ToolUseState too.
_STOPS: dict[type[BlockState], Callable[[BlockDecoder, Any, list[Part]], None]] = {
    TextBlockState: BlockDecoder._stop_text,
    ThinkingBlockState: BlockDecoder._stop_thinking,
    ToolUseState: BlockDecoder._stop_tool_use,
    RepeatedToolUseState: BlockDecoder._stop_repeated_tool_use,
    OpaqueBlockState: BlockDecoder._stop_opaque,
    BlockState: BlockDecoder._stop_result,
}
