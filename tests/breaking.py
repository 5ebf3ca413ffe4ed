"""Valid bodies with something in them that does not belong there."""

import copy
from typing import Any

from hypothesis import strategies as st

from tests.strategies import JSON


@st.composite
def broken(draw: st.DrawFn, bodies: st.SearchStrategy[Any]) -> Any:
    """A body in which some value, at any depth, is replaced by any other."""
    body = copy.deepcopy(draw(bodies))
    at = body
    while at:
        key = draw(st.sampled_from(list(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[key], dict | list) or draw(st.booleans()):
            at[key] = draw(JSON)
            break
        at = at[key]
    return body
