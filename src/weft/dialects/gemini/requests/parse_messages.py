"""Parses the parts of a content. Parts of unknown kinds are kept unparsed.

A function response without an id answers the first open call of its name.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from weft.context import Context
from weft.dialects.envelope import is_envelope, restore_reasoning, unwrap, with_signature
from weft.dialects.gemini import wire
from weft.dialects.gemini.requests import schema
from weft.dialects.gemini.wire import NAME
from weft.dialects.requests.codec import SourcePaths
from weft.dialects.requests.fields import fields_of, is_json_object
from weft.dialects.requests.unknown_fields import UNPARSED_RESULT_PARTS, collect
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

Unknown = dict[str, Raw]
"""Fields without a canonical one, by their path in the part."""

_METADATA_KEYS = frozenset({"partMetadata", "videoMetadata"})
"""Unknown keys of a part that are not a payload."""

_DETAILS = {
    "MEDIA_RESOLUTION_LOW": "low",
    "MEDIA_RESOLUTION_HIGH": "high",
    "MEDIA_RESOLUTION_ULTRA_HIGH": "original",
}
# `gs://…` and `https://…/v1beta/files/…`.
_PRIVATE_URI = re.compile(r"(?!https?://)|https?://[^/]+/v\d\w*/files/")
"""URIs that only the host can open: its own file store, or a bucket."""

_SIGNATURE, _THOUGHT, _RESOLUTION = "thoughtSignature", "thought", "mediaResolution"
_json = msgspec.json.Encoder().encode


class PartParser:
    """Parses the contents of one request in order, and remembers the calls without a result."""

    def __init__(self, context: Context, paths: SourcePaths) -> None:
        self._origin = context.origin or NAME
        self._ids = context.ids
        self._paths = paths
        self._open_calls: list[CallContent] = []
        self.foreign_signature = False
        """Whether the last content carried a wrapped signature of another origin."""

    def parse(self, parts: list[Raw] | None, path: str, canonical: str) -> tuple[AnyContent, ...]:
        """Returns the contents of one message, and adds their paths."""
        self.foreign_signature = False
        contents: list[AnyContent] = []
        for index, raw in enumerate(parts or ()):
            part_path = f"{path}.parts[{index}]"
            for content in self._parse_part(raw, part_path):
                # Our encoder writes a signature behind the text that it signs, in a part of its
                # own. The text in front of it belongs to the same reasoning.
                empty = isinstance(content, ReasoningContent) and not content.text
                if empty and self.foreign_signature:
                    text = _pop_unsigned_reasoning(contents)
                    content = msgspec.structs.replace(content, text=text)
                self._paths[f"{canonical}.content[{len(contents)}]"] = part_path
                contents.append(content)
        return tuple(contents)

    def _parse_part(self, raw: Raw, path: str) -> list[AnyContent]:
        part, unknown = schema.parse_object(raw, wire.GeminiPart, path)
        envelope = unwrap(part.thought_signature)
        if envelope is None:
            return [self._parse_payload(raw, part, unknown, path)]
        self.foreign_signature = True
        unsigned = msgspec.structs.replace(part, thought_signature=None)
        fields = {key: value for key, value in fields_of(raw).items() if not is_envelope(value)}
        if envelope.state.call is not None:
            payload = self._parse_payload(Raw(_json(fields)), unsigned, unknown, path)
            if isinstance(payload, CallContent):
                payload = with_signature(payload, envelope)
            return [payload]
        reasoning = restore_reasoning(envelope, part.text or "" if part.thought else "", "summary")
        # An envelope on a thought, or on an empty text, is that of a reasoning and nothing else. On
        # other content it is that of a reasoning before it.
        if part.thought or part.text == "":
            return [reasoning]
        return [reasoning, self._parse_payload(Raw(_json(fields)), unsigned, unknown, path)]

    def _parse_payload(
        self, raw: Raw, part: wire.GeminiPart, unknown: Unknown, path: str
    ) -> AnyContent:
        payloads = part.payloads()
        kinds = [_PARSERS[type(payload)][0] for payload in payloads]
        kinds += ["text"] if part.text is not None else []
        if len(kinds) > 1:
            # The API refuses it as well; which of them was meant is unknown.
            raise BadRequest(path, f"a part has one payload, not {' and '.join(kinds)}")
        if not kinds:
            others = [key for key in unknown if key not in _METADATA_KEYS]
            return OpaqueContent(NAME, others[0] if others else "part", raw)
        for payload in payloads:
            key, parse = _PARSERS[type(payload)]
            return parse(self, payload, part, unknown, f"{path}.{key}")
        if not part.thought:
            return TextContent(part.text or "", extra=collect(_metadata(part), unknown))
        signature = part.thought_signature
        return ReasoningContent(
            part.text or "",
            "summary",
            signature=signature,
            origin=self._origin if signature else None,
            extra=collect(unknown, _metadata(part, _SIGNATURE, _THOUGHT)),
        )

    def _function_call(
        self, call: wire.GeminiFunctionCall, part: wire.GeminiPart, unknown: Unknown, path: str
    ) -> CallContent:
        if call.name is None:
            raise schema.missing_field(path, "name")
        args = schema.non_null(call.args)
        if args is not None and not is_json_object(args):
            raise BadRequest(f"{path}.args", "expected an object")
        content = CallContent(
            # A local id, not sent back: it only connects the call with its result inside this
            # request.
            call.id or self._ids.local(schema.GENERATED_ID),
            call.name,
            "{}" if args is None else bytes(args).decode(),
            signature=part.thought_signature,
            origin=self._origin if part.thought_signature else None,
            extra=collect(unknown, _metadata(part, _SIGNATURE)),
        )
        self._open_calls.append(content)
        return content

    def _function_response(
        self,
        result: wire.GeminiFunctionResponse,
        part: wire.GeminiPart,
        unknown: Unknown,
        path: str,
    ) -> ResultContent:
        if result.name is None:
            raise schema.missing_field(path, "name")
        response = schema.non_null(result.response) or Raw(b"{}")
        if not is_json_object(response):
            raise BadRequest(f"{path}.response", "expected an object")
        text, is_error = _parse_response(response)
        media: list[ImageContent | FileContent] = []
        for index, raw in enumerate(result.parts or ()):
            inner_path = f"{path}.parts[{index}]"
            inner, inner_unknown = schema.parse_object(raw, wire.GeminiPart, inner_path)
            content = self._parse_payload(raw, inner, inner_unknown, inner_path)
            if isinstance(content, ImageContent | FileContent):
                media.append(content)
        if result.parts and len(media) < len(result.parts):
            # some have no canonical content: all are kept
            unknown |= {UNPARSED_RESULT_PARTS: Raw(_json(result.parts))}
        id = result.id
        # By id, else by name and then order: two calls of one function without ids are answered in
        # the order in which they were made.
        for call in self._open_calls:
            if call.name == result.name if id is None else call.id == id:
                self._open_calls.remove(call)
                id = call.id
                break
        return ResultContent(
            id or "",
            (*text, *media),
            name=result.name,
            is_error=is_error,
            extra=collect(unknown, _metadata(part)),
        )

    def _inline_data(
        self, blob: wire.GeminiBlob, part: wire.GeminiPart, unknown: Unknown, path: str
    ) -> AnyContent:
        if blob.mime_type is None or blob.data is None:
            raise schema.missing_field(path, "mimeType" if blob.mime_type is None else "data")
        return _media(part, unknown, blob.mime_type, blob.display_name, data=blob.data)

    def _file_data(
        self, file: wire.GeminiFileData, part: wire.GeminiPart, unknown: Unknown, path: str
    ) -> AnyContent:
        uri = file.file_uri
        if uri is None:
            raise schema.missing_field(path, "fileUri")
        if _PRIVATE_URI.match(uri):
            return _media(part, unknown, file.mime_type, file.display_name, file_id=uri)
        return _media(part, unknown, file.mime_type, file.display_name, url=uri)


_Parse = Callable[[PartParser, Any, wire.GeminiPart, Unknown, str], AnyContent]
_PARSERS: dict[type, tuple[str, _Parse]] = {
    wire.GeminiFunctionCall: ("functionCall", PartParser._function_call),
    wire.GeminiFunctionResponse: ("functionResponse", PartParser._function_response),
    wire.GeminiBlob: ("inlineData", PartParser._inline_data),
    wire.GeminiFileData: ("fileData", PartParser._file_data),
}
"""The key of each payload that requests have, and how it is parsed."""


def _pop_unsigned_reasoning(contents: list[AnyContent]) -> str:
    """Removes the unsigned reasoning at the end and returns its text: streams put the signature
    into a part of its own, after the text that it signs.
    """
    texts: list[str] = []
    while contents and isinstance(last := contents[-1], ReasoningContent):
        if last.signature or last.encrypted or last.redacted:
            break
        texts.insert(0, last.text)
        contents.pop()
    return "".join(texts)


def _metadata(part: wire.GeminiPart, *canonical: str) -> Unknown:
    """The fields about the payload of a part, without those that its content has a field for."""
    signature = part.thought_signature
    fields: dict[str, Raw | None] = {
        _SIGNATURE: None if signature is None else Raw(_json(signature)),
        _THOUGHT: Raw(b"true") if part.thought else None,
        _RESOLUTION: schema.non_null(part.media_resolution),
    }
    return {
        key: value for key, value in fields.items() if value is not None and key not in canonical
    }


def _media(
    part: wire.GeminiPart,
    unknown: Unknown,
    media_type: str | None,
    name: str | None,
    *,
    data: str | None = None,
    url: str | None = None,
    file_id: str | None = None,
) -> ImageContent | FileContent:
    if not (media_type or "").startswith("image/"):
        extra = collect(unknown, _metadata(part))
        return FileContent(media_type, data, url, file_id, name, extra=extra)
    detail = None
    resolution = schema.non_null(part.media_resolution)
    if resolution is not None and is_json_object(resolution):
        parsed, more = schema.parse_object(resolution, schema.MediaResolution)
        detail = None if more else _DETAILS.get(parsed.level or "")
    fields = unknown | _metadata(part, *([] if detail is None else [_RESOLUTION]))
    if name is not None:
        fields["inlineData.displayName" if data else "fileData.displayName"] = Raw(_json(name))
    return ImageContent(media_type, data, url, file_id, detail, extra=collect(fields))


def _parse_response(response: Raw) -> tuple[tuple[TextContent, ...], bool]:
    """The text of a result and whether it is an error: the string under `output` or `error`, if
    that is the only key; else the JSON of the whole object.
    """
    keys = fields_of(response)
    # API reference, FunctionResponse: `output` for the result, `error` for why there is none.
    is_error = "error" in keys
    if set(keys) in ({"output"}, {"error"}):
        try:
            text = msgspec.json.decode(next(iter(keys.values())), type=str)
        except ValueError:
            pass
        else:
            # A string that is itself a JSON object would be rendered as that object.
            if not is_json_object(text):
                return ((TextContent(text),) if text else ()), is_error
    return (TextContent(bytes(response).decode()),), is_error
