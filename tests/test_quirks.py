"""Every quirk is explained, with what shows the need: a capture, or a test by its name."""

import ast
import importlib
import json
import re
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import weft
from weft.context import Quirks
from weft.dialects import DIALECTS, DialectName
from weft.dialects.anthropic_messages.quirks import MessagesQuirks

ROOT = Path(__file__).parents[1]
EVIDENCE = re.compile(r"`(tests/[\w./-]+)(?:::(test_\w+))?`")


class Row(NamedTuple):
    """One line of the table of a page."""

    name: str
    default: str
    evidence: str


def quirks_of(dialect: str) -> type[Quirks]:
    module = importlib.import_module(f"weft.dialects.{dialect.replace('-', '_')}.quirks")
    (found,) = [
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Quirks) and one is not Quirks
    ]
    return found


def section(dialect: str) -> str:
    """The text of a page below its heading `Quirks`, up to the next one."""
    page = (ROOT / "docs" / f"{dialect}.md").read_text("utf-8")
    match = re.search(r"^## Quirks\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return match[1] if match else ""


def table(dialect: str) -> list[Row]:
    lines = [line for line in section(dialect).splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return [Row(name.strip("`"), default.strip("`"), shown) for name, default, _, shown in cells]


@cache
def functions_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_page_of_a_dialect_has_every_quirk_with_its_default(dialect: str) -> None:
    declared = [
        (field.name, "" if field.default is MISSING else repr(field.default))
        for field in fields(quirks_of(dialect))
    ]
    assert [(row.name, row.default) for row in table(dialect)] == declared


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_shows_the_need_of_a_quirk_exists(dialect: str) -> None:
    for row in table(dialect):
        named = EVIDENCE.findall(row.evidence)
        assert named, f"{row.name}: neither a capture nor a test"
        for path, test in named:
            assert (ROOT / path).exists(), f"{row.name}: {path}"
            assert not test or test in functions_in(path), f"{row.name}: {path}::{test}"
            assert test or path.startswith("tests/captures/"), f"{row.name}: {path} is no capture"


def test_the_section_names_the_class_to_use() -> None:
    for dialect in DIALECTS:
        assert f"`{quirks_of(dialect).__name__}`" in section(dialect)


# Quirks that are a number or a word to send


ASKED: dict[str, dict[str, Any]] = {
    "openai-responses": {"model": "m", "input": "hi"},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}


def asked_of_messages(quirks: MessagesQuirks, source: DialectName, **more: Any) -> dict[str, Any]:
    raw = json.dumps({**ASKED[source], **more}).encode()
    context = weft.Context(quirks=quirks)
    found = weft.convert_request(raw, source, "anthropic-messages", context=context)
    body: dict[str, Any] = json.loads(found.body)
    return body


@pytest.mark.parametrize("limit", [4096, 64_000])
def test_a_request_without_a_limit_gets_that_of_the_quirks(limit: int) -> None:
    body = asked_of_messages(MessagesQuirks(max_tokens=limit), "openai-responses")
    assert body["max_tokens"] == limit


@pytest.mark.parametrize(("limit", "kept"), [(128, True), (100, True), (64, False)])
def test_a_name_may_be_as_long_as_the_host_takes(limit: int, kept: bool) -> None:
    tool = {"type": "function", "name": "n" * 100, "parameters": None, "strict": False}
    quirks = MessagesQuirks(name_limit=limit)
    body = asked_of_messages(quirks, "openai-responses", tools=[tool])
    (sent,) = [one["name"] for one in body["tools"]]
    assert (sent == "n" * 100, len(sent) <= limit) == (kept, True)


@pytest.mark.parametrize(
    ("quirks", "source", "tool", "sent"),
    [
        (
            MessagesQuirks(web_search="web_search_2"),
            "openai-responses",
            {"type": "web_search"},
            {"type": "web_search_2", "name": "web_search"},
        ),
        (
            MessagesQuirks(web_fetch="web_fetch_2"),
            "gemini",
            {"urlContext": {}},
            {"type": "web_fetch_2", "name": "web_fetch"},
        ),
        (
            MessagesQuirks(code_execution="code_execution_2"),
            "gemini",
            {"codeExecution": {}},
            {"type": "code_execution_2", "name": "code_execution"},
        ),
    ],
    ids=["search", "fetch", "code"],
)
def test_a_hosted_tool_is_sent_in_the_version_that_the_host_knows(
    quirks: MessagesQuirks, source: DialectName, tool: dict[str, Any], sent: dict[str, Any]
) -> None:
    assert asked_of_messages(quirks, source, tools=[tool])["tools"] == [sent]
