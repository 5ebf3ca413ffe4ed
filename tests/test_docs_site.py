"""The documentation builds as a site, strictly: every link leads somewhere, and nothing in it is
fetched from the network when it is read.
"""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(?:https?:)?//[^"'>\s]+"""
    r"""|<link[^>]*\shref=["']?(?:https?:)?//[^"'>\s]+"""
    r"""|@import\s+url\(["']?(?:https?:)?//[^)]+"""
    r"""|url\(["']?(?:https?:)?//[^)]+"""
)
"""What a browser would fetch from elsewhere. Links that a reader may follow are no such thing."""


def run(*command: str | Path) -> None:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr


def python_with_mkdocs(folder: Path) -> Path:
    """This Python, if it has the extra `docs`; else that of a new environment with it."""
    if importlib.util.find_spec("material") is not None:
        return Path(sys.executable)
    run(sys.executable, "-m", "venv", folder)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    options = ("-q", "--disable-pip-version-check", "-c", ROOT / "constraints.txt")
    extra = project["optional-dependencies"]["docs"]
    run(folder / "bin" / "python", "-m", "pip", "install", *options, *extra)
    return folder / "bin" / "python"


@pytest.mark.long
def test_the_site_builds_strictly_and_needs_no_network_to_be_read(tmp_path: Path) -> None:
    python, site = python_with_mkdocs(tmp_path / "env"), tmp_path / "site"
    run(python, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", site)
    pages = {path.stem for path in ROOT.glob("docs/*.md")}
    assert pages <= {path.stem for path in site.glob("*.html")}
    assert (site / "data-flow.svg").is_file()
    fetched = {
        (path.name, found[0])
        for kind in ("html", "css")
        for path in site.rglob(f"*.{kind}")
        for found in FETCHED.finditer(path.read_text("utf-8"))
    }
    assert fetched == set()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('<script src="https://unpkg.com/x"></script>', True),
        ('<link rel="stylesheet" href="//fonts.example/css">', True),
        ("@import url(https://fonts.example/css)", True),
        ('<img alt="a" src="data-flow.svg">', False),
        ('<script src="assets/x.js"></script>', False),
        ('<a href="https://example.org">elsewhere</a>', False),
    ],
)
def test_what_is_fetched_from_elsewhere_is_seen(text: str, found: bool) -> None:
    assert (FETCHED.search(text) is not None) is found
