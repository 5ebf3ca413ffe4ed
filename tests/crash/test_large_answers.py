"""An answer of any size up to the limit is told, stored, fetched, resumed and verified; and what a
killed gateway left of it is ended, while others are served.
"""

import asyncio
import json
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import msgspec
import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import ClientConnection, connect

from tests import weft_command
from tests.crash.large import (
    TEXT,
    LargeUpstream,
    Told,
    asked,
    large_upstream,
    lines_of,
    pieces_in,
    read_event,
    read_stream,
    text_in,
    text_of,
    told_text,
)
from tests.crash.scene import ended
from tests.faults.world import until
from tests.gateway_process import Gateway, gateway
from tests.stores import KINDS, Kind, empty
from weft.assembler import Response
from weft.relay.log import MAX_UNWRITTEN, blocks_of
from weft.sse import Event
from weft.store.records import Entry
from weft.store.urls import store_from_url

CLIENTS = ("openai-responses", "openai-chat", "anthropic-messages", "gemini")
SIZES = [pytest.param(1), *(pytest.param(size, marks=pytest.mark.long) for size in (8, 20, 60))]
PATIENCE = 120.0
EVERY_SIZE = pytest.mark.parametrize("size", SIZES)
EVERY_STORE = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def upstream() -> Iterator[LargeUpstream]:
    with large_upstream() as made:
        yield made


@contextmanager
def serving(upstream: LargeUpstream, store: str, folder: Path) -> Iterator[Gateway]:
    settings = (
        f"[store]\nurl = {json.dumps(store)}\npersist = 'all'\n"
        f"[upstreams.large]\ndialect = 'openai-chat'\nbase_url = '{upstream.url}'\n"
        "api_key = 'sk-of-nobody-at-all'\nretry = { attempts = 1 }\n"
    )
    with gateway(settings, folder) as running:
        yield running
    assert '"level":"error"' not in running.stderr


def streamed(url: str, client: str, model: str) -> Told:
    path, body = asked(client, model, stream=True)
    with httpx.stream("POST", url + path, json=body, timeout=PATIENCE) as answer:
        assert answer.status_code == 200, answer.read()
        return read_stream(client, lines_of(answer))


def verified(folder: Path) -> str:
    """What `weft verify` says: all that is stored is as it was streamed."""
    done = weft_command.run("verify", "--config", "weft.toml", folder=folder)
    assert done.code == 0, done.out[-2000:] + done.err[-2000:]
    return done.out


# Two dialects are enough for every day: those whose answers can be fetched again.
@pytest.mark.parametrize(
    "client", [*CLIENTS[:2], *(pytest.param(one, marks=pytest.mark.long) for one in CLIENTS[2:])]
)
@EVERY_SIZE
def test_a_response_of_any_size_is_sent_and_stored(
    size: int, client: str, upstream: LargeUpstream, tmp_path: Path
) -> None:
    wanted, model = told_text(text_in(str(size))), f"large/{size}"
    with serving(upstream, empty("sqlite", tmp_path), tmp_path) as running:
        told = streamed(running.url, client, model)
        assert told.text == wanted
        path, body = asked(client, model, stream=False)
        whole = httpx.post(running.url + path, json=body, timeout=PATIENCE)
        assert whole.status_code == 200, whole.text[:1000]
        assert told_text(text_of(client, whole.json())) == wanted
        if client == "openai-responses":
            assert told_text(told.snapshot) == wanted
            _check_stored(running.url, told.id, wanted)
            _check_stored(running.url, whole.json()["id"], wanted)
        elif client == "openai-chat":
            found = httpx.get(f"{running.url}/v1/chat/completions/{told.id}", timeout=PATIENCE)
            assert told_text(text_of(client, found.json())) == wanted
    verified(tmp_path)


def _check_stored(url: str, id: str, wanted: tuple[int, str]) -> None:
    """A stored response is retrieved, and resumed from its first event."""
    path = f"{url}/v1/responses/{id}"
    found = httpx.get(path, timeout=PATIENCE).json()
    assert (found["status"], told_text(text_of("openai-responses", found))) == ("completed", wanted)
    with httpx.stream("GET", path, params={"stream": "true"}, timeout=PATIENCE) as answer:
        again = read_stream("openai-responses", lines_of(answer))
    assert (again.text, again.last["status"]) == (wanted, "completed")


@EVERY_SIZE
def test_a_response_of_any_size_is_sent_over_a_websocket(
    size: int, upstream: LargeUpstream, tmp_path: Path
) -> None:
    with serving(upstream, empty("sqlite", tmp_path), tmp_path) as running:
        told = Told()
        with _socket(running) as socket:
            socket.send(_create(f"large/{size}"))
            while told.last.get("status") not in ("completed", "failed"):
                read_event(told, "openai-responses", json.loads(socket.recv(PATIENCE)))
        wanted = told_text(text_in(str(size)))
        assert (told.last["status"], told.text, told_text(told.snapshot)) == (
            "completed", wanted, wanted,
        )  # fmt: skip
        _check_stored(running.url, told.id, wanted)
    verified(tmp_path)


def _socket(running: Gateway) -> ClientConnection:
    address = running.url.replace("http", "ws", 1) + "/v1/responses"
    return connect(address, max_size=None, open_timeout=PATIENCE, ping_timeout=None)


def _create(model: str) -> str:
    return json.dumps({"type": "response.create", "model": model, "input": "Tell me."})


@pytest.mark.long
@pytest.mark.parametrize("client", CLIENTS[:2])
def test_responses_do_not_stay_in_memory(
    client: str, upstream: LargeUpstream, tmp_path: Path
) -> None:
    """Not even until the garbage collector runs, which large values do not cause to run. A response
    is retrieved as a stream; or it comes again and again under an id that is taken."""
    path, body = asked(client, "large/8", stream=False)
    with serving(upstream, empty("sqlite", tmp_path), tmp_path) as running:
        told = httpx.post(running.url + path, json=body, timeout=PATIENCE)
        stored = f"{running.url}/v1/responses/{told.json()['id']}?stream=true"
        resident = []
        for _ in range(12):
            if client == "openai-responses":
                httpx.get(stored, timeout=PATIENCE).read()
            else:
                httpx.post(running.url + path, json=body, timeout=PATIENCE).read()
            status = Path(f"/proc/{running.pid}/status").read_text(encoding="utf-8")
            resident.append(int(status.partition("VmRSS:")[2].split()[0]) * 1024)
    assert resident[-1] - resident[1] < 8 * len(told.content), resident


@EVERY_STORE
@EVERY_SIZE
def test_a_killed_response_of_any_size_is_ended(
    size: int, kind: Kind, upstream: LargeUpstream, tmp_path: Path
) -> None:
    store, model = empty(kind, tmp_path), f"large/{size}-held"
    whole = len(text_in(model).encode())
    with serving(upstream, store, tmp_path) as first:
        told = _killed(first, "openai-responses", model)
    with serving(upstream, store, tmp_path) as second:
        assert streamed(second.url, "openai-chat", "large/0").text == told_text(text_in("0"))
        found = ended(second, told.id, PATIENCE)
        assert found["status"] == "failed"
        text = text_of("openai-responses", found)
        assert text_in(model).startswith(text)
        lost = whole - len(text.encode())
        assert lost <= MAX_UNWRITTEN + len(TEXT.encode()), (
            "more was told than may wait to be stored"
        )
    verified(tmp_path)


def _killed(running: Gateway, client: str, model: str) -> Told:
    """Kills a gateway when its client has all of the text, but no end; returns what it has."""
    told, whole = Told(), len(text_in(model).encode())
    path, body = asked(client, model, stream=True)
    with httpx.stream("POST", running.url + path, json=body, timeout=PATIENCE) as answer:
        for line in lines_of(answer):
            if line.startswith("data: "):
                read_event(told, client, json.loads(line[6:]))
            if told.size == whole:
                break
        _kill(running)
    return told


def _kill(running: Gateway) -> None:
    os.kill(running.pid, signal.SIGKILL)
    running.process.wait()


@pytest.mark.long
@pytest.mark.parametrize("client", CLIENTS[1:])
@EVERY_SIZE
def test_a_killed_response_of_any_dialect_is_ended(
    size: int, client: str, upstream: LargeUpstream, tmp_path: Path
) -> None:
    store, model = empty("sqlite", tmp_path), f"large/{size}-held"
    with serving(upstream, store, tmp_path) as first:
        _killed(first, client, model)
    [entry] = _recovered(upstream, store, tmp_path)
    _check_lost(entry, model)


@pytest.mark.long
@EVERY_SIZE
def test_a_response_killed_on_its_way_over_a_websocket_is_ended(
    size: int, upstream: LargeUpstream, tmp_path: Path
) -> None:
    store, model = empty("sqlite", tmp_path), f"large/{size}-held"
    told, whole = Told(), len(text_in(model).encode())
    with serving(upstream, store, tmp_path) as first, _socket(first) as socket:
        socket.send(_create(model))
        while told.size < whole:
            read_event(told, "openai-responses", json.loads(socket.recv(PATIENCE)))
        _kill(first)
        with pytest.raises(ConnectionClosedError):
            socket.recv(PATIENCE)
    [entry] = _recovered(upstream, store, tmp_path)
    assert entry.id == told.id
    _check_lost(entry, model)


@pytest.mark.long
@pytest.mark.parametrize("client", CLIENTS)
@EVERY_SIZE
def test_a_body_killed_on_its_way_here_is_ended(
    size: int, client: str, upstream: LargeUpstream, tmp_path: Path
) -> None:
    """The gateway has nearly all of its upstream's body, and the client has nothing."""
    store, model = empty("sqlite", tmp_path), f"large/{size}-held"
    path, body = asked(client, model, stream=False)
    with serving(upstream, store, tmp_path) as first, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(httpx.post, first.url + path, json=body, timeout=PATIENCE)
        assert upstream.held.acquire(timeout=PATIENCE)
        _kill(first)
        with pytest.raises(httpx.TransportError):
            asking.result()
    # Nothing was told, and nothing need be stored; but what is must have an end.
    assert {entry.status for entry in _recovered(upstream, store, tmp_path)} <= {"failed"}


@pytest.mark.long
@pytest.mark.parametrize("client", CLIENTS)
@EVERY_SIZE
def test_a_body_killed_on_its_way_to_the_client_is_stored(
    size: int, client: str, upstream: LargeUpstream, tmp_path: Path
) -> None:
    """A client that has the first byte of a body knows that the response was completed."""
    store, model = empty("sqlite", tmp_path), f"large/{size}"
    path, body = asked(client, model, stream=False)
    with (
        serving(upstream, store, tmp_path) as first,
        httpx.stream("POST", first.url + path, json=body, timeout=PATIENCE) as answer,
    ):
        assert answer.status_code == 200
        next(answer.iter_raw(1))
        _kill(first)
    [entry] = _recovered(upstream, store, tmp_path)
    assert (entry.status, told_text(_text_in(entry))) == ("completed", told_text(text_in(model)))


def _recovered(upstream: LargeUpstream, store: str, folder: Path) -> list[Entry]:
    """What a killed gateway left in a store, as soon as another one has ended it; verified."""
    with serving(upstream, store, folder):
        until(lambda: not _running(store), "all to have an end", PATIENCE)
    verified(folder)
    return asyncio.run(_stored(store))


def _running(store: str) -> bool:
    """Whether a response of a SQLite file has no end. Without its text, which is long."""
    with closing(sqlite3.connect(store.removeprefix("sqlite:///"))) as connection:
        query = "SELECT EXISTS (SELECT 1 FROM response WHERE ended IS NULL)"
        return bool(connection.execute(query).fetchone()[0])


def _check_lost(entry: Entry, model: str) -> None:
    assert entry.status == "failed"
    text = _text_in(entry)
    assert text_in(model).startswith(text)
    lost = len(text_in(model).encode()) - len(text.encode())
    assert lost <= MAX_UNWRITTEN + len(TEXT.encode()), "more was told than may wait to be stored"


def _text_in(entry: Entry) -> str:
    return msgspec.json.decode(entry.record or b"", type=Response).text


async def _stored(url: str) -> list[Entry]:
    """The responses in a store. Not over HTTP: clients of most dialects cannot retrieve them."""
    store = store_from_url(url, server="a reader")
    await store.open()
    try:
        return await store.newest("")
    finally:
        await store.close()


ORPHANS = {0: 986, 1: 10, 8: 2, 20: 1, 60: 1}
"""How many there are of each size, in megabytes."""


async def leave_orphans(url: str) -> list[str]:
    """Stores what a gateway leaves that was killed: responses that run, and their logs so far."""
    store = store_from_url(url, server="dead")
    await store.open()
    ids: list[str] = []
    for size, count in ORPHANS.items():
        for number in range(count):
            id = f"resp_{size}_{number}"
            entry = Entry(
                id=id, dialect="openai-responses", model="large/0", status="in_progress",
                created=time.time(), stream=True, server="dead",
                request=b'{"model":"large/0","input":"Tell me.","stream":true}',
            )  # fmt: skip
            await store.begin(entry)
            for block in blocks_of(0, 0, _events(id, size)):
                store.append(id, block)
                await store.wait_for_room(id)
            ids.append(id)
    await store.flush(ids[-1])
    await store.close()
    return ids


def _events(id: str, size: int) -> list[Event]:
    """The log of a response that was cut in its text."""
    snapshot = {"id": id, "object": "response", "created_at": 1, "status": "in_progress",
                "model": "large/0", "output": []}  # fmt: skip
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress"}
    part = {"type": "output_text", "text": "", "annotations": []}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    told: list[tuple[str, dict[str, object]]] = [
        ("response.created", {"response": snapshot}),
        ("response.in_progress", {"response": snapshot}),
        ("response.output_item.added", {"output_index": 0, "item": {**item, "content": []}}),
        ("response.content_part.added", {**place, "part": part}),
    ]
    delta = {**place, "delta": TEXT, "logprobs": []}
    told += [("response.output_text.delta", delta)] * pieces_in(str(size))
    return [
        Event(name, json.dumps({"type": name, "sequence_number": at, **fields}).encode(), at)
        for at, (name, fields) in enumerate(told)
    ]


@contextmanager
def ready_soon(
    upstream: LargeUpstream, store: str, folder: Path, seconds: float
) -> Iterator[Gateway]:
    """A gateway that was ready within so many seconds. If the machine had other things to do, it is
    started once more, and most of what was left is still there: to end all of it takes longer."""
    for is_last in (False, False, True):
        started = time.monotonic()
        with serving(upstream, store, folder) as running:
            is_soon = time.monotonic() - started < seconds
            assert is_soon or not is_last
            if is_soon:
                yield running
                return


@pytest.mark.long
@EVERY_STORE
def test_a_gateway_with_a_thousand_orphans_is_ready_as_soon_as_one_without(
    kind: Kind, upstream: LargeUpstream, tmp_path: Path
) -> None:
    store = empty(kind, tmp_path)
    started = time.monotonic()
    with serving(upstream, store, tmp_path):
        alone = time.monotonic() - started
    ids = asyncio.run(leave_orphans(store))
    with ready_soon(upstream, store, tmp_path, alone + 2.0) as running:
        waited: list[float] = []
        for number, id in enumerate(reversed(ids)):  # the largest first
            # One after the other: on a slow machine that is busy, the last is ended after minutes.
            found = ended(running, id, 4 * PATIENCE)
            assert found["status"] == "failed"
            if number % 50:
                continue
            asking = time.monotonic()
            assert streamed(running.url, "openai-chat", "large/0").text == told_text(text_in("0"))
            waited.append(time.monotonic() - asking)
        assert sorted(waited)[len(waited) // 2] < 1.0
    verified(tmp_path)
