"""Upstreams that repeat the ids of their answers: each answer is stored under an id of its own, and
found by the one that its client was told.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.upstream import LAST, STREAM, Hold, Step, answer, chunk
from tests.faults.wires import CHAT, GEMINI, MESSAGES, RESPONSES, SPEECHES
from tests.framings import data_of
from tests.passing_world import Passing, passing, streamed, terminal

_IDS = {CHAT: "c1", RESPONSES: "resp_1", MESSAGES: "msg_1", GEMINI: "r1"}
STREAMED = pytest.mark.parametrize("stream", [True, False])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Passing]:
    with passing(tmp_path_factory.mktemp("taken")) as made:
        yield made


def said(wire: str, word: str, stream: bool, id: str) -> tuple[Step, ...]:
    """An answer that says this word, under this id."""
    speech = SPEECHES[wire]
    raw = b"".join(speech.frames) if stream else speech.body
    raw = raw.replace(b"Warp ", word.encode()).replace(b"and weft.", b"!")
    raw = raw.replace(f'"{_IDS[wire]}"'.encode(), f'"{id}"'.encode())
    return streamed(raw) if stream else (answer(raw),)


def ids_in(wire: str, raw: bytes, stream: bool) -> list[str]:
    """Every id of the response that a client is told, event by event."""
    data = data_of(raw) if stream else [raw]
    values = [json.loads(one) for one in data if one != b"[DONE]"]
    match wire:
        case "openai-chat":
            return [one["id"] for one in values]
        case "openai-responses":
            inner = values if not stream else [one.get("response") for one in values]
            return [one["id"] for one in inner if one]
        case "anthropic-messages":
            inner = values if not stream else [one.get("message") for one in values]
            return [one["id"] for one in inner if one]
        case _:
            return [one["responseId"] for one in values]


@STREAMED
@pytest.mark.parametrize("wire", _IDS)
def test_an_id_that_is_taken_is_another_one_in_every_event(
    world: Passing, wire: str, stream: bool
) -> None:
    id, words = f"taken-{wire}-{stream}", ("one", "two", "three")
    model = world.model(wire, *(said(wire, word, stream, id) for word in words))
    found: list[str] = []
    for word in words:
        told = world.ask(wire, model, stream=stream).content
        ids = set(ids_in(wire, told, stream))
        assert len(ids) == 1
        assert word.encode() in told
        found += ids
    assert found[0] == id
    assert len(set(found)) == 3


@STREAMED
def test_a_response_is_retrieved_and_gone_on_from_by_the_id_that_was_told(
    world: Passing, stream: bool
) -> None:
    id = f"resp_again_{stream}"
    model = world.model(RESPONSES, *(said(RESPONSES, word, stream, id) for word in ("one", "two")))
    ids = [
        ids_in(RESPONSES, world.ask(RESPONSES, model, stream=stream).content, stream)[0]
        for _ in range(2)
    ]
    for own, word in zip(ids, ("one!", "two!"), strict=True):
        found = world.get(f"/v1/responses/{own}").json()
        assert (found["id"], found["output"][0]["content"][0]["text"]) == (own, word)
        later = world.model(CHAT, said(CHAT, "more", True, f"c-{own}"))
        asked = world.ask(RESPONSES, later, previous_response_id=own)
        assert asked.status_code == 200
        (exchange,) = world.upstream.exchanges(later.partition("/")[2])
        messages = json.loads(exchange.body)["messages"]
        assert [one["content"] for one in messages if one["role"] == "assistant"] == [word]


@STREAMED
def test_a_completion_is_retrieved_by_the_id_that_was_told(world: Passing, stream: bool) -> None:
    id = f"chatcmpl-{stream}"
    model = world.model(CHAT, *(said(CHAT, word, stream, id) for word in ("one", "two")))
    for word in ("one!", "two!"):
        told = world.ask(CHAT, model, stream=stream, store=True).content
        own = ids_in(CHAT, told, stream)[0]
        found = world.get(f"/v1/chat/completions/{own}").json()
        assert (found["id"], found["choices"][0]["message"]["content"]) == (own, word)


@STREAMED
def test_another_key_finds_its_own_answer_and_no_other(world: Passing, stream: bool) -> None:
    id = f"resp_of_another_{stream}"
    model = world.model(RESPONSES, *(said(RESPONSES, word, stream, id) for word in ("one", "two")))
    ids = {
        key: ids_in(RESPONSES, world.ask(RESPONSES, model, stream=stream, key=key).content, stream)[
            0
        ]
        for key in ("one", "two")
    }
    for key, other in (("one", "two"), ("two", "one")):
        found = world.get(f"/v1/responses/{ids[key]}", key).json()
        assert found["output"][0]["content"][0]["text"] == f"{key}!"
        assert world.get(f"/v1/responses/{ids[key]}", other).status_code == 404


@pytest.mark.parametrize("wire", _IDS)
def test_two_answers_at_once_have_an_id_each(world: Passing, wire: str) -> None:
    """Both have begun before either ends."""
    holds = [Hold(), Hold()]
    id = f"at-once-{wire}"
    frames = b"".join(SPEECHES[wire].frames)
    frames = frames.replace(f'"{_IDS[wire]}"'.encode(), f'"{id}"'.encode())
    half = len(frames) * 2 // 3
    model = world.model(
        wire,
        *((STREAM, chunk(frames[:half]), hold, chunk(frames[half:]), LAST) for hold in holds),
    )
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(world.ask, wire, model) for _ in holds]
        for hold in holds:
            hold.here()
        for hold in holds:
            hold.release()
        told = [one.result().content for one in asked]
    found = [ids_in(wire, one, True) for one in told]
    assert all(len(set(one)) == 1 for one in found)
    assert sorted(one[0] == id for one in found) == [False, True]
    if wire == RESPONSES:
        for raw in told:
            last = terminal(raw)
            assert world.get(f"/v1/responses/{last['id']}").json() == last
