"""How the command line starts: what help imports, what a missing library says, `python -m weft`."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import weft
from tests.test_cli import COMMANDS
from tests.weft_command import ENVIRONMENT, run
from weft.cli.program import DIALECTS, EXTRAS

SOURCE = Path(weft.__file__).parents[1]
HELPS = [[], *([one] for one in (*COMMANDS, "serve", "verify", "config"))]
HELPS += [["config", "check"], ["config", "presets"]]
LIGHT = {"weft", "weft.dialect_names", "weft.cli", "weft.cli.main", "weft.cli.program"}
LIGHT |= {"weft.cli.commands"}
LIGHT |= {f"weft.cli.commands.{name}" for name in ("agents", "captures", "gateway", "store")}
HEAVY = {*EXTRAS, "msgspec", "asyncio", "sqlite3"}

IMPORTED = """\
import sys
from weft.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    print(*sorted(sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize("command", HELPS, ids=lambda command: "-".join(command) or "weft")
def test_help_imports_nothing_but_the_options(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *command, "--help"],
        capture_output=True,
        check=True,
        env=ENVIRONMENT,
    )
    assert done.stdout.startswith(b"Usage: ")
    modules = set(done.stderr.decode().split())
    assert {name for name in modules if name.partition(".")[0] == "weft"} == LIGHT
    assert modules & HEAVY == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_set_up(shell: str) -> None:
    environment = {**ENVIRONMENT, "_WEFT_COMPLETE": f"{shell}_source"}
    command = [sys.executable, "-c", "from weft.cli.main import main; main(prog_name='weft')"]
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    assert b"_WEFT_COMPLETE=" in done.stdout


def test_completion_knows_commands_and_dialects() -> None:
    def completed(words: str, number: int) -> list[str]:
        environment = {
            **ENVIRONMENT,
            "_WEFT_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(number),
        }
        command = [sys.executable, "-c", "from weft.cli.main import main; main(prog_name='weft')"]
        done = subprocess.run(command, capture_output=True, check=True, env=environment)
        return [line.partition(",")[2] for line in done.stdout.decode().splitlines()]

    assert completed("weft co", 1) == ["config", "convert"]
    assert completed("weft convert x --to open", 4) == [
        name for name in DIALECTS if name.startswith("open")
    ]


def test_the_options_know_every_dialect_that_can_be_read_and_written() -> None:
    rows = weft.DIALECTS.values()
    assert sorted(name for row in rows for name in (row.name, *row.aliases)) == list(DIALECTS)
    assert all(row.decoder and row.encoder for row in rows)


def test_python_m_weft_is_weft(tmp_path: Path) -> None:
    path = tmp_path / "empty.sse"
    path.touch()

    def module(*arguments: str | Path) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "weft", *arguments]
        done = subprocess.run(command, capture_output=True, check=False, env=ENVIRONMENT, text=True)
        return done.returncode, done.stdout, done.stderr

    for arguments in (("check", "--rules"), ("parts", path), ("demo", "--raw", "--pace", "0")):
        done = run(*arguments)
        assert module(*arguments) == (done.code, done.out, done.err)
    assert module("--help")[1].startswith("Usage: python -m weft [OPTIONS] COMMAND")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder with click and msgspec, and no other library."""
    for name in ("click", "msgspec"):
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        (tmp_path / name).symlink_to(Path(spec.origin).parent)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "extra", "missing"),
    [
        (["serve"], "gateway", "starlette"),
        (["serve", "--port", "1", "--host", "0.0.0.0"], "gateway", "starlette"),
        (["demo", "--raw", "--pace", "0"], "cli", "rich"),
    ],
    ids=["serve", "serve-with-options", "demo"],
)
def test_a_missing_extra_is_named(
    bare: Path, arguments: list[str], extra: str, missing: str
) -> None:
    done = run_bare(bare, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    message = f"weft {arguments[0]} needs an extra: pip install 'weft[{extra}]'"
    assert done.stderr.startswith(f"Error: {message} (")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["check", "--rules"]])
def test_what_needs_no_extra_works_without_one(bare: Path, arguments: list[str]) -> None:
    done = run_bare(bare, *arguments)
    assert (done.returncode, done.stderr) == (0, "")


def run_bare(bare: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs weft where there are no libraries but those of a folder."""
    path = os.pathsep.join((str(bare), str(SOURCE)))
    return subprocess.run(
        [sys.executable, "-S", "-m", "weft", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**ENVIRONMENT, "PYTHONPATH": path},
    )
