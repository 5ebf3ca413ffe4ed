"""What a message holds, written as blocks.

What came in this dialect is written as it was. Of other dialects, what this wire cannot hold is
a loss: an image of another format is refused, a proof of another origin is left out.
"""

from base64 import b64decode
from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.context import Context
from weft.dialects.anthropic_messages.asking import asked
from weft.dialects.anthropic_messages.quirks import quirks_of
from weft.dialects.anthropic_messages.wire import ID_LETTERS, ID_LIMIT, NAME
from weft.dialects.asking.bridging import Names, arguments
from weft.dialects.asking.leftovers import drop_beside, unheard, written
from weft.dialects.asking.turns import Placed
from weft.dialects.requests import Losses, Spelling, keys_of, origins
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

_EXECUTED = frozenset({"server_tool_use", "mcp_tool_use"})
_TEXTS = ("text/", "application/json", "application/xml", "application/yaml")
_PDF_BASE64 = "JVBERi"
_json = msgspec.json.Encoder().encode


class Blocks:
    """Writes the contents of one request."""

    def __init__(self, context: Context, losses: Losses, names: Names, *, native: bool) -> None:
        self._losses = losses
        self._names = names
        self._native = native
        self._quirks = quirks_of(context)
        self._origins = origins(context, NAME, native=native)
        self._ids = Spelling(ID_LETTERS, ID_LIMIT)

    def block(self, placed: Placed, role: str) -> Raw | None:
        """Returns a block, or None for what is not sent: the losses tell why."""
        content = placed.content
        writer = _WRITERS[type(content)]
        return writer(self, placed.path, content, role)

    def _cache(self, mark: Cache | None, path: str) -> Json:
        return asked.marked(mark, path, self._losses, ttl=self._quirks.cache_ttl)

    def _with(self, block: msgspec.Struct, extra: Json, path: str) -> Raw:
        """A block with what came beside it, if that is of this wire."""
        if self._native:
            return written(block, extra, asked.INNER)
        drop_beside(extra, path, self._losses, NAME)
        return Raw(large_json.write(block))

    def text(self, path: str, content: TextContent, role: str = "user") -> Raw | None:
        if content.refusal and not self._native:
            self._losses.warned(f"{path}.refusal", "a refusal is sent as text")
        if self._native and (whole := keys_of(content.extra).get("search_result")):
            return whole
        if not content.text.strip() and not self._native:
            if content != TextContent(""):
                self._losses.adapted(path, "text without words is left out")
            return None
        block = asked.Text(content.text, self._cache(content.cache, path))
        return self._with(block, content.extra, path)

    def image(self, path: str, content: ImageContent, role: str = "user") -> Raw | None:
        source = self._image_source(path, content)
        if source is None:
            return None
        if content.detail not in (None, "auto"):
            self._losses.warned(f"{path}.detail", "how closely to look cannot be told")
        block = asked.Image(source, self._cache(content.cache, path))
        return self._with(block, content.extra, path)

    def _image_source(self, path: str, content: ImageContent) -> asked.ImageSource | None:
        if content.data is not None:
            kind = content.media_type or ""
            if kind in asked.IMAGES or self._native:
                return asked.Inline(kind, content.data)
            self._losses.refused(path, f"{kind or 'its format'}: send jpeg, png, gif or webp")
        elif content.url is not None:
            self._untyped(path, content)
            return asked.Linked(content.url)
        elif content.file_id is not None and self._native:
            return asked.Stored(content.file_id)
        else:
            self._losses.refused(path, "files of another upstream cannot be found; send the bytes")
        return None

    def file(self, path: str, content: FileContent, role: str = "user") -> Raw | None:
        kind = content.media_type or ""
        if kind.startswith("image/") and not self._native:
            return self._image_file(path, content)
        source = self._document_source(path, content, kind)
        if source is None:
            return None
        block = asked.Document(source, content.filename, self._cache(content.cache, path))
        return self._with(block, content.extra, path)

    def _untyped(self, path: str, content: ImageContent | FileContent) -> None:
        if content.media_type is not None:
            self._losses.adapted(f"{path}.media_type", "left out: whoever fetches it will see")

    def _image_file(self, path: str, content: FileContent) -> Raw | None:
        shown = ImageContent(
            content.media_type,
            content.data,
            content.url,
            content.file_id,
            cache=content.cache,
            extra=content.extra,
        )
        return self.image(path, shown)

    def _document_source(
        self, path: str, content: FileContent, kind: str
    ) -> asked.DocumentSource | None:
        if content.data is not None:
            return self._document_data(path, content.data, kind)
        if content.url is not None:
            self._untyped(path, content)
            return asked.Linked(content.url)
        if content.file_id is not None and self._native:
            return asked.Stored(content.file_id)
        self._losses.refused(path, "files of another upstream cannot be found; send the bytes")
        return None

    def _document_data(self, path: str, data: str, kind: str) -> asked.DocumentSource | None:
        if kind == asked.PDF or (not kind and data.startswith(_PDF_BASE64)):
            return asked.Inline(asked.PDF, data)
        if kind.startswith(_TEXTS):
            text = _decoded(data)
            if text is not None:
                if kind != asked.PLAIN:
                    self._losses.adapted(f"{path}.media_type", f"{kind} is sent as plain text")
                return asked.Plain(text)
        if self._native:
            return asked.Inline(kind, data)
        self._losses.refused(path, f"{kind or 'a file of unknown type'}: send a PDF or text")
        return None

    def reasoning(self, path: str, content: ReasoningContent, role: str) -> Raw | None:
        own = content.origin in self._origins
        if own and content.redacted is not None:
            return self._with(asked.Redacted(content.redacted), content.extra, path)
        if own and content.signature and content.encrypted is None:
            block = asked.Thought(content.text, content.signature)
            return self._with(block, content.extra, path)
        if content.origin is None and self._native and self._quirks.unsigned_thinking:
            block = asked.Thought(content.text, content.signature)
            return self._with(block, content.extra, path)
        whose = (
            f"reasoning of {content.origin}" if content.origin else "reasoning without a signature"
        )
        self._losses.warned(path, f"dropped: {whose}")
        return None

    def call(self, path: str, content: CallContent, role: str) -> Raw | None:
        if content.provider_executed:
            return self._executed(path, content)
        if content.kind not in ("function", "custom"):
            self._losses.refused(path, f"a call of kind {content.kind} cannot be told here")
            return None
        if content.signature is not None:
            self._losses.adapted(f"{path}.signature", "left out: it is for another upstream")
        if content.item_id is not None:
            self._losses.adapted(f"{path}.item_id", "left out: items have no ids here")
        name = self._names.spell(content.name, content.namespace, path)
        input = arguments(content, path, self._losses)
        block = asked.Use("tool_use", self.id(content.id, path), name, input)
        return self._with(block, content.extra, path)

    def _executed(self, path: str, content: CallContent) -> Raw | None:
        if self._native and content.kind in _EXECUTED:
            params = Raw(content.params.encode())
            block = asked.Use(content.kind, content.id, content.name, params)
            return self._with(block, content.extra, path)
        self._losses.warned(path, f"{content.kind} of another upstream is left out")
        return None

    def result(self, path: str, content: ResultContent, role: str) -> Raw | None:
        if role == "assistant" and not self._native:
            self._losses.warned(path, "a result of another upstream's tool is left out")
            return None
        block = asked.Result(
            self.id(content.id, path),
            self._result_content(path, content),
            content.is_error or None,
            self._cache(content.cache, path),
        )
        return self._with(block, content.extra, path)

    def _result_content(self, path: str, content: ResultContent) -> str | list[Raw] | None:
        if self._native and "content" in keys_of(content.extra):
            return None  # it comes with the extra, as it was
        places = [
            Placed(f"{path}.content[{place}]", one) for place, one in enumerate(content.content)
        ]
        if plain := is_plain([one.content for one in places]):
            return plain.text or None
        found = [self.block(one, "user") for one in places]
        return [one for one in found if one is not None] or None

    def opaque(self, path: str, content: OpaqueContent, role: str) -> Raw | None:
        if content.origin in self._origins:
            return content.raw
        unheard(content, path, self._losses, NAME, ours=role == "assistant")
        return None

    def id(self, id: str, path: str) -> str:
        """A call id as this wire may spell it, the same for the call and its result."""
        spelled = self._ids.spell(id)
        if spelled != id:
            self._losses.adapted(f"{path}.id", f"{id} is sent as {spelled}")
        return spelled


def is_plain(contents: list[AnyContent]) -> TextContent | None:
    """The one text that is all there is, if it can be written without a block."""
    match contents:
        case [TextContent(refusal=False, cache=None) as text] if text.extra is UNSET:
            return text
    return None


def _decoded(data: str) -> str | None:
    try:
        return b64decode(data, validate=True).decode()
    except ValueError:
        return None


_WRITERS: dict[type, Callable[..., Raw | None]] = {
    TextContent: Blocks.text,
    ImageContent: Blocks.image,
    FileContent: Blocks.file,
    ReasoningContent: Blocks.reasoning,
    CallContent: Blocks.call,
    ResultContent: Blocks.result,
    OpaqueContent: Blocks.opaque,
}
