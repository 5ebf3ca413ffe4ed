"""Writes the messages of a Chat Completions body.

A message that came in this dialect stays one message. Those of other dialects are paired and
joined first: results are messages of their own, right after the calls; what a result holds
besides text follows in a message of the user.
"""

from itertools import groupby

import msgspec
from msgspec import UNSET, Raw

from weft.context import Context
from weft.dialects.asking.arranging import source_of, whole_message
from weft.dialects.asking.bridging import Names, arguments
from weft.dialects.asking.leftovers import drop_beside, unheard
from weft.dialects.asking.turns import Placed, Turn, merged, spoken, turns
from weft.dialects.asking.verbatim import messages_as_said, said_by
from weft.dialects.asking.wording import MARK, Kin, data_url, image_url, plain_text
from weft.dialects.openai_chat.quirks import quirks_of
from weft.dialects.openai_chat.requests import schema
from weft.dialects.openai_chat.requests.parse_messages import CALL
from weft.dialects.openai_chat.wire import NAME, extra_content
from weft.dialects.requests import Losses, keys_of, origins
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
    for turn in spoken(request, losses):
        source = source_of(turn, sources)
        written += [source] if source is not None and writer.takes(turn) else writer.turn(turn)
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
        drop_beside(message.extra, path, losses, NAME)
        kin.note(message.content, path)


class _Writer:
    """Turns in, messages out."""

    def __init__(self, request: Request, context: Context, names: Names, losses: Losses) -> None:
        self._quirks = quirks_of(context)
        self._same = request.dialect == NAME
        self._origins = origins(context, NAME, native=self._same)
        self._own = self._same or request.dialect is None
        self.kin = Kin(request, NAME, schema.SIBLING, losses)
        self._names = names
        self._losses = losses

    def takes(self, turn: Turn) -> bool:
        """Whether a message of this wire goes out as it came: the host knows its role, and what was
        thought is not another's.
        """
        thoughts = (one.content for one in turn.contents)
        own = all(
            thought.origin in self._origins
            for thought in thoughts
            if isinstance(thought, ReasoningContent)
        )
        return own and (turn.role != "developer" or self._quirks.developer_role)

    def turn(self, turn: Turn) -> list[Raw]:
        if self._same and (whole := whole_message(turn)) is not None:
            return [whole]
        if turn.role == "assistant":
            return self._assistant(turn)
        return self._user(turn) if turn.role == "user" else [self._instructions(turn)]

    def _written(self, value: schema.Shape, extra: Json = UNSET) -> Raw:
        """Writes a shape with what came beside it, and inside it, if it came in this dialect."""
        if not self._same or extra is UNSET:
            return schema.raw(value)
        own = keys_of(schema.raw(value))
        for key, more in keys_of(extra).items():
            own[key] = schema.raw(keys_of(more) | keys_of(own[key])) if key in own else more
        return schema.raw(own)

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
        content = self._content(turn.contents)
        value = schema.Spoken(role, content, turn.name)
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
        content = [*moved, *self._parts(rest)] if moved else self._content(rest)
        own = self._same and turn.message is not None and turn.message.role == "user"
        if content or own or (rest and not written):
            value = schema.Spoken("user", content, turn.name)
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
        said = self._content(self.kin.marked(path, texts, result.cache))
        value = schema.ToolMessage("tool", said or "", result.id)
        value.name = result.name if self._same else None
        return self._written(value, self._message_extra(turn))

    # Assistant

    def _assistant(self, turn: Turn) -> list[Raw]:
        value = schema.Assistant("assistant", name=turn.name)
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
                case OpaqueContent() as opaque if not self._is_own(opaque):
                    unheard(opaque, placed.path, self._losses, NAME, ours=True)
                case OpaqueContent(kind=kind, raw=raw) if kind.startswith(CALL):
                    calls.append(raw)
                case _:
                    said.append(placed)
                    if calls:
                        self._losses.adapted(placed.path, "is said before the calls of its turn")
        value.tool_calls = calls or None
        self._say(value, said)
        if value == schema.Assistant("assistant", None, turn.name) and not self._same:
            return []
        return [self._written(value, self._message_extra(turn))]

    def _say(self, value: schema.Assistant, said: list[Placed]) -> None:
        refused = [one for one in said if _is_refusal(one)]
        if refused and (len(said) == 1 or not self._same):
            self._as_one(refused)
            value.refusal = "".join(_texts(refused))
            said = [one for one in said if one not in refused]
            value.content = None
        if said:
            content = self._content(said, "")
            value.content = content if content or self._same else None
        elif not refused:
            value.content = None

    def _thought(self, path: str, thought: ReasoningContent, value: schema.Assistant) -> None:
        """Reasoning goes back where its host wants it, and only to the host it came from."""
        fields = self._quirks.reasoning_back if thought.origin in self._origins else ()
        proofs = _details(thought, own=self._own)
        if "reasoning_content" in fields:
            value.reasoning_content = (value.reasoning_content or "") + thought.text
        elif "reasoning" in fields:
            value.reasoning = (value.reasoning or "") + thought.text
        elif not fields or not proofs:
            self._losses.warned(path, "dropped: reasoning goes back only to a host that wants it")
        if "reasoning_details" in fields and proofs:
            value.reasoning_details = [*(value.reasoning_details or ()), *proofs]
        elif fields and proofs:
            self._losses.warned(path, "the host does not take the proof of reasoning back")

    def _call(self, path: str, call: CallContent) -> list[Raw]:
        if call.provider_executed:
            self._losses.warned(path, f"{NAME} does not tell hosted calls")
            return []
        own = call.origin in self._origins
        if call.signature is not None and not own:
            self._losses.adapted(f"{path}.signature", "a proof goes only to its origin")
        if call.item_id is not None:
            self._losses.adapted(f"{path}.item_id", f"{NAME} has no ids of items")
        name = call.name
        if not self._same:
            name = self._names.spell(call.name, call.namespace, path)
        value: schema.Shape
        if call.format != "text":
            value = schema.FunctionCall(call.id, schema.Function(name, call.params or "{}"))
        elif self._own or self._quirks.custom_tools:
            value = schema.CustomCall(call.id, schema.Custom(name, call.params))
        else:
            wrapped = bytes(arguments(call, path, self._losses)).decode()
            value = schema.FunctionCall(call.id, schema.Function(name, wrapped))
        written = self._written(value, call.extra)
        if call.signature is None or not own:
            return [written]
        return [schema.raw(keys_of(written) | {"extra_content": extra_content(call.signature)})]

    def _is_own(self, opaque: OpaqueContent) -> bool:
        return self._own and opaque.origin in self._origins

    # Parts

    def _content(self, contents: list[Placed], between: str = "\n") -> str | list[Raw]:
        """A text, where that is all there is: many hosts take parts only where one is no text.

        Several texts are joined by a line end; those of the assistant by nothing, as they are
        pieces of one answer. A message of this wire keeps the form that it has.
        """
        texts = [one.content for one in contents if isinstance(one.content, TextContent)]
        if len(texts) < len(contents) or any(text.refusal for text in texts):
            return self._parts(contents)
        if self._same:
            plain = len(texts) == 1 and texts[0].cache is None and not keys_of(texts[0].extra)
            return texts[0].text if plain else self._parts(contents)
        for placed, text in zip(contents, texts, strict=True):
            if text.cache is not None:
                where = self.kin.marked_at(placed.path)
                self._losses.warned(f"{where}.cache", "dropped: a plain text has no cache mark")
            if self.kin.kin and MARK in keys_of(text.extra):
                self._losses.dropped(f"{placed.path}.{MARK}", NAME)
        self._as_one(contents)
        return between.join(_texts(contents))

    def _as_one(self, contents: list[Placed]) -> None:
        """Notes that texts are joined."""
        if len(_texts(contents)) > 1:
            for placed in contents:
                if _texts([placed]):
                    self._losses.adapted(placed.path, "its turn is sent as one text")

    def _parts(self, contents: list[Placed]) -> list[Raw]:
        found = [self._part(placed) for placed in contents]
        return [part for part in found if part is not None]

    def _part(self, placed: Placed) -> Raw | None:
        match placed.content:
            case TextContent(refusal=True) as refusal:
                return self._written(schema.Refusal(refusal.text), refusal.extra)
            case TextContent() as text:
                mark = self.kin.mark(text, placed.path)
                return self._written(schema.Text(text.text, mark), text.extra)
            case ImageContent() as image:
                return self._image(placed.path, image)
            case FileContent() as file:
                return self._file(placed.path, file)
            case OpaqueContent() as opaque if self._is_own(opaque):
                return opaque.raw
            case OpaqueContent() as opaque:
                unheard(opaque, placed.path, self._losses, NAME, ours=False)
            case other:
                self._losses.refused(placed.path, f"{type(other).__name__} cannot stand here")
        return None

    def _image(self, path: str, image: ImageContent) -> Raw | None:
        url, mark = image_url(image), self.kin.mark(image, path)
        if url is None:
            self._losses.refused(f"{path}.file_id", f"images by id are not available on {NAME}")
            return None
        self.kin.fetched(image, path)
        value = schema.Image(schema.ImageUrl(url, image.detail), mark)
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
            sound = schema.Sound(file.data, _SOUNDS.get(media, media.removeprefix("audio/")))
            return self._written(schema.Audio(sound, mark), file.extra)
        text = None if self._own else plain_text(file)
        if text is not None:
            self._losses.adapted(path, "a document of plain text is a text")
            return self._written(schema.Text(text, mark))
        data = file.data if file.data is None or not media else data_url(media, file.data)
        value = schema.File(schema.FileOf(data, file.file_id, file.filename), mark)
        return self._written(value, file.extra)


def _details(thought: ReasoningContent, *, own: bool) -> list[Raw]:
    """The proof of a reasoning: as the host told it, or what an envelope kept of it."""
    told = keys_of(thought.extra).get("reasoning_details") if own else None
    if told is not None:
        return msgspec.json.decode(told, type=list[Raw])
    if thought.signature is not None:
        signed = schema.Detail("reasoning.text", thought.text, signature=thought.signature)
        return [schema.raw(signed)]
    if thought.encrypted is not None:
        return [schema.raw(schema.Detail("reasoning.encrypted", data=thought.encrypted))]
    return []


def _is_refusal(placed: Placed) -> bool:
    """Whether it is a refusal, without keys that only a part can have."""
    content = placed.content
    return isinstance(content, TextContent) and content.refusal and not keys_of(content.extra)


def _texts(contents: list[Placed]) -> list[str]:
    """The texts that say something."""
    said = [one.content.text for one in contents if isinstance(one.content, TextContent)]
    return [text for text in said if text]


def _failed(path: str, texts: list[Placed]) -> list[Placed]:
    match texts:
        case [Placed(where, TextContent() as first), *rest]:
            said = msgspec.structs.replace(first, text=f"Error: {first.text}")
            return [Placed(where, said), *rest]
    return [Placed(path, TextContent("Error"))]
