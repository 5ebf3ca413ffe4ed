"""Traces and metrics of real gateways, as a collector of OpenTelemetry gets them."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.upstream import SILENCE, STREAM, Hold, Upstream, answer, chunk, upstream
from tests.faults.wires import CHAT, MESSAGES, RESPONSES, SPEECHES, question
from tests.faults.world import World, at_once, place, places, until, world
from tests.gateway_process import gateway
from tests.otlp import Collector, Span, collector
from tests.raw_http import PATIENCE
from tests.test_cli_upstreams import free_port
from tests.test_metrics import AGENTS, BROKEN, asked, good, post
from weft.relay.trace_context import TraceContext, parse_traceparent, span_id_of

PROMPT = "the words of the prompt"
HEADER = "otlp-header-secret-0123456789"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GIVEN = f"traceparent: 00-{TRACE}-{PARENT}-01"
UNSAMPLED = f"traceparent: 00-{TRACE[::-1]}-{PARENT}-00"


def otel(made: Collector, **more: object) -> str:
    lines = [f"{name} = {json.dumps(value)}" for name, value in more.items()]
    headers = f'headers = {{ "x-collector-key" = "{HEADER}" }}'
    return "\n".join(["[otel]", f'endpoint = "{made.url}"', "interval = 0.05", headers, *lines, ""])


@pytest.fixture(scope="module")
def behind() -> Iterator[Upstream]:
    with upstream() as made:
        yield made


@pytest.fixture(scope="module")
def seen() -> Iterator[Collector]:
    with collector() as made:
        yield made


@pytest.fixture(scope="module")
def traced(
    behind: Upstream, seen: Collector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("traced")
    (folder / "run_tools.py").write_text(Path(__file__).with_name("run_tools.py").read_text())
    settings = "\n".join(
        (
            otel(seen),
            places(behind.url),
            place("again", CHAT, behind.url, retry={"attempts": 2, "base": 0.0, "longest": 1.0},
                  breaker={"failures": 1, "open_for": 600}),
            AGENTS,
            "[models]",
            f'"first-*" = ["again/*", "{MESSAGES}/*"]',
        )
    )  # fmt: skip
    with world(settings, folder, behind) as made:
        yield made
        assert HEADER not in made.gateway.stderr


def requests_of(seen: Collector, model: str, number: int = 1) -> list[Span]:
    """The spans of the requests for a model; waits until they are there."""

    def found() -> list[Span]:
        return [one for one in list(seen.spans) if str(one.attributes.get("weft.model")) == model]

    until(lambda: len(found()) >= number, f"the span of {model}")
    assert len(found()) == number
    return found()


# Requests


@pytest.mark.parametrize("streaming", [True, False])
def test_a_request_is_a_span_with_its_attempt_inside(
    traced: World, seen: Collector, streaming: bool
) -> None:
    model = traced.upstream.script(good() if streaming else (answer(SPEECHES[CHAT].body),))
    traced.ask(CHAT, f"{CHAT}/{model}", streaming, GIVEN, temperature=0.5, max_tokens=9)
    [request] = requests_of(seen, f"{CHAT}/{model}")
    assert (request.name, request.kind) == (f"{CHAT} request", "SERVER")
    assert (request.trace_id, request.parent_id) == (TRACE, PARENT)
    assert request.attributes["http.response.status_code"] == 200
    assert request.attributes["weft.stream"] is streaming
    assert not request.failed
    [attempt] = seen.children(request)
    assert (attempt.name, attempt.kind) == (f"chat {model}", "CLIENT")
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": CHAT,
        "gen_ai.request.model": model,
        "gen_ai.request.stream": streaming,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 2,
        "server.address": "127.0.0.1",
        "server.port": traced.upstream.port,
    }
    assert expected.items() <= attempt.attributes.items()
    assert request.start <= attempt.start <= attempt.end <= request.end
    # What the upstream was sent is the span of the attempt.
    [sent] = traced.upstream.exchanges(model)
    assert sent.headers["traceparent"] == f"00-{TRACE}-{attempt.span_id}-01"
    assert request.resource["service.name"] == "weft"


@pytest.mark.parametrize(
    "header", ["", "traceparent: nonsense", f"traceparent: 00-{'0' * 32}-{PARENT}-01",
               f"traceparent: ff-{TRACE}-{PARENT}-01", f"traceparent: 00-{TRACE}-{PARENT}-01-x"],
)  # fmt: skip
def test_without_a_valid_parent_it_is_the_root_of_a_new_trace(
    traced: World, seen: Collector, header: str
) -> None:
    model = traced.upstream.script(good())
    traced.ask(CHAT, f"{CHAT}/{model}", True, *([header] if header else []))
    [request] = requests_of(seen, f"{CHAT}/{model}")
    assert request.parent_id == ""
    assert request.trace_id not in (TRACE, "0" * 32)
    [sent] = traced.upstream.exchanges(model)
    found = parse_traceparent(sent.headers["traceparent"])
    assert found is not None
    assert f"{found.trace_id:032x}" == request.trace_id


def test_what_the_client_does_not_sample_is_passed_on_and_not_written(
    traced: World, seen: Collector
) -> None:
    quiet, loud = traced.upstream.script(good()), traced.upstream.script(good())
    traced.ask(CHAT, f"{CHAT}/{quiet}", True, UNSAMPLED)
    [sent] = traced.upstream.exchanges(quiet)
    assert re.fullmatch(f"00-{TRACE[::-1]}-[0-9a-f]{{16}}-00", sent.headers["traceparent"])
    traced.ask(CHAT, f"{CHAT}/{loud}", True)
    requests_of(seen, f"{CHAT}/{loud}")  # which came later, and is there
    assert not any(one.trace_id == TRACE[::-1] for one in seen.spans)


def test_each_attempt_of_a_failover_is_a_span(traced: World, seen: Collector) -> None:
    model = traced.upstream.script(BROKEN, BROKEN, good(MESSAGES), good(MESSAGES), prefix="first")
    traced.ask(CHAT, model, True)
    [request] = requests_of(seen, model)
    attempts = sorted(seen.children(request), key=lambda one: one.start)
    providers = [one.attributes["gen_ai.provider.name"] for one in attempts]
    assert providers == ["again", "again", MESSAGES]
    assert [one.failed for one in attempts] == [True, True, False]
    assert [one.attributes.get("error.type") for one in attempts] == ["server", "server", None]
    sent = [one.headers["traceparent"] for one in traced.upstream.exchanges(model)]
    assert [one.split("-")[2] for one in sent] == [one.span_id for one in attempts]
    assert not request.failed
    # The breaker is open now: an attempt that is not made is an event, not a span.
    traced.ask(CHAT, model, True)
    second = requests_of(seen, model, 2)[1]
    assert second.events == ["weft.attempt.unsent"]
    [only] = seen.children(second)
    assert only.attributes["gen_ai.provider.name"] == MESSAGES


@pytest.mark.parametrize("has_content", [True, False])
def test_a_client_that_leaves_cancels_its_spans(
    traced: World, seen: Collector, has_content: bool
) -> None:
    said, hold = SPEECHES[CHAT], Hold()
    begun = (STREAM, *map(chunk, said.head + said.content)) if has_content else ()
    model = traced.upstream.script((*begun, hold, SILENCE))
    with traced.client() as client:
        client.send(question(CHAT, f"{CHAT}/{model}", True))
        hold.here()
        if has_content:
            traced.seen(client, b"and weft.")
    [request] = requests_of(seen, f"{CHAT}/{model}")
    [attempt] = seen.children(request)
    for span in (request, attempt):
        assert span.attributes["error.type"] == "cancelled"
        assert not span.failed, "nobody has failed"
    assert request.attributes["http.response.status_code"] == 499


def test_a_stream_that_breaks_has_failed(traced: World, seen: Collector) -> None:
    said = SPEECHES[CHAT]
    model = traced.upstream.script((STREAM, *map(chunk, said.head + said.content), b"0\r\n\r\n"))
    traced.ask(CHAT, f"{CHAT}/{model}", True)
    [request] = requests_of(seen, f"{CHAT}/{model}")
    [attempt] = seen.children(request)
    assert request.failed
    assert attempt.failed
    assert attempt.attributes["error.type"] == "bad-upstream-answer"


def test_a_background_response_is_in_the_trace_of_its_client(
    traced: World, seen: Collector
) -> None:
    model = traced.upstream.script(good(RESPONSES))
    body = {"model": f"{RESPONSES}/{model}", "input": "hi", "background": True}
    trace = "1" * 32
    post(traced, "/v1/responses", body, traceparent=f"00-{trace}-{PARENT}-01")
    [request] = requests_of(seen, f"{RESPONSES}/{model}")
    assert (request.trace_id, request.parent_id) == (trace, PARENT)
    assert len(seen.children(request)) == 1


# Agents


def run_spans(seen: Collector, trace: str) -> tuple[Span, list[Span], list[Span]]:
    """The span of the run of a trace, those of its turns, and those of its calls."""
    until(
        lambda: any(one.name == "invoke_agent helper" for one in list(seen.spans)
                    if one.trace_id == trace),
        "the span of the run",
    )  # fmt: skip
    spans = [one for one in list(seen.spans) if one.trace_id == trace]
    [run] = [one for one in spans if one.name == "invoke_agent helper"]
    inside = seen.children(run)
    turns = sorted((one for one in inside if one.name.startswith("turn ")), key=lambda s: s.start)
    return run, turns, [one for one in inside if one.name.startswith("execute_tool ")]


def test_a_run_has_spans_of_its_turns_calls_and_models(traced: World, seen: Collector) -> None:
    trace = "2" * 32
    id = post(
        traced,
        "/v1/runs",
        {"agent": "helper", "input": "Please look at order 7."},
        traceparent=f"00-{trace}-{PARENT}-01",
    )["id"]
    run, turns, calls = run_spans(seen, trace)
    assert run.attributes["weft.run.id"] == id
    assert run.attributes["gen_ai.agent.name"] == "helper"
    [start] = [one for one in seen.spans if one.span_id == run.parent_id]
    assert (start.name, start.parent_id) == ("POST /v1/runs", PARENT)
    assert [one.name for one in turns] == [f"turn {n}" for n in range(1, len(turns) + 1)]
    assert len(turns) >= 2
    [call] = calls
    assert call.attributes["gen_ai.tool.name"] == "look"
    assert call.attributes["gen_ai.operation.name"] == "execute_tool"
    for turn in turns:
        until(lambda turn=turn: bool(seen.children(turn)), "the model")  # type: ignore[misc]
        [model] = seen.children(turn)
        assert model.name == "chat agent"
        assert run.start <= turn.start <= model.end


def test_an_agent_that_is_called_is_inside_of_its_caller(traced: World, seen: Collector) -> None:
    trace = "4" * 32
    body = {"agent": "boss", "input": "Let the helper look at order 7."}
    post(traced, "/v1/runs", body, traceparent=f"00-{trace}-{PARENT}-01")

    def callers() -> list[Span]:
        return [one for one in seen.named("invoke_agent boss") if one.trace_id == trace]

    until(lambda: bool(callers()), "the span of the caller", PATIENCE)
    run, turns, _ = run_spans(seen, trace)
    assert turns
    [caller] = callers()
    assert run.parent_id == caller.span_id
    assert run.attributes["weft.run.id"] != caller.attributes["weft.run.id"]


def test_an_agent_as_a_model_is_inside_of_the_request(traced: World, seen: Collector) -> None:
    trace = "3" * 32
    body = {"model": "helper", "input": "Please look at order 7.", "stream": False}
    post(traced, "/v1/responses", body, traceparent=f"00-{trace}-{PARENT}-01")
    run, turns, calls = run_spans(seen, trace)
    assert (len(turns) >= 2, len(calls)) == (True, 1)

    def request() -> list[Span]:
        return [one for one in list(seen.spans)
                if (one.trace_id, one.kind) == (trace, "SERVER")]  # fmt: skip

    until(lambda: len(request()) == 1, "the span of the request")
    [attempt] = seen.children(request()[0])
    assert attempt.name == "agent helper"
    assert run.parent_id == attempt.span_id


# What is not in it


def test_no_prompt_and_no_answer_is_sent_unless_the_settings_say_so(
    traced: World, seen: Collector
) -> None:
    model = traced.upstream.script(good())
    traced.ask(CHAT, f"{CHAT}/{model}", True, messages=[{"role": "user", "content": PROMPT}])
    requests_of(seen, f"{CHAT}/{model}")
    everything = b"".join(seen.raw)
    assert b"and weft." not in everything
    assert PROMPT.encode() not in everything
    assert b"order 7" not in everything
    assert b"sk-of-an-upstream" not in everything
    assert all(one["x-collector-key"] == HEADER for one in seen.headers)


def test_content_is_sent_if_the_settings_say_so(behind: Upstream, tmp_path: Path) -> None:
    with collector() as seen:
        settings = otel(seen, content=True, service="shop", metrics=False) + places(behind.url)
        with world(settings, tmp_path, behind) as made:
            model = behind.script(good())
            secret = "sk-abcdefghijklmnop123456"
            messages = [{"role": "user", "content": f"{PROMPT} {secret}"}]
            made.ask(CHAT, f"{CHAT}/{model}", True, messages=messages)
        # What was not sent yet is sent when the gateway stops.
        [attempt] = [one for one in seen.spans if one.kind == "CLIENT"]
        [message] = json.loads(str(attempt.attributes["gen_ai.input.messages"]))
        assert message["role"] == "user"
        assert PROMPT in message["parts"][0]["content"]
        assert secret not in repr(attempt)
        [said] = json.loads(str(attempt.attributes["gen_ai.output.messages"]))
        assert said == {
            "role": "assistant",
            "parts": [{"type": "text", "content": "Warp and weft."}],
            "finish_reason": "stop",
        }
        assert attempt.resource["service.name"] == "shop"
        assert seen.points == []


# Metrics


def test_metrics_follow_the_conventions(traced: World, seen: Collector) -> None:
    model = traced.upstream.script(good())
    traced.ask(CHAT, f"{CHAT}/{model}", True)

    def last(name: str, **about: str) -> float | None:
        """The total so far."""
        wanted = {"gen_ai.request.model": model, "gen_ai.provider.name": CHAT, **about}
        found = [value for one, labels, value in list(seen.points)
                 if one == name and wanted.items() <= labels.items()]  # fmt: skip
        return found[-1] if found else None

    kind = "gen_ai.token.type"
    # Each by itself: an export may come between two of them.
    until(lambda: last("gen_ai.client.token.usage", **{kind: "output"}) == 2, "the output")
    until(lambda: last("gen_ai.client.token.usage", **{kind: "input"}) == 3, "the input")
    for name in ("duration", "time_to_first_chunk"):
        until(lambda name=name: (last(f"gen_ai.client.operation.{name}") or 0) > 0, name)  # type: ignore[misc]


# Processes


def test_spans_of_all_workers_arrive_also_after_a_kill(behind: Upstream, tmp_path: Path) -> None:
    with collector() as seen:
        settings = "[server]\nworkers = 2\n" + otel(seen) + places(behind.url)
        with gateway(settings, tmp_path) as running:
            made, model = World(running, behind), behind.script(good())
            at_once([lambda: asked(made, model)] * 20)
            requests_of(seen, f"{CHAT}/{model}", 20)
            children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
            before = set(children.read_text().split())
            os.kill(int(min(before)), signal.SIGKILL)
            until(lambda: len(set(children.read_text().split()) - before) == 1, "a worker", 30.0)
            at_once([lambda: asked(made, model)] * 20)
            requests_of(seen, f"{CHAT}/{model}", 40)
            assert len({one.span_id for one in seen.spans}) == len(seen.spans) == 80
            assert len({str(one.resource["service.instance.id"]) for one in seen.spans}) >= 2


@pytest.mark.long
def test_a_collector_that_is_away_hurts_nobody(behind: Upstream, tmp_path: Path) -> None:
    with free_port() as port:
        settings = otel(Collector(f"http://127.0.0.1:{port}")) + places(behind.url)
        with world(settings, tmp_path, behind) as made:  # which fails on errors in the log
            model = behind.script(good())
            for _ in range(5):
                asked(made, model)
            made.logged("OpenTelemetry: ")
    assert len([one for one in made.lines if "OpenTelemetry" in str(one)]) == 1
    assert "opentelemetry" not in made.gateway.stderr
    assert HEADER not in made.gateway.stderr


# Values


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans(), st.integers(1, 9))
def test_a_traceparent_is_read_back_as_it_was_written(
    trace_id: int, span_id: int, sampled: bool, number: int
) -> None:
    context = TraceContext(trace_id, span_id, sampled=sampled)
    assert parse_traceparent(context.traceparent) == context
    child = context.child(number)
    assert child.span_id not in (0, span_id)
    assert parse_traceparent(child.traceparent) == TraceContext(
        trace_id, child.span_id, sampled=sampled
    )


@given(st.text())
def test_whatever_a_client_sends_is_a_valid_parent_or_none(header: str) -> None:
    found = parse_traceparent(header)
    assert found is None or (found.trace_id > 0 and found.span_id > 0)


def test_which_traceparents_are_valid() -> None:
    assert parse_traceparent(f"cc-{TRACE}-{PARENT}-01-what-the-future-will-bring") is not None
    assert parse_traceparent(f"00-{TRACE.upper()}-{PARENT}-01") is None
    child = TraceContext(1, 2**64 - 1).child(1)
    assert (child.span_id, child.parent_id) == (1, 2**64 - 1), "0 is no id"
    assert span_id_of("run/turn/1/1") == span_id_of("run/turn/1/1") != span_id_of("run/turn/2/1")
