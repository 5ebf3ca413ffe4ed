"""Converts grounding and citation metadata to sources, and sources back to grounding metadata.

Metadata may come with any frame, and later metadata replaces earlier. So it is held until the text
ends, and each source is emitted once. The API counts in bytes of UTF-8 within a part of the whole
response, but frames do not say which of them make up one part. So a range is located by the API's
copy of the cited text; without a copy, it is taken to be in the last text.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Raw

from weft.assembler import Buffer
from weft.dialects.frames import Salvage
from weft.dialects.gemini import wire
from weft.findings import Findings
from weft.ids import Ids
from weft.parts import Part, Source, SourceKind

TextRange = tuple[str | None, int | None, int | None]
"""The id of a text, and a range of code points in it."""

_NO_RANGE: TextRange = (None, None, None)
_MAX_LOOKUPS = 1000
"""How many ranges are located in one response: bounds the time that a hostile one can cost."""

_decode_chunk = msgspec.json.Decoder(wire.GroundingChunk).decode


class SourceCollector:
    """Collects the sources of one response, and its text, to locate them in."""

    def __init__(self, ids: Ids, salvage: Salvage, findings: Findings) -> None:
        self._ids = ids
        self._salvage = salvage
        self._findings = findings
        self._texts: dict[str, Buffer] = {}
        self._last = Buffer()
        self._grounding: wire.GroundingMetadata | None = None
        self._citations: wire.CitationMetadata | None = None
        self._emitted: set[tuple[str, TextRange]] = set()
        self._bytes: dict[str, bytes] = {}
        self._lookups = 0

    def start_text(self, text: str) -> None:
        self._texts[text] = self._last = Buffer()

    def add_text(self, piece: str) -> None:
        self._last.add(piece)

    def hold(
        self, grounding: wire.GroundingMetadata | None, citations: wire.CitationMetadata | None
    ) -> None:
        # The last frame that has any replaces the earlier ones: they only grow.
        # capture: grounding-that-grows
        self._grounding = grounding or self._grounding
        self._citations = citations or self._citations

    @property
    def held(self) -> bool:
        return self._grounding is not None or self._citations is not None

    def release(self) -> list[Part]:
        """Returns the held sources that were not emitted before."""
        out: list[Part] = []
        # capture: grounding-that-grows, citations-before-the-end
        grounding = self._grounding or wire.GroundingMetadata()
        chunks = grounding.grounding_chunks or []
        # A source that no segment refers to is a source of the whole answer.
        placed: set[int] = set()
        for support in grounding.grounding_supports or ():
            text_range = self._locate(support.segment or wire.Segment())
            for index in support.grounding_chunk_indices or ():
                if 0 <= index < len(chunks):
                    placed.add(index)
                    self._add_chunk(chunks[index], text_range, out)
        for index, raw in enumerate(chunks):
            if index not in placed:
                self._add_chunk(raw, _NO_RANGE, out)
        citations = self._citations or wire.CitationMetadata()
        # capture: citations, citations-before-the-end
        for raw in citations.citation_sources or citations.citations or ():
            citation = self._salvage.item(raw, wire.GeminiCitation)
            text_range = self._locate(wire.Segment(None, citation.start_index, citation.end_index))
            source = wire.GroundingSource(citation.uri, title=citation.title)
            self._add_source("url", source, raw, text_range, out)
        self._grounding = self._citations = None
        # The text goes on, so its bytes are out of date.
        self._bytes.clear()
        return out

    def close(self) -> None:
        """No source follows: the text is not needed any more."""
        self._texts, self._last = {}, Buffer()

    def _add_chunk(self, raw: Raw, text_range: TextRange, out: list[Part]) -> None:
        chunk = self._salvage.item(raw, wire.GroundingChunk)
        # A chunk has one of them.
        source = chunk.web or chunk.maps or chunk.image or chunk.retrieved_context
        kind: SourceKind = "document" if source is chunk.retrieved_context else "url"
        self._add_source(kind, source or wire.GroundingSource(), raw, text_range, out)

    def _add_source(
        self,
        kind: SourceKind,
        source: wire.GroundingSource,
        raw: Raw,
        text_range: TextRange,
        out: list[Part],
    ) -> None:
        url = source.uri or source.source_uri
        # The same page may support several ranges; the same range with the same page is a
        # repetition, as metadata comes anew with each frame.
        key = (url or bytes(raw).decode("utf-8", "replace"), text_range)
        if key in self._emitted:
            return
        self._emitted.add(key)
        text, start, end = text_range
        out.append(
            Source(
                self._ids.local("source"),
                kind if url else "document",
                text,
                url=url,
                file_id=source.document_name,
                title=source.title,
                start=start,
                end=end,
                raw=raw.copy(),
            )
        )

    # Ranges

    def _locate(self, segment: wire.Segment) -> TextRange:
        end = segment.end_index
        if end is None or not self._texts:
            return _NO_RANGE
        self._lookups += 1
        if self._lookups > _MAX_LOOKUPS:
            detail = f"more than {_MAX_LOOKUPS} ranges are cited: the rest is not located"
            self._findings.once("field-dropped", "groundingSupports", detail)
            return _NO_RANGE
        start, cited = segment.start_index or 0, segment.text
        if not cited:
            # Citations have no copy of the text.
            return self._from_bytes(next(reversed(self._texts)), start, end) or _NO_RANGE
        for text in reversed(self._texts):
            # The newest first: metadata mostly comes with the text that it is about. Offsets may be
            # right by chance, so the copy has to match.
            text_range = self._from_bytes(text, start, end)
            if (
                text_range is not None
                and self._texts[text].text[text_range[1] : text_range[2]] == cited
            ):
                return text_range
        for text, buffer in reversed(self._texts.items()):
            if buffer.text.count(cited) == 1:
                # Offsets of another part of the response, or of all its text. The copy alone
                # decides, if it is unambiguous.
                start = buffer.text.index(cited)
                return text, start, start + len(cited)
        return _NO_RANGE

    def _from_bytes(self, text: str, start: int, end: int) -> tuple[str, int, int] | None:
        """Converts a range of bytes; a character that it cuts is left out."""
        data = self._bytes.get(text)
        if data is None:
            self._bytes[text] = data = self._texts[text].text.encode()
        if not 0 <= start <= end <= len(data):
            return None
        # Canonical ranges count code points, as those of OpenAI do.
        first = len(data[:start].decode("utf-8", "ignore"))
        return text, first, first + len(data[start:end].decode("utf-8", "ignore"))


def render_grounding(
    cited: Iterable[tuple[Source, wire.Segment | None]], extra: wire.GeminiFinishExtra
) -> wire.GroundingMetadata | None:
    """Returns the metadata of sources and their segments; None if there are none."""
    numbers: dict[bytes, int] = {}
    supports: list[wire.GroundingSupport] = []
    for source, segment in cited:
        # A dict keeps the order: its keys are the list of chunks, and each page stands there once.
        number = numbers.setdefault(_render_chunk(source), len(numbers))
        if segment is not None:
            supports.append(wire.GroundingSupport(segment, [number]))
    metadata = wire.GroundingMetadata(
        [Raw(chunk) for chunk in numbers] or None,
        supports or None,
        extra.web_search_queries,
        extra.search_entry_point,
    )
    return None if metadata == wire.GroundingMetadata() else metadata


def _render_chunk(source: Source) -> bytes:
    """The chunk that the source came from, if this API made it; else a new one."""
    if isinstance(source.raw, Raw):
        try:
            if _decode_chunk(source.raw) != wire.GroundingChunk():
                return bytes(source.raw)
        except ValueError:
            pass
    new = wire.GroundingSource(source.url, title=source.title, document_name=source.file_id)
    if source.kind == "url":
        return msgspec.json.encode(wire.GroundingChunk(web=new))
    return msgspec.json.encode(wire.GroundingChunk(retrieved_context=new))


def render_segment(source: Source, text: str, part: int, base: int) -> wire.Segment | None:
    """The range of a source in its text, which begins `base` bytes into a part."""
    if source.start is None or source.end is None or not 0 <= source.start < source.end:
        return None
    before, cited = text[: source.start].encode(), text[source.start : source.end]
    start = base + len(before)
    # Zeros are left out on this wire, as protobuf's JSON does with default values.
    return wire.Segment(part or None, start or None, start + len(cited.encode()), cited)
