"""What is kept of responses: how they begin, what was told of them, how they ended.

One way in: the relay's blocks go through `Keeping` on their way to the client. The beginning is
stored before the client sees it, the ending before the client sees that; what lies between
follows within moments. So whatever a client was told has ended can be read, and equals it.
"""

import os
import re
import socket
import time
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256

import msgspec
from msgspec import UNSET, Raw

from weft.assembler import Response
from weft.codec import fresh_context
from weft.context import Context
from weft.dialects import DIALECTS
from weft.errors import InternalError
from weft.findings import Findings
from weft.parts import Json
from weft.relay.asked import Asked, Kept
from weft.relay.history import given, prefix, shape
from weft.relay.log import Log
from weft.sse import Frame, FrameReader
from weft.store.base import Store
from weft.store.records import Ending, Entry, Item, Status

_ID = re.compile(rb'"id":\s*"([^"\\]{1,500})"')
_LONGEST = 500
"""Characters of an id that an answer can be stored under."""

_SNAPSHOT = b'"response":'
_json = msgspec.json.Encoder().encode


class _Event(msgspec.Struct):
    response: Json = UNSET


class _Snapshot(msgspec.Struct):
    status: Status = "completed"
    output: list[Raw] = []


class _Named(msgspec.Struct):
    id: str | None = None


class _First(_Named, rename={"response_id": "responseId"}):
    """As much of an answer, or of its first event, as says its id: each wire in its place."""

    message: _Named | None = None
    response: _Named | None = None
    response_id: str | None = None


_first = msgspec.json.Decoder(_First).decode
_event = msgspec.json.Decoder(_Event).decode
_snapshot = msgspec.json.Decoder(_Snapshot).decode


class Keeper:
    """Everything that one process keeps."""

    def __init__(self, store: Store, *, required: bool = True) -> None:
        self.store = store
        self.required = required
        """Whether an answer that cannot be stored is an error to its client."""
        self.host = socket.gethostname()
        self.server = f"{self.host}:{os.getpid()}:{time.monotonic_ns()}"
        self.logs: dict[str, Log] = {}
        """Of what runs here."""

    def keeping(self, asked: Asked) -> "Keeping | None":
        return None if asked.kept is None else Keeping(self, asked, asked.kept)


class Keeping:
    """One response on its way into the store. `begin`, `append`, at last `finish`; or `whole`."""

    def __init__(self, keeper: Keeper, asked: Asked, kept: Kept) -> None:
        self._keeper = keeper
        self._asked = asked
        self._kept = kept
        self._log: Log | None = None
        self.required = keeper.required

    @property
    def log(self) -> Log:
        if self._log is None:
            raise InternalError("the response has not begun")
        return self._log

    @property
    def running(self) -> bool:
        """Whether it has begun, and not ended."""
        return self._log is not None and not self._log.ended

    @property
    def begun(self) -> bool:
        return self._log is not None

    async def begin(self, first: bytes) -> None:
        """Stores that there is such a response; `first` are the first events of it."""
        await self.announce(name_of(first), "in_progress", told(first))

    async def announce(self, id: str, status: Status, body: bytes | None) -> None:
        """Stores that there is a response under this id, whatever becomes of it."""
        await self._keeper.store.begin(self._entry(id, status, body))
        self._log = self._keeper.logs[id] = Log(self._keeper.store, id)

    def _entry(self, id: str, status: Status, body: bytes | None) -> Entry:
        asked, kept = self._asked, self._kept
        return Entry(
            id=id,
            owner=asked.caller,
            dialect=asked.dialect,
            model=asked.model,
            status=status,
            created=time.time(),
            previous=asked.previous,
            conversation=asked.conversation,
            background=asked.background,
            stream=asked.stream,
            visible=kept.visible,
            server=self._keeper.server,
            request=kept.request,
            input=kept.input,
            body=body,
        )

    def append(self, block: bytes) -> None:
        """These events are told. Raises StoreError."""
        self.log.append(block)

    def took(self, block: bytes, *, last: bool) -> bool:
        """Whether a block needs no more than to be appended, and was."""
        log = self._log
        if last or log is None or log.fault is not None:
            return False
        log.append(block)
        return True

    async def finish(self, last: bytes, response: Response, context: Context) -> None:
        """Stores the last events, and with them the end. Raises StoreError."""
        log = self.log
        named = replace(context, response_id=log.id)
        body = told(last) or _body(self._asked.dialect, response, named)
        status = status_of(response)
        if body is not None and self._asked.dialect == "openai-responses":
            status = "cancelled" if status == "cancelled" else _snapshot(body).status
            body = with_status(body, status)
        if last:
            log.append(last)
        log.flush()
        await self._keeper.store.finish(log.id, self._ending(log, status, body, response))
        self._end(log)

    async def whole(self, body: bytes, response: Response) -> None:
        """Stores an answer that is told in one piece. Raises StoreError."""
        if self._log is None:
            await self.announce(name_of(body), "in_progress", None)
        log = self.log
        log.whole(body)
        log.flush()
        status = status_of(response)
        if self._asked.dialect == "openai-responses":
            status = _snapshot(body).status
        await self._keeper.store.finish(log.id, self._ending(log, status, body, response))
        self._end(log)

    def _ending(self, log: Log, status: Status, body: bytes | None, response: Response) -> Ending:
        items: tuple[Item, ...] = ()
        if self._asked.conversation is not None and self._kept.visible:
            came, ids = given(Raw(self._kept.input)), fresh_context().ids
            items = tuple(Item(ids.mint(prefix(shape(one))), bytes(one)) for one in came)
            items += tuple(items_of(body)) if body is not None else ()
        return Ending(
            status=status,
            ended=time.time(),
            body=body,
            record=_json(response),
            digest=log.digest,
            events=log.events,
            size=log.size,
            items=items,
        )

    def _end(self, log: Log) -> None:
        log.end()
        self._keeper.logs.pop(log.id, None)

    def give_up(self) -> None:
        """Nothing more is kept: the store does not take it."""
        if self._log is not None:
            self._end(self._log)


def ending(entry: Entry, log: bytes, response: Response) -> Ending:
    """How a response ended that is no longer told, but stored as this log."""
    body = told(log)
    status = status_of(response)
    if body is not None and entry.dialect == "openai-responses":
        status = _snapshot(body).status
    return Ending(
        status=status,
        ended=time.time(),
        body=body or entry.body,
        record=_json(response),
        digest=sha256(log).hexdigest(),
        events=log.count(b"\n\n"),
        size=len(log),
    )


def name_of(told: bytes) -> str:
    """The id that an answer, or its first events, tell; one of our own if there is none that can
    be used."""
    for frame in FrameReader().feed(told) or [Frame(told)]:
        with suppress(ValueError, RecursionError):
            found = _first(frame.data)
            inner = [one.id for one in (found.response, found.message) if one is not None]
            id = next(filter(None, (*inner, found.id, found.response_id)), "")
            if 0 < len(id) <= _LONGEST:
                return id
    return fresh_context().ids.mint("resp")


def items_of(body: bytes) -> list[Item]:
    """The output of a response object, item by item."""
    found = [(one, _ID.search(one)) for one in map(bytes, _snapshot(body).output)]
    return [Item(id[1].decode(), one) for one, id in found if id is not None]


def told(block: bytes) -> bytes | None:
    """The response object that the last snapshot of a block of events tells, if there is one."""
    if _SNAPSHOT not in block:
        return None
    for frame in reversed(FrameReader().feed(block)):
        found = _event(frame.data).response if _SNAPSHOT in frame.data else UNSET
        if isinstance(found, Raw):
            return bytes(found)
    return None


def with_status(body: bytes, status: Status) -> bytes:
    if _snapshot(body).status == status:
        return body
    return _json({**msgspec.json.decode(body, type=dict[str, Raw]), "status": status})


def _body(dialect: str, response: Response, context: Context) -> bytes | None:
    writer = DIALECTS[dialect].body
    if writer is None or response.error is not None:
        return None
    return writer(response, context, Findings())


_STATUS: dict[str, Status] = {"length": "incomplete", "content-filter": "incomplete"}


def status_of(response: Response) -> Status:
    """How a response ended, where its wire has no word for it."""
    if response.error is not None:
        return "cancelled" if response.error.kind == "cancelled" else "failed"
    return _STATUS.get(response.finish_reason or "", "completed")
