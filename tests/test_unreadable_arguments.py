"""Arguments that cannot be read are no valid call, whichever dialect tells them on."""

from pathlib import Path

import pytest

import weft
from weft.dialects import DialectName

CAPTURE = Path(__file__).parent / "captures" / "check" / "gemini" / "partial-args.bad.sse"


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "anthropic-messages"])
def test_pieces_that_name_no_place_do_not_become_a_call_without_arguments(
    target: DialectName,
) -> None:
    written = weft.convert(CAPTURE.read_bytes(), "gemini", target)
    (read,) = weft.decode_all(bytes(written), target)
    assert read.response.tool_calls == ()
    assert [call.name for call in read.response.invalid_tool_calls] == ["look"]
