"""Stop sequences for an upstream that has none: the response is cut here.

The text is searched character by character: the first sequence that is complete ends the response,
before the sequence; of several that end at the same character, the longest counts. Text that may be
the beginning of a sequence is held back, also across the end of a text that another one follows at
once. Reasoning, refusals and arguments are not searched.

After the cut the response is complete. What the upstream starts afterwards is dropped: texts,
reasoning, calls, and also errors. Reasoning and calls that were started before continue to their
end, sources of text before the cut are kept, and so is the usage of the finish.
"""

import msgspec

from weft.assembler import Buffer
from weft.dialects.stages import Handlers, HandlerStage
from weft.findings import Findings
from weft.parts import (
    ErrorPart,
    File,
    Finish,
    FinishReason,
    ItemPart,
    Opaque,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
)

_replace = msgspec.structs.replace


class _SequenceMatcher:
    """Matches one stop sequence against a text, character by character (Knuth, Morris, Pratt)."""

    __slots__ = ("_back", "matched", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.matched = 0
        self._back = [0] * len(text)  # where to continue after a mismatch
        length = 0
        for place in range(1, len(text)):
            length = self._step(length, text[place])
            self._back[place] = length

    def _step(self, length: int, character: str) -> int:
        # It falls at most as often as it rose: on average a character costs one step, whatever the
        # length of the sequence.
        while length and self.text[length] != character:
            length = self._back[length - 1]
        return length + (self.text[length] == character)

    def feed(self, character: str) -> bool:
        """Returns whether this character completes the sequence."""
        self.matched = self._step(self.matched, character)
        return self.matched == len(self.text)


class StopSequences(HandlerStage):
    """A stage for one response."""

    def __init__(self, stop: tuple[str, ...], findings: Findings) -> None:
        self._handlers = _SEARCHING
        # The first that is complete at a character is then the longest of them.
        longest_first = sorted(set(filter(None, stop)), key=len, reverse=True)
        self._sequences = [_SequenceMatcher(text) for text in longest_first]
        # Most deltas hold none of these characters, and pass without a search.
        self._first = frozenset(one.text[0] for one in self._sequences)
        self._findings = findings
        self._read: dict[str, Buffer] = {}
        """The texts that are searched and have not ended, as far as they were read."""
        self._emitted: dict[str, int] = {}
        """How many characters of each text were emitted."""
        self._open: dict[str, None] = {}
        """The texts that were emitted and have not ended, in order."""
        self._held: list[Part] = []
        """What is held back, in order: text that may begin a sequence, and what came after it."""
        self._held_length = 0  # characters of it
        self._refusals: set[str] = set()
        self._reasonings: set[str] = set()
        self._calls: set[str] = set()
        """What was started before the cut, and is not searched."""
        self._dispatchable = False
        self._ended = False
        self.matched: str | None = None
        """The sequence that ended the response. Only the usage is still needed."""

    @property
    def holding(self) -> bool:
        return bool(self._held)

    def finish(self) -> list[Part]:
        """Returns what was held; or the finish of a response that was cut, if none came."""
        out: list[Part] = []
        if self.matched is None:
            self._release_all(out)
        elif not self._ended:
            self._finished(Finish("stop"), out)
        return out

    def _drop(self, part: Part, out: list[Part]) -> None:
        """It came after the cut."""

    # Before the cut

    def _text_start(self, part: TextStart, out: list[Part]) -> None:
        if part.refusal:
            self._refusals.add(part.id)
            self._other(part, out)
        else:
            self._read.setdefault(part.id, Buffer())
            self._queue(part, out)

    def _text_delta(self, part: TextDelta, out: list[Part]) -> None:
        if part.id in self._refusals or not part.delta:
            out.append(part)
            return
        read = self._read.get(part.id)
        if read is None:
            self._read[part.id] = read = Buffer()
        read.add(part.delta)
        # Nothing has matched so far, and nothing here can begin a match.
        if not self._held and not any(character in part.delta for character in self._first):
            self._emit(part, out)
            return
        self._held.append(part)
        for character in part.delta:
            self._held_length += 1
            complete = [one for one in self._sequences if one.feed(character)]
            if complete:
                self._cut(complete[0].text, out)
                return
        matched = max((one.matched for one in self._sequences), default=0)
        self._release(self._held_length - matched, out)

    def _text_end(self, part: TextEnd, out: list[Part]) -> None:
        read = self._read.pop(part.id, None)
        if part.id in self._refusals or read is None:
            out.append(part)
            return
        # The guard would append the missing end after this stage, so it is searched here.
        if part.whole and len(part.whole) > read.length and part.whole.startswith(read.text):
            detail = f"text-end of {part.id!r}: the whole holds more than was streamed"
            self._findings.note("whole-extends", detail)
            self._text_delta(TextDelta(part.id, part.whole[read.length :]), out)
        # The missing end may have held the sequence.
        if self.matched is None:
            self._read.pop(part.id, None)
            self._queue(part, out)

    def _queue(self, part: Part, out: list[Part]) -> None:
        """Holds a part behind the characters that are held; a start, until the text goes on."""
        self._held.append(part)
        # A start waits for its first character: a text that begins with a sequence never starts.
        if not self._held_length and not isinstance(part, TextStart):
            self._release(0, out)

    def _reasoning(self, part: ReasoningStart, out: list[Part]) -> None:
        self._reasonings.add(part.id)
        self._other(part, out)

    def _params(self, part: ToolParamsStart, out: list[Part]) -> None:
        self._calls.add(part.id)
        self._other(part, out)

    def _call(self, part: ToolCall, out: list[Part]) -> None:
        self._calls.add(part.id)
        self._dispatchable |= not (part.invalid or part.provider_executed)
        self._other(part, out)

    def _other(self, part: Part, out: list[Part]) -> None:
        """Something else starts: no sequence continues after it."""
        self._release_all(out)
        out.append(part)

    def _release_all(self, out: list[Part]) -> None:
        # Whatever was matched so far cannot be continued.
        for one in self._sequences:
            one.matched = 0
        self._release(self._held_length, out)

    def _release(self, length: int, out: list[Part]) -> None:
        """Emits so many characters, and whatever is not behind characters that stay held."""
        self._held_length -= length
        held, self._held = self._held, []
        ready: list[Part] = []
        for part in held:
            if self._held:
                self._held.append(part)
            elif not isinstance(part, TextDelta):
                ready.append(part)
            elif len(part.delta) <= length:
                length -= len(part.delta)
                ready.append(part)
            else:
                if length:
                    ready.append(_replace(part, delta=part.delta[:length]))
                elif ready and isinstance(ready[-1], TextStart):
                    self._held.append(ready.pop())  # it may be cut before its first character
                self._held.append(_replace(part, delta=part.delta[length:]))
        for part in ready:
            self._emit(part, out)

    def _emit(self, part: Part, out: list[Part]) -> None:
        match part:
            case TextStart(id=id):
                self._open[id] = None
            case TextDelta(id=id):
                self._open[id] = None
                self._emitted[id] = self._emitted.get(id, 0) + len(part.delta)
            case TextEnd(id=id):
                self._open.pop(id, None)
        out.append(part)

    # The cut

    def _cut(self, sequence: str, out: list[Part]) -> None:
        """Ends the response before the sequence that the held characters end with. A text that
        would start with the sequence is never started.
        """
        self.matched = sequence
        self._handlers = _AFTER_CUT
        detail = f"{sequence!r} ended the response; what follows is dropped"
        self._findings.note("stop-cut", detail)
        self._release(self._held_length - len(sequence), out)
        # Sources among the held text may cite what is before the sequence.
        for part in self._held:
            if isinstance(part, Source):
                self._source(part, out)
        # The upstream's own ends come after the cut, and are dropped.
        out += [TextEnd(id) for id in self._open]
        self._held = []

    # After the cut

    def _source(self, part: Source, out: list[Part]) -> None:
        """Keeps the source of a text before the cut."""
        # Without a place in the text nobody can tell what it cites.
        if part.end is not None and part.end <= self._emitted.get(part.text_id or "", 0):
            out.append(part)

    def _late_text_end(self, part: TextEnd, out: list[Part]) -> None:
        if part.id in self._refusals:
            out.append(part)

    def _late_reasoning(self, part: ItemPart, out: list[Part]) -> None:
        if part.id in self._reasonings:
            out.append(part)

    def _late_call(self, part: ItemPart, out: list[Part]) -> None:
        if part.id in self._calls:
            out.append(part)
            # Calls that were begun before the cut must still be run: they decide the finish reason.
            done = isinstance(part, ToolCall) and not (part.invalid or part.provider_executed)
            self._dispatchable |= done
        elif isinstance(part, ToolCall):
            detail = f"call {part.id!r} of {part.name!r} came after {self.matched!r}: dropped"
            self._findings.note("stop-cut", detail)

    def _late_error(self, part: ErrorPart, out: list[Part]) -> None:
        # The answer was complete before the upstream failed.
        detail = f"an error after {self.matched!r}: dropped: {part.message!r}"
        self._findings.note("stop-cut", detail)

    def _finished(self, part: Finish, out: list[Part]) -> None:
        """The finish reason of the upstream is not why this response ended."""
        self._ended = True
        reason: FinishReason = "tool-calls" if self._dispatchable else "stop"
        out.append(_replace(part, reason=reason, raw_reason=None, stop_sequence=self.matched))


# What is in neither table passes: metadata, and deltas and ends of what is not searched.
_SEARCHING: Handlers = {
    TextStart: StopSequences._text_start,
    TextDelta: StopSequences._text_delta,
    TextEnd: StopSequences._text_end,
    ReasoningStart: StopSequences._reasoning,
    ToolParamsStart: StopSequences._params,
    ToolCall: StopSequences._call,
    ToolResult: StopSequences._other,
    ToolApprovalRequest: StopSequences._other,
    Source: StopSequences._queue,
    File: StopSequences._other,
    Opaque: StopSequences._other,
    ErrorPart: StopSequences._other,
    Finish: StopSequences._other,
}
_AFTER_CUT: Handlers = {
    TextStart: StopSequences._drop,
    TextDelta: StopSequences._drop,
    TextEnd: StopSequences._late_text_end,
    ReasoningStart: StopSequences._drop,
    ReasoningDelta: StopSequences._late_reasoning,
    ReasoningEnd: StopSequences._late_reasoning,
    ToolParamsStart: StopSequences._late_call,
    ToolParamsDelta: StopSequences._late_call,
    ToolParamsEnd: StopSequences._late_call,
    ToolCall: StopSequences._late_call,
    ToolResult: StopSequences._late_call,
    ToolApprovalRequest: StopSequences._late_call,
    Source: StopSequences._source,
    File: StopSequences._drop,
    Opaque: StopSequences._drop,
    ErrorPart: StopSequences._late_error,
    Finish: StopSequences._finished,
}
