"""Renders a request that came in this dialect: in the bytes it came in, except for what changed.

What changed is rendered from the canonical fields, with the unknown fields it came with. It is not
checked: whatever the API says to it is for the client. Only what the host would reject because of
its quirks is adapted.
"""

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.context import Context
from weft.dialects.gemini import wire
from weft.dialects.gemini.quirks import quirks_of
from weft.dialects.gemini.requests import schema
from weft.dialects.gemini.requests.options import RENDERED_FROM
from weft.dialects.gemini.requests.render_messages import (
    ROLES,
    PartRenderer,
    ResultPart,
    file_type,
    move_instructions,
)
from weft.dialects.gemini.requests.render_options import common_config, thinking_config
from weft.dialects.gemini.requests.render_tools import GeminiToolRenderer, tool_names
from weft.dialects.gemini.wire import NAME
from weft.dialects.requests.codec import Losses, Rendered
from weft.dialects.requests.fields import fields_of
from weft.dialects.requests.passthrough import source_body, source_fields, source_messages
from weft.dialects.requests.turns import (
    leading_instructions,
    message_turns,
    source_bytes,
    unknown_role_message,
)
from weft.dialects.requests.two_roles import losses_only_in_turns, report_speaker
from weft.dialects.requests.unknown_fields import encode_with_extra
from weft.parts import Json
from weft.request import (
    FileContent,
    ImageContent,
    ReasoningContent,
    Request,
    ResultContent,
    TextContent,
    Tool,
)

_URL_FIELDS = frozenset({"model", "stream"})
"""What the URL says, not the body."""

_json = msgspec.json.Encoder().encode


def render_native(request: Request, context: Context, losses: Losses) -> Rendered:
    """Returns the body of a request that came in this dialect."""
    # Losses tell whether a quirk of the host changed something: then its bytes cannot be sent as
    # they came.
    losses_before = len(losses.found)
    quirks, names = quirks_of(context), tool_names(request, losses)
    tools = _NativeToolRenderer(request, context, losses, names)
    body = schema.GenerateContentRequest([], tools=tools.entries or None)
    if (choice := tools.choice()) is not None:
        body.tool_config = schema.ToolConfig(Raw(_json(choice)))
    config = common_config(request, quirks, losses)
    if request.reasoning is not None:
        thinking = thinking_config(request.reasoning)
        config.thinking_config = None if thinking == schema.ThinkingConfig() else thinking
    body.generation_config = None if config == schema.GenerationConfig() else config
    parts = _NativePartRenderer(context, losses, names)
    turns = message_turns(request, losses)
    first = leading_instructions(turns)
    sources = source_messages(source_body(request, NAME), request)
    contents: list[Raw] = []
    for turn in move_instructions(turns[first:], losses):
        before = len(losses.found)
        rendered = parts.render(turn.contents, turn.role)
        content = unknown_role_message(turn)
        if content is None and len(losses.found) == before:
            # Rendered anyway, since only that shows whether a quirk of the host forbids something
            # in it.
            content = source_bytes(turn, sources)
        if content is None:
            extra = turn.message.extra if turn.message else UNSET
            content = encode_with_extra(schema.RequestContent(ROLES[turn.role], rendered), extra)
        contents.append(content)
    instruction: list[Raw] = []
    for turn in turns[:first]:
        rendered = parts.render(turn.contents, "system")
        report_speaker(turn, losses, sent=bool(rendered))
        instruction += rendered
    if instruction:
        body.system_instruction = Raw(_json(schema.RequestContent(parts=instruction)))
    fields = fields_of(encode_with_extra(body, request.extra, schema.NESTED))
    if losses_only_in_turns(request, losses.found[losses_before:]):
        # Nothing outside of the turns was adapted: each field that nobody edited goes out in its
        # own bytes.
        fields = source_fields(source_body(request, NAME), request, fields, RENDERED_FROM)
    fields["contents"] = Raw(large_json.write(contents))
    # The API refuses fields that it does not know, and Weft added these two.
    sent = {key: value for key, value in fields.items() if key not in _URL_FIELDS}
    return Rendered(large_json.write(sent), names.originals, tools.bridged)


class _NativePartRenderer(PartRenderer):
    """Keeps empty texts, unsigned thoughts, file names and ids, and unknown fields."""

    native = True

    def _encode(self, part: wire.GeminiPart, extra: Json, path: str) -> Raw:
        return encode_with_extra(part, extra, schema.NESTED)

    def _text(self, path: str, content: TextContent) -> Raw | None:
        self._drop_cache(content, path)
        return self._encode(wire.GeminiPart(content.text), content.extra, path)

    def _file(self, path: str, content: FileContent) -> Raw | None:
        self._drop_cache(content, path)
        part = self._media_part(path, content, file_type(content))
        if part is None:
            return None
        for media in (part.inline_data, part.file_data):
            if media is not None:
                media.display_name = content.filename
        return self._encode(part, content.extra, path)

    def _uri(self, path: str, content: ImageContent | FileContent) -> str | None:
        uri = content.file_id if content.url is None else content.url
        return super()._uri(path, content) if uri is None else uri

    def _reasoning(self, path: str, content: ReasoningContent) -> Raw | None:
        if content.origin is not None:
            return super()._reasoning(path, content)
        return self._encode(wire.GeminiPart(content.text, thought=True), content.extra, path)

    def _function_response(self, path: str, content: ResultContent, role: str) -> Raw | None:
        # The client wrote it so, whichever role it chose; the host decides.
        return super()._function_response(path, content, "user")

    def _keeps_text(self, part: ResultPart, text: str, path: str) -> bool:
        return True

    def _result_text(self, part: ResultPart) -> str | None:
        return part.text if isinstance(part, TextContent) else None


class _NativeToolRenderer(GeminiToolRenderer):
    """Keeps hosted tools as they came, and unknown fields of functions."""

    def choice(self) -> schema.FunctionCallingConfig | None:
        return self._render_choice(strict=False)

    def _declare(self, tool: Tool, path: str) -> None:
        if tool.origin == NAME and isinstance(tool.raw, Raw):
            self._add_entry(tool.raw)
        else:
            super()._declare(tool, path)

    def _encode(self, declaration: schema.FunctionDeclaration, tool: Tool, path: str) -> Raw:
        return encode_with_extra(declaration, tool.extra)
