"""How responses leave: weft.gateway.http_response."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from weft.gateway.http_response import SLICE, let_others_run, send_body

SLICES = 5


@pytest.mark.parametrize(("size", "turns"), [(SLICE, 0), (SLICES * SLICE, SLICES)])
def test_a_large_body_leaves_others_a_turn_after_each_slice_however_fast_it_is_read(
    size: int, turns: int
) -> None:
    sent: list[bytes] = []
    seen: list[int] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        """Takes everything at once, as a client does whose buffers are never full."""
        sent.append(message.get("body", b""))

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def turn() -> None:
            seen.append(len(sent))
            loop.call_soon(turn)

        loop.call_soon(turn)
        await send_body(send, 200, b"x" * size, [])

    asyncio.run(main())
    assert b"".join(sent) == b"x" * size
    assert len({count for count in seen if count <= len(sent) - 1}) == turns


def test_what_is_no_whole_slice_costs_no_turn() -> None:
    small = let_others_run(b"x" * (SLICE - 1))
    with pytest.raises(StopIteration):
        small.send(None)
    large = let_others_run(b"x" * SLICE)
    assert large.send(None) is None
    large.close()
