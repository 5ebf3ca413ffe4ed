"""`weft`: the group of all commands. Each is loaded when it is asked for."""

import sys

try:
    import click
except ModuleNotFoundError:  # the library was installed without its command line
    sys.exit("weft: the command line needs an extra: pip install 'weft[cli]'")

from importlib import import_module
from importlib.metadata import version

COMMANDS = ("assemble", "check", "config", "convert", "demo", "parts", "serve", "verify")
"""Each is a module here, and in it a command of the same name."""


class Commands(click.Group):
    """Loads a command when it is asked for: those that serve bring a server with them."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        try:
            found = getattr(import_module(f"weft.cli.{name}"), name)
        except ModuleNotFoundError as missing:
            return _lacking(name, missing)
        return found if isinstance(found, click.Command) else None


def _lacking(name: str, missing: ModuleNotFoundError) -> click.Command:
    """Stands in for a command whose libraries are not installed."""
    message = f"weft {name} needs an extra: pip install 'weft[gateway]' ({missing.name} is missing)"
    return click.Command(name, callback=lambda: sys.exit(message), short_help="Not installed.")


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(version("weft"), prog_name="weft")
def main() -> None:
    """Speaks every LLM streaming dialect and makes each stream happen exactly once.

    A CAPTURE is a path, or - for standard input: server-sent events as a server sent them, one
    JSON event a line, or one JSON body. It may hold several responses, and several choices.
    Data goes to standard output, everything else to standard error.
    """
