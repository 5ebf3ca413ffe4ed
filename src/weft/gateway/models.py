"""`GET /v1/models`: what can be asked, in the shape that the client's headers ask for."""

import msgspec

from weft.dialects import dialect_of, http_of
from weft.dialects.base import ModelListing
from weft.dialects.error_classes import new_error
from weft.errors import InternalError
from weft.gateway import answers
from weft.gateway.endpoints import Receive, Scope, Send, headers_of
from weft.relay.incoming import RequestFailed
from weft.relay.routing import Routing, UnknownModel


class Models:
    """Lists the models, or tells of one."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect = dialect_of(scope["path"], headers_of(scope))
        about = answers.about(scope["weft.id"])
        name = scope["path_params"].get("id")
        try:
            found = self._list(dialect) if name is None else self._one(dialect, name)
        except UnknownModel as problem:
            failed = RequestFailed(new_error("not-found", str(problem)))
            await answers.failure(send, dialect, failed, about)
            return
        await answers.body(send, 200, msgspec.json.encode(found), [answers.JSON, *about])

    def _one(self, dialect: str, name: str) -> object:
        self._routing.targets(name)
        return _listing(dialect).one(name)

    def _list(self, dialect: str) -> object:
        listing, names = _listing(dialect), self._routing.models
        return listing.all([listing.one(name) for name in names], names)


def _listing(dialect: str) -> ModelListing:
    found = http_of(dialect).models
    if found is None:
        raise InternalError(f"{dialect} lists no models")
    return found
