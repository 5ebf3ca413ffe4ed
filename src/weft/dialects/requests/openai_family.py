"""Options that Chat Completions and Responses share."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from operator import attrgetter
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw

from weft.dialects.requests.codec import Losses
from weft.dialects.requests.fields import fields_of
from weft.dialects.requests.names import shorten_identifier
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
    ReasoningContent,
    Request,
    ResultContent,
    TextContent,
    Tool,
    ToolChoice,
)


class OpenAIFamilyOption(NamedTuple):
    """One option of a dialect. An option with two keys in a body has two rows, the preferred one
    first.
    """

    canonical: str
    wire: str | None
    """The path in a body; None: the dialect has no such option, or none with this value."""

    depends_on: tuple[str, ...] = ()
    """What else of a request its top-level key in a body is rendered from."""

    is_set: Callable[[Request], bool] | None = None
    """Whether a request of another dialect has the option, so that it gets lost."""

    instead: str | None = None
    """What the client can do instead of an option that a request must not lose; None: it is
    dropped with a warning.
    """


class UnavailableOptions:
    """The options that a dialect does not have, or not with every value."""

    __slots__ = ("_defaults", "_rows", "_values")

    def __init__(self, options: Iterable[OpenAIFamilyOption]) -> None:
        self._rows = [(one, one.is_set) for one in options if one.is_set is not None]
        paths = [one.canonical for one, _ in self._rows]
        # Reasoning options as a whole: a request may have none.
        paths = ["reasoning" if path.startswith("reasoning.") else path for path in paths]
        self._values = attrgetter(*paths)
        self._defaults = self._values(Request(""))

    def lost(self, request: Request) -> list[OpenAIFamilyOption]:
        """Returns the options that a request of another dialect has, and loses."""
        values = self._values(request)
        # Most requests have none of them, and the others few.
        if values == self._defaults:
            return []
        rows = zip(self._rows, values, self._defaults, strict=True)
        return [
            option
            for (option, is_set), value, default in rows
            if value != default and is_set(request)
        ]


FAMILY_FIELDS = frozenset({"moderation", "prompt_cache_options", "stream_options"})
"""Fields without a canonical one that both dialects have."""

# API reference, `service_tier`. Anthropic's `standard_only` means the same as `default`.
_FAMILY_TIERS = frozenset({"auto", "default", "fast", "flex", "priority", "scale"})
_TIER_NAMES = {"standard_only": "default", "standard": "default"}

# Characters. The API refuses a longer `user` with 400, although its reference does not say so; that
# of `safety_identifier` does.
_USER_LIMIT = 64
_SAFETY_IDENTIFIER_LIMIT = 128

# Prompt caching

BREAKPOINT_KEY = "prompt_cache_breakpoint"
_EXPLICIT = "explicit"
# The shortest TTL that is not shorter than the one requested.
_BREAKPOINT_TTLS: dict[Cache, str | None] = {"5m": None, "1h": "12h"}
# API reference, `prompt_cache_retention`.
_RETENTION: dict[Cache, str] = {"5m": "in_memory", "1h": "24h"}
CACHE_OF_RETENTION: dict[str, Cache] = {word: cache for cache, word in _RETENTION.items()}


class CacheBreakpoint(msgspec.Struct, omit_defaults=True):
    """Marks the end of a prefix that may be cached."""

    mode: str
    ttl: str | None = None


def cache_of_breakpoint(breakpoint: CacheBreakpoint | None) -> Cache | None:
    """Returns the canonical cache: the short one for a breakpoint without a TTL, because all TTLs
    are longer; None for one of an unknown mode.
    """
    if breakpoint is None or breakpoint.mode != _EXPLICIT:
        return None
    return "5m" if breakpoint.ttl is None else "1h"


def keep_breakpoint(extra: Json, breakpoint: CacheBreakpoint | None) -> Json:
    """Returns `extra` with the breakpoint, if the canonical cache does not say all of it: its TTL,
    or a mode that is unknown.
    """
    if breakpoint is None or (breakpoint.ttl is None and breakpoint.mode == _EXPLICIT):
        return extra
    return collect({**fields_of(extra), BREAKPOINT_KEY: Raw(msgspec.json.encode(breakpoint))})


class OpenAIFamilyOptions:
    """Renders the options that both dialects of the family have.

    `is_native`: the request came in the target's own dialect, or in none. `in_family`: or in the
    other dialect of the family.
    """

    __slots__ = ("_losses", "_moved", "_name", "_request", "in_family", "is_native")

    def __init__(self, request: Request, name: str, sibling: str, losses: Losses) -> None:
        self._request = request
        self._name = name
        self._losses = losses
        self._moved: dict[str, str] = {}
        """The original paths of breakpoints that were moved to another content."""
        self.is_native = request.dialect in (name, None)
        self.in_family = self.is_native or request.dialect == sibling

    def effort(self, of_budget: Callable[[int], Effort]) -> Effort | None:
        """Returns the requested effort, or the one that a budget stands for."""
        reasoning = self._request.reasoning
        # The family has efforts, Anthropic and Gemini have budgets as well.
        if reasoning is None or reasoning.budget_tokens is None:
            return reasoning.effort if reasoning else None
        effort = reasoning.effort or of_budget(reasoning.budget_tokens)
        detail = f"{reasoning.budget_tokens} tokens are effort {effort}"
        self._losses.adapted("reasoning.budget_tokens", detail)
        return effort

    def user(self) -> str | None:
        return self._identifier(self._request.user, "user", _USER_LIMIT)

    def safety_identifier(self) -> str | None:
        identifier = self._request.safety_identifier
        return self._identifier(identifier, "safety_identifier", _SAFETY_IDENTIFIER_LIMIT)

    def _identifier(self, user: str | None, path: str, limit: int) -> str | None:
        # A client of the target itself decides what it sends, even if the host will reject it.
        if user is None or self.is_native or len(user) <= limit:
            return user
        self._losses.warned(path, f"longer than {limit} characters; its hash is sent")
        return shorten_identifier(user, limit)

    def metadata(self) -> dict[str, str] | None:
        metadata = self._request.metadata
        if metadata and not self.in_family:
            self._losses.adapted("metadata", "stored with the response, not sent")
            return None
        return metadata

    def service_tier(self) -> str | None:
        tier = self._request.service_tier
        if tier is None or self.is_native:
            return tier
        name = _TIER_NAMES.get(tier, tier)
        if name not in _FAMILY_TIERS:
            self._losses.warned("service_tier", f"dropped: {self._name} has no tier {tier}")
            return None
        if name != tier:
            self._losses.adapted("service_tier", f"{tier} is sent as {name}")
        return name

    def cache_retention(self) -> str | None:
        """Returns how long the prompt is cached, unless that is the default."""
        cache = self._request.cache
        if cache is None or self.in_family:
            return _RETENTION[cache] if cache else None
        # These hosts cache prompts without being asked.
        if cache == "5m":
            self._losses.adapted("cache", "dropped: caching is the default")
            return None
        self._losses.warned("cache", f"{cache} is not available; cached for 24 hours")
        return _RETENTION[cache]

    def breakpoint(
        self, content: TextContent | ImageContent | FileContent, path: str
    ) -> CacheBreakpoint | None:
        """Returns the breakpoint of a content. One of the family is unchanged; one of another
        dialect gets the next longer TTL.
        """
        cache = content.cache
        if cache is None and content.extra is UNSET:  # nearly always
            return None
        path = self.breakpoint_path(path)
        source = fields_of(content.extra).get(BREAKPOINT_KEY)
        # With its own TTL or mode, which the canonical cache cannot express.
        if source is not None and self.in_family:
            # Of an assistant's text, it was not read.
            with suppress(msgspec.ValidationError):
                return msgspec.json.decode(source, type=CacheBreakpoint)
        if cache is None:
            return None
        if not self.in_family and cache == "5m":
            self._losses.adapted(f"{path}.cache", "cached for the shortest time available")
        elif not self.in_family:
            self._losses.warned(f"{path}.cache", f"{cache} is not available; cached for 12 hours")
        return CacheBreakpoint(_EXPLICIT, _BREAKPOINT_TTLS[cache])

    def breakpoint_path(self, path: str) -> str:
        """Returns the path where the breakpoint of a content came from."""
        return self._moved.get(path, path)

    def move_breakpoint(
        self, path: str, contents: list[LocatedContent], cache: Cache | None
    ) -> list[LocatedContent]:
        """Returns the contents of a result, the last one with the result's own breakpoint."""
        match contents:
            # Results have no breakpoint here; the last part of their content marks the same prefix.
            case _ if cache is None:
                return contents
            case [
                *rest,
                LocatedContent(where, TextContent() | ImageContent() | FileContent() as last),
            ]:
                # Both end at the same place: one is enough.
                if last.cache is not None:
                    self._losses.adapted(f"{where}.cache", "replaced by that of the result")
                self._moved[where] = path
                marked = msgspec.structs.replace(last, cache=cache, extra=UNSET)
                return [*rest, LocatedContent(where, marked)]
        self._losses.warned(f"{path}.cache", "dropped: there is no content to mark")
        return contents

    def extras(self, extra: Json) -> Json:
        """Returns the extra fields that the family does not have."""
        found = fields_of(extra)
        if self.in_family:
            found.pop(BREAKPOINT_KEY, None)
        return collect(found)

    def report_extras(self, contents: Iterable[AnyContent], path: str) -> None:
        """Reports the extra fields of contents, and of the contents of results."""
        for place, content in enumerate(contents):
            if content.__class__ is TextContent and content.extra is UNSET:
                continue  # nearly always
            where = f"{path}.content[{place}]"
            # Both are dropped or passed on whole, and reported where that happens.
            if isinstance(content, OpaqueContent | ReasoningContent):
                continue
            if content.extra is not UNSET:
                extras = self.extras(content.extra)
                report_dropped_extras(extras, where, self._losses, self._name)
            # A result that could not be parsed is refused as a whole.
            if isinstance(content, ResultContent) and UNPARSED_RESULT_FIELDS.isdisjoint(
                fields_of(content.extra)
            ):
                self.report_extras(content.content, where)

    def report_media_type(self, content: ImageContent | FileContent, path: str) -> None:
        """Reports that the media type of a URL is not sent."""
        if content.url is not None and content.media_type is not None and not self.is_native:
            detail = "dropped: the server of the URL sends it"
            self._losses.adapted(f"{path}.media_type", detail)

    def output_format(self) -> tuple[str, bool | None]:
        """Returns the name of the output schema, and whether it is enforced."""
        output = self._request.output
        strict = output.strict
        if not self.in_family:
            # Anthropic and Gemini enforce every output schema.
            strict = strict is not False
            if strict and not is_strict(output.schema):
                strict = False
                # Strict mode would reject it, and to close it would change what it means.
                self._losses.warned("output.schema", "not enforced: it has open objects")
        if output.name is None:
            self._losses.adapted("output.name", "the schema needs a name: it is sent as `output`")
        return output.name or "output", strict

    def strict(self, tool: Tool, path: str) -> bool | None:
        """Returns whether a tool is strict. The schema of a tool is never changed for that."""
        if self.in_family or not tool.strict or is_strict(tool.parameters):
            return tool.strict
        detail = "not enforced: that needs closed objects with every key required"
        self._losses.warned(f"{path}.strict", detail)
        return False

    def renders_tool_choice(self) -> bool:
        """Whether there is a tool choice to send; one without tools is reported."""
        choice = self._request.tool_choice
        # The API rejects a choice without tools. What a client of it sends is left to the host.
        if choice is None or self._request.tools or self.is_native:
            return choice is not None
        if choice != ToolChoice():
            self._losses.warned("tool_choice", "dropped: there are no tools to choose from")
        return False

    def report_unavailable(self, options: UnavailableOptions) -> None:
        """Reports the options that get lost, those that must not first."""
        lost = options.lost(self._request)
        # The first refusal is the error that the client sees.
        for option in sorted(lost, key=lambda one: one.instead is None):
            path, instead = option.canonical, option.instead
            if instead is None:
                self._losses.dropped(path, self._name)
            else:
                field = path.rpartition(".")[2]
                self._losses.refused(path, f"{field} is not available on {self._name}; {instead}")
