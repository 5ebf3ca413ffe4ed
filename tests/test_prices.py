"""The cost of a response: list prices, overrides, and what has no price."""

import subprocess
import sys
from datetime import UTC, datetime

import pytest
from genai_prices import Usage as ListedUsage
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given
from hypothesis import strategies as st

from weft.parts import Usage
from weft.prices import Price, PriceTable, cost_of

OPENAI = PriceTable(urls={"mine": "https://api.openai.com/v1"})
NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)


SNAPSHOT = get_snapshot()
MODELS = [(provider.id, model.id) for provider in SNAPSHOT.providers for model in provider.models]


@given(
    st.sampled_from(MODELS),
    st.integers(0, 2_000_000),
    st.integers(0, 300_000),
    st.integers(0, 300_000),
    st.integers(0, 200_000),
)
def test_the_cost_is_that_of_the_price_list(
    model: tuple[str, str], plain: int, read: int, written: int, output: int
) -> None:
    total = plain + read + written
    usage = Usage(total, output, cache_read_tokens=read, cache_write_tokens=written)
    found = PriceTable().cost_of("/".join(model), usage, NOW.timestamp())
    listed = ListedUsage(
        input_tokens=total, output_tokens=output, cache_read_tokens=read, cache_write_tokens=written
    )
    try:
        provider, matched = SNAPSHOT.find_provider_model(model[1], None, model[0], None)
    except LookupError:
        assert found is None
        return
    prices = matched.get_prices(NOW)
    if prices.input_mtok is None and prices.output_mtok is None:
        assert found is None
        return
    wanted = matched.calc_price(listed, provider, genai_request_timestamp=NOW).total_price
    assert found == pytest.approx(float(wanted), abs=1e-12)


def test_an_override_wins_and_cached_tokens_have_their_own_price() -> None:
    usage = Usage(1_000_000, 100_000, cache_read_tokens=400_000)
    table = PriceTable({"mine/gpt-5": Price(2.0, 10.0, cached=0.5)}, OPENAI.urls)
    assert cost_of("mine/gpt-5", usage, table) == pytest.approx(1.2 + 0.2 + 1.0)
    without = PriceTable({"mine/gpt-5": Price(2.0, 10.0)}, OPENAI.urls)
    assert cost_of("mine/gpt-5", usage, without) == pytest.approx(2.0 + 1.0)


def test_the_provider_is_found_by_the_url_of_the_upstream_or_else_by_its_name() -> None:
    usage = Usage(1_000, 100)
    assert cost_of("mine/gpt-5", usage, OPENAI) == cost_of("openai/gpt-5", usage) is not None
    assert cost_of("mine/gpt-5", usage) is None


@pytest.mark.parametrize("usage", [None, Usage(), Usage(total_tokens=5)])
def test_unknown_tokens_have_no_cost(usage: Usage | None) -> None:
    assert cost_of("openai/gpt-5", usage) is None


@pytest.mark.parametrize(
    "url",
    ["demo:", "http://localhost:1/v1", "http://127.0.0.1:1", "http://[::1]/v1", "http://10.1.2.3"],
)
def test_a_server_without_a_price_list_needs_no_package(url: str) -> None:
    script = f"""
import sys
from weft.parts import Usage
from weft.prices import PriceTable
table = PriceTable(urls={{"a": {url!r}}})
table.preload()
assert table.cost_of("a/gpt-5", Usage(1, 1)) is None
assert "genai_prices" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_many_models_are_not_all_remembered() -> None:
    table = PriceTable(urls={"a": "demo:"})
    for number in range(3_000):
        assert table.cost_of(f"a/{number}", Usage(1, 1)) is None
    assert len(table._known) <= 1_000
