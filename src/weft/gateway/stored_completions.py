"""Endpoints of stored chat completions: list, retrieve, update metadata, delete, list messages.

Those with `store: true` are stored, once they have ended. One of another key is a 404.
"""

import re
from urllib.parse import parse_qs

import msgspec
from msgspec import UNSET, Raw

from weft import large_json
from weft.errors import BadRequest
from weft.gateway.apis import CHAT_COMPLETIONS
from weft.gateway.endpoints import Receive, Scope, decode_body, read_body
from weft.gateway.store_endpoint import Metadata, StoreEndpoint, validate_metadata
from weft.gateway.stored_responses import (
    MAX_PAGE_SIZE,
    PAGE_SIZE,
    Query,
    int_param,
    is_descending,
    list_object,
    not_found,
    page_object,
)
from weft.parts import Json
from weft.relay.offload import for_body
from weft.store.records import Entry

BATCH = 100
"""Completions that are read from the store at a time."""

_FILTER = re.compile(r"metadata\[(.+)\]")
_json = msgspec.json.Encoder().encode


class _NewMetadata(msgspec.Struct):
    metadata: Metadata | None


class _WithMetadata(msgspec.Struct):
    """A request, or the context of a stored completion."""

    metadata: Metadata | None = None


class _StoredRequest(msgspec.Struct):
    messages: list[Raw] = []


class _WithModel(msgspec.Struct):
    model: str | None = None


class _WithContent(msgspec.Struct):
    content: Json = UNSET


_changed = msgspec.json.Decoder(_NewMetadata).decode
_described = large_json.skimmer(_WithMetadata)
_stored_request = large_json.skimmer(_StoredRequest)
_model = large_json.skimmer(_WithModel)
_content_of = large_json.skimmer(_WithContent)


class _CompletionEndpoint(StoreEndpoint):
    DIALECT = CHAT_COMPLETIONS

    async def _find(self, scope: Scope) -> Entry:
        id = scope["path_params"]["id"]
        entry = await self._store.owned(scope["weft.caller"], id)
        if entry is None or not is_retrievable(entry):
            raise not_found("Chat completion", id)
        return entry


class ListCompletions(_CompletionEndpoint):
    """`/v1/chat/completions`"""

    async def _handle(self, scope: Scope, receive: Receive) -> bytes:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        limit = int_param(query, "limit", PAGE_SIZE, 1, MAX_PAGE_SIZE)
        found: list[Entry] = []
        descending = is_descending(query, default=False)
        owner = scope["weft.caller"]
        last: Entry | None = None
        after = query.get("after", [""])[-1]
        if after:
            last = await self._store.owned(owner, after)
            if last is None or not is_retrievable(last):
                raise BadRequest("after", f"no chat completion {after[:100]!r}")
        # One more than fits: it says whether there is another page. Metadata is filtered here, not
        # in SQL: it is part of a JSON text that both databases store as bytes.
        while len(found) <= limit:
            more = await self._store.list_visible(owner, CHAT_COMPLETIONS, last, BATCH, descending)
            found += [one for one in more if is_retrievable(one) and _matches(one, query)]
            if len(more) < BATCH:
                break
            last = more[-1]

        def page() -> bytes:
            listed = found[:limit]
            fields = [completion_fields(one) for one in listed]
            return list_object(fields, [one.id for one in listed], more=len(found) > limit)

        return await for_body(max((one.body or b"" for one in found), key=len, default=b""), page)


class CompletionEndpoint(_CompletionEndpoint):
    """`/v1/chat/completions/{id}`"""

    async def _handle(self, scope: Scope, receive: Receive) -> bytes:
        entry = await self._find(scope)
        match scope["method"]:
            case "POST":
                changed = decode_body(_changed, await read_body(self._gateway, scope, receive))
                metadata = validate_metadata(changed.metadata)
                # The entry's request stays as it was sent (`weft verify` covers it); what changes
                # later is in `context`.
                context = _json({**large_json.members(entry.context), "metadata": metadata})
                if not await self._store.set_context(entry.owner, entry.id, context):
                    raise not_found("Chat completion", entry.id)
                updated = msgspec.structs.replace(entry, context=context)
                return await for_body(entry.body or b"", _completion_body, updated)
            case "DELETE":
                await self._store.delete(entry.owner, entry.id)
                return _json({"object": "chat.completion.deleted", "id": entry.id, "deleted": True})
            case _:
                return await for_body(entry.body or b"", _completion_body, entry)


class CompletionMessages(_CompletionEndpoint):
    """`/v1/chat/completions/{id}/messages`: the messages of the request."""

    async def _handle(self, scope: Scope, receive: Receive) -> bytes:
        entry = await self._find(scope)
        query = parse_qs(scope["query_string"].decode("latin-1"))
        messages = [
            # Messages have no ids on this wire, but pages of them do.
            {"id": Raw(_json(f"{entry.id}-{number}")), **_message(one)}
            for number, one in enumerate(_stored_request(entry.request).messages)
        ]
        return page_object(messages, query, descending=False)


def is_retrievable(entry: Entry) -> bool:
    """Whether a client may retrieve it: one that failed has no body."""
    return entry.dialect == CHAT_COMPLETIONS and entry.visible and entry.body is not None


def completion_fields(entry: Entry) -> dict[str, Raw]:
    return {**large_json.members(entry.body or b"{}"), "metadata": Raw(_json(metadata_of(entry)))}


def _completion_body(entry: Entry) -> bytes:
    return large_json.write(completion_fields(entry))


def metadata_of(entry: Entry) -> Metadata:
    """The metadata of the last update, or of the request."""
    changed = _described(entry.context).metadata
    return changed if changed is not None else _described(entry.request).metadata or {}


def _matches(entry: Entry, query: Query) -> bool:
    model = query.get("model", [entry.model])[-1]
    # As it was requested (perhaps an alias), or as the response names it.
    if model not in (entry.model, _model(entry.body or b"{}").model):
        return False
    wanted = {
        found[1]: values[-1] for name, values in query.items() if (found := _FILTER.fullmatch(name))
    }
    metadata = metadata_of(entry) if wanted else {}
    return all(metadata.get(name) == value for name, value in wanted.items())


def _message(raw: Raw) -> dict[str, Raw]:
    """A message as listed: its content is a text, or in `content_parts`."""
    content = _content_of(raw).content
    parts = isinstance(content, Raw) and large_json.first_byte(content) == b"["
    fields = {**large_json.members(raw), "content_parts": content if parts else _NULL}
    return {"content": _NULL, "refusal": _NULL, **fields, **({"content": _NULL} if parts else {})}


_NULL = Raw(b"null")
