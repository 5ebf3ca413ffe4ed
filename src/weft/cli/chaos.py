"""`weft chaos`: upstreams that misbehave, by the name of the model."""

import click
import msgspec

from weft.cli.upstream_server import (
    ConnectionReset,
    Reply,
    UpstreamCall,
    UpstreamServer,
    serve,
)
from weft.dialects import DIALECTS
from weft.upstream.base import OutgoingRequest, UpstreamConfig
from weft.upstream.chaos import ERRORS, MISBEHAVIOURS, descriptions
from weft.upstream.demo import DemoUpstream

GOOD = "chat"
"""The built-in model whose response is spoiled."""


def run(port: int) -> None:
    models = [name for name, _ in descriptions()]
    for name, does in descriptions():
        click.echo(f"{name:16} {does}", err=True)
    serve(UpstreamServer(models, respond), port)


async def respond(call: UpstreamCall, reply: Reply) -> None:
    if call.model in ERRORS:
        await reply.error(call.dialect, ERRORS[call.model], f"this is {call.model}")
        return
    chaos = MISBEHAVIOURS.get(call.model)
    if chaos is None:
        await reply.error(call.dialect, "not-found", f"no misbehaviour {call.model[:100]!r}")
        return
    status, content_type, data = await _good_response(call)
    if status != 200 or not call.stream:
        await reply.start(status, content_type)
        await reply.write(data)
        await reply.end()
        return
    # The demo's own bytes, which our encoders wrote: a blank line ends each event.
    events = [one + b"\n\n" for one in data.split(b"\n\n") if one]
    made = chaos.apply(events, DIALECTS[call.dialect])
    await reply.start(200, made.content_type)
    for piece in made.pieces:
        await reply.write(piece, made.wait)
    if made.ending == "stall":
        await reply.stall()
    elif made.ending == "reset":
        raise ConnectionReset
    else:
        await reply.end()


async def _good_response(call: UpstreamCall) -> tuple[int, str, bytes]:
    config = UpstreamConfig("chaos", call.dialect, "demo:fast")
    path = call.path.replace(f"/{call.model}:", f"/{GOOD}:")
    fields = msgspec.json.decode(call.body, type=dict[str, msgspec.Raw])
    if "model" in fields:
        fields["model"] = msgspec.Raw(msgspec.json.encode(GOOD))
    body = msgspec.json.encode(fields)
    response = await DemoUpstream(config).send(OutgoingRequest(path, body))
    data = b""
    while piece := await response.read():
        data += piece
    return response.status, response.headers["content-type"], data
