"""Parts into a Responses stream: pure Open Responses, or its tool-session form on request.

- One allocator hands out `output_index` and item ids; one counter numbers every event.
- An item is announced by `output_item.added` with all that is known: a call with its name and
  `arguments: ""`, even if it came whole.
- What `done` events and the terminal snapshot say is read from the fold, never joined here.
- Parts with one `item_id` share an item. So an item stays open until something else begins or
  the response finishes, which also tells whether its last item was cut (`incomplete`).
- An error is written after the ends of what is open, together with `response.failed`: clients
  stop reading there.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from weft.assembler import Assembler, merged
from weft.context import Context
from weft.dialects.openai_responses import wire
from weft.dialects.openai_responses.items import (
    SHAPES,
    CallItem,
    FixedItem,
    HostedItem,
    Item,
    ItemKind,
    MessageItem,
    ReasoningItem,
    SaidText,
    SaidThought,
)
from weft.dialects.openai_responses.quirks import ResponsesQuirks
from weft.dialects.openai_responses.snapshot import error_detail, resource, usage
from weft.dialects.openai_responses.wire import NAME
from weft.findings import Findings
from weft.parts import (
    ErrorPart,
    File,
    Finish,
    Opaque,
    Part,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    ResponseMetadata,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolApprovalRequest,
    ToolCall,
    ToolParamsDelta,
    ToolParamsEnd,
    ToolParamsStart,
    ToolResult,
    Usage,
)
from weft.sse import DONE, comment, write

HOSTED = {
    "code_interpreter_call": "ci",
    "computer_call": "cu",
    "file_search_call": "fs",
    "image_generation_call": "ig",
    "mcp_call": "mcp",
    "shell_call": "sh",
    "tool_search_call": "ts",
    "web_search_call": "ws",
}
"""Items for calls that the provider executes, with the prefix of their ids. Their keys are those
of params and result. Other kinds of them have no item here."""

INCOMPLETE = {"length": "max_output_tokens", "content-filter": "content_filter", "pause": None}
"""Finish reasons that leave a response incomplete, and how the wire calls them."""


class _Identified(msgspec.Struct):
    id: str | None = None


_json = msgspec.json.Encoder().encode
_read_id = msgspec.json.Decoder(_Identified).decode
_read_fields = msgspec.json.Decoder(dict[str, Raw]).decode


class ResponsesEncoder:
    """Writes one response. `fold` is the fold of the very parts it is fed."""

    def __init__(self, context: Context, fold: Assembler, findings: Findings) -> None:
        quirks = context.quirks
        asked = context.request is not None and "required_action" in context.request.include
        self._context = context
        self._fold = fold
        self._findings = findings
        self._tool_session = asked or (isinstance(quirks, ResponsesQuirks) and quirks.tool_session)
        self._sequence = 0
        self._ids: set[str] = set()
        self._items: list[Item] = []
        self._ripe: list[Item] = []
        """Items that are all said: the next part closes them."""
        self._done: dict[int, wire.Item] = {}
        self._texts: dict[str, SaidText] = {}
        self._thoughts: dict[str, SaidThought] = {}
        self._calls: dict[str, CallItem] = {}
        self._hosted: dict[str, HostedItem] = {}
        self._pending: list[wire.PendingCall] = []
        self._sources: list[Source] = []
        """Sources that wait for a text to annotate."""
        self._usage: Usage | None = None
        self._error: ErrorPart | None = None
        self._cut_call = False
        """A call was announced and never ended: a response with it is not whole."""
        self._resource = resource("", 0, "", context.request)

    def feed(self, parts: Sequence[Part]) -> list[bytes]:
        """Returns the events that these parts make, each in one piece."""
        out: list[bytes] = []
        for part in parts:
            if self._ripe:
                self._close_ripe(part, out)
            _HANDLERS[part.__class__](self, part, out)
        return out

    def finish(self) -> list[bytes]:
        """The finish part said it all."""
        return []

    def keepalive(self) -> list[bytes]:
        if not (self._tool_session and self._resource.id):
            return [comment("keepalive")]
        number = self._sequence
        self._sequence = number + 1
        return [write("ping", b'{"type":"ping","sequence_number":%d}' % number)]

    # Events and items

    def _event(self, type: str, out: list[bytes], *body: bytes) -> None:
        """Writes one event in one piece. Its body is joined here once: it may be large."""
        number = self._sequence
        self._sequence = number + 1
        name = type.encode()
        head = b'event: %b\ndata: {"type":"%b","sequence_number":%d,' % (name, name, number)
        if any(b"\n" in piece for piece in body):  # raw JSON that was spread over lines
            body = (msgspec.json.format(b"{%b}" % b"".join(body), indent=-1)[1:-1],)
        out.append(b"".join((head, *body, b"}\n\n")))

    def _delta(self, head: bytes, delta: str, out: list[bytes]) -> None:
        number = self._sequence
        self._sequence = number + 1
        out.append(b'%b%b,"sequence_number":%d}\n\n' % (head, _json(delta), number))

    def _snapshot(self, type: str, out: list[bytes], more: bytes = b"") -> None:
        self._event(type, out, b'"response":', _json(self._resource), more)

    def _item_id(self, wanted: str | None, prefix: str) -> str:
        """The wire's own item id, once; otherwise a fresh one."""
        id = wanted if wanted and wanted not in self._ids else self._context.ids.mint(prefix)
        self._ids.add(id)
        return id

    def _add(self, item: Item, out: list[bytes]) -> None:
        self._items.append(item)
        index = b'"output_index":%d,"item":' % item.index
        self._event("response.output_item.added", out, index, _json(item.wire("in_progress")))

    def _close(self, item: Item, status: wire.Status, out: list[bytes]) -> None:
        self._done[item.index] = done = item.wire(status)
        index = b'"output_index":%d,"item":' % item.index
        self._event("response.output_item.done", out, index, _json(done))

    def _said(self, item: Item) -> None:
        item.open -= 1
        if not item.open:
            self._ripe.append(item)

    def _close_ripe(self, part: Part, out: list[bytes]) -> None:
        """Closes items that are all said, unless this part goes on with one of them."""
        if isinstance(part, Finish) or self._error is not None:
            return
        group = part.item_id if isinstance(part, TextStart | ReasoningStart) else None
        ripe, self._ripe = self._ripe, []
        for item in ripe:
            cut = isinstance(item, CallItem) and item.invalid  # the finish tells its status
            if cut or (group is not None and item.group == group):
                self._ripe.append(item)
            else:
                self._close(item, "completed", out)

    def _grouped(self, group: str | None, kind: type[ItemKind]) -> ItemKind | None:
        """The open item that parts of this group belong to."""
        for item in reversed(self._items if group else ()):
            if item.group == group and isinstance(item, kind) and item.index not in self._done:
                if item in self._ripe:
                    self._ripe.remove(item)
                return item
        return None

    def _not_carried(self, part: Part, why: str) -> None:
        self._findings.once("not-carried", part.type, f"{part.type}: {why}")

    # The response

    def _metadata(self, part: ResponseMetadata, out: list[bytes]) -> None:
        request = self._context.request
        self._resource = resource(
            self._context.response_id or self._context.ids.mint("resp"),
            self._context.now if part.created is None else part.created,
            part.model or (request.model if request else ""),
            request,
        )
        self._usage = part.usage
        if part.store is not None:
            self._resource.store = part.store
        if self._tool_session:
            self._resource.required_action = None
        self._snapshot("response.created", out)
        self._snapshot("response.in_progress", out)

    def _on_error(self, part: ErrorPart, out: list[bytes]) -> None:
        self._error = part

    def _on_finish(self, part: Finish, out: list[bytes]) -> None:
        self._close_all(part, out)
        response = self._resource
        response.model = part.model or response.model
        response.output = [self._done[item.index] for item in self._items]
        response.usage = usage(merged(self._usage, part.usage))
        if self._error is not None:
            self._failed(self._error, out)
        elif part.reason in INCOMPLETE or self._cut_call:
            reason = INCOMPLETE.get(part.reason, "tool_call_incomplete")
            response.status = "incomplete"
            response.incomplete_details = wire.Incomplete(reason) if reason else None
            self._snapshot("response.incomplete", out)
        else:
            self._completed(part, out)
        out.append(write("", DONE))

    def _close_all(self, part: Finish, out: list[bytes]) -> None:
        """What an error found open is incomplete; what a limit cut tells each kind itself."""
        failed = self._error is not None
        cut = part.reason in INCOMPLETE or self._cut_call
        for item in self._items:
            if item.index not in self._done:
                incomplete = failed or (cut and item.cut(item is self._items[-1]))
                self._close(item, "incomplete" if incomplete else "completed", out)
        for source in self._sources:
            self._not_carried(source, "no text to annotate")

    def _completed(self, part: Finish, out: list[bytes]) -> None:
        response = self._resource
        response.status = "completed"
        response.completed_at = max(self._context.now, response.created_at)
        if self._tool_session and self._pending and part.reason == "tool-calls":
            action = wire.RequiredAction(wire.ToolCalls(self._pending))
            response.status, response.completed_at = "incomplete", None
            response.required_action = action
            more = b',"required_action":%b' % _json(action)
            self._snapshot("response.required_action", out, more)
        self._snapshot("response.completed", out)

    def _failed(self, error: ErrorPart, out: list[bytes]) -> None:
        """The error both flat, as the official client types it, and nested, as the text does."""
        detail = error_detail(error)
        flat = b'"code":%b,"message":%b,"param":null' % (_json(detail.code), _json(detail.message))
        self._event("error", out, flat, b',"error":', _json(detail))
        self._resource.status = "failed"
        self._resource.error = wire.Failure(detail.code, detail.message)
        self._snapshot("response.failed", out)

    # Text

    def _text_start(self, part: TextStart, out: list[bytes]) -> None:
        item = self._grouped(part.item_id, MessageItem)
        if item is None:
            item = MessageItem(len(self._items), self._item_id(part.item_id, "msg"), part)
            self._add(item, out)
        item.open += 1
        self._texts[part.id] = said = SaidText(item, part.refusal)
        item.parts.append(said.part(""))
        part_added = _json(said.part(""))
        self._event("response.content_part.added", out, said.place, b',"part":', part_added)
        if not part.refusal:
            waiting, self._sources = self._sources, []
            for source in waiting:
                self._annotate(said, source, out)

    def _text_delta(self, part: TextDelta, out: list[bytes]) -> None:
        number = self._sequence
        self._sequence = number + 1
        head = self._texts[part.id].head
        out.append(b'%b%b,"sequence_number":%d}\n\n' % (head, _json(part.delta), number))

    def _text_end(self, part: TextEnd, out: list[bytes]) -> None:
        said = self._texts.pop(part.id)
        text = self._fold.text(part.id)
        if said.refusal:
            self._event("response.refusal.done", out, said.place, b',"refusal":', _json(text))
        else:
            key = b',"logprobs":[],"text":'
            self._event("response.output_text.done", out, said.place, key, _json(text))
        said.item.parts[said.index] = whole = said.part(text)
        self._event("response.content_part.done", out, said.place, b',"part":', _json(whole))
        self._said(said.item)

    def _source(self, part: Source, out: list[bytes]) -> None:
        if part.kind != "url" or part.url is None:
            self._not_carried(part, "only addresses can be annotations")
            return
        texts = [said for said in self._texts.values() if not said.refusal]
        said = self._texts.get(part.text_id or "") or (texts[-1] if texts else None)
        if said is None:
            self._sources.append(part)
        else:
            self._annotate(said, part, out)

    def _annotate(self, said: SaidText, source: Source, out: list[bytes]) -> None:
        annotation = wire.UrlCitation(
            source.url or "", source.title or "", source.start or 0, source.end or 0
        )
        index = len(said.annotations)
        said.annotations.append(annotation)
        key = b',"annotation_index":%d,"annotation":' % index
        event = "response.output_text.annotation.added"
        self._event(event, out, said.place, key, _json(annotation))

    # Reasoning

    def _reasoning_start(self, part: ReasoningStart, out: list[bytes]) -> None:
        item = self._grouped(part.item_id, ReasoningItem)
        if item is None:
            item = ReasoningItem(len(self._items), self._item_id(part.item_id, "rs"), part)
            self._add(item, out)
        item.open += 1
        self._thoughts[part.id] = SaidThought(item, part.kind)

    def _reasoning_delta(self, part: ReasoningDelta, out: list[bytes]) -> None:
        said = self._thoughts[part.id]
        if said.index is None:
            said.begin()
            empty = _json(said.kind.part(""))
            self._event(said.kind.wrapper + ".added", out, said.place, b',"part":', empty)
        self._delta(said.head, part.delta, out)

    def _reasoning_end(self, part: ReasoningEnd, out: list[bytes]) -> None:
        said = self._thoughts.pop(part.id)
        if said.index is not None:
            text = self._fold.reasoning(part.id)
            self._event(said.kind.text + ".done", out, said.place, b',"text":', _json(text))
            said.kind.parts(said.item)[said.index] = whole = said.kind.part(text)
            self._event(said.kind.wrapper + ".done", out, said.place, b',"part":', _json(whole))
        if part.encrypted and part.origin in (NAME, self._context.origin):
            said.item.encrypted = part.encrypted
        elif part.encrypted or part.signature or part.redacted:
            self._not_carried(part, f"its proof goes back to {part.origin} only")
        self._said(said.item)

    # Calls

    def _params_start(self, part: ToolParamsStart, out: list[bytes]) -> None:
        if part.provider_executed:
            self._host(part, out)
            return
        prefix = SHAPES[part.format].prefix
        item = CallItem(len(self._items), self._item_id(part.item_id, prefix), part)
        self._calls[part.id] = item
        self._add(item, out)

    def _params_delta(self, part: ToolParamsDelta, out: list[bytes]) -> None:
        item = self._calls.get(part.id)
        if item is not None:  # a hosted call shows its params when it is made
            self._delta(item.head, part.delta, out)

    def _params_end(self, part: ToolParamsEnd, out: list[bytes]) -> None:
        item = self._calls.get(part.id)
        if item is not None:
            self._arguments_done(item, self._fold.joined(part.id), out)

    def _arguments_done(self, item: CallItem, arguments: str, out: list[bytes]) -> None:
        item.arguments = arguments
        place = b'"item_id":%b,"output_index":%d,"%b":' % (
            _json(item.id),
            item.index,
            item.shape.key,
        )
        self._event(item.shape.event + ".done", out, place, _json(arguments))

    def _tool_call(self, part: ToolCall, out: list[bytes]) -> None:
        if part.provider_executed:
            self._executed(part, out)
            return
        item = self._calls.get(part.id)
        if item is None:
            if not part.name or part.invalid == "stream-failed":
                self._not_carried(part, "it was never announced")
                return
            item = self._whole_call(part, out)
        item.invalid = part.invalid is not None
        self._cut_call = self._cut_call or part.invalid == "stream-failed"
        if part.invalid is None:
            self._pending.append(_pending(part))
        self._said(item)

    def _whole_call(self, part: ToolCall, out: list[bytes]) -> CallItem:
        prefix = SHAPES[part.format].prefix
        item = CallItem(len(self._items), self._item_id(part.item_id, prefix), part)
        self._calls[part.id] = item
        self._add(item, out)
        if part.params:
            self._delta(item.head, part.params, out)
        self._arguments_done(item, part.params, out)
        return item

    def _host(self, part: ToolParamsStart | ToolCall, out: list[bytes]) -> HostedItem | None:
        prefix = HOSTED.get(part.kind)
        if prefix is None:
            self._not_carried(part, f"no item for {part.kind} that the provider executes")
            return None
        item = HostedItem(len(self._items), self._item_id(part.item_id, prefix), part.kind)
        self._hosted[part.id] = item
        self._add(item, out)
        return item

    def _executed(self, part: ToolCall, out: list[bytes]) -> None:
        item = self._hosted.get(part.id) or self._host(part, out)
        if item is None:
            return
        if part.kind == "mcp_call":
            item.fields["name"] = Raw(_json(part.name))
            item.fields["server_label"] = Raw(_json(part.server_label or ""))
            item.fields["arguments"] = Raw(_json(part.params))
        else:
            item.fields.update(_fields(part.params, "arguments"))

    def _tool_result(self, part: ToolResult, out: list[bytes]) -> None:
        item = self._hosted.get(part.id)
        if item is None:
            self._not_carried(part, "no item for the result of this call")
        elif not part.preliminary:
            item.fields.update(_fields(bytes(part.result).decode(), "output"))
            self._said(item)

    # What has no place here

    def _approval(self, part: ToolApprovalRequest, out: list[bytes]) -> None:
        self._not_carried(part, "approvals have no item here")

    def _file(self, part: File, out: list[bytes]) -> None:
        self._not_carried(part, "files have no item here")

    def _opaque(self, part: Opaque, out: list[bytes]) -> None:
        if part.origin != NAME:
            self._not_carried(part, f"{part.kind} belongs to {part.origin}")
            return
        id = _id_of(part.raw)
        if id in self._ids:
            self._not_carried(part, f"item {id!r} was written before")
            return
        item = FixedItem(len(self._items), self._item_id(id, "item"), part.raw)
        self._add(item, out)
        self._ripe.append(item)


def _id_of(raw: Raw) -> str | None:
    try:
        return _read_id(raw).id
    except ValueError:
        return None


def _pending(part: ToolCall) -> wire.PendingCall:
    if part.format == "text":
        return wire.PendingCall(
            part.id, "custom", custom=wire.PendingCustom(part.name, part.params)
        )
    function = wire.PendingFunction(part.name, part.params)
    return wire.PendingCall(part.id, "function", function=function)


def _fields(text: str, otherwise: str) -> dict[str, Raw]:
    """The keys of a JSON object; any other text stands under one key."""
    try:
        return _read_fields(text)
    except ValueError:
        return {otherwise: Raw(_json(text))}


_HANDLERS: dict[type[Part], Callable[[ResponsesEncoder, Any, list[bytes]], None]] = {
    ResponseMetadata: ResponsesEncoder._metadata,
    TextStart: ResponsesEncoder._text_start,
    TextDelta: ResponsesEncoder._text_delta,
    TextEnd: ResponsesEncoder._text_end,
    ReasoningStart: ResponsesEncoder._reasoning_start,
    ReasoningDelta: ResponsesEncoder._reasoning_delta,
    ReasoningEnd: ResponsesEncoder._reasoning_end,
    ToolParamsStart: ResponsesEncoder._params_start,
    ToolParamsDelta: ResponsesEncoder._params_delta,
    ToolParamsEnd: ResponsesEncoder._params_end,
    ToolCall: ResponsesEncoder._tool_call,
    ToolResult: ResponsesEncoder._tool_result,
    ToolApprovalRequest: ResponsesEncoder._approval,
    Source: ResponsesEncoder._source,
    File: ResponsesEncoder._file,
    Opaque: ResponsesEncoder._opaque,
    ErrorPart: ResponsesEncoder._on_error,
    Finish: ResponsesEncoder._on_finish,
}
