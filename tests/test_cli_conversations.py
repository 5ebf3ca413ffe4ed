"""`weft export` and `weft import`: conversations leave one store and come back in another."""

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stores import KINDS, Kind, empty
from tests.strategies import FEW, JSON
from tests.weft_command import run
from weft.store.base import Store
from weft.store.records import Conversation, Item
from weft.store.urls import store_from_url


def settings(folder: Path, url: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "weft.toml").write_text(f'[store]\nurl = "{url}"\n')


async def filled(url: str, conversations: dict[Conversation, list[Item]]) -> None:
    store = store_from_url(url)
    await store.open()
    for one, items in conversations.items():
        await store.create_conversation(one, items)
    await store.close()


async def read(url: str) -> dict[Conversation, list[Item]]:
    store: Store = store_from_url(url)
    await store.open()
    found = {
        one: (await store.items(one.id, limit=10_000)).items
        for one in await store.every_conversation()
    }
    await store.close()
    return found


MADE = {
    Conversation("conv_1", "alice", 1.5, b'{"title":"\\u00dcber"}'): [
        Item(f"msg_{number}", json.dumps({"n": number}, indent=1).encode())
        for number in range(1100)
    ],
    Conversation("conv_2", "bob", 2.0): [],
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_leaves_one_store_is_what_comes_into_another(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    here, there = empty(kind, tmp_path / "a"), empty(kind, tmp_path / "b")
    asyncio.run(filled(here, MADE))
    asyncio.run(filled(there, {}))
    settings(tmp_path / "a", here)
    settings(tmp_path / "b", there)
    printed = run("export", folder=tmp_path / "a")
    assert (printed.code, printed.err, len(printed.lines)) == (0, "", 2)
    stored = run("import", "-", given=printed.out.encode(), folder=tmp_path / "b")
    assert (stored.code, stored.out, stored.err) == (0, "", "")
    assert run("export", folder=tmp_path / "b").out == printed.out
    found = asyncio.run(read(there))
    assert {one.id: len(items) for one, items in found.items()} == {"conv_1": 1100, "conv_2": 0}
    # Once more: each exists.
    again = run("import", "-", given=printed.out.encode(), folder=tmp_path / "b")
    assert again.code == 1
    assert [line.split(": ")[1] for line in again.err.splitlines()] == ["conv_1", "conv_2"]
    assert run("export", folder=tmp_path / "b").out == printed.out


def test_a_key_chooses_and_gets_conversations(tmp_path: Path) -> None:
    here, there = (f"sqlite:///{tmp_path}/{name}.db" for name in ("here", "there"))
    asyncio.run(filled(here, MADE))
    asyncio.run(filled(there, {}))
    settings(tmp_path, here)
    printed = run("export", "--key", "bob", folder=tmp_path)
    assert [json.loads(line)["id"] for line in printed.lines] == ["conv_2"]
    (tmp_path / "out.jsonl").write_text(printed.out)
    settings(tmp_path, there)
    assert run("import", "out.jsonl", "--key", "carol", folder=tmp_path).code == 0
    assert [one.owner for one in asyncio.run(read(there))] == ["carol"]


@pytest.mark.parametrize("line", ["x", "{}", '{"id":1}', "[]", '{"id":"a","owner":"","created":1,'])
def test_a_line_that_is_no_conversation_is_named(tmp_path: Path, line: str) -> None:
    url = f"sqlite:///{tmp_path}/weft.db"
    asyncio.run(filled(url, {}))
    settings(tmp_path, url)
    done = run("import", "-", given=f"\n{line}\n".encode(), folder=tmp_path)
    assert done.code == 1
    assert "-, line 1: no conversation" in done.err


def test_a_store_or_file_that_is_not_there_is_exit_2(tmp_path: Path) -> None:
    settings(tmp_path, f"sqlite:///{tmp_path}/weft.db")
    assert run("export", folder=tmp_path).code == 2
    asyncio.run(filled(f"sqlite:///{tmp_path}/weft.db", {}))
    assert run("import", "nothing.jsonl", folder=tmp_path).code == 2


@FEW
@given(items=st.lists(JSON, max_size=4), title=st.text(max_size=5))
def test_whatever_an_item_holds_comes_back(
    tmp_path_factory: pytest.TempPathFactory, items: list[object], title: str
) -> None:
    folder = tmp_path_factory.mktemp("conversations")
    here, there = (f"sqlite:///{folder}/{name}.db" for name in ("here", "there"))
    metadata = json.dumps({"title": title}).encode()
    made = {
        Conversation("conv_1", "", 1.0, metadata): [
            Item(f"i{number}", json.dumps(one).encode()) for number, one in enumerate(items)
        ]
    }
    asyncio.run(filled(here, made))
    asyncio.run(filled(there, {}))
    settings(folder, here)
    printed = run("export", folder=folder).out
    settings(folder, there)
    assert run("import", "-", given=printed.encode(), folder=folder).code == 0
    assert asyncio.run(read(there)) == made
