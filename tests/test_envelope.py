"""Proofs of another origin travel sealed, and come out as they went in."""

import re
from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import QUICK
from weft.dialects.envelope import (
    Envelope,
    ReasoningState,
    to_base64,
    unwrap,
    unwrap_reasoning_end,
    unwrap_signature,
    wrap,
    wrap_call_signature,
    wrap_origin,
    wrap_reasoning,
)
from weft.parts import ReasoningEnd, ReasoningStart, ToolCall

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SAID = TEXT.filter(bool)
PROOF = st.builds(
    ReasoningState,
    *[st.none() | TEXT for _ in ("signature", "encrypted", "redacted", "item_id")],
    st.sampled_from([None, "raw", "summary"]),
    st.none() | TEXT,
    st.none() | TEXT,
)
START = ReasoningStart("r", "summary", item_id="rs_1")


@QUICK
@given(st.builds(Envelope, TEXT, st.none() | TEXT.filter(bool), PROOF))
def test_what_is_sealed_comes_out_as_it_was(inside: Envelope) -> None:
    assert unwrap(wrap(inside)) == inside


def test_an_envelope_is_made_of_letters_that_every_field_takes() -> None:
    inside = Envelope("openai-responses", "qwen:8b", ReasoningState(encrypted="gAAAA=="))
    assert re.fullmatch(r"weft1:openai-responses:qwen%3A8b:[A-Za-z0-9_=-]+", wrap(inside))


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
    assert unwrap(text) is None


@QUICK
@given(st.builds(Envelope, TEXT, st.none() | TEXT.filter(bool), PROOF))
def test_a_wire_of_bytes_has_it_in_base64(inside: Envelope) -> None:
    text = to_base64(wrap(inside))
    b64decode(text, validate=True)
    assert unwrap(text) == inside


@QUICK
@given(st.builds(ReasoningEnd, st.just("r"), SAID, st.none() | SAID, st.none() | SAID, SAID))
def test_a_proof_comes_back_with_its_origin(end: ReasoningEnd) -> None:
    envelope = wrap_reasoning(end, "m", START)
    assert unwrap_reasoning_end(ReasoningEnd("r", signature=envelope, origin="the carrier")) == end
    assert unwrap_reasoning_end(ReasoningEnd("r", encrypted=envelope, origin="the carrier")) == end
    assert unwrap_reasoning_end(end) is end


def test_an_envelope_tells_what_kind_of_reasoning_it_proves_and_its_text() -> None:
    envelope = wrap_reasoning(ReasoningEnd("r", "s", origin="x"), "m", START, "Hm.")
    proof = ReasoningState(signature="s", item_id="rs_1", kind="summary", text="Hm.")
    assert unwrap(envelope) == Envelope("x", "m", proof)


def test_whose_a_reasoning_without_a_proof_is_can_be_told_too() -> None:
    inside = unwrap(wrap_origin("a", "m"))
    assert inside == Envelope("a", "m", ReasoningState())
    assert unwrap_reasoning_end(ReasoningEnd("r", signature=wrap_origin("a", "m"))) == ReasoningEnd(
        "r"
    )


def test_a_reasoning_without_a_proof_is_sealed_where_its_origin_may_want_it_back() -> None:
    envelope = wrap_reasoning(ReasoningEnd("r", origin="x"), "m", START, "so")
    assert unwrap(envelope) == Envelope(
        "x", "m", ReasoningState(item_id="rs_1", kind="summary", text="so")
    )


def test_nothing_is_sealed_without_an_origin() -> None:
    assert wrap_reasoning(ReasoningEnd("r", signature="s"), "m", START) is None
    assert wrap_call_signature(ToolCall("c", "f", "{}", signature="s"), "m") is None
    assert wrap_call_signature(ToolCall("c", "f", "{}", origin="x"), "m") is None


def test_what_signs_a_call_is_sealed_with_the_name_of_the_call() -> None:
    call = ToolCall("c", "f", "{}", signature="s", origin="x")
    assert unwrap(wrap_call_signature(call, "m")) == Envelope(
        "x", "m", ReasoningState("s", call="c")
    )
    assert unwrap(wrap_call_signature(call, "m", "d")) == Envelope(
        "x", "m", ReasoningState("s", call="d")
    )


def test_a_signature_is_its_carriers_unless_it_came_in_an_envelope() -> None:
    call = ToolCall("c", "f", "{}", signature="s", origin="x")
    assert unwrap_signature(wrap_call_signature(call, "m"), "the carrier") == ("s", "x")
    assert unwrap_signature("s", "the carrier") == ("s", "the carrier")
    assert unwrap_signature(None, "the carrier") == (None, None)


def test_what_signs_a_call_is_no_proof_of_the_reasoning_that_carries_it() -> None:
    call = ToolCall("c", "f", "{}", signature="s", origin="x")
    end = ReasoningEnd("r", signature=wrap_call_signature(call, "m"), origin="the carrier")
    assert unwrap_reasoning_end(end) is end
