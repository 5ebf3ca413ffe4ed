"""`weft check` on folders, patterns and terminals; which rules it reports, and how."""

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests import chat, weft_command
from tests.captures import HERE
from tests.test_cli import HEAD
from tests.weft_command import ENVIRONMENT, WEFT
from weft.check.rules import all_rules, rules_matching, selection
from weft.errors import ClientError

FIRST = chat.chunk({"role": "assistant", "content": "Hel"})
PLAIN = chat.stream([FIRST, chat.chunk({"content": "lo"})])
AGAIN = chat.calls(chat.entry(0, "c1", None, "}"))
CALL = chat.chunk({"role": "assistant", "tool_calls": [chat.entry(0, "c1", "look", "{")]})
REPEATED = chat.stream([CALL, AGAIN], "tool_calls")
"""Breaks openai-chat/call-id-repeated at its second event, which implies a rule of all streams."""


def run(
    *arguments: str | Path, folder: Path | None = None, given: bytes = b"", **environ: str
) -> tuple[int, list[str], str]:
    environment = ENVIRONMENT | environ
    done = weft_command.run(
        "check", *arguments, folder=folder, given=given, environment=environment
    )
    return done.code, done.lines, done.err


def findings(lines: list[str]) -> list[str]:
    """The files and rules of the lines of findings."""
    return [
        f"{line.split(':')[0]} {line.split(': ')[1].split()[1]}"
        for line in lines
        if line.partition(": ")[0].count(":") == 2
    ]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.sse").write_bytes(REPEATED)
    (tmp_path / "deep" / "b.jsonl").write_bytes(
        REPEATED.replace(b"data: ", b"").replace(b"\n\n", b"\n").replace(b"[DONE]\n", b"")
    )
    (tmp_path / "deep" / "er" / "c.txt").write_bytes(HEAD + REPEATED)
    (tmp_path / "deep" / "notes.md").write_text("# Captures\n")
    (tmp_path / "deep" / "golden.json").write_text('{"text": "Hello"}')
    (tmp_path / ".git" / "d.sse").write_bytes(REPEATED)
    return tmp_path


RULE = "openai-chat/call-id-repeated"
ALL = [f"a.sse {RULE}", f"deep/b.jsonl {RULE}", f"deep/er/c.txt {RULE}"]


def test_a_folder_is_searched_for_captures_at_any_depth(tree: Path) -> None:
    code, lines, err = run(".", folder=tree)
    assert [line for line in findings(lines) if RULE in line] == ALL
    assert (code, err) == (1, "")
    assert lines[-1].startswith("3 captures checked: 3 errors, ")
    assert lines[-1].endswith("; 2 other files skipped")


def test_a_folder_can_be_searched_for_one_dialect(tree: Path) -> None:
    code, lines, _ = run("--dialect", "gemini", "deep", "a.sse", folder=tree)
    assert lines[-1].endswith("; 4 other files skipped")
    assert [one for one in findings(lines) if not one.startswith("a.sse ")] == []
    assert code == 2


@pytest.mark.parametrize("pattern", ["**/*.[jst]*", "./**/*.[jst]*"])
def test_a_pattern_is_expanded(tree: Path, pattern: str) -> None:
    (tree / "deep" / "golden.json").unlink()
    code, lines, err = run(pattern, folder=tree)
    assert [line.removeprefix("./") for line in findings(lines) if RULE in line] == ALL
    assert (code, err) == (1, "")


def test_a_file_whose_name_is_a_pattern_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "[a].sse").write_bytes(PLAIN)
    assert run("[a].sse", folder=tmp_path)[0] == 0


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("empty", "empty: byte 0, event 0: no capture in this folder"),
        ("nothing", "nothing: byte 0, event 0: no capture in this folder"),
        ("*.none", "*.none: byte 0, event 0: No such file or directory"),
        ("gone", "gone: byte 0, event 0: No such file or directory"),
    ],
)
def test_an_argument_that_holds_nothing_is_unreadable(
    tmp_path: Path, argument: str, expected: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.md").write_text("nothing\n")
    (tmp_path / "nothing").mkdir()
    (tmp_path / "plain.sse").write_bytes(PLAIN)
    code, lines, err = run(argument, "plain.sse", folder=tmp_path)
    assert (code, err) == (2, f"weft: {expected}\n")
    assert lines[-1].startswith("1 capture checked: ")


def test_a_capture_of_a_folder_that_cannot_be_read_is_not_skipped(tmp_path: Path) -> None:
    (tmp_path / "empty.sse").touch()
    code, _, err = run(".", folder=tmp_path)
    expected = "weft: empty.sse: byte 0, event 0: empty: there is no stream in it\n"
    assert (code, err) == (2, expected)


# Positions


def test_a_finding_is_where_editors_open_it(tmp_path: Path) -> None:
    (tmp_path / "head.sse").write_bytes(HEAD + REPEATED)
    _, lines, _ = run("head.sse", folder=tmp_path)
    (line,) = [line for line in lines if f"error {RULE}: " in line]
    offset = len(HEAD) + len(CALL)
    assert line.startswith(f"head.sse:7:1: error {RULE}: ")
    assert line.endswith(f" (event 1, byte {offset})")
    _, (report,), _ = run("head.sse", "--format", "json", folder=tmp_path)
    (found,) = [one for one in json.loads(report)["captures"][0]["findings"] if one["code"] == RULE]
    assert (found["line"], found["column"], found["offset"]) == (7, 1, offset)
    _, (sarif,), _ = run("head.sse", "--format", "sarif", folder=tmp_path)
    regions = [
        result["locations"][0]["physicalLocation"]["region"]
        for result in json.loads(sarif)["runs"][0]["results"]
        if result["ruleId"] == RULE
    ]
    assert regions == [{"startLine": 7, "startColumn": 1, "byteOffset": offset}]


# Rules


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        (["--select", RULE], [RULE]),
        (["--select", "call-id-repeated"], [RULE]),
        (["--select", "openai-chat/"], [RULE]),
        (["--select", "openai-chat/call-"], [RULE]),
        (["--select", "lifecycle/"], ["lifecycle/call-id-repeated"]),
        (["--select", "gemini/,sse/"], []),
        (["--select", "gemini/", "--select", RULE], [RULE]),
        (["--ignore", "openai-chat/"], []),
        (["--ignore", f"gemini/,{RULE}"], []),
        (["--ignore", "lifecycle/"], [RULE]),
        (["--select", "openai-chat/", "--ignore", RULE], []),
    ],
)
def test_only_the_rules_that_are_selected_and_not_ignored_are_reported(
    options: list[str], reported: list[str]
) -> None:
    code, lines, err = run("-", *options, given=REPEATED)
    assert [one.removeprefix("- ") for one in findings(lines)] == reported
    assert (code, err) == (int(bool(reported)), "")
    verdicts = [line for line in lines if line.startswith("-: ")]
    ignores_the_rule_of_the_verdicts = "lifecycle/" in options and "--ignore" in options
    assert bool(verdicts) is (bool(reported) and not ignores_the_rule_of_the_verdicts)


def test_the_rules_of_lines_can_be_ignored_too() -> None:
    raw = PLAIN.replace(b"\n\n", b"\n\ndata:\n\n", 1)
    assert findings(run("-", given=raw)[1]) == ["- sse/data-empty"]
    assert run("-", "--ignore", "sse/", given=raw)[0] == 0
    assert run("-", "--select", "lifecycle/", given=raw)[0] == 0


@pytest.mark.parametrize("option", ["--select", "--ignore"])
def test_a_rule_that_does_not_exist_cannot_be_selected(option: str) -> None:
    code, lines, err = run("-", option, "openai-chat/call-id-repeatet", given=REPEATED)
    assert (code, lines) == (2, [])
    assert f"there is no rule 'openai-chat/call-id-repeatet'; did you mean {RULE}" in err


def test_a_dialect_selects_its_rules_by_either_name() -> None:
    own = [id for id in all_rules() if id.startswith("openai-responses/")]
    assert rules_matching("open-responses/") == rules_matching("openai-responses") == own
    assert rules_matching("open-responses") == own
    with pytest.raises(ClientError):
        selection(["x y z"], [])


# Terminals


def screen(*arguments: str | Path, folder: Path, **environ: str) -> str:
    """What `weft check` shows on a terminal."""
    leader, follower = pty.openpty()
    shown = b""
    process = subprocess.Popen(
        [WEFT, "check", *arguments],
        cwd=folder,
        stdout=follower,
        stderr=follower,
        env={**ENVIRONMENT, **environ},
    )
    os.close(follower)
    try:
        while data := os.read(leader, 65536):
            shown += data
    except OSError:  # Linux says so that nobody writes any more
        pass
    finally:
        os.close(leader)
        process.wait()
    return shown.decode()


RED = "\x1b[31merror\x1b[0m"


def test_colours_are_for_terminals_unless_the_environment_says_otherwise(tmp_path: Path) -> None:
    (tmp_path / "a.sse").write_bytes(REPEATED)
    assert RED in screen("a.sse", folder=tmp_path)
    assert "\x1b" not in screen("a.sse", folder=tmp_path, NO_COLOR="1")
    assert "\x1b" not in screen("a.sse", folder=tmp_path, NO_COLOR="1", FORCE_COLOR="1")
    assert RED in screen("a.sse", folder=tmp_path, NO_COLOR="")
    assert RED in "".join(run("a.sse", folder=tmp_path, FORCE_COLOR="1")[1])
    assert "\x1b" not in "".join(run("a.sse", folder=tmp_path)[1])


def test_a_long_check_shows_on_a_terminal_how_far_it_is(tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"{number:02}.sse").write_bytes(PLAIN)
    shown = screen(".", folder=tmp_path)
    assert "\r 50 % 29.sse\x1b[K" in shown
    assert shown.endswith("\r\x1b[K60 captures checked: 0 errors, 0 warnings, 0 notes\r\n")
    assert run(".", folder=tmp_path)[2] == ""
    assert "%" not in screen("00.sse", "01.sse", folder=tmp_path)


def test_one_defect_is_reported_once_in_every_capture_of_one_oddity() -> None:
    _, lines, _ = run(HERE / "openai_chat" / "id-in-every-chunk.sse")
    assert len([one for one in findings(lines) if "call-id-repeated" in one]) == 1
