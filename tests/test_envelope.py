"""Proofs of another origin travel sealed, and come out as they went in."""

import re
from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import QUICK
from weft.dialects.envelope import (
    Proof,
    Sealed,
    in_base64,
    opened,
    seal,
    sealed,
    sealed_call,
    signed,
    unproven,
    unsealed,
)
from weft.parts import ReasoningEnd, ReasoningStart, ToolCall

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SAID = TEXT.filter(bool)
PROOF = st.builds(
    Proof,
    *[st.none() | TEXT for _ in ("signature", "encrypted", "redacted", "item_id")],
    st.sampled_from([None, "raw", "summary"]),
    st.none() | TEXT,
    st.none() | TEXT,
)
START = ReasoningStart("r", "summary", item_id="rs_1")


@QUICK
@given(st.builds(Sealed, TEXT, st.none() | TEXT.filter(bool), PROOF))
def test_what_is_sealed_comes_out_as_it_was(inside: Sealed) -> None:
    assert opened(seal(inside)) == inside


def test_an_envelope_is_made_of_letters_that_every_field_takes() -> None:
    inside = Sealed("openai-responses", "qwen:8b", Proof(encrypted="gAAAA=="))
    assert re.fullmatch(r"weft1:openai-responses:qwen%3A8b:[A-Za-z0-9_=-]+", seal(inside))


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
        "d2VmdDE6",
        "d2VmdDE6\u00e9",
        "d2VmdDE6Q",
    ],
)
def test_anything_else_is_no_envelope(text: str | None) -> None:
    assert opened(text) is None


@QUICK
@given(st.builds(Sealed, TEXT, st.none() | TEXT.filter(bool), PROOF))
def test_a_wire_of_bytes_has_it_in_base64(inside: Sealed) -> None:
    text = in_base64(seal(inside))
    b64decode(text, validate=True)
    assert opened(text) == inside


@QUICK
@given(st.builds(ReasoningEnd, st.just("r"), SAID, st.none() | SAID, st.none() | SAID, SAID))
def test_a_proof_comes_back_with_its_origin(end: ReasoningEnd) -> None:
    envelope = sealed(end, "m", START)
    assert unsealed(ReasoningEnd("r", signature=envelope, origin="the carrier")) == end
    assert unsealed(ReasoningEnd("r", encrypted=envelope, origin="the carrier")) == end
    assert unsealed(end) is end


def test_an_envelope_tells_what_kind_of_reasoning_it_proves_and_its_text() -> None:
    envelope = sealed(ReasoningEnd("r", "s", origin="x"), "m", START, "Hm.")
    proof = Proof(signature="s", item_id="rs_1", kind="summary", text="Hm.")
    assert opened(envelope) == Sealed("x", "m", proof)


def test_whose_a_reasoning_without_a_proof_is_can_be_told_too() -> None:
    inside = opened(unproven("a", "m"))
    assert inside == Sealed("a", "m", Proof())
    assert unsealed(ReasoningEnd("r", signature=unproven("a", "m"))) == ReasoningEnd("r")


def test_a_reasoning_without_a_proof_is_sealed_where_its_origin_may_want_it_back() -> None:
    envelope = sealed(ReasoningEnd("r", origin="x"), "m", START, "so")
    assert opened(envelope) == Sealed("x", "m", Proof(item_id="rs_1", kind="summary", text="so"))


def test_nothing_is_sealed_without_an_origin() -> None:
    assert sealed(ReasoningEnd("r", signature="s"), "m", START) is None
    assert sealed_call(ToolCall("c", "f", "{}", signature="s"), "m") is None
    assert sealed_call(ToolCall("c", "f", "{}", origin="x"), "m") is None


def test_what_signs_a_call_is_sealed_with_the_name_of_the_call() -> None:
    call = ToolCall("c", "f", "{}", signature="s", origin="x")
    assert opened(sealed_call(call, "m")) == Sealed("x", "m", Proof("s", call="c"))
    assert opened(sealed_call(call, "m", "d")) == Sealed("x", "m", Proof("s", call="d"))


def test_a_signature_is_its_carriers_unless_it_came_in_an_envelope() -> None:
    call = ToolCall("c", "f", "{}", signature="s", origin="x")
    assert signed(sealed_call(call, "m"), "the carrier") == ("s", "x")
    assert signed("s", "the carrier") == ("s", "the carrier")
    assert signed(None, "the carrier") == (None, None)


def test_what_signs_a_call_is_no_proof_of_the_reasoning_that_carries_it() -> None:
    call = ToolCall("c", "f", "{}", signature="s", origin="x")
    end = ReasoningEnd("r", signature=sealed_call(call, "m"), origin="the carrier")
    assert unsealed(end) is end
