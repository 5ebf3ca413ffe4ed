"""The checksum of a stored response: a SHA-256 over everything that stays once it has ended.

It is the last field of the record. What may change later is not under it: which response went on
from this one, whether the log was removed for its age, the metadata that a client writes, and the
process that ran it. The log has a digest of its own, which is under the checksum.
"""

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from weft.store.records import Ending, Entry

_LENGTH = len(b',"checksum":""}') + sha256().digest_size * 2


def with_record(entry: Entry, ending: Ending, record: Sequence[bytes]) -> Ending:
    """The ending of a response that was begun as this entry, with its record, a JSON object in
    pieces that may be large, and the checksum in it."""
    pieces = [*record[:-1], record[-1][:-1]]
    tail = _tail(_ended(entry, ending), pieces)
    return msgspec.structs.replace(ending, record=b"".join((*pieces, tail)))


def is_unchanged(entry: Entry) -> bool:
    """Whether a response that has ended is still what it was then."""
    record = memoryview(entry.record or b"")
    return record[-_LENGTH:] == _tail(entry, [record[:-_LENGTH]])


def _ended(entry: Entry, ending: Ending) -> Entry:
    return msgspec.structs.replace(
        entry,
        status=ending.status,
        ended=ending.ended,
        body=ending.body,
        digest=ending.digest,
        events=ending.events,
        size=ending.size,
    )


def _tail(entry: Entry, record: Sequence[bytes | memoryview]) -> bytes:
    """The end of a record, with its checksum. `record` is what stands before it, in pieces: it may
    be large, and is not copied."""
    e = entry
    texts = (e.id, e.owner, e.dialect, e.model, e.status, e.previous, e.conversation, e.digest)
    rest = (e.created, e.ended, e.background, e.stream, e.visible, e.events, e.size)
    large = (e.request, e.input, e.body)
    sizes = [None if one is None else len(one) for one in large] + [sum(map(len, record))]
    hash = sha256(ascii((texts, rest, sizes)).encode())
    for one in (*large, *record):
        hash.update(one or b"")
    return b',"checksum":"%b"}' % hash.hexdigest().encode()
