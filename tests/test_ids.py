"""Ids come from a seed: equal input gives equal bytes, and no id comes twice."""

import re

from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import QUICK
from weft.ids import Claims, Ids

PREFIXES = st.lists(st.sampled_from(["call", "resp", "msg", "é"]), max_size=12)


@QUICK
@given(seed=st.binary(max_size=80), prefixes=PREFIXES)
def test_equal_seeds_mint_equal_ids_in_equal_order(seed: bytes, prefixes: list[str]) -> None:
    one, other = Ids(seed), Ids(seed)
    assert [one.mint(prefix) for prefix in prefixes] == [other.mint(prefix) for prefix in prefixes]


@QUICK
@given(seed=st.binary(max_size=8), other=st.binary(max_size=8), prefixes=PREFIXES)
def test_no_id_is_minted_twice(seed: bytes, other: bytes, prefixes: list[str]) -> None:
    seeds = {seed, other}
    minted = [ids.mint(prefix) for ids in map(Ids, seeds) for prefix in prefixes]
    assert len(set(minted)) == len(minted)


@QUICK
@given(seed=st.binary(max_size=8), prefixes=PREFIXES)
def test_a_minted_id_is_its_prefix_and_32_hex_digits(seed: bytes, prefixes: list[str]) -> None:
    ids = Ids(seed)
    for prefix in prefixes:
        assert re.fullmatch(f"{prefix}_[0-9a-f]{{32}}", ids.mint(prefix))


def test_without_a_seed_the_ids_are_still_the_same_each_time() -> None:
    assert Ids().mint("call") == Ids(b"").mint("call") != Ids(b"seed").mint("call")


@QUICK
@given(prefixes=PREFIXES)
def test_local_ids_count_each_prefix_from_nought(prefixes: list[str]) -> None:
    ids = Ids(b"any")
    expected = [f"{prefix}_{prefixes[:at].count(prefix)}" for at, prefix in enumerate(prefixes)]
    assert [ids.local(prefix) for prefix in prefixes] == expected


@QUICK
@given(prefixes=PREFIXES)
def test_local_ids_do_not_disturb_the_minted_ones(prefixes: list[str]) -> None:
    plain, mixed = Ids(b"any"), Ids(b"any")
    minted = []
    for prefix in prefixes:
        mixed.local(prefix)
        minted.append(mixed.mint(prefix))
    assert minted == [plain.mint(prefix) for prefix in prefixes]


@QUICK
@given(wanted=st.lists(st.sampled_from(["a", "a_2", "a_3", "a_5", "b"]), max_size=12))
def test_a_claimed_id_is_the_first_one_that_is_free(wanted: list[str]) -> None:
    claims, taken = Claims(), set[str]()
    for id in wanted:
        free = [id, *(f"{id}_{number}" for number in range(2, 20))]
        expected = next(one for one in free if one not in taken)
        assert claims.claim(id) == expected
        taken.add(expected)
        assert expected in claims
    assert "c" not in claims


@given(
    before=st.lists(st.sampled_from(["call", "msg"]), max_size=5),
    after=st.lists(st.sampled_from(["call", "msg", "fc"]), max_size=5),
)
def test_restored_ids_mint_what_the_others_do(before: list[str], after: list[str]) -> None:
    ids = Ids(b"seed")
    for prefix in before:
        ids.mint(prefix)
        ids.local(prefix)
    restored = Ids.restored(*ids.state())
    assert [restored.mint(one) for one in after] == [ids.mint(one) for one in after]
    assert [restored.local(one) for one in after] == [ids.local(one) for one in after]


def test_ids_go_on_where_those_that_they_are_restored_from_stood() -> None:
    ids = Ids(b"seed")
    ids.mint("resp")
    ids.local("text")
    restored = Ids.restored(*ids.state())
    assert (restored.mint("resp"), restored.local("text")) == (ids.mint("resp"), "text_1")


def test_a_name_that_somebody_else_has_taken_is_passed_over() -> None:
    claims = Claims()
    assert [claims.claim(one) for one in ("a_2", "a", "a", "a")] == ["a_2", "a", "a_3", "a_4"]
