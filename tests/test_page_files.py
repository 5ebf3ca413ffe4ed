"""The files of the page: what is served is what is in the package, under these headers, to all."""

import hashlib
import re
import tomllib
from pathlib import Path

import httpx

import weft.gateway
from tests.gateway_process import gateway
from tests.tables import each_row
from weft.gateway.page_files import MEDIA_TYPES, PageFiles

FOLDER = Path(weft.gateway.__file__).parent / "page"
FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
OWN = [path for path in FILES if "vendor" not in path.parts]
SCRIPTS = [path for path in OWN if path.suffix == ".js"]
LONGEST = 300

FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser"
    r"|setHTML|createContextualFragment|javascript:|\bcookie\b|EventSource"
)
IMPORT = re.compile(r'(?:from|import)\s*\(?\s*"(\.[^"]+)"')


def test_the_vendored_file_is_the_published_one() -> None:
    about = tomllib.loads((FOLDER / "vendor/marked.toml").read_text())
    data = (FOLDER / "vendor/marked.js").read_bytes()
    assert hashlib.sha256(data).hexdigest() == about["sha256"]
    assert f"marked v{about['version']} ".encode() in data[:200]
    assert "MIT" in about["licence"]
    assert "Permission is hereby granted" in (FOLDER / "vendor/marked.LICENSE").read_text()


@each_row("path", OWN, ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_file_makes_html_of_strings_or_is_too_long(path: Path) -> None:
    text = path.read_text()
    if path.suffix == ".js":
        assert FORBIDDEN.findall(text) == []
        assert text.count("\n") <= LONGEST
    if path.suffix == ".html":
        assert "style=" not in text
        assert re.findall(r"<script(?! type=\"module\" src=)", text) == []


@each_row(
    "path",
    [one for one in OWN if one.suffix == ".js"],
    ids=lambda one: str(one.relative_to(FOLDER)),
)
def test_every_import_leads_to_a_file(path: Path) -> None:
    for target in IMPORT.findall(path.read_text()):
        assert (path.parent / target).is_file(), target


def test_what_is_served_is_what_is_in_the_package() -> None:
    served = {path.removeprefix("/page/") for path in PageFiles().paths} - {"/"}
    assert served == {
        str(path.relative_to(FOLDER)) for path in FILES if path.suffix[1:] in MEDIA_TYPES
    }


def test_a_server_without_the_page_has_none_of_it(tmp_path: Path) -> None:
    with gateway("[server]\npage = false\n", tmp_path) as running:
        assert httpx.get(running.url).status_code == 405
        for path in ("/page/app.js", "/page/index.html"):
            assert httpx.get(running.url + path).status_code == 404
        assert httpx.head(running.url).status_code == 200  # the probe of some clients
    assert f" {running.url}/\n" not in running.stdout


def test_with_keys_the_page_is_for_everybody_and_nothing_else_is(tmp_path: Path) -> None:
    settings = '[server.keys]\nalice = "a-key-of-more-than-16-letters"\n'
    with gateway(settings, tmp_path) as running:
        page = httpx.get(running.url)
        assert page.status_code == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert httpx.get(f"{running.url}/page/nothing.js").status_code == 401
        assert httpx.post(running.url).status_code == 401
        assert httpx.get(f"{running.url}/v1/models").status_code == 401
    assert f" {running.url}/\n" in running.stdout
