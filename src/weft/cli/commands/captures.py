"""The commands that read, serve and record captures."""

from pathlib import Path
from typing import Any

import click

from weft.cli.program import (
    DIALECTS,
    capture_argument,
    config_option,
    from_option,
    program,
    quiet_option,
    run_command,
)


# In each help, `\b` keeps click from joining the lines of the examples after it.
@program.command(short_help="Print each response of a capture as one JSON object.")
@capture_argument
@from_option
@quiet_option
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
    run_command("assemble", options)


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
    run_command("check", {"captures": captures, **options})


@program.command(short_help="Convert a capture, or a request, to another dialect.")
@capture_argument
@from_option
@quiet_option
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
    run_command("convert", options)


@program.command(short_help="Print a capture as canonical parts, one JSON object a line.")
@capture_argument
@from_option
@quiet_option
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
    run_command("parts", options)


@program.command(short_help="Print what each frame of a stream became.")
@click.argument("traced", metavar="RESPONSE_OR_CAPTURE", type=click.Path(allow_dash=True))
@from_option
@click.option(
    "--as",
    "target",
    type=click.Choice(DIALECTS),
    metavar="DIALECT",
    help="The dialect of the emitted events.  [default: that of the capture, or of the client]",
)
@click.option(
    "--quirks",
    metavar="PRESET_OR_JSON",
    help="How the upstream of the capture differs from others of its dialect.",
)
@config_option("built-in defaults")
def trace(**options: Any) -> None:
    """Print what each frame of a capture, or of a stored response, became: one JSON object a line.

    Each line is in a lane: frame (what the upstream sent), part, finding (what was repaired), emit
    (the event for the client), and end (the assembled response, and what known clients make of the
    stream). Frames have the time of their arrival if the capture has it.

    A stored response is decoded and encoded once more from what its upstream sent
    (store.upstream); without that, from what its client was sent.

    Exit: 0, 1 if the events of a stored response are not those that were sent, 2 if the capture is
    unreadable or there is no such response.

    \b
      weft trace stream.sse --as anthropic-messages
      weft trace stream.sse --quirks '{"implicit_think": true}'
      weft trace resp_0123 | jq 'select(.lane == "finding")'
    """
    run_command("trace", options)


@program.command(short_help="Compare two streams item by item.")
@click.argument("a", metavar="A", type=click.Path(allow_dash=True))
@click.argument("b", metavar="[B]", required=False, type=click.Path(allow_dash=True))
@click.option(
    "--sent",
    is_flag=True,
    help="Compare the events that the client of a stored response A was sent with those that it "
    "would be sent now.",
)
@click.option("--all", "show_all", is_flag=True, help="Print also what is the same.")
@config_option("built-in defaults")
def diff(**options: Any) -> None:
    """Compare two captures or stored responses: texts, calls, results, errors, findings.

    Prints one JSON object for each difference: op (changed, missing from B, added in B), kind, and
    the item of A and of B, with the times of its first and last frame. How a text was cut into
    chunks makes no difference.

    Exit: 0 if there is no difference, 1 if there is one, 2 if one of them is unreadable.

    \b
      weft diff before.sse after.sse
      weft diff resp_0123 resp_4567
      weft diff resp_0123 --sent
    """
    run_command("diff", options)


@program.command(short_help="Write a stored response as a regression case.")
@click.argument("id", metavar="RESPONSE")
@click.option("--name", help="The name of the case.  [default: the id of the response]")
@click.option(
    "--out", default="-", metavar="FILE", help="Where to write it.  [default: standard output]"
)
@config_option("built-in defaults")
def case(**options: Any) -> None:
    """Write what the upstream of a stored RESPONSE sent as a zip file: the capture, without keys,
    and the parts that it decodes to. Unpack it into a folder for `weft test`.

    Exit: 0, 1 if what the upstream sent was not kept (store.upstream), 2 if there is no such
    response.

    \b
      weft case resp_0123 --name odd-stream --out odd-stream.zip
    """
    run_command("case", options)


@program.command(short_help="Serve captures as an upstream.")
@click.argument("captures", metavar="CAPTURE...", nargs=-1, required=True, type=click.Path())
@from_option
@click.option("--port", type=click.IntRange(0, 65535), required=True, help="Port; 0 is any.")
@click.option(
    "--pace",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="How many times faster than recorded, if a capture has times; 0: at once.",
)
def replay(**options: Any) -> None:
    """Serve each CAPTURE as an upstream in its dialect, on 127.0.0.1.

    A request for the model `NAME` gets the capture NAME.sse; other models get the captures of the
    dialect in turn. A request without `stream` gets the response as a body. A capture with HTTP
    headers (curl -i) keeps its status. Any key is accepted.

    \b
      weft replay odd-stream.sse --port 9000
      weft replay captures/*.sse --port 9000 --pace 0
    """
    run_command("replay", options)


@program.command(short_help="Record what an upstream sends.")
@click.option("--upstream", metavar="URL", required=True, help="Where requests are forwarded.")
@click.option("--port", type=click.IntRange(0, 65535), required=True, help="Port; 0 is any.")
@click.option(
    "--out",
    "folder",
    metavar="DIR",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for captures; created if it does not exist.",
)
def capture(**options: Any) -> None:
    """Forward requests to an upstream, and write each response as a capture.

    Listens on 127.0.0.1. Point the base URL of a client there, with the path that it has at the
    upstream: http://127.0.0.1:9000/v1 for https://api.openai.com/v1. Its key and all its other
    headers are forwarded as they are.

    A capture has the bytes of the response with their times, without keys, and with the HTTP status
    if that is an error. Requests are not written. Only responses to POST are captures.

    \b
      weft capture --upstream https://api.openai.com --port 9000 --out captures/
    """
    run_command("capture", options)


@program.command(short_help="Serve upstreams that misbehave.")
@click.option("--port", type=click.IntRange(0, 65535), required=True, help="Port; 0 is any.")
def chaos(**options: Any) -> None:
    """Serve upstreams that misbehave, in every dialect, on 127.0.0.1.

    The name of the model says how: cut, cut-in-event, reset, stall, no-end, events-twice, crlf, cr,
    one-newline, no-space, comments, byte-by-byte, garbage, invalid-utf8, error-in-stream, empty,
    html, slow, good; error-400, error-401, error-429, error-500, error-529. Any key is accepted.

    \b
      weft chaos --port 9000
    """
    run_command("chaos", options)


@program.command(short_help="Compare the captures of a folder with their goldens.")
@click.argument(
    "folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option("--update", is_flag=True, help="Write the goldens instead.")
def test(**options: Any) -> None:
    """Decode every capture below DIR, and compare its parts with the golden beside it.

    The golden of NAME.sse is NAME.parts.jsonl, as `weft parts` prints it. Other captures (.json,
    .jsonl) are read if they have a golden. The dialect is the one that the capture says (`weft
    case` writes it), the one that is detected, or the name of a folder above it.

    Prints the differences. Exit: 0 if there is none, 1 if there is one or a golden is missing, 2 if
    there is no capture in DIR.

    \b
      weft test captures/
      weft test captures/ --update
    """
    run_command("test", options)
