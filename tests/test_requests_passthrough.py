"""What a client said goes out in its own bytes, as long as nobody changed it."""

from operator import attrgetter

import msgspec
import pytest
from msgspec import Raw

from weft.dialects.requests.passthrough import (
    FieldGetters,
    RequestWithSource,
    SourceBody,
    source_body,
    source_fields,
    source_messages,
    with_source,
)
from weft.request import Message, Request, Sampling, TextContent

MEANING: FieldGetters = {"model": attrgetter("model"), "temp": attrgetter("sampling.temperature")}
A, B, C = (Message("user", (TextContent(text),)) for text in "abc")
REQUEST = Request("m", (A, B), dialect="here", extra=Raw(b'{"x":1}'))
BODY = b'{"temp":null,"x":1,"model":"m"}'
SOURCES: list[Raw | None] = [Raw(b"1"), Raw(b"2")]
VERBATIM = with_source(REQUEST, BODY, SOURCES)


def said() -> SourceBody:
    found = source_body(VERBATIM, "here")
    assert found is not None
    return found


def test_a_request_remembers_its_body_and_is_else_the_same() -> None:
    assert said() == SourceBody(REQUEST, Raw(BODY), (Raw(b"1"), Raw(b"2")))
    assert isinstance(VERBATIM, RequestWithSource)
    plain = {name: getattr(VERBATIM, name) for name in REQUEST.__struct_fields__}
    assert Request(**plain) == REQUEST


def test_only_its_own_dialect_hears_it_verbatim() -> None:
    assert source_body(VERBATIM, "elsewhere") is None
    assert source_body(REQUEST, "here") is None


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ((A, B), [b"1", b"2"]),
        ((A, C), [b"1", None]),
        ((A,), [b"1"]),
        ((), []),
        ((A, B, C), [b"1", b"2", None]),
        ((C, A, B), [None, b"1", b"2"]),
        ((C, C, A, B), [None, None, b"1", b"2"]),
        ((A, B, A, B), [b"1", b"2", None, None]),
        ((C, A), [None, None]),
        ((B, A), [None, None]),
    ],
)
def test_messages_that_did_not_change_keep_their_bytes(
    messages: tuple[Message, ...], expected: list[bytes | None]
) -> None:
    request = msgspec.structs.replace(VERBATIM, messages=messages)
    found = source_messages(said(), request)
    assert [None if one is None else bytes(one) for one in found] == expected


def test_a_message_that_must_be_written_anew_has_no_bytes() -> None:
    request = with_source(REQUEST, BODY, [None, Raw(b"2")])
    assert source_messages(source_body(request, "here"), request) == [None, Raw(b"2")]
    assert source_messages(None, request) == [None, None]


WRITTEN = {"model": Raw(b'"w"'), "temp": Raw(b"0.5"), "x": Raw(b"2"), "more": Raw(b"3")}


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        ({}, b'{"temp":null,"x":1,"model":"m"}'),
        ({"model": "n"}, b'{"temp":null,"x":1,"model":"w"}'),
        ({"sampling": Sampling(0.5)}, b'{"temp":0.5,"x":1,"model":"m"}'),
        ({"extra": Raw(b'{"x":2}')}, b'{"temp":null,"x":2,"model":"m","more":3}'),
    ],
)
def test_keys_that_mean_the_same_keep_their_bytes(edit: dict[str, object], expected: bytes) -> None:
    request = msgspec.structs.replace(VERBATIM, **edit)
    found = source_fields(said(), request, dict(WRITTEN), MEANING)
    assert msgspec.json.encode(found) == expected


def test_a_key_that_is_no_longer_said_is_left_out() -> None:
    request = msgspec.structs.replace(VERBATIM, sampling=Sampling(0.5))
    assert source_fields(said(), request, {}, MEANING) == {"x": Raw(b"1"), "model": Raw(b'"m"')}


def test_without_a_memory_everything_is_as_written() -> None:
    assert source_fields(None, REQUEST, WRITTEN, MEANING) is WRITTEN
