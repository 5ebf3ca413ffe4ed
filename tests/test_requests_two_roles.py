"""Turns for wires that know only a user and a model."""

import pytest
from msgspec import Raw
from msgspec.structs import replace

from weft.dialects.requests.codec import Loss, Losses
from weft.dialects.requests.turns import (
    LocatedContent,
    Turn,
    leading_instructions,
    message_turns,
    source_bytes,
)
from weft.dialects.requests.two_roles import (
    after_results,
    check_last_turn,
    instructions_as_user,
    losses_only_in_turns,
    report_speaker,
)
from weft.request import ImageContent, Message, Request, ResultContent, TextContent

HI = Message("user", (TextContent("hi"),))


def outcomes(losses: Losses) -> list[tuple[str, str]]:
    return [(loss.path, loss.outcome) for loss in losses.found]


def test_turns_as_spoken_are_the_instructions_and_a_turn_for_each_message() -> None:
    result = Message("tool", (ResultContent("a"),), name="n")
    request = Request("m", instructions="be", messages=(HI, result))
    assert message_turns(request, Losses()) == [
        Turn("instructions", "system", [LocatedContent("instructions", TextContent("be"))]),
        Turn(
            "messages[0]",
            "user",
            [LocatedContent("messages[0].content[0]", TextContent("hi"))],
            None,
            HI,
        ),
        Turn(
            "messages[1]",
            "user",
            [LocatedContent("messages[1].content[0]", ResultContent("a"))],
            "n",
            result,
        ),
    ]


def test_a_turn_has_the_bytes_it_came_in_unless_somebody_added_to_it() -> None:
    turn = message_turns(Request("m", messages=(HI,)), Losses())[0]
    more = LocatedContent("x", TextContent("more"))
    added = replace(turn, contents=[*turn.contents, more])
    sources: list[Raw | None] = [Raw(b"1")]
    assert source_bytes(turn, sources) == Raw(b"1")
    assert source_bytes(added, sources) is None
    assert source_bytes(replace(turn, message=None), sources) is None


@pytest.mark.parametrize(
    ("path", "only"),
    [
        ("messages[1].content[0]", True),
        ("messages[10]", True),
        ("messages[0].content[0]", False),
        ("messages", False),
        ("tools[1].name", False),
    ],
)
def test_what_is_lost_in_a_turn_leaves_the_rest_as_it_was(path: str, only: bool) -> None:
    request = Request("m", messages=(Message("system", ()), HI))
    assert leading_instructions(request.messages) == 1
    assert losses_only_in_turns(request, []) is True
    assert losses_only_in_turns(request, [Loss(path, "adapted", "")]) is only


def test_a_conversation_may_be_all_instructions() -> None:
    assert leading_instructions([Message("developer", ())]) == 1


@pytest.mark.parametrize(
    ("messages", "losses"),
    [
        ((HI,), []),
        ((), [("messages", "refused")]),
        ((HI, Message("assistant", (TextContent("a"),))), [("messages[1]", "refused")]),
    ],
)
def test_a_conversation_ends_with_something_to_answer(
    messages: tuple[Message, ...], losses: list[tuple[str, str]]
) -> None:
    request = Request("m", messages=messages)
    found = Losses()
    check_last_turn(message_turns(request, Losses()), found)
    assert outcomes(found) == losses


def test_late_instructions_are_marked_and_only_text() -> None:
    late = Message("system", (TextContent("be", cache="5m"), ImageContent(url="u")))
    losses = Losses()
    turn = message_turns(Request("m", messages=(late,)), Losses())[0]
    assert instructions_as_user(turn, losses) == [
        LocatedContent(
            "messages[0].content[0]",
            TextContent("<system-instruction>\nbe\n</system-instruction>", cache="5m"),
        )
    ]
    assert outcomes(losses) == [("messages[0]", "warned"), ("messages[0].content[1]", "refused")]


def test_what_is_added_stands_behind_the_results() -> None:
    result, text = LocatedContent("r", ResultContent("a")), LocatedContent("t", TextContent("t"))
    more = LocatedContent("m", TextContent("m"))
    assert after_results([text, result], [more]) == [result, more, text]


def test_names_and_phases_are_told_as_lost() -> None:
    said = Message("developer", (TextContent("a"),), name="ann", item_id="i", phase="commentary")
    losses = Losses()
    report_speaker(message_turns(Request("m", messages=(said,)), Losses())[0], losses)
    assert outcomes(losses) == [
        ("messages[0].role", "adapted"),
        ("messages[0].name", "warned"),
        ("messages[0].phase", "adapted"),
        ("messages[0].item_id", "adapted"),
    ]
