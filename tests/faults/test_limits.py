"""Every setting of `[server.limits]` has a test at the limit and right above it."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import product

import msgspec
import pytest

from tests.faults.upstream import SILENCE, STREAM, Upstream, answer
from tests.faults.wires import (
    CHAT,
    DIALECTS,
    GEMINI,
    MESSAGES,
    RESPONSES,
    SPEECHES,
    Object,
    body_of,
    error_seen,
    path_of,
    posted,
    question,
)
from tests.faults.world import World, places, until, world
from tests.raw_http import Answer
from weft.gateway.settings import LimitSettings

SMALL = {
    "body": 3000,
    "head": 2000,
    "fields": 20,
    "depth": 12,
    "object_keys": 30,
    "array_items": 40,
    "messages": 8,
    "tools": 4,
    "schema": 300,
    "streams_per_key": 2,
    "response": 5000,
}
ELSEWHERE = {
    "values": "test_bodies.test_the_number_of_all_values_has_a_limit",
    "memory": "faults.test_memory.test_a_body_that_never_fits_is_too_large",
    "connections": "test_http_protocol.test_above_the_limit_of_connections_a_new_one_is_refused_"
    "until_one_leaves",
    "connections_without_key": "faults.test_connections.test_above_its_limit_the_oldest_connection_"
    "without_a_key_makes_room",
    "duration": "faults.test_silence.test_an_answer_over_the_limit_of_time_ends_with_an_error",
    "head_time": "test_http_protocol.test_a_further_request_has_its_own_time",
    "body_time": "test_http_protocol.test_who_says_nothing_or_too_little_is_refused_in_time_and_"
    "others_are_served",
    "body_rate": "test_http_protocol.test_a_body_that_keeps_its_rate_may_take_long",
    "stalled": "faults.test_client_faults.test_who_does_not_read_is_dropped_and_its_upstream_"
    "is_read_no_further",
    "buffer": "faults.test_client_faults.test_a_buffer_that_is_large_enough_takes_all_of_it",
    "websocket_message": "test_websocket.test_a_message_over_the_limit_closes_the_socket",
    "websockets_per_key": "test_websocket.test_a_key_has_so_many_sockets_at_a_time",
}
"""Which test has the others, of times and of connections."""


def test_every_limit_has_a_test() -> None:
    assert {*SMALL, *ELSEWHERE} == set(LimitSettings.__struct_fields__)
    for name in ELSEWHERE.values():
        module, _, function = name.rpartition(".")
        assert hasattr(import_module(f"tests.{module}"), function), name


@pytest.fixture(scope="module")
def limited(faulty: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    lines = [f"{name} = {value}" for name, value in SMALL.items()]
    settings = "\n".join(["[server.limits]", *lines, places(faulty.url)])
    with world(settings, tmp_path_factory.mktemp("limited"), faulty) as made:
        yield made


# What a request holds

Made = Callable[[str, Object, int], Object]
"""Makes of a dialect's request one that holds so many of something."""


def _said(dialect: str, request: Object, number: int) -> Object:
    name = {GEMINI: "contents", RESPONSES: "input"}.get(dialect, "messages")
    said = request[name]
    one = said[0] if isinstance(said, list) else {"role": "user", "content": "hi"}
    other = {**one, "role": "model" if dialect == GEMINI else "assistant"}
    return request | {name: [other if turn % 2 else one for turn in range(number)]}


def _declared(dialect: str, schemas: Sequence[Mapping[str, object]]) -> list[Object]:
    found: list[Object] = []
    for number, schema in enumerate(schemas):
        key = {MESSAGES: "input_schema", GEMINI: "parametersJsonSchema"}.get(dialect, "parameters")
        found.append({"name": f"f{number}", key: schema})
    if dialect == CHAT:
        return [{"type": "function", "function": one} for one in found]
    if dialect == GEMINI:
        return [{"functionDeclarations": found}]
    return [{"type": "function", **one} for one in found] if dialect == RESPONSES else found


def _tools(dialect: str, request: Object, number: int) -> Object:
    return request | {"tools": _declared(dialect, [{"type": "object"} for _ in range(number)])}


def _schema(dialect: str, request: Object, size: int) -> Object:
    empty = len(json.dumps({"type": "object", "description": ""}))
    schema: Object = {"type": "object", "description": "x" * (size - empty)}
    return request | {"tools": _declared(dialect, [schema])}


def _called(dialect: str, request: Object, params: object) -> Object:
    """A call whose arguments may be anything."""
    if dialect != GEMINI:
        return request | {"unknown": params}
    call = {"functionCall": {"name": "f", "args": {"x": params}}}
    return request | {"contents": [{"role": "user", "parts": [{"text": "hi"}]},
                                   {"role": "model", "parts": [call]}]}  # fmt: skip


def _keys(dialect: str, request: Object, number: int) -> Object:
    return _called(dialect, request, {f"k{one}": 1 for one in range(number)})


def _items(dialect: str, request: Object, number: int) -> Object:
    return _called(dialect, request, [1] * number)


def _levels(dialect: str, request: Object, depth: int) -> Object:
    value: object = 1
    for _ in range(depth - (7 if dialect == GEMINI else 1)):
        value = [value]
    return _called(dialect, request, value)


HOLDS: dict[str, Made] = {
    "messages": _said,
    "tools": _tools,
    "schema": _schema,
    "object_keys": _keys,
    "array_items": _items,
    "depth": _levels,
}


def in_shape(found: Answer, dialect: str, status: int) -> None:
    assert found.status == status, found
    if status != 200:
        assert error_seen(dialect, found.body).message


@pytest.mark.parametrize("name", HOLDS)
@pytest.mark.parametrize("client", DIALECTS)
def test_a_request_may_hold_so_much_and_no_more(limited: World, client: str, name: str) -> None:
    model = f"{client}/{limited.upstream.script([answer(SPEECHES[client].body)])}"
    for more, status in ((0, 200), (1, 400)):
        request = json.loads(body_of(client, model, False))
        made = HOLDS[name](client, request, SMALL[name] + more)
        with limited.client() as connection:
            body = msgspec.json.encode(made) if name != "schema" else json.dumps(made).encode()
            connection.send(posted(path_of(client, model, False), body))
            in_shape(connection.answer(), client, status)


# What a request is


@pytest.mark.parametrize("client", DIALECTS)
def test_a_body_may_be_so_large_and_no_larger(limited: World, client: str) -> None:
    model = f"{client}/{limited.upstream.script([answer(SPEECHES[client].body)])}"
    for more, status in ((0, 200), (1, 413)):
        body = body_of(client, model, False)
        body += b" " * (SMALL["body"] + more - len(body))
        with limited.client() as connection:
            connection.send(posted(path_of(client, model, False), body))
            in_shape(connection.answer(), client, status)


def test_a_head_may_be_so_large_and_have_so_many_fields(limited: World) -> None:
    line = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n"
    for more, status in ((0, 200), (1, 431)):
        size = SMALL["head"] + more
        padded = line + "X: " + "x" * (size - len(line) - len("X: \r\n\r\n")) + "\r\n\r\n"
        fields = line + "".join(f"X{one}: x\r\n" for one in range(SMALL["fields"] - 1 + more))
        for head in (padded, fields + "\r\n"):
            with limited.client() as connection:
                connection.send(head.encode())
                in_shape(connection.answer(), CHAT, status)


# What an answer is


@pytest.mark.parametrize(("client", "upstream"), list(product(DIALECTS, DIALECTS)))
def test_an_answer_may_be_so_large_and_no_larger(
    limited: World, client: str, upstream: str
) -> None:
    refused = 500 if client == GEMINI else 502  # which that wire does not have
    for more, status in ((0, 200), (1, refused)):
        body = SPEECHES[upstream].body
        body += b" " * (SMALL["response"] + more - len(body))
        model = limited.upstream.script([answer(body)])
        in_shape(limited.ask(client, f"{upstream}/{model}", False), client, status)


# How many


def test_a_key_has_so_many_answers_at_a_time(limited: World) -> None:
    """Without keys everybody is one."""
    until(lambda: limited.open == 0, "earlier ones to be over")
    silent = limited.upstream.script([STREAM, SILENCE])
    running = [limited.client() for _ in range(SMALL["streams_per_key"])]
    for connection in running:
        connection.send(question(CHAT, f"{CHAT}/{silent}", True))
    limited.upstream.exchanges(silent, len(running))
    for client in DIALECTS:
        in_shape(limited.ask(client, f"{CHAT}/m", False), client, 429)
    for connection in running:
        connection.close()
    until(lambda: limited.open == 0, "them to be over")
    model = limited.upstream.script([answer(SPEECHES[CHAT].body)])
    assert limited.ask(CHAT, f"{CHAT}/{model}", False).status == 200
