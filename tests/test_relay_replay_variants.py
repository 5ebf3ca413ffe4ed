"""A record told once more folds to itself, whatever it says about its order."""

import pytest
from hypothesis import given
from msgspec.structs import replace

from tests.strategies import LEGAL, QUICK
from weft.assembler import CUT, ERROR, Failure, Response, TextItem
from weft.findings import Findings
from weft.guard import Guard
from weft.ids import Ids
from weft.parts import Part, ToolCall
from weft.relay.replay_variants import retold


def folded(parts: list[Part]) -> Response:
    guard = Guard(Ids(b"x"), Findings())
    guard.feed(parts)
    guard.finish()
    return guard.fold.response()


@QUICK
@given(parts=LEGAL)
def test_a_record_told_again_in_any_way_folds_to_the_same(parts: list[Part]) -> None:
    record = folded(parts)
    for said in retold(record):
        again = folded(said)
        assert (again.items, again.error, again.finish_reason) == (
            record.items,
            record.error,
            record.finish_reason,
        )


TEXT, CALL = TextItem("t", "hi"), ToolCall("c", "look", "{}")
FAILED = Response(
    "r", items=(TEXT, CALL), finish_reason="error", error=Failure("upstream", "no"),
    order=(0, 1, 0, ERROR, 1),
)  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        replace(FAILED, order=(0, 0, 1, 1)),
        replace(FAILED, order=(0, 1, ERROR, 1)),
        replace(FAILED, order=(1, 0, 0, ERROR, 1)),
        replace(FAILED, order=(0, 1, 0, ERROR, 1, 2)),
        replace(FAILED, order=(0, 1, 0, 1, ERROR, CUT - 1)),
        replace(FAILED, items=(TEXT,)),
        replace(FAILED, error=None),
        replace(FAILED, finish_reason="stop"),
    ],
)
def test_an_order_that_is_not_that_of_the_items_is_none(wrong: Response) -> None:
    assert list(retold(FAILED))
    with pytest.raises(ValueError, match="order"):
        list(retold(wrong))
