"""Renders message contents as content blocks.

Content that came in this dialect is rendered as it came. Content of other dialects that this API
cannot represent is a loss: an unsupported image type is refused, a foreign signature dropped.
"""

from base64 import b64decode
from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.context import Context
from weft.dialects.anthropic_messages.quirks import quirks_of
from weft.dialects.anthropic_messages.requests import schema
from weft.dialects.anthropic_messages.wire import ID_LETTERS, ID_LIMIT, NAME
from weft.dialects.requests.codec import Losses, accepted_origins
from weft.dialects.requests.fields import fields_of
from weft.dialects.requests.names import NameSanitizer, ToolNameMap
from weft.dialects.requests.tools import arguments_object
from weft.dialects.requests.turns import LocatedContent
from weft.dialects.requests.unknown_fields import (
    encode_with_extra,
    report_dropped_extras,
    report_unsupported_item,
)
from weft.parts import Json
from weft.request import (
    AnyContent,
    Cache,
    CallContent,
    FileContent,
    ImageContent,
    OpaqueContent,
    ReasoningContent,
    ResultContent,
    TextContent,
)

_EXECUTED_TYPES = frozenset({"server_tool_use", "mcp_tool_use"})
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml")
_PDF_BASE64 = "JVBERi"
_json = msgspec.json.Encoder().encode


class BlockRenderer:
    """Renders the contents of one request."""

    def __init__(
        self, context: Context, losses: Losses, names: ToolNameMap, *, native: bool
    ) -> None:
        """`native`: the request came in this dialect."""
        self._losses = losses
        self._names = names
        self._native = native
        self._quirks = quirks_of(context)
        self._origins = accepted_origins(context, NAME, native=native)
        self._call_ids = NameSanitizer(ID_LETTERS, ID_LIMIT)

    def render(self, placed: LocatedContent, role: str) -> Raw | None:
        """Returns a block, or None if the content is not sent; the losses say why."""
        return _RENDERERS[type(placed.content)](self, placed.path, placed.content, role)

    def _cache_control(self, cache: Cache | None, path: str) -> Json:
        return schema.render_cache_control(cache, path, self._losses, ttl=self._quirks.cache_ttl)

    def _with_extra(self, block: msgspec.Struct, extra: Json, path: str) -> Raw:
        if self._native:
            return encode_with_extra(block, extra, schema.NESTED)
        report_dropped_extras(extra, path, self._losses, NAME)
        return Raw(large_json.write(block))

    def _text(self, path: str, content: TextContent, role: str) -> Raw | None:
        if self._native:
            search_result = fields_of(content.extra).get("search_result")
            if search_result:
                return search_result
        else:
            if content.refusal:
                self._losses.warned(f"{path}.refusal", "a refusal is sent as text")
            # Vendor documentation: a text block must not be empty.
            if not content.text.strip():
                if content != TextContent(""):
                    self._losses.adapted(path, "blank text is left out")
                return None
        cache_control = self._cache_control(content.cache, path)
        return self._with_extra(
            schema.TextBlockParam(content.text, cache_control), content.extra, path
        )

    def _image(self, path: str, content: ImageContent, role: str) -> Raw | None:
        source: schema.ImageSource | None = None
        if content.data is None:
            source = self._remote_source(path, content)
        elif content.media_type in schema.IMAGE_TYPES or self._native:
            source = schema.Base64Source(content.media_type or "", content.data)
        else:
            media_type = content.media_type or "unknown type"
            self._losses.refused(path, f"{media_type}: send jpeg, png, gif or webp")
        if source is None:
            return None
        if content.detail not in (None, "auto"):
            self._losses.warned(f"{path}.detail", f"dropped: {NAME} has no equivalent")
        cache_control = self._cache_control(content.cache, path)
        return self._with_extra(schema.ImageBlockParam(source, cache_control), content.extra, path)

    def _file(self, path: str, content: FileContent, role: str) -> Raw | None:
        media_type = content.media_type or ""
        if media_type.startswith("image/") and not self._native:
            image = ImageContent(
                content.media_type,
                content.data,
                content.url,
                content.file_id,
                cache=content.cache,
                extra=content.extra,
            )
            return self._image(path, image, role)
        source: schema.DocumentSource | None
        if content.data is None:
            source = self._remote_source(path, content)
        else:
            source = self._document_source(path, content.data, media_type)
        if source is None:
            return None
        cache_control = self._cache_control(content.cache, path)
        block = schema.DocumentBlockParam(source, content.filename, cache_control)
        return self._with_extra(block, content.extra, path)

    def _remote_source(
        self, path: str, content: ImageContent | FileContent
    ) -> schema.UrlSource | schema.FileSource | None:
        if content.url is not None:
            if content.media_type is not None:
                detail = "left out: the host reads the type when it fetches the URL"
                self._losses.adapted(f"{path}.media_type", detail)
            return schema.UrlSource(content.url)
        if content.file_id is not None and self._native:
            return schema.FileSource(content.file_id)
        self._losses.refused(path, "a file id of another upstream; send the bytes instead")
        return None

    def _document_source(
        self, path: str, data: str, media_type: str
    ) -> schema.DocumentSource | None:
        if media_type == schema.PDF or (not media_type and data.startswith(_PDF_BASE64)):
            return schema.Base64Source(schema.PDF, data)
        if media_type.startswith(_TEXT_TYPES):
            try:
                text = b64decode(data, validate=True).decode()
            except ValueError:
                pass
            else:
                if media_type != schema.PLAIN_TEXT:
                    detail = f"{media_type} is sent as plain text"
                    self._losses.adapted(f"{path}.media_type", detail)
                return schema.PlainTextSource(text)
        if self._native:
            return schema.Base64Source(media_type, data)
        self._losses.refused(path, f"{media_type or 'unknown type'}: send a PDF or text")
        return None

    def _reasoning(self, path: str, content: ReasoningContent, role: str) -> Raw | None:
        own = content.origin in self._origins
        if own and content.redacted is not None:
            block = schema.RedactedThinkingBlockParam(content.redacted)
            return self._with_extra(block, content.extra, path)
        signed = own and content.signature and content.encrypted is None
        unsigned = content.origin is None and self._native and self._quirks.unsigned_thinking
        if signed or unsigned:
            thinking = schema.ThinkingBlockParam(content.text, content.signature)
            return self._with_extra(thinking, content.extra, path)
        whose = f"of {content.origin}" if content.origin else "without a signature"
        self._losses.warned(path, f"dropped: reasoning {whose}")
        return None

    def _tool_use(self, path: str, content: CallContent, role: str) -> Raw | None:
        if content.provider_executed:
            if self._native and content.kind in _EXECUTED_TYPES:
                params = Raw(content.params.encode())
                block = schema.ToolUseBlockParam(content.kind, content.id, content.name, params)
                return self._with_extra(block, content.extra, path)
            self._losses.warned(path, f"dropped: {content.kind} that another upstream ran")
            return None
        if content.kind not in ("function", "custom"):
            self._losses.refused(path, f"calls of kind {content.kind} are not available on {NAME}")
            return None
        if content.signature is not None:
            self._losses.adapted(f"{path}.signature", "left out: it is for another upstream")
        if content.item_id is not None:
            self._losses.adapted(f"{path}.item_id", f"left out: {NAME} has no item ids")
        name = self._names.rename(content.name, content.namespace, path)
        params = arguments_object(content, path, self._losses)
        block = schema.ToolUseBlockParam("tool_use", self._call_id(content.id, path), name, params)
        return self._with_extra(block, content.extra, path)

    def _tool_result(self, path: str, content: ResultContent, role: str) -> Raw | None:
        if role == "assistant" and not self._native:
            self._losses.warned(path, "dropped: the result of a tool that another upstream ran")
            return None
        block = schema.ToolResultBlockParam(
            self._call_id(content.id, path),
            self._result_content(path, content),
            content.is_error or None,
            self._cache_control(content.cache, path),
        )
        return self._with_extra(block, content.extra, path)

    def _result_content(self, path: str, content: ResultContent) -> str | list[Raw] | None:
        if self._native and "content" in fields_of(content.extra):
            return None  # `extra` has the whole list
        if plain := single_text(list(content.content)):
            return plain.text or None
        blocks = [
            self.render(LocatedContent(f"{path}.content[{index}]", part), "user")
            for index, part in enumerate(content.content)
        ]
        return [block for block in blocks if block is not None] or None

    def _opaque(self, path: str, content: OpaqueContent, role: str) -> Raw | None:
        if content.origin in self._origins:
            return content.raw
        report_unsupported_item(content, path, self._losses, NAME, ours=role == "assistant")
        return None

    def _call_id(self, id: str, path: str) -> str:
        """The id in the characters this API allows, the same for a call and its result."""
        spelled = self._call_ids.sanitize(id)
        if spelled != id:
            self._losses.adapted(f"{path}.id", f"{id} is sent as {spelled}")
        return spelled


def single_text(contents: list[AnyContent]) -> TextContent | None:
    """The only content, if it is a text that can be a plain string instead of a block."""
    match contents:
        case [TextContent(refusal=False, cache=None) as text] if text.extra is UNSET:
            return text
    return None


_RENDERERS: dict[type, Callable[..., Raw | None]] = {
    TextContent: BlockRenderer._text,
    ImageContent: BlockRenderer._image,
    FileContent: BlockRenderer._file,
    ReasoningContent: BlockRenderer._reasoning,
    CallContent: BlockRenderer._tool_use,
    ResultContent: BlockRenderer._tool_result,
    OpaqueContent: BlockRenderer._opaque,
}
