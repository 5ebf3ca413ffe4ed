"""Renders message contents as content blocks.

Content that this API cannot represent is a loss: an unsupported image type is refused, a signature
of another origin dropped.
"""

from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.anthropic_messages.quirks import quirks_of
from weft.dialects.anthropic_messages.requests import schema
from weft.dialects.anthropic_messages.wire import ID_LETTERS, ID_LIMIT, NAME
from weft.dialects.requests.codec import Losses, accepted_origins
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

S = TypeVar("S", bound=schema.DocumentSource)

# Documents are PDF or plain text. These are text, whatever their type says.
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml")
# `%PDF-` in base64, as far as it does not depend on what follows.
_PDF_BASE64 = "JVBERi"


class BlockRenderer:
    """Renders the contents of one request that came in another dialect."""

    def __init__(self, context: Context, losses: Losses, names: ToolNameMap) -> None:
        self._losses = losses
        self._names = names
        self._quirks = quirks_of(context)
        # A signature is checked by whoever made it, and fails anywhere else.
        self._origins = accepted_origins(context, NAME, native=False)
        self._call_ids = NameSanitizer(ID_LETTERS, ID_LIMIT)
        # Bound methods, so that the subclass for passthrough overrides single kinds of content.
        self._renderers: dict[type, Callable[[str, Any, str], schema.Encodable | None]] = {
            TextContent: self.text,
            ImageContent: self.image,
            FileContent: self.file,
            ReasoningContent: self.reasoning,
            CallContent: self.tool_use,
            ResultContent: self.tool_result,
            OpaqueContent: self.opaque,
        }

    def render(self, located: LocatedContent, role: str) -> schema.Encodable | None:
        """Returns a block, or None if the content is not sent; the losses say why."""
        return self._renderers[type(located.content)](located.path, located.content, role)

    def kept_extra(self, extra: Json, path: str) -> Json:
        """The unknown keys of a message or content that are sent: those of this dialect."""
        report_dropped_extras(extra, path, self._losses, NAME)
        return UNSET

    def other_source(self, path: str, source: S, supported: str) -> S | None:
        """A source of an image or document that not every host of this API accepts."""
        self._losses.refused(path, supported)
        return None

    def _encode(self, block: msgspec.Struct, extra: Json, path: str) -> schema.Encodable:
        if extra is UNSET:
            return block
        return encode_with_extra(block, self.kept_extra(extra, path), schema.NESTED)

    def _cache_control(self, cache: Cache | None, path: str) -> Json:
        if cache is None:
            return UNSET
        return schema.render_cache_control(cache, path, self._losses, ttl=self._quirks.cache_ttl)

    def text(self, path: str, content: TextContent, role: str) -> schema.Encodable | None:
        if content.refusal:
            self._losses.warned(f"{path}.refusal", "a refusal is sent as text")
        # Vendor documentation: a text block must not be empty.
        if not content.text.strip():
            if content != TextContent(""):
                self._losses.adapted(path, "blank text is left out")
            return None
        if content.cache is None and content.extra is UNSET:  # nearly always
            return schema.TextBlockParam(content.text)
        block = schema.TextBlockParam(content.text, self._cache_control(content.cache, path))
        return self._encode(block, content.extra, path)

    # Images and documents

    def image(self, path: str, content: ImageContent, role: str) -> schema.Encodable | None:
        source: schema.ImageSource | None
        if content.data is None:
            source = self._remote_source(path, content)
        else:
            source = schema.Base64Source(content.media_type or "", content.data)
            if content.media_type not in schema.IMAGE_TYPES:
                detail = f"{content.media_type or 'unknown type'}: send jpeg, png, gif or webp"
                source = self.other_source(path, source, detail)
        if source is None:
            return None
        # The API scales images itself.
        if content.detail not in (None, "auto"):
            self._losses.dropped(f"{path}.detail", NAME)
        block = schema.ImageBlockParam(source, self._cache_control(content.cache, path))
        return self._encode(block, content.extra, path)

    def file(self, path: str, content: FileContent, role: str) -> schema.Encodable | None:
        # Dialects with one kind of part for all media have images as files.
        if not (content.media_type or "").startswith("image/"):
            return self._document(path, content)
        image = ImageContent(
            content.media_type,
            content.data,
            content.url,
            content.file_id,
            cache=content.cache,
            extra=content.extra,
        )
        return self.image(path, image, role)

    def _document(self, path: str, content: FileContent) -> schema.Encodable | None:
        source: schema.DocumentSource | None
        if content.data is None:
            source = self._remote_source(path, content)
        else:
            source = self._document_source(path, content.data, content.media_type or "")
        if source is None:
            return None
        cache_control = self._cache_control(content.cache, path)
        block = schema.DocumentBlockParam(source, content.filename, cache_control)
        return self._encode(block, content.extra, path)

    def _remote_source(
        self, path: str, content: ImageContent | FileContent
    ) -> schema.UrlSource | schema.FileSource | None:
        if content.url is None:
            detail = "a file id of another upstream; send the bytes instead"
            return self.other_source(path, schema.FileSource(content.file_id or ""), detail)
        if content.media_type is not None:
            detail = "left out: the host reads the type when it fetches the URL"
            self._losses.adapted(f"{path}.media_type", detail)
        return schema.UrlSource(content.url)

    def _document_source(
        self, path: str, data: str, media_type: str
    ) -> schema.DocumentSource | None:
        if media_type == schema.PDF or (not media_type and data.startswith(_PDF_BASE64)):
            return schema.Base64Source(schema.PDF, data)
        if media_type.startswith(_TEXT_TYPES):
            try:
                # Not base64, or not UTF-8: then it is not the text that its type says.
                text = b64decode(data, validate=True).decode()
            except ValueError:
                pass
            else:
                if media_type != schema.PLAIN_TEXT:
                    detail = f"{media_type} is sent as plain text"
                    self._losses.adapted(f"{path}.media_type", detail)
                return schema.PlainTextSource(text)
        detail = f"{media_type or 'unknown type'}: send a PDF or text"
        return self.other_source(path, schema.Base64Source(media_type, data), detail)

    # Reasoning, calls and results

    def reasoning(self, path: str, content: ReasoningContent, role: str) -> schema.Encodable | None:
        own = content.origin in self._origins
        # Blocks go back exactly as they came, empty text included: the signature covers them.
        if own and content.redacted is not None:
            block = schema.RedactedThinkingBlockParam(content.redacted)
            return self._encode(block, content.extra, path)
        if own and content.signature and content.encrypted is None:
            thinking = schema.ThinkingBlockParam(content.text, content.signature)
            return self._encode(thinking, content.extra, path)
        # Never as text: the model would read another's thoughts as what it said to the user.
        whose = f"of {content.origin}" if content.origin else "without a signature"
        self._losses.warned(path, f"dropped: reasoning {whose}")
        return None

    def tool_use(self, path: str, content: CallContent, role: str) -> schema.Encodable | None:
        # Server tools of other vendors have no block here.
        if content.provider_executed:
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
        return self._encode(block, content.extra, path)

    def tool_result(self, path: str, content: ResultContent, role: str) -> schema.Encodable | None:
        if role == "assistant":
            self._losses.warned(path, "dropped: the result of a tool that another upstream ran")
            return None
        return self._tool_result(path, content, content.content)

    def _tool_result(
        self, path: str, result: ResultContent, contents: Sequence[AnyContent]
    ) -> schema.Encodable:
        id = self._call_id(result.id, path)
        rendered: str | list[Raw]
        if plain := single_text(contents):
            rendered = plain.text
        else:
            blocks = [
                self.render(LocatedContent(f"{path}.content[{index}]", content), "user")
                for index, content in enumerate(contents)
            ]
            rendered = schema.to_raw([block for block in blocks if block is not None])
        block = schema.ToolResultBlockParam(
            id,
            rendered or None,
            result.is_error or None,
            self._cache_control(result.cache, path),
        )
        return self._encode(block, result.extra, path)

    def opaque(self, path: str, content: OpaqueContent, role: str) -> schema.Encodable | None:
        if content.origin in self._origins:
            return content.raw
        report_unsupported_item(content, path, self._losses, NAME, ours=role == "assistant")
        return None

    def _call_id(self, id: str, path: str) -> str:
        """The id in the characters this API allows, the same for a call and its result."""
        # One sanitizer for all blocks: two ids that differ only in forbidden characters stay two.
        spelled = self._call_ids.sanitize(id)
        if spelled != id:
            self._losses.adapted(f"{path}.id", f"{id} is sent as {spelled}")
        return spelled


def single_text(contents: Sequence[AnyContent]) -> TextContent | None:
    """The only content, if it is a text that can be a plain string instead of a block."""
    match contents:
        case [TextContent(refusal=False, cache=None) as text] if text.extra is UNSET:
            return text
    return None
