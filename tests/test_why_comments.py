"""A comment `# capture: name[, name…]` in a dialect names captures of that dialect that exist.

A branch that exists for an oddity of some server says so by such a comment: whoever wants to change
the branch finds the stream that needs it in `tests/captures/<dialect>/`. In a module that all
dialects share, it is a capture of any of them.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

CORE = Path(__file__).parents[1] / "src" / "weft"
DIALECTS = CORE / "dialects"
CAPTURES = Path(__file__).parent / "captures"

_COMMENT = re.compile(r"#\s*captures?\b\s*:?\s*(?P<names>.*)")
_NAMES = re.compile(r"# capture: (?P<names>[a-z0-9-]+(, [a-z0-9-]+)*)")

LEAST = {
    "ai_sdk": 32,
    "anthropic_messages": 44,
    "gemini": 31,
    "openai_chat": 65,
    "openai_responses": 62,
}
"""How many such comments a dialect has at least."""
CORE_LEAST = {"calls.py": 28, "guard.py": 13, "sse.py": 11, "dialects/frames.py": 10}


def comments(text: str) -> Iterator[tuple[int, str]]:
    """The comments about captures, however they are spelled, with their lines."""
    for number, line in enumerate(text.splitlines(), 1):
        found = _COMMENT.search(line)
        if found:
            yield number, found[0].rstrip()


def named(comment: str) -> list[str] | None:
    """The names in a comment; None if it is misspelled."""
    found = _NAMES.fullmatch(comment)
    return found["names"].split(", ") if found else None


def stems(dialect: str) -> set[str]:
    folder = CAPTURES / dialect
    if not folder.is_dir():
        return set()
    return {path.name.partition(".")[0] for path in folder.rglob("*") if path.is_file()}


FOLDERS = sorted(path.parent.name for path in DIALECTS.glob("*/dialect.py"))


def wrong_comments(paths: Iterable[Path], known: set[str]) -> list[str]:
    """The comments that are misspelled or name a capture that does not exist."""
    wrong: list[str] = []
    for path in sorted(paths):
        for number, comment in comments(path.read_text(encoding="utf-8")):
            names = named(comment)
            if names is None or not set(names) <= known:
                wrong.append(f"{path.relative_to(CORE)}:{number}: {comment}")
    return wrong


@pytest.mark.parametrize("dialect", FOLDERS)
def test_every_capture_that_a_comment_names_exists(dialect: str) -> None:
    assert wrong_comments((DIALECTS / dialect).rglob("*.py"), stems(dialect)) == []


def test_every_capture_that_a_shared_module_names_exists() -> None:
    known = {stem for dialect in FOLDERS for stem in stems(dialect)}
    modules = set(CORE.rglob("*.py"))
    for dialect in FOLDERS:
        modules -= set((DIALECTS / dialect).rglob("*.py"))
    assert wrong_comments(modules, known) == []


@pytest.mark.parametrize("dialect", LEAST)
def test_branches_for_oddities_say_which_capture_needs_them(dialect: str) -> None:
    found = [
        comment
        for path in (DIALECTS / dialect).rglob("*.py")
        for _, comment in comments(path.read_text(encoding="utf-8"))
    ]
    assert len(found) >= LEAST[dialect]


@pytest.mark.parametrize("module", CORE_LEAST)
def test_the_core_says_which_captures_need_its_branches(module: str) -> None:
    found = list(comments((CORE / module).read_text(encoding="utf-8")))
    assert len(found) >= CORE_LEAST[module]


@pytest.mark.parametrize(
    ("comment", "names"),
    [
        ("# capture: plain", ["plain"]),
        ("# capture: plain, only-done", ["plain", "only-done"]),
        ("# capture:plain", None),
        ("# captures: plain, only-done", None),
        ("# capture: plain: the role comes once", None),
        ("# capture:", None),
    ],
)
def test_a_comment_is_spelled_in_one_way(comment: str, names: list[str] | None) -> None:
    assert [found for _, found in comments(f"x = 1  {comment}\n")] == [comment]
    assert named(comment) == names
