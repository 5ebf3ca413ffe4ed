"""What of a part Chat Completions has no field for, and what is written in its place."""

from contextlib import suppress

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.dialects.envelope import wrap_call_signature, wrap_reasoning
from weft.dialects.openai_chat.mapping import (
    CALL_TYPES,
    CUT_FINISH_REASONS,
    WRITTEN_FINISH_REASONS,
    render_usage,
)
from weft.dialects.openai_chat.wire import ChatReasoningDetail, ChatUsage, extra_content
from weft.dialects.raw_json import copy_raw
from weft.findings import Findings
from weft.parts import (
    File,
    FinishReason,
    Json,
    Opaque,
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
    Usage,
)

UNSUPPORTED: dict[type[Part], str] = {
    ToolResult: "results have no field",
    ToolApprovalRequest: "approvals have no field",
    File: "files have no field",
    Opaque: "items of a dialect have no field",
}
"""Parts that have no field here, with the text of the finding."""


# What the decoder of this dialect put into `extra` goes back unread, except for its outermost key.
class _DetailsExtra(msgspec.Struct):
    """The `extra` that the decoder leaves in the end of a reasoning."""

    reasoning_details: list[Raw]


_read_details = msgspec.json.Decoder(_DetailsExtra).decode
_read_detail = msgspec.json.Decoder(ChatReasoningDetail).decode


class ChatLossReporter:
    """Chooses what is written of a part, and reports `not-carried` for the rest.

    `origins` are the names of this dialect and its host. With `same_dialect` the parts came from
    this dialect, so that their `extra` is its own and goes back as it is.
    """

    __slots__ = ("_envelopes", "_findings", "_origins", "_signed", "model", "same_dialect")

    def __init__(self, findings: Findings, origins: tuple[str | None, ...]) -> None:
        self._findings = findings
        self._origins = origins
        self.same_dialect = False
        self.model: str | None = None
        """The model that answered."""
        self._envelopes = 0
        self._signed: set[str] = set()
        """The calls whose signature is written."""

    def not_carried(self, what: str, why: str) -> None:
        # Once for each reason, however many parts are affected.
        self._findings.once("not-carried", f"{what} {why}", f"{what}: {why}")

    def unsupported(self, part: Part) -> None:
        self.not_carried(part.type, UNSUPPORTED[part.__class__])

    def joined(self, part: TextStart | ReasoningStart) -> None:
        """Reports a part that clients will join to the one before it."""
        self.not_carried(part.type, "joined to the one before it")

    def check_boundary(self, end: ReasoningEnd, start: ReasoningStart, text: str) -> None:
        """Reports a reasoning that is not the first of a body, if clients cannot tell it from the
        one before: they can by its signature if it has no text, else by details with that text.
        """
        # A body joins the texts of all reasonings in one field: only their details tell them apart.
        separate = not text and bool(end.signature or end.encrypted or end.redacted)
        if text and self.same_dialect and isinstance(end.extra, Raw):
            with suppress(ValueError):
                details = [_read_detail(raw) for raw in _read_details(end.extra).reasoning_details]
                separate = "".join(one.text or one.summary or "" for one in details) == text
        if not separate:
            self.joined(start)

    def text_extra(self, part: TextEnd) -> Json:
        """Returns the `extra_content` of a text."""
        if self.same_dialect and isinstance(part.extra, Raw):
            return copy_raw(part.extra)
        if part.signature:
            # There are envelopes for reasoning and calls; a text has no field to carry one.
            self.not_carried("text-end", f"its signature goes back to {part.origin!r} only")
        return UNSET

    def can_write_call(self, part: ToolCall) -> bool:
        if part.provider_executed:
            self.not_carried(part.type, "calls that the provider executes have no field")
        elif not part.name:
            self.not_carried(part.type, "it has no name")
        return bool(part.name) and not part.provider_executed

    def check_call_kind(self, part: ToolParamsStart | ToolCall) -> None:
        type = CALL_TYPES[part.format]
        # Tools that only Responses has a kind for, such as a local shell, become functions here.
        if part.kind != type:
            self.not_carried("tool-call", f"kind {part.kind} is written as {type}")

    def call_extra(self, part: ToolCall) -> Json:
        """Returns the `extra_content` of a call at its end, unless its first delta had it."""
        if self.same_dialect and isinstance(part.extra, Raw):
            return copy_raw(part.extra)
        # It went out with the first delta.
        if part.id in self._signed:
            return UNSET
        extra = self.call_signature(part)
        if part.signature and extra is UNSET:
            self.not_carried(part.type, "the origin of its signature is not known")
        return extra

    def call_signature(self, part: ToolParamsStart | ToolCall) -> Json:
        """Returns the signature of another dialect's call as `extra_content`.

        It is written once for each call, and with its first delta if it is known by then: some
        clients look nowhere else.
        """
        envelope = wrap_call_signature(part, self.model)
        if envelope is None:
            return UNSET
        self._signed.add(part.id)
        return extra_content(envelope)

    def reasoning_details(self, end: ReasoningEnd, start: ReasoningStart, text: str) -> list[Raw]:
        """Returns the details that came from this dialect, or one detail with the signature of
        another dialect in an envelope."""
        if self.same_dialect and end.origin in self._origins and isinstance(end.extra, Raw):
            # The host's own details; an `extra` of another shape falls through to the envelope.
            try:
                return _read_details(copy_raw(end.extra)).reasoning_details
            except ValueError:
                pass
        signed = bool(end.signature or end.encrypted or end.redacted)
        if signed or not self.same_dialect:
            envelope = wrap_reasoning(end, self.model, start, text)
            if envelope is not None:
                # Numbered from 0: clients merge details by type and index.
                index = self._envelopes
                self._envelopes += 1
                detail = ChatReasoningDetail("reasoning.encrypted", data=envelope, index=index)
                return [Raw(msgspec.json.encode(detail))]
        if signed:
            self.not_carried("reasoning-end", "the origin of its signature is not known")
        return []

    def can_write_source(self, part: Source) -> bool:
        if part.kind != "url" or part.url is None:
            self.not_carried(part.type, "only sources with a URL can be annotations")
            return False
        if part.start is None or part.end is None:
            self.not_carried(part.type, "its place in the text is not known: written as 0 to 0")
        return True

    def finish_reason(self, reason: FinishReason, *, has_calls: bool, call_cut: bool) -> str:
        """Returns the `finish_reason`. Clients that read `tool_calls` wait for a call to run; with
        a call that was cut, the answer must not look complete."""
        written = CUT_FINISH_REASONS if call_cut else WRITTEN_FINISH_REASONS
        if reason == "tool-calls" and not has_calls:
            self.not_carried("finish", "no call could be written")
            return written["stop"]
        # An unknown reason after calls: with `stop` no client would run them.
        word = written["tool-calls" if has_calls and reason == "other" else reason]
        if word != reason.replace("-", "_"):
            self.not_carried("finish", f"reason {reason} is written as {word}")
        return word

    def usage(self, usage: Usage | None) -> ChatUsage | UnsetType:
        if usage is None or usage == Usage():
            return UNSET
        written = render_usage(usage)
        # Half of it breaks clients that add the numbers up.
        if written is UNSET:
            self.not_carried("usage", "clients need both input and output tokens")
        return written

    def stop_sequence(self, sequence: str | None) -> None:
        # Only Anthropic Messages names the sequence that matched.
        if sequence is not None:
            self.not_carried("finish", "the stop sequence has no field")
