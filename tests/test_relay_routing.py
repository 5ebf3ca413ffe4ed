"""Which upstreams a model name means."""

import random
from collections import Counter

import pytest

from tests.played import Play, Played
from weft.parts import ErrorPart
from weft.relay.routing import AliasPolicy, Routing, UnknownModel
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


THREE = ("a/1", "a/2", "a/3")


def balanced(policy: AliasPolicy) -> Routing:
    return Routing(UPSTREAMS, {"alias": THREE, "x*": THREE}, {"alias": policy, "x*": policy})


@pytest.mark.parametrize("name", ["alias", "xyz"])
def test_weights_say_how_often_each_target_is_first_and_all_are_tried(name: str) -> None:
    random.seed(7)
    routing = balanced(AliasPolicy("weighted", (6, 3, 1)))
    orders = [tuple(one.name for one in routing.targets(name)) for _ in range(5000)]
    assert {tuple(sorted(order)) for order in orders} == {THREE}
    firsts, seconds = (
        Counter(order[0] for order in orders),
        Counter(order[1] for order in orders if order[0] == "a/1"),
    )
    assert [round(firsts[one] / 5000, 1) for one in THREE] == [0.6, 0.3, 0.1]
    # If the first one fails, the others stand in the same proportion.
    assert 2.2 < seconds["a/2"] / seconds["a/3"] < 4.0


def test_without_weights_all_are_equal() -> None:
    random.seed(7)
    routing = balanced(AliasPolicy("weighted"))
    firsts = Counter(routing.targets("alias")[0].name for _ in range(3000))
    assert all(900 < firsts[one] < 1100 for one in THREE)


def test_the_least_busy_target_is_first_and_of_equal_ones_the_first() -> None:
    routing = balanced(AliasPolicy("least-busy"))
    load = {"a/1": 2, "a/2": 1, "a/3": 1}
    assert [one.name for one in routing.targets("alias", load.__getitem__)] == ["a/2", "a/3", "a/1"]
    assert [one.name for one in routing.targets("alias")] == list(THREE)  # nobody knows the load


def test_an_update_keeps_the_breakers_of_what_stays() -> None:
    routing = Routing(UPSTREAMS, {})
    for _ in range(5):
        for name in ("a/m", "b/m"):
            breaker = routing.targets(name)[0].breaker
            assert breaker.refusal(0.0) is None
            breaker.failed(ErrorPart("upstream", "no", status=500), 0.0)
    other = Played(UpstreamConfig("b", "openai-chat", "http://y"), Play())
    unused = routing.update({"a": UPSTREAMS["a"], "b": other}, {"c": ("b/m",)}, {})
    assert unused == [UPSTREAMS["b"]]
    assert routing.targets("a/m")[0].breaker.refusal(0.0) is not None
    assert routing.targets("c")[0].breaker.refusal(0.0) is None


def test_an_update_changes_what_a_name_stands_for_that_was_asked_for_before() -> None:
    routing = Routing(UPSTREAMS, {"c": ("a/m",), "d-*": ("a/*",)})
    assert [routing.targets(name)[0].name for name in ("c", "d-1")] == ["a/m", "a/d-1"]
    routing.update(UPSTREAMS, {"c": ("b/m",)}, {})
    assert routing.targets("c")[0].name == "b/m"
    with pytest.raises(UnknownModel):
        routing.targets("d-1")
