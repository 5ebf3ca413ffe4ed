"""The parts of a content, read. A kind that is not known here is kept as it is.

A result without an id answers the first open call of its name.
"""

import re

import msgspec
from msgspec import Raw

from weft.context import Context
from weft.dialects.asking.bridging import holds_envelope, is_object
from weft.dialects.asking.leftovers import UNSEEN_PARTS, kept
from weft.dialects.envelope import opened, restored, with_proof
from weft.dialects.gemini.requests import schema
from weft.dialects.gemini.wire import NAME
from weft.dialects.requests import Places, keys_of
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

_SAID = frozenset({"partMetadata", "videoMetadata"})
"""What stands beside a payload, and is none."""

_DETAILS = {
    "MEDIA_RESOLUTION_LOW": "low",
    "MEDIA_RESOLUTION_HIGH": "high",
    "MEDIA_RESOLUTION_ULTRA_HIGH": "original",
}
_STORED = re.compile(r"(?!https?://)|https?://[^/]+/v\d\w*/files/")
"""Addresses that only the host can open: its own store of files, or a bucket."""

_SIGNATURE = "thoughtSignature"
_json = msgspec.json.Encoder().encode


def _unproven(found: list[AnyContent]) -> str:
    """Takes the thoughts without a proof at the end of what was found: a proof that stands alone
    behind them, as streams tell it, is about them.
    """
    said: list[str] = []
    while found and isinstance(last := found[-1], ReasoningContent):
        if last.signature or last.encrypted or last.redacted:
            break
        said.insert(0, last.text)
        found.pop()
    return "".join(said)


class Contents:
    """Reads the contents of one request in order, and remembers the open calls."""

    def __init__(self, context: Context, places: Places) -> None:
        self._origin = context.origin or NAME
        self._ids = context.ids
        self._places = places
        self._open: list[CallContent] = []
        self.sealed = False
        """Whether a proof of another origin was in what was read last."""

    def read(self, parts: Json, path: str, canonical: str) -> tuple[AnyContent, ...]:
        """The contents of one turn, with where each of them was."""
        self.sealed = False
        found: list[AnyContent] = []
        for place, raw in enumerate(schema.many(parts, f"{path}.parts")):
            where = f"{path}.parts[{place}]"
            for content in self._part(raw, where):
                if isinstance(content, ReasoningContent) and not content.text and self.sealed:
                    content = msgspec.structs.replace(content, text=_unproven(found))
                self._places.add(f"{canonical}.content[{len(found)}]", where)
                found.append(content)
        return tuple(found)

    def _part(self, raw: Raw, path: str) -> list[AnyContent]:
        part, rest = schema.take(raw, schema.Part, path)
        sealed = opened(part.thought_signature)
        if sealed is None:
            return [self._payload(raw, part, rest, path)]
        self.sealed = True
        bare = msgspec.structs.replace(part, thought_signature=None)
        fields = {key: one for key, one in keys_of(raw).items() if not holds_envelope(one)}
        if sealed.proof.call is not None:
            held = self._payload(Raw(_json(fields)), bare, rest, path)
            return [with_proof(held, sealed) if isinstance(held, CallContent) else held]
        thought = restored(sealed, part.text or "" if part.thought else "", "summary")
        if part.thought or part.text == "":
            return [thought]
        return [thought, self._payload(Raw(_json(fields)), bare, rest, path)]

    def _payload(self, raw: Raw, part: schema.Part, rest: dict[str, Raw], path: str) -> AnyContent:
        payloads = _payloads(part)
        others = [key for key in rest if key not in _SAID]
        kinds = [*payloads, *(["text"] if part.text is not None else [])]
        if len(kinds) > 1:
            raise BadRequest(path, f"one payload a part, not {' and '.join(kinds)}")
        if not kinds:
            return OpaqueContent(NAME, others[0] if others else "part", raw)
        for key, payload in payloads.items():
            return _READ[key](self, payload, part, rest, f"{path}.{key}")
        return self._text(part, rest)

    def _text(self, part: schema.Part, rest: dict[str, Raw]) -> AnyContent:
        text = part.text or ""
        if part.thought:
            signature = part.thought_signature
            signer = self._origin if signature else None
            extra = kept(rest, _resolution(part))
            return ReasoningContent(
                text, "summary", signature=signature, origin=signer, extra=extra
            )
        return TextContent(text, extra=kept(_about(part), _resolution(part), rest))

    def _call(self, raw: Raw, part: schema.Part, rest: dict[str, Raw], path: str) -> AnyContent:
        call, left = schema.below(raw, schema.FunctionCall, path, "functionCall")
        args = schema.told(call.args)
        if args is not None and not is_object(args):
            raise BadRequest(f"{path}.args", "expected an object")
        about = _about(part)
        about.pop(_SIGNATURE, None)
        found = CallContent(
            call.id or self._ids.local(schema.UNNAMED),
            call.name,
            "{}" if args is None else bytes(args).decode(),
            signature=part.thought_signature,
            origin=self._origin if part.thought_signature else None,
            extra=kept(rest, left, about, _resolution(part)),
        )
        self._open.append(found)
        return found

    def _result(self, raw: Raw, part: schema.Part, rest: dict[str, Raw], path: str) -> AnyContent:
        told, left = schema.below(raw, schema.FunctionResponse, path, "functionResponse")
        response = schema.told(told.response) or Raw(b"{}")
        if not is_object(response):
            raise BadRequest(f"{path}.response", "expected an object")
        said, is_error = answer(response)
        parts = enumerate(schema.many(told.parts, f"{path}.parts"))
        every = [self._media(one, f"{path}.parts[{place}]") for place, one in parts]
        shown = [one for one in every if one is not None]
        if len(shown) < len(every) and isinstance(told.parts, Raw):
            left[UNSEEN_PARTS] = told.parts
        return ResultContent(
            self._answered(told),
            (*said, *shown),
            name=told.name,
            is_error=is_error,
            extra=kept(rest, left, _about(part), _resolution(part)),
        )

    def _answered(self, told: schema.FunctionResponse) -> str:
        """The id of the call that this is the result of."""
        named = [one for one in self._open if one.name == told.name]
        if told.id is not None:
            named = [one for one in self._open if one.id == told.id]
        if not named:
            return told.id or ""
        self._open.remove(named[0])
        return named[0].id

    def _media(self, raw: Raw, path: str) -> ImageContent | FileContent | None:
        """What a result shows; None for what there is no canonical content for."""
        part, rest = schema.take(raw, schema.Part, path)
        found = self._payload(raw, part, rest, path)
        return found if isinstance(found, ImageContent | FileContent) else None

    def _inline(self, raw: Raw, part: schema.Part, rest: dict[str, Raw], path: str) -> AnyContent:
        blob, left = schema.below(raw, schema.Blob, path, "inlineData")
        return _shown(part, rest | left, blob.mime_type, blob.display_name, data=blob.data)

    def _linked(self, raw: Raw, part: schema.Part, rest: dict[str, Raw], path: str) -> AnyContent:
        file, left = schema.below(raw, schema.FileData, path, "fileData")
        stored = _STORED.match(file.file_uri) is not None
        url = None if stored else file.file_uri
        id = file.file_uri if stored else None
        return _shown(part, rest | left, file.mime_type, file.display_name, url=url, file_id=id)


_READ = {
    "functionCall": Contents._call,
    "functionResponse": Contents._result,
    "inlineData": Contents._inline,
    "fileData": Contents._linked,
}


def _payloads(part: schema.Part) -> dict[str, Raw]:
    """What a part holds beside text: nearly always nothing, or one thing."""
    held = {
        "functionCall": schema.told(part.function_call),
        "functionResponse": schema.told(part.function_response),
        "inlineData": schema.told(part.inline_data),
        "fileData": schema.told(part.file_data),
    }
    return {key: raw for key, raw in held.items() if raw is not None}


def _about(part: schema.Part) -> dict[str, Raw]:
    """What is said about a payload, for the way back."""
    found: dict[str, Raw] = {}
    if part.thought_signature is not None:
        found[_SIGNATURE] = Raw(_json(part.thought_signature))
    if part.thought:
        found["thought"] = Raw(b"true")
    return found


def _resolution(part: schema.Part) -> dict[str, Raw]:
    resolution = schema.told(part.media_resolution)
    return {} if resolution is None else {"mediaResolution": resolution}


def _shown(
    part: schema.Part,
    rest: dict[str, Raw],
    media_type: str | None,
    name: str | None,
    *,
    data: str | None = None,
    url: str | None = None,
    file_id: str | None = None,
) -> ImageContent | FileContent:
    about = rest | _about(part)
    if not (media_type or "").startswith("image/"):
        extra = kept(about, _resolution(part))
        return FileContent(media_type, data, url, file_id, name, extra=extra)
    detail = _detail(part)
    if detail is None:
        about |= _resolution(part)
    if name is not None:
        about["inlineData.displayName" if data else "fileData.displayName"] = Raw(_json(name))
    return ImageContent(media_type, data, url, file_id, detail, extra=kept(about))


def _detail(part: schema.Part) -> str | None:
    """How closely to look, if nothing else is said about it."""
    resolution = schema.told(part.media_resolution)
    if resolution is None or not is_object(resolution):
        return None
    found, rest = schema.take(resolution, schema.Resolution)
    return None if rest else _DETAILS.get(found.level or "")


def answer(response: Raw) -> tuple[tuple[TextContent, ...], bool]:
    """What a tool gave, and whether it failed: `output` or `error` alone, else the object."""
    keys = keys_of(response)
    is_error = "error" in keys
    if set(keys) in ({"output"}, {"error"}):
        text = _plain(next(iter(keys.values())))
        if text is not None:
            return ((TextContent(text),) if text else ()), is_error
    return (TextContent(bytes(response).decode()),), is_error


def _plain(raw: Raw) -> str | None:
    """A text that is no object itself, so that it can be told from one."""
    try:
        text = msgspec.json.decode(raw, type=str)
    except ValueError:
        return None
    return None if is_object(text) else text
