"""The commands that work on the store: conversations, keys, usage, and the audit."""

from typing import Any

import click

from weft.cli.program import config_option, program, run_command


@program.command(short_help="Print the stored conversations, one JSON object a line.")
@config_option("built-in defaults")
@click.option("--key", "owner", metavar="NAME", help="Only those of this API key.")
def export(**options: Any) -> None:
    """Print the conversations in the store with all their items, one JSON object a line.

    It holds all prompts and answers. The server may be running.

    Exit: 0, or 2 if the store cannot be read.

    \b
      weft export > conversations.jsonl
      weft export --key alice | gzip > alice.jsonl.gz
    """
    run_command("conversations", options, "export")


@program.command("import", short_help="Store conversations that `weft export` printed.")
@click.argument("file", metavar="FILE", type=click.Path(allow_dash=True))
@config_option("built-in defaults")
@click.option("--key", "owner", metavar="NAME", help="The API key that gets all of them.")
def import_(**options: Any) -> None:
    """Store the conversations of FILE, or of standard input (-), under the ids they have.

    One that exists already is left as it is, and named on standard error. A line that is no
    conversation ends the command; what stood before it is stored.

    Exit: 0, 1 if some existed already or a line is no conversation, 2 if the store or FILE cannot
    be read.

    \b
      weft import conversations.jsonl
      gunzip -c alice.jsonl.gz | weft import - --key bob
    """
    run_command("conversations", options, "import_")


@program.command(short_help="Check that every stored response equals what was streamed.")
@config_option("built-in defaults")
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
    run_command("verify", options)


@program.group(short_help="Create, list, revoke and rotate client keys.")
def keys() -> None:
    """Manage the client keys in the store of the settings.

    Running gateways on the same store know a new key at once, and refuse a revoked one within a
    second or two. Keys can also be set in the settings, under [server.keys].

    Exit: 0, 1 if it cannot be done, 2 if the store cannot be used.
    """


@keys.command("create", short_help="Make a key, and print it once.")
@click.argument("name")
@config_option("built-in defaults")
@click.option(
    "--model", "models", multiple=True, help="A model it may use, such as openai/*; repeatable."
)
@click.option("--requests-per-minute", type=click.IntRange(1), help="Requests per minute.")
@click.option("--tokens-per-minute", type=click.IntRange(1), help="Tokens per minute.")
@click.option("--streams", type=click.IntRange(1), help="Responses at the same time.")
@click.option("--budget-day", type=click.FloatRange(0), help="US dollars per day.")
@click.option("--budget-month", type=click.FloatRange(0), help="US dollars per month.")
@click.option("--budget-total", type=click.FloatRange(0), help="US dollars in total.")
@click.option(
    "--usage",
    type=click.Choice(["own", "all"]),
    default="own",
    show_default=True,
    help="Whose usage it may see: its own, or that of all keys.",
)
def keys_create(**options: Any) -> None:
    """Make a key for the client NAME, and print it to standard output. It is shown only once: the
    store has its SHA-256 digest alone.

    \b
      weft keys create alice
      weft keys create ci --model 'openai/*' --requests-per-minute 60 --budget-day 5
    """
    run_command("keys", options, "create")


@keys.command("list", short_help="List the keys.")
@config_option("built-in defaults")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def keys_list(**options: Any) -> None:
    """List the keys of the settings and of the store: name, last characters, when it was made,
    whether it is valid, and what it may do."""
    run_command("keys", options, "list_keys")


@keys.command("revoke", short_help="Make a key invalid.")
@click.argument("name")
@config_option("built-in defaults")
def keys_revoke(**options: Any) -> None:
    """Make the key of the client NAME invalid. The name cannot be used again: what the client has
    stored stays under it."""
    run_command("keys", options, "revoke")


@keys.command("rotate", short_help="Replace a key by a new one.")
@click.argument("name")
@config_option("built-in defaults")
def keys_rotate(**options: Any) -> None:
    """Replace the key of the client NAME by a new one, and print that. The old one is refused
    within a second or two. Rules, usage and stored responses stay."""
    run_command("keys", options, "rotate")


@program.command(short_help="Print what the keys have used.")
@config_option("built-in defaults")
@click.option("--start", metavar="DAY", help="The first day (UTC), as in 2026-01-31.")
@click.option("--end", metavar="DAY", help="The last day.")
@click.option("--key", help="Only this key.")
@click.option("--model", help="Only this model, with or without its upstream.")
@click.option("--upstream", help="Only this upstream.")
@click.option(
    "--group-by",
    default="day,key,model,upstream",
    show_default=True,
    metavar="LIST",
    help="What to sum up by: some of day, key, model, upstream.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
)
def usage(**options: Any) -> None:
    """Print the ledger: requests, tokens and cost by day, key, model and upstream.

    A request is one attempt at an upstream: a retry or a fallback is a request of its own. Tokens
    that the upstream did not report are estimated; CSV and JSON keep them apart.

    Exit: 0, 1 if an option is wrong, 2 if the store cannot be read.

    \b
      weft usage
      weft usage --start 2026-01-01 --group-by key,model --format csv
    """
    run_command("usage", options)
