"""What belongs to one key is absent for every other, on every route that names an id."""

import json
from collections.abc import Iterator

import pytest

from tests.faults.upstream import Upstream, answer, stream
from tests.faults.wires import CHAT, RESPONSES, SPEECHES, Object
from tests.faults.world import World, places, world
from tests.raw_http import Answer
from tests.security.keys import KEYS, ROUTES, Route
from tests.tables import each_row

NAMED = [one for one in ROUTES if "{id}" in one.path]
AGENT = '[agents.helper]\nmodel = "openai-chat/run"\n'

Owned = dict[str, str]


@pytest.fixture(scope="module")
def shared(behind: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two clients, one of whom has everything that can be stored."""
    keys = "\n".join(f'{name} = "{key}"' for name, key in KEYS.items())
    settings = f"[server.keys]\n{keys}\n{AGENT}" + places(behind.url)
    with world(settings, tmp_path_factory.mktemp("shared"), behind) as made:
        yield made


def send(world: World, key: str, method: str, path: str, body: Object | None = None) -> Answer:
    data = b"" if method in ("GET", "DELETE") else json.dumps(body or {}).encode()
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", f"x-api-key: {KEYS[key]}"]
    if data:
        head += [f"Content-Length: {len(data)}", "Content-Type: application/json"]
    with world.client() as client:
        client.send("\r\n".join([*head, "", ""]).encode("latin-1") + data)
        return client.answer()


@pytest.fixture(scope="module")
def owned(shared: World) -> Owned:
    """The ids of what alice has, by the path of its kind."""
    shared.upstream.named("stored", [answer(SPEECHES[RESPONSES].body)])
    shared.upstream.named("chat", [answer(SPEECHES[CHAT].body)])
    shared.upstream.named("run", stream(*SPEECHES[CHAT].frames))
    asked: dict[str, tuple[str, Object]] = {
        "/v1/responses": ("/v1/responses", {"model": f"{RESPONSES}/stored", "input": "hi"}),
        "/v1/chat/completions": (
            "/v1/chat/completions",
            {
                "model": f"{CHAT}/chat",
                "store": True,
                "messages": [{"role": "user", "content": "x"}],
            },
        ),
        "/v1/conversations": ("/v1/conversations", {}),
        "/v1/runs": ("/v1/runs", {"agent": "helper", "input": "hi"}),
    }
    found = {}
    for kind, (path, body) in asked.items():
        made = send(shared, "alice", "POST", path, body)
        assert made.status in (200, 201), made
        found[kind] = json.loads(made.body)["id"]
        assert send(shared, "alice", "GET", f"{kind}/{found[kind]}").status == 200
    return found


def kind_of(route: Route) -> str:
    return route.path.partition("/{id}")[0]


def asked(route: Route, id: str) -> str:
    return route.path.format(id=id, item_id="msg_1")


@pytest.mark.parametrize("route", NAMED, ids=str)
def test_what_belongs_to_another_is_absent(shared: World, owned: Owned, route: Route) -> None:
    id = owned[kind_of(route)]
    absent = id[:-8] + "".join("0" if one == "1" else "1" for one in id[-8:])
    foreign = send(shared, "bob", route.method, asked(route, id))
    nothing = send(shared, "bob", route.method, asked(route, absent))
    # A body that is wrong is refused before anything is looked up.
    assert foreign.status == nothing.status in (400, 404), foreign
    assert foreign.body.replace(id.encode(), b"") == nothing.body.replace(absent.encode(), b"")


@each_row("route", NAMED, ids=str)
@each_row("id", ["%27%20OR%20%271%27%3D%271", "x%00y", "%25", "%5C", "a" * 3000])
def test_an_id_is_a_value_and_no_sql(shared: World, owned: Owned, route: Route, id: str) -> None:
    found = send(shared, "bob", route.method, asked(route, id))
    assert found.status in (400, 404), found


def test_everything_is_still_there(shared: World, owned: Owned) -> None:
    """Whatever the others have tried."""
    for kind, id in owned.items():
        assert send(shared, "alice", "GET", f"{kind}/{id}").status == 200


def test_a_turn_of_another_cannot_be_continued(shared: World, owned: Owned) -> None:
    for field, kind in (
        ("previous_response_id", "/v1/responses"),
        ("conversation", "/v1/conversations"),
    ):
        statuses = [
            send(shared, "bob", "POST", "/v1/responses",
                 {"model": f"{RESPONSES}/stored", "input": "x", field: id}).status
            for id in (owned[kind], owned[kind][:-4] + "0000")
        ]  # fmt: skip
        assert statuses[0] == statuses[1]
        assert statuses[0] // 100 == 4


@pytest.mark.parametrize("path", sorted({"/v1/responses", "/v1/conversations", "/v1/runs",
                                         "/v1/chat/completions", "/v1/usage"}))  # fmt: skip
def test_lists_hold_what_is_one_s_own(shared: World, owned: Owned, path: str) -> None:
    found = send(shared, "bob", "GET", path)
    assert (found.status, json.loads(found.body)["data"]) == (200, [])
