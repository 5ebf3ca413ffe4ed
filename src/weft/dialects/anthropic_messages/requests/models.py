"""What models of this wire take in a request, by their names.

One row for each family, the first that fits counts; patterns are searched for, so that prefixes and
suffixes of hosts (`eu.`, `-v1:0`, `@20250805`) do not matter. A model that no row knows is taken
for one of the newest: it takes no sampling parameters, and the usual limit.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Model:
    """What one family of models takes."""

    pattern: re.Pattern[str]
    sampling: bool
    """Takes temperature, top_p and top_k. The newest models answer 400 to them."""

    most_tokens: int | None
    """The highest limit of an answer, if it is known."""


def _model(pattern: str, most_tokens: int) -> Model:
    return Model(re.compile(pattern), True, most_tokens)


_NO_LATER = r"(?![.\d]|-\d{1,2}(?!\d))"
"""A version ends here; a date may follow."""

MODELS = (
    _model(r"3[.-]5-(sonnet|haiku)", 8_192),
    _model(r"3[.-]7-sonnet", 64_000),
    _model(r"3-(opus|sonnet|haiku)", 4_096),
    _model(rf"opus-4([.-][01])?{_NO_LATER}", 32_000),
    _model(rf"opus-4[.-]5{_NO_LATER}", 64_000),
    _model(rf"opus-4[.-]6{_NO_LATER}", 128_000),
    _model(rf"(sonnet|haiku)-4([.-][0-6])?{_NO_LATER}", 64_000),
)
"""All that came before the parameters were taken away."""

_NEWEST = Model(re.compile(""), False, None)


def model_named(name: str) -> Model:
    return next((one for one in MODELS if one.pattern.search(name)), _NEWEST)
