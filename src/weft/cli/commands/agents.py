"""The commands that run agents, and look at their runs."""

from typing import Any

import click

from weft.cli.program import F, config_option, program, run_command


@program.command(short_help="Run an agent.")
@click.argument("agent", required=False)
@click.argument("prompt", required=False)
@config_option("the demo agent only")
@click.option("--resume", metavar="RUN", help="Continue this run instead of starting one.")
@click.option(
    "--approve",
    type=click.Choice(["never", "ask", "always"]),
    default="ask",
    show_default=True,
    help="How calls that need approval are decided: denied, asked about, or approved.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the events of the run, one JSON object a line."
)
def run(agent: str | None, resume: str | None, **options: Any) -> None:
    """Run AGENT, one of [agents] in the settings, on PROMPT, or on standard input (-).

    Its text goes to standard output as it comes; calls, their results and questions go to standard
    error. The run is stored from its first event on. If this process dies, --resume continues
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
        raise click.UsageError("--resume continues a run: it takes neither AGENT nor PROMPT.")
    run_command("run", {"agent": agent, "resume": resume, **options})


@program.group(short_help="List, show, decide about, fork and export runs.")
def runs() -> None:
    """Look at the runs of agents in the store, and decide about them.

    What is decided here is carried out by the gateways and workers on the same store.

    Exit: 0, 1 if there is no such run or it cannot be done now, 2 if the store cannot be read.
    """


def _run_argument(function: F) -> F:
    return click.argument("run", metavar="RUN")(function)


@runs.command("list", short_help="List the newest runs.")
@config_option("built-in defaults")
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
    run_command("runs", options, "list_runs")


@runs.command("show", short_help="Print a run as a JSON object.")
@_run_argument
@config_option("built-in defaults")
def runs_show(**options: Any) -> None:
    """Print a RUN as a JSON object: its status, what it waits for, its output and its usage."""
    run_command("runs", options, "show")


@runs.command("events", short_help="Print the events of a run.")
@_run_argument
@config_option("built-in defaults")
@click.option("--after", type=click.IntRange(0), default=0, help="Only events after this number.")
@click.option("--follow", "-f", is_flag=True, help="Wait for further events until the run ends.")
def runs_events(**options: Any) -> None:
    """Print the events of a RUN, one JSON object a line.

    \b
      weft runs events run_0123 | jq 'select(.kind == "call.finished")'
    """
    run_command("runs", options, "events")


@runs.command("approve", short_help="Approve or deny calls.")
@_run_argument
@click.argument("calls", metavar="[CALL]...", nargs=-1)
@config_option("built-in defaults")
@click.option("--deny", is_flag=True, help="Deny them instead.")
@click.option("--reason", default="", help="Sent to the model with a denial.")
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
    run_command("runs", options, "approve")


@runs.command("resolve", short_help="Settle a call whose outcome is unknown.")
@_run_argument
@click.argument("call", metavar="CALL")
@click.argument("action", type=click.Choice(["done", "retry", "abandon"]))
@config_option("built-in defaults")
@click.option("--result", default="", help="With `done`: what the model gets as the result.")
@click.option("--error", "is_error", is_flag=True, help="With `done`: the result is an error.")
def runs_resolve(**options: Any) -> None:
    """Settle a parked CALL of a RUN: a process died while the call ran, or its connection was lost.

    Find out whether the call has happened. `done`: it has. `retry`: it has not, and may be made
    again. `abandon`: the model gets an error that the outcome is unknown.

    \b
      weft runs resolve run_0123 call_7 done --result 'refunded'
    """
    run_command("runs", options, "resolve")


@runs.command("cancel", short_help="Cancel a run.")
@_run_argument
@config_option("built-in defaults")
@click.option("--reason", default="", help="Stored with the run.")
def runs_cancel(**options: Any) -> None:
    """Cancel a RUN. One that has ended stays as it is."""
    run_command("runs", options, "cancel")


@runs.command("fork", short_help="Start a run from the first events of another.")
@_run_argument
@click.option(
    "--after",
    type=click.IntRange(min=1),
    required=True,
    metavar="N",
    help="The number of the last event that both have in common.",
)
@config_option("built-in defaults")
def runs_fork(**options: Any) -> None:
    """Start a run that continues from the first events of another RUN, and print its id.

    Calls in these events are not made again. A run can be forked after each event at which no turn
    and no call is under way; the error for any other names the next ones.

    \b
      weft runs events run_0123
      weft runs fork run_0123 --after 5
      weft run --resume $(weft runs fork run_0123 --after 5)
    """
    run_command("runs", options, "fork")


@runs.command("export", short_help="Print everything that is stored of a run.")
@_run_argument
@config_option("built-in defaults")
def runs_export(**options: Any) -> None:
    """Print a RUN, its events, and the responses of its turns as one JSON object.

    It holds all prompts, arguments and results.
    """
    run_command("runs", options, "export")


@program.command(short_help="Work on runs and background responses.")
@config_option("the demo agent only")
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    help="Runs at the same time, and as many background responses.  [default: 64]",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help="Listen there for /metrics, /health and /ready; port 0 is a free one.",
)
def worker(**options: Any) -> None:
    """Work on the runs of agents and on background responses in the store, without listening.

    Any number of workers and gateways can share a store; each run is worked on by one of them. A
    run of a process that died is taken over when its lease ends (workers.lease), and so is a
    background response (store.lease) of which nothing was sent yet.

    SIGTERM lets running calls end for some seconds, and hands the runs over at once; a second
    SIGTERM quits, and they are taken over when their leases end.

    \b
      weft worker
      weft worker --config /etc/weft.toml --concurrency 16 --metrics 127.0.0.1:9464
    """
    run_command("worker", options)
