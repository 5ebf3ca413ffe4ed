"""The public names: what they are, that each says what it is, and that there are few of them."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import weft

PUBLIC = {
    "the verbs": "adecode assemble check convert convert_request decode decode_all detect encode",
    "incremental": "Decoder Encoder Guard",
    "what comes with them": "Context Ids Quirks Request DIALECTS",
    "the fold": "Decoded Finding ReasoningItem Response TextItem",
    "parts": (
        "ErrorPart File Finish Opaque Part ReasoningDelta ReasoningEnd ReasoningStart "
        "ResponseMetadata Source TextDelta TextEnd TextStart ToolApprovalRequest ToolCall "
        "ToolParamsDelta ToolParamsEnd ToolParamsStart ToolResult Usage"
    ),
    "errors": (
        "BadRequest ClientError InternalError TooLarge UnknownDialect Unreadable UpstreamError "
        "WeftError"
    ),
}
NAMES = sorted(name for names in PUBLIC.values() for name in names.split())
CONTRACT = [
    "Decoder",
    "Encoder",
    "adecode",
    "assemble",
    "check",
    "convert",
    "decode",
    "decode_all",
    "encode",
]
"""The library names of the contract that exist so far."""


def test_the_public_names_are_these_and_no_others() -> None:
    assert sorted(weft.__all__) == NAMES
    assert len(set(weft.__all__)) == len(weft.__all__)


def test_there_are_at_most_fifty_public_names() -> None:
    assert len(weft.__all__) <= 50


def test_the_package_binds_nothing_public_beside_its_public_names_and_its_modules() -> None:
    modules = {name for name, value in vars(weft).items() if inspect.ismodule(value)}
    bound = {name for name in vars(weft) if not name.startswith("_")}
    assert bound - modules <= set(NAMES)


def test_a_type_checker_and_an_interpreter_find_a_name_in_the_same_module() -> None:
    tree = ast.parse(Path(weft.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and not _is_not(node.test)]
    imported = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    homes = {name: home for home, names in weft._HOMES.items() for name in names.split()}
    assert imported == homes
    assert sorted(homes) == NAMES


def _is_not(test: ast.expr) -> bool:
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def printed(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return done.stdout.decode().strip()


def test_the_package_imports_nothing_of_itself_until_a_name_is_used() -> None:
    loaded = "print([name for name in sys.modules if name.startswith('weft.')])"
    assert printed(f"import sys, weft; {loaded}") == "[]"
    assert "'weft.ids'" in printed(f"import sys, weft; weft.Ids; {loaded}")
    assert "weft.codec" not in printed(f"import sys, weft; weft.Ids; {loaded}")


@pytest.mark.parametrize(
    "first", ["pass", "import weft.check", "from weft.check.engine import examine"]
)
def test_check_is_the_function_whatever_was_imported_first(first: str) -> None:
    assert printed(f"import weft; {first}; print(weft.check.__qualname__)") == "check"


def test_a_name_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(AttributeError, match="'weft' has no attribute 'klingon'"):
        getattr(weft, "klingon")  # noqa: B009
    assert set(NAMES) <= set(dir(weft))


@pytest.mark.parametrize("name", CONTRACT)
def test_the_names_of_the_contract_exist(name: str) -> None:
    assert name in weft.__all__
    assert callable(getattr(weft, name))


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_says_what_it_is(name: str) -> None:
    value = getattr(weft, name)
    if isinstance(value, type) or inspect.isfunction(value):
        assert value.__doc__, f"{name} has no docstring of its own"
    else:
        assert documented_value(name), f"{name} has no text below it"


def documented_value(name: str) -> bool:
    """Whether a value has a text right below it where it is made, or is what a module is about."""
    for path in Path(weft.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
                below = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                module = ast.get_docstring(tree) or ""
                return below or name.lower() in module.lower()
    return False


def test_errors_are_all_below_one_root() -> None:
    errors = [getattr(weft, name) for name in PUBLIC["errors"].split()]
    assert all(issubclass(error, weft.WeftError) for error in errors)


def test_the_three_kinds_of_fault_are_apart() -> None:
    faults = (weft.UpstreamError, weft.ClientError, weft.InternalError)
    for error in (weft.TooLarge, weft.UnknownDialect, weft.Unreadable):
        assert sum(issubclass(error, fault) for fault in faults) == 1
