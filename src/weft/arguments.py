"""Checks the arguments of the public functions.

A wrong argument raises at once, with a sentence that says which argument it is, what came, what
was expected and, for the common mistakes, what to write instead.
"""

from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from typing import Any

from weft.errors import ArgumentTypeError, ArgumentValueError
from weft.parts import Finish, Part, ResponseMetadata

_BYTES_HINTS: dict[type, str] = {
    str: "encode the text: text.encode()",
    dict: "pass the body as it was received, or json.dumps(body).encode()",
    list: 'join the chunks: b"".join(chunks)',
    tuple: 'join the chunks: b"".join(chunks)',
}
_PART_HINTS: dict[type, str] = {
    dict: "convert it: msgspec.convert(value, weft.AnyPart)",
    bytes: "decode the bytes first: weft.decode(chunks, dialect)",
}


def bytes_argument(value: object, name: str) -> bytes:
    """Returns recorded bytes; bytearray and memoryview are copied."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise _wrong_type(name, "bytes", value, _BYTES_HINTS.get(value.__class__))


def chunk_argument(value: object) -> bytes:
    """Returns one chunk of a stream."""
    if isinstance(value, str):
        hint = "read the response as bytes (for httpx, iter_bytes() instead of iter_text())"
        raise _wrong_type("each chunk", "bytes", value, hint)
    return bytes_argument(value, "each chunk")


def chunks_argument(value: object) -> Iterable[bytes]:
    """Returns the chunks of a stream; bytes are one chunk."""
    if isinstance(value, bytes | bytearray | memoryview):
        return (bytes(value),)
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return value
    hint = _BYTES_HINTS.get(value.__class__)
    if isinstance(value, AsyncIterable):
        hint = "use weft.adecode for an asynchronous iterator"
    raise _wrong_type("chunks", "bytes or an iterable of bytes", value, hint)


def async_chunks_argument(value: object) -> AsyncIterable[bytes]:
    """Returns the chunks of an asynchronous stream."""
    if isinstance(value, AsyncIterable):
        return value
    hint = "use weft.decode for a synchronous one"
    known = isinstance(value, Iterable) and not isinstance(value, str | Mapping)
    raise _wrong_type("chunks", "an asynchronous iterable of bytes", value, hint if known else None)


def parts_argument(parts: object) -> Iterator[Part]:
    """Returns an iterator over the parts, which raises at the first that is none."""
    if isinstance(parts, list | tuple):  # nearly always; tests of abstract classes are slower
        return map(part_argument, parts)
    if isinstance(parts, Part):
        raise _wrong_type("parts", "an iterable of parts", parts, "put it in a list: [part]")
    if isinstance(parts, AsyncIterable):
        hint = "collect the parts first: [part async for part in stream]"
        raise _wrong_type("parts", "an iterable of parts", parts, hint)
    if isinstance(parts, Iterable) and not isinstance(parts, str | bytes | Mapping):
        return map(part_argument, parts)
    raise _wrong_type("parts", "an iterable of parts", parts, _part_hint(parts))


def part_argument(value: object) -> Part:
    if isinstance(value, Part):
        return value
    raise _wrong_type("each part", "a part such as weft.TextDelta", value, _part_hint(value))


def one_response(parts: Iterable[Part]) -> Iterator[Part]:
    """Yields the parts; raises ArgumentValueError where a second response begins."""
    # Only behind a finish: metadata that comes twice within a response is the guard's to repair.
    finished = False
    for number, part in enumerate(parts):
        if finished and isinstance(part, ResponseMetadata):
            raise ArgumentValueError(
                f"parts: a second response begins at part {number} (id {part.id!r}, after a "
                "finish part); pass the parts of one response"
            )
        finished = finished or isinstance(part, Finish)
        yield part


def _part_hint(value: Any) -> str | None:
    if value.__class__ not in _PART_HINTS and hasattr(value, "parts"):
        return "pass its .parts"
    return _PART_HINTS.get(value.__class__)


def _wrong_type(
    name: str, expected: str, value: object, hint: str | None = None
) -> ArgumentTypeError:
    came = "None" if value is None else value.__class__.__name__
    advice = f"; {hint}" if hint else ""
    return ArgumentTypeError(f"{name} must be {expected}, not {came}{advice}")
