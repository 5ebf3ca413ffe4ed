"""The law, as tables and as the few predicates a table cannot say. Knows no dialect, no side.

1. response-metadata first, finish last, each once. Nothing follows finish.
2. Per id: one start, deltas, one end. Items may overlap.
3. A call is announced once, under one id, with a non-empty name; its joined params deltas equal
   its params; one tool-call per id; results and approvals only after it; preliminary results
   before the final one.
4. Every announced call ends in exactly one tool-call. Nameless, unparseable or cut calls carry
   `invalid`; a nameless one is a lone tool-call. Stop with a valid client call is tool-calls.
5. `whole` is for the guard alone; past it, deltas are all there is.
6. An error ends the content: then the ends of what is open and exactly one finish(error);
   finish(error) never comes without an error.
7. What obeys all this passes the guard untouched.
8. Reasoning state stays with its origin.
9. What was emitted is never taken back. So argument text that may yet change its meaning is
   held (see `Hold`), and goes out in one delta right before its end; and the end of arguments
   that are not settled (see `settled`) comes right before their tool-call.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from types import UnionType
from typing import Any, Protocol

import msgspec

from weft.findings import Code
from weft.partial_json import is_json, unwrapped
from weft.parts import (
    ErrorPart,
    File,
    Finish,
    ItemPart,
    Opaque,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
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


class State(Enum):
    """Where an item, a call or the response stands."""

    ABSENT = "absent"
    OPEN = "open"
    SEALED = "sealed"
    CALLED = "called"
    FAILED = "failed"
    CLOSED = "closed"


ABSENT, OPEN, SEALED, CALLED, FAILED, CLOSED = State
PRELIMINARY, EARLIER = "preliminary", "earlier"
EARLIER_PRELIMINARY = "earlier preliminary"

_BLANKS = " \t\r\n"
_RESULTS = {(True, False): PRELIMINARY, (False, True): EARLIER, (True, True): EARLIER_PRELIMINARY}

Event = type[Part] | tuple[type[Part], str]
Table = dict[State, dict[Event, State]]
Delta = TextDelta | ReasoningDelta | ToolParamsDelta
End = TextEnd | ReasoningEnd | ToolParamsEnd
Predicate = Callable[[Any, "Lifecycle"], str]

# Items. A row is what may come in a state; whatever is not in it is a violation.
TEXT: Table = {
    ABSENT: {TextStart: OPEN},
    OPEN: {TextDelta: OPEN, TextEnd: CLOSED},
    CLOSED: {},
}

REASONING: Table = {
    ABSENT: {ReasoningStart: OPEN},
    OPEN: {ReasoningDelta: OPEN, ReasoningEnd: CLOSED},
    CLOSED: {},
}

TOOL: Table = {
    ABSENT: {
        ToolParamsStart: OPEN,
        ToolCall: CALLED,  # some wires announce a call whole
        (ToolResult, EARLIER_PRELIMINARY): ABSENT,  # its call was made in an earlier response
        (ToolResult, EARLIER): CLOSED,
    },
    # No ToolCall from OPEN: a tool-call that meets open params ends them first, in the guard.
    OPEN: {ToolParamsDelta: OPEN, ToolParamsEnd: SEALED},
    SEALED: {ToolCall: CALLED},
    # The guard leaves the mark `earlier` as it came, so results with it are legal behind a call of
    # this response as well.
    CALLED: {
        ToolApprovalRequest: CALLED,
        (ToolResult, PRELIMINARY): CALLED,
        (ToolResult, EARLIER_PRELIMINARY): CALLED,
        ToolResult: CLOSED,
        (ToolResult, EARLIER): CLOSED,
    },
    CLOSED: {},
}

# The response.
_CONTENT: dict[Event, State] = dict.fromkeys(
    (
        TextStart,
        TextDelta,
        TextEnd,
        ReasoningStart,
        ReasoningDelta,
        ReasoningEnd,
        ToolParamsStart,
        ToolParamsDelta,
        ToolParamsEnd,
        ToolCall,
        ToolResult,
        ToolApprovalRequest,
        Source,
        File,
        Opaque,
    ),
    OPEN,
)

RESPONSE: Table = {
    ABSENT: {ResponseMetadata: OPEN},
    OPEN: {**_CONTENT, ErrorPart: FAILED, Finish: CLOSED},
    # Ends of what is open, and nothing that a client could show or run.
    FAILED: {
        TextEnd: FAILED,
        ReasoningEnd: FAILED,
        ToolParamsEnd: FAILED,
        ToolCall: FAILED,  # a call that was open, or held back: it is invalid
        Finish: CLOSED,
    },
    CLOSED: {},
}

TABLES: dict[str, Table] = {
    "response": RESPONSE,
    "text": TEXT,
    "reasoning": REASONING,
    "tool": TOOL,
}

FAMILY: dict[type[Part], str] = {
    TextStart: "text",
    TextDelta: "text",
    TextEnd: "text",
    ReasoningStart: "reasoning",
    ReasoningDelta: "reasoning",
    ReasoningEnd: "reasoning",
    ToolParamsStart: "tool",
    ToolParamsDelta: "tool",
    ToolParamsEnd: "tool",
    ToolCall: "tool",
    ToolResult: "tool",
    ToolApprovalRequest: "tool",
}
"""Which table a part moves, beside the response's."""


def event_of(part: Part) -> Event:
    """Returns what a row of an item's table is looked up by."""
    if isinstance(part, ToolResult) and (part.preliminary or part.earlier):
        return (ToolResult, _RESULTS[part.preliminary, part.earlier])
    return part.__class__


def meaning(text: str) -> tuple[str, Code | None]:
    """What argument text means, and how it is odd: blank and null are no arguments, an object
    inside a string is that object.
    """
    # A call without arguments, in the spellings of different servers.
    # capture: no-arguments-in-three-spellings, arguments-null
    if text.strip(_BLANKS) in ("", "null"):
        return "{}", "arguments-empty"
    # capture: arguments-encoded-twice, input-is-an-encoded-object
    inner = unwrapped(text)
    return (text, None) if inner is None else (inner, "arguments-double-encoded")


def settled(text: str) -> bool:
    """Whether argument text is JSON and means what it says."""
    return is_json(text) and meaning(text)[1] is None


class Hold:
    """Whether argument text may yet turn out to mean something else, so that none of it may go
    out: it is blank, an empty placeholder, a JSON string (perhaps the arguments encoded twice),
    or the beginning of null (which is "no arguments").
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        # "null" is the longest text that is held and is not a string; of a string only the quote
        # matters.
        self._seen: str | None = ""  # the text so far, at most four characters; None: let go

    def feed(self, piece: str) -> bool:
        """Returns whether the text is still held after this piece. Once let go, for ever."""
        if self._seen is None or self._seen == '"':
            return self._seen is not None
        text = (self._seen + piece).lstrip(_BLANKS)
        bare = text.rstrip(_BLANKS)
        if text.startswith('"'):
            self._seen = '"'
        elif bare in ("{}", "[]") or "null".startswith(bare):
            # Some servers send an empty object before the arguments. "" is a beginning of "null",
            # so blanks are held too. Blanks behind the text are kept as one, else `nul`, a blank
            # and `l` would be read as null.
            # capture: arguments-placeholder-first, arguments-null
            self._seen = bare if bare == text else bare + " "
        else:
            self._seen = None
        return self._seen is not None


class Violation(msgspec.Struct, frozen=True):
    """A part that breaks the law, counted from 0, and which law."""

    law: int
    at: int
    message: str


class Lifecycle:
    """Follows a stream and names whatever breaks the law.

    It never joins text: `joined` tells what the deltas of a call add up to so far. Feed each
    part here first and to the fold after.
    """

    def __init__(self, joined: Callable[[str], str]) -> None:
        self.joined = joined
        self.response = ABSENT
        self.states: dict[tuple[str, str], State] = {}
        self.starts: dict[str, ToolParamsStart] = {}
        self.dispatchable = False
        """Whether a valid client call was made."""
        self._begun: set[str] = set()
        self.due: tuple[type[ItemPart], str] | None = None
        """The only part that may come now."""
        self._at = -1

    def feed(self, part: Part) -> list[Violation]:
        """Returns what this part violates: mostly nothing."""
        self._at += 1
        # The predicates come first: they judge the part by the stream before it.
        found = [
            Violation(law, self._at, f"{part.type}: {message}")
            for law, types, predicate in PREDICATES
            if isinstance(part, types) and (message := predicate(part, self))
        ]
        before = self.response
        law = 6 if before is FAILED else 1
        self.response = self._step("response", before, part, part.__class__, law, found)
        if isinstance(part, ItemPart):
            family = FAMILY[part.__class__]
            state = self.states.get((family, part.id), ABSENT)
            law = 3 if family == "tool" else 2
            event = event_of(part)
            self.states[family, part.id] = self._step(family, state, part, event, law, found)
        self.due = None
        match part:
            case ToolParamsStart():
                self.starts[part.id] = part
            case ToolCall(invalid=None, provider_executed=False):
                self.dispatchable = True
            case ToolParamsDelta(id=call, delta=delta):
                # Law 9. A first delta that is held by itself (a placeholder, a string) is legal
                # only as the last word: had more followed, it would have come joined with it.
                if self._is_json(call) and call not in self._begun and Hold().feed(delta):
                    self.due = (ToolParamsEnd, call)
                self._begun.add(call)
            case ToolParamsEnd(id=call):
                # Law 9, for the end of arguments that a tool-call could still have completed.
                if self._is_json(call) and not settled(self.joined(call)):
                    self.due = (ToolCall, call)
        return found

    def finish(self) -> list[Violation]:
        """Returns what the end of the stream violates."""
        if self.response is CLOSED:
            return []
        return [Violation(1, self._at + 1, f"no finish: the response is {self.response.value}")]

    def _step(
        self,
        family: str,
        state: State,
        part: Part,
        event: Event,
        law: int,
        found: list[Violation],
    ) -> State:
        row = TABLES[family][state]
        if event in row:
            return row[event]
        legal = ", ".join(sorted(map(_name, row))) or "nothing"
        message = f"{part.type} while {family} is {state.value}: expected {legal}"
        found.append(Violation(law, self._at, message))
        # The state stays, so that one wrong part is one violation and not one for each part behind
        # it.
        return state

    def _is_json(self, call: str) -> bool:
        # Deltas of a call that was never announced are a violation already; they are read as JSON.
        return call not in self.starts or self.starts[call].format == "json"


def _name(event: Event) -> str:
    return f"{event[1]} {event[0].__name__}" if isinstance(event, tuple) else event.__name__


def violations(parts: Iterable[Part], fold: "Fold") -> list[Violation]:
    """Returns everything in a whole stream that breaks the law."""
    law = Lifecycle(fold.joined)
    found: list[Violation] = []
    for part in parts:
        found += law.feed(part)
        fold.feed(part)
    return found + law.finish()


class Fold(Protocol):
    """What joins the deltas: the assembler."""

    def feed(self, part: Part) -> None: ...

    def joined(self, call: str) -> str: ...


# The predicates. Each gets a part and the stream before it, and says what is wrong or nothing.


def _what_is_due(part: Part, past: Lifecycle) -> str:
    if past.due is None:
        return ""
    wanted, call = past.due
    if isinstance(part, wanted) and part.id == call:
        return ""
    return f"expected {wanted.__name__} of {call!r} right after"


def _delta_says_something(part: Delta, past: Lifecycle) -> str:
    return "" if part.delta else "empty"


def _announced_with_a_name(part: ToolParamsStart, past: Lifecycle) -> str:
    return "" if part.name.strip() else "no name"


def _call_has_a_name(part: ToolCall, past: Lifecycle) -> str:
    if part.name and not part.name.strip():
        return "a name of nothing but blanks"
    if part.invalid == "nameless":
        return "announced, so it cannot be nameless" if part.id in past.starts else ""
    return "" if part.name or part.invalid == "stream-failed" else "no name"


def _call_is_the_one_announced(part: ToolCall, past: Lifecycle) -> str:
    start = past.starts.get(part.id, part)
    same = (
        start.name == part.name
        and start.kind == part.kind
        and start.format == part.format
        and start.provider_executed == part.provider_executed
    )
    return "" if same else "not the call that was announced"


def _params_are_the_joined_deltas(part: ToolCall, past: Lifecycle) -> str:
    if part.id not in past.starts or part.params == past.joined(part.id):
        return ""
    return "params differ from the joined deltas"


def _params_are_usable(part: ToolCall, past: Lifecycle) -> str:
    if part.invalid or part.format == "text":
        return ""
    return "" if settled(part.params) else "params are not usable, and it is not marked invalid"


def _valid_only_before_an_error(part: ToolCall, past: Lifecycle) -> str:
    return "valid after an error" if past.response is FAILED and not part.invalid else ""


def _error_and_finish_agree(part: Finish, past: Lifecycle) -> str:
    agree = (past.response is FAILED) == (part.reason == "error")
    return "" if agree else f"reason {part.reason} while the response is {past.response.value}"


def _stop_with_calls(part: Finish, past: Lifecycle) -> str:
    stop = part.reason == "stop" and past.dispatchable
    return "reason stop with a valid client call" if stop else ""


def _nothing_is_open(part: Finish, past: Lifecycle) -> str:
    still = [repr(key[1]) for key, state in past.states.items() if state in (OPEN, SEALED)]
    return f"still open: {', '.join(still)}" if still else ""


def _no_whole(part: End, past: Lifecycle) -> str:
    return "" if part.whole is None else "whole past the guard"


PREDICATES: tuple[tuple[int, type[Part] | UnionType, Predicate], ...] = (
    (2, Delta, _delta_says_something),
    (2, Finish, _nothing_is_open),
    (3, ToolParamsStart, _announced_with_a_name),
    (3, ToolCall, _call_is_the_one_announced),
    (3, ToolCall, _params_are_the_joined_deltas),
    (4, ToolCall, _call_has_a_name),
    (4, ToolCall, _params_are_usable),
    (4, Finish, _stop_with_calls),
    (5, End, _no_whole),
    (6, ToolCall, _valid_only_before_an_error),
    (6, Finish, _error_and_finish_agree),
    (9, Part, _what_is_due),
)
"""(law, the parts it is asked for, what it asks)"""
