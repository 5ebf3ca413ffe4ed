"""The checksum of a stored response: a SHA-256 over everything that does not change after its end.

It is the last field of the record. It does not cover what may change later: which response
continues this one, whether the log was removed because of its age, the metadata that a client
writes, and the server that ran it. The log has a digest of its own, which the checksum covers.
"""

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from weft.store.records import Ending, Entry, with_ending

_LENGTH = len(b',"checksum":""}') + sha256().digest_size * 2


def with_record(entry: Entry, ending: Ending, record: Sequence[bytes]) -> Ending:
    """The ending of the response that began as this entry, with its record and the checksum in it.
    `record` is a JSON object in pieces, which may be large."""
    pieces = [*record[:-1], record[-1][:-1]]
    checksum = _tail(with_ending(entry, ending), pieces)
    return msgspec.structs.replace(ending, record=b"".join((*pieces, checksum)))


def is_unchanged(entry: Entry) -> bool:
    """Whether a response is unchanged since its end."""
    # Slices of a view: a record may have tens of megabytes.
    record = memoryview(entry.record or b"")
    return record[-_LENGTH:] == _tail(entry, [record[:-_LENGTH]])


def _tail(entry: Entry, record: Sequence[bytes | memoryview]) -> bytes:
    """The end of a record, with its checksum. `record` is the part before it, in pieces that may be
    large and are not copied."""
    # Through ascii() of a tuple, whose text is unambiguous: fields that are joined without their
    # lengths could trade bytes unnoticed. Large fields are hashed behind it, as they are, and their
    # sizes stand in the tuple.
    e = entry
    texts = (e.id, e.owner, e.dialect, e.model, e.status, e.previous, e.conversation, e.digest)
    rest: tuple[object, ...] = (
        e.created,
        e.ended,
        e.background,
        e.stream,
        e.visible,
        e.events,
        e.size,
    )
    # Only if there are any: responses that were stored before they were counted have none.
    rest += (e.findings,) if e.findings else ()
    rest += () if e.cost is None else (("cost", e.cost),)
    large = (e.request, e.input, e.body)
    sizes = [None if one is None else len(one) for one in large] + [sum(map(len, record))]
    hash = sha256(ascii((texts, rest, sizes)).encode())
    for one in (*large, *record):
        hash.update(one or b"")
    return b',"checksum":"%b"}' % hash.hexdigest().encode()
