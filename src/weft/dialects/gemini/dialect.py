"""The row of this dialect in the table of dialects."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, UnsetType

from weft.dialects.base import Dialect, Salvage, told
from weft.dialects.gemini import wire
from weft.dialects.gemini.decoder import GeminiDecoder
from weft.dialects.gemini.encoder import GeminiEncoder, body
from weft.dialects.gemini.errors import read_error, write_error
from weft.dialects.gemini.http import HTTP
from weft.dialects.gemini.mapping import is_status
from weft.dialects.gemini.quirks import GeminiQuirks
from weft.dialects.gemini.request import REQUEST
from weft.dialects.gemini.validator import RULES, GeminiValidator
from weft.findings import Findings
from weft.sse import Frame


class _Index(msgspec.Struct):
    index: int | None = None


class _Failure(msgspec.Struct):
    status: str | None = None


class _Glance(msgspec.Struct, rename="camel"):
    """As much of a frame as tells what it is."""

    candidates: list[_Index] | None = None
    prompt_feedback: Raw | UnsetType = UNSET
    usage_metadata: Raw | UnsetType = UNSET
    error: _Failure | None = None
    response_id: str | None = None

    def speaks(self) -> bool:
        if self.candidates is not None or told(self.prompt_feedback) or told(self.usage_metadata):
            return True
        return self.error is not None and is_status(self.error.status)


def _glances(frame: Frame) -> list[_Glance]:
    """One frame, or those of an array; of an odd one, as much as can be read."""
    frames = wire.array_elements(frame.data)[0] if frame.data[:1] == b"[" else [frame.data]
    salvage = Salvage(Findings(), frozenset())
    return [salvage.item(Raw(data), _Glance) for data in frames]


def _choices(frame: Frame) -> frozenset[int]:
    candidates = [one for glance in _glances(frame) for one in glance.candidates or ()]
    return frozenset(candidate.index or 0 for candidate in candidates)


def _speaks(frame: Frame) -> bool:
    return any(glance.speaks() for glance in _glances(frame))


def _begins(frame: Frame, before: Sequence[Frame]) -> bool:
    """Another response has another id; a frame without one belongs to what came before."""
    id = _id(frame)
    known = next((one for one in map(_id, reversed(before)) if one), None)
    return bool(id and known and id != known)


def _id(frame: Frame) -> str | None:
    return next((glance.response_id for glance in _glances(frame) if glance.response_id), None)


def _is_whole(frame: Frame) -> bool:
    """Frames that come as one array."""
    return frame.data[:1] == b"["


GENERATE_CONTENT = Dialect(
    wire.NAME,
    speaks=_speaks,
    decoder=GeminiDecoder,
    encoder=GeminiEncoder,
    body=body,
    begins=_begins,
    idle=b"\n",  # its clients read every line that is not blank as JSON
    choices=_choices,
    is_whole=_is_whole,
    read_error=read_error,
    write_error=write_error,
    http=HTTP,
    quirks=GeminiQuirks,
    rules=RULES,
    invariants=GeminiValidator,
    request=REQUEST,
)
