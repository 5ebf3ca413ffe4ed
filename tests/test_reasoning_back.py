"""The reasoning of any upstream comes back through Responses clients as it was: whatever of an item
a client returns, the envelope in it holds the block to the letter.
"""

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import examples
from weft import (
    Context,
    Finish,
    Ids,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    TextDelta,
    TextEnd,
    TextStart,
    convert_request,
    encode,
)
from weft.dialects import DIALECTS
from weft.request import ReasoningContent

NAME: Final = "openai-responses"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
SECRET = st.text("ABCdef123+/=", min_size=1)


def item_of(*reasoning: Part, dialect: str) -> dict[str, Any]:
    """The reasoning item that a client of the gateway is given."""
    start = ResponseMetadata("r", model="m", dialect=dialect)
    text = [TextStart("t"), TextDelta("t", "So."), TextEnd("t")]
    parts = [start, *reasoning, *text, Finish("stop")]
    raw = b"".join(encode(parts, NAME, context=Context(ids=Ids(b"1"))))
    events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: {")]
    item: dict[str, Any] = events[-1]["response"]["output"][0]
    return item


def returned(item: dict[str, Any]) -> list[dict[str, Any]]:
    """What clients send back of it: all, or less, or something else than its text."""
    kept = {"type": "reasoning", "encrypted_content": item["encrypted_content"]}
    return [
        item,
        {**item, "summary": []},
        {**kept, "summary": []},
        {**kept, "summary": [{"type": "summary_text", "text": "Something else."}]},
    ]


def asking(item: dict[str, Any]) -> bytes:
    said = {"type": "message", "role": "assistant", "content": "So."}
    turns = [{"role": "user", "content": "Why?"}, item, said, {"role": "user", "content": "And?"}]
    return json.dumps({"model": "m", "input": turns}).encode()


def contents(item: dict[str, Any]) -> list[ReasoningContent]:
    codec = DIALECTS[NAME].request
    assert codec is not None
    request = codec.parse(asking(item), Context()).request
    found = [one for message in request.messages for one in message.content]
    return [one for one in found if isinstance(one, ReasoningContent)]


def thought(text: str, end: ReasoningEnd) -> list[Part]:
    said = [ReasoningDelta("r", text)] if text else []
    return [ReasoningStart("r", "raw"), *said, end]


@examples(40)
@given(TEXT, SECRET)
def test_a_thinking_block_goes_back_with_its_text_and_its_signature(text: str, proof: str) -> None:
    end = ReasoningEnd("r", signature=proof, origin="anthropic-messages")
    item = item_of(*thought(text, end), dialect="anthropic-messages")
    assert item["summary"] == [{"type": "summary_text", "text": text}]
    for one in returned(item):
        sent = convert_request(asking(one), NAME, "anthropic-messages")
        blocks = json.loads(sent.body)["messages"][1]["content"]
        assert blocks[0] == {"type": "thinking", "thinking": text, "signature": proof}


@examples(20)
@given(SECRET)
def test_a_redacted_block_goes_back(data: str) -> None:
    end = ReasoningEnd("r", redacted=data, origin="anthropic-messages")
    for one in returned(item_of(*thought("", end), dialect="anthropic-messages")):
        sent = convert_request(asking(one), NAME, "anthropic-messages")
        blocks = json.loads(sent.body)["messages"][1]["content"]
        assert blocks[0] == {"type": "redacted_thinking", "data": data}


@examples(20)
@given(TEXT, SECRET)
def test_a_thought_goes_back_with_its_signature(text: str, proof: str) -> None:
    end = ReasoningEnd("r", signature=proof, origin="gemini")
    for one in returned(item_of(*thought(text, end), dialect="gemini")):
        sent = convert_request(asking(one), NAME, "gemini")
        parts = json.loads(sent.body)["contents"][1]["parts"]
        assert parts[0] == {"text": text, "thought": True, "thoughtSignature": proof}


@examples(40)
@given(
    st.text(st.characters(exclude_categories=["Cs"])),
    *(st.none() | SECRET for _ in ("signature", "encrypted", "redacted")),
)
def test_every_proof_comes_back_as_it_was(
    text: str, signature: str | None, encrypted: str | None, redacted: str | None
) -> None:
    """Also that of a chat host, and that of another place which speaks this very dialect."""
    end = ReasoningEnd("r", signature, encrypted, redacted, "somewhere")
    item = item_of(*thought(text, end), dialect="openai-chat")
    wanted = ReasoningContent(
        text,
        "raw",
        signature=signature,
        encrypted=encrypted,
        redacted=redacted,
        origin="somewhere",
    )
    assert [contents(one) for one in returned(item)] == [[wanted]] * 4


@pytest.mark.parametrize("kind", ["summary", "raw"])
def test_an_item_of_several_parts_comes_back_with_all_of_them(kind: Any) -> None:
    parts = [
        ReasoningStart("a", kind, item_id="rs_1"),
        ReasoningDelta("a", "First."),
        ReasoningEnd("a"),
        ReasoningStart("b", kind, item_id="rs_1"),
        ReasoningDelta("b", "Second."),
        ReasoningEnd("b", encrypted="xyz", origin="elsewhere"),
    ]
    item = item_of(*parts, dialect=NAME)
    wanted = [
        ReasoningContent("First.", kind, item_id="rs_1", origin="elsewhere"),
        ReasoningContent("Second.", kind, item_id="rs_1", encrypted="xyz", origin="elsewhere"),
    ]
    assert [contents(one) for one in returned(item)] == [wanted] * 4
