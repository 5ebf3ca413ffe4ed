"""`weft`: the group of all commands."""

import sys

try:
    import click
except ModuleNotFoundError:  # the library was installed without its command line
    sys.exit("weft: the command line needs its extra: pip install 'weft[cli]'")

from importlib.metadata import version

from weft.cli.assemble import assemble
from weft.cli.check import check
from weft.cli.convert import convert
from weft.cli.demo import demo
from weft.cli.parts import parts

try:
    from weft.cli.config import config
    from weft.cli.serve import serve
except ModuleNotFoundError as missing:  # the command line was installed without the gateway
    lacking = f"weft: the gateway needs its extra: pip install 'weft[gateway]' ({missing})"
    gateway = [
        click.Command(name, callback=lambda: sys.exit(lacking), help=f"Not installed. {lacking}")
        for name in ("serve", "config")
    ]
else:
    gateway = [serve, config]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(version("weft"), prog_name="weft")
def main() -> None:
    """Speaks every LLM streaming dialect and makes each stream happen exactly once.

    A CAPTURE is a path, or - for standard input: server-sent events as a server sent them, one
    JSON event a line, or one JSON body. It may hold several responses, and several choices.
    Data goes to standard output, everything else to standard error.
    """


for command in (*gateway, parts, assemble, convert, check, demo):
    main.add_command(command)
