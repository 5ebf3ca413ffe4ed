"""A table within one test: every row is tried, and a failure is named."""

import pytest

from tests.tables import each_row

TRIED: list[int] = []


@pytest.fixture
def seven() -> int:
    return 7


@each_row("number", range(100))
def test_every_row_is_tried(seven: int, number: int) -> None:
    TRIED.append(number * seven)
    assert TRIED[-1] == 7 * (len(TRIED) - 1)


@pytest.mark.parametrize("above", ["a", "b"])
@each_row("left, right", [(1, 2), (3, 4)])
@each_row("under", "xy")
def test_tables_stack(above: str, left: int, right: int, under: str) -> None:
    assert (above in "ab", right - left, under in "xy") == (True, 1, True)


@each_row("number, even", [(number, number % 2 == 0) for number in range(6)], ids=str)
def odd_numbers_fail(number: int, even: bool) -> None:
    assert even


def test_each_failure_is_named_and_none_hides_another() -> None:
    with pytest.raises(ExceptionGroup, match="3 of 6 rows fail") as raised:
        odd_numbers_fail()
    notes = [failure.__notes__ for failure in raised.value.exceptions]
    assert notes == [["Row: 1-False"], ["Row: 3-False"], ["Row: 5-False"]]


@each_row("name", ["one", "two"], ids=["first", "second"])
def nothing_is_raised_for_two(name: str) -> None:
    with pytest.raises(ValueError, match="'one'"):
        int(name if name == "one" else "2")


def test_a_single_failure_is_shown_as_itself() -> None:
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE") as raised:
        nothing_is_raised_for_two()
    assert raised.value.__notes__ == ["Row: second"]


def test_without_rows_a_test_is_skipped() -> None:
    def takes_a(a: int) -> None:
        assert a

    (mark,) = each_row("a", [])(takes_a).__dict__["pytestmark"]
    assert (mark.name, mark.kwargs) == ("skip", {"reason": "no rows of a"})


def test_a_table_must_fit_its_test() -> None:
    def takes_a(a: int) -> None:
        assert a

    with pytest.raises(AssertionError, match="takes_a does not take b"):
        each_row("b", [1])(takes_a)
    with pytest.raises(ValueError, match=r"shorter|longer"):
        each_row("a, b", [(1, 2, 3)])
    with pytest.raises(ValueError, match=r"shorter|longer"):
        each_row("a", [1, 2], ids=["one"])
