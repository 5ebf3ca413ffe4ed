"""Fuzzing: bytes -> decoder -> guard -> encoder -> bytes, and what must hold whatever comes in.

Most inputs are captures that were mutated by someone who knows the wire (events dropped, doubled,
swapped, spliced; JSON values replaced by type; framing changed; bytes flipped); some are noise.
An input is named by the seed and its number, so each can be made again. What fails is made
smaller, written to a file and printed with the command that repeats it.

    python -m tests.fuzz --count 1000000 --seed 1 --seconds 600
    python -m tests.fuzz --file /tmp/weft-fuzz/1-4711-v0.sse --variant 0
"""

import argparse
import functools
import hashlib
import multiprocessing
import re
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

import weft
from tests import fuzz_inputs
from tests.fuzz_inputs import Tree
from weft.assembled import assembled
from weft.assembler import Assembler
from weft.dialects import DialectName
from weft.dialects.openai_chat.quirks import ChatQuirks
from weft.dialects.openai_responses.quirks import ResponsesQuirks
from weft.dialects.stages.markup_calls import TAGS, TOKENS
from weft.findings import Findings
from weft.lifecycle import violations
from weft.parts import AnyPart
from weft.request import Tool

FAILURES = Path(tempfile.gettempdir()) / "weft-fuzz"

MEMORY = 64 * 1024 * 1024
"""How much the resident memory of a worker may grow at its peak, over what it held when the
corpus was loaded. It is what the system counts: the fuzzer's own inputs and the allocator's
slack are in it, so the codecs alone hold less."""
SLOW = 5.0
"""Seconds of processor time that one input may take. None is over 400 KB."""

_read_parts = msgspec.json.Decoder(list[AnyPart]).decode


# What must hold

_TOOLS = weft.Request("m", tools=(Tool("look"), Tool("read")))


class Variant(NamedTuple):
    """A way to read an input."""

    request: weft.Request | None = None
    quirks: weft.Quirks | None = None
    choice: int = 0
    tool_session: bool = False
    dialect: DialectName = "openai-chat"


VARIANTS = (
    Variant(),
    Variant(request=_TOOLS),
    Variant(quirks=ChatQuirks(implicit_think=True)),
    Variant(quirks=ChatQuirks(text_markup_calls=TAGS)),
    Variant(quirks=ChatQuirks(text_markup_calls=TOKENS, implicit_think=True)),
    Variant(choice=1),
    Variant(tool_session=True),
    Variant(dialect="openai-responses"),
    Variant(dialect="openai-responses", request=_TOOLS),
    Variant(dialect="anthropic-messages"),
    Variant(dialect="anthropic-messages", request=_TOOLS),
    Variant(dialect="gemini"),
    Variant(dialect="gemini", request=_TOOLS),
)
DIALECTS = [variant.dialect for variant in VARIANTS]


def made(seed: int, number: int) -> tuple[list[bytes], int]:
    """The pieces of one input, and the variant that reads it."""
    return fuzz_inputs.made(seed, number, DIALECTS)


class Broken(Exception):
    """Something that must hold does not."""


def must(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


@dataclass
class Run:
    """One way of an input through the library."""

    parts: list[weft.Part]
    written: list[bytes]
    findings: list[weft.Finding]
    response: weft.Response


def run(pieces: list[bytes], variant: int) -> Run:
    request, quirks, choice, session, dialect = VARIANTS[variant]
    reading = weft.Context(request, quirks, weft.Ids(b"in"), choice=choice)
    writing = weft.Context(request, ResponsesQuirks(session), weft.Ids(b"out"), now=1790000000)
    decoder = weft.Decoder(dialect, context=reading)
    encoder = weft.Encoder("openai-responses", context=writing, fold=decoder.fold)
    parts: list[weft.Part] = []
    written: list[bytes] = []
    for piece in pieces:
        new = decoder.feed(piece)
        parts += new
        written += encoder.feed(new)
    new = decoder.finish()
    parts += new
    written += encoder.feed(new) + encoder.finish()
    must(decoder.finish() == [], "a second finish of the decoder gave parts")
    must(decoder.feed(b"data: {}\n\n") == [], "the decoder went on after its finish")
    return Run(parts, written, decoder.findings, decoder.response)


def cut(raw: bytes, rng: Random) -> list[bytes]:
    if len(raw) < 400 and rng.random() < 0.2:
        return [raw[at : at + 1] for at in range(len(raw))]
    cuts = sorted(rng.randrange(len(raw) + 1) for _ in range(rng.randrange(1, 12)))
    return [raw[one:other] for one, other in zip([0, *cuts], [*cuts, len(raw)], strict=True)]


def check(raw: bytes, variant: int) -> None:
    """Raises Broken, or whatever the library raised, unless all that must hold does."""
    whole = run([raw], variant)
    must(violations(whole.parts, Assembler()) == [], "the parts break the law")
    must(_read_parts(msgspec.json.encode(whole.parts)) == whole.parts, "JSON changes the parts")
    findings = Findings()
    guard = weft.Guard(weft.Ids(), findings)
    again = guard.feed(whole.parts) + guard.finish()
    must(again == whole.parts and not findings.found, "the guard changes what it made")
    rng = Random(hashlib.sha256(raw).digest())
    pieces = run(cut(raw, rng), variant)
    must(pieces.parts == whole.parts, "where the bytes are cut changes the parts")
    must(pieces.findings == whole.findings, "where the bytes are cut changes the findings")
    must(pieces.written == whole.written, "where the bytes are cut changes the encoder's bytes")
    must(pieces.response == whole.response, "where the bytes are cut changes the fold")
    msgspec.json.encode(assembled(whole.response))
    check_events(whole.written, whole.response)
    if rng.random() < 0.2:
        check_capture(raw, VARIANTS[variant].dialect)
        check_return(whole)


def check_capture(raw: bytes, dialect: DialectName) -> None:
    """The same bytes as a capture, which may hold several responses and choices."""
    try:
        weft.detect(raw)
        for one in weft.decode_all(raw, dialect):
            must(violations(one.parts, Assembler()) == [], "a response of the capture: unlawful")
        weft.convert(raw, dialect, "openai-responses")
    except weft.ClientError:
        return


def check_return(whole: Run) -> None:
    """What was written can be read again, and says the same."""
    decoder = weft.Decoder("openai-responses")
    parts = decoder.feed(b"".join(whole.written)) + decoder.finish()
    must(violations(parts, Assembler()) == [], "what was written decodes to unlawful parts")
    there, back = whole.response, decoder.response
    must(back.text == there.text, "the text changes on the way through Responses")
    must(back.refusal == there.refusal, "the refusal changes on the way through Responses")
    thoughts = [sorted(thought(r)) for r in (there, back)]  # parts of one item come together
    must(thoughts[0] == thoughts[1], "the reasoning changes on the way through Responses")
    # Who ran a call is not always told, and its item has another shape.
    ran = {one.id for r in (there, back) for one in r.tool_calls if one.provider_executed}
    calls = [
        [(one.id, one.name, one.params) for one in r.tool_calls if one.id not in ran]
        for r in (there, back)
    ]
    must(calls[0] == calls[1], "the calls change on the way through Responses")
    failed = [one.error is not None for one in (there, back)]
    must(failed[0] == failed[1], "an error is lost or made on the way through Responses")


def thought(response: weft.Response) -> list[str]:
    items = [item for item in response.items if isinstance(item, weft.ReasoningItem)]
    return [item.text for item in items if item.text]


def check_events(written: list[bytes], response: weft.Response) -> None:
    """The bytes of the encoder: framing, numbers, items, and one truth in all of them."""
    must(written[-1] == b"data: [DONE]\n\n", "the last event is not [DONE]")
    items = Items()
    last: Tree = {}
    for number, event in enumerate(written[:-1]):
        head, _, rest = event.partition(b"\n")
        must(rest.startswith(b"data: ") and rest.endswith(b"\n\n"), "an event in pieces")
        must(rest.count(b"\n") == 2, "a newline inside an event")
        last = msgspec.json.decode(rest[6:-2])
        must(head == b"event: " + last["type"].encode(), "event: differs from type")
        must(last["sequence_number"] == number, "a gap in sequence_number")
        items.take(last)
    output = last.get("response", {}).get("output", [])
    failed = last["type"] == "response.failed"
    must(output == items.outputs(output if failed else []), "terminal output is not done")
    ended = {"response.completed", "response.incomplete", "response.failed"}
    must(last["type"] in ended, "no terminal event")
    said = [text for key, text in items.said.items() if key[1] in _MESSAGE_KEYS and text]
    texts = [item.text for item in response.items if isinstance(item, weft.TextItem) and item.text]
    must(sorted(said) == sorted(texts), "text deltas differ from the fold")


@dataclass
class Items:
    """What the events of a stream say of its output items."""

    added: dict[int, Tree] = field(default_factory=dict)
    done: dict[int, Tree] = field(default_factory=dict)
    said: dict[tuple[int, str, int], str] = field(default_factory=dict)

    def take(self, event: Tree) -> None:
        kind = event["type"]
        index = event.get("output_index")
        if index is None:
            return
        if kind == "response.output_item.added":
            must(isinstance(event["item"], dict), "an item that is no object")
            must(index == len(self.added), "an output_index out of order")
            self.added[index] = event["item"]
            return
        must(index in self.added and index not in self.done, f"{kind} outside its item")
        if kind == "response.output_item.done":
            self.done[index] = event["item"]
            if event["item"] != self.added[index]:  # else it is replayed as it came
                self._whole(index, event["item"])
            return
        must(event.get("item_id") == self.added[index]["id"], f"{kind} with another id than added")
        self._speak(index, kind, event)

    def _speak(self, index: int, kind: str, event: Tree) -> None:
        part = event.get("content_index", event.get("summary_index", 0))
        for name, key in _DONE_KEYS.items():
            place = (index, name, part)
            if kind == f"response.{name}.delta":
                must(bool(event["delta"]), "an empty delta")
                self.said[place] = self.said.get(place, "") + event["delta"]
            elif kind == f"response.{name}.done":
                must(event[key] == self.said.setdefault(place, ""), f"{kind} is not its deltas")

    def _whole(self, index: int, item: Tree) -> None:
        def said(name: str, part: int = 0) -> str | None:
            return self.said.get((index, name, part))

        must(item["id"] == self.added[index]["id"], "done with another id than added")
        others = [one.get("id") for at, one in self.added.items() if at != index]
        must(item["id"] not in others, "two items with one id")

        match item["type"]:
            case "function_call":
                wanted = said("function_call_arguments")
                must(item["arguments"] == wanted, "arguments of the item are not its deltas")
            case "custom_tool_call":
                wanted = said("custom_tool_call_input")
                must(item["input"] == wanted, "input of the item is not its deltas")
            case "message":
                for part, one in enumerate(item["content"]):
                    if not isinstance(one, dict) or one.get("type") not in _MESSAGE_KEYS:
                        continue  # what nobody here knows is passed on as it came
                    text = one[_MESSAGE_KEYS[one["type"]]]
                    must(text == said(one["type"], part), "text of the item is not its deltas")

    def outputs(self, cut: list[Tree]) -> list[Tree]:
        """What was told of all items. A call that an error cut is never told as done, since clients
        run what is done: the last snapshot tells it, as incomplete."""
        for index in sorted(self.added.keys() - self.done.keys()):
            must(index < len(cut), "an item without its done")
            item = cut[index]
            kind = item["type"].removesuffix("_output")
            is_cut = kind.endswith("_call") and item.get("status") == "incomplete"
            must(is_cut, "an item without its done")
            for name in ("function_call_arguments", "custom_tool_call_input"):
                self.said.setdefault((index, name, 0), "")
            self._whole(index, item)
            self.done[index] = item
        return [self.done[index] for index in sorted(self.done)]


_DONE_KEYS = {
    "output_text": "text",
    "refusal": "refusal",
    "reasoning": "text",
    "reasoning_summary_text": "text",
    "function_call_arguments": "arguments",
    "custom_tool_call_input": "input",
}
_MESSAGE_KEYS = {"output_text": "text", "refusal": "refusal"}


# Failures


@dataclass(frozen=True)
class Failure:
    pieces: list[bytes]
    variant: int
    reason: str
    number: int = -1

    @property
    def kind(self) -> str:
        """The last line of the reason, without numbers: what stays the same while it shrinks."""
        line = self.reason.strip().splitlines()[-1]
        return re.sub(r"0x\w+|\d+", "N", line.partition("Broken: ")[2] or line)[:80]


Check = Callable[[bytes, int], None]


@dataclass(frozen=True)
class Target:
    """What is fuzzed: how an input is made of a seed and a number, and what must hold of it."""

    module: str
    made: Callable[[int, int], tuple[list[bytes], int]]
    check: Check


CODECS = Target("tests.fuzz", made, check)


def failure(pieces: list[bytes], variant: int, checked: Check = check) -> Failure | None:
    started = time.process_time()
    try:
        checked(b"".join(pieces), variant)
    except Exception:
        return Failure(pieces, variant, traceback.format_exc())
    took = time.process_time() - started
    if took > SLOW:
        return Failure(pieces, variant, f"slow: {took:.1f} s")
    return None


def shrunk(found: Failure, checked: Check = check, tries: int = 400) -> Failure:
    """The failure with as many pieces left out as can be: it must fail in the same way."""
    best = found
    size = max(1, len(best.pieces) // 2)
    while size and tries:
        at = 0
        while at < len(best.pieces) and tries:
            tries -= 1
            fewer = best.pieces[:at] + best.pieces[at + size :]
            smaller = failure(fewer, best.variant, checked)
            if smaller is not None and smaller.kind == found.kind:
                best = smaller
            else:
                at += size
        size //= 2
    return best


def saved(found: Failure, folder: Path, name: str, target: Target = CODECS) -> str:
    """Writes the input; returns what a person needs to know about it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-v{found.variant}.sse"
    path.write_bytes(b"".join(found.pieces))
    command = f"{sys.executable} -m {target.module} --file {path} --variant {found.variant}"
    return f"{found.reason.strip()}\n  repeat with: {command}\n"


# Many inputs


@dataclass
class Batch:
    """What one batch of inputs came to."""

    count: int = 0
    failures: list[Failure] = field(default_factory=list)
    grown: int = 0
    """The peak of resident memory over the start of the worker, in bytes."""
    slowest: tuple[float, int] = (0.0, -1)


def peak() -> int:
    """The highest resident memory this process ever had, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # of this program alone, while ru_maxrss remembers its parent's, too
        return int(re.findall(r"VmHWM:\s*(\d+)", status.read_text())[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@functools.cache
def start(target: Target) -> int:
    """The memory of this worker when everything is loaded and has run once."""
    for dialect in DIALECTS:
        fuzz_inputs.corpus(dialect)
    for pieces, variant in (target.made(0, number) for number in range(3)):
        failure(pieces, variant, target.check)
    return peak()


def batch(seed: int, first: int, count: int, target: Target = CODECS) -> Batch:
    """Runs some inputs here, in this process."""
    done = Batch()
    for number in range(first, first + count):
        pieces, variant = target.made(seed, number)
        began = time.process_time()
        found = failure(pieces, variant, target.check)
        took = time.process_time() - began
        done.slowest = max(done.slowest, (took, number))
        done.count += 1
        if found is not None:
            found = shrunk(found, target.check)
            done.failures.append(Failure(found.pieces, found.variant, found.reason, number))
    return done


def measured(seed: int, first: int, count: int, target: Target) -> Batch:
    """Runs some inputs in a process that does nothing else, so that its memory can be told."""
    before = start(target)
    done = batch(seed, first, count, target)
    done.grown = peak() - before
    if done.grown > MEMORY:
        reason = f"memory: {done.grown / 2**20:.0f} MB over the start of the worker"
        done.failures.append(Failure([], 0, reason, first))
    return done


def fuzz(
    seed: int, count: int, seconds: float, jobs: int, folder: Path, target: Target = CODECS
) -> int:
    """Runs batches on all cores; prints each kind of failure once. Returns how many failed."""
    size = 500
    deadline = time.monotonic() + seconds
    waiting: set[Future[Batch]] = set()
    firsts = iter(range(0, count, size))
    total = Batch()
    failed: dict[str, int] = {}
    began = time.monotonic()
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        while True:
            while len(waiting) < 2 * jobs and time.monotonic() < deadline:
                first = next(firsts, None)
                if first is None:
                    break
                waiting.add(pool.submit(measured, seed, first, min(size, count - first), target))
            if not waiting:
                break
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                _add(total, future.result(), failed, seed, folder, target)
            _progress(total, count, sum(failed.values()), time.monotonic() - began)
    print(file=sys.stderr)
    print(
        f"{total.count} inputs, seed {seed}: {sum(failed.values())} failed in {len(failed)} ways; "
        f"memory at most {total.grown / 2**20:.1f} MB over the start of a worker; "
        f"slowest {total.slowest[0]:.2f} s (number {total.slowest[1]}); "
        f"{time.monotonic() - began:.0f} s"
    )
    for kind, times in failed.items():
        print(f"  {times} x {kind}")
    return sum(failed.values())


def _add(
    total: Batch, done: Batch, failed: dict[str, int], seed: int, folder: Path, target: Target
) -> None:
    total.count += done.count
    total.grown = max(total.grown, done.grown)
    total.slowest = max(total.slowest, done.slowest)
    for found in done.failures:
        if found.kind not in failed:
            name = f"{seed}-{found.number}"
            print(f"\nnumber {found.number}:\n{saved(found, folder, name, target)}")
        failed[found.kind] = failed.get(found.kind, 0) + 1


def _progress(total: Batch, count: int, failed: int, took: float) -> None:
    rate = total.count / took
    line = f"\r{total.count}/{count} inputs, {failed} failed, {rate:.0f}/s "
    print(line, end="", file=sys.stderr, flush=True)


def main(
    arguments: list[str] | None = None,
    target: Target = CODECS,
    about: str | None = __doc__,
    count: int = 1_000_000,
) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {target.module}", description=about)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--count", type=int, default=count, help=f"inputs ({count})")
    parser.add_argument("--seed", type=int, default=1, help="names the inputs (1)")
    parser.add_argument("--seconds", type=float, default=7200, help="time limit (7200)")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count(), help="processes")
    parser.add_argument("--out", type=Path, default=FAILURES, help="where failing inputs go")
    parser.add_argument("--file", type=Path, help="run one input from a file")
    parser.add_argument("--variant", type=int, default=0, help="the variant for --file")
    parser.add_argument("--number", type=int, help="run, and print, only this input")
    chosen = parser.parse_args(arguments)
    if chosen.file is None and chosen.number is None:
        counts = (chosen.seed, chosen.count, chosen.seconds, chosen.jobs)
        return 1 if fuzz(*counts, chosen.out, target) else 0
    if chosen.file is not None:
        pieces, variant = [chosen.file.read_bytes()], chosen.variant
    else:
        pieces, variant = target.made(chosen.seed, chosen.number)
        sys.stdout.write(b"".join(pieces).decode("utf-8", "backslashreplace") + "\n")
    found = failure(pieces, variant, target.check)
    print("all holds" if found is None else found.reason)
    return 0 if found is None else 1


if __name__ == "__main__":
    sys.exit(main())
