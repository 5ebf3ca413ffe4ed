"""Several answers of an upstream that pauses, told as one."""

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


def test_a_pause_is_swallowed_and_what_follows_is_told_behind_it() -> None:
    splice = PausedTurns()
    first = [ResponseMetadata("m1"), TextStart("0"), TextDelta("0", "one"), TextEnd("0")]
    assert splice.feed([*first, Finish("pause", usage=Usage(1, 2, 3))]) == first
    paused = [splice.paused]
    splice.next_turn()
    assert [*paused, splice.paused] == [True, False]
    second = [ResponseMetadata("m2"), TextStart("0"), Source("s", "url", "0", url="u")]
    assert splice.feed(second) == [TextStart("1.0"), Source("s", "url", "1.0", url="u")]
    call = ToolCall("c", "f", "{}")
    told = splice.feed([call, Finish("tool-calls", usage=Usage(10, 20, None, 5))])
    assert told == [call, Finish("tool-calls", usage=Usage(11, 22, 3, 5))]
    assert splice.finish() == []


def test_an_answer_without_a_pause_passes_untouched() -> None:
    parts = [ResponseMetadata("m"), TextStart("0"), TextEnd("0"), Finish("stop", usage=Usage(1))]
    assert PausedTurns().feed(list(parts)) == parts


def test_there_is_an_end_to_pausing() -> None:
    splice = PausedTurns()
    for _ in range(MAX_CONTINUATIONS):
        assert splice.feed([Finish("pause")]) == []
        splice.next_turn()
    assert splice.feed([Finish("pause")]) == [Finish("pause")]
    assert not splice.paused


def test_what_was_not_told_is_not_added_up() -> None:
    assert add_usage([]) is None
    assert add_usage([Usage(1), Usage(2, 3)]) == Usage(3, 3)
