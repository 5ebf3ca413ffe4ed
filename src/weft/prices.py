"""What a response costs, in US dollars: the list prices of `genai-prices`, unless the settings say
otherwise.

The package brings its prices with it: nothing is fetched. It is imported when a price is looked up
for the first time, which takes some tenths of a second; `PriceTable.preload` does it elsewhere than
on the event loop. A server on this machine has no list price, and the package is not needed for it.
"""

import ipaddress
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import msgspec

from weft.parts import Usage

MILLION = 1_000_000
DOLLAR = 1_000_000_000
"""Sums of money are counted in billionths of a US dollar: they are exact."""

HIGHEST_COST = 1_000_000 * DOLLAR
"""Of one attempt: a price in the settings may be a mistake, and sums must fit into 64 bits."""

REFRESH = 60.0
"""Seconds for which a list price is used: some hosts are cheaper at night."""

MAX_MODELS = 1_000
"""Models whose prices are remembered: clients can invent names."""


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The price of a model, in US dollars per million tokens."""

    input: float
    """Input tokens that were not cached."""

    output: float
    """Output tokens, with reasoning."""

    cached: float | None = None
    """Input tokens that were read from a cache; without it, as `input`."""


@dataclass(frozen=True, slots=True)
class _Rate:
    """A price per million tokens, and those from certain input lengths on, longest first: all
    tokens of a request have the price of its length."""

    base: float
    tiers: tuple[tuple[int, float], ...] = ()

    def at(self, input_tokens: int) -> float:
        for start, price in self.tiers:
            if input_tokens > start:
                return price
        return self.base


@dataclass(frozen=True, slots=True)
class _Rates:
    """All rates of one model at one time."""

    input: _Rate
    output: _Rate
    cache_read: _Rate
    cache_write: _Rate
    request: float = 0.0
    expires: float | None = None
    """None for prices of the settings."""


_UNKNOWN = _Rates(_Rate(0.0), _Rate(0.0), _Rate(0.0), _Rate(0.0), expires=-math.inf)
"""Of a model that was not looked up yet."""


@dataclass(slots=True)
class PriceTable:
    """The prices of the models of some upstreams."""

    overrides: Mapping[str, Price] = field(default_factory=dict)
    """Prices by `<upstream>/<model>`."""

    urls: Mapping[str, str] = field(default_factory=dict)
    """The base URLs of the upstreams, by which their list prices are found. An upstream that is not
    here is looked up by its name."""

    _known: dict[str, _Rates | None] = field(default_factory=dict)

    def update(self, overrides: Mapping[str, Price], urls: Mapping[str, str]) -> None:
        """Replaces the prices and the upstreams."""
        self.overrides, self.urls = overrides, urls
        self._known.clear()

    def cost_of(self, model: str, usage: Usage | None, now: float | None = None) -> float | None:
        """Returns the cost in US dollars of a response of `<upstream>/<model>`. None if the tokens
        or the price are not known."""
        if usage is None or (usage.input_tokens is None and usage.output_tokens is None):
            return None
        rates = self._known.get(model, _UNKNOWN)
        if rates is not None and rates.expires is not None:
            now = time.time() if now is None else now
            if rates.expires <= now:
                rates = self._look_up(model, now)
                if len(self._known) >= MAX_MODELS:
                    self._known.clear()
                self._known[model] = rates
        if rates is None:
            return None
        total = usage.input_tokens or 0
        uncached, cached = total, 0.0
        if usage.cache_read_tokens or usage.cache_write_tokens:
            read = min(usage.cache_read_tokens or 0, total)
            written = min(usage.cache_write_tokens or 0, total - read)
            uncached = total - read - written
            cached = read * rates.cache_read.at(total) + written * rates.cache_write.at(total)
        # Most models have one price, whatever the length.
        into = rates.input.at(total) if rates.input.tiers else rates.input.base
        out = rates.output.at(total) if rates.output.tiers else rates.output.base
        millionths = uncached * into + (usage.output_tokens or 0) * out + cached
        return rates.request + millionths / MILLION

    def preload(self) -> None:
        """Imports the list prices if an upstream needs them. To be called in a thread."""
        if not all(map(_is_unlisted, self.urls.values())):
            _snapshot()

    def _look_up(self, model: str, now: float) -> _Rates | None:
        own = self.overrides.get(model)
        if own is not None:
            read = own.input if own.cached is None else own.cached
            return _Rates(_Rate(own.input), _Rate(own.output), _Rate(read), _Rate(own.input))
        upstream, _, name = model.partition("/")
        url = self.urls.get(upstream)
        if url is not None and _is_unlisted(url):
            return None
        snapshot = _snapshot()
        if snapshot is None:
            return None
        try:
            by_name = upstream if url is None else None
            _, found = snapshot.find_provider_model(name, None, by_name, url)
        except LookupError:
            return None
        # Prices per minute, image or search cannot be computed from tokens.
        prices = found.get_prices(datetime.fromtimestamp(now, UTC))
        if prices.input_mtok is None and prices.output_mtok is None:
            return None
        plain = _rate(prices.input_mtok)
        return _Rates(
            plain,
            _rate(prices.output_mtok),
            plain if prices.cache_read_mtok is None else _rate(prices.cache_read_mtok),
            plain if prices.cache_write_mtok is None else _rate(prices.cache_write_mtok),
            float(prices.requests_kcount or 0) / 1_000,
            expires=now + REFRESH,
        )


def cost_of(model: str, usage: Usage | None, prices: PriceTable | None = None) -> float | None:
    """Returns the cost in US dollars of a response of `<upstream>/<model>`, by list prices if no
    others are given. None if the tokens or the price are not known."""
    return (_LIST_PRICES if prices is None else prices).cost_of(model, usage)


_LIST_PRICES = PriceTable()


def dollars(cost: int | None) -> float | None:
    """Converts billionths of a US dollar to US dollars."""
    return None if cost is None else cost / DOLLAR


def _snapshot() -> Any:
    """The list prices; None if the package is not installed."""
    try:
        return import_module("genai_prices.data_snapshot").get_snapshot()
    except ImportError:
        return None


def _rate(price: Any) -> _Rate:
    """Of a decimal number, or of an object with a base price and tiers."""
    if price is None:
        return _Rate(0.0)
    if not hasattr(price, "tiers"):
        return _Rate(float(price))
    tiers = sorted(((one.start, float(one.price)) for one in price.tiers), reverse=True)
    return _Rate(float(price.base), tuple(tiers))


def _is_unlisted(url: str) -> bool:
    """Whether this is a server for which nobody has a price list."""
    host = urlsplit(url).hostname
    if host is None or host == "localhost":  # `demo:` has no host
        return True
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return False
