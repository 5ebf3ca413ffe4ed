"""The audit of the store: a clean one is clean, and every change is reported."""

import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from tests.clients.drivers import CHAT, GEMINI, MESSAGES, RESPONSES
from tests.gateway_process import Gateway, gateway
from weft.cli.main import main

Object = dict[str, object]

CLIENTS = (CHAT, RESPONSES, MESSAGES, GEMINI)
SETTINGS = '[store]\npersist = "all"\n' + "\n".join(
    f'[upstreams.{name}]\ndialect = "{name}"\nbase_url = "demo:fast"\nretry = {{ attempts = 1 }}\n'
    "breaker = { failures = 0 }\n"
    for name in CLIENTS
)
MODELS = ("tools", "reasoner", "sources", "cut", "error-midstream")
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}


def asked(client: str, model: str, words: str, *, stream: bool) -> tuple[str, Object]:
    """Where a client asks, and what: a question, and two tools."""
    says: Object = {"role": "user", "content": words}
    names = ("weather", "clock")
    match client:
        case "openai-chat":
            tools: list[Object] = [
                {"type": "function", "function": {"name": one, "parameters": PARAMETERS}}
                for one in names
            ]
            body: Object = {"messages": [says], "tools": tools}
            path = "/v1/chat/completions"
        case "openai-responses":
            tools = [{"type": "function", "name": one, "parameters": PARAMETERS} for one in names]
            body = {"input": [says], "tools": tools}
            path = "/v1/responses"
        case "anthropic-messages":
            tools = [{"name": one, "input_schema": PARAMETERS} for one in names]
            body = {"messages": [says], "tools": tools, "max_tokens": 4000}
            path = "/v1/messages"
        case _:
            verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
            declared = [{"name": one, "parameters": PARAMETERS} for one in names]
            contents = [{"role": "user", "parts": [{"text": words}]}]
            gemini: Object = {"contents": contents, "tools": [{"functionDeclarations": declared}]}
            return f"/v1beta/models/{model}:{verb}", gemini
    return path, {**body, "model": model, "stream": stream}


def verify(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("weft")
    return subprocess.run(
        [str(command), "verify", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def run_of_everything(running: Gateway) -> int:
    """Asks everything in every way; returns how many had an answer."""
    with (
        httpx.Client(base_url=running.url, timeout=30, trust_env=False) as client,
        ThreadPoolExecutor(16) as pool,
    ):

        def ask(model: str, speaker: str, upstream: str, stream: bool) -> int:
            words = f"{model} for {speaker} from {upstream}, streamed: {stream}"
            path, body = asked(speaker, f"{upstream}/{model}", words, stream=stream)
            return client.post(path, json=body).status_code

        ways = zip(*product(MODELS, CLIENTS, CLIENTS, (True, False)), strict=True)
        return Counter(pool.map(ask, *ways))[200]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The folder of a store after a run of everything, and how much is in it."""
    folder = tmp_path_factory.mktemp("verify")
    with gateway(SETTINGS, folder) as running:
        answered = run_of_everything(running)
    return folder, answered


def test_a_store_with_every_scenario_in_every_dialect_is_clean(
    full: tuple[Path, int],
) -> None:
    folder, answered = full
    found = verify(folder)
    assert found.stdout == ""
    assert found.stderr == (
        f"no difference: {answered} compared with their logs, 0 without a log, 0 running\n"
    )
    assert found.returncode == 0


# Corruption

Change = Callable[[sqlite3.Connection, str], None]
"""Spoils what is stored of the response with this id."""


def replaced(table: str, column: str, old: bytes, new: bytes) -> Change:
    """Puts other bytes into what is stored of a response."""

    def change(database: sqlite3.Connection, id: str) -> None:
        rows = database.execute(f"SELECT rowid, {column} FROM {table} WHERE response = ?", (id,))
        number, found = next(one for one in rows.fetchall() if old in one[1])
        made = found.replace(old, new, 1)
        database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (made, number))

    return change


def said(*statements: str) -> Change:
    def change(database: sqlite3.Connection, id: str) -> None:
        for statement in statements:
            database.execute(statement, {"id": id})

    return change


STRANGER = """INSERT OR IGNORE INTO response SELECT 'eve', 'eve', dialect, model, 'in_progress',
    created, NULL, NULL, NULL, FALSE, FALSE, TRUE, '', NULL, 0, 0, FALSE, NULL, FALSE, 0, 0, NULL
    FROM response WHERE id = :id"""
ASKED = "INSERT OR IGNORE INTO asked VALUES ('eve', x'7B7D', x'5B5D', x'7B7D', NULL)"
THEIRS = "INSERT OR IGNORE INTO conversation VALUES ('conv_1', 'eve', 1.0, x'7B7D')"
ITEM = "INSERT OR IGNORE INTO item VALUES ('conv_1', 0, 'msg_1', x'7B7D')"
DIGEST = "log: its digest differs from that of the events that were sent"
CHECKSUM = ("checksum: the response was changed after its end",)
CORRUPTIONS: dict[str, tuple[Change, tuple[str, ...]]] = {
    "a byte of the log": (replaced("block", "data", b"weather", b"weathes"), (DIGEST,)),
    "a brace of the log": (replaced("block", "data", b"{", b"["), (DIGEST,)),
    "the digest": (said("UPDATE response SET digest = 'f00' WHERE id = :id"), (DIGEST,)),
    "no digest": (said("UPDATE response SET digest = NULL WHERE id = :id"), (DIGEST,)),
    "the events": (said("UPDATE response SET events = 99 WHERE id = :id"), ("log: it holds",)),
    "the size": (said("UPDATE response SET size = 9 WHERE id = :id"), ("log: it holds",)),
    "the number of a block": (
        said("UPDATE block SET number = number + 1000 WHERE response = :id"),
        ("log: events or blocks are missing",),
    ),
    "no log": (
        said("DELETE FROM block WHERE response = :id"),
        (DIGEST, "log: it holds 0 events;", "log: it holds 0 bytes;"),
    ),
    "the record": (
        replaced("answer", "record", b'"name":"weather"', b'"name":"weathes"'),
        ("record: calls differs from the log",),
    ),
    "no record": (
        said("UPDATE answer SET record = NULL WHERE response = :id"), ("record: it cannot be read",)
    ),
    "the body": (replaced("answer", "body", b"weather", b"weathes"), ("body: ",)),
    "no body": (said("UPDATE answer SET body = NULL WHERE response = :id"), ("body: ",)),
    "the status": (
        said("UPDATE response SET status = 'failed' WHERE id = :id"), ("status: it is failed;",)
    ),
    "the input": (
        said("UPDATE asked SET input = x'7B' WHERE response = :id"),
        ("input: it is not a list of items",),
    ),
    "a blank in the input": (
        said("UPDATE asked SET input = CAST(input || ' ' AS BLOB) WHERE response = :id"), CHECKSUM
    ),
    "a byte of the request": (replaced("asked", "request", b"tools", b"tomls"), CHECKSUM),
    "what no dialect tells": (replaced("answer", "record", b'"choice":0', b'"choice":1'), CHECKSUM),
    "the checksum": (replaced("answer", "record", b'"checksum":"', b'"chessmen":"'), CHECKSUM),
    "when it began": (said("UPDATE response SET created = created + 9 WHERE id = :id"), CHECKSUM),
    "when it ended": (said("UPDATE response SET ended = ended + 9 WHERE id = :id"), CHECKSUM),
    "whose it is": (said("UPDATE response SET owner = 'eve' WHERE id = :id"), CHECKSUM),
    "that it may be read": (
        said("UPDATE response SET visible = NOT visible WHERE id = :id"), CHECKSUM
    ),
    "how it was asked": (said("UPDATE response SET stream = NOT stream WHERE id = :id"), CHECKSUM),
    "what it cost": (said("UPDATE response SET cost = 7 WHERE id = :id"), CHECKSUM),
    "its dialect": (
        said("UPDATE response SET dialect = 'klingon' WHERE id = :id"),
        ("dialect: 'klingon' is unknown",),
    ),
    "that its log was removed": (
        said("UPDATE response SET pruned = TRUE WHERE id = :id"),
        ("log: it is marked as removed, but exists",),
    ),
    "what it goes on from": (
        said(STRANGER, ASKED, "UPDATE response SET previous = 'eve' WHERE id = :id"),
        ("previous: eve is not another response of the same owner",),
    ),
    "what goes on from it": (
        said(STRANGER, ASKED, "UPDATE response SET answered = 'eve' WHERE id = :id"),
        ("answered: eve is not another response of the same owner",),
    ),
    "its conversation": (
        said(THEIRS, ITEM, "UPDATE response SET conversation = 'conv_1' WHERE id = :id"),
        ("conversation: conv_1 is another owner's",),
    ),
}  # fmt: skip
"""What is changed, and how the reported differences begin."""


@contextmanager
def part_of(full: tuple[Path, int], folder: Path, where: str) -> Iterator[sqlite3.Connection]:
    """A store of its own that holds some of what the full one does."""
    with sqlite3.connect(full[0] / "weft.db") as source:
        database = sqlite3.connect(folder / "weft.db", isolation_level=None)
        source.backup(database)
    source.close()
    (folder / "weft.toml").write_text(f'[store]\nurl = "sqlite:///{folder}/weft.db"\n')
    database.execute("PRAGMA foreign_keys = ON")
    database.execute(f"DELETE FROM response WHERE NOT ({where})")
    yield database
    database.close()


@pytest.fixture
def few(full: tuple[Path, int], tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A store for each test: a call in every dialect, streamed and not."""
    with part_of(full, tmp_path, "model = 'anthropic-messages/tools'") as database:
        yield database


@pytest.fixture
def failed(full: tuple[Path, int], tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A store for each test: answers in every dialect that failed after some text."""
    with part_of(full, tmp_path, "status = 'failed' AND stream") as database:
        yield database


def verified(folder: Path) -> Result:
    return CliRunner().invoke(main, ["verify", "--config", str(folder / "weft.toml")])


@pytest.mark.parametrize("changed", CORRUPTIONS)
def test_every_change_to_a_stored_response_is_reported(
    few: sqlite3.Connection, tmp_path: Path, changed: str
) -> None:
    change, expected = CORRUPTIONS[changed]
    ids = [id for (id,) in few.execute("SELECT id FROM response").fetchall()]
    for id in ids:
        change(few, id)
    found = verified(tmp_path)
    told = found.stdout.splitlines()
    assert found.exit_code == 1
    assert len(ids) == 8
    assert {line.partition(": ")[0] for line in told} == set(ids)
    missing = [
        (id, words)
        for id in ids
        for words in expected
        if not any(line.startswith(f"{id}: {words}") for line in told)
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"text":"', b'"text":"never told '),
        (b'"items":[', b'"items":[{"type":"text","id":"never","text":"told"},'),
        (b'"items":[{"type":"text"', b'"items":[{"type":"reasoning"'),
    ],
)
def test_the_record_of_a_failed_response_says_what_was_sent(
    failed: sqlite3.Connection, tmp_path: Path, old: bytes, new: bytes
) -> None:
    rows = failed.execute("SELECT id, dialect FROM response").fetchall()
    assert {dialect for _, dialect in rows} == set(CLIENTS)
    assert verified(tmp_path).exit_code == 0
    for id, _ in rows:
        replaced("answer", "record", old, new)(failed, id)
    found = verified(tmp_path)
    told = {id for id, _ in rows if f"{id}: record: " in found.stdout}
    assert (found.exit_code, told) == (1, {id for id, _ in rows})


def test_a_difference_is_one_line_and_counted(few: sqlite3.Connection, tmp_path: Path) -> None:
    ((id,),) = few.execute("SELECT min(id) FROM response").fetchall()
    CORRUPTIONS["the digest"][0](few, id)
    found = verified(tmp_path)
    assert (found.exit_code, found.stdout) == (1, f"{id}: {DIGEST}\n")
    assert found.stderr == (
        "1 difference: 8 compared with their logs, 0 without a log, 0 running\n"
    )


# What cannot be compared


def test_a_pruned_log_is_counted_and_the_checksum_remains(
    few: sqlite3.Connection, tmp_path: Path
) -> None:
    few.execute("UPDATE response SET pruned = TRUE")
    few.execute("DELETE FROM block")
    few.execute("UPDATE response SET digest = 'f00' WHERE dialect = 'openai-chat'")
    few.execute("UPDATE response SET ended = NULL WHERE dialect = 'gemini'")
    found = verified(tmp_path)
    assert found.exit_code == 1
    assert [line.partition(": ")[2] for line in found.stdout.splitlines()] == [*CHECKSUM, *CHECKSUM]
    assert found.stderr == (
        "2 differences: 0 compared with their logs, 6 without a log, 2 running\n"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "no such file"),
        (b"nonsense " * 999, "file is not a database"),
    ],
)
def test_a_store_that_cannot_be_read_is_neither_clean_nor_different(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "weft.db"
    if content is not None:
        path.write_bytes(content)
    (tmp_path / "weft.toml").write_text(f'[store]\nurl = "sqlite:///{path}"\n')
    found = verified(tmp_path)
    assert (found.exit_code, found.stdout) == (2, "")
    assert reason in found.stderr
    assert path.exists() == (content is not None)


def test_settings_that_cannot_be_read_name_no_store(tmp_path: Path) -> None:
    found = verified(tmp_path)
    assert (found.exit_code, found.stdout) == (2, "")


def test_an_invalid_row_makes_the_store_unreadable(few: sqlite3.Connection, tmp_path: Path) -> None:
    few.execute("UPDATE response SET status = 'nonsense'")
    assert verified(tmp_path).exit_code == 2
