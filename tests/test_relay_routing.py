"""Which upstreams a model name means."""

import pytest

from tests.played import Play, Played
from weft.parts import ErrorPart
from weft.relay.routing import Routing, UnknownModel
from weft.upstream.base import UpstreamConfig

UPSTREAMS = {
    name: Played(UpstreamConfig(name, "openai-chat", "http://x", models=("m", "n")), Play())
    for name in ("a", "b")
}
ROUTING = Routing(
    UPSTREAMS,
    {"fast": ("a/m", "b/n"), "claude-*": ("a/*",), "claude-one": ("b/one",), "g*": ("b/deep/x",)},
)


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        ("a/m", ["a/m"]),
        ("a/some/deep/name", ["a/some/deep/name"]),
        ("fast", ["a/m", "b/n"]),
        ("claude-two", ["a/claude-two"]),
        ("claude-one", ["b/one"]),
        ("gpt", ["b/deep/x"]),
    ],
)
def test_a_name_has_its_targets_in_order(model: str, targets: list[str]) -> None:
    assert [target.name for target in ROUTING.targets(model)] == targets


@pytest.mark.parametrize("model", ["", "a", "a/", "/m", "c/m", "Fast", "xclaude-two", "fast/m"])
def test_the_error_for_an_unknown_name_lists_the_known_ones(model: str) -> None:
    with pytest.raises(UnknownModel, match=r"expected one of: a/…, b/…, fast, claude-\*"):
        ROUTING.targets(model)


def test_aliases_and_named_models_are_listed_and_patterns_are_not() -> None:
    assert ROUTING.models == ["fast", "claude-one", "a/m", "a/n", "b/m", "b/n"]


def test_requests_for_one_model_of_one_upstream_share_its_breaker() -> None:
    routing = Routing(UPSTREAMS, {"fast": ("a/m", "b/n")})
    for _ in range(5):
        breaker = routing.targets("a/m")[0].breaker
        assert breaker.refusal(0.0) is None
        breaker.failed(ErrorPart("upstream", "no", status=500), 0.0)
    paused = [one.breaker.refusal(0.0) is not None for one in routing.targets("fast")]
    assert paused == [True, False]
    assert routing.targets("a/n")[0].breaker.refusal(0.0) is None
    assert routing.targets("b/m")[0].breaker.refusal(0.0) is None
