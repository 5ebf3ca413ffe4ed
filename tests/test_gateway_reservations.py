"""What a key has reserved while its requests run: it comes back when they end, whatever the
settings say by then, and clients are told that it will. A real gateway, and an upstream that waits.
"""

import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from sqlite3 import connect

import httpx
import pytest

from tests.gateway_process import Gateway, gateway
from tests.raw_upstream import HEAD, LAST, Hold, RawUpstream, chunk, raw_upstream
from tests.test_gateway_operation import DELTA, FINISH, STREAM, ask, events, until, upstream

KEY = "the-key-of-cap"
# A thousand tokens, as many as a response is expected to have, cost a dollar.
PRICES = '[prices."a/m"]\ninput = 0.0\noutput = 1000.0\n'


def settings(place: RawUpstream, rules: str) -> str:
    return upstream("a", place.url) + PRICES + f"[server.keys.cap]\nsecret = '{KEY}'\n{rules}\n"


def reload(server: Gateway, folder: Path, text: str) -> None:
    before = len(events(server, "reloaded"))
    (folder / "weft.toml").write_text(text)
    server.process.send_signal(signal.SIGHUP)
    until(lambda: len(events(server, "reloaded")) > before, "reload")


@contextmanager
def first_held() -> Iterator[tuple[RawUpstream, Hold]]:
    """An upstream whose first response stops in the middle."""
    hold = Hold()
    end = chunk(FINISH + b"data: [DONE]\n\n")
    with raw_upstream((HEAD, chunk(DELTA), hold, end, LAST), STREAM) as place:
        yield place, hold


@contextmanager
def running(server: Gateway, hold: Hold) -> Iterator[None]:
    """A response that has begun, and ends with the block."""
    body = {"model": "a/m", "messages": [], "stream": True}
    headers = {"authorization": f"Bearer {KEY}"}
    with (
        httpx.Client(trust_env=False, timeout=30) as client,
        client.stream(
            "POST", f"{server.url}/v1/chat/completions", json=body, headers=headers
        ) as stream,
    ):
        pieces = stream.iter_bytes()
        assert b"hi" in next(pieces)
        yield
        hold.release()
        assert b"".join(pieces).endswith(b"data: [DONE]\n\n")


def again(server: Gateway, **more: object) -> httpx.Response:
    return ask(server, "a/m", key=KEY, stream=True, **more)


def reserved(folder: Path, kind: str) -> int:
    with closing(connect(folder / "weft.db")) as store:
        question = "SELECT coalesce(sum(amount), 0) FROM reservation WHERE kind = ?"
        return int(store.execute(question, (kind,)).fetchone()[0])


# New limits while a request runs


@pytest.mark.parametrize(
    "after",
    [["budget = { day = 1.06 }"], ["", "budget = { day = 1.06 }"], ["budget = { total = 1.06 }"]],
    ids=["raised", "removed for a while", "another"],
)
def test_a_new_budget_keeps_no_money_of_a_request_that_has_ended(
    tmp_path: Path, after: list[str]
) -> None:
    with first_held() as (place, hold):
        before = settings(place, "budget = { day = 1.05 }")
        with gateway(before, tmp_path) as server:
            with running(server, hold):
                for rules in after:
                    reload(server, tmp_path, settings(place, rules))
                    # The request that sees the new rules first.
                    assert again(server).status_code == (429 if rules else 200)
            until(lambda: reserved(tmp_path, "budget") == 0, "money that is free again")
            assert again(server).status_code == 200


def test_a_new_limit_of_streams_counts_those_that_are_open_until_they_end(tmp_path: Path) -> None:
    # Of twenty, one is kept for the next stream.
    with (
        first_held() as (place, hold),
        gateway(settings(place, "streams = 20"), tmp_path) as server,
    ):
        with running(server, hold):
            reload(server, tmp_path, settings(place, "streams = 1"))
            assert again(server).status_code == 429
        until(lambda: again(server).status_code == 200, "a free stream")
        until(lambda: reserved(tmp_path, "streams") == 0, "slots that are free again")


# Reserved, or spent


def test_money_that_is_only_reserved_is_not_used_up(tmp_path: Path) -> None:
    with (
        first_held() as (place, hold),
        gateway(settings(place, "budget = { day = 1.5 }"), tmp_path) as server,
    ):
        with running(server, hold):
            found = again(server)
        error = found.json()["error"]
        assert (found.status_code, error["code"]) == (429, "rate_limit_exceeded")
        assert "running requests have reserved the rest" in error["message"]
        assert "used up" not in error["message"]
        assert found.headers["retry-after"] == "1"
        assert "x-should-retry" not in found.headers
        until(lambda: again(server).status_code == 200, "money")


def test_money_that_is_spent_is_used_up(tmp_path: Path) -> None:
    # Enough for one that is expected to cost a dollar, unless anything was spent.
    with (
        raw_upstream(STREAM) as place,
        gateway(settings(place, "budget = { day = 1.0005 }"), tmp_path) as server,
    ):
        assert again(server).status_code == 200
        found = again(server)
    error = found.json()["error"]
    assert (found.status_code, error["code"]) == (429, "insufficient_quota")
    assert "used up" in error["message"]
    assert int(found.headers["retry-after"]) >= 1
    assert found.headers["x-should-retry"] == "false"


# Headers


def test_every_refusal_of_a_key_has_its_rates(tmp_path: Path) -> None:
    rules = "requests_per_minute = 100\ntokens_per_minute = 100000\nbudget = { day = 5 }"
    with raw_upstream(STREAM) as place, gateway(settings(place, rules), tmp_path) as server:
        long = [{"role": "user", "content": "a" * 500_000}]
        refused = [again(server, messages=long), ask(server, "a/unpriced", key=KEY)]
    assert [one.status_code for one in refused] == [413, 403]
    for one in refused:
        assert one.headers["x-ratelimit-limit-requests"] == "100"
        # Nothing was used, also when the first request of a minute is refused.
        assert one.headers["x-ratelimit-remaining-requests"] == "100"
        assert one.headers["x-ratelimit-remaining-tokens"] == "100000"
        assert one.headers["x-ratelimit-reset-tokens"] != "0s"
