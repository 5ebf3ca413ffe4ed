"""Collects what the frames of a candidate say about its end."""

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.gemini import wire
from weft.dialects.gemini.mapping import (
    RETRYABLE_REASONS,
    STOP,
    UNSPECIFIED,
    parse_finish_reason,
    parse_usage,
)
from weft.findings import Findings
from weft.parts import ErrorPart, Finish, FinishReason


class FinishState:
    """The finish reason, usage and metadata so far. They count when the input is over."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.reason: str | None = None
        self._block_reason: str | None = None
        self._usage = wire.UsageMetadata()
        self._extra = wire.GeminiFinishExtra()

    @property
    def known(self) -> bool:
        """Whether a finish reason or a block reason came."""
        return self.reason is not None or self._block_reason is not None

    @property
    def held(self) -> bool:
        """Whether something came that only the finish part will carry."""
        return self.known or self._extra != wire.GeminiFinishExtra()

    @property
    def clean(self) -> bool:
        """Whether the response is complete."""
        # Only STOP: behind any other reason, arguments that were streamed may be cut.
        return self.reason is not None and parse_finish_reason(self.reason) == "stop"

    def error(self) -> ErrorPart | None:
        """The error, if the finish reason is one."""
        reason = self.reason or ""
        if parse_finish_reason(reason) != "error":
            return None
        message = self._extra.finish_message or f"the model's turn failed: {reason}"
        return ErrorPart("upstream", message, code=reason, retryable=reason in RETRYABLE_REASONS)

    def finish(self, model: str | None, *, failed: bool, called: bool) -> Finish:
        """`called`: a call for the client was decoded, for which the API has no finishReason."""
        reason: FinishReason = "content-filter"  # capture: prompt-blocked
        if self.reason is not None:
            reason = parse_finish_reason(self.reason)
        # Only STOP is promoted: a limit that was reached in the middle of calls stays a limit.
        if reason == "stop" and called:
            reason = "tool-calls"
        extra = self._extra
        return Finish(
            "error" if failed else reason,
            raw_reason=self.reason or self._block_reason,
            usage=parse_usage(self._usage),
            model=model,
            extra=UNSET if extra == wire.GeminiFinishExtra() else Raw(msgspec.json.encode(extra)),
        )

    def add_usage(self, usage: wire.UsageMetadata) -> None:
        """Counts are cumulative: the later value of each field wins, nothing is added up."""
        # Field by field: early frames may hold a traffic type and no counts, and erase nothing.
        # capture: arguments-value-by-value
        total = self._usage
        if usage.prompt_token_count is not None:
            total.prompt_token_count = usage.prompt_token_count
        if usage.cached_content_token_count is not None:
            total.cached_content_token_count = usage.cached_content_token_count
        if usage.candidates_token_count is not None:
            total.candidates_token_count = usage.candidates_token_count
        if usage.thoughts_token_count is not None:
            total.thoughts_token_count = usage.thoughts_token_count
        if usage.tool_use_prompt_token_count is not None:
            total.tool_use_prompt_token_count = usage.tool_use_prompt_token_count
        if usage.total_token_count is not None:
            total.total_token_count = usage.total_token_count

    def add_feedback(self, feedback: wire.PromptFeedback) -> None:
        # Feedback without a block reason only has safety ratings.
        # capture: prompt-blocked
        if not feedback.block_reason:
            return
        self._block_reason = self._block_reason or feedback.block_reason
        # A frame that repeats the reason need not repeat its message.
        # capture: prompt-blocked-told-twice
        if feedback.block_reason == self._block_reason and feedback.block_reason_message:
            self._extra.block_reason_message = feedback.block_reason_message

    def add_candidate(self, candidate: wire.GeminiCandidate) -> None:
        extra = self._extra
        ignored = candidate.finish_reason and not self._add_reason(candidate.finish_reason)
        # Kept for encoders of this dialect: there is no canonical field for any of it.
        # capture: malformed-function-call, continuation
        if candidate.finish_message and not ignored:  # else it explains another reason
            extra.finish_message = candidate.finish_message
        extra.continuation_token = candidate.continuation_token or extra.continuation_token
        if isinstance(candidate.url_context_metadata, Raw):
            extra.url_context_metadata = candidate.url_context_metadata.copy()
        grounding = candidate.grounding_metadata
        if grounding is not None:
            if isinstance(grounding.web_search_queries, Raw):
                extra.web_search_queries = grounding.web_search_queries.copy()
            if isinstance(grounding.search_entry_point, Raw):
                extra.search_entry_point = grounding.search_entry_point.copy()

    def _add_reason(self, reason: str) -> bool:
        """Returns whether it is the reason that counts now."""
        # In the API's spelling from here on: the value is an enumeration's, so that its case means
        # nothing. capture: finish-reason-in-lower-case
        reason = reason.upper()
        # A specific reason wins over STOP, and any reason over none; UNSPECIFIED, the default of
        # the enumeration, says less than STOP.
        # capture: finish-reason-on-every-frame
        if self.reason in (None, UNSPECIFIED) or (self.reason == STOP and reason != UNSPECIFIED):
            self.reason = reason
        elif reason not in (STOP, UNSPECIFIED, self.reason):
            detail = f"finish reason {reason!r} after {self.reason!r}: ignored"
            self._findings.once("finish-repeated", "", detail)
        return reason == self.reason
