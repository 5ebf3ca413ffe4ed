"""The program `weft`: the group that its commands are added to, and the options that they share.

Only click and the names of dialects are imported here and in `commands/`, so that help and
completion are quick. A command imports the module that does its work when it is run:
`weft.cli.<name>`, and of that the function `run` unless another one is named.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from weft.dialect_names import DialectName

F = TypeVar("F", bound=Callable[..., Any])

DIALECTS = tuple(sorted(get_args(DialectName)))
"""The names of all dialects, which can all be read and written."""

# Optional libraries that a command imports at its top; click itself is checked in `main.py`.
EXTRAS = {
    "rich": "cli",
    "httptools": "gateway",
    "starlette": "gateway",
    "uvicorn": "gateway",
    "uvloop": "gateway",
    "websockets": "gateway",
    "asyncpg": "postgres",
    "pgqueuer": "workers",
}
"""Which extra of the package installs a library."""

INTERRUPTED = 130
CLOSED_PIPE = 141
"""Exit codes, as shells have them for programs that SIGINT and SIGPIPE ended."""


class Program(click.Group):
    """The group of all commands. Ctrl-C and a reader that went away end it quietly."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _quiet_ends():  # help is printed while arguments are parsed
            return super().make_context(*args, **extra)

    def invoke(self, context: click.Context) -> Any:
        with _quiet_ends():
            # https://no-color.org, https://force-color.org; None: colours on a terminal
            forced = True if os.environ.get("FORCE_COLOR") else None  # also in a pipe
            context.color = False if os.environ.get("NO_COLOR") else forced
            return super().invoke(context)


@contextmanager
def _quiet_ends() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        _end(INTERRUPTED)
    except BrokenPipeError:
        _end(CLOSED_PIPE)


def _end(code: int) -> None:
    """Exits. What is still buffered for a reader that went away is dropped without a complaint."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            # Python flushes both streams once more at exit, and would print a traceback: so it gets
            # a file descriptor that takes everything (Python documentation, "Note on SIGPIPE").
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


def run_command(name: str, options: dict[str, Any], function: str = "run") -> None:
    """Runs a command: imports the module that does its work, and calls a function of it."""
    try:
        module = import_module(f"weft.cli.{name}")
    except ModuleNotFoundError as missing:
        # A module of Weft itself that is missing is a bug, and is raised as such.
        extra = EXTRAS.get((missing.name or "").partition(".")[0])
        if extra is None:
            raise
        raise click.ClickException(
            f"weft {name} needs an extra: pip install 'weft[{extra}]' ({missing.name} is missing)"
        ) from None
    getattr(module, function)(**options)


@click.group(
    cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="weft", prog_name="weft")
def program() -> None:
    """Convert, check and serve LLM streams of every dialect.

    A CAPTURE is a file, or - for standard input: server-sent events as a server sent them, one
    JSON event a line, or one JSON body, with or without HTTP headers before it (curl -i). It may
    hold several responses, and several choices. A pipe is read live, event by event.

    Data goes to standard output, everything else to standard error.
    """


def capture_argument(function: F) -> F:
    return click.argument("capture", metavar="CAPTURE", type=click.Path(allow_dash=True))(function)


def from_option(function: F) -> F:
    return click.option(
        "--from",
        "source",
        type=click.Choice(DIALECTS),
        metavar="DIALECT",
        help=f"The dialect of the capture: {', '.join(DIALECTS)}; detected if left out.",
    )(function)


def quiet_option(function: F) -> F:
    return click.option(
        "--quiet", "-q", is_flag=True, help="Do not print findings to standard error."
    )(function)


def config_option(default: str) -> Callable[[F], F]:
    return click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help=f"Settings file.  [default: $WEFT_CONFIG, else ./weft.toml, else {default}]",
    )
