"""The shapes of Chat Completions that are written, and what parts become in them.

`wire.py` holds what is read, where everything may be missing. Here nothing is missing: what is
optional on the wire is UNSET when it was not told, so that zero is never invented.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.context import Context
from weft.dialects.envelope import sealed, sealed_call
from weft.dialects.openai_chat.wire import extra_content
from weft.findings import Findings
from weft.parts import (
    File,
    FinishReason,
    Json,
    Opaque,
    ParamsFormat,
    Part,
    ReasoningEnd,
    ReasoningStart,
    Source,
    TextEnd,
    TextStart,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsStart,
    ToolResult,
)
from weft.parts import Usage as Tokens

WORDS: dict[FinishReason, str] = {
    "stop": "stop",
    "length": "length",
    "tool-calls": "tool_calls",
    "content-filter": "content_filter",
    "pause": "length",
    "other": "stop",
}
"""Finish reasons. An error has none: it is written instead of a finish reason."""

CUT_WORDS: dict[FinishReason, str] = dict.fromkeys(WORDS, "length") | {
    "content-filter": "content_filter"
}
"""The same for a response with a call that was never ended: nobody may take it for whole."""

UNSAID: dict[type[Part], str] = {
    ToolResult: "results have no field",
    ToolApprovalRequest: "approvals have no field",
    File: "files have no field",
    Opaque: "items of a dialect have no field",
}
"""Parts that cannot be said here, and why."""

KINDS: dict[ParamsFormat, str] = {"json": "function", "text": "custom"}
"""The two kinds of calls that the wire has, by the format of their params."""


class Function(msgspec.Struct):
    name: str
    arguments: str


class Custom(msgspec.Struct):
    name: str
    input: str


class Call(msgspec.Struct, kw_only=True):
    """A whole call, or the first delta of one, which has an index and no arguments yet."""

    index: int | UnsetType = UNSET
    id: str
    type: str
    function: Function | UnsetType = UNSET
    custom: Custom | UnsetType = UNSET
    extra_content: Json = UNSET


class UrlCitation(msgspec.Struct):
    """Clients want all four, so what was not told is empty."""

    url: str
    title: str
    start_index: int
    end_index: int


class Annotation(msgspec.Struct, tag="url_citation", tag_field="type"):
    url_citation: UrlCitation


class Thought(msgspec.Struct):
    """A delta of reasoning with its proof."""

    reasoning_content: str | UnsetType = UNSET
    reasoning_details: list[Raw] | UnsetType = UNSET


class Message(msgspec.Struct, kw_only=True):
    role: str = "assistant"
    content: str | None
    refusal: str | None
    reasoning_content: str | UnsetType = UNSET
    reasoning_details: list[Raw] | UnsetType = UNSET
    tool_calls: list[Call] | UnsetType = UNSET
    annotations: list[Annotation] | UnsetType = UNSET
    extra_content: Json = UNSET


class Choice(msgspec.Struct):
    message: Message
    finish_reason: str | None
    index: int = 0
    logprobs: None = None


class InputDetails(msgspec.Struct):
    cached_tokens: int | UnsetType = UNSET
    cache_write_tokens: int | UnsetType = UNSET


class OutputDetails(msgspec.Struct):
    reasoning_tokens: int


class Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: InputDetails | UnsetType = UNSET
    completion_tokens_details: OutputDetails | UnsetType = UNSET


class Completion(msgspec.Struct, kw_only=True):
    """A response that is not streamed."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage | UnsetType = UNSET


class _Proof(msgspec.Struct):
    reasoning_details: list[Raw]


class _Repeating(msgspec.Struct):
    """A detail, by what it repeats of the text."""

    text: str | None = None
    summary: str | None = None


class _Repeated(msgspec.Struct):
    reasoning_details: list[_Repeating]


class _Sealed(msgspec.Struct):
    """The detail that carries a proof of another origin."""

    type: str
    data: str
    index: int


_read_proof = msgspec.json.Decoder(_Proof).decode
_read_repeated = msgspec.json.Decoder(_Repeated).decode


def response_id(context: Context) -> str:
    """The id that the response must have, or a fresh one, spelled as this wire spells it."""
    return context.response_id or context.ids.mint("chatcmpl").replace("_", "-", 1)


def call(part: ToolParamsStart | ToolCall, extra: Json = UNSET) -> Call:
    """A call without its params yet, by their format: JSON is a function's, free text a custom
    tool's.
    """
    text = part.format == "text"
    return Call(
        id=part.id,
        type=KINDS[part.format],
        function=UNSET if text else Function(part.name, ""),
        custom=Custom(part.name, "") if text else UNSET,
        extra_content=extra,
    )


def one_line(raw: Raw) -> Raw:
    """The same JSON without line ends, which would end the data of an event."""
    return Raw(msgspec.json.format(bytes(raw), indent=-1))


def places(lengths: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Where each text part begins in the one text of the message, from their lengths in order."""
    found: dict[str, int] = {}
    end = 0
    for id, length in lengths:
        found[id] = end
        end += length
    return found


def annotations(sources: Iterable[Source], places: Mapping[str, int]) -> list[Annotation]:
    """Citations of the one text of the message."""
    return [Annotation(_citation(source, places)) for source in sources]


def _citation(source: Source, places: Mapping[str, int]) -> UrlCitation:
    url, title = source.url or "", source.title or ""
    if source.start is None or source.end is None:
        return UrlCitation(url, title, 0, 0)
    place = places.get(source.text_id or "", 0)
    return UrlCitation(url, title, place + source.start, place + source.end)


def usage(told: Tokens) -> Usage | UnsetType:
    """Tokens as they were told, if all was told that clients look for. The total is a sum only if
    nobody told it.
    """
    if told.input_tokens is None or told.output_tokens is None:
        return UNSET
    total = told.total_tokens
    cached, written = _known(told.cache_read_tokens), _known(told.cache_write_tokens)
    thought = told.reasoning_tokens
    return Usage(
        told.input_tokens,
        told.output_tokens,
        told.input_tokens + told.output_tokens if total is None else total,
        UNSET if cached is written is UNSET else InputDetails(cached, written),
        UNSET if thought is None else OutputDetails(thought),
    )


def _repeated(extra: Raw) -> str | None:
    """What the details of a reasoning say; None if there are none."""
    try:
        details = _read_repeated(extra).reasoning_details
    except ValueError:
        return None
    return "".join(one.text or one.summary or "" for one in details)


def _known(count: int | None) -> int | UnsetType:
    return UNSET if count is None else count


class Carried:
    """What of a part this wire carries. Whatever it does not carry leaves a finding.

    `origins` are the names of this dialect. `ours`: the parts come from it, so that what their
    `extra` holds is this wire's own, and goes back to it.
    """

    __slots__ = ("_findings", "_origins", "_sealed", "_signed", "model", "ours")

    def __init__(self, findings: Findings, origins: tuple[str | None, ...]) -> None:
        self._findings = findings
        self._origins = origins
        self.ours = False
        self.model: str | None = None
        """Who answered."""
        self._sealed = -1
        self._signed: set[str] = set()

    def lost(self, what: str, why: str) -> None:
        self._findings.once("not-carried", f"{what} {why}", f"{what}: {why}")

    def nothing(self, part: Part) -> None:
        """A part that has no place here at all."""
        self.lost(part.type, UNSAID[part.__class__])

    def joined(self, part: TextStart | ReasoningStart) -> None:
        """A part that readers will take for more of the one before it."""
        self.lost(part.type, "joined to the one before it")

    def bound(self, part: ReasoningEnd, start: ReasoningStart, text: str) -> None:
        """Readers of a message tell a thought apart from the one before it by its proof, if it says
        nothing, or by its details, if they repeat what it says.
        """
        if text:
            apart = self.ours and isinstance(part.extra, Raw) and _repeated(part.extra) == text
        else:
            apart = bool(part.signature or part.encrypted or part.redacted)
        if not apart:
            self.joined(start)

    def signed(self, part: TextEnd) -> Json:
        """What a text brought for its way back."""
        if self.ours and isinstance(part.extra, Raw):
            return one_line(part.extra)
        if part.signature:
            self.lost("text-end", f"its proof goes back to {part.origin} only")
        return UNSET

    def call(self, part: ToolCall) -> bool:
        """Whether a call can be written at all."""
        if part.provider_executed:
            self.lost(part.type, "calls that the provider executes have no field")
        elif not part.name:
            self.lost(part.type, "it has no name")
        return bool(part.name) and not part.provider_executed

    def kind(self, part: ToolParamsStart | ToolCall) -> None:
        written = KINDS[part.format]
        if part.kind != written:
            self.lost("tool-call", f"kind {part.kind} is written as {written}")

    def extra(self, part: ToolCall) -> Json:
        """What the call brought for its way back."""
        if self.ours and isinstance(part.extra, Raw):
            return one_line(part.extra)
        if part.id in self._signed:
            return UNSET
        envelope = self.envelope(part)
        if part.signature and envelope is UNSET:
            self.lost(part.type, "nobody knows whose its signature is")
        return envelope

    def envelope(self, part: ToolParamsStart | ToolCall) -> Json:
        """What signs a call, sealed, under the key that clients send back: once for each call, and
        with its first entry if it is known by then, since some clients look nowhere else.
        """
        envelope = sealed_call(part, self.model)
        if envelope is None:
            return UNSET
        self._signed.add(part.id)
        return extra_content(envelope)

    def proof(
        self,
        part: ReasoningEnd,
        start: ReasoningStart,
        text: str,
    ) -> list[Raw]:
        """The details that this dialect's decoder left in `extra`; a foreign proof, sealed."""
        if self.ours and part.origin in self._origins and isinstance(part.extra, Raw):
            try:
                return _read_proof(bytes(one_line(part.extra))).reasoning_details
            except ValueError:
                pass
        proven = bool(part.signature or part.encrypted or part.redacted)
        envelope = sealed(part, self.model, start, text) if proven or not self.ours else None
        if envelope is not None:
            detail = _Sealed("reasoning.encrypted", envelope, self._count())
            return [Raw(msgspec.json.encode(detail))]
        if proven:
            self.lost("reasoning-end", "nobody knows whose its proof is")
        return []

    def _count(self) -> int:
        self._sealed += 1
        return self._sealed

    def citation(self, part: Source) -> bool:
        """Whether a source can be an annotation."""
        if part.kind != "url" or part.url is None:
            self.lost(part.type, "only addresses can be annotations")
            return False
        if part.start is None or part.end is None:
            self.lost(part.type, "its place is not known, and this wire wants one: 0 to 0")
        return True

    def finish(self, reason: FinishReason, words: dict[FinishReason, str], *, asked: bool) -> str:
        """The word for a reason. A client that is told of calls waits for one to run."""
        if reason == "tool-calls" and not asked:
            self.lost("finish", "no call was made that this wire can carry")
            return words["stop"]
        word = words["tool-calls" if asked and reason == "other" else reason]
        if word != reason.replace("-", "_"):
            self.lost("finish", f"reason {reason} is written as {word}")
        return word

    def usage(self, told: Tokens | None) -> Usage | UnsetType:
        if told is None or told == Tokens():
            return UNSET
        found = usage(told)
        if found is UNSET:
            self.lost("usage", "only a part of it is known, and clients look for all of it")
        return found

    def stop_sequence(self, told: str | None) -> None:
        if told is not None:
            self.lost("finish", "the stop sequence has no field")
