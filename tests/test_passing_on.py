"""Frames that are passed on as they came, up to anywhere, and an encoder that goes on from there:
the client reads the guarded parts, each told once.

Frames wait while the decoder or the guard holds something that they said. Both dialects here are
driven by hand, frame by frame; the encoder is brought up as the relay does it.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from tests.captures import HERE
from tests.recordings import FIXTURES
from tests.splitting import frames_of_responses
from weft import (
    DIALECTS,
    Context,
    ErrorPart,
    Finish,
    Guard,
    Ids,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    Source,
    TextDelta,
    TextEnd,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
)
from weft.assembler import Assembler
from weft.codec import Pipe
from weft.findings import Findings
from weft.relay.rendering import SentState
from weft.sse import Event, Frame

FOLDERS = {"anthropic_messages": "anthropic-messages", "gemini": "gemini"}
SHARED = {"anthropic": "anthropic-messages", "google": "gemini"}
FAILURE = ErrorPart("timeout", "too slow")

Recording = tuple[str, Path]


def streams() -> list[Recording]:
    own = [(FOLDERS[name], path) for name in FOLDERS for path in sorted((HERE / name).glob("*"))]
    more = [
        (dialect, path)
        for name, dialect in SHARED.items()
        for path in sorted((FIXTURES / name).glob("*.txt"))
        if path.stat().st_size < 40_000
    ]
    return [one for one in [*own, *more] if one[1].suffix in (".sse", ".txt")]


STREAMS = streams()


class Read:
    """One response, read frame by frame."""

    def __init__(self, dialect: str, frames: list[Frame]) -> None:
        context = Context(ids=Ids(b"1"))
        self.findings = Findings()
        maker = DIALECTS[dialect].decoder
        assert maker is not None
        self.decoder = maker(context, self.findings)
        self.guard = Guard(context.ids, self.findings)
        self.frames: list[Frame] = []
        self.parts: list[Part] = []
        self._said: list[Part] = []
        self._left = frames

    def __iter__(self) -> Iterator["Read"]:
        """Stops after each frame."""
        for frame in self._left:
            said = self.decoder.feed(frame)
            self._said += said
            self.parts += self.guard.feed(said)
            self.frames.append(frame)
            yield self

    def finish(self) -> None:
        said = self.decoder.finish()
        self.parts += self.guard.feed(said) + self.guard.finish()

    @property
    def holding(self) -> bool:
        return self.decoder.holding or weight(self._said) != weight(self.parts)


def weight(parts: Iterable[Part]) -> tuple[int, int]:
    """How much was said, however it is cut."""
    parts = list(parts)
    deltas = [part for part in parts if isinstance(part, ToolParamsDelta)]
    return sum(len(delta.delta) for delta in deltas), len(parts) - len(deltas)


def responses(told: Recording) -> list[tuple[str, list[Frame]]]:
    dialect, path = told
    return [(dialect, frames) for frames in frames_of_responses(path.read_bytes(), dialect)]


def by_name(told: Recording) -> str:
    return f"{told[0]}-{told[1].stem}"


# What is held


@pytest.mark.parametrize("told", STREAMS, ids=by_name)
def test_where_nothing_is_held_a_failure_brings_no_more_content(told: Recording) -> None:
    """Neither through the guard, nor out of the decoder itself."""
    for dialect, frames in responses(told):
        for number, read in enumerate(Read(dialect, frames), 1):
            if read.holding:
                continue
            pipe = Pipe(DIALECTS[dialect], Context(ids=Ids(b"1")))
            before = pipe.feed(frames[:number])
            assert before == read.parts
            after = pipe.fail(FAILURE) + pipe.finish()
            assert all(isinstance(part, _ENDS) for part in after)
            assert not any(isinstance(part, ToolCall) and not is_called(part, before)
                           for part in after)  # fmt: skip
            alone = Read(dialect, frames[:number])
            for _ in alone:
                pass
            last = alone.decoder.finish()
            assert all(isinstance(part, _ENDS) for part in last)
            assert all(is_bare(part) for part in last if not isinstance(part, Finish))


@pytest.mark.parametrize(
    ("dialect", "capture", "held"),
    [
        ("anthropic-messages", "plain", ".##...#."),
        ("anthropic-messages", "thinking-signed", ".#..#.#..#."),
        ("anthropic-messages", "parallel-calls", "...........#."),
        ("anthropic-messages", "call-repeated", ".....##.#..##.##....#."),
        ("anthropic-messages", "search-with-citations", ".....#.##...#."),
        ("anthropic-messages", "body", "#"),
        ("gemini", "thoughts-then-answer", "..#"),
        ("gemini", "arguments-value-by-value", "#######..##.#"),
        ("gemini", "call-with-id", "..#"),
        ("gemini", "grounding-that-grows", "###"),
        ("gemini", "stream-as-one-array", "#"),
    ],
)
def test_frames_wait_no_longer_than_they_must(dialect: str, capture: str, held: str) -> None:
    path = HERE / dialect.replace("-", "_") / f"{capture}.sse"
    ((_, frames),) = responses((dialect, path))
    assert "".join("#" if read.holding else "." for read in Read(dialect, frames)) == held


_ENDS = (TextEnd, ReasoningEnd, ToolParamsEnd, ToolCall, ErrorPart, Finish)


def is_called(call: ToolCall, before: list[Part]) -> bool:
    """Whether a call was announced, with all that its tool-call tells."""
    said = [one.delta for one in before if isinstance(one, ToolParamsDelta) and one.id == call.id]
    return "".join(said) == call.params


def is_bare(part: Part) -> bool:
    """Whether an end tells nothing but that."""
    return not isinstance(part, TextEnd | ReasoningEnd) or part == part.__class__(part.id)


# Going on


def gone_on(dialect: str, read: Read, rest: list[Part], fold: Assembler) -> list[Frame]:
    """What a client is sent: the frames so far as they came, and events for the rest. The fold has
    all of it."""
    told = SentState(DIALECTS[dialect])
    told.add(((frame, None) for frame in read.frames), read.parts)
    encoder = told.encoder(Context(ids=Ids(b"2")), fold, Findings(), rest)
    events = encoder.feed(rest) + encoder.finish()
    assert_told_once(dialect, read.frames, events)
    return [*read.frames, *(Frame(event.data, event.name) for event in events)]


def assert_told_once(dialect: str, frames: list[Frame], events: list[Event]) -> None:
    if dialect != "anthropic-messages":
        return
    seen: list[tuple[str, Any]] = []
    for data in [*(frame.data for frame in frames), *(event.data for event in events)]:
        event = json.loads(data)
        if event["type"] in ("message_start", "content_block_start", "content_block_stop"):
            seen.append((event["type"], event.get("index")))
    assert len(seen) == len(set(seen))
    starts = [index for type, index in seen if type == "content_block_start"]
    prefilled = len(json.loads(frames[0].data)["message"]["content"]) if frames else 0
    assert starts == list(range(prefilled, prefilled + len(starts)))


def read_back(dialect: str, frames: list[Frame]) -> tuple[list[Part], list[str]]:
    pipe = Pipe(DIALECTS[dialect], Context(ids=Ids(b"1")))
    parts = pipe.feed([replace_number(frame, number) for number, frame in enumerate(frames)])
    return parts + pipe.finish(), [finding.code for finding in pipe.findings.found]


def replace_number(frame: Frame, number: int) -> Frame:
    return msgspec.structs.replace(frame, number=number, offset=0)


def clean() -> list[Recording]:
    found: list[Recording] = []
    for told in STREAMS:
        for dialect, frames in responses(told):
            _, codes = read_back(dialect, frames)
            if not codes and told not in found:
                found.append(told)
    return found


CLEAN = clean()


def test_there_are_streams_without_a_finding() -> None:
    assert len([one for one in CLEAN if one[0] == "gemini"]) > 15
    assert len([one for one in CLEAN if one[0] == "anthropic-messages"]) > 20


def joined(parts: Iterable[Part], same: Callable[[Part], Part]) -> list[Part]:
    """The parts, with neighbouring deltas of one item as one: how text is cut does not matter."""
    out: list[Part] = []
    for part in parts:
        last = out[-1] if out else None
        if (
            isinstance(part, TextDelta | ReasoningDelta | ToolParamsDelta)
            and isinstance(last, TextDelta | ReasoningDelta | ToolParamsDelta)
            and (last.__class__, last.id) == (part.__class__, part.id)
        ):
            out[-1] = msgspec.structs.replace(last, delta=last.delta + part.delta)
        else:
            out.append(same(part))
    return out


def spelled(part: Part) -> Part:
    """Sources may be written anew: as chunks of grounding, whatever they came as."""
    return msgspec.structs.replace(part, raw=UNSET) if isinstance(part, Source) else part


def failed(part: Part) -> Part:
    """After an error, nothing is told of usage; of the error each wire tells what it can."""
    if isinstance(part, ErrorPart):
        return FAILURE
    return Finish("error") if isinstance(part, Finish) else part


@pytest.mark.parametrize("told", CLEAN, ids=by_name)
def test_an_encoder_goes_on_wherever_nothing_is_held(told: Recording) -> None:
    for dialect, frames in responses(told):
        whole, codes = read_back(dialect, frames)
        if codes:
            continue
        for read in Read(dialect, frames):
            if not read.holding and read.parts and not isinstance(read.parts[-1], Finish):
                fold = Assembler()
                for part in whole:
                    fold.feed(part)
                sent = gone_on(dialect, read, whole[len(read.parts) :], fold)
                back, _ = read_back(dialect, sent)
                same = failed if any(isinstance(one, ErrorPart) for one in whole) else spelled
                assert joined(back, same) == joined(whole, same)


@pytest.mark.parametrize("told", CLEAN, ids=by_name)
def test_an_error_may_come_wherever_nothing_is_held(told: Recording) -> None:
    for dialect, frames in responses(told):
        if read_back(dialect, frames)[1]:
            continue
        for read in Read(dialect, frames):
            if not read.holding and read.parts and not isinstance(read.parts[-1], Finish):
                pipe = Pipe(DIALECTS[dialect], Context(ids=Ids(b"1")))
                pipe.feed(read.frames)
                rest = pipe.fail(FAILURE) + pipe.finish()
                sent = gone_on(dialect, read, rest, pipe.guard.fold)
                back, _ = read_back(dialect, sent)
                assert joined(back, failed) == joined([*read.parts, *rest], failed)
