"""Every command with its options and its help: the whole surface of the command line.

Importing one of these modules adds its commands to `program`.
"""

from weft.cli.commands import agents, captures, gateway, store
from weft.cli.program import program

__all__ = ["agents", "captures", "gateway", "program", "store"]
