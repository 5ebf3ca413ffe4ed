"""Images and files as base64 data URLs."""

import re
from base64 import b64decode
from typing import NamedTuple

from weft.request import FileContent, ImageContent

# RFC 2397. Parameters of the media type (`;charset=utf-8` from browsers, `;name=…` from upload
# libraries) are dropped: the other dialects have a bare media type. RFC 3986 (3.1): the case of a
# scheme means nothing.
_DATA_URL = re.compile(r"data:([^;,]+)(?:;[^;,]*)*;base64,(.*)", re.DOTALL | re.IGNORECASE)


class DataUrl(NamedTuple):
    """The content of a data URL, still in base64."""

    media_type: str
    data: str


def parse_data_url(url: str) -> DataUrl | None:
    """Returns the content of a base64 data URL; None for any other URL."""
    found = _DATA_URL.fullmatch(url)
    return DataUrl(found[1], found[2]) if found else None


def data_url(media_type: str, data: str) -> str:
    return f"data:{media_type};base64,{data}"


def image_url(image: ImageContent) -> str | None:
    """Returns the URL of an image, a data URL if its bytes are known."""
    if image.data is not None:
        # Without a type it would mean text/plain (RFC 2397, section 2).
        return data_url(image.media_type or "image/png", image.data)
    return image.url


def text_of_file(file: FileContent) -> str | None:
    """Returns the content of a text file; None for any other file."""
    if file.data is None or not (file.media_type or "").startswith("text/"):
        return None
    try:
        return b64decode(file.data, validate=True).decode()
    except ValueError:  # not base64, or not UTF-8: the file goes out as bytes
        return None
