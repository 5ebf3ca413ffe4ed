"""Words that more than one wire shares: data URLs, schemas that are strict, options of a family."""

from collections.abc import Callable, Iterable

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.requests.codec import Losses
from weft.dialects.requests.fields import fields_of
from weft.dialects.requests.names import IDENTIFIER_LIMIT, shorten_identifier
from weft.dialects.requests.strict_schemas import is_strict
from weft.dialects.requests.turns import LocatedContent
from weft.dialects.requests.unknown_fields import (
    UNPARSED_RESULT_FIELDS,
    collect,
    report_dropped_extras,
)
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

RefusedFields = tuple[tuple[str, Callable[[Request], bool], str], ...]
"""Fields that would mean something else if they were left out: when, and what to do."""

FAMILY_FIELDS = frozenset({"moderation", "prompt_cache_options", "stream_options"})
"""Keys beside the fields that two wires of one family say in the same words."""

WarnedFields = tuple[tuple[str, Callable[[Request], bool]], ...]
"""Fields that change the style or the cost."""

_FAMILY_TIERS = frozenset({"auto", "default", "fast", "flex", "priority", "scale"})
_TIER_NAMES = {"standard_only": "default", "standard": "default"}


# What a cache may keep, as one family marks it

BREAKPOINT_KEY = "prompt_cache_breakpoint"
_EXPLICIT = "explicit"
_BREAKPOINT_TTLS: dict[Cache, str | None] = {"5m": None, "1h": "12h"}
_RETENTION: dict[Cache, str] = {"5m": "in_memory", "1h": "24h"}
CACHE_OF_RETENTION: dict[str, Cache] = {word: cache for cache, word in _RETENTION.items()}


class CacheBreakpoint(msgspec.Struct, omit_defaults=True):
    """A mark: what comes before it may be cached."""

    mode: str
    ttl: str | None = None


def cache_of_breakpoint(mark: CacheBreakpoint | None) -> Cache | None:
    """A mark without a time is the shortest; all times there are, are longer. One of a kind that
    nobody knows is none.
    """
    if mark is None or mark.mode != _EXPLICIT:
        return None
    return "5m" if mark.ttl is None else "1h"


def keep_breakpoint(extra: Json, mark: CacheBreakpoint | None) -> Json:
    """A mark with a time is kept as it is: others know other times. So is one of a kind that
    nobody knows.
    """
    if mark is None or (mark.ttl is None and mark.mode == _EXPLICIT):
        return extra
    return collect({**fields_of(extra), BREAKPOINT_KEY: Raw(msgspec.json.encode(mark))})


# Tools for free text, in either spelling


# Schemas


def _strict_tool(tool: Tool, path: str, losses: Losses) -> bool | None:
    """Returns whether a tool of another wire can be strict here: never by rewriting its schema."""
    if not tool.strict or is_strict(tool.parameters):
        return tool.strict
    losses.warned(f"{path}.strict", "needs closed objects with every key required; left open")
    return False


def _strict_output(output: OutputFormat, losses: Losses) -> bool | None:
    """Returns whether the shape of an answer, asked on another wire, can be enforced here."""
    if output.strict is False or is_strict(output.schema):
        return output.strict is not False
    losses.warned("output.schema", "the shape is asked for but not enforced: objects are open")
    return False


class OpenAIFamilyOptions:
    """The options that two wires of one family say in the same words, for a request of any.

    `own` is a request of the wire itself, or of none; `kin` is one of the family.
    """

    __slots__ = ("_losses", "_marks", "_name", "_request", "in_family", "is_native")

    def __init__(self, request: Request, name: str, sibling: str, losses: Losses) -> None:
        self._request = request
        self._name = name
        self._losses = losses
        self._marks: dict[str, str] = {}
        """Where the marks come from that were put on other contents."""
        self.is_native = request.dialect in (name, None)
        self.in_family = self.is_native or request.dialect == sibling

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
        if user is None or self.is_native or shorten_identifier(user) == user:
            return user
        self._losses.warned(path, f"longer than {IDENTIFIER_LIMIT} letters; a hash of it is sent")
        return shorten_identifier(user)

    def metadata(self) -> dict[str, str] | None:
        metadata = self._request.metadata
        if metadata and not self.in_family:
            self._losses.adapted("metadata", "kept with the response, not sent")
            return None
        return metadata

    def service_tier(self) -> str | None:
        tier = self._request.service_tier
        if tier is None or self.is_native:
            return tier
        spelled = _TIER_NAMES.get(tier, tier)
        if spelled not in _FAMILY_TIERS:
            self._losses.warned("service_tier", f"{tier} is not known here; left out")
            return None
        if spelled != tier:
            self._losses.adapted("service_tier", f"{tier} is called {spelled} here")
        return spelled

    def cache_retention(self) -> str | None:
        """Caching is on by itself: only a longer time must be asked for."""
        cache = self._request.cache
        if cache is None or self.in_family:
            return _RETENTION[cache] if cache else None
        if cache == "5m":
            self._losses.adapted("cache", "on by itself")
            return None
        self._losses.warned("cache", f"{cache} is not known here; kept for 24 hours")
        return _RETENTION[cache]

    def breakpoint(
        self, content: TextContent | ImageContent | FileContent, path: str
    ) -> CacheBreakpoint | None:
        """The family's own marks stay as they are; those of others are kept for longer."""
        cache = content.cache
        path = self.breakpoint_path(path)
        said = fields_of(content.extra).get(BREAKPOINT_KEY)
        if said is not None and self.in_family:
            return msgspec.json.decode(said, type=CacheBreakpoint)
        if cache is None:
            return None
        if not self.in_family and cache == "5m":
            self._losses.adapted(f"{path}.cache", "kept for the shortest time there is")
        elif not self.in_family:
            self._losses.warned(f"{path}.cache", f"{cache} is not known here; kept for 12 hours")
        return CacheBreakpoint(_EXPLICIT, _BREAKPOINT_TTLS[cache])

    def breakpoint_path(self, path: str) -> str:
        """Where a mark was set that was put on another content."""
        return self._marks.get(path, path)

    def report_extras(self, contents: Iterable[AnyContent], path: str) -> None:
        """Notes what contents, and those of results, say beside their fields."""
        for place, content in enumerate(contents):
            where = f"{path}.content[{place}]"
            if isinstance(content, OpaqueContent | ReasoningContent):
                continue
            report_dropped_extras(self.extras(content.extra), where, self._losses, self._name)
            if isinstance(content, ResultContent) and UNPARSED_RESULT_FIELDS.isdisjoint(
                fields_of(content.extra)
            ):
                self.report_extras(content.content, where)

    def extras(self, extra: Json) -> Json:
        """What is said beside the fields that the family does not know."""
        found = fields_of(extra)
        if self.in_family:
            found.pop(BREAKPOINT_KEY, None)
        return collect(found)

    def report_media_type(self, shown: ImageContent | FileContent, path: str) -> None:
        """Notes that an address does not say what is there."""
        if shown.url is not None and shown.media_type is not None and not self.is_native:
            told = "left out: whoever fetches it will see"
            self._losses.adapted(f"{path}.media_type", told)

    def output_format(self) -> tuple[str, bool | None]:
        """The name of the shape that is asked for, and whether it is enforced."""
        output = self._request.output
        strict = output.strict if self.in_family else _strict_output(output, self._losses)
        if output.name is None:
            self._losses.adapted("output.name", "a shape needs a name here; it is `output`")
        return output.name or "output", strict

    def strict(self, tool: Tool, path: str) -> bool | None:
        return tool.strict if self.in_family else _strict_tool(tool, path, self._losses)

    def renders_tool_choice(self) -> bool:
        """Whether a choice among the tools can be told; noted, if there are none."""
        choice = self._request.tool_choice
        if choice is None or self._request.tools or self.is_native:
            return choice is not None
        if choice != ToolChoice():
            self._losses.warned("tool_choice", "there are no tools to choose from; left out")
        return False

    def move_breakpoint(
        self, path: str, said: list[LocatedContent], cache: Cache | None
    ) -> list[LocatedContent]:
        """What a result holds: its mark, as a place to cache at, is on the last of it."""
        match said:
            case _ if cache is None:
                return said
            case [
                *rest,
                LocatedContent(where, TextContent() | ImageContent() | FileContent() as last),
            ]:
                if last.cache is not None:
                    self._losses.adapted(f"{where}.cache", "the mark of the result is there")
                self._marks[where] = path
                told = msgspec.structs.replace(last, cache=cache, extra=UNSET)
                return [*rest, LocatedContent(where, told)]
        self._losses.warned(f"{path}.cache", "left out: what is empty cannot be marked")
        return said

    def report_unavailable(self, refused: RefusedFields, warned: WarnedFields) -> None:
        """Notes what the wire has no field for."""
        for path, when, remedy in refused:
            if when(self._request):
                word = path.rpartition(".")[2]
                self._losses.refused(path, f"{word} is not available on {self._name}; {remedy}")
        for path, when in warned:
            if when(self._request):
                self._losses.dropped(path, self._name)
