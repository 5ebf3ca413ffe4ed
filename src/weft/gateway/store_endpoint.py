"""What the endpoints of conversations and stored chat completions share."""

from abc import ABC, abstractmethod
from typing import ClassVar

from weft.errors import BadRequest
from weft.gateway import http_response
from weft.gateway.bodies import RequestAborted
from weft.gateway.endpoints import GatewayContext, Receive, Scope, Send
from weft.gateway.sessions import Sessions
from weft.gateway.stored_responses import EXPECTED_ERRORS, send_problem
from weft.store.base import Store

# The limits of OpenAI's API reference ("metadata"): 16 pairs, 64 and 512 characters.
MAX_PAIRS = 16
MAX_NAME = 64
MAX_VALUE = 512
"""Metadata: the number of pairs, and the length of a name and of a value, in characters."""

Metadata = dict[str, str]


class StoreEndpoint(ABC):
    """One path: sends the body that `_handle` returns, or its error."""

    DIALECT: ClassVar[str]

    def __init__(self, gateway: GatewayContext, sessions: Sessions) -> None:
        self._gateway = gateway
        self._sessions = sessions

    @property
    def _store(self) -> Store:
        return self._sessions.store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        id = scope["weft.id"]
        try:
            data = await self._handle(scope, receive)
        # The client is gone: there is nobody to answer.
        except RequestAborted:
            return
        except EXPECTED_ERRORS as problem:
            await send_problem(send, self.DIALECT, id, problem)
        else:
            await http_response.send_json(send, id, data)

    @abstractmethod
    async def _handle(self, scope: Scope, receive: Receive) -> bytes:
        """Raises BadRequest, RequestFailed, StoreError, RequestAborted."""


def validate_metadata(metadata: Metadata | None) -> Metadata:
    """Returns the metadata if it keeps its limits. Raises BadRequest."""
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
