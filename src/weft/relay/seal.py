"""The seal of a stored response: a hash over everything that stays once the response has ended.

It is the last field of the record. What may change later is not under it: which response went on
from this one, whether the log was removed for its age, the metadata that a client writes, and the
process that ran it. The log has a digest of its own, which is under the seal.
"""

from hashlib import sha256

import msgspec

from weft.store.records import Ending, Entry

_LENGTH = len(b',"seal":""}') + sha256().digest_size * 2


def sealed(entry: Entry, ending: Ending) -> Ending:
    """The ending of a response that was begun as this entry, with the seal in its record."""
    record = memoryview(ending.record or b"{}")[:-1]
    tail = _tail(_ended(entry, ending), record)
    return msgspec.structs.replace(ending, record=b"".join((record, tail)))


def is_sealed(entry: Entry) -> bool:
    """Whether a response that has ended is still the one that was sealed."""
    record = memoryview(entry.record or b"")
    return record[-_LENGTH:] == _tail(entry, record[:-_LENGTH])


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


def _tail(entry: Entry, record: memoryview) -> bytes:
    """The end of a sealed record. `record` is what stands before it: it may be large, and is not
    copied."""
    e = entry
    texts = (e.id, e.owner, e.dialect, e.model, e.status, e.previous, e.conversation, e.digest)
    rest = (e.created, e.ended, e.background, e.stream, e.visible, e.events, e.size)
    large = (e.request, e.input, e.body, record)
    sizes = [None if one is None else len(one) for one in large]
    hash = sha256(ascii((texts, rest, sizes)).encode())
    for one in large:
        hash.update(one or b"")
    return b',"seal":"%b"}' % hash.hexdigest().encode()
