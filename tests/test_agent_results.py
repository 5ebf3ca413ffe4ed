"""Results that are too large for the model, or for the log."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.agent_processes import runtime_on, to_rest
from tests.agent_upstream import AgentUpstream, agent_upstream, by_turn, call, calls, text
from tests.stores import empty
from weft.agent.agents import Agent
from weft.agent.definition import Limits
from weft.agent.events import CallFinished, Contents, encode_event, joined_text
from weft.agent.results import MAX_RESULT, cut
from weft.agent.tools import tool
from weft.request import FileContent, ImageContent, TextContent
from weft.store.base import EVENT_SIZE

NOTICES = 256
"""Bytes of the notices, at most."""

PARTS = st.one_of(
    st.builds(TextContent, st.text(max_size=60)),
    st.builds(TextContent, st.text(st.sampled_from('\0\n"\\é四😀x'), max_size=400)),
    st.builds(ImageContent, data=st.text("QUJD", max_size=99), media_type=st.just("image/png")),
    st.builds(FileContent, data=st.text("QUJD", max_size=99)),
)


def size(contents: Contents) -> int:
    return sum(len(msgspec.json.encode(one)) for one in contents)


@given(parts=st.lists(PARTS, max_size=12), limit=st.integers(1, 1000))
@example(parts=[TextContent("\0" * 400), *[TextContent("")] * 99], limit=300)
def test_a_result_is_whole_or_says_what_is_missing(
    parts: list[TextContent | ImageContent | FileContent], limit: int
) -> None:
    contents = tuple(parts)
    found = cut(contents, limit)
    if size(contents) <= limit:
        assert found == contents
        return
    assert size(found) <= limit + NOTICES
    kept = [one for one, same in zip(contents, found, strict=False) if one == same]
    assert found[: len(kept)] == contents[: len(kept)]
    notice, rest = found[len(kept)], len(contents) - len(kept) - 1
    assert isinstance(notice, TextContent)
    first = contents[len(kept)]
    if isinstance(first, TextContent):
        start, _, said = notice.text.rpartition("\n")
        assert first.text.startswith(start)
        assert said == f"[cut: {len(start.encode())} of {len(first.text.encode())} bytes]"
    else:
        assert notice.text.startswith("[left out: a ")
    more = [TextContent(f"[left out: {rest} more parts]")] if rest else []
    assert [*found[len(kept) + 1 :]] == more


MANY: Contents = (TextContent(""),) * 100_000
ODD: dict[str, Callable[[], object]] = {
    "long": lambda: "x" * (2 * EVENT_SIZE),
    "six bytes a character": lambda: "\x01" * EVENT_SIZE,
    "many parts": lambda: MANY,
    "a long error": lambda: exec("raise ValueError('x' * 3_000_000)"),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("limit", [Limits().result, 10 * EVENT_SIZE])
def test_whatever_a_tool_returns_its_call_has_a_receipt(
    name: str, limit: int, tmp_path: Path
) -> None:
    @tool
    def odd() -> object:
        """Returns something."""
        return ODD[name]()

    agent = Agent("helper", "m/m", tools=[odd], limits=Limits(result=limit))

    async def main(upstream: AgentUpstream) -> None:
        url = empty("sqlite", tmp_path)
        async with runtime_on(url, upstream.url, tmp_path, agent=agent) as (runtime, _, _):
            last, events = await to_rest(runtime, await runtime.start("helper", "Go."))
        assert last == "run.finished"
        [receipt] = [one for one in events if isinstance(one, CallFinished)]
        assert len(encode_event(receipt)) < EVENT_SIZE
        assert size(receipt.result) <= min(limit, MAX_RESULT) + NOTICES
        assert joined_text(receipt.result).endswith("]")

    with agent_upstream(by_turn(calls(call(0, "a", "odd", {})), text("Done."))) as upstream:
        asyncio.run(main(upstream))
