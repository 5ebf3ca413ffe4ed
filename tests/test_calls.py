"""The ledger: each step and each ambiguous case of the identity rules is a test.

The Q numbers are rows of the quirk catalogue.
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.strategies import ARGUMENTS, OBJECTS, QUICK, THOROUGH, cuts, spelled
from weft.assembler import Assembler
from weft.calls import CallDelta, Ledger
from weft.findings import Findings
from weft.guard import Guard
from weft.ids import Ids
from weft.lifecycle import violations
from weft.parts import (
    Finish,
    Part,
    ResponseMetadata,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
)

Chunk = CallDelta | Sequence[CallDelta]
Made = tuple[str, str, str]
"""Id, name and arguments of a call."""

MINTED = [(ids := Ids(b"seed")).mint("call"), ids.mint("call"), ids.mint("call")]
"""The ids that calls without one get, in order of their announcement."""


class Fed(msgspec.Struct):
    """What the ledger made of some chunks."""

    parts: list[Part]
    codes: list[str]

    @property
    def calls(self) -> list[Made]:
        joined: dict[str, str] = {}
        made: list[Made] = []
        for part in self.parts:
            match part:
                case ToolParamsStart(id=id):
                    assert id not in joined
                    joined[id] = ""
                case ToolParamsDelta(id=id, delta=delta):
                    assert delta
                    joined[id] += delta
                case ToolCall(id=id):
                    params = joined.get(id, part.params)
                    assert part.params in ("", params)
                    made.append((id, part.name, params))
        return made

    @property
    def deltas(self) -> list[str]:
        return [part.delta for part in self.parts if isinstance(part, ToolParamsDelta)]


def fed(
    *chunks: Chunk, declared: Iterable[str] = (), failed: bool = False, close: bool = True
) -> Fed:
    findings = Findings()
    ledger = Ledger(Ids(b"seed"), findings, frozenset(declared))
    parts: list[Part] = []
    for chunk in chunks:
        parts += ledger.feed([chunk] if isinstance(chunk, CallDelta) else chunk)
    if close:
        parts += ledger.finish(failed=failed)
        assert ledger.finish() == []
    return Fed(parts, [finding.code for finding in findings.found])


def tc(i: int | None = None, id: str | None = None, n: str | None = None, a: str = "") -> CallDelta:
    """An entry in the words of the catalogue: index, id, name, arguments."""
    return CallDelta(i, id, n, a)


# Step 1: the candidate


def test_step_1_1_a_known_id_is_the_same_call() -> None:  # Q35
    result = fed(tc(0, "c", "f"), tc(0, "c", a='{"a"'), tc(0, "c", a=":1}"))
    assert result.calls == [("c", "f", '{"a":1}')]
    assert result.codes == ["call-id-repeated"]


def test_step_1_1_the_id_beats_the_index() -> None:  # Q46
    result = fed(tc(0, "c", "f", '{"a"'), tc(1, "c", a=":1}"), tc(1, a=" "))
    assert result.calls == [("c", "f", '{"a":1}')]
    assert result.codes == ["call-id-repeated", "call-index-drifted"]


def test_step_1_2_a_known_index_is_the_same_call() -> None:  # Q36, Q37, Q45, Q58
    result = fed(tc(1, "b", "f", '{"a"'), tc(3, "d", "g", "["), tc(1, a=":1}"), tc(3, a="1]"))
    assert result.calls == [("b", "f", '{"a":1}'), ("d", "g", "[1]")]
    assert result.codes == ["call-index-unordered", "call-index-unordered"]


def test_step_1_2_another_id_without_a_name_is_the_same_call() -> None:  # Q38
    result = fed(tc(0, "1", "f"), tc(0, "2", a='{"a"'), tc(0, "3", a=":1}"))
    assert result.calls == [("1", "f", '{"a":1}')]
    assert result.codes == ["call-id-changed"]


@pytest.mark.parametrize("start", [tc(7, "d"), tc(7, n="g"), tc(7, "d", "g")])
def test_step_1_3_a_new_index_with_id_or_name_is_a_new_call(start: CallDelta) -> None:
    result = fed(tc(0, "c", "f", "{"), start, tc(7, n="g", a="[1]"), tc(0, a="}"))
    assert [(name, params) for _, name, params in result.calls] == [("f", "{}"), ("g", "[1]")]


def test_step_1_3_a_new_index_with_arguments_only_is_the_call_at_that_place() -> None:  # Q41
    result = fed(
        tc(None, "c", "f"), tc(None, "d", "g"), tc(0, a="[1]"), tc(1, a="[2]"), tc(0, a=" ")
    )
    assert result.calls == [("c", "f", "[1]"), ("d", "g", "[2]")]
    assert result.codes == ["call-index-missing", "call-index-missing"]


@pytest.mark.parametrize(
    ("index", "codes"), [(1, []), (-1, ["call-index-missing"]), (5, ["call-index-unordered"])]
)
def test_step_1_3_else_it_is_a_call_without_a_name(index: int, codes: list[str]) -> None:
    result = fed(tc(0, "c", "f", "{}"), tc(index, a="[1]"))
    assert result.calls == [("c", "f", "{}"), (MINTED[0], "", "[1]")]
    assert result.codes == [*codes, "call-nameless", "call-id-minted"]


def test_step_1_3_an_index_that_another_call_has_is_not_taken_by_place() -> None:
    result = fed(tc(5, "c", "f", "{}"), tc(0, a="[1]"))
    assert result.calls == [("c", "f", "{}"), (MINTED[0], "", "[1]")]


def test_step_1_4_without_index_a_new_id_with_a_name_is_a_new_call() -> None:
    result = fed(tc(None, "c", "f", "{"), tc(None, "d", "f", "[1]"))
    assert result.calls == [("c", "f", "{"), ("d", "f", "[1]")]


def test_step_1_4_without_index_a_new_id_alone_goes_on_with_the_last_call() -> None:  # Q38
    result = fed(tc(None, "1", "f"), tc(None, "2", a='{"a"'), tc(None, "3", a=":1}"))
    assert result.calls == [("1", "f", '{"a":1}')]
    assert result.codes == ["call-index-missing", "call-id-changed"]


def test_step_1_4_unless_that_is_finished() -> None:
    result = fed(tc(None, "1", "f", "[1]"), tc(None, "2", a="[2]"))
    assert result.calls == [("1", "f", "[1]"), ("2", "", "[2]")]
    assert "call-nameless" in result.codes


def test_step_1_4_unless_there_is_none() -> None:
    assert fed(tc(None, "1", a="[2]"), tc(None, "1", "f")).calls == [("1", "f", "[2]")]


def test_step_1_5_a_name_alone_names_the_last_call() -> None:  # Q53
    result = fed(tc(None, "c", a="{"), tc(n="f", a="}"))
    assert result.calls == [("c", "f", "{}")]
    assert result.codes == ["call-index-missing", "call-name-late"]


def test_step_1_5_the_same_name_alone_goes_on_with_unfinished_arguments() -> None:  # Q55
    result = fed(tc(None, "c", "f", '{"a":1'), tc(n="f", a="}"))
    assert result.calls == [("c", "f", '{"a":1}')]
    assert result.codes == ["call-index-missing", "call-name-repeated"]


@pytest.mark.parametrize(
    "first",
    [tc(None, "c", "f"), tc(None, "c", "f", "[1]"), tc(None, "c", "g", "[")],
    ids=["no arguments", "finished", "another name"],
)
def test_step_1_5_else_a_name_alone_is_a_new_call(first: CallDelta) -> None:  # Q43
    result = fed(first, tc(n="f", a="[2]"))
    assert result.calls == [("c", first.name, first.arguments), (MINTED[0], "f", "[2]")]


def test_step_1_5_a_name_alone_can_be_the_first_of_all() -> None:  # Q39
    result = fed(tc(n="f", a="[1]"))
    assert result.calls == [(MINTED[0], "f", "[1]")]
    assert result.codes == ["call-index-missing", "call-id-minted"]


def test_step_1_6_arguments_alone_go_to_the_last_call() -> None:  # Q47
    result = fed(tc(None, "a", "f"), tc(a="["), tc(None, "b", "g"), tc(a="{"), tc(a="}"))
    assert result.calls == [("a", "f", "["), ("b", "g", "{}")]


def test_step_1_6_in_a_chunk_with_several_entries_they_go_by_position() -> None:  # Q56
    result = fed(
        [tc(None, "a", "f"), tc(None, "b", "g")],
        [tc(a="["), tc(a="{")],
        [tc(a="1]"), tc(a="}")],
    )
    assert result.calls == [("a", "f", "[1]"), ("b", "g", "{}")]


def test_step_1_6_a_position_without_a_call_goes_to_the_last_call() -> None:
    result = fed(
        [tc(None, "a", "f"), tc(), tc(None, "b", "g")],
        [tc(a="["), tc(a="1"), tc(a="{"), tc(a="}")],
    )
    assert result.calls == [("a", "f", "[1"), ("b", "g", "{}")]


def test_step_1_6_arguments_before_any_call_are_a_call_without_a_name() -> None:
    assert fed(tc(a="{")).calls == [(MINTED[0], "", "{")]


# Step 2: a new call under an old key?


def test_step_2_a_call_without_a_name_yet_is_the_same_call() -> None:  # Q53
    result = fed(tc(0, "c", a="{"), tc(0, n="f", a="}"))
    assert result.calls == [("c", "f", "{}")]
    assert result.deltas == ["{}"]
    assert result.codes == ["call-name-late"]


def test_step_2_the_same_index_with_another_id_and_a_name_is_a_new_call() -> None:  # Q42
    result = fed(tc(0, "a", "f", "{}"), tc(0, "b", "f", "{}"), tc(0, "c", "g", "["), tc(0, a="1]"))
    assert result.calls == [("a", "f", "{}"), ("b", "f", "{}"), ("c", "g", "[1]")]
    assert result.codes == ["call-index-reused", "call-index-reused"]


def test_step_2_unless_the_name_is_the_same_and_the_arguments_unfinished() -> None:  # Q38, Q49
    result = fed(tc(0, "a", "f", "["), tc(0, "b", "f", "1]"))
    assert result.calls == [("a", "f", "[1]")]
    assert result.codes == ["call-id-changed", "call-name-repeated"]


def test_step_2_the_same_name_without_an_id_and_another_value_is_a_new_call() -> None:  # Q43
    result = fed(tc(0, n="f", a='{"q":1}'), tc(0, n="f", a='{"q":'), tc(0, a="2}"))
    assert result.calls == [(MINTED[0], "f", '{"q":1}'), (MINTED[1], "f", '{"q":2}')]
    assert result.codes == ["call-id-minted", "call-index-reused", "call-id-minted"]


def test_step_2_the_same_id_with_another_index_and_value_is_a_new_call() -> None:  # Q44
    result = fed(tc(0, "c", "f", "[1]"), tc(1, "c", "f", "[2]"))
    assert result.calls == [("c", "f", "[1]"), ("c_2", "f", "[2]")]
    assert result.codes == ["call-id-collision"]


def test_step_2_with_the_same_id_and_index_another_value_is_a_snapshot() -> None:  # Q67
    result = fed(tc(0, "c", "f", "[1]"), tc(0, "c", "f", "[1,2]"))
    assert result.calls == [("c", "f", "[1,2]")]
    assert "arguments-snapshot" in result.codes


def test_step_2_what_cannot_be_json_begins_no_call() -> None:
    assert fed(tc(0, n="f", a="[1]"), tc(0, n="f", a="]")).calls == [(MINTED[0], "f", "[1]]")]


def test_step_2_another_name_after_finished_arguments_is_a_new_call() -> None:  # Q44
    result = fed(tc(0, "c", "f", "{}"), tc(0, "c", "g", "{}"))
    assert result.calls == [("c", "f", "{}"), ("c_2", "g", "{}")]
    assert result.codes == ["call-id-collision"]


def test_step_2_another_name_before_any_arguments_is_a_piece_of_the_name() -> None:  # Q54
    result = fed(tc(0, "c", "edit_ex"), tc(0, n="isting"), tc(0, a="[1]"))
    assert result.calls == [("c", "edit_existing", "[1]")]
    assert result.codes == ["call-name-joined"]


def test_step_2_a_name_that_grows_is_cumulative() -> None:  # Q54
    result = fed(tc(0, "c", "edit_ex"), tc(0, n="edit_existing"), tc(0, a="[1]"))
    assert result.calls == [("c", "edit_existing", "[1]")]


def test_step_2_another_name_inside_unfinished_arguments_is_ignored() -> None:
    result = fed(tc(0, "c", "f", "["), tc(0, n="g", a="1]"))
    assert result.calls == [("c", "f", "[1]")]
    assert result.codes == ["call-name-contradicted"]


# Step 3: the update


def test_step_3_an_id_of_another_call_is_made_distinct() -> None:
    result = fed(tc(0, "c", "f", "[1]"), tc(1, "c", "g", "[2]"), tc(2, "c_2", "h", "[3]"))
    assert result.calls == [("c", "f", "[1]"), ("c_2", "g", "[2]"), ("c_2_2", "h", "[3]")]


def test_step_3_the_string_null_is_no_name_once_a_name_is_known() -> None:  # Q52
    result = fed(tc(0, "c", "f", '{"a":"'), tc(0, n="null", a='"}'))
    assert result.calls == [("c", "f", '{"a":""}')]
    assert fed(tc(0, "c", "null", "[1]")).calls == [("c", "null", "[1]")]


def test_step_3_an_entry_with_nothing_in_it_is_skipped() -> None:  # Q48, Q74
    result = fed(tc(0, "c", "f", "[1]"), tc(0), [tc(0), tc(0)])
    assert (result.calls, result.codes) == ([("c", "f", "[1]")], [])


@pytest.mark.parametrize("index", [None, 1])
def test_step_3_an_entry_with_nothing_in_it_that_belongs_to_no_call_is_noted(
    index: int | None,
) -> None:  # Q48: readers that go by the index take it for a call
    result = fed(tc(0, "c", "f", "[1]"), tc(index))
    assert (result.calls, result.codes) == ([("c", "f", "[1]")], ["call-empty"])
    assert CallDelta(index=0).is_empty
    assert not CallDelta(signature="s").is_empty


def test_step_3_blanks_after_finished_arguments_are_ignored() -> None:
    result = fed(tc(0, "c", "f", "[1]"), tc(0, a=" \n"))
    assert (result.calls, result.codes) == ([("c", "f", "[1]")], [])


@pytest.mark.parametrize("again", ['{"p":1}', '{ "p": 1 }', '"{\\"p\\":1}"'])
def test_step_3_arguments_that_come_again_are_dropped(again: str) -> None:  # Q68, Q69
    for first in ([tc(0, "c", "f", '{"p":1}')], [tc(0, "c", "f", '{"p"'), tc(0, a=":1}")]):
        result = fed(*first, tc(0, a=again), tc(0, n="f", a=again))
        assert result.calls == [("c", "f", '{"p":1}')]
        assert "arguments-repeated" in result.codes


@pytest.mark.parametrize("placeholder", ["{}", "[]", " {} "])
@pytest.mark.parametrize("pieces", [['{"k":1}'], ['{"k"', ":1}"], ["{", '"k":1}']])
def test_step_3_a_placeholder_gives_way(placeholder: str, pieces: list[str]) -> None:  # Q71
    result = fed(tc(0, "c", "f", placeholder), *(tc(0, a=piece) for piece in pieces))
    assert result.calls == [("c", "f", '{"k":1}')]
    assert result.codes == ["arguments-placeholder"]


def test_step_3_a_whole_value_after_finished_arguments_is_a_snapshot() -> None:
    result = fed(tc(0, "c", "f", "[1]"), tc(0, a="[1,2]"))
    assert result.calls == [("c", "f", "[1,2]")]
    assert result.codes == ["arguments-snapshot"]


def test_step_3_what_was_sent_is_not_taken_back() -> None:
    result = fed(tc(0, "c", "f", "["), tc(0, a="1]"), tc(0, a="[1,2]"))
    assert result.calls == [("c", "f", "[1]")]
    assert result.codes == ["whole-contradicts"]


def test_step_3_anything_else_after_finished_arguments_makes_them_invalid() -> None:
    assert fed(tc(0, "c", "f", "[1]"), tc(0, a="]")).calls == [("c", "f", "[1]]")]
    assert fed(tc(0, "c", "f", "[1]"), tc(0, a='"x"')).calls == [("c", "f", '[1]"x"')]
    assert fed(tc(0, "c", "f", "{}"), tc(0, a="x")).calls == [("c", "f", "{}x")]


@QUICK
@given(data=st.data(), word=st.text(min_size=1, max_size=8))
def test_step_3_snapshots_replace_and_only_the_new_suffix_goes_out(  # Q67
    data: st.DataObject, word: str
) -> None:
    text = json.dumps({"q": word, "a": [{}]}, ensure_ascii=data.draw(st.booleans()))
    inside = len('{"q": "') + 1  # what begins in a string cannot be nested JSON
    more = data.draw(st.sets(st.integers(inside, len(text)), max_size=5))
    places = sorted(more | {inside, len(text)})
    result = fed(tc(0, "c", "f"), *(tc(0, a=text[:place]) for place in places))
    assert result.calls == [("c", "f", text)]
    assert "".join(result.deltas) == text


def test_step_3_the_last_signature_and_extra_stay() -> None:
    result = fed(
        CallDelta(0, "c", "f", signature="s1", extra=Raw(b"1")),
        CallDelta(0, arguments="[1]", signature="s2"),
        CallDelta(0, extra=Raw(b"2"), arguments=" "),
    )
    call = result.parts[-1]
    assert isinstance(call, ToolCall)
    assert (call.signature, call.extra) == ("s2", Raw(b"2"))


def test_step_3_a_character_cut_in_two_is_joined() -> None:
    result = fed(tc(0, "c", "f", '["\ud83d'), tc(0, a='\ude00"]'))
    assert result.calls == [("c", "f", '["😀"]')]
    assert result.codes == ["surrogate-lone"]


def test_step_3_half_a_character_at_the_end_is_replaced() -> None:
    assert fed(tc(0, "c", "f", '["\ud83d')).calls == [("c", "f", '["\ufffd')]
    assert fed(tc(0, "c", "f", "\ud83d")).calls == [("c", "f", "\ufffd")]


# Step 4: the announcement


def test_step_4_a_call_is_announced_with_its_first_argument_text() -> None:
    assert fed(tc(0, "c", "f"), close=False).parts == []
    start = ToolParamsStart("c", "f")
    assert fed(tc(0, "c", "f"), tc(0, a=" "), close=False).parts == [start]
    parts = fed(tc(0, "c", "f"), tc(0, a="["), tc(0, a="1]"), close=False).parts
    assert parts == [start, ToolParamsDelta("c", "["), ToolParamsDelta("c", "1]")]


@pytest.mark.parametrize("whole", ["{}", "[]", '{"a":1}', '"{}"', "null", " ", "nu"])
def test_step_4_argument_text_that_may_be_replaced_is_kept_back(whole: str) -> None:
    start = ToolParamsStart("c", "f")
    assert fed(tc(0, "c", "f", whole), close=False).parts == [start]
    delta, end = ToolParamsDelta("c", whole), ToolParamsEnd("c")
    assert fed(tc(0, "c", "f", whole)).parts[:-1] == [start, delta, end]


def test_step_4_an_id_that_comes_in_time_is_adopted() -> None:  # Q40
    result = fed(tc(0, n="f"), tc(0, "c", a="[1]"))
    assert (result.calls, result.codes) == ([("c", "f", "[1]")], ["call-id-late"])


def test_step_4_an_id_that_comes_too_late_is_only_recorded() -> None:  # Q40
    result = fed(tc(0, n="f", a="["), tc(0, "c", a="1"), tc(None, "c", a="]"))
    assert result.calls == [(MINTED[0], "f", "[1]")]
    assert result.codes == ["call-id-minted", "call-id-changed", "call-index-missing"]


def test_step_4_a_call_without_any_id_gets_one_and_keeps_it() -> None:  # Q39
    result = fed(tc(0, n="f", a="["), tc(1, n="g", a="["), tc(0, a="1]"), tc(1, a="2]"))
    assert result.calls == [(MINTED[0], "f", "[1]"), (MINTED[1], "g", "[2]")]


def test_step_4_calls_are_announced_in_order_of_appearance() -> None:
    first, second = ToolParamsStart("c", "f"), ToolParamsStart("d", "g")
    named = fed(tc(0, "c", "f"), tc(1, "d", "g", "["), close=False)
    assert named.parts == [first, second, ToolParamsDelta("d", "[")]
    nameless = [tc(0, "c", a="["), tc(1, "d", "g", "[")]
    assert fed(*nameless, close=False).parts == []
    assert fed(*nameless, tc(0, n="f"), close=False).parts == [
        first,
        ToolParamsDelta("c", "["),
        second,
        ToolParamsDelta("d", "["),
    ]


def test_step_4_free_text_flows_as_it_comes() -> None:  # Q61
    result = fed(
        CallDelta(0, "c", "sh", "{}", kind="custom", format="text"),
        CallDelta(0, arguments="{}", kind="custom", format="text"),
        CallDelta(0, arguments='"', kind="custom", format="text"),
    )
    assert result.parts[:3] == [
        ToolParamsStart("c", "sh", kind="custom", format="text"),
        ToolParamsDelta("c", "{}"),
        ToolParamsDelta("c", "{}"),
    ]
    assert result.calls == [("c", "sh", '{}{}"')]


def test_step_4_another_name_after_free_text_is_a_new_call() -> None:
    result = fed(
        CallDelta(0, "c", "sh", "ls", kind="custom", format="text"),
        CallDelta(0, None, "cat", "x", kind="custom", format="text"),
    )
    assert result.calls == [("c", "sh", "ls"), (MINTED[0], "cat", "x")]


# Step 5: the end


def test_step_5_a_call_does_not_end_because_its_text_parses() -> None:  # Q77
    parts = fed(tc(0, "c", "f", "["), tc(0, a="1]"), close=False).parts
    assert not any(isinstance(part, ToolParamsEnd | ToolCall) for part in parts)


def test_step_5_calls_end_in_order_of_appearance() -> None:
    result = fed(tc(5, "c", "f", "["), tc(2, "d", "g", "[2]"), tc(5, a="1]"))
    ends = [part for part in result.parts if isinstance(part, ToolParamsEnd | ToolCall)]
    assert [(part.type, part.id) for part in ends] == [
        ("tool-params-end", "c"),
        ("tool-call", "c"),
        ("tool-params-end", "d"),
        ("tool-call", "d"),
    ]


def test_step_5_a_call_without_arguments_is_announced_at_the_end() -> None:  # Q72
    assert fed(tc(0, "c", "f")).parts == [
        ToolParamsStart("c", "f"),
        ToolParamsEnd("c"),
        ToolCall("c", "f", ""),
    ]


def test_step_5_a_call_without_a_name_is_a_lone_invalid_tool_call() -> None:  # Q48
    assert fed(tc(0, "c", a="{")).parts == [ToolCall("c", "", "{", invalid="nameless")]
    assert fed(tc(0, "c")).parts == [ToolCall("c", "", "", invalid="nameless")]


def test_step_5_a_call_that_is_nothing_is_not_reported() -> None:  # Q48
    assert fed(tc(0, a=" "), CallDelta(1, signature="s")).parts == []


def test_step_5_after_a_failure_every_call_is_invalid() -> None:
    result = fed(tc(0, "c", "f", "["), tc(1, "d", "g"), tc(2, a="{"), failed=True)
    assert result.parts == [
        ToolParamsStart("c", "f"),
        ToolParamsDelta("c", "["),
        ToolParamsEnd("c"),
        ToolCall("c", "f", "", invalid="stream-failed"),
        ToolCall("d", "g", "", invalid="stream-failed"),
        ToolCall(MINTED[0], "", "{", invalid="stream-failed"),
    ]


def test_a_ledger_is_true_while_it_has_calls() -> None:
    ledger = Ledger(Ids(), Findings())
    assert not ledger
    ledger.feed([tc(0, "c", "f")])
    assert ledger
    ledger.finish()
    assert not ledger


# The ambiguous cases


def test_ambiguous_new_id_without_a_name_at_a_known_index_is_a_continuation() -> None:
    assert fed(tc(0, "1", "f", "["), tc(0, "2", a="1]")).calls == [("1", "f", "[1]")]


def test_ambiguous_same_index_other_id_same_name_empty_arguments_is_a_new_call() -> None:
    assert fed(tc(0, "1", "f"), tc(0, "2", "f")).calls == [("1", "f", ""), ("2", "f", "")]


def test_ambiguous_same_index_no_ids_equal_finished_arguments_is_a_repetition() -> None:
    result = fed(tc(0, n="f", a="[1]"), tc(0, n="f", a="[ 1 ]"))
    assert result.calls == [(MINTED[0], "f", "[1]")]
    assert "arguments-repeated" in result.codes


def test_ambiguous_with_two_ids_equal_calls_are_two_calls() -> None:
    assert fed(tc(0, "1", "f", "[1]"), tc(0, "2", "f", "[1]")).calls == [
        ("1", "f", "[1]"),
        ("2", "f", "[1]"),
    ]


def test_ambiguous_same_id_other_index_with_a_name_is_drift_while_unfinished() -> None:
    result = fed(tc(0, "c", "f", "["), tc(1, "c", "f", "1]"))
    assert result.calls == [("c", "f", "[1]")]
    assert "call-index-drifted" in result.codes


@pytest.mark.parametrize("second", [tc(1, "c", "f", "[2]"), tc(1, "c", "g", "[1]")])
def test_ambiguous_same_id_other_index_with_a_name_is_new_after_the_end(
    second: CallDelta,
) -> None:
    result = fed(tc(0, "c", "f", "[1]"), second)
    assert result.calls == [("c", "f", "[1]"), ("c_2", second.name, second.arguments)]
    assert result.codes == ["call-id-collision"]


def test_ambiguous_a_piece_that_starts_with_the_buffer_is_appended_while_that_is_viable() -> None:
    nested = fed(tc(0, "c", "f", '{"not":'), tc(0, a='{"not":'), tc(0, a="1}}"))
    assert nested.calls == [("c", "f", '{"not":{"not":1}}')]
    snapshot = fed(tc(0, "c", "f", "{"), tc(0, a='{"a"'), tc(0, a='{"a":1}'))
    assert snapshot.calls == [("c", "f", '{"a":1}')]


def test_ambiguous_other_name_and_empty_arguments_is_a_name_piece() -> None:
    assert fed(tc(0, n="look"), tc(0, n="up")).calls == [(MINTED[0], "lookup", "")]
    declared = ["lookup", "look", "up"]
    assert fed(tc(0, n="look"), tc(0, n="up"), declared=declared).calls == [
        (MINTED[0], "lookup", "")
    ]


def test_ambiguous_other_name_that_is_declared_while_the_joined_one_is_not_is_a_call() -> None:
    result = fed(tc(0, n="look"), tc(0, n="up"), declared=["look", "up"])
    assert result.calls == [(MINTED[0], "look", ""), (MINTED[1], "up", "")]


def test_ambiguous_under_one_id_the_second_call_gets_the_other_id() -> None:
    result = fed(tc(0, "c", "look"), tc(0, "c", "up", "[1]"), declared=["look", "up"])
    assert result.calls == [("c", "look", ""), ("c_2", "up", "[1]")]


def test_ambiguous_nothing_but_arguments_goes_to_the_call_touched_last() -> None:
    result = fed(tc(None, "a", "f", "["), tc(None, "b", "g", "["), tc(None, "a", a="1"), tc(a="]"))
    assert result.calls == [("a", "f", "[1]"), ("b", "g", "[")]


# Well-behaved streams


class Script(msgspec.Struct):
    """Calls and the order in which their pieces come."""

    calls: list[tuple[int, str, str, str]]
    """Index, id, name, arguments."""
    pieces: list[list[str]]
    order: list[int]

    def deltas(self) -> list[CallDelta]:
        """Index on each, id and name on the first of each call."""
        left = [list(pieces) for pieces in self.pieces]
        found = []
        for number in self.order:
            index, id, name, _ = self.calls[number]
            begun = len(left[number]) < len(self.pieces[number])
            piece = left[number].pop(0)
            found.append(tc(index, a=piece) if begun else tc(index, id, name, piece))
        return found

    @property
    def indexes(self) -> list[int]:
        return [self.calls[number][0] for number in dict.fromkeys(self.order)]

    @property
    def expected(self) -> list[Made]:
        in_order = dict.fromkeys(self.order)
        return [self.calls[number][1:] for number in in_order]


@st.composite
def scripts(draw: st.DrawFn, interleaved: bool = True) -> Script:
    count = draw(st.integers(1, 4))
    indexes = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count, unique=True))
    calls, pieces, order = [], [], []
    for number, index in enumerate(indexes):
        arguments = draw(st.just("") | OBJECTS.flatmap(spelled))
        calls.append((index, f"call_{number}", draw(st.sampled_from(["f", "g"])), arguments))
        first = [draw(st.sampled_from(["", arguments[:1]]))]
        pieces.append(first + draw(cuts(arguments[len(first[0]) :])))
        order += [number] * len(pieces[-1])
    return Script(calls, pieces, draw(st.permutations(order)) if interleaved else order)


@THOROUGH
@given(script=scripts())
def test_a_well_behaved_stream_is_reconstructed(script: Script) -> None:
    result = fed(*script.deltas())
    assert result.calls == script.expected
    unordered = [place for place, index in enumerate(script.indexes) if place != index]
    assert result.codes == ["call-index-unordered"] * len(unordered)


@QUICK
@given(script=scripts())
def test_the_id_and_the_name_on_every_delta_change_only_findings(script: Script) -> None:
    identity = {index: (id, name) for index, id, name, _ in script.calls}
    deltas = script.deltas()
    plain = fed(*deltas)
    for more in (
        [tc(d.index, identity[d.index or 0][0], d.name, d.arguments) for d in deltas],
        [tc(d.index, d.id, identity[d.index or 0][1], d.arguments) for d in deltas],
        [tc(d.index, *identity[d.index or 0], d.arguments) for d in deltas],
    ):
        result = fed(*more)
        assert result.parts == plain.parts
        repeated = {"call-id-repeated", "call-name-repeated"}
        assert set(result.codes) <= repeated | set(plain.codes)


@QUICK
@given(script=scripts(interleaved=False))
def test_no_index_on_calls_that_do_not_interleave_changes_only_findings(script: Script) -> None:
    deltas = script.deltas()
    result = fed(*(msgspec.structs.replace(delta, index=None) for delta in deltas))
    assert result.parts == fed(*deltas).parts
    assert set(result.codes) <= {"call-index-missing", "call-empty"}


@QUICK
@given(data=st.data(), script=scripts())
def test_how_deltas_are_gathered_into_chunks_changes_nothing(
    data: st.DataObject, script: Script
) -> None:
    deltas = script.deltas()
    places = data.draw(st.lists(st.integers(0, len(deltas)), max_size=4))
    edges = [0, *sorted(places), len(deltas)]
    chunks = [deltas[start:end] for start, end in pairwise(edges)]
    assert fed(*chunks) == fed(*deltas)


# Any deltas whatever

ANY_DELTA = st.builds(
    CallDelta,
    index=st.sampled_from([None, None, 0, 0, 1, 7]),
    id=st.sampled_from([None, None, "a", "b", "a_2"]),
    name=st.sampled_from([None, None, "f", "g", "fg", "null"]),
    arguments=ARGUMENTS | st.sampled_from(["", "", "\ud83d", "\ude00", '{"a":1e400}']),
    format=st.sampled_from(["json", "json", "json", "text"]),
    signature=st.sampled_from([None, None, None, "s"]),
)
ANY_CHUNKS = st.lists(st.lists(ANY_DELTA, min_size=1, max_size=3), max_size=10)
DECLARED = st.sampled_from([(), ("f", "g"), ("f", "g", "fg")])


@THOROUGH
@given(chunks=ANY_CHUNKS, declared=DECLARED, failed=st.booleans())
def test_any_deltas_make_calls_that_are_announced_once_and_never_taken_back(
    chunks: list[list[CallDelta]], declared: tuple[str, ...], failed: bool
) -> None:
    result = fed(*chunks, declared=declared, failed=failed)
    ids = [id for id, _, _ in result.calls]
    starts = [part.id for part in result.parts if isinstance(part, ToolParamsStart)]
    assert len(set(ids)) == len(ids)
    assert [id for id in ids if id in starts] == starts


@THOROUGH
@given(chunks=ANY_CHUNKS, declared=DECLARED)
def test_the_guard_has_little_to_repair_of_what_the_ledger_returns(
    chunks: list[list[CallDelta]], declared: tuple[str, ...]
) -> None:
    findings = Findings()
    guard = Guard(Ids(), findings)
    result = fed(*chunks, declared=declared)
    parts = guard.feed([ResponseMetadata("resp_1"), *result.parts, Finish("tool-calls")])
    assert violations(parts, Assembler()) == []
    assert {finding.code for finding in findings.found} <= {
        "arguments-double-encoded",
        "arguments-empty",
        "arguments-invalid",
    }
    calls = [item for item in guard.fold.response().items if isinstance(item, ToolCall)]
    assert [(call.id, call.name) for call in calls] == [made[:2] for made in result.calls]


def test_arguments_that_cannot_be_compared_are_not_repetitions() -> None:
    # 1e400 is finished JSON for the scan, but no value: canonical() is None on both sides
    result = fed(tc(0, "c", "f", '{"a":1e400}'), tc(0, a="]"))
    assert result.calls == [("c", "f", '{"a":1e400}]')]
    result = fed(tc(0, n="f", a='{"a":1e400}'), tc(0, n="f", a='{"b":1e400}'))
    assert result.calls == [(MINTED[0], "f", '{"a":1e400}'), (MINTED[1], "f", '{"b":1e400}')]


def test_what_comes_beside_the_calls_signs_the_last_one() -> None:
    ledger = Ledger(Ids(), Findings())
    ledger.sign("nobody's", Raw(b"{}"))  # there is no call yet
    ledger.feed([CallDelta(0, "a", "f", '{"x":1}'), CallDelta(1, "b", "f", '{"x":2}')])
    ledger.sign("proof", Raw(b'{"k":1}'))
    ledger.sign(None, Raw(b'{"k":2}'))
    calls = [part for part in ledger.finish() if isinstance(part, ToolCall)]
    assert [(call.id, call.signature) for call in calls] == [("a", None), ("b", "proof")]
    assert calls[1].extra == Raw(b'{"k":2}')


def test_only_a_call_that_has_come_out_so_far_is_extended() -> None:
    """Whoever copies deltas unread asks first."""
    ledger = Ledger(Ids(b"seed"), Findings())
    assert not ledger.extend('"x"'), "there is no call"
    ledger.feed([CallDelta(index=0, arguments='{"a":')])
    assert not ledger.extend('"x"'), "it has no name yet"
    ledger.feed([CallDelta(index=0, id="c", name="look")])
    assert not ledger.extend('{"a":1}'), "it may be all of it once more"
    assert ledger.extend("1")
    assert ledger.extend("}")
    [made] = [part for part in ledger.finish() if isinstance(part, ToolCall)]
    assert made.id == "c"


# Many calls


def steps(chunks: Sequence[Chunk]) -> int:
    """How many functions are called to read these chunks, built-in ones included."""
    count = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        fed(*chunks)
    finally:
        sys.setprofile(before)
    return count


MANY: dict[str, Callable[[int], list[Chunk]]] = {
    "at once": lambda n: [tc(i, f"c{i}", "f", '{"a":1}') for i in range(n)],
    "behind one without a name": lambda n: [tc(i, f"c{i}", "f" if i else None) for i in range(n)],
    "first all names": lambda n: [
        *(tc(i, f"c{i}", "f") for i in range(n)),
        *(tc(i, None, None, '{"a":1}') for i in range(n)),
    ],
    "the first one again and again": lambda n: [
        *(tc(i, f"c{i}", "f") for i in range(n)),
        *(tc(0, None, "f") for _ in range(n)),
    ],
    "names last": lambda n: [
        *(tc(i, f"c{i}", None, '{"a":') for i in range(n)),
        *(tc(i, f"c{i}", "f", "1}") for i in reversed(range(n))),
    ],
}


@pytest.mark.parametrize("name", MANY)
def test_each_of_many_calls_costs_as_much_as_each_of_few(name: str) -> None:
    """An upstream may announce a hundred thousand in one response."""
    few, many = (steps(MANY[name](count)) for count in (100, 800))
    assert many < 9 * few
