"""JSON in slices: the same values, bytes and errors as msgspec's, whatever is long and where."""

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.strategies import QUICK
from weft import large_json
from weft.large_json import LARGE, SKIMMED, SLICE

FRAGMENTS = [
    b"a plain text ",
    "é".encode(),
    "漢字".encode(),
    "😀".encode(),
    rb"\n",
    rb"\"",
    rb"\\",
    rb"\/",
    rb"\u00e9",
    rb"\u0041",
    rb"\ud83d\ude00",
    rb"\\u0041",
    rb"\\\"",
    b"[]{},:",
]
SPOILED = [rb"\x", rb"\u12", rb"\u12G4", rb"\ud83d", rb"\ud83d\u0041", rb"\ude00", b"\x01", b"\n"]
NOT_UTF_8 = [b"\xff", b"\xc3", b"\xf0\x9f\x98", b"\x80" * 10]


class Message(msgspec.Struct, frozen=True):
    text: str = ""
    raw: Raw | msgspec.UnsetType = msgspec.UNSET
    parts: tuple[str, ...] = ()
    names: dict[str, str] = {}


class Body(msgspec.Struct):
    messages: list[Message] = []
    other: Any = None


TYPES: list[Any] = [Any, Body, dict[str, Raw], dict[str, Any]]


PAIRS = [
    (rb"\ud83d\ude00", b"a"),
    (rb"\u00e9", rb"\n"),
    (rb"\"", rb"\\"),
    ("😀".encode(), "é".encode()),
]


class Kind(Enum):
    ONE = "one"


@dataclass(frozen=True)
class Text:
    """A string: some fragments again and again, behind as many letters as move them."""

    fragments: tuple[bytes, ...]
    before: int
    size: int

    @property
    def json(self) -> bytes:
        some = b"".join(self.fragments)
        return b'"%b%b"' % (b"x" * self.before, some * (self.size // len(some) + 1))


TEXTS = st.builds(
    Text,
    st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=4).map(tuple),
    st.integers(0, 13),
    st.sampled_from([10, SLICE - 20, SLICE + 20, 3 * SLICE]),
)
SEVERAL = st.lists(TEXTS, min_size=8, max_size=8)


def body_of(texts: list[Text]) -> bytes:
    """A body with long and short strings everywhere, more than is read at once."""
    message = b'{"text":%b,"raw":[%b,{"k":%b}],"parts":[%b],"names":{%b:%b},"unknown":%b}'
    one = message % tuple(text.json for text in texts[:7])
    body = b'{"messages":[%b],"other":[1.5,null,%b],"z":true}' % (one, texts[7].json)
    return body + b" " * max(0, LARGE - len(body) + 1)


def plain(value: Any) -> Any:
    """A value whose raw JSON can be compared."""
    return msgspec.to_builtins(value, builtin_types=(Raw,)) if isinstance(value, Body) else value


def outcome(read: Any, data: bytes, wanted: Any) -> Any:
    """What was read, or why it was not."""
    try:
        return plain(read(data, type=wanted))
    except ValueError:  # of two faults, either may be found first
        return "refused"


@QUICK
@given(SEVERAL, st.sampled_from(TYPES))
def test_a_large_body_is_read_as_msgspec_reads_it(texts: list[Text], wanted: Any) -> None:
    body = body_of(texts)
    expected = plain(msgspec.json.decode(body, type=wanted))
    assert plain(large_json.read(body, wanted)) == expected
    assert plain(large_json.decoder(wanted)(body)) == expected
    assert plain(large_json.read(Raw(body), wanted)) == expected


@QUICK
@given(TEXTS, st.integers(0, 60), st.sampled_from(SPOILED + NOT_UTF_8))
def test_what_is_no_string_is_refused_as_msgspec_refuses_it(
    text: Text, from_end: int, bad: bytes
) -> None:
    good = text.json
    at = max(1, len(good) - 1 - from_end)
    literal = good[:at] + bad + good[at:]
    body = b'{"messages":[{"text":%b,"raw":%b}],"other":"%b"}' % (literal, good, b"y" * LARGE)
    for wanted in TYPES:
        assert outcome(large_json.read, body, wanted) == outcome(msgspec.json.decode, body, wanted)


@pytest.mark.parametrize(
    "spoiled", [b'{"a":"' + b"x" * LARGE, b'{"a":"' + b"\\" * (LARGE + 1), b'"' * LARGE]
)
@pytest.mark.parametrize("wanted", TYPES)
def test_a_string_without_an_end_is_refused(spoiled: bytes, wanted: Any) -> None:
    assert outcome(large_json.read, spoiled, wanted) == outcome(
        msgspec.json.decode, spoiled, wanted
    )


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":"%b",?}',
        b'{"a":?,"b":"%b"}',
        b'{"a":"%b","b":"%b",?}',
        b'{"a":"%b\\x"}',
        b'{"a":"%b","b":"%b\\x%b"}',
    ],
)
def test_an_error_names_the_byte_of_the_whole_body(body: bytes) -> None:
    long = b"x" * LARGE
    whole = body.replace(b"%b", long)
    with pytest.raises(msgspec.DecodeError) as expected:
        msgspec.json.decode(whole)
    with pytest.raises(msgspec.DecodeError) as found:
        large_json.read(whole, Any)
    assert str(found.value) == str(expected.value)


def test_a_body_that_guesses_the_names_of_long_strings_gets_its_own() -> None:
    seen: list[str] = []
    body = b'{"a":"%b","b":"%b"}' % (b"x" * LARGE, b"guess")
    outline = large_json._Outline(body)
    seen += outline._by_name
    guessed = body.replace(b"guess", seen[0].encode())
    assert large_json.read(guessed, dict[str, str])["b"] == seen[0]


@QUICK
@given(SEVERAL, st.sampled_from(TYPES))
def test_a_large_value_is_written_as_msgspec_writes_it(texts: list[Text], wanted: Any) -> None:
    value = msgspec.json.decode(body_of(texts), type=wanted)
    expected = msgspec.json.encode(value)
    assert large_json.write(value) == expected
    assert msgspec.json.encode(value) == expected, "writing changed the value"


@pytest.mark.parametrize("text", ["\0" * LARGE, "\ud83d" + "x" * LARGE, "x" * LARGE + "\ud83d"])
def test_odd_texts_are_written_or_refused_as_msgspec_does(text: str) -> None:
    def written(write: Any) -> Any:
        try:
            return write([text, {"a": text}])
        except ValueError as problem:
            return problem.__class__

    assert written(large_json.write) == written(msgspec.json.encode)


def test_what_is_small_or_has_no_long_string_is_msgspec_s_own_work() -> None:
    many = [{"text": "x" * 100}] * (LARGE // 50)
    assert large_json.read(msgspec.json.encode(many), list[dict[str, str]]) == many
    assert large_json.write(many) == msgspec.json.encode(many)
    assert large_json.read(b'{"a":1}', dict[str, int]) == {"a": 1}


def test_long_strings_are_found_beside_values_of_other_types() -> None:
    value = [Kind.ONE, Decimal("1.5"), {"text": "x" * (SLICE + 1)}]
    assert large_json.write(value) == msgspec.json.encode(value)
    assert len(large_json.pieces(value)) > 1
    assert len(large_json.pieces(value[:2])) == 1


@QUICK
@given(SEVERAL)
def test_members_and_elements_are_as_they_stand(texts: list[Text]) -> None:
    body = body_of(texts)
    escapes = b'"%b"' % (rb"\"" * (LARGE + 1))
    for data in (body, b'{"a":%b,"b":%b}' % (escapes, body)):
        assert large_json.members(data) == msgspec.json.decode(data, type=dict[str, Raw])
        array = b"[%b,%b]" % (data, escapes)
        assert large_json.elements(array) == msgspec.json.decode(array, type=list[Raw])


EXAMPLES = [[Text((one, other), at, 3 * SLICE)] * 8 for at in range(13) for one, other in PAIRS]


@pytest.mark.parametrize("texts", EXAMPLES, ids=lambda texts: str(texts[0]))
def test_examples_are_read_and_written_as_msgspec_does(texts: list[Text]) -> None:
    body = body_of(texts)
    for wanted in TYPES:
        value = large_json.read(body, wanted)
        assert plain(value) == plain(msgspec.json.decode(body, type=wanted))
        assert large_json.write(value) == msgspec.json.encode(value)


def test_what_has_very_many_escapes_is_skipped_in_slices() -> None:
    escapes = b'"%b"' % (rb"\"" * (LARGE + 1))
    assert large_json.members(b'{"a":%b}' % escapes) == {"a": Raw(escapes)}
    assert large_json.elements(b"[1,%b]" % escapes) == [Raw(b"1"), Raw(escapes)]
    with pytest.raises(msgspec.DecodeError):
        large_json.elements(b"[%b,%b]" % (escapes, escapes.replace(rb"\"", rb"\x", 1)))


def test_a_backslash_that_a_slice_cuts_off_escapes_what_comes_next() -> None:
    text = b"x" * 256 + rb"\"" * LARGE
    assert large_json.read(b'["%b"]' % text, list[str]) == ["x" * 256 + '"' * LARGE]
    odd = b"x" * 255 + rb"\"" * LARGE
    assert large_json.read(b'["%b"]' % odd, list[str]) == ["x" * 255 + '"' * LARGE]


RUNS = st.lists(
    st.tuples(
        st.integers(0, 150),
        st.sampled_from([b"", b"a", rb"\"", rb"\n", rb"\u00e9", rb"\ud83d\ude00"]),
        st.sampled_from([1, 3, 40, SLICE // 100]),
    ),
    min_size=1,
    max_size=12,
).map(lambda runs: b"".join((rb"\\" * pairs + escape) * times for pairs, escape, times in runs))
"""What a string may hold: backslashes, however many, before all that they could escape."""


@QUICK
@given(RUNS, st.integers(0, 300), st.integers(0, 40))
def test_a_string_ends_at_the_first_quote_that_no_backslash_escapes(
    run: bytes, before: int, more: int
) -> None:
    text = b'"%b"' % (b"x" * before + run + b"y" * (more * 100))
    for behind in (b"", b'"', b',"b"]'):
        assert large_json.end_of_string(b"[" + text + behind, 1) == 1 + len(text)
    assert large_json.end_of_string(text[:-1], 0) == len(text)


@pytest.mark.parametrize("pairs", [0, 1, 20, 400])
def test_the_backslashes_before_a_quote_are_counted_however_many_there_are(pairs: int) -> None:
    text = b'"%b"' % (rb"\\" * pairs)
    assert large_json.end_of_string(text + b'"', 0) == len(text)
    escaped = b'"%b%b"' % (rb"\\" * pairs, rb"\"")
    assert large_json.end_of_string(escaped + b'"', 0) == len(escaped)


@QUICK
@given(RUNS, st.integers(0, 30))
def test_slices_are_cut_between_escapes_however_many_backslashes_are_there(
    run: bytes, before: int
) -> None:
    text = b'"%b"' % (b"x" * before + run * (1 + 3 * SLICE // (len(run) + 1)))
    body = b'[%b,"%b"]' % (text, b"y" * LARGE)
    assert large_json.read(body, list[str]) == msgspec.json.decode(body)


@QUICK
@given(TEXTS, st.integers(0, 7))
def test_large_values_are_written_in_short_steps(text: Text, depth: int) -> None:
    """However large a string or raw JSON is, and wherever it stands, no piece of it is: what holds
    the interpreter is bounded by the size of a slice, not by that of the value."""
    many = b"[%b]" % b",".join([text.json] * 8)
    inner: object = {"text": "".join(msgspec.json.decode(many)), "raw": Raw(many)}
    for _ in range(depth):
        inner = [inner]
    pieces = large_json.pieces(inner)
    assert b"".join(pieces) == msgspec.json.encode(inner)
    assert max(map(len, pieces)) < 6 * SLICE + 1000, "every character may be written as six"


@QUICK
@given(TEXTS)
def test_a_text_is_written_as_msgspec_writes_it(text: Text) -> None:
    value = msgspec.json.decode(text.json, type=str)
    assert large_json.write_text(value) == msgspec.json.encode(value)


@QUICK
@given(TEXTS)
def test_a_copy_has_the_same_bytes_whatever_they_are_copied_from(text: Text) -> None:
    data = text.json
    assert large_json.copied(data) is data
    inner = memoryview(b"[%b]" % data)[1:-1]
    for source in (inner, Raw(data), msgspec.json.decode(b"[%b]" % data, type=list[Raw])[0]):
        copy = large_json.copied(source)
        assert (type(copy), copy) == (bytes, data)


@pytest.mark.parametrize("character", ["a", "é", "漢", "😀"])
def test_texts_of_any_width_are_joined(character: str) -> None:
    texts = ["", "a" * 3_000_000, character * 2_000_000, "", "z"]
    assert large_json.joined(texts) == "".join(texts)
    assert large_json.joined([]) == ""


@QUICK
@given(TEXTS, st.sampled_from([b"", *NOT_UTF_8]), st.integers(0, 3))
def test_bytes_are_utf_8_if_they_can_be_decoded(text: Text, spoiled: bytes, place: int) -> None:
    """In any slice, and where two of them meet."""
    large = text.json * (LARGE // len(text.json) + 2)
    at = (place * SLICE, len(large), len(large) // 2, LARGE)[place]
    for data in (text.json + spoiled, large[:at] + spoiled + large[at:]):
        try:
            data.decode()
        except UnicodeDecodeError:
            assert not large_json.is_utf8(data)
        else:
            assert large_json.is_utf8(data)


@pytest.mark.parametrize("character", ["é", "漢", "😀"])
@pytest.mark.parametrize("shift", range(4))
def test_a_character_may_stand_where_two_slices_meet(character: str, shift: int) -> None:
    data = b"a" * shift + character.encode() * LARGE
    assert large_json.is_utf8(data)
    assert not large_json.is_utf8(data[:-1]), "its end is missing"


@pytest.mark.parametrize("kind", [list, tuple, dict.fromkeys, OrderedDict.fromkeys, Counter])
def test_a_long_text_is_found_in_every_kind_of_collection(kind: Callable[[list[str]], Any]) -> None:
    value = [kind(["short", "x" * (SLICE + 1)]), {"inside": kind(["y" * (SLICE + 1)])}]
    assert large_json.write(value) == msgspec.json.encode(value)
    value = [kind(["short"]), {"inside": kind(["y"])}]
    assert large_json.write(value) == msgspec.json.encode(value)


@QUICK
@given(TEXTS, st.integers(0, 60), st.sampled_from([b"", *SPOILED, *NOT_UTF_8, b'"', b"}"]))
def test_bytes_are_json_if_msgspec_can_skip_them(text: Text, place: int, spoiled: bytes) -> None:
    written = text.json
    body = b'{"a":' + written[: place + 1] + spoiled + written[place + 1 :] + b',"b":[1]}'
    try:
        msgspec.json.decode(body, type=Raw)
    except msgspec.DecodeError:
        expected = False
    else:
        expected = True
    assert large_json.is_json(body) == expected
    assert not large_json.is_json(body[:-1])


BLANKS = [b"", b" ", b"\n", b" \t\r\n\x0b\x0c", b" " * (SLICE + 5), b"\xa0"]


@pytest.mark.parametrize("size", [0, 1, SLICE, SKIMMED - 40, SKIMMED + 7])
@pytest.mark.parametrize("start", [0, 5])
def test_blanks_are_trimmed_as_bytes_trim_them(size: int, start: int) -> None:
    for before, after in product(BLANKS, BLANKS):
        data = before + b"x" * size + after
        assert large_json.trimmed(data, start) == data[start:].strip()


@pytest.mark.parametrize("kind", [bytes, Raw])
@pytest.mark.parametrize("blanks", [b"", b" \t\r\n", b" " * (SLICE + 1)])
def test_the_kind_of_a_value_is_told_by_its_first_byte(
    kind: Callable[[bytes], bytes], blanks: bytes
) -> None:
    for value in (b'"a"', b"[]", b'["a"]', b"1", b"null", b""):
        assert large_json.first_byte(kind(blanks + value)) == value[:1]


def test_what_need_not_be_trimmed_is_not_copied() -> None:
    data = b"x" * (SKIMMED + 1)
    assert large_json.trimmed(data) is data


@pytest.mark.parametrize("size", [LARGE + 1, SKIMMED + 1])
def test_what_is_skimmed_is_what_msgspec_reads(size: int) -> None:
    class Head(msgspec.Struct):
        id: str
        rest: Raw

    body = b'{"skipped":"%b","id":"1","rest":["%b",2]}' % (b"a" * size, b"b\\n" * (size // 3))
    found, expected = large_json.skimmer(Head)(body), msgspec.json.decode(body, type=Head)
    assert (found.id, bytes(found.rest)) == (expected.id, bytes(expected.rest))
    with pytest.raises(msgspec.DecodeError) as refused:
        large_json.skimmer(Head)(body.replace(b"aaa", b"a\x01a", 1))
    assert str(refused.value) == "JSON is malformed: invalid character (byte 13)"


@pytest.mark.parametrize("size", [1, LARGE + 1])
def test_json_is_told_from_what_is_none(size: int) -> None:
    long = b'"%b"' % (b"a" * size)
    for good in (b"[%b]" % long, b'{"a":%b,"b":[%b,1]}' % (long, long), long, b"1"):
        assert large_json.is_json(good)
    deep = b"[" * 5000
    for bad in (b"", long[:-1], long + b"]", b'{"a":%b' % long, b'["\\x",%b]' % long, long + deep):
        assert not large_json.is_json(bad)
    assert not large_json.is_json(b'["%b\\x"]' % (b"a" * size))
