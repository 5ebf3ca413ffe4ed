"""`weft`: the entry point."""

import sys

# click is checked for here, before anything imports it: the library itself works without.
try:
    import click  # noqa: F401
except ModuleNotFoundError:  # the library was installed without its command line
    sys.exit("weft: the command line needs an extra: pip install 'weft[cli]'")

from weft.cli.commands import program

main = program
"""What `weft` and `python -m weft` run."""
