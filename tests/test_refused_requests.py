"""What the log and the metrics say of requests that are refused: by the connection before the
application sees them, by the router, and with fields that the target does not have."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.gateway_process import Gateway, gateway
from tests.raw_http import Answer, Client
from tests.tables import each_row

Object = dict[str, Any]

DEMO = '[upstreams.demo]\nbase_url = "demo:fast"\ndialect = "openai-chat"\n'
KEY = "planted-key-that-is-long"
SETTINGS = f"{DEMO}[server.keys]\nalice = '{KEY}'\n"
QUICK = SETTINGS + "[server.limits]\nbody_time = 0.3\nhead_time = 0.3\n"
POST = (
    "POST /v1/chat/completions?a=planted HTTP/1.1\r\nHost: localhost\r\n"
    f"Authorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
).encode()


def sent(server: Gateway, data: bytes) -> list[Answer]:
    """The answers to these bytes on a connection of its own, which the server closes."""
    port = urlsplit(server.url).port
    assert port is not None
    with Client(port) as client:
        client.send(data)
        return client.answers()


def lines(server: Gateway) -> list[Object]:
    return [json.loads(line) for line in server.stderr.splitlines()]


def requests(server: Gateway) -> list[Object]:
    """The lines of requests, also of those that no application saw."""
    return [line for line in lines(server) if "status" in line]


SPOILED: dict[str, tuple[bytes, int, str]] = {
    "a slow body": (b"Content-Length: 300\r\n\r\n{", 408, "POST"),
    "a chunk that is none": (b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n", 400, "POST"),
}


@each_row("case", SPOILED)
def test_a_request_whose_body_is_refused_is_logged_and_counted_as_that(
    case: str, tmp_path: Path
) -> None:
    rest, status, method = SPOILED[case]
    with gateway(QUICK, tmp_path) as server:
        (found,) = sent(server, POST + rest)
        headers = {"authorization": f"Bearer {KEY}"}
        metrics = httpx.get(f"{server.url}/metrics", headers=headers, trust_env=False).text
    assert found.status == status
    (line,) = [one for one in requests(server) if one["path"] != "/metrics"]
    assert (line["status"], line["method"], line["key"]) == (status, method, "alice")
    assert line["path"] == "/v1/chat/completions"
    assert line["id"].startswith("req_")
    assert {**line["error"], "message": ""} == {
        "class": "bad-request",
        "status": status,
        "message": "",
    }
    counted = f'weft_other_requests_total{{error="bad-request",status="{status}"}} 1.0'
    assert counted in metrics
    assert 'status="499"' not in metrics
    assert "planted" not in server.stderr


UNSEEN: dict[str, tuple[bytes, int, Object]] = {
    "a slow head": (
        b"GET /v1/models?a=planted HTTP/1.1\r\nX: planted",
        408,
        {"method": "GET", "path": "/v1/models"},
    ),
    "a URL for a target": (
        b"GET http://planted:planted@a/v1/models?planted#planted HTTP/1.1\r\nHost: b\r\n\r\n",
        400,
        {"method": "GET", "path": "/v1/models"},
    ),
    "a key in the path": (
        f"GET /v1/{KEY} HTTP/1.1\r\n\r\n".encode(),
        400,
        {"method": "GET", "path": "/v1/***"},
    ),
    "a huge header": (
        b"GET /v1/models HTTP/1.1\r\nX: " + b"planted" * 20000,
        431,
        {"method": "GET", "path": "/v1/models"},
    ),
    "many headers": (
        b"PUT /a%20b HTTP/1.1\r\n" + b"X: planted\r\n" * 200 + b"\r\n",
        431,
        {"method": "PUT", "path": "/a b"},
    ),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01", 400, {}),
    "no path": (b"GET planted HTTP/1.1\r\nHost: a\r\n\r\n", 400, {}),
    "a URL without a path": (
        b"GET http://a?b=/planted HTTP/1.1\r\nHost: b\r\n\r\n",
        400,
        {"method": "GET"},
    ),
}


@each_row("case", UNSEEN)
def test_a_request_that_no_application_saw_is_logged_like_others(case: str, tmp_path: Path) -> None:
    data, status, about = UNSEEN[case]
    with gateway(QUICK, tmp_path) as server:
        (found,) = sent(server, data)
    assert found.status == status
    (line,) = requests(server)
    error = line.pop("error")
    assert line == {
        "event": "request-refused",
        "time": line["time"],
        "level": "warning",
        "from": "weft.request",
        "status": status,
        "ms": line["ms"],
        **about,
    }
    assert line["ms"] >= (250 if status == 408 else 0)
    assert error == {
        "class": "bad-request",
        "status": status,
        "message": json.loads(found.body)["error"]["message"],
    }
    assert "planted" not in server.stderr


def test_a_further_request_is_not_logged_with_the_path_of_the_one_before(tmp_path: Path) -> None:
    with gateway(QUICK, tmp_path) as server:
        first, second = sent(server, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n\r\n\x16")
    assert (first.status, second.status) == (200, 400)
    (line,) = requests(server)
    assert (line["status"], "path" in line, "method" in line) == (400, False, False)


def test_a_pipelined_request_whose_app_was_not_started_has_its_own_line(tmp_path: Path) -> None:
    first = f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nx-api-key: {KEY}\r\n\r\n".encode()
    spoiled = POST + b"Transfer-Encoding: chunked\r\n\r\nplanted\r\n"
    with gateway(QUICK, tmp_path) as server:
        found = sent(server, first + spoiled)
    assert [one.status for one in found] == [200, 400]
    told = {one["path"]: (one.get("event"), one["status"]) for one in requests(server)}
    assert told == {
        "/v1/models": (None, 200),
        "/v1/chat/completions": ("request-refused", 400),
    }
    assert "planted" not in server.stderr


def test_a_connection_that_sends_nothing_is_no_request(tmp_path: Path) -> None:
    with gateway(QUICK, tmp_path) as server:
        (found,) = sent(server, b"")
    assert found.status == 408
    assert requests(server) == []
    (line,) = [one for one in lines(server) if one.get("event") == "connection-closed"]
    assert line["level"] == "info"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nope", 404), ("PUT", "/v1/models", 405)],
)
def test_the_error_of_a_refused_request_has_the_status_that_was_sent(
    tmp_path: Path, method: str, path: str, status: int
) -> None:
    with gateway(DEMO, tmp_path) as server:
        found = httpx.request(method, f"{server.url}{path}", trust_env=False)
    assert found.status_code == status
    (line,) = requests(server)
    message = line["error"].pop("message")
    assert path in message
    assert (line["status"], line["error"]) == (status, {"class": "bad-request", "status": status})


def test_a_mistake_of_the_client_is_not_called_internal(tmp_path: Path) -> None:
    bodies: tuple[tuple[str, bytes], ...] = (
        ("text/plain", b"{}"),
        ("application/json", b"{"),
        ("application/json", b'{"model":"demo/chat","messages":"planted"}'),
    )
    with gateway(DEMO, tmp_path) as server, httpx.Client(trust_env=False) as client:
        url = f"{server.url}/v1/chat/completions"
        found = [
            client.post(url, content=body, headers={"content-type": kind}) for kind, body in bodies
        ]
    assert [one.status_code for one in found] == [415, 400, 400]
    told = [(one["status"], {**one["error"], "message": ""}) for one in requests(server)]
    assert told == [
        (one.status_code, {"class": "bad-request", "status": one.status_code, "message": ""})
        for one in found
    ]
    assert "planted" not in server.stderr


def test_fields_that_were_warned_of_are_in_the_line_of_the_request(tmp_path: Path) -> None:
    settings = '[upstreams.demo]\nbase_url = "demo:fast"\ndialect = "anthropic-messages"\n'
    body: Object = {"model": "demo/chat", "messages": [{"role": "user", "content": "planted"}]}
    body |= {"max_tokns": "planted", "service_tier": "planted", "seed": 7}
    unknown = {f"unknown_{number}": "planted" for number in range(30)}
    with gateway(settings, tmp_path) as server, httpx.Client(trust_env=False) as client:
        url = f"{server.url}/v1/chat/completions"
        found = [client.post(url, json=one) for one in (body, body | unknown)]
    assert [one.status_code for one in found] == [200, 200]
    few, many = requests(server)
    assert few["level"] == "info"
    told = {one["path"]: one["detail"] for one in few["warned"]}
    assert told["max_tokns"] == "unknown field '…' (did you mean \"max_tokens\"?)"
    assert told["seed"].startswith("dropped: ")
    assert "service_tier" in told
    assert "more_warned" not in few
    assert len(many["warned"]) == 20
    assert many["more_warned"] == len(few["warned"]) + 30 - 20
    assert "planted" not in server.stderr
