"""Regression cases: a capture, and beside it the parts that it must decode to.

`<name>.sse` is the capture, scrubbed; `<name>.parts.jsonl` has the parts as `weft parts` prints
them. `weft test` compares the two. `<name>.context.json` says what must be known beside the bytes:
quirks of the upstream, the tools of the request. It is there only if it makes a difference.
"""

import io
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path

import msgspec

from weft.captures import decode_all, detect
from weft.context import Context, Quirks
from weft.dialects import DialectName, dialect_named
from weft.errors import Unreadable
from weft.request import Request, Tool
from weft.trace import row_line

GOLDEN = ".parts.jsonl"
CONTEXT = ".context.json"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
"""What a case may be called: a file name on every system."""

# A comment, which every reader skips: the dialect of a short stream may not be detectable.
_DIALECT = re.compile(rb"\A: weft dialect=([a-z-]{1,40})\r?\n")
_BODY = (b"{", b"[")
# The zip format has no time before 1980. Equal cases are equal bytes.
_DATE = (1980, 1, 1, 0, 0, 0)


def quirks_from(values: Mapping[str, object], dialect: DialectName) -> Quirks:
    """The quirks of a dialect from the values of some of its fields. Raises Unreadable."""
    kind = dialect_named(dialect).quirks
    names = [field.name for field in fields(kind)]
    for name in values:
        if name not in names:
            expected = ", ".join(names) or "none"
            raise Unreadable(f"{dialect} has no quirk {name[:50]!r}; expected some of: {expected}")
    try:
        return msgspec.convert(dict(values), kind)
    except msgspec.ValidationError as problem:
        raise Unreadable(f"quirks of {dialect}: {problem}") from None


class CaseContext(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is known beside the bytes of a capture."""

    quirks: dict[str, object] = {}
    """Those of the upstream that are not the defaults of its dialect."""

    tools: tuple[str, ...] = ()
    """The names of the tools that the request declared."""

    choices: int | None = None
    """How many choices were requested; None: nobody knows, so all are read."""

    def context(self, dialect: DialectName) -> Context:
        """Raises Unreadable."""
        quirks = quirks_from(self.quirks, dialect) if self.quirks else None
        if not self.tools and self.choices is None:
            return Context(quirks=quirks)
        tools = tuple(Tool(name) for name in self.tools)
        return Context(Request("", tools=tools, choices=self.choices or 1), quirks)


NOTHING_KNOWN = CaseContext()
_read_context = msgspec.json.Decoder(CaseContext).decode


def case_context(request: Request, quirks: Mapping[str, object] | None) -> CaseContext:
    """What a capture of the response to a request needs."""
    tools = tuple(tool.name for tool in request.tools if tool.name)
    return CaseContext({**quirks} if quirks else {}, tools, request.choices)


def read_context(path: Path) -> CaseContext:
    """What is known beside a capture: the file may not exist. Raises Unreadable."""
    beside = path.with_name(path.stem + CONTEXT)
    try:
        return _read_context(beside.read_bytes()) if beside.exists() else NOTHING_KNOWN
    except msgspec.DecodeError as problem:
        raise Unreadable(f"{beside.name}: {problem}") from None


def capture_with_dialect(raw: bytes, dialect: str) -> bytes:
    """A capture that says its dialect. A JSON body cannot."""
    if raw.lstrip()[:1] in _BODY:
        return raw
    return b": weft dialect=%b\n\n" % dialect.encode() + raw


def stated_dialect(raw: bytes) -> DialectName | None:
    """The dialect that a capture says."""
    found = _DIALECT.match(raw)
    return None if found is None else dialect_named(found[1].decode()).name


def dialect_of_capture(raw: bytes) -> DialectName:
    """The dialect that a capture says, or the one that is detected. Raises Unreadable."""
    return stated_dialect(raw) or detect(raw)


def golden_of(raw: bytes, dialect: DialectName, known: CaseContext = NOTHING_KNOWN) -> bytes:
    """The parts of a capture, one JSON object a line. Raises Unreadable."""
    found = decode_all(raw, dialect, context=known.context(dialect))
    return b"".join(row_line(part) for one in found for part in one.parts)


def case_files(
    name: str, raw: bytes, dialect: DialectName, known: CaseContext = NOTHING_KNOWN
) -> dict[str, bytes]:
    """The files of a case. `raw` is the scrubbed capture."""
    is_body = raw.lstrip()[:1] in _BODY
    capture = capture_with_dialect(raw, dialect)
    golden = golden_of(capture, dialect, known)
    files = {f"{name}.json" if is_body else f"{name}.sse": capture, name + GOLDEN: golden}
    if golden != golden_of(capture, dialect):
        files[name + CONTEXT] = msgspec.json.format(msgspec.json.encode(known)) + b"\n"
    return files


def zipped(files: Iterable[tuple[str, bytes]]) -> bytes:
    """The files as a zip archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files:
            archive.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()
