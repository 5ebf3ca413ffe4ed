"""Stop sequences, where the upstream has none: the answer is cut here.

The text is watched as if it were written letter by letter: the first sequence that is complete
ends the answer, before it began; of several that end with the same letter, the longest. Text
that may be the beginning of one is held back, also over the end of a text part that another one
follows at once. Reasoning, refusals and arguments are not searched.

After the cut the answer stands. What the upstream begins now is left out: texts, reasoning,
calls, and also its errors, for the client has what it asked for. Reasoning and calls that were
begun before go on to their end, sources are told that speak of text that stayed, and the finish
keeps its usage.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from weft.assembler import Buffer
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
    """How much of a stop sequence the text ends with, letter after letter."""

    __slots__ = ("_back", "begun", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.begun = 0
        self._back = [0] * len(text)  # where to go on when a letter does not fit
        fitting = 0
        for place in range(1, len(text)):
            fitting = self._step(fitting, text[place])
            self._back[place] = fitting

    def _step(self, fitting: int, letter: str) -> int:
        while fitting and self.text[fitting] != letter:
            fitting = self._back[fitting - 1]
        return fitting + (self.text[fitting] == letter)

    def feed(self, letter: str) -> bool:
        """Returns whether this letter completes it."""
        self.begun = self._step(self.begun, letter)
        return self.begun == len(self.text)


class StopSequences:
    """A stage for one response."""

    passes = False  # there may always be more to do

    def __init__(self, stop: tuple[str, ...], findings: Findings) -> None:
        longest_first = sorted(set(filter(None, stop)), key=len, reverse=True)
        self._sequences = [_SequenceMatcher(text) for text in longest_first]
        self._first = frozenset(one.text[0] for one in self._sequences)
        self._findings = findings
        self._read: dict[str, Buffer] = {}
        """The texts that are searched and not ended, each as far as it was read."""
        self._told: dict[str, int] = {}
        """How many letters of each text went out."""
        self._open: dict[str, None] = {}
        """The texts that went out and did not end, in order."""
        self._held: list[Part] = []
        """What waits, in order: text that may begin a sequence, and what came behind it."""
        self._waiting = 0  # letters of it
        self._refusals: set[str] = set()
        self._reasonings: set[str] = set()
        self._calls: set[str] = set()
        """What was begun before the cut, and is not searched."""
        self._dispatchable = False
        self._ended = False
        self.matched: str | None = None
        """The sequence that ended the answer: more need not be read, but for the usage."""

    def feed(self, parts: list[Part]) -> list[Part]:
        out: list[Part] = []
        for part in parts:
            table = _SEARCHING if self.matched is None else _AFTER_CUT
            table.get(part.__class__, StopSequences._pass)(self, part, out)
        return out

    @property
    def holding(self) -> bool:
        return bool(self._held)

    def finish(self) -> list[Part]:
        """Returns what waited; or, for an answer that was cut, the finish that never came."""
        out: list[Part] = []
        if self.matched is None:
            self._let_go(out)
        elif not self._ended:
            self._finished(Finish("stop"), out)
        return out

    def _pass(self, part: Part, out: list[Part]) -> None:
        out.append(part)

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
        if not self._held and not any(letter in part.delta for letter in self._first):
            self._emit(part, out)
            return
        self._held.append(part)
        sequence, letters = self._search(part.delta)
        self._waiting += letters
        if sequence is None:
            begun = max((one.begun for one in self._sequences), default=0)
            self._release(self._waiting - begun, out)
        else:
            self._cut(sequence, out)

    def _search(self, text: str) -> tuple[str | None, int]:
        """Returns the sequence that this text completes, and how many letters it took."""
        for letters, letter in enumerate(text, 1):
            complete = [one for one in self._sequences if one.feed(letter)]
            if complete:
                return complete[0].text, letters
        return None, len(text)

    def _text_end(self, part: TextEnd, out: list[Part]) -> None:
        read = self._read.pop(part.id, None)
        if part.id in self._refusals or read is None:
            out.append(part)
            return
        if part.whole and len(part.whole) > read.length and part.whole.startswith(read.text):
            detail = f"text-end of {part.id!r}: the whole holds more than was streamed"
            self._findings.note("whole-extends", detail)
            self._text_delta(TextDelta(part.id, part.whole[read.length :]), out)
        if self.matched is None:
            self._read.pop(part.id, None)
            self._queue(part, out)

    def _queue(self, part: Part, out: list[Part]) -> None:
        """What goes with a text waits behind the letters that wait, and its start for letters."""
        self._held.append(part)
        if not self._waiting and not isinstance(part, TextStart):
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
        """Something else begins: no sequence reaches over it."""
        self._let_go(out)
        out.append(part)

    def _let_go(self, out: list[Part]) -> None:
        for one in self._sequences:
            one.begun = 0
        self._release(self._waiting, out)

    def _release(self, letters: int, out: list[Part]) -> None:
        """Lets so many letters go, and whatever does not stand behind letters that wait."""
        self._waiting -= letters
        held, self._held = self._held, []
        ready: list[Part] = []
        for part in held:
            if self._held:
                self._held.append(part)
            elif not isinstance(part, TextDelta):
                ready.append(part)
            elif len(part.delta) <= letters:
                letters -= len(part.delta)
                ready.append(part)
            else:
                if letters:
                    ready.append(_replace(part, delta=part.delta[:letters]))
                elif ready and isinstance(ready[-1], TextStart):
                    self._held.append(ready.pop())  # none of its letters is sure to stay
                self._held.append(_replace(part, delta=part.delta[letters:]))
        for part in ready:
            self._emit(part, out)

    def _emit(self, part: Part, out: list[Part]) -> None:
        match part:
            case TextStart(id=id):
                self._open[id] = None
            case TextDelta(id=id):
                self._open[id] = None
                self._told[id] = self._told.get(id, 0) + len(part.delta)
            case TextEnd(id=id):
                self._open.pop(id, None)
        out.append(part)

    # The cut

    def _cut(self, sequence: str, out: list[Part]) -> None:
        """Ends the answer before the sequence that the waiting letters end with. A text that
        would begin with it is never begun.
        """
        self.matched = sequence
        detail = f"{sequence!r} ended the answer; what comes after it is left out"
        self._findings.note("stop-cut", detail)
        self._release(self._waiting - len(sequence), out)
        for part in self._held:
            if isinstance(part, Source):
                self._source(part, out)
        out += [TextEnd(id) for id in self._open]
        self._held = []

    # After the cut

    def _source(self, part: Source, out: list[Part]) -> None:
        """A source stays if it speaks of text that stayed."""
        told = self._told.get(part.text_id or "", 0)
        if part.end is not None and part.end <= told:
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
            done = isinstance(part, ToolCall) and not (part.invalid or part.provider_executed)
            self._dispatchable |= done
        elif isinstance(part, ToolCall):
            detail = f"call {part.id!r} of {part.name!r} came after {self.matched!r}: left out"
            self._findings.note("stop-cut", detail)

    def _late_error(self, part: ErrorPart, out: list[Part]) -> None:
        detail = f"an error after {self.matched!r}: left out: {part.message}"
        self._findings.note("stop-cut", detail)

    def _finished(self, part: Finish, out: list[Part]) -> None:
        """The wire's own word for the end is not why this answer ended."""
        self._ended = True
        reason: FinishReason = "tool-calls" if self._dispatchable else "stop"
        out.append(_replace(part, reason=reason, raw_reason=None, stop_sequence=self.matched))


_Handlers = dict[type[Part], Callable[[StopSequences, Any, list[Part]], None]]

_SEARCHING: _Handlers = {
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
_AFTER_CUT: _Handlers = {
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
