"""Chat completions that are stored, through the official client; what is kept, and how long."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion

from tests.gateway_process import Gateway, gateway
from tests.serving import NO_AUTHORITIES
from tests.stores import SWIFT, ending, entry, log
from weft.gateway.sessions import RetentionPolicy, Sessions
from weft.relay.persistence import Persistence
from weft.store.records import Entry
from weft.store.urls import store_from_url

KEYS = {"alice": "key-of-alice-0123456789", "bob": "key-of-bob-0123456789"}
SETTINGS = """
[server.keys]
alice = "key-of-alice-0123456789"
bob = "key-of-bob-0123456789"

[upstreams.chat]
dialect = "openai-chat"
base_url = "demo:fast"

[upstreams.other]
dialect = "anthropic-messages"
base_url = "demo:fast"
"""
_numbers = count(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chat")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Gateway]:
    with gateway(SETTINGS, folder) as running:
        yield running
    assert '"level":"error"' not in running.stderr


def client_of(served: Gateway, name: str) -> openai.OpenAI:
    http = openai.DefaultHttpxClient(verify=NO_AUTHORITIES)
    url = f"{served.url}/v1"
    return openai.OpenAI(base_url=url, api_key=KEYS[name], max_retries=0, http_client=http)


@pytest.fixture
def alice(served: Gateway) -> Iterator[openai.OpenAI]:
    with client_of(served, "alice") as client:
        yield client


@pytest.fixture
def bob(served: Gateway) -> Iterator[openai.OpenAI]:
    with client_of(served, "bob") as client:
        yield client


def made(client: openai.OpenAI, model: str = "other/chat", **more: object) -> ChatCompletion:
    """A completion that is stored; no two questions are alike."""
    found = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": f"question {next(_numbers)}"}],
        store=True,
        **more,  # type: ignore[call-overload]
    )
    assert isinstance(found, ChatCompletion)
    return found


@pytest.mark.parametrize("model", ["chat/chat", "other/chat"])
def test_a_completion_is_retrieved_as_it_was_told(alice: openai.OpenAI, model: str) -> None:
    told = made(alice, model, metadata={"topic": "weaving"})
    found = alice.chat.completions.retrieve(told.id)
    assert found.to_dict() == {**told.to_dict(), "metadata": {"topic": "weaving"}}


@pytest.mark.parametrize("model", ["chat/chat", "other/reasoner"])
def test_a_stream_is_retrieved_as_what_it_adds_up_to(alice: openai.OpenAI, model: str) -> None:
    stream = alice.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": f"question {next(_numbers)}"}],
        store=True,
        stream=True,
    )
    chunks = list(stream)
    said = "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
    found = alice.chat.completions.retrieve(chunks[0].id)
    assert (found.choices[0].message.content, found.choices[0].finish_reason) == (said, "stop")
    assert (found.object, found.model) == ("chat.completion", chunks[0].model)


def test_completions_are_listed_page_by_page_in_both_orders(bob: openai.OpenAI) -> None:
    ids = [made(bob).id for _ in range(5)]
    assert [one.id for one in bob.chat.completions.list(limit=2)] == ids
    assert [one.id for one in bob.chat.completions.list(limit=2, order="desc")] == ids[::-1]
    page = bob.chat.completions.list(limit=2, after=ids[1])
    assert ([one.id for one in page.data], page.has_more) == (ids[2:4], True)


def test_completions_are_found_by_model_and_metadata(alice: openai.OpenAI) -> None:
    first = made(alice, metadata={"loom": "one", "x": "y"}).id
    second = made(alice, "other/tools", metadata={"loom": "one"}).id
    find = alice.chat.completions.list
    assert [one.id for one in find(metadata={"loom": "one"})] == [first, second]
    assert [one.id for one in find(metadata={"loom": "one", "x": "y"})] == [first]
    assert [one.id for one in find(metadata={"loom": "one"}, model="other/tools")] == [second]
    assert [one.id for one in find(model="other/nobody")] == []


def test_metadata_is_replaced_and_stays(alice: openai.OpenAI) -> None:
    told = made(alice, metadata={"a": "b"})
    expected = {**told.to_dict(), "metadata": {"c": "d"}}
    assert alice.chat.completions.update(told.id, metadata={"c": "d"}).to_dict() == expected
    assert alice.chat.completions.retrieve(told.id).to_dict() == expected
    with pytest.raises(openai.BadRequestError, match="17 pairs"):
        alice.chat.completions.update(told.id, metadata={str(one): "" for one in range(17)})
    with pytest.raises(openai.BadRequestError, match="at most 64"):
        alice.chat.completions.update(told.id, metadata={"x" * 65: ""})


def test_the_messages_of_a_completion_are_those_that_were_asked(alice: openai.OpenAI) -> None:
    parts = [{"type": "text", "text": "look"}]
    told = alice.chat.completions.create(
        model="other/chat",
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": parts},  # type: ignore[misc,list-item]
        ],
        store=True,
    )
    nothing: dict[str, object] = {"refusal": None}
    expected: list[dict[str, object]] = [
        {"id": f"{told.id}-0", "role": "system", "content": "Be brief.", "content_parts": None},
        {"id": f"{told.id}-1", "role": "user", "content": None, "content_parts": parts},
    ]
    listed = alice.chat.completions.messages.list
    assert [one.to_dict() for one in listed(told.id, limit=1)] == [
        {**one, **nothing} for one in expected
    ]
    assert [one.id for one in listed(told.id, order="desc")] == [f"{told.id}-1", f"{told.id}-0"]


def test_a_deleted_completion_is_gone(alice: openai.OpenAI) -> None:
    told = made(alice)
    gone = alice.chat.completions.delete(told.id)
    assert gone.to_dict() == {"id": told.id, "object": "chat.completion.deleted", "deleted": True}
    with pytest.raises(openai.NotFoundError):
        alice.chat.completions.retrieve(told.id)


def test_what_is_another_s_is_not_there_in_the_same_words(
    alice: openai.OpenAI, bob: openai.OpenAI
) -> None:
    id = made(alice).id
    one = bob.chat.completions
    asks: tuple[Callable[[str], object], ...] = (
        one.retrieve,
        lambda unknown: one.update(unknown, metadata={}),
        one.delete,
        one.messages.list,
        lambda unknown: one.list(after=unknown),
    )
    for ask in asks:
        told = []
        for unknown in (id, "chatcmpl-unknown"):
            with pytest.raises(openai.APIStatusError) as problem:
                ask(unknown)
            told.append((problem.value.status_code, problem.value.message.replace(unknown, "ID")))
        assert told[0] == told[1]
    assert alice.chat.completions.retrieve(id).id == id
    assert id not in [other.id for other in one.list(limit=100)]


def test_what_was_not_asked_for_is_not_kept(alice: openai.OpenAI, folder: Path) -> None:
    ask = alice.chat.completions.create
    wishes: tuple[dict[str, bool | None], ...] = ({}, {"store": False}, {"store": None})
    for wish in wishes:
        told = ask(
            model="other/chat",
            messages=[{"role": "user", "content": 'say "store"'}],
            store=wish.get("store", openai.omit),
        )
        with pytest.raises(openai.NotFoundError):
            alice.chat.completions.retrieve(told.id)
        assert rows(folder, told.id) == []


def test_a_completion_is_no_response_to_go_on_from(alice: openai.OpenAI) -> None:
    id = made(alice).id
    with pytest.raises(openai.NotFoundError):
        alice.responses.retrieve(id)
    with pytest.raises(openai.APIStatusError, match="not found"):
        alice.responses.create(model="other/chat", input="x", previous_response_id=id)


def test_an_id_that_an_upstream_repeats_is_another_one_the_second_time(
    alice: openai.OpenAI, served: Gateway
) -> None:
    asked = {"model": "chat/chat", "store": True,
             "messages": [{"role": "user", "content": "the same again"}]}  # fmt: skip
    headers = {"Authorization": f"Bearer {KEYS['alice']}"}
    with httpx.Client(base_url=served.url, headers=headers, timeout=60, trust_env=False) as http:
        answers = [http.post("/v1/chat/completions", json=asked) for _ in range(2)]
    told = [one.json() for one in answers]
    assert told[0]["id"] != told[1]["id"]
    assert told[0]["choices"] == told[1]["choices"]
    for one in told:
        assert alice.chat.completions.retrieve(one["id"]).model_dump()["id"] == one["id"]
    assert [one for one in lines(served) if "unstored" in one] == []


def lines(served: Gateway) -> list[dict[str, str]]:
    return [json.loads(line) for line in served.stderr.splitlines() if line]


def rows(folder: Path, id: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(f"file:{folder}/weft.db?mode=ro", uri=True) as database:
        found = database.execute("SELECT id FROM response WHERE id = ?", (id,)).fetchall()
    database.close()
    return found


# How long


def kept_by(policy: RetentionPolicy, folder: Path, wanted: dict[str, bool]) -> dict[str, Entry]:
    """What is left of answers that ended 1, 3 and 5 days ago soon after a server started: these,
    each with whether its log is gone."""
    days = {"resp_1": 1, "resp_3": 3, "resp_5": 5}

    async def play() -> dict[str, Entry]:
        store = store_from_url(f"sqlite:///{folder}/weft.db", SWIFT, "one")
        await store.open()
        for id, age in days.items():
            await store.begin(entry(id))
            for block in log(2):
                store.append(id, block)
            await store.finish(id, ending(log(2), ended=time.time() - 86_400 * age))
        await store.close()
        store = store_from_url(f"sqlite:///{folder}/weft.db", SWIFT)
        sessions = Sessions(Persistence(store), policy=policy)
        await sessions.start([])
        left: dict[str, Entry] = {}
        async with asyncio.timeout(60):
            while {id: one.pruned for id, one in left.items()} != wanted:
                left = {one.id: one for one in await sessions.store.entries()}
        logs = {id: await sessions.store.blocks(id) for id in left}
        await sessions.close()
        assert all(bool(logs[id]) != one.pruned for id, one in left.items())
        return left

    return asyncio.run(play())


@pytest.mark.parametrize(
    ("retention", "log_retention", "left"),
    [
        (0, 0, {"resp_1": False, "resp_3": False, "resp_5": False}),
        (4, 0, {"resp_1": False, "resp_3": False}),
        (0, 2, {"resp_1": False, "resp_3": True, "resp_5": True}),
        (4, 2, {"resp_1": False, "resp_3": True}),
    ],
)
def test_what_is_older_than_that_is_removed_when_a_server_starts(
    tmp_path: Path, retention: float, log_retention: float, left: dict[str, bool]
) -> None:
    policy = RetentionPolicy(retention=retention * 86_400, log_retention=log_retention * 86_400)
    found = kept_by(policy, tmp_path, left)
    expected = ending(log(2))
    told = {(one.digest, one.events, one.size) for one in found.values()}
    assert told == {(expected.digest, expected.events, expected.size)}
