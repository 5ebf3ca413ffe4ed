"""A string inside growing JSON: the same characters, wherever the text is cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import JSON, THOROUGH, cuts, spelled
from weft.dialects.json_string import JsonStringExtractor

WORDS = st.text(st.characters(codec="utf-8"), max_size=12)


def read(pieces: list[str], *path: str) -> tuple[str, bool]:
    inner = JsonStringExtractor(*path)
    said = [inner.feed(piece) for piece in pieces]
    return "".join(said), inner.found


@THOROUGH
@given(st.data(), WORDS, st.dictionaries(st.text(max_size=3), JSON, max_size=3))
def test_what_the_string_says_is_the_same_wherever_the_text_is_cut(
    data: st.DataObject, word: str, others: dict[str, object]
) -> None:
    text = data.draw(spelled({**others, "code": word}))
    assert read(data.draw(cuts(text, most=20)), "code") == (word, True)


@THOROUGH
@given(st.data(), WORDS, JSON)
def test_a_path_leads_into_objects(data: st.DataObject, word: str, other: object) -> None:
    value = {"diff": other, "operation": {"path": other, "diff": word}}
    text = data.draw(spelled(value))
    assert read(data.draw(cuts(text, most=20)), "operation", "diff") == (word, True)


@THOROUGH
@given(st.data(), WORDS)
def test_a_string_that_is_not_whole_says_what_is_there(data: st.DataObject, word: str) -> None:
    text = json.dumps({"code": word})
    part = text[: data.draw(st.integers(0, len(text)))]
    said, _ = read(data.draw(cuts(part)), "code")
    assert word.startswith(said)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"a":{"code":"x"}}', ("code",)),  # deeper than it should be
        ('{"code":{"code":"x"}}', ("code",)),
        ('["code","x"]', ("code",)),
        ('{"code":7,"b":"x"}', ("code",)),
        ('{"a":["code","x"]}', ("a", "code")),
        ('"code"', ("code",)),
        ("", ("code",)),
        ('{"type":"delete_file","path":"diff"}', ("diff",)),
    ],
)
def test_what_only_looks_like_it_is_not_it(text: str, path: tuple[str, ...]) -> None:
    assert read([text], *path) == ("", False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"code":"x"} {"code":"y"}', "x"),  # after the value, nothing
        ('{"code":"x","code":"y"}', "x"),
        ('{"code":"x\\q more text"}', "x"),  # no such escape
        ("}{]", ""),
        ('{"code":"\\ud83d\\ude00"}', "😀"),
        ('{"code":"line\nbreak"}', "line\nbreak"),
    ],
)
def test_what_is_no_json_is_no_error(text: str, said: str) -> None:
    assert read([text], "code")[0] == said
    assert read(list(text), "code")[0] == said


@THOROUGH
@given(st.data(), st.text(st.sampled_from('{}[]",:\\ucode1 '), max_size=30))
def test_any_text_can_be_followed(data: st.DataObject, text: str) -> None:
    whole = read([text], "code")
    assert read(data.draw(cuts(text)), "code") == whole
