"""Content blocks as they are read: what each type starts with, grows by, and stops with.

- Calls take their arguments from their deltas; what stood in the start block counts only where
  no delta came. No text at all means `{}`: that is how this wire says it.
- Results come whole, at their start. So do most blocks that go back as they were, but nothing is
  said of those before their stop: a compaction gets its content by a delta.
- A text or a thinking is announced with its first word, or with what proves it: a block without
  any of these is dropped. So is a call that was made before; one that may have been waits.
- Parts without an id of their own are numbered as an encoder numbers their blocks.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, UnsetType

from weft.assembler import Buffer
from weft.context import Context
from weft.dialects.anthropic_messages import wire
from weft.dialects.anthropic_messages.wire import NAME, flat, kept, packed, unpacked
from weft.dialects.base import Salvage
from weft.dialects.envelope import Sealed, opened, unsealed
from weft.findings import Findings
from weft.ids import Claims
from weft.lifecycle import parses
from weft.partial_json import canonical, join_halves, whole_characters
from weft.parts import (
    Opaque,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Source,
    SourceKind,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
)

Delta = type[TextDelta] | type[ReasoningDelta] | type[ToolParamsDelta]

_EMPTY = "{}"
_NO_INPUT = (_EMPTY, "null", '""')
_SERVER = frozenset({"server_tool_use", "mcp_tool_use"})


class Block:
    """One content block, from its start to its stop."""

    __slots__ = ("half", "id", "open", "said", "type")

    def __init__(self, type: str, id: str = "") -> None:
        self.type = type
        self.id = id
        """Of its parts; empty until it is announced."""
        self.open = True
        self.said = False
        """Whether a delta of it came out."""
        self.half = ""
        """A high surrogate that waits for its other half."""

    @property
    def held(self) -> bool:
        """Whether its frames say more than its parts do so far, or an encoder would."""
        return self.open


class Text(Block):
    """An encoder opens it with its first word."""

    __slots__ = ("citations",)

    def __init__(self) -> None:
        super().__init__("text")
        self.citations: list[Raw] = []

    @property
    def held(self) -> bool:
        return self.open and (not self.said or bool(self.half))


class Thinking(Block):
    """What proves it comes out at its stop."""

    __slots__ = ("redacted", "signature")

    def __init__(self, type: str, read: wire.Block) -> None:
        super().__init__(type)
        self.signature = read.signature or None
        self.redacted = read.data

    @property
    def held(self) -> bool:
        return self.open and not (self.said and self.signature is None and not self.half)


class Use(Block):
    """A call. `given` is what stood before its deltas, if anything did; None once they came."""

    __slots__ = ("call", "given", "streamed")

    def __init__(self, call: ToolCall, type: str, given: str) -> None:
        super().__init__(type, call.id)
        self.call = call
        self.given: str | None = given
        self.streamed = Buffer()

    @property
    def held(self) -> bool:
        return self.open and bool(self.given or self.half)

    @property
    def arguments(self) -> str:
        return (self.streamed.text if self.given is None else self.given) or _EMPTY


class Again(Use):
    """A call with the id and the name of an earlier one: its arguments tell whether it is the same
    one. Its parts wait for that.
    """

    __slots__ = ("waiting",)

    def __init__(self, call: ToolCall, type: str, given: str) -> None:
        super().__init__(call, type, given)
        self.waiting: list[Part] = []

    @property
    def held(self) -> bool:
        return self.open


class Kept(Block):
    """A block that goes back as it was: nothing to say of it before its stop."""

    __slots__ = ("raw",)

    def __init__(self, type: str, raw: Raw) -> None:
        super().__init__(type)
        self.raw = raw


class Blocks:
    """Reads the blocks of one message."""

    def __init__(self, context: Context, findings: Findings, salvage: Salvage) -> None:
        self._context = context
        self._findings = findings
        self._salvage = salvage
        self._origin = context.origin or NAME
        self._calls: dict[str, str] = {}
        """The id of a call on the wire: the id its parts have."""
        self._uses: dict[str, list[Use]] = {}
        """The calls that share an id on the wire; mostly there is one."""
        self._proofs: dict[str, Sealed] = {}
        """What signs the calls to come, by their ids on the wire."""
        self._unclaimed: set[str] = set()
        """Those of them whose call has not come."""
        self._taken = Claims()
        self._count = 0
        self.message = ""
        """The id of the message."""
        self.model: str | None = None
        """The model that goes on after a fallback."""

    @property
    def holding(self) -> bool:
        """Whether a block was read that no part stands for yet."""
        return bool(self._unclaimed)

    def open(self, raw: Raw, out: list[Part]) -> Block:
        """Returns the block that this one starts."""
        read = self._salvage.item(raw, wire.Block)
        type = read.type or ""
        start = STARTS.get(type)
        if start is not None:
            return start(self, read, raw, out)
        if type.endswith("_tool_result"):
            return self._start_result(read, raw, out)
        self._findings.once("event-unknown", f"block {type}", f"block {type!r}: kept as it is")
        return self._start_kept(read, raw, out)

    def grow(self, block: Block, type: str, delta: wire.Delta, out: list[Part]) -> None:
        """Adds a delta; one that does not fit is ignored, as the official client does."""
        row = DELTAS.get(type)
        if row is None:
            self._findings.once("event-unknown", f"delta {type}", f"{type!r}: ignored")
        elif isinstance(block, row.block):
            row.add(self, block, delta, out)
        else:
            detail = f"{type} in a {block.type} block: ignored"
            self._findings.once("event-unknown", f"{type} {block.type}", detail)

    def close(self, block: Block, out: list[Part]) -> None:
        block.open = False
        _STOPS[block.__class__](self, block, out)

    def finish(self) -> None:
        """The message is over."""
        for call in sorted(self._unclaimed):
            self._findings.note("field-dropped", f"a signature for call {call!r}, which never came")

    def _place(self) -> str:
        """The id of what stands in the next block."""
        id = f"{self.message}:{self._count}"
        self._count += 1
        return id

    def _required(self, value: object, field: str) -> None:
        if value is None or isinstance(value, UnsetType):
            detail = f"{field} is required here, and strict readers fail without it"
            self._findings.once("field-missing", field, detail)

    # What starts

    def _start_text(self, read: wire.Block, raw: Raw, out: list[Part]) -> Block:
        self._required(read.text, "content_block.text")
        block = Text()
        self._say(block, read.text, TextDelta, out)
        for citation in read.citations or ():
            self._cite(block, citation, out)
        return block

    def _start_thinking(self, read: wire.Block, raw: Raw, out: list[Part]) -> Block:
        inside = opened(read.data)
        if inside is not None and inside.proof.call is not None:  # it is about a call
            self._proofs[inside.proof.call] = inside
            self._unclaimed.add(inside.proof.call)
            return Block(read.type or "", self._place())
        block = Thinking(read.type or "", read)
        if read.type == "thinking":
            self._required(read.thinking, "content_block.thinking")
        self._say(block, read.thinking, ReasoningDelta, out)
        return block

    def _announce(self, block: Block, out: list[Part]) -> None:
        if not block.id:
            block.id = self._place()
            text = isinstance(block, Text)
            out.append(TextStart(block.id) if text else ReasoningStart(block.id, "raw"))

    def _start_use(self, read: wire.Block, raw: Raw, out: list[Part]) -> Block:
        self._required(read.input, "content_block.input")
        type, name = read.type or "", read.name or ""
        given = bytes(read.input).decode() if isinstance(read.input, Raw) else ""
        given = "" if given in _NO_INPUT else given
        before = self._uses.setdefault(read.id, []) if read.id else []
        block: Use
        if any((one.type, one.call.name) == (type, name) for one in before):
            block = Again(self._called(read, read.id or ""), type, given)
            block.waiting.append(_start_of(block.call))
        else:
            block = Use(self._called(read, self._call_id(read.id)), type, given)
            self._place()
            out.append(_start_of(block.call))
        before.append(block)
        self._unclaimed.discard(read.id or "")
        return block

    def _called(self, read: wire.Block, id: str) -> ToolCall:
        """The call of a block, so far without arguments."""
        type = read.type or ""
        server = type in _SERVER
        inside = self._proofs.get(read.id or "")
        return ToolCall(
            id,
            read.name or "",
            "",
            kind=type if server else "function",
            provider_executed=server,
            dynamic=type == "mcp_tool_use",
            caller=self._salvage.item(read.caller, wire.Caller).tool_id,
            server_label=read.server_name,
            signature=inside.proof.signature if inside else None,
            origin=inside.origin if inside else None,
            extra=packed(wire.CallExtra(kept(read.caller), read.toolset_name, read.server_name)),
        )

    def _call_id(self, id: str | None) -> str:
        """The wire's id; the second of its kind becomes `<id>_2`, a missing one is minted."""
        if not id:
            self._findings.note("call-id-minted", "the wire gave a call no id")
            id = self._context.ids.mint("toolu")
        given = self._taken.claim(id)
        if given != id:
            self._findings.note("call-id-collision", f"two calls are {id!r}: one is {given!r}")
        self._calls[id] = given
        return given

    def _start_result(self, read: wire.Block, raw: Raw, out: list[Part]) -> Block:
        type = read.type or ""
        wire_id, content = read.tool_use_id, read.content
        if not wire_id or not isinstance(content, Raw):
            self._findings.note("field-dropped", f"{type}: no call or no content; kept as it is")
            return self._start_kept(read, raw, out)
        result = ToolResult(
            self._calls.get(wire_id, wire_id),
            flat(content),
            is_error=bool(read.is_error) or _is_failure(content),
            earlier=wire_id not in self._calls,  # a paused turn goes on with its results
            extra=packed(wire.ResultExtra(type, kept(read.caller))),
        )
        out.append(result)
        if type == "web_search_tool_result":
            self._hits(content, out)
        return Block(type, self._place())

    def _hits(self, content: Raw, out: list[Part]) -> None:
        try:
            hits = wire.read_list(content)
        except ValueError:
            return
        for hit in hits:
            read = self._salvage.item(hit, wire.Citation)
            if read.url:
                id = self._context.ids.local("source")
                out.append(Source(id, "url", url=read.url, title=read.title, raw=flat(hit)))

    def _start_kept(self, read: wire.Block, raw: Raw, out: list[Part]) -> Block:
        if read.to is not None:  # a fallback: another model goes on
            self.model = read.to.model or self.model
        return Kept(read.type or "unknown", flat(raw))

    # What grows

    def _say(
        self,
        block: Block,
        text: str | None,
        part: Delta,
        out: list[Part],
    ) -> None:
        if not text:
            return
        if block.half or not text.isascii():
            text, block.half = join_halves(block.half, text)
            if block.half:
                self._findings.once("surrogate-lone", "", "a character was cut in two")
            if not text:
                return
        self._put(block, text, part, out)

    def _put(self, block: Block, text: str, part: Delta, out: list[Part]) -> None:
        if not block.said:
            self._announce(block, out)
            block.said = True
        if isinstance(block, Use):
            block.streamed.add(text)
        out.append(part(block.id, text))

    def _text_delta(self, block: Text, delta: wire.Delta, out: list[Part]) -> None:
        self._say(block, delta.text, TextDelta, out)

    def _citations_delta(self, block: Text, delta: wire.Delta, out: list[Part]) -> None:
        if isinstance(delta.citation, Raw):
            self._cite(block, delta.citation, out)

    def _cite(self, block: Text, raw: Raw, out: list[Part]) -> None:
        """A source. Its place in the document is not a place in the text: that stays in `raw`."""
        raw = flat(raw)
        self._announce(block, out)
        block.citations.append(raw)
        read = self._salvage.item(raw, wire.Citation)
        kind, address = _source_kind(read)
        out.append(
            Source(
                self._context.ids.local("source"),
                kind,
                block.id,
                url=address,
                file_id=read.file_id,
                title=read.title or read.document_title,
                raw=raw,
            )
        )

    def _thinking_delta(self, block: Thinking, delta: wire.Delta, out: list[Part]) -> None:
        self._say(block, delta.thinking, ReasoningDelta, out)

    def _signature_delta(self, block: Thinking, delta: wire.Delta, out: list[Part]) -> None:
        if block.signature and delta.signature:
            self._findings.once("field-dropped", block.id, "a second signature replaced the first")
        block.signature = delta.signature or block.signature

    def _json_delta(self, block: Use, delta: wire.Delta, out: list[Part]) -> None:
        text = delta.partial_json
        if not text:
            return
        if block.given is not None:
            if text == _EMPTY and block.given in ("", _EMPTY):
                block.given = _EMPTY  # all arguments, or a placeholder before them
                return
            self._replaced(block.given, block.id)
            block.given = None
        self._say(block, text, ToolParamsDelta, block.waiting if isinstance(block, Again) else out)

    def _replaced(self, given: str, call: str) -> None:
        """Notes what stood before the deltas that count."""
        if given == _EMPTY:
            detail = f"call {call!r}: an empty value stood before the arguments"
            self._findings.note("arguments-placeholder", detail)
        elif given:
            detail = f"call {call!r}: its start held arguments too; the deltas count"
            self._findings.note("arguments-repeated", detail)

    def _compaction_delta(self, block: Kept, delta: wire.Delta, out: list[Part]) -> None:
        """What is compacted comes in one delta, and belongs into the block."""
        told = {"content": delta.content, "encrypted_content": delta.encrypted_content}
        new = {key: value for key, value in told.items() if isinstance(value, Raw)}
        try:
            block.raw = Raw(msgspec.json.encode({**wire.read_fields(block.raw), **new}))
        except (ValueError, RecursionError):
            self._findings.once("field-dropped", "compaction", "a compaction that is no object")

    # What stops

    def _flush_half(
        self,
        block: Block,
        part: Delta,
        out: list[Part],
    ) -> None:
        if block.half:
            self._put(block, whole_characters(block.half), part, out)

    def _empty(self, block: Block) -> None:
        self._findings.note("block-empty", f"a {block.type} block with nothing in it: dropped")

    def _stop_text(self, block: Text, out: list[Part]) -> None:
        self._flush_half(block, TextDelta, out)
        if not block.id:
            self._empty(block)
            return
        out.append(TextEnd(block.id, tuple(block.citations)))

    def _stop_thinking(self, block: Thinking, out: list[Part]) -> None:
        self._flush_half(block, ReasoningDelta, out)
        proof = block.signature or block.redacted
        if not (block.id or proof):
            self._empty(block)
            return
        self._announce(block, out)
        origin = self._origin if proof else None
        signature, redacted = block.signature, block.redacted
        end = ReasoningEnd(block.id, signature=signature, redacted=redacted, origin=origin)
        out.append(unsealed(end))

    def _stop_use(self, block: Use, out: list[Part]) -> None:
        self._flush_half(block, ToolParamsDelta, out)
        if block.given is not None:
            out.append(ToolParamsDelta(block.id, block.given or _EMPTY))
        out.append(ToolParamsEnd(block.id))
        out.append(block.call)

    def _stop_again(self, block: Again, out: list[Part]) -> None:
        """The same id, name and arguments are the same call; else it is another one."""
        self._stop_use(block, block.waiting)
        wire_id, said = block.id, _spelled(block.arguments)
        for before in self._uses[wire_id]:
            same = (before.type, before.call.name) == (block.type, block.call.name)
            if before is not block and same and _spelled(before.arguments) == said:
                self._findings.note("call-repeated", f"call {wire_id!r} again: dropped")
                return
        self._place()
        block.id = self._call_id(wire_id)
        out += [msgspec.structs.replace(part, id=block.id) for part in block.waiting]

    def is_whole(self, block: Use) -> bool:
        """Whether its arguments could be all there."""
        return parses(block.arguments)

    def _stop_kept(self, block: Kept, out: list[Part]) -> None:
        self._place()
        out.append(Opaque(NAME, block.type, block.raw))

    def _stop_result(self, block: Block, out: list[Part]) -> None:
        """The result was whole at its start."""


def _start_of(call: ToolCall) -> ToolParamsStart:
    return ToolParamsStart(
        call.id,
        call.name,
        call.kind,
        provider_executed=call.provider_executed,
        signature=call.signature,
        origin=call.origin,
        extra=call.extra,
    )


def _spelled(arguments: str) -> bytes:
    """Arguments that mean the same, spelled the same; what is not JSON as it stands."""
    found = canonical(arguments)
    return arguments.encode("utf-8", "surrogatepass") if found is None else found


def _source_kind(citation: wire.Citation) -> tuple[SourceKind, str | None]:
    """Whether a citation points at an address, and at which."""
    address = citation.url or citation.source or ""
    if citation.url or address.startswith(("http://", "https://")):
        return "url", address
    return "document", None


def _is_failure(content: Raw | UnsetType) -> bool:
    """Whether the content of a result is one of the `…_error` objects."""
    if not isinstance(content, Raw) or not bytes(content).startswith(b"{"):
        return False
    return (unpacked(content, wire.Variant).type or "").endswith("_error")


class Growth(NamedTuple):
    """What a delta does, and to which block."""

    block: type[Block]
    type: str
    """The block that must have been meant when there is none."""
    add: Callable[["Blocks", Any, wire.Delta, list[Part]], None]


_Start = Callable[[Blocks, wire.Block, Raw, list[Part]], Block]

STARTS: dict[str, _Start] = {
    "text": Blocks._start_text,
    "thinking": Blocks._start_thinking,
    "redacted_thinking": Blocks._start_thinking,
    "tool_use": Blocks._start_use,
    "server_tool_use": Blocks._start_use,
    "mcp_tool_use": Blocks._start_use,
    **dict.fromkeys(wire.RESULTS, Blocks._start_result),
    "container_upload": Blocks._start_kept,
    "compaction": Blocks._start_kept,
    "fallback": Blocks._start_kept,
    "mcp_tool_listing": Blocks._start_kept,
}

DELTAS: dict[str, Growth] = {
    "text_delta": Growth(Text, "text", Blocks._text_delta),
    "citations_delta": Growth(Text, "text", Blocks._citations_delta),
    "thinking_delta": Growth(Thinking, "thinking", Blocks._thinking_delta),
    "signature_delta": Growth(Thinking, "thinking", Blocks._signature_delta),
    "input_json_delta": Growth(Use, "tool_use", Blocks._json_delta),
    "compaction_delta": Growth(Kept, "compaction", Blocks._compaction_delta),
}

_STOPS: dict[type[Block], Callable[[Blocks, Any, list[Part]], None]] = {
    Text: Blocks._stop_text,
    Thinking: Blocks._stop_thinking,
    Use: Blocks._stop_use,
    Again: Blocks._stop_again,
    Kept: Blocks._stop_kept,
    Block: Blocks._stop_result,
}
