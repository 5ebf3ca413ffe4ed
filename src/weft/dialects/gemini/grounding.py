"""Where the text came from: grounding and citations into sources, and sources back.

Metadata comes with any frame, and a later one replaces an earlier one. So it is held until the
text ends, and each place is told once. The wire counts bytes of UTF-8 within a part of the whole
answer, and which pieces of a stream make one part is not told. So the wire's copy of the cited
text decides where a stretch is; without a copy, the last text is meant.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Raw

from weft.assembler import Buffer
from weft.dialects.base import Salvage
from weft.dialects.gemini import wire
from weft.findings import Findings
from weft.ids import Ids
from weft.parts import Part, Source, SourceKind

Span = tuple[str | None, int | None, int | None]
"""A text part and code points in it."""

_NOWHERE: Span = (None, None, None)
_MOST = 1000
"""Stretches that are looked for in one answer; a hostile one must not make us search for ever."""

_read_chunk = msgspec.json.Decoder(wire.GroundingChunk).decode


class Sources:
    """The sources of one answer, each place once. It needs the text to count in."""

    def __init__(self, ids: Ids, salvage: Salvage, findings: Findings) -> None:
        self._ids = ids
        self._salvage = salvage
        self._findings = findings
        self._texts: dict[str, Buffer] = {}
        self._last = Buffer()
        self._grounding: wire.GroundingMetadata | None = None
        self._citations: wire.CitationMetadata | None = None
        self._told: set[tuple[str, Span]] = set()
        self._bytes: dict[str, bytes] = {}
        self._sought = 0

    def begin(self, text: str) -> None:
        """From now on, this text part is said."""
        self._texts[text] = self._last = Buffer()

    def say(self, piece: str) -> None:
        self._last.add(piece)

    def hold(self, grounding: wire.GroundingMetadata | None, citations: wire.CitationMetadata | None) -> None:
        self._grounding = grounding or self._grounding
        self._citations = citations or self._citations

    @property
    def held(self) -> bool:
        return self._grounding is not None or self._citations is not None

    def release(self) -> list[Part]:
        """Returns the sources that are held and were not told before."""
        out: list[Part] = []
        if self._grounding is not None:
            self._ground(self._grounding, out)
        if self._citations is not None:
            listed = self._citations
            for raw in listed.citation_sources or listed.citations or ():
                self._cite(raw, out)
        self._grounding = self._citations = None
        self._bytes.clear()
        return out

    def _ground(self, grounding: wire.GroundingMetadata, out: list[Part]) -> None:
        chunks = grounding.grounding_chunks or []
        placed: set[int] = set()
        for support in grounding.grounding_supports or ():
            span = self._span(support.segment or wire.Segment())
            for index in support.grounding_chunk_indices or ():
                if 0 <= index < len(chunks):
                    placed.add(index)
                    self._chunk(chunks[index], span, out)
        for index, raw in enumerate(chunks):
            if index not in placed:
                self._chunk(raw, _NOWHERE, out)

    def _chunk(self, raw: Raw, span: Span, out: list[Part]) -> None:
        read = self._salvage.item(raw, wire.GroundingChunk)
        place = read.web or read.maps or read.image or read.retrieved_context or wire.GroundingSource()
        kind: SourceKind = "document" if place is read.retrieved_context else "url"
        self._source(kind, place, raw, span, out)

    def _cite(self, raw: Raw, out: list[Part]) -> None:
        read = self._salvage.item(raw, wire.GeminiCitation)
        span = self._span(wire.Segment(None, read.start_index, read.end_index))
        self._source("url", wire.GroundingSource(read.uri, title=read.title), raw, span, out)

    def _source(
        self, kind: SourceKind, place: wire.GroundingSource, raw: Raw, span: Span, out: list[Part]
    ) -> None:
        url = place.uri or place.source_uri
        mark = (url or bytes(raw).decode("utf-8", "replace"), span)
        if mark in self._told:
            return
        self._told.add(mark)
        text, start, end = span
        out.append(
            Source(
                self._ids.local("source"),
                kind if url else "document",
                text,
                url=url,
                file_id=place.document_name,
                title=place.title,
                start=start,
                end=end,
                raw=raw.copy(),
            )
        )

    # Places

    def _span(self, segment: wire.Segment) -> Span:
        end = segment.end_index
        if end is None or not self._texts or not self._seek():
            return _NOWHERE
        start, cited = segment.start_index or 0, segment.text
        if not cited:
            return self._counted(next(reversed(self._texts)), start, end) or _NOWHERE
        for text in reversed(self._texts):
            span = self._counted(text, start, end)
            if span is not None and self._texts[text].text[span[1] : span[2]] == cited:
                return span
        return self._found(cited)

    def _seek(self) -> bool:
        self._sought += 1
        if self._sought > _MOST:
            detail = f"more than {_MOST} stretches are cited: the rest has no place"
            self._findings.once("field-dropped", "groundingSupports", detail)
        return self._sought <= _MOST

    def _counted(self, text: str, start: int, end: int) -> tuple[str, int, int] | None:
        """Bytes as code points; a cut inside a character leaves that character out."""
        data = self._bytes.get(text)
        if data is None:
            self._bytes[text] = data = self._texts[text].text.encode()
        if not 0 <= start <= end <= len(data):
            return None
        first = len(data[:start].decode("utf-8", "ignore"))
        return text, first, first + len(data[start:end].decode("utf-8", "ignore"))

    def _found(self, cited: str) -> Span:
        """The one place where the cited text stands, if there is only one."""
        for text, buffer in reversed(self._texts.items()):
            if buffer.text.count(cited) == 1:
                start = buffer.text.index(cited)
                return text, start, start + len(cited)
        return _NOWHERE


def grounding_written(
    cited: Iterable[tuple[Source, wire.Segment | None]], leftover: wire.GeminiFinishExtra
) -> wire.GroundingMetadata | None:
    """Returns the metadata for sources and their stretches; None if there are none."""
    numbers: dict[bytes, int] = {}
    supports: list[wire.GroundingSupport] = []
    for source, segment in cited:
        number = numbers.setdefault(_written(source), len(numbers))
        if segment is not None:
            supports.append(wire.GroundingSupport(segment, [number]))
    found = wire.GroundingMetadata(
        [Raw(chunk) for chunk in numbers] or None,
        supports or None,
        leftover.web_search_queries,
        leftover.search_entry_point,
    )
    return None if found == wire.GroundingMetadata() else found


def _written(source: Source) -> bytes:
    """The chunk as it came, if it is one of this wire; else a page, or a document."""
    if isinstance(source.raw, Raw):
        try:
            if _read_chunk(source.raw) != wire.GroundingChunk():
                return bytes(source.raw)
        except ValueError:
            pass
    place = wire.GroundingSource(source.url, title=source.title, document_name=source.file_id)
    if source.kind == "url":
        return msgspec.json.encode(wire.GroundingChunk(web=place))
    return msgspec.json.encode(wire.GroundingChunk(retrieved_context=place))


def segment_written(source: Source, text: str, part: int, base: int) -> wire.Segment | None:
    """The stretch of a source in the text it belongs to, which begins `base` bytes into a part."""
    if source.start is None or source.end is None or not 0 <= source.start < source.end:
        return None
    before, cited = text[: source.start].encode(), text[source.start : source.end]
    start = base + len(before)
    return wire.Segment(part or None, start or None, start + len(cited.encode()), cited)
