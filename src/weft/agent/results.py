"""How much of a result goes into the log and to the model.

A receipt must fit into one event, whatever a tool returned: an effect without a receipt would be
one of which nobody knows whether it has happened.
"""

import msgspec

from weft.agent.events import Contents
from weft.request import FileContent, ImageContent, TextContent
from weft.store.base import EVENT_SIZE

MAX_RESULT = EVENT_SIZE * 3 // 4
"""Bytes of a result as JSON, whatever the limits of the run are: the rest of its event is small."""

MAX_REASON = 4096
"""Characters of a text that says why something was refused, parked or interrupted."""

_json = msgspec.json.Encoder().encode


def cut(contents: Contents, limit: int) -> Contents:
    """A result of at most `limit` bytes as JSON. A notice says what is missing: the first part that
    does not fit, and the number of those after it."""
    found: list[TextContent | ImageContent | FileContent] = []
    room = min(limit, MAX_RESULT)
    for place, one in enumerate(contents):
        size = len(_json(one))
        if size <= room:
            found.append(one)
            room -= size
            continue
        if isinstance(one, TextContent):
            text, whole = one.text, len(one.text.encode())
            # As JSON, some characters take six bytes.
            while text and (size := len(_json(text))) > room:
                text = text[: len(text) * room // size]
            found.append(TextContent(f"{text}\n[cut: {len(text.encode())} of {whole} bytes]"))
        else:
            notice = f"[left out: a {one.media_type or 'file'} of {size} bytes]"
            found.append(TextContent(notice))
        rest = len(contents) - place - 1
        if rest:
            found.append(TextContent(f"[left out: {rest} more parts]"))
        break
    return tuple(found)
