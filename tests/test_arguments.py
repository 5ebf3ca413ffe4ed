"""A wrong argument gets a sentence: which one it is, what came, what was expected, what to do."""

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, cast, get_args

import msgspec
import pytest

import weft

HELLO = (
    b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
PARTS = list(weft.decode(HELLO, "openai-chat"))
ANY = cast(Any, weft)
"""The library without its types: every call below is one that a type checker refuses."""


async def live() -> AsyncIterator[bytes]:
    yield HELLO


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "text as the stream": (
        lambda: ANY.decode("data: {}", "openai-chat"),
        "chunks must be bytes or an iterable of bytes, not str; encode the text: text.encode()",
    ),
    "text as a chunk": (
        lambda: list(ANY.decode(["data: {}"], "openai-chat")),
        (
            "each chunk must be bytes, not str; read the response as bytes "
            "(for httpx, iter_bytes() instead of iter_text())"
        ),
    ),
    "text for a decoder": (
        lambda: ANY.Decoder("openai-chat").feed("data: {}"),
        (
            "each chunk must be bytes, not str; read the response as bytes "
            "(for httpx, iter_bytes() instead of iter_text())"
        ),
    ),
    "numbers as chunks": (
        lambda: list(ANY.decode(list(HELLO), "openai-chat")),
        "each chunk must be bytes, not int",
    ),
    "a dict as the stream": (
        lambda: ANY.decode({}, "openai-chat"),
        (
            "chunks must be bytes or an iterable of bytes, not dict; "
            "pass the body as it was received, or json.dumps(body).encode()"
        ),
    ),
    "no stream": (
        lambda: ANY.decode(None, "openai-chat"),
        "chunks must be bytes or an iterable of bytes, not None",
    ),
    "an asynchronous stream": (
        lambda: ANY.decode(live(), "openai-chat"),
        (
            "chunks must be bytes or an iterable of bytes, not async_generator; "
            "use weft.adecode for an asynchronous iterator"
        ),
    ),
    "a synchronous stream": (
        lambda: ANY.adecode([HELLO], "openai-chat"),
        (
            "chunks must be an asynchronous iterable of bytes, not list; "
            "use weft.decode for a synchronous one"
        ),
    ),
    "no asynchronous stream": (
        lambda: ANY.adecode(None, "openai-chat"),
        "chunks must be an asynchronous iterable of bytes, not None",
    ),
    "text as a capture": (
        lambda: ANY.convert("{}", "openai-chat", "gemini"),
        "raw must be bytes, not str; encode the text: text.encode()",
    ),
    "a dict as a request": (
        lambda: ANY.convert_request({}, "openai-chat", "gemini"),
        (
            "raw must be bytes, not dict; "
            "pass the body as it was received, or json.dumps(body).encode()"
        ),
    ),
    "chunks as a capture": (
        lambda: ANY.decode_all([HELLO], "openai-chat"),
        'raw must be bytes, not list; join the chunks: b"".join(chunks)',
    ),
    "chunks to check": (
        lambda: ANY.check([HELLO], "openai-chat"),
        'raw must be bytes, not list; join the chunks: b"".join(chunks)',
    ),
    "nothing to check": (lambda: ANY.check(None), "raw must be bytes, not None"),
    "nothing to detect": (lambda: ANY.detect(None), "raw must be bytes, not None"),
    "a dict as a part": (
        lambda: ANY.assemble([{"type": "text-delta"}]),
        (
            "each part must be a part such as weft.TextDelta, not dict; "
            "convert it: msgspec.convert(value, weft.AnyPart)"
        ),
    ),
    "a dict as a part to encode": (
        lambda: list(ANY.encode([{"type": "text-delta"}], "gemini")),
        (
            "each part must be a part such as weft.TextDelta, not dict; "
            "convert it: msgspec.convert(value, weft.AnyPart)"
        ),
    ),
    "one part": (
        lambda: ANY.Encoder("gemini").feed(PARTS[0]),
        "parts must be an iterable of parts, not ResponseMetadata; put it in a list: [part]",
    ),
    "no parts": (lambda: ANY.assemble(None), "parts must be an iterable of parts, not None"),
    "bytes as parts": (
        lambda: ANY.assemble(HELLO),
        (
            "parts must be an iterable of parts, not bytes; "
            "decode the bytes first: weft.decode(chunks, dialect)"
        ),
    ),
    "a decoded response": (
        lambda: ANY.assemble(weft.decode_all(HELLO, "openai-chat")[0]),
        "parts must be an iterable of parts, not Decoded; pass its .parts",
    ),
    "decoded responses": (
        lambda: ANY.assemble(weft.decode_all(HELLO, "openai-chat")),
        "each part must be a part such as weft.TextDelta, not Decoded; pass its .parts",
    ),
    "asynchronous parts": (
        lambda: ANY.assemble(weft.adecode(live(), "openai-chat")),
        (
            "parts must be an iterable of parts, not AsyncDecodedStream; "
            "collect the parts first: [part async for part in stream]"
        ),
    ),
    "parts as a response": (
        lambda: ANY.encode_body(PARTS, "gemini"),
        "response must be a weft.Response, not list; weft.assemble makes one from parts",
    ),
    "no dialect": (
        lambda: ANY.decode(HELLO, None),
        'the dialect must be a name such as "openai-chat", not NoneType',
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_type_is_named_with_what_was_expected(mistake: str) -> None:
    wrong, message = MISTAKES[mistake]
    with pytest.raises(TypeError) as raised:
        wrong()
    assert isinstance(raised.value, weft.ArgumentTypeError)
    assert str(raised.value) == message


CALLS: list[Callable[[str], object]] = [
    lambda name: ANY.decode([], name),
    lambda name: ANY.adecode(live(), name),
    lambda name: ANY.decode_all(b"", name),
    lambda name: ANY.encode([], name),
    lambda name: ANY.encode_body(weft.assemble(PARTS), name),
    lambda name: ANY.convert(HELLO, name, "gemini"),
    lambda name: ANY.convert(HELLO, "openai-chat", name),
    lambda name: ANY.convert_request(b"{}", name, "gemini"),
    lambda name: ANY.check(HELLO, name),
    lambda name: ANY.Decoder(name),
    lambda name: ANY.Encoder(name),
]


@pytest.mark.parametrize("call", CALLS)
def test_an_unknown_dialect_is_refused_when_it_is_named_not_at_the_first_item(
    call: Callable[[str], object],
) -> None:
    with pytest.raises(ValueError, match="unknown dialect") as raised:
        call("openai_chat")
    assert isinstance(raised.value, weft.UnknownDialect)
    known = ", ".join(get_args(weft.DialectName))
    hint = '(did you mean "openai-chat"?)'
    assert str(raised.value) == f'unknown dialect "openai_chat" {hint}; known: {known}'


def test_a_dialect_that_is_like_no_other_has_no_suggestion() -> None:
    with pytest.raises(weft.UnknownDialect, match='unknown dialect "klingon"; known: openai-chat'):
        ANY.decode([], "klingon")


def test_parts_of_several_responses_are_not_assembled_into_one() -> None:
    with pytest.raises(ValueError, match="one response") as raised:
        weft.assemble(PARTS * 2)
    assert isinstance(raised.value, weft.ArgumentValueError)
    assert str(raised.value) == (
        f"parts: a second response begins at part {len(PARTS)} (id '1', after a finish part); "
        "pass the parts of one response"
    )


@pytest.mark.parametrize("raw", [HELLO, bytearray(HELLO), memoryview(HELLO)], ids=type)
def test_bytes_are_one_chunk(raw: bytes) -> None:
    assert list(weft.decode(raw, "openai-chat")) == PARTS
    assert [one.parts for one in weft.decode_all(raw, "openai-chat")] == [PARTS]


def test_a_chunk_may_be_any_kind_of_bytes() -> None:
    chunks = cast(list[bytes], [bytearray(HELLO[:30]), memoryview(HELLO[30:])])
    assert list(weft.decode(chunks, "openai-chat")) == PARTS


def test_what_the_sentence_about_dicts_says_works() -> None:
    for part in PARTS:
        value = msgspec.json.decode(msgspec.json.encode(part))
        assert msgspec.convert(value, weft.AnyPart) == part


def test_the_names_of_the_dialects_are_those_that_there_are() -> None:
    rows = weft.DIALECTS.values()
    aliases = [alias for dialect in rows for alias in dialect.aliases]
    assert get_args(weft.DialectName) == (*weft.DIALECTS, *aliases)


def test_every_dialect_parameter_of_a_public_function_is_a_literal() -> None:
    for name in weft.__all__:
        value = getattr(weft, name)
        if not inspect.isfunction(value) and name not in ("Decoder", "Encoder"):
            continue
        for parameter in inspect.signature(value).parameters.values():
            if parameter.name in ("dialect", "source", "target"):
                assert parameter.annotation in (weft.DialectName, weft.DialectName | None), name
