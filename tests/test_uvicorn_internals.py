"""What the gateway uses of uvicorn beyond its documented API is listed, and is there."""

import ast
import inspect
import textwrap
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import uvicorn

from weft.gateway import uvicorn_internals
from weft.gateway.uvicorn_internals import INTERNALS

ROOT = Path(__file__).parents[1]
GATEWAY = ROOT / "src" / "weft" / "gateway"
BY_NAME = {one.__name__: one for one in INTERNALS}
RECEIVERS = {
    "cycle": "RequestResponseCycle",
    "flow": "FlowControl",
    "conn": "ServerProtocol",
    "reader": "StreamReader",
    "server_state": "ServerState",
    "state": "ServerState",
}
"""What variables and attributes of these names hold, in the gateway."""


@cache
def defined(kind: type) -> frozenset[str]:
    """The methods of a class, and the attributes that it sets on itself."""
    found: set[str] = set()
    for one in kind.__mro__:
        if one.__module__.partition(".")[0] in ("uvicorn", "websockets"):
            for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(one)))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    found.add(node.name)
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    found.add(node.target.id)
                elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    found.add(node.attr)
    return frozenset(found)


def last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def touched(tree: ast.AST, own: type | None = None) -> Iterator[tuple[type, str]]:
    """The attributes of uvicorn's classes that code uses; `own` is the one that `self` extends."""
    for node in ast.iter_child_nodes(tree):
        inner = own
        if isinstance(node, ast.ClassDef):
            bases = [BY_NAME[last_name(base)] for base in node.bases if last_name(base) in BY_NAME]
            inner = bases[0] if bases else None
            methods = [one for one in node.body if isinstance(one, FUNCTIONS)]
            for base in bases:
                names = {one.name for one in methods} - {"__init__"}
                yield from ((base, name) for name in names & defined(base))
        if isinstance(node, ast.Attribute):
            receiver = last_name(node.value)
            kind = BY_NAME[RECEIVERS[receiver]] if receiver in RECEIVERS else None
            is_own = receiver == "self" and own is not None
            if kind is not None and node.attr in defined(kind):
                yield kind, node.attr
            if is_own and own is not None and node.attr in defined(own):
                yield own, node.attr
        yield from touched(node, inner)


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@pytest.mark.parametrize("kind", INTERNALS, ids=lambda kind: kind.__name__)
def test_the_installed_version_has_every_attribute_that_is_used(kind: type) -> None:
    assert INTERNALS[kind] - defined(kind) == frozenset()


def test_the_list_is_what_the_code_uses() -> None:
    found: dict[type, set[str]] = {kind: set() for kind in INTERNALS}
    for path in GATEWAY.glob("*.py"):
        for kind, name in touched(ast.parse(path.read_text())):
            found[kind].add(name)
    assert {kind: frozenset(names) for kind, names in found.items()} == INTERNALS


def test_only_one_module_imports_internals_of_uvicorn() -> None:
    importing = {
        path.name
        for path in GATEWAY.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").partition(".")[0] in ("uvicorn", "websockets")
    }
    assert importing == {Path(uvicorn_internals.__file__).name}


def test_one_minor_version_of_uvicorn_is_allowed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = [
        one
        for group in extras["optional-dependencies"].values()
        for one in group
        if one.startswith("uvicorn")
    ]
    minor = int(uvicorn.__version__.split(".")[1])
    assert wanted == f"uvicorn[standard]>=0.{minor},<0.{minor + 1}"
