"""What the paths of stored things share: how they are asked and answered, metadata, orders."""

from abc import ABC, abstractmethod
from typing import ClassVar

from weft.errors import BadRequest
from weft.gateway import http_response
from weft.gateway.bodies import RequestAborted
from weft.gateway.endpoints import GatewayContext, Receive, Scope, Send
from weft.gateway.sessions import Sessions
from weft.gateway.stored_responses import EXPECTED_ERRORS, Query, send_problem
from weft.store.base import Store

MAX_PAIRS = 16
MAX_NAME = 64
MAX_VALUE = 512
"""Metadata: how many, and how many characters a name and a value have."""

Metadata = dict[str, str]


class StoreEndpoint(ABC):
    """One path: reads what is asked, and tells what `_answer` has for it."""

    DIALECT: ClassVar[str]

    def __init__(self, host: GatewayContext, sessions: Sessions) -> None:
        self._gateway = host
        self._sessions = sessions

    @property
    def _store(self) -> Store:
        return self._sessions.store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        id = scope["weft.id"]
        try:
            data = await self._handle(scope, receive)
        except RequestAborted:
            return
        except EXPECTED_ERRORS as problem:
            await send_problem(send, self.DIALECT, id, problem)
        else:
            await http_response.send_body(
                send, 200, data, [http_response.JSON_TYPE, *http_response.weft_headers(id)]
            )

    @abstractmethod
    async def _handle(self, scope: Scope, receive: Receive) -> bytes:
        """Raises BadRequest, Failed, StoreError, RequestAborted."""


def validate_metadata(metadata: Metadata | None) -> Metadata:
    """Metadata that is not too much. Raises BadRequest."""
    pairs = metadata or {}
    if len(pairs) > MAX_PAIRS:
        raise BadRequest("metadata", f"{len(pairs)} pairs; expected at most {MAX_PAIRS}")
    for name, value in pairs.items():
        if len(name) > MAX_NAME:
            message = f"a name of {len(name)} characters; expected at most {MAX_NAME}"
            raise BadRequest("metadata", message)
        if len(value) > MAX_VALUE:
            message = f"{len(value)} characters; expected at most {MAX_VALUE}"
            raise BadRequest(f"metadata.{name}", message)
    return pairs


def is_descending(query: Query, usual: str) -> bool:
    """The order that a list is wanted in. Raises BadRequest."""
    order = query.get("order", [usual])[-1]
    if order not in ("asc", "desc"):
        raise BadRequest("order", f"{order[:50]!r}; expected asc or desc")
    return order == "desc"
