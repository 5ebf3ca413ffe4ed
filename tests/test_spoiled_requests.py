"""Whatever stands in one field of a request: it is answered, or the client's own fault.

Of every client dialect, over an upstream of every dialect, streamed or not. A request goes the
whole way: it is read, rendered for its target, and its answer is told.
"""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import (
    requests_anthropic_messages,
    requests_gemini,
    requests_openai_chat,
    requests_openai_responses,
)
from tests.faults.whole_requests import SPOILS, WHOLE, paths, spoiled
from tests.faults.wires import CHAT, DIALECTS, GEMINI, MESSAGES, RESPONSES, SPEECHES, Object
from tests.played import BODY, Play, Played
from tests.strategies import JSON, THOROUGH
from tests.test_relay_run import World, upstream_config, within
from weft.relay.incoming import IncomingRequest, RequestBody, RequestFailed, RequestLimits

VALID: dict[str, st.SearchStrategy[Object]] = {
    CHAT: requests_openai_chat.bodies(),
    RESPONSES: requests_openai_responses.bodies(),
    MESSAGES: requests_anthropic_messages.bodies(),
    GEMINI: requests_gemini.bodies(),
}
KEYS = sorted({str(path[-1]) for one in WHOLE.values() for path in paths(one)})
"""The names of all fields there are, of every dialect."""

VALUES = st.sampled_from(SPOILS) | JSON


def objects(value: object) -> list[Object]:
    """All objects inside a value, itself included."""
    found: list[Object] = [value] if isinstance(value, dict) else []
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return found + [deeper for one in inner for deeper in objects(one)]


@st.composite
def spoilt(draw: st.DrawFn, client: str) -> Object:
    """A valid request with another value in one place, or with one field more."""
    body: Object = copy.deepcopy(draw(VALID[client]))
    if draw(st.booleans()):
        return spoiled(body, draw(st.sampled_from(list(paths(body)))), draw(VALUES))
    inside = draw(st.sampled_from(objects(body)))
    inside[draw(st.sampled_from(KEYS))] = draw(VALUES)
    return body


def status_of(client: str, upstream: str, body: Object, stream: bool) -> int:
    """How a request is answered; whatever else is raised fails the test."""
    said = SPEECHES[upstream]
    play = Play([b"".join(said.frames)]) if stream else Play([said.body], headers=BODY)
    world = World([Played(upstream_config(dialect=upstream), play)])
    raw = RequestBody(client, json.dumps(body).encode())
    incoming = IncomingRequest(raw, "a/m", stream, id="req_1")
    try:
        incoming.checked(RequestLimits())
        if stream:
            within(lambda: world.stream(incoming))
        else:
            assert within(lambda: world.body(incoming))[0] == 200
    except RequestFailed as failed:
        return failed.error.status or 500
    return 200


@pytest.mark.parametrize("client", DIALECTS)
@THOROUGH
@given(st.data(), st.sampled_from(DIALECTS), st.booleans())
def test_a_spoiled_field_is_the_client_s_fault_or_none(
    client: str, data: st.DataObject, upstream: str, stream: bool
) -> None:
    status = status_of(client, upstream, data.draw(spoilt(client)), stream)
    assert status == 200 or 400 <= status < 500


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("upstream", DIALECTS)
def test_every_field_there_is_may_stand_in_every_request(client: str, upstream: str) -> None:
    """At its top: what one dialect has, another may have as something else."""
    for key in sorted({key for one in WHOLE.values() for key in one}):
        for stream, spoil in ((True, "x"), (False, {"": None})):
            body = {"model": "m", **WHOLE[client], key: spoil}
            status = status_of(client, upstream, body, stream)
            assert status == 200 or 400 <= status < 500, (key, spoil)


@pytest.mark.parametrize("upstream", DIALECTS)
@pytest.mark.parametrize("options", ["x", 1, [1], True])
def test_stream_options_are_an_object(upstream: str, options: object) -> None:
    body: Object = {"model": "m", "input": "hi", "stream_options": options}
    assert status_of(RESPONSES, upstream, body, True) == 400
    assert status_of(RESPONSES, upstream, {**body, "stream_options": {"x": 1}}, True) == 200
