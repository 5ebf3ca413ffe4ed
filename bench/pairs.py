"""What an event costs between any two dialects: each pair compared with the fastest one.

The same answer in every dialect, as its own encoder writes it: reasoning, text, and a call.
"""

from collections.abc import Iterator

from bench import streams
from weft import DIALECTS, Decoder, Encoder, encode
from weft.dialects import DialectName
from weft.parts import (
    Finish,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    Usage,
)

LIMIT = 2.0
"""How many times the fastest pair another may cost."""

EXCEPTIONS = {
    "openai-responses": "a delta of this dialect is three times as long as one of the fastest, and "
    "has its name twice"
}
"""Dialects that may cost more to read, and why."""

DELTAS = 1000


def answer() -> Iterator[Part]:
    yield ResponseMetadata("resp_1", "bench-model-2026-11-01", 1_790_000_000)
    yield ReasoningStart("r", "summary")
    for number in range(DELTAS // 10):
        yield ReasoningDelta("r", f" {number % 97:05}")
    yield ReasoningEnd("r")
    yield TextStart("t")
    for number in range(DELTAS * 8 // 10):
        yield TextDelta("t", f" {number % 97:05}")
    yield TextEnd("t")
    pieces = ['{"text":"', *(["abcd "] * (DELTAS // 10 - 2)), '"}']
    yield ToolParamsStart("call_1", "write")
    for piece in pieces:
        yield ToolParamsDelta("call_1", piece)
    yield ToolParamsEnd("call_1")
    yield ToolCall("call_1", "write", "".join(pieces))
    yield Finish("tool-calls", usage=Usage(11, DELTAS, DELTAS + 11))


def reads(dialect: DialectName) -> list[bytes]:
    """The bytes of the answer in this dialect, as the network hands them over."""
    return list(streams.reads(iter(encode(answer(), dialect))))


class Pair:
    """Reads one dialect and writes another."""

    def __init__(self, source: DialectName, target: DialectName) -> None:
        self._source = source
        self._target = target

    def __call__(self, reads: list[bytes]) -> None:
        decoder = Decoder(self._source)
        encoder = Encoder(self._target, fold=decoder.fold)
        for read in reads:
            encoder.feed(decoder.feed(read))
        encoder.feed(decoder.finish())


PAIRS = [(one.name, other.name) for one in DIALECTS.values() for other in DIALECTS.values()]


def limit(pair: tuple[str, str]) -> float:
    return float("inf") if pair[0] in EXCEPTIONS else LIMIT
