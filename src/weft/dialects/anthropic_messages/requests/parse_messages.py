"""The blocks of a message, read. A type that is not known here is kept as it is."""

from base64 import b64encode
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Raw

from weft.dialects.anthropic_messages.requests import schema
from weft.dialects.anthropic_messages.wire import NAME
from weft.dialects.asking.bridging import holds_envelope, is_object
from weft.dialects.asking.leftovers import kept, left
from weft.dialects.envelope import Sealed, opened, restored, with_proof
from weft.dialects.requests import read
from weft.errors import BadRequest
from weft.request import (
    AnyContent,
    CallContent,
    FileContent,
    ImageContent,
    OpaqueContent,
    ReasoningContent,
    ResultContent,
    TextContent,
)

Readable = TextContent | ImageContent | FileContent

_DIRECT = b'{"type":"direct"}'
_SPEAKERS = {
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "tool_use": "assistant",
    "server_tool_use": "assistant",
    "mcp_tool_use": "assistant",
    "tool_result": "user",
}
"""Blocks that only one side of a conversation can say."""


def contents(
    said: str | list[Raw], path: str, role: str, origin: str
) -> list[tuple[AnyContent, str]]:
    """What a message holds, and where; a text is one content. A block that carries the signature
    of a call is none.
    """
    if isinstance(said, str):
        return [(TextContent(said), f"{path}.content")]
    found: list[tuple[AnyContent, str]] = []
    proofs: dict[str, Sealed] = {}
    for place, raw in enumerate(said):
        where = f"{path}.content[{place}]"
        content = _content(raw, where, role, origin)
        if isinstance(content, Sealed):
            proofs[content.proof.call or ""] = content
        elif isinstance(content, CallContent) and content.id in proofs:
            found.append((with_proof(content, proofs[content.id]), where))
        else:
            found.append((content, where))
    return found


def sealed(said: str | list[Raw]) -> bool:
    """Whether a message carries a proof of another origin, which must not go out as it is."""
    blocks = [read(raw, schema.Proven) for raw in said] if isinstance(said, list) else []
    return any(holds_envelope(one.signature) or holds_envelope(one.data) for one in blocks)


def instruction(raw: Raw, path: str) -> AnyContent:
    """A block of the instructions: a text, or what only this wire understands."""
    kind = read(raw, schema.Typed, path).type
    return text(raw, path) if kind == "text" else _opaque(raw, kind)


def text(raw: Raw, path: str) -> TextContent:
    block = read(raw, schema.Text, path)
    cache, marks = schema.cached(block.cache_control, path)
    return TextContent(block.text, cache=cache, extra=kept(left(raw, schema.Text), marks))


def _content(raw: Raw, path: str, role: str, origin: str) -> AnyContent | Sealed:
    kind = read(raw, schema.Typed, path).type
    if _SPEAKERS.get(kind, role) != role:
        raise BadRequest(f"{path}.type", f"{kind} cannot be said by the {role}")
    reader = _READERS.get(kind)
    return reader(raw, path, origin) if reader else _opaque(raw, kind)


def _opaque(raw: Raw, kind: str) -> OpaqueContent:
    return OpaqueContent(NAME, kind, raw)


def _text(raw: Raw, path: str, origin: str) -> AnyContent:
    return text(raw, path)


def image(raw: Raw, path: str) -> ImageContent | None:
    """An image; None for one that comes from where nobody here knows."""
    if _source(raw, path) not in schema.IMAGE_SOURCES:
        return None
    block = read(raw, schema.Image, path)
    cache, marks = schema.cached(block.cache_control, path)
    extra = kept(left(raw, schema.Image), _beside(raw, type(block.source)), marks)
    source = block.source
    match source:
        case schema.Inline(media_type, data):
            return ImageContent(media_type, data, cache=cache, extra=extra)
        case schema.Linked(url):
            return ImageContent(url=url, cache=cache, extra=extra)
    return ImageContent(file_id=source.file_id, cache=cache, extra=extra)


def _image(raw: Raw, path: str, origin: str) -> AnyContent:
    return image(raw, path) or _opaque(raw, "image")


def _source(raw: Raw, path: str) -> str:
    source = read(raw, schema.Sourced, path).source
    return read(source, schema.Typed, f"{path}.source").type


def _beside(raw: Raw, shape: type[msgspec.Struct]) -> dict[str, Raw]:
    """What else a source says."""
    return left(read(raw, schema.Sourced).source, shape, under="source")


def document(raw: Raw, path: str) -> FileContent | None:
    """A file; None for a document that is made of blocks, or of what nobody here knows."""
    if _source(raw, path) not in schema.DOCUMENT_SOURCES:
        return None
    block = read(raw, schema.Document, path)
    cache, marks = schema.cached(block.cache_control, path)
    extra = kept(left(raw, schema.Document), _beside(raw, type(block.source)), marks)
    title, source = block.title, block.source
    match source:
        case schema.Inline(media_type, data):
            return FileContent(media_type, data, filename=title, cache=cache, extra=extra)
        case schema.Linked(url):
            return FileContent(url=url, filename=title, cache=cache, extra=extra)
        case schema.Plain(data, media_type):
            data = b64encode(data.encode()).decode()
            return FileContent(media_type, data, filename=title, cache=cache, extra=extra)
        case schema.Blocks():
            return None
    return FileContent(file_id=source.file_id, filename=title, cache=cache, extra=extra)


def _document(raw: Raw, path: str, origin: str) -> AnyContent:
    return document(raw, path) or _opaque(raw, "document")


def _search_result(raw: Raw, path: str, origin: str) -> AnyContent:
    return search_result(raw, path) or _opaque(raw, "search_result")


def search_result(raw: Raw, path: str) -> TextContent | None:
    """What was found, as a text that others can read too; None if it is to be cited."""
    block = read(raw, schema.SearchResult, path)
    if block.citations and block.citations.enabled:
        return None
    passages = "\n".join(passage.text for passage in block.content)
    return TextContent(
        f"{block.title}\n{block.source}\n{passages}", extra=kept({"search_result": raw})
    )


def _thought(raw: Raw, path: str, origin: str) -> AnyContent:
    block = read(raw, schema.Thought, path)
    extra = kept(left(raw, schema.Thought))
    envelope = opened(block.signature)
    if envelope is None:
        signer = origin if block.signature else None
        return ReasoningContent(
            block.thinking, signature=block.signature, origin=signer, extra=extra
        )
    return restored(envelope, block.thinking, "raw", extra)


def _redacted(raw: Raw, path: str, origin: str) -> AnyContent | Sealed:
    block = read(raw, schema.Redacted, path)
    envelope = opened(block.data)
    if envelope is None:
        extra = kept(left(raw, schema.Redacted))
        return ReasoningContent(redacted=block.data, origin=origin, extra=extra)
    return envelope if envelope.proof.call is not None else restored(envelope, "", "raw")


def _use(raw: Raw, path: str, origin: str) -> AnyContent:
    block = read(raw, schema.Use, path)
    if not is_object(block.input):
        raise BadRequest(f"{path}.input", "expected an object")
    executed = block.type != "tool_use"
    return CallContent(
        block.id,
        block.name,
        bytes(block.input).decode(),
        kind=block.type if executed else "function",
        provider_executed=executed,
        extra=kept(_without_direct(left(raw, schema.Use))),
    )


def _without_direct(beside: dict[str, Raw]) -> dict[str, Raw]:
    """Every call of a model says that the model made it: that is no news."""
    caller = beside.get("caller")
    if caller is not None and msgspec.json.format(bytes(caller), indent=-1) == _DIRECT:
        return {key: value for key, value in beside.items() if key != "caller"}
    return beside


def _result(raw: Raw, path: str, origin: str) -> AnyContent:
    block = read(raw, schema.Result, path)
    cache, marks = schema.cached(block.cache_control, path)
    extra = left(raw, schema.Result) | marks
    found: tuple[Readable, ...] = ()
    if isinstance(block.content, str):
        found = (TextContent(block.content),) if block.content else ()
    elif block.content:
        every = [_readable(one, f"{path}.content[{n}]") for n, one in enumerate(block.content)]
        found = tuple(one for one in every if one is not None)
        if len(found) < len(every):  # some have no canonical content: they go back as they were
            extra["content"] = Raw(_list(block.content))
    return ResultContent(
        block.tool_use_id,
        found,
        is_error=bool(block.is_error),
        cache=cache,
        extra=kept(extra),
    )


def _list(raws: Sequence[Raw]) -> bytes:
    return b"[" + b",".join(bytes(raw) for raw in raws) + b"]"


def _readable(raw: Raw, path: str) -> Readable | None:
    reader = _IN_RESULTS.get(read(raw, schema.Typed, path).type)
    return reader(raw, path) if reader else None


_READERS: dict[str, Callable[[Raw, str, str], AnyContent | Sealed]] = {
    "text": _text,
    "image": _image,
    "document": _document,
    "search_result": _search_result,
    "thinking": _thought,
    "redacted_thinking": _redacted,
    "tool_use": _use,
    "server_tool_use": _use,
    "mcp_tool_use": _use,
    "tool_result": _result,
}

_IN_RESULTS: dict[str, Callable[[Raw, str], Readable | None]] = {
    "text": text,
    "image": image,
    "document": document,
    "search_result": search_result,
}
