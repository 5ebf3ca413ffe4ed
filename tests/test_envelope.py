"""Proofs of another origin travel sealed, and come out as they went in."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import QUICK
from weft.dialects.envelope import Proof, Sealed, opened, seal

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
PROOF = st.builds(
    Proof, *[st.none() | TEXT for _ in ("signature", "encrypted", "redacted", "item_id")]
)


@QUICK
@given(st.builds(Sealed, TEXT, st.none() | TEXT.filter(bool), PROOF))
def test_what_is_sealed_comes_out_as_it_was(sealed: Sealed) -> None:
    assert opened(seal(sealed)) == sealed


def test_an_envelope_is_made_of_letters_that_every_field_takes() -> None:
    sealed = Sealed("openai-responses", "qwen:8b", Proof(encrypted="gAAAA=="))
    assert re.fullmatch(r"weft1:openai-responses:qwen%3A8b:[A-Za-z0-9_=-]+", seal(sealed))


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "EqQBCgIYAhIM",
        "weft1:",
        "weft1:a:b",
        "weft1:a:b:!",
        "weft1:a:b:bm8=",
        "weft1:a:b:bnVsbA==",
        "weft1:a:b:e30=:c",
        "weft2:a:b:e30=",
    ],
)
def test_anything_else_is_no_envelope(text: str | None) -> None:
    assert opened(text) is None
