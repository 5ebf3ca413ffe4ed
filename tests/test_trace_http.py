"""Lists, forks, traces, diffs, cases and rules over real HTTP, and whose they are."""

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.faults.upstream import FIN, LAST, STREAM, Hold, Step, Upstream, chunk, upstream
from tests.faults.world import places
from tests.gateway_process import Gateway, gateway
from tests.stores import empty
from tests.test_conversations import DEMO, KEYS, raw_client
from tests.weft_command import run
from weft.captures import convert
from weft.gateway.traces import MAX_UPLOAD
from weft.sse import write

Object = dict[str, Any]
HERE = Path(__file__).parent
BROKEN = (HERE / "captures/openai_chat/arguments-cut-reported-as-length.sse").read_bytes()
AGENT = """
[agents.clerk]
model = "demo/agent"
tools = ["weft.agent.demo:order_status"]
"""
PLANTED = "Planted-upstream-key-0123456789"


@pytest.fixture(scope="module")
def far() -> Iterator[Upstream]:
    with upstream() as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def served(far: Upstream, folder: Path) -> Iterator[Gateway]:
    keys = "\n".join(f'{name} = "{key}"' for name, key in KEYS.items())
    own = places(far.url, api_key=PLANTED)
    store = f'[store]\nurl = "{empty("sqlite", folder)}"'
    with gateway(f"[server.keys]\n{keys}\n{store}\n{own}\n{DEMO}\n{AGENT}", folder) as running:
        yield running
    assert '"level":"error"' not in running.stderr


@pytest.fixture(scope="module")
def alice(served: Gateway) -> Iterator[httpx.Client]:
    with raw_client(served) as made:
        yield made


@pytest.fixture(scope="module")
def bob(served: Gateway) -> Iterator[httpx.Client]:
    with raw_client(served, "bob") as made:
        yield made


def posted(client: httpx.Client, path: str, body: object) -> Object:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    found: Object = answer.json()
    return found


def got(client: httpx.Client, path: str, **query: str | int) -> Object:
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    found: Object = answer.json()
    return found


def rows_of(answer: httpx.Response) -> list[Object]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def said(client: httpx.Client, text: str = "hello", **more: object) -> str:
    """The id of a response of the demo."""
    body = {"model": "demo/chat", "input": text, "stream": True, **more}
    answer = client.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    first = json.loads(answer.text.split("data: ", 1)[1].split("\n", 1)[0])
    return str(first["response"]["id"])


def ids(page: Object) -> list[str]:
    return [one["id"] for one in page["data"]]


# Lists


def test_responses_are_listed_for_their_owner_alone(alice: httpx.Client, bob: httpx.Client) -> None:
    conversation = posted(alice, "/v1/conversations", {})["id"]
    mine = said(alice, conversation=conversation)
    found = got(alice, "/v1/responses", conversation=conversation)
    assert ids(found) == [mine]
    (listed,) = found["data"]
    assert (listed["status"], listed["model"]) == ("completed", "demo/chat")
    assert listed["conversation"] == {"id": conversation}
    assert mine in ids(got(alice, "/v1/responses", status="completed,failed", model="demo/chat"))
    assert ids(got(alice, "/v1/responses", status="failed")) == []
    assert mine not in ids(got(alice, "/v1/responses", findings="any"))
    assert ids(got(bob, "/v1/responses", conversation=conversation)) == []
    hidden = said(alice, store=False)
    assert hidden not in ids(got(alice, "/v1/responses"))


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"status": "asleep"}, "status"),
        ({"findings": "some"}, "findings"),
        ({"after": "resp_nothing"}, "after"),
        ({"limit": "0"}, "limit"),
    ],
)
def test_a_wrong_filter_is_named(alice: httpx.Client, query: dict[str, str], param: str) -> None:
    answer = alice.get("/v1/responses", params=query)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_conversations_are_listed_searched_and_forked(
    alice: httpx.Client, bob: httpx.Client
) -> None:
    items = [{"type": "message", "role": "user", "content": text} for text in ("one", "two")]
    metadata = {"title": "Über Weberei"}
    origin = posted(alice, "/v1/conversations", {"metadata": metadata, "items": items})["id"]
    other = posted(alice, "/v1/conversations", {"metadata": {"title": "Other"}})["id"]
    assert ids(got(alice, "/v1/conversations", limit=2)) == [other, origin]
    assert ids(got(alice, "/v1/conversations", q="über WEB")) == [origin]
    assert ids(got(alice, "/v1/conversations", after=other, limit=1)) == [origin]
    assert ids(got(bob, "/v1/conversations")) == []
    first = got(alice, f"/v1/conversations/{origin}/items", order="asc")["data"][0]["id"]
    wanted = {"fork": {"conversation": origin, "after_item": first}}
    fork = posted(alice, "/v1/conversations", wanted)
    told = {"title": "Über Weberei", "forked_from": origin, "forked_after": first}
    assert fork["metadata"] == told
    assert ids(got(alice, f"/v1/conversations/{fork['id']}/items")) == [first]
    for client, body, status in (
        (bob, wanted, 404),
        (alice, {"fork": {"conversation": origin, "after_item": "msg_9"}}, 400),
        (alice, {**wanted, "items": items}, 400),
    ):
        assert client.post("/v1/conversations", json=body).status_code == status


# Traces


def test_a_stored_response_gives_the_same_events_again(
    alice: httpx.Client, bob: httpx.Client
) -> None:
    id = said(alice)
    answer = alice.get(f"/v1/responses/{id}/trace")
    rows = rows_of(answer)
    about = {name: answer.headers[f"weft-trace-{name}"] for name in ("source", "from", "as")}
    own = {"source": "upstream", "from": "openai-responses", "as": "openai-responses"}
    assert about == own
    assert [row["row"] for row in rows] == list(range(1, len(rows) + 1))
    assert (rows[-1]["lane"], rows[-1]["differ"]) == ("end", 0)
    assert rows[-1]["digest"]["now"] == rows[-1]["digest"]["stored"]
    assert rows_of(alice.get(f"/v1/responses/{id}/trace?after=10")) == rows[10:]
    other = rows_of(alice.get(f"/v1/responses/{id}/trace?as=gemini"))
    assert other[-1]["response"] == rows[-1]["response"]
    assert bob.get(f"/v1/responses/{id}/trace").status_code == 404
    assert alice.get(f"/v1/responses/{id}/trace?as=latin").status_code == 400


def test_a_running_response_is_traced_live(alice: httpx.Client, far: Upstream) -> None:
    hold = Hold()

    def said_by(text: str, finish: str = "null") -> Step:
        choice = f'{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":{finish}}}'
        return chunk(b'data: {"id":"r","model":"m","choices":[%b]}\n\n' % choice.encode())

    done = chunk(b"data: [DONE]\n\n")
    script: list[Step] = [
        STREAM,
        said_by("War"),
        hold,
        said_by("p", '"stop"'),
        done,
        chunk(b""),
        FIN,
    ]
    model = f"openai-chat/{far.script(script)}"
    begun = posted(alice, "/v1/responses", {"model": model, "input": "x", "background": True})
    hold.here()
    with alice.stream("GET", f"/v1/responses/{begun['id']}/trace?as=openai-chat") as answer:
        lines = answer.iter_lines()
        seen = [json.loads(next(lines))]
        while "War" not in seen[-1].get("data", "") or seen[-1]["lane"] != "emit":
            seen.append(json.loads(next(lines)))
        hold.release()
        seen += [json.loads(line) for line in lines]
    assert seen[-1]["response"]["text"] == "Warp"
    assert [row["n"] for row in seen if row["lane"] == "frame"] == [0, 1, 2]


def test_the_turns_of_a_run_can_be_traced_by_its_owner_though_they_are_no_responses(
    alice: httpx.Client, bob: httpx.Client
) -> None:
    asked = {"model": "clerk", "input": "What is the status of order A-17?"}
    outer = posted(alice, "/v1/responses", asked)
    turns = got(alice, f"/v1/runs/{outer['metadata']['weft_run']}")["responses"]
    assert len(turns) == 2
    for id in turns:
        path = f"/v1/responses/{id}"
        *_, last = rows_of(alice.get(f"{path}/trace"))
        assert last["differ"] == 0
        assert got(alice, f"{path}/findings")["data"] == []
        assert alice.get(f"{path}/case").status_code == 200
        assert alice.get(path).status_code == 404
        assert id not in ids(got(alice, "/v1/responses"))
        for end in ("/trace", "/findings", "/case"):
            assert bob.get(path + end).status_code == 404
    compared = posted(alice, "/v1/trace/diff", {"a": turns[0], "b": turns[1]})["data"]
    assert any(row["op"] != "same" for row in compared)
    assert bob.post("/v1/trace/diff", json={"a": turns[0], "b": turns[1]}).status_code == 404
    # What a client does not want to be stored is stored for its conversation alone.
    conversation = posted(alice, "/v1/conversations", {})["id"]
    hidden = said(alice, store=False, conversation=conversation)
    assert alice.get(f"/v1/responses/{hidden}/trace").status_code == 404


def test_an_uploaded_capture_is_traced_as_the_command_line_does(
    alice: httpx.Client, tmp_path: Path
) -> None:
    headers = {"content-type": "text/event-stream"}
    answer = alice.post("/v1/trace?as=gemini", content=BROKEN, headers=headers)
    rows = rows_of(answer)
    emitted = [
        write(row["event"] or "", row["data"].encode()) for row in rows if row["lane"] == "emit"
    ]
    assert b"".join(emitted) == convert(BROKEN, "openai-chat", "gemini")
    (tmp_path / "a.sse").write_bytes(BROKEN)
    done = run("trace", tmp_path / "a.sse", "--as", "gemini")
    assert (done.code, done.out) == (0, answer.text)


@pytest.mark.parametrize(
    ("query", "raw", "param"),
    [
        ("", b"no stream at all", "from"),
        ("?from=latin", BROKEN, "from"),
        ("?as=latin", BROKEN, "as"),
        ("?quirks=nobody", BROKEN, "quirks"),
        ("?quirks=anthropic", BROKEN, "quirks"),
        ('?quirks={"implicit_think":1}', BROKEN, "quirks"),
        ('?quirks={"implicit_thin":true}', BROKEN, "quirks"),
        ("?quirks={", BROKEN, "quirks"),
        ("?after=-1", BROKEN, "after"),
    ],
)
def test_a_wrong_upload_is_named(alice: httpx.Client, query: str, raw: bytes, param: str) -> None:
    headers = {"content-type": "application/octet-stream"}
    answer = alice.post(f"/v1/trace{query}", content=raw, headers=headers)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_a_capture_is_read_with_the_quirks_that_are_named(alice: httpx.Client) -> None:
    path = HERE / "captures/openai_chat/orphan-think-closer.sse"
    quirks = '{"implicit_think": true}'
    headers = {"content-type": "application/octet-stream"}
    answer = alice.post(
        "/v1/trace", params={"quirks": quirks}, content=path.read_bytes(), headers=headers
    )
    *_, last = rows_of(answer)
    assert last["response"]["reasoning"] == "threads cross"
    done = run("trace", path, "--quirks", quirks)
    assert (done.code, done.out) == (0, answer.text)
    assert run("trace", path, "--quirks", "nobody").code == 2
    capture = {"capture": path.read_text(), "quirks": quirks}
    body = {"a": capture, "b": {"capture": path.read_text()}}
    kinds = {(row["op"], row["kind"]) for row in posted(alice, "/v1/trace/diff", body)["data"]}
    assert ("missing", "reasoning") in kinds
    # A response that is stored has the events that were sent, too.
    id = said(alice)
    sent = {"a": {"response": id, "sent": True}, "b": id, "of": "events"}
    assert posted(alice, "/v1/trace/diff", sent)["data"] == []


def test_an_upload_that_is_too_large_names_the_command(alice: httpx.Client) -> None:
    headers = {"content-type": "application/octet-stream"}
    answer = alice.post("/v1/trace", content=b" " * (MAX_UPLOAD + 1), headers=headers)
    assert answer.status_code == 413
    assert "weft trace CAPTURE" in answer.json()["error"]["message"]


def test_nothing_of_an_upload_is_stored(alice: httpx.Client, folder: Path) -> None:
    mark = b"Upload-mark-0123456789"
    raw = BROKEN.replace(b"loom-1", mark)
    headers = {"content-type": "text/event-stream"}
    assert mark in alice.post("/v1/trace", content=raw, headers=headers).content
    said(alice)  # whatever was queued is written by now
    assert not [path for path in folder.rglob("*") if path.is_file() and mark in path.read_bytes()]


def test_a_foreign_page_cannot_upload(served: Gateway) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        headers = {"content-type": kind, "origin": served.url}
        with raw_client(served) as client:
            answer = client.post("/v1/trace", content=BROKEN, headers=headers)
        assert answer.status_code == 415


# Diffs and cases


def test_two_responses_or_captures_are_compared(alice: httpx.Client, bob: httpx.Client) -> None:
    a, b = said(alice, "one"), said(alice, "two")
    rows = posted(alice, "/v1/trace/diff", {"a": a, "b": {"response": b}})["data"]
    texts = [row for row in rows if row["kind"] == "text"]
    assert [row["op"] for row in texts] == ["changed"]
    assert "one" in texts[0]["a"]["value"]
    assert "two" in texts[0]["b"]["value"]
    capture = {"capture": BROKEN.decode()}
    same = posted(alice, "/v1/trace/diff", {"a": capture, "b": {**capture, "from": "openai-chat"}})
    assert {row["op"] for row in same["data"]} == {"same"}
    for client, body, status in (
        (bob, {"a": a, "b": capture}, 404),
        (alice, {"a": {}, "b": capture}, 400),
        (alice, {"a": {"capture": "nothing"}, "b": capture}, 400),
        (alice, {"a": a}, 400),
    ):
        assert client.post("/v1/trace/diff", json=body).status_code == status


def test_a_case_passes_weft_test_until_a_byte_is_changed(
    alice: httpx.Client, bob: httpx.Client, tmp_path: Path
) -> None:
    id = said(alice)
    answer = alice.get(f"/v1/responses/{id}/case?name=odd-stream")
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "odd-stream.parts.jsonl",
        "odd-stream.sse",
    ]
    done = run("test", tmp_path)
    assert (done.code, done.out) == (0, "")
    capture = tmp_path / "odd-stream.sse"
    capture.write_bytes(capture.read_bytes().replace(b"hello", b"hallo"))
    assert run("test", tmp_path).code == 1
    assert run("test", tmp_path, "--update").code == 0
    assert run("test", tmp_path).code == 0
    for path in ("case?name=../x", "case?name=a/b"):
        assert alice.get(f"/v1/responses/{id}/{path}").status_code == 400
    assert bob.get(f"/v1/responses/{id}/case").status_code == 404


def test_a_case_has_what_must_be_known_beside_its_bytes(
    alice: httpx.Client, far: Upstream, tmp_path: Path
) -> None:
    raw = (HERE / "captures/openai_chat/calls-wrapped-in-parallel.sse").read_bytes()
    model = far.script((STREAM, chunk(raw), LAST))
    tools = [
        {"type": "function", "name": name, "parameters": {"type": "object"}}
        for name in ("wind", "dye")
    ]
    asked = {"model": f"openai-chat/{model}", "input": "Go.", "tools": tools}
    id = posted(alice, "/v1/responses", asked)["id"]
    answer = alice.get(f"/v1/responses/{id}/case?name=wrapped")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        archive.extractall(tmp_path)
    known = tmp_path / "wrapped.context.json"
    assert json.loads(known.read_bytes())["tools"] == ["wind", "dye"]
    golden = (tmp_path / "wrapped.parts.jsonl").read_bytes()
    assert golden.count(b'"tool-call"') == 2
    assert run("test", tmp_path).code == 0
    known.write_text('{"tools": "wind"}')
    wrong = run("test", tmp_path)
    assert (wrong.code, "wrapped.context.json" in wrong.out) == (1, True)
    known.unlink()
    assert run("test", tmp_path).code == 1


def test_keys_are_in_no_trace_and_no_case(alice: httpx.Client, far: Upstream) -> None:
    text = f"{PLANTED} and sk-abcdefgh12345678"
    choice = f'{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":"stop"}}'
    event = b'data: {"id":"k","model":"m","choices":[%b]}\n\ndata: [DONE]\n\n' % choice.encode()
    model = f"openai-chat/{far.script([STREAM, chunk(event), chunk(b''), FIN])}"
    id = said(alice, model=model)
    rows = rows_of(alice.get(f"/v1/responses/{id}/trace"))
    frames = [row["data"] for row in rows if row["lane"] == "frame"]
    assert PLANTED not in "".join(frames)
    content = alice.get(f"/v1/responses/{id}/case").content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = b"".join(archive.read(name) for name in archive.namelist())
    assert PLANTED.encode() not in files
    assert b"sk-abcdefgh12345678" not in files
    assert b"*** and ***" in files


# Rules


def test_rules_are_explained(alice: httpx.Client) -> None:
    listed = got(alice, "/v1/rules")["data"]
    assert len(listed) > 300
    by_id = got(alice, "/v1/rules/lifecycle/truncated")
    assert got(alice, "/v1/rules/truncated") == by_id
    assert by_id["text"] == run("check", "--explain", "lifecycle/truncated").out
    assert got(alice, "/v1/rules/not-carried")["severity"] == "note"
    assert alice.get("/v1/rules/nothing").status_code == 404
