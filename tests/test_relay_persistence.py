"""A response that is not streamed is stored when it has ended, at once."""

from hashlib import sha256

import pytest

from tests.stores import Stores, each_store, entry, sqlite_store
from weft.assembler import Response, TextItem
from weft.relay.checksum import is_unchanged
from weft.relay.incoming import IncomingRequest, RequestBody, StorePolicy
from weft.relay.log import BATCH, BODY, LARGE, StoredLog
from weft.relay.persistence import Persistence, ResponseWriter
from weft.sse import Event
from weft.store.base import AlreadyExists, Store

REQUEST = b'{"model":"a/m","input":"x"}'
INCOMING = IncomingRequest(
    RequestBody("openai-responses", REQUEST), "a/m", False, store=StorePolicy(REQUEST, b'["x"]')
)
SMALL = b'{"status":"incomplete"}'
LONG = b'{"status":"incomplete","text":"%b"}' % (b"x" * BATCH)


async def writer_on(store: Store) -> tuple[Persistence, ResponseWriter]:
    await store.take_lease(36_000.0)
    persistence = Persistence(store)
    writer = persistence.writer(INCOMING)
    assert writer is not None
    return persistence, writer


async def stored_body(store: Store, body: bytes, text: str) -> int:
    """Stores a body whose record has this text, and compares. Returns how many commits it took."""
    persistence, writer = await writer_on(store)
    record, before = Response("resp_1", items=(TextItem("1", text),)), store.commits
    await writer.add_body("resp_1", body, lambda: record, cost=7)
    commits = store.commits - before
    assert (writer.log.id, writer.running, persistence.logs) == ("resp_1", False, {})
    found = await store.entry("resp_1")
    assert found is not None
    assert (found.status, found.body, found.cost) == ("incomplete", body, 7)
    assert (found.digest, found.events) == (sha256(body).hexdigest(), 1)
    assert is_unchanged(found)
    log = [event async for events in StoredLog(store, "resp_1").read() for event in events]
    assert log == [Event(BODY, body)]
    return commits


@each_store
async def test_a_short_body_is_stored_in_one_transaction(stores: Stores) -> None:
    assert await stored_body(await stores.opened(), SMALL, "x") == 1


@each_store
async def test_a_long_body_has_a_beginning_and_an_end(stores: Stores) -> None:
    assert await stored_body(await stores.opened(), LONG, "x") == 2


@each_store
async def test_a_large_record_is_stored_in_pieces_though_its_body_is_short(stores: Stores) -> None:
    # The beginning, one piece of the body, two of the record, and the end.
    assert await stored_body(await stores.opened(), SMALL, "x" * LARGE) == 5


@sqlite_store
async def test_a_body_whose_id_is_taken_is_stored_under_another(stores: Stores) -> None:
    store = await stores.opened()
    persistence, writer = await writer_on(store)
    await store.begin(entry("resp_1"))
    with pytest.raises(AlreadyExists):
        await writer.add_body("resp_1", SMALL, lambda: Response("resp_1"))
    assert (writer.has_begun, persistence.unfinished) == (False, set())
    await writer.add_body("resp_2", SMALL, lambda: Response("resp_2"))
    assert await store.entry("resp_1") == entry("resp_1")
    assert writer.log.id == "resp_2"
