"""Attacks that need no key of their own: paths that leave their folder, values that would be SQL,
and code that would run what it is given."""

import ast
from pathlib import Path

import pytest

import weft
from tests.faults.world import World
from tests.security.keys import KEYS
from tests.tables import each_row
from weft.gateway.keys import KeyRing

SOURCE = Path(weft.__file__).parent

# Paths

CLIMBING = (
    "/page/../app.py", "/page/..%2fapp.py", "/page/%2e%2e/app.py", "/page/%2e%2e%2fapp.py",
    "/page/..%5capp.py", "/page/..\\app.py", "/page/app.js%00.css", "/page/%00", "/page/app.js%00",
    "/page//etc/passwd", "/page/%2fetc%2fpasswd", "/pages/app.js", "/page.css", "/page/x.js/",
    "/page/./app.js", "/page/vendor/../app.js", "/page/APP.JS", "/page/vendor/marked.toml",
    "/page/%252e%252e/app.py", "/page/..;/app.py",
)  # fmt: skip


@each_row("path", CLIMBING)
@each_row("keys", [True, False], ids=["locked", "unlocked"])
def test_no_path_leaves_the_files_of_the_page(
    locked: World, unlocked: World, keys: bool, path: str
) -> None:
    world = locked if keys else unlocked
    with world.client() as client:
        client.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode("latin-1"))
        found = client.answer()
    assert found.status in ((400, 401) if keys else (400, 404))
    for secret in (b"class Gateway", b"root:", b"sha256"):
        assert secret not in found.body


# Values

QUERIES = {
    "/v1/responses": ("after", "limit", "status", "model", "conversation", "findings", "order"),
    "/v1/conversations": ("after", "limit", "q", "order"),
    "/v1/chat/completions": ("after", "limit", "model", "order", "metadata[x]"),
    "/v1/runs": ("after", "limit", "status", "agent"),
    "/v1/usage": ("start", "end", "model", "upstream", "key", "group_by"),
    "/v1/responses/resp_1/trace": ("as", "after"),
    "/v1/responses/resp_1/case": ("name",),
    "/v1/responses/resp_1/input_items": ("after", "limit", "order"),
    "/v1/responses/resp_1": ("stream", "starting_after", "include[]"),
}
VALUES = (
    "%27", "%22", "%27%20OR%201%3D1%20--", "%27%3B%20DROP%20TABLE%20response%3B%20--", "%25", "_",
    "%5C%27", "%00", "x%00y", "%ff", "-1", "99999999999999999999", "1e400", "%7B%7D", "a" * 3000,
)  # fmt: skip


@each_row("value", VALUES)
@each_row("path", QUERIES)
def test_a_value_of_a_query_is_a_value_and_no_sql(locked: World, path: str, value: str) -> None:
    for name in QUERIES[path]:
        head = f"GET {path}?{name}={value} HTTP/1.1\r\nHost: localhost\r\n"
        with locked.client() as client:
            client.send(f"{head}x-api-key: {KEYS['alice']}\r\n\r\n".encode())
            found = client.answer()
        assert found.status in (200, 400, 404), (name, found)
        assert b"SQL" not in found.body


# Code

RUNS_TEXT = {"eval", "exec", "compile", "__import__"}
LOADS_CODE = {"pickle", "marshal", "shelve", "jinja2", "mako", "yaml", "code", "codeop"}
SHELLS = {"system", "popen"}


def dangers(source: str) -> list[str]:
    """What runs a text as code, loads objects from bytes, or starts a shell."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in RUNS_TEXT:
                found.append(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr=name)) if name in SHELLS:
                found.append(f"os.{name}")
            case ast.Import(names=names):
                found += [one.name for one in names if one.name.split(".")[0] in LOADS_CODE]
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in LOADS_CODE:
                found.append(module)
            case ast.keyword(arg="shell", value=ast.Constant(value=True)):
                found.append("shell=True")
    return found


def test_nothing_runs_what_it_is_given() -> None:
    found = {
        str(path.relative_to(SOURCE)): said
        for path in SOURCE.rglob("*.py")
        if (said := dangers(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    "source",
    ["eval(x)", "exec(x)", "import pickle", "from pickle import loads", "import yaml",
     "os.system(x)", "run(x, shell=True)", "compile(x, '', 'exec')"],
)  # fmt: skip
def test_what_runs_what_it_is_given_is_seen(source: str) -> None:
    assert dangers(source)


def test_keys_are_compared_by_their_digests_in_constant_time() -> None:
    """The code says so: time is not measured."""
    tree = ast.parse((SOURCE / "gateway/keys.py").read_text(encoding="utf-8"))
    (found,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == KeyRing.find_name.__name__
    )
    called = [one.func.id for one in ast.walk(found) if isinstance(one, ast.Call)
              and isinstance(one.func, ast.Name)]  # fmt: skip
    assert {"digest_of", "compare_digest"} <= set(called)
    assert not any(isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.Eq | ast.NotEq)
                   for one in ast.walk(found))  # fmt: skip
