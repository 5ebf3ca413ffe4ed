"""What the paths of stored things share: how they are asked and answered, metadata, orders."""

from abc import ABC, abstractmethod
from typing import ClassVar

from weft.errors import BadRequest
from weft.gateway import answers
from weft.gateway.bodies import ClientGone
from weft.gateway.endpoints import Host, Receive, Scope, Send
from weft.gateway.sessions import Sessions
from weft.gateway.stored import REFUSED, Query, refused
from weft.store.base import Store

PAIRS = 16
NAME = 64
VALUE = 512
"""Metadata: how many, and how many characters a name and a value have."""

Metadata = dict[str, str]


class Path(ABC):
    """One path: reads what is asked, and tells what `_answer` has for it."""

    DIALECT: ClassVar[str]

    def __init__(self, host: Host, sessions: Sessions) -> None:
        self._host = host
        self._sessions = sessions

    @property
    def _store(self) -> Store:
        return self._sessions.store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        id = scope["weft.id"]
        try:
            data = await self._answer(scope, receive)
        except ClientGone:
            return
        except REFUSED as problem:
            await refused(send, self.DIALECT, id, problem)
        else:
            await answers.body(send, 200, data, [answers.JSON, *answers.about(id)])

    @abstractmethod
    async def _answer(self, scope: Scope, receive: Receive) -> bytes:
        """Raises BadRequest, RequestFailed, StoreError, ClientGone."""


def checked(metadata: Metadata | None) -> Metadata:
    """Metadata that is not too much. Raises BadRequest."""
    pairs = metadata or {}
    if len(pairs) > PAIRS:
        raise BadRequest("metadata", f"{len(pairs)} pairs; expected at most {PAIRS}")
    for name, value in pairs.items():
        if len(name) > NAME:
            message = f"a name of {len(name)} characters; expected at most {NAME}"
            raise BadRequest("metadata", message)
        if len(value) > VALUE:
            message = f"{len(value)} characters; expected at most {VALUE}"
            raise BadRequest(f"metadata.{name}", message)
    return pairs


def is_descending(query: Query, usual: str) -> bool:
    """The order that a list is wanted in. Raises BadRequest."""
    order = query.get("order", [usual])[-1]
    if order not in ("asc", "desc"):
        raise BadRequest("order", f"{order[:50]!r}; expected asc or desc")
    return order == "desc"
