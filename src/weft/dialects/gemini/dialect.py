"""The row of this dialect in `DIALECTS`."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.dialects.base import Dialect
from weft.dialects.frames import Salvage, is_present
from weft.dialects.gemini import wire
from weft.dialects.gemini.decoder import GeminiDecoder
from weft.dialects.gemini.encoder import GeminiEncoder, body
from weft.dialects.gemini.errors import read_error, write_error
from weft.dialects.gemini.http import HTTP
from weft.dialects.gemini.quirks import GeminiQuirks
from weft.dialects.gemini.request import REQUEST
from weft.dialects.gemini.validator import GeminiValidator
from weft.findings import Findings
from weft.sse import Frame


class _PeekedCandidate(msgspec.Struct):
    index: int | None = None


class _PeekedStatus(msgspec.Struct):
    status: str | None = None


class _PeekedResponse(msgspec.Struct, rename="camel"):
    """The fields of a frame that identify it."""

    candidates: list[_PeekedCandidate] | None = None
    prompt_feedback: Raw | UnsetType = UNSET
    usage_metadata: Raw | UnsetType = UNSET
    error: _PeekedStatus | None = None
    response_id: str | None = None


def _peek(frame: Frame) -> list[_PeekedResponse]:
    """One frame, or the elements of an array; fields of other types are left out."""
    frames = wire.array_elements(frame.data)[0] if frame.data[:1] == b"[" else [frame.data]
    # Findings of a peek are discarded: the decoder reads the same frame and reports them.
    salvage = Salvage(Findings(), frozenset())
    return [salvage.item(Raw(data), _PeekedResponse) for data in frames]


def _speaks(frame: Frame) -> bool:
    return any(
        response.candidates is not None
        or is_present(response.prompt_feedback)
        or is_present(response.usage_metadata)
        # Every dialect has an `error`; `status` in capitals is this one's alone.
        or (response.error is not None and response.error.status in wire.ERROR_STATUSES)
        for response in _peek(frame)
    )


def _choices(frame: Frame) -> frozenset[int]:
    return frozenset(
        candidate.index or 0 for response in _peek(frame) for candidate in response.candidates or ()
    )


def _begins(frame: Frame, before: Sequence[Frame]) -> bool:
    """Whether this frame has another response id; one without an id continues the response."""
    id = _response_id(frame)
    # Backwards: the frame before this one nearly always has it.
    known = next((other for other in map(_response_id, reversed(before)) if other), None)
    return bool(id and known and id != known)


def _response_id(frame: Frame) -> str | None:
    return next((one.response_id for one in _peek(frame) if one.response_id), None)


GENERATE_CONTENT = Dialect(
    wire.NAME,
    speaks=_speaks,
    decoder=GeminiDecoder,
    encoder=GeminiEncoder,
    body=body,
    begins=_begins,
    idle=b"\n",  # official clients parse every line that is not blank as JSON
    choices=_choices,
    # An array is a stream of its own. Objects, one a line, may be bodies or frames of one stream:
    # their ids decide, in `_begins`.
    # capture: stream-as-one-array
    is_whole=lambda frame: frame.data[:1] == b"[",
    read_error=read_error,
    write_error=write_error,
    http=HTTP,
    quirks=GeminiQuirks,
    validator=GeminiValidator,
    request=REQUEST,
)
