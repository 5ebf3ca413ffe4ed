"""Texts go into a column and come back as they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import THOROUGH
from weft.store.escaping import escape, escape_parameters, unescape, unescape_rows

TEXTS = st.text(st.characters() | st.sampled_from("\\\0\ud800\udfff0123456789abcdef"), max_size=12)


@THOROUGH
@given(TEXTS)
def test_every_text_is_unescaped_to_itself(text: str) -> None:
    assert unescape(escape(text)) == text


@THOROUGH
@given(TEXTS)
def test_escaped_text_can_be_encoded_without_nul(text: str) -> None:
    assert b"\0" not in escape(text).encode()


@pytest.mark.parametrize("text", ["", "resp_1", "a b", "né 🧵", "line\nline", "%_'\""])
def test_common_texts_need_no_escape(text: str) -> None:
    assert escape(text) == text


def test_only_texts_are_escaped() -> None:
    row = ("a\0", b"\0\\", 1, 2.5, None, True)
    assert escape_parameters(row) == ("a\\0000", b"\0\\", 1, 2.5, None, True)
    assert unescape_rows([escape_parameters(row)]) == [row]
