"""Every command with its options and its help: the whole surface of the command line.

Nothing is imported here but click and the names of dialects, so that help and completion are quick.
A command imports the module that does its work (`weft.cli.<name>`, its function `run`) when it
is run.
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


def _run(name: str, options: dict[str, Any], function: str = "run") -> None:
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


def _capture_argument(function: F) -> F:
    return click.argument("capture", metavar="CAPTURE", type=click.Path(allow_dash=True))(function)


def _from_option(function: F) -> F:
    return click.option(
        "--from",
        "source",
        type=click.Choice(DIALECTS),
        metavar="DIALECT",
        help=f"The dialect of the capture: {', '.join(DIALECTS)}; detected if left out.",
    )(function)


def _quiet_option(function: F) -> F:
    return click.option(
        "--quiet", "-q", is_flag=True, help="Do not print findings to standard error."
    )(function)


def _config_option(default: str) -> Callable[[F], F]:
    return click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help=f"Settings file.  [default: $WEFT_CONFIG, else ./weft.toml, else {default}]",
    )


# Captures


# In each help, `\b` keeps click from joining the lines of the examples after it.
@program.command(short_help="Print each response of a capture as one JSON object.")
@_capture_argument
@_from_option
@_quiet_option
def assemble(**options: Any) -> None:
    """Print each response of a CAPTURE, and each choice, as one JSON object on one line.

    Keys: id, model, choice, text, reasoning, refusal, tool_calls, invalid_tool_calls,
    tool_results, approval_requests, sources, finish_reason, raw_finish_reason, usage, error,
    findings. A response that failed is printed like any other: its error says why, and its
    calls are all invalid. Findings (what was repaired) also go to standard error, one line each.

    Exit: 0, or 2 if the capture is unreadable.

    \b
      weft assemble stream.sse | jq .tool_calls
    """
    _run("assemble", options)


@program.command(short_help="Lint captures: report the rules they break.")
@click.argument("captures", metavar="CAPTURE...", nargs=-1, type=click.Path(allow_dash=True))
@click.option(
    # Both names: `--from` is what the other commands have.
    "--dialect",
    "--from",
    "dialect",
    type=click.Choice(DIALECTS),
    metavar="DIALECT",
    help=f"The dialect of the captures: {', '.join(DIALECTS)}; detected if left out.",
)
@click.option(
    "--select",
    multiple=True,
    metavar="RULE",
    help="Check only this rule, or the rules whose ids begin so (openai-chat/). Repeatable; "
    "commas separate several.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="RULE",
    help="Do not report this rule, or the rules whose ids begin so. Repeatable; commas separate "
    "several.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif"]),
    default="text",
    show_default=True,
    help="The format of the report.",
)
@click.option("--explain", metavar="RULE", help="Explain a rule and exit.")
@click.option("--rules", is_flag=True, help="List all rules and exit.")
def check(captures: tuple[str, ...], **options: Any) -> None:
    """Lint each CAPTURE: the rules of every stream, and the rules of its own wire.

    A CAPTURE may also be a folder, which is searched for captures at any depth, or a quoted glob
    pattern; ** matches folders at any depth.

    Prints one line for each defect: file:line:column, severity, the rule it breaks, what was
    expected, the event (counted from 0) and the byte. Then prints how known clients handle such a
    stream. Set NO_COLOR to print no colours, FORCE_COLOR to print them in a pipe too.

    Exit: 0 if there is nothing but notes, 1 if a rule is broken, 2 if a capture is unreadable.

    \b
      weft check stream.sse
      weft check captures/ --ignore sse/,lifecycle/think-tags
      weft check --format sarif captures/*.sse > weft.sarif
      weft check --explain lifecycle/call-id-repeated
    """
    if not (captures or options["explain"] is not None or options["rules"]):
        # click's own words: the argument is optional only for --explain and --rules.
        raise click.UsageError("Missing argument 'CAPTURE...'.")
    _run("check", {"captures": captures, **options})


@program.command(short_help="Convert a capture, or a request, to another dialect.")
@_capture_argument
@_from_option
@_quiet_option
@click.option(
    "--to",
    "target",
    required=True,
    type=click.Choice(DIALECTS),
    metavar="DIALECT",
    help=f"The dialect to write: {', '.join(DIALECTS)}.",
)
@click.option(
    "--request",
    "is_request",
    is_flag=True,
    help="CAPTURE is the JSON body of a request; --from is required.",
)
def convert(**options: Any) -> None:
    """Write a CAPTURE as a stream of another dialect to standard output.

    Equal captures give equal bytes. Several responses follow one another. Findings (what was
    repaired, and what the target dialect cannot carry) go to standard error, one line each.

    With --request, CAPTURE is a request body. The body for the other dialect goes to standard
    output as one line. Each difference goes to standard error as one line: the path in CAPTURE,
    the outcome (adapted: the meaning is kept; warned: style or cost may differ), and the reason.

    Exit: 0, or 2 if the capture is unreadable. With --request also 1 if the target dialect cannot
    express the request: the line on standard error gives the path and the reason.

    \b
      weft convert stream.sse --to openai-responses
      curl -sN … | weft convert - --to anthropic-messages
      weft convert --request body.json --from openai-chat --to gemini
    """
    if options["is_request"] and options["source"] is None:
        raise click.UsageError("--request needs --from: the dialect of a request is not detected.")
    _run("convert", options)


@program.command(short_help="Print a capture as canonical parts, one JSON object a line.")
@_capture_argument
@_from_option
@_quiet_option
def parts(**options: Any) -> None:
    """Print the guarded canonical parts of a CAPTURE, one JSON object a line.

    `type` comes first. Fields that hold their default are left out. Several responses, or
    choices, follow one another: each begins with response-metadata and ends with finish. Of
    several choices, choice 0 is printed as it comes, the others when the response has ended.
    Findings (what was repaired) go to standard error, one line each.

    Exit: 0, or 2 if the capture is unreadable.

    \b
      weft parts stream.sse
      curl -sN … | weft parts - --from openai-chat
    """
    _run("parts", options)


# The gateway


@program.group(short_help="Check the settings; list upstream presets.")
def config() -> None:
    """Check the settings of the gateway without starting it."""


@config.command("check", short_help="Check weft.toml; name the line and key of each mistake.")
@_config_option("built-in defaults")
def config_check(**options: Any) -> None:
    """Read the settings as `weft serve` does, and print a summary.

    Errors and warnings go to standard error, each with its line and key. Secrets are looked up
    but never printed.

    Exit: 0 if the settings are valid, 1 if not.

    \b
      weft config check
      weft config check --config /etc/weft.toml
    """
    _run("config", options, "check")


@config.command(short_help="List the built-in upstream presets.")
def presets() -> None:
    """List the built-in upstream presets.

    An upstream that has the name of a preset, or sets `preset` to it, needs no dialect and no
    base_url. Unless api_key is set, its key is read from the environment variable shown.
    """
    _run("config", {}, "presets")


@program.command(short_help="Show a broken stream being converted live.")
@click.option("--raw", is_flag=True, help="Write only the converted stream.")
@click.option("--pace", default=8.0, show_default=True, help="Milliseconds between two chunks.")
def demo(**options: Any) -> None:
    """Convert a broken stream live: one tool call whose id comes in each of 231 chunks.

    \b
      weft demo --raw --pace 0
    """
    _run("demo", options)


@program.command(short_help="Run the gateway.")
@_config_option("the demo model only")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 is any.  [default: 8787]")
@click.option("--workers", type=click.IntRange(1), help="Processes.  [default: 1]")
@click.option("--insecure", is_flag=True, help="Listen beyond this machine without client keys.")
@click.option(
    "--reject-lossy", is_flag=True, help="Refuse requests that an upstream cannot take in full."
)
def serve(**options: Any) -> None:
    """Serve OpenAI Responses, Chat Completions, Anthropic Messages and Gemini requests from
    upstreams of any of these dialects.

    \b
      weft serve
      curl http://127.0.0.1:8787/v1/chat/completions -H 'content-type: application/json' \\
        -d '{"model":"demo/chat","messages":[{"role":"user","content":"hi"}]}'

    SIGTERM lets running responses finish (server.drain); a second SIGTERM stops at once.
    """
    _run("serve", options)


# Agents


@program.command(short_help="Run an agent.")
@click.argument("agent", required=False)
@click.argument("prompt", required=False)
@_config_option("the demo agent only")
@click.option("--resume", metavar="RUN", help="Go on with this run, instead of starting one.")
@click.option(
    "--approve",
    type=click.Choice(["never", "ask", "always"]),
    default="ask",
    show_default=True,
    help="What to say to calls that need approval: deny them, ask on the terminal, approve them.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the events of the run, one JSON object a line."
)
def run(agent: str | None, resume: str | None, **options: Any) -> None:
    """Run AGENT, one of [agents] in the settings, on PROMPT, or on standard input (-).

    Its text goes to standard output as it comes; calls, their results and questions go to standard
    error. The run is stored from its first event on. If this process dies, --resume goes on with
    the run; so does any gateway or worker on the same store.

    Ctrl-C cancels the run. A second Ctrl-C quits at once: a run that was not cancelled by then can
    be resumed.

    Exit: 0 if the run has finished, 1 if it failed, 2 if the store cannot be used, 3 if it waits
    for somebody else, 130 if it was cancelled.

    \b
      weft run demo 'Refund order A-17.'
      weft run helper --approve never - < question.txt
      weft run --resume run_0123
    """
    if resume is None and agent is None:
        raise click.UsageError("Missing argument 'AGENT'.")
    if resume is not None and agent is not None:
        raise click.UsageError("--resume goes on with a run: it takes neither AGENT nor PROMPT.")
    _run("run", {"agent": agent, "resume": resume, **options})


@program.group(short_help="List, show, approve, resolve, cancel and export runs.")
def runs() -> None:
    """Look at the runs of agents in the store, and decide about them.

    What is decided here is carried out by the gateways and workers on the same store.

    Exit: 0, 1 if there is no such run or it cannot be done now, 2 if the store cannot be read.
    """


def _run_argument(function: F) -> F:
    return click.argument("run", metavar="RUN")(function)


@runs.command("list", short_help="List the newest runs.")
@_config_option("built-in defaults")
@click.option(
    "--status",
    type=click.Choice(["running", "waiting", "finished", "failed", "cancelled"]),
    help="Only runs with this status.",
)
@click.option("--agent", help="Only runs of this agent.")
@click.option(
    "--owner", default="", help="Runs of this client key.  [default: those without a key]"
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def runs_list(**options: Any) -> None:
    """List the newest runs: id, status, time (UTC), number of events, agent.

    \b
      weft runs list --status waiting
    """
    _run("runs", options, "list_runs")


@runs.command("show", short_help="Print a run as a JSON object.")
@_run_argument
@_config_option("built-in defaults")
def runs_show(**options: Any) -> None:
    """Print a RUN as a JSON object: its status, what it waits for, its output and its usage."""
    _run("runs", options, "show")


@runs.command("events", short_help="Print the events of a run.")
@_run_argument
@_config_option("built-in defaults")
@click.option("--after", type=click.IntRange(0), default=0, help="Only events after this number.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the run ends.")
def runs_events(**options: Any) -> None:
    """Print the events of a RUN, one JSON object a line.

    \b
      weft runs events run_0123 | jq 'select(.kind == "call.finished")'
    """
    _run("runs", options, "events")


@runs.command("approve", short_help="Approve or deny calls.")
@_run_argument
@click.argument("calls", metavar="[CALL]...", nargs=-1)
@_config_option("built-in defaults")
@click.option("--deny", is_flag=True, help="Deny them instead.")
@click.option("--reason", default="", help="The model gets it with a denial.")
@click.option(
    "--scope",
    type=click.Choice(["call", "tool", "run"]),
    default="call",
    show_default=True,
    help="Approve this call, all calls of its tool, or all calls of the run.",
)
def runs_approve(**options: Any) -> None:
    """Approve calls of a RUN by their ids, or those of the approvals; `weft runs show` has both.
    Without an id: the only one that waits.

    \b
      weft runs approve run_0123
      weft runs approve run_0123 call_7 --deny --reason 'too expensive'
    """
    _run("runs", options, "approve")


@runs.command("resolve", short_help="Settle a call whose outcome is unknown.")
@_run_argument
@click.argument("call", metavar="CALL")
@click.argument("action", type=click.Choice(["done", "retry", "abandon"]))
@_config_option("built-in defaults")
@click.option("--result", default="", help="With `done`: what the model gets as the result.")
@click.option("--error", "is_error", is_flag=True, help="With `done`: the result is an error.")
def runs_resolve(**options: Any) -> None:
    """Settle a parked CALL of a RUN: a process died while the call ran, or its connection was lost.

    Find out whether the call has happened. `done`: it has. `retry`: it has not, and may be made
    again. `abandon`: the model is told that its outcome is unknown.

    \b
      weft runs resolve run_0123 call_7 done --result 'refunded'
    """
    _run("runs", options, "resolve")


@runs.command("cancel", short_help="Cancel a run.")
@_run_argument
@_config_option("built-in defaults")
@click.option("--reason", default="", help="Stored with the run.")
def runs_cancel(**options: Any) -> None:
    """Cancel a RUN. One that has ended stays as it is."""
    _run("runs", options, "cancel")


@runs.command("export", short_help="Print everything that is stored of a run.")
@_run_argument
@_config_option("built-in defaults")
def runs_export(**options: Any) -> None:
    """Print a RUN, its events, and the responses of its turns as one JSON object.

    It holds all prompts, arguments and results.
    """
    _run("runs", options, "export")


@program.command(short_help="Work on the runs of agents.")
@_config_option("the demo agent only")
@click.option("--concurrency", type=click.IntRange(1), help="Runs at the same time.  [default: 64]")
def worker(**options: Any) -> None:
    """Work on the runs of agents in the store, without listening for requests.

    Any number of workers and gateways can share a store; each run is worked on by one of them. A
    run of a process that died is taken over when its lease ends (workers.lease).

    SIGTERM lets running calls end for some seconds, and hands the runs over at once; a second
    SIGTERM quits, and they are taken over when their leases end.

    \b
      weft worker
      weft worker --config /etc/weft.toml --concurrency 16
    """
    _run("worker", options)


@program.command(short_help="Check that every stored response equals what was streamed.")
@_config_option("built-in defaults")
def verify(**options: Any) -> None:
    """Check that every stored response equals what was streamed to its client.

    The log of a response must have the digest, the number of events and the size that were
    recorded when the response ended. The stored record, body and status must match the log. A
    previous response must belong to the same key. Responses that are still running, or whose log
    was removed (store.log_retention), are counted but not compared. The server may be running.

    Prints one line for each difference: the id of the response, the part that differs, and how.
    The number of responses compared goes to standard error.

    Exit: 0 if there is no difference, 1 if there is one, 2 if the store cannot be read.

    \b
      weft verify
      weft verify --config /etc/weft.toml
    """
    _run("verify", options)
