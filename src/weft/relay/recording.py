"""What the upstream of a response sent, with arrival times, on its way to the store.

A recorder collects what was read, as it was read: `UpstreamRecorder.read` is on the path of every
stream and only appends to a list. Once in a while `Recordings` packs what has been collected,
outside the event loop, and stores the recordings of all responses in one transaction: that of an
ended response, or a part of a long one. Until then they are read from memory.

With the bytes, the recording has everything that decided what became of them (`ReplayContext`), so
that the same bytes give the same events again. Secrets of the settings are replaced wherever they
stand; what looks like a key is replaced in events with an error, which is where upstreams quote
keys.
"""

import asyncio
import logging
import time
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Literal

import msgspec

from weft.codec import Translated
from weft.context import Context
from weft.dialects import DIALECTS
from weft.dialects.openai_responses.quirks import ResponsesQuirks
from weft.dialects.requests.codec import Rendered
from weft.ids import Ids
from weft.parts import ErrorPart
from weft.relay.offload import offload
from weft.relay.translation import UpstreamRequest
from weft.request import CallContent, Message, OpaqueContent, Request
from weft.scrub import Scrubber
from weft.store.base import Store, StoreError
from weft.store.records import UpstreamBlock
from weft.trace import time_comment

UpstreamPolicy = Literal["all", "findings", "none"]
"""Of which responses it is stored what their upstreams sent."""

SAVE_INTERVAL = 0.5
"""Seconds between two transactions with recordings."""

LARGE_RECORDING = 256 * 1024
"""Bytes of a running response from which on it is stored in parts."""

MAX_RECORDED = 4 * 1024 * 1024
"""Bytes of one recording in memory: with more, it is given up. Those that wait for a finding have
the same limit."""

MAX_UNSAVED = 64 * 1024 * 1024
"""Bytes of all recordings of ended responses in memory; those beyond are given up."""

MAX_ERROR = 16 * 1024
"""Bytes of an event that is searched for keys: errors are short."""

WINDOW = 8 * 1024
"""Bytes that are searched for keys at a time: other threads wait meanwhile."""

_LEVEL = 1
"""Of zlib: level 6 took three times as long, for one per cent less, on 200 chunks of a chat."""

log = logging.getLogger("weft.gateway")

_monotonic = time.monotonic

OpKind = Literal["read", "turn", "keepalive", "end"]
"""read: bytes of the upstream; turn: the next turn of a paused response follows; keepalive: an
event of our own was sent; end: nothing follows, because of an error, or because the upstream had
nothing more to send."""


class Op(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One step of a recording."""

    kind: OpKind
    t: float
    """Seconds since the request."""

    data: bytes = b""
    """Bytes of the upstream; the error of an end, as JSON."""


class ReplayContext(msgspec.Struct, frozen=True, kw_only=True):
    """Everything but the bytes that decides what becomes of a stream."""

    upstream: str
    dialect: str
    """The upstream's."""

    client: str
    """The client's dialect."""

    request: Request
    quirks: dict[str, object] | None
    origin: str | None
    seed: bytes
    counts: dict[str, int]
    """The state of the ids when the response began."""

    now: int
    response_id: str | None
    created: int | None
    tool_session: bool
    names: dict[str, str]
    bridged: list[str]
    stop: list[str]
    pauses: bool
    """Whether paused turns are continued."""

    renamed: bool
    """Whether it was encoded again, under another id."""

    passthrough: bool
    is_stream: bool

    def contexts(self) -> tuple[Context, Context]:
        """The contexts of the decoder and of the encoder; both mint from the same ids."""
        ids = Ids.restored(self.seed, self.counts)
        kind = DIALECTS[self.dialect].quirks
        quirks = None if self.quirks is None else msgspec.convert(self.quirks, kind)
        session = ResponsesQuirks(tool_session=True) if self.tool_session else None
        decoding = Context(self.request, quirks, ids, self.now, origin=self.origin)
        encoding = Context(
            self.request,
            session,
            renamed_ids(ids) if self.renamed else ids,
            self.now,
            response_id=self.response_id,
            created=self.created,
        )
        return decoding, encoding

    @property
    def translated(self) -> Translated:
        """What the stages of the pipe are made of."""
        rendered = Rendered(b"", self.names, frozenset(self.bridged), tuple(self.stop))
        return Translated(self.request, rendered, ())


def renamed_ids(ids: Ids) -> Ids:
    """The ids of an encoder that replaces another one."""
    return Ids(ids.mint("renamed").encode())


class ByteRecorder:
    """Records what was read, in order, with the time of each read."""

    def __init__(self, began: float) -> None:
        """`began` is when the request came, by the clock of the system."""
        self._start = _monotonic() - max(time.time() - began, 0.0)
        self.ops: list[Op] = []
        """The steps so far; of a response that is stored, those that are not stored yet."""
        self.size = 0
        """Bytes of `ops`."""
        self.given_up = False
        self._partial = b""
        """The beginning of a line whose end has not come."""

    def read(self, data: bytes) -> None:
        """Bytes were read. An event is complete at the end of a line: what follows the last one is
        recorded when the rest of its line has come, so that a secret is in one piece."""
        if self._partial or data[-1:] != b"\n":
            data = self._whole_lines(data)
        # As in `_add`, without the call: this runs for every event of every stored stream.
        if data and not self.given_up:
            self.ops.append(Op("read", _monotonic() - self._start, data))
            self.size += len(data)
            if self.size > MAX_RECORDED:
                self.give_up()

    def _whole_lines(self, data: bytes) -> bytes:
        data = self._partial + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._partial = data[end:]
        if self.given_up or len(self._partial) > MAX_RECORDED:
            self.give_up()
        return data[:end]

    def flush(self) -> None:
        """Nothing more is read: the last line need not end."""
        if self._partial:
            self._add("read", self._partial)
            self._partial = b""

    def _add(self, kind: OpKind, data: bytes = b"") -> None:
        if not self.given_up:
            self.ops.append(Op(kind, _monotonic() - self._start, data))
            self.size += len(data)
            if self.size > MAX_RECORDED:
                self.give_up()

    def give_up(self) -> None:
        """Nothing more is recorded, and nothing of it is stored."""
        self.given_up = True
        self.ops, self.size, self._partial = [], 0, b""


class UpstreamRecorder(ByteRecorder):
    """Records one response, and what decides about it."""

    def __init__(self, sent: UpstreamRequest, began: float, *, pauses: bool) -> None:
        super().__init__(began)
        self._sent = sent
        self._pauses = pauses
        # Before anything is decoded: both codecs mint ids.
        self._ids = sent.decoding.ids.state()
        self.stored = 0
        """How many steps before these are stored."""
        self.blocks = 0
        """How many blocks are stored."""
        self.ended = False
        self._encoding = sent.encoding
        self._renamed = False
        self.passthrough = False
        """Whether frames are forwarded, as long as they can be."""

    def rename(self, encoding: Context) -> None:
        """The response is encoded again, under another id; nothing of it has been sent."""
        self._encoding, self._renamed, self.passthrough = encoding, True, False

    def turn(self) -> None:
        self._add("turn")

    def keepalive(self) -> None:
        self._add("keepalive")

    def end(self, error: ErrorPart | None) -> None:
        """The input ended."""
        self.flush()
        self._add("end", b"" if error is None else msgspec.json.encode(error))

    @property
    def replay(self) -> ReplayContext:
        sent, (seed, counts), encoding = self._sent, self._ids, self._encoding
        rendered, quirks = sent.translated.rendered, sent.decoding.quirks
        return ReplayContext(
            upstream=sent.config.name,
            dialect=sent.config.dialect,
            client=sent.incoming.body.dialect,
            request=_without_messages(sent.request),
            quirks=None if quirks is None else asdict(quirks),
            origin=sent.decoding.origin,
            seed=seed,
            counts=counts,
            now=sent.decoding.now,
            response_id=encoding.response_id,
            created=encoding.created,
            tool_session=encoding.quirks is not None,
            names=dict(rendered.names),
            bridged=sorted(rendered.bridged),
            stop=list(rendered.stop),
            pauses=self._pauses,
            renamed=self._renamed,
            passthrough=self.passthrough,
            is_stream=sent.incoming.stream,
        )


def _without_messages(request: Request) -> Request:
    """The request without its conversation, of which codecs read nothing but approvals."""
    contents = tuple(
        one
        for message in request.messages
        for one in message.content
        if (isinstance(one, OpaqueContent) and one.kind.startswith("mcp_approval"))
        or (isinstance(one, CallContent) and "approval" in f"{one.kind}{one.approval_request_id}")
    )
    messages = (Message("assistant", contents),) if contents else ()
    return msgspec.structs.replace(request, messages=messages)


# Blocks

_pack = msgspec.msgpack.Encoder().encode
_unpack_ops = msgspec.msgpack.Decoder(list[Op]).decode
_read_replay = msgspec.json.Decoder(ReplayContext).decode
_LENGTH = 4
_SUSPECT = b"error"
"""What every event contains that may quote a key."""


def _packed(recorder: UpstreamRecorder, ops: Sequence[Op], scrub: Scrubber) -> UpstreamBlock:
    """Steps as a block. The first block of a recording has its `ReplayContext` in front."""
    data = _pack(_without_secrets(ops, scrub))
    if not recorder.blocks:
        head = msgspec.json.encode(recorder.replay)
        data = len(head).to_bytes(_LENGTH, "big") + head + data
    return UpstreamBlock(recorder.blocks, zlib.compress(data, _LEVEL))


def _without_secrets(ops: Sequence[Op], scrub: Scrubber) -> Sequence[Op]:
    everything = b"".join([op.data for op in ops])
    # Hardly any recording has something to remove: one search is much faster than one for each.
    if scrub.known(everything) is everything and _SUSPECT not in everything:
        return ops
    return [_scrubbed(op, scrub) for op in ops]


def _scrubbed(op: Op, scrub: Scrubber) -> Op:
    data = scrub.known(op.data)
    if _SUSPECT in data:
        lines = data.splitlines(keepends=True)
        data = b"".join(
            scrub_bytes(line, scrub) if _SUSPECT in line and len(line) <= MAX_ERROR else line
            for line in lines
        )
    return op if data is op.data else Op(op.kind, op.t, data)


def scrub_bytes(data: bytes, scrub: Scrubber) -> bytes:
    """The data without keys. It takes about a millisecond for a kilobyte, in which no other thread
    can run."""
    text = data.decode("utf-8", "surrogateescape")
    return scrub(text).encode("utf-8", "surrogateescape")


def scrub_op(op: Op, scrub: Scrubber) -> Op:
    """A step without anything that looks like a key, wherever it stands."""
    pieces = [
        scrub_bytes(piece, scrub)
        for line in op.data.splitlines(keepends=True)
        for piece in _windows(line)
    ]
    return Op(op.kind, op.t, b"".join(pieces))


def _windows(line: bytes) -> Iterator[bytes]:
    """A long line in pieces, cut where no key can be."""
    start = 0
    while len(line) - start > WINDOW:
        piece = line[start : start + WINDOW]
        end = max(piece.rfind(mark) for mark in (b" ", b",", b'"')) + 1 or WINDOW
        yield piece[:end]
        start += end
    yield line[start:]


class RecordedStream:
    """Reads the blocks of a recording, in order."""

    def __init__(self) -> None:
        self.replay: ReplayContext | None = None

    def feed(self, block: UpstreamBlock) -> list[Op]:
        """Raises ValueError if the block is corrupt."""
        try:
            data = zlib.decompress(block.data)
        except zlib.error as problem:
            raise ValueError(str(problem)) from None
        if not block.number:
            end = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
            self.replay, data = _read_replay(data[_LENGTH:end]), data[end:]
        return _unpack_ops(data)


_Taken = tuple[str, UpstreamRecorder, list[Op], bool]
"""What is being stored: the id of a response, its recorder, the steps, and whether it has ended."""


class Recordings:
    """The recordings of one process."""

    def __init__(self, store: Store, policy: UpstreamPolicy, scrub: Scrubber) -> None:
        self.policy = policy
        self._store = store
        self._scrub = scrub
        self._running: dict[str, UpstreamRecorder] = {}
        """All that are not stored to their end, by the id of the response."""
        self._due: dict[str, UpstreamRecorder] = {}
        """Those that have something to store."""
        self._unsaved = 0
        """Bytes of the recordings that have ended since the last save."""
        # Not the threads of `offload`: those make every thread of the process switch more often.
        self._packing = ThreadPoolExecutor(1, "recordings")
        self._timer: asyncio.TimerHandle | None = None
        self._saving: asyncio.Task[None] | None = None

    @property
    def due(self) -> bool:
        """Whether there is something to store."""
        return bool(self._due)

    def get(self, id: str) -> UpstreamRecorder | None:
        """The recording of a response that runs here, or has just ended."""
        return self._running.get(id)

    def without_secrets(self, ops: Sequence[Op]) -> Sequence[Op]:
        """Steps that are in memory, as they will be stored."""
        return _without_secrets(ops, self._scrub)

    def begin(self, id: str, recorder: UpstreamRecorder) -> None:
        """The response is stored under this id."""
        self._running[id] = recorder

    def save_part(self, id: str, *, has_findings: bool) -> None:
        """Stores a part of a long recording, if it is to be stored at all."""
        recorder = self._running.get(id)
        if recorder is not None and (self.policy == "all" or has_findings):
            self._schedule(id, recorder)

    def end(self, id: str, *, has_findings: bool) -> None:
        """The response has ended."""
        recorder = self._running.get(id)
        if recorder is None or recorder.ended:
            return
        recorder.flush()
        recorder.ended = True
        is_wanted = self.policy == "all" or has_findings or recorder.blocks
        if recorder.given_up or not is_wanted or self._unsaved > MAX_UNSAVED:
            self.drop(id)
        else:
            self._unsaved += recorder.size
            self._schedule(id, recorder)

    def drop(self, id: str) -> None:
        """Nothing more of this recording is stored."""
        self._running.pop(id, None)
        self._due.pop(id, None)

    def _schedule(self, id: str, recorder: UpstreamRecorder) -> None:
        self._due[id] = recorder
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SAVE_INTERVAL, self._save_soon)

    def _save_soon(self) -> None:
        self._timer = None
        if self._saving is None or self._saving.done():
            self._saving = asyncio.get_running_loop().create_task(self._save())
        else:  # the store is slow
            self._timer = asyncio.get_running_loop().call_later(SAVE_INTERVAL, self._save_soon)

    async def _save(self) -> None:
        due, self._due, self._unsaved = self._due, {}, 0
        # What is stored must not change while it is packed in another thread.
        taken: list[_Taken] = [
            (id, one, list(one.ops), one.ended) for id, one in due.items() if one.ops
        ]
        if not taken:
            return
        loop = asyncio.get_running_loop()
        blocks = await loop.run_in_executor(self._packing, self._packed, taken)
        try:
            await self._store.save_upstream(blocks)
        except StoreError as problem:
            # A trace is worth less than the response: it goes on, and is traced from its log.
            log.warning("cannot store what %d upstreams sent: %s", len(taken), problem)
            for id, one, _, _ in taken:
                one.give_up()
                self.drop(id)
            return
        for id, one, ops, ended in taken:
            one.stored += len(ops)
            one.blocks += 1
            del one.ops[: len(ops)]
            one.size = sum(len(op.data) for op in one.ops)
            if ended:
                self._running.pop(id, None)

    def _packed(self, taken: Sequence[_Taken]) -> list[tuple[str, UpstreamBlock]]:
        return [(id, _packed(one, ops, self._scrub)) for id, one, ops, _ in taken]

    async def close(self) -> None:
        """Stores what is left."""
        if self._timer is not None:
            self._timer.cancel()
        if self._saving is not None:
            await asyncio.wait({self._saving})
        await self._save()


POLL = 0.1
"""Seconds between two looks at a response that runs."""


class RecordingReader:
    """Reads the recording of a response from the store, and from memory where it runs."""

    def __init__(self, store: Store, recordings: Recordings, id: str) -> None:
        self._store = store
        self._recordings = recordings
        self._id = id
        self._stream = RecordedStream()
        self._recorder: UpstreamRecorder | None = None
        """The recording in memory, once it was found."""
        self._block = -1
        self._read = 0
        """Steps that were read."""
        self._stored = 0
        """Steps in the blocks that were read."""

    async def replay(self) -> ReplayContext | None:
        """How the recording is read; None if there is none. Raises StoreError."""
        recorder = self._recordings.get(self._id)
        if recorder is not None and not recorder.given_up:
            return recorder.replay
        blocks = await self._store.upstream(self._id)
        if not blocks or blocks[0].number:
            return None
        try:
            (stream := RecordedStream()).feed(blocks[0])
        except ValueError:  # or of another version
            return None
        return stream.replay

    async def ops(self) -> AsyncIterator[Sequence[Op]]:
        """Yields the steps until the recording ends. Raises StoreError, ValueError."""
        while True:
            # It stays readable when it was stored, or will not be.
            recorder = self._recorder = self._recordings.get(self._id) or self._recorder
            if recorder is not None and self._read >= recorder.stored:
                some = recorder.ops[self._read - recorder.stored :]
                ended = recorder.ended
                self._read += len(some)
                if some:
                    yield await offload(self._recordings.without_secrets, some)
                elif ended or recorder.given_up:
                    return
                else:
                    await asyncio.sleep(POLL)
                continue
            # Before the blocks: once it has ended, they are all there, or will never be.
            running = await self._store.is_running(self._id)
            blocks = await self._store.upstream(self._id, self._block)
            for block in blocks:
                some = await offload(self._stream.feed, block)
                self._block = block.number
                skipped = self._read - self._stored
                self._stored += len(some)
                if some[skipped:]:
                    self._read += len(some[skipped:])
                    yield some[skipped:]
            if not blocks and not running:
                return
            if not blocks:
                await asyncio.sleep(POLL)


_BLANK_LINES = (b"\n\n", b"\r\n\r\n", b"\r\r")


def capture_of(ops: Iterable[Op]) -> bytes:
    """A recording as a capture, with the times as comments between the events."""
    data = bytearray()
    is_body = False
    for op in ops:
        if op.kind == "read":
            # A body is no stream of events: it can hold no comments.
            is_body = is_body or (not data and op.data.lstrip()[:1] in (b"{", b"["))
            if not is_body and (not data or data.endswith(_BLANK_LINES)):
                data += time_comment(op.t)
            data += op.data
    return bytes(data)
