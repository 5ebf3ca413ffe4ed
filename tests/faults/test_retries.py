"""Asking again, asking somebody else, and leaving alone who fails: before content, never after."""

import json
import re
import time
from collections.abc import Iterator, Sequence

import pytest

from tests.faults.faults import AFTER, BEFORE, Fault
from tests.faults.upstream import RESET, SILENCE, STREAM, Step, Upstream, answer, stream
from tests.faults.wires import (
    CHAT,
    DIALECTS,
    GEMINI,
    MESSAGES,
    RESPONSES,
    SPEECHES,
    Object,
    error_ending,
    question,
    typed,
)
from tests.faults.world import HEADLESS, World, place, places, until, world
from tests.raw_http import Answer
from weft import assemble, decode
from weft.dialects import DialectName

AGAIN: dict[str, object] = {
    "retry": {"attempts": 3, "base": 0.01, "longest": 1.0},
    "breaker": {"failures": 0},
}
BREAKER: dict[str, object] = {"breaker": {"failures": 2, "open_for": 1.0}}
LONG: dict[str, object] = {"failures": 2, "open_for": 60.0}
clients = pytest.mark.parametrize("client", DIALECTS)


@pytest.fixture(scope="module")
def eager(faulty: Upstream, deaf: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway whose upstreams are asked up to three times; `first-…` has a second target, and
    `deaf-…` a first one that nobody reaches; `late-…` has one that says nothing. Those with a
    breaker are asked once."""
    faulty.named("mute", [SILENCE])
    settings = "\n".join(
        (
            places(faulty.url, **AGAIN),
            place("deaf", CHAT, f"http://{deaf}", **AGAIN),
            place("late", CHAT, faulty.url, **HEADLESS, **AGAIN),
            place("broken", CHAT, faulty.url, retry={"attempts": 1}, **BREAKER),
            place("slow", CHAT, faulty.url, **{**AGAIN, "breaker": LONG}),
            place("away", CHAT, f"http://{deaf}", **{**AGAIN, "breaker": LONG}),
            "[models]",
            f'"first-*" = ["{CHAT}/*", "{MESSAGES}/*"]',
            f'"deaf-*" = ["deaf/*", "{GEMINI}/*"]',
            f'"late-*" = ["late/mute", "{RESPONSES}/*"]',
        )
    )  # fmt: skip
    with world(settings, tmp_path_factory.mktemp("eager"), faulty) as made:
        yield made


def good(upstream: str, stream_asked: bool = True) -> Sequence[Step]:
    said = SPEECHES[upstream]
    return stream(*said.frames) if stream_asked else (answer(said.body),)


def whole(found: Answer, client: DialectName) -> None:
    assert found.status == 200, found
    response = assemble(decode([found.body], dialect=client))
    assert (response.text, response.finish_reason) == ("Warp and weft.", "stop")


_FOR_GOOD = ("bad-request", "not-found", "upstream-auth")
HOPEFUL = tuple(one for one in BEFORE if one.error not in _FOR_GOOD)
HOPELESS = tuple(one for one in BEFORE if one.error in _FOR_GOOD)
WAITING = {"429", "503"}
"""They want to be waited for, for longer than it is worth."""


@pytest.mark.parametrize("fault", [one for one in HOPEFUL if one.name not in WAITING], ids=str)
@clients
def test_what_may_be_different_next_time_is_asked_again(
    eager: World, fault: Fault, client: DialectName
) -> None:
    upstream = DIALECTS[DIALECTS.index(client) - 1]
    for asked in (True, False):
        wrong = fault.wrong(SPEECHES[upstream], upstream, asked)
        model = eager.upstream.script(wrong, wrong, good(upstream, asked))
        whole(eager.ask(client, f"{upstream}/{model}", asked), client)
        assert len(eager.upstream.exchanges(model)) == 3


@pytest.mark.parametrize("fault", HOPELESS, ids=str)
@clients
def test_what_will_be_the_same_is_asked_once(eager: World, fault: Fault, client: str) -> None:
    for upstream in DIALECTS:
        wrong = fault.wrong(SPEECHES[upstream], upstream, True)
        model = eager.upstream.script(wrong, good(upstream))
        assert eager.ask(client, f"{upstream}/{model}", True).status >= 400
        assert len(eager.upstream.exchanges(model)) == 1


@clients
def test_three_times_is_enough(eager: World, client: str) -> None:
    model = eager.upstream.script([answer(b"", "500 No")])
    assert eager.ask(client, f"{CHAT}/{model}", True).status == 500
    assert len(eager.upstream.exchanges(model)) == 3


@pytest.mark.parametrize("fault", AFTER, ids=str)
@clients
def test_after_content_nobody_is_asked_again(eager: World, fault: Fault, client: str) -> None:
    """Not even the second target."""
    wrong = fault.wrong(SPEECHES[CHAT], CHAT, True)
    model = eager.upstream.script(wrong, good(MESSAGES), prefix="first")
    found = eager.ask_slowly(client, model, True, wrong)
    error_ending(client, found.body)
    assert len(eager.upstream.exchanges(model)) == 1


def test_who_says_when_is_asked_then(eager: World) -> None:
    busy = answer(b"", "429 Too Many", "Retry-After: 0.4")
    model = eager.upstream.script([busy], good(CHAT))
    whole(eager.ask(CHAT, f"{CHAT}/{model}", True), CHAT)
    first, second = eager.upstream.exchanges(model)
    assert second.came - first.came >= 0.4


def test_who_wants_to_be_waited_for_too_long_is_not(eager: World) -> None:
    """The longest wait is a second."""
    busy = answer(b"", "429 Too Many", "Retry-After: 30")
    model = eager.upstream.script([busy], good(CHAT))
    found = eager.ask(CHAT, f"{CHAT}/{model}", True)
    assert (found.status, found.headers["retry-after"]) == (429, "30")
    assert len(eager.upstream.exchanges(model)) == 1


# Somebody else


@clients
@pytest.mark.parametrize("asked", [True, False], ids=["stream", "body"])
def test_the_second_target_answers_where_the_first_does_not(
    eager: World, client: DialectName, asked: bool
) -> None:
    busy = [answer(b"", "503 Busy", "Retry-After: 60")]
    model = eager.upstream.script(busy, good(MESSAGES, asked), prefix="first")
    found = eager.ask(client, model, asked)
    whole(found, client)
    assert found.headers["weft-upstream"] == MESSAGES
    first, second = eager.upstream.exchanges(model)
    assert (first.path, second.path) == ("/v1/chat/completions", "/v1/messages")


@clients
@pytest.mark.parametrize("prefix", ["deaf", "late"])
def test_the_second_target_answers_where_the_first_cannot_be_reached(
    eager: World, client: DialectName, prefix: str
) -> None:
    second = {"deaf": GEMINI, "late": RESPONSES}[prefix]
    model = eager.upstream.script(good(second), prefix=prefix)
    found = eager.ask(client, model, True)
    whole(found, client)
    assert found.headers["weft-upstream"] == second


def test_where_all_fail_the_last_is_told(eager: World) -> None:
    busy = [answer(b"", "503 Busy", "Retry-After: 60")]
    model = eager.upstream.script(busy, [answer(b"", "418 Teapot")], prefix="first")
    assert eager.ask(CHAT, model, True).status == 418
    assert len(eager.upstream.exchanges(model)) == 2


def test_a_request_that_is_wrong_everywhere_is_not_tried_elsewhere(eager: World) -> None:
    model = eager.upstream.script([answer(b"", "400 Bad Request")], good(MESSAGES), prefix="first")
    assert eager.ask(CHAT, model, True).status == 400
    assert len(eager.upstream.exchanges(model)) == 1


# Breakers


def message(found: Answer) -> str:
    return str(json.loads(found.body)["error"]["message"])


def test_a_model_that_keeps_failing_is_paused_and_then_tried(eager: World) -> None:
    """Two failures open it; after a while one request tries, and a good answer closes it."""
    broken = [answer(b"", "500 No")]
    model = eager.upstream.script(broken, broken, broken, good(CHAT))
    name = f"broken/{model}"
    assert eager.ask(CHAT, name, True).status == 500
    began = time.monotonic()
    assert eager.ask(CHAT, name, True).status == 500
    for number, status in ((3, 500), (4, 200)):
        began = tried_again(eager, name, status, began)
        assert len(eager.upstream.exchanges(model)) == number
    assert [eager.ask(CHAT, name, True).status for _ in range(3)] == [200] * 3
    paused = f'upstream "broken", model "{model}": paused for 1 s after'
    eager.logged(f'model \\"{model}\\": no longer paused')
    logged = [str(one["message"]) for one in eager.lines if one["from"] == "weft.upstream"]
    assert [one for one in logged if f'"{model}"' in one] == [
        f"{paused} 2 failures in a row (last: HTTP 500)",
        f'upstream "broken", model "{model}": trial request',
        f"{paused} 3 failures in a row (last: HTTP 500)",
        f'upstream "broken", model "{model}": trial request',
        f'upstream "broken", model "{model}": no longer paused',
    ]


def tried_again(eager: World, name: str, status: int, since: float) -> float:
    """Asks a model that failed after `since` until it is no longer paused, for a second; returns
    when that was asked. How often it is refused before, only the machine knows."""
    moment = 0.0

    def is_tried() -> bool:
        nonlocal moment
        moment = time.monotonic()
        found = eager.ask(CHAT, name, True).status
        assert found in (503, status)
        return found == status

    until(is_tried, "the breaker to try")
    assert time.monotonic() - since > 0.9
    return moment


@clients
def test_a_paused_model_says_what_was_wrong_and_for_how_long(eager: World, client: str) -> None:
    """Not in the upstream's words: they may be about another client's prompt."""
    body = b'{"error":{"message":"cannot say the planted word","code":"model_error"}}'
    model = eager.upstream.script([answer(body, "500 No")])
    for _ in range(2):
        assert "the planted word" in message(eager.ask(CHAT, f"slow/{model}", True))
    for asked in (True, False):
        found = eager.ask(client, f"slow/{model}", asked)
        assert found.status in (503, 529)  # each wire has its own
        said = re.fullmatch(
            rf'upstream "slow", model "{model}": paused for (\d+) s after 2 failures in a row '
            r"\(last: HTTP 500 model_error\)",
            message(found),
        )
        assert said is not None, message(found)
        assert found.headers["retry-after"] == said[1]
        assert 1 <= int(said[1]) <= 60
    assert len(eager.upstream.exchanges(model)) == 6  # each of two requests was tried three times


def test_a_sick_model_does_not_pause_its_healthy_neighbour(eager: World) -> None:
    sick = eager.upstream.script([answer(b"", "500 No")])
    healthy = eager.upstream.script(good(CHAT))
    assert [eager.ask(CHAT, f"slow/{sick}", True).status for _ in range(4)] == [500, 500, 503, 503]
    whole(eager.ask(CHAT, f"slow/{healthy}", True), CHAT)


def test_failed_connections_pause_the_whole_upstream(eager: World) -> None:
    refused = 'cannot connect to upstream "away": connection refused'
    said = [message(eager.ask(CHAT, f"away/{model}", True)) for model in ("a", "b", "c")]
    assert said[:2] == [refused, refused]
    assert re.fullmatch(
        r'upstream "away": paused for \d+ s after 2 failed connections in a row '
        rf"\(last: {refused}\)",
        said[2],
    )


@pytest.mark.parametrize(
    "wrong", [answer(b"", "429 Too Many", "Retry-After: 60"), answer(b"", "404 Not Found")]
)
def test_what_a_model_refuses_does_not_pause_it(eager: World, wrong: bytes) -> None:
    model = eager.upstream.script(*[[wrong]] * 4, good(CHAT))
    statuses = [eager.ask(CHAT, f"slow/{model}", True).status for _ in range(5)]
    assert statuses == [int(wrong.split()[1])] * 4 + [200]


def test_errors_after_content_do_not_pause_a_model(eager: World) -> None:
    wrong: list[Step] = [*stream(*SPEECHES[CHAT].frames[:-2])[:-1], RESET]
    model = eager.upstream.script(wrong)
    for _ in range(4):
        found = eager.ask(CHAT, f"slow/{model}", True)
        assert found.status == 200
        error_ending(CHAT, found.body)


def test_a_client_that_leaves_says_nothing_of_the_model(eager: World) -> None:
    model = eager.upstream.script(*[[SILENCE]] * 4, good(CHAT))
    for number in range(1, 5):
        with eager.client() as client:
            client.send(question(CHAT, f"slow/{model}", True))
            eager.upstream.exchanges(model, number)
        eager.upstream.exchanges(model)[-1].left()
    whole(eager.ask(CHAT, f"slow/{model}", True), CHAT)


# Pauses


def paused(text: str, reason: str = "pause_turn") -> Sequence[bytes]:
    """A stream of Messages that says this, and stops for this reason."""
    said = SPEECHES[MESSAGES]
    block: tuple[Object, ...] = (
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None},
         "usage": {"output_tokens": 2}},
    )  # fmt: skip
    return stream(*said.head, *map(typed, block), said.end[-1])


@pytest.mark.parametrize("client", [CHAT, RESPONSES, GEMINI])
def test_a_paused_turn_goes_on_in_one_stream(shared: World, client: DialectName) -> None:
    model = shared.upstream.script(paused("Warp "), paused("and "), paused("weft.", "end_turn"))
    found = shared.ask(client, f"{MESSAGES}/{model}", True)
    response = assemble(decode([found.body], dialect=client))
    assert (response.text, response.finish_reason) == ("Warp and weft.", "stop")
    assert response.findings == ()
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (9, 6)
    bodies = [json.loads(one.body)["messages"] for one in shared.upstream.exchanges(model)]
    assert [len(messages) for messages in bodies] == [1, 2, 2]
    assert [one["text"] for one in bodies[2][1]["content"]] == ["Warp ", "and "]


@pytest.mark.parametrize("client", [CHAT, RESPONSES, GEMINI])
def test_a_turn_is_continued_five_times(shared: World, client: DialectName) -> None:
    model = shared.upstream.script(paused("on "))
    found = shared.ask(client, f"{MESSAGES}/{model}", True)
    response = assemble(decode([found.body], dialect=client))
    assert response.text == "on " * 6
    assert len(shared.upstream.exchanges(model)) == 6


@pytest.mark.parametrize("client", [CHAT, RESPONSES, GEMINI])
def test_a_turn_that_cannot_go_on_ends_with_an_error(shared: World, client: str) -> None:
    for wrong in ([answer(b"", "500 No")], [STREAM, b"zz"], [answer(b"", "401 Key")]):
        model = shared.upstream.script(paused("Warp "), wrong)
        found = shared.ask(client, f"{MESSAGES}/{model}", True)
        error_ending(client, found.body)
        assert len(shared.upstream.exchanges(model)) == 2


def test_a_client_that_knows_pauses_is_told_of_one(shared: World) -> None:
    model = shared.upstream.script(paused("Warp "))
    found = shared.ask(MESSAGES, f"{MESSAGES}/{model}", True)
    assert b'"stop_reason":"pause_turn"' in found.body
    assert len(shared.upstream.exchanges(model)) == 1
