"""Parses the items of a Responses body. Each item becomes one message."""

from collections.abc import Callable, Mapping
from typing import ClassVar, get_args

import msgspec
from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.envelope import (
    Envelope,
    ReasoningState,
    restore_reasoning_item,
    unwrap,
    unwrap_summary,
    with_signature,
)
from weft.dialects.openai_responses.requests import schema
from weft.dialects.openai_responses.wire import NAME
from weft.dialects.requests.codec import SourcePaths
from weft.dialects.requests.data_urls import parse_data_url
from weft.dialects.requests.fields import exact_reader, fields_of, object_reader, read_object
from weft.dialects.requests.openai_family import cache_of_breakpoint, keep_breakpoint
from weft.dialects.requests.unknown_fields import (
    UNKNOWN_ROLE,
    collect,
    collect_filled,
    without_empty,
)
from weft.errors import BadRequest
from weft.parts import Json, ReasoningKind
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

# An empty output is a result without content, as other dialects have it.
_EMPTY_TEXT = (TextContent(""),)
_RESULT_CONTENT = (TextContent, ImageContent, FileContent)
_ROLES = frozenset(get_args(schema.Role))
# The role only matters to other dialects: whose turn an item that they cannot express belongs to.
_CLIENT_ITEMS = frozenset({"additional_tools", "compaction_trigger", "mcp_approval_response"})
_SUMMARY_PREFIX = "What was said before, summed up:\n\n"

_NOTHING = (UNSET, Raw(b"[]"))

_read_message = exact_reader(schema.InputMessageParam)
_read_text = exact_reader(schema.ResponsesPlainText)
_read_function_call = object_reader(schema.FunctionCallParam)
_read_custom_call = object_reader(schema.CustomToolCallParam)
_read_function_output = object_reader(schema.FunctionCallOutputParam)
_read_custom_output = object_reader(schema.CustomToolCallOutputParam)

ParsedItem = tuple[Message, Raw | None]
"""A message, and the source bytes it may be passed through as."""


class ResponsesItemParser:
    """Parses items into messages, with the source bytes they may be passed through as."""

    def __init__(self, context: Context, paths: SourcePaths) -> None:
        self.messages: list[Message] = []
        self.sources: list[Raw | None] = []
        self._origin = context.origin or NAME
        self._paths = paths
        # A call has two ids, `fc_…` of its item and `call_…`, and some clients answer with the
        # wrong one.
        self._call_ids: dict[str, str] = {}
        """Call ids by the ids of their items."""
        self._call_signatures: dict[str, Envelope] = {}
        """Signatures of calls that are still to come, by call id."""

    def add_text(self, text: str) -> None:
        """Adds `input` given as a plain string: one user message."""
        self._paths["messages[0]"] = "input"
        self._paths["messages[0].content[0]"] = "input"
        self.messages.append(Message("user", (TextContent(text),)))
        self.sources.append(None)

    def add(self, raw: Raw, path: str) -> None:
        header = read_object(raw, schema.ItemHeader, path)
        # `type` is optional for messages and references: `{role, content}` and `{id}` are legal.
        type = header.type or ("item_reference" if header.role is None and header.id else "message")
        self._paths[f"messages[{len(self.messages)}]"] = path
        parser = self._PARSERS.get(type)
        # An item type that nobody here knows is no reason to refuse the request: the upstream may
        # know it.
        parsed = parser(self, raw, path) if parser else self._opaque(raw, type)
        if parsed is None:
            return
        message, source = parsed
        # The parts of a message have paths of their own; any other item has one path for all its
        # contents.
        if type != "message":
            for index in range(len(message.content)):
                self._paths[f"messages[{len(self.messages)}].content[{index}]"] = path
        self.messages.append(message)
        self.sources.append(source)

    def _opaque(self, raw: Raw, type: str) -> ParsedItem:
        """Returns an item of a type that is passed through without being interpreted."""
        from_client = type.endswith("_output") or type in _CLIENT_ITEMS or type == UNKNOWN_ROLE
        content = OpaqueContent(self._origin, type, raw)
        return Message("user" if from_client else "assistant", (content,)), raw

    def _message(self, raw: Raw, path: str) -> ParsedItem:
        param = _read_message(raw)
        extra: Json = UNSET
        if param is None:
            # Read before the whole shape, in which another role is an error.
            if read_object(raw, schema.MessageRole, path).role not in _ROLES:
                self._paths[f"messages[{len(self.messages)}].content[0]"] = f"{path}.role"
                return self._opaque(raw, UNKNOWN_ROLE)
            param = read_object(raw, schema.InputMessageParam, path)
            extra = schema.extra_of(raw, schema.InputMessageParam)
        content = self._contents(param.content, path, "content")
        if param.status is not None:
            extra = _with_status(extra, param.status)
        return Message(param.role, content, None, param.id, param.phase, extra), raw

    def _function_call(self, raw: Raw, path: str) -> ParsedItem:
        param, unknown = _read_function_call(raw, path)
        return self._call(param, param.arguments, unknown), raw

    def _custom_call(self, raw: Raw, path: str) -> ParsedItem:
        param, unknown = _read_custom_call(raw, path)
        return self._call(param, param.input, unknown), raw

    def _call(
        self,
        param: schema.FunctionCallParam | schema.CustomToolCallParam,
        params: str,
        unknown: dict[str, Raw],
    ) -> Message:
        if param.id:
            self._call_ids[param.id] = param.call_id
        is_custom = isinstance(param, schema.CustomToolCallParam)
        call = CallContent(
            param.call_id,
            param.name,
            params,
            kind="custom" if is_custom else "function",
            format="text" if is_custom else "json",
            item_id=param.id,
            namespace=param.namespace,
            extra=_with_status(collect_filled(unknown), param.status),
        )
        # Our encoder wrote it into the reasoning item before this call.
        envelope = self._call_signatures.pop(call.id, None)
        return Message("assistant", (call if envelope is None else with_signature(call, envelope),))

    def _function_output(self, raw: Raw, path: str) -> ParsedItem:
        param, unknown = _read_function_output(raw, path)
        return self._result(param, unknown, "function", param.name, raw, path)

    def _custom_output(self, raw: Raw, path: str) -> ParsedItem:
        param, unknown = _read_custom_output(raw, path)
        return self._result(param, unknown, "custom", None, raw, path)

    def _result(
        self,
        param: schema.FunctionCallOutputParam | schema.CustomToolCallOutputParam,
        unknown: dict[str, Raw],
        kind: str,
        name: str | None,
        raw: Raw,
        path: str,
    ) -> ParsedItem:
        """Parses a tool result. Some clients refer to a call by its item id; upstreams require the
        call id.
        """
        # There is no field for a failed call; this is how we write one (see `_result` of the
        # renderer).
        is_error = param.status == "incomplete"
        contents = self._contents(param.output, path, "output")
        call_id = param.call_id or ""
        known_id = self._call_ids.get(call_id, call_id)
        supported = tuple(content for content in contents if isinstance(content, _RESULT_CONTENT))
        content = () if contents == _EMPTY_TEXT else supported
        # The renderer marks a failed result with both a status and a prefix. A prefix alone may be
        # the text of the tool.
        match content:
            case (first, *rest) if is_error and first == TextContent(schema.ERROR_PREFIX):
                content = tuple(rest)
            case (TextContent(text=text) as first, *rest) if is_error:
                without_prefix = text.removeprefix(schema.ERROR_PREFIX)
                content = (msgspec.structs.replace(first, text=without_prefix), *rest)
        extra = without_empty(unknown)
        # A part that is no result content elsewhere (a video) is kept whole for this dialect.
        if len(supported) < len(contents):
            extra["output"] = schema.to_raw(param.output)
        result = ResultContent(
            known_id,
            content,
            kind=kind,
            name=name,
            is_error=is_error,
            extra=_with_status(collect(extra), None if is_error else param.status),
        )
        # With a corrected id the source bytes are wrong, so the item is rendered anew.
        return Message("tool", (result,), item_id=param.id), raw if known_id == call_id else None

    def _reasoning(self, raw: Raw, path: str) -> ParsedItem | None:
        """Parses a reasoning item. Returns None for one that only carries a call's signature."""
        param = read_object(raw, schema.ReasoningItemParam, path)
        # `encrypted_content` is the upstream's own, or an envelope of ours around another origin's
        # state.
        envelope = unwrap(param.encrypted_content)
        if envelope is not None and envelope.state.call is not None:
            self._call_signatures[envelope.state.call] = envelope
            if not param.summary and not param.content:
                return None
            envelope = Envelope(envelope.origin, envelope.model, ReasoningState())
        # The envelope has the exact text that its origin signed; the summary may have been changed
        # or left out on the way.
        if envelope is not None and envelope.state.text is not None:
            return Message("assistant", restore_reasoning_item(envelope)), None
        extra = _with_status(schema.extra_of(raw, schema.ReasoningItemParam), param.status)
        if envelope is None:
            state = ReasoningState(item_id=param.id, encrypted=param.encrypted_content)
        else:
            state = envelope.state
        texts: list[tuple[ReasoningKind, str]] = [("summary", part.text) for part in param.summary]
        texts += [("raw", part.text) for part in param.content or ()]
        contents = [
            ReasoningContent(
                text,
                kind,
                item_id=state.item_id,
                origin=envelope.origin if envelope else self._origin,
            )
            for kind, text in texts or [("summary", "")]
        ]
        # The last part has the state of the item, as in a decoded response.
        contents[-1] = msgspec.structs.replace(
            contents[-1],
            signature=state.signature,
            encrypted=state.encrypted,
            redacted=state.redacted,
            extra=UNSET if envelope else extra,
        )
        return Message("assistant", tuple(contents)), None if envelope else raw

    def _compaction(self, raw: Raw, path: str) -> ParsedItem:
        """Parses a compaction item. Our own summary becomes a user message; anybody else's can be
        read only by its origin and is passed through.
        """
        param = read_object(raw, schema.CompactionParam, path)
        summary = unwrap_summary(param.encrypted_content)
        if summary is None:
            return self._opaque(raw, "compaction")
        return Message("user", (TextContent(_SUMMARY_PREFIX + summary),)), None

    def _hosted_call(self, raw: Raw, path: str) -> ParsedItem:
        """Parses a provider-executed call. Its params are all fields of its item."""
        # Each type has other fields, and only its own upstream can use them: they stay together.
        fields = fields_of(raw)
        kind, id = _text(fields.pop("type")), _text(fields.pop("id", None))
        call = CallContent(
            id,
            # An MCP call has a name; other hosted calls are named after their type.
            _text(fields.get("name")) or kind.removesuffix("_call"),
            msgspec.json.encode(fields).decode(),
            kind=kind,
            item_id=id or None,
            provider_executed=True,
        )
        return Message("assistant", (call,)), raw

    _PARSERS: ClassVar[
        Mapping[str, Callable[["ResponsesItemParser", Raw, str], ParsedItem | None]]
    ] = {
        "message": _message,
        "function_call": _function_call,
        "custom_tool_call": _custom_call,
        "function_call_output": _function_output,
        "custom_tool_call_output": _custom_output,
        "reasoning": _reasoning,
        "compaction": _compaction,
        **dict.fromkeys(schema.HOSTED_ITEMS, _hosted_call),
    }

    def _contents(self, content: str | list[Raw], path: str, key: str) -> tuple[AnyContent, ...]:
        """Parses content parts and records where each one came from."""
        base = f"messages[{len(self.messages)}].content"
        # The parts of a result are one level deeper than those of a message.
        if key == "output":
            self._paths[f"{base}[0]"] = path
            base = f"{base}[0].content"
        if isinstance(content, str):
            self._paths[f"{base}[0]"] = f"{path}.{key}"
            return (TextContent(content),)
        contents: list[AnyContent] = []
        for number, raw in enumerate(content):
            part_path = f"{path}.{key}[{number}]"
            # Parts of a message have the same path in the canonical one.
            if key == "output":
                self._paths[f"{base}[{number}]"] = part_path
            plain = _read_text(raw)
            if plain is not None and plain.annotations in _NOTHING and plain.logprobs in _NOTHING:
                contents.append(TextContent(plain.text))
                continue
            type = read_object(raw, schema.ItemHeader, part_path).type
            # Unlike an item, a part must have a type.
            if type is None:
                expected = ", ".join(_PART_PARSERS)
                raise BadRequest(f"{part_path}.type", f"missing; expected one of {expected}")
            parser = _PART_PARSERS.get(type)
            opaque = OpaqueContent(self._origin, f"message.{type}", raw)
            contents.append(parser(raw, part_path) if parser else opaque)
        return tuple(contents)


def _with_status(extra: Json, status: str | None) -> Json:
    """Adds a status to `extra`, unless it is `completed`, which is the default."""
    if status is None or status == "completed":
        return extra
    return schema.to_raw({**fields_of(extra), "status": status})


def _text(raw: Raw | None) -> str:
    try:
        return msgspec.json.decode(raw, type=str) if raw is not None else ""
    except ValueError:
        return ""


# Content parts


def _input_text(raw: Raw, path: str) -> AnyContent:
    part = read_object(raw, schema.InputTextParam, path)
    extra = keep_breakpoint(
        schema.extra_of(raw, schema.InputTextParam), part.prompt_cache_breakpoint
    )
    return TextContent(
        part.text, cache=cache_of_breakpoint(part.prompt_cache_breakpoint), extra=extra
    )


def _output_text(raw: Raw, path: str) -> AnyContent:
    """Keeps annotations in `extra`, unless there are none."""
    part = read_object(raw, schema.AssistantText, path)
    return TextContent(part.text, extra=schema.extra_of(raw, schema.BareAssistantText))


def _refusal(raw: Raw, path: str) -> AnyContent:
    part = read_object(raw, schema.AssistantRefusal, path)
    return TextContent(
        part.refusal,
        refusal=True,
        extra=schema.extra_of(raw, schema.AssistantRefusal),
    )


def _image(raw: Raw, path: str) -> AnyContent:
    part = read_object(raw, schema.InputImageParam, path)
    # Both are optional in the schema; one is needed to have an image.
    if part.image_url is None and part.file_id is None:
        raise BadRequest(path, "expected `image_url` or `file_id`")
    inlined = parse_data_url(part.image_url or "")
    return ImageContent(
        media_type=inlined.media_type if inlined else None,
        data=inlined.data if inlined else None,
        url=None if inlined else part.image_url,
        file_id=part.file_id,
        detail=part.detail,
        cache=cache_of_breakpoint(part.prompt_cache_breakpoint),
        extra=keep_breakpoint(
            schema.extra_of(raw, schema.InputImageParam), part.prompt_cache_breakpoint
        ),
    )


def _file(raw: Raw, path: str) -> AnyContent:
    part = read_object(raw, schema.InputFileParam, path)
    if part.file_data is None and part.file_id is None and part.file_url is None:
        raise BadRequest(path, "expected `file_data`, `file_url` or `file_id`")
    inlined = parse_data_url(part.file_data or "")
    return FileContent(
        inlined.media_type if inlined else None,
        # Bare base64 without a `data:` prefix is read as well.
        inlined.data if inlined else part.file_data,
        part.file_url,
        part.file_id,
        part.filename,
        cache=cache_of_breakpoint(part.prompt_cache_breakpoint),
        extra=keep_breakpoint(
            schema.extra_of(raw, schema.InputFileParam), part.prompt_cache_breakpoint
        ),
    )


_PART_PARSERS: dict[str, Callable[[Raw, str], AnyContent]] = {
    "input_text": _input_text,
    "output_text": _output_text,
    "refusal": _refusal,
    "input_image": _image,
    "input_file": _file,
}
