"""What wires say in different words comes out in the words of the target."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from tests.strategies import QUICK
from weft.dialects.envelope import Envelope, ReasoningState, is_envelope, to_base64, wrap
from weft.dialects.requests.codec import Losses
from weft.dialects.requests.fields import is_json_object
from weft.dialects.requests.names import ToolNameMap
from weft.dialects.requests.reasoning import EFFORT_BUDGETS, effort_for_budget
from weft.dialects.requests.tools import arguments_object, report_no_approval, schema_keywords
from weft.parts import Json
from weft.request import CallContent, Request, Tool


def outcomes(losses: Losses) -> list[tuple[str, str]]:
    return [(loss.path, loss.outcome) for loss in losses.found]


@pytest.mark.parametrize(
    ("budget", "effort"),
    [
        (0, "none"),
        (1, "minimal"),
        (1024, "minimal"),
        (1025, "low"),
        (32768, "xhigh"),
        (9**9, "max"),
    ],
)
def test_a_budget_is_the_effort_whose_budget_is_next_above(budget: int, effort: str) -> None:
    assert effort_for_budget(budget) == effort


def test_the_budget_of_an_effort_is_that_effort() -> None:
    assert {effort: effort_for_budget(budget) for effort, budget in EFFORT_BUDGETS.items()} == {
        effort: effort for effort in EFFORT_BUDGETS
    }


@pytest.mark.parametrize(
    ("call", "sent", "losses"),
    [
        (CallContent("c", "f", ' {"a": 1.50}'), b' {"a": 1.50}', []),
        (CallContent("c", "f", " "), b"{}", []),
        (CallContent("c", "f", "[]"), b'{"_raw":"[]"}', [("p.params", "warned")]),
        (CallContent("c", "f", '{"a":'), b'{"_raw":"{\\"a\\":"}', [("p.params", "warned")]),
        (
            CallContent("c", "f", "x", format="text"),
            b'{"input":"x"}',
            [("p.params", "adapted")],
        ),
    ],
)
def test_arguments_are_an_object(
    call: CallContent, sent: bytes, losses: list[tuple[str, str]]
) -> None:
    found = Losses()
    assert arguments_object(call, "p", found) == Raw(sent)
    assert outcomes(found) == losses


def test_what_is_nested_too_deeply_is_no_object() -> None:
    assert not is_json_object(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


@pytest.mark.parametrize(
    ("raw", "holds"),
    [
        (UNSET, False),
        (Raw(b"1"), False),
        (Raw(b'"plain"'), False),
        (Raw(b'"%b"' % wrap(Envelope("o", None, ReasoningState("s"))).encode()), True),
        (Raw(b'"%b"' % to_base64(wrap(Envelope("o", None, ReasoningState("s")))).encode()), True),
    ],
)
def test_an_envelope_is_known_wherever_it_stands(raw: Json, holds: bool) -> None:
    assert is_envelope(raw) is holds


@pytest.mark.parametrize(
    ("parameters", "keys"),
    [(UNSET, None), (Raw(b"true"), None), (Raw(b'{"a":1}'), {"a": Raw(b"1")})],
)
def test_a_schema_is_known_by_its_keywords(parameters: Json, keys: object) -> None:
    assert schema_keywords(parameters) == keys


@QUICK
@given(names=st.lists(st.text(max_size=12), unique=True, max_size=6))
def test_names_are_legal_told_apart_and_can_be_restored(names: list[str]) -> None:
    spelling = ToolNameMap(Request("m"), "a-z", 10, Losses(), first="a-y")
    spelled = {name: spelling.rename(name, None, "tools[0]") for name in names}
    assert all(len(word) <= 10 for word in spelled.values())
    assert len(set(spelled.values())) == len(names)
    for name, word in spelled.items():
        assert spelling.originals.get(word, word) == name
        assert spelling.rename(name, None, "x") == word


def test_a_group_is_part_of_the_name_also_where_only_the_name_is_told() -> None:
    losses = Losses()
    spelling = ToolNameMap(Request("m", tools=(Tool("f", namespace="ns"),)), "a-z_", 64, losses)
    assert spelling.rename("f", "ns", "tools[0]") == spelling.rename_chosen("f", "c[0]") == "ns__f"
    assert spelling.rename_chosen("g", "c[1]") == "g"
    assert spelling.originals == {"ns__f": "ns.f"}
    assert outcomes(losses) == [("tools[0].name", "adapted"), ("c[0]", "adapted")]


@pytest.mark.parametrize(
    ("extra", "losses"),
    [
        (UNSET, [("t", "warned")]),
        (Raw(b'{"require_approval":"never"}'), []),
        (Raw(b'{"require_approval":"always"}'), [("t.require_approval", "refused")]),
        (Raw(b'{"require_approval":"never","headers":{"a":"b"}}'), [("t.headers", "refused")]),
    ],
)
def test_nobody_is_asked_before_a_remote_tool_runs(
    extra: Json, losses: list[tuple[str, str]]
) -> None:
    found = Losses()
    report_no_approval(Tool("t", "mcp", extra=extra), "t", found, "there")
    assert outcomes(found) == losses


def test_where_nobody_is_ever_asked_that_is_no_news() -> None:
    found = Losses()
    report_no_approval(Tool("t", "mcp", origin="gemini"), "t", found, "there")
    assert found.found == []
