"""Renders message contents of other dialects as parts.

Foreign signatures are dropped, and the first call of a step that has no signature of this API is
marked as such. `render_passthrough.py` overrides what is different for content of this dialect.
"""

import msgspec
from msgspec import Raw

from weft import large_json
from weft.context import Context
from weft.dialects.gemini import wire
from weft.dialects.gemini.quirks import quirks_of
from weft.dialects.gemini.requests import schema
from weft.dialects.gemini.wire import NAME
from weft.dialects.requests.codec import Losses, accepted_origins
from weft.dialects.requests.data_urls import text_of_file
from weft.dialects.requests.fields import fields_of, is_json_object
from weft.dialects.requests.names import ToolNameMap
from weft.dialects.requests.tools import arguments_object
from weft.dialects.requests.turns import LocatedContent, Turn
from weft.dialects.requests.two_roles import after_results, instructions_as_user
from weft.dialects.requests.unknown_fields import (
    UNPARSED_RESULT_PARTS,
    report_dropped_extras,
    report_unsupported_item,
)
from weft.parts import Json
from weft.request import (
    CallContent,
    FileContent,
    ImageContent,
    OpaqueContent,
    ReasoningContent,
    ResultContent,
    TextContent,
)

# `detail` of the OpenAI APIs; "auto" is the default, and left out.
_RESOLUTIONS = {
    "low": "MEDIA_RESOLUTION_LOW",
    "high": "MEDIA_RESOLUTION_HIGH",
    "original": "MEDIA_RESOLUTION_ULTRA_HIGH",
}
_MEDIA_TYPES = {
    "csv": "text/csv",
    "gif": "image/gif",
    "heic": "image/heic",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "md": "text/markdown",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "pdf": "application/pdf",
    "png": "image/png",
    "txt": "text/plain",
    "wav": "audio/wav",
    "webp": "image/webp",
}
# `%PDF-`, as the first five bytes of every PDF are in base64.
_PDF_BASE64 = "JVBERi"
_PLAIN_TEXT = "text/plain"
ROLES = {"user": "user", "assistant": "model"}
"""The roles of this API for those of turns."""

ResultPart = TextContent | ImageContent | FileContent
_Cacheable = TextContent | ImageContent | FileContent | ResultContent
_json = msgspec.json.Encoder().encode


class PartRenderer:
    """Renders the contents of one request."""

    native = False
    """Whether the request came in this dialect."""

    def __init__(self, context: Context, losses: Losses, names: ToolNameMap) -> None:
        self._losses = losses
        self._names = names
        self._quirks = quirks_of(context)
        self._origins = accepted_origins(context, NAME, native=self.native)
        self._call_names: dict[str, str] = {}
        """The name of each call so far, by id: a functionResponse repeats it."""
        self._needs_mark = False
        """Whether the next call without a signature must be marked."""

    def render(self, contents: list[LocatedContent], role: str) -> list[Raw]:
        """Returns the parts of one message. A message of the model is one step."""
        # Once for each step: parallel calls share the signature of the first one.
        self._needs_mark = role == "assistant" and not self.native and self._quirks.signed_calls
        parts = [part for located in contents for part in self._render_content(located, role)]
        if self._quirks.result_media:
            return parts
        for located in contents:  # media of results go behind all results
            if isinstance(located.content, ResultContent):
                media = self._result_media(located.path, located.content)
                if media:
                    detail = "images and files are sent behind the result"
                    self._losses.adapted(f"{located.path}.content", detail)
                parts += media
        return parts

    def _render_content(self, located: LocatedContent, role: str) -> list[Raw]:
        path, content = located.path, located.content
        match content:
            case TextContent():
                part = self._text(path, content)
            case ImageContent():
                part = self._image(path, content)
            case FileContent():
                part = self._file(path, content)
            case ReasoningContent():
                part = self._reasoning(path, content)
            case CallContent():
                part = self._function_call(path, content)
            case ResultContent():
                part = self._function_response(path, content, role)
            case OpaqueContent(origin=origin) if origin in self._origins:
                # A part of this API that has no canonical form, in a conversation that went through
                # another dialect: byte for byte.
                part = content.raw
            case _:
                ours = role == "assistant"
                report_unsupported_item(content, path, self._losses, NAME, ours=ours)
                part = None
        return [] if part is None else [part]

    def _encode(self, part: wire.GeminiPart, extra: Json, path: str) -> Raw:
        """Encodes a part; its unknown fields are lost."""
        report_dropped_extras(extra, path, self._losses, NAME)
        return Raw(large_json.write(part))

    def _drop_cache(self, content: _Cacheable, path: str) -> None:
        if content.cache is not None:
            self._losses.warned(f"{path}.cache", f"left out: {NAME} has no cache control")

    def _text(self, path: str, content: TextContent) -> Raw | None:
        self._drop_cache(content, path)
        if content.refusal:
            self._losses.warned(f"{path}.refusal", "a refusal is sent as text")
        if not content.text:
            if content != TextContent(""):
                self._losses.adapted(path, "empty text is left out")
            return None
        return self._encode(wire.GeminiPart(content.text), content.extra, path)

    def _image(self, path: str, content: ImageContent) -> Raw | None:
        self._drop_cache(content, path)
        part = self._media_part(path, content, content.media_type)
        if part is None:
            return None
        if content.detail in _RESOLUTIONS:
            part.media_resolution = Raw(_json({"level": _RESOLUTIONS[content.detail]}))
        elif content.detail not in (None, "auto"):
            detail = f"dropped: {NAME} has no equivalent of {content.detail}"
            self._losses.warned(f"{path}.detail", detail)
        return self._encode(part, content.extra, path)

    def _file(self, path: str, content: FileContent) -> Raw | None:
        self._drop_cache(content, path)
        media_type = file_type(content)
        if media_type == _PLAIN_TEXT and content.data is not None:
            # Other APIs have documents of plain text; here they are text.
            text = text_of_file(content)
            if text is None:
                self._losses.refused(path, "text/plain data is not valid UTF-8")
                return None
            self._losses.adapted(path, "a plain text file is sent as text")
            titled = f"{content.filename}\n\n{text}" if content.filename else text
            return self._encode(wire.GeminiPart(titled), content.extra, path)
        part = self._media_part(path, content, media_type)
        if content.filename is not None:
            self._losses.adapted(f"{path}.filename", f"left out: {NAME} has no file names")
        return None if part is None else self._encode(part, content.extra, path)

    def _media_part(
        self, path: str, content: ImageContent | FileContent, media_type: str | None
    ) -> wire.GeminiPart | None:
        if content.data is not None and media_type is not None:
            return wire.GeminiPart(inline_data=wire.GeminiBlob(media_type, content.data))
        if content.data is not None:
            self._losses.refused(path, f"{NAME} requires the media type of the data")
            return None
        uri = self._uri(path, content)
        if uri is None:
            return None
        media_type = media_type or _guess_type(uri)
        if media_type is None and isinstance(content, ImageContent):
            self._losses.warned(path, "unknown image type: sent as a file of no type")
        if media_type != content.media_type:
            detail = f"{media_type}, guessed from the name"
            self._losses.adapted(f"{path}.media_type", detail)
        return wire.GeminiPart(file_data=wire.GeminiFileData(media_type, uri))

    def _uri(self, path: str, content: ImageContent | FileContent) -> str | None:
        """The URI that the host can fetch; else the content is refused."""
        if content.url is None:
            self._losses.refused(path, "a file id of another upstream; send the bytes instead")
        elif not self._quirks.fetches:
            self._losses.refused(path, "this host does not fetch URLs; send the bytes")
            return None
        return content.url

    def _reasoning(self, path: str, content: ReasoningContent) -> Raw | None:
        accepted = content.origin in self._origins
        if accepted and content.encrypted is None and content.signature is not None:
            part = wire.GeminiPart(content.text, thought=True, thought_signature=content.signature)
            return self._encode(part, content.extra, path)
        # The reasoning that was signed is gone, so its call counts as one that another model made.
        self._needs_mark = self._quirks.signed_calls
        foreign = content.origin is not None and not accepted
        whose = f"of {content.origin}" if foreign else "without a signature"
        self._losses.warned(path, f"dropped: reasoning {whose}")
        return None

    def _function_call(self, path: str, content: CallContent) -> Raw | None:
        if content.provider_executed:
            # There is no part for a hosted tool of another upstream.
            self._losses.warned(path, f"dropped: {content.kind} that another upstream ran")
            return None
        if content.kind not in ("function", "custom"):
            self._losses.refused(path, f"calls of kind {content.kind} are not available on {NAME}")
            return None
        if content.item_id is not None:
            self._losses.adapted(f"{path}.item_id", f"left out: {NAME} has no item ids")
        name = self._names.rename(content.name, content.namespace, path)
        self._call_names[content.id] = name
        args = arguments_object(content, path, self._losses)
        call = wire.GeminiFunctionCall(_sent_id(content.id), name, args)
        signature = self._call_signature(path, content)
        # Documented for the first call of a step only.
        self._needs_mark = False
        part = wire.GeminiPart(function_call=call, thought_signature=signature)
        return self._encode(part, content.extra, path)

    def _call_signature(self, path: str, call: CallContent) -> str | None:
        """The signature, if this API made it; else the mark that replaces it, which only the first
        call of a step needs.
        """
        if call.signature is not None and call.origin in self._origins:
            return call.signature
        if call.signature is not None:
            self._needs_mark = self._quirks.signed_calls
        if self._needs_mark:
            detail = f"{schema.SKIP_SIGNATURE} is sent: another model made this call"
            self._losses.adapted(f"{path}.signature", detail)
            return schema.SKIP_SIGNATURE
        if call.signature is not None:
            self._losses.adapted(f"{path}.signature", f"left out: it is for {call.origin}")
        return None

    def _function_response(self, path: str, content: ResultContent, role: str) -> Raw | None:
        if role == "assistant":
            # Results of client tools come from the user. One in an assistant turn is of a hosted
            # tool.
            self._losses.warned(path, "dropped: the result of a tool that another upstream ran")
            return None
        self._drop_cache(content, path)
        name = self._call_names.get(content.id)
        # The call is not in this request, but the API requires its name.
        if name is None:
            name = self._names.rename_chosen(content.name or content.id, f"{path}.name")
        parts: list[Raw] = []
        if self._quirks.result_media and UNPARSED_RESULT_PARTS not in fields_of(content.extra):
            parts = self._result_media(path, content)
        response = self._response(path, content)
        result = wire.GeminiFunctionResponse(_sent_id(content.id), name, response, parts or None)
        part = wire.GeminiPart(function_response=result)
        return self._encode(part, content.extra, path)

    def _response(self, path: str, content: ResultContent) -> Raw:
        """The text of a result as an object: its own JSON if it is one, else under a key."""
        texts: list[str] = []
        after_media = False
        for index, part in enumerate(content.content):
            part_path = f"{path}.content[{index}]"
            text = self._result_text(part)
            if text is None:
                after_media = True
                continue
            if text and after_media:
                detail = "its text is sent before its images and files"
                self._losses.adapted(f"{path}.content", detail)
            if self._keeps_text(part, text, part_path):
                texts.append(text)
        if len(texts) > 1:
            self._losses.adapted(f"{path}.content", "its texts are joined")
        joined = "\n".join(texts)
        as_is = Raw(joined.encode())
        # An object goes out as it is. A failed one needs the key `error`, or the failure would be
        # lost.
        if is_json_object(joined) and (not content.is_error or "error" in fields_of(as_is)):
            return as_is
        return Raw(_json({"error" if content.is_error else "output": joined}))

    def _keeps_text(self, part: ResultPart, text: str, path: str) -> bool:
        """Whether the text of a part of a result is sent."""
        if isinstance(part, TextContent):
            self._drop_cache(part, path)
            report_dropped_extras(part.extra, path, self._losses, NAME)
        else:
            self._losses.adapted(path, "a plain text file is sent as text")
        if not text and part != TextContent(""):
            self._losses.adapted(path, "empty text is left out")
        return bool(text)

    def _result_text(self, part: ResultPart) -> str | None:
        """The text of a part of a result; None for images and files, except plain text."""
        if isinstance(part, TextContent):
            return part.text
        if isinstance(part, FileContent) and part.media_type == _PLAIN_TEXT:
            return text_of_file(part)
        return None

    def _result_media(self, path: str, content: ResultContent) -> list[Raw]:
        parts: list[Raw] = []
        for index, part in enumerate(content.content):
            if self._result_text(part) is None:
                located = LocatedContent(f"{path}.content[{index}]", part)
                parts += self._render_content(located, "user")
        return parts


def move_instructions(conversation: list[Turn], losses: Losses) -> list[Turn]:
    """Moves late instructions into the next user turn, behind its function responses."""
    out: list[Turn] = []
    moved: list[LocatedContent] = []
    for turn in conversation:
        if turn.role in ("system", "developer"):
            moved += instructions_as_user(turn, losses)
            continue
        if turn.role == "user" and moved:
            # Behind the results: the API requires those directly after their calls.
            turn = msgspec.structs.replace(turn, contents=after_results(turn.contents, moved))
            moved = []
        out.append(turn)
    return [*out, Turn(moved[0].path, "user", moved)] if moved else out


def _sent_id(id: str) -> str | None:
    # An id that Weft made up would be new to the host.
    return None if schema.is_generated_id(id) else id


def file_type(file: FileContent) -> str | None:
    """The media type of a file: its own, or guessed from its name, URL or data."""
    media_type = file.media_type or _guess_type(file.filename) or _guess_type(file.url)
    if media_type is None and file.data is not None and file.data.startswith(_PDF_BASE64):
        return _MEDIA_TYPES["pdf"]
    return media_type


def _guess_type(name: str | None) -> str | None:
    """The media type by the extension of a file name or URL."""
    if name is None:
        return None
    return _MEDIA_TYPES.get(name.partition("?")[0].rpartition(".")[2].lower())
