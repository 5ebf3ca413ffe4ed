"""The wheel, as a stranger gets it: built, installed in an empty environment, and run there."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import weft
from tests import chat

ROOT = Path(__file__).parents[1]
CONSTRAINTS, LOCK = ROOT / "constraints.txt", ROOT / "deploy" / "requirements.txt"
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
STREAM = chat.stream([chat.calls(chat.entry(0, "call_1", "look", '{"at":"sea"}'))], "tool_calls")

pytestmark = pytest.mark.long


def run(*command: str | Path, given: bytes = b"") -> bytes:
    done = subprocess.run(command, input=given, capture_output=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return done.stdout


def environment(folder: Path) -> Path:
    """An empty virtual environment; returns where its programs are."""
    run(sys.executable, "-m", "venv", folder)
    return folder / "bin"


def install(programs: Path, *what: str) -> None:
    options = ("-q", "--disable-pip-version-check", "-c", CONSTRAINTS)
    run(programs / "pip", "install", *options, *what)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check"]
    run(*pip, "--no-deps", "--wheel-dir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist() if "dist-info" not in name}
        metadata = [name for name in archive.namelist() if "dist-info" in name]
    source = ROOT / "src"
    tree = {
        str(path.relative_to(source)): path.read_bytes()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == tree
    assert "weft/py.typed" in held
    assert any(name.endswith("LICENSE") for name in metadata)
    assert any(name.endswith("entry_points.txt") for name in metadata)


def test_the_command_line_works_where_its_extra_is_installed(wheel: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path / "full")
    install(programs, f"{wheel}[cli]")
    assert run(programs / "weft", "--help").startswith(b"Usage: weft ")
    converted = run(programs / "weft", "convert", "-", "--to", "openai-responses", given=STREAM)
    assert converted == weft.convert(STREAM, "openai-chat", "openai-responses")
    first = run(programs / "weft", "demo", "--raw", "--pace", "0").split(b"\n")[0]
    assert first == b"event: response.created"
    run(programs / "pip", "check")


def test_the_bare_wheel_needs_msgspec_alone_and_says_what_the_command_lacks(
    wheel: Path, tmp_path: Path
) -> None:
    programs = environment(tmp_path / "bare")
    install(programs, str(wheel))
    listed = run(programs / "pip", "list", "--format=freeze", "--disable-pip-version-check")
    names = {line.split("=")[0].split(" ")[0] for line in listed.decode().splitlines()}
    assert names - {"pip", "setuptools"} == {"msgspec", "weft"}
    program = (
        "import sys, weft\n"
        "raw = sys.stdin.buffer.read()\n"
        "sys.stdout.buffer.write(weft.convert(raw, 'openai-chat', 'openai-responses'))\n"
    )
    converted = run(programs / "python", "-c", program, given=STREAM)
    assert converted == weft.convert(STREAM, "openai-chat", "openai-responses")
    command = [str(programs / "weft"), "--help"]
    done = subprocess.run(command, capture_output=True, check=False, env=ENVIRONMENT)
    assert done.returncode != 0
    assert done.stdout == b""
    assert done.stderr == b"weft: the command line needs an extra: pip install 'weft[cli]'\n"


def test_a_gateway_is_installed_from_exact_files_alone(wheel: Path, tmp_path: Path) -> None:
    """What pip would have to add to the lock, or take in another version, fails."""
    programs = environment(tmp_path / "locked")
    quiet = ("-q", "--disable-pip-version-check")
    run(programs / "pip", "install", *quiet, "--require-hashes", "-r", LOCK)
    run(programs / "pip", "install", *quiet, "--no-deps", wheel)
    run(programs / "pip", "install", *quiet, "--no-index", "--dry-run", f"{wheel}[postgres]")
    settings = tmp_path / "weft.toml"
    settings.write_text(f"[store]\nurl = 'sqlite:///{tmp_path / 'weft.db'}'\n")
    assert b"demo" in run(programs / "weft", "config", "check", "--config", settings)


def test_the_lock_has_the_versions_that_the_tests_run_with() -> None:
    pins = re.compile(r"^([\w.-]+)(?:\[\w,]+)?==([\w.]+)", re.MULTILINE)
    known = {_normalized(name): version for name, version in pins.findall(CONSTRAINTS.read_text())}
    locked = {_normalized(name): version for name, version in pins.findall(LOCK.read_text())}
    assert {"msgspec", "uvicorn", "asyncpg"} <= locked.keys()
    assert {name: known.get(name, version) for name, version in locked.items()} == locked


def _normalized(name: str) -> str:
    """As PEP 503 says."""
    return re.sub(r"[-_.]+", "-", name).lower()
