"""The parts of a record assemble to it, whatever its order is."""

import pytest
from hypothesis import assume, given
from msgspec.structs import replace

from tests.strategies import LEGAL, QUICK
from weft.assembler import CUT, ERROR, Failure, Response, TextItem
from weft.findings import Findings
from weft.guard import Guard
from weft.ids import Ids
from weft.parts import (
    ErrorPart,
    Finish,
    Part,
    ResponseMetadata,
    ToolCall,
    ToolParamsEnd,
    ToolParamsStart,
)
from weft.relay.replay_variants import replay_variants


def folded(parts: list[Part]) -> Response:
    guard = Guard(Ids(b"x"), Findings())
    guard.feed(parts)
    guard.finish()
    return guard.fold.response()


BLANK: list[Part] = [
    ResponseMetadata("r"),
    ToolParamsStart("a", "look"),
    ToolParamsEnd("a"),
    ToolCall("a", "look", "", invalid="bad-arguments"),
    ErrorPart("upstream", ""),
    Finish("error"),
]


def assert_folds_to_itself(record: Response) -> None:
    for said in replay_variants(record):
        again = folded(said)
        assert (again.items, again.error, again.finish_reason) == (
            record.items,
            record.error,
            record.finish_reason,
        )


@QUICK
@given(parts=LEGAL)
def test_every_variant_of_a_record_assembles_to_it(parts: list[Part]) -> None:
    record = folded(parts)
    calls = [part for part in parts if isinstance(part, ToolCall)]
    assume(
        not any(call.invalid == "nameless" and call.name for call in calls)
    )  # which cannot be recorded
    if record.error is not None:  # then it no longer says why a call was invalid before
        assume(not any(call.invalid for call in calls))
    assert_folds_to_itself(record)


def test_a_call_that_was_blank_at_an_error_stays_blank() -> None:
    assert_folds_to_itself(folded(BLANK))


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
def test_an_order_that_does_not_fit_the_items_is_refused(wrong: Response) -> None:
    assert list(replay_variants(FAILED))
    with pytest.raises(ValueError, match="order"):
        list(replay_variants(wrong))
