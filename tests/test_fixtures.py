"""Recorded streams and bodies of four dialects: read, lawful, and told in every other dialect.

They are not part of the repository; without them there is nothing to read here.
"""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

import weft
from tests.daily import in_turn
from tests.matrix.facts import Fact, facts, unexplained
from tests.matrix.run import Conversion
from tests.recordings import FIXTURES
from tests.tables import each_row
from weft.assembler import Assembler, Response
from weft.captures import Decoded
from weft.check import examine
from weft.check.rules import rule
from weft.dialects import DIALECTS, DialectName, dialect_named
from weft.findings import Findings
from weft.lifecycle import violations

OUT_OF_SCOPE = "google-interactions"

NOT_TOLD_BY_ITS_BYTES: dict[str, DialectName] = {
    "reasoning-model-legacy-parameter-error.json": "openai-chat",
    "openai-error.1.json": "openai-responses",
}
"""Errors of a shape that two dialects share."""


def recorded(suffix: str) -> list[Path]:
    paths = sorted(FIXTURES.glob(f"*/*{suffix}"))
    return [path for path in paths if path.parent.name != OUT_OF_SCOPE]


STREAMS, BODIES = recorded(".chunks.txt"), recorded(".json")


def read(path: Path) -> tuple[DialectName, list[Decoded]]:
    raw = path.read_bytes()
    dialect = NOT_TOLD_BY_ITS_BYTES.get(path.name) or weft.detect(raw)
    return dialect, weft.decode_all(raw, dialect)


def stem(path: Path) -> str:
    return path.name.removesuffix(".chunks.txt").removesuffix(".json")


EVERY = pytest.mark.parametrize("path", [*STREAMS, *BODIES], ids=lambda path: path.name)


@EVERY
def test_a_recording_is_read_and_obeys_the_law(path: Path) -> None:
    dialect, found = read(path)
    assert found
    for one in found:
        assert violations(one.parts, Assembler()) == []
        assert one.response.dialect == dialect


@pytest.mark.parametrize(
    ("path", "target"),
    in_turn(2, [*STREAMS, *BODIES], DIALECTS, lambda path: path.name),
)
def test_a_recording_is_told_in_every_dialect(path: Path, target: DialectName) -> None:
    _, found = read(path)
    for one in found:
        conversion = Conversion(one, target)
        assert conversion.unexplained == UNTOLD.get((stem(path), target), [])
        findings = examine(conversion.raw, target).findings
        assert [found for found in findings if rule(found.code).severity != "note"] == []


UNTOLD: dict[tuple[str, str], list[Fact]] = {
    ("xai-x-search-tool", "openai-responses"): [("finish", "stop"), ("finish", "tool-calls")],
}
"""Facts that change without a finding: a host runs custom tools of its own, and whoever reads that
without the list of declared tools must take them for the client's."""


# A body is a stream that came at once


@EVERY
def test_a_body_made_of_a_recording_says_the_same(path: Path) -> None:
    dialect, found = read(path)
    write = dialect_named(dialect).body
    assert write is not None
    for one in found:
        findings = Findings()
        (back,) = weft.decode_all(write(one.response, weft.Context(), findings), dialect)
        if one.response.error is not None:
            assert back.response.error is not None
            assert back.response.error.message == one.response.error.message
        else:
            told = [finding.detail for finding in findings.found]
            different = unexplained(final(one.response), facts(back.response), told)
            assert different == UNTOLD.get((stem(path), dialect), [])


def final(response: Response) -> Counter[Fact]:
    """What a body can say: what was shown before the end is over."""
    shown = facts(response)
    return Counter({fact: n for fact, n in shown.items() if " preliminary " not in fact[1]})


class Terminal(msgspec.Struct):
    type: str
    response: msgspec.Raw = msgspec.Raw(b"null")


TERMINAL = {"response.completed", "response.incomplete"}


def ends(path: Path) -> list[bytes]:
    """The bodies that the last events of a Responses stream hold."""
    events = [
        msgspec.json.decode(line, type=Terminal)
        for line in path.read_bytes().splitlines()
        if line.strip()
    ]
    return [bytes(event.response) for event in events if event.type in TERMINAL]


RESPONSES = [path for path in STREAMS if b'"response.created"' in path.read_bytes()]


@pytest.mark.parametrize("path", RESPONSES, ids=lambda path: path.name)
def test_a_stream_says_what_its_own_last_event_says(path: Path) -> None:
    streamed = [one.response for one in read(path)[1]]
    for response, body in zip(streamed, ends(path), strict=False):
        (again,) = weft.decode_all(body, "openai-responses")
        different = unexplained(final(response), facts(again.response), [])
        assert {fact[0] for fact in different} == OTHERWISE_AT_THE_END.get(stem(path), set())


OTHERWISE_AT_THE_END = {
    "openai-shell-container.1": {"text"},  # made by hand: the last event says more
    "programmatic-tool-calling.1": {"call", "proof"},  # the host encrypts anew each time
}
"""Where the last event of a stream says something else than the events before it, and why."""


PAIRED = [path for path in STREAMS if path.with_name(f"{stem(path)}.json") in BODIES]


def shape(response: Response) -> dict[str, object]:
    """What two answers to one question have in common, whatever the words are."""
    usage = msgspec.structs.asdict(response.usage) if response.usage else {}
    return {
        "text": bool(response.text),
        "reasoning": bool(response.reasoning),
        "calls": sorted({call.name for call in response.tool_calls}),
        "finish": response.finish_reason,
        "usage": sorted(name for name, count in usage.items() if count is not None),
    }


@each_row("path", PAIRED, ids=lambda path: path.name)
def test_a_stream_and_a_body_of_one_case_say_the_same_kinds_of_things(path: Path) -> None:
    """They were recorded one after the other, so the words differ."""
    streamed = shape(read(path)[1][0].response)
    whole = shape(read(path.with_name(f"{stem(path)}.json"))[1][0].response)
    different = {name for name in streamed if streamed[name] != whole[name]}
    assert different == DIFFERENT_ANSWERS.get(stem(path), set())


DIFFERENT_ANSWERS = {
    "anthropic-advisor-stop-reasons": {"usage"},  # made by hand: only one tells of caching
}
"""Where the model answered the second time in another way."""
