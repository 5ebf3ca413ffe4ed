"""Writes the items of a Responses body.

What came in this dialect stays one item each. Messages of other dialects are paired first; then
each of their contents is written in its place: texts as messages, calls, results and reasoning
as items of their own.
"""

from itertools import groupby

import msgspec
from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.asking.arranging import source_of
from weft.dialects.asking.bridging import Names, is_object
from weft.dialects.asking.leftovers import drop_beside, unheard
from weft.dialects.asking.turns import Placed, Turn, spoken, turns
from weft.dialects.asking.verbatim import messages_as_said, said_by
from weft.dialects.asking.wording import Kin, data_url, image_url, plain_text
from weft.dialects.openai_responses.requests import schema
from weft.dialects.openai_responses.wire import NAME
from weft.dialects.requests import Losses, Spelling, keys_of, origins
from weft.parts import Json
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

PREFILLS = frozenset({"anthropic-messages"})
"""Wires on which an answer goes on where the last message of the assistant ends."""

_FAILED = "Error: "


def items(request: Request, context: Context, names: Names, losses: Losses) -> list[Raw]:
    """Returns the items; what cannot be said in them is in the losses."""
    writer = _Writer(request, context, names, losses)
    if request.dialect != NAME:
        _note(request, writer.kin, losses)
        return [raw for turn in _paired(request, losses) for raw in writer.turn(turn)]
    sources = messages_as_said(said_by(request, NAME), request)
    written: list[Raw] = []
    for turn in _apart(list(spoken(request, losses))):
        before = len(losses.found)
        ours = writer.turn(turn)
        source = source_of(turn, sources)
        written += ours if source is None or len(losses.found) > before else [source]
    return written


def _apart(found: list[Turn]) -> list[Turn]:
    """The turns without the instructions, which have a field of their own."""
    return [turn for turn in found if turn.path != "instructions"]


def _paired(request: Request, losses: Losses) -> list[Turn]:
    found = _apart(turns(request, losses))
    if found and found[-1].role == "assistant" and request.dialect in PREFILLS:
        losses.refused(found[-1].path, f"an answer cannot be continued on {NAME}; end with a user")
    return found


def _note(request: Request, kin: Kin, losses: Losses) -> None:
    """What only the dialect of a message can say of it."""
    for number, message in enumerate(request.messages):
        path = f"messages[{number}]"
        if message.name is not None:
            losses.warned(f"{path}.name", f"{NAME} does not tell speakers apart")
        drop_beside(message.extra, path, losses, NAME)
        kin.note(message.content, path)


def _kind(placed: Placed) -> str:
    """Contents of one kind in a row share an item: texts a message, thoughts of one id a
    reasoning.
    """
    match placed.content:
        case TextContent() | ImageContent() | FileContent():
            return "message"
        case ReasoningContent(item_id=id):
            return f"reasoning {id}"
        case OpaqueContent(kind=kind) if kind.startswith("message."):
            return "message"
    return placed.path


class _Writer:
    """Turns in, items out."""

    def __init__(self, request: Request, context: Context, names: Names, losses: Losses) -> None:
        self._same = request.dialect == NAME
        self._origins = origins(context, NAME, native=self._same)
        self._own = self._same or request.dialect is None
        self.kin = Kin(request, NAME, schema.SIBLING, losses)
        self._names = names
        self._ids = Spelling(r"\s\S", 64)
        self._losses = losses
        self._free: set[str] = set()
        """The ids of free-form calls: their results are of another type."""

    def turn(self, turn: Turn) -> list[Raw]:
        if not turn.contents:
            return [self._message(turn, [])] if self._own else []
        found: list[Raw] = []
        for kind, group in groupby(turn.contents, key=_kind):
            placed = list(group)
            if kind == "message":
                found += [] if self._is_silent(turn, placed) else [self._message(turn, placed)]
            elif kind.startswith("reasoning "):
                found += self._reasoning(placed)
            else:
                found += self._item(placed[0], turn)
        return found

    def _is_silent(self, turn: Turn, placed: list[Placed]) -> bool:
        """Whether an empty text is all there is of a message between calls: an item of its own
        would part them from their results."""
        inside = turn.role == "assistant" and len(placed) < len(turn.contents)
        return inside and not self._own and _only_text(placed) == ""

    def _written(self, value: schema.Shape, extra: Json = UNSET) -> Raw:
        """Writes a shape with the keys that came beside it, if it came in this dialect."""
        more = keys_of(extra if self._same else UNSET)
        return schema.raw(more | keys_of(schema.raw(value)))

    # Messages

    def _message(self, turn: Turn, contents: list[Placed]) -> Raw:
        message = turn.message or Message("user", ())
        ours = turn.role == "assistant"
        found = [self._part(placed, ours) for placed in contents]
        text = _only_text(contents)
        content = text if text is not None else [part for part in found if part is not None]
        id = message.item_id if self._own else None
        value = schema.Message(
            turn.role,
            content,
            id,
            "completed" if id and ours else None,
            message.phase,
        )
        return self._written(value, message.extra)

    def _part(self, placed: Placed, ours: bool) -> Raw | None:
        path = placed.path
        match placed.content:
            case TextContent(refusal=True) as refusal:
                return self._written(schema.Refusal(refusal.text), refusal.extra)
            case TextContent() as text if ours:
                if text.cache is not None:
                    self._losses.warned(f"{path}.cache", "an answer cannot be marked here")
                return self._cited(text)
            case TextContent() as text:
                mark = self.kin.mark(text, path)
                return self._written(schema.InputText(text.text, mark), text.extra)
            case ImageContent() | FileContent() if ours and not self._same:
                detail = f"the assistant's files are not available on {NAME}; move them"
                self._losses.refused(path, f"{detail} to a user message")
            case ImageContent() as image:
                return self._image(path, image)
            case FileContent() as file:
                return self._file(path, file)
            case OpaqueContent() as opaque:
                return self._opaque(path, opaque, ours)
        return None

    def _cited(self, text: TextContent) -> Raw:
        """A text of the assistant, with the places it cites: the key must be there."""
        own = keys_of(schema.raw(schema.OutputText(text.text, [])))
        return schema.raw(own | keys_of(text.extra if self._same else UNSET))

    def _opaque(self, path: str, opaque: OpaqueContent, ours: bool) -> Raw | None:
        if self._own and opaque.origin in self._origins:
            return opaque.raw
        unheard(opaque, path, self._losses, NAME, ours=ours)
        return None

    def _image(self, path: str, image: ImageContent) -> Raw | None:
        mark = self.kin.mark(image, path)
        if image.file_id is not None and not self._own:
            self._losses.refused(f"{path}.file_id", "file ids are known only to their origin")
            return None
        detail = image.detail if self._same else image.detail or "auto"
        self.kin.fetched(image, path)
        value = schema.InputImage(image_url(image), image.file_id, detail, mark)
        return self._written(value, image.extra)

    def _file(self, path: str, file: FileContent) -> Raw | None:
        media, mark = file.media_type or "", self.kin.mark(file, path)
        if media.startswith(("audio/", "video/")):
            self._losses.refused(path, f"{media[:5]} is not available on {NAME}; remove it")
            return None
        if file.file_id is not None and not self._own:
            self._losses.refused(f"{path}.file_id", "file ids are known only to their origin")
            return None
        text = plain_text(file) if not self._own else None
        if text is not None:
            self._losses.adapted(path, "a document of plain text is a text")
            return self._written(schema.InputText(text, mark))
        self.kin.fetched(file, path)
        data = file.data if file.data is None or not media else data_url(media, file.data)
        value = schema.InputFile(data, file.file_id, file.url, file.filename, mark)
        return self._written(value, file.extra)

    # Items

    def _item(self, placed: Placed, turn: Turn) -> list[Raw]:
        match placed.content:
            case CallContent(provider_executed=True) as call:
                return self._hosted(placed.path, call)
            case CallContent() as call:
                return [self._call(placed.path, call)]
            case ResultContent() as result if turn.role == "assistant":
                self._losses.warned(placed.path, f"{result.kind} is not told on {NAME}")
            case ResultContent() as result:
                return [self._result(placed.path, result, turn)]
            case OpaqueContent() as opaque:
                raw = self._opaque(placed.path, opaque, turn.role == "assistant")
                return [] if raw is None else [raw]
        return []

    def _hosted(self, path: str, call: CallContent) -> list[Raw]:
        known = call.kind in schema.HOSTED_ITEMS and is_object(call.params)
        if not self._own or not known:
            self._losses.warned(path, f"{NAME} does not tell hosted calls of another wire")
            return []
        head = {"type": call.kind, "id": call.item_id or call.id}
        head |= {} if self._same else {"status": "completed"}
        return [schema.raw(head | keys_of(Raw(call.params.encode())))]

    def _call(self, path: str, call: CallContent) -> Raw:
        if call.signature is not None:
            self._losses.adapted(f"{path}.signature", "a proof goes only to its origin")
        id = call.id if self._same else self._ids.spell(call.id)
        namespace = call.namespace if self._own else None
        name = call.name
        if not self._same:
            name = self._names.spell(call.name, None if self._own else call.namespace, path)
        item_id = call.item_id if self._own else None
        value: schema.Shape
        if call.format == "text":
            self._free.add(id)
            value = schema.CustomToolCall(id, name, call.params, item_id, namespace)
        else:
            value = schema.FunctionCall(id, name, call.params or "{}", item_id, namespace)
        return self._written(value, call.extra)

    def _result(self, path: str, result: ResultContent, turn: Turn) -> Raw:
        contents = [
            Placed(f"{path}.content[{number}]", content)
            for number, content in enumerate(result.content)
        ]
        if result.is_error:
            self._note_error(path)
            contents = _failed(path, contents)
        contents = self.kin.marked(path, contents, result.cache)
        text = _only_text(contents) if contents else ""
        found = [self._part(placed, False) for placed in contents]
        output = text if text is not None else [part for part in found if part is not None]
        item_id = turn.message.item_id if turn.message and self._own else None
        id = (result.id if self._same else self._ids.spell(result.id)) or None
        status = "incomplete" if result.is_error else None
        value: schema.Shape
        if result.kind == "custom" or id in self._free:
            value = schema.CustomToolCallOutput(output, id, item_id, status)
        else:
            value = schema.FunctionCallOutput(output, id, item_id, None, status)
            value.name = result.name if self._same else None
        return self._written(value, result.extra)

    def _note_error(self, path: str) -> None:
        if not self._same:
            detail = "told by the status and by `Error: ` before the text"
            self._losses.adapted(f"{path}.is_error", detail)

    def _reasoning(self, contents: list[Placed]) -> list[Raw]:
        """Reasoning goes back only to where it came from, whole and with its proof."""
        thoughts = [one.content for one in contents if isinstance(one.content, ReasoningContent)]
        last = thoughts[-1]
        encrypted = next((one.encrypted for one in thoughts if one.encrypted is not None), None)
        proven = encrypted is not None or last.item_id is not None
        if any(one.origin not in self._origins for one in thoughts) or not proven:
            for placed in contents:
                self._losses.warned(placed.path, "dropped: reasoning goes back only to its origin")
            return []
        said = [one for one in thoughts if one.text]
        raw = [schema.Thought("reasoning_text", one.text) for one in said if one.kind == "raw"]
        value = schema.Reasoning(
            [schema.Thought("summary_text", one.text) for one in said if one.kind == "summary"],
            last.item_id,
            raw or UNSET,
            encrypted,
        )
        return [self._written(value, last.extra)]


def _only_text(contents: list[Placed]) -> str | None:
    """The text of what is one plain text: it needs no part."""
    match contents:
        case [Placed(_, TextContent(refusal=False, cache=None) as text)]:
            return None if keys_of(text.extra) else text.text
    return None


def _failed(path: str, contents: list[Placed]) -> list[Placed]:
    match contents:
        case [Placed(where, TextContent() as first), *rest]:
            said = msgspec.structs.replace(first, text=f"{_FAILED}{first.text}")
            return [Placed(where, said), *rest]
    return [Placed(path, TextContent(_FAILED)), *contents]
