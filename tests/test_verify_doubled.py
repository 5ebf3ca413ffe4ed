"""`weft verify` reads a log as strictly as an official client: what is told twice is named, even
where record, digest and count are those of that log.
"""

import json
import sqlite3
from collections.abc import Callable
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.faults.wires import CHAT, GEMINI, MESSAGES, RESPONSES
from tests.passing_world import WIRES, passing
from tests.stored_logs import as_sent, events_of, pack
from tests.test_verify import verified, verify
from weft.sse import Event
from weft.store.records import Block

CALLED: list[bytes] = [
    b'{"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}',
    (
        b'{"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":'
        b'"function","function":{"name":"look","arguments":"{\\"x\\":1}"}}]}}]}'
    ),
    b'{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}',
    b"[DONE]",
]
"""One call, whole in one chunk."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store that holds that answer in every dialect, and is clean."""
    folder = tmp_path_factory.mktemp("doubled")
    with passing(folder) as world:
        model = world.says(CHAT, b"".join(b"data: %b\n\n" % one for one in CALLED))
        for dialect in (CHAT, RESPONSES, MESSAGES, GEMINI):
            assert world.ask(dialect, model).status_code == 200
    return folder


Spoil = Callable[[list[Event]], list[Event]]
"""Makes another log of one."""


def again(words: bytes) -> Spoil:
    """The last event with these words comes twice, one behind the other."""

    def spoil(events: list[Event]) -> list[Event]:
        at = max(number for number, event in enumerate(events) if words in event.data)
        return [*events[: at + 1], events[at], *events[at + 1 :]]

    return spoil


def renumbered(spoil: Spoil) -> Spoil:
    """The events, renumbered as if nothing was duplicated."""

    def numbered(events: list[Event]) -> list[Event]:
        return [
            Event(one.name, _with_number(one.data, number), number)
            if one.number is not None
            else one
            for number, one in enumerate(spoil(events))
        ]

    return numbered


def _with_number(data: bytes, number: int) -> bytes:
    value: dict[str, Any] = json.loads(data)
    return json.dumps({**value, "sequence_number": number}).encode()


DOUBLED: dict[str, tuple[str, Spoil]] = {
    "chat: the arguments": (CHAT, again(b'"arguments":"{\\"x\\":1}"')),
    "chat: the announcement": (CHAT, again(b'"id":"call_1"')),
    "chat: the end": (CHAT, again(b'"finish_reason":"tool_calls"')),
    "responses: the item": (RESPONSES, renumbered(again(b"response.output_item.added"))),
    "responses: the item's end": (RESPONSES, renumbered(again(b"response.output_item.done"))),
    "responses: the arguments": (
        RESPONSES,
        renumbered(again(b"response.function_call_arguments.delta")),
    ),
    "responses: an event as it was": (RESPONSES, again(b"response.output_item.added")),
    "messages: the block": (MESSAGES, again(b"content_block_start")),
    "messages: the arguments": (MESSAGES, again(b"input_json_delta")),
    "messages: the end of the block": (MESSAGES, again(b"content_block_stop")),
    "messages: the start": (MESSAGES, again(b"message_start")),
    "gemini: the call": (GEMINI, again(b"functionCall")),
}


@pytest.mark.parametrize("case", DOUBLED)
def test_a_log_that_says_something_twice_is_reported(
    stored: Path, tmp_path: Path, case: str
) -> None:
    dialect, spoil = DOUBLED[case]
    with sqlite3.connect(stored / "weft.db") as source:
        database = sqlite3.connect(tmp_path / "weft.db", isolation_level=None)
        source.backup(database)
    source.close()
    (tmp_path / "weft.toml").write_text(f'[store]\nurl = "sqlite:///{tmp_path}/weft.db"\n')
    ((id,),) = database.execute("SELECT id FROM response WHERE dialect = ?", (dialect,)).fetchall()
    rewrite(database, id, spoil)
    database.close()
    found = verified(tmp_path)
    lines = found.stdout.splitlines()
    assert found.exit_code == 1
    assert all(line.startswith(f"{id}: ") for line in lines)
    assert any("twice" in line or "calls differs from the log" in line for line in lines)
    assert not any("digest" in line or "it holds" in line for line in lines)


def rewrite(database: sqlite3.Connection, id: str, spoil: Spoil) -> None:
    """Puts another log into the store, with a digest and a count that fit it."""
    rows = database.execute(
        "SELECT number, first, count, data FROM block WHERE response = ? ORDER BY number", (id,)
    )
    events = spoil(events_of(Block(*row) for row in rows.fetchall()))
    data = pack(events)
    database.execute("DELETE FROM block WHERE response = ?", (id,))
    database.execute(
        "INSERT INTO block (response, number, first, count, data) VALUES (?, 0, 0, ?, ?)",
        (id, len(events), data),
    )
    database.execute(
        "UPDATE response SET digest = ?, events = ?, size = ? WHERE id = ?",
        (sha256(as_sent(events)).hexdigest(), len(events), len(data), id),
    )


CALL = '{"functionCall":{"name":"look","args":{"x":1}}}'
FRAME = '{"candidates":[{"content":{"role":"model","parts":[%s]}%s}],"responseId":"r-%d"}'


def test_calls_without_an_id_are_no_false_alarm(tmp_path: Path) -> None:
    """Not even equal ones: each reader makes ids of its own."""
    with passing(tmp_path) as world:  # which verifies what it stored
        answers = ([CALL], [CALL, CALL], [CALL, '{"text":"and"}', CALL])
        for number, (client, parts) in enumerate(product(WIRES, answers)):
            frames = [FRAME % (one, "", number) for one in parts]
            frames.append(FRAME % ('{"text":"."}', ',"finishReason":"STOP"', number))
            raw = b"".join(b"data: %b\n\n" % frame.encode() for frame in frames)
            assert world.ask(client, world.says(GEMINI, raw)).status_code == 200
    found = verify(tmp_path)
    assert found.stderr.startswith("no difference: 12 compared")
