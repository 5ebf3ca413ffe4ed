"""Streams that stand beside the repository: odd ones with their outcome, and recorded ones.

Where they are absent there is nothing to check, so each test goes through what is there.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, cycle, pairwise, takewhile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.recordings import FIXTURES, QUIRKS
from tests.strategies import examples
from weft.assembler import Assembler, Response
from weft.codec import Decoder
from weft.context import Context
from weft.ids import Ids
from weft.lifecycle import violations
from weft.parts import ToolCall

EXPECTED = QUIRKS / "expected.json"

Outcome = dict[str, object]

_REASONS = {"tool_calls": "tool-calls", "content_filter": "content-filter"}
_USAGE = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "total_tokens": "total_tokens",
}


# Odd streams


@dataclass(frozen=True, slots=True)
class Quirk:
    name: str
    raw: bytes
    expected: dict[str, object]


def _quirks() -> list[Quirk]:
    if not EXPECTED.exists():
        return []
    found: dict[str, dict[str, object]] = json.loads(EXPECTED.read_bytes())
    return [Quirk(name, (QUIRKS / name).read_bytes(), one) for name, one in found.items()]


def _read(raw: bytes, pieces: list[bytes]) -> Response:
    """Decodes and holds the parts to the law."""
    decoder = Decoder("openai-chat", context=Context(ids=Ids(raw)))
    parts = [part for piece in pieces for part in decoder.feed(piece)]
    parts += decoder.finish()
    assert violations(parts, Assembler()) == []
    ids = [part.id for part in parts if isinstance(part, ToolCall)]
    assert all(ids)
    assert len(ids) == len(set(ids))
    return decoder.response


def _wanted(expected: Outcome) -> Outcome:
    """The neutral words of the sheet in ours; what the sheet does not say is not compared."""
    usage, error = expected["usage"], expected["error"]
    wanted = {key: value for key, value in expected.items() if key not in ("quirks", "usage")}
    wanted["finish_reason"] = _REASONS.get(
        str(expected["finish_reason"]), expected["finish_reason"]
    )
    wanted.setdefault("invalid_tool_calls", [])
    if isinstance(usage, dict):
        wanted["usage"] = {_USAGE[key]: value for key, value in usage.items()}
    else:
        wanted["usage"] = None
    if isinstance(error, dict):
        ours = {**error, "kind": "upstream"} if error["kind"] == "provider" else error
        wanted["error"] = ours if ours["kind"] == "upstream" else {"kind": ours["kind"]}
    return wanted


def _told(response: Response, wanted: Outcome) -> Outcome:
    usage, error = response.usage, response.error
    told: Outcome = {
        "text": response.text,
        "reasoning": response.reasoning,
        "refusal": response.refusal,
        "tool_calls": [
            {
                "id": call.id,
                "name": call.name,
                "arguments": call.params if call.format == "text" else json.loads(call.params),
            }
            for call in response.tool_calls
        ],
        "invalid_tool_calls": [
            {"id": call.id, "name": call.name, "reason": call.invalid}
            for call in response.invalid_tool_calls
        ],
        "finish_reason": response.finish_reason,
        "usage": usage and {key: getattr(usage, key) for key in _USAGE.values()},
        "meta": {"id": response.id, "model": response.model},
        "error": error and {"kind": error.kind, "message": error.message, "code": error.code},
    }
    told = {key: told[key] for key in wanted if key in told}
    if error and error.kind != "upstream":
        told["error"] = {"kind": error.kind}
    for key in ("tool_calls", "invalid_tool_calls"):
        _forget_minted(told[key], wanted[key])
    return told


def _forget_minted(told: object, wanted: object) -> None:
    """Where the sheet says null, any id will do."""
    if isinstance(told, list) and isinstance(wanted, list):
        for mine, theirs in zip(told, wanted, strict=False):
            mine["id"] = mine["id"] if theirs["id"] else None


def _assert_outcomes(sizes: list[int] | None) -> None:
    for quirk in _quirks():
        wanted = _wanted(quirk.expected)
        told = _told(_read(quirk.raw, _pieces(quirk.raw, sizes)), wanted)
        assert (quirk.name, told) == (quirk.name, wanted)


def _pieces(raw: bytes, sizes: list[int] | None) -> list[bytes]:
    """Pieces of these sizes, over and over; all in one without any."""
    if sizes is None:
        return [raw]
    cuts = takewhile(lambda cut: cut < len(raw), accumulate(cycle(sizes)))
    return [raw[start:end] for start, end in pairwise([0, *cuts, len(raw)])]


def test_odd_streams_give_their_outcome_fed_whole() -> None:
    _assert_outcomes(None)


def test_odd_streams_give_their_outcome_byte_by_byte() -> None:
    _assert_outcomes([1])


@examples(25)
@given(sizes=st.lists(st.integers(1, 90), min_size=1, max_size=8))
def test_odd_streams_give_their_outcome_in_any_pieces(sizes: list[int]) -> None:
    _assert_outcomes(sizes)


# Recorded streams


@dataclass(frozen=True, slots=True)
class Fixture:
    """One row of a folder's index: the file, and what the index says is in it."""

    path: Path
    dialect: str
    calls: int
    text: int
    reasoning: int
    finish: str

    @property
    def raw(self) -> bytes:
        if self.path.suffix == ".json":
            return self.path.read_bytes()
        frames = [b"data: " + line for line in self.path.read_bytes().splitlines() if line.strip()]
        return b"\n\n".join([*frames, b"data: [DONE]"]) + b"\n\n"


OTHER_RUNS = {
    "alibaba-reasoning": "two runs, other words",
    "deepseek-text": "two runs, other words",
    "deepseek-tool-call": "two runs: another call id, other reasoning",
    "groq-tool-call": "two runs: another call id",
    "mistral-text": "the stream holds placeholder text",
    "openai-text": "two runs, other words",
    "perplexity-citations": "most text was cut out of the stream",
    "xai-text": "two runs, other reasoning",
    "xai-tool-call": "two runs: another call id, reasoning cut short",
}
"""Where stream and body of one name are not the same answer, and why."""


def _fixtures() -> Iterator[Fixture]:
    for index in sorted(FIXTURES.glob("*/INDEX.md")):
        for line in index.read_text().splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if len(cells) == 11 and cells[1] in ("Chat Completions", "HTTP error body"):
                calls, text, reasoning = map(int, cells[5:8])
                path = index.parent / cells[0]
                yield Fixture(path, cells[1], calls, text, reasoning, cells[9])


def test_recorded_streams_and_bodies_hold_what_their_index_says() -> None:
    for fixture in _fixtures():
        raw = fixture.raw
        response = _read(raw, [raw])
        assert (
            fixture.path.name,
            len(response.tool_calls) + len(response.invalid_tool_calls),
            len(response.text),
            len(response.reasoning),
        ) == (fixture.path.name, fixture.calls, fixture.text, fixture.reasoning)
        if fixture.dialect == "Chat Completions":
            assert response.error is None, fixture.path.name
            assert response.raw_finish_reason == fixture.finish, fixture.path.name
            assert response.invalid_tool_calls == (), fixture.path.name
        else:
            assert response.error is not None, fixture.path.name
            assert response.error.kind == "upstream", fixture.path.name


def test_recorded_streams_give_the_same_in_other_pieces() -> None:
    for fixture in _fixtures():
        raw = fixture.raw
        assert _read(raw, _pieces(raw, [1, 60, 7, 300])) == _read(raw, [raw]), fixture.path.name


def test_a_stream_and_a_body_of_one_answer_say_the_same() -> None:
    for fixture in _fixtures():
        body = fixture.path.with_name(fixture.path.name.replace(".chunks.txt", ".json"))
        stem = body.stem
        if fixture.path.suffix == ".json" or not body.exists():
            continue
        streamed, whole = (_read(raw, [raw]) for raw in (fixture.raw, body.read_bytes()))
        assert streamed.finish_reason == whole.finish_reason, stem
        assert [(call.name, call.params) for call in streamed.tool_calls] == [
            (call.name, call.params) for call in whole.tool_calls
        ], stem
        same = (streamed.text, streamed.reasoning) == (whole.text, whole.reasoning) and [
            call.id for call in streamed.tool_calls
        ] == [call.id for call in whole.tool_calls]
        assert same == (stem not in OTHER_RUNS), stem
