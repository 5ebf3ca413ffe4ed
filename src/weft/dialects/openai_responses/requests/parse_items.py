"""Reads the items of a Responses body. One item of the wire is one message here."""

from collections.abc import Callable, Mapping
from typing import ClassVar, get_args

import msgspec
from msgspec import Raw

from weft.context import Context
from weft.dialects.asking.leftovers import MESSAGE, kept
from weft.dialects.asking.wording import cache_of, inline, telling, with_mark
from weft.dialects.envelope import (
    Proof,
    Sealed,
    all_restored,
    opened,
    opened_summary,
    with_proof,
)
from weft.dialects.openai_responses.requests import schema
from weft.dialects.openai_responses.wire import NAME
from weft.dialects.requests import Places, keys_of, read, unknown
from weft.errors import BadRequest
from weft.parts import Json
from weft.request import (
    AnyContent,
    CallContent,
    FileContent,
    ImageContent,
    Message,
    OpaqueContent,
    ReasoningContent,
    ResultContent,
    TextContent,
)

_NOTHING = (TextContent(""),)
_READABLE = (TextContent, ImageContent, FileContent)
_ROLES = frozenset(get_args(schema.Role))
_CLIENTS = frozenset({"additional_tools", "compaction_trigger", "mcp_approval_response"})
_ERROR = "Error: "
_SUMMED_UP = "What was said before, summed up:\n\n"

Read = tuple[Message, Raw | None]
"""A message, and the bytes it may go out in again."""


class Items:
    """The items read so far, each a message, and the bytes they may go out in again."""

    def __init__(self, context: Context, places: Places) -> None:
        self.found: list[Message] = []
        self.sources: list[Raw | None] = []
        self._origin = context.origin or NAME
        self._places = places
        self._calls: dict[str, str] = {}
        """The ids of calls, by the ids of their items."""
        self._proofs: dict[str, Sealed] = {}
        """What signs the calls to come, by their ids."""

    def add_text(self, text: str) -> None:
        """The short form: one message of the user."""
        self._places.add("messages[0]", "input")
        self._places.add("messages[0].content[0]", "input")
        self.found.append(Message("user", (TextContent(text),)))
        self.sources.append(None)

    def add(self, raw: Raw, path: str) -> None:
        seen = read(raw, schema.Typed, path)
        kind = seen.type or ("item_reference" if seen.role is None and seen.id else "message")
        self._places.add(f"messages[{len(self.found)}]", path)
        reader = self._READERS.get(kind)
        read_item = reader(self, raw, path) if reader else self._other(raw, kind)
        if read_item is None:
            return
        message, source = read_item
        for place in range(len(message.content) if kind != "message" else 0):
            self._places.add(f"messages[{len(self.found)}].content[{place}]", path)
        self.found.append(message)
        self.sources.append(source)

    def _other(self, raw: Raw, kind: str) -> Read:
        """An item that only its origin understands."""
        if kind in schema.HOSTED_ITEMS:
            return Message("assistant", (_hosted(raw, kind),)), raw
        client = kind.endswith("_output") or kind in _CLIENTS or kind == MESSAGE
        content = OpaqueContent(self._origin, kind, raw)
        return Message("user" if client else "assistant", (content,)), raw

    def _message(self, raw: Raw, path: str) -> Read:
        if read(raw, schema.Speaker, path).role not in _ROLES:
            self._places.add(f"messages[{len(self.found)}].content[0]", f"{path}.role")
            return self._other(raw, MESSAGE)
        said = read(raw, schema.Message, path)
        message = Message(
            said.role,
            self._contents(said.content, path, "content"),
            item_id=said.id,
            phase=said.phase,
            extra=_with_status(telling(unknown(raw, schema.Message)), said.status),
        )
        return message, raw

    def _function_call(self, raw: Raw, path: str) -> Read:
        said = read(raw, schema.FunctionCall, path)
        return self._call(said, said.arguments, raw), raw

    def _custom_call(self, raw: Raw, path: str) -> Read:
        said = read(raw, schema.CustomToolCall, path)
        return self._call(said, said.input, raw), raw

    def _call(
        self, said: schema.FunctionCall | schema.CustomToolCall, params: str, raw: Raw
    ) -> Message:
        if said.id:
            self._calls[said.id] = said.call_id
        free = isinstance(said, schema.CustomToolCall)
        call = CallContent(
            said.call_id,
            said.name,
            params,
            kind="custom" if free else "function",
            format="text" if free else "json",
            item_id=said.id,
            namespace=said.namespace,
            extra=_with_status(telling(unknown(raw, type(said))), said.status),
        )
        inside = self._proofs.pop(call.id, None)
        return Message("assistant", (call if inside is None else with_proof(call, inside),))

    def _function_output(self, raw: Raw, path: str) -> Read:
        said = read(raw, schema.FunctionCallOutput, path)
        return self._result(said, "function", said.name, raw, path)

    def _custom_output(self, raw: Raw, path: str) -> Read:
        said = read(raw, schema.CustomToolCallOutput, path)
        return self._result(said, "custom", None, raw, path)

    def _result(
        self,
        said: schema.FunctionCallOutput | schema.CustomToolCallOutput,
        kind: str,
        name: str | None,
        raw: Raw,
        path: str,
    ) -> Read:
        """Clients may name a call by the id of its item: upstreams want the id of the call."""
        failed = said.status == "incomplete"
        contents = self._contents(said.output, path, "output")
        call_id = said.call_id or ""
        known = self._calls.get(call_id, call_id)
        readable = tuple(one for one in contents if isinstance(one, _READABLE))
        content = () if contents == _NOTHING else readable
        beside = keys_of(telling(unknown(raw, type(said), "id")))
        if len(readable) < len(contents):
            beside["output"] = schema.raw(said.output)
        result = ResultContent(
            known,
            _unmarked(content) if failed else content,
            kind=kind,
            name=name,
            is_error=failed,
            extra=_with_status(kept(beside), None if failed else said.status),
        )
        return Message("tool", (result,), item_id=said.id), raw if known == call_id else None

    def _reasoning(self, raw: Raw, path: str) -> Read | None:
        """A reasoning; None for one that was made to carry the signature of a call."""
        said = read(raw, schema.Reasoning, path)
        sealed = opened(said.encrypted_content)
        if sealed is not None and sealed.proof.call is not None:
            self._proofs[sealed.proof.call] = sealed
            if not said.summary and not said.content:
                return None
            sealed = Sealed(sealed.origin, sealed.model, Proof())
        extra = _with_status(telling(unknown(raw, schema.Reasoning)), said.status)
        thoughts = [("summary", one.text) for one in said.summary]
        thoughts += [("raw", one.text) for one in said.content or ()]
        contents = [
            ReasoningContent(
                text,
                "raw" if kind == "raw" else "summary",
                item_id=said.id,
                origin=self._origin,
            )
            for kind, text in thoughts or [("summary", "")]
        ]
        last = contents.pop()
        if sealed is None:
            contents.append(
                msgspec.structs.replace(last, encrypted=said.encrypted_content, extra=extra)
            )
            return Message("assistant", tuple(contents)), raw
        proof = sealed.proof
        if proof.text is not None:
            return Message("assistant", all_restored(sealed)), None
        contents = [
            msgspec.structs.replace(one, origin=sealed.origin, item_id=proof.item_id)
            for one in (*contents, last)
        ]
        contents[-1] = msgspec.structs.replace(
            contents[-1],
            signature=proof.signature,
            encrypted=proof.encrypted,
            redacted=proof.redacted,
        )
        return Message("assistant", tuple(contents)), None

    def _compaction(self, raw: Raw, path: str) -> Read:
        """Turns that we summed up are told by the user; those of another only it can read."""
        said = read(raw, schema.Compaction, path)
        summary = opened_summary(said.encrypted_content)
        if summary is None:
            return self._other(raw, "compaction")
        return Message("user", (TextContent(_SUMMED_UP + summary),)), None

    _READERS: ClassVar[Mapping[str, Callable[["Items", Raw, str], Read | None]]] = {
        "message": _message,
        "function_call": _function_call,
        "custom_tool_call": _custom_call,
        "function_call_output": _function_output,
        "custom_tool_call_output": _custom_output,
        "reasoning": _reasoning,
        "compaction": _compaction,
    }

    def _contents(self, content: str | list[Raw], path: str, key: str) -> tuple[AnyContent, ...]:
        """The parts of an item, and where they are."""
        base = f"messages[{len(self.found)}].content"
        if key == "output":
            self._places.add(f"{base}[0]", path)
            base = f"{base}[0].content"
        if isinstance(content, str):
            self._places.add(f"{base}[0]", f"{path}.{key}")
            return (TextContent(content),)
        found = []
        for number, raw in enumerate(content):
            where = f"{path}.{key}[{number}]"
            self._places.add(f"{base}[{number}]", where)
            found.append(self._part(raw, where))
        return tuple(found)

    def _part(self, raw: Raw, path: str) -> AnyContent:
        kind = read(raw, schema.Typed, path).type
        reader = _PARTS.get(kind or "")
        if reader is not None:
            return reader(raw, path)
        if kind is None:
            raise BadRequest(f"{path}.type", f"missing; expected one of {', '.join(_PARTS)}")
        return OpaqueContent(self._origin, f"message.{kind}", raw)


def _with_status(extra: Json, status: str | None) -> Json:
    """Only a status that is not `completed` says something."""
    if status is None or status == "completed":
        return extra
    status_said = Raw(msgspec.json.encode(status))
    return Raw(msgspec.json.encode({**keys_of(extra), "status": status_said}))


def _hosted(raw: Raw, kind: str) -> CallContent:
    """A call that the upstream made itself: its params are all that its item says of it."""
    fields = keys_of(raw)
    fields.pop("type")
    id = _text_of(fields.pop("id", None))
    return CallContent(
        id,
        _text_of(fields.get("name")) or kind.removesuffix("_call"),
        msgspec.json.encode(fields).decode(),
        kind=kind,
        item_id=id or None,
        provider_executed=True,
    )


def _text_of(raw: Raw | None) -> str:
    try:
        return msgspec.json.decode(raw, type=str) if raw is not None else ""
    except ValueError:
        return ""


def _unmarked(
    content: tuple[TextContent | ImageContent | FileContent, ...],
) -> tuple[TextContent | ImageContent | FileContent, ...]:
    """A failed result as it was before this wire had to say so in words."""
    match content:
        case (first, *rest) if first == TextContent(_ERROR):
            return tuple(rest)
        case (TextContent(text=text) as first, *rest) if text.startswith(_ERROR):
            return (msgspec.structs.replace(first, text=text.removeprefix(_ERROR)), *rest)
    return content


# Parts


def _input_text(raw: Raw, path: str) -> AnyContent:
    part = read(raw, schema.InputText, path)
    extra = with_mark(telling(unknown(raw, schema.InputText)), part.prompt_cache_breakpoint)
    return TextContent(part.text, cache=cache_of(part.prompt_cache_breakpoint), extra=extra)


def _output_text(raw: Raw, path: str) -> AnyContent:
    """What it cites is beside the text; that it cites nothing says nothing."""
    part = read(raw, schema.OutputText, path)
    return TextContent(part.text, extra=telling(unknown(raw, schema.PlainText)))


def _refusal(raw: Raw, path: str) -> AnyContent:
    part = read(raw, schema.Refusal, path)
    return TextContent(part.refusal, refusal=True, extra=telling(unknown(raw, schema.Refusal)))


def _image(raw: Raw, path: str) -> AnyContent:
    part = read(raw, schema.InputImage, path)
    if part.image_url is None and part.file_id is None:
        raise BadRequest(path, "expected `image_url` or `file_id`")
    found = inline(part.image_url or "")
    return ImageContent(
        media_type=found.media_type if found else None,
        data=found.data if found else None,
        url=None if found else part.image_url,
        file_id=part.file_id,
        detail=part.detail,
        cache=cache_of(part.prompt_cache_breakpoint),
        extra=with_mark(telling(unknown(raw, schema.InputImage)), part.prompt_cache_breakpoint),
    )


def _file(raw: Raw, path: str) -> AnyContent:
    part = read(raw, schema.InputFile, path)
    if part.file_data is None and part.file_id is None and part.file_url is None:
        raise BadRequest(path, "expected `file_data`, `file_url` or `file_id`")
    found = inline(part.file_data or "")
    return FileContent(
        found.media_type if found else None,
        found.data if found else part.file_data,
        part.file_url,
        part.file_id,
        part.filename,
        cache=cache_of(part.prompt_cache_breakpoint),
        extra=with_mark(telling(unknown(raw, schema.InputFile)), part.prompt_cache_breakpoint),
    )


_PARTS: dict[str, Callable[[Raw, str], AnyContent]] = {
    "input_text": _input_text,
    "output_text": _output_text,
    "refusal": _refusal,
    "input_image": _image,
    "input_file": _file,
}
