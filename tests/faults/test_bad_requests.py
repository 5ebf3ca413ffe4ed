"""Whatever a client sends, it is told so in its own dialect: 200 or 4xx, and never a stack."""

import json
from collections.abc import Iterator

import pytest

from tests.faults.upstream import Upstream, answer
from tests.faults.whole_requests import SPOILS, WHOLE, paths, spoiled, whole
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
from tests.faults.world import World, places, world
from tests.raw_http import Answer, Client

clients = pytest.mark.parametrize("client", DIALECTS)
MARK = '"a mark"'
"""Stands in a body for what no value can spell."""


class Asking:
    """Asks one request after the other, on one connection as long as it lasts."""

    def __init__(self, world: World, dialect: str) -> None:
        self._world = world
        self._dialect = dialect
        self._connection: Client | None = None
        said = {upstream: [answer(SPEECHES[upstream].body)] for upstream in DIALECTS}
        self.models: dict[str, str] = {
            upstream: f"{upstream}/{world.upstream.script(script)}"
            for upstream, script in said.items()
        }

    def __enter__(self) -> "Asking":
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    def send(self, data: bytes) -> Answer:
        if self._connection is None:
            self._connection = self._world.client()
        self._connection.send(data)
        found = self._connection.answer()
        if found.headers.get("connection") == "close":
            self._connection.close()
            self._connection = None
        return found

    def post(self, body: bytes, upstream: str, *headers: str) -> Answer:
        return self.send(
            posted(path_of(self._dialect, self.models[upstream], False), body, *headers)
        )

    def ask(self, value: Object, upstream: str) -> Answer:
        model = {} if self._dialect == GEMINI else {"model": self.models[upstream]}
        return self.post(json.dumps(model | value).encode(), upstream)


def in_shape(found: Answer, client: str) -> None:
    """A good answer, or a fault of the client's own that says something."""
    assert found.status == 200 or 400 <= found.status < 500, found
    if found.status != 200:
        assert error_seen(client, found.body).message
    assert b"Traceback" not in found.body
    assert b"weft." not in found.body.replace(b"Warp and weft.", b"")  # no module, no class


@clients
def test_a_full_request_is_answered(shared: World, client: str) -> None:
    """So that what follows spoils something that is good."""
    with Asking(shared, client) as asking:
        for upstream in DIALECTS:
            found = asking.ask(whole(client, upstream), upstream)
            assert found.status == 200, found


@clients
@pytest.mark.parametrize("spoil", SPOILS, ids=repr)
def test_a_wrong_type_in_any_field_is_the_client_s_fault_or_none(
    shared: World, client: str, spoil: object
) -> None:
    """Each field once, of an upstream of some dialect."""
    with Asking(shared, client) as asking:
        for number, upstream in enumerate(DIALECTS):
            valid = whole(client, upstream)
            for path in list(paths(valid))[(number + SPOILS.index(spoil)) % 4 :: 4]:
                in_shape(asking.ask(spoiled(valid, path, spoil), upstream), client)


@pytest.mark.long
@clients
@pytest.mark.parametrize("upstream", DIALECTS)
@pytest.mark.parametrize("spoil", SPOILS, ids=repr)
def test_a_wrong_type_is_nobody_else_s_fault_with_any_upstream(
    shared: World, client: str, upstream: str, spoil: object
) -> None:
    with Asking(shared, client) as asking:
        valid = whole(client, upstream)
        for path in paths(valid):
            in_shape(asking.ask(spoiled(valid, path, spoil), upstream), client)


SPELLED: dict[str, bytes] = {
    "a lone surrogate": rb'"\ud800"',
    "a lone surrogate inside a text": rb'"a\udc00b"',
    "invalid UTF-8": b'"\xff\xfe"',
    "a character cut in two": b'"\xe2\x82"',
    "not a number": b"NaN",
    "infinity": b"Infinity",
    "a float that is too large": b"1e400",
    "an integer of 5,000 digits": b"9" * 5000,
    "an integer over 64 bits": b"18446744073709551616",
    "an unfinished string": b'"abc',
    "nothing": b"",
    "a bare word": b"undefined",
    "a control character": b'"a\x00b"',
    "a bad escape": rb'"\x41"',
}


def is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError:
        return False
    return True


@clients
@pytest.mark.parametrize("spelling", SPELLED)
def test_what_is_no_json_is_a_bad_request(shared: World, client: str, spelling: str) -> None:
    """In any field: of the whole body, nothing is asked."""
    wide = list(paths(WHOLE[client]))
    with Asking(shared, client) as asking:
        for path in wide[:: max(1, len(wide) // 12)]:
            marked = spoiled(WHOLE[client], path, "a mark")
            model = {} if client == GEMINI else {"model": asking.models[CHAT]}
            body = json.dumps(model | marked).encode().replace(MARK.encode(), SPELLED[spelling], 1)
            if spelling == "nothing" and is_json(body):  # the only item of an array
                continue
            found = asking.post(body, CHAT)
            assert found.status == 400, (path, found)
            assert error_seen(client, found.body).message


@clients
def test_texts_and_names_of_70_kilobytes_are_texts(shared: World, client: str) -> None:
    with Asking(shared, client) as asking:
        for number, upstream in enumerate(DIALECTS):
            valid = whole(client, upstream)
            for path in list(paths(valid))[number::4]:
                in_shape(asking.ask(spoiled(valid, path, "x" * 70_000), upstream), client)


BODIES: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \r\n ",
    "null": b"null",
    "a list": b"[]",
    "a number": b"1",
    "a string": b'"model"',
    "an empty object": b"{}",
    "half": b'{"model":',
    "two": b"{}{}",
    "no JSON": b"model=a&stream=true",
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "open lists": b"[" * 1_000_000,
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": "{}".encode("utf-16"),
}


@clients
@pytest.mark.parametrize("body", BODIES)
def test_a_body_that_is_no_request_is_a_bad_request(shared: World, client: str, body: str) -> None:
    with Asking(shared, client) as asking:
        found = asking.post(BODIES[body], CHAT)
        assert found.status == 400
        assert error_seen(client, found.body).message


@clients
@pytest.mark.parametrize("opening", [b"[", b'{"a":'], ids=["lists", "objects"])
def test_64_levels_are_read_and_65_are_not(shared: World, client: str, opening: bytes) -> None:
    """In arguments of a call, which may be anything; there are some levels around them."""
    closing = b"]" if opening == b"[" else b"}"
    call = {"functionCall": {"name": "f", "args": {"x": "a mark"}}}
    around: dict[str, tuple[Object, int]] = {
        CHAT: ({"unknown": "a mark"}, 1),
        RESPONSES: ({"unknown": "a mark"}, 1),
        MESSAGES: ({"unknown": "a mark"}, 1),
        GEMINI: ({"contents": [{"role": "model", "parts": [call]}]}, 7),
    }
    more, levels = around[client]
    with Asking(shared, client) as asking:
        for depth, status in ((64, 200), (65, 400)):
            deep = opening * (depth - levels) + b"1" + closing * (depth - levels)
            body = body_of(client, asking.models[client], False, **more)
            found = asking.post(body.replace(MARK.encode(), deep), client)
            assert (depth, found.status) == (depth, status), found
            in_shape(found, client)


# Sizes


@pytest.fixture(scope="module")
def small(faulty: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A gateway that takes bodies of 2,000 bytes."""
    limits = "[server.limits]\nbody = 2000\n"
    with world(limits + places(faulty.url), tmp_path_factory.mktemp("small"), faulty) as made:
        yield made


def padded(client: str, model: str, size: int) -> bytes:
    body = body_of(client, model, False)
    return body + b" " * (size - len(body))


def chunked(path: str, body: bytes, *headers: str) -> bytes:
    pieces = [body[at : at + 500] for at in range(0, len(body), 500)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return posted(path, chunks + b"0\r\n\r\n", "Transfer-Encoding: chunked", *headers)


@clients
@pytest.mark.parametrize("coding", ["length", "chunked"])
def test_a_body_at_the_limit_is_read_and_one_over_it_is_not(
    small: World, client: str, coding: str
) -> None:
    for size, status in ((2000, 200), (2001, 413)):
        model = f"{client}/{small.upstream.script([answer(SPEECHES[client].body)])}"
        path, body = path_of(client, model, False), padded(client, model, size)
        with small.client() as connection:
            connection.send(chunked(path, body) if coding == "chunked" else posted(path, body))
            found = connection.answer()
            assert found.status == status
            if status == 413:
                assert error_seen(client, found.body).message
                assert found.headers["connection"] == "close"
                assert connection.is_closed()


@clients
def test_a_body_that_is_told_to_be_too_large_is_not_waited_for(small: World, client: str) -> None:
    with small.client() as connection:
        path = path_of(client, f"{CHAT}/m", False)
        connection.send(posted(path, b"{", "Content-Length: 100000000000"))
        found = connection.answer()
    assert found.status == 413
    assert error_seen(client, found.body).message


@clients
@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "zstd", "gzip, gzip", "x-own"])
def test_a_compressed_body_is_not_read(shared: World, client: str, coding: str) -> None:
    with shared.client() as connection:
        connection.send(question(client, f"{CHAT}/m", False, f"Content-Encoding: {coding}"))
        found = connection.answer()
    assert found.status == 415
    assert error_seen(client, found.body).message


UNREAD: dict[str, tuple[int, str, tuple[str, ...]]] = {
    "no path": (404, "/v1/nothing", ()),
    "no such method": (405, "/v1/models", ()),
    "no such response": (404, "/v1/responses/resp_that_nobody_has/cancel", ()),
    "another origin": (403, "/v1/chat/completions", ("Origin: https://evil.example",)),
    "compressed": (415, "/v1/chat/completions", ("Content-Encoding: gzip",)),
}


@pytest.mark.parametrize("coding", ["length", "chunked"])
@pytest.mark.parametrize("name", UNREAD)
def test_who_is_answered_before_the_body_is_told_that_the_connection_ends(
    shared: World, name: str, coding: str
) -> None:
    """Otherwise the next request on it is lost, and nobody knows whether it was answered."""
    status, path, headers = UNREAD[name]
    written = chunked if coding == "chunked" else posted
    with shared.client() as client:
        client.send(written(path, b" " * 2_000_000, *headers))
        found = client.answer()
        assert (found.status, found.headers["connection"]) == (status, "close")
        assert client.is_closed()
    with shared.client() as client:  # a body that is short is read, and the connection stays
        for _ in range(2):
            client.send(posted(path, b"{}", *headers))
            found = client.answer()
            assert (found.status, "connection" in found.headers) == (status, False)


@clients
def test_too_many_keys_items_messages_and_tools_are_a_bad_request(
    shared: World, client: str
) -> None:
    name = {GEMINI: "contents", "openai-responses": "input"}.get(client, "messages")
    with Asking(shared, client) as asking:
        said = json.loads(body_of(client, "m", False)).get(name)
        message = said[0] if isinstance(said, list) else {"role": "user", "content": "hi"}
        wide: list[Object] = [
            {name: [message] * 10_001},
            {"metadata": {f"k{number}": "v" for number in range(10_001)}},
            {"metadata": {"k": [1] * 100_001}},
        ]
        for one in wide:
            value = json.loads(body_of(client, asking.models[client], False)) | one
            found = asking.post(json.dumps(value).encode(), client)
            assert found.status == 400
            assert error_seen(client, found.body).message


# Injection

EVIL = (
    "a\r\nX-Evil: 1",
    "a\nX-Evil: 1",
    "a\rX-Evil: 1",
    "a\x00b",
    "a\u2028X-Evil: 1",
    "a\u2029b",
    "a\u0085b",
    "\x1b[31mred",
    'a","level":"error","x":"',
    "a" * 5000,
)


@clients
@pytest.mark.parametrize("evil", EVIL, ids=ascii)
def test_nothing_of_a_request_gets_into_headers_or_breaks_a_line_of_the_log(
    shared: World, client: str, evil: str
) -> None:
    """As the name of a model, as an id, as metadata; the name of an upstream comes first."""
    said = f"{client}/{evil}"
    for model in (evil, said):
        path = path_of(client, model, False)
        if client == GEMINI:
            path = path.replace(model, "".join(f"%{byte:02x}" for byte in model.encode()))
        more = {"metadata": {"user_id": evil, evil[:50]: evil}} if client != GEMINI else {}
        with shared.client() as connection:
            connection.send(posted(path, body_of(client, model, False, **more)))
            found = connection.answer()
        in_shape(found, client)
        assert "x-evil" not in {name.lower() for name in found.headers}
        assert all(value.isascii() and value.isprintable() for value in found.headers.values())
    assert shared.lines  # and each of them is JSON


@clients
def test_nothing_of_an_upstream_gets_into_headers_or_breaks_a_line_of_the_log(
    shared: World, client: str
) -> None:
    body = SPEECHES[client].body.replace(b'"m"', json.dumps("m\r\nX-Evil: 1\u2028").encode())
    lines = ("Set-Cookie: a=b", "X-Evil: 1", "Server: theirs", "X-Request-Id: theirs")
    model = shared.upstream.script([answer(body, "200 OK", *lines)])
    found = shared.ask(client, f"{client}/{model}", False)
    assert found.status == 200
    assert set(found.headers) == {
        "date", "content-type", "weft-request-id", "x-request-id", "weft-attempts",
        "weft-upstream",
        "content-length",
    }  # fmt: skip
    assert shared.lines
