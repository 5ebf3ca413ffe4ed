"""A context is a value: nothing in it changes, and no two share what counts."""

from dataclasses import dataclass

import pytest

import weft
from weft.context import UNKNOWN_MODEL, Context, Quirks
from weft.dialects import DialectName
from weft.ids import Ids
from weft.parts import Finish, Part, ResponseMetadata, TextDelta, TextEnd, TextStart, Usage
from weft.request import Request


def test_a_context_knows_nothing_unless_told() -> None:
    told = Context(ids=(ids := Ids()))
    assert told == Context(
        request=None, quirks=None, ids=ids, now=0, origin=None, choice=0, response_id=None
    )


def test_a_context_keeps_what_it_is_told() -> None:
    request, ids = Request("m"), Ids(b"seed")
    context = Context(request=request, ids=ids, now=7, origin="o", choice=1, response_id="resp_1")
    assert (context.request, context.ids, context.now) == (request, ids, 7)
    assert (context.origin, context.choice, context.response_id) == ("o", 1, "resp_1")


def test_every_context_counts_its_own_ids() -> None:
    one, other = Context(), Context()
    assert one.ids is not other.ids
    assert one.ids.mint("call") == other.ids.mint("call")


def test_a_context_cannot_be_changed() -> None:
    context = Context()
    with pytest.raises(AttributeError):
        context.now = 1  # type: ignore[misc]


def test_the_quirks_of_a_dialect_are_values_too() -> None:
    @dataclass(frozen=True, slots=True)
    class Accent(Quirks):
        loud: bool = False

    accent = Accent(loud=True)
    assert Context(quirks=accent).quirks == Accent(loud=True)
    assert not hasattr(accent, "__dict__")


ANONYMOUS: list[Part] = [
    ResponseMetadata("r", created=1),
    TextStart("t"),
    TextDelta("t", "Hi"),
    TextEnd("t"),
]


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic-messages", "openai-responses"])
@pytest.mark.parametrize(
    ("asked", "name"), [(None, UNKNOWN_MODEL), (Request("m-1"), "m-1")], ids=["bare", "asked"]
)
def test_a_model_that_nobody_named_is_the_one_asked_for_or_unknown(
    dialect: DialectName, asked: Request | None, name: str
) -> None:
    context = Context(request=asked, now=1)
    raw = b"".join(
        weft.encode([*ANONYMOUS, Finish("stop", usage=Usage(1, 1, 2))], dialect, context=context)
    )
    assert f'"model":"{name}"'.encode() in raw
    assert b'"model":""' not in raw
    assert weft.check(raw, dialect=dialect) == []
