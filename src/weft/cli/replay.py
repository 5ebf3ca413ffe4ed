"""`weft replay`: captures as an upstream."""

from pathlib import Path

from weft.cli.captures import UnreadableCapture, chunks
from weft.cli.upstream_server import Reply, UpstreamCall, UpstreamServer, serve
from weft.dialects import dialect_named
from weft.errors import WeftError
from weft.upstream.replay import CaptureReplay, ReplayedCapture, capture_name


def run(captures: tuple[str, ...], source: str | None, port: int, pace: float) -> None:
    replay = CaptureReplay([_read(path, source) for path in captures], pace)

    async def respond(call: UpstreamCall, reply: Reply) -> None:
        found = replay.respond(call.dialect, call.model, stream=call.stream)
        if found is None:
            await reply.error(call.dialect, "bad-request", f"no capture is {call.dialect}")
            return
        await reply.start(found.status, found.content_type)
        for piece in found.pieces:
            await reply.write(piece.data, piece.wait)
        await reply.end()

    serve(UpstreamServer(replay.models, respond), port)


def _read(path: str, source: str | None) -> ReplayedCapture:
    """Raises UnreadableCapture."""
    dialect = None if source is None else dialect_named(source).name
    try:
        return ReplayedCapture(capture_name(Path(path)), b"".join(chunks(path)), dialect)
    except WeftError as problem:
        raise UnreadableCapture(path, problem) from None
