"""Lists of what a client has stored: its responses, of every dialect, newest first."""

from typing import get_args
from urllib.parse import parse_qs

import msgspec

from weft.errors import BadRequest
from weft.gateway.apis import RESPONSES
from weft.gateway.auth import SOCKET_KEY, WebSocketDisabled
from weft.gateway.endpoints import Receive, Scope, headers_of
from weft.gateway.store_endpoint import StoreEndpoint
from weft.gateway.stored_responses import MAX_PAGE_SIZE, PAGE_SIZE, Query, int_param
from weft.prices import dollars
from weft.store.base import NotFound
from weft.store.records import ListedResponse, ResponseFilter, Status

STATUSES = get_args(Status)
_json = msgspec.json.Encoder().encode


class ListResponses(StoreEndpoint):
    """`GET /v1/responses`"""

    DIALECT = RESPONSES

    async def _handle(self, scope: Scope, receive: Receive) -> bytes:
        if SOCKET_KEY in headers_of(scope):
            raise WebSocketDisabled
        query = parse_qs(scope["query_string"].decode("latin-1"))
        limit = int_param(query, "limit", PAGE_SIZE, 1, MAX_PAGE_SIZE)
        after = text_param(query, "after")
        try:
            page = await self._store.responses(scope["weft.caller"], _filter(query), after, limit)
        except NotFound:
            raise BadRequest("after", f"no response {str(after)[:100]!r}") from None
        return page_object([response_object(one) for one in page.responses], more=page.more)


def text_param(query: Query, name: str) -> str | None:
    """A text of the query, if it is there."""
    return query.get(name, [None])[-1]


def page_object(objects: list[dict[str, object]], *, more: bool) -> bytes:
    """A page of objects, each with an id."""
    first, last = (objects[0]["id"], objects[-1]["id"]) if objects else (None, None)
    return _json(
        {"object": "list", "data": objects, "first_id": first, "last_id": last, "has_more": more}
    )


def _filter(query: Query) -> ResponseFilter:
    """Raises BadRequest."""
    named = [one for some in query.get("status", []) for one in some.split(",")]
    for one in named:
        if one not in STATUSES:
            raise BadRequest("status", f"{one[:50]!r}; expected some of {', '.join(STATUSES)}")
    findings = text_param(query, "findings")
    if findings not in (None, "any"):
        raise BadRequest("findings", f"{str(findings)[:50]!r}; expected any")
    return ResponseFilter(
        conversation=text_param(query, "conversation"),
        statuses=tuple(one for one in STATUSES if one in named),
        model=text_param(query, "model"),
        with_findings=findings == "any",
    )


def response_object(listed: ListedResponse) -> dict[str, object]:
    """A response in a list: what its own endpoint adds (input, output, usage) is left out."""
    conversation = None if listed.conversation is None else {"id": listed.conversation}
    return {
        "id": listed.id,
        "object": "response",
        "status": listed.status,
        "model": listed.model,
        "dialect": listed.dialect,
        "created_at": int(listed.created),
        "completed_at": None if listed.ended is None else int(listed.ended),
        "seconds": None if listed.ended is None else round(listed.ended - listed.created, 3),
        "background": listed.background,
        "stream": listed.stream,
        "conversation": conversation,
        "previous_response_id": listed.previous,
        "findings": listed.findings,
        "cost": dollars(listed.cost),
    }
