"""Parses the messages of a Chat Completions body, one canonical message for each."""

from collections.abc import Callable, Mapping
from typing import ClassVar

import msgspec
from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.envelope import Envelope, restore_reasoning, unwrap
from weft.dialects.openai_chat.requests import schema
from weft.dialects.openai_chat.wire import NAME, ChatReasoningState, read_extra_content
from weft.dialects.requests.codec import SourcePaths
from weft.dialects.requests.data_urls import parse_data_url
from weft.dialects.requests.fields import exact_reader, fields_of, object_reader, read_object
from weft.dialects.requests.openai_family import cache_of_breakpoint, keep_breakpoint
from weft.dialects.requests.unknown_fields import UNKNOWN_ROLE, collect, collect_filled
from weft.errors import BadRequest
from weft.request import (
    AnyContent,
    CallContent,
    FileContent,
    ImageContent,
    Message,
    OpaqueContent,
    ReasoningContent,
    ResultContent,
    Role,
    TextContent,
)

UNKNOWN_CALL = "tool_call."
"""Prefix of the kind of a call whose `type` is neither function nor custom."""

# RFC 3003 registers MP3 as audio/mpeg.
_MEDIA_TYPES = {"mp3": "audio/mpeg"}
"""Media types of audio formats, where they differ from `audio/<format>`."""

_RESULT_CONTENT = (TextContent, ImageContent, FileContent)

_read_input = object_reader(schema.ChatInputMessage)
_read_assistant = object_reader(schema.ChatAssistantMessage)
_read_tool = object_reader(schema.ChatToolMessage)
_read_text = exact_reader(schema.ChatPlainText)
_read_call = exact_reader(schema.ChatFunctionCallParam)

_ROLES: dict[str, Role] = {"user": "user", "developer": "developer", "system": "system"}


class ChatMessageParser:
    """Parses messages in order: results refer to earlier calls."""

    def __init__(self, context: Context, places: SourcePaths) -> None:
        self.messages: list[Message] = []
        self.sources: list[Raw | None] = []
        """The bytes of each message; None if they must not be sent again as they are."""
        self._origin = context.origin or NAME
        self._ids = context.ids
        self._places = places
        self._custom_calls: set[str] = set()
        """The ids of custom calls: results do not tell the type of their call."""
        self._function_calls: list[CallContent] = []
        """Calls in the deprecated form, which has no ids, until their results come."""

    def add(self, raw: Raw, path: str) -> None:
        role = read_object(raw, schema.ChatRoleProbe, path).role
        # By the role alone, as the roles have different required fields.
        parse = self._PARSERS.get(role)
        source: Raw | None = raw
        if parse is not None:
            message, source = parse(self, raw, path)
        else:  # a role that only a host of this dialect may know
            self._places[f"messages[{len(self.messages)}].content[0]"] = f"{path}.role"
            message = Message("user", (OpaqueContent(self._origin, UNKNOWN_ROLE, raw),))
        self.messages.append(message)
        self.sources.append(source)

    def _input(self, raw: Raw, path: str) -> tuple[Message, Raw | None]:
        body, unknown = _read_input(raw, path)
        content = self._content(body.content, path, f"messages[{len(self.messages)}].content")
        extra = collect_filled(unknown) if unknown else UNSET
        return Message(_ROLES[body.role], content, body.name, extra=extra), raw

    def _assistant(self, raw: Raw, path: str) -> tuple[Message, Raw | None]:
        body, unknown = _read_assistant(raw, path)
        contents: list[tuple[AnyContent, str]] = []
        is_enveloped = False
        # The wire does not say in which order they came. A model thinks, answers, then calls.
        if body.reasoning_content or body.reasoning or body.reasoning_details:
            # The path in a loss is that of the key which holds the text.
            key = "reasoning" if body.reasoning else "reasoning_details"
            key = "reasoning_content" if body.reasoning_content else key
            details = [
                read_object(one, ChatReasoningState, f"{path}.reasoning_details[{number}]")
                for number, one in enumerate(body.reasoning_details or ())
            ]
            contents += [(one, f"{path}.{key}") for one in self._reasoning(body, details)]
            is_enveloped = any(map(_envelopes, details))
        # Clients send an empty string or null beside calls: neither is a text.
        if body.content:
            parts = self._parts(body.content, f"{path}.content")
            for number, part in enumerate(parts):
                place = "" if isinstance(body.content, str) else f"[{number}]"
                contents.append((part, f"{path}.content{place}"))
        if body.refusal:
            contents.append((TextContent(body.refusal, refusal=True), f"{path}.refusal"))
        for number, call in enumerate(body.tool_calls or ()):
            where = f"{path}.tool_calls[{number}]"
            parsed, has_envelope = self._call(call, where)
            contents.append((parsed, where))
            is_enveloped = is_enveloped or has_envelope
        if body.function_call is not None:
            function = body.function_call
            # The deprecated form has no ids: the result is found by name, in `_function`.
            legacy = CallContent(self._ids.mint("call"), function.name, function.arguments)
            self._function_calls.append(legacy)
            contents.append((legacy, f"{path}.function_call"))
        for number, (_, where) in enumerate(contents):
            self._places[f"messages[{len(self.messages)}].content[{number}]"] = where
        content = tuple([one for one, _ in contents])
        extra = collect_filled(unknown) if unknown else UNSET
        message = Message("assistant", content, body.name, extra=extra)
        return message, None if is_enveloped else raw  # no envelope may reach an upstream

    def _tool(self, raw: Raw, path: str) -> tuple[Message, Raw | None]:
        body, unknown = _read_tool(raw, path)
        where = f"messages[{len(self.messages)}].content[0]"
        content = self._content(body.content, path, f"{where}.content")
        self._places[where] = path
        readable = tuple([one for one in content if isinstance(one, _RESULT_CONTENT)])
        # A result has no place for a part of an unknown type: then all of it is kept as it came.
        complete = len(readable) == len(content)
        result = ResultContent(
            body.tool_call_id,
            # An empty string is an empty result, not a text that is empty.
            () if content == (TextContent(""),) else readable,
            kind="custom" if body.tool_call_id in self._custom_calls else "function",
            name=body.name,
            extra=UNSET if complete else collect({"content": schema.to_raw(body.content)}),
        )
        extra = collect_filled(unknown) if unknown else UNSET
        return Message("tool", (result,), extra=extra), raw

    def _function(self, raw: Raw, path: str) -> tuple[Message, Raw | None]:
        body = read_object(raw, schema.ChatFunctionMessage, path)
        # The oldest open call of that name: the deprecated form has one call per message.
        call = next((one for one in self._function_calls if one.name == body.name), None)
        if call is not None:
            self._function_calls.remove(call)
        self._places[f"messages[{len(self.messages)}].content[0]"] = path
        content = (TextContent(body.content),) if body.content else ()
        result = ResultContent(call.id if call else "", content, name=body.name)
        extra = collect(schema.unknown_fields(raw, schema.ChatFunctionMessage))
        return Message("tool", (result,), extra=extra), raw

    _PARSERS: ClassVar[
        Mapping[str, Callable[["ChatMessageParser", Raw, str], tuple[Message, Raw | None]]]
    ] = {
        "system": _input,
        "developer": _input,
        "user": _input,
        "assistant": _assistant,
        "tool": _tool,
        "function": _function,
    }

    def _content(
        self, content: str | list[Raw], path: str, canonical: str
    ) -> tuple[AnyContent, ...]:
        """Parses the content of a message, and records the place of each part."""
        where = f"{path}.content"
        if isinstance(content, str):
            self._places[f"{canonical}[0]"] = where
            return (TextContent(content),)
        parts = self._parts(content, where)
        if canonical != where:  # parts of a message have the same path in the canonical one
            for number in range(len(parts)):
                self._places[f"{canonical}[{number}]"] = f"{where}[{number}]"
        return tuple(parts)

    def _parts(self, content: str | list[Raw], path: str) -> list[AnyContent]:
        if isinstance(content, str):
            return [TextContent(content)]
        parts: list[AnyContent] = []
        for number, raw in enumerate(content):
            plain = _read_text(raw)
            if plain is not None:
                parts.append(TextContent(plain.text))
                continue
            where = f"{path}[{number}]"
            type = read_object(raw, schema.ChatTypeProbe, where).type
            parse = _PART_PARSERS.get(type or "")
            if parse is not None:
                parts.append(parse(raw, where))
            elif type is not None:
                # Perhaps one that this host knows: it is passed on or reported by the renderer.
                parts.append(OpaqueContent(self._origin, type, raw))
            else:
                expected = ", ".join(_PART_PARSERS)
                raise BadRequest(f"{where}.type", f"missing; expected one of {expected}")
        return parts

    def _call(self, raw: Raw, path: str) -> tuple[CallContent | OpaqueContent, bool]:
        """Returns a call, and whether there is an envelope in it."""
        plain = _read_call(raw)
        if plain is not None:  # nearly always
            function = plain.function
            return CallContent(plain.id, function.name, function.arguments), False
        type = read_object(raw, schema.ChatTypeProbe, path).type
        # Clients leave the type out; it means function.
        if type not in (None, "function", "custom"):
            envelope = _call_envelope(fields_of(raw).get("extra_content"))
            opaque = OpaqueContent(self._origin, f"{UNKNOWN_CALL}{type}", raw)
            return opaque, envelope is not None
        extra = schema.unknown_fields(raw, schema.ChatFunctionCallParam, "custom")
        envelope = _call_envelope(extra.get("extra_content"))
        # The envelope is ours: only the signature in it may go to an upstream.
        if envelope is not None:
            del extra["extra_content"]
        if type == "custom":
            custom = read_object(raw, schema.ChatCustomCallParam, path)
            self._custom_calls.add(custom.id)
            call = CallContent(
                custom.id, custom.custom.name, custom.custom.input, kind="custom", format="text"
            )
        else:
            param = read_object(raw, schema.ChatFunctionCallParam, path)
            call = CallContent(param.id, param.function.name, param.function.arguments)
        call = msgspec.structs.replace(
            call,
            signature=envelope.state.signature if envelope else None,
            origin=envelope.origin if envelope else None,
            extra=collect(extra),
        )
        return call, envelope is not None

    def _reasoning(
        self, body: schema.ChatAssistantMessage, details: list[ChatReasoningState]
    ) -> list[ReasoningContent]:
        """Parses the reasoning of a message: one, or one for each envelope in it."""
        text = body.reasoning_content or body.reasoning
        if not text and not details:
            return []
        # Details repeat the text of the field beside them.
        text = text or "".join(one.text or one.summary or "" for one in details)
        envelopes = [envelope for one in details for envelope in _envelopes(one)]
        # Weft wrote them, one for each reasoning, with the exact text that is signed.
        if envelopes:
            return [restore_reasoning(envelope, text, "raw") for envelope in envelopes]
        raws = body.reasoning_details
        reasoning = ReasoningContent(
            text,
            signature=next((one.signature for one in details if one.signature), None),
            encrypted=next((one.data for one in details if one.data), None),
            origin=self._origin,
            extra=schema.to_raw({"reasoning_details": raws}) if raws else UNSET,
        )
        return [reasoning]


# Envelopes: signatures of other dialects that Weft gave to the client, see `dialects/envelope.py`


def _envelopes(detail: ChatReasoningState) -> list[Envelope]:
    found = (unwrap(text) for text in (detail.signature, detail.data))
    return [envelope for envelope in found if envelope]


def _call_envelope(extra_content: Raw | None) -> Envelope | None:
    try:
        vendors = read_extra_content(extra_content) if extra_content is not None else {}
    except ValueError:
        return None
    found = (unwrap(one.thought_signature) for one in vendors.values())
    return next((envelope for envelope in found if envelope), None)


# Content parts


def _text(raw: Raw, path: str) -> AnyContent:
    part = read_object(raw, schema.ChatTextPart, path)
    extra = keep_breakpoint(
        collect(schema.unknown_fields(raw, schema.ChatTextPart)), part.prompt_cache_breakpoint
    )
    return TextContent(
        part.text, cache=cache_of_breakpoint(part.prompt_cache_breakpoint), extra=extra
    )


def _refusal(raw: Raw, path: str) -> AnyContent:
    part = read_object(raw, schema.ChatRefusalPart, path)
    extra = collect(schema.unknown_fields(raw, schema.ChatRefusalPart))
    return TextContent(part.refusal, refusal=True, extra=extra)


def _image(raw: Raw, path: str) -> AnyContent:
    part = read_object(raw, schema.ChatImagePart, path)
    data = parse_data_url(part.image_url.url)
    extra = schema.nested_unknown_fields(
        raw, schema.ChatImagePart, "image_url", schema.ChatImageUrl
    )
    return ImageContent(
        media_type=data.media_type if data else None,
        data=data.data if data else None,
        url=None if data else part.image_url.url,
        detail=part.image_url.detail,
        cache=cache_of_breakpoint(part.prompt_cache_breakpoint),
        extra=keep_breakpoint(extra, part.prompt_cache_breakpoint),
    )


def _audio(raw: Raw, path: str) -> AnyContent:
    part = read_object(raw, schema.ChatAudioPart, path)
    audio = part.input_audio
    extra = schema.nested_unknown_fields(
        raw, schema.ChatAudioPart, "input_audio", schema.ChatInputAudio
    )
    return FileContent(
        _MEDIA_TYPES.get(audio.format, f"audio/{audio.format}"),
        audio.data,
        cache=cache_of_breakpoint(part.prompt_cache_breakpoint),
        extra=keep_breakpoint(extra, part.prompt_cache_breakpoint),
    )


def _file(raw: Raw, path: str) -> AnyContent:
    part = read_object(raw, schema.ChatFilePart, path)
    file = part.file
    if file.file_data is None and file.file_id is None:
        raise BadRequest(f"{path}.file", "expected `file_data` or `file_id`")
    # The API takes plain base64, too, which does not tell the media type.
    data = parse_data_url(file.file_data or "")
    extra = schema.nested_unknown_fields(raw, schema.ChatFilePart, "file", schema.ChatFileData)
    return FileContent(
        data.media_type if data else None,
        data.data if data else file.file_data,
        file_id=file.file_id,
        filename=file.filename,
        cache=cache_of_breakpoint(part.prompt_cache_breakpoint),
        extra=keep_breakpoint(extra, part.prompt_cache_breakpoint),
    )


_PART_PARSERS: dict[str, Callable[[Raw, str], AnyContent]] = {
    "text": _text,
    "refusal": _refusal,
    "image_url": _image,
    "input_audio": _audio,
    "file": _file,
}
