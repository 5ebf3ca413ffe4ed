"""Renders the messages of a Chat Completions body.

A message that came in this dialect stays one message. Those of other dialects are first arranged in
turns: each result is a message of its own, right after the calls, and what a result holds besides
text follows in a user message.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.openai_chat.quirks import ChatQuirks
from weft.dialects.openai_chat.requests import schema
from weft.dialects.openai_chat.requests.parse_messages import UNKNOWN_CALL
from weft.dialects.openai_chat.requests.passthrough import ChatPassthrough
from weft.dialects.openai_chat.wire import NAME, extra_content
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.data_urls import data_url, image_url, text_of_file
from weft.dialects.requests.fields import fields_of
from weft.dialects.requests.names import ToolNameMap
from weft.dialects.requests.openai_family import BREAKPOINT_KEY, OpenAIFamilyOptions
from weft.dialects.requests.tools import arguments_object
from weft.dialects.requests.turns import (
    LocatedContent,
    Speaker,
    Turn,
    ends_with_prefill,
    merge_neighbours,
    message_turns,
    paired_turns,
)
from weft.dialects.requests.unknown_fields import report_dropped_extras, report_unsupported_item
from weft.request import (
    CallContent,
    FileContent,
    ImageContent,
    OpaqueContent,
    ReasoningContent,
    Request,
    ResultContent,
    TextContent,
)

# The two formats of `input_audio` (API reference), by the media types in use for them.
_AUDIO_FORMATS = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}
RenderedChatMessage = Raw | schema.ChatParam
"""A message, in the bytes it came in or to be encoded."""

# Tool messages hold text only. As base64 text an image would be noise, and expensive.
_MOVED = "The images and files of this result are in the next message."


def render_messages(
    request: Request,
    quirks: ChatQuirks,
    passthrough: ChatPassthrough,
    family: OpenAIFamilyOptions,
    names: ToolNameMap,
    losses: Losses,
) -> Sequence[RenderedChatMessage]:
    """Returns the messages; what has no place in them is in the losses."""
    unchanged = passthrough.text_messages() if passthrough.same_dialect else None
    if unchanged is not None:
        return unchanged
    renderer = _ChatMessageRenderer(request, quirks, passthrough, family, names, losses)
    if passthrough.same_dialect:
        messages: list[RenderedChatMessage] = []
        for turn in message_turns(request, losses):
            source = passthrough.message(turn)
            messages += renderer.render([turn]) if source is None else [source]
        return messages
    renderer.report_losses()
    return renderer.render(_turns(request, losses))


def _turns(request: Request, losses: Losses) -> list[Turn]:
    """Returns the turns of another dialect's request; those of one role in a row are one."""
    # Many hosts reject two messages of the user or the assistant in a row.
    found = merge_neighbours(paired_turns(request, losses))
    # The host would answer that message instead of continuing it.
    if ends_with_prefill(request, found):
        detail = f"{NAME} cannot continue a message of the assistant; end with a user message"
        losses.refused(found[-1].path, detail)
    return found


class _ChatMessageRenderer:
    """Renders turns as messages."""

    def __init__(
        self,
        request: Request,
        quirks: ChatQuirks,
        passthrough: ChatPassthrough,
        family: OpenAIFamilyOptions,
        names: ToolNameMap,
        losses: Losses,
    ) -> None:
        self._request = request
        self._quirks = quirks
        self._passthrough = passthrough
        self._same_dialect = passthrough.same_dialect
        self._native = passthrough.native
        self._family = family
        self._names = names
        self._losses = losses

    def report_losses(self) -> None:
        """Reports what only the dialect of a message has."""
        for number, message in enumerate(self._request.messages):
            path = f"messages[{number}]"
            if message.phase is not None:
                self._losses.adapted(f"{path}.phase", f"{NAME} has no phases")
            if message.item_id is not None:
                self._losses.adapted(f"{path}.item_id", f"{NAME} has no item ids")
            if message.extra is not UNSET:
                report_dropped_extras(message.extra, path, self._losses, NAME)
            self._family.report_extras(message.content, path)

    def render(self, turns: list[Turn]) -> list[RenderedChatMessage]:
        messages: list[RenderedChatMessage] = []
        for turn in turns:
            messages += self._RENDERERS[turn.role](self, turn)
        return messages

    def _instructions(self, turn: Turn) -> list[RenderedChatMessage]:
        role: str = turn.role
        if role == "developer" and not self._quirks.developer_role:
            role = "system"
            detail = "sent as system: the host does not know the role"
            self._losses.adapted(f"{turn.path}.role", detail)
        for located in turn.contents:
            # API reference: system and developer messages hold text only.
            if not isinstance(located.content, TextContent):
                self._losses.refused(located.path, f"instructions must be text on {NAME}")
        content = self._content(turn.contents)
        return [self._message(turn, schema.ChatInputMessage(role, content, turn.name))]

    def _message(self, turn: Turn, message: schema.ChatParam) -> RenderedChatMessage:
        if not self._same_dialect or turn.message is None:
            return message  # which is encoded with the whole body
        return self._passthrough.with_extra(message, turn.message.extra)

    # User messages and results

    def _user(self, turn: Turn) -> list[RenderedChatMessage]:
        messages: list[RenderedChatMessage] = []
        moved: list[Raw] = []
        rest: list[LocatedContent] = []
        for located in turn.contents:
            if isinstance(located.content, ResultContent):
                messages.append(self._result(located.path, located.content, turn, moved))
            else:
                rest.append(located)
        # After all results: no other message may come between a call and its result.
        content = [*moved, *self._parts(rest)] if moved else self._content(rest)
        empty = self._same_dialect and turn.message is not None and turn.message.role == "user"
        # A turn of results alone needs no message of the user.
        if content or empty or (rest and not messages):
            message = schema.ChatInputMessage("user", content, turn.name)
            messages.append(self._message(turn, message))
        return messages

    def _result(
        self, path: str, result: ResultContent, turn: Turn, moved: list[Raw]
    ) -> RenderedChatMessage:
        """Renders a result; its images and files are added to `moved`."""
        texts: list[LocatedContent] = []
        before = len(moved)
        for number, content in enumerate(result.content):
            located = LocatedContent(f"{path}.content[{number}]", content)
            if isinstance(content, TextContent):
                texts.append(located)
            else:
                self._losses.adapted(located.path, "moved to a user message after the results")
                part = self._part(located)
                moved += [part] if part is not None else []
        if len(moved) > before:
            texts.append(LocatedContent(path, TextContent(_MOVED)))
        # There is no field for it, and strict hosts reject a key that they do not know.
        if result.is_error:
            self._losses.adapted(f"{path}.is_error", "marked by `Error: ` before the text")
            match texts:
                case [LocatedContent(where, TextContent() as first), *rest]:
                    prefixed = msgspec.structs.replace(first, text=f"Error: {first.text}")
                    texts = [LocatedContent(where, prefixed), *rest]
                case _:
                    texts = [LocatedContent(path, TextContent("Error"))]
        if result.cache is not None:
            texts = self._family.move_breakpoint(path, texts, result.cache)
        text = self._content(texts)
        message = schema.ChatToolMessage("tool", text or "", result.id)
        # Not in the API reference; clients of this dialect may send it to hosts that want it.
        message.name = result.name if self._same_dialect else None
        return self._message(turn, message)

    # Messages of the assistant

    def _assistant(self, turn: Turn) -> list[RenderedChatMessage]:
        message = schema.ChatAssistantMessage("assistant", name=turn.name)
        texts: list[LocatedContent] = []
        calls: list[Raw] = []
        for located in turn.contents:
            match located.content:
                case CallContent() as call:
                    calls += self._call(located.path, call)
                # What the provider's own tools returned; the call that it answers is dropped, too.
                case ResultContent():
                    self._losses.warned(located.path, f"dropped: {NAME} has no hosted results")
                case ReasoningContent() as reasoning:
                    self._add_reasoning(located.path, reasoning, message)
                # API reference: the content of the assistant is text and refusals.
                case ImageContent() | FileContent():
                    detail = f"files of the assistant are not available on {NAME}; move them"
                    self._losses.refused(located.path, f"{detail} to a user message")
                case OpaqueContent() as opaque if not self._passthrough.knows(opaque):
                    report_unsupported_item(opaque, located.path, self._losses, NAME, ours=True)
                case OpaqueContent(kind=kind, raw=raw) if kind.startswith(UNKNOWN_CALL):
                    calls.append(raw)
                case _:
                    texts.append(located)
                    # A message has one text and one list of calls, so their order is lost.
                    if calls:
                        self._losses.adapted(located.path, "moved before the calls of its message")
        message.tool_calls = calls or None
        self._add_texts(message, texts)
        empty = schema.ChatAssistantMessage("assistant", None, turn.name)
        # Nothing of it could be sent, such as reasoning alone: hosts reject an empty message.
        if message == empty and not self._same_dialect:
            return []
        return [self._message(turn, message)]

    _RENDERERS: ClassVar[
        Mapping[Speaker, Callable[["_ChatMessageRenderer", Turn], list[RenderedChatMessage]]]
    ] = {
        "system": _instructions,
        "developer": _instructions,
        "user": _user,
        "assistant": _assistant,
    }

    def _add_texts(self, message: schema.ChatAssistantMessage, texts: list[LocatedContent]) -> None:
        refusals = [
            one
            for one in texts
            if isinstance(one.content, TextContent)
            and one.content.refusal
            and not fields_of(one.content.extra)  # which only a part can have
        ]
        # A client of this dialect that sent parts gets its refusals back as parts.
        if refusals and (len(texts) == 1 or not self._same_dialect):
            self._report_joined(refusals)
            message.refusal = "".join(_texts(refusals))
            texts = [one for one in texts if one not in refusals]
            message.content = None
        if texts:
            content = self._content(texts, "")
            # Null, not an empty string, which some hosts reject beside calls.
            message.content = content if content or self._same_dialect else None
        elif not refusals:
            message.content = None

    def _add_reasoning(
        self, path: str, reasoning: ReasoningContent, message: schema.ChatAssistantMessage
    ) -> None:
        """Adds reasoning in the fields in which its host wants it back; no other host gets it."""
        fields = self._quirks.reasoning_back if self._passthrough.is_own(reasoning) else ()
        details = self._passthrough.reasoning_details(reasoning)
        if "reasoning_content" in fields:
            message.reasoning_content = (message.reasoning_content or "") + reasoning.text
        elif "reasoning" in fields:
            message.reasoning = (message.reasoning or "") + reasoning.text
        elif not fields or not details:
            self._losses.warned(path, "dropped: reasoning goes back only to a host that wants it")
        if "reasoning_details" in fields and details:
            message.reasoning_details = [*(message.reasoning_details or ()), *details]
        elif fields and details:
            self._losses.warned(path, "signature dropped: the host does not take it back")

    def _call(self, path: str, call: CallContent) -> list[Raw]:
        if call.provider_executed:
            self._losses.warned(path, f"dropped: {NAME} has no hosted calls")
            return []
        own = self._passthrough.is_own(call)
        if call.signature is not None and not own:
            self._losses.adapted(f"{path}.signature", "dropped: it is valid only at its origin")
        if call.item_id is not None:
            self._losses.adapted(f"{path}.item_id", f"{NAME} has no item ids")
        name = call.name
        if not self._same_dialect:
            name = self._names.rename(call.name, call.namespace, path)
        rendered: schema.ChatParam
        if call.format == "text" and (self._native or self._quirks.custom_tools):
            custom = schema.ChatCustomParam(name, call.params)
            rendered = schema.ChatCustomCallParam(call.id, custom)
        else:
            # Hosts parse the arguments of earlier calls, and an empty string is not JSON.
            params = call.params or "{}"
            if call.format == "text":
                params = bytes(arguments_object(call, path, self._losses)).decode()
            function = schema.ChatFunctionParam(name, params)
            rendered = schema.ChatFunctionCallParam(call.id, function)
        raw = self._passthrough.with_extra(rendered, call.extra)
        # Only the host that signed the call gets the signature back, without an envelope.
        if call.signature is None or not own:
            return [raw]
        return [schema.to_raw(fields_of(raw) | {"extra_content": extra_content(call.signature)})]

    # Content

    def _content(self, contents: list[LocatedContent], between: str = "\n") -> str | list[Raw]:
        """Returns a string if there is only text: many hosts take parts only beside other parts.

        Several texts are joined by a newline; those of the assistant by nothing, as they are pieces
        of one answer. A message of this dialect stays a string or a list, as it was.
        """
        match contents:
            case [LocatedContent(content=TextContent(refusal=False, cache=None) as only)]:
                if only.extra is UNSET:
                    return only.text  # nearly always
        texts = [one.content for one in contents if isinstance(one.content, TextContent)]
        if len(texts) < len(contents) or any(text.refusal for text in texts):
            return self._parts(contents)
        if self._same_dialect:
            # A list of more than one plain text stays a list, as a cached prefix requires.
            plain = len(texts) == 1 and texts[0].cache is None and not fields_of(texts[0].extra)
            return texts[0].text if plain else self._parts(contents)
        for located, text in zip(contents, texts, strict=True):
            if text.cache is not None:
                path = self._family.breakpoint_path(located.path)
                self._losses.warned(f"{path}.cache", "dropped: a string has no cache breakpoint")
            if self._family.in_family and BREAKPOINT_KEY in fields_of(text.extra):
                self._losses.dropped(f"{located.path}.{BREAKPOINT_KEY}", NAME)
        self._report_joined(contents)
        return between.join(_texts(contents))

    def _report_joined(self, contents: list[LocatedContent]) -> None:
        if len(_texts(contents)) > 1:
            for located in contents:
                if _texts([located]):
                    self._losses.adapted(located.path, "joined with the other texts of its message")

    def _parts(self, contents: list[LocatedContent]) -> list[Raw]:
        parts = [self._part(located) for located in contents]
        return [part for part in parts if part is not None]

    def _part(self, located: LocatedContent) -> Raw | None:
        match located.content:
            case TextContent(refusal=True) as refusal:
                return self._passthrough.with_extra(
                    schema.ChatRefusalPart(refusal.text), refusal.extra
                )
            case TextContent() as text:
                mark = self._family.breakpoint(text, located.path)
                return self._passthrough.with_extra(
                    schema.ChatTextPart(text.text, mark), text.extra
                )
            case ImageContent() as image:
                return self._image(located.path, image)
            case FileContent() as file:
                return self._file(located.path, file)
            case OpaqueContent() as opaque if self._passthrough.knows(opaque):
                return opaque.raw
            case OpaqueContent() as opaque:
                report_unsupported_item(opaque, located.path, self._losses, NAME, ours=False)
            case other:
                self._losses.refused(located.path, f"{type(other).__name__} is not allowed here")
        return None

    def _image(self, path: str, image: ImageContent) -> Raw | None:
        url, mark = image_url(image), self._family.breakpoint(image, path)
        if url is None:
            self._losses.refused(f"{path}.file_id", f"images by id are not available on {NAME}")
            return None
        self._family.report_media_type(image, path)
        part = schema.ChatImagePart(schema.ChatImageUrl(url, image.detail), mark)
        return self._passthrough.with_extra(part, image.extra)

    def _file(self, path: str, file: FileContent) -> Raw | None:
        media_type = file.media_type or ""
        mark = self._family.breakpoint(file, path)
        if file.url is not None:
            self._losses.refused(f"{path}.url", f"files by URL are not available on {NAME}")
            return None
        if media_type.startswith("video/"):
            self._losses.refused(path, f"video is not available on {NAME}")
            return None
        # An id of another provider names nothing here, or a file of somebody else.
        if file.file_id is not None and not self._native:
            self._losses.refused(f"{path}.file_id", "file ids are known only to their origin")
            return None
        if media_type.startswith("audio/") and not (self._native or media_type in _AUDIO_FORMATS):
            detail = f"{media_type} is not available on {NAME}; send wav or mp3"
            self._losses.refused(path, detail)
            return None
        if media_type.startswith("audio/") and file.data is not None:
            format = _AUDIO_FORMATS.get(media_type, media_type.removeprefix("audio/"))
            audio = schema.ChatAudioPart(schema.ChatInputAudio(file.data, format), mark)
            return self._passthrough.with_extra(audio, file.extra)
        # Hosts take PDF in `file` parts; any of them reads text.
        text = None if self._native else text_of_file(file)
        if text is not None:
            self._losses.adapted(path, "a plain text document is sent as text")
            return schema.to_raw(schema.ChatTextPart(text, mark))
        data = file.data if file.data is None or not media_type else data_url(media_type, file.data)
        part = schema.ChatFilePart(schema.ChatFileData(data, file.file_id, file.filename), mark)
        return self._passthrough.with_extra(part, file.extra)


def _texts(contents: list[LocatedContent]) -> list[str]:
    """Returns the texts that are not empty."""
    texts = [one.content.text for one in contents if isinstance(one.content, TextContent)]
    return [text for text in texts if text]
