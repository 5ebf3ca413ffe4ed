"""The fuzzer of stored answers: a short run, the same each time, a longer one, and proof that it
would notice.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.faults.wires import CHAT, DIALECTS, RESPONSES, SPEECHES
from tests.fuzz import FAILURES, Broken, Target, batch, main, saved
from tests.fuzz_stored import FREE, STORED, check, made, way
from tests.stored_logs import audit_log
from tests.test_stored_equals_streamed import World as Stored
from weft.store.records import Block, Entry

BATCHES = 8
SIZE = 500


def runs(first: int, count: int) -> None:
    done = batch(0, first, count, STORED)
    assert [saved(one, FAILURES, f"stored-{one.number}", STORED) for one in done.failures] == []
    assert done.count == count


def test_the_audit_has_no_false_alarm_and_is_not_blind() -> None:
    runs(0, 60)


@pytest.mark.long
@pytest.mark.parametrize("number", range(BATCHES))
def test_the_audit_has_no_false_alarm_and_is_not_blind_in_many_answers(number: int) -> None:
    runs(number * SIZE, SIZE)


def test_every_way_comes_up() -> None:
    ways = [way(made(0, number)[1]) for number in range(400)]
    assert {(one.upstream, one.client, one.stream) for one in ways} == {
        (upstream, client, stream)
        for upstream in DIALECTS
        for client in DIALECTS
        for stream in (True, False)
    }
    assert all(any(getattr(one, name) for one in ways) for name in ("breaks", "leaves"))


# Every byte


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    with asyncio.Runner() as runner:
        made = Stored(runner, tmp_path_factory.mktemp("bytes"))
        yield made
        runner.run(made.store.close())


def told(stored: Stored, client: str) -> tuple[Entry, list[Block]]:
    """An answer of an upstream of the same dialect, as it is stored."""
    said = b"".join(SPEECHES[client].frames)
    _, id = stored.runner.run(stored.send_bytes(said, client, client, stream=True))
    return stored.runner.run(stored.stored(id or ""))


def flips(data: bytes) -> Iterator[bytes]:
    """The bytes, each of them changed in one bit."""
    for at in range(len(data)):
        yield data[:at] + bytes((data[at] ^ (1 << at % 8),)) + data[at + 1 :]


@pytest.mark.parametrize(
    "client", [CHAT, *(pytest.param(one, marks=pytest.mark.long) for one in DIALECTS[1:])]
)
def test_no_byte_of_an_answer_changes_unnoticed(stored: Stored, client: str) -> None:
    entry, blocks = told(stored, client)
    assert audit_log(entry, blocks) == []
    for name in ("request", "input", "body", "record"):
        for other in flips(getattr(entry, name)):
            changed = msgspec.structs.replace(entry, **{name: other})
            assert audit_log(changed, blocks) != [], (name, other)
    for at, block in enumerate(blocks):
        for other in flips(block.data):
            log = [*blocks[:at], msgspec.structs.replace(block, data=other), *blocks[at + 1 :]]
            assert audit_log(entry, log) != [], other


# What may change


NEW: dict[str, object] = {"server": "x", "cancelling": True, "answered": "resp_x", "context": b"{}"}
"""Another value for what is under no checksum."""


def test_what_may_change_after_the_end_is_no_difference(stored: Stored) -> None:
    entry, blocks = told(stored, RESPONSES)
    assert {name for _, name in FREE} == {*NEW, "id", "recoveries", "begun"}
    changed = [msgspec.structs.replace(entry, **{name: new}) for name, new in NEW.items()]
    assert [audit_log(one, blocks) for one in changed] == [[], [], [], []]


def test_a_failure_is_found_and_told_with_what_repeats_it(tmp_path: Path) -> None:
    def blind(raw: bytes, variant: int) -> None:
        check(raw, variant)
        raise Broken("planted")

    (found,) = batch(1, 7, 1, Target("tests.fuzz_stored", made, blind)).failures
    words = saved(found, tmp_path, "one", STORED)
    path = tmp_path / f"one-v{found.variant}.sse"
    assert words.endswith(f"-m tests.fuzz_stored --file {path} --variant {found.variant}\n")
    assert main(["--file", str(path), "--variant", str(found.variant)], STORED) == 0
