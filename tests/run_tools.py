"""Tools for the tests of `/v1/runs`. Effects are lines in the file `refunds`, in the folder of the
gateway."""

import asyncio
from pathlib import Path

import weft


@weft.tool(retry="pure")
def look(order: str) -> str:
    """Look at something."""
    return f"{order} is fine"


@weft.tool(approval="always")
def refund(context: weft.ToolContext, order: str) -> str:
    """Pay back."""
    with Path("refunds").open("a") as file:
        file.write(f"{context.key}\n")
    return f"{order} was paid back"


@weft.tool(timeout=0.05)
async def hang() -> str:
    """Never comes back."""
    await asyncio.Event().wait()
    return "never"


@weft.tool
def gate() -> str:
    """Waits until somebody opens the other end of the pipe."""
    with Path("pipe").open() as pipe:
        return pipe.read()


@weft.tool(retry="pure")
def slow(context: weft.ToolContext) -> str:
    """As the gate, and says then how far it is."""
    with Path("pipe").open() as pipe:
        found = pipe.read()
    for part in (1, 2, 3):
        context.progress_sync(f"{part} of 3")
    return found
