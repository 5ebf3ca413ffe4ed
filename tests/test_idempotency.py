"""`Idempotency-Key` on background responses: a request that is sent again is run once."""

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.faults.upstream import Hold, Upstream, stream, upstream
from tests.faults.wires import CHAT, SPEECHES
from tests.faults.world import PATIENT, World, place, world
from tests.serving import NO_AUTHORITIES

KEYS = ("a-key-of-alice-with-letters", "a-key-of-bob-with-letters")


@pytest.fixture(scope="module")
def behind() -> Iterator[Upstream]:
    with upstream() as made:
        yield made


@pytest.fixture(scope="module")
def server(behind: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    keys = f'[server.keys]\nalice = "{KEYS[0]}"\nbob = "{KEYS[1]}"\n'
    settings = keys + place("chat", CHAT, behind.url, **PATIENT)
    with world(settings, tmp_path_factory.mktemp("repeated"), behind) as made:
        yield made


def ask(
    server: World, model: str, key: str | None = "one", who: int = 0, **more: object
) -> httpx.Response:
    headers = {"authorization": f"Bearer {KEYS[who]}"}
    headers |= {} if key is None else {"idempotency-key": key}
    body = {"model": f"chat/{model}", "input": "hello", "background": True, **more}
    url = f"{server.gateway.url}/v1/responses"
    return httpx.post(url, json=body, headers=headers, timeout=60, verify=NO_AUTHORITIES)


def script(server: World) -> str:
    return server.upstream.script(stream(*SPEECHES[CHAT].frames))


def events(answer: httpx.Response) -> list[str]:
    return [line for line in answer.text.splitlines() if line.startswith("data: {")]


def test_the_same_request_again_gets_the_same_response_and_asks_nobody(server: World) -> None:
    model = script(server)
    first = ask(server, model, f"same-{model}", stream=True)
    again = ask(server, model, f"same-{model}", stream=True)
    assert events(again) == events(first)
    assert len(server.upstream.exchanges(model)) == 1


def test_while_the_first_still_runs_both_see_one_stream(server: World) -> None:
    hold, frames = Hold(), stream(*SPEECHES[CHAT].frames)
    model = server.upstream.script((*frames[:2], hold, *frames[2:]))
    first = ask(server, model, f"live-{model}").json()
    hold.here()
    again = ask(server, model, f"live-{model}").json()
    hold.release()
    assert again["id"] == first["id"]
    assert len(server.upstream.exchanges(model)) == 1


def test_a_key_with_another_body_is_refused(server: World) -> None:
    model = script(server)
    assert ask(server, model, f"other-{model}").status_code == 200
    refused = ask(server, model, f"other-{model}", input="something else")
    assert refused.status_code == 409
    assert "Idempotency-Key" in refused.json()["error"]["message"]


def test_the_keys_of_two_clients_are_two(server: World) -> None:
    model = script(server)
    ids = [ask(server, model, f"two-{model}", who).json()["id"] for who in (0, 1)]
    assert len(set(ids)) == 2


@pytest.mark.parametrize("key", ["", "x" * 256, "a b"])
def test_a_key_that_is_none_is_a_bad_request(server: World, key: str) -> None:
    refused = ask(server, script(server), key)
    assert refused.status_code == 400
    assert "Idempotency-Key" in json.dumps(refused.json())


def test_without_a_key_each_request_is_its_own(server: World) -> None:
    model = script(server)
    ids = [ask(server, model, None).json()["id"] for _ in range(2)]
    assert len(set(ids)) == 2
