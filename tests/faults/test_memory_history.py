"""A request that continues earlier turns counts with them, over HTTP and over a WebSocket."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from websockets.sync.connection import Connection

from tests.faults.test_memory import ALLOWANCE, dialled, finished, held, peak
from tests.faults.upstream import STREAM, Hold, Step, Upstream, answer, chunk
from tests.faults.wires import CHAT, RESPONSES, SPEECHES, Object, posted, question
from tests.faults.world import World, places, until, world
from weft.gateway.memory import ASCII_FACTOR
from weft.gateway.sessions import READERS

SIZE = 300_000
"""What requests may take, all together."""

HISTORY = 10_000
"""Characters of a stored turn."""


READ_FACTOR = 10
"""How many times its size a turn takes, at most, while it is read and nothing is reserved for it:
its request and its input, in the library of the database, in rows, and as items."""

WINDOW = 60
"""Seconds that a response goes on without its client."""


def remembering(memory: int, url: str) -> str:
    server = f"[server]\nresume_window = {WINDOW}\n[server.limits]\nmemory = {memory}\n"
    return f'[store]\npersist = "all"\n{server}' + places(url)


@pytest.fixture(scope="module")
def narrow(faulty: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(remembering(SIZE, faulty.url), tmp_path_factory.mktemp("narrow"), faulty) as made:
        yield made


def prompt(made: World) -> str:
    """A model that answers at once."""
    return f"{CHAT}/{made.upstream.script([answer(SPEECHES[CHAT].body)])}"


def pausing(made: World) -> tuple[str, Hold]:
    """A model that pauses in the middle of its answer."""
    said, hold = SPEECHES[CHAT], Hold()
    begun: list[Step] = [STREAM, *map(chunk, said.head + said.content)]
    return f"{CHAT}/{made.upstream.script([*begun, hold, *map(chunk, said.end)])}", hold


def stored(made: World, size: int) -> str:
    """Stores a turn of this size; returns its id."""
    found = made.ask(RESPONSES, prompt(made), False, input="x" * size)
    assert found.status == 200
    return str(json.loads(found.body)["id"])


def conversation(made: World, size: int) -> str:
    """The same as an item of a conversation."""
    item = {"type": "message", "role": "user", "content": "x" * size}
    with made.client() as client:
        client.send(posted("/v1/conversations", json.dumps({"items": [item]}).encode()))
        return str(json.loads(client.answer().body)["id"])


def referenced(made: World, size: int) -> str:
    """The same as an item that can be referenced; returns the id of the item."""
    id = f"msg_{uuid4().hex}"
    item = {"type": "message", "id": id, "role": "user", "content": "x" * size}
    assert made.ask(RESPONSES, prompt(made), False, input=[item]).status == 200
    return id


def after(id: str) -> Object:
    return {"previous_response_id": id}


def within(id: str) -> Object:
    return {"conversation": id}


def about(id: str) -> Object:
    return {"input": [{"type": "item_reference", "id": id}, {"role": "user", "content": "go on"}]}


ways = pytest.mark.parametrize(
    ("keep", "more"),
    [(stored, after), (conversation, within), (referenced, about)],
    ids=["previous", "conversation", "reference"],
)
Keep = Callable[[World, int], str]
More = Callable[[str], Object]


def all_but(size: int) -> int:
    """The size of a body that leaves memory for another one of this size."""
    return SIZE // ASCII_FACTOR - size


def quiet(made: World) -> None:
    until(lambda: made.open == 0, "earlier ones to be over")


def go_on(socket: Connection, model: str, more: Object) -> None:
    asked = {"type": "response.create", "model": model, "input": "go on", **more}
    socket.send(json.dumps(asked))


@ways
def test_over_a_websocket_what_is_continued_counts_until_the_answer_is_over(
    narrow: World, keep: Keep, more: More
) -> None:
    id = keep(narrow, HISTORY)
    quiet(narrow)
    connection, hold = held(narrow, all_but(HISTORY))
    with dialled(narrow) as socket:
        go_on(socket, prompt(narrow), more(id))
        told = json.loads(socket.recv(60))
        assert (told["type"], told["status"]) == ("error", 503)
        assert told["error"]["headers"]["retry-after"] == "1"
        # What continues nothing fits, on the same socket.
        go_on(socket, prompt(narrow), {})
        assert finished(socket).startswith("resp_")
        hold.release()
        connection.close()
        quiet(narrow)
        # Now it fits, and takes the memory that another one would need.
        model, pause = pausing(narrow)
        go_on(socket, model, more(id))
        pause.here()
        size = all_but(HISTORY)
        assert refused(narrow, size)
        pause.release()
        assert finished(socket).startswith("resp_")
        until(lambda: not refused(narrow, size), "the memory to be free")


def refused(made: World, size: int) -> bool:
    body = json.dumps({"model": prompt(made), "messages": [{"role": "user", "content": "hi"}]})
    with made.client() as client:
        client.send(posted("/v1/chat/completions", body.ljust(size).encode()))
        status = client.answer().status
    assert status in (200, 503)
    return status == 503


def test_what_only_the_socket_remembers_counts_as_well(narrow: World) -> None:
    quiet(narrow)
    with dialled(narrow) as socket:
        go_on(socket, prompt(narrow), {"input": "x" * HISTORY, "store": False})
        first = finished(socket)
        # What is remembered takes its size, and six times that when it is continued.
        until(lambda: not refused(narrow, all_but(HISTORY) + 5000), "the message to be answered")
        connection, hold = held(narrow, all_but(HISTORY))
        go_on(socket, prompt(narrow), {**after(first), "store": False})
        told = json.loads(socket.recv(60))
        assert (told["type"], told["status"]) == ("error", 503)
        hold.release()
        connection.close()


def test_a_run_that_outlives_its_socket_takes_memory_until_it_is_over(narrow: World) -> None:
    id = stored(narrow, HISTORY)
    quiet(narrow)
    model, pause = pausing(narrow)
    with dialled(narrow) as socket:
        go_on(socket, model, after(id))
        # Before its first event a response ends with its client.
        assert json.loads(socket.recv(60))["type"] == "response.created"
    size = all_but(HISTORY)
    assert refused(narrow, size)
    pause.release()
    until(lambda: not refused(narrow, size), "the memory to be free")


@ways
@pytest.mark.parametrize(
    "path", ["/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens"]
)
def test_over_http_what_is_continued_counts(
    narrow: World, path: str, keep: Keep, more: More
) -> None:
    id = keep(narrow, HISTORY)
    quiet(narrow)
    body = json.dumps({"model": prompt(narrow), "input": "go on", **more(id)}).encode()

    def status() -> int:
        with narrow.client() as client:
            client.send(posted(path, body))
            return client.answer().status

    connection, hold = held(narrow, all_but(HISTORY))
    assert status() == 503
    hold.release()
    connection.close()
    quiet(narrow)
    # More often than would fit at once: each gives back what it took.
    assert [status() for _ in range(8)] == [200] * 8


def test_what_never_fits_is_too_large(narrow: World) -> None:
    id = stored(narrow, SIZE // ASCII_FACTOR * 2 // 3)
    second = narrow.ask(
        RESPONSES,
        prompt(narrow),
        False,
        input="x" * (SIZE // ASCII_FACTOR // 2),
        previous_response_id=id,
    )
    assert second.status == 413
    with dialled(narrow) as socket:
        go_on(socket, prompt(narrow), {**after(id), "input": "go on"})
        assert finished(socket).startswith("resp_")


@pytest.mark.parametrize("wire", ["http", "websocket"])
@pytest.mark.parametrize(
    ("size", "count", "limit"),
    [
        (4_000_000, 24, 64 * 1024 * 1024),
        pytest.param(15_000_000, 16, 200 * 1024 * 1024, marks=pytest.mark.long),
    ],
)
def test_many_that_continue_a_large_turn_stay_below_the_limit(
    faulty: Upstream, tmp_path: Path, wire: str, size: int, count: int, limit: int
) -> None:
    with world(remembering(limit, faulty.url), tmp_path, faulty) as made:
        first = stored(made, size)
        before = peak(made)
        model, hold = pausing(made)
        outcomes: list[str] = []

        def over_http(stack: ExitStack) -> None:
            client = stack.enter_context(made.client())
            client.socket.settimeout(120)
            client.send(question(RESPONSES, model, True, **after(first)))
            outcomes.append({200: "begun", 503: "refused"}[client.head()[0]])

        def over_websocket(stack: ExitStack) -> None:
            socket = stack.enter_context(dialled(made))
            go_on(socket, model, after(first))
            told = json.loads(socket.recv(120))
            outcomes.append({200: "begun", 503: "refused"}[told.get("status", 200)])

        def work() -> None:
            with ExitStack() as stack:
                stack.callback(over.wait, 120)
                (over_http if wire == "http" else over_websocket)(stack)

        over = threading.Event()
        threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        until(lambda: len(outcomes) == count, "all to be answered", 120)
        grown = peak(made) - before
        over.set()
        hold.release()
        for thread in threads:
            thread.join(120)
        print(wire, size, "before", before >> 20, "grown", grown >> 20, outcomes.count("begun"))
        assert set(outcomes) == {"begun", "refused"}
        assert grown < limit + READERS * READ_FACTOR * size + ALLOWANCE
