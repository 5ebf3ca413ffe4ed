"""MCP over the stdin and stdout of a process that we start.

The package's own transport passes six variables of our environment on, reads lines of any length
(copying what it has for every 64 KiB more), and hands our stderr to the server. This one starts the
server with exactly the environment of the settings, limits a message, and logs what the server
writes to stderr.

A server is stopped as the specification says: its stdin is closed, then it is asked to terminate,
then killed; the last two with its whole process group, so that what it started ends with it.
"""

import asyncio
import logging
import os
import shutil
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from weft.agent.mcp_config import MAX_MESSAGE, ConnectionLoss, McpServerConfig

logger = logging.getLogger(__name__)

GRACE = 2.0
"""Seconds between the steps that stop a server."""

Incoming = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def stdio_transport(config: McpServerConfig, loss: ConnectionLoss) -> AsyncIterator[Streams]:
    """Runs the server while the context is open. `loss` gets the reason when no further message
    will come.

    Raises OSError if the command cannot be started.
    """
    program, *arguments = config.command or ()
    # Found by our own PATH: the server has one only if the settings give it one.
    process = await asyncio.create_subprocess_exec(
        shutil.which(program) or program,
        *arguments,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=dict(config.env),
        start_new_session=True,  # a group of its own, which can be signalled as a whole
        limit=MAX_MESSAGE,
    )
    # Unbuffered: a server that sends faster than it is understood is made to wait.
    to_client, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, from_client = anyio.create_memory_object_stream[SessionMessage](0)
    tasks = [
        asyncio.ensure_future(_receive(config.name, process, to_client, loss)),
        asyncio.ensure_future(_send(process, from_client, loss)),
        asyncio.ensure_future(_log_stderr(config.name, process)),
    ]
    try:
        yield incoming, outgoing
    finally:
        # The package's scopes cancel again at every await, which would leave the process running.
        with anyio.CancelScope(shield=True):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (to_client, incoming, outgoing, from_client):
                stream.close()
            await _stopped(config.name, process)


async def _receive(
    name: str,
    process: Process,
    to_client: MemoryObjectSendStream[Incoming],
    loss: ConnectionLoss,
) -> None:
    assert process.stdout is not None
    try:
        while line := await process.stdout.readline():
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                # Some servers print what they do: it belongs to stderr, and does no harm here.
                logger.warning("MCP server %s wrote no message: %r", name, line[:200])
                continue
            await to_client.send(SessionMessage(message))
        loss.report("the server closed its output")
    except ValueError:  # asyncio's word for a line over the limit
        loss.report(f"the server sent a message of more than {MAX_MESSAGE} bytes")
    except anyio.BrokenResourceError:
        loss.report("the connection was closed")
    finally:
        # Those who wait for an answer get the error now.
        to_client.close()


async def _send(
    process: Process,
    from_client: MemoryObjectReceiveStream[SessionMessage],
    loss: ConnectionLoss,
) -> None:
    assert process.stdin is not None
    try:
        async for sent in from_client:
            line = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(line.encode() + b"\n")
            await process.stdin.drain()
    # Also ConnectionResetError, by which asyncio says that the pipe is closed.
    except OSError:
        loss.report("the server closed its input")


async def _log_stderr(name: str, process: Process) -> None:
    assert process.stderr is not None
    # Read in any case: a server that nobody listens to blocks when the pipe is full.
    while chunk := await process.stderr.read(8192):
        for line in chunk.decode(errors="replace").splitlines():
            logger.info("MCP server %s: %s", name, line)


async def _stopped(name: str, process: Process) -> None:
    """Returns when the process has ended. If it is cancelled, it kills the process, and returns no
    earlier: a process that nobody waits for would stay behind as a zombie."""
    stopping = asyncio.ensure_future(_stop(name, process))
    cancelled = None
    while not stopping.done():
        try:
            await asyncio.wait((stopping,))
        except asyncio.CancelledError as error:
            cancelled = error
            _signal_group(process, signal.SIGKILL)
    if cancelled is not None:
        raise cancelled


async def _stop(name: str, process: Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    # Until its pipes are read to their ends, asyncio does not notice that a process has ended.
    ended = asyncio.ensure_future(
        asyncio.gather(process.wait(), _drain(process.stdout), _drain(process.stderr))
    )
    for step in (None, signal.SIGTERM, signal.SIGKILL):
        if step is not None:
            _signal_group(process, step)
        await asyncio.wait((ended,), timeout=GRACE)
        if ended.done():
            break
    # Children may outlive the server without holding its pipes open.
    _signal_group(process, signal.SIGKILL)
    if ended.done():
        logger.info("MCP server %s ended with status %s", name, process.returncode)
    else:
        ended.cancel()
        logger.error("MCP server %s: process %d does not end", name, process.pid)


def _signal_group(process: Process, number: signal.Signals) -> None:
    """The server is the leader of its group. None is left if they have all ended."""
    # PermissionError: all that is left of the group are zombies, on some systems.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def _drain(stream: asyncio.StreamReader | None) -> None:
    while stream is not None and await stream.read(65536):
        pass
