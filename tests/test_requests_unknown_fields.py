"""What a body says beside the known fields: kept, written back, or noted as lost."""

import msgspec
import pytest
from msgspec import UNSET, Raw

from weft.dialects import DIALECTS
from weft.dialects.requests.codec import Loss, Losses
from weft.dialects.requests.source_dialects import SOURCE_DIALECTS
from weft.dialects.requests.unknown_fields import (
    ESSENTIAL,
    ESSENTIAL_FOR_TOOLS,
    KNOWN_FIELDS,
    collect,
    encode_with_extra,
    remaining,
    report_dropped_extras,
    report_unknown,
    report_unsupported_item,
)
from weft.parts import Json
from weft.request import OpaqueContent


def test_the_fields_are_those_of_dialects_that_have_requests() -> None:
    assert set(SOURCE_DIALECTS) == {name for name, row in DIALECTS.items() if row.request}


class Known(msgspec.Struct, omit_defaults=True):
    a: int | None = None
    inside: dict[str, int] | None = None


def test_unknown_keys_are_left_over_below_their_path() -> None:
    data = b'{"a":1,"b":2,"c":[ 3]}'
    assert remaining(data, Known) == {"b": Raw(b"2"), "c": Raw(b"[ 3]")}
    assert remaining(data, Known, "c", under="x") == {"x.b": Raw(b"2")}


def test_what_is_left_over_is_one_object_or_nothing() -> None:
    assert collect({"a": Raw(b"1")}, {}, {"b": Raw(b"2")}) == Raw(b'{"a":1,"b":2}')
    assert collect({}, {}) is UNSET


@pytest.mark.parametrize(
    ("value", "extra", "sent"),
    [
        (Known(1), UNSET, b'{"a":1}'),
        (Known(1), Raw(b'{"b":2}'), b'{"a":1,"b":2}'),
        (Known(1), Raw(b'{"a":2}'), b'{"a":1}'),
        (Known(inside={"x": 1}), Raw(b'{"inside.y":2}'), b'{"inside":{"x":1,"y":2}}'),
        (Known(), Raw(b'{"inside.y":2}'), b'{"inside":{"y":2}}'),
        (Known(), Raw(b'{"inside.inside.y":2}'), b'{"inside":{"inside":{"y":2}}}'),
        (Known(), Raw(b'{"other.y":2}'), b'{"other.y":2}'),
    ],
)
def test_what_was_left_over_goes_back_where_it_stood(
    value: Known, extra: Json, sent: bytes
) -> None:
    assert encode_with_extra(value, extra, {"inside"}) == Raw(sent)


def test_what_another_answer_would_be_given_without_is_refused_and_all_else_dropped() -> None:
    losses = Losses()
    extra = Raw(b'{"labels":{"a":"b"},"cachedContent":"c","nothing":null,"empty":[]}')
    report_unknown(extra, "", losses, "there")
    tool = Raw(b'{"defer_loading":true,"require_approval":"always"}')
    report_unknown(tool, "tools[0]", losses, "there", ESSENTIAL_FOR_TOOLS)
    assert losses.found == [
        Loss("labels", "warned", "dropped: there has no equivalent"),
        Loss("cachedContent", "refused", "cachedContent is not available on there; remove it"),
        Loss("tools[0].defer_loading", "warned", "dropped: there has no equivalent"),
        Loss(
            "tools[0].require_approval",
            "refused",
            "require_approval is not available on there; remove it",
        ),
    ]
    assert not KNOWN_FIELDS & (ESSENTIAL | ESSENTIAL_FOR_TOOLS)


@pytest.mark.parametrize(
    ("key", "detail"),
    [
        ("temprature", 'unknown field "temprature" (did you mean "temperature"?)'),
        ("generationConfig.topPP", 'unknown field "topPP" (did you mean "topP"?)'),
        ("max_token", 'unknown field "max_token" (did you mean "max_tokens"?)'),
        ("a_word_of_tomorrow", 'unknown field "a_word_of_tomorrow": dropped'),
    ],
)
def test_a_key_that_nobody_knows_may_be_a_slip(key: str, detail: str) -> None:
    losses = Losses()
    report_unknown(collect({key: Raw(b"1")}), "", losses, "there")
    assert losses.found == [Loss(key, "warned", detail)]


def test_what_stands_beside_a_content_is_lost_with_a_warning() -> None:
    losses = Losses()
    beside = Raw(b'{"citations":[1],"thoughtSignature":"s","logprobs":[]}')
    report_dropped_extras(beside, "m", losses, "there")
    report_dropped_extras(Raw(b'{"content":[1]}'), "r", losses, "there")
    report_dropped_extras(UNSET, "n", losses, "there")
    assert losses.found == [
        Loss("m.citations", "warned", "dropped: there has no equivalent"),
        Loss("m.thoughtSignature", "adapted", "dropped: a signature is only for its origin"),
        Loss("r.content", "refused", "a part of it exists only in its own dialect; remove it"),
    ]


@pytest.mark.parametrize(
    ("kind", "ours", "outcome"),
    [
        ("web_search_tool_result", True, "warned"),
        ("web_search_tool_result", False, "refused"),
        ("compaction", True, "refused"),
        ("item_reference", True, "refused"),
    ],
)
def test_an_item_of_another_origin_is_left_out_unless_something_depends_on_it(
    kind: str, ours: bool, outcome: str
) -> None:
    losses = Losses()
    report_unsupported_item(OpaqueContent("far", kind, Raw(b"{}")), "p", losses, "there", ours=ours)
    assert [(loss.path, loss.outcome) for loss in losses.found] == [("p", outcome)]
