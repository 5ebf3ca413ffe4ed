"""The documentation builds as a site, strictly: every link leads somewhere, and nothing in it is
fetched from the network when it is read.
"""

import importlib.util
import os
import re
import shutil
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
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This Python, if it has the extra `docs`; else that of a new environment with it."""
    if importlib.util.find_spec("material") is not None:
        return Path(sys.executable)
    folder = tmp_path_factory.mktemp("docs")
    run(sys.executable, "-m", "venv", folder)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    options = ("-q", "--disable-pip-version-check", "-c", ROOT / "constraints.txt")
    extra = project["optional-dependencies"]["docs"]
    run(folder / "bin" / "python", "-m", "pip", "install", *options, *extra)
    return folder / "bin" / "python"


def build(python: Path, root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Builds the site as `make docs` does, of the pages and the settings below `root`."""
    command: list[str | Path] = [python, "-m", "mkdocs", "build", "--strict", "--site-dir", site]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False, env=environment
    )


@pytest.mark.long
def test_the_site_builds_strictly_and_needs_no_network_to_be_read(
    python: Path, tmp_path: Path
) -> None:
    done = build(python, ROOT, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.stem for path in ROOT.glob("docs/*.md")}
    assert pages <= {path.stem for path in tmp_path.glob("*.html")}
    assert (tmp_path / "data-flow.svg").is_file()
    fetched = {
        (path.name, found[0])
        for kind in ("html", "css")
        for path in tmp_path.rglob(f"*.{kind}")
        for found in FETCHED.finditer(path.read_text("utf-8"))
    }
    assert fetched == set()


@pytest.mark.long
@pytest.mark.parametrize("link", ["gone.md", "library.md#nowhere"])
def test_a_link_to_nowhere_fails_the_build(python: Path, tmp_path: Path, link: str) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    with (tmp_path / "docs" / "index.md").open("a", encoding="utf-8") as page:
        page.write(f"\n[nowhere]({link})\n")
    done = build(python, tmp_path, tmp_path / "site")
    assert done.returncode == 1
    assert link in done.stderr


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
