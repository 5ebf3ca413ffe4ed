"""The pairing guard: each call has one result, right after it, whatever the client sent."""

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from tests.strategies import QUICK
from weft.dialects.requests.codec import Loss, Losses
from weft.dialects.requests.turns import Turn, leading_instructions, merge_neighbours, paired_turns
from weft.request import (
    AnyContent,
    CallContent,
    Message,
    OpaqueContent,
    Request,
    ResultContent,
    Role,
    TextContent,
)


def call(id: str, name: str = "look", item_id: str | None = None) -> CallContent:
    return CallContent(id, name, "{}", item_id=item_id)


def result(id: str, said: str = "", name: str | None = None) -> ResultContent:
    return ResultContent(id, (TextContent(said),) if said else (), name=name)


def said(role: Role, *content: AnyContent | str) -> Message:
    return Message(role, tuple(TextContent(c) if isinstance(c, str) else c for c in content))


def paired(*messages: Message, repair: bool = False) -> tuple[list[Turn], list[Loss]]:
    losses = Losses()
    return paired_turns(Request("m", messages=messages), losses, repair=repair), losses.found


def spoken(found: list[Turn]) -> list[tuple[str, list[AnyContent]]]:
    return [(turn.role, [placed.content for placed in turn.contents]) for turn in found]


def test_a_conversation_in_order_stays_as_it_is() -> None:
    messages = (
        said("system", "be brief"),
        said("user", "hi"),
        said("assistant", "let me see", call("a"), call("b")),
        said("tool", result("a")),
        said("tool", result("b")),
        said("user", "and?"),
        said("assistant", call("c")),
        said("user", result("c"), "go on"),
    )
    found, losses = paired(*messages)
    assert losses == []
    assert [turn.message for turn in found] == list(messages)
    assert [turn.role for turn in found].count("user") == 5
    assert [turn.path for turn in found] == [f"messages[{n}]" for n in range(len(messages))]


def test_what_only_declares_tools_is_no_turn() -> None:
    declaring = OpaqueContent("openai-responses", "additional_tools", Raw(b"{}"))
    found, losses = paired(said("user", declaring), said("system", "be brief"), said("user", "hi"))
    assert [turn.role for turn in found] == ["system", "user"]
    assert [(loss.path, loss.outcome) for loss in losses] == [("messages[0].content[0]", "adapted")]


def test_instructions_are_the_first_turn() -> None:
    found = paired_turns(
        Request("m", instructions="be brief", messages=(said("user", "hi"),)), Losses()
    )
    assert spoken(found)[0] == ("system", [TextContent("be brief")])
    assert leading_instructions(found) == 1


def test_instructions_that_come_later_do_not_lead() -> None:
    found, _ = paired(
        said("system", "a"), said("developer", "b"), said("user", "hi"), said("system", "c")
    )
    assert leading_instructions(found) == 2
    assert leading_instructions(found[:2]) == 2
    assert leading_instructions([]) == 0


def test_results_come_right_after_their_calls_in_their_order() -> None:
    found, losses = paired(
        said("assistant", call("a"), call("b")),
        said("user", "wait"),
        said("tool", result("b", "2")),
        said("tool", result("a", "1")),
    )
    assert spoken(found) == [
        ("assistant", [call("a"), call("b")]),
        ("user", [result("a", "1"), result("b", "2")]),
        ("user", [TextContent("wait")]),
    ]
    assert [(loss.path, loss.outcome) for loss in losses] == [
        ("messages[3].content[0]", "adapted"),
    ]


def test_a_result_that_comes_after_more_was_said_goes_back_to_its_step() -> None:
    found, losses = paired(
        said("assistant", call("a")),
        said("user", "?"),
        said("assistant", "yes"),
        said("tool", result("a")),
    )
    assert spoken(found) == [
        ("assistant", [call("a")]),
        ("user", [result("a")]),
        ("user", [TextContent("?")]),
        ("assistant", [TextContent("yes")]),
    ]
    assert [loss.path for loss in losses] == ["messages[3].content[0]"]


def test_results_are_matched_by_id_and_not_by_place() -> None:
    found, _ = paired(
        said("assistant", call("a", "f"), call("b", "f")),
        said("tool", result("b", "of b", "f")),
        said("tool", result("a", "of a", "f")),
    )
    assert spoken(found)[1][1] == [result("a", "of a", "f"), result("b", "of b", "f")]


def test_either_spelling_of_an_id_answers_the_call() -> None:
    found, losses = paired(
        said("assistant", call("call_1", item_id="fc_1")), said("tool", result("fc_1"))
    )
    assert spoken(found)[1][1] == [result("call_1")]
    assert losses == []


def test_results_without_an_id_go_by_name_and_then_by_order() -> None:
    found, losses = paired(
        said("assistant", call("1", "f"), call("2", "g"), call("3", "f")),
        said("user", result("", "g", "g"), result("", "f", "f"), result("", "rest")),
    )
    assert spoken(found)[1][1] == [
        result("1", "f", "f"),
        result("2", "g", "g"),
        result("3", "rest"),
    ]
    assert {loss.outcome for loss in losses} == {"adapted"}


def test_an_id_used_again_later_gets_another_one_with_its_result() -> None:
    found, losses = paired(
        said("assistant", call("0")),
        said("tool", result("0", "x")),
        said("assistant", call("0")),
        said("tool", result("0", "y")),
    )
    assert spoken(found)[2:] == [("assistant", [call("0_2")]), ("user", [result("0_2", "y")])]
    assert [(loss.path, loss.outcome) for loss in losses] == [
        ("messages[2].content[0].id", "adapted")
    ]


def test_the_first_of_two_equal_calls_and_of_two_results_is_kept() -> None:
    found, losses = paired(
        said("assistant", call("a"), call("a", "other")),
        said("tool", result("a", "first")),
        said("tool", result("a", "second")),
    )
    assert spoken(found)[:2] == [("assistant", [call("a")]), ("user", [result("a", "first")])]
    assert [(loss.path, loss.outcome) for loss in losses] == [
        ("messages[0].content[1]", "warned"),
        ("messages[2].content[0]", "warned"),
    ]


def test_a_call_without_a_result_and_a_result_without_a_call_are_refused() -> None:
    _, losses = paired(said("assistant", call("a")), said("tool", result("b")))
    assert losses == [
        Loss("messages[1].content[0]", "refused", "no call before it has this id"),
        Loss("messages[0].content[0]", "refused", "call a has no result"),
    ]


def test_repair_tells_the_model_what_is_missing() -> None:
    found, losses = paired(said("assistant", call("a")), said("tool", result("b")), repair=True)
    answer = found[1].contents[0].content
    assert isinstance(answer, ResultContent)
    assert (answer.id, answer.is_error) == ("a", True)
    assert {loss.outcome for loss in losses} == {"warned"}


def test_repair_answers_the_call_that_ends_the_conversation() -> None:
    found, _ = paired(said("user", "hi"), said("assistant", call("a")), repair=True)
    assert [turn.role for turn in found] == ["user", "assistant", "user"]


def test_results_of_a_stored_response_are_left_alone() -> None:
    request = Request("m", messages=(said("tool", result("a")),), previous_response_id="r")
    losses = Losses()
    assert spoken(paired_turns(request, losses)) == [("user", [result("a")])]
    assert losses.found == []


def test_calls_that_the_upstream_ran_need_no_pair() -> None:
    hosted = CallContent("s", "web_search", "{}", provider_executed=True)
    _, losses = paired(said("assistant", hosted, result("s")), said("user", "hi"))
    assert losses == []


def test_neighbours_of_one_role_become_one_turn() -> None:
    found, _ = paired(
        said("user", "a"),
        said("user", "b"),
        said("assistant", call("1")),
        said("tool", result("1")),
        said("user", "c"),
    )
    assert spoken(merge_neighbours(found)) == [
        ("user", [TextContent("a"), TextContent("b")]),
        ("assistant", [call("1")]),
        ("user", [result("1"), TextContent("c")]),
    ]


TEXT = st.builds(TextContent, st.text(min_size=1, max_size=3))
CALL = st.builds(call, st.sampled_from(["a", "a_2", "b"]), st.sampled_from(["f", "g"]))
RESULT = st.builds(
    result, st.sampled_from(["a", "a_2", "b", ""]), name=st.sampled_from([None, "f", "g"])
)
MESSAGES = st.lists(
    st.one_of(
        st.builds(said, st.just("assistant"), CALL | TEXT, CALL, CALL | TEXT),
        st.builds(said, st.sampled_from(["user", "tool"]), RESULT | TEXT, RESULT | TEXT),
        st.builds(Message, st.sampled_from(["user", "assistant", "system"]), st.just(())),
    ),
    max_size=8,
)


@example([said("assistant", call("a", "f")), Message("system", ()), said("user", result("a"))])
@QUICK
@given(MESSAGES)
def test_after_a_repair_every_call_has_its_one_result_in_the_next_turn(
    messages: list[Message],
) -> None:
    losses = Losses()
    found = merge_neighbours(
        paired_turns(Request("m", messages=tuple(messages)), losses, repair=True)
    )
    assert losses.refusal is None
    for number, turn in enumerate(found):
        if turn.role != "assistant":
            continue
        calls = [p.content.id for p in turn.contents if isinstance(p.content, CallContent)]
        after = found[number + 1].contents if number + 1 < len(found) else []
        results = [p.content.id for p in after if isinstance(p.content, ResultContent)]
        assert results == calls
        assert len(set(calls)) == len(calls)
        if calls:
            assert found[number + 1].role == "user"
            assert all(isinstance(p.content, ResultContent) for p in after[: len(calls)])


@QUICK
@given(MESSAGES)
def test_pairing_twice_changes_nothing_more(messages: list[Message]) -> None:
    once = paired_turns(Request("m", messages=tuple(messages)), Losses(), repair=True)
    again = tuple(
        Message(turn.role, tuple(placed.content for placed in turn.contents)) for turn in once
    )
    losses = Losses()
    assert spoken(paired_turns(Request("m", messages=again), losses)) == spoken(once)
    assert losses.found == []
