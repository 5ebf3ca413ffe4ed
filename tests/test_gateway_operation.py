"""The gateway in operation: what it logs, what it tells clients of its upstreams, how it balances,
and how it takes new settings. Real processes on both sides."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway_process import Gateway, gateway
from tests.raw_upstream import HEAD, LAST, Hold, answer, chunk, raw_upstream

Object = dict[str, Any]

DEMO = '[upstreams.demo]\nbase_url = "demo:fast"\ndialect = "openai-chat"\n'
FAIL = answer(b'{"error":{"message":"a planted prompt"}}', "500 Oops")
DELTA = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"hi"}}]}\n\n'
FINISH = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
STREAM = (HEAD, chunk(DELTA), chunk(FINISH + b"data: [DONE]\n\n"), LAST)


def upstream(name: str, url: str, more: str = "") -> str:
    return f'[upstreams.{name}]\ndialect = "openai-chat"\nbase_url = "{url}"\n{more}\n'


def ask(server: Gateway, model: str, *, key: str = "", **more: object) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "a planted prompt"}], **more}
    headers = {"authorization": f"Bearer {key}"} if key else {}
    url = f"{server.url}/v1/chat/completions"
    return httpx.post(url, json=body, headers=headers, trust_env=False, timeout=30)


def until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end, f"no {what}"
        time.sleep(0.01)


def lines(server: Gateway) -> list[Object]:
    return [json.loads(line) for line in server.stderr.splitlines()]


def events(server: Gateway, *names: str) -> list[Object]:
    return [line for line in lines(server) if line.get("event") in names]


# The log


def test_every_attempt_failover_and_pause_is_an_event_with_its_reason(tmp_path: Path) -> None:
    retry = "retry = { attempts = 2, base = 0.0 }\nbreaker = { failures = 2, open_for = 60 }"
    with raw_upstream((FAIL,)) as bad, raw_upstream(STREAM) as good:
        text = upstream("bad", bad.url, retry) + upstream("good", good.url)
        with gateway(text + '[models]\nboth = ["bad/m", "good/m"]\n', tmp_path) as server:
            found = [ask(server, "both", stream=True) for _ in range(3)]
            alone = ask(server, "bad/m")
    assert [one.status_code for one in found] == [200] * 3
    # With the breaker open, one attempt is refused, and the next is made elsewhere.
    assert [one.headers["weft-attempts"] for one in found] == ["3", "3", "2"]
    assert [one.headers["weft-upstream"] for one in found] == ["good"] * 3
    assert (alone.status_code, alone.headers["weft-upstream"]) == (503, "bad")
    assert alone.headers["weft-attempts"] == "1"
    ids = [one.headers["weft-request-id"] for one in found]
    told = events(server, "attempt-failed", "failover", "breaker-opened")
    assert [(one["event"], one.get("id")) for one in told] == [
        ("attempt-failed", ids[0]),
        ("attempt-failed", ids[0]),
        ("failover", ids[0]),
        ("attempt-failed", ids[1]),
        ("attempt-failed", ids[1]),
        ("breaker-opened", None),
        ("failover", ids[1]),
        ("failover", ids[2]),
    ]
    messages = [one["message"] for one in told]
    assert messages[0] == "bad/m: attempt 1 failed: HTTP 500; retry in 0.00 s"
    assert messages[2] == "failover: good/m after bad/m failed: HTTP 500"
    # It was not asked.
    assert messages[7].startswith(
        'failover: good/m because bad/m was not asked: upstream "bad", model "m": paused for '
    )
    assert messages[7].endswith(" after 2 failures in a row (last: HTTP 500)")
    (first, *_) = [line for line in lines(server) if line["from"] == "weft.request"]
    assert first["tried"] == ["bad/m: HTTP 500", "bad/m: HTTP 500", "good/m"]
    assert [one["event"] for one in lines(server)[-2:]] == ["draining", "stopped"]
    assert lines(server)[-2]["message"] == "SIGTERM: draining for up to 30 s"
    assert "planted" not in server.stderr


def test_refused_requests_are_logged_without_what_they_hold(tmp_path: Path) -> None:
    text = DEMO + "[server.keys]\nalice = 'a-key-that-is-long'\n"
    key = {"authorization": "Bearer a-key-that-is-long"}
    with gateway(text, tmp_path) as server, httpx.Client(trust_env=False, timeout=30) as client:
        chat = f"{server.url}/v1/chat/completions"
        kind = {"content-type": "application/json"}
        client.post(chat, json={"model": "x"})
        client.post(chat, content=b'{"planted prompt":', headers=key | kind)
        client.post(chat, json={"model": "planted/prompt", "messages": []}, headers=key)
        client.get(f"{server.url}/v1/nothing", headers=key)
        client.get(f"{server.url}/v1/models", headers=key)
        client.get(f"{server.url}/v1/models", headers={"host": "planted.example"})
        client.get(f"{server.url}/health")
    found = [line for line in lines(server) if line["from"] == "weft.request"]
    shown = [(one["level"], one["method"], one["path"], one["status"]) for one in found]
    assert shown == [
        ("warning", "POST", "/v1/chat/completions", 401),
        ("warning", "POST", "/v1/chat/completions", 400),
        ("warning", "POST", "/v1/chat/completions", 404),
        ("warning", "GET", "/v1/nothing", 404),
        ("info", "GET", "/v1/models", 200),
        ("warning", "GET", "/v1/models", 421),
    ]
    assert found[0]["error"]["message"].startswith("no API key")
    assert found[2]["key"] == "alice"
    assert found[2]["error"]["message"].startswith("no model '…'; expected one of")
    assert "planted" not in server.stderr


def test_on_a_terminal_the_log_is_for_people(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    (tmp_path / "weft.toml").write_text(DEMO)
    environment = {name: one for name, one in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("weft")), "serve", "--port", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment,
        text=True,
    )
    os.close(theirs)
    assert process.stdout is not None
    url = process.stdout.readline().split()[-1]
    body = {"messages": [{"role": "user", "content": "a planted prompt"}]}
    ids = [
        httpx.post(
            f"{url}/v1/chat/completions", json=body | {"model": model}, trust_env=False, timeout=30
        ).headers["weft-request-id"][:12]
        for model in ("demo/chat", "demo/overloaded\x1b[31m")
    ]
    process.terminate()
    assert process.wait(30) == 0
    process.stdout.close()
    shown = b""
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:  # EIO: all of it was read, and nobody writes any more
            break
    os.close(ours)
    text = shown.decode()
    first, second = (next(one for one in text.splitlines() if id in one) for id in ids)
    assert first[8:].startswith(f" info    {ids[0]}  demo/chat -> demo  200  ")
    assert first.endswith(" tokens")
    assert "\x1b[33mwarning\x1b[0m" in second
    assert "demo/overloaded\\x1b[31m" in second
    assert "SIGTERM: draining" in text
    assert "planted" not in text


def test_a_bad_upstream_key_says_so_and_is_not_the_clients(tmp_path: Path) -> None:
    refusal = answer(
        b'{"error":{"message":"Incorrect API key provided: sk-planted1234567."}}', "401 No"
    )
    with raw_upstream((refusal,)) as one, gateway(upstream("a", one.url), tmp_path) as server:
        found = ask(server, "a/m")
    assert found.status_code == 502
    error = found.json()["error"]
    assert error["code"] == "upstream_auth"
    ours = "the upstream rejected the API key of the gateway, not yours: "
    assert error["message"] == f"{ours}Incorrect API key provided: ***."
    assert found.headers["weft-upstream"] == "a"
    assert "planted" not in server.stderr


# Aliases


def test_an_alias_decides_what_happens_to_fields_that_are_lost(tmp_path: Path) -> None:
    settings = """
[upstreams.a]
base_url = "demo:fast"
dialect = "anthropic-messages"
[models]
strict = { targets = ["a/chat"], lossy = "refuse" }
"a/tools" = { lossy = "refuse" }
"""
    with gateway(settings, tmp_path) as server:
        found = {model: ask(server, model, seed=7) for model in ("a/chat", "strict", "a/tools")}
    assert {model: one.status_code for model, one in found.items()} == {
        "a/chat": 200,
        "strict": 400,
        "a/tools": 400,
    }
    assert "warned:seed" in found["a/chat"].headers["weft-findings"]
    assert found["strict"].json()["error"]["param"] == "seed"
    lenient = settings.replace('"refuse" }\n"a/', '"warn" }\n"a/')
    with gateway(lenient, tmp_path, "--reject-lossy") as server:
        found = {model: ask(server, model, seed=7) for model in ("a/chat", "strict")}
    assert {model: one.status_code for model, one in found.items()} == {
        "a/chat": 400,
        "strict": 200,
    }


def test_the_least_busy_upstream_gets_the_next_request(tmp_path: Path) -> None:
    hold = Hold()
    script = (HEAD, chunk(DELTA), hold, chunk(FINISH + b"data: [DONE]\n\n"), LAST)
    with raw_upstream(script) as one, raw_upstream(script) as two:
        alias = '[models]\nx = { targets = ["a/m", "b/m"], balance = "least-busy" }\n'
        text = upstream("a", one.url) + upstream("b", two.url) + alias
        with gateway(text, tmp_path) as server:
            found: list[str] = []
            threads = [
                threading.Thread(
                    target=lambda: found.append(
                        ask(server, "x", stream=True).headers["weft-upstream"]
                    )
                )
                for _ in range(8)
            ]
            for thread in threads:
                thread.start()
            one.got(4)
            two.got(4)
            hold.release()
            for thread in threads:
                thread.join()
    assert Counter(found) == {"a": 4, "b": 4}


# New settings


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sighup_reads_the_settings_again_and_drops_no_stream(tmp_path: Path, workers: str) -> None:
    hold = Hold()
    script = (HEAD, chunk(DELTA), hold, chunk(FINISH + b"data: [DONE]\n\n"), LAST)
    old = "[server.keys]\nold = 'the-old-key-of-alice'\n"
    new = "[server.keys]\nnew = 'the-new-key-of-alice'\n[server.limits]\ntools = 3\n"
    key = "the-old-key-of-alice"
    with raw_upstream(script) as one:
        text = old + upstream("a", one.url) + "[models]\nx = 'a/m'\n"
        with gateway(text, tmp_path, "--workers", workers) as server:
            url = f"{server.url}/v1/chat/completions"
            body = {"model": "x", "messages": [], "stream": True}
            headers = {"authorization": f"Bearer {key}"}
            with (
                httpx.Client(trust_env=False, timeout=30) as client,
                client.stream("POST", url, json=body, headers=headers) as stream,
            ):
                one.got(1)
                pieces = stream.iter_bytes()
                assert b"hi" in next(pieces)
                # The upstream, the alias and the key of the open stream no longer exist.
                (tmp_path / "weft.toml").write_text(new + DEMO + "[models]\ny = 'demo/chat'\n")
                server.process.send_signal(signal.SIGHUP)
                count = int(workers)
                until(lambda: len(events(server, "reloaded")) == count, "reload")
                for _ in range(4):  # whichever worker it gets to
                    assert ask(server, "y", key=key).status_code == 401
                    assert ask(server, "y", key="the-new-key-of-alice").status_code == 200
                    assert ask(server, "x", key="the-new-key-of-alice").status_code == 404
                # Invalid settings change nothing.
                (tmp_path / "weft.toml").write_text("[upstreams.demo]\nnonsense = 1\n")
                server.process.send_signal(signal.SIGHUP)
                until(lambda: len(events(server, "reload-failed")) == count, "failed reload")
                assert ask(server, "y", key="the-new-key-of-alice").status_code == 200
                hold.release()
                rest = b"".join(pieces)
            one.left()  # its connection is not kept
    assert rest.endswith(b"data: [DONE]\n\n")
    assert [one["settings"] for one in events(server, "restart-needed")] == [
        ["server.limits"] for _ in range(count)
    ]
    failed = events(server, "reload-failed")[0]["message"]
    assert "weft.toml:2: upstreams.demo.nonsense: no such setting" in failed
    assert "key-of-alice" not in server.stderr


def test_new_prices_apply_to_the_next_response(tmp_path: Path) -> None:
    prices = '[prices."demo/chat"]\ninput = {}\noutput = 0.0\n'
    with gateway(DEMO + prices.format("1.0"), tmp_path) as server:
        assert ask(server, "demo/chat").status_code == 200
        first = cost(server)
        (tmp_path / "weft.toml").write_text(DEMO + prices.format("3.0"))
        server.process.send_signal(signal.SIGHUP)
        until(lambda: len(events(server, "reloaded")) == 1, "reload")
        assert ask(server, "demo/chat").status_code == 200
        assert (first > 0, round(cost(server) / first, 6)) == (True, 4.0)
        otel = "[otel]\nendpoint = 'http://127.0.0.1:9'\n"
        (tmp_path / "weft.toml").write_text(DEMO + otel)
        server.process.send_signal(signal.SIGHUP)
        until(lambda: len(events(server, "reloaded")) == 2, "reload")
    assert [one["settings"] for one in events(server, "restart-needed")] == [["otel"]]


def test_agents_run_on_until_the_restart_that_new_ones_need(tmp_path: Path) -> None:
    def reload(text: str) -> None:
        before = len(events(server, "reloaded"))
        (tmp_path / "weft.toml").write_text(text)
        server.process.send_signal(signal.SIGHUP)
        until(lambda: len(events(server, "reloaded")) > before, "reload")

    began = DEMO + "[agents.live]\nmodel = 'demo/chat'\n"
    renamed = began.replace("live", "other")
    otel = "[otel]\nendpoint = 'http://127.0.0.1:9'\n[server.limits]\ntools = 3\n"
    with gateway(began, tmp_path) as server:
        assert ask(server, "live").status_code == 200
        for text in (renamed, renamed + "[models]\nx = 'demo/chat'\n", renamed + otel):
            reload(text)
            assert ask(server, "live").status_code == 200
            missing = ask(server, "other")
            assert missing.status_code == 404
            assert "live" in missing.json()["error"]["message"]
        reload(began + "[models]\nx = 'demo/chat'\n")
        reload(began)
        assert ask(server, "live").status_code == 200
    # What runs is compared with the file, not what the file was before.
    assert [one["settings"] for one in events(server, "restart-needed")] == [
        ["agents"],
        ["agents"],
        ["server.limits", "agents", "otel"],
    ]


def cost(server: Gateway) -> float:
    url = f"{server.url}/v1/usage?group_by=model"
    (row,) = httpx.get(url, trust_env=False, timeout=30).json()["data"]
    return float(row["cost"])
