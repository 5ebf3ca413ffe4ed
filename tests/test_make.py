"""`make serve` in a new clone: from nothing to the first answer."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.gateway_process import READY

ROOT = Path(__file__).parents[1]
NEEDED = ("Makefile", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "src")


@pytest.mark.long
def test_make_serve_sets_up_the_gateway_alone_and_answers(tmp_path: Path) -> None:
    for name in NEEDED:
        source, target = ROOT / name, tmp_path / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    environment = {
        name: one
        for name, one in os.environ.items()
        if not name.startswith(("WEFT", "PYTHON", "VIRTUAL_ENV", "MAKE", "MFLAGS"))
    }
    environment |= {"WEFT_SERVER__PORT": "0", "PYTHON": sys.executable}
    process = subprocess.Popen(
        ["make", "serve"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    shown: list[str] = []
    try:
        for line in process.stdout:
            shown.append(line)
            if found := READY.search(line):
                break
        assert found is not None
        body = {"model": "demo/chat", "input": "hello"}
        answer = httpx.post(f"{found[1]}/v1/responses", json=body, trust_env=False, timeout=60)
        assert answer.json()["status"] == "completed"
        assert shown[0].startswith("Creating .venv with Python 3.")
        assert shown[1] == "Installing weft[gateway] into it ...\n"
    finally:
        os.killpg(process.pid, 15)  # the group that was started here: make, and what it runs
        process.wait(60)
        process.stdout.close()
    installed = {path.name for path in next((tmp_path / ".venv" / "lib").iterdir()).glob("*/*")}
    assert "uvicorn" in installed
    assert not installed & {"pytest", "mypy", "openai", "mkdocs"}
