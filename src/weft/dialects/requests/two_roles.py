"""Turns, arranged for wires that know only a user and a model.

What neither may say is told by the user, behind the results that stand first in the turn.
"""

import re

import msgspec
from msgspec import Raw

from weft.dialects.requests.codec import Loss, Losses
from weft.dialects.requests.turns import LocatedContent, Turn
from weft.dialects.requests.unknown_fields import UNKNOWN_ROLE
from weft.request import OpaqueContent, Request, ResultContent, TextContent

_MESSAGE = re.compile(r"messages\[(\d+)\]")


def unknown_role_message(turn: Turn) -> Raw | None:
    """The message that a turn is, if its role is one that nobody here knows."""
    match turn.contents:
        case [LocatedContent(_, OpaqueContent(kind=kind, raw=raw))] if kind == UNKNOWN_ROLE:
            return raw
    return None


def source_bytes(turn: Turn, sources: list[Raw | None]) -> Raw | None:
    """The bytes that a turn came in, if nobody added to it; one of `sources`, by message."""
    message = turn.message
    if message is None or [one.content for one in turn.contents] != list(message.content):
        return None
    return sources[int(turn.path.removeprefix("messages[").removesuffix("]"))]


def leading_instruction_messages(request: Request) -> int:
    """How many messages at the beginning are instructions."""
    roles = [message.role in ("system", "developer") for message in request.messages]
    return roles.index(False) if False in roles else len(roles)


def losses_only_in_turns(request: Request, losses: list[Loss]) -> bool:
    """Whether all that was lost is in the turns behind the instructions: the rest is as it was."""
    found = [_MESSAGE.match(loss.path) for loss in losses]
    return all(
        one is not None and int(one[1]) >= leading_instruction_messages(request) for one in found
    )


def check_last_turn(said: list[Turn], losses: Losses) -> None:
    """A conversation that is to be answered ends with something to answer.

    `said`: the turns that are sent, without those of which nothing is left.
    """
    if not said:
        if not any(loss.path.startswith("messages") for loss in losses.refusals):
            losses.refused("messages", "there is no message to answer")
    elif said[-1].role == "assistant":
        detail = "the model would continue this turn, or answer itself; end with the user"
        last = said[-1].contents[-1:]
        losses.refused(last[0].path.partition(".content")[0] if last else said[-1].path, detail)


def instructions_as_user(turn: Turn, losses: Losses) -> list[LocatedContent]:
    """Instructions that come too late for this wire, as the user tells them."""
    losses.warned(turn.path, "told by the user: instructions cannot come this late here")
    found: list[LocatedContent] = []
    for placed in turn.contents:
        if isinstance(placed.content, TextContent):
            text = f"<system-instruction>\n{placed.content.text}\n</system-instruction>"
            told = msgspec.structs.replace(placed.content, text=text)
            found.append(LocatedContent(placed.path, told))
        else:
            losses.refused(placed.path, "instructions are text here")
    return found


def after_results(
    contents: list[LocatedContent], more: list[LocatedContent]
) -> list[LocatedContent]:
    results = [one for one in contents if isinstance(one.content, ResultContent)]
    rest = [one for one in contents if not isinstance(one.content, ResultContent)]
    return [*results, *more, *rest]


def report_speaker(turn: Turn, losses: Losses, *, said: bool = True) -> None:
    """Notes what is told of a speaker: there is no place for it. `said`: anything is said."""
    if turn.role == "developer" and said:
        losses.adapted(f"{turn.path}.role", "said by the system: there is no developer here")
    if turn.name is not None:
        losses.warned(f"{turn.path}.name", "left out: speakers have no names here")
    if turn.message is not None and turn.message.phase is not None:
        losses.adapted(f"{turn.path}.phase", "left out: turns have no phases here")
    if turn.message is not None and turn.message.item_id is not None:
        losses.adapted(f"{turn.path}.item_id", "left out: items have no ids here")
