"""Stored chat completions: listed, read, described by metadata, deleted; and what was asked.

There are those that were asked for with `store: true`, once they have ended. Whatever belongs to
another key is not there.
"""

import re
from urllib.parse import parse_qs

import msgspec
from msgspec import UNSET, Raw

from weft.errors import BadRequest
from weft.gateway.endpoints import Receive, Scope, body_of, read_as
from weft.gateway.paths import Metadata, Path, checked, is_descending
from weft.gateway.sessions import COMPLETIONS
from weft.gateway.stored import MOST, PAGE, Query, listed, missing, number_in, page_of
from weft.parts import Json
from weft.relay.offload import for_body
from weft.store.records import Entry

AT_A_TIME = 100
"""Completions that are looked through at once."""

_FILTER = re.compile(r"metadata\[(.+)\]")
_json = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


class _Changed(msgspec.Struct):
    metadata: Metadata | None


class _Described(msgspec.Struct):
    """A request, or the context of what was stored: what its client wrote on it."""

    metadata: Metadata | None = None


class _Asked(msgspec.Struct):
    messages: list[Raw] = []


class _Model(msgspec.Struct):
    model: str | None = None


class _Kind(msgspec.Struct):
    content: Json = UNSET


_changed = msgspec.json.Decoder(_Changed).decode
_described = msgspec.json.Decoder(_Described).decode
_asked = msgspec.json.Decoder(_Asked).decode
_model = msgspec.json.Decoder(_Model).decode
_kind = msgspec.json.Decoder(_Kind).decode


class _Path(Path):
    DIALECT = COMPLETIONS

    async def _found(self, scope: Scope) -> Entry:
        id = scope["path_params"]["id"]
        entry = await self._store.owned(scope["weft.caller"], id)
        if entry is None or not is_there(entry):
            raise missing("Chat completion", id)
        return entry


class Completions(_Path):
    """`/v1/chat/completions`"""

    async def _answer(self, scope: Scope, receive: Receive) -> bytes:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        limit = number_in(query, "limit", PAGE, 1, MOST)
        found: list[Entry] = []
        descending = is_descending(query, "asc")
        owner = scope["weft.caller"]
        last = await self._after(owner, query)
        while len(found) <= limit:
            more = await self._store.list_visible(owner, COMPLETIONS, last, AT_A_TIME, descending)
            found += [one for one in more if is_there(one) and _is_wanted(one, query)]
            if len(more) < AT_A_TIME:
                break
            last = more[-1]

        def page() -> bytes:
            told, ids = [shown(one) for one in found[:limit]], [one.id for one in found[:limit]]
            return listed(told, ids, more=len(found) > limit)

        return await for_body(max((one.body or b"" for one in found), key=len, default=b""), page)

    async def _after(self, owner: str, query: Query) -> Entry | None:
        id = query.get("after", [""])[-1]
        if not id:
            return None
        entry = await self._store.owned(owner, id)
        if entry is None or not is_there(entry):
            raise BadRequest("after", f"no chat completion {id[:100]!r}")
        return entry


class OneCompletion(_Path):
    """`/v1/chat/completions/{id}`"""

    async def _answer(self, scope: Scope, receive: Receive) -> bytes:
        entry = await self._found(scope)
        match scope["method"]:
            case "POST":
                changed = read_as(_changed, await body_of(self._host, scope, receive))
                return await self._described(entry, checked(changed.metadata))
            case "DELETE":
                await self._store.delete(entry.owner, entry.id)
                gone = {"object": "chat.completion.deleted", "id": entry.id, "deleted": True}
                return _json(gone)
            case _:
                return await for_body(entry.body or b"", _written, entry)

    async def _described(self, entry: Entry, metadata: Metadata) -> bytes:
        context = _json({**_fields(entry.context), "metadata": metadata})
        if not await self._store.set_context(entry.owner, entry.id, context):
            raise missing("Chat completion", entry.id)
        changed = msgspec.structs.replace(entry, context=context)
        return await for_body(entry.body or b"", _written, changed)


class CompletionMessages(_Path):
    """`/v1/chat/completions/{id}/messages`: what was asked, message by message."""

    async def _answer(self, scope: Scope, receive: Receive) -> bytes:
        entry = await self._found(scope)
        query = parse_qs(scope["query_string"].decode("latin-1"))
        messages = [
            {"id": Raw(_json(f"{entry.id}-{number}")), **_message(one)}
            for number, one in enumerate(_asked(entry.request).messages)
        ]
        order = "desc" if is_descending(query, "asc") else "asc"
        return page_of(messages, {**query, "order": [order]})


def is_there(entry: Entry) -> bool:
    """Whether its client may retrieve it: one that failed has nothing to show."""
    return entry.dialect == COMPLETIONS and entry.visible and entry.body is not None


def shown(entry: Entry) -> dict[str, Raw]:
    return {**_fields(entry.body or b"{}"), "metadata": Raw(_json(metadata_of(entry)))}


def _written(entry: Entry) -> bytes:
    return _json(shown(entry))


def metadata_of(entry: Entry) -> Metadata:
    """What its client wrote on it: last of all, or when it was asked for."""
    changed = _described(entry.context).metadata
    return changed if changed is not None else _described(entry.request).metadata or {}


def _is_wanted(entry: Entry, query: Query) -> bool:
    model = query.get("model", [entry.model])[-1]
    if model not in (entry.model, _model(entry.body or b"{}").model):
        return False
    wanted = {found[1]: values[-1] for name, values in query.items() if (found := _named(name))}
    metadata = metadata_of(entry) if wanted else {}
    return all(metadata.get(name) == value for name, value in wanted.items())


def _named(name: str) -> re.Match[str] | None:
    return _FILTER.fullmatch(name)


def _message(raw: Raw) -> dict[str, Raw]:
    """A message as it is listed: its content is a text, or stands in its parts."""
    content = _kind(raw).content
    parts = isinstance(content, Raw) and bytes(content).lstrip()[:1] == b"["
    fields = {**_fields(raw), "content_parts": content if parts else _NULL}
    return {"content": _NULL, "refusal": _NULL, **fields, **({"content": _NULL} if parts else {})}


_NULL = Raw(b"null")
