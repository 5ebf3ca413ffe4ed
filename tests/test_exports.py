"""The public names: what they are, and that each is documented where it is defined."""

import ast
import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import weft
from tests.tables import each_row
from tests.test_docs import PAGES, blocks, name

ROOT = Path(__file__).parents[1]

PUBLIC = {
    "functions": (
        "adecode assemble check convert convert_request decode decode_all detect encode encode_body"
    ),
    "incremental": "Decoder Encoder Guard",
    "returned": "AsyncDecodedStream Converted Decoded DecodedStream EncodedStream Loss Translated",
    "options": "Context DIALECTS DialectName Ids",
    "quirks": ("ChatQuirks GeminiQuirks Markup MessagesQuirks Quirks ResponsesQuirks UiQuirks"),
    "responses": "Finding Findings ReasoningItem Response TextItem",
    "requests": (
        "AnyContent CallContent FileContent Hosted ImageContent Message OpaqueContent "
        "OutputFormat ReasoningContent ReasoningOptions Request ResultContent Sampling TextContent "
        "Tool ToolChoice"
    ),
    "parts": (
        "AnyPart ErrorPart File Finish Opaque Part ReasoningDelta ReasoningEnd ReasoningStart "
        "ResponseMetadata Source TextDelta TextEnd TextStart ToolApprovalRequest ToolCall "
        "ToolParamsDelta ToolParamsEnd ToolParamsStart ToolResult Usage"
    ),
    "agent": (
        "Agent Done Limits LogEntry NotDone PendingCall Price RunHandle RunResult RunStep "
        "Runtime ToolContext UpstreamOptions tool"
    ),
    "errors": (
        "ArgumentTypeError ArgumentValueError BadRequest ClientError InternalError Refused "
        "TooLarge UnknownDialect Unreadable UpstreamError WeftError"
    ),
    "version": "__version__",
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


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert weft.__version__ == project["version"]


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
    assert sorted([*homes, "__version__"]) == NAMES


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
    "first", ["pass", "import weft.check", "from weft.check.checker import examine"]
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


@pytest.mark.parametrize("name", [name for name in NAMES if name != "__version__"])
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
            if isinstance(node, ast.AnnAssign | ast.Assign) and _target(node) == name:
                below = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                module = ast.get_docstring(tree) or ""
                return below or name.lower() in module.lower()
    return False


def _target(node: ast.AnnAssign | ast.Assign) -> str:
    return ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])


def test_errors_are_all_below_one_root() -> None:
    errors = [getattr(weft, name) for name in PUBLIC["errors"].split()]
    assert all(issubclass(error, weft.WeftError) for error in errors)


def test_the_three_kinds_of_fault_are_apart() -> None:
    faults = (weft.UpstreamError, weft.ClientError, weft.InternalError)
    for error in (weft.TooLarge, weft.UnknownDialect, weft.Unreadable, weft.ArgumentTypeError):
        assert sum(issubclass(error, fault) for fault in faults) == 1


INSIDE = {"architecture.md", "store.md"}
"""The pages about the inside of Weft, whose examples may import from its modules."""


@each_row("page", [page for page in PAGES if page.name not in INSIDE], ids=name)
def test_the_examples_of_a_page_use_public_names_only(page: Path) -> None:
    for example in blocks(page, "python", "py"):
        for node in ast.walk(ast.parse(example.body)):
            match node:
                case ast.ImportFrom(module=str(module)):
                    assert not module.startswith("weft."), f"line {example.line}: {module}"
                case ast.Import(names=imported):
                    assert not [one.name for one in imported if one.name.startswith("weft.")]
                case ast.Attribute(value=ast.Name(id="weft"), attr=attribute):
                    assert attribute in weft.__all__, f"line {example.line}: weft.{attribute}"
