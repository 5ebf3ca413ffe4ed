"""A body counts by its objects as well: many small parts take many times their size once they are
parsed."""

import json
from collections.abc import Iterator

import pytest

from tests.faults.test_memory import dialled
from tests.faults.upstream import Upstream, answer
from tests.faults.wires import CHAT, DIALECTS, GEMINI, RESPONSES, SPEECHES, Object
from tests.faults.world import World, places, world
from weft.gateway.memory import ASCII_FACTOR, OBJECT

PARTS = 20_000
LIMIT = PARTS * OBJECT
"""What requests may take, all together."""


@pytest.fixture(scope="module")
def narrow(faulty: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    settings = f"[store]\nenabled = false\n[server.limits]\nmemory = {LIMIT}\n"
    made = tmp_path_factory.mktemp("objects")
    with world(settings + places(faulty.url), made, faulty) as running:
        yield running


def parts(dialect: str, count: int, text: str) -> Object:
    """A message of so many parts."""
    if dialect == GEMINI:
        return {"contents": [{"role": "user", "parts": [{"text": text}] * count}]}
    kind = "input_text" if dialect == RESPONSES else "text"
    message = {"role": "user", "content": [{"type": kind, "text": text}] * count}
    return {"input" if dialect == RESPONSES else "messages": [message]}


@pytest.mark.parametrize("client", DIALECTS)
def test_many_objects_take_the_memory_that_one_text_of_their_size_does_not(
    client: str, narrow: World
) -> None:
    model = f"{CHAT}/{narrow.upstream.script([answer(SPEECHES[CHAT].body)])}"
    many, one = parts(client, PARTS, "a"), parts(client, 1, "a" * (LIMIT // ASCII_FACTOR // 2))
    assert len(json.dumps(many)) < LIMIT // ASCII_FACTOR
    assert [narrow.ask(client, model, False, **more).status for more in (many, one)] == [413, 200]


def test_over_a_websocket_they_do_as_well(narrow: World) -> None:
    model = f"{CHAT}/{narrow.upstream.script([answer(SPEECHES[CHAT].body)])}"
    with dialled(narrow) as socket:
        for count, expected in ((PARTS, "error"), (10, "response.created")):
            create = {"type": "response.create", "model": model, **parts(RESPONSES, count, "a")}
            socket.send(json.dumps({**create, "store": False}))
            event = json.loads(socket.recv())
            assert event["type"] == expected, event
            if expected == "error":
                assert event["status"] == 413
