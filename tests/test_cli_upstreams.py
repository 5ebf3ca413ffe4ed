"""`weft replay` and `weft chaos`: upstreams on loopback, and what Weft makes of them."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import weft
from tests.captures import HERE
from tests.faults.world import until
from tests.gateway_process import started as server_of
from tests.test_relay_run import REQUEST_BODIES
from tests.weft_command import run
from weft.dialects import DialectName
from weft.trace import time_comment
from weft.upstream.base import endpoint
from weft.upstream.chaos import ERRORS, MISBEHAVIOURS
from weft.upstream.replay import ReplayedCapture

WIRES: tuple[DialectName, ...] = (
    "openai-chat",
    "openai-responses",
    "anthropic-messages",
    "gemini",
)
PATIENCE = 30.0


@contextmanager
def started(*arguments: str | Path) -> Iterator[httpx.Client]:
    with (
        server_of(*arguments) as running,
        httpx.Client(base_url=running.url, timeout=PATIENCE, trust_env=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def chaos() -> Iterator[httpx.Client]:
    with started("chaos") as client:
        yield client


def path_of(dialect: str, model: str, *, stream: bool) -> str:
    path = endpoint(dialect, model, stream)
    return f"/v1{path}" if dialect.startswith("openai") else path


def asked(
    client: httpx.Client, dialect: str, model: str, *, stream: bool = True
) -> tuple[int, list[bytes]]:
    """The status, and all bytes that came before the connection ended, however it did."""
    body = {**REQUEST_BODIES[dialect], "model": model, "stream": stream}
    if dialect == "gemini":
        body = dict(REQUEST_BODIES[dialect])
    pieces: list[bytes] = []
    path = path_of(dialect, model, stream=stream)
    with client.stream("POST", path, json=body) as answer:
        try:
            pieces.extend(answer.iter_raw())
        except httpx.RemoteProtocolError:
            pieces.append(b"")
    return answer.status_code, pieces


LISTED = [name for name in MISBEHAVIOURS if name not in ("slow", "stall")]
FAILS = {
    "cut": {"truncated"},
    "cut-in-event": {"truncated", "malformed"},
    "reset": {"truncated"},
    "garbage": {"malformed"},
    "error-in-stream": {"upstream"},
    "empty": {"empty", "truncated"},
    "html": {"malformed", "empty", "truncated"},
}
"""How a response fails; all others are read as if nothing were wrong, or without their end."""

MAY_FAIL = {"no-end", "one-newline"}


@pytest.mark.parametrize("dialect", WIRES)
@pytest.mark.parametrize("name", LISTED)
def test_each_misbehaviour_is_read_for_what_it_is(
    chaos: httpx.Client, name: str, dialect: DialectName
) -> None:
    status, pieces = asked(chaos, dialect, name)
    assert status == 200
    response = weft.assemble(weft.decode(pieces, dialect=dialect))
    if name in FAILS:
        assert response.error is not None
        assert response.error.kind in FAILS[name]
    elif name not in MAY_FAIL:
        _, good = asked(chaos, dialect, "good")
        expected = weft.assemble(weft.decode(good, dialect=dialect))
        assert response.error is None
        if name != "events-twice":  # not every dialect can tell a repetition from a text
            assert response.text == expected.text


@pytest.mark.parametrize("dialect", WIRES)
@pytest.mark.parametrize("name", ERRORS)
def test_errors_have_their_status(chaos: httpx.Client, name: str, dialect: str) -> None:
    status, _ = asked(chaos, dialect, name)
    wanted = int(name.removeprefix("error-"))
    assert status == wanted or (wanted == 529 and status == 503)


def test_a_stall_stays_connected(chaos: httpx.Client) -> None:
    body = {**REQUEST_BODIES["openai-chat"], "model": "stall", "stream": True}
    with chaos.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert b"data: " in next(answer.iter_raw())
        # Leaving is all that can be done.


def test_what_chaos_does_is_listed(chaos: httpx.Client) -> None:
    listed = [one["id"] for one in chaos.get("/v1/models").json()["data"]]
    assert listed == [*MISBEHAVIOURS, *ERRORS]
    words = run("chaos", "--help").out.replace(",", " ").replace(";", " ").replace(".", " ").split()
    assert [name for name in listed if name not in words] == []
    assert asked(chaos, "openai-chat", "nobody")[0] == 404
    assert chaos.post("/v1/embeddings", json={"model": "cut"}).status_code == 400


# Captures


@pytest.mark.parametrize("dialect", WIRES)
def test_a_capture_is_served_as_it_was_recorded(dialect: str, tmp_path: Path) -> None:
    folder = HERE / dialect.replace("-", "_")
    path = min(folder.glob("*.sse"))
    name = path.name.removesuffix(".sse")
    with started("replay", path, "--from", dialect) as client:
        status, pieces = asked(client, dialect, name)
        assert (status, b"".join(pieces)) == (200, path.read_bytes())
        other_status, other_pieces = asked(client, dialect, "another model")
        assert (other_status, b"".join(other_pieces)) == (status, b"".join(pieces))
        other = next(one for one in WIRES if one != dialect)
        assert asked(client, other, name)[0] == 400


def test_captures_of_a_dialect_are_played_in_turn(tmp_path: Path) -> None:
    for name in ("one", "two"):
        chunk = f'{{"id":"r","choices":[{{"index":0,"delta":{{"content":"{name}"}}}}]}}'
        (tmp_path / f"{name}.sse").write_text(f"data: {chunk}\n\ndata: [DONE]\n\n")
    with started("replay", tmp_path / "one.sse", tmp_path / "two.sse") as client:
        texts = [b"".join(asked(client, "openai-chat", "any")[1]) for _ in range(3)]
        assert [b"one" in text for text in texts] == [True, False, True]
        assert b"two" in b"".join(asked(client, "openai-chat", "two")[1])
        _, body = asked(client, "openai-chat", "two", stream=False)
        assert weft.assemble(weft.decode(b"".join(body), dialect="openai-chat")).text == "two"


def test_times_become_waits() -> None:
    event = b'data: {"id":"r","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
    raw = time_comment(0.5) + event + time_comment(2.5) + event + b"data: [DONE]\n\n"
    capture = ReplayedCapture("a", raw)
    paced = capture.respond(stream=True, pace=2.0).pieces
    assert [piece.wait for piece in paced] == [0.25, 1.0]
    assert b"".join(piece.data for piece in paced) == event * 2 + b"data: [DONE]\n\n"
    assert {piece.wait for piece in capture.respond(stream=True, pace=0.0).pieces} == {0.0}


def test_a_recorded_head_has_its_status() -> None:
    error = b'{"error":{"message":"slow down","type":"rate_limit_error","code":"rate_limit"}}'
    raw = b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\n\r\n" + error
    found = ReplayedCapture("a", raw, "openai-chat").respond(stream=True, pace=0.0)
    assert (found.status, found.content_type) == (429, "application/json")
    assert found.pieces[0].data == error


def test_a_file_that_is_no_capture_is_exit_2(tmp_path: Path) -> None:
    (tmp_path / "a.sse").write_text("nothing")
    for path in (tmp_path / "a.sse", tmp_path / "b.sse"):
        done = run("replay", path, "--port", "0")
        assert (done.code, done.out) == (2, "")


# Recording


@pytest.fixture(scope="module")
def recorded(
    chaos: httpx.Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[httpx.Client, Path]]:
    """A recording proxy before the chaos, and its folder."""
    folder = tmp_path_factory.mktemp("captured")
    with started("capture", "--upstream", str(chaos.base_url), "--out", folder) as client:
        yield client, folder


def captured(folder: Path, model: str) -> Path:
    """The newest capture of a model; it is written when the response is over."""
    until(lambda: any(folder.glob(f"*-{model}.*")), f"a capture of {model}")
    return max(folder.glob(f"*-{model}.*"))


@pytest.mark.parametrize("dialect", WIRES)
@pytest.mark.parametrize("name", ["good", "crlf", "cut-in-event", "reset", "byte-by-byte"])
def test_what_an_upstream_sends_becomes_a_capture(
    recorded: tuple[httpx.Client, Path], chaos: httpx.Client, name: str, dialect: DialectName
) -> None:
    client, folder = recorded
    for old in folder.glob(f"*-{name}.*"):
        old.unlink()
    status, pieces = asked(client, dialect, name)
    assert status == 200
    raw = captured(folder, name).read_bytes()
    assert raw.startswith(b": weft dialect=%b\n" % dialect.encode())
    assert b": weft t=" in raw
    (found,) = weft.decode_all(raw, dialect)
    assert found.response.text == weft.assemble(weft.decode(pieces, dialect=dialect)).text


def test_an_error_is_captured_with_its_status(recorded: tuple[httpx.Client, Path]) -> None:
    client, folder = recorded
    assert asked(client, "openai-chat", "error-429")[0] == 429
    path = captured(folder, "error-429")
    with started("replay", path, "--from", "openai-chat") as replayed:
        assert asked(replayed, "openai-chat", "any")[0] == 429


def test_keys_are_in_no_capture(tmp_path: Path) -> None:
    """Not even if the upstream says them."""
    secret = "my-own-Key-0123456789"
    chunk = (
        f'{{"id":"r","choices":[{{"index":0,"delta":{{"content":"{secret} sk-abcdefgh1234"}}}}]}}'
    )
    (tmp_path / "echo.sse").write_text(f"data: {chunk}\n\ndata: [DONE]\n\n")
    folder = tmp_path / "out"
    with (
        started("replay", tmp_path / "echo.sse") as replayed,
        started("capture", "--upstream", str(replayed.base_url), "--out", folder) as client,
    ):
        client.headers["authorization"] = f"Bearer {secret}"
        _, pieces = asked(client, "openai-chat", "echo")
        assert secret.encode() in b"".join(pieces)
        raw = captured(folder, "echo").read_bytes()
    assert secret.encode() not in raw
    assert b"*** ***" in raw


def test_an_upstream_that_is_not_there_is_a_502(tmp_path: Path) -> None:
    with (
        free_port() as port,
        started("capture", "--upstream", f"http://127.0.0.1:{port}", "--out", tmp_path) as client,
    ):
        assert asked(client, "openai-chat", "any")[0] == 502
    assert run("capture", "--upstream", "nowhere", "--port", "0", "--out", tmp_path).code == 2


@contextmanager
def free_port() -> Iterator[int]:
    """A port on which nobody listens: it is bound, and refuses."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
