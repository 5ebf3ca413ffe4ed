"""Parses the content blocks of a message. Blocks of unknown types are kept unparsed."""

from base64 import b64encode
from collections.abc import Callable

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

ResultPart = TextContent | ImageContent | FileContent

_DIRECT_CALLER = b'{"type":"direct"}'
_BLOCK_ROLES = {
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "tool_use": "assistant",
    "server_tool_use": "assistant",
    "mcp_tool_use": "assistant",
    "tool_result": "user",
}
"""Blocks that only one role may have."""


def parse_content(
    content: str | list[Raw], path: str, role: str, origin: str
) -> list[tuple[AnyContent, str]]:
    """Returns the contents of a message, each with its path in the body.

    A redacted_thinking block that only carries the signature of a call (see the encoder) becomes
    the signature of that call.
    """
    if isinstance(content, str):
        return [(TextContent(content), f"{path}.content")]
    parsed: list[tuple[AnyContent, str]] = []
    signatures: dict[str, Sealed] = {}
    for index, raw in enumerate(content):
        block_path = f"{path}.content[{index}]"
        block_type = read(raw, schema.TypeField, block_path).type
        if _BLOCK_ROLES.get(block_type, role) != role:
            detail = f"{block_type} blocks are not allowed in {role} messages"
            raise BadRequest(f"{block_path}.type", detail)
        block: AnyContent | Sealed | None = None
        if block_type in _RESULT_PARSERS:
            block = _RESULT_PARSERS[block_type](raw, block_path)
        elif block_type in _PARSERS:
            block = _PARSERS[block_type](raw, block_path, origin)
        if block is None:
            block = _opaque(raw, block_type)
        if isinstance(block, Sealed):
            signatures[block.proof.call or ""] = block
        elif isinstance(block, CallContent) and block.id in signatures:
            parsed.append((with_proof(block, signatures[block.id]), block_path))
        else:
            parsed.append((block, block_path))
    return parsed


def holds_foreign_signature(content: str | list[Raw]) -> bool:
    """Whether a message carries a wrapped signature of another origin. Its bytes must not be sent
    upstream as they are.
    """
    if isinstance(content, str):
        return False
    blocks = [read(raw, schema.SignatureFields) for raw in content]
    return any(holds_envelope(block.signature) or holds_envelope(block.data) for block in blocks)


def parse_system_block(raw: Raw, path: str) -> AnyContent:
    block_type = read(raw, schema.TypeField, path).type
    return _text(raw, path) if block_type == "text" else _opaque(raw, block_type)


def _opaque(raw: Raw, block_type: str) -> OpaqueContent:
    return OpaqueContent(NAME, block_type, raw)


# Blocks that a tool_result may hold too. None: there is no canonical content for this one.


def _text(raw: Raw, path: str) -> TextContent:
    block = read(raw, schema.TextBlockParam, path)
    cache, unknown = schema.parse_cache_control(block.cache_control, path)
    return TextContent(
        block.text, cache=cache, extra=kept(left(raw, schema.TextBlockParam), unknown)
    )


def _source_type(raw: Raw, path: str) -> str:
    source = read(raw, schema.SourceField, path).source
    return read(source, schema.TypeField, f"{path}.source").type


def _unknown_in_source(raw: Raw, shape: type[msgspec.Struct]) -> dict[str, Raw]:
    return left(read(raw, schema.SourceField).source, shape, under="source")


def _image(raw: Raw, path: str) -> ImageContent | None:
    if _source_type(raw, path) not in schema.IMAGE_SOURCES:
        return None
    block = read(raw, schema.ImageBlockParam, path)
    source = block.source
    cache, unknown = schema.parse_cache_control(block.cache_control, path)
    extra = kept(left(raw, schema.ImageBlockParam), _unknown_in_source(raw, type(source)), unknown)
    match source:
        case schema.Base64Source(media_type, data):
            return ImageContent(media_type, data, cache=cache, extra=extra)
        case schema.UrlSource(url):
            return ImageContent(url=url, cache=cache, extra=extra)
    return ImageContent(file_id=source.file_id, cache=cache, extra=extra)


def _document(raw: Raw, path: str) -> FileContent | None:
    if _source_type(raw, path) not in schema.DOCUMENT_SOURCES:
        return None
    block = read(raw, schema.DocumentBlockParam, path)
    title, source = block.title, block.source
    cache, unknown = schema.parse_cache_control(block.cache_control, path)
    extra = kept(
        left(raw, schema.DocumentBlockParam), _unknown_in_source(raw, type(source)), unknown
    )
    match source:
        case schema.Base64Source(media_type, data):
            return FileContent(media_type, data, filename=title, cache=cache, extra=extra)
        case schema.UrlSource(url):
            return FileContent(url=url, filename=title, cache=cache, extra=extra)
        case schema.PlainTextSource(data, media_type):
            data = b64encode(data.encode()).decode()
            return FileContent(media_type, data, filename=title, cache=cache, extra=extra)
        case schema.ContentBlockSource():
            return None
    return FileContent(file_id=source.file_id, filename=title, cache=cache, extra=extra)


def _search_result(raw: Raw, path: str) -> TextContent | None:
    """As text, which every target accepts; None if citations of it are enabled."""
    block = read(raw, schema.SearchResultBlockParam, path)
    if block.citations and block.citations.enabled:
        return None
    passages = "\n".join(passage.text for passage in block.content)
    text = f"{block.title}\n{block.source}\n{passages}"
    return TextContent(text, extra=kept({"search_result": raw}))


_RESULT_PARSERS: dict[str, Callable[[Raw, str], ResultPart | None]] = {
    "text": _text,
    "image": _image,
    "document": _document,
    "search_result": _search_result,
}


# Other blocks


def _thinking(raw: Raw, path: str, origin: str) -> AnyContent:
    block = read(raw, schema.ThinkingBlockParam, path)
    extra = kept(left(raw, schema.ThinkingBlockParam))
    envelope = opened(block.signature)
    if envelope is not None:
        return restored(envelope, block.thinking, "raw", extra)
    signer = origin if block.signature else None
    return ReasoningContent(block.thinking, signature=block.signature, origin=signer, extra=extra)


def _redacted_thinking(raw: Raw, path: str, origin: str) -> AnyContent | Sealed:
    block = read(raw, schema.RedactedThinkingBlockParam, path)
    envelope = opened(block.data)
    if envelope is None:
        extra = kept(left(raw, schema.RedactedThinkingBlockParam))
        return ReasoningContent(redacted=block.data, origin=origin, extra=extra)
    return envelope if envelope.proof.call is not None else restored(envelope, "", "raw")


def _tool_use(raw: Raw, path: str, origin: str) -> AnyContent:
    block = read(raw, schema.ToolUseBlockParam, path)
    if not is_object(block.input):
        raise BadRequest(f"{path}.input", "expected an object")
    extra = left(raw, schema.ToolUseBlockParam)
    caller = extra.get("caller")
    if caller is not None and msgspec.json.format(bytes(caller), indent=-1) == _DIRECT_CALLER:
        del extra["caller"]  # the default: every call that the model itself made has it
    executed = block.type != "tool_use"
    return CallContent(
        block.id,
        block.name,
        bytes(block.input).decode(),
        kind=block.type if executed else "function",
        provider_executed=executed,
        extra=kept(extra),
    )


def _tool_result(raw: Raw, path: str, origin: str) -> AnyContent:
    block = read(raw, schema.ToolResultBlockParam, path)
    cache, unknown = schema.parse_cache_control(block.cache_control, path)
    extra = left(raw, schema.ToolResultBlockParam) | unknown
    content: list[ResultPart] = []
    if isinstance(block.content, str):
        content = [TextContent(block.content)] if block.content else []
    elif block.content:
        for index, part in enumerate(block.content):
            part_path = f"{path}.content[{index}]"
            parser = _RESULT_PARSERS.get(read(part, schema.TypeField, part_path).type)
            parsed = parser(part, part_path) if parser else None
            if parsed is not None:
                content.append(parsed)
        if len(content) < len(block.content):  # the whole list is needed to send it back
            extra["content"] = Raw(b"[" + b",".join(map(bytes, block.content)) + b"]")
    return ResultContent(
        block.tool_use_id,
        tuple(content),
        is_error=bool(block.is_error),
        cache=cache,
        extra=kept(extra),
    )


_PARSERS: dict[str, Callable[[Raw, str, str], AnyContent | Sealed]] = {
    "thinking": _thinking,
    "redacted_thinking": _redacted_thinking,
    "tool_use": _tool_use,
    "server_tool_use": _tool_use,
    "mcp_tool_use": _tool_use,
    "tool_result": _tool_result,
}
