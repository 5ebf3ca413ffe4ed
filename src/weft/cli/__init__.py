"""The command line: `commands.py` declares it, and each command runs in a module of its name."""
