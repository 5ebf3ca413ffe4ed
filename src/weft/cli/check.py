"""`weft check`: the linter for captured streams."""

import sys
from importlib.metadata import version

import click

from weft.check.engine import examine
from weft.check.report import Checked, as_json, as_sarif, explanation, failed, listing, text
from weft.check.rulebook import rules_named
from weft.cli.captures import READABLE, UNREADABLE, Capture
from weft.dialects.rules import Severity
from weft.errors import WeftError

VIOLATIONS = 1
"""The exit code for readable captures that break a rule."""

_COLOURS: dict[Severity, str] = {"error": "red", "warning": "yellow", "note": "cyan"}


@click.command(short_help="Lint captures: report the rules they break.")
@click.argument("captures", metavar="CAPTURE...", nargs=-1)
@click.option(
    "--dialect",
    "--from",
    "dialect",
    type=click.Choice(READABLE),
    metavar="DIALECT",
    help=f"The dialect of the captures: {', '.join(READABLE)}; detected if left out.",
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
def check(
    captures: tuple[str, ...], dialect: str | None, form: str, explain: str | None, rules: bool
) -> None:
    """Lint each CAPTURE: the rules of every stream, and the rules of its own wire.

    Prints one line for each defect: the event (counted from 0), the byte, the rule it breaks and
    what was expected. Then prints how known clients handle such a stream.

    Exit: 0 if there is nothing but notes, 1 if a rule is broken, 2 if a capture is unreadable.

    \b
      weft check stream.sse
      weft check --format sarif captures/*.sse > weft.sarif
      weft check --explain lifecycle/call-id-repeated
    """
    if rules:
        click.echo(listing(), nl=False)
    elif explain is not None:
        click.echo(_explained(explain), nl=False)
    elif not captures:
        raise click.UsageError("Missing argument 'CAPTURE...'.")
    else:
        sys.exit(_checked(captures, dialect, form))


def _explained(name: str) -> str:
    try:
        return "\n".join(explanation(id) for id in rules_named(name))
    except WeftError as problem:
        raise click.UsageError(str(problem)) from None


def _checked(paths: tuple[str, ...], dialect: str | None, form: str) -> int:
    checked = [_one(path, dialect) for path in paths]
    if form == "text":
        click.echo(text(checked, _paint), nl=False)
    else:
        sarif = form == "sarif"
        sys.stdout.buffer.write(as_sarif(checked, version("weft")) if sarif else as_json(checked))
        sys.stdout.buffer.flush()  # while click can still be quiet about a reader that went away
    if any(each.error for each in checked):
        return UNREADABLE
    return VIOLATIONS if failed(checked) else 0


def _one(path: str, dialect: str | None) -> Checked:
    """Checks one capture. An unreadable one is reported at once; the others are still checked."""
    try:
        read = Capture(path, dialect)
        try:
            return Checked(path, read.raw, examine(read.raw, read.dialect))
        except WeftError as problem:
            raise read.unreadable(problem) from None
    except click.ClickException as problem:
        problem.show()
        return Checked(path, error=problem.format_message())


def _paint(word: str, severity: Severity) -> str:
    return click.style(word, fg=_COLOURS[severity])  # echo takes it away where it is no terminal
