"""What a client asks and what it is answered is in no log, whoever quotes it."""

import json
from collections.abc import Iterator
from itertools import product

import pytest

from tests.faults.upstream import FIN, STREAM, Step, Upstream, answer, chunk, stream
from tests.faults.wires import (
    CHAT,
    DIALECTS,
    GEMINI,
    RESPONSES,
    SPEECHES,
    body_of,
    error_body,
    event,
    path_of,
    posted,
)
from tests.faults.world import PATIENT, World, place, world

PROMPT = 'a planted prompt, it\'s "secret"'
ESCAPED = json.dumps(PROMPT)[1:-1]


@pytest.fixture(scope="module")
def quoting(behind: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway that logs all it ever logs, with upstreams that quote what they are asked."""
    more: dict[str, object] = {**PATIENT, "breaker": {"failures": 1, "open_for": 0.0}}
    places = "\n".join(place(dialect, dialect, behind.url, **more) for dialect in DIALECTS)
    settings = '[server]\nlog = "debug"\n' + places
    with world(settings, tmp_path_factory.mktemp("quoting"), behind) as made:
        yield made
        made.gateway.stop()
        assert "planted" not in made.gateway.stderr + made.gateway.stdout


def quotes(dialect: str) -> dict[str, list[Step]]:
    """How an upstream tells what it was asked."""
    said = SPEECHES[dialect]
    message = f"The request {PROMPT} was not understood"
    error = said.error.replace(b"too busy", json.dumps(message)[1:-1].encode())
    begun = [STREAM, *map(chunk, said.head + said.content)]
    odd = json.dumps({"detail": [{"loc": ["body", PROMPT], "msg": PROMPT}]}).encode()
    coded = error_body(dialect, message, PROMPT, PROMPT)
    return {
        "400": [answer(error_body(dialect, message, "bad"), "400 Bad Request")],
        "401": [answer(error_body(dialect, message, "auth"), "401 Unauthorized")],
        "500": [answer(error_body(dialect, message, "bad"), "500 No")],
        "503": [answer(error_body(dialect, message, "bad"), "503 Busy")],
        "the code": [answer(coded, "400 Bad Request")],
        "a list": [answer(odd, "422 Unprocessable")],
        "plain text": [answer(PROMPT.encode(), "500 No", "Content-Type: text/plain")],
        "a page": [answer(f"<html>{PROMPT}</html>".encode(), "502 No", "Content-Type: text/html")],
        "an error with status 200": [answer(error_body(dialect, message, "bad"))],
        "the first event": [*stream(error)],
        "an event": [*begun, chunk(error), FIN],
        "a frame that is no JSON": [*begun, chunk(f'data: {{"{PROMPT}\n\n'.encode()), FIN],
        "a frame that is text": [*begun, chunk(f"data: {PROMPT}\n\n".encode()), FIN],
        "a frame that is cut off": [*begun, chunk(f'data: {{"x": "{ESCAPED}'.encode()), FIN],
        "an unknown event": [*begun, chunk(event({"type": PROMPT, "x": PROMPT}, PROMPT)), FIN],
        "ids": [
            STREAM,
            *(chunk(one.replace(b'"index"', b'"i": "%b", "index"' % ESCAPED.encode()))
              for one in said.frames),
            FIN,
        ],
    }  # fmt: skip


@pytest.mark.parametrize("how", quotes(CHAT))
@pytest.mark.parametrize("client", DIALECTS)
def test_what_an_upstream_quotes_is_told_to_its_client_and_not_logged(
    quoting: World, client: str, how: str
) -> None:
    for upstream, streamed in product(DIALECTS, (True, False)):
        model = quoting.upstream.script(quotes(upstream)[how])
        name = f"{upstream}/{model}"
        body = body_of(client, name, streamed).replace(b'"hi"', json.dumps(PROMPT).encode())
        with quoting.client() as connection:
            connection.send(posted(path_of(client, name, streamed), body))
            found = connection.answer()
        if how in ("400", "500"):
            assert b"a planted prompt" in found.body
        (line,) = quoting.logged_model(model)
        assert "planted" not in json.dumps(line)
        if how in ("400", "500"):
            error = line["error"]
            assert isinstance(error, dict)
            assert (line["upstream"], error["status"]) == (upstream, int(how))
            assert error["class"] == ("bad-request" if how == "400" else "server")
            assert str(line["id"]) == found.headers["weft-request-id"]


def test_what_cannot_be_translated_is_not_logged(quoting: World) -> None:
    """The error of our own that says so quotes the request."""
    model = quoting.upstream.script([answer(SPEECHES[GEMINI].body)])
    tool = {"type": "custom", "name": "f", "format": {"type": PROMPT, "syntax": PROMPT}}
    found = quoting.ask(RESPONSES, f"{GEMINI}/{model}", False, tools=[tool], tool_choice=PROMPT)
    assert found.status in (200, 400)
    assert "planted" not in quoting.gateway.stderr
