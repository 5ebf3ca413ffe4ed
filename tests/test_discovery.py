"""`GET /v1/models` lists what upstreams offer, in the dialect of the client."""

import json
from pathlib import Path
from urllib.request import Request, urlopen

import httpx
import pytest

from tests.gateway_process import gateway
from tests.raw_upstream import SILENCE, answer, raw_upstream

ANTHROPIC = {"anthropic-version": "2023-06-01"}


def ask(url: str, path: str = "/v1/models", **headers: str) -> object:
    with urlopen(Request(url + path, headers=headers), timeout=30) as response:
        return json.load(response)


def test_what_upstreams_list_is_listed_in_each_dialect(tmp_path: Path) -> None:
    chat = json.dumps({"data": [{"id": "m/1"}, {"id": "m/1"}, {"id": "bad\n"}, {"id": 7}]})
    gemini = json.dumps(
        {
            "models": [
                {"name": "models/g", "supportedGenerationMethods": ["generateContent"]},
                {"name": "models/e", "supportedGenerationMethods": ["embedContent"]},
            ]
        }
    )
    bare = json.dumps([{"id": "t"}])
    with (
        raw_upstream((answer(chat.encode()),)) as one,
        raw_upstream((answer(gemini.encode()),)) as two,
        raw_upstream((answer(bare.encode()),)) as three,
        raw_upstream((answer(b"<html>", "404 Not Found"),)) as four,
        raw_upstream() as five,
    ):
        settings = f"""
[upstreams.one]
dialect = "openai-responses"
base_url = "{one.url}/v1"
[upstreams.two]
dialect = "gemini"
base_url = "{two.url}"
[upstreams.three]
dialect = "anthropic-messages"
base_url = "{three.url}"
[upstreams.four]
dialect = "openai-chat"
base_url = "{four.url}"
[upstreams.five]
dialect = "openai-chat"
base_url = "{five.url}"
models = ["listed"]
[models]
alias = "one/m/1"
"""
        names = ["alias", "five/listed", "one/m/1", "two/g", "three/t"]
        with gateway(settings, tmp_path) as server:
            for _ in range(2):
                openai = ask(server.url)
                assert isinstance(openai, dict)
                assert [model["id"] for model in openai["data"]] == names
            anthropic = ask(server.url, **ANTHROPIC)
            assert isinstance(anthropic, dict)
            assert (anthropic["first_id"], anthropic["last_id"]) == ("alias", "three/t")
            google = ask(server.url, "/v1beta/models")
            assert isinstance(google, dict)
            assert [model["name"] for model in google["models"]] == [f"models/{n}" for n in names]
        # Asked once, however often the list was; those with a list of their own, never.
        asked = [
            (upstream.got(1)[0].path, len(upstream.requests)) for upstream in (one, two, three)
        ]
        assert asked == [
            ("/v1/models", 1),
            ("/v1beta/models?pageSize=1000", 1),
            ("/v1/models?limit=1000", 1),
        ]
        assert (len(four.requests), len(five.requests)) == (1, 0)


@pytest.mark.parametrize("script", [(SILENCE,), (answer(b"x" * 9_000_000),), (b"junk\r\n\r\n",)])
def test_an_upstream_that_does_not_list_its_models_holds_up_nobody(
    tmp_path: Path, script: tuple[object, ...]
) -> None:
    with raw_upstream(script) as upstream:  # type: ignore[arg-type]
        text = f'[upstreams.a]\ndialect = "openai-chat"\nbase_url = "{upstream.url}"\n'
        with gateway(text + "[upstreams.demo]\n", tmp_path) as server:
            found = ask(server.url)
    assert isinstance(found, dict)
    assert found["data"][0]["id"] == "demo/chat"


def test_a_key_sees_the_models_that_it_may_use(tmp_path: Path) -> None:
    listing = json.dumps({"data": [{"id": "m"}, {"id": "n"}]}).encode()
    with raw_upstream((answer(listing),)) as one:
        settings = f"""
[server.keys]
all = "the-key-of-everything"
[server.keys.some]
secret = "the-key-of-something"
models = ["*/m", "fast"]
[upstreams.one]
dialect = "openai-chat"
base_url = "{one.url}/v1"
[models]
fast = "one/n"
slow = "one/m"
"""
        with gateway(settings, tmp_path) as server:
            every = ["fast", "slow", "one/m", "one/n"]
            for key, names in (
                ("the-key-of-everything", every),
                ("the-key-of-something", ["fast", "one/m"]),
            ):
                auth = {"authorization": f"Bearer {key}"}
                chat = httpx.get(f"{server.url}/v1/models", headers=auth, timeout=30).json()
                assert [one["id"] for one in chat["data"]] == names
                messages = httpx.get(f"{server.url}/v1/models", headers=auth | ANTHROPIC).json()
                assert [one["id"] for one in messages["data"]] == names
                gemini = httpx.get(f"{server.url}/v1beta/models", headers=auth).json()
                assert [one["name"] for one in gemini["models"]] == [f"models/{n}" for n in names]
                for name in every:
                    found = httpx.get(f"{server.url}/v1/models/{name}", headers=auth)
                    assert found.status_code == (200 if name in names else 403)
                    if name not in names:
                        assert "may not use the model" in found.json()["error"]["message"]


def test_what_a_model_reads_is_listed_where_it_is_known(tmp_path: Path) -> None:
    listing = {
        "data": [
            {"id": "a", "architecture": {"input_modalities": ["text", "image", "file", 7]}},
            {"id": "b", "capabilities": {"vision": True}},
            {"id": "c", "capabilities": {"vision": False}},
            {"id": "d", "architecture": {"input_modalities": "text"}, "capabilities": []},
        ]
    }
    reads = {
        "one/a": ["text", "image", "file"],
        "one/b": ["text", "image"],
        "one/c": ["text"],
        "one/d": None,
        "demo/chat": ["text"],
        # Whichever of them answers.
        "both": ["text", "image"],
        "unclear": None,
    }
    with raw_upstream((answer(json.dumps(listing).encode()),)) as one:
        settings = f"""
[upstreams.one]
dialect = "openai-chat"
base_url = "{one.url}/v1"
[upstreams.demo]
[models]
both = ["one/a", "one/b"]
unclear = ["one/a", "one/d"]
"""
        with gateway(settings, tmp_path) as server:
            found = ask(server.url)
            assert isinstance(found, dict)
            told = {model["id"]: model.get("input_modalities") for model in found["data"]}
            assert {name: told[name] for name in reads} == reads
            single = ask(server.url, "/v1/models/both")
            assert isinstance(single, dict)
            assert single["input_modalities"] == reads["both"]
            assert "input_modalities" not in json.dumps(ask(server.url, **ANTHROPIC))
