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
from weft.ids import Ids
from weft.parts import Part, Source

Span = tuple[str | None, int | None, int | None]
"""A text part and code points in it."""

_NOWHERE: Span = (None, None, None)
_read_chunk = msgspec.json.Decoder(wire.GroundingChunk).decode


class Sources:
    """The sources of one answer, each place once. It needs the text to count in."""

    def __init__(self, ids: Ids, salvage: Salvage) -> None:
        self._ids = ids
        self._salvage = salvage
        self._texts: dict[str, Buffer] = {}
        self._last = Buffer()
        self._grounding: wire.Grounding | None = None
        self._citations: wire.Citations | None = None
        self._told: set[tuple[str, Span]] = set()

    def begin(self, text: str) -> None:
        """From now on, this text part is said."""
        self._texts[text] = self._last = Buffer()

    def say(self, piece: str) -> None:
        self._last.add(piece)

    def hold(self, grounding: wire.Grounding | None, citations: wire.Citations | None) -> None:
        self._grounding = grounding or self._grounding
        self._citations = citations or self._citations

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
        return out

    def _ground(self, grounding: wire.Grounding, out: list[Part]) -> None:
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
        place = read.web or read.maps or read.image or read.retrieved_context or wire.Place()
        self._source(place.uri or place.source_uri, place, raw, span, out)

    def _cite(self, raw: Raw, out: list[Part]) -> None:
        read = self._salvage.item(raw, wire.Citation)
        span = self._span(wire.Segment(None, read.start_index, read.end_index))
        self._source(read.uri, wire.Place(title=read.title), raw, span, out)

    def _source(
        self, url: str | None, place: wire.Place, raw: Raw, span: Span, out: list[Part]
    ) -> None:
        mark = (url or bytes(raw).decode("utf-8", "replace"), span)
        if mark in self._told:
            return
        self._told.add(mark)
        text, start, end = span
        out.append(
            Source(
                self._ids.local("source"),
                "url" if url else "document",
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
        if segment.end_index is None:
            return _NOWHERE
        start, end = segment.start_index or 0, segment.end_index
        if not segment.text:
            last = next(reversed(self._texts), None)
            return _NOWHERE if last is None else self._counted(last, start, end)
        for text in reversed(self._texts):
            span = self._counted(text, start, end)
            if self._texts[text].text[span[1] : span[2]] == segment.text:
                return span
        return self._found(segment.text)

    def _counted(self, text: str, start: int, end: int) -> Span:
        """Bytes as code points; a cut inside a character belongs to it."""
        data = self._texts[text].text.encode()
        if not 0 <= start <= end <= len(data):
            return _NOWHERE
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
    cited: Iterable[tuple[Source, wire.Segment | None]], leftover: wire.Leftover
) -> wire.Grounding | None:
    """Returns the metadata for sources and their stretches; None if there are none."""
    numbers: dict[bytes, int] = {}
    supports: list[wire.Support] = []
    for source, segment in cited:
        number = numbers.setdefault(_written(source), len(numbers))
        if segment is not None:
            supports.append(wire.Support(segment, [number]))
    found = wire.Grounding(
        [Raw(chunk) for chunk in numbers] or None,
        supports or None,
        leftover.web_search_queries,
        leftover.search_entry_point,
    )
    return None if found == wire.Grounding() else found


def _written(source: Source) -> bytes:
    """The chunk as it came, if it is one of this wire; else a page, or a document."""
    if isinstance(source.raw, Raw):
        try:
            if _read_chunk(source.raw) != wire.GroundingChunk():
                return bytes(source.raw)
        except ValueError:
            pass
    place = wire.Place(source.url, title=source.title, document_name=source.file_id)
    if source.url is not None:
        return msgspec.json.encode(wire.GroundingChunk(web=place))
    return msgspec.json.encode(wire.GroundingChunk(retrieved_context=place))


def segment_written(text: str, source: Source, part: int, base: int) -> wire.Segment | None:
    """The stretch of a source in the text it belongs to, which begins `base` bytes into a part."""
    if source.start is None or source.end is None or not 0 <= source.start < source.end:
        return None
    before, cited = text[: source.start].encode(), text[source.start : source.end]
    start = base + len(before)
    return wire.Segment(part or None, start or None, start + len(cited.encode()), cited)


