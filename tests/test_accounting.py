"""Keys, limits and the ledger over HTTP: a gateway with two workers, on each database."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.faults.upstream import (
    FIN,
    SILENCE,
    STREAM,
    Hold,
    Upstream,
    answer,
    chunk,
    stream,
    upstream,
)
from tests.faults.wires import (
    CHAT,
    DIALECTS,
    GEMINI,
    MESSAGES,
    RESPONSES,
    SPEECHES,
    Object,
    error_seen,
    question,
)
from tests.faults.world import PATIENT, World, place, places, until, world
from tests.gateway_process import gateway
from tests.raw_http import Answer
from tests.stores import KINDS, Kind, empty
from tests.weft_command import run

COSTLY = SPEECHES[CHAT].body.replace(b'"completion_tokens": 2', b'"completion_tokens": 1000')
assert SPEECHES[CHAT].body != COSTLY

RULES = {
    "plain": "",
    "other": "",
    "idle": "",
    "slow": "requests_per_minute = 10",
    "wide": "requests_per_minute = 1000, tokens_per_minute = 1000000",
    "short": "tokens_per_minute = 50",
    "talker": "tokens_per_minute = 2000",
    "narrow": "models = ['openai-chat/allowed*', 'alias']",
    "few": "streams = 2",
    "spender": "budget = { total = 5, month = 1000 }",
    "cutter": "budget = { day = 10 }",
    "poor": "budget = { total = 0 }",
    "agent": "budget = { total = 1 }",
    "saver": "",
    "lead": "usage = 'all'",
}
MORE = """
[prices."openai-chat/costly"]
input = 0
output = 1000
[prices."openai-chat/cut"]
input = 0
output = 1000000
[prices."openai-chat/turn"]
input = 0
output = 100
[models]
alias = "openai-chat/allowed"
either = ["openai-chat/broken", "anthropic-messages/whole"]
later = ["anthropic-messages/broken", "openai-chat/costly"]
[agents.helper]
model = "openai-chat/turn"
"""


def secret(name: str) -> str:
    return f"secret-of-{name}-0123456789"


@dataclass
class Office:
    """A gateway with two workers."""

    world: World
    folder: Path

    @property
    def upstream(self) -> Upstream:
        return self.world.upstream

    def ask(
        self, name: str, model: str, is_streamed: bool = False, dialect: str = CHAT, **more: object
    ) -> Answer:
        bearer = f"Authorization: Bearer {secret(name)}"
        return self.world.ask(dialect, model, is_streamed, bearer, **more)

    def ask_at_once(self, name: str, model: str, number: int) -> list[Answer]:
        with ThreadPoolExecutor(number) as pool:
            return list(pool.map(lambda at: self.ask(name, model, at % 2 == 0), range(number)))

    def get(self, name: str, path: str) -> Answer:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nx-api-key: {secret(name)}\r\n\r\n"
        with self.world.client() as client:
            client.send(head.encode())
            return client.answer()

    def usage(self, name: str, query: str = "") -> list[Object]:
        found = self.get(name, f"/v1/usage{query}")
        assert found.status == 200, found
        rows: list[Object] = json.loads(found.body)["data"]
        return rows

    def wait_for(self, name: str, query: str, true: Callable[[list[Object]], bool]) -> list[Object]:
        """Workers tell the store twice a second what was used."""
        until(lambda: true(self.usage(name, query)), f"the usage of {name}")
        return self.usage(name, query)

    def wait_for_requests(self, name: str, number: int, query: str = "") -> list[Object]:
        def is_complete(rows: list[Object]) -> bool:
            return sum(int(str(row["requests"])) for row in rows) == number

        return self.wait_for(name, query, is_complete)


DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.long)]


@pytest.fixture(scope="module", params=DATABASES)
def office(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Office]:
    kind: Kind = request.param
    folder = tmp_path_factory.mktemp("office")
    keys = "\n".join(
        f'{name} = {{ secret = "{secret(name)}"{", " if rules else ""}{rules} }}'
        for name, rules in RULES.items()
    )
    with upstream() as behind:
        settings = f'[server.keys]\n{keys}\n[store]\nurl = "{empty(kind, folder)}"\n'
        settings += places(behind.url) + MORE
        with world(settings, folder, behind, "--workers", "2") as made:
            yield Office(made, folder)


def speech(dialect: str) -> tuple[bytes, ...]:
    return stream(*SPEECHES[dialect].frames)


def counts(row: Object, source: str) -> tuple[int, int, int]:
    found = row[source]
    assert isinstance(found, dict)
    return found["requests"], found["input_tokens"], found["output_tokens"]


# The ledger


def test_the_ledger_is_the_log_of_the_upstream(office: Office) -> None:
    """In every dialect, streamed and not, many at once, at two workers."""
    for dialect in DIALECTS:
        said = SPEECHES[dialect]
        office.upstream.named(f"whole-{dialect}", [answer(said.body)])
        office.upstream.named(f"stream-{dialect}", speech(dialect))
    asked = [(client, kind, served) for client in DIALECTS for served in DIALECTS
             for kind in ("whole", "stream")] * 2  # fmt: skip

    def ask(one: tuple[str, str, str]) -> int:
        client, kind, served = one
        model = f"{served}/{kind}-{served}"
        return office.ask("plain", model, kind == "stream", client).status

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(ask, asked)) == {200}
    rows = office.wait_for(
        "plain", "?group_by=model,upstream",
        lambda found: sum(int(str(row["requests"])) for row in found) == len(asked),
    )  # fmt: skip
    for row in rows:
        served = len(office.upstream.exchanges(str(row["model"])))
        assert counts(row, "reported") == (served, 3 * served, 2 * served)
        assert (row["requests"], row["failed_requests"]) == (served, 0)
    assert office.usage("idle") == []
    journals = [one.stat().st_size for one in office.folder.glob("*-usage-*")]
    assert len(journals) in (0, 2)  # PostgreSQL has them elsewhere
    assert all(journals), "one worker has answered everything"


def test_usage_is_filtered_and_grouped(office: Office) -> None:
    office.upstream.named("mine", [answer(SPEECHES[CHAT].body)])
    office.ask("other", f"{CHAT}/mine")
    office.wait_for("other", "?model=mine", lambda rows: len(rows) == 1)
    assert office.usage("other", f"?model={CHAT}/mine&group_by=upstream")[0]["upstream"] == CHAT
    assert office.usage("other", "?start=2020-01-01&end=2020-01-02") == []
    assert office.usage("other", "?upstream=nowhere") == []
    for query in ("start=today", "end=2026-02-30", "group_by=owner", "group_by=day,x"):
        found = office.get("other", f"/v1/usage?{query}")
        assert (found.status, error_seen(RESPONSES, found.body).message[:0]) == (400, "")


def test_a_key_sees_the_usage_of_others_only_if_it_may(office: Office) -> None:
    office.upstream.named("shared", [answer(SPEECHES[CHAT].body)])
    for name in ("other", "lead"):
        office.ask(name, f"{CHAT}/shared")
    query = "?model=shared&group_by=key"
    found = office.wait_for("lead", query, lambda rows: len(rows) == 2)
    assert [row["key"] for row in found] == ["lead", "other"]
    assert [row["key"] for row in office.usage("lead", f"{query}&key=other")] == ["other"]
    assert [row["key"] for row in office.usage("other", query)] == ["other"]
    assert [row["key"] for row in office.usage("other", f"{query}&key=other")] == ["other"]
    assert office.usage("other", f"{query}&key=lead") == []


def test_each_attempt_is_charged_once(office: Office) -> None:
    """A target that fails, and the one after it."""
    error = answer(b'{"error":{"message":"no"}}', "500 No")
    office.upstream.named("broken", [error])
    office.upstream.named("whole", [answer(SPEECHES[MESSAGES].body)])
    before = {str(row["model"]): row for row in office.usage("other", "?group_by=model")}
    assert {"broken", "whole"}.isdisjoint(before)
    assert office.ask("other", "either").status == 200
    rows = office.wait_for("other", "?group_by=model", lambda found: len(found) > len(before) + 1)
    found = {str(row["model"]): row for row in rows}
    assert counts(found["broken"], "none") == (1, 0, 0)
    assert (found["broken"]["failed_requests"], found["whole"]["failed_requests"]) == (1, 0)
    assert counts(found["whole"], "reported") == (1, 3, 2)


def test_an_unknown_model_is_no_row_of_its_own(office: Office) -> None:
    gone = answer(b'{"error":{"message":"no such model"}}', "404 Not Found")
    for number in range(3):
        office.upstream.named(f"invented-{number}", [gone])
        assert office.ask("other", f"{CHAT}/invented-{number}").status == 404
    rows = office.wait_for(
        "other", "?group_by=model", lambda found: any(row["model"] == "" for row in found)
    )
    assert not any("invented" in str(row["model"]) for row in rows)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_client_that_leaves_is_charged_what_had_come(office: Office, dialect: str) -> None:
    said = SPEECHES[dialect]
    model = office.upstream.script([STREAM, *map(chunk, said.head + said.content), SILENCE])
    with office.world.client() as client:
        bearer = f"x-api-key: {secret('other')}"
        client.send(question(dialect, f"{dialect}/{model}", True, bearer))
        client.until(b"and weft.")
    (row,) = office.wait_for("other", f"?model={model}", bool)
    requests, sent, received = counts(row, "estimated")
    assert (requests, row["failed_requests"]) == (1, 1)
    assert sent >= 1
    assert received >= 4  # the length of "Warp and weft."


def test_a_client_that_leaves_before_the_head_is_charged_its_request(office: Office) -> None:
    model = office.upstream.script([SILENCE])
    with office.world.client() as client:
        client.send(question(CHAT, f"{CHAT}/{model}", True, f"x-api-key: {secret('other')}"))
        office.upstream.exchange(model)
    (row,) = office.wait_for("other", f"?model={model}", bool)
    assert counts(row, "estimated")[0] == 1
    assert counts(row, "estimated")[2] == 0


def test_a_stream_that_is_cut_off_or_reports_nothing_is_estimated(office: Office) -> None:
    said = SPEECHES[CHAT]
    cut = office.upstream.script([STREAM, *map(chunk, said.head + said.content), FIN])
    silent = office.upstream.script(
        stream(*said.head, *said.content, *(one.replace(b'"usage"', b'"x"') for one in said.end))
    )
    for model, failed in ((cut, 1), (silent, 0)):
        office.ask("other", f"{CHAT}/{model}", True)
        (row,) = office.wait_for("other", f"?model={model}", bool)
        assert (counts(row, "estimated")[0], row["failed_requests"]) == (1, failed)
        assert counts(row, "estimated")[2] == 4


@pytest.mark.parametrize("number", [b"4000000000000000000", b"-7", b"1e300", b"1" * 40])
def test_counts_that_cannot_be_true_are_estimated_and_hold_up_nobody(
    office: Office, number: bytes
) -> None:
    """One that no database can add up would otherwise stop the ledger of its process for good."""
    said = SPEECHES[CHAT].body
    body = said.replace(b'"completion_tokens": 2', b'"completion_tokens": ' + number)
    assert body != said
    model = office.upstream.script([answer(body)])
    for _ in range(4):  # at either worker
        found = office.ask("other", f"{CHAT}/{model}", dialect=RESPONSES, store=True)
        assert found.status == 200
    (row,) = office.wait_for_requests("other", 4, f"?model={model}&group_by=model")
    assert counts(row, "estimated") == (4, 12, 16)


def test_turns_of_agents_and_background_responses_are_charged_once(office: Office) -> None:
    office.upstream.named("turn", speech(CHAT))
    assert office.ask("agent", "helper").status == 200
    groups = "?group_by=model,upstream"
    (row,) = office.wait_for("agent", groups, bool)
    assert (row["model"], row["upstream"], counts(row, "reported")) == ("turn", CHAT, (1, 3, 2))
    assert office.ask("agent", f"{CHAT}/turn", dialect=RESPONSES, background=True).status == 200
    (row,) = office.wait_for("agent", groups, lambda rows: rows[0]["requests"] == 2)
    assert row["cost"] == pytest.approx(2 * 2 * 100 / 1_000_000)


def test_a_response_that_is_cancelled_is_charged_once_what_had_come(office: Office) -> None:
    said = SPEECHES[CHAT]
    model = office.upstream.script([STREAM, *map(chunk, said.head + said.content), SILENCE])
    begun = office.ask("other", f"{CHAT}/{model}", dialect=RESPONSES, background=True)
    id = json.loads(begun.body)["id"]
    office.upstream.exchange(model)
    path = f"/v1/responses/{id}"
    # What had come is in the log by then, whichever worker runs it.
    with office.world.client() as client:
        head = f"GET {path}?stream=true HTTP/1.1\r\nHost: localhost\r\n"
        client.send(f"{head}x-api-key: {secret('other')}\r\n\r\n".encode())
        client.until(b"and weft.")
    headers = f"Host: localhost\r\nx-api-key: {secret('other')}\r\nContent-Length: 0"
    for _ in range(2):
        with office.world.client() as client:
            client.send(f"POST {path}/cancel HTTP/1.1\r\n{headers}\r\n\r\n".encode())
            assert client.answer().status == 200
    (row,) = office.wait_for("other", f"?model={model}", bool)
    assert counts(row, "estimated") == (1, 1, 4)
    assert (row["requests"], row["failed_requests"]) == (1, 1)


def test_the_cost_of_a_response_is_stored_with_it(office: Office) -> None:
    """Streamed and not, after a target that failed, and of a client that has left."""
    said = SPEECHES[CHAT]
    office.upstream.named("broken", [answer(b'{"error":{"message":"no"}}', "500 No")])
    office.upstream.named("costly", [answer(said.body)], speech(CHAT), [answer(said.body)])
    for model, is_streamed in (
        (f"{CHAT}/costly", False),
        (f"{CHAT}/costly", True),
        ("later", False),
    ):
        assert office.ask("saver", model, is_streamed, RESPONSES, store=True).status == 200
    office.upstream.named("free", [answer(said.body)])
    assert office.ask("saver", f"{CHAT}/free", False, RESPONSES, store=True).status == 200
    office.upstream.named("cut", [STREAM, *map(chunk, said.head + said.content), SILENCE])
    with office.world.client() as client:
        bearer = f"x-api-key: {secret('saver')}"
        client.send(question(RESPONSES, f"{CHAT}/cut", True, bearer))
        client.until(b"and weft.")

    def listed() -> list[Object]:
        found: list[Object] = json.loads(office.get("saver", "/v1/responses").body)["data"]
        return found[::-1]

    until(lambda: [one["completed_at"] is None for one in listed()] == [False] * 5, "five ends")
    costs = [one["cost"] for one in listed()]
    assert costs == [0.002, 0.002, 0.002, None, 4.0]  # the last one is estimated
    for one, cost in zip(listed(), costs, strict=True):
        path = f"/v1/responses/{one['id']}/usage"
        found = json.loads(office.get("saver", path).body)
        assert (found["id"], found["model"], found["cost"]) == (one["id"], one["model"], cost)
        assert (found["usage"] or {}).get("output_tokens") == (None if cost == 4.0 else 2)
        assert office.get("other", path).status == 404
    rows = office.wait_for_requests("saver", 6, "?group_by=model")
    assert sum(float(str(row["cost"])) for row in rows) == pytest.approx(4.006)
    assert sum(int(str(row["unpriced_requests"])) for row in rows) == 1


# Limits


def test_two_workers_share_one_rate(office: Office) -> None:
    office.upstream.named(
        "often",
        [answer(SPEECHES[CHAT].body)],
    )
    began = time.time()
    found = office.ask_at_once("slow", f"{CHAT}/often", 30)
    minutes = int(time.time() // 60) - int(began // 60) + 1
    passed = [one for one in found if one.status == 200]
    refused = [one for one in found if one.status == 429]
    assert len(passed) + len(refused) == 30
    assert 10 <= len(passed) <= 10 * minutes
    for one in refused:
        assert 1 <= int(one.headers["retry-after"]) <= 60
        assert one.headers["x-ratelimit-limit-requests"] == "10"
        assert error_seen(CHAT, one.body).message


@pytest.mark.parametrize("dialect", DIALECTS)
def test_limits_are_in_the_headers_of_the_dialect(office: Office, dialect: str) -> None:
    office.upstream.named("seen", speech(CHAT))
    for is_streamed in (True, False):
        found = office.ask("wide", f"{CHAT}/seen", is_streamed, dialect)
        assert found.status == 200
        names = {name for name in found.headers if "ratelimit" in name}
        if dialect == GEMINI:
            assert names == set()
            continue
        form = "anthropic-ratelimit-{1}-{0}" if dialect == MESSAGES else "x-ratelimit-{0}-{1}"
        assert names == {
            form.format(field, kind)
            for kind in ("requests", "tokens")
            for field in ("limit", "remaining", "reset")
        }
        assert found.headers[form.format("limit", "tokens")] == "1000000"
        assert int(found.headers[form.format("remaining", "requests")]) < 1000


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_request_that_never_fits_is_too_large(office: Office, dialect: str) -> None:
    office.upstream.named("long", [answer(SPEECHES[CHAT].body)])
    long = "word " * 100
    field = {GEMINI: "contents", RESPONSES: "input"}.get(dialect, "messages")
    value: object = [{"role": "user", "content": long}]
    if dialect == GEMINI:
        value = [{"role": "user", "parts": [{"text": long}]}]
    found = office.ask("short", f"{CHAT}/long", False, dialect, **{field: value})
    assert found.status == 413
    assert "tokens" in error_seen(dialect, found.body).message


def test_what_a_response_used_counts_for_the_next_request(office: Office) -> None:
    """Each is expected to use a thousand tokens of two thousand, and uses five."""
    office.upstream.named("brief", [answer(SPEECHES[CHAT].body)])
    began = time.time()
    for number in range(6):
        until(lambda: office.ask("talker", f"{CHAT}/brief").status == 200, f"request {number}")
    minutes = int(time.time() // 60) - int(began // 60) + 1
    assert 2 * minutes < 6, "as many as there are if nothing is given back"


def test_two_workers_share_the_streams_of_a_key(office: Office) -> None:
    said, holds = SPEECHES[CHAT], [Hold() for _ in range(2)]
    models = [
        office.upstream.script([STREAM, *map(chunk, said.head + said.content), hold,
                                *map(chunk, said.end), b"0\r\n\r\n"])
        for hold in holds
    ]  # fmt: skip
    office.upstream.named("next", [answer(said.body)])
    with ThreadPoolExecutor(2) as pool:
        open_streams = [pool.submit(office.ask, "few", f"{CHAT}/{one}", True) for one in models]
        for hold in holds:
            hold.here()
        refused = office.ask_at_once("few", f"{CHAT}/next", 6)
        assert [(one.status, one.headers["retry-after"]) for one in refused] == [(429, "1")] * 6
        for hold in holds:
            hold.release()
        assert [one.result().status for one in open_streams] == [200, 200]
    for _ in range(6):  # a worker tells the store of a stream that ended after its last byte
        until(lambda: office.ask("few", f"{CHAT}/next").status == 200, "a free stream")


def test_a_budget_is_spent_once_whoever_asks(office: Office) -> None:
    """Each response costs a dollar, as expected, and there are five."""
    office.upstream.named("costly", [answer(COSTLY)])
    found = office.ask_at_once("spender", f"{CHAT}/costly", 24)
    assert sorted(one.status for one in found) == [200] * 5 + [429] * 19
    # Those that came while the five ran might have been lucky a moment later.
    codes = {json.loads(one.body)["error"]["code"] for one in found if one.status == 429}
    assert codes <= {"insufficient_quota", "rate_limit_exceeded"}
    (row,) = office.wait_for_requests("spender", 5, "?group_by=model")
    assert row["cost"] == pytest.approx(5.0)
    refused = office.ask("spender", f"{CHAT}/costly")
    assert json.loads(refused.body)["error"]["code"] == "insufficient_quota"
    assert len(office.upstream.exchanges("costly")) >= 5


def test_cut_streams_do_not_evade_a_budget(office: Office) -> None:
    """Each costs four dollars when it is cut, one of which was expected, and there are ten."""
    said = SPEECHES[CHAT]
    office.upstream.named("cut", [STREAM, *map(chunk, said.head + said.content), SILENCE])
    bearer = f"x-api-key: {secret('cutter')}"
    for number in range(1, 4):
        with office.world.client() as client:
            client.send(question(CHAT, f"{CHAT}/cut", True, bearer, max_tokens=1))
            client.until(b"and weft.")
        office.wait_for_requests("cutter", number)
    refused = office.ask("cutter", f"{CHAT}/cut", True, max_tokens=1)
    assert refused.status == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 86_400
    (row,) = office.usage("cutter")
    assert row["cost"] == pytest.approx(12.0)


def test_a_budget_needs_a_price(office: Office) -> None:
    office.upstream.named("unpriced", [answer(SPEECHES[CHAT].body)])
    found = office.ask("spender", f"{CHAT}/unpriced")
    assert (found.status, "price" in error_seen(CHAT, found.body).message) == (403, True)
    assert office.ask("poor", f"{CHAT}/costly").status == 429


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_key_may_use_its_models_alone(office: Office, dialect: str) -> None:
    office.upstream.named("allowed", [answer(SPEECHES[CHAT].body)])
    assert office.ask("narrow", f"{CHAT}/allowed", False, dialect).status == 200
    assert office.ask("narrow", "alias", False, dialect).status == 200
    for model in (f"{CHAT}/denied", f"{MESSAGES}/allowed", "either", "helper", "nothing/at-all"):
        found = office.ask("narrow", model, False, dialect)
        assert found.status == 403, found
        assert "may not use" in error_seen(dialect, found.body).message


def test_a_key_may_neither_count_nor_run_with_other_models(office: Office) -> None:
    bearer = f"x-api-key: {secret('narrow')}"
    for path, body in (
        ("/v1/messages/count_tokens", {"model": f"{CHAT}/denied", "messages": []}),
        ("/v1/responses/input_tokens", {"model": f"{CHAT}/denied", "input": "hi"}),
        ("/v1/runs", {"agent": "helper", "input": "hi"}),
    ):
        data = json.dumps(body).encode()
        head = [f"POST {path} HTTP/1.1", "Host: localhost", bearer, f"Content-Length: {len(data)}",
                "Content-Type: application/json", "", ""]  # fmt: skip
        with office.world.client() as client:
            client.send("\r\n".join(head).encode() + data)
            assert client.answer().status == 403, path


# Keys


def test_a_key_is_made_and_revoked_while_gateways_run(office: Office) -> None:
    office.upstream.named("known", [answer(SPEECHES[CHAT].body)])

    def status(key: str) -> int:
        bearer = f"Authorization: Bearer {key}"
        return office.world.ask(CHAT, f"{CHAT}/known", False, bearer).status

    def statuses(key: str) -> set[int]:
        return {status(key) for _ in range(6)}

    made = run("keys", "create", "carol", "--requests-per-minute", "500", folder=office.folder)
    assert (made.code, made.err) == (0, "Store the key now: it is not shown again.\n")
    first = made.out.strip()
    assert first.startswith("sk-weft-")
    # A worker looks up unknown keys a few times per second, not more often.
    until(lambda: statuses(first) == {200}, "the new key")
    rotated = run("keys", "rotate", "carol", folder=office.folder).out.strip()
    until(lambda: statuses(rotated) == {200}, "the rotated key")
    until(lambda: statuses(first) == {401}, "the end of the old key")
    assert run("keys", "revoke", "carol", folder=office.folder).code == 0
    until(lambda: statuses(rotated) == {401}, "the end of the key")
    listed = run("keys", "list", "--json", folder=office.folder)
    carol = json.loads(listed.out.splitlines()[-1])
    assert (carol["name"], carol["hint"]) == ("carol", rotated[-4:])
    assert carol["revoked"] is not None
    (line,) = [
        one
        for one in run("keys", "list", folder=office.folder).out.splitlines()
        if one.startswith("carol ")
    ]
    assert line.split()[3:] == ["revoked", '{"requests_per_minute":500}']
    for text in (made.err, listed.out, listed.err):
        assert not any(one in text for one in (first, rotated, *map(secret, RULES)))
    for arguments, why in (
        (("create", "carol"), "there is or was a key with the name 'carol'"),
        (("create", "plain"), "the settings have a key with the name 'plain'"),
        (("revoke", "carol"), "the key 'carol' is revoked"),
        (("rotate", "nobody"), "there is no key with the name 'nobody'"),
    ):
        done = run("keys", *arguments, folder=office.folder)
        assert (done.code, done.err) == (1, f"Error: {why}\n")


def test_the_command_prints_the_ledger(office: Office) -> None:
    office.upstream.named("printed", [answer(SPEECHES[CHAT].body)])
    office.ask("other", f"{CHAT}/printed")
    office.wait_for("other", "?model=printed", bool)
    options = ("--key", "other", "--model", "printed", "--group-by", "key,model")
    table = run("usage", *options, folder=office.folder)
    assert table.out.splitlines()[1].split()[:6] == ["other", "printed", "1", "0", "3", "2"]
    (entry,) = run("usage", *options, "--format", "json", folder=office.folder).out.splitlines()
    assert counts(json.loads(entry), "reported") == (1, 3, 2)
    head, line = run("usage", *options, "--format", "csv", folder=office.folder).out.split()
    values = dict(zip(head.split(","), line.split(","), strict=True))
    assert (values["key"], values["reported_input_tokens"], values["cost"]) == (
        "other",
        "3",
        "0.000000000",
    )
    assert run("usage", "--start", "x", folder=office.folder).code == 1


def test_the_name_of_a_model_does_not_command_the_terminal(office: Office) -> None:
    model = "\x1b]0;title\x07\x1b[31mred\u202e"
    office.upstream.named(model, [answer(SPEECHES[CHAT].body)])
    office.ask("other", f"{CHAT}/{model}")
    office.wait_for("other", f"?model={quote(model)}", bool)
    table = run("usage", "--model", model, "--group-by", "model", folder=office.folder)
    assert table.out.splitlines()[1].startswith(r"\x1b]0;title\x07\x1b[31mred\u202e  1 ")


# Processes


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_acknowledged_is_counted_after_a_kill(kind: Kind, tmp_path: Path) -> None:
    with upstream() as behind:
        settings = f'[store]\nurl = "{empty(kind, tmp_path)}"\n'
        settings += place("chat", CHAT, behind.url, **PATIENT)
        behind.named("m", speech(CHAT))
        for round in range(1, 3):
            with gateway(settings, tmp_path) as running:
                made = World(running, behind)
                for number in range(5):
                    assert made.ask(CHAT, "chat/m", number % 2 == 0).status == 200
                running.process.kill()
            printed = run("usage", "--format", "json", "--group-by", "model", folder=tmp_path)
            (entry,) = map(json.loads, printed.out.splitlines())
            assert counts(entry, "reported") == (5 * round, 15 * round, 10 * round)
