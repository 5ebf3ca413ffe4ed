"""`weft ask`: one question to a model, from the terminal."""

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import click
import msgspec

from weft.assembled import assembled
from weft.assembler import Response
from weft.cli.captures import json_line, write
from weft.codec import Decoder
from weft.dialects.openai_errors import read_error
from weft.gateway.apis import CHAT_COMPLETIONS
from weft.gateway.app import Gateway
from weft.gateway.settings import Settings, SettingsError, load
from weft.gateway.settings.environment import CLIENT_KEY
from weft.parts import TextDelta
from weft.relay.incoming import IncomingRequest, RequestBody, RequestFailed
from weft.scrub import Secret
from weft.sse import write_events
from weft.upstream.base import OutgoingRequest, Unreachable, UpstreamConfig
from weft.upstream.http import HttpUpstream
from weft.upstream.urls import parse_base_url

FAILED = 1
"""The exit code for a model that gave no answer, or not all of it."""


def run(
    model: str, prompt: str | None, config: Path | None, url: str | None, as_json: bool
) -> None:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": _prompt(prompt)}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    raw = msgspec.json.encode(body)
    chunks = _from_upstreams(config, model, raw) if url is None else _from_gateway(url, raw)
    try:
        response = asyncio.run(_print(chunks, as_json))
    except (RequestFailed, Unreachable) as problem:
        raise click.ClickException(str(problem)) from None
    if response.error is not None:
        # After what had come: the answer is cut, and must not look whole.
        raise click.ClickException(response.error.message)


def _prompt(prompt: str | None) -> str:
    if prompt is not None and prompt != "-":
        return prompt
    if prompt is None and sys.stdin.isatty():
        raise click.UsageError("Missing argument 'PROMPT'.")
    text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not text.strip():
        raise click.UsageError("standard input is empty: there is nothing to ask.")
    return text


async def _print(chunks: AsyncGenerator[bytes, None], as_json: bool) -> Response:
    """Prints the text as it comes, or the whole response as JSON."""
    decoder = Decoder(CHAT_COMPLETIONS)
    # Closed here, not by the loop: a pipe that nobody reads any more ends this in the middle.
    async with aclosing(chunks):
        async for chunk in chunks:
            for part in decoder.feed(chunk):
                if isinstance(part, TextDelta) and not as_json:
                    _show(part.delta)
    decoder.finish()
    response = decoder.response
    if as_json:
        write([json_line(assembled(response))])
    elif response.text and not response.text.endswith("\n"):
        _show("\n")
    return response


def _show(text: str) -> None:
    write([text.encode("utf-8", "replace")])  # lone surrogates have no bytes


# In this process


async def _from_upstreams(
    config: Path | None, model: str, raw: bytes
) -> AsyncGenerator[bytes, None]:
    """The stream of a gateway in this process, which neither listens nor stores."""
    settings = _settings(config)
    gateway = Gateway(settings)
    async with gateway.running():
        id = f"req_{secrets.token_hex(16)}"
        incoming = IncomingRequest(RequestBody(CHAT_COMPLETIONS, raw), model, True, id=id)
        run = await gateway.start(incoming)
        try:
            stream = await run.open()
            while events := await stream.next():
                yield write_events(events)
        finally:
            await run.close()
            gateway.end_run(run)
        for path in run.warnings:
            click.echo(f"warning: {path} was not carried in full", err=True)


def _settings(config: Path | None) -> Settings:
    try:
        settings = load(config, os.environ)
    except SettingsError as problem:
        raise click.ClickException(str(problem)) from None
    # One answer for one terminal: nothing is stored, and only what goes wrong is logged.
    server = msgspec.structs.replace(settings.server, log="error")
    store = msgspec.structs.replace(settings.store, enabled=False)
    return replace(settings, server=server, store=store, agents={})


# From a running gateway


async def _from_gateway(url: str, raw: bytes) -> AsyncGenerator[bytes, None]:
    try:
        address = parse_base_url(url.rstrip("/").removesuffix("/v1"))
    except ValueError as problem:
        raise click.UsageError(f"--url: {problem}.") from None
    key = os.environ.get(CLIENT_KEY)
    base = f"{address.url}/v1"
    secret = Secret(key) if key else None
    upstream = HttpUpstream(UpstreamConfig("gateway", CHAT_COMPLETIONS, base, secret))
    try:
        response = await upstream.send(OutgoingRequest("/chat/completions", raw))
        data = b""
        while chunk := await response.read():
            if response.status == 200:
                yield chunk
            else:
                data += chunk
        if response.status != 200:
            raise RequestFailed(read_error(response.status, data))
    finally:
        await upstream.close()
