"""`make bench`: what a stream costs, compared with the least that it could cost.

Each figure is the median of five runs, and each verdict is a ratio of two figures whose runs take
turns: machines differ and are noisy, ratios hold. Exits 1 when a ratio is over its limit.
"""

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable
from itertools import chain
from statistics import median
from typing import NamedTuple

import msgspec

from bench import pairs, streams
from weft import Decoder, Encoder

RUNS = 5


def bare_minimum(reads: list[bytes]) -> None:
    """Split, decode, encode: what a gateway that does nothing else would do."""
    encode = msgspec.json.Encoder().encode
    decode = msgspec.json.Decoder().decode
    for block in b"".join(reads).split(b"\n\n"):
        if block.startswith(b"data: {"):
            encode(decode(block[6:]))


def weft(reads: Iterable[bytes]) -> None:
    """Decode, guard, assemble, encode."""
    decoder = Decoder("openai-chat")
    encoder = Encoder("openai-responses", fold=decoder.fold)
    for read in reads:
        encoder.feed(decoder.feed(read))
    encoder.feed(decoder.finish())


class Job(NamedTuple):
    """What is timed: `repeat` runs at a time, each of `events` events."""

    run: Callable[[list[bytes]], None]
    reads: list[bytes]
    repeat: int
    events: int

    def time(self) -> float:
        """Microseconds per event."""
        gc.collect()
        start = time.perf_counter()
        for _ in range(self.repeat):
            self.run(self.reads)
        return (time.perf_counter() - start) * 1e6 / self.repeat / self.events


def compare(one: Job, other: Job) -> tuple[float, float, float]:
    """The medians of both, and of their ratios. They take turns, so that a busy machine slows
    both of them.
    """
    rounds = [(one.time(), other.time()) for _ in range(RUNS)]
    ones, others = zip(*rounds, strict=True)
    return median(ones), median(others), median(a / b for a, b in rounds)


def peak(reads: Iterable[bytes]) -> int:
    """The most bytes that were allocated at any time, without the input and the output."""
    tracemalloc.start()
    decoder = Decoder("openai-chat")
    encoder = Encoder("openai-responses", fold=decoder.fold)
    before, most = tracemalloc.get_traced_memory()[0], 0
    for read in chain(reads, (None,)):
        tracemalloc.reset_peak()
        parts = decoder.finish() if read is None else decoder.feed(read)
        most = max(most, tracemalloc.get_traced_memory()[1] - before)
        for part in parts:
            tracemalloc.reset_peak()
            out = encoder.feed((part,))
            handed_out = sum(map(len, out))
            most = max(most, tracemalloc.get_traced_memory()[1] - before - handed_out)
            del out
    tracemalloc.stop()
    return most


class Verdicts:
    """Prints each figure beside its limit."""

    def __init__(self) -> None:
        self.failed = False

    def report(self, what: str, ratio: float, limit: float, aim: float | None = None) -> None:
        bad = ratio > limit
        self.failed = self.failed or bad
        goal = f"limit {limit:g}" + (f", aim {aim:g}" if aim else "")
        print(f"{'FAIL' if bad else 'ok':>4}  {what:<58} {ratio:5.2f} x   ({goal})")


def main() -> None:
    verdicts = Verdicts()
    thousand = list(streams.reads(streams.text(1000)))
    ours, least, ratio = compare(
        Job(weft, thousand, 10, 1000), Job(bare_minimum, thousand, 10, 1000)
    )
    print(f"      µs an event: weft {ours:.2f}, bare minimum {least:.2f}")
    verdicts.report("decode + guard + assemble + encode / bare minimum", ratio, 3.5, 3)

    hundred, many = (list(streams.reads(streams.text(size))) for size in (100, 10_000))
    *_, ratio = compare(Job(weft, many, 1, 10_000), Job(weft, hundred, 100, 100))
    verdicts.report("an event of 10,000 / an event of 100", ratio, 1.2)

    short, long = (list(streams.reads(streams.arguments(size))) for size in (5_000, 50_000))
    *_, ratio = compare(Job(weft, long, 1, 50_000), Job(weft, short, 10, 5_000))
    verdicts.report("a delta of 1 MB arguments / a delta of 100 KB", ratio, 1.5)

    for what, events, size in (
        ("text", streams.text(50_000, 40), 50_000 * 40),
        ("arguments", streams.arguments(50_000), 50_000 * 20),
    ):
        # Long strings are written in slices, so that other tasks get their turns: one copy more.
        verdicts.report(f"peak memory / {what}", peak(streams.reads(events)) / size, 4.5, 3)
    compare_pairs(verdicts)
    sys.exit(verdicts.failed)


def compare_pairs(verdicts: Verdicts) -> None:
    """Compares every pair of dialects with the fastest one, by the best of their rounds: what a
    busy machine adds to one of 25 would be taken for its cost.
    """
    jobs = {
        pair: Job(pairs.Pair(*pair), pairs.reads(pair[0]), 2, pairs.DELTAS) for pair in pairs.PAIRS
    }
    rounds = [{pair: job.time() for pair, job in jobs.items()} for _ in range(RUNS)]
    costs = {pair: min(one[pair] for one in rounds) for pair in jobs}
    least = min(costs.values())
    print(f"      µs an event between dialects: the fastest pair takes {least:.2f}")
    for pair, cost in sorted(costs.items(), key=lambda row: row[1]):
        what = f"{cost:5.2f} µs  {pair[0]} to {pair[1]}"
        verdicts.report(what, cost / least, pairs.limit(pair))
        if pair[0] in pairs.EXCEPTIONS:
            print(f"            {pairs.EXCEPTIONS[pair[0]]}")


main()
