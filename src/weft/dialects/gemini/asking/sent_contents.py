"""What a message holds, written as parts.

What came in this dialect is written as it was. Of other dialects, a proof of another origin is
left out, and the first call of a step that nobody signed says so.
"""

from collections.abc import Callable

import msgspec
from msgspec import Raw

from weft import large_json
from weft.context import Context
from weft.dialects.asking.bridging import Names, arguments, is_object
from weft.dialects.asking.leftovers import UNSEEN_PARTS, drop_beside, unheard, written
from weft.dialects.asking.turns import Placed
from weft.dialects.asking.wording import plain_text
from weft.dialects.gemini.asking import asked
from weft.dialects.gemini.quirks import quirks_of
from weft.dialects.gemini.wire import NAME
from weft.dialects.requests import Losses, keys_of, origins
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

_LEVELS = {
    "low": "MEDIA_RESOLUTION_LOW",
    "high": "MEDIA_RESOLUTION_HIGH",
    "original": "MEDIA_RESOLUTION_ULTRA_HIGH",
}
_TYPES = {
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
_PDF_BASE64 = "JVBERi"
_PLAIN = "text/plain"
_Marked = TextContent | ImageContent | FileContent | ResultContent
_json = msgspec.json.Encoder().encode


class Parts:
    """Writes the contents of one request."""

    def __init__(self, context: Context, losses: Losses, names: Names, *, native: bool) -> None:
        self._losses = losses
        self._names = names
        self._native = native
        self._quirks = quirks_of(context)
        self._origins = origins(context, NAME, native=native)
        self._calls: dict[str, str] = {}
        """The names of the calls so far, by id: a result tells whose it is."""
        self._skips = False
        """Whether the next call without a signature needs a mark."""

    def content(self, contents: list[Placed], role: str) -> list[Raw]:
        """The parts of one turn. A turn of the model is one step."""
        self._skips = role == "assistant" and not self._native and self._quirks.signed_calls
        found = [one for placed in contents for one in self._parts(placed, role)]
        return found if self._quirks.result_media else [*found, *self._media(contents, role)]

    def _parts(self, placed: Placed, role: str) -> list[Raw]:
        content = placed.content
        part = _WRITERS[type(content)](self, placed.path, content, role)
        return [] if part is None else [part]

    def _with(self, part: asked.Part, extra: Json, path: str) -> Raw:
        """A part with what came beside it, if that is of this wire."""
        if self._native:
            return written(part, extra, asked.INNER)
        drop_beside(extra, path, self._losses, NAME)
        return Raw(large_json.write(part))

    def _uncached(self, content: _Marked, path: str) -> None:
        if content.cache is not None:
            self._losses.warned(f"{path}.cache", "left out: there are no cache marks here")

    def text(self, path: str, content: TextContent, role: str = "user") -> Raw | None:
        self._uncached(content, path)
        if not self._native:
            if content.refusal:
                self._losses.warned(f"{path}.refusal", "a refusal is sent as text")
            if not content.text:
                if content != TextContent(""):
                    self._losses.adapted(path, "text without words is left out")
                return None
        return self._with(asked.Part(content.text), content.extra, path)

    def image(self, path: str, content: ImageContent, role: str = "user") -> Raw | None:
        self._uncached(content, path)
        part = self._shown(path, content, content.media_type, None)
        if part is None:
            return None
        if content.detail in _LEVELS:
            part.media_resolution = Raw(_json({"level": _LEVELS[content.detail]}))
        elif content.detail not in (None, "auto"):
            self._losses.warned(f"{path}.detail", f"{content.detail} cannot be told here")
        return self._with(part, content.extra, path)

    def file(self, path: str, content: FileContent, role: str = "user") -> Raw | None:
        self._uncached(content, path)
        kind = content.media_type or _guessed(content.filename) or _guessed(content.url)
        if content.data is not None and kind is None and content.data.startswith(_PDF_BASE64):
            kind = _TYPES["pdf"]
        if kind == _PLAIN and content.data is not None and not self._native:
            return self._document(path, content)
        part = self._shown(path, content, kind, content.filename)
        if content.filename is not None and not self._native:
            self._losses.adapted(f"{path}.filename", "left out: files have no names here")
        return None if part is None else self._with(part, content.extra, path)

    def _document(self, path: str, content: FileContent) -> Raw | None:
        """A file of plain text is a text."""
        text = plain_text(content)
        if text is None:
            self._losses.refused(path, "is no text")
            return None
        self._losses.adapted(path, "a file of plain text is sent as text")
        titled = f"{content.filename}\n\n{text}" if content.filename else text
        return self._with(asked.Part(titled), content.extra, path)

    def _shown(
        self, path: str, content: ImageContent | FileContent, kind: str | None, name: str | None
    ) -> asked.Part | None:
        if content.data is not None and kind is not None:
            blob = asked.Blob(kind, content.data, name if self._native else None)
            return asked.Part(inline_data=Raw(_json(blob)))
        if content.data is not None:
            self._losses.refused(path, "the type of the data must be told here")
            return None
        address = content.url
        if address is not None and not (self._quirks.fetches or self._native):
            self._losses.refused(path, "the host fetches nothing; send the bytes")
            return None
        if address is None and self._native:
            address = content.file_id
        if address is None:
            self._losses.refused(path, "files of another upstream cannot be found; send the bytes")
            return None
        kind = kind or _guessed(address)
        if kind is None and isinstance(content, ImageContent):
            self._losses.warned(path, "nothing tells its type: it is sent as any file")
        if kind != content.media_type:
            self._losses.adapted(f"{path}.media_type", f"taken for {kind}, as its name tells")
        file = asked.FileData(address, kind, name if self._native else None)
        return asked.Part(file_data=Raw(_json(file)))

    def reasoning(self, path: str, content: ReasoningContent, role: str) -> Raw | None:
        own = content.origin in self._origins and content.encrypted is None
        if own and content.signature is not None:
            part = asked.Part(content.text, thought=True, thought_signature=content.signature)
            return self._with(part, content.extra, path)
        if content.origin is None and self._native:
            return self._with(asked.Part(content.text, thought=True), content.extra, path)
        self._skips = self._quirks.signed_calls
        foreign = content.origin is not None and content.origin not in self._origins
        whose = f"reasoning of {content.origin}" if foreign else "reasoning without a signature"
        self._losses.warned(path, f"dropped: {whose}")
        return None

    def call(self, path: str, content: CallContent, role: str) -> Raw | None:
        if content.provider_executed:
            self._losses.warned(path, f"{content.kind} of another upstream is left out")
            return None
        if content.kind not in ("function", "custom"):
            self._losses.refused(path, f"a call of kind {content.kind} cannot be told here")
            return None
        if content.item_id is not None:
            self._losses.adapted(f"{path}.item_id", "left out: items have no ids here")
        name = self._names.spell(content.name, content.namespace, path)
        self._calls[content.id] = name
        args = arguments(content, path, self._losses)
        call = asked.FunctionCall(name, _id(content.id), args)
        part = asked.Part(function_call=Raw(_json(call)))
        part.thought_signature = self._signature(path, content)
        self._skips = False
        return self._with(part, content.extra, path)

    def _signature(self, path: str, call: CallContent) -> str | None:
        """What signs a call, if it was signed here; else the mark, for the first one of a step."""
        if call.signature is not None and call.origin in self._origins:
            return call.signature
        if call.signature is not None:
            self._skips = self._quirks.signed_calls
        if self._skips:
            self._losses.adapted(f"{path}.signature", "nobody here signed this call; marked so")
            return asked.SKIP
        if call.signature is not None:
            self._losses.adapted(f"{path}.signature", f"left out: it is for {call.origin}")
        return None

    def result(self, path: str, content: ResultContent, role: str) -> Raw | None:
        if role == "assistant" and not self._native:
            self._losses.warned(path, "a result of another upstream's tool is left out")
            return None
        self._uncached(content, path)
        name = self._calls.get(content.id)
        if name is None:
            name = self._names.chosen(content.name or content.id, f"{path}.name")
        inside = None if UNSEEN_PARTS in keys_of(content.extra) else self._inside(path, content)
        told = asked.Responded(name, _id(content.id), self._response(path, content), inside)
        part = asked.Part(function_response=Raw(_json(told)))
        return self._with(part, content.extra, path)

    def _response(self, path: str, content: ResultContent) -> Raw:
        """What a tool said; JSON is told as such."""
        said: list[str] = []
        shown = False
        for place, one in enumerate(content.content):
            where = f"{path}.content[{place}]"
            text = one.text if isinstance(one, TextContent) else self._file_text(one)
            if text is None:
                shown = True
                continue
            if text and shown:
                detail = "what was said comes before what was shown"
                self._losses.adapted(f"{path}.content", detail)
            if isinstance(one, TextContent) and not self._native:
                self._uncached(one, where)
                drop_beside(one.extra, where, self._losses, NAME)
            elif isinstance(one, FileContent):
                self._losses.adapted(where, "a file of plain text is sent as text")
            if not text and one != TextContent("") and not self._native:
                self._losses.adapted(where, "text without words is left out")
            said += [text] if text or self._native else []
        if len(said) > 1:
            self._losses.adapted(f"{path}.content", "its texts are sent as one")
        return _responded("\n".join(said), is_error=content.is_error)

    def _file_text(self, one: ImageContent | FileContent) -> str | None:
        plain = isinstance(one, FileContent) and one.media_type == _PLAIN and not self._native
        return plain_text(one) if plain and isinstance(one, FileContent) else None

    def _inside(self, path: str, content: ResultContent) -> list[Raw] | None:
        """The images and files of a result."""
        if not self._quirks.result_media:
            return None
        return self._shown_in(path, content) or None

    def _shown_in(self, path: str, content: ResultContent) -> list[Raw]:
        found: list[Raw] = []
        for place, one in enumerate(content.content):
            if not isinstance(one, TextContent) and self._file_text(one) is None:
                found += self._parts(Placed(f"{path}.content[{place}]", one), "user")
        return found

    def _media(self, contents: list[Placed], role: str) -> list[Raw]:
        """What results show, behind all of them, for models that take only text inside."""
        found: list[Raw] = []
        for placed in contents:
            if isinstance(placed.content, ResultContent):
                shown = self._shown_in(placed.path, placed.content)
                if shown:
                    self._losses.adapted(f"{placed.path}.content", "shown behind the result")
                found += shown
        return found

    def opaque(self, path: str, content: OpaqueContent, role: str) -> Raw | None:
        if content.origin in self._origins:
            return content.raw
        unheard(content, path, self._losses, NAME, ours=role == "assistant")
        return None


def _responded(text: str, *, is_error: bool) -> Raw:
    if is_object(text) and (not is_error or "error" in keys_of(Raw(text.encode()))):
        return Raw(text.encode())
    return Raw(_json({"error" if is_error else "output": text}))


def _id(id: str) -> str | None:
    return None if asked.is_unnamed(id) else id


def _guessed(address: str | None) -> str | None:
    """The type that the end of an address or a name tells."""
    if address is None:
        return None
    return _TYPES.get(address.partition("?")[0].rpartition(".")[2].lower())


_WRITERS: dict[type, Callable[..., Raw | None]] = {
    TextContent: Parts.text,
    ImageContent: Parts.image,
    FileContent: Parts.file,
    ReasoningContent: Parts.reasoning,
    CallContent: Parts.call,
    ResultContent: Parts.result,
    OpaqueContent: Parts.opaque,
}
