"""`weft init`: writes a commented weft.toml, with upstreams for the keys in the environment."""

import os
from collections.abc import Mapping
from pathlib import Path

import click

from weft.gateway.settings import DEFAULT
from weft.upstream.catalog import HOSTS, Host

_HEAD = """\
# Settings of Weft. `weft config check` checks them, `weft doctor` also what they need;
# docs/settings.md describes every key. All of these can be left out.

[server]
# host = "127.0.0.1"          # other addresses need [server.keys]
# port = 8787
# log = "info"                # debug, info, warning, error

# [server.keys]               # who may use the gateway; without any: this machine
# alice = "env:ALICE_KEY"

[store]
# url = "sqlite:///weft.db"   # or postgresql://user:password@host/database
# retention = 0               # days after which responses are removed; 0: never

# Upstreams. One with the name of a preset (`weft config presets`) needs nothing else: its key comes
# from the environment. Keys are never written to this file.
"""

_DEMO_UPSTREAM = """
# No key was found in the environment, so this is the built-in model. For a real one, set its key
# and remove the #:
[upstreams.demo]

# [upstreams.openai]          # OPENAI_API_KEY
# [upstreams.anthropic]       # ANTHROPIC_API_KEY
"""

_OTHER = """
# Any other server:
# [upstreams.local]
# dialect = "openai-chat"     # openai-chat, openai-responses, anthropic-messages, gemini
# base_url = "http://127.0.0.1:11434/v1"
# api_key = "env:LOCAL_KEY"
"""

_MODELS = """
# Names for models. Several are tried in order; `balance` chooses otherwise.
[models]
"""


def run(path: Path | None, force: bool, show: bool) -> None:
    text = settings_text(os.environ)
    if show:
        click.echo(text, nl=False)
        return
    target = path or DEFAULT
    try:
        # Exclusive: two of them at once do not overwrite one another, and nothing is lost.
        with target.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.ClickException(f"{target} exists; use --force to replace it") from None
    except OSError as problem:
        raise click.ClickException(f"cannot write {target}: {problem.strerror}") from None
    found = ", ".join(host.name for host in found_hosts(os.environ)) or "none: the demo model"
    click.echo(f"wrote {target}; upstreams with a key in the environment: {found}")
    click.echo("next: weft doctor, then weft serve")


def found_hosts(environ: Mapping[str, str]) -> list[Host]:
    """Returns the presets whose key is set; of several on one host, the first."""
    found: dict[str, Host] = {}
    for host in HOSTS.values():
        # A preset without an address needs one of its own, which is not in the environment.
        if host.variable and host.base_url and environ.get(host.variable, "").strip():
            found.setdefault(host.variable, host)
    return list(found.values())


def settings_text(environ: Mapping[str, str]) -> str:
    """Returns the text of the file. It names variables, and never contains a key."""
    hosts = found_hosts(environ)
    tables = [f"\n[upstreams.{host.name}]{'':<8} # {host.variable}\n" for host in hosts]
    alias = 'fast = "demo/chat"\n'
    if hosts:
        targets = ", ".join(f'"{host.name}/MODEL"' for host in hosts[:2])
        alias = f"# fast = [{targets}]\n"
    return "".join([_HEAD, *(tables or [_DEMO_UPSTREAM]), _OTHER, _MODELS, alias])
