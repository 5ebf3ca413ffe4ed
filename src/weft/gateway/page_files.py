"""The files of the page: chat, lists and inspector, as they are in the package.

The list of files is made once, at startup, and no path of a request is ever a path of the disk.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse
from starlette.routing import BaseRoute, Route

PREFIX = "/page/"
INDEX = "index.html"

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "sse": "text/plain; charset=utf-8",
}
"""The files that are served, by suffix. Licences and the like stay in the package."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        # blob: for files that the user or the model attached. No address of another host: what a
        # model writes must not make the browser send anything.
        "img-src 'self' blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # No string becomes HTML or script in this page, not even by mistake.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)

HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file, ready to be sent."""

    data: bytes
    media_type: str
    etag: str

    def response(self, request: HttpRequest) -> HttpResponse:
        headers = {**HEADERS, "ETag": self.etag}
        known = request.headers.get("if-none-match", "")
        # RFC 9110 (13.1.2): the weak comparison, and a proxy that compresses makes tags weak.
        if self.etag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
            return HttpResponse(status_code=304, headers=headers)
        return HttpResponse(self.data, headers=headers, media_type=self.media_type)


class PageFiles:
    """The page of one gateway. `paths` need no key: they are the same for everybody."""

    def __init__(self) -> None:
        self._files = read_files(files("weft.gateway") / "page")
        self.paths = frozenset({"/", *self._files})

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", self._send, methods=["GET"]),
            Route(PREFIX + "{path:path}", self._send, methods=["GET"]),
        ]

    async def _send(self, request: HttpRequest) -> HttpResponse:
        path = request.url.path
        found = self._files.get(PREFIX + INDEX if path == "/" else path)
        if found is None:
            raise HTTPException(404)
        return found.response(request)


def read_files(folder: Traversable) -> Mapping[str, PageFile]:
    """Returns the files below a folder by the path they are served at."""
    return {
        PREFIX + path: PageFile(data, kind, f'"{sha256(data).hexdigest()[:32]}"')
        for path, data in _walk(folder, "")
        if (kind := MEDIA_TYPES.get(path.rpartition(".")[2])) is not None
    }


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry.read_bytes()
