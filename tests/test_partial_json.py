"""JSON that is not there yet: the scans agree with a real parser, however the text is cut."""

import contextlib
import json
import math
from typing import Any, NoReturn

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.strategies import JSON, OBJECTS, QUICK, THOROUGH, cuts, spelled
from weft.partial_json import (
    Scan,
    canonical,
    escape,
    is_json,
    join_halves,
    mended,
    parse,
    unwrapped,
    whole_characters,
)

TOKENS = st.sampled_from(
    [
        *'{}[]:,"\\ \t\n\r\x00\x1f\x7f/bu-+.eE0129aF',
        "true", "false", "null", "tru", "nul", '"a"', '"":', "\\u00e9", "\\ud800", "\\u12",
        "\\n", "\\x", "1.5", "-0", "01", "1e5", "1.", "1e", "1e+", "NaN", "Infinity", "é", "\u00a0",
    ]
)  # fmt: skip
SOUP = st.lists(TOKENS, max_size=10).map("".join)
CHARACTERS = st.sampled_from(["a", '"', "\\", "\n", "é", "😀", "\ud83d", "\ude00", "\ud800"])
HALVES = st.lists(CHARACTERS, max_size=12).map("".join)
HIGH, LOW = "\ud83d\ud800", "\ude00"
BROKEN = "\ufffd"


def refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def loaded(text: str) -> Any:
    return json.loads(text, parse_constant=refuse)


def loads(text: str) -> bool:
    try:
        loaded(text)
    except ValueError:
        return False
    return True


def finite(text: str) -> float:
    return float(text) if math.isfinite(float(text)) else refuse(text)


def refused(text: str | bytes) -> bool:
    """Whether parse refuses it; anything else than a ValueError comes through."""
    try:
        parse(text)
    except ValueError:
        return True
    return False


def joined(high: str, low: str) -> str:
    """The character whose halves these are, by the formula of the Unicode standard."""
    return chr(0x10000 + ((ord(high) - 0xD800) << 10) + (ord(low) - 0xDC00))


def scanned(*pieces: str) -> Scan:
    scan = Scan()
    for piece in pieces:
        scan.feed(piece)
    return scan


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """JSON with a few characters left out, put in or exchanged."""
    text = draw(JSON.flatmap(spelled))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(text)))
        skipped = draw(st.integers(0, 2))
        text = text[:place] + draw(TOKENS | st.just("")) + text[place + skipped :]
    return text


def closers(text: str) -> str:
    """The brackets that are still open outside strings, closed."""
    stack, inside, escaped = "", False, False
    for character in text:
        if inside:
            inside = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            inside = True
        elif character in "{[":
            stack = "}]"["{[".index(character)] + stack
        elif character in "}]":
            stack = stack[1:]
    return stack


WORDS = ["", "0", "rue", "ue", "e", "alse", "lse", "se", "ull", "ll", "l", '"":0', ":0"]
STRINGS = [f'{rest}"' for rest in ("", "n", "0", "00", "000", "0000")]
ENDINGS = [*WORDS, *STRINGS, *(f"{string}:0" for string in STRINGS)]


def can_be_completed(text: str) -> bool:
    """Whether some continuation of the text is JSON, found by trying."""
    return any(loads(text + ending + closers(text)) for ending in ENDINGS)


@THOROUGH
@given(text=SOUP | mutated() | st.text(max_size=8))
@example("1e400")
@example('{"a":-12.5E+309}')
@example("[" + "9" * 400 + ".0]")
@example('["\ud800"]')
@example('["\\ud800"]')
@example("[" * 5000 + "]" * 5000)
def test_json_is_what_can_be_parsed(text: str) -> None:
    assert is_json(text) != refused(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":[1,2.5e10,"3e456",true]}', '"a 3e456"', "1e400", '{"a":-12.5E+309}', "1e+99",
        "tru", "", '["\\ud800"]', "[" * 5000 + "]" * 5000, "[" + "9" * 400 + ".0]",
        "[" + "9" * 400 + "]",
    ],
)  # fmt: skip
def test_json_is_distinguished_from_what_is_none(text: str) -> None:
    assert is_json(text) != refused(text)


# Scan


@THOROUGH
@given(text=SOUP | mutated() | st.text(max_size=8))
def test_finished_is_what_a_parser_accepts_as_an_object_or_array(text: str) -> None:
    assert scanned(text).finished == (loads(text) and isinstance(loaded(text), dict | list))


@THOROUGH
@given(text=SOUP | mutated())
def test_viable_is_what_some_continuation_makes_json(text: str) -> None:
    assert scanned(text).viable == can_be_completed(text)


@QUICK
@given(text=JSON.flatmap(spelled))
def test_every_prefix_of_json_is_viable_and_none_of_an_object_is_finished(text: str) -> None:
    scan = Scan()
    for character in text:
        assert scan.viable
        assert not scan.finished
        scan.feed(character)
    assert scan.viable
    assert scan.finished == (text[0] in "{[")


@THOROUGH
@given(data=st.data(), text=SOUP | mutated())
def test_the_pieces_a_text_is_scanned_in_change_nothing(data: st.DataObject, text: str) -> None:
    whole, pieces = scanned(text), scanned(*data.draw(cuts(text)))
    assert (pieces.finished, pieces.viable) == (whole.finished, whole.viable)


@st.composite
def long_texts(draw: st.DrawFn) -> str:
    """Objects and arrays of many members, perhaps broken somewhere, or cut."""
    members = draw(st.lists(JSON.flatmap(spelled) | SOUP | mutated(), min_size=1, max_size=4))
    text = ",".join(members * draw(st.integers(1, 5)))
    opening = draw(
        st.sampled_from(["[", '{"a":[', '{"a":', '{"a": {"b": ', "[[[[[", '{"a":[{"b":['])
    )
    place = draw(st.integers(0, len(text)))
    return opening + text[:place] + draw(TOKENS | st.just("")) + text[place:] + closers(opening)


@THOROUGH
@given(data=st.data(), text=long_texts(), after=SOUP)
def test_what_is_skipped_many_members_at_a_time_is_read_as_if_one_by_one(
    data: st.DataObject, text: str, after: str
) -> None:
    """A single character is too little to skip anything."""
    whole, pieces, single = scanned(text), scanned(*data.draw(cuts(text))), scanned(*text)
    for scan in (whole, pieces):
        assert (scan.finished, scan.viable) == (single.finished, single.viable)
        scan.feed(after)
    single.feed(after)
    for scan in (whole, pieces):
        assert (scan.finished, scan.viable) == (single.finished, single.viable)


@pytest.mark.parametrize(
    "inner",
    [
        '"' + "x" * 200_000 + '"',
        '"' + "\\n" * 100_000 + '"',
        '"' + "\\u00e9x" * 30_000 + '"',
        "[" + "1.5e3, " * 40_000 + "0]",
        '{"a": [1, {"b": null}]},' * 10_000 + "0",
    ],
)
@pytest.mark.parametrize("shift", range(7))
def test_texts_longer_than_what_is_read_at_once(inner: str, shift: int) -> None:
    scan = scanned(f'{{"{"k" * shift}":[{inner}')
    assert scan.viable
    assert not scan.finished
    scan.feed("]}")
    assert scan.finished


@pytest.mark.parametrize(
    ("text", "viable"),
    [
        ('{"a":1,"b":"two","c":[1,{"d":null}],"e":', True),
        ('{"a":1,"b":"two","c":[1,{"d":null}],"e":}', False),
        ('{"a":{"b":{"c":{"d":{"e":{"f":{"g":1}}}}}},"h":[', True),
        ('{"a":1,"b":"two","c":[1,{"d":null}],, "e":1}', False),
        ('["one","two",["three","four",{"five":6}],7', True),
        ('["one","two",["three","four",{"five":6}],}', False),
        ("[" + " " * 40 + "]", True),
        ("{" + " " * 40 + "}", True),
    ],
)
def test_members_that_are_whole_are_skipped(text: str, viable: bool) -> None:
    assert (scanned(text).viable, scanned(*text).viable) == (viable, viable)


@QUICK
@given(text=OBJECTS.flatmap(spelled), blanks=st.text(" \t\r\n", max_size=4))
def test_only_blanks_can_follow_what_is_finished(text: str, blanks: str) -> None:
    scan = scanned(text, blanks)
    assert scan.finished
    scan.feed("x")
    assert not scan.viable
    assert not scan.finished


@QUICK
@given(text=SOUP | mutated(), ahead=SOUP, after=SOUP)
def test_looking_ahead_with_a_fork_disturbs_nothing(text: str, ahead: str, after: str) -> None:
    scan = scanned(text)
    fork = scan.fork()
    fork.feed(ahead)
    scan.feed(after)
    expected, other = scanned(text + after), scanned(text + ahead)
    assert (scan.finished, scan.viable) == (expected.finished, expected.viable)
    assert (fork.finished, fork.viable) == (other.finished, other.viable)


def test_nesting_however_deep_is_scanned_without_recursion() -> None:
    deep = 100_000
    scan = scanned("[" * deep)
    assert scan.viable
    scan.feed("]" * deep)
    assert scan.finished


@pytest.mark.parametrize("text", ['"text"', "7", "-1.5e+3", "true", "false", "null", ""])
def test_what_is_no_object_or_array_is_never_finished(text: str) -> None:
    scan = scanned(text, " ")
    assert scan.viable
    assert not scan.finished


@pytest.mark.parametrize("text", ['["\\u00e9"]', '["\\ud83d\\ude00x"]', '{"\\u0041b":"\\uABCD"}'])
def test_a_string_goes_on_after_an_escape_in_hex(text: str) -> None:
    scan = scanned(*text[:-1])
    assert scan.viable
    assert not scan.finished
    scan.feed(text[-1])
    assert scan.finished


@pytest.mark.parametrize(
    "text",
    [
        '"\n', '"\\x', '"\\u00g', "trux", "nulL", "-x", "1.x", "1ex", "01", "[,", "[1,,",
        "[1}", "{1", '{"a"1', '{"a":1,}', '{"a":1]', "}", "]", ",", ":", "x", "[] x",
    ],
)  # fmt: skip
def test_the_character_that_breaks_a_text_is_the_one_that_cannot_follow(text: str) -> None:
    assert scanned(text[:-1]).viable
    assert not scanned(text).viable
    assert not scanned(text, "]}").viable


# parse


@THOROUGH
@given(text=SOUP | mutated())
def test_parse_gives_what_a_parser_gives_or_refuses(text: str) -> None:
    try:
        value = json.loads(text, parse_constant=refuse, parse_float=finite)
    except ValueError:
        assert refused(text)
    else:
        assert parse(text) == mended(value)


@pytest.mark.parametrize(
    "text",
    [
        "NaN", "[Infinity]", '{"a":-Infinity}', "1e400", "[-1e400]", '["\\ud800",1e400]',
        '["\\ud800",NaN]', "", "{", "[1,]", "[" * 100_000, '["\\ud800",' + "[" * 100_000,
        "[" + "1" * 5000 + "]", "\ufeff{}", b"\xff",
    ],
    ids=lambda text: repr(text[:20]),
)  # fmt: skip
def test_parse_refuses_what_is_no_json_with_a_value_error_only(text: str | bytes) -> None:
    assert refused(text)


def test_parse_replaces_lone_halves_wherever_they_stand() -> None:
    text = '{"\\ud800":["\\udc00",{"a":"x\\ud83d"}],"b":"\\ud83d\\ude00","c":1}'
    value = {BROKEN: [BROKEN, {"a": "x" + BROKEN}], "b": "😀", "c": 1}
    assert parse(text) == parse(text.encode()) == value
    assert parse(b'"\xed\xa0\x80"') == parse('"\ud800"') != parse('""')


def test_parse_keeps_the_numbers_beside_a_lone_half() -> None:
    assert parse('["\\ud800",1.5,-2e3,7]') == [BROKEN, 1.5, -2000.0, 7]


@QUICK
@given(value=JSON)
def test_a_value_without_lone_halves_is_not_mended(value: object) -> None:
    assert mended(value) == value


# canonical and unwrapped


@QUICK
@given(data=st.data(), one=JSON, other=JSON)
def test_canonical_texts_are_equal_when_the_values_are(
    data: st.DataObject, one: object, other: object
) -> None:
    equal = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    first, second = data.draw(spelled(one)), data.draw(spelled(other))
    assert (canonical(first) == canonical(second)) == equal
    assert canonical(first) == canonical(data.draw(spelled(one)))


@pytest.mark.parametrize("text", ["", "{", "NaN", "[" * 100_000, "1e400"], ids=lambda t: t[:5])
def test_what_is_no_json_has_no_canonical_text(text: str) -> None:
    assert canonical(text) is None


@QUICK
@given(data=st.data(), value=JSON)
def test_only_an_object_inside_a_string_is_unwrapped(data: st.DataObject, value: object) -> None:
    inner = data.draw(spelled(value))
    blank = data.draw(st.text(" \t\r\n", max_size=2))
    assert unwrapped(inner) is None
    assert unwrapped(blank + json.dumps(inner)) == (inner if isinstance(value, dict) else None)


@pytest.mark.parametrize("text", ['"', '"{}', '"{"', '"{\\"a\\":}"', '"\\"{}\\""', "{}", "", " "])
def test_what_is_no_object_inside_a_string_is_not_unwrapped(text: str) -> None:
    assert unwrapped(text) is None


def test_arguments_encoded_twice_are_unwrapped() -> None:
    assert unwrapped(' "{\\"a\\": 1}" ') == '{"a": 1}'


# Characters


@QUICK
@given(data=st.data(), text=HALVES | st.text(max_size=8))
def test_deltas_escaped_apart_join_to_valid_json(data: st.DataObject, text: str) -> None:
    pieces = [escape(piece) for piece in data.draw(cuts(text))]
    assert "".join(pieces).isascii()
    assert parse('"' + "".join(pieces) + '"') == whole_characters(text)


def test_an_escaped_text_is_plain_ascii_without_its_quotes() -> None:
    assert escape('a"\n\\é\ud83d') == 'a\\"\\n\\\\\\u00e9\\ud83d'


@THOROUGH
@given(data=st.data(), text=HALVES)
def test_joining_halves_over_any_cut_reproduces_the_text(data: st.DataObject, text: str) -> None:
    shown, held = "", ""
    for piece in data.draw(cuts(text)):
        more, held = join_halves(held, piece)
        shown += more
        assert len(held) <= 1
    assert shown + whole_characters(held) == whole_characters(text)


def test_the_first_half_of_a_character_is_held_back() -> None:
    assert join_halves("", "a\ud83d") == ("a", "\ud83d")
    assert join_halves("\ud83d", "\ude00b") == ("😀b", "")
    assert join_halves("\ud83d", "b") == (BROKEN + "b", "")


@QUICK
@given(text=HALVES)
def test_whole_characters_can_be_encoded_and_lose_only_lone_halves(text: str) -> None:
    whole = whole_characters(text)
    assert whole.encode().decode() == whole
    pairs = {high + low: joined(high, low) for high in HIGH for low in LOW}
    for pair, character in pairs.items():
        text = text.replace(pair, character)
    assert whole == "".join(BROKEN if one in HIGH + LOW else one for one in text)


@QUICK
@given(text=st.text(max_size=8))
def test_text_without_halves_is_shown_at_once_and_unchanged(text: str) -> None:
    assert join_halves("", text) == (text, "")


@pytest.mark.parametrize("depth", [300, 500, 900])
def test_a_lone_half_deep_inside_is_replaced_or_refused(depth: int) -> None:
    text = "[" * depth + '"\\ud800"' + "]" * depth
    with contextlib.suppress(ValueError):
        parse(text)
    unwrapped(json.dumps('{"a":' + text + "}"))
