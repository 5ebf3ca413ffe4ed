"""The commands that run the gateway, and those that help to set it up."""

from pathlib import Path
from typing import Any

import click

from weft.cli.program import config_option, program, run_command


@program.group(short_help="Check the settings; list upstream presets.")
def config() -> None:
    """Check the settings of the gateway without starting it."""


@config.command("check", short_help="Check weft.toml; name the line and key of each mistake.")
@config_option("built-in defaults")
@click.option("--connect", is_flag=True, help="Also ask each upstream for its models.")
def config_check(**options: Any) -> None:
    """Read the settings as `weft serve` does, open the store, and print a summary.

    Errors and warnings go to standard error, each with its line and key. Secrets are looked up
    but never printed.

    Exit: 0 if the settings are valid and the store can be used, 1 if not. With --connect also 1 if
    an upstream cannot be reached or rejects its key.

    \b
      weft config check
      weft config check --connect
      weft config check --config /etc/weft.toml
    """
    run_command("config", options, "check")


@config.command(short_help="List the built-in upstream presets.")
def presets() -> None:
    """List the built-in upstream presets.

    An upstream that has the name of a preset, or sets `preset` to it, needs no dialect and no
    base_url. Unless api_key is set, its key is read from the environment variable shown.
    """
    run_command("config", {}, "presets")


@program.command(short_help="Ask a model a question.")
@click.argument("model")
@click.argument("prompt", required=False)
@config_option("the demo model only")
@click.option(
    "--url", help="Ask a running gateway, with the key in $WEFT_KEY.  [default: this process]"
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the whole response as one JSON object."
)
def ask(**options: Any) -> None:
    """Ask MODEL, `<upstream>/<model>` or an alias, for an answer to PROMPT, or to standard input
    (-).

    The text goes to standard output as it comes. The upstreams of the settings are asked directly,
    and nothing is stored, unless --url names a gateway. --json prints the object of `weft
    assemble`.

    Exit: 0, or 1 if there is no answer or it is cut.

    \b
      weft ask demo/chat 'Why is the sky blue?'
      git diff | weft ask fast -
      weft ask fast 'hello' --url http://127.0.0.1:8787 --json | jq .usage
    """
    run_command("ask", options)


@program.command(short_help="Check settings, store, upstreams, keys and clock.")
@config_option("built-in defaults")
def doctor(**options: Any) -> None:
    """Check everything that the gateway needs, and print what to do about what fails.

    Versions, settings, access, store, port, each upstream (its list of models is requested, with
    its key), and the clock, compared with that of the upstreams. Nothing is changed.

    Exit: 0 if nothing failed, 1 if something did.
    """
    run_command("doctor", options)


@program.command(short_help="Write a weft.toml to start with.")
@click.argument("path", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--print", "show", is_flag=True, help="Print it instead of writing it.")
def init(**options: Any) -> None:
    """Write a commented weft.toml to PATH, ./weft.toml by default.

    It has an upstream for each API key that is found in the environment (OPENAI_API_KEY,
    ANTHROPIC_API_KEY, …), by the name of the variable: the file contains no keys.

    Exit: 0, or 1 if the file exists or cannot be written.

    \b
      weft init && weft doctor && weft serve
    """
    run_command("init", options)


@program.command(short_help="Show a broken stream being converted live.")
@click.option("--raw", is_flag=True, help="Write only the converted stream.")
@click.option("--pace", default=8.0, show_default=True, help="Milliseconds between two chunks.")
def demo(**options: Any) -> None:
    """Convert a broken stream live: one tool call whose id comes in each of 231 chunks.

    \b
      weft demo --raw --pace 0
    """
    run_command("demo", options)


@program.command(short_help="Run the gateway.")
@config_option("the demo model only")
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
    run_command("serve", options)
