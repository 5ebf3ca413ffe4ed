"""Whatever an upstream does wrong, each client is told so in its own dialect, exactly once."""

from collections.abc import Callable, Sequence
from itertools import product

import pytest

from tests.faults.faults import AFTER, BEFORE, BODIES, HARMLESS, KEY, Fault, redirect, told
from tests.faults.upstream import Upstream, answer
from tests.faults.wires import (
    DIALECTS,
    SPEECHES,
    error_ending,
    error_seen,
    frames_of,
    has_good_end,
)
from tests.faults.world import World
from tests.raw_http import Answer
from weft import assemble, decode
from weft.dialects import DialectName

clients = pytest.mark.parametrize("client", DIALECTS)
Check = Callable[[Answer, Fault, DialectName], None]


def each_upstream(
    world: World,
    fault: Fault,
    client: DialectName,
    check: Check,
    streams: Sequence[bool] = (True, False),
) -> None:
    """Asks upstreams of all dialects, one after the other; tells of all that is wrong."""
    wrong: dict[tuple[str, bool], str] = {}
    for upstream, stream in product(DIALECTS, streams):
        steps = fault.wrong(SPEECHES[upstream], upstream, stream)
        model = world.upstream.script(steps)
        found = world.ask_slowly(client, f"{upstream}/{model}", stream, steps)
        try:
            check(found, fault, client)
        except AssertionError as problem:
            wrong[upstream, stream] = f"{problem}\n{found.body.decode()[-2000:]}"
    assert wrong == {}


def refused(found: Answer, fault: Fault, client: str) -> None:
    """The client got the status and the error of this fault."""
    seen = error_seen(client, found.body)
    assert (found.status, seen.word, seen.code) in told(client, fault.error, fault.narrower)
    assert fault.message in seen.message
    assert found.headers.get("retry-after") == fault.retry_after
    assert found.headers["content-type"] == "application/json"
    assert KEY not in repr(found)
    assert "<" not in seen.message  # nobody's HTML


@pytest.mark.parametrize("fault", BEFORE, ids=str)
@clients
def test_what_fails_before_content_is_a_status_and_an_error_of_the_client_s_dialect(
    shared: World, fault: Fault, client: DialectName
) -> None:
    each_upstream(shared, fault, client, refused)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@clients
def test_a_redirect_is_never_followed(
    shared: World, faulty: Upstream, status: int, client: DialectName
) -> None:
    canary = faulty.script([answer(SPEECHES["gemini"].body)])
    to = f"{faulty.url}/v1beta/models/{canary}:generateContent"
    each_upstream(shared, redirect(status, to), client, refused)
    assert faulty.exchanges(canary) == []


@pytest.mark.parametrize("kind", ["deaf", "plain"])
@clients
def test_an_upstream_that_cannot_be_reached_is_a_bad_gateway(
    shared: World, kind: str, client: str
) -> None:
    for upstream, stream in product(DIALECTS, (True, False)):
        found = shared.ask(client, f"{kind}-{upstream}/m", stream)
        refused(found, Fault(kind, lambda *_: [], "bad-answer"), client)


@clients
def test_an_upstream_without_an_address_is_a_bad_gateway_or_a_timeout(
    shared: World, client: str
) -> None:
    """As quick as the resolver is."""
    found = shared.ask(client, "nowhere/m", True)
    seen = error_seen(client, found.body)
    options = told(client, "bad-answer") + told(client, "timeout")
    assert (found.status, seen.word, seen.code) in options


def ended(found: Answer, fault: Fault, client: DialectName) -> None:
    """The client got a stream that ends with this error, and all content before it."""
    assert found.status == 200
    assert found.headers["content-type"] == "text/event-stream; charset=utf-8"
    seen = error_ending(client, found.body)
    codes = {code for _, _, code in told(client, fault.error, fault.narrower)}
    assert seen.word == told(client, fault.error)[0][1]
    assert seen.code in codes or client == "gemini"  # the number that the upstream told
    assert fault.message in seen.message
    assert KEY not in repr(found)
    response = assemble(decode([found.body], dialect=client))
    assert (response.text, response.finish_reason) == ("Warp and weft.", "error")


@pytest.mark.parametrize("fault", AFTER, ids=str)
@clients
def test_what_fails_after_content_ends_the_stream_with_one_error(
    shared: World, fault: Fault, client: DialectName
) -> None:
    each_upstream(shared, fault, client, ended, (True,))


@pytest.mark.parametrize("fault", BODIES, ids=str)
@clients
def test_half_an_answer_is_no_answer_where_no_stream_was_asked(
    shared: World, fault: Fault, client: DialectName
) -> None:
    each_upstream(shared, fault, client, refused, (False,))


LAST_FRAMES = {
    "openai-chat": ("", b"[DONE]"),
    "openai-responses": ("", b"[DONE]"),
    "anthropic-messages": ("message_stop", b'{"type":"message_stop"}'),
}


def good(found: Answer, fault: Fault, client: DialectName) -> None:
    """The client got a whole answer, and nothing odd in it."""
    assert found.status == 200
    assert has_good_end(client, found.body)
    assert frames_of(found.body)[-1] == LAST_FRAMES.get(client, frames_of(found.body)[-1])
    response = assemble(decode([found.body], dialect=client))
    assert (response.text, response.finish_reason) == ("Warp and weft.", "stop")
    assert response.error is None
    assert response.findings == ()
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (3, 2)


@pytest.mark.parametrize("fault", HARMLESS, ids=str)
@clients
def test_what_comes_after_the_end_changes_nothing(
    shared: World, fault: Fault, client: DialectName
) -> None:
    each_upstream(shared, fault, client, good, (True,))
