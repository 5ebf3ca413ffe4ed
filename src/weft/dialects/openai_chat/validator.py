"""Checks one Chat Completions stream against its rules (`rules.toml`).

Reads untyped chunks, of all choices. After a broken rule it goes on with what the chunk most likely
meant, so that one fault is one finding.
"""

from enum import Enum

from weft.dialects.openai_chat.validation.state import ChatChoiceState
from weft.dialects.rules import JsonValue
from weft.dialects.validation.reporter import JsonObject, Reporter, json_type
from weft.dialects.validation.untyped import FramingDetector, count, fields, shown, text
from weft.findings import Findings
from weft.sse import DONE, Frame

CHUNK_OBJECT = "chat.completion.chunk"
COMPLETION_OBJECT = "chat.completion"
TOKEN_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
CONSTANT_KEYS = {"id": "chunk-id-changed", "model": "model-changed", "created": "created-changed"}
"""Keys with the same value in all chunks, and the rule that requires it."""


class _ChatStreamPhase(Enum):
    START = "start"
    OPEN = "open"
    FAILED = "failed"
    DONE = "done"
    COMPLETION = "completion"
    """Not a stream: the completion, or its error, in one piece."""


class ChatValidator:
    """Checks one response with all its choices."""

    def __init__(self, findings: Findings) -> None:
        self._report = Reporter(findings)
        self._framing = FramingDetector()
        self._phase = _ChatStreamPhase.START
        self._error_at = 0
        self._usage_at: int | None = None
        self._first_values: dict[str, JsonValue] = {}
        self._choices: dict[int, ChatChoiceState] = {}

    def feed(self, frame: Frame, event: JsonValue) -> None:
        self._framing.feed(frame)
        if frame.event:
            detail = f"an event: line with {shown(frame.event)}; expected none"
            self._report("event-line", frame.event, detail)
        if self._phase is _ChatStreamPhase.DONE:
            what = "[DONE]" if frame.data == DONE else "an event"
            detail = f"{what} came after [DONE]; expected the end of the stream"
            self._report("after-done", "", detail)
        elif frame.data == DONE and self._phase is _ChatStreamPhase.COMPLETION:
            # A body alone answers a request that is not streamed; with a terminator it claims to
            # be a stream.
            detail = f"a whole completion in a stream; expected {CHUNK_OBJECT}"
            self._report("chunk-object", "", detail)
        elif frame.data == DONE:
            self._end_choices("[DONE]")
            self._phase = _ChatStreamPhase.DONE
        elif not isinstance(event, dict):
            detail = f"data is {json_type(event) if event is not None else 'no JSON'}"
            self._report("data-invalid", self._report.at, f"{detail}; expected an object or [DONE]")
        elif self._phase is _ChatStreamPhase.START and event.get("object") == COMPLETION_OBJECT:
            # Only as the first event: behind chunks, a completion is a chunk of the wrong kind.
            self._phase = _ChatStreamPhase.COMPLETION
        else:
            self._check_chunk(event)

    def finish(self) -> None:
        if self._phase in (_ChatStreamPhase.COMPLETION, _ChatStreamPhase.DONE):
            return
        self._end_choices("the end of the stream")
        # In lines of JSON, as captures may hold them, there is no terminator.
        if self._framing.events:
            self._report("done-missing", "", "the stream ended; expected [DONE] before that")

    def _end_choices(self, where: str) -> None:
        # After an error no finish is expected any more.
        if self._phase is _ChatStreamPhase.FAILED:
            return
        for choice in self._choices.values():
            choice.end(where)
        # A stream without choices has nothing to end, so its missing answer is reported here.
        if not self._choices:
            detail = f"{where} came before any choice; expected an answer with a finish_reason"
            self._report("finish-missing", "", detail)

    def _check_chunk(self, chunk: JsonObject) -> None:
        error, usage, choices = chunk.get("error"), chunk.get("usage"), chunk.get("choices")
        if self._phase is _ChatStreamPhase.FAILED:
            detail = f"a chunk came after the error at event {self._error_at}; expected [DONE]"
            self._report("after-error", "", detail)
        elif error:
            self._phase = _ChatStreamPhase.FAILED
            self._error_at = self._report.at
            message = fields(error).get("message")
            detail = f"an error came: {shown(message or error)}"
            self._report("error-chunk", "", f"{detail}; expected a finish_reason")
            if not isinstance(message, str):
                detail = f"error is {shown(error)}; expected an object with a message"
                self._report("error-shape", "", detail)
        else:
            self._phase = _ChatStreamPhase.OPEN
        # An error object is not a chunk: it needs neither these keys nor choices.
        if not error:
            self._check_constant_keys(chunk)
        if isinstance(choices, list):
            self._check_choices(choices, has_usage=bool(usage))
        elif not error:
            detail = f"choices is {shown(choices)}; expected an array, even if it is empty"
            self._report("choices-missing", "", detail)
        if usage:
            self._check_usage(usage, has_choices=bool(choices))

    def _check_constant_keys(self, chunk: JsonObject) -> None:
        if chunk.get("object") != CHUNK_OBJECT:
            detail = f"object is {shown(chunk.get('object'))}; expected {CHUNK_OBJECT}"
            self._report("chunk-object", "", detail)
        for key, rule in CONSTANT_KEYS.items():
            value = chunk.get(key)
            # 0 is a time, if an odd one; an empty id or model is as good as none.
            present = count(value) is not None if key == "created" else text(value) != ""
            if not present:
                detail = f"{key} is {shown(value)}; expected it in every chunk"
                self._report("chunk-keys", key, detail)
                continue
            first = self._first_values.setdefault(key, value)
            if value != first:
                detail = f"{key} is {shown(value)}; expected {shown(first)}, as in the first chunk"
                self._report(rule, "", detail)

    def _check_choices(self, choices: list[JsonValue], *, has_usage: bool) -> None:
        # A chunk with usage of its own is reported as `usage-repeated`.
        if choices and self._usage_at is not None and not has_usage:
            detail = f"choices came after the usage at event {self._usage_at}; expected none"
            self._report("usage-not-last", "", detail)
        for choice in map(fields, choices):
            index = count(choice.get("index"))
            if index is None:
                detail = f"a choice has index {shown(choice.get('index'))}; expected 0, 1, …"
                self._report("choice-index-missing", "", detail)
                # Go on as most clients do, so that this defect is one finding.
                index = 0
            state = self._choices.setdefault(index, ChatChoiceState(self._report, index))
            state.feed(choice, has_usage=has_usage)

    def _check_usage(self, usage: JsonValue, *, has_choices: bool) -> None:
        if has_choices:
            detail = "usage came beside choices; expected a chunk whose choices are empty"
            self._report("usage-with-choices", "", detail)
        if self._usage_at is not None:
            detail = f"usage came again; it came at event {self._usage_at}; expected it once"
            self._report("usage-repeated", "", detail)
        self._usage_at = self._report.at
        values = [fields(usage).get(key) for key in TOKEN_COUNTS]
        counts = [number for number in map(count, values) if number is not None]
        if len(counts) < len(values):
            pairs = zip(TOKEN_COUNTS, values, strict=True)
            found = ", ".join(f"{key} {shown(value)}" for key, value in pairs)
            detail = f"usage has {found}; expected three integers, none below 0"
            self._report("usage-invalid", "", detail)
            return
        prompt, completion, total = counts
        # Some hosts count reasoning in the total only.
        if prompt + completion != total:
            detail = f"usage has {shown(prompt)} in, {shown(completion)} out and {shown(total)}"
            expected = f"expected {shown(prompt + completion)}"
            self._report("usage-total", "", f"{detail} in total; {expected}")
