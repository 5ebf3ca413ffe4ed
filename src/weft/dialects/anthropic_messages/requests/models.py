"""What each family of models accepts in a request, by model name.

The first row that matches counts. Patterns are searched for anywhere in the name, so that prefixes
and suffixes of hosts (`eu.`, `-v1:0`, `@20250805`) do not matter. A model that no row matches is
treated as one of the newest: no sampling parameters, and the default limit.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelFamily:
    pattern: re.Pattern[str]
    sampling: bool
    """Accepts temperature, top_p and top_k. The newest models answer them with HTTP 400."""

    max_tokens: int | None
    """The highest `max_tokens`, if it is known."""


def _family(pattern: str, max_tokens: int) -> ModelFamily:
    return ModelFamily(re.compile(pattern), True, max_tokens)


_VERSION_END = r"(?![.\d]|-\d{1,2}(?!\d))"
"""No further version number follows; a date may."""

FAMILIES = (
    # Vendor documentation, "Models overview": the maximum output of each. Up to 3.7 the version
    # precedes the name, from 4 on it follows.
    _family(r"3[.-]5-(sonnet|haiku)", 8_192),
    _family(r"3[.-]7-sonnet", 64_000),
    _family(r"3-(opus|sonnet|haiku)", 4_096),
    _family(rf"opus-4([.-][01])?{_VERSION_END}", 32_000),
    _family(rf"opus-4[.-]5{_VERSION_END}", 64_000),
    _family(rf"opus-4[.-]6{_VERSION_END}", 128_000),
    _family(rf"(sonnet|haiku)-4([.-][0-6])?{_VERSION_END}", 64_000),
)
"""All models that accept sampling parameters."""

# Opus 4.7 and later answer sampling parameters with HTTP 400.
_NEWEST = ModelFamily(re.compile(""), False, None)


def family_of(model: str) -> ModelFamily:
    return next((family for family in FAMILIES if family.pattern.search(model)), _NEWEST)
