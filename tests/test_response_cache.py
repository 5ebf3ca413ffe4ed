"""What a socket remembers is bounded; the newest stays."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.strategies import QUICK
from weft.gateway.response_cache import CachedResponse, ResponseCache

ITEMS = st.lists(st.sampled_from(["1", "22", '"four"', "[333333]"]).map(lambda one: Raw(one)))


def held(recent: ResponseCache, ids: str) -> list[str]:
    return [id for id in ids if recent[id] is not None]


@QUICK
@given(st.lists(st.tuples(st.sampled_from("abcdef"), ITEMS)), st.integers(1, 4), st.integers(2, 40))
def test_the_newest_responses_are_remembered_as_far_as_there_is_room(
    kept: list[tuple[str, list[Raw]]], most: int, size: int
) -> None:
    recent = ResponseCache(most, size)
    wanted: list[tuple[str, bytes]] = []
    for id, items in kept:
        recent.add(id, items, stored=False)
        said = b"[" + b",".join(map(bytes, items)) + b"]"
        wanted = [one for one in wanted if one[0] != id] + [(id, said)]
        while len(wanted) > most or sum(len(one) for _, one in wanted) > size:
            del wanted[0]
    found = {id: state.items_json for id in "abcdef" if (state := recent[id]) is not None}
    assert found == dict(wanted)


def test_a_response_comes_back_as_it_was_kept() -> None:
    recent = ResponseCache()
    recent.add("a", [Raw(b'{"x": 1}'), Raw(b"2")], stored=True)
    state = recent["a"]
    assert state == CachedResponse(b'[{"x": 1},2]', stored=True)
    assert [bytes(one) for one in state.items] == [b'{"x": 1}', b"2"]


def test_a_response_that_is_forgotten_is_gone() -> None:
    recent = ResponseCache()
    for id in "ab":
        recent.add(id, [], stored=False)
    recent.remove("a")
    recent.remove("a")
    recent.remove(None)
    assert held(recent, "ab") == ["b"]
