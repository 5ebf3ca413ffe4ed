"""The items of a conversation."""

import pytest
from msgspec import Raw

from weft.errors import BadRequest
from weft.relay.history import read_shape, read_shapes

ITEMS = [
    Raw(b' {"role":"user","content":"x"} '),
    Raw(b'{"type":"function_call","call_id":"c","name":"f","arguments":"{}","id":"fc_1"}'),
    Raw(b'{"type":"function_call_output","call_id":"c","output":"1","status":"completed"}'),
]


def test_items_are_read_together_as_one_by_one() -> None:
    for upto in range(len(ITEMS) + 1):
        assert read_shapes(ITEMS[:upto]) == [read_shape(one) for one in ITEMS[:upto]]


@pytest.mark.parametrize("bad", [b"1", b"null", b"[]", b'"x"', b'{"type":5}', b'{"id":1}'])
def test_what_is_no_item_is_refused_alone_and_among_others(bad: bytes) -> None:
    with pytest.raises(BadRequest) as alone:
        read_shape(Raw(bad))
    with pytest.raises(BadRequest) as among:
        read_shapes([*ITEMS, Raw(bad)])
    assert str(alone.value) == str(among.value)
