"""The rules of the Messages, generateContent and AI SDK wires: each is right about the streams that
Weft writes, about recorded ones, and about any frames whatever.

`test_check_rules` proves every rule by its two captures; here they are held to both ways of
reading a capture, and the rules to what a careless or hostile stream may hold.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.captures import HERE
from tests.captures.check import ai_sdk_cases as u
from tests.captures.check import gemini_cases as g
from tests.captures.check import messages_cases as m
from tests.captures.check.ai_sdk_cases import (
    AVAILABLE,
    CALL,
    FINISH,
    HELLO,
    OUTPUT,
    PIECE,
    START,
    STEP,
    STEP_END,
    lines,
    stream,
)
from tests.captures.check.cases import Case, Event, broken, found, frames_of, watched
from tests.captures.check.generate import CASES
from tests.recordings import FIXTURES
from tests.strategies import LEGAL, QUICK
from tests.tables import each_row
from weft.check.rules import rules_of
from weft.codec import Encoder
from weft.context import Context
from weft.dialects import DIALECTS, DialectName
from weft.dialects.ai_sdk.quirks import UiQuirks
from weft.dialects.rules import JsonValue
from weft.findings import Findings
from weft.ids import Ids
from weft.parts import Part
from weft.sse import DONE, Frame, write

WIRES = {
    "anthropic-messages": "anthropic_messages",
    "gemini": "gemini",
    "ai-sdk": "ai_sdk",
}
"""The names of the dialects, and their folders."""

SOURCE = Path(__file__).parents[1] / "src" / "weft" / "dialects"
RECORDED = {"anthropic-messages": "anthropic", "gemini": "google"}
EVERY_RULE = [(wire, name) for wire in WIRES for name in rules_of(wire)]
EVERY_CASE = [(wire, case) for wire in WIRES for case in CASES[wire]]


def named(pair: tuple[str, Case]) -> str:
    name, case = pair
    return f"{name}/{case.rule}"


# The rules themselves


@each_row("wire, name", EVERY_RULE)
def test_the_example_of_a_rule_breaks_it(wire: str, name: str) -> None:
    found = watched(DIALECTS[wire], frames_of(rules_of(wire)[name].example.encode()))
    assert name in {one.code for one in found}


# Captures


@each_row("pair", EVERY_CASE, ids=named)
def test_a_capture_breaks_the_same_rules_whole_or_cut_into_responses(
    pair: tuple[str, Case],
) -> None:
    name, case = pair
    assert broken(name, case.good) == []
    assert case.rule in broken(name, case.bad)
    for raw in (case.good, case.bad):
        assert broken(name, raw, cut=False) == broken(name, raw)


@pytest.mark.parametrize("name", WIRES)
def test_a_finding_tells_what_was_expected_and_stands_at_an_event(name: str) -> None:
    for case in CASES[name]:
        frames = frames_of(case.bad)
        for one in found(name, case.bad):
            assert frames[one.at].offset == one.offset
            assert 10 < len(one.detail) < 300
            assert "expected" in one.detail, one


@pytest.mark.parametrize("name", ["anthropic-messages", "gemini"])
def test_every_capture_of_the_decoders_is_checked_without_an_exception(name: str) -> None:
    rules = set(rules_of(name))
    for path in sorted((HERE / WIRES[name]).glob("*.sse")):
        assert set(broken(name, path.read_bytes())) <= rules


# What Weft writes

EXCUSED: dict[str, dict[str, str]] = {
    "anthropic-messages": {
        "signature-missing": "a signature of another maker is not written, and none is forged",
        "text-empty": "an empty text is written as an empty block",
        "stop-reason-calls": "a reason that has no word is end_turn, also when a call waits",
    },
    "gemini": {
        "call-unsigned": "a signature of another maker is not written, and none is forged",
        "part-type": "an opaque part goes back as it came, whatever it is",
    },
    "ai-sdk": {
        "output-open": "parts are legal when no final result follows a preliminary one",
        "call-input-form": "the arguments of a call may be a JSON text, or free text like one",
    },
}
"""Rules that a stream of Weft may break, and why."""


def written(name: DialectName, parts: list[Part], context: Context) -> bytes:
    encoder = Encoder(name, context=context)
    return b"".join(encoder.feed(parts) + encoder.finish())


@pytest.mark.parametrize("name", WIRES)
@QUICK
@given(parts=LEGAL)
def test_what_weft_writes_breaks_no_rule(name: DialectName, parts: list[Part]) -> None:
    raw = written(name, parts, Context(ids=Ids(b"seed")))
    assert [one for one in found(name, raw) if one.code not in EXCUSED[name]] == []


@pytest.mark.parametrize("ui", [5, 7])
@QUICK
@given(parts=LEGAL)
def test_what_weft_writes_for_other_front_ends_breaks_no_rule(ui: int, parts: list[Part]) -> None:
    quirks = UiQuirks(ui=ui, usage=True)  # type: ignore[arg-type]
    raw = written("ai-sdk", parts, replace(Context(ids=Ids(b"seed")), quirks=quirks))
    allowed = EXCUSED["ai-sdk"].keys() | ({"newer-chunk"} if ui == 7 else set())
    assert [one for one in found("ai-sdk", raw) if one.code not in allowed] == []


# What others wrote


def recorded(name: str) -> list[Path]:
    return sorted((FIXTURES / RECORDED[name]).glob("*.chunks.txt"))


def framed(name: str, path: Path) -> bytes:
    """A recorded stream as it was on the wire."""
    out = b""
    for line in path.read_bytes().splitlines():
        if line.strip():
            event = str(json.loads(line).get("type", "")) if name != "gemini" else ""
            out += write(event, line.strip())
    return out


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_streams_break_no_rule_that_is_more_than_a_note(name: str) -> None:
    notes = {rule for rule, one in rules_of(name).items() if one.severity == "note"}
    for path in recorded(name):
        for raw in (framed(name, path), path.read_bytes()):
            serious = [one for one in found(name, raw) if one.code not in notes]
            assert (path.name, serious) == (path.name, [])


# The same rules, broken in other ways; and what is legal although it looks odd

MESSAGES: list[tuple[str, bytes, list[str]]] = [
    ("a refusal without any block", m.said(reason="refusal"), []),
    ("a paused turn", m.said(*m.search(0), reason="pause_turn"), []),
    (
        "a call that waits beside one that runs",
        m.said(*m.search(0), *m.use(1), reason="tool_use"),
        [],
    ),
    ("a search with its input at its start", m.said(*m.search(0)[::2], *m.result(1)), []),
    ("a call cut by the limit", m.said(*m.use(0, '{"city":"Os'), reason="max_tokens"), []),
    ("a call without arguments", m.said(*m.use(0, ""), reason="tool_use"), []),
    (
        "a call that code makes",
        m.said(*m.use(0, input={"a": 1}, caller=m.CODE), reason="tool_use"),
        [],
    ),
    ("thinking that is not shown", m.thinking(m.SIGNED), []),
    ("an error at once", m.stream(m.ERROR), []),
    ("an error inside a block", m.stream(*m.FAILED), []),
    ("a ping after everything", m.stream(m.PING, *m.PLAIN, m.PING), []),
    ("a result of an unknown tool", m.said(*m.search(0), m.start(1, m.ODD_RESULT), m.stop(1)), []),
    (
        "arguments that are no object",
        m.said(*m.use(0, "[1]"), reason="tool_use"),
        ["tool-input-json"],
    ),
    ("tool_use without a call", m.said(*m.HELLO, reason="tool_use"), ["stop-reason-calls"]),
    ("nothing at all", b"", ["message-start-first"]),
    ("only a ping", m.stream(m.PING), ["message-start-first"]),
    (
        "an end inside a block",
        m.stream(m.head(), *m.HELLO[:2]),
        ["block-open", "message-delta", "message-stop"],
    ),
    (
        "no index anywhere",
        m.said(*({**event, "index": None} for event in m.HELLO)),
        ["block-not-open", "block-open", "block-shape"],
    ),
    (
        "index 0 for every block",
        m.said(*m.HELLO, *m.text(0, "Bye")),
        ["block-index"],
    ),
    ("a delta without a type", m.said(*m.HELLO[:2], m.delta(0), m.HELLO[-1]), ["delta-shape"]),
    (
        "a text for a result",
        m.said(*m.search(0), m.start(1, m.ODD_RESULT), m.HELLO[1] | {"index": 1}, m.stop(1)),
        ["delta-fits"],
    ),
    (
        "a delta for a block that nobody knows",
        m.said(m.start(0, {"type": "hologram"}), m.HELLO[1], m.stop(0)),
        ["block-type"],
    ),
    (
        "a second signature",
        m.thinking(m.THOUGHT, m.SIGNED, m.SIGNED),
        ["signature-late"],
    ),
    (
        "the answer of a client's tool as a result",
        m.said(*m.use(0, id="srvtoolu_01"), *m.result(1), reason="tool_use"),
        ["result-without-use"],
    ),
    (
        "the model as a user",
        m.stream(m.head(role="user"), *m.PLAIN[1:]),
        ["message-start-shape"],
    ),
    (
        "no counts of tokens at the start",
        m.stream(m.head(usage={}), *m.PLAIN[1:]),
        ["message-start-shape"],
    ),
]

CONTENT: list[tuple[str, bytes, list[str]]] = [
    ("a prompt that was blocked", g.stream(g.feedback()), []),
    ("an error in an array", g.stream([g.ERROR]), []),
    ("an answer without content", g.stream({"candidates": [{"finishReason": "SAFETY"}]}), []),
    ("usage that counts nothing yet", g.stream(g.TRAFFIC, g.HELLO, g.end()), []),
    (
        "a pause inside a call in pieces",
        g.stream(g.OPENED, *g.OSLO, g.call(willContinue=True), g.call(), g.end()),
        [],
    ),
    (
        "two candidates",
        g.stream(g.HELLO, g.frame({"text": "Hi"}, index=1), g.end(), g.end(index=1)),
        [],
    ),
    (
        "the result of a tool, by its id",
        g.said({"toolCall": g.TOOL}, {"toolResponse": g.TOOL}),
        [],
    ),
    ("a stretch without a copy", g.placed(startIndex=6, endIndex=10), []),
    ("nothing at all", b"", ["finish-missing"]),
    ("an answer that is not one", g.stream(7), ["finish-missing", "frame-object"]),
    (
        "one of two candidates unfinished",
        g.stream(g.HELLO, g.frame({"text": "Hi"}, index=1), g.end()),
        ["finish-missing"],
    ),
    (
        "a finish reason in every frame",
        g.stream(g.end(), g.frame({"text": "Hi"}, finishReason="STOP"), g.end()),
        ["content-late", "finish-repeated"],
    ),
    ("content that is text", g.stream(g.end(content="Hi")), ["candidate-shape"]),
    ("parts that are an object", g.stream(g.end(content={"parts": {}})), ["candidate-shape"]),
    ("a candidate that is text", g.stream(g.HELLO, {"candidates": ["Hi"]}, g.end()), g.ODD),
    ("text that is a number", g.said({"text": 7}), ["part-shape"]),
    ("a thought that is a word", g.said({"text": "Hm.", "thought": "yes"}), ["part-shape"]),
    ("a call that is text", g.said({"functionCall": "look"}), ["part-shape"]),
    ("an empty signature", g.said({"text": "", "thoughtSignature": ""}), ["signature-spelling"]),
    ("half a base64", g.said({"text": "", "thoughtSignature": "abcde"}), ["signature-spelling"]),
    ("a block after content", g.stream(g.HELLO, g.feedback()), ["blocked-content"]),
    (
        "the result of another tool",
        g.said({"toolCall": g.TOOL}, {"toolResponse": g.TOOL | {"id": "t2"}}),
        ["result-without-call"],
    ),
    (
        "both whole arguments and pieces",
        g.stream(g.call(name="look", args={}, partialArgs=[]), g.end()),
        ["call-args"],
    ),
    (
        "pieces that are no array",
        g.stream(g.OPENED, g.call(partialArgs={}, willContinue=True), g.call(), g.end()),
        ["partial-args"],
    ),
    (
        "a piece with two values",
        g.stream(g.OPENED, g.values(g.value("$.a", "x") | {"boolValue": True}), g.call(), g.end()),
        ["partial-args"],
    ),
    (
        "a value twice",
        g.stream(g.OPENED, *g.OSLO, g.OSLO[1], g.call(), g.end()),
        ["partial-args-order"],
    ),
    ("an end of no call", g.stream(g.HELLO, g.call(), g.end()), ["call-stray"]),
    ("a stretch backwards", g.placed(startIndex=4, endIndex=2), ["grounding-segment"]),
    ("a stretch beyond the text", g.placed(endIndex=99), ["grounding-segment"]),
    ("a stretch of odd numbers", g.placed(startIndex="0"), ["grounding-segment"]),
    ("a number of a source that is none", g.grounded(-1, start=6, stop=10), ["grounding-chunk"]),
    ("a code that is text", g.failed(code="503"), ["error-shape"]),
]

_MODEL_START: Event = {"type": "tool-input-start", "id": "c1", "toolName": "look"}
_MODEL_DELTA: Event = {"type": "tool-input-delta", "id": "c1", "delta": '{"city":"Oslo"}'}
_MODEL_END: Event = {"type": "tool-input-end", "id": "c1"}
_MODEL_CALL = (_MODEL_START, _MODEL_DELTA, _MODEL_END, u.MODEL_CALL)
_FLAWED: Event = AVAILABLE | {"type": "tool-input-error", "input": "{", "errorText": "not JSON"}
_NAMELESS: Event = AVAILABLE | {"toolName": ""}
_DONE = write("", DONE)

STREAMS: list[tuple[str, bytes, list[str]]] = [
    ("a call of a model", u.model(*_MODEL_CALL), []),
    ("a call of a model, whole", u.model(u.MODEL_CALL), []),
    ("a call without arguments", u.model(u.MODEL_CALL | {"input": ""}), []),
    ("a reason as one word", u.model(last=u.LAST | {"finishReason": "stop"}), []),
    (
        "usage of the older kind",
        u.model(last=u.LAST | {"usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}}),
        [],
    ),
    ("a model that goes on after an error", u.model({"type": "error", "error": {}}, *HELLO), []),
    (
        "texts of a model that overlap",
        u.model(u.TEXT, _MODEL_START, u.DELTA, _MODEL_DELTA, u.TEXT_END, u.MODEL_CALL),
        [],
    ),
    ("a source of a model", u.model({"type": "source", "id": "s", **u.URL}), []),
    ("data under a name", u.message({"type": "data-weather", "data": None}, *HELLO), []),
    ("a call with an error, and its output", u.message(CALL, _FLAWED, u.NO_OUTPUT), []),
    ("free text as input", u.called(AVAILABLE | {"input": "ls -l"}), []),
    ("an approval", u.called(CALL, PIECE, AVAILABLE, u.APPROVAL), []),
    ("an abort", stream(START, STEP, *HELLO, {"type": "abort"}) + _DONE, []),
    ("the next step of a message", stream(STEP, *HELLO, STEP_END, FINISH) + _DONE, []),
    ("an output in the next step", stream(STEP, OUTPUT, STEP_END), ["output-earlier-call"]),
    ("nothing at all", b"", ["finish-missing"]),
    (
        "an end inside the second step",
        stream(START, STEP, *HELLO, STEP_END, STEP, u.TEXT | {"id": "t2"}),
        ["finish-missing"],
    ),
    ("an abort after a call", stream(START, STEP, AVAILABLE, {"type": "abort"}) + _DONE, []),
    ("an abort inside a call", stream(START, STEP, CALL, {"type": "abort"}) + _DONE, ["item-open"]),
    (
        "no arguments, told in two ways",
        u.model(_MODEL_START, _MODEL_DELTA | {"delta": "{}"}, u.MODEL_CALL | {"input": ""}),
        [],
    ),
    ("only a terminator", _DONE, ["finish-missing"]),
    ("a terminator in place of the end", stream(START, *HELLO) + _DONE, ["finish-missing"]),
    ("two terminators", u.PLAIN + _DONE, ["after-done"]),
    (
        "an abort inside a text and a call",
        stream(START, STEP, u.TEXT, CALL, {"type": "abort"}) + _DONE,
        ["item-open"],
    ),
    ("a call announced twice", u.called(CALL, CALL, PIECE, AVAILABLE), ["item-repeated"]),
    ("arguments of no call", u.message(PIECE, *HELLO), ["item-not-open"]),
    (
        "arguments after their end",
        u.model(_MODEL_START, _MODEL_DELTA, _MODEL_END, _MODEL_DELTA, u.MODEL_CALL),
        ["item-not-open"],
    ),
    ("a value as the input of a model", u.model(u.MODEL_CALL | {"input": {}}), ["call-input-form"]),
    (
        "arguments that are no JSON, and others",
        u.called(CALL, PIECE | {"inputTextDelta": '{"city":'}, AVAILABLE),
        ["call-input-differs"],
    ),
    (
        "other arguments than those of the model",
        u.model(*_MODEL_CALL[:-1], u.MODEL_CALL | {"input": "{}"}),
        ["call-input-differs"],
    ),
    (
        "broken arguments after whole ones",
        u.model(*_MODEL_CALL[:-1], u.MODEL_CALL | {"input": "{"}),
        ["call-input-differs", "call-input-json"],
    ),
    (
        "an approval of an unknown call",
        u.called(CALL, PIECE, AVAILABLE, u.APPROVAL | {"toolCallId": "c9"}),
        ["output-unknown-call"],
    ),
    ("a call without a name", u.called(CALL | {"toolName": ""}, _NAMELESS), ["call-name"]),
    ("a source without an address", u.model({"type": "source", "id": "s"}), ["required-key"]),
    (
        "a kind that is a number",
        u.message({"type": "custom", "kind": 7}),
        ["newer-chunk", "required-key"],
    ),
    (
        "a delta under both names",
        u.message(u.TEXT, u.DELTA | {"text": "a"}, u.TEXT_END),
        ["unknown-key"],
    ),
    ("a printed stream", lines(u.TEXT, {"type": "text-delta", "id": "t1", "text": "Hi"}), ["dump"]),
    ("data without a name", u.message({"type": "data-", "data": 1}), ["chunk-type"]),
    ("a chunk in a model's stream", u.model(AVAILABLE), ["mixed-forms"]),
    ("a step inside a step", u.message(STEP, *HELLO), ["step-marks"]),
    ("an end of no step", stream(START, *HELLO, STEP_END, FINISH) + _DONE, ["step-marks"]),
    (
        "no reason from a model",
        u.model(last={"type": "finish", "usage": {}}),
        ["finish-reason", "required-key"],
    ),
    (
        "a total that is too small",
        u.model(last=u.LAST | {"usage": {"inputTokens": {"total": 1, "cacheRead": 2}}}),
        ["usage-total"],
    ),
]

STREAMS_OF = {"anthropic-messages": MESSAGES, "gemini": CONTENT, "ai-sdk": STREAMS}


@pytest.mark.parametrize(
    ("name", "raw", "rules"),
    [
        pytest.param(name, raw, rules, id=f"{name}: {what}")
        for name, streams in STREAMS_OF.items()
        for what, raw, rules in streams
    ],
)
def test_a_stream_breaks_these_rules_and_no_other(name: str, raw: bytes, rules: list[str]) -> None:
    assert broken(name, raw, cut=False) == rules


# What holds over several steps, and in several forms


def test_a_message_of_several_steps_breaks_no_rule() -> None:
    second: tuple[Event, ...] = tuple(one | {"id": "t2"} for one in HELLO)
    one = (START, STEP, *HELLO, CALL, PIECE, AVAILABLE, OUTPUT, STEP_END)
    raw = stream(*one, STEP, *second, STEP_END, FINISH) + write("", DONE)
    assert broken("ai-sdk", raw) == broken("ai-sdk", raw, cut=False) == []


def test_lines_of_json_need_neither_event_lines_nor_a_terminator() -> None:
    chunks = lines(START, STEP, *HELLO, STEP_END, FINISH)
    assert broken("ai-sdk", chunks) == []
    events = next(case.good for case in CASES["anthropic-messages"] if case.rule == "event-line")
    data = [frame.data for frame in frames_of(events)]
    assert broken("anthropic-messages", b"\n".join(data)) == []
    bare = b"".join(write("", one) for one in data)
    assert broken("anthropic-messages", bare) == ["event-line"]


# Anything whatever

KEYS = st.sampled_from(
    sorted(
        {
            "type", "index", "delta", "content_block", "message", "usage", "id", "name", "input",
            "error", "candidates", "content", "parts", "functionCall", "partialArgs", "jsonPath",
            "usageMetadata", "groundingMetadata", "groundingSupports", "segment", "toolCallId",
            "toolName", "finishReason", "stop_reason", "text", "thoughtSignature", "role", "x",
            "inputTokens", "totalTokens", "output_tokens", "willContinue", "promptFeedback",
        }
    )
)  # fmt: skip
WORDS = st.sampled_from(
    [
        "message_start", "content_block_start", "content_block_delta", "content_block_stop",
        "message_delta", "message_stop", "error", "ping", "text", "tool_use", "server_tool_use",
        "thinking", "web_search_tool_result", "text_delta", "input_json_delta", "citations_delta",
        "signature_delta", "start", "start-step", "finish-step", "finish", "abort", "text-start",
        "text-delta", "text-end", "tool-input-start", "tool-input-delta", "tool-input-available",
        "tool-call", "tool-result", "tool-output-available", "source", "stream-start", "data-x",
        "", "a", "{", '{"a":1}', "STOP", "é\ud800",
    ]
)  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers(-2, 3) | st.floats() | WORDS
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    SCALARS | st.just(10**30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
EVENTS = VALUES | st.builds(
    lambda word, rest: {**rest, "type": word},
    WORDS,
    st.dictionaries(KEYS, VALUES, max_size=5),
)
FRAMES = st.builds(
    Frame,
    data=st.sampled_from([b"{}", DONE, b"", b"\xff"]),
    event=WORDS,
    id=st.none() | WORDS,
    number=st.integers(0, 9),
    offset=st.integers(0, 99),
    split=st.booleans(),
)


@pytest.mark.parametrize("name", WIRES)
@QUICK
@given(soup=st.lists(st.tuples(FRAMES, EVENTS), max_size=12))
def test_no_frames_make_the_rules_raise(name: str, soup: list[tuple[Frame, JsonValue]]) -> None:
    findings = Findings()
    watch = DIALECTS[name].validator
    assert watch is not None
    watcher = watch(findings)
    for frame, event in soup:
        watcher.feed(frame, event)
    watcher.finish()
    known = set(rules_of(name))
    assert {one.code for one in findings.found} <= known
    assert all("expected" in one.detail for one in findings.found)
    told = list(findings.found)
    watcher.finish()
    assert findings.found == told


@pytest.mark.parametrize("name", WIRES)
@QUICK
@given(data=st.data())
def test_no_edit_of_a_good_stream_makes_the_rules_raise(name: str, data: st.DataObject) -> None:
    """Frames of good streams dropped, doubled, swapped, and with a value replaced."""
    case = data.draw(st.sampled_from(CASES[name]))
    events: list[JsonValue] = [
        json.loads(frame.data) for frame in frames_of(case.good) if frame.data != DONE
    ]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(events) - 1))
        event = data.draw(st.sampled_from(events))
        if isinstance(event, dict) and data.draw(st.booleans()):
            event = {**event, data.draw(st.sampled_from(sorted(event))): data.draw(VALUES)}
        events[at : at + data.draw(st.integers(0, 1))] = [event]
    findings = Findings()
    watch = DIALECTS[name].validator
    assert watch is not None
    watcher = watch(findings)
    for number, event in enumerate(events):
        watcher.feed(Frame(b"{}", number=number), event)
    watcher.finish()
    assert {one.code for one in findings.found} <= set(rules_of(name))
