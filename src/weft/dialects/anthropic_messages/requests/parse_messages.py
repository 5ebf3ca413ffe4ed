"""Parses the content blocks of a message. Blocks of unknown types are kept unparsed."""

from base64 import b64encode
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec import Raw

from weft import large_json
from weft.dialects.anthropic_messages.requests import schema
from weft.dialects.anthropic_messages.wire import NAME
from weft.dialects.envelope import Envelope, is_envelope, restore_reasoning, unwrap, with_signature
from weft.dialects.requests.fields import is_json_object, read_object
from weft.dialects.requests.unknown_fields import collect, remaining
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

# Responses have it on every call of the model, so clients send it back with each.
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


class ParsedBlocks(NamedTuple):
    """The contents of a message."""

    contents: list[AnyContent]
    paths: list[str]
    """The path of each content in the body."""

    holds_foreign_signature: bool
    """Whether there is a wrapped signature of another origin. The bytes of the message must not be
    sent upstream as they are."""


def parse_blocks(blocks: list[Raw], path: str, role: str, origin: str) -> ParsedBlocks:
    """Returns the contents of a message.

    A redacted_thinking block that only carries the signature of a call (see the encoder) becomes
    the signature of that call.
    """
    contents: list[AnyContent] = []
    paths: list[str] = []
    others: list[Raw] = []
    # By the id of the call, which follows its signature in the same message.
    signatures: dict[str, Envelope] = {}
    for index, raw in enumerate(blocks):
        block_path = f"{path}.content[{index}]"
        plain = _plain_content(raw, role)
        if plain is not None and not signatures:  # nearly always
            contents.append(plain)
            paths.append(block_path)
            continue
        others.append(raw)
        block_type = read_object(raw, schema.TypeField, block_path).type
        if _BLOCK_ROLES.get(block_type, role) != role:
            detail = f"{block_type} blocks are not allowed in {role} messages"
            raise BadRequest(f"{block_path}.type", detail)
        block: AnyContent | Envelope | None = None
        if block_type in _RESULT_PARSERS:
            block = _RESULT_PARSERS[block_type](raw, block_path)
        elif block_type in _PARSERS:
            block = _PARSERS[block_type](raw, block_path, origin)
        # Also where a parser found a variant that has no canonical content, such as an image by a
        # new kind of source.
        if block is None:
            block = _opaque(raw, block_type)
        if isinstance(block, Envelope):
            signatures[block.state.call or ""] = block
            continue
        if isinstance(block, CallContent) and block.id in signatures:
            block = with_signature(block, signatures[block.id])
        contents.append(block)
        paths.append(block_path)
    signed = [read_object(raw, schema.SignatureFields) for raw in others]
    is_foreign = any(is_envelope(one.signature) or is_envelope(one.data) for one in signed)
    return ParsedBlocks(contents, paths, is_foreign)


def _plain_content(raw: Raw, role: str) -> AnyContent | None:
    """Returns a block that has only the usual fields; None for any other, and for one that its role
    may not have.
    """
    try:
        block = _decode_plain(raw) if len(raw) <= large_json.LARGE else None
    except (ValueError, RecursionError):
        return None
    match block:
        case schema.PlainText(text):
            return TextContent(text)
        case schema.PlainToolUse(id, name, input) if role == "assistant" and is_json_object(input):
            return CallContent(id, name, bytes(input).decode())
        case schema.PlainToolResult(id, text, is_error) if role == "user":
            content = (TextContent(text),) if text else ()
            return ResultContent(id, content, is_error=bool(is_error))
    return None


_decode_plain = msgspec.json.Decoder[schema.PlainBlock](schema.PlainBlock).decode


def parse_system_block(raw: Raw, path: str) -> AnyContent:
    block_type = read_object(raw, schema.TypeField, path).type
    return _text(raw, path) if block_type == "text" else _opaque(raw, block_type)


def _opaque(raw: Raw, block_type: str) -> OpaqueContent:
    return OpaqueContent(NAME, block_type, raw)


# Blocks that a tool_result may hold too. None: there is no canonical content for this one.


def _text(raw: Raw, path: str) -> TextContent:
    block, cache, unknown = schema.read_cacheable(raw, schema.TextBlockParam, path)
    return TextContent(block.text, cache=cache, extra=collect(unknown))


def _read_source(raw: Raw, path: str) -> tuple[str, Raw]:
    """The type of a source, and the source."""
    source = read_object(raw, schema.SourceField, path).source
    return read_object(source, schema.TypeField, f"{path}.source").type, source


def _image(raw: Raw, path: str) -> ImageContent | None:
    source_type, source = _read_source(raw, path)
    if source_type not in schema.IMAGE_SOURCES:
        return None
    block, cache, unknown = schema.read_cacheable(raw, schema.ImageBlockParam, path)
    extra = collect(unknown, remaining(source, type(block.source), under="source"))
    match block.source:
        case schema.Base64Source(media_type, data):
            return ImageContent(media_type, data, cache=cache, extra=extra)
        case schema.UrlSource(url):
            return ImageContent(url=url, cache=cache, extra=extra)
    return ImageContent(file_id=block.source.file_id, cache=cache, extra=extra)


def _document(raw: Raw, path: str) -> FileContent | None:
    source_type, source = _read_source(raw, path)
    if source_type not in schema.DOCUMENT_SOURCES:
        return None
    block, cache, unknown = schema.read_cacheable(raw, schema.DocumentBlockParam, path)
    extra = collect(unknown, remaining(source, type(block.source), under="source"))
    title = block.title
    match block.source:
        case schema.Base64Source(media_type, data):
            return FileContent(media_type, data, filename=title, cache=cache, extra=extra)
        case schema.UrlSource(url):
            return FileContent(url=url, filename=title, cache=cache, extra=extra)
        # Canonical files hold base64, whatever they are.
        case schema.PlainTextSource(data, media_type):
            data = b64encode(data.encode()).decode()
            return FileContent(media_type, data, filename=title, cache=cache, extra=extra)
        case schema.ContentBlockSource():  # blocks for citations: this API alone has them
            return None
    return FileContent(file_id=block.source.file_id, filename=title, cache=cache, extra=extra)


def _search_result(raw: Raw, path: str) -> TextContent | None:
    """As text, which every target accepts; None if citations of it are enabled."""
    block = read_object(raw, schema.SearchResultBlockParam, path)
    # Citations need the block itself: as text it could not be cited.
    if block.citations and block.citations.enabled:
        return None
    passages = "\n".join(passage.text for passage in block.content)
    text = f"{block.title}\n{block.source}\n{passages}"
    return TextContent(text, extra=collect({"search_result": raw}))


_RESULT_PARSERS: dict[str, Callable[[Raw, str], ResultPart | None]] = {
    "text": _text,
    "image": _image,
    "document": _document,
    "search_result": _search_result,
}


# Other blocks


def _thinking(raw: Raw, path: str, origin: str) -> AnyContent:
    block = read_object(raw, schema.ThinkingBlockParam, path)
    extra = collect(remaining(raw, schema.ThinkingBlockParam))
    envelope = unwrap(block.signature)
    if envelope is not None:
        return restore_reasoning(envelope, block.thinking, "raw", extra)
    # Unsigned thinking is of a host that imitates the API; the vendor would refuse it.
    signer = origin if block.signature else None
    return ReasoningContent(block.thinking, signature=block.signature, origin=signer, extra=extra)


def _redacted_thinking(raw: Raw, path: str, origin: str) -> AnyContent | Envelope:
    block = read_object(raw, schema.RedactedThinkingBlockParam, path)
    envelope = unwrap(block.data)
    if envelope is None:
        extra = collect(remaining(raw, schema.RedactedThinkingBlockParam))
        return ReasoningContent(redacted=block.data, origin=origin, extra=extra)
    return envelope if envelope.state.call is not None else restore_reasoning(envelope, "", "raw")


def _tool_use(raw: Raw, path: str, origin: str) -> AnyContent:
    block = read_object(raw, schema.ToolUseBlockParam, path)
    # API reference: `input` is an object, unlike the string of the OpenAI dialects.
    if not is_json_object(block.input):
        raise BadRequest(f"{path}.input", "expected an object")
    extra = remaining(raw, schema.ToolUseBlockParam)
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
        extra=collect(extra),
    )


def _tool_result(raw: Raw, path: str, origin: str) -> AnyContent:
    block, cache, extra = schema.read_cacheable(raw, schema.ToolResultBlockParam, path)
    content: list[ResultPart] = []
    if isinstance(block.content, str):
        # API reference: the content of a result is optional.
        content = [TextContent(block.content)] if block.content else []
    elif block.content:
        for index, part in enumerate(block.content):
            part_path = f"{path}.content[{index}]"
            parser = _RESULT_PARSERS.get(read_object(part, schema.TypeField, part_path).type)
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
        extra=collect(extra),
    )


_PARSERS: dict[str, Callable[[Raw, str, str], AnyContent | Envelope]] = {
    "thinking": _thinking,
    "redacted_thinking": _redacted_thinking,
    "tool_use": _tool_use,
    "server_tool_use": _tool_use,
    "mcp_tool_use": _tool_use,
    "tool_result": _tool_result,
}
