"""Parses the parts of a content. Parts of unknown kinds are kept unparsed.

A function response without an id answers the first open call of its name.
"""

import re

import msgspec
from msgspec import Raw

from weft.context import Context
from weft.dialects.envelope import is_envelope, restore_reasoning, unwrap, with_signature
from weft.dialects.gemini.requests import schema
from weft.dialects.gemini.wire import NAME
from weft.dialects.requests.codec import SourcePaths
from weft.dialects.requests.fields import fields_of, is_json_object
from weft.dialects.requests.unknown_fields import UNPARSED_RESULT_PARTS, collect
from weft.errors import BadRequest
from weft.parts import Json
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

_METADATA_KEYS = frozenset({"partMetadata", "videoMetadata"})
"""Unknown keys of a part that are not a payload."""

_DETAILS = {
    "MEDIA_RESOLUTION_LOW": "low",
    "MEDIA_RESOLUTION_HIGH": "high",
    "MEDIA_RESOLUTION_ULTRA_HIGH": "original",
}
_PRIVATE_URI = re.compile(r"(?!https?://)|https?://[^/]+/v\d\w*/files/")
"""URIs that only the host can open: its own file store, or a bucket."""

_SIGNATURE = "thoughtSignature"
_json = msgspec.json.Encoder().encode


class PartParser:
    """Parses the contents of one request in order, and remembers the calls without a result."""

    def __init__(self, context: Context, places: SourcePaths) -> None:
        self._origin = context.origin or NAME
        self._ids = context.ids
        self._places = places
        self._open_calls: list[CallContent] = []
        self.foreign_signature = False
        """Whether the last content carried a wrapped signature of another origin."""

    def parse(self, parts: Json, path: str, canonical: str) -> tuple[AnyContent, ...]:
        """Returns the contents of one message, and adds their places."""
        self.foreign_signature = False
        contents: list[AnyContent] = []
        for index, raw in enumerate(schema.parse_list(parts, f"{path}.parts")):
            part_path = f"{path}.parts[{index}]"
            for content in self._parse_part(raw, part_path):
                empty = isinstance(content, ReasoningContent) and not content.text
                if empty and self.foreign_signature:
                    text = _pop_unsigned_reasoning(contents)
                    content = msgspec.structs.replace(content, text=text)
                self._places.add(f"{canonical}.content[{len(contents)}]", part_path)
                contents.append(content)
        return tuple(contents)

    def _parse_part(self, raw: Raw, path: str) -> list[AnyContent]:
        part, unknown = schema.parse_object(raw, schema.RequestPart, path)
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
        if part.thought or part.text == "":
            return [reasoning]
        return [reasoning, self._parse_payload(Raw(_json(fields)), unsigned, unknown, path)]

    def _parse_payload(
        self, raw: Raw, part: schema.RequestPart, unknown: dict[str, Raw], path: str
    ) -> AnyContent:
        fields = {
            "functionCall": schema.non_null(part.function_call),
            "functionResponse": schema.non_null(part.function_response),
            "inlineData": schema.non_null(part.inline_data),
            "fileData": schema.non_null(part.file_data),
        }
        payloads = {key: value for key, value in fields.items() if value is not None}
        kinds = [*payloads, *(["text"] if part.text is not None else [])]
        if len(kinds) > 1:
            raise BadRequest(path, f"a part has one payload, not {' and '.join(kinds)}")
        if not kinds:
            others = [key for key in unknown if key not in _METADATA_KEYS]
            return OpaqueContent(NAME, others[0] if others else "part", raw)
        for key, payload in payloads.items():
            return _PARSERS[key](self, payload, part, unknown, f"{path}.{key}")
        text, resolution = part.text or "", _resolution(part)
        if not part.thought:
            return TextContent(text, extra=collect(_part_extra(part), resolution, unknown))
        signature = part.thought_signature
        return ReasoningContent(
            text,
            "summary",
            signature=signature,
            origin=self._origin if signature else None,
            extra=collect(unknown, resolution),
        )

    def _function_call(
        self, raw: Raw, part: schema.RequestPart, unknown: dict[str, Raw], path: str
    ) -> AnyContent:
        call, rest = schema.parse_nested(raw, schema.RequestFunctionCall, path, "functionCall")
        args = schema.non_null(call.args)
        if args is not None and not is_json_object(args):
            raise BadRequest(f"{path}.args", "expected an object")
        part_extra = _part_extra(part)
        part_extra.pop(_SIGNATURE, None)
        content = CallContent(
            call.id or self._ids.local(schema.GENERATED_ID),
            call.name,
            "{}" if args is None else bytes(args).decode(),
            signature=part.thought_signature,
            origin=self._origin if part.thought_signature else None,
            extra=collect(unknown, rest, part_extra, _resolution(part)),
        )
        self._open_calls.append(content)
        return content

    def _function_response(
        self, raw: Raw, part: schema.RequestPart, unknown: dict[str, Raw], path: str
    ) -> AnyContent:
        result, rest = schema.parse_nested(
            raw, schema.RequestFunctionResponse, path, "functionResponse"
        )
        response = schema.non_null(result.response) or Raw(b"{}")
        if not is_json_object(response):
            raise BadRequest(f"{path}.response", "expected an object")
        text, is_error = _parse_response(response)
        raw_parts = schema.parse_list(result.parts, f"{path}.parts")
        media: list[ImageContent | FileContent] = []
        for index, raw_part in enumerate(raw_parts):
            part_path = f"{path}.parts[{index}]"
            inner, inner_unknown = schema.parse_object(raw_part, schema.RequestPart, part_path)
            content = self._parse_payload(raw_part, inner, inner_unknown, part_path)
            if isinstance(content, ImageContent | FileContent):
                media.append(content)
        if len(media) < len(raw_parts) and isinstance(result.parts, Raw):
            rest[UNPARSED_RESULT_PARTS] = (
                result.parts
            )  # some have no canonical content: all are kept
        return ResultContent(
            self._close_call(result),
            (*text, *media),
            name=result.name,
            is_error=is_error,
            extra=collect(unknown, rest, _part_extra(part), _resolution(part)),
        )

    def _close_call(self, result: schema.RequestFunctionResponse) -> str:
        """Returns the id of the call that this result answers."""
        if result.id is not None:
            matching = [call for call in self._open_calls if call.id == result.id]
        else:
            matching = [call for call in self._open_calls if call.name == result.name]
        if not matching:
            return result.id or ""
        self._open_calls.remove(matching[0])
        return matching[0].id

    def _inline_data(
        self, raw: Raw, part: schema.RequestPart, unknown: dict[str, Raw], path: str
    ) -> AnyContent:
        blob, rest = schema.parse_nested(raw, schema.RequestBlob, path, "inlineData")
        return _media(part, unknown | rest, blob.mime_type, blob.display_name, data=blob.data)

    def _file_data(
        self, raw: Raw, part: schema.RequestPart, unknown: dict[str, Raw], path: str
    ) -> AnyContent:
        file, rest = schema.parse_nested(raw, schema.RequestFileData, path, "fileData")
        private = _PRIVATE_URI.match(file.file_uri) is not None
        return _media(
            part,
            unknown | rest,
            file.mime_type,
            file.display_name,
            url=None if private else file.file_uri,
            file_id=file.file_uri if private else None,
        )


_PARSERS = {
    "functionCall": PartParser._function_call,
    "functionResponse": PartParser._function_response,
    "inlineData": PartParser._inline_data,
    "fileData": PartParser._file_data,
}


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


def _part_extra(part: schema.RequestPart) -> dict[str, Raw]:
    """The fields of a part that canonical content does not have."""
    extra: dict[str, Raw] = {}
    if part.thought_signature is not None:
        extra[_SIGNATURE] = Raw(_json(part.thought_signature))
    if part.thought:
        extra["thought"] = Raw(b"true")
    return extra


def _resolution(part: schema.RequestPart) -> dict[str, Raw]:
    resolution = schema.non_null(part.media_resolution)
    return {} if resolution is None else {"mediaResolution": resolution}


def _media(
    part: schema.RequestPart,
    unknown: dict[str, Raw],
    media_type: str | None,
    name: str | None,
    *,
    data: str | None = None,
    url: str | None = None,
    file_id: str | None = None,
) -> ImageContent | FileContent:
    extra = unknown | _part_extra(part)
    if not (media_type or "").startswith("image/"):
        packed = collect(extra, _resolution(part))
        return FileContent(media_type, data, url, file_id, name, extra=packed)
    detail = _detail(part)
    if detail is None:
        extra |= _resolution(part)
    if name is not None:
        extra["inlineData.displayName" if data else "fileData.displayName"] = Raw(_json(name))
    return ImageContent(media_type, data, url, file_id, detail, extra=collect(extra))


def _detail(part: schema.RequestPart) -> str | None:
    """The canonical detail, if the resolution has only a known level."""
    resolution = schema.non_null(part.media_resolution)
    if resolution is None or not is_json_object(resolution):
        return None
    parsed, unknown = schema.parse_object(resolution, schema.MediaResolution)
    return None if unknown else _DETAILS.get(parsed.level or "")


def _parse_response(response: Raw) -> tuple[tuple[TextContent, ...], bool]:
    """The text of a result and whether it is an error: the string under `output` or `error`, if
    that is the only key; else the JSON of the whole object.
    """
    keys = fields_of(response)
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
