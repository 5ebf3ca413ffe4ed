"""`make bench`: what a stream costs, beside the least that it could cost.

Each figure is the median of five runs, and each verdict a ratio of two figures of this run:
machines differ and are noisy, ratios hold. Exits 1 when one is over its limit.
"""

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable
from itertools import chain
from statistics import median

import msgspec

from bench import streams
from weft import Decoder, Encoder

RUNS = 5


def bare_minimum(reads: list[bytes]) -> None:
    """Split, decode, encode: what a gateway that does nothing would do."""
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


def seconds(job: Callable[[list[bytes]], None], reads: list[bytes], repeat: int) -> float:
    """The median time of one job, of which `repeat` are timed together."""
    times = []
    for _ in range(RUNS):
        gc.collect()
        start = time.perf_counter()
        for _ in range(repeat):
            job(reads)
        times.append((time.perf_counter() - start) / repeat)
    return median(times)


def peak(reads: Iterable[bytes]) -> int:
    """The most that was alive at any time, beside the bytes handed in and handed out."""
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

    def say(self, what: str, ratio: float, limit: float, aim: float | None = None) -> None:
        bad = ratio > limit
        self.failed = self.failed or bad
        goal = f"limit {limit:g}" + (f", aim {aim:g}" if aim else "")
        print(f"{'FAIL' if bad else 'ok':>4}  {what:<58} {ratio:5.2f} x   ({goal})")


def main() -> None:
    verdicts = Verdicts()
    thousand = list(streams.reads(streams.text(1000)))
    least = seconds(bare_minimum, thousand, 5)
    ours = seconds(weft, thousand, 5)
    print(
        f"      1,000 events: bare minimum {least * 1e3:.2f} µs an event, weft {ours * 1e3:.2f} µs"
    )
    verdicts.say("decode + guard + assemble + encode / bare minimum", ours / least, 3.5, 3)

    hundred = seconds(weft, list(streams.reads(streams.text(100))), 50) / 100
    many = seconds(weft, list(streams.reads(streams.text(10_000))), 1) / 10_000
    verdicts.say("an event of 10,000 / an event of 100", many / hundred, 1.2)

    short = seconds(weft, list(streams.reads(streams.arguments(5_000))), 1) / 5_000
    long = seconds(weft, list(streams.reads(streams.arguments(50_000))), 1) / 50_000
    verdicts.say("a delta of 1 MB arguments / a delta of 100 KB", long / short, 1.5)

    for what, events, size in (
        ("text", streams.text(50_000, 40), 50_000 * 40),
        ("arguments", streams.arguments(50_000), 50_000 * 20),
    ):
        verdicts.say(f"peak memory / {what}", peak(streams.reads(events)) / size, 3)
    sys.exit(verdicts.failed)


main()
