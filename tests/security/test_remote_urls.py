"""URLs in requests are passed on, or refused: the gateway fetches none."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.upstream import Upstream, answer
from tests.faults.wires import CHAT, DIALECTS, GEMINI, MESSAGES, RESPONSES, SPEECHES, error_seen
from tests.faults.world import World, places, world
from weft.errors import BadRequest
from weft.gateway.remote_urls import refuse_urls


@pytest.fixture(scope="module")
def strict(behind: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    settings = '[server]\nremote_urls = "refuse"\n' + places(behind.url)
    with world(settings, tmp_path_factory.mktemp("strict"), behind) as made:
        yield made


def with_image(client: str, url: str) -> dict[str, object]:
    """The field of a request that holds an image."""
    match client:
        case "openai-chat":
            content: object = [{"type": "image_url", "image_url": {"url": url}}]
            return {"messages": [{"role": "user", "content": content}]}
        case "openai-responses":
            content = [{"type": "input_image", "image_url": url, "detail": "auto"}]
            return {"input": [{"role": "user", "content": content}]}
        case "anthropic-messages":
            content = [{"type": "image", "source": {"type": "url", "url": url}}]
            return {"messages": [{"role": "user", "content": content}]}
        case _:
            part = {"fileData": {"mimeType": "image/png", "fileUri": url}}
            return {"contents": [{"role": "user", "parts": [part]}]}


@pytest.mark.parametrize("client", DIALECTS)
def test_a_url_is_passed_on_and_never_fetched(
    unlocked: World, behind: Upstream, client: str
) -> None:
    canary = behind.script([answer(b"a picture")])
    url = f"{behind.url}/v1beta/models/{canary}:generateContent"
    for served in DIALECTS:
        model = unlocked.upstream.script([answer(SPEECHES[served].body)])
        found = unlocked.ask(client, f"{served}/{model}", False, **with_image(client, url))
        assert found.status in (200, 400), found
        if client == served:
            (exchange,) = unlocked.upstream.exchanges(model)
            assert url in json.dumps(json.loads(exchange.body))
    assert behind.exchanges(canary) == []


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("url", ["http://169.254.169.254/x", "HTTPS://[::1]/", "file:///etc/passwd",
                                 "gs://bucket/x", "//evil.example/x"])  # fmt: skip
def test_a_url_is_refused_if_the_settings_say_so(strict: World, client: str, url: str) -> None:
    model = strict.upstream.script([answer(SPEECHES[client].body)])
    found = strict.ask(client, f"{client}/{model}", False, **with_image(client, url))
    assert found.status == 400
    assert "refused by this server" in error_seen(client, found.body).message
    assert "169.254" not in error_seen(client, found.body).message
    assert strict.upstream.exchanges(model) == []


@pytest.mark.parametrize("client", DIALECTS)
def test_data_and_texts_are_no_urls(strict: World, client: str) -> None:
    model = strict.upstream.script([answer(SPEECHES[client].body)])
    assert strict.ask(client, f"{client}/{model}", False).status == 200
    if client in (CHAT, RESPONSES):
        image = with_image(client, "data:image/png;base64,iVBORw0KGgo=")
        assert strict.ask(client, f"{client}/{model}", False, **image).status == 200
    if client == MESSAGES:
        schema = {"type": "object", "properties": {"url": {"type": "string"}}}
        tools = [{"name": "fetch", "input_schema": {**schema, "url": "https://x"}}]
        call = {"type": "tool_use", "id": "t1", "name": "fetch", "input": {"url": "https://x"}}
        result = {"type": "tool_result", "tool_use_id": "t1", "content": "see https://x"}
        messages = [
            {"role": "user", "content": "open https://x"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
        asked = strict.ask(client, f"{client}/{model}", False, messages=messages, tools=tools)
        assert asked.status == 200
    assert GEMINI in DIALECTS


FIELDS = st.sampled_from(["url", "image_url", "file_url", "server_url", "fileUri", "file_uri"])


@given(FIELDS, st.lists(st.sampled_from(["content", "messages", "source", "tools", 0]), max_size=6))
def test_a_url_is_found_wherever_it_stands(field: str, path: list[str | int]) -> None:
    value: object = {field: "https://x.example"}
    for step in reversed(path):
        value = [value] if step == 0 else {str(step): value}
    with pytest.raises(BadRequest) as refused:
        refuse_urls(json.dumps(value).encode())
    assert refused.value.path.endswith(field)
