"""What a request gets that the router has no endpoint for, in the dialect of its path."""

from collections.abc import Mapping

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse

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


async def not_found(request: HttpRequest, problem: Exception) -> HttpResponse:
    path = request.url.path
    dialect = dialect_of(path, headers_of(request.scope))
    # in OpenAI's dialects the code of not-found would say that the model does not exist
    is_openai = dialect in (CHAT_COMPLETIONS, RESPONSES)
    error_class: ErrorClass = "bad-request" if is_openai else "not-found"
    return _error_response(request, 404, new_error(error_class, f"{path[:200]} does not exist"))


async def method_not_allowed(request: HttpRequest, problem: Exception) -> HttpResponse:
    allowed = problem.headers if isinstance(problem, HTTPException) else None
    if SOCKET_KEY.decode() in request.headers:
        disabled = WebSocketDisabled()
        headers = {name.decode(): value.decode() for name, value in disabled.headers}
        return _error_response(request, disabled.status, disabled.error, headers)
    message = f"{request.method} is not allowed on {request.url.path[:200]}"
    error = msgspec.structs.replace(new_error("bad-request", message), status=405)
    return _error_response(request, 405, error, allowed)
