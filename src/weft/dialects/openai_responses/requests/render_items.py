"""Renders the input items of a Responses body.

A message from a Responses request becomes the one item it came from. Messages of other dialects are
first arranged so that each call has its result; then texts become messages, and calls, results and
reasoning become items of their own, in order.
"""

from itertools import groupby

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.openai_responses.requests import schema
from weft.dialects.openai_responses.requests.passthrough import ResponsesPassthrough
from weft.dialects.openai_responses.wire import NAME
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.data_urls import data_url, image_url, text_of_file
from weft.dialects.requests.fields import fields_of, is_json_object
from weft.dialects.requests.openai_family import OpenAIFamilyOptions
from weft.dialects.requests.turns import (
    LocatedContent,
    Turn,
    ends_with_prefill,
    message_turns,
    paired_turns,
)
from weft.dialects.requests.unknown_fields import report_dropped_extras, report_unsupported_item
from weft.request import (
    CallContent,
    FileContent,
    ImageContent,
    Message,
    OpaqueContent,
    ReasoningContent,
    Request,
    ResultContent,
    TextContent,
)


def render_items(
    request: Request,
    passthrough: ResponsesPassthrough,
    family: OpenAIFamilyOptions,
    losses: Losses,
) -> list[schema.Encodable]:
    """Renders the items. What they cannot express is reported as a loss."""
    renderer = _ResponsesItemRenderer(passthrough, family, losses)
    if passthrough.same_dialect:
        # Nothing is arranged in a request of this dialect: pairs and order are for the upstream to
        # judge.
        found = message_turns(request, losses)
    else:
        for number, message in enumerate(request.messages):
            path = f"messages[{number}]"
            if message.name is not None:
                losses.warned(f"{path}.name", f"dropped: messages have no name on {NAME}")
            if message.extra is not UNSET:
                report_dropped_extras(message.extra, path, losses, NAME)
            family.report_extras(message.content, path)
        found = paired_turns(request, losses)
    # Instructions have a field of their own.
    turns = [turn for turn in found if turn.path != "instructions"]
    if ends_with_prefill(request, turns):
        detail = f"an answer cannot be continued on {NAME}; end with a user message"
        losses.refused(turns[-1].path, detail)
    items: list[schema.Encodable] = []
    for turn in turns:
        source = passthrough.source_item(turn) if passthrough.same_dialect else None
        if source is not None and _loses_nothing(turn):
            items.append(source)
            continue
        # An item of which something got lost must not be sent with its source bytes, which still
        # have it.
        losses_before = len(losses.found)
        rendered = renderer.turn(turn)
        items += rendered if source is None or len(losses.found) > losses_before else [source]
    return items


def _loses_nothing(turn: Turn) -> bool:
    """Whether a turn of this dialect holds texts, function calls and results of which nothing gets
    lost: then there is no need to render them to find that out.
    """
    for located in turn.contents:
        match located.content:
            case TextContent(cache=None):
                continue
            case CallContent(format="json", provider_executed=False, signature=None):
                continue
            case ResultContent(cache=None, content=inner) if turn.role != "assistant":
                for one in inner:
                    if one.__class__ is not TextContent or one.cache is not None:
                        return False
            case _:
                return False
    return True


def _group_key(placed: LocatedContent) -> str:
    """Groups adjacent contents that share an item: texts in a message, and reasoning with the same
    item id.
    """
    match placed.content:
        case TextContent() | ImageContent() | FileContent():
            return "message"
        case ReasoningContent(item_id=id):
            return f"reasoning {id}"
        case OpaqueContent(kind=kind) if kind.startswith("message."):
            return "message"
    return placed.path


class _ResponsesItemRenderer:
    """Renders turns as items."""

    def __init__(
        self, passthrough: ResponsesPassthrough, family: OpenAIFamilyOptions, losses: Losses
    ) -> None:
        self._family = family
        self._passthrough = passthrough
        self._losses = losses
        self._custom_call_ids: set[str] = set()
        """Ids of custom tool calls, whose results have a type of their own."""

    def turn(self, turn: Turn) -> list[schema.Encodable]:
        if not turn.contents:
            # An empty message means something only to the dialect it was written in.
            return [self._message(turn, [])] if self._passthrough.own_ids else []
        if len(turn.contents) == 1 and isinstance(turn.contents[0].content, TextContent):
            return [self._message(turn, turn.contents)]  # nearly always
        items: list[schema.Encodable] = []
        for kind, group in groupby(turn.contents, key=_group_key):
            placed = list(group)
            if kind == "message":
                # An empty text among calls would, as an item, separate them from their results.
                among_calls = turn.role == "assistant" and len(placed) < len(turn.contents)
                if self._passthrough.own_ids or not among_calls or _single_text(placed) != "":
                    items.append(self._message(turn, placed))
            elif kind.startswith("reasoning "):
                items += self._reasoning(placed)
            else:
                items += self._item(placed[0], turn)
        return items

    # Messages

    def _message(self, turn: Turn, contents: list[LocatedContent]) -> schema.Encodable:
        message = turn.message or Message("user", ())
        is_assistant = turn.role == "assistant"
        content = self._content(contents, is_assistant)
        id = self._passthrough.item_id(message.item_id)
        # An assistant message with an id is an output item, whose type requires a status.
        value = schema.InputMessageParam(
            turn.role, content, id, "completed" if id and is_assistant else None, message.phase
        )
        return self._passthrough.shape(value, message.extra)

    def _content(self, contents: list[LocatedContent], is_assistant: bool) -> str | list[Raw]:
        """Renders contents as parts. A single plain text needs no list."""
        text = _single_text(contents)
        if text is not None:
            return text
        parts = [self._part(placed, is_assistant) for placed in contents]
        return schema.all_to_raw([part for part in parts if part is not None])

    def _part(self, placed: LocatedContent, is_assistant: bool) -> schema.Encodable | None:
        path, passthrough = placed.path, self._passthrough
        match placed.content:
            case TextContent(refusal=True) as refusal:
                return passthrough.shape(schema.AssistantRefusal(refusal.text), refusal.extra)
            case TextContent() as text if is_assistant:
                if text.cache is not None:
                    self._losses.warned(
                        f"{path}.cache",
                        f"dropped: assistant texts have no cache breakpoint on {NAME}",
                    )
                # `annotations` is required in assistant texts. Stored ones replace the empty list.
                fields = fields_of(schema.to_raw(schema.AssistantText(text.text, [])))
                return schema.to_raw(fields | passthrough.unknown_fields(text.extra))
            case TextContent() as text:
                breakpoint = self._family.breakpoint(text, path)
                return passthrough.shape(schema.InputTextParam(text.text, breakpoint), text.extra)
            # `input_*` parts are for users only.
            case ImageContent() | FileContent() if is_assistant and not passthrough.same_dialect:
                detail = f"files of the assistant are not available on {NAME}; move them"
                self._losses.refused(path, f"{detail} to a user message")
            case ImageContent() as image:
                return self._image(path, image)
            case FileContent() as file:
                return self._file(path, file)
            case OpaqueContent() as opaque:
                return self._opaque(path, opaque, is_assistant)
        return None

    def _opaque(self, path: str, opaque: OpaqueContent, is_assistant: bool) -> Raw | None:
        if self._passthrough.own_ids and self._passthrough.accepts(opaque):
            return opaque.raw
        report_unsupported_item(opaque, path, self._losses, NAME, ours=is_assistant)
        return None

    def _image(self, path: str, image: ImageContent) -> schema.Encodable | None:
        breakpoint = self._family.breakpoint(image, path)
        if image.file_id is not None and not self._passthrough.own_ids:
            self._losses.refused(f"{path}.file_id", "a file id is valid only at its origin")
            return None
        # The official types require a detail.
        detail = image.detail if self._passthrough.same_dialect else image.detail or "auto"
        self._family.report_media_type(image, path)
        value = schema.InputImageParam(image_url(image), image.file_id, detail, breakpoint)
        return self._passthrough.shape(value, image.extra)

    def _file(self, path: str, file: FileContent) -> schema.Encodable | None:
        media, breakpoint = file.media_type or "", self._family.breakpoint(file, path)
        # The input content of this API is text, images and files.
        if media.startswith(("audio/", "video/")):
            self._losses.refused(path, f"{media[:5]} is not available on {NAME}; remove it")
            return None
        if file.file_id is not None and not self._passthrough.own_ids:
            self._losses.refused(f"{path}.file_id", "a file id is valid only at its origin")
            return None
        text = text_of_file(file) if not self._passthrough.own_ids else None
        if text is not None:
            self._losses.adapted(path, "a plain-text document is sent as text")
            return self._passthrough.shape(schema.InputTextParam(text, breakpoint))
        self._family.report_media_type(file, path)
        # The media type has no field of its own.
        data = file.data if file.data is None or not media else data_url(media, file.data)
        value = schema.InputFileParam(data, file.file_id, file.url, file.filename, breakpoint)
        return self._passthrough.shape(value, file.extra)

    # Items

    def _item(self, placed: LocatedContent, turn: Turn) -> list[schema.Encodable]:
        match placed.content:
            case CallContent(provider_executed=True) as call:
                return self._hosted(placed.path, call)
            case CallContent() as call:
                return [self._call(placed.path, call)]
            # The result of a hosted call of another dialect, in the assistant's own turn.
            case ResultContent() as result if turn.role == "assistant":
                self._losses.warned(
                    placed.path, f"dropped: {NAME} has no result item for {result.kind}"
                )
            case ResultContent() as result:
                return [self._result(placed.path, result, turn)]
            case OpaqueContent() as opaque:
                raw = self._opaque(placed.path, opaque, turn.role == "assistant")
                return [] if raw is None else [raw]
        return []

    def _hosted(self, path: str, call: CallContent) -> list[schema.Encodable]:
        # The params are the fields of the item; what is no object cannot be made into one.
        is_known = call.kind in schema.HOSTED_ITEMS and is_json_object(call.params)
        if not self._passthrough.own_ids or not is_known:
            self._losses.warned(
                path, f"dropped: {NAME} takes hosted calls only from its own dialect"
            )
            return []
        fields = {"type": call.kind, "id": call.item_id or call.id}
        fields |= {} if self._passthrough.same_dialect else {"status": "completed"}
        return [schema.to_raw(fields | fields_of(Raw(call.params.encode())))]

    def _call(self, path: str, call: CallContent) -> schema.Encodable:
        # A signature of this dialect would be in a reasoning item.
        if call.signature is not None:
            self._losses.adapted(
                f"{path}.signature", "dropped: a signature is valid only at its origin"
            )
        id = self._passthrough.call_id(call.id)
        name = self._passthrough.tool_name(call.name, call.namespace, f"{path}.name")
        namespace = call.namespace if self._passthrough.own_ids else None
        item_id = self._passthrough.item_id(call.item_id)
        value: schema.ResponsesShape
        if call.format == "text":
            # Other dialects do not tell a custom result from another; its call does.
            self._custom_call_ids.add(id)
            value = schema.CustomToolCallParam(id, name, call.params, item_id, namespace)
        else:
            # Arguments must be JSON text; a call without any has an empty object.
            value = schema.FunctionCallParam(id, name, call.params or "{}", item_id, namespace)
        return self._passthrough.shape(value, call.extra)

    def _result(self, path: str, result: ResultContent, turn: Turn) -> schema.Encodable:
        contents = [
            LocatedContent(f"{path}.content[{number}]", content)
            for number, content in enumerate(result.content)
        ]
        if result.is_error:
            if not self._passthrough.same_dialect:
                detail = "sent as status incomplete, with the prefix `Error: `"
                self._losses.adapted(f"{path}.is_error", detail)
            match contents:
                case [LocatedContent(text_path, TextContent() as first), *rest]:
                    text = f"{schema.ERROR_PREFIX}{first.text}"
                    prefixed = msgspec.structs.replace(first, text=text)
                    contents = [LocatedContent(text_path, prefixed), *rest]
                case _:
                    contents.insert(0, LocatedContent(path, TextContent(schema.ERROR_PREFIX)))
        # A breakpoint stands on a part here, and on the whole result elsewhere.
        if result.cache is not None:
            contents = self._family.move_breakpoint(path, contents, result.cache)
        output = self._content(contents, False) if contents else ""
        item_id = self._passthrough.item_id(turn.message.item_id if turn.message else None)
        id = self._passthrough.call_id(result.id) or None
        # The only status of an output that says that something is wrong.
        status = "incomplete" if result.is_error else None
        value: schema.ResponsesShape
        if result.kind == "custom" or id in self._custom_call_ids:
            value = schema.CustomToolCallOutputParam(output, id, item_id, status)
        else:
            name = result.name if self._passthrough.same_dialect else None
            value = schema.FunctionCallOutputParam(output, id, item_id, status, name)
        return self._passthrough.shape(value, result.extra)

    def _reasoning(self, contents: list[LocatedContent]) -> list[schema.Encodable]:
        """Renders reasoning, which only its origin accepts, and only with its item id or encrypted
        content.
        """
        reasonings = [
            placed.content for placed in contents if isinstance(placed.content, ReasoningContent)
        ]
        last = reasonings[-1]
        # Only one part of an item has it, usually the last.
        encrypted = next((one.encrypted for one in reasonings if one.encrypted is not None), None)
        has_state = encrypted is not None or last.item_id is not None
        if not has_state or not all(map(self._passthrough.accepts, reasonings)):
            for placed in contents:
                self._losses.warned(
                    placed.path, "dropped: reasoning is accepted only by its origin"
                )
            return []
        texts: dict[str, list[schema.ReasoningPartParam]] = {"summary": [], "raw": []}
        for one in reasonings:
            # An item without a summary was parsed into an empty text.
            if one.text:
                type = "reasoning_text" if one.kind == "raw" else "summary_text"
                texts[one.kind].append(schema.ReasoningPartParam(type, one.text))
        value = schema.ReasoningItemParam(
            texts["summary"], last.item_id, texts["raw"] or UNSET, encrypted
        )
        return [self._passthrough.shape(value, last.extra)]


def _single_text(contents: list[LocatedContent]) -> str | None:
    """Returns the text of a single plain text, which needs no list of parts."""
    match contents:
        case [LocatedContent(_, TextContent(refusal=False, cache=None) as text)]:
            return text.text if text.extra is UNSET or not fields_of(text.extra) else None
    return None
