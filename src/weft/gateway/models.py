"""`GET /v1/models`: the models, in the dialect that the headers of the client name."""

import msgspec

from weft.dialects import dialect_of, http_of
from weft.dialects.error_classes import new_error
from weft.errors import InternalError
from weft.gateway import http_response
from weft.gateway.endpoints import Receive, Scope, Send, headers_of
from weft.relay.incoming import RequestFailed
from weft.relay.routing import Routing, UnknownModel


class ModelsEndpoint:
    """Lists the models, or returns one."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dialect = dialect_of(scope["path"], headers_of(scope))
        name = scope["path_params"].get("id")
        listing = http_of(dialect).models
        if listing is None:
            raise InternalError(f"{dialect} has no list of models")
        try:
            if name is not None:
                # Raises UnknownModel; a name is known if it could be requested, whether it is
                # listed or not.
                self._routing.targets(name)
                found = listing.one(name)
            else:
                names = self._routing.models
                found = listing.all([listing.one(one) for one in names], names)
        except UnknownModel as problem:
            failed = RequestFailed(new_error("not-found", str(problem)))
            await http_response.send_error(
                send, dialect, failed, http_response.weft_headers(scope["weft.id"])
            )
            return
        await http_response.send_json(send, scope["weft.id"], msgspec.json.encode(found))
