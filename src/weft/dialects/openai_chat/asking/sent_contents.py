"""Writes the messages of a Chat Completions body.

A message that came in this dialect stays one message. Those of other dialects are paired and
joined first: results are messages of their own, right after the calls; what a result holds
besides text follows in a message of the user.
"""

from itertools import groupby
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.asking.arranging import as_told, source_of
from weft.dialects.asking.bridging import Names, arguments
from weft.dialects.asking.leftovers import unheard, warn
from weft.dialects.asking.turns import Placed, Turn, merged, turns
from weft.dialects.asking.verbatim import messages_as_said, said_by
from weft.dialects.asking.wording import Kin, data_url, image_url, plain_text
from weft.dialects.openai_chat.asking import asked
from weft.dialects.openai_chat.quirks import quirks_of
from weft.dialects.openai_chat.wire import NAME, extra_content
from weft.dialects.requests import Losses, keys_of
from weft.parts import Json
from weft.request import (
    CallContent,
    FileContent,
    ImageContent,
    OpaqueContent,
    ReasoningContent,
    Request,
    ResultContent,
    TextContent,
)

PREFILLS = frozenset({"anthropic-messages"})
"""Wires on which an answer goes on where the last message of the assistant ends."""

_SOUNDS = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}
_PICTURES = "The images and files of this result are in the next message."


def messages(request: Request, context: Context, names: Names, losses: Losses) -> list[Raw]:
    """Returns the messages; what cannot be said in them is in the losses."""
    writer = _Writer(request, context, names, losses)
    if request.dialect != NAME:
        _note(request, writer.kin, losses)
        return [raw for turn in _joined(request, losses) for raw in writer.turn(turn)]
    sources = messages_as_said(said_by(request, NAME), request)
    written: list[Raw] = []
    for turn in as_told(request):
        before = len(losses.found)
        ours = writer.turn(turn)
        source = source_of(turn, sources)
        written += ours if source is None or len(losses.found) > before else [source]
    return written


def _joined(request: Request, losses: Losses) -> list[Turn]:
    found: list[Turn] = []
    for role, group in groupby(turns(request, losses), key=lambda turn: turn.role):
        run = list(group)
        found += run if role in ("system", "developer") else merged(run)
    if found and found[-1].role == "assistant" and request.dialect in PREFILLS:
        losses.refused(found[-1].path, f"an answer cannot be continued on {NAME}; end with a user")
    return found


def _note(request: Request, kin: Kin, losses: Losses) -> None:
    """What only the dialect of a message can say of it."""
    for number, message in enumerate(request.messages):
        path = f"messages[{number}]"
        if message.phase is not None:
            losses.adapted(f"{path}.phase", f"{NAME} does not tell phases apart")
        if message.item_id is not None:
            losses.adapted(f"{path}.item_id", f"{NAME} has no ids of items")
        warn(message.extra, path, losses)
        kin.note(message.content, path)


class _Parts(NamedTuple):
    """The parts of a message, and whether they are one plain text."""

    parts: list[Raw]
    text: str | None

    def content(self) -> str | list[Raw]:
        return self.parts if self.text is None else self.text


class _Writer:
    """Turns in, messages out."""

    def __init__(self, request: Request, context: Context, names: Names, losses: Losses) -> None:
        self._quirks = quirks_of(context)
        self._origin = context.origin or NAME
        self._same = request.dialect == NAME
        self._own = self._same or request.dialect is None
        self.kin = Kin(request, NAME, asked.SIBLING, losses)
        self._names = names
        self._losses = losses

    def turn(self, turn: Turn) -> list[Raw]:
        if turn.role == "assistant":
            return self._assistant(turn)
        return self._user(turn) if turn.role == "user" else [self._instructions(turn)]

    def _written(self, value: asked.Shape, extra: Json = UNSET) -> Raw:
        """Writes a shape with what came beside it, and inside it, if it came in this dialect."""
        if not self._same or extra is UNSET:
            return asked.raw(value)
        own = keys_of(asked.raw(value))
        for key, more in keys_of(extra).items():
            own[key] = asked.raw(keys_of(more) | keys_of(own[key])) if key in own else more
        return asked.raw(own)

    def _message_extra(self, turn: Turn) -> Json:
        return turn.message.extra if turn.message else UNSET

    # Instructions

    def _instructions(self, turn: Turn) -> Raw:
        role: str = turn.role
        if role == "developer" and not self._quirks.developer_role:
            role = "system"
            self._losses.adapted(f"{turn.path}.role", "the host knows no developer")
        for placed in turn.contents:
            if not isinstance(placed.content, TextContent):
                self._losses.refused(placed.path, f"instructions are text on {NAME}")
        content = self._parts(turn.contents).content()
        value = asked.Spoken(role, content, turn.name)
        return self._written(value, self._message_extra(turn))

    # User

    def _user(self, turn: Turn) -> list[Raw]:
        written: list[Raw] = []
        moved: list[Raw] = []
        rest: list[Placed] = []
        for placed in turn.contents:
            if isinstance(placed.content, ResultContent):
                written.append(self._result(placed.path, placed.content, turn, moved))
            else:
                rest.append(placed)
        parts = self._parts(rest)
        if moved:
            parts = _Parts(moved + parts.parts, None)
        own = self._same and turn.message is not None and turn.message.role == "user"
        if parts.parts or own:
            value = asked.Spoken("user", parts.content(), turn.name)
            written.append(self._written(value, self._message_extra(turn)))
        return written

    def _result(self, path: str, result: ResultContent, turn: Turn, moved: list[Raw]) -> Raw:
        texts: list[Placed] = []
        before = len(moved)
        for number, content in enumerate(result.content):
            placed = Placed(f"{path}.content[{number}]", content)
            if isinstance(content, TextContent):
                texts.append(placed)
            else:
                self._losses.adapted(placed.path, "follows in a message of the user")
                part = self._part(placed)
                moved += [part] if part is not None else []
        if len(moved) > before:
            texts.append(Placed(path, TextContent(_PICTURES)))
        if result.is_error:
            self._losses.adapted(f"{path}.is_error", "told by `Error: ` before the text")
            texts = _failed(path, texts)
        said = self._parts(self.kin.marked(path, texts, result.cache)).content()
        value = asked.ToolMessage("tool", said or "", result.id)
        value.name = result.name if self._same else None
        return self._written(value, self._message_extra(turn))

    # Assistant

    def _assistant(self, turn: Turn) -> list[Raw]:
        value = asked.Assistant("assistant", name=turn.name)
        said: list[Placed] = []
        calls: list[Raw] = []
        for placed in turn.contents:
            match placed.content:
                case CallContent() as call:
                    calls += self._call(placed.path, call)
                case ResultContent():
                    self._losses.warned(placed.path, f"{NAME} does not tell hosted results")
                case ReasoningContent() as thought:
                    self._thought(placed.path, thought, value)
                case ImageContent() | FileContent():
                    detail = f"the assistant's files are not available on {NAME}; move them"
                    self._losses.refused(placed.path, f"{detail} to a user message")
                case OpaqueContent() as opaque if opaque.origin != self._origin or not self._own:
                    unheard(opaque, placed.path, self._losses, ours=True)
                case _:
                    said.append(placed)
                    if calls:
                        self._losses.adapted(placed.path, "is said before the calls of its turn")
        value.tool_calls = calls or None
        self._say(value, said)
        if value == asked.Assistant("assistant", None, turn.name) and not self._same:
            return []
        return [self._written(value, self._message_extra(turn))]

    def _say(self, value: asked.Assistant, said: list[Placed]) -> None:
        only = said[0].content if len(said) == 1 else None
        if isinstance(only, TextContent) and only.refusal and not _is_part(only):
            value.refusal = only.text
            value.content = None
        else:
            content = self._parts(said).content() if said else None
            value.content = content if content or self._same else None

    def _thought(self, path: str, thought: ReasoningContent, value: asked.Assistant) -> None:
        """Reasoning goes back where its host wants it, and only to the host it came from."""
        fields = self._quirks.reasoning_back if thought.origin == self._origin else ()
        proofs = _details(thought, own=self._own)
        if "reasoning_content" in fields:
            value.reasoning_content = (value.reasoning_content or "") + thought.text
        elif "reasoning" in fields:
            value.reasoning = (value.reasoning or "") + thought.text
        elif not fields or not proofs:
            self._losses.adapted(path, "earlier reasoning is not sent")
        if "reasoning_details" in fields and proofs:
            value.reasoning_details = [*(value.reasoning_details or ()), *proofs]
        elif fields and proofs:
            self._losses.adapted(path, "the host does not take the proof of reasoning back")

    def _call(self, path: str, call: CallContent) -> list[Raw]:
        if call.provider_executed:
            self._losses.warned(path, f"{NAME} does not tell hosted calls")
            return []
        own = call.origin == self._origin
        if call.signature is not None and not own:
            self._losses.adapted(f"{path}.signature", "a proof goes only to its origin")
        if call.item_id is not None:
            self._losses.adapted(f"{path}.item_id", f"{NAME} has no ids of items")
        name = call.name
        if not self._same:
            name = self._names.spell(call.name, call.namespace, path)
        value: asked.Shape
        if call.format != "text":
            value = asked.FunctionCall(call.id, asked.Function(name, call.params or "{}"))
        elif self._own or self._quirks.custom_tools:
            value = asked.CustomCall(call.id, asked.Custom(name, call.params))
        else:
            wrapped = bytes(arguments(call, path, self._losses)).decode()
            value = asked.FunctionCall(call.id, asked.Function(name, wrapped))
        written = self._written(value, call.extra)
        if call.signature is None or not own:
            return [written]
        return [asked.raw(keys_of(written) | {"extra_content": extra_content(call.signature)})]

    # Parts

    def _parts(self, contents: list[Placed]) -> _Parts:
        text = None
        if len(contents) == 1 and isinstance(contents[0].content, TextContent):
            only = contents[0].content
            plain = only.cache is None and not only.refusal and not _is_part(only)
            text = only.text if plain else None
        found = [self._part(placed) for placed in contents]
        return _Parts([part for part in found if part is not None], text)

    def _part(self, placed: Placed) -> Raw | None:
        match placed.content:
            case TextContent(refusal=True) as refusal:
                return self._written(asked.Refusal(refusal.text), refusal.extra)
            case TextContent() as text:
                mark = self.kin.mark(text, placed.path)
                return self._written(asked.Text(text.text, mark), text.extra)
            case ImageContent() as image:
                return self._image(placed.path, image)
            case FileContent() as file:
                return self._file(placed.path, file)
            case OpaqueContent() as opaque if self._own and opaque.origin == self._origin:
                return opaque.raw
            case OpaqueContent() as opaque:
                unheard(opaque, placed.path, self._losses, ours=False)
            case other:
                self._losses.refused(placed.path, f"{type(other).__name__} cannot stand here")
        return None

    def _image(self, path: str, image: ImageContent) -> Raw | None:
        url, mark = image_url(image), self.kin.mark(image, path)
        if url is None:
            self._losses.refused(f"{path}.file_id", f"images by id are not available on {NAME}")
            return None
        self.kin.fetched(image, path)
        value = asked.Image(asked.ImageUrl(url, image.detail), mark)
        return self._written(value, image.extra)

    def _file(self, path: str, file: FileContent) -> Raw | None:
        media = file.media_type or ""
        mark = self.kin.mark(file, path)
        if file.url is not None:
            self._losses.refused(f"{path}.url", f"files by address are not available on {NAME}")
            return None
        if media.startswith("video/"):
            self._losses.refused(path, f"video is not available on {NAME}")
            return None
        if file.file_id is not None and not self._own:
            self._losses.refused(f"{path}.file_id", "file ids are known only to their origin")
            return None
        if media.startswith("audio/") and media not in _SOUNDS and not self._own:
            self._losses.refused(path, f"{media} is not available on {NAME}; send wav or mp3")
            return None
        if media.startswith("audio/") and file.data is not None:
            sound = asked.Sound(file.data, _SOUNDS.get(media, media.removeprefix("audio/")))
            return self._written(asked.Audio(sound, mark), file.extra)
        text = None if self._own else plain_text(file)
        if text is not None:
            self._losses.adapted(path, "a document of plain text is a text")
            return self._written(asked.Text(text, mark))
        data = file.data if file.data is None or not media else data_url(media, file.data)
        value = asked.File(asked.FileOf(data, file.file_id, file.filename), mark)
        return self._written(value, file.extra)


def _details(thought: ReasoningContent, *, own: bool) -> list[Raw]:
    """The proof of a reasoning: as the host told it, or what an envelope kept of it."""
    told = keys_of(thought.extra).get("reasoning_details") if own else None
    if told is not None:
        return msgspec.json.decode(told, type=list[Raw])
    if thought.signature is not None:
        signed = asked.Detail("reasoning.text", thought.text, signature=thought.signature)
        return [asked.raw(signed)]
    if thought.encrypted is not None:
        return [asked.raw(asked.Detail("reasoning.encrypted", data=thought.encrypted))]
    return []


def _is_part(text: TextContent) -> bool:
    """Whether a text came with keys that only a part can have."""
    return bool(keys_of(text.extra))


def _failed(path: str, texts: list[Placed]) -> list[Placed]:
    match texts:
        case [Placed(where, TextContent() as first), *rest]:
            said = msgspec.structs.replace(first, text=f"Error: {first.text}")
            return [Placed(where, said), *rest]
    return [Placed(path, TextContent("Error"))]
