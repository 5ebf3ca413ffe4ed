"""Requests between any two dialects: every leaf that differs is in the report, and nothing else."""

import json
from functools import cache
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.matrix.asked import differences, groundless, told_apart, unnamed
from tests.strategies import QUICK
from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.requests.codec import Losses, RequestCodec

CODECS: dict[str, RequestCodec] = {
    name: dialect.request for name, dialect in DIALECTS.items() if dialect.request is not None
}
PAIRS = pytest.mark.parametrize(
    ("source", "target"), [(one, other) for one in CODECS for other in CODECS if one != other]
)


@cache
def bodies(dialect: str) -> st.SearchStrategy[bytes]:
    """Bodies of a dialect, from the strategies beside its tests."""
    module = import_module(f"tests.requests_{dialect.replace('-', '_')}")
    drawn: st.SearchStrategy[object] = module.bodies()
    return drawn.map(lambda body: json.dumps(body).encode())


@PAIRS
@QUICK
@given(data=st.data())
def test_every_leaf_that_differs_is_named_and_nothing_else(
    source: str, target: str, data: st.DataObject
) -> None:
    asked = told_apart(CODECS[source].parse(data.draw(bodies(source)), Context()).request)
    losses = Losses()
    rendered = CODECS[target].render(asked, Context(), losses)
    heard = CODECS[target].parse(rendered.body, Context()).request
    different = differences(asked, heard)
    assert unnamed(different, losses.found) == []
    assert groundless(different, losses.found) == []
