"""`weft export` and `weft import`: conversations as JSON lines."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
from msgspec import Raw

from weft.cli.captures import chunks, write
from weft.cli.open_store import settings_of, with_store
from weft.errors import ClientError
from weft.store.base import AlreadyExists, Store
from weft.store.records import Conversation, Item

INCOMPLETE = 1
"""The exit code for an import that did not store everything."""

ITEMS_AT_A_TIME = 1000


class ExportedItem(msgspec.Struct):
    """An item under the id that it has in its conversation."""

    id: str
    item: Raw


class ExportedConversation(msgspec.Struct):
    """A line of an export."""

    id: str
    owner: str
    created: float
    metadata: Raw
    items: list[ExportedItem]


_decode = msgspec.json.Decoder(ExportedConversation).decode
_json = msgspec.json.Encoder().encode


def export(owner: str | None, config: Path | None) -> None:
    """Prints the conversations, by their ids."""

    async def work(store: Store) -> None:
        last = ""
        while found := await store.every_conversation(last):
            for one in found:
                if owner is None or one.owner == owner:
                    write((await _line(store, one),))
            last = found[-1].id

    with_store(settings_of(config).store.url, work)


async def _line(store: Store, conversation: Conversation) -> bytes:
    items: list[ExportedItem] = []
    more = True
    while more:
        after = items[-1].id if items else None
        page = await store.items(conversation.id, after, None, ITEMS_AT_A_TIME)
        items += [ExportedItem(one.id, Raw(one.data)) for one in page.items]
        more = page.more
    c = conversation
    exported = ExportedConversation(c.id, c.owner, c.created, Raw(c.metadata), items)
    data = _json(exported)
    # Items are stored as they were sent, perhaps with line breaks.
    return (msgspec.json.format(data, indent=-1) if b"\n" in data else data) + b"\n"


def import_(file: str, owner: str | None, config: Path | None) -> None:
    """Stores the conversations of a file."""
    skipped = 0

    async def work(store: Store) -> None:
        nonlocal skipped
        for number, line in enumerate(_lines(file), 1):
            place = f"{file}, line {number}"
            if not await _store_line(store, line, place, owner):
                skipped += 1

    with_store(settings_of(config).store.url, work)
    sys.exit(INCOMPLETE if skipped else 0)


async def _store_line(store: Store, line: bytes, place: str, owner: str | None) -> bool:
    """Stores a conversation; returns False if it exists already."""
    try:
        read = _decode(line)
        msgspec.json.decode(read.metadata, type=dict[str, str])
    except (ValueError, RecursionError) as problem:
        # click exits with 1.
        raise click.ClickException(f"{place}: no conversation: {problem}") from None
    made = Conversation(
        read.id,
        read.owner if owner is None else owner,
        read.created,
        bytes(read.metadata),
    )
    try:
        items = [Item(one.id, bytes(one.item)) for one in read.items]
        await store.create_conversation(made, items)
    except AlreadyExists as problem:
        click.echo(f"{place}: {read.id}: {problem}", err=True)
        return False
    except ClientError as problem:
        raise click.ClickException(f"{place}: {problem}") from None
    return True


def _lines(file: str) -> Iterator[bytes]:
    """The lines of a file or of standard input, without blank ones."""
    rest = b""
    for chunk in chunks(file):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line for line in lines if line.strip())
    if rest.strip():
        yield rest
