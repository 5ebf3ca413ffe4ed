"""Turns for wires whose messages have only two roles, user and assistant.

Instructions in the middle of a conversation become text of the user, after the results at the
beginning of the turn.
"""

import re

import msgspec

from weft.dialects.requests.codec import Loss, Losses
from weft.dialects.requests.turns import LocatedContent, Turn, leading_instructions
from weft.request import Request, ResultContent, TextContent

_MESSAGE = re.compile(r"messages\[(\d+)\]")


def losses_only_in_turns(request: Request, losses: list[Loss]) -> bool:
    """Whether all losses are in the turns after the leading instructions."""
    # Leading instructions have a key of their own in the body, the turns another.
    first = leading_instructions(request.messages)
    found = [_MESSAGE.match(loss.path) for loss in losses]
    return all(one is not None and int(one[1]) >= first for one in found)


def check_last_turn(sent: list[Turn], losses: Losses) -> None:
    """Refuses a conversation that does not end with the user. `sent` are the turns that are not
    empty.
    """
    if not sent:
        # Otherwise the refusal of what was in them says why.
        if not any(loss.path.startswith("messages") for loss in losses.refusals):
            losses.refused("messages", "there is no message to answer")
    elif sent[-1].role == "assistant":
        # Which of the two depends on the model: only some take it as a prefill.
        detail = "the model would continue this turn, or answer itself; end with the user"
        last = sent[-1].contents[-1:]
        losses.refused(last[0].path.partition(".content")[0] if last else sent[-1].path, detail)


def instructions_as_user(turn: Turn, losses: Losses) -> list[LocatedContent]:
    """Returns instructions in the middle of a conversation as text of the user."""
    # Never moved to the top: that would change their order and every cached prefix.
    losses.warned(turn.path, "sent as the user: the target has instructions only at the beginning")
    found: list[LocatedContent] = []
    for one in turn.contents:
        if isinstance(one.content, TextContent):
            # Marked, so that the model can tell it from what the user wrote.
            text = f"<system-instruction>\n{one.content.text}\n</system-instruction>"
            content = msgspec.structs.replace(one.content, text=text)
            found.append(LocatedContent(one.path, content))
        else:
            losses.refused(one.path, "instructions must be text")
    return found


def after_results(
    contents: list[LocatedContent], more: list[LocatedContent]
) -> list[LocatedContent]:
    """Returns the contents with `more` after their results."""
    results = [one for one in contents if isinstance(one.content, ResultContent)]
    rest = [one for one in contents if not isinstance(one.content, ResultContent)]
    return [*results, *more, *rest]


def report_speaker(turn: Turn, losses: Losses, *, sent: bool = True) -> None:
    """Reports the fields of a message that the target does not have. `sent`: whether it is sent."""
    if turn.role == "developer" and sent:
        losses.adapted(f"{turn.path}.role", "sent as system: the target has no developer role")
    if turn.name is not None:
        losses.warned(f"{turn.path}.name", "dropped: the target has no names for speakers")
    if turn.message is not None and turn.message.phase is not None:
        losses.adapted(f"{turn.path}.phase", "dropped: the target has no phases")
    if turn.message is not None and turn.message.item_id is not None:
        losses.adapted(f"{turn.path}.item_id", "dropped: the target has no item ids")
