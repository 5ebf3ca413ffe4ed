"""PostgreSQL killed under load: all of its processes at once, with SIGKILL, round after round.

One gateway serves many small responses meanwhile. Whatever a client is told, the store agrees; no
client is left without an end; and as soon as the database is back, the gateway goes on by itself.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import httpx
import pytest

from tests.crash.scene import Database, Object, Scene, get
from tests.crash.test_large_answers import verified
from tests.faults.upstream import LAST, STREAM, Hold, Step, Upstream, chunk
from tests.faults.wires import (
    CHAT,
    MESSAGES,
    RESPONSES,
    body_of,
    error_ending,
    error_seen,
    event,
    frames_of,
    has_good_end,
    path_of,
)
from tests.faults.world import World, until
from tests.gateway_process import Gateway
from tests.killed_postgres import PostgresProcesses, postgres_processes
from weft.gateway.sessions import RENEWALS_PER_LEASE
from weft.store.records import Entry
from weft.store.urls import STATEMENT_TIMEOUT
from weft.store.writer import WritePolicy

LEASE = 4.0
"""Seconds. It expires while the database is away, and many ask for it at once."""

LOOKS = LEASE / RENEWALS_PER_LEASE
"""Seconds between two renewals of the lease, and between two looks for what has to be ended."""

LIMIT = WritePolicy().timeout
"""Seconds that a write waits for the database; twice as long if its outcome is not known."""

NOTICED = LIMIT + LOOKS
"""Seconds after which `/ready` says that the database is away: a renewal has failed by then."""

RECOVERED = WritePolicy().max_retry + STATEMENT_TIMEOUT
"""Seconds after which everything works again: the longest pause between two attempts, and an
attempt that was under way when the database came back."""

BUSY = 5.0
"""How many times longer all of that may take where other tests run, too."""

TOLD = 3 * 2 * LIMIT
"""Seconds after which everybody was told an error. A request may wait for the renewal of the lease
that is under way, and for another one; a client may have to wait for two requests, since it asked
the first one a moment too early. The third is to spare."""

NO_HANG = 3 * 2 * LIMIT
"""Seconds without an answer after which a client calls it a hang. A response waits for the lease,
for its beginning and for its end."""

AWAY = NOTICED * BUSY + TOLD
"""Seconds that the database is away, at most. No background response ends meanwhile."""

BACKGROUND = (RESPONSES, "background")
CLIENTS = (
    (RESPONSES, "streamed"),
    (RESPONSES, "whole"),
    BACKGROUND,
    (CHAT, "streamed"),
    (CHAT, "whole"),
    (MESSAGES, "streamed"),
    (MESSAGES, "whole"),
)
BETWEEN = 40
"""Responses between two kills, at least."""


# Clients


@dataclass(frozen=True)
class Told:
    """What a client was told of one response."""

    client: tuple[str, str]
    model: str
    """That of no other request."""

    asked: float
    """When it asked (time.monotonic)."""

    id: str = ""
    text: str | None = None
    """All of it, if the client was told that the response is completed."""


class Load:
    """Clients of one gateway, each of which asks one request after the other."""

    def __init__(self, running: Gateway, upstream: Upstream) -> None:
        self.told: list[Told] = []
        self.refused: set[tuple[str, str]] = set()
        """Which of them got an error."""
        self._upstream = upstream
        self._numbers = count(1)
        self._stop = threading.Event()
        self._http = httpx.Client(
            base_url=running.url,
            timeout=NO_HANG,
            trust_env=False,
            limits=httpx.Limits(max_connections=None),
        )
        self._pool = ThreadPoolExecutor(8 * len(CLIENTS))
        self._asking = [self._pool.submit(self._ask_on, *one) for one in CLIENTS]

    def wait(self, true: Callable[[], bool], what: str, patience: float = NO_HANG) -> None:
        """Waits for something; raises what goes wrong in a client meanwhile."""

        def now() -> bool:
            self._check()
            return true()

        until(now, what, patience, 0.05)

    def _check(self) -> None:
        for one in self._asking:
            if one.done():
                one.result()

    def close(self) -> None:
        """Returns when all clients have their last answer."""
        self._stop.set()
        self._pool.shutdown()
        self._http.close()
        self._check()

    def completed(self, since: float) -> set[tuple[str, str]]:
        """The clients that asked since then and got a whole response."""
        return {one.client for one in self.told if one.asked > since and one.text is not None}

    def failed(self, since: float) -> list[Told]:
        return [one for one in self.told if one.asked > since and one.text is None]

    def refused_since(self, asked: float) -> set[tuple[str, str]]:
        """The clients that asked since then and got an error. Who waits for a background response
        need not ask for another one."""
        return {one.client for one in self.failed(asked)} | (self.refused & {BACKGROUND})

    def hold(self, dialect: str, mode: str) -> Hold:
        """One more request. Its upstream stops after the first word, and goes on when it is let
        go."""
        hold = Hold()
        self._asking.append(self._pool.submit(self._ask, dialect, mode, hold))
        hold.here()
        return hold

    def _ask_on(self, dialect: str, mode: str) -> None:
        while not self._stop.is_set():
            self._ask(dialect, mode)

    def _ask(self, dialect: str, mode: str, *holds: Hold) -> None:
        number, asked = next(self._numbers), time.monotonic()
        words = ("Answer ", f"{number} ", "of ", "many.")
        model = f"chat/{self._upstream.script(_script(f'chatcmpl-{number}', words, holds))}"
        more: Object = {"store": True} if dialect == CHAT else {}
        more |= {"background": True} if mode == "background" else {}
        stream = mode == "streamed"
        answer = self._http.post(
            path_of(dialect, "", stream),
            content=body_of(dialect, model, stream, **more),
            headers={"content-type": "application/json"},
        )
        id, text = "", None
        if answer.status_code != 200:
            error_seen(dialect, answer.content)
        elif stream:
            id, text = _read_stream(dialect, answer.content)
        elif mode == "background":
            id = str(answer.json()["id"])
            text = self._awaited(id)
        else:
            id, text = str(answer.json()["id"]), _text_in(dialect, answer.json())
        assert text in (None, "".join(words))
        if text is None:
            self.refused.add((dialect, mode))
        self.told.append(Told((dialect, mode), model, asked, id, text))

    def _awaited(self, id: str) -> str | None:
        """The text of a background response; None if it has failed."""
        body: Object = {}

        def over() -> bool:
            nonlocal body
            found = self._http.get(f"/v1/responses/{id}")
            if found.status_code != 200:
                assert found.status_code >= 500, found.text
                error_seen(RESPONSES, found.content)
                self.refused.add(BACKGROUND)
                return False
            body = found.json()
            return body["status"] not in ("queued", "in_progress")

        until(over, f"the end of {id}", AWAY + NO_HANG, 0.02)
        return _text_in(RESPONSES, body) if body["status"] == "completed" else None


def _script(id: str, words: Sequence[str], holds: Sequence[Hold]) -> list[Step]:
    """A chat stream, which waits after the first word."""

    def piece(delta: Object, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        about = {"object": "chat.completion.chunk", "created": 1, "model": "m"}
        return chunk(event({"id": id, **about, "choices": [choice]}))

    first, *others = [piece({"content": word}) for word in words]
    return [STREAM, first, *holds, *others, piece({}, "stop"), chunk(b"data: [DONE]\n\n"), LAST]


def _read_stream(dialect: str, body: bytes) -> tuple[str, str | None]:
    """The id and the text of a stream; no text if it ends with an error, as this dialect has it."""
    events = [json.loads(data) for _, data in frames_of(body) if data != b"[DONE]"]
    first = events[0]
    match dialect:
        case "openai-chat":
            id = first.get("id", "")
            deltas = [one["choices"][0]["delta"] for one in events if one.get("choices")]
            texts = [delta.get("content") or "" for delta in deltas]
        case "openai-responses":
            id = first["response"]["id"]
            texts = [one["delta"] for one in events if one["type"] == "response.output_text.delta"]
        case _:
            id = first["message"]["id"] if first["type"] == "message_start" else ""
            texts = [one["delta"]["text"] for one in events if one["type"] == "content_block_delta"]
    if has_good_end(dialect, body):
        return id, "".join(texts)
    error_ending(dialect, body)
    return id, None


def _text_in(dialect: str, body: Object) -> str:
    """The text of a response that was not streamed."""
    match dialect:
        case "openai-chat":
            return str(body["choices"][0]["message"]["content"])
        case "openai-responses":
            return str(body["output"][-1]["content"][0]["text"])
        case _:
            return str(body["content"][0]["text"])


@contextmanager
def under_load(running: Gateway, upstream: Upstream) -> Iterator[Load]:
    load = Load(running, upstream)
    try:
        yield load
    finally:
        load.close()


# What holds afterwards


def check_told(told: Sequence[Told], entries: dict[str, Entry], unknown: set[str]) -> None:
    """Everything that clients were told is what the store has. `unknown` are the models of requests
    that ended when it could not be known whether the end was stored."""
    for one in told:
        if one.text is not None:
            entry = entries[one.id]
            assert (entry.model, entry.status) == (one.model, "completed")
            assert _text_in(one.client[0], json.loads(entry.body or b"{}")) == one.text
    failed = {one.model for one in told if one.text is None}
    stored = [one for one in entries.values() if one.model in failed - unknown]
    assert {one.status for one in stored} <= {"failed"}


def check_retrievable(running: Gateway, told: Sequence[Told]) -> None:
    """Every completed response can be retrieved, with exactly the text that its client got."""
    paths = {RESPONSES: "/v1/responses", CHAT: "/v1/chat/completions"}
    for one in told:
        dialect, _ = one.client
        if one.text is not None and dialect in paths:  # those of Messages cannot be retrieved
            body = get(running, f"{paths[dialect]}/{one.id}").json()
            assert _text_in(dialect, body) == one.text
            assert dialect != RESPONSES or body["status"] == "completed"


def kill_under_load(
    load: Load, postgres: PostgresProcesses, running: Gateway, *, is_long: bool
) -> None:
    """One round: enough load, a kill in its midst, and a return after which all is well. A long one
    lasts until everybody was told about it."""

    def is_ready() -> bool:
        return get(running, "/ready").status_code == 200

    enough = len(load.told) + BETWEEN
    load.wait(lambda: len(load.told) >= enough, "responses")
    holds = [load.hold(*one) for one in CLIENTS]
    with postgres.killed():
        for hold in holds:
            hold.release()
        if is_long:
            load.wait(lambda: not is_ready(), "/ready to say 503", NOTICED * BUSY)
            # The lease has expired by now: those who ask from here on need a new one.
            noticed = time.monotonic()
            load.refused.clear()
            load.wait(lambda: load.refused_since(noticed) == set(CLIENTS), "errors for all", TOLD)
            assert get(running, "/ready").status_code == 503
    back = time.monotonic()
    load.wait(is_ready, "/ready to say 200", RECOVERED * BUSY)
    everybody = "a new response for each client"
    load.wait(lambda: load.completed(back) == set(CLIENTS), everybody, RECOVERED * BUSY)
    assert load.failed(back) == []


@pytest.mark.long
def test_a_database_killed_under_load_changes_nothing_that_clients_were_told(
    staged: Upstream, tmp_path: Path
) -> None:
    with postgres_processes() as postgres:
        database = Database("postgres", tmp_path, postgres.url)
        made = Scene(staged, database, tmp_path, f'lease = {LEASE}\npersist = "all"\n')
        try:
            running = made.start()
            with under_load(running, staged) as load:
                for is_long in (False, True, False):
                    kill_under_load(load, postgres, running, is_long=is_long)
            until(
                lambda: all(one.ended for one in database.audit().values()),
                "the end of all responses",
                (RECOVERED + LOOKS) * BUSY,
                0.1,
            )
            log = World(running, staged).lines
            unknown = {str(one["model"]) for one in log if "not known" in str(one.get("unstored"))}
            check_told(load.told, database.audit(), unknown)
            check_retrievable(running, load.told)
            # Nobody left: an error of the database is not logged as a client's.
            assert [one for one in log if one.get("status") == 499] == []
            verified(tmp_path)
        finally:
            made.close()
