"""`/metrics` of real gateways, read back by the parser of Prometheus."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families

from tests.faults.upstream import SILENCE, STREAM, Hold, Upstream, answer, chunk, stream, upstream
from tests.faults.wires import CHAT, GEMINI, MESSAGES, RESPONSES, SPEECHES, question
from tests.faults.world import World, at_once, place, places, until, world
from tests.gateway_process import gateway
from tests.raw_http import PATIENCE
from tests.serving import NO_AUTHORITIES
from weft.assembler import Response
from weft.gateway.metrics import (
    COLLECTED,
    DEFINITIONS,
    MAX_COUNTED,
    MAX_MODELS,
    GatewayState,
    Metrics,
    ModelLabels,
)
from weft.gateway.worker_metrics import MetricsFolder
from weft.parts import Usage
from weft.relay.request_record import Attempt, RequestRecord
from weft.scrub import Scrubber, Secret

ROOT = Path(__file__).parents[1]
KEY = "key-of-alice-0123456789"
Labels = dict[str, str]
Samples = dict[str, list[tuple[Labels, float]]]

AGENTS = """
[agents.helper]
model = "demo/agent"
tools = ["run_tools:look", "run_tools:refund"]
[agents.boss]
model = "demo/agent"
tools = ["agent:helper"]
[upstreams.demo]
dialect = "anthropic-messages"
base_url = "demo:fast"
"""
BROKEN = (answer(b'{"error":{"message":"no"}}', "500 Broken"),)
PRICES = f'[prices."{CHAT}/priced"]\ninput = 1000000\noutput = 2000000\n'


@pytest.fixture(scope="module")
def behind() -> Iterator[Upstream]:
    with upstream() as made:
        yield made


@pytest.fixture(scope="module")
def one(behind: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One process."""
    folder = tmp_path_factory.mktemp("one")
    (folder / "run_tools.py").write_text(Path(__file__).with_name("run_tools.py").read_text())
    settings = "\n".join(
        (
            places(behind.url),
            place("tripping", CHAT, behind.url, retry={"attempts": 1},
                  breaker={"failures": 2, "open_for": 600}),
            place("again", CHAT, behind.url, breaker={"failures": 0},
                  retry={"attempts": 2, "base": 0.0, "longest": 1.0}),
            AGENTS,
            PRICES,
            "[models]",
            f'"first-*" = ["again/*", "{MESSAGES}/*"]',
            f'named = "{CHAT}/named"',
        )
    )  # fmt: skip
    with world(settings, folder, behind) as made:
        yield made


def samples(text: str) -> Samples:
    """The samples by name."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def scrape(made: World) -> Samples:
    response = made.get("/metrics")
    assert response.status == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    return samples(response.body.decode())


def value(found: Samples, name: str, **labels: str) -> float:
    """The sum of the samples that have these labels."""
    return sum(value for known, value in found.get(name, []) if labels.items() <= known.items())


class Growth:
    """What has been counted since it was made. The gateway is shared by the tests of this file."""

    def __init__(self, made: World) -> None:
        self._made = made
        self._before = self._after = scrape(made)

    def of(self, name: str, **labels: str) -> float:
        """Up to what `reaches` has waited for."""
        return value(self._after, name, **labels) - value(self._before, name, **labels)

    def reaches(self, number: float, name: str, **labels: str) -> None:
        """Waits until it is so many: a request is counted right after its last byte."""

        def is_reached() -> bool:
            self._after = scrape(self._made)
            return self.of(name, **labels) >= number

        until(is_reached, f"{name} {labels}")
        assert self.of(name, **labels) == number


def good(dialect: str = CHAT) -> tuple[Any, ...]:
    return tuple(stream(*SPEECHES[dialect].frames))


# Requests


@pytest.mark.parametrize("dialect", [CHAT, RESPONSES, MESSAGES, GEMINI])
def test_a_stream_is_counted_once_with_its_tokens_and_events(one: World, dialect: str) -> None:
    model = one.upstream.script(good(dialect))
    grown, labels = Growth(one), {"upstream": dialect, "model": model}
    found = one.ask(dialect, f"{dialect}/{model}", True)
    assert found.status == 200
    said = {"dialect": dialect, "stream": "true", "status": "200", "error": ""}
    grown.reaches(1, "weft_requests_total", **labels, **said)
    assert grown.of("weft_requests_total") == 1
    assert grown.of("weft_tokens_total", **labels, type="input") == 3
    assert grown.of("weft_tokens_total", **labels, type="output") == 2
    assert grown.of("weft_events_total", dialect=dialect) == found.body.count(b"data: ")
    assert grown.of("weft_sent_bytes_total", dialect=dialect) > 0
    assert grown.of("weft_received_bytes_total", upstream=dialect) > 0
    assert grown.of("weft_upstream_attempts_total", **labels, result="ok") == 1
    for name in ("weft_time_to_first_token_seconds", "weft_request_seconds"):
        assert grown.of(f"{name}_count", **labels) == 1
        assert grown.of(f"{name}_bucket", **labels, le="+Inf") == 1
        assert grown.of(f"{name}_sum", **labels) > 0


def test_a_body_has_no_first_token(one: World) -> None:
    model = one.upstream.script((answer(SPEECHES[CHAT].body),))
    grown = Growth(one)
    one.ask(CHAT, f"{CHAT}/{model}", False)
    grown.reaches(1, "weft_requests_total", model=model, stream="false")
    assert grown.of("weft_time_to_first_token_seconds_count") == 0


def test_cost_is_by_the_prices_of_the_settings(one: World) -> None:
    one.upstream.named("priced", good())
    free = one.upstream.script(good())
    grown = Growth(one)
    for model in ("priced", free):
        one.ask(CHAT, f"{CHAT}/{model}", True)
        grown.reaches(1, "weft_requests_total", upstream=CHAT, model=model)
    assert grown.of("weft_cost_dollars_total", upstream=CHAT, model="priced") == 3 * 1 + 2 * 2
    assert grown.of("weft_cost_dollars_total") == 7, "nobody knows the price of the other one"


def test_a_failover_counts_each_attempt_once(one: World) -> None:
    model = one.upstream.script(BROKEN, BROKEN, good(MESSAGES), prefix="first")
    grown = Growth(one)
    assert one.ask(CHAT, model, True).status == 200
    grown.reaches(1, "weft_requests_total", upstream=MESSAGES, model=model, status="200")
    assert grown.of("weft_requests_total") == 1
    assert grown.of("weft_upstream_attempts_total", upstream="again", result="failed") == 2
    assert grown.of("weft_upstream_attempts_total", upstream=MESSAGES, result="ok") == 1
    assert grown.of("weft_upstream_errors_total", upstream="again", status="500") == 2
    assert grown.of("weft_tokens_total", type="output") == 2


def test_a_retry_is_an_attempt_and_an_error_but_no_request(one: World) -> None:
    model = one.upstream.script(BROKEN, good())
    grown = Growth(one)
    assert one.ask(CHAT, f"again/{model}", True).status == 200
    grown.reaches(1, "weft_requests_total", upstream="again", model=model, status="200")
    assert grown.of("weft_upstream_attempts_total", upstream="again", result="ok") == 1
    assert grown.of("weft_upstream_attempts_total", upstream="again", result="failed") == 1
    assert grown.of("weft_upstream_errors_total", upstream="again", status="500") == 1
    assert grown.of("weft_tokens_total", upstream="again", type="output") == 2


def test_a_stream_that_breaks_is_an_error_though_its_status_was_200(one: World) -> None:
    said = SPEECHES[CHAT]
    model = one.upstream.script((STREAM, *map(chunk, said.head + said.content), chunk(b"")))
    grown = Growth(one)
    one.ask(CHAT, f"{CHAT}/{model}", True)
    grown.reaches(1, "weft_requests_total", status="200", error="bad-upstream-answer")
    assert grown.of("weft_upstream_errors_total", error="bad-upstream-answer") == 1
    assert grown.of("weft_upstream_attempts_total", result="ok") == 1


@pytest.mark.parametrize("has_content", [True, False])
def test_a_client_that_leaves_is_counted_and_no_error_of_the_upstream(
    one: World, has_content: bool
) -> None:
    said, hold = SPEECHES[CHAT], Hold()
    begun = (STREAM, *map(chunk, said.head + said.content)) if has_content else ()
    model = one.upstream.script((*begun, hold, SILENCE))
    grown = Growth(one)
    with one.client() as client:
        client.send(question(CHAT, f"{CHAT}/{model}", True))
        hold.here()
        if has_content:
            one.seen(client, b"and weft.")
        # That of the test before is counted before it is closed.
        until(lambda: value(scrape(one), "weft_open_streams") == 1, "the stream alone")
    grown.reaches(1, "weft_requests_total", upstream=CHAT, status="499", error="cancelled")
    assert grown.of("weft_upstream_errors_total") == 0
    result = "ok" if has_content else "abandoned"
    assert grown.of("weft_upstream_attempts_total", upstream=CHAT, result=result) == 1
    until(lambda: value(scrape(one), "weft_open_streams") == 0, "the stream to be closed")
    assert value(scrape(one), "weft_open_requests") == 0


def test_a_finding_is_counted_by_its_code(one: World) -> None:
    said = SPEECHES[CHAT]
    model = one.upstream.script(
        tuple(stream(*said.head, b'data: {"what":1}\n\n', *said.content, *said.end))
    )
    grown = Growth(one)
    one.ask(CHAT, f"{CHAT}/{model}", True)
    grown.reaches(1, "weft_requests_total", model=model)
    assert grown.of("weft_findings_total") >= 1


def test_an_open_breaker_is_seen(one: World) -> None:
    model = one.upstream.script(BROKEN)
    grown = Growth(one)
    for _ in range(3):
        one.ask(CHAT, f"tripping/{model}", True)
    grown.reaches(3, "weft_requests_total", upstream="tripping", model="other")
    assert grown.of("weft_upstream_attempts_total", upstream="tripping", result="failed") == 2
    assert grown.of("weft_upstream_attempts_total", upstream="tripping", result="unsent") == 1
    found = scrape(one)["weft_breaker_state"]
    assert ({"upstream": "tripping", "model": "other"}, 2.0) in found


def test_what_reaches_no_model_is_counted_by_its_status(one: World) -> None:
    grown = Growth(one)
    assert one.ask(CHAT, "nobody/nothing", True).status == 404
    assert one.get("/nothing").status == 404
    assert one.get("/health").status == 200
    with one.client() as client:
        client.send(b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert client.answer().status == 421
    grown.reaches(2, "weft_other_requests_total", status="404")
    assert grown.of("weft_other_requests_total", status="421", error="bad-request") == 1
    assert grown.of("weft_other_requests_total", status="200", error="") >= 2, "and scrapes"
    assert grown.of("weft_requests_total") == 0


# Labels


def test_models_that_no_upstream_has_make_no_series(one: World) -> None:
    model = one.upstream.script(
        (answer(b'{"error":{"message":"no such model"}}', "404 Not Found"),)
    )
    one.ask(CHAT, f"{CHAT}/{model}", True)
    before = len(scrape(one)["weft_requests_total"])
    for number in range(5):
        one.ask(CHAT, f"{CHAT}/invented-{number}", True)
        one.ask(CHAT, f"invented-{number}", True)
    after = scrape(one)
    assert len(after["weft_requests_total"]) <= before + 2
    assert "invented" not in repr(after)


def test_the_number_of_models_is_bounded() -> None:
    labels = ModelLabels(["a/known"], Scrubber([Secret("planted-secret-1234")]))
    assert labels.of("a/known") == "known"
    assert labels.of("a/new") == "other"
    assert labels.of("a/new", answered=True) == "new"
    assert labels.of("a/new") == "new", "from then on it is known"
    found = {labels.of(f"a/{number}", answered=True) for number in range(3 * MAX_MODELS)}
    assert len(found) == MAX_MODELS  # and one was taken
    assert labels.of("a/known") == "known"


@given(st.lists(st.tuples(st.text(max_size=200), st.booleans())))
def test_whatever_clients_ask_for_a_label_is_clean_and_stays_the_same(
    asked_for: list[tuple[str, bool]],
) -> None:
    labels = ModelLabels(["a/known"], Scrubber([]))
    first: dict[str, str] = {}
    for name, answered in asked_for:
        label = labels.of(f"a/{name}", answered)
        assert label in ("other", name)
        assert label.isascii()
        assert label.isprintable()
        if first.setdefault(name, label) != "other":
            assert label == name


@pytest.mark.parametrize(
    "name",
    ["planted-secret-1234", "sk-abcdefghijklmnop", "with blank", "line\nbreak", "é", "x" * 129, ""],
)
def test_what_is_no_name_of_a_model_is_no_label(name: str) -> None:
    labels = ModelLabels([], Scrubber([Secret("planted-secret-1234")]))
    assert labels.of(f"a/{name}", answered=True) == "other"


# Agents, background


def post(made: World, path: str, body: object, **headers: str) -> Any:
    with http() as client:
        response = client.post(f"{made.gateway.url}{path}", json=body, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


def get(made: World, path: str) -> Any:
    return json.loads(made.get(path).body)


def http() -> httpx.Client:
    return httpx.Client(trust_env=False, timeout=PATIENCE, verify=NO_AUTHORITIES)


def test_runs_are_counted_with_their_turns_and_calls(one: World) -> None:
    grown = Growth(one)
    id = post(one, "/v1/runs", {"agent": "helper", "input": "Please look at order 7."})["id"]
    until(lambda: get(one, f"/v1/runs/{id}")["status"] == "finished", "the run to end", PATIENCE)
    grown.reaches(1, "weft_runs_ended_total", agent="helper", status="finished")
    turns = grown.of("weft_agent_turns_total", agent="helper", result="finished")
    assert turns >= 2
    assert grown.of("weft_agent_calls_total", agent="helper", tool="look", result="ok") >= 1
    # Each turn is a request to its model.
    grown.reaches(turns, "weft_requests_total", upstream="demo", model="agent")

    def are_all_stored() -> bool:
        """Those of other tests as well."""
        found = scrape(one)
        ended = value(found, "weft_runs_ended_total", status="finished")
        return value(found, "weft_runs", status="finished") == ended

    until(are_all_stored, "weft_runs", 30.0)


def test_an_agent_as_a_model_spends_no_token_twice(one: World) -> None:
    grown = Growth(one)
    body = {"model": "helper", "input": "Please look at order 7.", "stream": False}
    used = post(one, "/v1/responses", body)["usage"]
    grown.reaches(1, "weft_requests_total", upstream="weft-agents", model="helper")
    grown.reaches(used["output_tokens"], "weft_tokens_total", upstream="demo", type="output")
    assert grown.of("weft_tokens_total", upstream="weft-agents") == 0


def test_a_background_response_is_one_request(one: World) -> None:
    grown = Growth(one)
    model = one.upstream.script(good(RESPONSES))
    body = {"model": f"{RESPONSES}/{model}", "input": "hi", "background": True}
    id = post(one, "/v1/responses", body)["id"]
    until(lambda: get(one, f"/v1/responses/{id}")["status"] == "completed", "its end", PATIENCE)
    grown.reaches(1, "weft_requests_total", upstream=RESPONSES, model=model)
    assert grown.of("weft_tokens_total", upstream=RESPONSES, type="input") == 3


# Several workers


def test_a_folder_in_the_environment_is_not_taken_for_that_of_workers(tmp_path: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    with gateway("", tmp_path, environment=environment) as running, http() as client:
        found = samples(client.get(f"{running.url}/metrics").text)
    assert value(found, "weft_workers") == 1


@pytest.fixture
def four(behind: Upstream, tmp_path: Path) -> Iterator[World]:
    settings = "[server]\nworkers = 4\n" + places(behind.url)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with gateway(settings, tmp_path, environment=environment) as running:
        assert [one.name[:13] for one in temporary.iterdir()] == ["weft-metrics-"]
        yield World(running, behind)
        assert running.stop() == 0
    assert list(temporary.iterdir()) == [], "the files of the workers are removed at the end"


def workers_of(made: World) -> set[int]:
    """The processes of the workers that live."""
    children = Path(f"/proc/{made.gateway.pid}/task/{made.gateway.pid}/children").read_text()
    return set(map(int, children.split()))


def test_one_scrape_sees_all_workers_and_a_killed_one_leaves_nothing_wrong(four: World) -> None:
    until(lambda: value(scrape(four), "weft_workers") == 4, "all workers", 30.0)
    model, waiting = four.upstream.script(good()), [Hold() for _ in range(12)]
    at_once([lambda: asked(four, model)] * 40)
    # The counters of one request grow one after the other, while others read them.
    until(lambda: (total(four), tokens(four, model)) == (40, 80), "all requests")
    for _ in range(8):  # of whichever worker
        assert (total(four), tokens(four, model)) == (40, 80)
    # Streams are open in every worker; one worker dies with its own.
    said = SPEECHES[CHAT]
    begun = (STREAM, *map(chunk, said.head + said.content))
    clients = [four.client() for _ in waiting]
    for client, hold in zip(clients, waiting, strict=True):
        slow = four.upstream.script((*begun, hold, SILENCE))
        client.send(question(CHAT, f"{CHAT}/{slow}", True))
        hold.here()
    until(lambda: value(scrape(four), "weft_open_streams") == 12, "the open streams")
    before = workers_of(four)
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(workers_of(four) - before) == 1, "another worker", 30.0)
    until(lambda: value(scrape(four), "weft_workers") == 4, "all workers", 30.0)
    assert value(scrape(four), "weft_open_streams") <= 12
    for client in clients:
        client.close()
    until(lambda: value(scrape(four), "weft_open_streams") == 0, "the streams to be closed")
    # Counters of the dead are kept: Prometheus would take less for a restart of all.
    assert total(four) >= 40
    left = value(scrape(four), "weft_requests_total", status="499")
    assert 0 < left <= 12
    assert total(four) == 40 + left
    at_once([lambda: asked(four, model)] * 20)
    until(lambda: (total(four), tokens(four, model)) == (60 + left, 120), "further requests")


def asked(made: World, model: str) -> None:
    assert made.ask(CHAT, f"{CHAT}/{model}", True).status == 200


def total(made: World) -> float:
    return value(scrape(made), "weft_requests_total")


def tokens(made: World, model: str) -> float:
    return value(scrape(made), "weft_tokens_total", model=model, type="output")


def test_requests_are_counted_once_whether_they_are_sampled_or_not() -> None:
    response = Response("r", finish_reason="stop", usage=Usage(3, 2, cache_read_tokens=1))
    metrics = Metrics(["a/m"], Scrubber([]), lambda target, usage: 0.5)
    for number in range(2 * MAX_COUNTED + 30):
        record = RequestRecord("req", "openai-chat", "a/m", "", True, started=1.0)
        record.first, record.ended, record.events, record.bytes_in = 1.5, 3.0, 4, 5
        record.attempts = [Attempt("a/m", started=1.0)]
        record.response = response
        metrics.observe(record)
        if number % 50 == 0:
            metrics.sample(GatewayState(0, 0, [], 0.0, 0))
    metrics.sample(GatewayState(0, 0, [], 0.0, 0))
    found, count = samples(metrics.render("", {})[0].decode()), 2 * MAX_COUNTED + 30
    assert value(found, "weft_requests_total", status="200", stream="true", error="") == count
    assert value(found, "weft_request_seconds_count", model="m") == count
    assert value(found, "weft_request_seconds_sum") == 2 * count
    assert value(found, "weft_time_to_first_token_seconds_bucket", le="0.5") == count
    assert value(found, "weft_upstream_attempts_total", result="ok") == count
    assert value(found, "weft_events_total") == 4 * count
    assert value(found, "weft_received_bytes_total", upstream="a") == 5 * count
    assert value(found, "weft_tokens_total", type="input") == 3 * count
    assert value(found, "weft_tokens_total", type="cache_read") == count
    assert value(found, "weft_cost_dollars_total") == 0.5 * count
    assert "weft_sent_bytes_total" not in found, "nothing was counted"


WORKER = """
import os, signal, sys
from weft.gateway.worker_metrics import MetricsFolder
MetricsFolder(sys.argv[1]).join(int(sys.argv[2]))
from weft.gateway.metrics import GatewayState, Metrics
from weft.relay.request_record import RequestRecord
from weft.scrub import Scrubber
metrics = Metrics([], Scrubber([]), lambda target, usage: None)
metrics.sample(GatewayState(5, 5, [], 1.0, 7))
for _ in range(int(sys.argv[3])):
    metrics.observe(RequestRecord("req", "openai-chat", "m", "", True))
print(metrics.render("", {})[0].decode(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_counters_of_a_dead_worker_are_continued_and_its_gauges_removed() -> None:
    with MetricsFolder() as folder:

        def work(worker: int, requests: int) -> Samples:
            """What a process sees that works in this place and dies."""
            command = [sys.executable, "-c", WORKER, str(folder.path), str(worker), str(requests)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == -signal.SIGKILL, done.stderr
            return samples(done.stdout)

        work(0, 3)
        files = len(list(folder.path.iterdir()))
        found = work(1, 4)
        assert value(found, "weft_requests_total") == 7
        assert value(found, "weft_open_streams") == 10, "nobody has noticed that worker 0 died"
        folder.leave(0)
        folder.leave(1)
        found = work(1, 1)
        assert value(found, "weft_requests_total") == 8
        assert value(found, "weft_open_streams") == value(found, "weft_open_requests") == 5
        assert value(found, "weft_store_lag_seconds") == value(found, "weft_workers") == 1
        assert value(found, "weft_request_seconds_count") == 0
        work(0, 2)
        assert len(list(folder.path.iterdir())) == 2 * files, "the folder does not grow"
    assert not folder.path.exists()


# Who may read it


def settings_with(metrics: str) -> str:
    return f'[server]\nmetrics = "{metrics}"\n[server.keys]\nalice = "{KEY}"\n'


@pytest.mark.parametrize(
    ("metrics", "without", "with_key"), [("public", 200, 200), ("off", 401, 404)]
)
def test_the_settings_may_open_it_or_switch_it_off(
    tmp_path: Path, metrics: str, without: int, with_key: int
) -> None:
    with gateway(settings_with(metrics), tmp_path) as running:
        url, key = f"{running.url}/metrics", {"authorization": f"Bearer {KEY}"}
        with http() as client:
            assert client.get(url).status_code == without
            assert client.get(url, headers=key).status_code == with_key
            assert client.get(url, headers={**key, "host": "evil.example"}).status_code == 421
            assert client.get(f"{url}/x", headers=key).status_code == 404
            assert client.get(f"{running.url}/v1/models").status_code == 401


def test_open_metrics_is_given_to_who_asks_for_it(one: World) -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
    with http() as client:
        response = client.get(f"{one.gateway.url}/metrics", headers={"accept": accept})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    families = list(openmetrics(response.text))  # type: ignore[no-untyped-call]
    assert {one.name for one in families} == {*DEFINITIONS, *COLLECTED}


# What is written of them


def test_every_metric_is_documented_with_its_labels() -> None:
    text = (ROOT / "docs" / "observability.md").read_text()
    rows = dict(re.findall(r"^\| `(weft_\w+)` \| ([^|]*) \|", text, re.MULTILINE))
    exported = {
        f"{name}_total" if one.kind == "counter" else name: one
        for name, one in {**DEFINITIONS, **COLLECTED}.items()
    }
    assert rows.keys() == exported.keys()
    for name, definition in exported.items():
        assert re.findall(r"`(\w+)`", rows[name]) == list(definition.labels), name


def test_every_query_of_the_dashboard_names_metrics_and_labels_that_exist() -> None:
    dashboard = json.loads((ROOT / "deploy" / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [one["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    assert len(queries) > 10
    known = {**DEFINITIONS, **COLLECTED}
    used = set()
    for query in queries:
        names = re.findall(r"\bweft_\w+", query)
        assert names, query
        for name in names:
            plain = _plain(name)
            definition = known[plain]
            suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
            assert name[len(plain) :] in suffixes.get(definition.kind, ("",)), name
            used.add(plain)
        labels = {label for one in names for label in known[_plain(one)].labels} | {"le"}
        asked_for = re.findall(r"\bby \(([^)]*)\)", query) + re.findall(
            r"(\w+) ?(?:=~|!=|=)", query
        )
        found = {one.strip() for some in asked_for for one in some.split(",")}
        assert found <= labels | {"job", "instance"}, query
    important = {"weft_requests", "weft_tokens", "weft_cost_dollars", "weft_breaker_state",
                 "weft_open_streams", "weft_store_lag_seconds", "weft_runs", "weft_findings",
                 "weft_upstream_errors", "weft_time_to_first_token_seconds"}  # fmt: skip
    assert important <= used


def _plain(name: str) -> str:
    return re.sub("_(total|bucket|sum|count)$", "", name)
