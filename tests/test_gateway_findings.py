"""What was repaired is told: in a header, in the log, and of what is stored."""

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest

from tests.faults.world import until
from tests.gateway_process import Gateway, gateway
from tests.played import Play, Played
from tests.test_relay_run import World, upstream_config
from tests.test_relay_run import incoming_request as request
from weft.gateway.http_response import weft_headers

SETTINGS = """
[server.keys]
alice = "alice-has-a-key-of-her-own"
bob = "bob-has-another-key-for-him"
[upstreams.demo]
dialect = "openai-chat"
base_url = "demo:fast"
"""
ALICE, BOB = "alice-has-a-key-of-her-own", "bob-has-another-key-for-him"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(SETTINGS, tmp_path_factory.mktemp("findings")) as running:
        yield running


def client(served: Gateway, key: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=served.url, headers=headers, timeout=30, trust_env=False)


def asked(http: httpx.Client, path: str, **more: object) -> httpx.Response:
    body = {"model": "demo/duplicate-calls", **more}
    return http.post(path, json=body)


def streamed(http: httpx.Client, path: str, **more: object) -> str:
    """The id of an answer that was streamed."""
    told = asked(http, path, stream=True, **more)
    first = json.loads(told.text.partition("data: ")[2].partition("\n")[0])
    return str(first.get("response", first)["id"])


def test_repairs_of_a_stored_answer_can_be_asked_for_by_its_owner(served: Gateway) -> None:
    with client(served, ALICE) as alice, client(served, BOB) as bob:
        path = f"/v1/responses/{streamed(alice, '/v1/responses', input='x')}/findings"
        found = alice.get(path).json()
        assert found["object"] == "list"
        (finding,) = found["data"]
        assert finding["code"] == "call-id-repeated"
        assert finding.keys() == {"code", "at", "offset", "detail"}
        assert alice.get("/v1/responses/resp_x/findings").status_code == 404
        assert bob.get(path).status_code == 404


def test_an_answer_that_needed_no_repair_has_none(served: Gateway) -> None:
    with client(served, ALICE) as alice:
        response = asked(alice, "/v1/responses", input="x", model="demo/chat")
        id = response.json()["id"]
        assert alice.get(f"/v1/responses/{id}/findings").json() == {"object": "list", "data": []}
        assert "weft-findings" not in response.headers


def test_findings_of_a_completion_that_was_stored_are_there_too(served: Gateway) -> None:
    with client(served, ALICE) as alice:
        messages = [{"role": "user", "content": "x"}]
        id = streamed(alice, "/v1/chat/completions", messages=messages, store=True)
        codes = [one["code"] for one in alice.get(f"/v1/responses/{id}/findings").json()["data"]]
        assert codes == ["call-id-repeated"]


def test_a_header_counts_what_was_known_before_the_head() -> None:
    """Of a stream, what came with its first content; the same call once more is one finding."""
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a":'}}
    chunks = [
        {"id": "1", "model": "m", "choices": [{"index": 0, "delta": {"tool_calls": [one]}}]}
        for one in (call, call)
    ]
    raw = b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in chunks)

    async def head() -> list[tuple[bytes, bytes]]:
        run = World([Played(upstream_config(), Play([raw]))]).run(
            request("anthropic-messages", top_k=3)
        )
        try:
            await run.open()
            return weft_headers("req_1", run)
        finally:
            await run.close()

    headers = dict(asyncio.run(head()))
    assert headers[b"weft-findings"].startswith(b"warned:top_k,found:call-id-repeated")
    assert headers[b"weft-findings-count"] == b"%d" % len(headers[b"weft-findings"].split(b","))


def test_the_log_names_code_place_and_detail(served: Gateway) -> None:
    with client(served, ALICE) as alice:
        told = asked(alice, "/v1/responses", input="x", stream=True)
    id = told.headers["weft-request-id"]
    until(lambda: id in served.stderr, "its line in the log")
    (line,) = [json.loads(one) for one in served.stderr.splitlines() if id in one]
    (finding,) = line["findings"]
    assert (finding["code"], finding["at"] > 0) == ("call-id-repeated", True)
    assert "its id comes again" in finding["detail"]


@pytest.mark.parametrize("path", ["/", "/api/hello"])
def test_clients_that_look_whether_there_is_a_server_find_one(served: Gateway, path: str) -> None:
    assert httpx.head(served.url + path, trust_env=False).status_code == 200
    assert httpx.get(served.url + path, trust_env=False).status_code == (
        200 if path == "/" else 401  # the page, which needs no key
    )
