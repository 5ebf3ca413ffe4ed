"""What a body says beside the known fields: kept, written back, or noted as lost."""

import msgspec
import pytest
from msgspec import UNSET, Raw

from weft.dialects.asking.leftovers import (
    HINTS,
    TOOL_HINTS,
    kept,
    left,
    refuse,
    unheard,
    warn,
    written,
)
from weft.dialects.requests import Loss, Losses
from weft.parts import Json
from weft.request import OpaqueContent


class Known(msgspec.Struct, omit_defaults=True):
    a: int | None = None
    inside: dict[str, int] | None = None


def test_unknown_keys_are_left_over_below_their_path() -> None:
    data = b'{"a":1,"b":2,"c":[ 3]}'
    assert left(data, Known) == {"b": Raw(b"2"), "c": Raw(b"[ 3]")}
    assert left(data, Known, "c", under="x") == {"x.b": Raw(b"2")}


def test_what_is_left_over_is_one_object_or_nothing() -> None:
    assert kept({"a": Raw(b"1")}, {}, {"b": Raw(b"2")}) == Raw(b'{"a":1,"b":2}')
    assert kept({}, {}) is UNSET


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
    assert written(value, extra, {"inside"}) == Raw(sent)


def test_hints_are_lost_with_a_warning_and_all_else_is_refused() -> None:
    losses = Losses()
    extra = Raw(b'{"labels":{"a":"b"},"cachedContent":"c","nothing":null,"empty":[]}')
    refuse(extra, "", losses)
    refuse(Raw(b'{"defer_loading":true,"x":1}'), "tools[0]", losses, TOOL_HINTS)
    assert [(loss.path, loss.outcome) for loss in losses.found] == [
        ("labels", "warned"),
        ("cachedContent", "refused"),
        ("tools[0].defer_loading", "warned"),
        ("tools[0].x", "refused"),
    ]
    assert not HINTS & TOOL_HINTS


def test_what_stands_beside_a_content_is_lost_with_a_warning() -> None:
    losses = Losses()
    warn(Raw(b'{"citations":[1],"thoughtSignature":"s","logprobs":[]}'), "m", losses)
    warn(Raw(b'{"content":[1]}'), "r", losses)
    warn(UNSET, "n", losses)
    assert losses.found == [
        Loss("m.citations", "warned", "citations is not sent: the target does not have it"),
        Loss("m.thoughtSignature", "adapted", "left out: a proof goes back to where it came from"),
        Loss("r.content", "refused", "some of it only its own dialect can show; remove it"),
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
    unheard(OpaqueContent("far", kind, Raw(b"{}")), "p", losses, ours=ours)
    assert [(loss.path, loss.outcome) for loss in losses.found] == [("p", outcome)]
