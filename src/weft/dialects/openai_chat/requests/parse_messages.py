"""Reads the messages of a Chat Completions body. One message of the wire is one message here."""

from collections.abc import Callable, Mapping
from typing import ClassVar

import msgspec
from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.asking.leftovers import MESSAGE, kept
from weft.dialects.asking.wording import cache_of, inline, telling, with_mark
from weft.dialects.envelope import Sealed, opened, restored
from weft.dialects.openai_chat.requests import schema
from weft.dialects.openai_chat.wire import NAME, read_extra_content
from weft.dialects.requests import Places, keys_of, read, unknown
from weft.errors import BadRequest
from weft.request import (
    AnyContent,
    CallContent,
    FileContent,
    ImageContent,
    Message,
    OpaqueContent,
    ReasoningContent,
    ResultContent,
    Role,
    TextContent,
)

_SOUNDS = {"mp3": "audio/mpeg"}
_NOTHING = (TextContent(""),)
_READABLE = (TextContent, ImageContent, FileContent)
CALL = "tool_call."
"""How the kind of a call begins whose type nobody here knows."""


class Messages:
    """The messages read so far: what they are, and the bytes they may go out in again."""

    def __init__(self, context: Context, places: Places) -> None:
        self.found: list[Message] = []
        self.sources: list[Raw | None] = []
        self._origin = context.origin or NAME
        self._ids = context.ids
        self._places = places
        self._customs: set[str] = set()
        """The ids of the free-form calls: their results do not say what they are."""
        self._functions: list[CallContent] = []
        """Calls in the old form, which have no id, until their results come."""

    def add(self, raw: Raw, path: str) -> None:
        role = read(raw, schema.Speaker, path).role
        reader = self._READERS.get(role)
        message, source = reader(self, raw, path) if reader else self._unknown(raw, path)
        self.found.append(message)
        self.sources.append(source)

    def _unknown(self, raw: Raw, path: str) -> tuple[Message, Raw | None]:
        """A message of a role that only its own dialect may know."""
        self._places.add(f"messages[{len(self.found)}].content[0]", f"{path}.role")
        return Message("user", (OpaqueContent(self._origin, MESSAGE, raw),)), raw

    def _spoken(self, raw: Raw, path: str) -> tuple[Message, Raw | None]:
        said = read(raw, schema.Spoken, path)
        role: Role = "user" if said.role == "user" else _instructing(said.role)
        content = self._contents(said.content, path)
        return Message(role, content, said.name, extra=telling(unknown(raw, schema.Spoken))), raw

    def _assistant(self, raw: Raw, path: str) -> tuple[Message, Raw | None]:
        said = read(raw, schema.Assistant, path)
        contents: list[tuple[AnyContent, str]] = []
        thoughts = self._thoughts(said, path)
        contents += [(thought, f"{path}.{_thought_key(said)}") for thought in thoughts]
        if said.content:
            whole = isinstance(said.content, str)
            for number, part in enumerate(self._parts(said.content, f"{path}.content")):
                contents.append((part, f"{path}.content" + ("" if whole else f"[{number}]")))
        if said.refusal:
            contents.append((TextContent(said.refusal, refusal=True), f"{path}.refusal"))
        for number, call in enumerate(said.tool_calls or ()):
            where = f"{path}.tool_calls[{number}]"
            contents.append((self._call(call, where), where))
        if said.function_call is not None:
            contents.append((self._old_call(said.function_call), f"{path}.function_call"))
        number = len(self.found)
        for place, (_, where) in enumerate(contents):
            self._places.add(f"messages[{number}].content[{place}]", where)
        content = tuple(one for one, _ in contents)
        extra = telling(unknown(raw, schema.Assistant))
        message = Message("assistant", content, said.name, extra=extra)
        return message, None if _holds_envelope(said) else raw

    def _tool(self, raw: Raw, path: str) -> tuple[Message, Raw | None]:
        said = read(raw, schema.ToolMessage, path)
        where = f"messages[{len(self.found)}].content[0]"
        content = self._contents(said.content, path, f"{where}.content")
        self._places.add(where, path)
        readable = tuple(one for one in content if isinstance(one, _READABLE))
        whole = len(readable) == len(content)
        result = ResultContent(
            said.tool_call_id,
            () if content == _NOTHING else readable,
            kind="custom" if said.tool_call_id in self._customs else "function",
            name=said.name,
            extra=kept({} if whole else {"content": schema.raw(said.content)}),
        )
        return Message("tool", (result,), extra=telling(unknown(raw, schema.ToolMessage))), raw

    def _function(self, raw: Raw, path: str) -> tuple[Message, Raw | None]:
        said = read(raw, schema.FunctionMessage, path)
        call = next((one for one in self._functions if one.name == said.name), None)
        if call is not None:
            self._functions.remove(call)
        self._places.add(f"messages[{len(self.found)}].content[0]", path)
        content = (TextContent(said.content),) if said.content else ()
        result = ResultContent(call.id if call else "", content, name=said.name)
        return Message("tool", (result,), extra=telling(unknown(raw, schema.FunctionMessage))), raw

    _READERS: ClassVar[
        Mapping[str, Callable[["Messages", Raw, str], tuple[Message, Raw | None]]]
    ] = {
        "system": _spoken,
        "developer": _spoken,
        "user": _spoken,
        "assistant": _assistant,
        "tool": _tool,
        "function": _function,
    }

    def _contents(
        self, content: str | list[Raw], path: str, canonical: str | None = None
    ) -> tuple[AnyContent, ...]:
        """The parts of a message, and where they are."""
        found = self._parts(content, f"{path}.content")
        base = canonical or f"messages[{len(self.found)}].content"
        for number in range(len(found)):
            where = "" if isinstance(content, str) else f"[{number}]"
            self._places.add(f"{base}[{number}]", f"{path}.content{where}")
        return tuple(found)

    def _parts(self, content: str | list[Raw], path: str) -> list[AnyContent]:
        if isinstance(content, str):
            return [TextContent(content)]
        return [self._part(raw, f"{path}[{number}]") for number, raw in enumerate(content)]

    def _part(self, raw: Raw, path: str) -> AnyContent:
        kind = read(raw, schema.Typed, path).type
        reader = _PARTS.get(kind or "")
        if reader is not None:
            return reader(raw, path)
        if kind is None:
            raise BadRequest(f"{path}.type", f"missing; expected one of {', '.join(_PARTS)}")
        return OpaqueContent(self._origin, kind, raw)

    def _call(self, raw: Raw, path: str) -> CallContent | OpaqueContent:
        kind = read(raw, schema.Typed, path).type
        if kind not in (None, "function", "custom"):
            return OpaqueContent(self._origin, f"{CALL}{kind}", raw)
        extra = keys_of(telling(unknown(raw, schema.FunctionCall, "custom")))
        sealed = _sealed_call(extra.get("extra_content"))
        if sealed is not None:
            extra.pop("extra_content", None)
        signature = sealed.proof.signature if sealed else None
        origin = sealed.origin if sealed else None
        rest = kept(extra)
        if kind == "custom":
            free = read(raw, schema.CustomCall, path)
            self._customs.add(free.id)
            return CallContent(
                free.id,
                free.custom.name,
                free.custom.input,
                kind="custom",
                format="text",
                signature=signature,
                origin=origin,
                extra=rest,
            )
        call = read(raw, schema.FunctionCall, path)
        function = call.function
        return CallContent(
            call.id,
            function.name,
            function.arguments,
            signature=signature,
            origin=origin,
            extra=rest,
        )

    def _old_call(self, function: schema.Function) -> CallContent:
        call = CallContent(self._ids.mint("call"), function.name, function.arguments)
        self._functions.append(call)
        return call

    def _thoughts(self, said: schema.Assistant, path: str) -> list[ReasoningContent]:
        """What was thought: one, unless the proofs of another origin tell several apart."""
        raws = said.reasoning_details or []
        details = [
            read(raw, schema.Detail, f"{path}.reasoning_details[{number}]")
            for number, raw in enumerate(raws)
        ]
        text = said.reasoning_content or said.reasoning
        if not text and not details:
            return []
        text = text or "".join(one.text or one.summary or "" for one in details)
        sealed = [inside for one in details for inside in _envelopes(one)]
        if sealed:
            return [restored(inside, text, "raw") for inside in sealed]
        thought = ReasoningContent(
            text,
            signature=next((one.signature for one in details if one.signature), None),
            encrypted=next((one.data for one in details if one.data), None),
            origin=self._origin,
            extra=Raw(msgspec.json.encode({"reasoning_details": raws})) if raws else UNSET,
        )
        return [thought]


def _instructing(role: str) -> Role:
    return "developer" if role == "developer" else "system"


def _thought_key(said: schema.Assistant) -> str:
    if said.reasoning_content:
        return "reasoning_content"
    return "reasoning" if said.reasoning else "reasoning_details"


def _envelopes(detail: schema.Detail) -> list[Sealed]:
    """The proofs of another origin that a client carried for us."""
    found = (opened(text) for text in (detail.signature, detail.data))
    return [sealed for sealed in found if sealed]


def _holds_envelope(said: schema.Assistant) -> bool:
    """Whether a message carries a proof of another origin, which must not go out as it is."""
    details = [read(raw, schema.Detail) for raw in said.reasoning_details or ()]
    calls = [keys_of(raw).get("extra_content") for raw in said.tool_calls or ()]
    return any(map(_envelopes, details)) or any(_sealed_call(one) is not None for one in calls)


def _sealed_call(extended: Raw | None) -> Sealed | None:
    try:
        owners = read_extra_content(extended) if extended is not None else {}
    except ValueError:
        return None
    found = (opened(one.thought_signature) for one in owners.values())
    return next((sealed for sealed in found if sealed), None)


# Parts


def _text(raw: Raw, path: str) -> AnyContent:
    part = read(raw, schema.Text, path)
    extra = with_mark(telling(unknown(raw, schema.Text)), part.prompt_cache_breakpoint)
    return TextContent(part.text, cache=cache_of(part.prompt_cache_breakpoint), extra=extra)


def _refusal(raw: Raw, path: str) -> AnyContent:
    part = read(raw, schema.Refusal, path)
    return TextContent(part.refusal, refusal=True, extra=telling(unknown(raw, schema.Refusal)))


def _image(raw: Raw, path: str) -> AnyContent:
    part = read(raw, schema.Image, path)
    found = inline(part.image_url.url)
    return ImageContent(
        media_type=found.media_type if found else None,
        data=found.data if found else None,
        url=None if found else part.image_url.url,
        detail=part.image_url.detail,
        cache=cache_of(part.prompt_cache_breakpoint),
        extra=with_mark(
            schema.beside(raw, schema.Image, "image_url", schema.ImageUrl),
            part.prompt_cache_breakpoint,
        ),
    )


def _audio(raw: Raw, path: str) -> AnyContent:
    part = read(raw, schema.Audio, path)
    sound = part.input_audio
    return FileContent(
        _SOUNDS.get(sound.format, f"audio/{sound.format}"),
        sound.data,
        cache=cache_of(part.prompt_cache_breakpoint),
        extra=with_mark(
            schema.beside(raw, schema.Audio, "input_audio", schema.Sound),
            part.prompt_cache_breakpoint,
        ),
    )


def _file(raw: Raw, path: str) -> AnyContent:
    part = read(raw, schema.File, path)
    file = part.file
    if file.file_data is None and file.file_id is None:
        raise BadRequest(f"{path}.file", "expected `file_data` or `file_id`")
    found = inline(file.file_data or "")
    return FileContent(
        found.media_type if found else None,
        found.data if found else file.file_data,
        file_id=file.file_id,
        filename=file.filename,
        cache=cache_of(part.prompt_cache_breakpoint),
        extra=with_mark(
            schema.beside(raw, schema.File, "file", schema.FileOf), part.prompt_cache_breakpoint
        ),
    )


_PARTS: dict[str, Callable[[Raw, str], AnyContent]] = {
    "text": _text,
    "refusal": _refusal,
    "image_url": _image,
    "input_audio": _audio,
    "file": _file,
}
