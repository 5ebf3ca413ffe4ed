"""A short run of the fuzzer, the same each time, and proof that it would notice."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daily import one_in
from tests.fuzz import (
    FAILURES,
    Broken,
    Failure,
    Target,
    batch,
    check,
    check_events,
    failure,
    made,
    main,
    run,
    saved,
    shrunk,
)

BATCHES = 8
SIZE = 250
MANY = 46_000
"""Mutated streams in `make test-long`, of all dialects."""
MANY_AT_ONCE = 1000


@pytest.mark.parametrize("number", one_in(2, range(BATCHES)))
def test_whatever_comes_in_what_goes_out_is_lawful(number: int) -> None:
    done = batch(0, number * SIZE, SIZE)
    assert [saved(one, FAILURES, f"0-{one.number}") for one in done.failures] == []
    assert done.count == SIZE


@pytest.mark.long
@pytest.mark.parametrize("number", range(MANY // MANY_AT_ONCE))
def test_whatever_comes_in_what_goes_out_is_lawful_in_many_streams(number: int) -> None:
    done = batch(1, number * MANY_AT_ONCE, MANY_AT_ONCE)
    assert [saved(one, FAILURES, f"1-{one.number}") for one in done.failures] == []
    assert done.count == MANY_AT_ONCE


def test_memory_stays_under_its_limit(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--count", "600", "--jobs", "1", "--seed", "7"]
    done = subprocess.run(
        [*command, "--out", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[1],
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.search(
        r"^600 inputs, seed 7: 0 failed .* memory at most (\S+) MB", done.stdout, re.MULTILINE
    )
    assert told is not None
    assert 0 <= float(told[1]) < 64


def test_an_input_is_made_again_from_its_number() -> None:
    for number in range(50):
        assert made(3, number) == made(3, number)
    assert made(3, 1) != made(4, 1)


def refuses_calls(raw: bytes, variant: int) -> None:
    if b"tool_calls" in raw and b"[DONE]" in raw:
        raise Broken("planted")


def test_a_failing_input_is_found_and_shrunk_to_what_fails() -> None:
    done = batch(5, 0, 40, Target("tests.test_fuzz", made, refuses_calls))
    assert done.failures
    for found in done.failures:
        assert found.kind == "planted"
        assert len(found.pieces) <= 2
        assert failure(found.pieces, found.variant, refuses_calls) is not None


def test_shrinking_keeps_the_way_it_fails() -> None:
    def picky(raw: bytes, variant: int) -> None:
        if len(raw) < 3:
            raise ValueError("short")
        if b"x" in raw:
            raise Broken("planted")

    found = failure([b"a", b"x", b"b", b"c"], 0, picky)
    assert found is not None
    assert b"".join(shrunk(found, picky).pieces) in (b"axb", b"xbc", b"axc")


def test_a_failing_input_is_kept_with_the_command_that_repeats_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = saved(Failure([b"data: [DO", b"NE]\n\n"], 2, "planted"), tmp_path, "one")
    path = tmp_path / "one-v2.sse"
    assert path.read_bytes() == b"data: [DONE]\n\n"
    assert told.endswith(f"-m tests.fuzz --file {path} --variant 2\n")
    assert main(["--file", str(path), "--variant", "2"]) == 0
    assert capsys.readouterr().out == "all holds\n"


def test_the_check_accepts_a_plain_stream_in_every_form() -> None:
    for number in range(3):
        check(b"".join(made(1, number)[0]), 0)


EVENTS = run(
    [b'data: {"id":"c","choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n'], 0
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"sequence_number":3', b'"sequence_number":4'),
        (b"event: response.created\n", b"event: response.made\n"),
        (b'"delta":"Hi"', b'"delta":"Ho"'),
        (b'"text":"Hi"', b'"text":"Ho"'),
        (b"data: [DONE]\n\n", b""),
        (b"response.output_item.done", b"response.output_item.gone"),
        (b'"output":[{', b'"output":[{"x":1,'),
        (b"event: response.completed", b"event: response.completing"),
        (b'{"type":"response.in_progress"', b'{\n"type":"response.in_progress"'),
    ],
)
def test_a_fault_in_the_encoders_bytes_is_noticed(old: bytes, new: bytes) -> None:
    check_events(EVENTS.written, EVENTS.response)
    assert any(old in event for event in EVENTS.written)
    spoilt = [event.replace(old, new) for event in EVENTS.written]
    with pytest.raises(Broken):
        check_events([event for event in spoilt if event], EVENTS.response)
