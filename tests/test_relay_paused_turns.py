"""Several turns of an upstream that pauses, as one response."""

from weft.parts import (
    Finish,
    ResponseMetadata,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    Usage,
)
from weft.relay.paused_turns import MAX_CONTINUATIONS, PausedTurns, add_usage


def test_a_pause_is_left_out_and_the_next_turn_follows() -> None:
    turns = PausedTurns()
    first = [ResponseMetadata("m1"), TextStart("0"), TextDelta("0", "one"), TextEnd("0")]
    assert turns.feed([*first, Finish("pause", usage=Usage(1, 2, 3))]) == first
    paused = [turns.paused]
    turns.next_turn()
    assert [*paused, turns.paused] == [True, False]
    second = [ResponseMetadata("m2"), TextStart("0"), Source("s", "url", "0", url="u")]
    assert turns.feed(second) == [TextStart("1.0"), Source("s", "url", "1.0", url="u")]
    call = ToolCall("c", "f", "{}")
    last = turns.feed([call, Finish("tool-calls", usage=Usage(10, 20, None, 5))])
    assert last == [call, Finish("tool-calls", usage=Usage(11, 22, 3, 5))]
    assert turns.finish() == []


def test_a_turn_without_a_pause_is_unchanged() -> None:
    parts = [ResponseMetadata("m"), TextStart("0"), TextEnd("0"), Finish("stop", usage=Usage(1))]
    assert PausedTurns().feed(list(parts)) == parts


def test_the_number_of_continuations_is_limited() -> None:
    turns = PausedTurns()
    for _ in range(MAX_CONTINUATIONS):
        assert turns.feed([Finish("pause")]) == []
        turns.next_turn()
    assert turns.feed([Finish("pause")]) == [Finish("pause")]
    assert not turns.paused


def test_unknown_usage_is_not_added_up() -> None:
    assert add_usage([]) is None
    assert add_usage([Usage(1), Usage(2, 3)]) == Usage(3, 3)
