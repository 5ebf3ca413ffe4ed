"""Answers far over what used to be the longest line, whole and in one event: told, stored, and no
false alarm of the audit.
"""

import json
import sqlite3
from itertools import pairwise, product
from pathlib import Path

import pytest

from tests.faults.upstream import LAST, STREAM, Step, answer, chunk
from tests.faults.wires import DIALECTS, GEMINI, SPEECHES, has_good_end
from tests.passing_world import Passing, passing

LARGE = b"weft " * 1_700_000
"""8.5 MB: the line limit was 8 MiB."""

PAIRS = [(one, other) for one, next in pairwise((*DIALECTS, DIALECTS[0])) for other in (one, next)]
"""Every dialect with itself, and with another."""

IMAGE = json.dumps(
    {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [
                        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0K" * 1_100_000}}
                    ],
                },
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "modelVersion": "m",
        "responseId": "r1",
    }
).encode()


def spoken(upstream: str, stream: bool) -> list[Step]:
    """An answer of this dialect: one event, or the body, has all of the text."""
    said = SPEECHES[upstream]
    if not stream:
        return [answer(said.body.replace(b"and weft.", LARGE))]
    return [
        STREAM, *(chunk(one.replace(b"and weft.", LARGE)) for one in said.frames), LAST,
    ]  # fmt: skip


@pytest.mark.long
def test_a_response_in_one_large_event_or_body_is_sent_and_stored(tmp_path: Path) -> None:
    with passing(tmp_path) as world:  # which verifies what it stored

        def ask(client: str, upstream: str, stream: bool) -> None:
            model = world.model(upstream, spoken(upstream, stream))
            told = world.ask(client, model, stream=stream)
            assert told.status_code == 200
            assert LARGE in told.content
            assert has_good_end(client, told.content) or not stream

        for (client, upstream), stream in product(PAIRS, (True, False)):
            ask(client, upstream, stream)
        with sqlite3.connect(tmp_path / "weft.db") as database:
            ((stored,),) = database.execute("SELECT count(*) FROM response WHERE digest NOT NULL")
        database.close()
    assert stored == 16


@pytest.mark.long
@pytest.mark.parametrize("stream", [True, False])
def test_a_large_image_reaches_its_client(tmp_path: Path, stream: bool) -> None:
    def told(world: Passing) -> bytes:
        steps = [STREAM, chunk(b"data: %b\n\n" % IMAGE), LAST] if stream else [answer(IMAGE)]
        return world.ask(GEMINI, world.model(GEMINI, steps), stream=stream).content

    with passing(tmp_path) as world:
        assert b"iVBORw0K" * 1_100_000 in told(world)
