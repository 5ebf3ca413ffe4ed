"""Renders `system` and `messages`.

Roles alternate, the first message is of the user, tool results come first in their message, and
system messages stay where they are.
"""

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.anthropic_messages.quirks import MessagesQuirks
from weft.dialects.anthropic_messages.requests import schema
from weft.dialects.anthropic_messages.requests.render_blocks import BlockRenderer, single_text
from weft.dialects.anthropic_messages.requests.render_options import TokenPlan
from weft.dialects.anthropic_messages.wire import NAME
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.turns import LocatedContent, Turn, leading_instructions
from weft.dialects.requests.two_roles import (
    after_results,
    check_last_turn,
    instructions_as_user,
    report_speaker,
)
from weft.dialects.requests.unknown_fields import encode_with_extra, report_dropped_extras
from weft.parts import Json
from weft.request import FileContent, ImageContent, TextContent

# Not empty, which the API refuses, and not a question, which the model would answer.
_FIRST_USER_MESSAGE = "(The conversation begins with the assistant.)"


class RenderedMessage(msgspec.Struct):
    """A message before encoding: later messages of the same role may be merged into it."""

    role: schema.MessageRole
    blocks: list[schema.Encodable]
    plain: str | None = None
    """The content as a string, if it is only one text."""
    extra: Json = UNSET
    source: Raw | None = None
    """The bytes it came in, if they are sent unchanged. Then its blocks may not be rendered."""

    @property
    def sent(self) -> object:
        """The message, to be encoded with the whole body."""
        if self.source is not None:
            return self.source
        if self.extra is UNSET:
            content = self.blocks if self.plain is None else self.plain
            return {"role": self.role, "content": content}
        raw_content = schema.to_raw(self.blocks) if self.plain is None else self.plain
        return encode_with_extra(schema.MessageParam(self.role, raw_content), self.extra)

    @property
    def first_block_type(self) -> str:
        blocks = schema.to_raw(self.blocks)
        if not blocks and self.source is not None:
            try:
                content = msgspec.json.decode(self.source, type=schema.MessageParam).content
            except msgspec.ValidationError:
                return ""  # a role that only the upstream knows
            blocks = content if isinstance(content, list) else []
        first = (msgspec.json.decode(block, type=schema.TypeField) for block in blocks)
        return next((block.type for block in first), "")


class MessagesRenderer:
    """Renders the conversation of a request that came in another dialect."""

    def __init__(
        self, turns: list[Turn], quirks: MessagesQuirks, losses: Losses, blocks: BlockRenderer
    ) -> None:
        self._turns = turns
        self._quirks = quirks
        self._losses = losses
        self._blocks = blocks

    def render(self) -> tuple[str | list[schema.Encodable] | None, list[RenderedMessage]]:
        """Returns `system` and the messages."""
        first = leading_instructions(self._turns)
        # Only leading instructions. A late one that moved to the top would change what it refers
        # to, and the prefix that the prompt cache matches.
        system = self.render_system(self._turns[:first])
        turns = self._move_to_user(self._turns[first:])
        return system, self.join([(turn, self.render_message(turn)) for turn in turns])

    def render_system(self, instructions: list[Turn]) -> str | list[schema.Encodable] | None:
        match instructions:
            # A string, as clients send it; blocks only where several messages have to stay apart.
            case [
                Turn(path="instructions", contents=[LocatedContent(content=TextContent(text=text))])
            ] if text.strip():
                return text
        blocks: list[schema.Encodable] = []
        for turn in instructions:
            if turn.message is not None and turn.message.extra is not UNSET:
                report_dropped_extras(turn.message.extra, turn.path, self._losses, NAME)
            rendered = [self.system_block(located) for located in turn.contents]
            present = [block for block in rendered if block is not None]
            report_speaker(turn, self._losses, sent=bool(present))
            blocks += present
        return blocks or None

    def system_block(self, located: LocatedContent) -> schema.Encodable | None:
        if isinstance(located.content, TextContent):
            return self._blocks.render(located, "system")
        self._losses.refused(located.path, f"{NAME} accepts only text as instructions")
        return None

    def _move_to_user(self, turns: list[Turn]) -> list[Turn]:
        """Moves what only the user may send into the next user turn, behind its tool results:
        images and files of the assistant, and late instructions where the host rejects them.
        """
        out: list[Turn] = []
        moved: list[LocatedContent] = []
        for turn in turns:
            # Older models and many compatible servers refuse the role inside `messages`.
            if turn.role in ("system", "developer") and not self._quirks.late_system:
                moved += instructions_as_user(turn, self._losses)
                continue
            if turn.role == "assistant":
                files = self.files_to_move(turn)
                if files:
                    moved += files
                    rest = [located for located in turn.contents if located not in files]
                    turn = msgspec.structs.replace(turn, contents=rest)
            elif turn.role == "user" and moved:
                # Results stay first: the API wants them at the beginning of the message after the
                # calls.
                turn = msgspec.structs.replace(turn, contents=after_results(turn.contents, moved))
                moved = []
            out.append(turn)
        return [*out, Turn(moved[0].path, "user", moved)] if moved else out

    def files_to_move(self, turn: Turn) -> list[LocatedContent]:
        files = [
            located
            for located in turn.contents
            if isinstance(located.content, ImageContent | FileContent)
        ]
        for located in files:
            detail = f"moved to the user: {NAME} has no images or files of the assistant"
            self._losses.warned(located.path, detail)
        return files

    def render_message(self, turn: Turn) -> RenderedMessage:
        blocks: list[schema.Encodable] = []
        for located in turn.contents:
            block = self._blocks.render(located, turn.role)
            if block is not None:
                blocks.append(block)
        report_speaker(turn, self._losses, sent=bool(blocks))
        plain: TextContent | None = None
        if len(turn.contents) == 1:
            plain = single_text([turn.contents[0].content])
        extra = turn.message.extra if turn.message else UNSET
        if extra is not UNSET:
            extra = self._blocks.kept_extra(extra, turn.path)
        role = "system" if turn.role == "developer" else turn.role
        return RenderedMessage(role, blocks, plain.text if plain else None, extra)

    def join(self, rendered: list[tuple[Turn, RenderedMessage]]) -> list[RenderedMessage]:
        """Drops empty messages, puts a user message first, and merges neighbours of one role."""
        # A message without content is refused; blank texts were left out before.
        rendered = [(turn, message) for turn, message in rendered if message.blocks]
        check_last_turn([turn for turn, _ in rendered], self._losses)
        out: list[RenderedMessage] = []
        if rendered and rendered[0][0].role != "user":
            # Vendor documentation: the first message must be of the user.
            detail = f"a short user message is put first: {NAME} requires one"
            self._losses.adapted(rendered[0][0].path, detail)
            block = schema.TextBlockParam(_FIRST_USER_MESSAGE)
            out.append(RenderedMessage("user", [block], _FIRST_USER_MESSAGE))
        for _, message in rendered:
            # The API would merge neighbours too, but wants all results in the message after their
            # calls.
            if out and out[-1].role == message.role:
                out[-1].blocks += message.blocks
                out[-1].plain = None
            else:
                out.append(message)
        return out


def without_unsigned_thinking(
    plan: TokenPlan, messages: list[RenderedMessage], losses: Losses
) -> TokenPlan:
    """Vendor documentation: with a budget, an assistant message with tool calls must begin with
    its thinking block. Where that was dropped, thinking is disabled.
    """
    # Only the last step matters: thinking of earlier turns is not required.
    match messages[-2:]:
        case [calls, results] if plan.has_budget and results.first_block_type == "tool_result":
            if calls.first_block_type not in ("thinking", "redacted_thinking"):
                detail = "disabled: the thinking before the tool calls is not available here"
                losses.warned("reasoning", detail)
                return plan._replace(thinking=schema.ThinkingConfigParam("disabled"))
    return plan
