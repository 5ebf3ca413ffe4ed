"""What the checker says of clients is so: the official ones are run, over HTTP, on real bytes."""

import re
from datetime import date
from typing import get_args

import anthropic
import openai
import pytest

import weft
from tests import chat
from tests.captures import HERE
from tests.clients import READERS, Seen, seen, told
from tests.tables import each_row
from weft.check.checker import examine
from weft.check.clients import Effect, Verdict, all_verdicts, verdicts, verdicts_on
from weft.check.rules import all_rules
from weft.dialects import DIALECTS, DialectName, dialect_named

INSTALLED = {
    "openai-python": openai.__version__,
    "anthropic-sdk-python": anthropic.__version__,
}
SPOKEN = chat.stream(
    [
        chat.chunk({"role": "assistant", "content": "Let me look."}),
        chat.calls(chat.entry(0, "call_1", "look", '{"at":')),
        chat.calls(chat.entry(0, None, None, "1}")),
    ],
    "tool_calls",
)
PLAIN = {dialect: weft.convert(SPOKEN, "openai-chat", dialect) for _, dialect in READERS}

CALL = ("1", "f", "{}")
EXECUTED = [row for row in all_verdicts() if row.evidence == "executed"]
RECORDED = [row for row in all_verdicts() if row.evidence == "recorded"]


def name(row: Verdict) -> str:
    return f"{row.client.name} {row.dialect} {row.rule}"


def size(one: Seen) -> int:
    """How much there is of it, leaving out halves of characters."""
    texts = (one.text, *(field for call in one.calls for field in call))
    return sum(len(text.encode("utf-8", "ignore")) for text in texts)


def effect(got: Seen, truth: Seen) -> Effect | None:
    """What a client did to a stream, by comparison with what the stream says."""
    if got.raised:
        return "raises"
    if (got.text, got.calls) == (truth.text, truth.calls):
        return "ignores" if truth.raised else None
    ids = [id for id, _, _ in got.calls if id]
    if len(got.calls) > len(truth.calls) or len(set(ids)) < len(ids):
        return "doubles"
    if len(got.calls) < len(truth.calls):
        return "loses"
    return "doubles" if size(got) > size(truth) else "loses"


@pytest.mark.parametrize("row", EXECUTED, ids=name)
def test_the_client_does_with_the_capture_what_its_row_says(row: Verdict) -> None:
    raw = (HERE / row.source).read_bytes()
    assert row.rule in examine(raw, row.dialect).broken
    got = seen(row.client.name, dialect_named(row.dialect).name, raw)
    assert effect(got, told(raw, dialect_named(row.dialect).name)) == row.effect, got


@pytest.mark.parametrize(("client", "dialect"), READERS, ids=str)
def test_a_client_reads_a_plain_stream_as_weft_does(client: str, dialect: DialectName) -> None:
    """So that what differs is the stream's fault, and not the reading's."""
    raw = PLAIN[dialect]
    assert effect(seen(client, dialect, raw), told(raw, dialect)) is None
    assert told(raw, dialect).calls
    assert told(raw, dialect).text


@each_row("row", EXECUTED, ids=name)
def test_an_executed_row_is_of_the_version_that_was_run(row: Verdict) -> None:
    assert row.client.version == INSTALLED[row.client.name]


@each_row("row", RECORDED, ids=name)
def test_a_recorded_row_says_where_it_was_found_and_is_no_client_that_could_be_run(
    row: Verdict,
) -> None:
    assert row.client.name not in INSTALLED
    assert not (HERE / row.source).exists()
    assert re.search(r"#\d+$|^measured |^read in ", row.source)


@each_row("row", all_verdicts(), ids=name)
def test_every_row_is_about_a_rule_of_its_dialect_in_one_sentence(row: Verdict) -> None:
    assert row.rule in all_rules()
    assert row.dialect in DIALECTS
    assert row.rule.partition("/")[0] in ("lifecycle", "sse", row.dialect)
    assert row.effect in get_args(Effect)
    assert row.says.endswith(".")
    assert date.fromisoformat(row.client.date) <= date.today()
    assert row.client.version


def test_a_client_has_one_row_for_a_rule_of_a_dialect() -> None:
    keys = [(row.client.name, row.dialect, row.rule) for row in all_verdicts()]
    assert len(set(keys)) == len(keys)


def test_verdicts_are_those_of_the_rules_that_are_broken() -> None:
    rule = "lifecycle/call-id-collision"
    (chat,) = verdicts("openai-chat", {rule, "lifecycle/think-tags"})
    (messages,) = verdicts("anthropic-messages", {rule})
    assert (chat.client.name, chat.effect) == ("openai-python", "doubles")
    assert (messages.client.name, messages.effect) == ("anthropic-sdk-python", "doubles")
    assert verdicts("gemini", {rule}) == ()
    assert verdicts("openai-chat", set()) == ()
    assert {chat, messages} <= set(verdicts_on(rule))


def test_the_report_of_a_capture_holds_its_verdicts() -> None:
    raw = (HERE / "openai_chat/id-in-every-chunk.sse").read_bytes()
    assert "lifecycle/call-id-repeated" in [row.rule for row in examine(raw).verdicts]


@pytest.mark.parametrize(
    ("got", "truth", "expected"),
    [
        (Seen("a"), Seen("a"), None),
        (Seen("a"), Seen("a", raised="truncated"), "ignores"),
        (Seen(raised="KeyError"), Seen("a"), "raises"),
        (Seen("aa"), Seen("a"), "doubles"),
        (Seen(""), Seen("a"), "loses"),
        (
            Seen(calls=(("1", "f", "{}"), ("1", "f", "{}"))),
            Seen(calls=(("1", "f", "{}"),)),
            "doubles",
        ),
        (Seen(calls=(("12", "ff", "{}{}"),)), Seen(calls=(CALL, CALL)), "loses"),
        (Seen(calls=(CALL,)), Seen(calls=(("1", "f", '{"a":1}'),)), "loses"),
        (Seen("\ud83e\uddf5"), Seen("\U0001f9f5"), "loses"),
    ],
)
def test_an_effect_follows_from_what_differs(
    got: Seen, truth: Seen, expected: Effect | None
) -> None:
    assert effect(got, truth) == expected
