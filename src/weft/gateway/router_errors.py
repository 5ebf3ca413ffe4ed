"""What a request gets that the router has no endpoint for, in the dialect of its path."""

from collections.abc import Mapping

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse
from starlette.routing import Match, Route

from weft.dialects import dialect_of
from weft.dialects.error_classes import ErrorClass, new_error
from weft.gateway import http_response
from weft.gateway.access import note_response
from weft.gateway.apis import CHAT_COMPLETIONS, RESPONSES
from weft.gateway.auth import SOCKET_KEY, WebSocketDisabled
from weft.gateway.endpoints import headers_of
from weft.parts import ErrorPart


def _error_response(
    request: HttpRequest, status: int, error: ErrorPart, more: Mapping[str, str] | None = None
) -> HttpResponse:
    dialect = dialect_of(request.url.path, headers_of(request.scope))
    about = http_response.weft_headers(request.scope["weft.id"])
    headers = {name.decode(): value.decode() for name, value in about} | dict(more or {})
    body = http_response.render_error(dialect, error)[1]
    note_response(status, error)
    return HttpResponse(body, status, headers, media_type="application/json")


_SLIPS = (("/", "/v1/"), ("/v1/v1/", "/v1/"), ("/v1/v1beta/", "/v1beta/"))
"""How paths begin if the base URL of a client has no /v1, or one too many, and how they should."""


def _methods(request: HttpRequest, path: str) -> set[str]:
    """The methods of all endpoints at a path."""
    scope = {**request.scope, "path": path}
    routes = [one for one in request.app.routes if isinstance(one, Route)]
    return {
        method
        for route in routes
        if route.matches(scope)[0] is not Match.NONE
        for method in route.methods or ()
    }


def _meant(request: HttpRequest, path: str) -> str | None:
    """The path that was probably meant, if there is an endpoint at it."""
    for wrong, right in _SLIPS:
        meant = right + path.removeprefix(wrong)
        if path.startswith(wrong) and request.method in _methods(request, meant):
            return meant
    return None


async def not_found(request: HttpRequest, problem: Exception) -> HttpResponse:
    path = request.url.path
    dialect = dialect_of(path, headers_of(request.scope))
    # in OpenAI's dialects the code of not-found would say that the model does not exist
    is_openai = dialect in (CHAT_COMPLETIONS, RESPONSES)
    error_class: ErrorClass = "bad-request" if is_openai else "not-found"
    message, meant = f"{path[:200]} does not exist", _meant(request, path)
    if meant is not None:
        message += f"; did you mean {meant[:200]}? Check the base URL of your client"
    return _error_response(request, 404, new_error(error_class, message))


async def method_not_allowed(request: HttpRequest, problem: Exception) -> HttpResponse:
    if SOCKET_KEY.decode() in request.headers:
        disabled = WebSocketDisabled()
        headers = {name.decode(): value.decode() for name, value in disabled.headers}
        return _error_response(request, disabled.status, disabled.error, headers)
    message = f"{request.method} is not allowed on {request.url.path[:200]}"
    error = msgspec.structs.replace(new_error("bad-request", message), status=405)
    # Starlette names the methods of the first endpoint only.
    allowed = ", ".join(sorted(_methods(request, request.url.path)))
    return _error_response(request, 405, error, {"allow": allowed})
