"""Words that more than one wire shares: data URLs, schemas that are strict, options of a family."""

import re
from base64 import b64decode
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.dialects.asking.leftovers import UNSEEN, drop_beside, kept
from weft.dialects.asking.turns import Placed
from weft.dialects.requests import Losses, keys_of
from weft.errors import BadRequest
from weft.parts import Json
from weft.request import (
    AnyContent,
    Cache,
    Effort,
    FileContent,
    ImageContent,
    OpaqueContent,
    OutputFormat,
    ReasoningContent,
    Request,
    ResultContent,
    TextContent,
    Tool,
    ToolChoice,
)

_DATA = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)

IDENTIFIER_LIMIT = 64

Refused = tuple[tuple[str, Callable[[Request], bool], str], ...]
"""Fields that would mean something else if they were left out: when, and what to do."""

FAMILY = frozenset({"moderation", "prompt_cache_options", "stream_options"})
"""Keys beside the fields that two wires of one family say in the same words."""

Warned = tuple[tuple[str, Callable[[Request], bool]], ...]
"""Fields that change the style or the cost."""

_FAMILY_TIERS = frozenset({"auto", "default", "fast", "flex", "priority", "scale"})
_TIERS = {"standard_only": "default", "standard": "default"}


class Inline(NamedTuple):
    """What a data URL holds."""

    media_type: str
    data: str


def inline(url: str) -> Inline | None:
    """Returns what a base64 data URL holds; None for any other address."""
    found = _DATA.fullmatch(url)
    return Inline(found[1], found[2]) if found else None


def data_url(media_type: str, data: str) -> str:
    return f"data:{media_type};base64,{data}"


def image_url(image: ImageContent) -> str | None:
    """Returns the address of an image, which may be the image itself."""
    if image.data is not None:
        return data_url(image.media_type or "image/png", image.data)
    return image.url


def plain_text(file: FileContent) -> str | None:
    """Returns the text of a document that is nothing else."""
    if file.data is None or not (file.media_type or "").startswith("text/"):
        return None
    try:
        return b64decode(file.data, validate=True).decode()
    except ValueError:
        return None


def identifier(user: str) -> str:
    """Returns who the user is in at most 64 letters: a longer one is hashed."""
    if len(user) <= IDENTIFIER_LIMIT:
        return user
    return sha256(user.encode("utf-8", "surrogatepass")).hexdigest()


_SAYS_NOTHING = frozenset((b"null", b"[]", b"{}"))


_MARGIN = 100
"""Levels of nesting that are left to those who look into a body later, from deeper calls."""


def legible(data: bytes) -> None:
    """Raises BadRequest for bytes that are no text, or nested so deeply that none can read them."""
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as problem:
            raise BadRequest("", f"byte {problem.start} is no UTF-8") from None
    if data.count(b"[") + data.count(b"{") < _MARGIN:
        return  # however they are nested
    try:
        msgspec.json.decode(b"[" * _MARGIN + data + b"]" * _MARGIN, type=Raw)
    except RecursionError:
        raise BadRequest("", "nested too deeply") from None
    except ValueError:
        """Whoever reads it by its shape says where."""


def telling(extra: Json) -> Json:
    """The keys of an object that say something: clients send back what they got, nulls and all."""
    found = {
        key: value for key, value in keys_of(extra).items() if bytes(value) not in _SAYS_NOTHING
    }
    return kept(found)


# What a cache may keep, as one family marks it

MARK = "prompt_cache_breakpoint"
_EXPLICIT = "explicit"
_TIMES: dict[Cache, str | None] = {"5m": None, "1h": "12h"}
_RETENTION: dict[Cache, str] = {"5m": "in_memory", "1h": "24h"}
RETAINED: dict[str, Cache] = {word: cache for cache, word in _RETENTION.items()}


class Breakpoint(msgspec.Struct, omit_defaults=True):
    """A mark: what comes before it may be cached."""

    mode: str
    ttl: str | None = None


def cache_of(mark: Breakpoint | None) -> Cache | None:
    """A mark without a time is the shortest; all times there are, are longer. One of a kind that
    nobody knows is none.
    """
    if mark is None or mark.mode != _EXPLICIT:
        return None
    return "5m" if mark.ttl is None else "1h"


def with_mark(extra: Json, mark: Breakpoint | None) -> Json:
    """A mark with a time is kept as it is: others know other times. So is one of a kind that
    nobody knows.
    """
    if mark is None or (mark.ttl is None and mark.mode == _EXPLICIT):
        return extra
    return kept({**keys_of(extra), MARK: Raw(msgspec.json.encode(mark))})


# Tools for free text, in either spelling


class Grammar(msgspec.Struct, omit_defaults=True):
    definition: str
    syntax: str = "lark"


class _Format(msgspec.Struct):
    type: str = "text"
    grammar: Grammar | None = None
    definition: str | None = None
    syntax: str = "lark"


class _FreeForm(msgspec.Struct):
    """The format is inside, or one level deeper."""

    format: _Format | None = None
    custom: "_FreeForm | None" = None


def grammar_of(declaration: Json) -> Grammar | None:
    """Returns the grammar that a tool for free text was declared with, on any wire."""
    try:
        told = (
            msgspec.json.decode(declaration, type=_FreeForm)
            if isinstance(declaration, Raw)
            else _FreeForm()
        )
    except ValueError:
        return None
    format = (told.custom or told).format
    if format is None or format.definition is None:
        return format.grammar if format else None
    return Grammar(format.definition, format.syntax)


def described(tool: Tool, path: str, losses: Losses) -> str | None:
    """What is said of a tool for free text where it is declared as a function: its grammar, too."""
    grammar = grammar_of(tool.raw) or grammar_of(tool.extra)
    if grammar is None:
        return tool.description
    losses.warned(f"{path}.format", "the grammar is described, and not enforced")
    told = f"The text `input` matches this {grammar.syntax} grammar:\n{grammar.definition}"
    return f"{tool.description}\n\n{told}" if tool.description else told


# Schemas


class _Schema(msgspec.Struct):
    """As much of a JSON schema as strictness is about."""

    type: Raw | UnsetType = UNSET
    properties: "dict[str, _Schema | bool] | UnsetType" = UNSET
    required: list[str] | UnsetType = UNSET
    additional: "bool | _Schema | UnsetType" = msgspec.field(
        name="additionalProperties", default=UNSET
    )
    items: "_Schema | bool | UnsetType" = UNSET
    any_of: "list[_Schema | bool] | UnsetType" = msgspec.field(name="anyOf", default=UNSET)
    all_of: Raw | UnsetType = msgspec.field(name="allOf", default=UNSET)
    one_of: Raw | UnsetType = msgspec.field(name="oneOf", default=UNSET)
    defs: "dict[str, _Schema | bool] | UnsetType" = msgspec.field(name="$defs", default=UNSET)


def is_strict(schema: Raw | UnsetType) -> bool:
    """Whether every object of a schema is closed and requires all it names."""
    if not isinstance(schema, Raw):
        return False
    try:
        top = msgspec.json.decode(schema, type=_Schema)
    except (ValueError, RecursionError):
        return False
    return top.type == Raw(b'"object"') and _closed(top)


def _closed(schema: _Schema | bool) -> bool:
    if isinstance(schema, bool) or schema.all_of is not UNSET or schema.one_of is not UNSET:
        return False
    below: list[_Schema | bool] = []
    for group in (schema.properties, schema.defs):
        below += group.values() if isinstance(group, dict) else ()
    below += schema.any_of if isinstance(schema.any_of, list) else ()
    below += () if isinstance(schema.items, UnsetType) else (schema.items,)
    return _object_closed(schema) and all(_closed(one) for one in below)


def _object_closed(schema: _Schema) -> bool:
    named = schema.properties if isinstance(schema.properties, dict) else {}
    mentions = isinstance(schema.type, Raw) and b'"object"' in bytes(schema.type)
    if not named and not mentions:
        return True
    required = schema.required if isinstance(schema.required, list) else []
    return schema.additional is False and set(named) == set(required)


def strict_asked(tool: Tool, path: str, losses: Losses) -> bool | None:
    """Returns whether a tool of another wire can be strict here: never by rewriting its schema."""
    if not tool.strict or is_strict(tool.parameters):
        return tool.strict
    losses.warned(f"{path}.strict", "needs closed objects with every key required; left open")
    return False


def output_strict(output: OutputFormat, losses: Losses) -> bool | None:
    """Returns whether the shape of an answer, asked on another wire, can be enforced here."""
    if output.strict is False or is_strict(output.schema):
        return output.strict is not False
    losses.warned("output.schema", "the shape is asked for but not enforced: objects are open")
    return False


class Kin:
    """The options that two wires of one family say in the same words, for a request of any.

    `own` is a request of the wire itself, or of none; `kin` is one of the family.
    """

    __slots__ = ("_losses", "_marks", "_name", "_request", "kin", "own")

    def __init__(self, request: Request, name: str, sibling: str, losses: Losses) -> None:
        self._request = request
        self._name = name
        self._losses = losses
        self._marks: dict[str, str] = {}
        """Where the marks come from that were put on other contents."""
        self.own = request.dialect in (name, None)
        self.kin = self.own or request.dialect == sibling

    def effort(self, of_budget: Callable[[int], Effort]) -> Effort | None:
        """The effort to ask for: the one that was, or what a budget comes to."""
        asked = self._request.reasoning
        if asked is None or asked.budget_tokens is None:
            return asked.effort if asked else None
        effort = asked.effort or of_budget(asked.budget_tokens)
        told = f"{asked.budget_tokens} tokens are effort {effort}"
        self._losses.adapted("reasoning.budget_tokens", told)
        return effort

    def user(self) -> str | None:
        return self._identifier(self._request.user, "user")

    def safety_identifier(self) -> str | None:
        return self._identifier(self._request.safety_identifier, "safety_identifier")

    def _identifier(self, user: str | None, path: str) -> str | None:
        if user is None or self.own or identifier(user) == user:
            return user
        self._losses.warned(path, f"longer than {IDENTIFIER_LIMIT} letters; a hash of it is sent")
        return identifier(user)

    def metadata(self) -> dict[str, str] | None:
        metadata = self._request.metadata
        if metadata and not self.kin:
            self._losses.adapted("metadata", "kept with the response, not sent")
            return None
        return metadata

    def tier(self) -> str | None:
        tier = self._request.service_tier
        if tier is None or self.own:
            return tier
        spelled = _TIERS.get(tier, tier)
        if spelled not in _FAMILY_TIERS:
            self._losses.warned("service_tier", f"{tier} is not known here; left out")
            return None
        if spelled != tier:
            self._losses.adapted("service_tier", f"{tier} is called {spelled} here")
        return spelled

    def retention(self) -> str | None:
        """Caching is on by itself: only a longer time must be asked for."""
        cache = self._request.cache
        if cache is None or self.kin:
            return _RETENTION[cache] if cache else None
        if cache == "5m":
            self._losses.adapted("cache", "on by itself")
            return None
        self._losses.warned("cache", f"{cache} is not known here; kept for 24 hours")
        return _RETENTION[cache]

    def mark(
        self, content: TextContent | ImageContent | FileContent, path: str
    ) -> Breakpoint | None:
        """The family's own marks stay as they are; those of others are kept for longer."""
        cache = content.cache
        path = self.marked_at(path)
        said = keys_of(content.extra).get(MARK)
        if said is not None and self.kin:
            return msgspec.json.decode(said, type=Breakpoint)
        if cache is None:
            return None
        if not self.kin and cache == "5m":
            self._losses.adapted(f"{path}.cache", "kept for the shortest time there is")
        elif not self.kin:
            self._losses.warned(f"{path}.cache", f"{cache} is not known here; kept for 12 hours")
        return Breakpoint(_EXPLICIT, _TIMES[cache])

    def marked_at(self, path: str) -> str:
        """Where a mark was set that was put on another content."""
        return self._marks.get(path, path)

    def note(self, contents: Iterable[AnyContent], path: str) -> None:
        """Notes what contents, and those of results, say beside their fields."""
        for place, content in enumerate(contents):
            where = f"{path}.content[{place}]"
            if isinstance(content, OpaqueContent | ReasoningContent):
                continue
            drop_beside(self.beside(content.extra), where, self._losses, self._name)
            if isinstance(content, ResultContent) and UNSEEN.isdisjoint(keys_of(content.extra)):
                self.note(content.content, where)

    def beside(self, extra: Json) -> Json:
        """What is said beside the fields that the family does not know."""
        found = keys_of(extra)
        if self.kin:
            found.pop(MARK, None)
        return kept(found)

    def fetched(self, shown: ImageContent | FileContent, path: str) -> None:
        """Notes that an address does not say what is there."""
        if shown.url is not None and shown.media_type is not None and not self.own:
            told = "left out: whoever fetches it will see"
            self._losses.adapted(f"{path}.media_type", told)

    def shape(self) -> tuple[str, bool | None]:
        """The name of the shape that is asked for, and whether it is enforced."""
        output = self._request.output
        strict = output.strict if self.kin else output_strict(output, self._losses)
        if output.name is None:
            self._losses.adapted("output.name", "a shape needs a name here; it is `output`")
        return output.name or "output", strict

    def strict(self, tool: Tool, path: str) -> bool | None:
        return tool.strict if self.kin else strict_asked(tool, path, self._losses)

    def chooses(self) -> bool:
        """Whether a choice among the tools can be told; noted, if there are none."""
        choice = self._request.tool_choice
        if choice is None or self._request.tools or self.own:
            return choice is not None
        if choice != ToolChoice():
            self._losses.warned("tool_choice", "there are no tools to choose from; left out")
        return False

    def marked(self, path: str, said: list[Placed], cache: Cache | None) -> list[Placed]:
        """What a result holds: its mark, as a place to cache at, is on the last of it."""
        match said:
            case _ if cache is None:
                return said
            case [*rest, Placed(where, TextContent() | ImageContent() | FileContent() as last)]:
                if last.cache is not None:
                    self._losses.adapted(f"{where}.cache", "the mark of the result is there")
                self._marks[where] = path
                told = msgspec.structs.replace(last, cache=cache, extra=UNSET)
                return [*rest, Placed(where, told)]
        self._losses.warned(f"{path}.cache", "left out: what is empty cannot be marked")
        return said

    def unavailable(self, refused: Refused, warned: Warned) -> None:
        """Notes what the wire has no field for."""
        for path, when, remedy in refused:
            if when(self._request):
                word = path.rpartition(".")[2]
                self._losses.refused(path, f"{word} is not available on {self._name}; {remedy}")
        for path, when in warned:
            if when(self._request):
                self._losses.dropped(path, self._name)
