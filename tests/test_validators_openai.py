"""The watchers of the two OpenAI wires: what breaks a rule, what does not, and what they say."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.captures.check import chat_cases, responses_cases
from tests.captures.check.cases import Case, broken, found
from tests.captures.check.generate import CASES
from tests.captures.check.responses_cases import NONE
from tests.recordings import FIXTURES
from tests.strategies import JSON, LEGAL, QUICK
from tests.tables import each_row
from weft.check.rules import rules_of
from weft.codec import Encoder
from weft.context import Context
from weft.dialects import DIALECTS, DialectName
from weft.dialects.rules import JsonValue
from weft.findings import LIMIT, Findings
from weft.ids import Ids
from weft.parts import Finish, Part, ToolCall
from weft.request import Request
from weft.sse import DONE, Frame, write

CHAT, RESPONSES = "openai-chat", "openai-responses"
WIRES = (CHAT, RESPONSES)
CAPTURES = Path(__file__).parent / "captures" / "openai_responses"

ROWS = [(wire, case) for wire in WIRES for case in CASES[wire]]


def named(one: str | Case) -> str:
    return one if isinstance(one, str) else one.rule


def told(wire: str, raw: bytes) -> list[tuple[int, str, str]]:
    return [(one.at, one.code, one.detail) for one in found(wire, raw)]


# Rules


@pytest.mark.parametrize("wire", WIRES)
def test_every_rule_has_a_case(wire: str) -> None:
    assert [case.rule for case in CASES[wire]] == list(rules_of(wire))


@each_row("wire, case", ROWS, ids=named)
def test_a_case_breaks_its_rule_and_its_twin_breaks_none(wire: str, case: Case) -> None:
    assert case.rule in broken(wire, case.bad)
    assert broken(wire, case.good) == []


@each_row("wire, case", ROWS, ids=named)
def test_a_detail_says_what_came_and_what_would_have_been_legal(wire: str, case: Case) -> None:
    details = [one.detail for one in found(wire, case.bad) if one.code == case.rule]
    assert all("; expected " in one for one in details), details


def case(wire: str, rule: str) -> bytes:
    return next(one.bad for one in CASES[wire] if one.rule == rule)


DETAILS = """
openai-chat call-id-repeated 2
    a later delta of call "call_1" has its id again; expected it only at event 1
openai-chat call-index-reused 3
    call "call_2" has index 0, as call "call_1" since event 1; expected an index of its own
openai-chat after-finish 3
    content of choice 0 came after its finish_reason at event 2; expected nothing more
openai-chat finish-missing 3
    [DONE] came, and choice 0 has no finish_reason; expected one before
openai-chat usage-total 4
    usage has 9 in, 4 out and 99 in total; expected 13
openai-responses call-repeated 7
    response.output_item.added announces call "call_1" as function_call "fc_2" (output_index 1);
    it was announced at event 2 as function_call "fc_1" (output_index 0); expected one item for
    each call
openai-responses item-closed 9
    response.output_text.delta for message "msg_1" (output_index 0), which was done at event 8;
    expected nothing more for it
openai-responses item-id-changed 5
    response.function_call_arguments.done gives function_call "fc_1" (output_index 0) the id
    "call_1"; expected "fc_1" everywhere
openai-responses number-gap 2
    response.output_item.added has sequence_number 3; expected 2: numbers have no gaps
openai-responses terminal-missing 9
    the stream ended after response.output_item.done; expected response.completed,
    response.incomplete or response.failed
openai-responses output-lost 14
    output of response.completed lacks function_call "fc_1" (output_index 1); expected all
    streamed items
"""


def listed(table: str) -> Iterator[tuple[str, str, int, str]]:
    """Wire, rule and event, each with the detail that stands below it."""
    for entry in re.split(r"\n(?=\S)", table.strip()):
        head, _, detail = entry.partition("\n")
        wire, rule, at = head.split()
        yield wire, rule, int(at), " ".join(detail.split())


@pytest.mark.parametrize(("wire", "rule", "at", "detail"), [*listed(DETAILS)])
def test_a_detail_is_a_sentence_with_its_place(wire: str, rule: str, at: int, detail: str) -> None:
    assert (at, rule, detail) in told(wire, case(wire, rule))


FLOWS = {
    "output_text": responses_cases.message(0, "Oslo"),
    "refusal": responses_cases.refusal(0, "Oslo"),
    "reasoning": responses_cases.thought(0, "Oslo"),
    "reasoning_text": responses_cases.thought(0, "Oslo", "reasoning_text"),
    "reasoning_summary_text": responses_cases.reasoning(0, "Oslo"),
    "function_call_arguments": responses_cases.call(0, '"Oslo"'),
    "custom_tool_call_input": responses_cases.custom(0, "Oslo"),
}
"""Everything that streams, as the only item of a response."""


def spoiled(events: list[responses_cases.Event], *types: str) -> list[responses_cases.Event]:
    """The events, of which these say something else."""
    return [
        json.loads(json.dumps(event).replace("Oslo", "Rome")) if event["type"] in types else event
        for event in events
    ]


@pytest.mark.parametrize("flow", FLOWS)
def test_whatever_streams_says_the_same_in_each_of_its_events(flow: str) -> None:
    stem = f"response.{flow}"
    good = responses_cases.completed(FLOWS[flow])
    parted = "response.content_part.done", "response.reasoning_summary_part.done"
    undone = [event for event in good if event["type"] != f"{stem}.done"]
    whole = [event for event in good if event["type"] != f"{stem}.delta"]
    bad: dict[str, list[responses_cases.Event]] = {
        "deltas-differ": spoiled(good, f"{stem}.delta"),
        "item-differs": spoiled(good, "response.output_item.done", "response.completed"),
        "output-differs": spoiled(good, "response.completed"),
        "text-done-missing": undone,
        "deltas-missing": whole,
    }
    if spoiled(good, *parted) != good:
        bad["part-differs"] = spoiled(good, *parted)
    assert told(RESPONSES, responses_cases.sse(good)) == []
    for rule, events in bad.items():
        assert broken(RESPONSES, responses_cases.sse(events)) == [rule]


def only(*items: list[responses_cases.Event]) -> bytes:
    return responses_cases.sse(responses_cases.completed(*items))


def changed(type: str, path: str, value: JsonValue) -> bytes:
    """A text, of which one value is another."""
    return responses_cases.sse(responses_cases.edited(responses_cases.TEXT, type, path, value))


def repeated(type: str) -> bytes:
    return responses_cases.sse(responses_cases.again(responses_cases.TEXT, type))


TEXT, CALL = responses_cases.TEXT, responses_cases.CALL
LOST: responses_cases.Event = {"type": "response.output_text.delta", "delta": "Hi"}
LOST_ANNOTATION: responses_cases.Event = {
    "type": "response.output_text.annotation.added",
    "item_id": "msg_1",
    "output_index": 0,
}
TWICE: JsonValue = [responses_cases.part("Hello"), responses_cases.part("")]
STRANGE: JsonValue = [responses_cases.STRANGE, TEXT[-2]["item"]]
UNINDEXED = responses_cases.edited(TEXT, "content_part.added", "content_index", NONE)
LATE_PART = responses_cases.moved(TEXT, "content_part.added", 4)
MORE: chat_cases.Chunk = {"function": {"arguments": "}"}}
FIRST: chat_cases.Chunk = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "f", "arguments": "{"},
}
LOOSE = [chat_cases.role(), chat_cases.called(FIRST), chat_cases.called(MORE)]

VARIANTS = [
    (CHAT, "call-index-missing", chat_cases.sse([*LOOSE, chat_cases.end("tool_calls")])),
    (CHAT, "data-invalid", chat_cases.sse(chat_cases.TEXT, write("", b"[1]") + write("", DONE))),
    (RESPONSES, "data-invalid", responses_cases.sse(TEXT, write("", b"7") + write("", DONE))),
    (CHAT, "finish-missing", write("", DONE)),
    (RESPONSES, "after-done", responses_cases.sse(TEXT) + write("ping", b'{"type":"ping"}')),
    (RESPONSES, "terminal-missing", write("", DONE)),
    (RESPONSES, "type-missing", responses_cases.sse(TEXT[:-1], write("", b"{}"))),
    (RESPONSES, "event-keys", changed("in_progress", "response", None)),
    (RESPONSES, "snapshot-types", changed("completed", "response.output", None)),
    (RESPONSES, "item-not-added", responses_cases.sse([*TEXT[:2], LOST])),
    (RESPONSES, "item-not-added", only(responses_cases.call(0, "{}")[-1:])),
    (RESPONSES, "event-keys", responses_cases.sse([*TEXT[:4], LOST_ANNOTATION])),
    (RESPONSES, "deltas-missing", only([CALL[2], CALL[-2]])),
    (RESPONSES, "deltas-missing", only([TEXT[2], TEXT[-2]])),
    (RESPONSES, "item-differs", changed("output_item.done", "item.content", TWICE)),
    (RESPONSES, "output-unknown", changed("completed", "response.output", STRANGE)),
    (RESPONSES, "part-keys", changed("content_part.added", "part.logprobs", None)),
    (RESPONSES, "event-keys", responses_cases.sse(UNINDEXED)),
    (RESPONSES, "event-keys", changed("content_part.done", "content_index", NONE)),
    (RESPONSES, "event-keys", changed("output_text.delta", "delta", None)),
    (RESPONSES, "event-keys", changed("output_text.done", "text", None)),
    (RESPONSES, "part-not-added", responses_cases.sse(LATE_PART)),
    (RESPONSES, "item-status", changed("output_item.added", "item.status", "completed")),
    (
        RESPONSES,
        "part-closed",
        responses_cases.sse(responses_cases.again(TEXT, "output_text.done")),
    ),
    (
        RESPONSES,
        "part-closed",
        responses_cases.sse(responses_cases.again(TEXT, "content_part.done")),
    ),
]


@pytest.mark.parametrize(("wire", "rule", "raw"), VARIANTS)
def test_a_rule_is_broken_in_more_than_one_way(wire: str, rule: str, raw: bytes) -> None:
    assert rule in broken(wire, raw)


# What breaks no rule


def test_lines_of_json_need_neither_names_nor_a_terminator() -> None:
    events = responses_cases.numbered(responses_cases.TEXT)
    assert told(RESPONSES, b"".join(json.dumps(one).encode() + b"\n" for one in events)) == []
    chunks = chat_cases.COUNTED
    assert told(CHAT, b"".join(json.dumps(one).encode() + b"\n" for one in chunks)) == []


def test_a_body_is_no_stream() -> None:
    body = responses_cases.TEXT[-1]["response"]
    assert told(RESPONSES, json.dumps(body).encode()) == []
    completion = {"id": "c", "object": "chat.completion", "choices": []}
    assert told(CHAT, json.dumps(completion).encode()) == []
    assert told(RESPONSES, b'{"error":{"message":"busy"}}') == []


def test_a_body_inside_a_stream_is_a_fault() -> None:
    body = json.dumps(responses_cases.TEXT[-1]["response"]).encode()
    assert broken(RESPONSES, write("", body) + write("", DONE)) == ["type-missing"]
    completion = b'{"id":"c","object":"chat.completion","choices":[]}'
    assert broken(CHAT, write("", completion) + write("", DONE)) == ["chunk-object"]


def test_an_error_before_any_response_stands_alone() -> None:
    alone = [responses_cases.FAILURE]
    assert told(RESPONSES, responses_cases.sse(alone)) == []


def test_a_call_that_a_limit_cut_need_not_be_json() -> None:
    cut = [*chat_cases.CALL[:3], chat_cases.end("length")]
    assert told(CHAT, chat_cases.sse(cut)) == []


def test_choices_are_watched_each_by_itself() -> None:
    deltas: list[chat_cases.Chunk] = [{"role": "assistant"}, {"content": "Hi"}]
    chunks = [
        chat_cases.chunk(*(chat_cases.choice(delta, index=index) for index in (0, 1)))
        for delta in deltas
    ]
    ends = [chat_cases.chunk(chat_cases.choice({}, "stop", index)) for index in (1, 0)]
    assert told(CHAT, chat_cases.sse([*chunks, *ends])) == []
    assert told(CHAT, chat_cases.sse([*chunks, ends[0]])) == [
        (3, "finish-missing", "[DONE] came, and choice 0 has no finish_reason; expected one before")
    ]


def test_a_response_that_waits_for_outputs_says_so_and_is_incomplete() -> None:
    call = responses_cases.started(responses_cases.call(0, "{}"))
    waits = responses_cases.snapshot("required_action", status="incomplete")
    end = responses_cases.ended("completed", call)[-1]
    response = dict(responses_cases._inside(end["response"]), status="incomplete")
    raw = responses_cases.sse([*call, waits, {**end, "response": response}])
    assert broken(RESPONSES, raw) == ["unknown-event"]


# What Weft writes


def excused(wire: str, parts: list[Part]) -> set[str]:
    """Rules that a stream breaks by what was said, however it is written."""
    calls = [part for part in parts if isinstance(part, ToolCall)]
    reason = next(part.reason for part in parts if isinstance(part, Finish))
    written = [call for call in calls if not call.provider_executed]
    excuses = {
        "usage-missing": True,
        "usage-total": True,  # the upstream's sum is kept
        "usage-invalid": wire == CHAT,  # half of it may be known
        "error-chunk": reason == "error",
        "call-arguments-invalid": any(call.invalid for call in written),
        "incomplete-not-last": wire == RESPONSES,  # several items may be cut at once
        "incomplete-without-reason": reason in ("other", "pause"),
        "finish-without-calls": reason == "tool-calls",
        "stop-with-calls": bool(written) and reason in ("other", "pause", "stop"),
    }
    return {rule for rule, excuse in excuses.items() if excuse}


@pytest.mark.parametrize("wire", WIRES)
@QUICK
@given(parts=LEGAL)
def test_what_weft_writes_breaks_no_rule(wire: DialectName, parts: list[Part]) -> None:
    asked = Request("m", include_usage=True)
    encoder = Encoder(wire, context=Context(ids=Ids(b"x"), request=asked, now=1790000000))
    raw = b"".join(encoder.feed(parts) + encoder.finish())
    assert [one for one in found(wire, raw) if one.code not in excused(wire, parts)] == []


# Recorded streams

ORIGINAL = {CHAT: ("openai-chat",), RESPONSES: ("openai-responses", "open-responses", "azure")}
EXCUSED = {
    "github-copilot-id-rotation.1": {
        "item-id-changed",
        "response-id-changed",
        "snapshot-spec-keys",
    },
    "lmstudio-tool-call.2": {"deltas-missing"},
    "openai-shell-container.1": {"deltas-differ"},
}
"""Not the vendor's own: two imitators, and a stream that was made by hand."""


def recorded(wire: str) -> Iterator[tuple[str, bytes]]:
    """Streams as the files hold them: one JSON event a line."""
    for folder in ORIGINAL[wire]:
        for path in sorted((FIXTURES / folder).glob("*.chunks.txt")):
            yield path.name.removesuffix(".chunks.txt"), path.read_bytes()


@pytest.mark.parametrize("wire", WIRES)
def test_the_vendors_own_streams_have_at_most_notes(wire: str) -> None:
    for name, raw in recorded(wire):
        serious = {rule for rule in broken(wire, raw) if rules_of(wire)[rule].severity != "note"}
        assert serious == EXCUSED.get(name, set()), name


# Anything

WORDS = st.sampled_from(
    [
        *("response.created", "response.completed", "response.failed", "response.incomplete"),
        *("response.output_item.added", "response.output_item.done", "error", "ping"),
        *("response.content_part.added", "response.content_part.done"),
        *("response.output_text.delta", "response.output_text.done", "response.refusal.delta"),
        *("response.function_call_arguments.delta", "response.function_call_arguments.done"),
        *("response.reasoning_summary_part.added", "response.reasoning_summary_text.delta"),
        *("response.output_text.annotation.added", "response.required_action"),
        *("message", "function_call", "reasoning", "output_text", "function", "custom"),
        *("stop", "tool_calls", "a", "b", "", "\ud83d", "{}", "{"),
    ]
)
KEYS = st.sampled_from(
    [
        *(
            "type",
            "id",
            "item_id",
            "output_index",
            "content_index",
            "summary_index",
            "item",
            "part",
        ),
        *("response", "output", "content", "summary", "text", "delta", "status", "call_id", "name"),
        *("arguments", "error", "message", "usage", "input_tokens", "output_tokens", "object"),
        *(
            "choices",
            "index",
            "delta",
            "tool_calls",
            "function",
            "finish_reason",
            "role",
            "logprobs",
        ),
        *("prompt_tokens", "completion_tokens", "total_tokens", "annotations", "sequence_number"),
        *("incomplete_details", "reason", "created", "model", "refusal", "reasoning", "message"),
    ]
)
SOUP: st.SearchStrategy[JsonValue] = st.recursive(
    WORDS | st.integers(-1, 2) | st.none() | st.booleans() | JSON,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=8),
    max_leaves=25,
)
EVENTS = st.fixed_dictionaries(
    {"type": WORDS}, optional={"output_index": st.integers(0, 1)}
).flatmap(lambda head: st.dictionaries(KEYS, SOUP, max_size=8).map(lambda rest: {**rest, **head}))
CHUNKS = st.fixed_dictionaries({"choices": st.lists(SOUP, max_size=2)})
FRAMES = st.builds(
    Frame,
    st.sampled_from([b"{}", DONE, b"x\ny", b"\xff"]),
    event=st.sampled_from(["", "response.created", "ping"]),
    id=st.none() | st.just("1"),
    offset=st.integers(0, 50),
    cut=st.booleans(),
    split=st.booleans(),
)


@pytest.mark.parametrize("wire", WIRES)
@QUICK
@given(frames=st.lists(st.tuples(FRAMES, SOUP | EVENTS | CHUNKS), max_size=12))
def test_any_soup_of_frames_is_watched_to_its_end(
    wire: str, frames: list[tuple[Frame, JsonValue]]
) -> None:
    findings = Findings()
    watch = DIALECTS[wire].validator
    assert watch is not None
    invariants = watch(findings)
    for at, (frame, event) in enumerate(frames):
        findings.at = at
        invariants.feed(frame, None if frame.data == DONE else event)
    invariants.finish()
    once = list(findings.found)
    invariants.finish()
    assert findings.found == once
    for one in once:
        assert one.code in rules_of(wire)
        one.detail.encode()


@pytest.mark.parametrize("wire", WIRES)
@QUICK
@given(data=st.data())
def test_a_stream_with_an_event_lost_doubled_or_moved_is_watched_to_its_end(
    wire: str, data: st.DataObject
) -> None:
    good = data.draw(st.sampled_from([one.good for one in CASES[wire]]))
    blocks = good.split(b"\n\n")[:-1]
    picks = data.draw(st.lists(st.integers(0, len(blocks) - 1), max_size=len(blocks)))
    raw = b"".join(blocks[pick] + b"\n\n" for pick in picks)
    assert {one.code for one in found(wire, raw, cut=False)} <= set(rules_of(wire))


def test_a_stream_without_numbers_is_one_finding_whatever_its_events_are() -> None:
    capture = CAPTURES / "no-sequence-numbers.sse"
    found_here = [
        one.at for one in found(RESPONSES, capture.read_bytes()) if one.code == "number-missing"
    ]
    assert found_here == [0]


def test_a_fault_in_every_event_is_one_finding_and_all_findings_are_limited() -> None:
    delta = responses_cases.edited(responses_cases.TEXT, "output_text.delta", "item_id", "other")
    at = responses_cases.found(delta, "output_text.delta")
    raw = responses_cases.sse([*delta[:at], *([delta[at]] * 50)])
    assert [one.code for one in found(RESPONSES, raw)].count("item-id-changed") == 1
    many = [chat_cases.headed(id="")[1]] * 3 + [
        chat_cases.entry(index) for index in range(2 * LIMIT)
    ]
    assert len(found(CHAT, chat_cases.sse(many))) == LIMIT + 1
